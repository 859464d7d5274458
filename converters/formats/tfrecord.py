"""Writes TFRecord files of `tf.train.Example`: TensorFlow, DALI and PyTorch's readers of TFRecords
read them.

How records are framed, and what an Example is, stands in `fastconv.loaders.tfexample`. The features
have ImageNet's names, in this order:

| feature | what |
|---|---|
| image/format | bytes: JPEG, PNG, ... by the image's real format |
| image/height, image/width | integers, in pixels; 0 where unknown |
| fastconv/pack | in the first record of a file alone: which pack it belongs to |
| image/class/label | integer: the label, and `label_base` more; only where there is one |
| image/class/text | bytes: the class's name, where the label is a class |
| image/filename | bytes: the image's path, as the file system has it |
| image/encoded | bytes: the image's file |
| FIELD | bytes: the sidecar; only where there is one |

Every place follows from sizes, labels and paths alone, before an image was looked at. So what is
only known then takes the same room whatever it is: height and width, and the length of the format's
name, are varints with more bytes than they need, which every reader of protobuf takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastconv.converters.beside import BesideWriter
from fastconv.converters.columns import Column, constant, joined, ragged, where
from fastconv.converters.writer import (
    Array,
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
from fastconv.loaders.formats.tfrecord import FORMATS, MOST_BYTES, START
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.table import SampleTable
from fastconv.loaders.tfexample import (
    FRAMING,
    HEAD,
    PACK,
    STAMP,
    length_checks,
    masked,
    stamp,
)

__all__ = ["TFRecordWriter"]

Bytes = npt.NDArray[np.uint8]

MOST_LABEL = (1 << 63) - 1
PIXELS_ROOM = 5
"""Bytes of height and width, each a varint of up to 35 bits."""
FORMAT_ROOM = 1 + max(map(len, FORMATS.values()))
"""Bytes of a format's name and its length."""


def varint(number: int, room: int = 1) -> bytes:
    """Returns a number below 2^64 as a varint of `room` bytes, or of more where it needs them."""
    out = bytearray()
    while number > 127 or len(out) < room - 1:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def block(number: int, data: bytes) -> bytes:
    """Returns the part of a message that is so many bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(name: bytes, kind: int, values: bytes) -> bytes:
    """Returns a feature with its name, as a part of `Features`."""
    return block(1, block(1, name) + block(2, block(kind, values)))


@cache
def format_entry(kind: int) -> bytes:
    """Returns the feature of an image's format, of equal size for all."""
    format = FORMATS[KINDS[kind]]
    length = varint(len(format), FORMAT_ROOM - len(format))
    return entry(b"image/format", 1, b"\x0a" + length + format)


HEIGHT_HEAD, WIDTH_HEAD = (
    entry(name, 3, block(1, varint(0, PIXELS_ROOM)))[:-PIXELS_ROOM]
    for name in (b"image/height", b"image/width")
)
"""What stands before the varint in the features of height and width."""


def pixels_varint(n: int) -> bytes:
    """Returns a number below 2^35 as a varint of PIXELS_ROOM bytes."""
    return bytes(
        (n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28)
    )


def known_last(kind: int, height: int, width: int) -> bytes:
    """Returns the first features, of equal size in all records.

    Args:
        kind: Code of the image's format.
        height, width: In pixels.
    """
    # Made for every record: of parts that are made once.
    return b"".join(
        (format_entry(kind), HEIGHT_HEAD, pixels_varint(height), WIDTH_HEAD, pixels_varint(width))
    )


VARINT_LIMITS: Final = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)
"""The least numbers whose varints have 2, 3, ... bytes."""

UNKNOWN: Final = known_last(0, 0, 0)
"""What stands in their place before they are known."""
PACK_ENTRIES: Final = [entry(PACK, 1, block(1, b"%d" % base + bytes(STAMP))) for base in (0, 1)]
"""The feature that says which pack a file belongs to, before that is known."""
PACK_SIZE: Final = len(PACK_ENTRIES[0])
PACK_PLACE: Final = len(UNKNOWN) + PACK_SIZE - STAMP

