"""What a format's writing side gives: places for every byte, from sizes alone.

A pack is planned before a byte is written. `Writer.lay_out` gives each field of each sample its
place in a data file; the bytes between the fields (heads of records, pages, padding) are given by
`Writer.frame`, for any range of rows, in whichever process writes them. So every part of a pack can
be written at any time, in any order, by any process, and the same bytes come out.
"""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fastconv.loaders.beside import STAMP_DIGITS
from fastconv.loaders.errors import UsageError
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.reader import MappedReader, Reader
from fastconv.loaders.registry import Registry
from fastconv.loaders.table import SampleTable

__all__ = [
    "WRITERS", "Frame", "Layout", "NoOptions", "Part", "SealedWriter", "Sharding", "Writer",
    "key_width",
]  # fmt: skip

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


SHARD_BYTES = 256_000_000
"""Of a shard, when nothing is said: few files for any file system, and small enough to copy
again."""


def key_width(samples: int) -> int:
    """Returns how many digits the keys of a pack have: those of its last sample's number."""
    return len(str(max(samples - 1, 0)))


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a pack is cut into data files: by one of two limits.

    Attributes:
        bytes: No file is larger, unless one sample is; 256 MB when nothing is given.
        samples: No file holds more.

    Raises:
        UsageError: Both are given, or one is not positive.
    """

    bytes: int | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.bytes is not None and self.samples is not None:
            raise UsageError(
                "a pack is cut by the bytes or by the samples of a shard: give one of them"
            )
        if min(self.bytes or 1, self.samples or 1) < 1 or 0 in (self.bytes, self.samples):
            raise UsageError("a shard holds at least one byte and one sample: give a positive size")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a format that has none."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes.

    Attributes:
        shards: The data files, with their final sizes, but for those whose size only `finish`
            knows.
        shard_row: int64 (S + 1,): the first row of each shard, and the number of rows.
        offset: For each field uint64 (N,): where its bytes start in the shard, less `base`.
        base: For each field: what is added to `offset`.
        own: What the format keeps for `Writer.part` and `Writer.finish`.
    """

    shards: tuple[Shard, ...]
    shard_row: Rows
    offset: tuple[npt.NDArray[np.uint64], ...]
    base: tuple[int, ...]
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A range of rows of one shard, written by one process at a time.

    Attributes:
        first_row: Number of its first sample in the pack.
        fields: Names of the fields, the image first.
        samples: How many samples the whole pack has: the width of its keys.
        label, kind, width, height, extra: (n,), as in the sample table; of what is only known when
            the bytes were read, 0 before.
        size: For each field int64 (n,); -1 where there is none.
        place: For each field int64 (n,): where its bytes start in the file.
        own: The format's own arrays, from `Writer.part`.
        id: The pack's id; "" while it is not known.
    """

    first_row: int
    fields: tuple[str, ...]
    samples: int
    label: Rows
    kind: npt.NDArray[np.uint8]
    width: npt.NDArray[np.uint32]
    height: npt.NDArray[np.uint32]
    extra: npt.NDArray[np.uint32]
    size: tuple[Rows, ...]
    place: tuple[Rows, ...]
    own: Mapping[str, Array]
    id: str = ""

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes that are no field, in pieces.

    Attributes:
        place: int64 (k,): where each piece starts in the file.
        data: The pieces, one after the other.
        end: int64 (k,): where each piece ends in `data`.
    """

    place: Rows
    data: memoryview
    end: Rows

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yields each piece: where it starts in the file, and its bytes."""
        start = 0
        for place, end in zip(self.place.tolist(), self.end.tolist(), strict=True):
            yield place, self.data[start:end]
            start = end

    @classmethod
    def joined(cls, *blocks: tuple[Rows, npt.NDArray[np.uint8]]) -> Frame:
        """Returns a frame of blocks of equal pieces: places (k,) and bytes uint8 (k, size) of
        each."""
        blocks = tuple((place, data) for place, data in blocks if place.shape[0])
        if not blocks:
            return cls(np.zeros(0, np.int64), memoryview(b""), np.zeros(0, np.int64))
        sizes = np.concatenate(
            [np.full(data.shape[0], data.shape[1], np.int64) for _, data in blocks]
        )
        pieces = np.concatenate([data.reshape(-1) for _, data in blocks])
        return cls(np.concatenate([place for place, _ in blocks]), pieces.data, np.cumsum(sizes))


class Writer(ABC):
    """Writes one format.

    Attributes:
        name: The format's name, that of its module.
        title: The format's name as people write it.
        suffixes: Endings of OUT that mean this format.
        requires: Packages that its module imports only when a pack is opened, because that takes
            long.
        Options: Frozen dataclass of the format's own settings (`--option NAME=VALUE`).
        folder_suffixes: Those of `suffixes` whose pack is a folder.
        sharded: Whether a pack may be cut into several data files (OUT is then a folder).
        table_inside: Whether the data file itself holds the sample table.
        sidecars: Whether it can hold fields besides the image.
        own_files: Names of files in a pack that is a folder, besides its shards.
        names_kind: Whether the frame depends on the images' formats, which are known only when
            their bytes were read.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    requires: ClassVar[tuple[str, ...]] = ()
    Options: ClassVar[type[Any]] = NoOptions
    is_folder: ClassVar[bool] = False
    sharded: ClassVar[bool] = False
    table_inside: ClassVar[bool] = False
    sidecars: ClassVar[bool] = True
    own_files: ClassVar[tuple[str, ...]] = ()
    names_kind: ClassVar[bool] = False

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def settings(self) -> dict[str, Any]:
        """Returns the options that are not at their default, as the pack's meta keeps them."""
        values = dataclasses.asdict(self.options)
        default = dataclasses.asdict(self.Options())
        return {name: value for name, value in values.items() if value != default[name]}

    @classmethod
    def settings_in(cls, reader: MappedReader) -> dict[str, Any]:
        """Returns the settings of a pack whose table is lost, as far as its data tell them."""
        return dict(reader.meta.settings)

    @abstractmethod
    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        """Returns where everything goes.

        Args:
            folder: Exists; the data files will be written into it. What has to be made by a library
                is made here.
            stem: What shards are called after; None: the pack is the single file `folder/data`.
            sharding: How to cut it, for formats that are `sharded`.
            meta: What the pack will say of itself; its id and shards are not known yet.
            table: The rows, with their sizes, labels and paths; all else may still change.

        Raises:
            UsageError: The format cannot hold something of this.
        """

    def part(self, layout: Layout, start: int, stop: int) -> dict[str, Array]:
        """Returns the format's own arrays for a range of rows, for `frame` in another process."""
        return {}

    def frame(self, part: Part, rows: Rows) -> Frame:
        """Returns the bytes between the fields of these rows (positions in the part)."""
        return Frame.joined()

    def extents(self, part: Part) -> tuple[Rows, ...]:
        """Returns for each field how many bytes it takes with the zeros that belong behind it,
        int64 (n,)."""
        return part.size

    @staticmethod
    def extra(data: memoryview) -> int:
        """Returns how many bytes an image takes in its record besides its own, where the format
        must escape some."""
        return 0

    @staticmethod
    def stamp(pack_id: str) -> bytes:
        """Returns what of a pack's id stands in each of its data files."""
        return pack_id[:STAMP_DIGITS].encode()

    @abstractmethod
    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        """Writes what is left when all parts are written; meta and table are final now.

        The parts' bytes stay where they are: a run that is stopped now goes on from them. What
        takes more than a few bytes between them goes into a file of its own, see `finished`.
        """

    def finished(self, name: str) -> str:
        """Returns the name of what `finish` makes of a data file of the layout."""
        return name

    @classmethod
    def problems(cls, reader: Reader) -> Iterable[tuple[str, str]]:
        """Returns what other programs read in a pack, or miss in it, that its table does not tell.

        Bytes that fastconv writes itself are compared anyway, one by one. A library's own
        structures differ between its versions, so their bytes prove little: what the library gives
        to any program is compared with the sample table instead.

        Args:
            reader: The pack. Without an id it was found to have no table.

        Returns:
            Each problem's file name, and words.
        """
        return ()

    def total_size(self, folder: str, layout: Layout) -> int:
        """Returns the bytes of all data files once they are finished."""
        return sum(shard.size for shard in layout.shards)


