"""Writes Parquet files as Hugging Face `datasets` has them: an image is a struct of bytes and path.

    "PAR1" | row group | ... | footer | u32 size of the footer | "PAR1"

Columns: image.bytes, image.path, label (int64; absent where there are no labels), and one for each
sidecar. Nothing is compressed or encoded, and a row group has one page a column, in this order:

    page header | definition levels | of each value: u32 size, the bytes (labels: 8 bytes)

So every size is known before a byte is read. What lies between the images and sidecars of a row
group, heads of pages, paths and labels, is written when all else is, as is the footer. Headers and
footer are Thrift (`fastconv.loaders.thrift`); their numbers below are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. The footer ends
with the first digits of the pack's id: by it a sample table knows its data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.converters.beside import BesideWriter
from fastconv.converters.writer import (
    Frame,
    Layout,
    Part,
    Rows,
    Sharding,
    Writer,
    pwrite_all,
    shard_bounds,
)
from fastconv.loaders import parquet_columns
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.formats.parquet import CREATED_BY, KEY, MAGIC
from fastconv.loaders.meta import NO_ID, PackMeta, Shard
from fastconv.loaders.reader import MappedReader
from fastconv.loaders.table import SampleTable
from fastconv.loaders.thrift import Value, i32, i64, items, struct, text, varint

__all__ = ["ParquetWriter"]

GROUP_ROWS: Final = 1000
"""Of a row group: `fastconv verify` looks no further than 1024 rows for what belongs together."""
GROUP_BYTES: Final = 32_000_000
"""Of a row group's images and sidecars, unless one sample has more: what a reader that has no
sample table must have in memory to give one image, and 1,000 small ones are quickly passed by."""
COLUMN_COST: Final = 384
"""A column takes no more in a row group besides its values: in a head of its page, levels and the
footer."""
MOST_BYTES: Final = (1 << 31) - 256
"""The size of a page has 31 bits."""

BYTE_ARRAY, INT64 = 6, 2
"""Types of columns."""
OPTIONAL = i32(1)
PLAIN, RLE = i32(0), i32(3)
"""Encodings: that of values, which is none, and that of levels."""
PATH, LABEL = -1, -2
"""In place of the slot of a field."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """The options of Parquet.

    Attributes:
        text: Sidecars that are text in UTF-8, by name, with commas between them: their columns are
            of strings. All others are of bytes, because files may hold anything, and a program that
            reads a column of strings refuses all of it where one is none.
    """

    text: str = ""

    def __post_init__(self) -> None:
        # In order, as packs are different that say different things of themselves.
        names = sorted({name.strip() for name in self.text.split(",")} - {""})
        object.__setattr__(self, "text", ",".join(names))


class Column(NamedTuple):
    """A column.

    Attributes:
        path: Its name, and in a struct that of its part.
        slot: Of the field that it holds, or PATH or LABEL.
        text: Whether its values are strings.
    """

    path: tuple[str, ...]
    slot: int
    text: bool = False

    @property
    def kind(self) -> int:
        """The type of its values."""
        return INT64 if self.slot == LABEL else BYTE_ARRAY


class Chunk(NamedTuple):
    """What a row group has of a column: where it starts in the file, the bytes before its values,
    and how many those have."""

    place: int
    head: bytes
    size: int

    @property
    def values(self) -> int:
        """Where its values start in the file."""
        return self.place + len(self.head)

    @property
    def stop(self) -> int:
        """Where it ends in the file."""
        return self.values + self.size


class RowGroup(NamedTuple):
    """Rows of the pack, and where the columns of them are."""

    start: int
    stop: int
    chunks: tuple[Chunk, ...]


class FilePlan(NamedTuple):
    """A data file: its row groups, and the footer with no id in it yet."""

    groups: tuple[RowGroup, ...]
    footer: bytes


class ParquetWriter(BesideWriter):
    """Writes a folder of Parquet files, or one."""

    name = "parquet"
    title = "Parquet"
    suffixes = (".parquet",)
    Options = ParquetOptions
    every = "Parquet file"

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        columns = self.columns(meta, table)
        paths = path_sizes(table)
        payload: Rows = np.sum([np.maximum(size, 0) for size in table.size], axis=0)
        if stem is None:
            bounds = np.array([0, len(table)], np.int64)
        else:
            more = sum((size >= 0) * 4 for size in table.size) + paths + 4 + 8
            # No two row groups that follow each other would have been one: that limits how many
            # there are.
            cost = COLUMN_COST * len(columns)
            share = -(-cost // GROUP_ROWS) + 2 * cost * payload // GROUP_BYTES + 1
            fixed = len(MAGIC) + len(end_of_file(columns, [struct({})], meta, 0)) + cost
            bounds = shard_bounds(payload + more + share, sharding, fixed)
        offset = tuple(np.zeros(len(table), np.uint64) for _ in table.fields)
        plans, sizes = [], []
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            groups, place = [], len(MAGIC)
            for start, stop in row_groups(payload, first, last):
                group = laid_out(columns, table, paths, start, stop, place, offset)
                groups.append(group)
                place = group.chunks[-1].stop
            described = [describe(columns, group, table) for group in groups]
            plan = FilePlan(tuple(groups), end_of_file(columns, described, meta, last - first))
            plans.append(plan)
            sizes.append(place + len(plan.footer))
        shards = tuple(
            Shard("data" if stem is None else f"{stem}-{at:05d}-of-{len(sizes):05d}.parquet", size)
            for at, size in enumerate(sizes)
        )
        own = {"columns": columns, "plans": plans}
        return Layout(shards, bounds, offset, (0,) * len(offset), own)

    @classmethod
    def settings_in(cls, reader: MappedReader) -> dict[str, Any]:
        schema = parquet_columns.ParquetFile.of(reader.files[0]).decoder.schema_arrow
        sidecars = reader.meta.fields[1:]
        strings = [name for name in sidecars if parquet_columns.is_text(schema.field(name).type)]
        return cls(ParquetOptions(",".join(strings))).settings()

    def columns(self, meta: PackMeta, table: SampleTable) -> list[Column]:
        """Returns the columns of a pack.

        Raises:
            UsageError: Parquet cannot hold something of this.
        """
        sidecars = table.fields[1:]
        text = {*filter(None, self.options.text.split(","))}
        if unknown := sorted(text - {*sidecars}):
            raise UsageError(
                f"option text: there is no sidecar {printable(unknown[0])}: bring it along with "
                f"--sidecar {printable(unknown[0])}"
            )
        if "label" in sidecars and meta.labels != "none":
            raise UsageError(
                "the sidecar label is the name of the labels' own column in Parquet: leave one of "
                "them out"
            )
        for name, size in zip(table.fields, table.size, strict=True):
            if size.max(initial=0) > MOST_BYTES:
                row = int(size.argmax())
                raise UsageError(
                    f"Parquet holds no value over 2 GiB: the {name} of "
                    f"{printable(table.path(row))} has {size[row]} bytes: leave it out or choose "
                    "another format"
                )
        text |= {*meta.generated}  # JSON that fastconv has made
        return [
            Column(("image", "bytes"), 0),
            Column(("image", "path"), PATH, True),
            *([] if meta.labels == "none" else [Column(("label",), LABEL)]),
            *(Column((name,), slot, name in text) for slot, name in enumerate(sidecars, 1)),
        ]

    def frame(self, part: Part, rows: Rows) -> Frame:
        blocks = []
        for place, size in zip(part.place, part.size, strict=True):
            there = rows[size[rows] >= 0]
            blocks.append((place[there] - 4, prefixes(size[there])))
        return Frame.joined(*blocks)

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        columns, plans = layout.own["columns"], layout.own["plans"]
        for shard, plan in zip(layout.shards, plans, strict=True):
            fd = os.open(os.path.join(folder, shard.name), os.O_RDWR)
            try:
                pwrite_all(fd, MAGIC, 0)
                for group in plan.groups:
                    for place, data in between(columns, group, table):
                        pwrite_all(fd, data, place)
                footer = stamped(plan.footer, self.stamp(meta.id))
                pwrite_all(fd, footer, shard.size - len(footer))
            finally:
                os.close(fd)


# -------------------------------------------------------------------------------------- row groups


def row_groups(payload: Rows, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the rows of each row group of a data file: from, up to.

    Args:
        payload: Bytes of each sample, int64 (N,).
        first, last: The rows of the data file.
    """
    done = np.cumsum(payload[first:last])
    start = 0
    while start < last - first:
        before = int(done[start - 1]) if start else 0
        stop = int(np.searchsorted(done, before + GROUP_BYTES, side="right"))
        stop = max(min(stop, start + GROUP_ROWS, last - first), start + 1)
        yield first + start, first + stop
        start = stop


