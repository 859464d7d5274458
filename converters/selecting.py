"""Leaves out, orders and limits what was listed, before it is planned: from there on a run is one
of a source that has just these samples.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.engines.choice import engine_for
from fastconv.converters.outputs import Output
from fastconv.converters.plan import new_table
from fastconv.converters.report import PackFailedError, ProgressCallback
from fastconv.converters.run import Origin, Run, nothing_found
from fastconv.converters.scanning import look
from fastconv.converters.selection import Selection, path_blocks
from fastconv.loaders.classes import empty_classes_warning, some_of
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.limits import usable_cores
from fastconv.loaders.listing import Bytes, Ints, Listing, Places
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["class_counts", "select", "taken"]

BLOCK = 1 << 20
"""Bytes of a text that are gathered together."""
PIECE = 1 << 20
"""Bytes of a file that are hashed together."""
FILES = 256
"""Files that a thread takes at a time."""

Bools = npt.NDArray[np.bool_]


def select(
    listing: Listing,
    selection: Selection,
    output: Output,
    *,
    workers: int | None,
    progress: ProgressCallback | None,
    table: SampleTable | None = None,
    origin: Origin | None = None,
) -> tuple[Listing, Ints]:
    """Returns what is selected of a source, and which of its rows that is, int64 (n,).

    What each step has left out is among the notices of what is returned.

    Args:
        listing: All samples.
        selection: What is wanted of them.
        output: What is to be made.
        workers, progress: As for `fastconv.converters.pack`.
        table: What is known of the samples, where they come from a pack.
        origin: Says where the bytes of some rows come from; by default they are files of a folder.

    Raises:
        UsageError: There is no such class.
        PackFailedError: Nothing is left.
    """
    if not len(listing):
        return listing, np.zeros(0, np.int64)
    listing = replace(
        listing, bad=[*listing.bad], warnings=[*listing.warnings], notices=[*listing.notices]
    )
    rows = np.arange(len(listing), dtype=np.int64)
    known = _Known(listing, output, workers, progress, table, origin)
    steps: list[tuple[object, Callable[[Ints], tuple[Ints, str]]]] = [
        (selection.only_classes, partial(_of_classes, listing, selection.only_classes)),
        (selection.min_size, partial(_large, known, selection.min_size or 0)),
        (selection.exclude_duplicates, partial(_unlike, known)),
        (selection.shuffle, partial(_shuffled, listing, selection)),
        (selection.limit, partial(_first, selection.limit or 0)),
    ]
    for step in (step for wanted, step in steps if wanted):
        rows, words = step(rows)
        listing.notices.append(words)
        if not len(rows):
            words += f"; {nothing_found(listing.root, listing.bad)}" if listing.bad else ""
            raise PackFailedError(f"no image of {printable(listing.root)} is selected: {words}")
    told = empty_classes_warning(listing.classes, class_counts(listing, listing.classes))
    made = taken(listing, rows)
    if selection.only_classes and listing.labels == "class":
        made = _renumbered(made, selection.only_classes)
    made.warnings = [line for line in made.warnings if line not in told]
    made.warnings += empty_classes_warning(made.classes, class_counts(made, made.classes))
    return made, rows


def taken(listing: Listing, rows: Ints) -> Listing:
    """Returns a listing of some rows of another one, in their order.

    Args:
        listing: The other one.
        rows: Numbers of its rows, int64 (n,).
    """
    path_bytes, path_offset = _gathered(listing.path_bytes, listing.path_offset, rows)
    return replace(
        listing,
        label=listing.label[rows],
        kind=listing.kind[rows],
        path_bytes=path_bytes,
        path_offset=path_offset,
        size=tuple(column[rows] for column in listing.size),
        stamp=listing.stamp[rows],
        width=None if listing.width is None else listing.width[rows],
        height=None if listing.height is None else listing.height[rows],
        generated={  # of a pack there are names alone
            name: _gathered(data, offset, rows) if len(offset) else (data, offset)
            for name, (data, offset) in listing.generated.items()
        },
    )


def _gathered(data: Bytes, offset: Places, rows: Ints) -> tuple[Bytes, Places]:
    """Returns pieces of a text, one behind the other, and where each starts."""
    start = offset[rows].astype(np.int64)
    size = offset[rows + 1].astype(np.int64) - start
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    out = np.empty(int(ends[-1]), np.uint8)
    row = 0
    while row < len(rows):
        stop = max(int(np.searchsorted(ends, ends[row] + BLOCK, side="right")) - 1, row + 1)
        stop = min(stop, len(rows))
        moved = np.repeat(start[row:stop] - ends[row:stop], size[row:stop])
        here = slice(int(ends[row]), int(ends[stop]))
        out[here] = data[np.arange(here.start, here.stop) + moved]
        row = stop
    return out, ends.astype(np.uint64)


def class_counts(listing: Listing, classes: Sequence[str]) -> list[int]:
    """Returns how many samples of a listing have each class."""
    labelled = listing.label[(listing.label >= 0) & (listing.label < len(classes))]
    return np.bincount(labelled, minlength=len(classes)).tolist() if classes else []


def _of_classes(listing: Listing, names: Sequence[str], rows: Ints) -> tuple[Ints, str]:
    """Returns the rows that have one of some classes, and a line about the others.

    Raises:
        UsageError: There is no such class.
    """
    if listing.labels == "none":
        raise UsageError(f"{printable(listing.root)}: has no classes to choose from")
    if listing.labels == "class":
        numbers = {name: number for number, name in enumerate(listing.classes)}
    else:
        numbers = {str(label): label for label in np.unique(listing.label).tolist()}
    for name in names:
        if name not in numbers:
            what = "class" if listing.labels == "class" else "label"
            raise UsageError(
                f"{printable(listing.root)}: has no {what} {printable(name)!r}: it has "
                f"{some_of([*numbers])}"
            )
    wanted = np.array([numbers[name] for name in names], np.int64)
    kept = rows[np.isin(listing.label[rows], wanted)]
    return kept, f"left out {_of(len(rows) - len(kept), len(rows))} of other classes"


def _renumbered(listing: Listing, names: Sequence[str]) -> Listing:
    """Returns a listing whose samples have no other classes with these alone, in their order."""
    classes = tuple(name for name in listing.classes if name in names)
    number = np.array([classes.index(n) if n in names else -1 for n in listing.classes], np.int64)
    return replace(listing, label=number[listing.label], classes=classes)


def _large(known: _Known, least: int, rows: Ints) -> tuple[Ints, str]:
    """Returns the rows whose images are large enough, and a line about the others."""
    all_rows = len(rows)
    rows = known.measure(rows)
    side = np.minimum(known.width[rows], known.height[rows])
    kept = rows[(side >= least) | (side == 0)]
    words = f"left out {_of(len(rows) - len(kept), all_rows)} with a side under {least} pixels"
    if unknown := int(np.count_nonzero(side == 0)):
        words += f"; kept {unknown:,} whose header does not tell their size"
    return kept, words


def _unlike(known: _Known, rows: Ints) -> tuple[Ints, str]:
    """Returns the rows whose images are the first with their bytes, and a line about the others."""
    listing = known.listing
    all_rows = len(rows)
    rows = known.hash(rows)
    size, checksum = listing.size[0][rows], known.checksum[rows]
    # What could not be read is like nothing else.
    alone = np.where(known.hashed[rows], -1, np.arange(len(rows)))
    order = np.lexsort((alone, checksum, size))  # stable: the first in order stays the first
    columns = (size[order], checksum[order], alone[order])
    new = np.ones(len(rows), np.bool_)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    kept = rows[np.sort(order[new])]
    listing.warnings += _label_errors(listing, rows[order], np.flatnonzero(new))
    words = f"left out {_of(len(rows) - len(kept), all_rows)} with the bytes of one before them"
    return kept, words


def _label_errors(listing: Listing, rows: Ints, starts: Ints) -> list[str]:
    """Returns a line where images that are the same have different labels, or none.

    Args:
        listing: The samples.
        rows: Which of them, int64 (n,); those that are the same follow each other.
        starts: Where the same ones start, int64 (groups,).
    """
    label = listing.label[rows]
    limit = np.iinfo(np.int64)
    least = np.minimum.reduceat(np.where(label == -1, limit.max, label), starts)
    most = np.maximum.reduceat(np.where(label == -1, limit.min, label), starts)
    mixed = np.flatnonzero(least < most)
    if not len(mixed):
        return []
    group = int(mixed[0])
    stop = int(starts[group + 1]) if group + 1 < len(starts) else len(rows)
    same, labels = rows[starts[group] : stop], label[starts[group] : stop]
    pair = sorted(int(same[labels == of[group]][0]) for of in (least, most))
    one, other = (printable(new_table(listing).path(row)) for row in pair)
    many = "1 image is there" if len(mixed) == 1 else f"{len(mixed):,} images are there"
    return [
        f"{many} more than once, byte for byte, with different labels, such as {one} and {other}: "
        "one of them is wrong; the first stays"
    ]


def _shuffled(listing: Listing, selection: Selection, rows: Ints) -> tuple[Ints, str]:
    """Returns the rows in shuffled order, and a line that says so."""
    order = selection.order(taken(listing, rows))
    return rows[order], f"shuffled {len(rows):,} images, seed {selection.seed}"


def _first(limit: int, rows: Ints) -> tuple[Ints, str]:
    """Returns the first rows, and a line about the others."""
    kept = rows[:limit]
    return kept, f"left out {_of(len(rows) - len(kept), len(rows))} behind the first {limit:,}"


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} images"


class _Known:
    """What is known of the images of a source; what is not is looked at when it is asked for.

    What turns out to be bad is noted in the listing.

    Args:
        listing, output, workers, progress, table, origin: As for `select`.

    Attributes:
        width, height: uint32 (N,), 0 where they are not known.
        checksum: uint64 (N,), xxh3-64 of the bytes.
        hashed: bool (N,), whether that is known.
    """

    def __init__(
        self, listing: Listing, output: Output, workers: int | None,
        progress: ProgressCallback | None, table: SampleTable | None, origin: Origin | None,
    ) -> None:  # fmt: skip
        self.listing, self.output, self.origin = listing, output, origin
        self.workers, self.progress = workers, progress
        told = new_table(listing)
        self.width, self.height = told.width, told.height
        self.checksum = told.checksum[0]
        self.hashed = np.zeros(len(told), np.bool_)
        if table is not None and table.checksum:
            self.checksum, self.hashed = table.checksum[0].copy(), ~self.hashed

    def measure(self, rows: Ints) -> Ints:
        """Fills in the sizes of some images in pixels; returns the rows that are not bad."""
        return self._look(rows, rows[self.width[rows] == 0])

    def hash(self, rows: Ints) -> Ints:
        """Fills in the checksums of images that could be the same as others, by their sizes in
        bytes; returns the rows that are not bad."""
        size = self.listing.size[0][rows]
        _, place, count = np.unique(size, return_inverse=True, return_counts=True)
        unknown = rows[(count[place] > 1) & ~self.hashed[rows]]
        if self.origin is not None:
            return self._look(rows, unknown)
        for some, checksums, read in hashed_files(self.listing, unknown, self.workers):
            self.checksum[some], self.hashed[some] = checksums, read
        return rows

    def _look(self, rows: Ints, unknown: Ints) -> Ints:
        """Looks at images as packing does; returns the rows that are not bad."""
        if not len(unknown):
            return rows
        listing = self.listing
        images = replace(listing, fields=(IMAGE,), size=listing.size[:1], generated={})
        part = taken(images, unknown)
        with engine_for(self.workers, len(part), part.bytes, False) as engine:
            run = Run(
                listing.root, part, self.output, engine, "fast", MAX_PIXELS, self.progress,
                lambda line: None, self.origin and self.origin(unknown),
            )  # fmt: skip
            table = new_table(part)
            dropped = run.drop(table, look(run, table))
        listing.bad += run.bad[len(part.bad) :]
        self.width[unknown], self.height[unknown] = table.width, table.height
        if self.origin is not None:  # of a folder no more than heads was read
            self.checksum[unknown], self.hashed[unknown] = table.checksum[0], True
        return rows[~np.isin(rows, unknown[dropped])] if dropped.any() else rows


def hashed_files(
    listing: Listing, rows: Ints, workers: int | None
) -> Iterator[tuple[Ints, Places, Bools]]:
    """Yields some rows of a listed folder, the xxh3-64 of their images, uint64 (n,), and whether
    they could be read as they were listed, bool (n,).

    Files are read in threads: hashing lets others run.
    """
    part = taken(listing, rows)
    paths = [path for block in path_blocks(part) for path in block]
    sizes = part.size[0].tolist()
    root = os.open(listing.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def hashed(start: int) -> tuple[Ints, Places, Bools]:
        stop = min(start + FILES, len(rows))
        buffer = memoryview(bytearray(PIECE))
        found = [hash_of(root, paths[row], sizes[row], buffer) for row in range(start, stop)]
        sums = np.array([value or 0 for value in found], np.uint64)
        return rows[start:stop], sums, np.array([value is not None for value in found])

    threads = ThreadPoolExecutor(workers or usable_cores().usable)
    try:
        yield from threads.map(hashed, range(0, len(rows), FILES))
    finally:
        threads.shutdown(cancel_futures=True)
        os.close(root)


def hash_of(root: int, path: bytes, size: int, buffer: memoryview) -> int | None:
    """Returns the xxh3-64 of a file that has exactly so many bytes; None where it has not, or
    cannot be read: packing says why."""
    digest, done = xxhash.xxh3_64(), 0
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=root)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            while more := os.readv(fd, [buffer]):
                digest.update(buffer[:more])
                done += more
        finally:
            os.close(fd)
    except OSError:
        return None
    return digest.intdigest() if done == size else None
