#!/bin/sh
# Builds the JPEG kernel of native/ and installs it into a virtual environment.
#
#     make_native.sh VENV STAMP [--try]
#
# STAMP is touched when it is there. Where a compiler or a header is missing, one line says what installs it;
# with --try that is no failure. Nothing is left in native/.
set -eu

venv=$1
stamp=$2
try=${3:-}
python=$venv/bin/python

missing=
lacks() {
    missing="$missing${missing:+ }$1"
}

# Returns whether the lines that come in are C, with these options.
compiles() {
    "${CC:-cc}" "$@" -fsyntax-only -x c - 2>/dev/null
}

if ! type "${CC:-cc}" >/dev/null 2>&1; then
    lacks gcc
    lacks libc6-dev
fi
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$include/Python.h" ] || lacks python3-dev
if type "${CC:-cc}" >/dev/null 2>&1; then
    # shellcheck disable=SC2046 # several options
    printf '#include <stdio.h>\n#include <jpeglib.h>\n#ifndef LIBJPEG_TURBO_VERSION\n#error\n#endif\n' |
        compiles $(pkg-config --cflags libjpeg 2>/dev/null) || lacks libjpeg62-turbo-dev
elif [ ! -f /usr/include/jpeglib.h ]; then
    lacks libjpeg62-turbo-dev
fi

if [ -n "$missing" ]; then
    echo "make_native.sh: the JPEG kernel, with which batches come faster, is not built:" \
        "sudo apt install $missing (Ubuntu: libjpeg-turbo8-dev), then make native" >&2
    [ "$try" = --try ]
    exit
fi

echo "Building the JPEG kernel of native/"
sources=$venv/native
rm -rf "$sources"
mkdir "$sources"
(cd "$(dirname "$0")/../native" && cp -R LICENSE README.md MANIFEST.in pyproject.toml setup.py kernel src fuzz "$OLDPWD/$sources")
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    "./$sources"
rm -r "$sources"
touch "$stamp"
