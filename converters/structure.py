"""What a pack would be if it were made again: for `verify` to compare with what lies there.

A pack's bytes follow from its sample table, so nothing but the table is needed to say what stands
between the samples. `Writer.lay_out` gives the places again, `Writer.frame` the frames (in the
worker processes, part by part), and `Writer.finish` the rest, written to a scratch file full of
holes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.converters.plan import Cut
from fastconv.converters.writer import (
    WRITERS,
    Layout,
    Part,
    SealedWriter,
    Sharding,
    Writer,
    pwrite_all,
)
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import CorruptPackError
from fastconv.loaders.meta import NO_ID, PackMeta
from fastconv.loaders.table import SampleTable

__all__ = [
    "ShardStructure",
    "columns_of",
    "has_frames",
    "laid_out",
    "moved_fields",
    "other_bytes",
    "part_of",
    "rows_of",
    "shard_structure",
    "writer_of",
]

REACH = 1024
"""Rows further apart have no bytes between each other's. An LMDB page holds at most 340 entries."""

Rows = npt.NDArray[np.int64]


def writer_of(meta: PackMeta) -> Writer:
    """Returns what has written a pack.

    Raises:
        UsageError: The format cannot be written here.
        CorruptPackError: It has settings that this fastconv does not know.
    """
    kind = WRITERS.load(meta.format)
    try:
        return kind(kind.Options(**meta.settings))
    except TypeError as error:
        raise CorruptPackError(
            f"made with settings that this fastconv does not know: {error}"
        ) from error


def has_frames(writer: Writer) -> bool:
    """Returns whether all bytes of a format are fastconv's own; a library writes the others."""
    return type(writer).frame is not Writer.frame


def rows_of(table: SampleTable, start: int, stop: int) -> SampleTable:
    """Returns a range of rows as the table of a single shard; the columns are not copied."""
    first, last = int(table.path_offset[start]), int(table.path_offset[stop])
    return replace(
        table,
        label=table.label[start:stop],
        kind=table.kind[start:stop],
        width=table.width[start:stop],
        height=table.height[start:stop],
        extra=None if table.extra is None else table.extra[start:stop],
        path_bytes=table.path_bytes[first:last],
        path_offset=table.path_offset[start : stop + 1] - np.uint64(first),
        shard_row=np.array([0, stop - start], np.int64),
        offset=tuple(column[start:stop] for column in table.offset),
        size=tuple(column[start:stop] for column in table.size),
        checksum=tuple(column[start:stop] for column in table.checksum),
    )


