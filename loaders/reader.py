"""Reads the stored bytes of a pack: row number -> memoryview on the mapped file, without a copy.

Every format whose table says where each field's bytes lie is read by `MappedReader`; a format's own
module only finds the table. Rows are positions in the sample table, slots are positions in
`table.fields` (0 is the image).
"""

from __future__ import annotations

import mmap
import os
import stat
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from time import monotonic
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from fastconv.loaders.errors import (
    CorruptPackError,
    PackChangedError,
    PackError,
    SampleError,
    UsageError,
    printable,
)
from fastconv.loaders.files import MappedFile, unreadable
from fastconv.loaders.identity import pack_id
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.raw import RAW, Pixels, Shape, common_shape, shape_of
from fastconv.loaders.registry import Registry
from fastconv.loaders.sample import BadFile
from fastconv.loaders.table import SampleTable

__all__ = ["NOTHING", "READERS", "Found", "MappedReader", "Reader", "Wanted", "found_at"]

Rows = npt.NDArray[np.int64]

SHARD_SHIFT = 44
"""No shard is larger than 16 TiB."""

LOOK_EVERY = 20e-6
"""Seconds after which `read` looks again whether its file was cut short, whichever file it is."""

_GAP = 128 * 1024
"""Places this near are read as one: what a disk reads in one request anyway (the kernel's
read-ahead)."""


class Wanted(NamedTuple):
    """What is asked of a pack that does not say itself what is what in it.

    Attributes:
        fields: Those that are wanted.
        image_key, label_key: What the images and the labels are called in a pack of others: names
            of columns or features, extensions in a tar. None: the likeliest.
    """

    fields: tuple[str, ...] = ()
    image_key: str | None = None
    label_key: str | None = None

    def refuse_keys(self, title: str) -> None:
        """Refuses names of images and labels.

        Raises:
            UsageError: There are some.
        """
        if self.image_key is not None or self.label_key is not None:
            raise UsageError(
                f"{title} has no columns to choose from: leave out --image-key and --label-key "
                "(image_key and label_key)"
            )


NOTHING: Final = Wanted()
"""What is wanted of most packs."""