LABEL, TEXT, PATH, IMAGE = (
    b"image/class/label", b"image/class/text", b"image/filename", b"image/encoded",
)  # fmt: skip
LABEL_ENTRY: Final = entry(LABEL, 3, block(1, b"\0"))
LABEL_LENGTHS: Final = [1, 5 + len(LABEL), 7 + len(LABEL), 9 + len(LABEL)]
"""Where the lengths stand that a longer label makes longer."""


@dataclass(frozen=True, slots=True)
class TFRecordOptions:
    """What can be chosen.

    Attributes:
        label_base: What the label of the first class is written as: 0, or 1, as in ImageNet's
            records, where 0 is the background.
    """

    label_base: int = 0

    def __post_init__(self) -> None:
        if self.label_base not in (0, 1):
            raise UsageError(f"TFRecord's label_base is 0 or 1, not {self.label_base}")


def varint_sizes(numbers: Rows) -> Rows:
    """Returns how many bytes each number takes as a varint, int64 (n,)."""
    return np.searchsorted(VARINT_LIMITS, numbers.view(np.uint64), side="right") + 1


def varints(numbers: Rows) -> Column:
    """Returns each number as a varint."""
    sizes, unsigned = varint_sizes(numbers), numbers.view(np.uint64)
    width = int(sizes.max(initial=0))
    out = np.empty((len(numbers), width), np.uint8)
    for place in range(width):
        more = (sizes > place + 1).astype(np.uint8) << 7
        out[:, place] = (unsigned >> np.uint64(7 * place)).astype(np.uint8) & 127 | more
    return Column(out, np.arange(width) < sizes[:, None])


def nested_sizes(name: bytes, sizes: Rows) -> list[Rows]:
    """Returns the lengths that stand in a feature of one value of bytes: that of its entry, of the
    feature, of the list and of the value, int64 (n,) each."""
    values = sizes + 1 + varint_sizes(sizes)
    feature = values + 1 + varint_sizes(values)
    whole = feature + 1 + varint_sizes(feature) + len(block(1, name))
    return [whole, feature, values, sizes]


def entry_sizes(name: bytes, sizes: Rows) -> Rows:
    """Returns the bytes of features of one value of bytes, int64 (n,).

    Args:
        name: Of the features.
        sizes: Of the values; -1: there is no such feature.
    """
    whole = nested_sizes(name, np.maximum(sizes, 0))[0]
    return np.where(sizes < 0, 0, 1 + varint_sizes(whole) + whole)


def entry_heads(name: bytes, sizes: Rows) -> list[Column]:
    """Returns what stands before the values in such features."""
    marks = (b"\x0a", block(1, name) + b"\x12", b"\x0a", b"\x0a")
    columns = []
    for mark, lengths in zip(marks, nested_sizes(name, np.maximum(sizes, 0)), strict=True):
        columns += [constant(mark, len(sizes)), varints(lengths)]
    return where(sizes >= 0, columns)


def label_entries(labels: Rows) -> list[Column]:
    """Returns the features of labels."""
    number = varints(labels)
    head = constant(LABEL_ENTRY[:-1], len(labels))
    head.text[:, LABEL_LENGTHS] += (number.kept.sum(axis=1) - 1).astype(np.uint8)[:, None]
    return [head, number]


@dataclass(frozen=True, slots=True)
class Values:
    """What the size of each record follows from, (n,) each.

    Attributes:
        first: Whether it is the first of its file.
        label: As it is stored.
        labelled: Whether it has one.
        text, path: Sizes of the class's name and of the path; -1 where there is none.
        fields: Their names.
        size: Of each, as in the sample table.
    """

    first: npt.NDArray[np.bool_]
    label: Rows
    labelled: npt.NDArray[np.bool_]
    text: Rows
    path: Rows
    fields: tuple[str, ...]
    size: tuple[Rows, ...]

    def sizes(self) -> list[Rows]:
        """Returns the bytes of the features before the image, of the image, and of each sidecar,
        int64 (n,) each."""
        label = len(LABEL_ENTRY) - 1 + varint_sizes(self.label)
        before = len(UNKNOWN) + self.first * PACK_SIZE + self.labelled * label
        before += entry_sizes(TEXT, self.text) + entry_sizes(PATH, self.path)
        names = [IMAGE, *map(str.encode, self.fields[1:])]
        return [before, *map(entry_sizes, names, self.size)]


