#!/bin/sh
# Counts the instructions that a picture takes, with callgrind: they do not depend on what else the machine does.
#
#     run.sh FOLDER [COUNT]    the first COUNT (100) JPEGs of a folder
set -eu

here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
type valgrind >/dev/null 2>&1 || { echo "run.sh: valgrind is missing: sudo apt install valgrind" >&2; exit 1; }

# shellcheck disable=SC2046 # several files
cc -std=c11 -O3 -fwrapv -g -o "$work/count" "$here/count.c" \
    $(ls "$here"/../kernel/*.c | grep -v /module.c) -ljpeg -lm -pthread
find "$1" -type f \( -iname '*.jpg' -o -iname '*.jpeg' \) | sort | head -n "${2:-100}" >"$work/files"
[ -s "$work/files" ] || { echo "run.sh: $1: holds no JPEG" >&2; exit 1; }
for mode in ordinary turbo crop; do
    tr '\n' '\0' <"$work/files" | xargs -0 valgrind --tool=callgrind --callgrind-out-file="$work/$mode" \
        "$work/count" "$mode" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    grep '^count:' "$work/log" >&2 || true
    sed -n 's/^summary: //p' "$work/$mode" |
        awk -v mode="$mode" -v count="$(wc -l <"$work/files")" \
            '{ printf "%-9s %.2f million instructions an image\n", mode, $1 / count / 1e6 }'
done