def laid_out(
    columns: Sequence[Column], table: SampleTable, paths: Rows, start: int, stop: int, place: int,
    offset: Sequence[npt.NDArray[np.uint64]],
) -> RowGroup:  # fmt: skip
    """Returns a row group at a place of its file; notes in `offset` where its fields are.

    Args:
        columns: Of the pack.
        table: Its rows.
        paths: Bytes of their paths.
        start, stop: Those of the row group.
        place: Where it starts in its file.
        offset: Of each field of each row.
    """
    rows = slice(start, stop)
    count = stop - start
    chunks = []
    for column in columns:
        levels = all_there(count, len(column.path))
        if column.slot == LABEL:
            size = 8 * count
        elif column.slot == PATH:
            size = int(paths[rows].sum()) + 4 * count
        else:
            given = table.size[column.slot][rows]
            if (given < 0).any():
                levels = some_there(given >= 0)
            taken = np.where(given < 0, 0, given + 4)
            size = int(taken.sum())
        head = page_head(count, levels, size)
        chunk = Chunk(place, head, size)
        if column.slot >= 0:
            offset[column.slot][rows] = chunk.values + 4 + np.cumsum(taken) - taken
        chunks.append(chunk)
        place = chunk.stop
    return RowGroup(start, stop, tuple(chunks))


