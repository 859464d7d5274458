"""Writes WebDataset shards: plain USTAR files that `tar`, `webdataset` and Hugging Face `datasets`
read.

A sample's members follow each other: KEY.jpg (by the image's real format), KEY.cls (the label in
ASCII, where there is one), then its sidecars by name. A member is a 512-byte header and its data,
filled up with zeros to a multiple of 512; two empty blocks end the file. The header (POSIX.1-1988,
"ustar"):

    name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | checksum 8 | type 1 | link 100
    | magic 6 | version 2 | uname 32 | gname 32 | devmajor 8 | devminor 8 | prefix 155 | zeros 12

Times, owners and ids are 0, so the same samples give the same bytes. The first header of each shard
has the pack's id as its gname: by it a sample table knows its data.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fastconv.converters.beside import BesideWriter
from fastconv.converters.writer import (
    Array,
    Frame,
    Layout,
    Part,
    Rows,
    Sharding,
    key_width,
    pwrite_all,
    shard_bounds,
)
from fastconv.loaders.errors import UsageError
from fastconv.loaders.formats.webdataset import BLOCK
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.table import SampleTable

__all__ = ["WebDatasetWriter"]

END = bytes(2 * BLOCK)
MOST_BYTES = 8**11 - 1
"""The header has eleven octal digits for a size."""

Bytes = npt.NDArray[np.uint8]


def header_template() -> Bytes:
    """Returns a header without name, size and checksum, uint8 (512,)."""
    header = bytearray(BLOCK)
    header[100:108] = b"0000444\0"
    header[108:116] = header[116:124] = b"0000000\0"
    header[136:148] = b"00000000000\0"
    header[148:156] = b" " * 8  # counted as blanks in the checksum
    header[156:157] = b"0"
    header[257:265] = b"ustar\x0000"
    header[329:337] = header[337:345] = b"0000000\0"
    return np.frombuffer(bytes(header), np.uint8)


TEMPLATE = header_template()


def digits(numbers: Rows, width: int, base: int) -> Bytes:
    """Returns the numbers as ASCII digits, zero-padded, uint8 (n, width)."""
    out = np.empty((numbers.shape[0], width), np.uint8)
    for column in range(width - 1, -1, -1):
        numbers, digit = np.divmod(numbers, base)
        out[:, column] = digit + ord("0")
    return out


def headers(keys: Bytes, suffixes: list[bytes], choice: Array, sizes: Rows) -> Bytes:
    """Returns the headers of members, uint8 (n, 512).

    Args:
        keys: Their keys, uint8 (n, width).
        suffixes: Possible ends of their names.
        choice: Which of them each has, (n,).
        sizes: Their sizes in bytes, (n,).
    """
    count, width = keys.shape
    out = np.tile(TEMPLATE, (count, 1))
    out[:, :width] = keys
    ends = np.zeros((len(suffixes), max(map(len, suffixes))), np.uint8)
    for row, suffix in zip(ends, suffixes, strict=True):
        row[: len(suffix)] = np.frombuffer(suffix, np.uint8)
    out[:, width : width + ends.shape[1]] = ends[choice]
    out[:, 124:135] = digits(sizes, 11, 8)
    out[:, 148:154] = digits(out.sum(axis=1, dtype=np.int64), 6, 8)
    out[:, 154] = 0
    return out


class WebDatasetWriter(BesideWriter):
    """Writes a folder of shards, or one tar."""

    name = "webdataset"
    title = "WebDataset"
    suffixes = (".tar",)
    names_kind = True
    every = "tar"

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        width = key_width(len(table))
        for name, size in zip(table.fields, table.size, strict=True):
            if name == "cls" and meta.labels != "none":
                raise UsageError(
                    "the sidecar cls is the label's own place in WebDataset: leave one of them out"
                )
            if width + 1 + max(len(name), 8) > 100:
                raise UsageError(
                    f"the sidecar {name} makes member names over 100 bytes: choose a shorter one"
                )
            if size.max(initial=0) > MOST_BYTES:
                raise UsageError(
                    "WebDataset (tar) holds no file over 8 GiB: leave it out or choose "
                    "another format"
                )
        padded = [
            np.where(size < 0, 0, BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK)
            for size in table.size
        ]
        labelled = (table.label >= 0) & (meta.labels == "class") | (meta.labels == "int")
        padded.insert(1, np.where(labelled, 2 * BLOCK, 0))
        total: Rows = np.sum(padded, axis=0, dtype=np.int64)
        if stem is None:
            bounds = np.array([0, len(table)], np.int64)
        else:
            bounds = shard_bounds(total, sharding, len(END))
        start = np.cumsum(total) - total
        start -= np.repeat(start[bounds[:-1]], np.diff(bounds))
        offset = []
        for slot, size in enumerate(padded):
            if slot != 1:
                offset.append((start + BLOCK).astype(np.uint64))
            start += size
        sizes = np.add.reduceat(total, bounds[:-1]) + len(END)
        shards = tuple(
            Shard("data" if stem is None else f"{stem}-{number:06d}.tar", size)
            for number, size in enumerate(sizes.tolist())
        )
        return Layout(shards, bounds, tuple(offset), (0,) * len(offset), {"cls": labelled})

    def frame(self, part: Part, rows: Rows) -> Frame:
        keys = digits(part.first_row + rows, key_width(part.samples), 10)
        kinds, choice = np.unique(part.kind[rows], return_inverse=True)
        suffixes = [b"." + KINDS[kind].encode() for kind in kinds.tolist()]
        blocks = [
            (part.place[0][rows] - BLOCK, headers(keys, suffixes, choice, part.size[0][rows]))
        ]
        labels = part.own["cls"][rows]
        has = np.flatnonzero(labels)
        if has.shape[0]:
            text = np.array([b"%d" % label for label in part.label[rows[has]].tolist()])
            data = np.zeros((has.shape[0], BLOCK), np.uint8)
            data[:, : text.itemsize] = text.view(np.uint8).reshape(has.shape[0], -1)
            head = headers(
                keys[has],
                [b".cls"],
                np.zeros(has.shape[0], np.uint8),
                np.char.str_len(text).astype(np.int64),
            )
            stop = (part.place[0] + (part.size[0] + BLOCK - 1) // BLOCK * BLOCK)[rows[has]]
            label_blocks = np.concatenate([head, data], axis=1)
            place, image_blocks = blocks.pop()
            if has.shape[0] == rows.shape[0] and np.array_equal(stop[:-1] + 2 * BLOCK, place[1:]):
                # Nothing lies between a label and the next sample's header: they are one piece.
                joined = np.concatenate([label_blocks[:-1], image_blocks[1:]], axis=1)
                blocks += [
                    (place[:1], image_blocks[:1]),
                    (stop[:-1], joined),
                    (stop[-1:], label_blocks[-1:]),
                ]
            else:
                blocks += [(place, image_blocks), (stop, label_blocks)]
        for slot, name in enumerate(part.fields[1:], 1):
            has = np.flatnonzero(part.size[slot][rows] >= 0)
            none = np.zeros(has.shape[0], np.uint8)
            size = part.size[slot][rows[has]]
            head = headers(keys[has], [b"." + name.encode()], none, size)
            blocks.append((part.place[slot][rows[has]] - BLOCK, head))
        return Frame.joined(*blocks)

    def extents(self, part: Part) -> tuple[Rows, ...]:
        return tuple((size + BLOCK - 1) // BLOCK * BLOCK for size in part.size)

    def part(self, layout: Layout, start: int, stop: int) -> dict[str, Array]:
        return {"cls": layout.own["cls"][start:stop]}

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        for shard, row in zip(layout.shards, layout.shard_row.tolist(), strict=False):
            fd = os.open(os.path.join(folder, shard.name), os.O_RDWR)
            try:
                place = int(layout.offset[0][row]) - BLOCK
                header = stamped(os.pread(fd, BLOCK, place), meta.id)
                pwrite_all(fd, header, place)
            finally:
                os.close(fd)


def stamped(header: bytes, pack_id: str) -> bytes:
    """Returns a header with a pack's id as its gname."""
    new = bytearray(header)
    new[297:329] = pack_id.encode()[:31].ljust(32, b"\0")
    new[148:156] = b" " * 8
    new[148:156] = b"%06o\0 " % sum(new)
    return bytes(new)
