"""Batches that fit: into the data, and into memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fastconv.loaders.errors import UsageError
from fastconv.loaders.measure.cases import Settings, Source
from fastconv.loaders.measure.machine import memory_available

__all__ = ["LEAST_WORKER", "MOST_MEMORY", "batch_bytes", "fitting"]

MOST_MEMORY = 0.8
"""Share of the free memory that loading may be expected to take."""

LEAST_WORKER = 30e6
"""Bytes that a worker process is taken to need as long as none was measured."""

HELD = 5
"""Batches that there are at the same time at least: made ahead, in use, and on their way."""


def batch_bytes(settings: Settings) -> int:
    """Returns the bytes of a batch of decoded images."""
    return settings.batch_size * settings.size**2 * 3


def fitting(sources: Iterable[Source], settings: Settings) -> Settings:
    """Returns settings whose batches are no larger than the smallest source.

    Raises:
        UsageError: They would not fit into memory.
    """
    least = min(source.samples for source in sources)
    settings = replace(settings, batch_size=min(settings.batch_size, least))
    need, free = HELD * batch_bytes(settings), memory_available()
    if need > free * MOST_MEMORY:
        raise UsageError(
            f"batches of {settings.batch_size:,} images of {settings.size} x {settings.size} would "
            f"take {need / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free: use smaller ones"
        )
    return settings
