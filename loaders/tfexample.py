"""The bytes of TFRecord files: how records are framed, and what a `tf.train.Example` is made of.

A file is nothing but records, one after the other:

    length u64 | masked CRC-32C of these 8 bytes u32 | data | masked CRC-32C of the data u32

The data are a `tf.train.Example`, lists of values by name, in protobuf's wire format
(https://protobuf.dev/programming-guides/encoding). A message is a row of parts, each with a number;
integers are varints, seven bits a byte, the lowest first:

    Example  { 1: Features }
    Features { 1: { 1: name, 2: Feature }, ... }
    Feature  { 1: { 1: bytes, ... } }  or  { 2: { 1: floats } }  or  { 3: { 1: integers } }

The first record of each file that fastconv makes also has the feature `fastconv/pack`. Its value
says what labels start from, and which pack the file belongs to:

    label_base 1 (a digit) | the pack's id 32 (hexadecimal digits) | 4
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "FRAMING",
    "HEAD",
    "PACK",
    "STAMP",
    "Feature",
    "compression_of",
    "first_integer",
    "is_record",
    "length_checks",
    "masked",
    "only_bytes",
    "read_example",
    "stamp",
    "stamp_of",
]

HEAD: Final = 12
"""Bytes of a record before its data."""
FRAMING: Final = 16
"""Bytes of a record besides its data."""
PACK: Final = b"fastconv/pack"
"""Name of the feature that says which pack a file belongs to."""
STAMP: Final = 36
"""Bytes of its value but for the first."""

_STAMPED: Final = re.compile(
    re.escape(PACK) + rb"\x12.\x0a.\x0a\x25(?P<base>[01])(?P<id>[0-9a-f]{32})", re.DOTALL
)
_STAMPED_WITHIN: Final = 256
"""Bytes of a file: it is among the first features."""

_BYTES, _INTEGERS = 1, 3
"""Numbers of the lists that a feature can be."""
_VARINT, _EIGHT, _BLOCK, _FOUR = 0, 1, 2, 5
"""Kinds of a part: a varint, eight bytes, a length and so many bytes, four bytes."""


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Returns what each byte of eight adds to their CRC-32C, by its place and value, uint32
    (8, 256)."""
    tables = np.zeros((8, 256), np.uint32)
    last = tables[7]
    last[:] = np.arange(256)
    for _ in range(8):
        last[:] = last >> 1 ^ (last & 1) * np.uint32(0x82F63B78)
    for place in range(6, -1, -1):
        after = tables[place + 1]
        tables[place] = last[after & 0xFF] ^ after >> 8
    return tables


_TABLES: Final = _crc_tables()


def masked(crc: int) -> int:
    """Returns a CRC-32C as records hold it: CRCs over data that hold CRCs are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def length_checks(lengths: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Returns the masked CRC-32C of each length of a record's data, uint32 (n,)."""
    data = lengths.astype("<u8").reshape(-1, 1).view(np.uint8)
    start = np.array([0xFF] * 4 + [0] * 4, np.uint8)
    register = np.bitwise_xor.reduce(_TABLES[np.arange(8), data ^ start], axis=1)
    crc: npt.NDArray[np.uint32] = register ^ np.uint32(0xFFFFFFFF)
    turned = crc >> np.uint32(15) | crc << np.uint32(17)
    return turned + np.uint32(0xA282EAD8)


def is_record(head: bytes) -> bool:
    """Returns whether a file that begins so begins with a record."""
    if len(head) < HEAD:
        return False
    check = length_checks(np.frombuffer(head, "<u8", 1))
    return head[8:HEAD] == check.astype("<u4").tobytes()


def compression_of(head: bytes) -> Literal["gzip", "zlib"] | None:
    """Returns by what the records of a file that begins so are compressed; None where they are
    not, or it is no TFRecord."""
    for name, start, window in (("gzip", b"\x1f\x8b", 31), ("zlib", b"\x78", 15)):
        if head.startswith(start) and not is_record(head):
            try:
                if is_record(zlib.decompressobj(window).decompress(head, HEAD)):
                    return name  # type: ignore[return-value]
            except zlib.error:
                pass
    return None


