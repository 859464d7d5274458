"""Calls of the system that Python's `os` lacks. Where the system has none, they do what is next
best."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = [
    "ENDING",
    "copy_ranges",
    "die_with_parent",
    "exchange",
    "held_signals",
    "is_empty_folder",
    "need_space",
    "rename_new",
    "start_writeback",
    "swap",
    "sync_path",
    "sync_tree",
]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which people and programs ask a process to end."""

AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
SYNC_FILE_RANGE_WRITE = 2
PR_SET_PDEATHSIG = 1
PIECE = 1 << 20
"""Bytes that are copied at once."""


@cache
def libc(name: str) -> Any:
    """Returns a function of the C library; None where it has none of that name."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def start_writeback(fd: int, place: int, size: int) -> None:
    """Lets the system begin to write these bytes to the disk, so that the fsync at the end is
    short."""
    call = libc("sync_file_range")
    if call is not None:
        call(fd, ctypes.c_int64(place), ctypes.c_int64(size), SYNC_FILE_RANGE_WRITE)


def die_with_parent() -> None:
    """Lets the system kill this process when the thread that started it ends."""
    call = libc("prctl")
    if call is not None:
        parent = os.getppid()
        call(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)


def _renameat2(source: str, target: str, flags: int) -> bool:
    """Renames with flags; returns whether the system and the file system can."""
    call = libc("renameat2")
    if call is None:
        return False
    if call(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), target)


def rename_new(source: str, target: str) -> None:
    """Renames to a name that must be free, or for a folder that of an empty one: rename lets it
    take the place of such a folder, and of no other, in one step.

    Raises:
        FileExistsError: It is not.
    """
    if not (os.path.isdir(source) and is_empty_folder(target)):
        _rename_free(source, target)
        return
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # files have come into it
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        raise


def is_empty_folder(path: str) -> bool:
    """Returns whether a path is a folder without anything in it, no link to one, and nothing is
    mounted there: a folder can be renamed to it."""
    if os.path.islink(path) or not os.path.isdir(path) or os.path.ismount(path):
        return False
    return os.path.basename(path) not in (".", "..") and not os.listdir(path)


def _rename_free(source: str, target: str) -> None:
    if not _renameat2(source, target, RENAME_NOREPLACE):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target)


def exchange(one: str, other: str) -> None:
    """Lets two files or folders change places, in one step where the file system can."""
    if not _renameat2(one, other, RENAME_EXCHANGE):
        aside = f"{one}.old"
        os.rename(other, aside)
        try:
            os.rename(one, other)
        except OSError:
            os.rename(aside, other)
            raise
        os.rename(aside, one)


def swap(one: str, other: str) -> None:
    """Lets what is at two paths change places; at either there may be nothing. Twice undoes it."""
    if not os.path.lexists(one):
        if os.path.lexists(other):
            os.rename(other, one)
        return
    try:
        _rename_free(one, other)
    except FileExistsError:
        exchange(one, other)


def copy_ranges(source: str, target: int, ranges: Iterable[tuple[int, int]]) -> None:
    """Copies ranges of a file to the same places of another one, which is open.

    Raises:
        OSError: The system refuses, or the file ends before.
    """
    with open(source, "rb", buffering=0) as file:
        for start, stop in ranges:
            for place in range(start, stop, PIECE):
                piece = os.pread(file.fileno(), min(PIECE, stop - place), place)
                if os.pwrite(target, piece, place) < min(PIECE, stop - place):
                    raise OSError(errno.EIO, os.strerror(errno.EIO), source)


def need_space(folder: str, size: int) -> None:
    """Checks that a folder's disk has room for so many bytes.

    Raises:
        OSError: It has not.
    """
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if free < size:
        raise OSError(errno.ENOSPC, f"{size:,} bytes are needed, {free:,} are free", folder)


def sync_path(path: str) -> None:
    """Brings a file, or the entries of a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(path: str) -> None:
    """Brings a file, or a folder and all that is in it, to the disk."""
    if os.path.isdir(path):
        for name in os.listdir(path):
            sync_tree(os.path.join(path, name))
    sync_path(path)


@contextmanager
def held_signals() -> Iterator[list[int]]:
    """Lets signals that ask this process to end wait until the block is over; gives those that do.

    In another thread than the main one nothing is to be done: Python interrupts that one alone.
    """
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield waiting
        return
    handlers: dict[signal.Signals, Any] = {}
    try:
        for ending in ENDING:
            handler = signal.getsignal(ending)
            if handler is not None:  # one that was not set by Python could not be set again
                handlers[ending] = handler
                signal.signal(ending, lambda number, frame: waiting.append(number))
        yield waiting
    finally:
        for ending, handler in handlers.items():
            signal.signal(ending, handler)
        for number in waiting:
            signal.raise_signal(number)