class Reader(ABC):
    """One opened pack.

    Thread-safe and deterministic; not picklable: a Dataset pickles the path and opens anew. Nothing
    has to be closed: files are unmapped when the last view on them is gone.

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
        no_checksums: Why there never were any, where its table has none, and what to do.
        lost_table: Why a pack of fastconv is read without its table, and what to do; "" where it
            is not.
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
        self.no_checksums = "it was not made by fastconv: unpack it and pack it again"
        self.lost_table = ""
        self._key_width = len(str(max(len(table) - 1, 0)))

    @classmethod
    @abstractmethod
    def recognises(cls, path: str) -> bool:
        """Returns whether the path looks like this format: a quick look at names and first bytes.

        Raises:
            PackError: The system does not let us look.
        """

    @classmethod
    @abstractmethod
    def open(cls, path: str) -> Reader:
        """Returns the opened pack.

        Raises:
            NotAPackError: It is not this format, or not one that fastconv can read.
            CorruptPackError: It is cut short or damaged.
            PackError: The system does not let us read it.
        """

    @classmethod
    def open_with(cls, path: str, wanted: Wanted) -> Reader:
        """Returns the opened pack, for formats that do not say what is what in them.

        Raises:
            UsageError: There is not what is wanted.
            PackError: As from `open`.
        """
        wanted.refuse_keys(cls.title)
        return cls.open(path)

    @abstractmethod
    def read(self, row: int, slot: int = 0) -> memoryview | None:
        """Returns a field's stored bytes, read-only; None where the sample lacks the field."""

    def load(self, row: int, slot: int = 0) -> bytes | None:
        """Returns a copy of a field's stored bytes; None where the sample lacks the field.

        Raises:
            SampleError: They cannot be read.
            PackError: The pack cannot be read any more.
        """
        data = self.read(row, slot)
        return None if data is None else bytes(data)

    def verified(self, row: int, slot: int = 0) -> bytes | None:
        """Returns what `load` does, compared with its checksum; the table must have checksums.

        Raises:
            SampleError: They cannot be read, or are other bytes than those that were packed.
            PackError: The pack cannot be read any more.
        """
        data = self.load(row, slot)
        self.compare(row, slot, data)
        return data

    def compare(self, row: int, slot: int, data: bytes | Pixels | None) -> None:
        """Compares a field's bytes with its checksum; the table must have checksums.

        Raises:
            SampleError: They are other bytes than those that were packed.
        """
        self.guard(row)
        known: int = self.table.checksum[slot].item(row)
        view = data.data if isinstance(data, np.ndarray) else data
        if (0 if view is None else xxh3_64_intdigest(view)) != known:
            words = "its bytes are damaged, the checksum differs: fastconv repair can mend it"
            raise self.bad_sample(row, words, "corrupt", slot)

    def raw_shape(self, row: int) -> Shape | None:
        """Returns the shape of an image that is stored as its pixels; None where it is a file.

        Raises:
            SampleError: It has not as many bytes as the table's height and width ask for.
            PackError: The pack cannot be read any more.
        """
        self.guard(row)
        table = self.table
        if table.kind.item(row) != RAW:
            return None
        try:
            return shape_of(table.width.item(row), table.height.item(row), table.size[0].item(row))
        except SampleError as error:
            raise self.bad_sample(row, str(error), error.reason) from error

    @cached_property
    def common_shape(self) -> Shape | None:
        """The shape of all images; None where they are not all stored as pixels, of one shape."""
        self.check(())
        return common_shape(self.table)

    def fill(self, rows: Rows, places: Sequence[Pixels]) -> None:
        """Copies the pixels of raw samples.

        Args:
            rows: Their numbers, int64 (n,).
            places: Where those of each go: C-contiguous, of its `raw_shape`.

        Raises:
            SampleError: One cannot be read.
            PackError: The pack cannot be read any more.
        """
        for row, place in zip(rows.tolist(), places, strict=True):
            data = self.load(row)
            assert data is not None
            place[...] = np.frombuffer(data, np.uint8).reshape(place.shape)

    def check_table(self) -> None:
        """Checks that the sample table of a pack is the one that was made.

        Raises:
            CorruptPackError: It is not: the pack's id is a hash over it.
        """
        known = self.meta.id and not self.root
        if known and pack_id(self.meta, self.table) != self.meta.id:
            raise CorruptPackError(
                f"{printable(self.path)}: its sample table is damaged: fastconv repair mends it"
            )

    def require_checksums(self) -> None:
        """Checks that the bytes can be compared with what was packed.

        Raises:
            CorruptPackError: They cannot, because a pack of fastconv has lost its table.
            UsageError: There never were any checksums.
        """
        if not self.table.checksum:
            problem = CorruptPackError if self.lost_table else UsageError
            raise problem(
                f"{printable(self.path)}: has no checksums: {self.lost_table or self.no_checksums}"
                ", or leave out verify=True"
            )

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

    def guard(self, row: int) -> None:  # noqa: B027 - nothing to check by default
        """Checks what `check` does for one row, but not more often than is worth it: `load` and
        `read` do so by themselves, before they touch the table.

        Raises:
            CorruptPackError: A file was cut short since it was opened.
        """

    def check(self, rows: Sequence[int]) -> None:  # noqa: B027 - nothing to check by default
        """Checks that the files of these rows, and the table's, are still as long as they were.

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

    def place(self, row: int, slot: int = 0) -> str:
        """Returns where a field's bytes lie, for messages; "" where that is the sample's path."""
        return ""

    def bad_sample(self, row: int, words: str, reason: str, slot: int = 0) -> SampleError:
        """Returns what to raise where a sample is bad: an error that names it and its place.

        Args:
            row: Number of the sample.
            words: What is wrong, and what to do.
            reason: The same as a word of `fastconv.loaders.sample.Reason`.
            slot: Of the field that is bad.
        """
        place = self.place(row, slot)
        return SampleError(f"{self.where(row)}: {words}{place and f' ({place})'}", reason)

    def __len__(self) -> int:
        return len(self.table)


def _most_maps() -> int:
    """Returns how many shards may be open at once: each holds two file descriptors, its own and its
    map's."""
    try:
        import resource
    except ImportError:  # Windows
        return 256
    return max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)


class Found(NamedTuple):
    """A data file as it was when the pack was opened: which one, its bytes, and when it was last
    written to (ns)."""

    inode: tuple[int, int]
    size: int
    mtime: int