def stamp(pack_id: str) -> bytes:
    """Returns what of `fastconv/pack` is filled in last.

    The id is only known when all records are written. So that the first one's CRC stays right, four
    bytes follow that take back what the digits change in it.
    """
    digits, register = pack_id.encode(), 0
    for byte in digits:
        register = int(_TABLES[7, (register ^ byte) & 0xFF]) ^ register >> 8
    return digits + register.to_bytes(4, "little")


def stamp_of(start: bytes | memoryview) -> tuple[str, int]:
    """Returns the id of the pack that a file which begins so belongs to, and what its labels start
    from; "" and 0 where it belongs to none."""
    found = _STAMPED.search(start[:_STAMPED_WITHIN])
    return (found["id"].decode(), int(found["base"])) if found else ("", 0)


class Feature(NamedTuple):
    """A list of values in an Example: its kind, and where it starts and stops."""

    kind: int
    start: int
    stop: int


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns the number at a place, and where it ends."""
    byte = data[place]
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        place += 1
        byte = data[place]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError(f"a number of more than ten bytes at {place}")
    return number & 0xFFFFFFFFFFFFFFFF, place + 1


def _parts(data: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the parts of a message: number, kind, and where the contents start and stop."""
    place = start
    while place < stop:
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _BLOCK:
            size, place = _varint(data, place)
            end = place + size
        elif kind == _VARINT:
            end = _varint(data, place)[1]
        elif kind in (_EIGHT, _FOUR):
            end = place + (8 if kind == _EIGHT else 4)
        else:
            raise ValueError(f"a part of the unknown kind {kind} at {place}")
        if end > stop:
            raise ValueError(f"the part at {place} is longer than what it belongs to")
        yield tag >> 3, kind, place, end
        place = end


def _blocks(data: bytes, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields where each part of the number 1 starts and stops that is so many bytes."""
    for number, kind, begin, end in _parts(data, start, stop):
        if number == 1 and kind == _BLOCK:
            yield begin, end


def read_example(data: bytes, size: int) -> dict[bytes, Feature]:
    """Returns the features of an Example by name.

    Args:
        data: It, and perhaps more.
        size: Of the Example, in bytes.

    Raises:
        ValueError: It is none.
    """
    features: dict[bytes, Feature] = {}
    try:
        for whole in _blocks(data, 0, size):
            for entry in _blocks(data, *whole):
                name, feature = b"", Feature(0, 0, 0)
                for number, _, start, stop in _parts(data, *entry):
                    if number == 1:
                        name = data[start:stop]
                    elif number == 2:
                        for kind, _, *values in _parts(data, start, stop):
                            feature = Feature(kind, *values)
                features[name] = feature
    except IndexError as error:
        raise ValueError("it ends inside a number") from error
    return features


def only_bytes(data: bytes, feature: Feature | None) -> tuple[int, int] | None:
    """Returns where the one value of a list of bytes starts and stops; None where it is another
    list, or there are several, or none.

    Raises:
        ValueError: It is damaged.
    """
    if feature is None or feature.kind != _BYTES:
        return None
    found = [*_blocks(data, feature.start, feature.stop)]
    return found[0] if len(found) == 1 else None


def first_integer(data: bytes, feature: Feature | None) -> int | None:
    """Returns the first value of a list of integers; None where it is another list, or empty.

    Raises:
        ValueError: It is damaged.
    """
    if feature is None or feature.kind != _INTEGERS:
        return None
    for _, _, start, stop in _parts(data, feature.start, feature.stop):
        if start < stop:
            number = _varint(data, start)[0]
            return number - (1 << 64) if number >> 63 else number
    return None
