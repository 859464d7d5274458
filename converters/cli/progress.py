"""How far a command is, on stderr: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
        self.began = time.monotonic()
        self.bar: Any = None

    def __call__(self, progress: Progress) -> None:
        if self.bar is None:
            self.bar = new_bar(progress.samples_total)
        elif self.bar.total != progress.samples_total or progress.samples < self.bar.n:
            self.bar.reset(progress.samples_total)  # what turned out to be bad is left out now
        speed = progress.bytes / max(time.monotonic() - self.began, 1e-3)
        self.bar.set_postfix_str(f"{size_text(round(speed))}/s", refresh=False)
        self.bar.update(progress.samples - self.bar.n)

    def close(self) -> None:
        """Removes the bar."""
        if self.bar is not None:
            self.bar.close()


def new_bar(total: int) -> Any:
    """Returns a bar for so many files."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread that watches it
    tqdm.set_lock(threading.RLock())  # its own is one for processes too
    knows_width = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    return tqdm(
        total=total,
        unit=" files",
        leave=False,
        file=sys.stderr,
        ncols=None if knows_width else 80,
        nrows=None if knows_width else 24,
        dynamic_ncols=knows_width,
        bar_format="{percentage:3.0f}%|{bar}| {n:,} of {total:,} files, "
        "{rate_fmt}{postfix}, {remaining} left",
    )
