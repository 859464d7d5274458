"""Packs one part: reads the samples' bytes and writes them, with what lies between them, to their
places.

This is the hot path of packing, run by the worker processes. A file is read once, straight into the
buffer from which it is written; on the way its format is told, its checksum taken, and its pixels
are decoded when that was asked for. What cannot be a sample is reported; the run goes on.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.sniff import BadImage, sniff
from fastconv.converters.system import start_writeback
from fastconv.converters.writer import WRITERS, Part, SealedWriter, Writer, pwrite_all
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import FastconvError, PackChangedError, SampleError, printable
from fastconv.loaders.files import unreadable
from fastconv.loaders.joined import fingerprint
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.open import open_pack
from fastconv.loaders.raw import RAW, shape_of
from fastconv.loaders.reader import Reader, Wanted
from fastconv.loaders.sample import Reason
from fastconv.loaders.table import SampleTable

__all__ = ["check_part", "pack_part", "what_opens"]

WINDOW = 1 << 20
"""Bytes gathered for one write: enough to make the call cheap, few enough to stay in the cache."""
GONE = ("vanished", "unreadable")
"""What all files of a disk are that went away."""
MOST_FILES = 64
"""Data files of a pack that are open at once in a part."""
HEAD = 1 << 16
"""Bytes of a file that are enough to tell its format, where it is not to be decoded."""


class Window:
    """Gathers bytes for neighbouring places of a file, and writes them together.

    Args:
        fd: The file; None: the bytes go nowhere (a look at the source alone).
        size: How many bytes are gathered.

    Attributes:
        written: Ranges of the file that were written, [start, stop], in the order of their places.
    """

    def __init__(self, fd: int | None, size: int = WINDOW) -> None:
        self.fd = fd
        self.view = memoryview(bytearray(size))
        self.start = self.stop = 0
        self.written: list[list[int]] = []
        self._digest = xxhash.xxh3_64()
        self._again = False

    def room(self, place: int, size: int, extent: int) -> memoryview:
        """Returns where to put the bytes for a place; places only ever grow.

        Args:
            place: In the file.
            size: How many bytes.
            extent: How many with the zeros that follow them, at most as many as are gathered.
        """
        if place != self.stop or place + extent - self.start > self.view.nbytes:
            self.flush()
            self.start = self.stop = place
        at = self.stop - self.start
        if extent > size:
            self.view[at + size : at + extent] = bytes(extent - size)
        self.stop = place + extent
        return self.view[at : at + size]

    def flush(self) -> None:
        """Writes what was gathered."""
        self.write(self.view[: self.stop - self.start], self.start)
        self.start = self.stop

    def write(self, data: memoryview, place: int) -> None:
        """Writes bytes at a place at once, after what was gathered."""
        if self.fd is None or not data.nbytes:
            return
        pwrite_all(self.fd, data, place)
        start_writeback(self.fd, place, data.nbytes)
        last = self.written[-1] if self.written else [0, -1]
        if place < last[1]:
            self._again = True
        elif place == last[1]:
            last[1] += data.nbytes
        else:
            self.written.append([place, place + data.nbytes])
        self._digest.update(data)

    def digest(self) -> int:
        """Returns the xxh3-64 of what is written."""
        if not self._again or self.fd is None:
            return self._digest.intdigest()
        return digest_of_ranges(self.fd, self.written)


def digest_of_ranges(fd: int, ranges: Sequence[Sequence[int]]) -> int:
    """Returns the xxh3-64 of ranges of a file.

    Raises:
        OSError: The file ends before, or cannot be read.
    """
    digest, buffer = xxhash.xxh3_64(), memoryview(bytearray(WINDOW))
    for start, stop in ranges:
        for place in range(start, stop, WINDOW):
            piece = buffer[: min(stop - place, WINDOW)]
            pread_all(fd, piece, place)
            digest.update(piece)
    return digest.intdigest()


def check_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns whether a part that was written by an earlier run is still there as it was: `same`.

    Args:
        task: `out` (path of the data file), `written` (the ranges), `digest` (of their bytes).
        arrays: None.
    """
    try:
        fd = os.open(os.fsencode(task["out"]), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {"same": False}, {}
    try:
        return {"same": digest_of_ranges(fd, task["written"]) == task["digest"]}, {}
    except OSError:
        return {"same": False}, {}
    finally:
        os.close(fd)


class Bad(Exception):
    """A field that cannot be packed."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def system_error(error: OSError) -> Bad:
    """Returns what a file is that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return Bad("vanished", "went away meanwhile")
    if error.errno in (errno.ENXIO, errno.ESPIPE, errno.EISDIR):
        return Bad("not_a_regular_file", "not a regular file any more")
    return Bad("unreadable", f"cannot be read: {error.strerror or error}")


class FolderSource:
    """The fields of a part as files below a folder."""

    def __init__(self, task: Mapping[str, Any], arrays: Mapping[str, Array], part: Part) -> None:
        self.path = os.fsencode(task["root"])
        self.root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.inode = task.get("inode")
        none = np.zeros(0, np.uint32)
        bounds = np.array([0, len(part)], np.int64)
        self.table = SampleTable(
            fields=part.fields, label=part.label, kind=part.kind, size=part.size, offset=(),
            width=none, height=none, shard_row=bounds,
            path_bytes=arrays["path"], path_offset=arrays["path_offset"],
        )  # fmt: skip
        self.paths = self.table.paths(0, len(part))
        self.sidecars = len(part.fields) > 1
        self.generated = {
            slot: (arrays[f"generated/{name}"].data, arrays[f"generated_end/{name}"])
            for slot, name in enumerate(part.fields)
            if f"generated/{name}" in arrays
        }
        self.spare = bytearray(1)
        try:
            self.check_folder()
        except BaseException:
            self.close()
            raise

    def check_folder(self) -> None:
        """Checks that the folder is there, and is the one that was listed: where a disk or a mount
        went away, not each of its files is bad.

        Raises:
            FastconvError: It is not.
        """
        try:
            status = os.stat(self.path)
            with os.scandir(self.root) as entries:
                next(entries, None)
            same = os.path.samestat(status, os.fstat(self.root))
        except OSError:
            same = False
        if not same or self.inode not in (None, [status.st_dev, status.st_ino]):
            raise FastconvError(
                f"{printable(os.fsdecode(self.path))}: the folder went away, or another one is in "
                "its place now: bring it back and run the same command again"
            )

    def judge(self, results: Results) -> None:
        """Sees to it that files are bad by themselves, and not because their folder went away."""
        if any(reason in GONE for *_, reason, _ in results.bad):
            self.check_folder()

    def close(self) -> None:
        """Closes the folder."""
        os.close(self.root)

    def open(self, row: int, slot: int) -> int:
        """Returns a descriptor of a field's file."""
        name = self.table.names(row)[slot] if self.sidecars else self.paths[row]
        try:
            return os.open(
                name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=self.root
            )
        except OSError as error:
            raise system_error(error) from error

    def head(self, row: int, slot: int, size: int, view: memoryview) -> memoryview:
        """Returns the first bytes of a field that has exactly the planned size, as many as the view
        holds.

        Raises:
            Bad: It has not, or cannot be read.
        """
        if slot in self.generated:
            return view[:0]
        fd = self.open(row, slot)
        try:
            done = 0
            while done < min(size, view.nbytes) and (more := os.readv(fd, [view[done:]])):
                done += more
            status = os.fstat(fd)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_size != size
                or done < min(size, view.nbytes)
            ):
                raise self.other_size(fd, size)
        except OSError as error:
            raise system_error(error) from error
        finally:
            os.close(fd)
        return view[:done]

    def fill(self, row: int, slot: int, view: memoryview) -> None:
        """Reads a field that has exactly the planned size.

        Raises:
            Bad: It has not, or cannot be read.
        """
        if slot in self.generated:
            data, ends = self.generated[slot]
            view[:] = data[int(ends[row]) : int(ends[row + 1])]
            return
        fd = self.open(row, slot)
        try:
            done = 0
            # One byte more is asked for: a file that has grown is noticed without another call.
            while (more := os.readv(fd, [view[done:], self.spare])) and done + more <= view.nbytes:
                done += more
                if done == view.nbytes:
                    break
            if done != view.nbytes or more > view.nbytes:
                raise self.other_size(fd, view.nbytes)
        except OSError as error:
            raise system_error(error) from error
        finally:
            os.close(fd)

    def other_size(self, fd: int, planned: int) -> Bad:
        """Returns what a file is that gave more or fewer bytes than planned."""
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return Bad("not_a_regular_file", "not a regular file any more")
        return Bad("changed", f"had {planned} bytes when the run began, has {status.st_size} now")

    def stream(
        self,
        row: int,
        slot: int,
        size: int,
        take: Callable[[memoryview, int], None],
        view: memoryview,
    ) -> None:
        """Reads a large field piece by piece."""
        fd = self.open(row, slot)
        try:
            done = 0
            while done < size:
                more = os.preadv(fd, [view[: min(size - done, view.nbytes)]], done)
                if not more:
                    break
                take(view[:more], done)
                done += more
            if done != size or os.pread(fd, 1, size):
                raise self.other_size(fd, size)
        except OSError as error:
            raise system_error(error) from error
        finally:
            os.close(fd)

    def whole(self, row: int, slot: int) -> memoryview:
        """Returns a large file's bytes, mapped."""
        fd = self.open(row, slot)
        try:
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise Bad("unreadable", f"cannot be read: {error}") from error
        finally:
            os.close(fd)