def page_head(count: int, levels: bytes, size: int) -> bytes:
    """Returns what comes before the values of a page: its header, and definition levels.

    Args:
        count: How many values it has, those among them that are missing.
        levels: The definition levels.
        size: Bytes of the values.
    """
    about = struct({1: i32(count), 2: PLAIN, 3: RLE, 4: RLE})
    whole = i32(len(levels) + size)
    _, header = struct({1: i32(0), 2: whole, 3: whole, 5: about})
    return header + levels


def all_there(count: int, level: int) -> bytes:
    """Returns the definition levels of values that are all there: one run of the highest level."""
    return sized(varint(count << 1) + bytes([level]))


def some_there(there: npt.NDArray[np.bool_]) -> bytes:
    """Returns the definition levels of values that may be missing, of a column outside structs: one
    run of bits."""
    bits = np.packbits(there, bitorder="little").tobytes()
    return sized(varint(len(bits) << 1 | 1) + bits)


def sized(data: bytes) -> bytes:
    """Returns bytes with their size before them."""
    return len(data).to_bytes(4, "little") + data


def between(
    columns: Sequence[Column], group: RowGroup, table: SampleTable
) -> Iterator[tuple[int, bytes]]:
    """Yields what a row group has between its fields, in pieces as long as can be: where each is in
    the file, and its bytes."""
    place, pieces = group.chunks[0].place, []
    for column, chunk in zip(columns, group.chunks, strict=True):
        pieces.append(chunk.head)
        if column.slot == PATH:
            pieces.append(prefixed(*paths_of(table, group.start, group.stop)))
        elif column.slot == LABEL:
            pieces.append(table.label[group.start : group.stop].astype("<i8").tobytes())
        else:
            yield place, b"".join(pieces)
            place, pieces = chunk.stop, []
    yield place, b"".join(pieces)


def prefixes(size: Rows) -> Bytes:
    """Returns what comes before values of these sizes, uint8 (n, 4)."""
    return size.astype("<u4").view(np.uint8).reshape(-1, 4)


def prefixed(data: Bytes, size: Rows) -> bytes:
    """Returns values, each with its size before it.

    Args:
        data: The values, one after the other, uint8 (B,).
        size: Bytes of each, int64 (n,).
    """
    starts = np.cumsum(size + 4) - size - 4
    heads = starts[:, np.newaxis] + np.arange(4)
    out = np.empty(len(data) + heads.size, np.uint8)
    value = np.ones(len(out), np.bool_)
    value[heads] = False
    out[heads] = prefixes(size)
    out[value] = data
    return out.tobytes()


# -------------------------------------------------------------------------------------------- text


def path_sizes(table: SampleTable) -> Rows:
    """Returns how many bytes the path of each sample has in its column, int64 (N,)."""
    blocks = range(0, len(table), 1 << 16)  # of rows, so that few of the paths are copied at once
    sizes = [paths_of(table, start, min(start + blocks.step, len(table)))[1] for start in blocks]
    return np.concatenate([np.zeros(0, np.int64), *sizes])


def paths_of(table: SampleTable, start: int, stop: int) -> tuple[Bytes, Rows]:
    """Returns the paths of a range of rows as text, one after the other, uint8 (B,), and the bytes
    of each, int64 (n,)."""
    ends = table.path_offset[start : stop + 1].astype(np.int64)
    data, ends = table.path_bytes[ends[0] : ends[-1]], ends - ends[0]
    if not (data == 0).any() and is_text(data, ends[:-1]):
        return data, np.diff(ends)
    block = data.tobytes()
    places = ends.tolist()
    paths = [block[a:b].partition(b"\0")[0] for a, b in pairwise(places)]
    texts = [as_text(path) for path in paths]
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.frombuffer(b"".join(texts), np.uint8), sizes


