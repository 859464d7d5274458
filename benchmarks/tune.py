"""Does `fastconv tune` find the best settings of a loader?

    python benchmarks/tune.py

Lets it choose, then measures every setting it could have chosen, the whole grid, round by round:
threads and processes, all numbers of workers, two and four batches ahead. The choice is compared
with the fastest of the grid within each round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from common import (
    FASTCONV,
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
    with_photos,
)
from processes import run

from fastconv.loaders.limits import usable_cores
from fastconv.loaders.measure.cases import Case, Settings, Source
from fastconv.loaders.measure.hosts import Host
from fastconv.loaders.measure.tune import candidates, tune, words

__all__ = ["main"]


def grid() -> list[Case]:
    """Returns every setting, on a machine without a GPU."""
    first = candidates(usable_cores().usable, cuda=False)
    return first + [replace(case, prefetch=4) for case in first if case.workers]


def speed(host: Host, source: Source, case: Case, settings: Settings) -> Mapping[str, float]:
    """Returns what was measured of a setting."""
    values, _, _ = host.call("measure", source, case, settings, 0)
    return {"images/s": values["images_per_s"], "CPU": values["cpu_ms_per_image"]}


def measure(args: argparse.Namespace, command: str) -> Report:
    """Returns how near the choices are to the best of the grid.

    Args:
        args: The options of this program.
        command: What was run.
    """
    pack = args.work / "read.lmdb"
    run([*FASTCONV, "pack", args.photos, pack, "--quiet", "--overwrite"])
    settings = Settings(batch_size=args.batch, seconds=args.seconds)
    chosen = []
    for _ in range(args.choices):
        found = tune(str(pack), settings, budget=args.budget)
        say(f"chosen in {found.seconds:.0f} s: {words(found.chosen)}")
        chosen.append(found.chosen)
    host = Host("fastconv.loaders.measure.stages")
    try:
        source = host.call("describe", str(pack), pack.name)
        contestants = {
            words(case): partial(speed, host, source, case, settings)
            for case in dict.fromkeys([*grid(), *chosen])
        }
        found_all = interleaved(contestants, args.rounds)
    finally:
        host.close()
    rates, cpu = found_all["images/s"], found_all["CPU"]
    order = sorted(rates, key=lambda name: -sum(value or 0 for value in rates[name]))
    best = order[0]
    rows = [
        [
            name,
            str(sum(words(case) == name for case in chosen) or ""),
            middle(rates[name]),
            extremes(rates[name]),
            middle(ratios(rates[name], rates[best])),
            extremes(ratios(rates[name], rates[best])),
            middle(cpu[name]),
        ]
        for name in order
    ]
    columns = (
        "setting", "chosen", "images/s", "min to max", "of the best", "min to max", "CPU ms",
    )  # fmt: skip
    notes = [
        f"tune had {args.budget:g} s each time, {args.choices} times; medians of {args.rounds} "
        "rounds, ratios are taken within a round",
        f"the best is the one that was fastest over all rounds, {best}: chosen by chance among "
        f"{len(order)}, it looks a little better than it is",
    ]
    table = Table("Chosen settings, and all others", columns, rows, notes)
    where = environment(args.work)
    return Report("Does tune find the best settings?", command, where, [table], found_all)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=5))
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="a measurement (%(default)s)")
    parser.add_argument("--budget", type=float, default=60.0, help="of tune, in s (%(default)s)")
    parser.add_argument("--choices", type=int, default=3, help="times to choose (%(default)s)")
    args = parsed(parser, argv)
    assert isinstance(args.work, Path)
    finish(measure(args, command_line(sys.argv)), args)


if __name__ == "__main__":
    main()