class SealedWriter(Writer):
    """Writes a format in which more than the frame depends on the contents of a sample, such as a
    checksum.

    All bytes of a sample lie together, its record, and a data file is nothing but records.
    """

    @abstractmethod
    def bounds(self, part: Part) -> Rows:
        """Returns where each record starts in the file, and where the last one ends, int64
        (n + 1,)."""

    @abstractmethod
    def seal(self, part: Part, row: int, record: memoryview) -> None:
        """Fills in what depends on the contents of a sample.

        Where the pack's id is known, the first record of a data file also gets its stamp, as
        `finish` writes it. Of damaged images, whose bytes do not take what `extra` says, something
        is made that is as long.

        Args:
            part: What is known of the samples; of this one everything but perhaps the pack's id.
            row: Which one, a position in the part.
            record: All its bytes, writable: what `frame` gives and the fields are at their places.
        """

    def field(self, part: Part, row: int, slot: int, rest: memoryview) -> memoryview:
        """Returns a field's bytes out of its record as it lies in a file; of a damaged one any.

        Args:
            part: What is known of the samples.
            row: Which one, a position in the part.
            slot: Which field.
            rest: Its record from the field's place on.
        """
        return rest[: int(part.size[slot][row])]


def shard_bounds(weight: npt.NDArray[np.int64], sharding: Sharding, overhead: int = 0) -> Rows:
    """Returns the first row of each shard, and the number of rows, int64 (S + 1,).

    Shards are as equal as can be: in their numbers of samples when `sharding.samples` is given
    (they differ by at most one), else in bytes, none of them over the limit unless it holds a
    single sample.

    Args:
        weight: Bytes that each row takes in its shard, int64 (N,).
        sharding: The limits.
        overhead: Bytes that every shard takes besides.
    """
    count = len(weight)
    if sharding.samples is not None:
        shards = -(-count // sharding.samples)
        return np.arange(shards + 1, dtype=np.int64) * count // shards
    stops = np.concatenate([[0], np.cumsum(weight)])
    room = max((sharding.bytes or SHARD_BYTES) - overhead, 1)
    shards = max(-(-int(stops[-1]) // room), 1)
    while True:
        wanted = np.arange(shards + 1, dtype=np.int64) * int(stops[-1]) // shards
        bounds = np.unique(np.searchsorted(stops, wanted, side="left"))
        bounds[-1] = count
        sizes = stops[bounds[1:]] - stops[bounds[:-1]]
        alone = bounds[1:] - bounds[:-1] == 1
        if shards >= count or bool(np.all((sizes <= room) | alone)):
            return bounds
        shards += 1 + shards // 64


WRITERS: Registry[Writer] = Registry("fastconv.converters.formats", "fastconv.writers", Writer)  # type: ignore[type-abstract]
"""All formats that can be written."""


def pwrite_all(fd: int, data: memoryview | bytes, place: int) -> None:
    """Writes all bytes at a place: the system may write fewer than asked, 0x7ffff000 at most."""
    view = memoryview(data)
    while view.nbytes:
        done = os.pwrite(fd, view, place)
        view, place = view[done:], place + done
