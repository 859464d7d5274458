"""Opens regular files only, so that nothing blocks, and maps them whole."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from time import monotonic
from typing import Final

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import CorruptPackError, PackError, printable

__all__ = [
    "MappedFile",
    "first_bytes",
    "inode_at",
    "map_file",
    "open_file",
    "read_file",
    "unreadable",
]

# O_NONBLOCK: opening a pipe waits for its writer. O_BINARY: Windows alone has it.
_FLAGS: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY")
)

UNSEEN: Final = 5e-3
"""Seconds for which a mapped file is taken to be as long as it was, when others are looked at."""


def unreadable(path: str, error: Exception) -> PackError:
    """Returns what to raise when the system does not let us read a file."""
    return PackError(
        f"{printable(path)}: cannot be read: {getattr(error, 'strerror', None) or error}"
    )


def inode_at(path: str) -> tuple[int, int] | None:
    """Returns which file or folder lies at a path, links followed: device and inode; None where
    nothing does, or the system does not let us look."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_file(path: str) -> int:
    """Returns a descriptor of a regular file, which the caller closes.

    Raises:
        OSError: It cannot be opened, or is a folder, pipe, socket or device.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what a socket gives
            raise OSError(errno.EINVAL, "not a regular file", path) from error
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_file(path: str) -> bytes:
    """Returns the bytes of a regular file.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with open(open_file(path), "rb", buffering=0) as file:
        return file.read()


def first_bytes(path: str, count: int) -> bytes:
    """Returns the first bytes of a file, none where no file is.

    Raises:
        PackError: The system does not let us read it, or it is a pipe, socket or device.
    """
    try:
        fd = open_file(path)
        try:
            return os.read(fd, count)
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except OSError as error:
        raise unreadable(path, error) from error


class MappedFile:
    """A whole regular file, mapped; it is unmapped when the last view on it is gone.

    Touching what was cut off since then kills the process (SIGBUS), and so does a disk that fails.
    `check` tells the former shortly before; nothing can tell it to who holds a view already. `read`
    copies, and always ends with an error instead.

    Args:
        path: Where it lies.

    Attributes:
        path: Where it was when it was opened.
        view: Its bytes, read-only.
        inode: Which file it is, whatever lies at the path now: device and inode.
        mtime: When it was last written to before it was mapped, in ns.
        due: When its length is worth asking for again, as `time.monotonic` counts.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """

    __slots__ = ("_fd", "_map", "due", "inode", "mtime", "path", "view")

    def __init__(self, path: str) -> None:
        self._fd = open_file(path)
        try:
            status = os.fstat(self._fd)
            self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ) if status.st_size else None
        except ValueError as error:  # it has lost its bytes just now
            raise OSError(errno.EIO, str(error), path) from error
        self.path = path
        self.view = memoryview(b"" if self._map is None else self._map)
        self.inode = status.st_dev, status.st_ino
        self.mtime = status.st_mtime_ns
        self.due = 0.0

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def read(self, start: int, size: int) -> bytes:
        """Returns a copy of these bytes of the file: fewer, where it ends before.

        Raises:
            OSError: The disk answers with an error.
        """
        if hasattr(os, "pread"):
            data = os.pread(self._fd, size, start)
            while 0 < len(data) < size and (
                more := os.pread(self._fd, size - len(data), start + len(data))
            ):
                data += more  # the system gives 2 GiB at once, no more
            return data
        return bytes(self.view[start : start + size])

    def read_into(self, start: int, out: npt.NDArray[np.uint8]) -> int:
        """Copies bytes of the file into C-contiguous memory; returns how many: fewer than there is
        room for, where the file ends before.

        Raises:
            OSError: The disk answers with an error.
        """
        view = out.data.cast("B")
        done = 0
        if hasattr(os, "preadv"):
            while done < view.nbytes and (more := os.preadv(self._fd, [view[done:]], start + done)):
                done += more
            return done
        data = self.read(start, view.nbytes)
        view[: len(data)] = data
        return len(data)

    def check(self) -> None:
        """Checks that nothing of the file was cut off since it was mapped.

        Raises:
            CorruptPackError: Something was.
        """
        size = 0 if self._map is None else self._map.size()
        if size < self.view.nbytes:
            raise CorruptPackError(
                f"{printable(self.path)}: truncated since it was opened: has {size} bytes, "
                f"needs {self.view.nbytes}"
            )
        self.due = monotonic() + UNSEEN

    def want(self, start: int, size: int) -> None:
        """Tells the system that these bytes are wanted next; `start` is that of a page."""
        if self._map is not None and 0 <= start < len(self._map):
            self._map.madvise(mmap.MADV_WILLNEED, start, min(size, len(self._map) - start))


def map_file(path: str) -> MappedFile:
    """Returns a file, mapped.

    Raises:
        PackError: The system does not let us read it, or it is no regular file.
    """
    try:
        return MappedFile(path)
    except OSError as error:
        raise unreadable(path, error) from error
