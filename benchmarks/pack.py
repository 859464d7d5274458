"""How long does packing take, beside GNU tar and beside what people do today?

    python benchmarks/pack.py

Packs 10,000 photos, all of them in the page cache, into one file or folder that is safely on disk
at the end (fsync). fastconv and GNU tar are timed as whole processes; the start of Python,
measured as `fastconv --version`, is taken off fastconv's. `tar cf` is followed by `sync -d` of its
file. Of the scripts that use other libraries (benchmarks/peers.py) imports are not counted either.
All take their turn in each round; before each, its output is deleted and `sync` waits for the
disk. GNU tar takes part twice: how far its two differ is what a ratio cannot tell.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
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
from peers import PEERS
from processes import Finished, run

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main", "measure"]

MAIN, WORKERS = "peak of main process", "peak of workers"
TAR = "GNU tar cf + sync -d"
COLUMNS = (
    "",
    "s",
    "min to max",
    "x GNU tar",
    "min to max",
    "CPU s",
    "MB/s",
    "output MB",
    "peak MB, main",
    "peak MB, workers",
)
SLOW = "lmdb, one a put"
"""It takes twenty times as long as the others together."""


def remove(path: Path) -> None:
    """Deletes a pack, and the files beside it."""
    indexes = (path.with_suffix(ending) for ending in (".idx", ".lst"))
    for found in [*path.parent.glob(f"{path.name}*"), *filter(Path.exists, indexes)]:
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink()


def start() -> float:
    """Returns the seconds that `fastconv --version` takes: Python's start."""
    return statistics.median(run([*FASTCONV, "--version"]).seconds for _ in range(5))


def contestants(photos: Path, work: Path) -> dict[str, tuple[Path, Callable[[Path], Finished]]]:
    """Returns name -> (what it makes, what packs the photos into that)."""

    def tar(out: Path) -> Finished:
        return run(["tar", "cf", out, "-C", photos.parent, photos.name], ["sync", "-d", out])

    def ours(out: Path) -> Finished:
        return run([*FASTCONV, "pack", photos, out, "--quiet"])

    def peer(name: str) -> Callable[[Path], Finished]:
        script = Path(__file__).with_name("peers.py")
        return lambda out: run([sys.executable, script, name, photos, out])

    scripts = {name: (work / f"peer-{place}", peer(name)) for place, name in enumerate(PEERS)}
    found = {TAR: (work / "gnu.tar", tar), f"{TAR}, again": (work / "gnu-again.tar", tar)}
    found |= {f"fastconv, {name}": (work / f"pack.{end}", ours) for name, end in FORMATS.items()}
    return found | scripts


def measure(photos: Path, work: Path, rounds: int, slow_rounds: int, command: str) -> Report:
    """Returns what packing takes.

    Args:
        photos: A folder of images.
        work: Where to pack to.
        rounds: How many.
        slow_rounds: How many rounds what is very slow takes part in.
        command: What was run.
    """
    sources = files_of(photos)

    def turn(name: str, out: Path, pack: Callable[[Path], Finished]) -> dict[str, float]:
        remove(out)
        os.sync()
        warm(sources)
        begun = start() if name.startswith("fastconv") else 0.0
        done = pack(out)
        seconds = float(done.output) if name in PEERS else done.seconds - begun
        size = sum(path.stat().st_size for path in files_of(out))
        remove(out)
        return {
            "seconds": seconds,
            "CPU": done.cpu,
            "Python's start": begun,
            "output": size,
            MAIN: done.main,
            WORKERS: done.workers,
        }

    turns = {
        name: partial(turn, name, out, pack)
        for name, (out, pack) in contestants(photos, work).items()
    }
    found = interleaved(turns, rounds, {SLOW: slow_rounds})
    seconds, size = found["seconds"], sum(path.stat().st_size for path in sources)
    rows = []
    for name, values in seconds.items():
        times = ratios(values, seconds[TAR])
        speeds = ratios([size] * rounds, values)
        rows.append(
            [name, middle(values), extremes(values), middle(times), extremes(times)]
            + [middle(found["CPU"][name]), middle(speeds, 1e-6)]
            + [middle(found[what][name], 1e-6) for what in ("output", MAIN, WORKERS)]
        )
    starts = [value for values in found["Python's start"].values() for value in values if value]
    table = Table(
        f"Packing {len(sources):,} files, {size / 1e6:.0f} MB",
        COLUMNS,
        rows,
        [
            f"medians of {rounds} rounds; each ratio is to GNU tar in the same round",
            f"taken off fastconv's time: {middle(starts)} s ({extremes(starts)}), Python's start",
            "CPU s: how long processors were busy, children and kernel counted, Python's start too",
            "peaks are of resident memory; of the workers added up, pages that they share too",
        ],
    )
    return Report("How long does packing take?", command, environment(work), [table], found)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=7))
    parser.add_argument(
        "--slow-rounds", type=int, default=1, help=f"of {SLOW!r}, which is slow (%(default)s)"
    )
    args = parsed(parser, argv)
    command = command_line(sys.argv)
    finish(measure(args.photos, args.work, args.rounds, args.slow_rounds, command), args)


if __name__ == "__main__":
    main()
