"""Chooses where the parts of a run are worked on."""

from __future__ import annotations

from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.engines.local import LocalEngine
from fastconv.loaders.limits import usable_cores

__all__ = ["Engine", "engine_for"]

Engine = InlineEngine | LocalEngine

SAMPLES_PER_S, BYTES_PER_S = 40_000, 2_000_000_000
"""What one thread reads, looks at and writes in a second, of small files and of large ones, when
the page cache has them."""

INLINE_S = 1.0
"""Seconds of work that are done in this process: starting Python twice costs about half as much."""


def engine_for(workers: int | None, samples: int, size: int, decode: bool) -> Engine:
    """Returns what runs the parts.

    Args:
        workers: Number of processes; None: one a core, or none where it is done sooner without.
        samples: How many there are.
        size: Of all their bytes.
        decode: Whether images are decoded: that takes long, and is kept out of this process, as
            decoders are where a file can do harm.
    """
    if workers is not None:
        return LocalEngine(workers)
    cores = usable_cores().usable
    if not decode and samples / SAMPLES_PER_S + size / BYTES_PER_S < INLINE_S:
        return InlineEngine(cores)
    return LocalEngine(cores)