class FileSource:
    """The fields of a part as ranges of data files that were written before; nothing is checked
    again.

    Shuffled samples may lie in any number of files: few of them are open at once.
    """

    def __init__(self, task: Mapping[str, Any], arrays: Mapping[str, Array], part: Part) -> None:
        self.names = task["files"]
        self.fds: dict[int, int] = {}  # the one that was used last is the last
        self.file = arrays["from"].tolist()
        self.place = [arrays[f"from/{name}"] for name in part.fields]

    def close(self) -> None:
        """Closes the files."""
        for fd in self.fds.values():
            os.close(fd)

    def fd(self, number: int) -> int:
        """Returns a descriptor of a file, by its number among those of the part."""
        fd = self.fds.pop(number, None)
        if fd is None:
            if len(self.fds) >= MOST_FILES:
                oldest = next(iter(self.fds))
                self.check_file(oldest)
                os.close(self.fds.pop(oldest))
            fd = self.fds[number] = self.opened(number)
            self.check_file(number)
        self.fds[number] = fd
        return fd

    def opened(self, number: int) -> int:
        """Returns a new descriptor of a file."""
        return os.open(os.fsencode(self.names[number]), os.O_RDONLY | os.O_CLOEXEC)

    def check_file(self, number: int) -> None:
        """Checks an open file, when it was opened and before it is closed."""

    def read(self, row: int, view: memoryview, place: int) -> None:
        """Reads bytes from a place in the file of a row."""
        pread_all(self.fd(self.file[row]), view, place)

    def judge(self, results: Results) -> None:
        """Has the last word on what is bad."""

    def fill(self, row: int, slot: int, view: memoryview) -> None:
        """Reads a field."""
        self.read(row, view, int(self.place[slot][row]))

    def stream(
        self,
        row: int,
        slot: int,
        size: int,
        take: Callable[[memoryview, int], None],
        view: memoryview,
    ) -> None:
        """Reads a large field piece by piece."""
        place = int(self.place[slot][row])
        for done in range(0, size, view.nbytes):
            piece = view[: min(size - done, view.nbytes)]
            self.read(row, piece, place + done)
            take(piece, done)


