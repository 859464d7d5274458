"""Writes RecordIO files of images as MXNet's im2rec does, for MXNet and NVIDIA DALI.

A record is a head, a header and the image's file (`fastconv.loaders.formats.recordio` has the
layout), filled up with zeros to a multiple of 4. The header has the label as a float, -1 where
there is none, and the sample's number as the id. Where the magic of a head stands in an image, the
record is split there, as dmlc-core does it: such images take four bytes more for each. The id2 of
the first record of each file, which no reader looks at, has the pack's stamp: by it a sample table
knows its data.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fastconv.converters.beside import BesideWriter
from fastconv.converters.writer import (
    Frame,
    Layout,
    Part,
    Rows,
    SealedWriter,
    Sharding,
    pwrite_all,
    shard_bounds,
)
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.formats.recordio import (
    FIRST,
    HEADER,
    IMAGE_PLACE,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MIDDLE,
    MOST_LENGTH,
    PART,
    joined,
    magics,
    stamp_of,
    words_of,
)
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.table import SampleTable

__all__ = ["RecordIOWriter"]

MOST_IMAGE = MOST_LENGTH - HEADER.size
HEAD = np.dtype(
    [("magic", "<u4"), ("lrec", "<u4"), ("flag", "<u4"), ("label", "<f4"), ("id", "<u8"),
     ("id2", "<u8")]
)  # fmt: skip
"""What stands before an image."""


class RecordIOWriter(SealedWriter, BesideWriter):
    """Writes a folder of shards, or one file."""

    name = "recordio"
    title = "RecordIO"
    suffixes = (".rec",)
    sidecars = False
    every = ".rec"

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        if len(table.fields) > 1:
            raise UsageError(
                "RecordIO holds images and labels only, no sidecars "
                f"({', '.join(table.fields[1:])}): leave them out or choose another format"
            )
        size = table.size[0]
        if size.max(initial=0) > MOST_IMAGE:
            path = printable(table.path(int(size.argmax())))
            raise UsageError(
                f"RecordIO holds no image of {MOST_IMAGE + 1} bytes (512 MiB) or more, such as "
                f"{path}: leave it out or choose another format"
            )
        if (lost := table.label[~fits_float(table.label)]).shape[0]:
            raise UsageError(
                f"RecordIO has labels as 32-bit floats, which cannot hold {lost[0]}: number the "
                "classes from 0 or choose another format"
            )
        weight = IMAGE_PLACE + padded(size) + table.extra_bytes(slice(None))
        if stem is None:
            bounds = np.array([0, len(table)], np.int64)
        else:
            bounds = shard_bounds(weight, sharding)
        start = np.cumsum(weight) - weight
        start -= np.repeat(start[bounds[:-1]], np.diff(bounds))
        shards = tuple(
            Shard("data" if stem is None else f"{stem}-{number:06d}.rec", total)
            for number, total in enumerate(np.add.reduceat(weight, bounds[:-1]).tolist())
        )
        return Layout(shards, bounds, ((start + IMAGE_PLACE).astype(np.uint64),), (0,))

    def frame(self, part: Part, rows: Rows) -> Frame:
        heads = np.zeros(rows.shape[0], HEAD)
        heads["magic"] = MAGIC
        heads["lrec"] = HEADER.size + part.size[0][rows]
        heads["label"] = part.label[rows]
        heads["id"] = part.first_row + rows
        pieces = heads.view(np.uint8).reshape(-1, IMAGE_PLACE)
        return Frame.joined((part.place[0][rows] - IMAGE_PLACE, pieces))

    def bounds(self, part: Part) -> Rows:
        start = part.place[0] - IMAGE_PLACE
        stop = part.place[0][-1:] + padded(part.size[0][-1:]) + part.extra[-1:]
        return np.concatenate([start, stop])

    def seal(self, part: Part, row: int, record: memoryview) -> None:
        end = IMAGE_PLACE + int(part.size[0][row])
        if part.extra[row]:
            end = split(record, end, int(part.extra[row]) // 4)
        record[end:] = bytes(len(record) - end)
        if part.id and part.place[0][row] == IMAGE_PLACE:
            record[IMAGE_PLACE - 8 : IMAGE_PLACE] = stamp_of(part.id)

    def field(self, part: Part, row: int, slot: int, rest: memoryview) -> memoryview:
        size, extra = int(part.size[0][row]), int(part.extra[row])
        return memoryview(joined(rest[: size + extra])) if extra else rest[:size]

    @staticmethod
    def extra(data: memoryview) -> int:
        return 4 * int(np.count_nonzero(words_of(data) == MAGIC))

    @staticmethod
    def stamp(pack_id: str) -> bytes:
        return stamp_of(pack_id)

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        for shard in layout.shards:
            fd = os.open(os.path.join(folder, shard.name), os.O_WRONLY)
            try:
                pwrite_all(fd, stamp_of(meta.id), IMAGE_PLACE - 8)
            finally:
                os.close(fd)


def padded(size: Rows) -> Rows:
    """Returns sizes, filled up to multiples of 4."""
    return (size + 3) & -4


def fits_float(labels: Rows) -> npt.NDArray[np.bool_]:
    """Returns which integers a 32-bit float holds exactly: those of at most 24 binary digits from
    the first to the last 1. One of them is left out, whose bytes are the magic."""
    digits = labels // np.where(labels == 0, 1, labels & -labels)
    magic = labels.astype("<f4").view("<u4") == MAGIC
    fits: npt.NDArray[np.bool_] = (np.abs(digits) < 1 << 24) & ~magic
    return fits


def split(record: memoryview, end: int, times: int) -> int:
    """Splits a record where the magic stands in its image; returns where it ends then.

    Args:
        record: Its head, its data, and room for what comes between the parts.
        end: Of its data.
        times: How often the magic stands there, and there is room for; in a damaged image it may be
            more or less often.
    """
    data = record[PART.size : end]
    places = magics(data)[:times]
    lengths = np.diff(places, prepend=-4, append=len(data)) - 4
    flags = np.full(lengths.shape[0], MIDDLE)
    flags[0], flags[-1] = FIRST, LAST
    lrecs = (flags << LENGTH_BITS | lengths).astype("<u4")
    words, rest = words_of(data), bytes(data[len(data) // 4 * 4 :])
    parts = np.insert(words, places // 4 + 1, lrecs[1:]).tobytes() + rest
    record[4:8] = lrecs[:1].tobytes()
    record[PART.size : PART.size + len(parts)] = parts
    return PART.size + len(parts)
