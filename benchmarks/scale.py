"""Does packing stay quick and small when there are very many files?

    python benchmarks/scale.py            # 100,000 and 1,000,000 files: 5 GB of disk, half an hour
    python benchmarks/scale.py --small    # 10,000 and 100,000

Packs PNG files of one pixel, 69 bytes each, ten folders of a hundred files in each class, into
each format and, for comparison, with GNU tar. With files this small only the work for each file
counts. What is asked: how the time and the memory grow with the number of files, how long the pack
takes to open, and what its table of samples takes a sample. The files are in the system's caches.
Processes are timed as in benchmarks/pack.py.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from common import (
    FASTCONV,
    FORMATS,
    Measured,
    Report,
    Table,
    arguments,
    command_line,
    environment,
    extremes,
    finish,
    interleaved,
    middle,
    parsed,
    ratios,
    say,
)
from opening import open_seconds
from pack import MAIN, TAR, WORKERS, remove, start
from processes import Finished, run

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main", "make_tree", "measure"]

COLUMNS = (
    "",
    "files",
    "s",
    "min to max",
    "CPU s",
    "files/s",
    "peak MB, main",
    "peak MB, workers",
    "open ms",
    "table bytes a file",
    "pack bytes a file",
)
FILES_A_FOLDER = 100
FOLDERS_A_CLASS = 10


def one_pixel(red: int, green: int, blue: int) -> bytes:
    """Returns a PNG of one pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(bytes((0, red, green, blue)))),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in chunks)


def make_tree(out: Path, count: int) -> None:
    """Makes a folder of tiny images, each in another colour, unless it is there.

    Args:
        out: The folder.
        count: How many images.
    """
    if out.exists():
        return
    say(f"making {count:,} files, once")
    making = out.with_name(f"{out.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    for first in range(0, count, FILES_A_FOLDER):
        folder = first // FILES_A_FOLDER
        place = making / f"class{folder // FOLDERS_A_CLASS:05d}" / f"part{folder % FOLDERS_A_CLASS}"
        place.mkdir(parents=True)
        for number in range(first, min(first + FILES_A_FOLDER, count)):
            (place / f"image{number:08d}.png").write_bytes(one_pixel(*number.to_bytes(3, "big")))
    making.rename(out)


def pack(tree: Path, out: Path) -> dict[str, float]:
    """Packs with fastconv; returns what was measured of it."""
    from fastconv.loaders import open_dataset

    remove(out)
    os.sync()
    begun = start()
    done = run([*FASTCONV, "pack", tree, out, "--quiet"])
    _, opened = open_seconds(out)
    table = open_dataset(out).table
    found = {
        **measures(done, begun),
        "open": opened,
        "table": sum(table.column_sizes().values()) / len(table),
        "output": sum(path.stat().st_size for path in files_of(out)) / len(table),
    }
    del table
    remove(out)
    return found


def tar(tree: Path, out: Path) -> dict[str, float]:
    """Packs with GNU tar; returns what was measured of it."""
    remove(out)
    os.sync()
    done = run(["tar", "cf", out, "-C", tree.parent, tree.name], ["sync", "-d", out])
    remove(out)
    return measures(done, 0.0)


def measures(done: Finished, begun: float) -> dict[str, float]:
    """Returns measure -> value of a process that has ended; `begun` seconds were Python's start."""
    return {
        "seconds": done.seconds - begun,
        "CPU": done.cpu,
        MAIN: done.main,
        WORKERS: done.workers,
    }


def measure(counts: Sequence[int], work: Path, rounds: int, command: str) -> Report:
    """Returns how packing grows.

    Args:
        counts: Two numbers of files, the smaller one first.
        work: Where to make and pack them.
        rounds: How many.
        command: What was run.
    """
    trees = {count: work / f"tiny-{count}" for count in counts}
    for count, tree in trees.items():
        make_tree(tree, count)
        warm(Path(folder, name) for folder, _, names in os.walk(tree) for name in names)
    packers: dict[str, tuple[Callable[[Path, Path], dict[str, float]], str]] = {TAR: (tar, "gnu")}
    packers |= {f"fastconv, {title}": (pack, ending) for title, ending in FORMATS.items()}
    found = interleaved(
        {
            f"{name}, {count:,}": partial(action, trees[count], work / f"tiny.{ending}")
            for name, (action, ending) in packers.items()
            for count in counts
        },
        rounds,
    )
    few, many = counts
    rows, growth = [], []
    for name in packers:
        rows += [
            [name, f"{count:,}", *figures(found, f"{name}, {count:,}", count)] for count in counts
        ]
        small, large = f"{name}, {few:,}", f"{name}, {many:,}"
        times = ratios(found["seconds"][large], found["seconds"][small])
        main = found[MAIN]
        peaks = zip(main[large], main[small], strict=True)
        more = [(a - b) / (many - few) for a, b in peaks if a is not None and b is not None]
        growth.append([name, middle(times), extremes(times), middle(more), extremes(more)])
    tables = [
        Table(
            "Packing, opening and size",
            COLUMNS,
            rows,
            [
                f"medians of {rounds} rounds",
                "opening is in a fresh process, with one sample read, imports not counted",
            ],
        ),
        Table(
            f"From {few:,} to {many:,} files, {number_of_times(few, many)} times as many",
            ["", "times as long", "min to max", "more bytes a file, main", "min to max"],
            growth,
            [f"medians of {rounds} rounds, each ratio within a round; bytes at the peak of memory"],
        ),
    ]
    return Report("Does packing stay quick and small?", command, environment(work), tables, found)


def figures(found: dict[str, Measured], name: str, count: int) -> list[str]:
    """Returns the cells of one contestant."""
    seconds = found["seconds"][name]
    absent: list[float | None] = []
    return [
        middle(seconds),
        extremes(seconds),
        middle(found["CPU"][name]),
        middle(ratios([float(count)] * len(seconds), seconds)),
        middle(found[MAIN][name], 1e-6),
        middle(found[WORKERS][name], 1e-6),
        middle(found["open"].get(name, absent), 1e3),
        middle(found["table"].get(name, absent)),
        middle(found["output"].get(name, absent)),
    ]


def number_of_times(few: int, many: int) -> str:
    """Returns how many times as many they are."""
    return f"{many / few:g}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--small", action="store_true", help="10,000 and 100,000 files")
    parser.add_argument("--counts", type=int, nargs=2, metavar=("FEW", "MANY"), help="other counts")
    args = parsed(parser, argv)
    counts = args.counts or ([10_000, 100_000] if args.small else [100_000, 1_000_000])
    if not 0 < counts[0] < counts[1]:
        parser.error("--counts are two numbers, the smaller one first")
    finish(measure(counts, args.work, args.rounds, command_line(sys.argv)), args)


if __name__ == "__main__":
    main()