class PackSource(FileSource):
    """The fields of a part as ranges of the data files of a pack, which may be damaged."""

    def __init__(self, task: Mapping[str, Any], arrays: Mapping[str, Array], part: Part) -> None:
        super().__init__(task, arrays, part)
        self.found = task["found"]
        self.known = {
            slot: arrays[f"known/{name}"]
            for slot, name in enumerate(part.fields)
            if f"known/{name}" in arrays
        }

    def opened(self, number: int) -> int:
        """Returns a new descriptor of a file.

        Raises:
            PackError: The system does not let us read it.
        """
        try:
            return super().opened(number)
        except OSError as error:
            raise unreadable(self.names[number], error) from error

    def check_file(self, number: int) -> None:
        """Checks that a file is the one that was opened, and as it was then: where one was cut, not
        each of its records is bad.

        Raises:
            PackChangedError: It is not.
        """
        now = os.fstat(self.fds[number])
        inode, size, mtime = self.found[number]
        same = [*inode] == [now.st_dev, now.st_ino]
        if not same or (size, mtime) != (now.st_size, now.st_mtime_ns):
            raise PackChangedError(
                f"{printable(self.names[number])}: was changed or replaced while it was read: run "
                "the same command again"
            )

    def read(self, row: int, view: memoryview, place: int) -> None:
        fd = self.fd(self.file[row])  # where it is not there, not each of its records is bad
        try:
            pread_all(fd, view, place)
        except OSError as error:
            raise system_error(error) from error

    def judge(self, results: Results) -> None:
        """Tells of the fields whose bytes are not the ones that were packed: also of those that are
        no images any more."""
        for number in self.fds:
            self.check_file(number)
        unread = {(row, slot) for row, slot, reason, _ in results.bad if reason in GONE}
        for slot, known in self.known.items():
            differs = (known != results.checksum[slot]) & (known != 0)  # 0 is unknown
            other = {(row, slot) for row in np.flatnonzero(differs).tolist()}
            results.bad = [bad for bad in results.bad if bad[:2] not in other - unread]
            words = "the checksum differs: the bytes are damaged"
            results.bad += [(*field, "corrupt", words) for field in sorted(other - unread)]


