"""Lines of text for many rows at once.

A line is put together from columns. A column is a block of characters, of which each row keeps
some:

    numbers     characters   kept
    7           0007         ...x
    1024        1024         xxxx
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "chosen", "constant", "decimals", "joined", "lines", "ragged", "where"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Column(NamedTuple):
    """A piece of each line.

    Attributes:
        text: uint8 (n, width).
        kept: bool (n, width): which of them are in the line.
    """

    text: npt.NDArray[np.uint8]
    kept: Bools


def joined(columns: Sequence[Column]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Returns what all columns of all rows keep, row by row, uint8, and how much each row has,
    int64 (n,)."""
    kept = np.hstack([column.kept for column in columns])
    return np.hstack([column.text for column in columns])[kept], np.count_nonzero(kept, axis=1)


def lines(columns: Sequence[Column]) -> bytes:
    """Returns what all columns of all rows keep, row by row."""
    return joined(columns)[0].tobytes()


def where(rows: Bools, columns: Sequence[Column]) -> list[Column]:
    """Returns columns that only some rows have, bool (n,)."""
    if rows.all():
        return [*columns]
    return [Column(text, kept & rows[:, None]) for text, kept in columns]


def constant(text: bytes, rows: int) -> Column:
    """Returns the same text for so many rows."""
    one = np.frombuffer(text, np.uint8)[None]
    return Column(np.repeat(one, rows, axis=0), np.ones((rows, len(text)), np.bool_))


def chosen(texts: Sequence[bytes], choice: Ints) -> Column:
    """Returns one of some texts for each row: its number, int64 (n,)."""
    width = max(map(len, texts))
    block = np.frombuffer(b"".join(text.ljust(width) for text in texts), np.uint8)
    sizes = np.array([len(text) for text in texts])
    return Column(block.reshape(-1, width)[choice], np.arange(width) < sizes[choice, None])


def decimals(numbers: Ints, least: int = 1) -> Column:
    """Returns numbers in decimal, zero-padded to at least so many digits."""
    negative = numbers < 0
    left = np.where(negative, -(numbers + 1), numbers).astype(np.uint64) + negative
    width = max(len(str(left.max(initial=0))), least)
    text = np.empty((numbers.shape[0], 1 + width), np.uint8)
    kept = np.zeros(text.shape, bool)
    text[:, 0], kept[:, 0] = ord("-"), negative
    for column in range(width, 0, -1):
        kept[:, column] = (left > 0) | (column > width - least)
        left, digit = np.divmod(left, np.uint64(10))
        text[:, column] = digit + ord("0")
    return Column(text, kept)


def ragged(data: npt.NDArray[np.uint8], start: Ints, stop: Ints) -> Column:
    """Returns pieces of other text, each with its range in it, int64 (n,)."""
    width = np.arange(int((stop - start).max(initial=0)))
    kept = width < (stop - start)[:, None]
    text = np.zeros(kept.shape, np.uint8)
    text[kept] = data[(start[:, None] + width)[kept]]
    return Column(text, kept)
