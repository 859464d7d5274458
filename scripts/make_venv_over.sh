#!/bin/sh
# Makes a virtual environment over another one: it has what that one has, and fastconv's sources. What is
# installed into it comes before.
#
#     make_venv_over.sh FOLDER OTHER
set -eu

venv=$1
other=$2

site() {
    "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

"$other/bin/python" -m venv --clear --without-pip "$venv"
{
    site "$other"
    echo "$(cd "$(dirname "$0")/.." && pwd)/src" # OTHER's own path files, such as ours, are not read
} >"$(site "$venv")/other.pth"