def path_sizes(table: SampleTable, start: int, stop: int) -> Rows:
    """Returns how many bytes each path of a range of rows has, int64 (n,); in the arena names of
    sidecars may follow it."""
    places = table.path_offset[start : stop + 1].astype(np.int64)
    starts, stops = places[:-1], places[1:]
    if len(table.fields) > 1:
        ends = np.flatnonzero(table.path_bytes[places[0] : places[-1]] == 0) + places[0]
        ends = np.append(ends, places[-1])
        stops = np.minimum(stops, ends[np.searchsorted(ends, starts)])
    return stops - starts


class TFRecordWriter(SealedWriter, BesideWriter):
    """Writes a folder of shards, or one file."""

    name = "tfrecord"
    title = "TFRecord"
    suffixes = (".tfrecord", ".tfrecords")
    requires = ("crc32c",)
    Options = TFRecordOptions
    every = "TFRecord"
    options: TFRecordOptions

    @cached_property
    def _crc(self) -> Callable[[memoryview], int]:
        from crc32c import crc32c  # it takes a while: who looks for another format need not wait

        return crc32c

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        check_names(table.fields[1:])
        if self.options.label_base and int(table.label.max(initial=0)) == MOST_LABEL:
            raise UsageError("a label is too large to be counted from 1: leave out label_base")
        classes = [os.fsencode(name) for name in meta.classes]
        own: dict[str, Any] = {"table": table, "labels": meta.labels, "classes": classes}
        own["class_sizes"] = np.array([*map(len, classes)], np.int64)
        sizes = self.values(own, 0, len(table)).sizes()
        bounds = np.array([0, len(table)], np.int64)
        if stem is not None:
            overhead = PACK_SIZE + 1  # its features' length may take a byte more
            bounds = shard_bounds(data_sizes(sizes) + FRAMING, sharding, overhead)
        sizes[0][bounds[:-1]] += PACK_SIZE
        data = data_sizes(sizes)
        if data.max(initial=0) > MOST_BYTES:
            raise UsageError(
                f"{printable(table.path(int(data.argmax())))}: TFRecord (protobuf) holds no "
                "sample of 2 GiB: leave it out or choose another format"
            )
        stops = np.cumsum(data + FRAMING)
        ends = np.diff(stops[bounds[1:] - 1], prepend=0).tolist()
        starts = stops - data - FRAMING
        starts -= np.repeat(starts[bounds[:-1]], np.diff(bounds))
        place = starts + HEAD + data - np.sum(sizes[1:], axis=0)
        offset = []
        for entries, size in zip(sizes[1:], table.size, strict=True):
            place += entries
            offset.append((place - np.maximum(size, 0)).astype(np.uint64))
        shards = tuple(
            Shard("data" if stem is None else f"{stem}-{n:05d}-of-{len(ends):05d}.tfrecord", size)
            for n, size in enumerate(ends)
        )
        return Layout(shards, bounds, tuple(offset), (0,) * len(offset), own | {"starts": starts})

    def values(self, own: Mapping[str, Any], start: int, stop: int) -> Values:
        """Returns what the sizes of a range of rows follow from, without what the first record of
        a file has besides.

        Args:
            own: As a layout has it.
            start, stop: The range.
        """
        table, rows = own["table"], slice(start, stop)
        label, is_class = table.label[rows], own["labels"] == "class"
        text = np.full(len(label), -1, np.int64)
        named = (label >= 0) & (label < len(own["classes"])) & is_class
        text[named] = own["class_sizes"][label[named]]
        return Values(
            first=np.zeros(len(label), np.bool_),
            label=label + self.options.label_base,
            labelled=(label >= 0) & is_class | (own["labels"] == "int"),
            text=text,
            path=path_sizes(table, start, stop),
            fields=table.fields,
            size=tuple(size[rows] for size in table.size),
        )

    def part(self, layout: Layout, start: int, stop: int) -> dict[str, Array]:
        own, values = layout.own, self.values(layout.own, start, stop)
        shard = int(np.searchsorted(layout.shard_row, start, side="right")) - 1
        last = stop == layout.shard_row[shard + 1]
        end = layout.shards[shard].size if last else own["starts"][stop]
        named = values.text >= 0
        used, which = np.unique(own["table"].label[start:stop][named], return_inverse=True)
        names = [own["classes"][label] for label in used.tolist()]
        text_start = np.zeros(stop - start, np.int64)
        text_start[named] = np.cumsum([0, *map(len, names)], dtype=np.int64)[which]
        paths = own["table"].path_offset[start : stop + 1].astype(np.int64)
        return {
            "bounds": np.append(own["starts"][start:stop], end),
            "labelled": values.labelled,
            "text": np.frombuffer(b"".join(names), np.uint8),
            "text_start": text_start,
            "text_size": values.text,
            "path": own["table"].path_bytes[paths[0] : paths[-1]],
            "path_start": paths[:-1] - paths[0],
            "path_size": values.path,
        }

    def bounds(self, part: Part) -> Rows:
        return part.own["bounds"]

    def frame(self, part: Part, rows: Rows) -> Frame:
        own, count = part.own, len(rows)
        start, text_start, path_start = (
            own[name][rows] for name in ("bounds", "text_start", "path_start")
        )
        values = Values(
            first=start == 0,
            label=part.label[rows] + self.options.label_base,
            labelled=own["labelled"][rows],
            text=own["text_size"][rows],
            path=own["path_size"][rows],
            fields=part.fields,
            size=tuple(size[rows] for size in part.size),
        )
        heads = [
            record_heads(own["bounds"][rows + 1] - start - FRAMING),
            constant(b"\x0a", count),
            varints(np.sum(values.sizes(), axis=0)),
            constant(UNKNOWN, count),
            *where(values.first, [constant(PACK_ENTRIES[self.options.label_base], count)]),
            *where(values.labelled, label_entries(values.label)),
            *entry_heads(TEXT, values.text),
            ragged(own["text"], text_start, text_start + values.text),
            *entry_heads(PATH, values.path),
            ragged(own["path"], path_start, path_start + values.path),
            *entry_heads(IMAGE, values.size[0]),
        ]
        pieces = [(start, *joined(heads))]
        for name, place, size in zip(part.fields[1:], part.place[1:], values.size[1:], strict=True):
            has = np.flatnonzero(size >= 0)
            data, sizes = joined(entry_heads(name.encode(), size[has]))
            pieces.append((place[rows[has]] - sizes, data, sizes))
        places, blocks, ends = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        return Frame(places, blocks.data, np.cumsum(ends))

    def seal(self, part: Part, row: int, record: memoryview) -> None:
        place = features_place(record)
        record[place : place + len(UNKNOWN)] = known_last(
            part.kind.item(row), part.height.item(row), part.width.item(row)
        )
        if part.id and part.own["bounds"][row] == 0:
            record[place + PACK_PLACE : place + PACK_PLACE + STAMP] = stamp(part.id)
        record[-4:] = masked(self._crc(record[HEAD:-4])).to_bytes(4, "little")

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        for shard in layout.shards:
            fd = os.open(os.path.join(folder, shard.name), os.O_RDWR)
            try:
                place = features_place(os.pread(fd, START, 0)) + PACK_PLACE
                pwrite_all(fd, stamp(meta.id), place)
            finally:
                os.close(fd)


def check_names(sidecars: Sequence[str]) -> None:
    """Checks that sidecars can be features.

    Raises:
        UsageError: One is called as another feature is, or by no text.
    """
    for name in sidecars:
        if "/" in name or not name.isprintable():
            raise UsageError(
                f"the sidecar {printable(name)} cannot be a feature of a TFRecord: leave it out"
            )


def data_sizes(sizes: Sequence[Rows]) -> Rows:
    """Returns the bytes of each record's data, int64 (n,), from those of its features."""
    features: Rows = np.sum(sizes, axis=0, dtype=np.int64)
    return 1 + varint_sizes(features) + features


def record_heads(sizes: Rows) -> Column:
    """Returns what stands before the data of records of such sizes."""
    lengths = sizes.astype("<u8")
    checks = length_checks(lengths).astype("<u4")
    parts = [column.view(np.uint8).reshape(len(sizes), -1) for column in (lengths, checks)]
    return Column(np.hstack(parts), np.ones((len(sizes), HEAD), np.bool_))


def features_place(record: memoryview | bytes) -> int:
    """Returns where the first feature starts in a record."""
    place = HEAD + 1
    while record[place] & 0x80:
        place += 1
    return place + 1
