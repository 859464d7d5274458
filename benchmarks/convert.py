"""How long does converting a pack take, beside packing the folder anew?

    python benchmarks/convert.py

10,000 photos, all of them in the page cache as raw files and as packs. Each format is made of the
folder (`fastconv pack`) and of a pack of another format (`fastconv convert`: of an LMDB, and that
one of a tar), whole processes, safely on disk at the end. Converting compares every checksum, which
packing has to take. All take their turn in each round; before each, its output is deleted and
`sync` waits for the disk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from common import (
    FASTCONV,
    FORMATS,
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
    with_photos,
)
from pack import remove
from processes import run

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main", "measure"]

COLUMNS = ("", "pack, s", "convert, s", "x pack", "min to max", "from")


def measure(photos: Path, work: Path, rounds: int, command: str) -> Report:
    """Returns what converting takes.

    Args:
        photos: A folder of images.
        work: Where to make the packs.
        rounds: How many.
        command: What was run.
    """
    sources = {title: ("one tar" if title == "LMDB" else "LMDB") for title in FORMATS}
    packs = {title: work / f"from.{FORMATS[title]}" for title in {*sources.values()}}
    for pack in packs.values():
        remove(pack)
        run([*FASTCONV, "pack", photos, pack, "--quiet"])

    def turn(command: str, source: Path, out: Path) -> dict[str, float]:
        remove(out)
        os.sync()
        warm(files_of(source))
        done = run([*FASTCONV, command, source, out, "--quiet"])
        remove(out)
        return {"seconds": done.seconds}

    turns = {}
    for title, ending in FORMATS.items():
        out = work / f"made.{ending}"
        turns[f"pack, {title}"] = partial(turn, "pack", photos, out)
        turns[f"convert, {title}"] = partial(turn, "convert", packs[sources[title]], out)
    found = interleaved(turns, rounds, {})["seconds"]
    rows = []
    for title, source in sources.items():
        packed, converted = found[f"pack, {title}"], found[f"convert, {title}"]
        times = ratios(converted, packed)
        rows.append(
            [title, middle(packed), middle(converted), middle(times), extremes(times), source]
        )
    size = sum(path.stat().st_size for path in files_of(photos))
    table = Table(
        f"Making a pack of {size / 1e6:.0f} MB",
        COLUMNS,
        rows,
        [f"medians of {rounds} rounds; each ratio is to packing in the same round"],
    )
    question = "How long does converting a pack take, beside packing the folder anew?"
    return Report(question, command, environment(work), [table], {"seconds": found})


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    args = parsed(with_photos(arguments(__doc__, rounds=5)), argv)
    finish(measure(args.photos, args.work, args.rounds, command_line(sys.argv)), args)


if __name__ == "__main__":
    main()
