"""From samples in order to a table of rows, and from its layout to parts that can be written
apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.converters.writer import Layout
from fastconv.loaders.listing import Listing
from fastconv.loaders.table import SampleTable

__all__ = [
    "Clash",
    "Cut",
    "clashing_rows",
    "cut_parts",
    "new_table",
    "placed",
    "repeated_paths",
    "without",
]

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


class Clash(NamedTuple):
    """A sample whose files cannot lie in one folder with those of a sample before it.

    Attributes:
        row, other: It, and the one before it; the same row where its own files are in each other's
            way.
        path: What both would make.
        same_path: Whether it is the image of both.
        folder: Whether it is a folder for one of them.
    """

    row: int
    other: int
    path: str
    same_path: bool
    folder: bool


Field = tuple[int, int]
"""A row and a slot."""


def clashing_rows(table: SampleTable, same: Callable[[Field, Field], bool]) -> list[Clash]:
    """Returns the samples that unpacking could not make beside those before them: a file of theirs
    is there already, or is a folder, or lies in a file. Those without them are free of clashes.

    A sidecar may be that of several images, as in a folder that has `a.jpg`, `a.png` and `a.txt`.

    Args:
        table: The samples; their places do not matter.
        same: Tells whether two sidecars have the same bytes.
    """
    files: dict[str, Field] = {}
    folders: dict[str, int] = {}
    clashes = []
    for row in suspects(table):
        names = [(name, (row, slot)) for slot, name in enumerate(table.names(row)) if name]
        mine: dict[str, Field] = {}
        clash = None
        for name, field in names:
            other = files.get(name) or mine.setdefault(name, field)
            if other != field and not (field[1] and other[1] and same(other, field)):
                clash = Clash(row, other[0], name, other[1] == field[1] == 0, False)
            elif name in folders:
                clash = Clash(row, folders[name], name, False, True)
            if clash is not None:
                break
        above = [*folders_of(table.path(row))]
        inside = next((name for name in above if name in files), None)
        if clash is None and inside is not None:
            clash = Clash(row, files[inside][0], inside, False, True)
        if clash is not None:
            clashes.append(clash)
            continue
        files |= mine
        for name in above:
            folders.setdefault(name, row)
    return clashes


def suspects(table: SampleTable) -> list[int]:
    """Returns the rows of which a file has the path of another one or of a folder, and those in
    such folders, in order; by hashes, so that some may be there by chance."""
    folders: set[str] = set()
    found: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    rows: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for start in range(0, len(table), PATHS):
        stop = min(start + PATHS, len(table))
        paths = table.paths(start, stop)
        folders |= {path.rpartition("/")[0] for path in paths}
        for numbers, names in files_between(table, start, stop, paths):
            found.append(np.fromiter(map(hash, names), np.int64, len(names)))
            rows.append(numbers)
    hashes, row = np.concatenate(found), np.concatenate(rows)
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    suspicious = {*row[order[twice]].tolist(), *row[order[twice + 1]].tolist()}
    above = sorted({name for folder in folders for name in (*folders_of(folder), folder) if name})
    known = np.fromiter(map(hash, above), np.int64, len(above))
    suspicious |= {*row[np.isin(hashes, known)].tolist()}
    in_the_way = {above[at] for at in np.flatnonzero(np.isin(known, hashes)).tolist()}
    for start in range(0, len(table), PATHS) if in_the_way else ():
        for number, path in enumerate(table.paths(start, min(start + PATHS, len(table))), start):
            if not in_the_way.isdisjoint(folders_of(path)):
                suspicious.add(number)
    return sorted(suspicious)


def files_between(
    table: SampleTable, start: int, stop: int, paths: list[str]
) -> Iterator[tuple[npt.NDArray[np.int64], list[str]]]:
    """Yields for each field the rows from `start` to `stop` that have it, and the paths of its
    files, those of the images being `paths`."""
    yield np.arange(start, stop), paths
    if len(table.fields) == 1:
        return
    ends = table.path_offset[start : stop + 1].astype(np.int64)
    marks = np.flatnonzero(table.path_bytes[ends[0] : ends[-1]] == 0) + ends[0]
    # Few have sidecars that are called otherwise than their images.
    odd = np.unique(np.searchsorted(ends, marks, side="right") - 1)
    stems = [os.path.splitext(path)[0] for path in paths]
    for slot, field in enumerate(table.fields[1:], 1):
        there = np.flatnonzero(table.size[slot][start:stop] >= 0)
        names = [f"{stems[row]}.{field}" for row in there.tolist()]
        for at in np.flatnonzero(np.isin(there, odd)).tolist():
            names[at] = table.names(start + int(there[at]))[slot]
        yield there + start, names


def folders_of(path: str) -> Iterator[str]:
    """Yields the folders that a path leads through, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


def cut_parts(table: SampleTable, layout: Layout, share: int = 1) -> Iterator[Cut]:
    """Yields the parts of all shards, in order.

    Args:
        table: The samples.
        layout: The shards.
        share: How many times smaller the parts are, where each sample takes so much longer.
    """
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
            stop = int(np.searchsorted(done, before + PART_BYTES // share, side="right"))
            stop = min(max(stop, start + 1), last)
            yield Cut(shard, start, stop)
            start = stop
