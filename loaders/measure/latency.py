"""A Dataset as if its files lay on a slow file system: simulated, by waiting.

A network file system or object store answers late, but answers many requests at once. So each file
of a raw folder waits for its opening and for its reading, one after the other, as the program asks
for them; what a pack's batch needs is asked for together (`Reader.hint`) and waits together.
Bandwidth is not simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.loaders.datasets import PackDataset
from fastconv.loaders.measure.cases import Latency
from fastconv.loaders.open import find_format
from fastconv.loaders.reader import Reader

__all__ = ["SlowDataset"]


class SlowDataset(PackDataset):
    """Opens what lies at a path, and waits as `latency` says.

    Args:
        path: A pack, or a folder of images.
        latency: How long to wait.
        options: As for `PackDataset`.
    """

    def __init__(self, path: str, latency: Latency, **options: Any) -> None:
        self.latency = latency
        super().__init__(path, **options)
        time.sleep(latency.open * opened_at_first(self))

    def _adopt(self, reader: Reader) -> Reader:
        return super()._adopt(_SlowReader(reader, self.latency))


def opened_at_first(dataset: PackDataset) -> int:
    """Returns how many files and folders are opened before the first sample can be read."""
    if dataset.format == "folder":
        table = dataset.table
        return 1 + len({os.path.dirname(path) for path in table.paths(0, len(table))})
    return len(dataset.meta.shards) + 1  # the table, or the folder of shards


class _SlowReader(Reader):
    """Another reader, but waiting."""

    name = ""
    title = ""
    dataset = ""

    def __init__(self, reader: Reader, latency: Latency) -> None:
        super().__init__(reader.path, reader.meta, reader.table)
        self.root, self.notices, self.bad = reader.root, reader.notices, reader.bad
        self._reader = reader
        self._in_files = reader.meta.format == "folder"
        self._latency = latency
        self._ready: dict[int, float] = {}

    @classmethod
    def recognises(cls, path: str) -> bool:
        return False  # it is made of another reader, never found

    @classmethod
    def open(cls, path: str) -> _SlowReader:
        return cls(find_format(path).open(path), Latency())

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        self._wait(row)
        return self._reader.read(row, slot)

    def load(self, row: int, slot: int = 0) -> bytes | None:
        self._wait(row)
        return self._reader.load(row, slot)

    def _wait(self, row: int) -> None:
        """Waits until the bytes of a row have arrived."""
        if self._in_files:
            time.sleep(self._latency.open + self._latency.read)
        else:
            asked = self._ready.pop(row, None)
            wait = self._latency.read if asked is None else asked - time.monotonic()
            if wait > 0:
                time.sleep(wait)

    def hint(self, rows: npt.NDArray[np.int64], slots: Sequence[int] = (0,)) -> None:
        if not self._in_files:
            self._ready |= dict.fromkeys(rows.tolist(), time.monotonic() + self._latency.read)
        self._reader.hint(rows, slots)

    def check(self, rows: Sequence[int]) -> None:
        self._reader.check(rows)
