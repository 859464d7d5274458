"""Reads what Parquet files are made of: the footer, and the pages of columns that are stored as
they are, neither compressed nor encoded. Damage never gives more than an error.

A file is `PAR1`, row groups, the footer (Thrift: `fastconv.loaders.thrift`), its size as u32, and
`PAR1`. A row group has a column chunk of each column, which is pages, one after the other:

    header (Thrift) | u32 size and definition levels, where values may be missing
    | of each value that is there: u32 size, the bytes

A definition level says how far a value is there: the column's highest level means whole. They are
runs: a varint `count << 1` and the level, or `groups << 1 | 1` and 8 levels a group, bit by bit
(https://parquet.apache.org/docs/file-format/data-pages/encodings/). Pages of the second version
keep the size of the levels in the header. All numbers are little-endian. What the numbers of fields
mean stands in https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.loaders.thrift import read_struct, read_varint

__all__ = ["Chunk", "Leaf", "RowGroup", "plain_values", "read_footer"]

Ints = npt.NDArray[np.int64]
Leaf = tuple[str, ...]
"""The name of a column that holds values: that of the column, and in structs those of its parts."""

DATA, DATA_2 = 0, 3
"""Types of pages that hold values."""
PLAIN, LEVELS = 0, frozenset({3, 4})
"""Encodings: the one that is none, and those that levels have as well."""
BYTE_ARRAY: Final = 6
"""The type of values that are bytes."""
OPTIONAL, REPEATED = 1, 2
"""Columns whose values may be missing, or be many."""

_SIZE = struct.Struct("<I").unpack_from


class Chunk(NamedTuple):
    """A column chunk.

    Attributes:
        start, stop: Where it is in the file.
        values: How many it has, those that are missing among them.
        most: The column's highest definition level.
        plain: Whether its values are bytes that are stored as they are.
    """

    start: int
    stop: int
    values: int
    most: int
    plain: bool


class RowGroup(NamedTuple):
    """A row group: how many rows it has, and its columns."""

    rows: int
    chunks: dict[Leaf, Chunk]


def read_footer(view: memoryview) -> list[RowGroup]:
    """Returns the row groups of a file.

    Args:
        view: The whole file, from its first mark to its last.

    Raises:
        ValueError: Its footer is damaged.
    """
    stop = view.nbytes - 8
    start = stop - _SIZE(view, stop)[0]
    if start < 4:
        raise ValueError("its footer has not the size that it says")
    try:
        about, _ = read_struct(view[start:stop], 0)
        columns = [*leaves(iter(about[2]))]
        groups = [row_group(group, columns) for group in about[4]]
        counts = [group.rows for group in groups]
        sound = min(counts, default=0) >= 0 and about[3] == sum(counts) <= 8 * view.nbytes
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError("its footer is damaged") from error
    if not sound:
        raise ValueError("its footer says two things of how many rows it has")
    return groups


class Column(NamedTuple):
    """A column that holds values: its name, the type of its values, their highest definition level,
    and whether a row may have many."""

    name: Leaf
    kind: int
    most: int
    repeated: bool


def leaves(elements: Iterator[dict[int, Any]]) -> Iterator[Column]:
    """Yields the columns that hold values.

    Args:
        elements: The schema: structs (and their root), each before its parts.

    Raises:
        LookupError, TypeError, AttributeError, RuntimeError: It is damaged.
    """
    yield from parts_of(next(elements)[5], elements, Column((), 0, 0, False))


def parts_of(count: int, elements: Iterator[dict[int, Any]], whole: Column) -> Iterator[Column]:
    """Yields the columns in a struct of so many parts."""
    for _ in range(count):
        element = next(elements)
        repetition = element.get(3, 0)
        part = Column(
            (*whole.name, element[4].decode("utf-8", "replace")),
            element.get(1, -1),
            whole.most + (repetition in (OPTIONAL, REPEATED)),
            whole.repeated or repetition == REPEATED,
        )
        if 5 in element:
            yield from parts_of(element[5], elements, part)
        else:
            yield part


def row_group(about: dict[int, Any], columns: list[Column]) -> RowGroup:
    """Returns a row group.

    Args:
        about: What the footer says of it.
        columns: Those of the file.

    Raises:
        LookupError, ValueError, TypeError: The footer is damaged.
    """
    chunks = {}
    for column, chunk in zip(columns, about[1], strict=True):
        here, encodings = chunk[3], {*chunk[3][2]}
        chunks[column.name] = Chunk(
            start=here[9],
            stop=here[9] + here[7],
            values=here[5],
            most=column.most,
            plain=column.kind == BYTE_ARRAY
            and not column.repeated
            and here[4] == 0  # not compressed
            and encodings <= LEVELS | {PLAIN}
            and not here.get(11)  # without a dictionary
            and not chunk.get(1),  # and in this file
        )
    return RowGroup(about[3], chunks)


class Page(NamedTuple):
    """A page: how many values it has, where its definition levels are, and where its values."""

    values: int
    levels: memoryview
    start: int
    stop: int


def plain_values(
    view: memoryview, start: int, stop: int, count: int, most: int
) -> tuple[Ints, Ints]:
    """Returns where the values of a column chunk start in the file, and how many bytes they have,
    -1 for one that is missing: int64 (count,) each.

    Args:
        view: The whole file.
        start: Where the chunk starts in it.
        stop: Where it ends.
        count: How many values it has, those among them that are missing.
        most: The column's highest definition level.

    Raises:
        ValueError: It is damaged, or not stored as it is.
    """
    if not 0 <= start <= stop <= view.nbytes:
        raise ValueError("a column lies outside the file")
    places, sizes = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    view, row = view[:stop], 0
    try:
        while row < count:
            page = read_page(view, start, most)
            if page.values > count - row:
                raise ValueError("a page has more values than there are rows")
            there = np.ones(page.values, np.bool_)
            if most:
                there = read_levels(page.levels, page.values, most.bit_length()) == most
            rows = np.flatnonzero(there) + row
            places[rows], sizes[rows] = read_sizes(view, page.start, page.stop, len(rows))
            row, start = row + page.values, page.stop
    except (IndexError, struct.error) as error:
        raise ValueError("a page is cut short") from error
    return places, sizes


def read_page(view: memoryview, place: int, most: int) -> Page:
    """Returns the page at a place.

    Raises:
        ValueError: It is damaged, or not stored as it is.
        IndexError, struct.error: It goes on behind the end.
    """
    header, place = read_struct(view, place)
    kind, stop = number(header, 1), place + number(header, 3)
    about = header.get({DATA: 5, DATA_2: 8}.get(kind, 0))
    if not isinstance(about, dict) or about.get(4 if kind == DATA_2 else 2) != PLAIN:
        raise ValueError("a page is not one of plain values")
    size = 0
    if kind == DATA_2:
        size = number(about, 5)
    elif most:
        size, place = _SIZE(view, place)[0], place + 4
    if place + size > stop or stop > view.nbytes:
        raise ValueError("a page is cut short")
    return Page(number(about, 1), view[place : place + size], place + size, stop)


def number(fields: dict[int, Any], name: int) -> int:
    """Returns a field that is a number of 0 or more.

    Raises:
        ValueError: It is none.
    """
    found = fields.get(name)
    if type(found) is not int or found < 0:
        raise ValueError("a page's header is damaged")
    return found


def read_levels(data: memoryview, count: int, bits: int) -> npt.NDArray[np.uint8]:
    """Returns levels of so many bits each, uint8 (count,).

    Raises:
        ValueError: They are damaged.
        IndexError: There are fewer.
    """
    out = np.zeros(count, np.uint8)
    done = place = 0
    while done < count:
        head, place = read_varint(data, place)
        if head & 1:
            size = (head >> 1) * bits
            packed = np.frombuffer(data[place : place + size], np.uint8)
            one_by_one = np.unpackbits(packed, bitorder="little").reshape(-1, bits)
            run = one_by_one @ (1 << np.arange(bits, dtype=np.uint8))
            run = run[: count - done]  # the last group is filled up
            out[done : done + len(run)] = run
            done, place = done + len(run), place + size
        else:
            out[done : done + (head >> 1)] = data[place]
            done, place = done + (head >> 1), place + 1
    return out


def read_sizes(view: memoryview, place: int, stop: int, count: int) -> tuple[Ints, Ints]:
    """Returns where values start and how many bytes they have, int64 (count,) each.

    Args:
        view: Holds them.
        place: Where the size of the first one is.
        stop: Where the last one ends, or earlier.
        count: How many there are.

    Raises:
        ValueError: They do not end before `stop`.
        struct.error: They do not end before `view` does.
    """
    starts = []
    for _ in range(count):
        starts.append(place + 4)
        place += 4 + _SIZE(view, place)[0]
    if place > stop:
        raise ValueError("a page is cut short")
    places = np.array(starts, np.int64)
    return places, np.diff(places, append=place + 4) - 4
