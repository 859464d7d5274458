"""How long does packing take, beside GNU tar and beside what people do today?

    python benchmarks/pack.py

Packs 10,000 photos, all of them in the page cache, into one file or folder that is safely on disk at the
end (fsync). fastconv and GNU tar are timed as whole processes; the start of Python, measured as
`fastconv --version`, is taken off fastconv's. `tar cf` is followed by `sync -d` of its file. Of the
scripts that use other libraries (benchmarks/peers.py) imports are not counted either. All take their turn
in each round; before each, its output is deleted and `sync` waits for the disk. GNU tar takes part twice:
how far its two differ is what a ratio cannot tell.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common import (
    FASTCONV,
    FORMATS,
    Report,
    Table,
    arguments,
    command_line,
    environment,
    finish,
    interleaved,
    parsed,
    ratios,
    spread,
    with_photos,
)
from pagecache import files_of, warm
from peers import PEERS
from processes import Finished, run

__all__ = ["main", "measure"]

TAR = "GNU tar cf + sync -d"
SLOW = "lmdb, one a put"
"""It takes twenty times as long as the others together."""


def remove(path: Path) -> None:
    """Deletes a pack, and the files beside it."""
    for found in path.parent.glob(f"{path.name}*"):
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

    found = {TAR: (work / "gnu.tar", tar), f"{TAR}, again": (work / "gnu-again.tar", tar)}
    found |= {f"fastconv, {name}": (work / f"pack.{end}", ours) for name, end in FORMATS.items()}
    return found | {name: (work / f"peer-{number}", peer(name)) for number, name in enumerate(PEERS)}


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
    memory: dict[str, tuple[int, int]] = {}
    made: dict[str, int] = {}
    starts: list[float | None] = []

    def turn(name: str, out: Path, pack: Callable[[Path], Finished]) -> float:
        remove(out)
        os.sync()
        warm(sources)
        if name.startswith("fastconv"):
            took = start()
            starts.append(took)
        took = -starts[-1] if name.startswith("fastconv") else 0.0
        finished = pack(out)
        memory[name] = max(memory.get(name, (0, 0)), (finished.main, finished.workers))
        made[name] = sum(path.stat().st_size for path in files_of(out))
        took += float(finished.output) if name in PEERS else finished.seconds
        remove(out)
        return took

    turns = {
        name: lambda name=name, out=out, pack=pack: turn(name, out, pack)
        for name, (out, pack) in contestants(photos, work).items()
    }
    seconds = interleaved(turns, rounds, {SLOW: slow_rounds})
    size = sum(path.stat().st_size for path in sources)
    rows = []
    for name, values in seconds.items():
        median, extremes = spread(values)
        times, times_extremes = spread(ratios(values, seconds[TAR]))
        speed, _ = spread([None if value is None else size / 1e6 / value for value in values])
        main, workers = (f"{peak / 1e6:.0f}" for peak in memory[name])
        rows.append(
            (name, median, extremes, times, times_extremes, speed, f"{made[name] / 1e6:.0f}", main, workers)
        )
    table = Table(
        f"Packing {len(sources):,} files, {size / 1e6:.0f} MB",
        ["", "s", "from", "x GNU tar", "from", "MB/s", "output MB", "peak MB, main", "peak MB, workers"],
        rows,
        [
            f"medians of {rounds} rounds; the ratio is to GNU tar in the same round",
            f"taken off fastconv's seconds: {spread(starts)[0]} s ({spread(starts)[1]}), Python's start",
            "peak resident memory, where the kernel counts pages that processes share once for each",
        ],
    )
    return Report("How long does packing take?", command, environment(work), [table], {"seconds": seconds})


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
