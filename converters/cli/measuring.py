"""What the commands that measure share: their settings, and how far they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fastconv.converters.cli.durations import parse_duration
from fastconv.converters.cli.output import say
from fastconv.loaders.errors import UsageError

if TYPE_CHECKING:
    from fastconv.loaders.measure.bench import Progress
    from fastconv.loaders.measure.cases import Latency, Step

__all__ = [
    "parse_latency",
    "parse_step",
    "parse_workers",
    "showing",
]


def parse_workers(text: str) -> tuple[int, ...]:
    """Returns numbers of workers, smallest first.

    Raises:
        UsageError: It is no list of such numbers.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 5 for word in words):
        raise UsageError(f"--workers {text}: write numbers with commas between them, as 0,2,4")
    return tuple(sorted(set(map(int, words))))


def parse_step(text: str) -> Step:
    """Returns what stands in for the training step.

    Raises:
        UsageError: It is nothing that can.
    """
    from fastconv.loaders.measure.cases import Step

    if text == "none":
        return Step()
    return Step("conv") if text == "conv" else Step("sleep", time_of("--step", text))


def parse_latency(text: str) -> Latency:
    """Returns how long a simulated file system waits.

    Raises:
        UsageError: It is not of that form.
    """
    from fastconv.loaders.measure.cases import Latency

    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in ("open", "read") or name in found:
            raise UsageError(f"--latency {text}: write open=2ms,read=0.5ms")
        found[name] = time_of("--latency", value)
    return Latency(**found)


def time_of(option: str, text: str) -> float:
    """Returns the seconds that a time stands for, in the value of an option.

    Raises:
        UsageError: It is no time.
    """
    try:
        return parse_duration(text)
    except click.BadParameter as error:
        raise UsageError(f"{option}: {error.message}") from error


@contextmanager
def showing(quiet: bool) -> Iterator[Progress]:
    """Gives what a benchmark is to call with its progress: a bar on a terminal, lines in a log."""
    if quiet:
        yield lambda done, total, what: None
    elif not sys.stderr.isatty():
        yield log_tenths()
    else:
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread that watches it
        shape = "{percentage:3.0f}%|{bar:20}| {n} of {total}, {remaining} left, {postfix}"
        with tqdm(file=sys.stderr, leave=False, bar_format=shape, dynamic_ncols=True) as bar:

            def move(done: int, total: int, what: str) -> None:
                bar.total = total
                bar.set_postfix_str(what, refresh=False)
                bar.update(done - bar.n)
                bar.refresh()

            yield move


def log_tenths() -> Progress:
    """Returns what prints a line after each tenth of the measurements."""
    last = -1

    def log(done: int, total: int, what: str) -> None:
        nonlocal last
        if done * 10 // total > last:
            last = done * 10 // total
            say(f"{done} of {total} measurements done; {what}")

    return log