def what_opens(reader: Reader, wanted: Wanted) -> tuple[Any, ...]:
    """Returns what `opened` needs to open the same pack in another process."""
    keys = wanted.image_key, wanted.label_key
    return os.path.abspath(reader.path), reader.name, fingerprint(reader), *keys


@lru_cache(maxsize=16)
def opened(
    path: str, format: str, expected: str, image_key: str | None, label_key: str | None
) -> Reader:
    """Returns a pack, opened once in this process.

    Raises:
        PackChangedError: It is not the one that is expected, by its fingerprint.
    """
    reader = open_pack(path, format, Wanted((), image_key, label_key))
    if fingerprint(reader) != expected:
        raise PackChangedError(
            f"{printable(path)}: was replaced while it was read: run the same command again"
        )
    return reader


class ReaderSource:
    """The fields of a part as readers of packs give them: those of packs that are compressed, say,
    lie nowhere as they are."""

    def __init__(self, task: Mapping[str, Any], arrays: Mapping[str, Array], part: Part) -> None:
        self.readers = [opened(*pack) for pack in task["packs"]]
        self.pack, self.row = arrays["pack"].tolist(), arrays["row"].tolist()
        self.fields = part.fields

    def close(self) -> None:
        """Nothing is open for this part alone."""

    def judge(self, results: Results) -> None:
        """Has the last word on what is bad."""

    def fill(self, row: int, slot: int, view: memoryview) -> None:
        """Reads a field.

        Raises:
            Bad: It cannot be read, or is damaged.
        """
        reader, number = self.readers[self.pack[row]], self.row[row]
        slot = reader.table.fields.index(self.fields[slot])
        try:
            checked = bool(reader.table.checksum)
            data = reader.verified(number, slot) if checked else reader.load(number, slot)
        except SampleError as error:
            reason: Reason = error.reason or "unreadable"  # type: ignore[assignment]
            raise Bad(reason, str(error)) from error
        if data is None or len(data) != view.nbytes:
            raise Bad("corrupt", "has another size than its pack says")
        view[:] = data

    def stream(
        self,
        row: int,
        slot: int,
        size: int,
        take: Callable[[memoryview, int], None],
        view: memoryview,
    ) -> None:
        """Reads a large field, and gives it piece by piece."""
        data = memoryview(bytearray(size))
        self.fill(row, slot, data)
        for done in range(0, size, view.nbytes):
            take(data[done : done + view.nbytes], done)