def found_at(file: str) -> Found:
    """Returns which file lies at a path.

    Raises:
        FileNotFoundError: None does.
        PackError: It is no regular file, or the system does not let us look.
    """
    try:
        status = os.stat(file)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(file, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise PackError(f"{printable(file)}: cannot be read: not a regular file")
    return Found((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


class MappedReader(Reader):
    """Reads any pack whose table says where the bytes lie, through maps of its files.

    What is decoded is copied first (`load`): that costs a hundredth of decoding, a failing disk or
    a file cut short gives an error, and the process does not grow by all that it has ever read.

    Views (`read`) cost nothing. That a file was cut short while it is open is told before one is
    given out: always by `check`, and by `read` unless one read follows the other so fast that
    asking each time would slow it down by half. Views that were given out, and columns of the table
    that a caller reads by itself, cannot be guarded: touching what is gone kills the process.

    Args:
        path: Where the pack lies.
        meta: What it says of itself; `meta.shards` are its data files.
        table: Where everything lies in them.
        files: The data files' paths, one for each shard.
        table_file: The mapped file that the table lies in, one of the data files or another; None
            where the table is held in memory.

    Attributes:
        files: As given.
        found: Each of them as it was.

    Raises:
        CorruptPackError: Its parts do not fit each other, or a file is missing or cut short.
        PackError: The system does not let us look at a file.
    """

    def __init__(
        self,
        path: str,
        meta: PackMeta,
        table: SampleTable,
        files: Sequence[str],
        table_file: MappedFile | None = None,
    ) -> None:
        super().__init__(path, meta, table)
        self.files = tuple(files)
        self._first_rows: list[int] = table.shard_row.tolist()[:-1]
        fits = (meta.format, meta.samples, meta.fields) == (self.name, len(table), table.fields)
        if not fits or not len(self.files) == len(meta.shards) == len(self._first_rows):
            raise CorruptPackError(
                f"{printable(path)}: damaged: its sample table does not fit what it says of itself"
            )
        # Looked up once: each takes a twentieth of the time of a read.
        self._size_of = [column.item for column in table.size]
        self._offset_of = [column.item for column in table.offset]
        self._table_file = table_file
        self._maps: dict[int, MappedFile] = {}
        self._most_maps = _most_maps()
        self._due = 0.0
        if table_file is not None and self.files == (table_file.path,):
            self._maps[0] = table_file
            self.found = [Found(table_file.inode, table_file.view.nbytes, table_file.mtime)]
        else:
            self.found = []
            for file in self.files:
                try:
                    self.found.append(found_at(file))
                except FileNotFoundError as error:
                    raise CorruptPackError(
                        f"{printable(file)}: is missing from the pack {printable(path)}"
                    ) from error
        for file, shard, found in zip(self.files, meta.shards, self.found, strict=True):
            if found.size < shard.size:
                raise CorruptPackError(
                    f"{printable(file)}: truncated: has {found.size} bytes, needs {shard.size}: "
                    "copy the pack again"
                )

    def check(self, rows: Sequence[int]) -> None:
        if self._table_file is not None:
            self._table_file.check()
        if len(self.files) == 1 or len(rows) == 1:
            shards = [bisect_right(self._first_rows, rows[0]) - 1] if len(rows) else []
        else:
            shards = np.unique(np.searchsorted(self._first_rows, rows, side="right") - 1).tolist()
        for shard in shards:
            mapped = self._maps.get(shard)
            if mapped is not None and mapped is not self._table_file:
                mapped.check()

    def _mapped(self, shard: int) -> MappedFile:
        found = self._maps.get(shard)
        if found is not None:
            return found
        path = self.files[shard]
        try:
            mapped = MappedFile(path)
        except FileNotFoundError as error:
            raise PackChangedError(
                f"{printable(path)}: went away since it was opened: open the pack again"
            ) from error
        except OSError as error:
            raise unreadable(path, error) from error
        expected = self.found[shard]
        replaced = mapped.inode != expected.inode
        if not replaced and mapped.view.nbytes < expected.size:
            raise CorruptPackError(
                f"{printable(path)}: truncated since it was opened: has {mapped.view.nbytes} "
                f"bytes, needs {expected.size}"
            )
        # The inode of a file that is gone is soon that of another. A pack with an id says itself
        # whether it is the same (`_check_view`).
        if replaced or (not self.meta.id and mapped.mtime != expected.mtime):
            raise PackChangedError(
                f"{printable(path)}: was replaced since it was opened: open the pack again"
            )
        if self._table_file is not None:
            self._table_file.check()
        self._check_view(shard, mapped.view)
        for old in [*self._maps][: len(self._maps) - self._most_maps + 1]:
            self._maps.pop(old, None)  # views given out keep their map alive
        self._maps[shard] = mapped
        return mapped

    def _check_view(self, shard: int, view: memoryview) -> None:
        """Checks that a shard just mapped is the one that the table means; raises
        PackChangedError."""

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        # As `_guarded` does it, whose call would take a tenth of the time of all this.
        shard = bisect_right(self._first_rows, row) - 1
        mapped = self._maps.get(shard) or self._mapped(shard)
        now = monotonic()
        if now > self._due or now > mapped.due:
            self._look_again(mapped, now)
        size: int = self._size_of[slot](row)
        if size < 0:
            return None
        start: int = self.table.base[slot] + self._offset_of[slot](row)
        view = mapped.view[start : start + size]
        if view.nbytes != size:
            raise self._outside(row, slot)
        return view

    def guard(self, row: int) -> None:
        self._guarded(row)

    def _guarded(self, row: int) -> MappedFile:
        """Returns the data file of a row, looked at if that is due."""
        shard = bisect_right(self._first_rows, row) - 1
        mapped, now = self._maps.get(shard) or self._mapped(shard), monotonic()
        if now > self._due or now > mapped.due:
            self._look_again(mapped, now)
        return mapped

    def _look_again(self, mapped: MappedFile, now: float) -> None:
        """Checks before a column is touched that its file, and the one to be read, are whole."""
        self._due = now + LOOK_EVERY
        mapped.check()
        if self._table_file is not None and self._table_file is not mapped:
            self._table_file.check()

    def load(self, row: int, slot: int = 0) -> bytes | None:
        mapped, size = self._guarded(row), self._size_of[slot](row)
        return None if size < 0 else self._copy(mapped, row, slot, size)

    def _copy(self, mapped: MappedFile, row: int, slot: int, size: int) -> bytes:
        """Returns a copy of so many bytes from where a field starts in its file."""
        start = self.table.base[slot] + self._offset_of[slot](row)
        if start + size > mapped.view.nbytes:
            raise self._outside(row, slot)
        try:
            data = mapped.read(start, size)
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}"
            raise self.bad_sample(row, why, "unreadable", slot) from error
        if len(data) < size:
            mapped.check()
            raise self.bad_sample(row, "the file ended early: read it again", "unreadable", slot)
        return data

    def fill(self, rows: Rows, places: Sequence[Pixels]) -> None:
        if not len(rows):
            return
        self.guard(int(rows[0]))
        shards = (np.searchsorted(self._first_rows, rows, side="right") - 1).tolist()
        starts = (self.table.offset[0][rows] + np.uint64(self.table.base[0])).tolist()
        for number in np.argsort(rows).tolist():  # as they lie in the files
            mapped = self._maps.get(shards[number]) or self._mapped(shards[number])
            place = places[number]
            try:
                whole = mapped.read_into(starts[number], place) == place.nbytes
            except (OSError, OverflowError):
                whole = False
            if not whole:  # tells why
                super().fill(rows[number : number + 1], [place])

    def _outside(self, row: int, slot: int) -> SampleError:
        words = "its place is outside the file: fastconv repair can mend it"
        return self.bad_sample(row, words, "bad_record", slot)

    def place(self, row: int, slot: int = 0) -> str:
        file = self.files[bisect_right(self._first_rows, row) - 1]
        start = self.table.base[slot] + self._offset_of[slot](row)
        field = self.table.fields[slot]
        return f"{printable(field)} in {printable(os.path.basename(file))} at byte {start}"

    def hint(self, rows: Rows, slots: Sequence[int] = (0,)) -> None:
        if hasattr(mmap.mmap, "madvise"):
            for shard, start, size in self._ranges(rows, slots):
                self._mapped(shard).want(start, size)

    def _ranges(self, rows: Rows, slots: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yields (shard, start, size) of what holds these rows: sorted, on whole pages, neighbours
        joined."""
        if not rows.shape[0]:
            return
        table = self.table
        # Places in all shards as numbers of one line, on which shards lie far apart. Those of a
        # damaged table are put where a shard may end: `read` tells of them.
        line = (np.searchsorted(self._first_rows, rows, side="right") - 1) << SHARD_SHIFT
        most = (1 << SHARD_SHIFT) - 1
        places = [table.offset[slot][rows] + np.uint64(table.base[slot]) for slot in slots]
        starts = np.concatenate(
            [np.minimum(place, np.uint64(most)).astype(np.int64) + line for place in places]
        )
        sizes = np.concatenate([table.size[slot][rows] for slot in slots])
        stops = starts + np.clip(sizes, 0, most)
        order = np.argsort(starts)
        starts, stops = starts[order] & -mmap.PAGESIZE, np.maximum.accumulate(stops[order])
        first = np.flatnonzero(np.concatenate([[True], starts[1:] > stops[:-1] + _GAP]))
        last = np.append(first[1:], starts.shape[0]) - 1
        for start, stop in zip(starts[first].tolist(), stops[last].tolist(), strict=True):
            yield start >> SHARD_SHIFT, start & (1 << SHARD_SHIFT) - 1, stop - start


READERS: Registry[Reader] = Registry("fastconv.loaders.formats", "fastconv.readers", Reader)  # type: ignore[type-abstract]
"""All formats that can be read."""
