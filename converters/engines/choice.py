"""Chooses where the parts of a run are worked on."""

from __future__ import annotations

import os

from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.engines.local import LocalEngine

__all__ = ["Engine", "default_workers", "engine_for"]

Engine = InlineEngine | LocalEngine

SAMPLES_PER_S, BYTES_PER_S = 40_000, 2_000_000_000
"""What one process reads, looks at and writes in a second, of small files and of large ones, when
the page cache has them."""

INLINE_S = 1.0
"""Seconds of work that are done in this process: starting Python twice costs about half as much."""


def default_workers() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def engine_for(workers: int | None, samples: int, size: int, decode: bool) -> Engine:
    """Returns what runs the parts.

    Args:
        workers: Number of processes; None: one a core, or none where it is done sooner without.
        samples: How many there are.
        size: Of all their bytes.
        decode: Whether images are decoded: that takes long, and is kept out of this process, as
            decoders are where a file can do harm.
    """
    if workers is None and not decode and samples / SAMPLES_PER_S + size / BYTES_PER_S < INLINE_S:
        return InlineEngine()
    return LocalEngine(default_workers() if workers is None else workers)
