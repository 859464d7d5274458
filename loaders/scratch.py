"""Memory that a thread uses again for each picture: none is asked of the system in between."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["scratch"]

KEPT_BYTES = 32 << 20
"""More than this is not kept: a few huge pictures would hold on to their memory for ever."""

_memory = threading.local()


def scratch(use: str, size: int) -> npt.NDArray[np.uint8]:
    """Returns memory, uint8 (size,), valid until the same thread asks for the same use again.

    Args:
        use: What it is for.
        size: Bytes.
    """
    kept: npt.NDArray[np.uint8] | None = getattr(_memory, use, None)
    if kept is not None and kept.shape[0] >= size:
        return kept[:size]
    if size > KEPT_BYTES:
        return np.empty(size, np.uint8)
    kept = np.empty(min(2 * size, KEPT_BYTES), np.uint8)  # so that slightly larger ones fit too
    setattr(_memory, use, kept)
    return kept[:size]
