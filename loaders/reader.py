"""Reads the stored bytes of a pack: row number -> memoryview on the mapped file, without a copy.

Every format whose table says where each field's bytes lie is read by `MappedReader`; a format's own
module only finds the table. Rows are positions in the sample table, slots are positions in
`table.fields` (0 is the image).
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import CorruptPackError, PackChangedError, PackError, printable
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.registry import Registry
from fastconv.loaders.sample import BadFile
from fastconv.loaders.table import SampleTable

__all__ = ["READERS", "MappedReader", "Reader"]

Rows = npt.NDArray[np.int64]

SHARD_SHIFT = 44
"""No shard is larger than 16 TiB."""

_GAP = 128 * 1024
"""Places this near are read as one: what a disk reads in one request anyway (the kernel's
read-ahead)."""


class Reader(ABC):
    """One opened pack.

    Thread-safe and deterministic; not picklable: a Dataset pickles the path and opens anew. Nothing
    has
    to be closed: files are unmapped when the last view on them is gone.

    Attributes:
        name: The format's name, that of its module.
        title: The format's name as people write it.
        suffixes: Endings of OUT that mean this format.
        dataset: The name of its Dataset in `fastconv.loaders`.
        root: What the samples' paths start from where they are files: the folder; "" for a pack.
        requires: Packages that its module imports only when a pack is opened, because that takes
            long.
        dataset: Name of the Dataset class for this format in `fastconv.loaders`.
        path: Where the pack lies.
        meta: What it says of itself.
        table: Where everything lies in it.
        notices: What a user should know about how it was opened.
        bad: Records that were found damaged while it was opened.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    dataset: ClassVar[str]
    root: str = ""

    def __init__(self, path: str, meta: PackMeta, table: SampleTable) -> None:
        self.path = path
        self.meta = meta
        self.table = table
        self.notices: list[str] = []
        self.bad: list[BadFile] = []
        self._key_width = len(str(max(len(table) - 1, 0)))

    @classmethod
    @abstractmethod
    def recognises(cls, path: str) -> bool:
        """Returns whether the path looks like this format: a quick look at names and first
        bytes."""

    @classmethod
    @abstractmethod
    def open(cls, path: str) -> Self:
        """Returns the opened pack.

        Raises:
            NotAPackError: It is not this format, or not one that fastconv can read.
            CorruptPackError: It is cut short or damaged.
            PackError: The system does not let us read it.
        """

    @classmethod
    def open_with(cls, path: str, fields: Sequence[str]) -> Self:
        """Returns the opened pack; `fields` are wanted, for formats that do not say which they
        have."""
        return cls.open(path)

    @abstractmethod
    def read(self, row: int, slot: int = 0) -> memoryview | None:
        """Returns a field's stored bytes, read-only; None where the sample lacks the field."""

    def read_many(
        self, rows: Sequence[int] | Rows, slots: Sequence[int] = (0,)
    ) -> list[list[memoryview | None]]:
        """Returns for each row the stored bytes of each slot, after telling the system about all of
        them."""
        rows = np.asarray(rows, np.int64)
        self.hint(rows, slots)
        return [[self.read(row, slot) for slot in slots] for row in rows.tolist()]

    def hint(self, rows: Rows, slots: Sequence[int] = (0,)) -> None:  # noqa: B027 - nothing to say by default
        """Tells the system that these rows are wanted next, so that it reads them all at once."""

    def check(self, rows: Sequence[int]) -> None:  # noqa: B027 - nothing to check by default
        """Checks that the files of these rows are still as long as the table says.

        Raises:
            CorruptPackError: One was cut short since it was opened.
        """

    def key(self, row: int) -> str:
        """Returns a sample's name inside the container."""
        return f"{row:0{self._key_width}d}"

    def where(self, row: int) -> str:
        """Returns a sample's place for messages: pack, number, key and path."""
        return (
            f"{printable(self.path)}: sample {row}, key {printable(self.key(row))}, "
            f"path {printable(self.table.path(row))}"
        )

    def __len__(self) -> int:
        return len(self.table)