def pread_all(fd: int, view: memoryview, place: int) -> None:
    """Reads exactly as many bytes as the view has room for."""
    done = 0
    while done < view.nbytes:
        more = os.preadv(fd, [view[done:]], place + done)
        if not more:
            raise OSError(errno.EIO, "a data file that was just written is too short")
        done += more


class Results:
    """What is found out about the samples of a part."""

    def __init__(self, part: Part) -> None:
        count = len(part)
        self.kind = part.kind.copy()
        self.width, self.height = part.width.copy(), part.height.copy()
        self.checksum = [np.zeros(count, np.uint64) for _ in part.fields]
        self.bad: list[tuple[int, int, Reason, str]] = []
        self.resized: list[tuple[int, int]] = []


def read_part(arrays: Mapping[str, Array], task: Mapping[str, Any]) -> Part:
    """Returns the part that a task is about."""
    fields = tuple(task["fields"])
    own = {name[4:]: array for name, array in arrays.items() if name.startswith("own/")}
    unknown = np.zeros(len(arrays["label"]), np.uint32)
    pixels = {
        name: arrays[name].astype(np.uint32) if name in arrays else unknown.copy()
        for name in ("width", "height")
    }
    return Part(
        first_row=task["first_row"],
        fields=fields,
        samples=task["samples"],
        label=arrays["label"],
        kind=arrays["kind"].astype(np.uint8),  # copies: they are corrected later
        extra=arrays.get("extra", unknown),
        **pixels,
        size=tuple(arrays[f"size/{name}"] for name in fields),
        place=tuple(arrays[f"place/{name}"] for name in fields),
        own=own,
        id=task.get("id", ""),
    )