@dataclass(frozen=True, slots=True)
class ShardStructure:
    """What one data file should be.

    Attributes:
        writer: Of its format.
        id: Of the pack.
        first: Number of its first row in the pack.
        samples: How many the whole pack has.
        table: Its rows.
        layout: Where they should be.
        size: Of the file, in bytes.
        scratch: Path of a file with what is neither a frame nor a field; "" where nothing is.
        patches: Frames that finishing has changed.
    """

    writer: Writer
    id: str
    first: int
    samples: int
    table: SampleTable
    layout: Layout
    size: int
    scratch: str
    patches: dict[str, Array]

    def boundaries(self, cuts: list[Cut]) -> list[tuple[int, int]]:
        """Returns the range of the file that goes with each part; together they are all of it."""
        places = [0]
        for cut in cuts[1:]:
            row = cut.start - self.first
            if isinstance(self.writer, SealedWriter):
                places.append(int(self.writer.bounds(self.part(row, row + 1))[0]))
                continue
            there = [
                int(offset[row]) + base
                for offset, base, size in zip(
                    self.layout.offset, self.layout.base, self.table.size, strict=True
                )
                if size[row] >= 0
            ]
            places.append(max([places[-1], *([min(there)] if there else [])]))
        return [*zip(places, [*places[1:], self.size], strict=True)]

    def part(self, start: int, stop: int) -> Part:
        """Returns a range of the file's rows as a part."""
        return part_of(self.writer, self.layout, self.table, self.first, start, stop, self.samples)

    def task(self, cut: Cut, limits: tuple[int, int]) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns what a worker must know to check a part, with the rows around it."""
        start, stop = cut.start - self.first, cut.stop - self.first
        reach = 0 if isinstance(self.writer, SealedWriter) else REACH
        begin, end = max(start - reach, 0), min(stop + reach, len(self.table))
        content = {
            "id": self.id,
            "scratch": self.scratch,
            "range": limits,
            "writer": self.writer.name,
            "options": self.writer.settings(),
            "rows": (start - begin, stop - begin),
            "first_row": self.first + begin,
            "samples": self.samples,
        }
        own = self.writer.part(self.layout, begin, end)
        arrays = columns_of(self.table, slice(begin, end)) | self.patches
        return content, arrays | {f"own/{name}": array for name, array in own.items()}


def columns_of(table: SampleTable, rows: slice | Rows) -> dict[str, Array]:
    """Returns the columns of some rows that a worker needs."""
    arrays: dict[str, Array] = {
        name: getattr(table, name)[rows] for name in ("label", "kind", "width", "height")
    }
    if table.extra is not None:
        arrays["extra"] = table.extra[rows]
    for slot, name in enumerate(table.fields):
        arrays[f"size/{name}"] = table.size[slot][rows]
        arrays[f"place/{name}"] = table.offset[slot][rows].astype(np.int64) + table.base[slot]
        if table.checksum:
            arrays[f"checksum/{name}"] = table.checksum[slot][rows]
    return arrays


class Moved(NamedTuple):
    """How many places of a field are others, and whether all of those that have bytes are."""

    places: int
    all: bool


def moved_fields(layout: Layout, table: SampleTable) -> list[Moved]:
    """Returns for each field of a table how many are elsewhere than a layout says."""
    out = []
    for new, old, size in zip(layout.offset, table.offset, table.size, strict=True):
        moved, filled = new != old, size > 0
        out.append(Moved(int(moved.sum()), bool(filled.any() and moved[filled].all())))
    return out


def laid_out(writer: Writer, meta: PackMeta, table: SampleTable, scratch: str) -> Layout:
    """Returns where the rows of one data file should be.

    Args:
        writer: Of the pack's format.
        meta: What the pack says of itself.
        table: The rows of this file.
        scratch: A folder, where a library may make its file.
    """
    # As it is when a pack is planned; formats that hold it themselves keep it so but for the id.
    unknown = meta.with_shards(()).with_id(NO_ID)
    return writer.lay_out(scratch, None, Sharding(), unknown, table)


def shard_structure(
    writer: Writer, meta: PackMeta, table: SampleTable, layout: Layout, first: int, scratch: str
) -> ShardStructure:
    """Returns what one data file should be.

    Args:
        writer: Of the pack's format.
        meta: What the pack says of itself.
        table: The rows of this file.
        layout: Where they are.
        first: Number of the first one in the pack.
        scratch: The folder where they were laid out; it keeps the scratch file.
    """
    (shard,) = layout.shards
    if isinstance(writer, SealedWriter):  # nothing but records, each put together again by itself
        return ShardStructure(
            writer, meta.id, first, meta.samples, table, layout, shard.size, "", {}
        )
    path = os.path.join(scratch, shard.name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.truncate(fd, shard.size)
        # The frame of the first row: the only one that `Writer.finish` may change.
        part = part_of(writer, layout, table, first, 0, 1, meta.samples)
        pieces = [*writer.frame(part, np.arange(1)).pieces()]
        for place, data in pieces:
            pwrite_all(fd, data, place)
        writer.finish(scratch, layout, meta.with_shards(()), table)
        made = os.path.join(scratch, writer.finished(shard.name))
        size = os.stat(made).st_size
        after = [(place, os.pread(fd, data.nbytes, place)) for place, data in pieces]
    finally:
        os.close(fd)
    changed = [new for new, (_, data) in zip(after, pieces, strict=True) if new[1] != data]
    patches: dict[str, Array] = {
        "patch/place": np.array([place for place, _ in changed], np.int64),
        "patch/end": np.cumsum([len(data) for _, data in changed], dtype=np.int64),
        "patch/data": np.frombuffer(b"".join(data for _, data in changed), np.uint8),
    }
    kept = os.path.join(scratch, f"from-row-{first}")
    os.rename(made, kept)
    return ShardStructure(writer, meta.id, first, meta.samples, table, layout, size, kept, patches)


def other_bytes(table: SampleTable, size: int) -> list[tuple[int, int]]:
    """Returns the ranges of a file of a size that belong to none of the fields of a table."""
    starts = np.concatenate(
        [o.astype(np.int64) + b for o, b in zip(table.offset, table.base, strict=True)]
    )
    sizes = np.concatenate(table.size)
    starts, stops = starts[sizes > 0], (starts + sizes)[sizes > 0]
    order = np.argsort(starts)
    starts, stops = (
        np.append(starts[order], size),
        np.maximum.accumulate(np.append(0, stops[order])),
    )
    free = starts > stops
    return [*zip(stops[free].tolist(), starts[free].tolist(), strict=True)]


def part_of(
    writer: Writer,
    layout: Layout,
    table: SampleTable,
    first: int,
    start: int,
    stop: int,
    samples: int,
) -> Part:
    """Returns a range of rows of one data file as a part, as it is packed.

    Args:
        writer: Of the file's format.
        layout: Where its rows are.
        table: They.
        first: Number of the first one in the pack.
        start, stop: The range, in the file.
        samples: How many samples the whole pack has.
    """
    return Part(
        first_row=first + start,
        fields=table.fields,
        samples=samples,
        label=table.label[start:stop],
        kind=table.kind[start:stop],
        width=table.width[start:stop],
        height=table.height[start:stop],
        extra=table.extra_bytes(slice(start, stop)),
        size=tuple(column[start:stop] for column in table.size),
        place=tuple(
            offset[start:stop].astype(np.int64) + base
            for offset, base in zip(layout.offset, layout.base, strict=True)
        ),
        own=writer.part(layout, start, stop),
    )
