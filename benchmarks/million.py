"""What does a pack of very many samples take, in each worker of a loader?

    million.py PACK

Prints a JSON object of measure -> value, measured in this fresh process: the seconds from opening
the pack to the first batch, for FastLoader and for a DataLoader, and the memory that four workers
of a DataLoader have added when every sample was read once. Imports are not counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from common import (
    FASTCONV,
    FORMATS,
    Report,
    Table,
    environment,
    extremes,
    interleaved,
    middle,
    say,
)
from loading import memory, tree
from processes import run
from scale import make_tree

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main", "measure_million"]

WORKERS = 4
FIRST = 64
"""Samples in the first batch."""
MANY = 1000
"""Samples in a batch when all are read, so that handing batches over takes no time."""
OPENING = {
    "FastLoader": "threads",
    "DataLoader": "processes",
}
KINDS = {"PSS": "Pss", "of it private": "Pss_Anon", "of it the pack's pages": "Pss_File"}


def measure_million(samples: int, work: Path, rounds: int, command: str) -> Report:
    """Returns what a pack of many samples takes.

    Args:
        samples: How many.
        work: Where to make and pack them.
        rounds: How many.
        command: What was run.
    """
    photos = work / f"tiny-{samples}"
    make_tree(photos, samples)
    contestants = {}
    for title, ending in FORMATS.items():
        pack = work / f"million.{ending}"
        say(f"packing {title}")
        run([*FASTCONV, "pack", photos, pack, "--quiet", "--overwrite"])
        warm(files_of(pack))
        contestants[title] = partial(in_a_process, pack)
    found = interleaved(contestants, rounds)
    first = [f"first, {name}" for name in OPENING]
    rows = [
        [
            title,
            *(cell for name in first for cell in figures(found[name][title])),
            *(cell for name in KINDS for cell in figures(found[name][title], 1e-6)),
        ]
        for title in FORMATS
    ]
    columns = ["", *(word for name in [*first, *KINDS] for word in (name, "min to max"))]
    table = Table(
        f"{samples:,} samples",
        columns,
        rows,
        [
            f"medians of {rounds} fresh processes; everything is in the page cache",
            f"first: seconds from opening to a batch of {FIRST}, imports not counted",
            f"PSS: MB that each of {WORKERS} DataLoader workers has added when all samples were "
            "read once: what the whole has grown by since before they started, divided by them",
        ],
    )
    where = environment(work)
    return Report("What does a very large pack take?", command, where, [table], found)


def figures(values: Sequence[float | None], scale: float = 1.0) -> tuple[str, str]:
    """Returns the cells of one measure."""
    return middle(values, scale), extremes(values, scale)


def in_a_process(pack: Path) -> dict[str, float]:
    """Returns what `main` prints for a pack."""
    found: dict[str, float] = json.loads(run([sys.executable, __file__, pack]).output)
    return found


def main(argv: Sequence[str]) -> None:
    """Measures, and prints what was found."""
    from fastconv.loaders import CenterCrop, make_loader, open_dataset

    for name in ("decode", "jpeg", "pillow"):  # they come with the first sample
        import_module(f"fastconv.loaders.{name}")
    (pack,) = argv
    found = {}
    for name, kind in OPENING.items():
        began = time.perf_counter()
        loader = make_loader(
            open_dataset(pack, decode=CenterCrop(224, resize=256)),
            FIRST,
            kind=kind,  # type: ignore[arg-type]
            shuffle=True,
            num_workers=WORKERS,
        )
        batches = iter(loader)
        next(batches)
        found[f"first, {name}"] = time.perf_counter() - began
        del batches, loader

    dataset = open_dataset(pack, decode=None)
    dataset.read(0)
    before = {name: memory([os.getpid()], kind) for name, kind in KINDS.items()}
    loader = make_loader(
        dataset, MANY, kind="processes", shuffle=True, num_workers=WORKERS, collate_fn=len
    )
    if sum(loader) != len(dataset):
        raise RuntimeError("the loader left samples out")
    pids = tree(os.getpid())
    if len(pids) <= WORKERS:
        raise RuntimeError("the workers have ended")
    for name, kind in KINDS.items():
        found[name] = (memory(pids, kind) - before[name]) / WORKERS
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
