"""The directory of a TIFF file, or of an EXIF block, which has the same layout.

    header     "II" or "MM", 42, offset of the directory (4 bytes)     BigTIFF: 43, 8, 0, offset (8 bytes)
    directory  count (2 bytes), entries, offset of the next directory           count (8 bytes)
    entry      tag (2), type (2), count (4), value or its offset (4)            count (8), value (8)

Nothing is allocated by a length that the file claims, and nothing outside the data is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ORIENTATION", "Directory", "Entry", "read_directory", "with_tags"]

WIDTH, HEIGHT, ORIENTATION = 256, 257, 274
_DATA_PLACES = ((273, 279), (324, 325))  # (offsets, byte counts) of strips and of tiles

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
               16: 8, 17: 8, 18: 8}  # fmt: skip
_INTEGER = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}


class Entry(NamedTuple):
    """One entry of a directory: its type, how many values it has, and where they lie in the data."""

    type: int
    count: int
    offset: int

    @property
    def nbytes(self) -> int:
        """The bytes that the values take; 0 for an unknown type."""
        return self.count * _TYPE_BYTES.get(self.type, 0)


@dataclass(frozen=True, slots=True)
class Directory:
    """The first directory of a file.

    Attributes:
        data: The file.
        order: "<" or ">", the byte order as `struct` writes it.
        big: A BigTIFF.
        entries: Tag -> its entry. Entries of unknown type are left out, and of two with one tag the
            second is.
    """

    data: memoryview
    order: str
    big: bool
    entries: dict[int, Entry]

    def is_inside(self, entry: Entry) -> bool:
        """Tells whether all values of an entry lie inside the data."""
        return entry.offset + entry.nbytes <= len(self.data)

    def integers(self, tag: int) -> Iterator[int]:
        """Yields the values of a tag of integers; none when it is absent, or lies outside the data."""
        entry = self.entries.get(tag)
        if entry is None or entry.type not in _INTEGER or not self.is_inside(entry):
            return
        value = struct.Struct(self.order + _INTEGER[entry.type])
        for number in range(entry.count):
            yield value.unpack_from(self.data, entry.offset + number * value.size)[0]

    def first(self, tag: int) -> int:
        """Returns the first integer of a tag, 0 when there is none."""
        return next(self.integers(tag), 0)

    def end_of_pixels(self) -> int:
        """Returns the offset at which the last strip or tile ends; 0 where the file does not say."""
        places = (pair for tags in _DATA_PLACES for pair in zip(*map(self.integers, tags), strict=False))
        return max((offset + size for offset, size in places), default=0)


def read_directory(data: memoryview) -> Directory:
    """Returns the first directory of a TIFF file or EXIF block.

    Raises:
        ValueError: The data do not start with a TIFF header.
        struct.error: The directory ends outside the data.
    """
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None:
        raise ValueError("no TIFF header")
    magic, start = struct.unpack_from(order + "HI", data, 2)
    if magic not in (42, 43):
        raise ValueError("no TIFF header")
    big = magic == 43
    if big:
        (start,) = struct.unpack_from(order + "Q", data, 8)
    head, row = struct.Struct(order + "HQ"[big : big + 1]), struct.Struct(order + ("HHQQ" if big else "HHII"))
    value_bytes = 8 if big else 4
    if start > len(data):
        raise struct.error("the directory lies outside the data")
    (count,) = head.unpack_from(data, start)
    entries: dict[int, Entry] = {}
    for place in range(start + head.size, start + head.size + count * row.size, row.size):
        tag, type_, values, offset = row.unpack_from(data, place)
        entry = Entry(type_, values, offset)
        if entry.nbytes <= value_bytes:
            entry = entry._replace(offset=place + row.size - value_bytes)
        if entry.nbytes:
            entries.setdefault(tag, entry)
    return Directory(data, order, big, entries)


def with_tags(directory: Directory, tags: dict[int, Entry]) -> bytes:
    """Returns a copy of the file whose only directory has these tags, with their values as they are."""
    order, big, data = directory.order, directory.big, directory.data
    value_bytes = 8 if big else 4
    start = len(data) + len(data) % 2
    rows = [struct.pack(order + "HQ"[big : big + 1], len(tags))]
    for tag, entry in sorted(tags.items()):
        if entry.nbytes <= value_bytes:
            value = bytes(data[entry.offset : entry.offset + entry.nbytes]).ljust(value_bytes, b"\0")
        else:
            value = struct.pack(order + "IQ"[big : big + 1], entry.offset)
        rows.append(struct.pack(order + ("HHQ" if big else "HHI"), tag, entry.type, entry.count) + value)
    rows.append(bytes(value_bytes))
    head = bytes(data[:8]) + struct.pack(order + "Q", start) if big else bytes(data[:4]) + struct.pack(order + "I", start)
    return b"".join((head, data[len(head) :], bytes(len(data) % 2), *rows))
