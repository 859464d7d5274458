"""Checks one part of a pack: the bytes of its samples, and every byte between them.

Run by worker processes. A part's range of the file is read once, window by window. Beside each
window stands what fastconv would have written there: the frames of the rows, as the format's
`Writer` makes them, zeros elsewhere, and what `Writer.finish` leaves, from a scratch file. The
samples' own bytes are compared by their checksums. The file is read, not mapped: a failing disk
gives an error then, not a signal.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.part import Bad, FolderSource, read_part
from fastconv.converters.writer import WRITERS, Part, SealedWriter, Writer
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import CorruptPackError, SampleError, printable
from fastconv.loaders.files import open_file
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.raw import RAW, shape_of
from fastconv.loaders.sample import Reason
from fastconv.loaders.table import SampleTable

__all__ = ["WINDOW", "DataFile", "FieldCheck", "differing", "verify_part"]

WINDOW = 1 << 20
"""Bytes looked at together: enough to make the calls cheap, few enough to stay in the cache."""
NEAR = 64
"""Differences no further apart than this are told as one."""
MOST_PLACES = 8
"""Differences that are told of one window; the last one stands for all that follow."""

Answer = tuple[dict[str, Any], dict[str, Array]]


def verify_part(task: Mapping[str, Any], arrays: Mapping[str, Array]) -> Answer:
    """Checks a part; returns what was found.

    Args:
        task: `file` (the data file), `scratch` (a file with what is neither a frame nor a field;
            None: only the fields are checked), `range` (the bytes of the file that are the part's),
            `writer` and `options`, `rows` (the range of its rows whose fields are checked, the
            others only belong around them), `decode`, `max_pixels`, `keep` (the checksums are
            wanted), `first_row`, `fields`, `samples`, `apart` (the rows lie far from each other:
            their fields are read one by one, and nothing else). With `root` (a folder) it is the
            files of that folder that are compared.
        arrays: The columns of the rows; `patch/...`, frames that `Writer.finish` has changed.

    Returns:
        `bad`: (row, slot, reason, message) of fields; `places`: (start, stop, whether it could be
        read) of other bytes. The arrays are checksums, where they are wanted.
    """
    part = read_part(arrays, task)
    if "root" in task:
        return compare_part(task, arrays, part)
    check = FieldCheck(part, known_checksums(arrays, part), task["decode"], task["max_pixels"])
    if task["keep"]:
        check.found = [np.zeros(len(part), np.uint64) for _ in part.fields]
    places: list[tuple[int, int, bool]] = []
    with ExitStack() as stack:
        file = stack.enter_context(DataFile(task["file"]))
        fields = Fields.of(part)
        first, last = task["rows"]
        left = [first <= row < last for row in fields.row]
        expected = None
        writer = None if task["scratch"] is None else writer_of_task(task)
        if isinstance(writer, SealedWriter):
            places = check_records(file, part, writer, check)
            left = []
        elif writer is not None:
            scratch = stack.enter_context(DataFile(task["scratch"]))
            expected = Expected(scratch, frames(writer, part), patches(arrays), fields)
        ranges: Iterable[tuple[int, int]] = ()
        if isinstance(writer, SealedWriter):
            pass
        elif task["apart"]:
            file.want(zip(fields.start, fields.stop, strict=True))
        else:
            ranges = windows(fields, task["range"], whole=expected is not None)
        for start, stop in ranges:
            try:
                actual = file.read(start, stop)
            except CorruptPackError:
                raise
            except OSError:
                if expected is not None:
                    places.append((start, stop, False))
                continue
            if expected is not None:
                places += [(*place, True) for place in expected.differences(start, actual)]
            view = memoryview(actual)
            begin = bisect_left(fields.start, start)
            for number in range(begin, bisect_left(fields.start, stop, begin)):
                at, end = fields.start[number], fields.stop[number]
                if end <= stop and left[number]:
                    left[number] = False
                    check(fields.row[number], fields.slot[number], view[at - start : end - start])
        for number in np.flatnonzero(left).tolist():  # those that no window held whole
            check_apart(file, fields, number, check)
    return {"bad": check.by_row(task["first_row"]), "places": places}, check.results(part.fields)


def known_checksums(arrays: Mapping[str, Array], part: Part) -> list[Array]:
    """Returns the checksums of each field; none where the pack has none."""
    return [arrays[f"checksum/{name}"] for name in part.fields if f"checksum/{name}" in arrays]


class DataFile:
    """A regular file that is read at any place.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = open_file(path)

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self, start: int, stop: int) -> bytes:
        """Returns a range of its bytes.

        Raises:
            CorruptPackError: The file ends before.
            OSError: The disk answers with an error.
        """
        data = os.pread(self.fd, stop - start, start)
        while len(data) < stop - start:
            more = os.pread(self.fd, stop - start - len(data), start + len(data))
            if not more:
                raise CorruptPackError(
                    f"{printable(self.path)}: truncated since it was opened: needs {stop} bytes"
                )
            data += more
        return data

    def want(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Tells the system of ranges that are read next, so that it reads them all at once."""
        if hasattr(os, "posix_fadvise"):
            for start, stop in ranges:
                os.posix_fadvise(self.fd, start, stop - start, os.POSIX_FADV_WILLNEED)


class Fields(NamedTuple):
    """The fields of a part that are there, in the order of their places: lists of one length."""

    start: list[int]
    stop: list[int]
    slot: list[int]
    row: list[int]

    @classmethod
    def of(cls, part: Part) -> Fields:
        """Returns the fields of all rows of a part."""
        there = [np.flatnonzero(size >= 0) for size in part.size]
        start = np.concatenate([place[has] for place, has in zip(part.place, there, strict=True)])
        size = np.concatenate([size[has] for size, has in zip(part.size, there, strict=True)])
        slot = np.concatenate([np.full(has.shape[0], slot) for slot, has in enumerate(there)])
        order = np.argsort(start, kind="stable")
        columns = (start, start + size, slot, np.concatenate(there))
        return cls(*(column[order].tolist() for column in columns))


def windows(fields: Fields, limits: Sequence[int], *, whole: bool) -> Iterator[tuple[int, int]]:
    """Yields ranges of a file, ended before fields that would not be whole in them.

    Fields larger than a window are left out.

    Args:
        fields: What is to be seen.
        limits: Start and stop of all of them, where `whole`.
        whole: All bytes are to be seen, and not only those of fields.
    """
    start, end = limits
    if not whole:
        start, end = 0, max(fields.stop, default=0)
    while start < end:
        if not whole:
            following = bisect_right(fields.stop, start)
            if following == len(fields.stop):
                return
            start = max(start, fields.start[following])
        inside = bisect_right(fields.start, start) - 1
        if inside >= 0 and fields.stop[inside] > max(start, fields.start[inside] + WINDOW):
            start = fields.stop[inside]  # it is read by itself
            continue
        stop = min(start + WINDOW, end)
        last = bisect_left(fields.start, stop) - 1
        if last >= 0 and fields.stop[last] > stop and fields.start[last] > start:
            stop = fields.start[last]
        if stop <= start:  # only where a damaged table lets fields overlap
            return
        yield start, stop
        start = stop


class Pieces(NamedTuple):
    """Bytes for places of a file, in the order of the places.

    Attributes:
        start, stop: Where each piece starts and stops in the file.
        begin: Where each begins in `data`.
        data: The pieces.
    """

    start: list[int]
    stop: list[int]
    begin: list[int]
    data: memoryview

    @classmethod
    def of(cls, place: npt.NDArray[Any], end: npt.NDArray[Any], data: memoryview) -> Pieces:
        """Returns pieces that lie in `data` one after the other, each up to its `end`."""
        begin = np.concatenate([np.zeros(1, np.int64), end])[:-1]
        order = np.argsort(place, kind="stable")
        start, stop, begin = (c[order].tolist() for c in (place, place + end - begin, begin))
        return cls(start, stop, begin, data)


def writer_of_task(task: Mapping[str, Any]) -> Writer:
    """Returns what has written the part of a task."""
    kind = WRITERS.load(task["writer"])
    return kind(kind.Options(**task["options"]))


def frames(writer: Writer, part: Part) -> Pieces:
    """Returns the frames of all rows of a part."""
    frame = writer.frame(part, np.arange(len(part)))
    return Pieces.of(frame.place, frame.end, frame.data)


def check_records(
    file: DataFile, part: Part, writer: SealedWriter, check: FieldCheck
) -> list[tuple[int, int, bool]]:
    """Checks all records of a part whose format is sealed: each is put together again from the
    fields that it has.

    Returns:
        (start, stop, whether it could be read) of bytes that are not as fastconv would have written
        them.
    """
    places: list[tuple[int, int, bool]] = []
    pieces = frames(writer, part)
    for row, (start, stop) in enumerate(pairwise(writer.bounds(part).tolist())):
        try:
            actual = file.read(start, stop)
        except CorruptPackError:
            raise
        except OSError:
            places.append((start, stop, False))
            for slot, sizes in enumerate(part.size):
                if sizes[row] >= 0:
                    check.bad.append((row, slot, "unreadable", "cannot be read"))
            continue
        expected = bytearray(len(actual))
        record, sound = memoryview(expected), len(check.bad)
        for number, at, end in overlapping(pieces.start, pieces.stop, start, stop):
            begin = pieces.begin[number] - pieces.start[number]
            record[at - start : end - start] = pieces.data[begin + at : begin + end]
        for slot, sizes in enumerate(part.size):
            if (size := int(sizes[row])) >= 0:
                at = int(part.place[slot][row]) - start
                data = writer.field(part, row, slot, memoryview(actual)[at:])
                check(row, slot, data)
                if len(data) == size:
                    record[at : at + size] = data
        if len(check.bad) == sound:  # else the seal, too, is another
            writer.seal(part, row, record)
            places += [(*place, True) for place in differing(start, actual, expected)]
    return places


def patches(arrays: Mapping[str, Array]) -> Pieces:
    """Returns the frames that finishing has changed."""
    data = memoryview(arrays["patch/data"].tobytes())
    return Pieces.of(arrays["patch/place"], arrays["patch/end"], data)


class Expected:
    """What fastconv would have written.

    Args:
        scratch: What stands where nothing else does.
        layers: Frames, then what is laid over them.
        fields: Their bytes are taken as they are.
    """

    def __init__(self, scratch: DataFile, frames: Pieces, patches: Pieces, fields: Fields) -> None:
        self.scratch = scratch
        self.layers = (frames, patches)
        self.fields = fields
        self.buffer = bytearray(WINDOW)

    def differences(self, start: int, actual: bytes) -> list[tuple[int, int]]:
        """Returns where the bytes of the file at a place differ: (start, stop) in the file."""
        stop = start + len(actual)
        with memoryview(self.buffer)[: len(actual)] as view:
            done = 0
            while done < len(actual):
                done += os.preadv(self.scratch.fd, [view[done:]], start + done)
            for pieces in self.layers:
                for number, at, end in overlapping(pieces.start, pieces.stop, start, stop):
                    begin = pieces.begin[number] - pieces.start[number]
                    view[at - start : end - start] = pieces.data[begin + at : begin + end]
            with memoryview(actual) as given:
                for _, at, end in overlapping(self.fields.start, self.fields.stop, start, stop):
                    view[at - start : end - start] = given[at - start : end - start]
        return differing(start, actual, self.buffer)


def differing(place: int, actual: bytes, expected: bytearray) -> list[tuple[int, int]]:
    """Returns where bytes of a file are not as expected: (start, stop) of each difference.

    Args:
        place: Where they are in the file.
        actual: They.
        expected: As many, or more.
    """
    if expected.startswith(actual):  # compares the bytes without copying them
        return []
    other = np.frombuffer(expected, np.uint8, len(actual)) != np.frombuffer(actual, np.uint8)
    found = np.flatnonzero(other) + place
    first = found[np.flatnonzero(np.diff(found, prepend=found[0] - NEAR - 1) > NEAR)].tolist()
    last = found[np.flatnonzero(np.diff(found, append=found[-1] + NEAR + 1) > NEAR)].tolist()
    if len(first) > MOST_PLACES:
        del first[MOST_PLACES:], last[MOST_PLACES - 1 : -1]
    return [(a, b + 1) for a, b in zip(first, last, strict=True)]


def overlapping(
    starts: list[int], stops: list[int], start: int, stop: int
) -> Iterator[tuple[int, int, int]]:
    """Yields (number, start, stop) of what of each piece lies in a range."""
    for number in range(bisect_right(stops, start), bisect_left(starts, stop)):
        yield number, max(starts[number], start), min(stops[number], stop)


class FieldCheck:
    """Compares fields with their checksums, and decodes images where that was asked for.

    Args:
        rows: What is known of the images: `kind`, `width` and `height`, as in the sample table.
        checksum: Of each field, as in the sample table; empty where none are known.
        decode: Whether all pixels are decoded.
        max_pixels: Larger images are bad.

    Attributes:
        bad: (row, slot, reason, message).
        found: Of each field the checksums that it has; empty where they are not wanted.
    """

    def __init__(
        self, rows: Part | SampleTable, checksum: Sequence[Array], decode: bool, max_pixels: int
    ) -> None:
        self.rows = rows
        self.checksum = checksum
        self.max_pixels = max_pixels
        self.bad: list[tuple[int, int, Reason, str]] = []
        self.found: list[npt.NDArray[np.uint64]] = []
        self.pixels: Callable[[memoryview, str, int], None] | None = None
        if decode:
            from fastconv.converters.check import check_pixels

            self.pixels = check_pixels

    def needs(self, slot: int) -> bool:
        """Returns whether a field's bytes must be given at once."""
        return self.pixels is not None and slot == 0

    def __call__(self, row: int, slot: int, data: memoryview) -> None:
        """Checks a field."""
        if self.judge(row, slot, xxhash.xxh3_64_intdigest(data)) and self.needs(slot):
            self.decode(row, data)

    def judge(self, row: int, slot: int, checksum: int) -> bool:
        """Returns whether a field has the right checksum, as far as it is known."""
        if self.found:
            self.found[slot][row] = checksum
        if self.checksum and int(self.checksum[slot][row]) != checksum:
            self.bad.append((row, slot, "corrupt", "the checksum differs: the bytes are damaged"))
            return False
        return True

    def decode(self, row: int, data: memoryview) -> None:
        """Decodes an image."""
        from fastconv.converters.sniff import BadImage, sniff

        assert self.pixels is not None
        kind, width, height = (
            column.item(row) for column in (self.rows.kind, self.rows.width, self.rows.height)
        )
        try:
            if kind == RAW:
                shape_of(width, height, data.nbytes)
                return
            # Packs of others name the format by the file's extension, which may be wrong.
            name = KINDS[kind] if self.checksum else sniff(data, len(data)).kind
            self.pixels(data, name, self.max_pixels)
        except BadImage as error:
            self.bad.append((row, 0, error.reason, error.message))
        except SampleError as error:
            self.bad.append((row, 0, "bad_record", str(error)))

    def by_row(self, first: int) -> list[tuple[int, int, Reason, str]]:
        """Returns what is bad in the order of rows, with their numbers in the pack."""
        return sorted((first + row, slot, *words) for row, slot, *words in self.bad)  # type: ignore[misc]

    def results(self, fields: Sequence[str]) -> dict[str, Array]:
        """Returns the checksums, if they are wanted."""
        return {f"checksum/{name}": c for name, c in zip(fields, self.found, strict=False)}


def check_apart(file: DataFile, fields: Fields, number: int, check: FieldCheck) -> None:
    """Checks a field that is read by itself, in pieces where it may be."""
    start, stop = fields.start[number], fields.stop[number]
    row, slot = fields.row[number], fields.slot[number]
    try:
        if stop - start <= WINDOW or check.needs(slot):
            check(row, slot, memoryview(file.read(start, stop)))
            return
        digest = xxhash.xxh3_64()
        for place in range(start, stop, WINDOW):
            digest.update(file.read(place, min(place + WINDOW, stop)))
        check.judge(row, slot, digest.intdigest())
    except CorruptPackError:
        raise
    except OSError as error:
        words = os.strerror(error.errno or errno.EIO)
        check.bad.append((row, slot, "unreadable", f"cannot be read: {words}"))


def compare_part(task: Mapping[str, Any], arrays: Mapping[str, Array], part: Part) -> Answer:
    """Compares the files of a folder with what a pack says they are; returns what differs."""
    check = FieldCheck(part, known_checksums(arrays, part), False, 0)
    buffer = memoryview(bytearray(WINDOW))
    source = FolderSource(task, arrays, part)
    try:
        for slot, sizes in enumerate(part.size):
            for row, size in enumerate(sizes.tolist()):
                if size < 0:
                    continue
                try:
                    check.judge(row, slot, file_checksum(source, row, slot, size, buffer))
                except Bad as error:
                    check.bad.append((row, slot, error.reason, error.message))
    finally:
        source.close()
    return {"bad": check.by_row(task["first_row"]), "places": []}, {}


def file_checksum(source: FolderSource, row: int, slot: int, size: int, buffer: memoryview) -> int:
    """Returns the checksum of a file that has exactly so many bytes.

    Raises:
        Bad: It has not, or cannot be read.
    """
    if size <= buffer.nbytes:
        source.fill(row, slot, buffer[:size])
        return xxhash.xxh3_64_intdigest(buffer[:size])
    digest = xxhash.xxh3_64()
    source.stream(row, slot, size, lambda piece, _: digest.update(piece), buffer)
    return digest.intdigest()