def is_text(data: Bytes, starts: Rows) -> bool:
    """Returns whether values are UTF-8, each by itself.

    Args:
        data: The values, one after the other.
        starts: Where each starts.
    """
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return not ((data[starts[starts < len(data)]] & 0xC0) == 0x80).any()


def as_text(name: bytes) -> bytes:
    """Returns a file's name as UTF-8: as it is, or with escapes for what is none."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return printable(name.decode("utf-8", "surrogateescape")).encode()
    return name


# ------------------------------------------------------------------------------------------ footer


def describe(columns: Sequence[Column], group: RowGroup, table: SampleTable) -> Value:
    """Returns what the footer says of a row group (RowGroup)."""
    rows = group.stop - group.start
    about = []
    for column, chunk in zip(columns, group.chunks, strict=True):
        nulls, ends = 0, {}
        if column.slot == LABEL:
            label = table.label[group.start : group.stop]
            # By these a reader that looks for a class passes by row groups that have none of it.
            ends = {5: int64_text(label.max()), 6: int64_text(label.min())}
        elif column.slot >= 0:
            nulls = int((table.size[column.slot][group.start : group.stop] < 0).sum())
        size = i64(chunk.stop - chunk.place)
        metadata = struct(
            {
                1: i32(column.kind), 2: items([PLAIN, RLE]), 3: items([*map(utf8, column.path)]),
                4: i32(0), 5: i64(rows), 6: size, 7: size, 9: i64(chunk.place),
                12: struct({3: i64(nulls), **ends}),
            }
        )  # fmt: skip
        about.append(struct({2: i64(0), 3: metadata}))
    first, last = group.chunks[0].place, group.chunks[-1].stop
    size = i64(last - first)
    return struct({1: items(about), 2: size, 3: i64(rows), 5: i64(first), 6: size})


def end_of_file(
    columns: Sequence[Column], groups: Sequence[Value], meta: PackMeta, rows: int
) -> bytes:
    """Returns what follows the row groups of a file: the footer (FileMetaData), its size, and the
    end mark.

    Args:
        columns: Of the pack.
        groups: What it says of the row groups.
        meta: What the pack says of itself; its id is left out.
        rows: How many the file has.
    """
    leaves = [*map(leaf, columns)]
    schema = [
        struct({4: utf8("schema"), 5: i32(len(columns) - 1)}),
        struct({3: OPTIONAL, 4: utf8("image"), 5: i32(2)}),
        *leaves,
    ]
    notes = {b"huggingface": hugging_face(columns, meta), KEY: Writer.stamp(NO_ID)}
    by_value = struct({1: struct({})})  # how statistics compare: as the column's type does
    _, footer = struct(
        {
            1: i32(1),
            2: items(schema),
            3: i64(rows),
            4: items(groups),
            5: items([struct({1: text(key), 2: text(note)}) for key, note in notes.items()]),
            6: text(CREATED_BY),
            7: items([by_value] * len(leaves)),
        }
    )
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def leaf(column: Column) -> Value:
    """Returns what the footer says of a column (SchemaElement)."""
    string = {6: i32(0), 10: struct({1: struct({})})} if column.text else {}
    return struct({1: i32(column.kind), 3: OPTIONAL, 4: utf8(column.path[-1]), **string})


def utf8(name: str) -> Value:
    """Returns a name as the footer holds it."""
    return text(name.encode())


def int64_text(number: np.int64) -> Value:
    """Returns a value of a column of int64, as statistics hold it."""
    return text(int(number).to_bytes(8, "little", signed=True))


def hugging_face(columns: Sequence[Column], meta: PackMeta) -> bytes:
    """Returns what Hugging Face `datasets` takes each column for, as JSON."""
    features: dict[str, Any] = {}
    for column in columns:
        name = column.path[0]
        if column.slot == 0:
            features[name] = {"_type": "Image"}
        elif column.slot == LABEL and meta.labels == "class":
            names = [as_text(os.fsencode(each)).decode() for each in meta.classes]
            features[name] = {"names": names, "_type": "ClassLabel"}
        elif column.slot != PATH:
            kind = "int64" if column.slot == LABEL else "string" if column.text else "binary"
            features[name] = {"dtype": kind, "_type": "Value"}
    return json.dumps({"info": {"features": features}}).encode()


def stamped(footer: bytes, stamp: bytes) -> bytes:
    """Returns the end of a file with the stamp of a pack's id."""
    none = Writer.stamp(NO_ID)
    before, _, after = footer.rpartition(none)
    return before + stamp + after
