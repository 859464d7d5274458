"""What does a loader give whose data are not in the page cache?

    python benchmarks/cold.py

Everything is taken out of the page cache, and the kernel's caches of folders and inodes where this
may be done, before each measurement. Then FastLoader goes through random batches until as many
samples were loaded as --samples says, once handing over the stored bytes, which shows the reading,
and once decoding them, RandomResizedCrop(224) and a flip. The time is from the first batch's begin
to the last one's end; opening is not in it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
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
from processes import run
from xxhash import xxh3_64_intdigest

from fastconv.loaders import FastLoader, RandomResizedCrop, open_dataset
from fastconv.loaders.measure.pagecache import evict, files_of, resident
from fastconv.loaders.measure.stages import drop_inodes

__all__ = ["main"]

RAW = "raw folder"
What = Literal["bytes", "images"]
WHATS: dict[What, str] = {
    "bytes": "Stored bytes, looked at by a checksum",
    "images": "Decoded, RandomResizedCrop(224) and a flip",
}


def read_through(samples: Iterable[tuple[bytes, int]]) -> int:
    """Looks at every byte; returns how many samples they were."""
    return sum(xxh3_64_intdigest(data) is not None for data, _ in samples)


def cold(
    source: Path, what: What, args: argparse.Namespace, seed: Iterable[int]
) -> dict[str, float]:
    """Returns what a loader gives that has to read everything from the disk.

    Args:
        source: A folder or pack.
        what: What the loader is to give.
        args: The options of this program.
        seed: Gives another number each time.
    """
    gc.collect()  # maps of what was read before would keep their pages
    files = files_of(source)
    evict(files)
    stayed = resident(files)
    dropped = drop_inodes()
    decode: Any = RandomResizedCrop(224, flip=0.5) if what == "images" else None
    dataset = open_dataset(source, decode=decode)
    rows = np.random.default_rng(next(iter(seed))).permutation(len(dataset))[: args.samples]
    more: dict[str, Any] = {} if what == "images" else {"collate_fn": read_through}
    loader = FastLoader(
        dataset, args.batch, sampler=rows.tolist(), num_workers=args.workers, **more
    )
    began = time.perf_counter()
    for _ in loader:
        pass
    seconds = time.perf_counter() - began
    return {what: len(rows) / seconds, "stayed": float(stayed), "dropped": float(dropped)}


def measure(args: argparse.Namespace, command: str) -> Report:
    """Returns how the formats compare with the raw folder.

    Args:
        args: The options of this program.
        command: What was run.
    """
    sources = {RAW: args.photos}
    for title, ending in FORMATS.items():
        sources[title] = args.work / f"read.{ending}"
        run([*FASTCONV, "pack", args.photos, sources[title], "--quiet", "--overwrite"])
    seeds = iter(range(1 << 30))
    found: dict[str, Any] = {}
    tables = []
    for what, title in WHATS.items():
        contestants = {
            name: partial(cold, source, what, args, seeds) for name, source in sources.items()
        }
        measured = interleaved(contestants, args.rounds)
        found |= {f"{what}, {measure}": values for measure, values in measured.items()}
        rates: Mapping[str, Sequence[float | None]] = measured[what]
        rows = []
        for name in sources:
            gain = ratios(rates[name], rates[RAW])
            rows.append(
                [name, middle(rates[name]), extremes(rates[name]), middle(gain), extremes(gain)]
            )
        stayed = max(value or 0 for values in measured["stayed"].values() for value in values)
        dropped = all(value for values in measured["dropped"].values() for value in values)
        notes = [
            f"medians of {args.rounds} rounds of {args.samples} samples in batches of "
            f"{args.batch}, {args.workers} threads; ratios are taken within a round",
            f"of what is read {stayed:,.0f} bytes stayed in the page cache at most; folders and "
            f"inodes {'too were dropped' if dropped else 'could not be dropped'}",
        ]
        columns = ("", "samples/s", "min to max", "times raw", "min to max")
        tables.append(Table(title, columns, rows, notes))
    question = "What does a loader give whose data are not in the page cache?"
    return Report(question, command, environment(args.work), tables, found)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=5))
    parser.add_argument("--samples", type=int, default=4096, help="to load (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="samples in one (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="threads (%(default)s)")
    args = parsed(parser, argv)
    finish(measure(args, command_line(sys.argv)), args)


if __name__ == "__main__":
    main()
