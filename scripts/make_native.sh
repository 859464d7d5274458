#!/bin/sh
# Builds the JPEG kernel of native/ and installs it into a virtual environment. Nothing is left in native/.
#
#     make_native.sh VENV STAMP [--try]
#
# STAMP is touched when that is done. Where a compiler or a header is missing, one line says what installs it,
# which is no failure with --try.
set -eu

venv=$1
stamp=$2
try=${3:-}
python=$venv/bin/python
native=$(dirname "$0")/../native
missing=

# Says whether what comes in is C, with these options. CC may hold options too.
compiles() {
    ${CC:-cc} "$@" -fsyntax-only -x c - 2>/dev/null
}

echo '#include <stdio.h>' | compiles || missing="$missing gcc libc6-dev"
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$include/Python.h" ] || missing="$missing python3-dev"
# shellcheck disable=SC2046 # several options
printf '#include <stdio.h>\n#include <jpeglib.h>\n#ifndef LIBJPEG_TURBO_VERSION\n#error\n#endif\n' |
    compiles $(pkg-config --cflags libjpeg 2>/dev/null) || missing="$missing libjpeg-dev"

if [ -n "$missing" ]; then
    echo "The JPEG kernel, which makes loading faster, is not built: sudo apt install$missing, then make native" >&2
    [ "$try" = --try ]
    exit
fi

echo "Building the JPEG kernel of native/"
copy=$venv/native
rm -rf "$copy"
mkdir "$copy"
for name in LICENSE README.md MANIFEST.in pyproject.toml setup.py kernel src; do
    cp -R "$native/$name" "$copy"
done
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall "$copy"
rm -r "$copy"
touch "$stamp"
