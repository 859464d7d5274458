"""Memory for batches, used again only when nobody refers to it any more."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BatchMemory"]


class BatchMemory:
    """A few arrays of one shape, handed out as views and taken back on their own.

    A view (an array, or a tensor made of one) keeps a reference to the array it is of, so an array
    that nothing but this object refers to is free. Whoever keeps a batch keeps its memory, and
    another array is made for the next one.

    Args:
        shape: Of a whole batch.
        most: How many arrays are kept at most.
        pinned: Whether they are in pinned memory, from which CUDA copies while it computes.
    """

    def __init__(self, shape: Sequence[int], most: int, pinned: bool = False) -> None:
        self.shape = tuple(shape)
        self.most = most
        self.pinned = pinned
        self._arrays: list[npt.NDArray[np.uint8]] = []
        self._guard = threading.Lock()

    def take(self) -> npt.NDArray[np.uint8]:
        """Returns an array of this shape, uint8; what is in it is left over from earlier."""
        with self._guard:
            for array in self._arrays:
                if sys.getrefcount(array) == FREE:
                    return array[:]
            array = self._make()
            if len(self._arrays) < self.most:
                self._arrays.append(array)
            return array[:]

    def _make(self) -> npt.NDArray[np.uint8]:
        if self.pinned:
            pinned: npt.NDArray[np.uint8] = torch.empty(
                self.shape, dtype=torch.uint8, pin_memory=True
            ).numpy()
            return pinned
        return np.empty(self.shape, np.uint8)


FREE = 3
"""References that `sys.getrefcount` counts of an array in the list that nobody else holds: the
list's, the loop's, and its own argument."""