def _most_maps() -> int:
    """Returns how many shards may be mapped at once: each map holds a file descriptor before Python
    3.13."""
    if sys.version_info >= (3, 13):
        return 1 << 16
    try:
        import resource
    except ImportError:  # Windows
        return 256
    return max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def map_file(path: str) -> mmap.mmap | None:
    """Returns a read-only map of a whole file, None where it has no bytes.

    Raises:
        PackError: The system does not let us read it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        try:
            if not os.fstat(fd).st_size:
                return None
            if sys.version_info >= (3, 13):
                return mmap.mmap(fd, 0, access=mmap.ACCESS_READ, trackfd=False)
            return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
    except OSError as error:
        raise PackError(f"{printable(path)}: cannot be read: {error.strerror or error}") from error


class MappedReader(Reader):
    """Reads any pack whose table says where the bytes lie, through maps of its files.

    Args:
        path: Where the pack lies.
        meta: What it says of itself; `meta.shards` are its data files.
        table: Where everything lies in them.
        files: The data files' paths, one for each shard.
    """

    def __init__(self, path: str, meta: PackMeta, table: SampleTable, files: Sequence[str]) -> None:
        super().__init__(path, meta, table)
        self.files = tuple(files)
        self._first_rows: list[int] = table.shard_row.tolist()[:-1]
        if len(self._first_rows) != len(self.files) or np.any(np.diff(table.shard_row) < 0):
            raise CorruptPackError(
                f"{printable(path)}: damaged: its table does not fit its {len(self.files)} files"
            )
        self._maps: dict[int, tuple[mmap.mmap | None, memoryview]] = {}
        self._most_maps = _most_maps()
        self._inodes: dict[int, tuple[int, int]] = {}
        for shard, (file, expected) in enumerate(zip(self.files, meta.shards, strict=True)):
            self._check_size(shard, file, expected.size)

    def _check_size(self, shard: int, file: str, expected: int) -> None:
        try:
            status = os.stat(file)
        except FileNotFoundError as error:
            raise CorruptPackError(
                f"{printable(file)}: is missing from the pack {printable(self.path)}"
            ) from error
        except OSError as error:
            raise PackError(
                f"{printable(file)}: cannot be read: {error.strerror or error}"
            ) from error
        if not stat.S_ISREG(status.st_mode) or status.st_size < expected:
            raise CorruptPackError(
                f"{printable(file)}: truncated: has {status.st_size} bytes, needs {expected}: "
                "copy the pack again"
            )
        known = self._inodes.setdefault(shard, (status.st_dev, status.st_ino))
        if known != (status.st_dev, status.st_ino) and shard not in self._maps:
            raise PackChangedError(
                f"{printable(file)}: was replaced since it was opened: open the pack again"
            )

    def check(self, rows: Sequence[int]) -> None:
        if len(self.files) == 1 or len(rows) == 1:
            shards = [bisect_right(self._first_rows, rows[0]) - 1] if len(rows) else []
        else:
            shards = np.unique(np.searchsorted(self._first_rows, rows, side="right") - 1).tolist()
        for shard in shards:
            mapped = self._maps[shard][0] if shard in self._maps else None
            if mapped is None:
                continue
            if sys.version_info < (3, 13):
                size = mapped.size()
            else:  # such a map has no descriptor to ask
                status = os.stat(self.files[shard])
                if self._inodes[shard] != (status.st_dev, status.st_ino):
                    continue  # replaced: what is mapped is the old file, which nobody cuts short
                size = status.st_size
            if size < self.meta.shards[shard].size:
                raise CorruptPackError(
                    f"{printable(self.files[shard])}: truncated since it was opened: has "
                    f"{size} bytes, "
                    f"needs {self.meta.shards[shard].size}"
                )

    def _view(self, shard: int) -> memoryview:
        found = self._maps.get(shard)
        if found is None:
            file = self.files[shard]
            self._check_size(shard, file, self.meta.shards[shard].size)
            mapped = map_file(file)
            found = mapped, memoryview(mapped) if mapped is not None else memoryview(b"")
            while len(self._maps) >= self._most_maps:  # views given out keep their map alive
                self._maps.pop(next(iter(self._maps)), None)
            self._check_view(shard, found[1])
            self._maps[shard] = found
        return found[1]

    def _check_view(self, shard: int, view: memoryview) -> None:
        """Checks that a shard just mapped is the one that the table means; raises
        PackChangedError."""

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        table = self.table
        size = table.size[slot].item(row)
        if size < 0:
            return None
        start = table.base[slot] + table.offset[slot].item(row)
        shard = bisect_right(self._first_rows, row) - 1
        view = self._view(shard)[start : start + size]
        if view.nbytes != size:
            raise CorruptPackError(
                f"{self.where(row)}: its place {start} is outside the file: run fastconv verify"
            )
        return view

    def hint(self, rows: Rows, slots: Sequence[int] = (0,)) -> None:
        if not hasattr(mmap.mmap, "madvise"):
            return
        for shard, start, size in self._ranges(rows, slots):
            self._view(shard)
            mapped = self._maps[shard][0]
            if mapped is not None and start < len(mapped):
                mapped.madvise(mmap.MADV_WILLNEED, start, min(size, len(mapped) - start))

    def _ranges(self, rows: Rows, slots: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yields (shard, start, size) of what holds these rows: sorted, on whole pages, neighbours
        joined."""
        if not rows.shape[0]:
            return
        table = self.table
        # Places in all shards as numbers of one line, on which shards lie far apart.
        line = (np.searchsorted(self._first_rows, rows, side="right") - 1) << SHARD_SHIFT
        starts = np.concatenate(
            [table.offset[slot][rows].astype(np.int64) + table.base[slot] + line for slot in slots]
        )
        stops = starts + np.maximum(np.concatenate([table.size[slot][rows] for slot in slots]), 0)
        order = np.argsort(starts)
        starts, stops = starts[order] & -mmap.PAGESIZE, np.maximum.accumulate(stops[order])
        first = np.flatnonzero(np.concatenate([[True], starts[1:] > stops[:-1] + _GAP]))
        last = np.append(first[1:], starts.shape[0]) - 1
        for start, stop in zip(starts[first].tolist(), stops[last].tolist(), strict=True):
            yield start >> SHARD_SHIFT, start & (1 << SHARD_SHIFT) - 1, stop - start


READERS: Registry[Reader] = Registry("fastconv.loaders.formats", "fastconv.readers", Reader)  # type: ignore[type-abstract]
"""All formats that can be read."""