def pack_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Writes a part; returns what was found out.

    Args:
        task: `source` ("folder" with `root`; "files" or "pack" with `files`; "reader" with
            `packs`), `out` (path of the
            data file; None: only look), `writer` and `options` (None: there is nothing between the
            fields), `check`, `max_pixels`, `first_row`, `fields`, `samples`.
        arrays: The columns of the part and of its source.
    """
    part = read_part(arrays, task)
    writer: Writer | None = None
    if task["writer"] is not None:
        kind = WRITERS.load(task["writer"])
        writer = kind(kind.Options(**task["options"]))
    known = task["source"] == "files"
    results = Results(part)
    with ExitStack() as stack:
        source = SOURCES[task["source"]](task, arrays, part)
        stack.callback(source.close)
        fd = None
        if task["out"] is not None:
            fd = os.open(os.fsencode(task["out"]), os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, fd)
        sealed = writer if isinstance(writer, SealedWriter) and fd is not None else None
        # Records are sealed in memory: there is to be room for the largest one.
        largest = int(np.diff(sealed.bounds(part)).max(initial=0)) if sealed else 0
        window = Window(fd, max(WINDOW, largest))
        look = None if known else Look(results, task["check"] == "decode", task["max_pixels"])
        if (
            fd is None
            and look is not None
            and look.check is None
            and isinstance(source, FolderSource)
        ):
            look_at_heads(part, source, window.view, look)
        elif sealed is not None:
            write_records(part, sealed, source, window, look)
        else:
            write_part(part, writer, source, window, look)
        if writer is not None and writer.names_kind and fd is not None:
            changed = np.flatnonzero(results.kind != part.kind)
            if changed.shape[0]:
                part.kind[changed] = results.kind[changed]
                rewrite_frames(writer, part, changed, window)
        source.judge(results)
        content = {"bad": results.bad, "written": window.written, "digest": window.digest()}
        if results.resized:
            content["resized"] = results.resized
    if known:
        return content, {}
    found: dict[str, Array] = {
        "kind": results.kind,
        "width": results.width,
        "height": results.height,
    }
    found |= {f"checksum/{name}": c for name, c in zip(part.fields, results.checksum, strict=True)}
    return content, found


PartSource = FolderSource | FileSource | ReaderSource

SOURCES: dict[str, type[PartSource]] = {
    "folder": FolderSource,
    "files": FileSource,
    "pack": PackSource,
    "reader": ReaderSource,
}


class Look:
    """Finds out about a field's bytes: format, size in pixels, checksum, and whether it can be
    decoded."""

    def __init__(self, results: Results, decode: bool, max_pixels: int) -> None:
        self.results = results
        self.max_pixels = max_pixels
        self.check = None
        if decode:
            from fastconv.converters.check import check_pixels

            self.check = check_pixels

    def __call__(
        self, row: int, slot: int, data: memoryview, size: int, checksum: int | None = None
    ) -> None:
        """Looks at a field; `data` may be only the beginning of a large one, then its checksum is
        given.

        Raises:
            BadImage: It is no image.
        """
        results = self.results
        if slot == 0 and results.kind[row] == RAW:  # its pixels tell nothing of themselves
            try:
                shape_of(int(results.width[row]), int(results.height[row]), size)
            except SampleError as error:
                raise BadImage("bad_record", str(error)) from error
        elif slot == 0:
            found = sniff(data, size)
            results.kind[row] = kind_code(found.kind)
            results.width[row], results.height[row] = found.width, found.height
            if self.check is not None and data.nbytes == size:
                self.check(data, found.kind, self.max_pixels)
        results.checksum[slot][row] = (
            xxhash.xxh3_64_intdigest(data) if checksum is None else checksum
        )

    def known(self, part: Part, writer: Writer, row: int, data: memoryview) -> bool:
        """Notes in a part what is known now of an image; returns whether it fits its record."""
        results = self.results
        part.kind[row] = results.kind[row]
        part.width[row], part.height[row] = results.width[row], results.height[row]
        extra = writer.extra(data)
        if extra == part.extra[row]:
            return True
        results.resized.append((row, extra))
        return False


def write_part(
    part: Part,
    writer: Writer | None,
    source: PartSource,
    window: Window,
    look: Look | None,
) -> None:
    """Puts the part's bytes into the window in the order of their places."""
    places, slots, rows = [], [], []
    for slot, size in enumerate(part.size):
        there = np.flatnonzero(size >= 0)
        places.append(part.place[slot][there])
        slots.append(np.full(there.shape[0], slot, np.int64))
        rows.append(there)
    frame_data, ends, pieces = memoryview(b""), [0], 0
    extents = sizes = [size.tolist() for size in part.size]
    if writer is not None and window.fd is not None:
        extents = [extent.tolist() for extent in writer.extents(part)]
        frame = writer.frame(part, np.arange(len(part)))
        frame_data, ends, pieces = frame.data, [0, *frame.end.tolist()], frame.place.shape[0]
        places.insert(0, frame.place)
        slots.insert(0, np.full(pieces, -1, np.int64))
        rows.insert(0, np.arange(pieces))
    place = np.concatenate(places)
    order = np.argsort(place, kind="stable")
    items = zip(
        place[order].tolist(),
        np.concatenate(slots)[order].tolist(),
        np.concatenate(rows)[order].tolist(),
        strict=True,
    )
    for at, slot, row in items:
        if slot < 0:
            start, stop = ends[row], ends[row + 1]
            for piece in range(start, stop, WINDOW):
                end = min(piece + WINDOW, stop)
                window.room(at + piece - start, end - piece, end - piece)[:] = frame_data[piece:end]
            continue
        size, extent = sizes[slot][row], extents[slot][row]
        try:
            if extent <= WINDOW:
                view = window.room(at, size, extent)
                source.fill(row, slot, view)
                if look is not None:
                    look(row, slot, view, size)
            else:
                window.flush()
                write_large(row, slot, size, at, source, window, look)
        except (Bad, BadImage) as error:
            if look is None:
                raise
            look.results.bad.append((row, slot, error.reason, error.message))
    window.flush()


