"""The directory of a TIFF file, or of an EXIF block, which has the same layout.

                  TIFF                                             BigTIFF
    header        "II" or "MM", 42, offset of the directory (4)    43, 8, 0, offset (8)
    directory     count (2), entries, offset of the next (4)       count (8), next (8)
    entry         tag (2), type (2), count (4), value (4)          count (8), value (8)

A value that is too long for its entry lies elsewhere, and the entry has its offset. Nothing is
allocated by a length that the file claims, and nothing outside the data is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["HEIGHT", "ORIENTATION", "WIDTH", "Directory", "Entry", "read_directory", "with_tags"]

WIDTH, HEIGHT, ORIENTATION = 256, 257, 274
_PIXEL_PLACES = ((273, 279), (324, 325))  # (offsets, byte counts) of the strips, and of the tiles

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
               16: 8, 17: 8, 18: 8}  # fmt: skip
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}


class Entry(NamedTuple):
    """One entry of a directory: the type and number of its values, and where they lie."""

    type: int
    values: int
    offset: int

    @property
    def end(self) -> int:
        """Where the values end; for a type that TIFF does not have, where they start."""
        return self.offset + self.values * _TYPE_BYTES.get(self.type, 0)


class _Layout(NamedTuple):
    length: struct.Struct
    row: struct.Struct
    value: struct.Struct


def _layout(order: str, big: bool) -> _Layout:
    codes = ("Q", "HHQQ", "Q") if big else ("H", "HHII", "I")
    return _Layout(*(struct.Struct(order + code) for code in codes))


@dataclass(frozen=True, slots=True)
class Directory:
    """The first directory of a file.

    Attributes:
        data: The file.
        order: "<" or ">", the byte order as `struct` writes it.
        big: A BigTIFF.
        start: Where the directory starts.
        entries: Tag -> its entry. Empty entries and those of an unknown type are left out; of two
            with one tag, the second is.
    """

    data: memoryview
    order: str
    big: bool
    start: int
    entries: dict[int, Entry]

    def integers(self, tag: int) -> Iterator[int]:
        """Yields the values of a tag; none when it is absent, no integer, or outside the data."""
        entry = self.entries.get(tag)
        if entry is None or entry.type not in _INTEGERS or entry.end > len(self.data):
            return
        value = struct.Struct(self.order + _INTEGERS[entry.type])
        for place in range(entry.offset, entry.end, value.size):
            yield value.unpack_from(self.data, place)[0]

    def first(self, tag: int) -> int:
        """Returns the first integer of a tag, 0 when there is none."""
        return next(self.integers(tag), 0)

    def end_of_pixels(self) -> int:
        """Returns where the last strip or tile ends; 0 where the file does not say."""
        last = 0
        for offsets, sizes in _PIXEL_PLACES:
            for place, size in zip(self.integers(offsets), self.integers(sizes), strict=False):
                last = max(last, place + size)
        return last


def read_directory(data: memoryview) -> Directory:
    """Returns the first directory of a TIFF file or EXIF block.

    Raises:
        ValueError: The data do not start with a TIFF header.
        struct.error: The directory is not wholly inside the data.
    """
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None:
        raise ValueError("no TIFF header")
    magic, start = struct.unpack_from(order + "HI", data, 2)
    if magic not in (42, 43):
        raise ValueError("no TIFF header")
    big = magic == 43
    layout = _layout(order, big)
    if big:
        (start,) = layout.value.unpack_from(data, 8)
    if start > len(data):
        raise struct.error("the directory lies outside the data")
    (count,) = layout.length.unpack_from(data, start)
    first_row, row_bytes = start + layout.length.size, layout.row.size
    entries: dict[int, Entry] = {}
    for place in range(first_row, first_row + count * row_bytes, row_bytes):
        tag, type_, values, offset = layout.row.unpack_from(data, place)
        entry = Entry(type_, values, offset)
        if entry.end - offset <= layout.value.size:
            entry = entry._replace(offset=place + row_bytes - layout.value.size)
        if entry.end > entry.offset:
            entries.setdefault(tag, entry)
    return Directory(data, order, big, start, entries)


def with_tags(directory: Directory, tags: dict[int, Entry]) -> bytes:
    """Returns a copy of the file whose only directory has no more than these tags of its own.

    It is written over the old one, so that every offset stays right, and nothing of it can be taken
    for the pixels that a file cut short lacks.
    """
    data, start = directory.data, directory.start
    layout = _layout(directory.order, directory.big)
    rows = [layout.length.pack(len(tags))]
    for tag, entry in sorted(tags.items()):
        row = layout.row.pack(tag, entry.type, entry.values, entry.offset)
        if entry.end - entry.offset <= layout.value.size:
            value = bytes(data[entry.offset : entry.end]).ljust(layout.value.size, b"\0")
            row = row[: -layout.value.size] + value
        rows.append(row)
    rows.append(layout.value.pack(0))  # no next directory
    written = b"".join(rows)
    return b"".join((data[:start], written, data[start + len(written) :]))
