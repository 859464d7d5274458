#!/bin/sh
# Looks for faults of the kernel: with memory, and of other processors.
#
#     run.sh fuzz PYTHON SECONDS    libFuzzer, with the sanitizers for addresses and undefined behaviour
#     run.sh memcheck PYTHON        valgrind, over the files that fuzzing begins with and found
#     run.sh arm PYTHON             whether 64-bit ARM has the same pixels of these, by qemu
#
# What fuzzing finds is kept in native/build/fuzz: files that reach other code in corpus/, those that break it
# in broken/. PYTHON makes the files that it begins with, and has Pillow.
set -eu

what=$1
python=$2
here=$(dirname "$0")
out=$here/../build/fuzz
sources=$(ls "$here"/../kernel/*.c | grep -v /module.c)
exact=-DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION # no buffer is larger than was asked for

need() {
    type "$1" >/dev/null 2>&1 && return
    echo "run.sh: $1 is missing: sudo apt install $1" >&2
    exit 1
}

mkdir -p "$out/corpus" "$out/broken"
"$python" "$here/seeds.py" "$out/seeds"

case $what in
fuzz)
    need clang
    # shellcheck disable=SC2086 # several files
    clang -std=c11 -fwrapv -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=undefined $exact \
        -o "$out/fuzz" "$here/target.c" $sources -ljpeg -lm -pthread
    "$out/fuzz" -max_total_time="$3" -timeout=20 -max_len=16384 -print_final_stats=1 \
        -artifact_prefix="$out/broken/" "$out/corpus" "$out/seeds"
    ;;
memcheck)
    need valgrind
    # shellcheck disable=SC2086
    cc -std=c11 -fwrapv -g -O1 $exact -o "$out/replay" "$here/replay.c" "$here/target.c" $sources -ljpeg -lm -pthread
    # Those of fuzzing are many: some of them, always the same. libjpeg-turbo is to use no vectors: where one
    # value of them is unknown, valgrind takes its neighbours for unknown as well.
    JSIMD_FORCENONE=1 valgrind --quiet --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite \
        "$out/replay" "$out/seeds"/* $(ls "$out/corpus" | sort | head -300 | sed "s|^|$out/corpus/|")
    ;;
arm)
    need aarch64-linux-gnu-gcc
    need qemu-aarch64-static
    for cc in cc aarch64-linux-gnu-gcc; do
        # shellcheck disable=SC2086
        $cc -std=c11 -fwrapv -O3 -static -o "$out/$cc" "$here/replay.c" "$here/target.c" $sources -ljpeg -lm -pthread
    done
    ours=$("$out/cc" "$out/seeds"/*)
    theirs=$(qemu-aarch64-static "$out/aarch64-linux-gnu-gcc" "$out/seeds"/*)
    printf 'here: %s\nARM:  %s\n' "$ours" "$theirs"
    [ "$ours" = "$theirs" ]
    ;;
*)
    echo "run.sh: $what: it is fuzz, memcheck or arm" >&2
    exit 2
    ;;
esac
