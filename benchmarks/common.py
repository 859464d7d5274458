"""What the benchmarks share: their options and work folder, interleaved rounds, and the report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import photos

__all__ = [
    "FASTCONV",
    "FORMATS",
    "Measured",
    "Report",
    "Table",
    "arguments",
    "command_line",
    "environment",
    "extremes",
    "finish",
    "interleaved",
    "middle",
    "number",
    "parsed",
    "ratios",
    "say",
    "spread",
    "with_photos",
    "with_samples",
]

FASTCONV = (sys.executable, "-m", "fastconv")
"""The command line, without relying on PATH."""

FORMATS = {
    "one tar": "tar", "HDF5": "h5", "LMDB": "lmdb", "Parquet": "parquet", "TFRecord": "tfrecord",
    "RecordIO": "rec",
}  # fmt: skip
"""What the packs that are measured are called -> their ending."""

Item = TypeVar("Item")

Measured = dict[str, list[float | None]]
"""Contestant -> its value in each round, None where it took no part."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report.

    Attributes:
        title: What it shows.
        columns: Their titles; the first column names the rows.
        rows: Cells as they are printed.
        notes: What one must know to read it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def to_markdown(self) -> str:
        """Returns it as Markdown, padded so that it reads well as plain text too."""
        lines = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]

        def padded(cells: Sequence[str]) -> str:
            rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
            return "| " + " | ".join([cells[0].ljust(widths[0]), *rest]) + " |"

        rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
        table = [padded(lines[0]), "| " + " | ".join(rule) + " |", *map(padded, lines[1:])]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"### {self.title}", "", *table, *([""] if notes else []), *notes])


@dataclass(frozen=True, slots=True)
class Report:
    """What one benchmark found.

    Attributes:
        question: What was asked.
        command: What was run.
        environment: What it ran on.
        tables: The answer.
        measured: Every single value: measure -> contestant -> one a round.
    """

    question: str
    command: str
    environment: Mapping[str, str]
    tables: Sequence[Table]
    measured: Mapping[str, Measured] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Returns it as Markdown."""
        where = "; ".join(f"{name} {value}" for name, value in self.environment.items())
        head = [f"## {self.question}", "", f"    {self.command}", "", where]
        return "\n".join([*head, *(f"\n{table.to_markdown()}" for table in self.tables)])

    def to_json(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Returns the report that `to_json` wrote."""
        content = json.loads(text)
        content["tables"] = [Table(**table) for table in content["tables"]]
        return cls(**content)


def arguments(doc: str, rounds: int) -> argparse.ArgumentParser:
    """Returns a parser with the options that all benchmarks have.

    Args:
        doc: The benchmark's docstring.
        rounds: How many rounds it takes by default.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path.home() / ".cache" / "fastconv-bench",
        help="where everything is made that is needed, and kept for the next time (%(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="how many (%(default)s)")
    parser.add_argument("--json", action="store_true", help="every measurement, as JSON")
    return parser


def with_photos(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Returns the parser with the options of benchmarks that read photos."""
    parser.add_argument(
        "--photos",
        type=Path,
        metavar="FOLDER",
        help="class folders with nothing but images (default: made by photos.py in --work)",
    )
    parser.add_argument("--count", type=int, default=10_000, help="photos to make (%(default)s)")
    return parser


def with_samples(parser: argparse.ArgumentParser, count: int) -> argparse.ArgumentParser:
    """Adds the option that says how many photos take part."""
    parser.add_argument(
        "--samples", type=int, default=count, help="photos that take part (%(default)s)"
    )
    return parser


def spread(items: Sequence[Item], count: int) -> Sequence[Item]:
    """Returns as many of them, from the first to near the last; all where there are not as many."""
    return items[:: max(len(items) // count, 1)][:count]


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments; the folders that they name are there.

    Args:
        parser: The benchmark's.
        argv: Its arguments, by default those of this process.
    """
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    args.work = args.work.absolute()
    args.work.mkdir(parents=True, exist_ok=True)
    if "photos" in args and args.photos is None:
        args.photos = args.work / f"photos-{args.count}"
        if not args.photos.exists():
            say(f"making {args.count} photos, once")
            making = args.work / "photos.making"
            if photos.main(["photos", str(making), "--count", str(args.count)]):
                parser.error("the photos cannot be made: give a folder of others with --photos")
            making.rename(args.photos)
    return args


def say(text: str) -> None:
    """Prints what is going on, apart from the report."""
    print(text, file=sys.stderr, flush=True)


def finish(report: Report, args: argparse.Namespace) -> None:
    """Prints a report, and what was left on the disk."""
    print(report.to_json() if args.json else report.to_markdown())
    say(f"\nfor the next time all is kept in {args.work}: delete that folder to be rid of it")


def interleaved(
    contestants: Mapping[str, Callable[[], Mapping[str, float]]],
    rounds: int,
    seldom: Mapping[str, int] | None = None,
) -> dict[str, Measured]:
    """Returns what was measured: measure -> contestant -> its value in each round.

    All take their turn in every round, beginning with another one each time: a disk or a machine
    that is slow for a while is slow for all of them, and ratios within a round stay fair.

    Args:
        contestants: What to call for each; it returns measure -> value.
        rounds: How many.
        seldom: How many rounds those take part in that take very long.
    """
    names = list(contestants)
    found: dict[str, Measured] = {}
    for this in range(rounds):
        first = this % len(names)
        for name in names[first:] + names[:first]:
            if this < (seldom or {}).get(name, rounds):
                for measure, value in contestants[name]().items():
                    empty: Measured = {other: [None] * rounds for other in names}
                    found.setdefault(measure, empty)[name][this] = value
        say(f"round {this + 1} of {rounds} done")
    return found


def number(value: float) -> str:
    """Returns a number with three digits that count."""
    digits = 0 if value >= 100 or not value else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def middle(values: Sequence[float | None], scale: float = 1.0) -> str:
    """Returns the median of the rounds that count, "" where none do.

    Args:
        values: One a round.
        scale: What to multiply it by.
    """
    known = [value * scale for value in values if value is not None]
    return number(statistics.median(known)) if known else ""


def extremes(values: Sequence[float | None], scale: float = 1.0) -> str:
    """Returns the smallest and the largest, as `middle` does."""
    known = [value * scale for value in values if value is not None]
    return f"{number(min(known))} to {number(max(known))}" if known else ""


def ratios(values: Sequence[float | None], others: Sequence[float | None]) -> list[float | None]:
    """Returns values / others, round by round."""
    pairs = zip(values, others, strict=True)
    return [None if a is None or b is None else a / b for a, b in pairs]


def command_line(argv: Sequence[str]) -> str:
    """Returns the command that was run, as one types it."""
    return shlex.join(["python", f"benchmarks/{Path(argv[0]).name}", *argv[1:]])


def environment(work: Path) -> dict[str, str]:
    """Returns what the machine is, and what is installed: name -> value.

    Args:
        work: A folder on the disk that is measured.
    """
    from fastconv.loaders.measure import machine  # processes that are measured import this file

    return {
        "on": time.strftime("%Y-%m-%d"),
        **machine.environment(work),
        "load at the end": f"{os.getloadavg()[0]:.1f}",
    }
