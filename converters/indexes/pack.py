"""A pack as the makers of index files see it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from fastconv.converters.structure import writer_of
from fastconv.converters.writer import Writer
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["ROWS", "DataFile", "Files", "IndexedPack", "blocks"]

Files = Mapping[str, Callable[[], Iterable[bytes]]]
"""Name of an index file, relative to the folder of the data files -> what makes its bytes."""

ROWS = 1 << 12
"""Rows whose lines are made together: enough for numpy, few enough for a few megabytes."""


class DataFile(NamedTuple):
    """A data file, and which rows it holds."""

    name: str
    size: int
    start: int
    stop: int

    def beside(self, extension: str) -> str:
        """Returns the file's name with another extension."""
        return os.path.splitext(self.name)[0] + extension


@dataclass(frozen=True, slots=True)
class IndexedPack:
    """A pack whose table is final.

    Attributes:
        writer: Of its format.
        meta: What it says of itself.
        table: Its rows.
        folder: Where its data files lie. Index files lie there, too.
        names: Of its data files.
        alone: Whether it is a single file, in a folder that may hold anything else.
    """

    writer: Writer
    meta: PackMeta
    table: SampleTable
    folder: str
    names: tuple[str, ...]
    alone: bool

    @classmethod
    def at(cls, path: str, meta: PackMeta, table: SampleTable) -> Self:
        """Returns the pack at a path, which may be called otherwise than when it was packed.

        Raises:
            UsageError: The format cannot be written here.
            CorruptPackError: It has settings that this fastconv does not know.
        """
        alone = not os.path.isdir(path)
        folder = os.path.dirname(path) or "." if alone else path
        names = (os.path.basename(path),) if alone else tuple(s.name for s in meta.shards)
        return cls(writer_of(meta), meta, table, folder, names, alone)

    @classmethod
    def empty(cls, path: str, writer: Writer) -> Self:
        """Returns a single file without samples: its index files have the names that those of any
        pack at the path have."""
        rows = np.zeros(0, np.int64)
        table = SampleTable(
            fields=(IMAGE,),
            label=rows,
            kind=rows.astype(np.uint8),
            width=rows.astype(np.uint32),
            height=rows.astype(np.uint32),
            path_bytes=rows.astype(np.uint8),
            path_offset=np.zeros(1, np.uint64),
            shard_row=np.zeros(2, np.int64),
            offset=(rows.astype(np.uint64),),
            size=(rows,),
        )
        meta = PackMeta(format=writer.name, samples=0, fields=table.fields, shards=(Shard("", 0),))
        folder, name = os.path.split(path)
        return cls(writer, meta, table, folder or ".", (name,), True)

    def files(self) -> Iterator[DataFile]:
        """Yields the data files."""
        ranges = pairwise(self.table.shard_row.tolist())
        for name, shard, (start, stop) in zip(self.names, self.meta.shards, ranges, strict=True):
            yield DataFile(name, shard.size, start, stop)


def blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields a range of rows in ranges of at most `ROWS`."""
    for first in range(start, stop, ROWS):
        yield first, min(first + ROWS, stop)
