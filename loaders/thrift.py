"""Thrift's compact protocol, as far as Parquet needs it for its page headers and its footer.

A number is a zigzag varint: seven bits a byte, the lowest first, the sign in the lowest bit. Text
is its length as a plain varint, and its bytes. A list is a byte `length << 4 | type` (from 15 on
`0xf0 | type` and the length as a plain varint) and its items. A struct is its fields in the order
of their ids, each a byte `difference to the id before << 4 | type` and the value, and a 0
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["Value", "i32", "i64", "items", "read_struct", "read_varint", "struct", "text", "varint"]

Value = tuple[int, bytes]
"""What a field or an item is: the code of its type, and its bytes."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, TEXT, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12

DEEPEST: Final = 16
"""Structs and lists in each other; Parquet has eight. More are damage."""


def varint(number: int) -> bytes:
    """Returns a number of 0 or more as a plain varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else ~(number << 1))


def i32(number: int) -> Value:
    """Returns an integer of 32 bits."""
    return I32, _number(number)


def i64(number: int) -> Value:
    """Returns an integer of 64 bits."""
    return I64, _number(number)


def text(data: bytes) -> Value:
    """Returns a string, or any bytes."""
    return TEXT, varint(len(data)) + data


def items(values: Sequence[Value]) -> Value:
    """Returns a list of one value or more, all of one type."""
    kind, count = values[0][0], len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + varint(count)
    return LIST, head + b"".join(data for _, data in values)


def struct(fields: Mapping[int, Value]) -> Value:
    """Returns a struct of fields by their ids, which are in order and less than 16 apart."""
    out, last = [], 0
    for number, (kind, data) in fields.items():
        out += [bytes([number - last << 4 | kind]), data]
        last = number
    return STRUCT, b"".join(out) + b"\0"


def read_struct(data: memoryview, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct by their ids, and where it ends.

    Integers are int, truth values bool, texts bytes, lists list, structs dict.

    Args:
        data: Holds it.
        place: Where it starts there.
        depth: How many structs it is in.

    Raises:
        ValueError: There is none.
        IndexError: It goes on behind the end.
    """
    if depth > DEEPEST:
        raise ValueError("nested too deep")
    out: dict[int, Any] = {}
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _read_number(data, place)
        out[number], place = _read_value(data, place, head & 15, depth)
    return out, place + 1


def read_varint(data: memoryview, place: int) -> tuple[int, int]:
    """Returns the number of a plain varint, and where it ends.

    Raises:
        ValueError: There is none.
        IndexError: It goes on behind the end.
    """
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _read_number(data: memoryview, place: int) -> tuple[int, int]:
    number, place = read_varint(data, place)
    return number >> 1 ^ -(number & 1), place


def _read_value(data: memoryview, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return _read_number(data, place)
    if kind in (TRUE, FALSE):  # the type is the value
        return kind == TRUE, place
    if kind == TEXT:
        size, place = read_varint(data, place)
        return bytes(data[place : place + size]), place + size
    if kind == STRUCT:
        return read_struct(data, place, depth + 1)
    if kind == LIST:
        return _read_list(data, place, depth + 1)
    if kind == BYTE:
        return data[place], place + 1
    if kind == DOUBLE:
        return bytes(data[place : place + 8]), place + 8
    raise ValueError(f"there is no type {kind}")


def _read_list(data: memoryview, place: int, depth: int) -> tuple[list[Any], int]:
    head = data[place]
    count, kind, place = head >> 4, head & 15, place + 1
    if count == 15:
        count, place = read_varint(data, place)
    kind = BYTE if kind in (TRUE, FALSE) else kind  # each has a byte of its own
    out = []
    for _ in range(count):  # ends with the data, whatever it says: every item takes a byte
        value, place = _read_value(data, place, kind, depth)
        out.append(value)
    return out, place
