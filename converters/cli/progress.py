"""How far a command is, on stderr: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastconv.converters.cli.output import say
from fastconv.converters.cli.sizes import size_text

if TYPE_CHECKING:
    from fastconv.converters.report import Progress, ProgressCallback

__all__ = ["LogLines", "showing"]

EVERY_S = 10.0
"""Seconds between two lines of a log."""


@contextmanager
def showing(quiet: bool) -> Iterator[ProgressCallback | None]:
    """Gives what a run is to call with its progress; None where none is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        bar = Bar()
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield LogLines()


class LogLines:
    """Prints a line every ten seconds.

    Args:
        clock: Gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began = self.last = clock()

    def __call__(self, progress: Progress) -> None:
        now = self.clock()
        if now - self.last < EVERY_S:
            return
        self.last = now
        seconds = now - self.began
        left = seconds / max(progress.bytes, 1) * (progress.bytes_total - progress.bytes)
        say(
            f"{progress.samples:,} of {progress.samples_total:,} files, "
            f"{size_text(progress.bytes)} of {size_text(progress.bytes_total)}, "
            f"{progress.samples / seconds:,.0f} files/s, "
            f"{size_text(round(progress.bytes / seconds))}/s, {left:,.0f} s left"
        )


class Bar:
    """Shows a bar by tqdm, removed at the end."""

    def __init__(self) -> None:
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread that watches
        tqdm.set_lock(
            threading.RLock()
        )  # by default one for processes too, which costs a semaphore
        self.began = time.monotonic()
        self.bar = tqdm(
            unit=" files",
            leave=False,
            file=sys.stderr,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n:,} of {total:,} files, "
            "{rate_fmt}, {postfix}{remaining} left",
        )

    def __call__(self, progress: Progress) -> None:
        bar = self.bar
        if bar.total != progress.samples_total or progress.samples < bar.n:
            bar.reset(progress.samples_total)
        speed = progress.bytes / max(time.monotonic() - self.began, 1e-3)
        bar.set_postfix_str(f"{size_text(round(speed))}/s, ", refresh=False)
        bar.update(progress.samples - bar.n)

    def close(self) -> None:
        """Removes the bar."""
        self.bar.close()
