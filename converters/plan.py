"""From samples in order to a table of rows, and from its layout to parts that can be written
apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.converters.writer import Layout
from fastconv.loaders.listing import Listing
from fastconv.loaders.table import SampleTable

__all__ = ["Cut", "cut_parts", "new_table", "placed", "repeated_paths", "without"]

PART_BYTES = 16 << 20
"""What a part holds: enough that sending it costs nothing, few enough that all workers end together
and that little is done twice after an interruption."""
SAMPLE_COST = 8192
"""A sample counts as so many bytes more: opening a file costs about as much as copying these."""

PATHS = 4096
"""Paths that are looked at together."""


class Cut(NamedTuple):
    """A range of rows inside one shard."""

    shard: int
    start: int
    stop: int


def new_table(listing: Listing) -> SampleTable:
    """Returns the table of a listing's rows; checksums, places and unknown pixels are to be filled
    in."""
    count = len(listing)
    width, height = (
        np.zeros(count, np.uint32) if column is None else column.copy()
        for column in (listing.width, listing.height)
    )
    return SampleTable(
        fields=listing.fields,
        label=listing.label,
        kind=listing.kind,
        width=width,
        height=height,
        path_bytes=listing.path_bytes,
        path_offset=listing.path_offset,
        shard_row=np.array([0, count], np.int64),
        offset=(),
        size=listing.size,
        checksum=tuple(np.zeros(count, np.uint64) for _ in listing.fields),
    )


def placed(table: SampleTable, layout: Layout) -> SampleTable:
    """Returns the table with the places of a layout."""
    return replace(table, shard_row=layout.shard_row, offset=layout.offset, base=layout.base)


def without(table: SampleTable, rows: npt.NDArray[np.bool_]) -> SampleTable:
    """Returns the table without the marked rows, as if they had never been there; places are
    dropped."""
    keep = ~rows
    count = int(keep.sum())
    # The paths are copied run by run: few rows go, so the runs are long.
    edges = np.flatnonzero(np.diff(keep.astype(np.int8), prepend=0, append=0))
    starts, stops = table.path_offset[edges[::2]].tolist(), table.path_offset[edges[1::2]].tolist()
    runs = [table.path_bytes[start:stop] for start, stop in zip(starts, stops, strict=True)]
    lengths = np.diff(table.path_offset)[keep]
    extra = None if table.extra is None else table.extra[keep]
    return SampleTable(
        fields=table.fields,
        label=table.label[keep],
        kind=table.kind[keep],
        width=table.width[keep],
        height=table.height[keep],
        extra=extra if extra is not None and extra.any() else None,
        path_bytes=np.concatenate([np.zeros(0, np.uint8), *runs]),
        path_offset=np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)]),
        shard_row=np.array([0, count], np.int64),
        offset=(),
        size=tuple(column[keep] for column in table.size),
        checksum=tuple(column[keep] for column in table.checksum),
    )


def repeated_paths(table: SampleTable) -> list[tuple[int, int]]:
    """Returns pairs of rows with the same path: the first one that has it, and each later one."""
    hashes = np.empty(len(table), np.int64)
    for start in range(0, len(table), PATHS):
        paths = table.paths(start, min(start + PATHS, len(table)))
        hashes[start : start + len(paths)] = [hash(path) for path in paths]
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    first: dict[str, int] = {}
    pairs = set()
    for at in same.tolist():
        for row in sorted((int(order[at]), int(order[at + 1]))):
            other = first.setdefault(table.path(row), row)
            if other != row:
                pairs.add((other, row))
    return sorted(pairs, key=lambda pair: pair[1])


def cut_parts(table: SampleTable, layout: Layout) -> Iterator[Cut]:
    """Yields the parts of all shards, in order."""
    cost = np.full(len(table), SAMPLE_COST, np.int64)
    for size in table.size:
        cost += np.maximum(size, 0)
    done = np.cumsum(cost)
    for shard, (first, last) in enumerate(
        zip(layout.shard_row[:-1].tolist(), layout.shard_row[1:].tolist(), strict=True)
    ):
        start = first
        while start < last:
            before = int(done[start - 1]) if start else 0
            stop = int(np.searchsorted(done, before + PART_BYTES, side="right"))
            stop = min(max(stop, start + 1), last)
            yield Cut(shard, start, stop)
            start = stop
