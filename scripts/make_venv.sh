#!/bin/sh
# Makes a virtual environment with pip in it, and changes nothing outside its folder.
#
#     make_venv.sh FOLDER [PYTHON]
#
# PYTHON defaults to the first of python3, python3.14, ... that fastconv runs on. An environment that
# works already is kept as it is.
set -eu

venv=$1
wanted=${2:-python3 python3.14 python3.13 python3.12 python3.11}

fail() {
    echo "make_venv.sh: $*" >&2
    exit 1
}

# Runs it: a name on the PATH may be a stand-in that only says what is not installed.
suits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=
for name in $wanted; do
    if suits "$name"; then
        python=$name
        break
    fi
done
[ -n "$python" ] ||
    fail "need Python 3.11 to 3.14, tried: $wanted. Install one (sudo apt install python3)," \
        "or name it: make PYTHON=/path/to/python3.12"

if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv --clear "$venv"
    exit 0
fi

# Debian and Ubuntu keep what puts pip into an environment in a package of its own, python3-venv. pip
# itself can be had from there without installing anything, and without root.
"$python" -m venv --clear --without-pip "$venv"
mkdir "$venv/pip-wheel"
if ! (cd "$venv/pip-wheel" &&
    apt-get download -qq python3-pip-whl &&
    dpkg -x python3-pip-whl_*.deb .) 2>"$venv/pip-wheel/log"; then
    cat "$venv/pip-wheel/log" >&2
    rm -r "$venv"
    fail "$python cannot make environments with pip: sudo apt update && sudo apt install python3-venv"
fi
for wheel in "$venv"/pip-wheel/usr/share/python-wheels/pip-*.whl; do
    "$venv/bin/python" "$wheel/pip" install --quiet --no-index "$wheel"
done
rm -r "$venv/pip-wheel"
