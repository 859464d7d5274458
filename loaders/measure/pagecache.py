"""Takes files out of the page cache, and looks at what of them is in it. Linux."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

__all__ = ["evict", "files_of", "resident", "warm"]


def files_of(path: Path) -> list[Path]:
    """Returns the files of a pack or folder, with the table that lies beside a single file."""
    if path.is_dir():
        return sorted(found for found in path.rglob("*") if found.is_file())
    index = path.with_name(f"{path.name}.index.safetensors")
    return [path, index] if index.exists() else [path]


def warm(files: Iterable[Path]) -> None:
    """Brings files into the page cache."""
    buffer = bytearray(1 << 20)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def evict(files: Iterable[Path]) -> None:
    """Takes files out of the page cache, but for what a process has mapped."""
    os.sync()  # what is not on disk yet could not be dropped
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def resident(files: Iterable[Path]) -> int:
    """Returns how many bytes of files are in the page cache, in whole pages.

    Raises:
        OSError: The system does not tell: it does so only to whom a file belongs, or who may write
            it; to others all seems to be there.
    """
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    pages = 0
    for path in files:
        if not path.stat().st_size:
            continue
        if not (os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()):
            raise PermissionError(errno.EPERM, "only to its owner is that told", str(path))
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            place = np.frombuffer(mapped, np.uint8)
            found = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
            failed = mincore(place.ctypes.data, len(mapped), found.ctypes.data)
            del place  # or the map could not be closed
            if failed:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
            pages += int(np.count_nonzero(found & 1))
    return pages * mmap.PAGESIZE