def write_records(
    part: Part, writer: SealedWriter, source: PartSource, window: Window, look: Look | None
) -> None:
    """Puts the part's records together in the window, which has room for each, and seals them."""
    frame = writer.frame(part, np.arange(len(part)))
    order = np.argsort(frame.place, kind="stable")
    begins = np.concatenate([np.zeros(1, np.int64), frame.end])[:-1]
    pieces = zip(*(c[order].tolist() for c in (frame.place, begins, frame.end)), strict=True)
    piece = next(pieces, None)
    sizes, places = ([c.tolist() for c in columns] for columns in (part.size, part.place))
    for row, (start, stop) in enumerate(pairwise(writer.bounds(part).tolist())):
        record = window.room(start, stop - start, stop - start)
        while piece is not None and piece[0] < stop:
            at, begin, end = piece
            record[at - start : at - start + end - begin] = frame.data[begin:end]
            piece = next(pieces, None)
        whole = True
        for slot in range(len(part.fields)):
            size = sizes[slot][row]
            if size < 0:
                continue
            at = places[slot][row] - start
            view = record[at : at + size]
            try:
                source.fill(row, slot, view)
                if look is not None:
                    look(row, slot, view, size)
                    if slot == 0:
                        whole = look.known(part, writer, row, view)
            except (Bad, BadImage) as error:
                if look is None:
                    raise
                look.results.bad.append((row, slot, error.reason, error.message))
                whole = False
        if whole:  # else it is written again, elsewhere
            writer.seal(part, row, record)
    window.flush()


def look_at_heads(part: Part, source: FolderSource, view: memoryview, look: Look) -> None:
    """Looks at all fields without reading more of them than tells what they are; takes no
    checksums."""
    for slot, sizes in enumerate(part.size):
        for row in np.flatnonzero(sizes >= 0).tolist():
            size = int(sizes[row])
            try:
                if slot:
                    source.head(row, slot, size, view[:0])
                else:
                    look_at_head(row, size, source, view, look)
            except (Bad, BadImage) as error:
                look.results.bad.append((row, slot, error.reason, error.message))


def look_at_head(row: int, size: int, source: FolderSource, view: memoryview, look: Look) -> None:
    """Looks at the beginning of an image: a little of it, and where that does not tell, as much as
    packing does.

    Raises:
        Bad, BadImage: It cannot be packed.
    """
    head = source.head(row, 0, size, view[:HEAD])
    try:
        look(row, 0, head, size, checksum=0)
        if look.results.width[row] or head.nbytes == size:
            return
    except BadImage:
        if head.nbytes == size:
            raise
    look(row, 0, source.head(row, 0, size, view), size, checksum=0)


def write_large(
    row: int,
    slot: int,
    size: int,
    at: int,
    source: PartSource,
    window: Window,
    look: Look | None,
) -> None:
    """Writes a field that does not fit the window, piece by piece."""
    digest, head = xxhash.xxh3_64(), []

    def take(piece: memoryview, done: int) -> None:
        if look is not None:
            digest.update(piece)
            if not done:
                head.append(bytes(piece))
        window.write(piece, at + done)

    source.stream(row, slot, size, take, window.view)
    if look is not None:
        look(row, slot, memoryview(head[0]), size, digest.intdigest())
        if slot == 0 and look.check is not None and isinstance(source, FolderSource):
            look(row, slot, source.whole(row, slot), size, digest.intdigest())


def rewrite_frames(writer: Writer, part: Part, rows: npt.NDArray[np.int64], window: Window) -> None:
    """Writes the frame of some rows again: their images are of other formats than their names
    said."""
    for place, data in writer.frame(part, rows).pieces():
        window.write(data, place)
