"""Small file systems of one's own, and what goes wrong with them."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["ext4_image", "mounted", "mounts_or_skip", "pull_the_plug", "unmount"]

EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
"""Nothing more comes to the disk, not even what is in the journal."""


def call(*command: str | Path) -> None:
    """Runs a program; what it says is part of the error where it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


def mounts_or_skip(folder: Path, *, ext4: bool) -> None:
    """Skips where nothing can be mounted.

    Args:
        folder: A new one.
        ext4: Whether an image with ext4 is to be mounted too.
    """
    if os.geteuid():
        pytest.skip("only root may mount file systems")
    if ext4 and shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed (e2fsprogs)")
    try:
        with mounted(folder / "tmpfs", "-t", "tmpfs", "tmpfs"):
            pass
        if ext4:
            with mounted(folder / "ext4", "-o", "loop", ext4_image(folder / "image")):
                pass
    except OSError as error:
        pytest.skip(f"file systems cannot be mounted here: {error}")


def ext4_image(path: Path, megabytes: int = 16) -> Path:
    """Makes a file with an empty ext4, and returns its path."""
    with open(path, "wb") as file:
        file.truncate(megabytes << 20)
    call("mkfs.ext4", "-q", "-F", "-m", "0", path)
    return path


@contextmanager
def mounted(place: Path, *what: str | Path) -> Iterator[Path]:
    """Mounts something at a place, which is made where it is not there; gives the place."""
    place.mkdir(exist_ok=True)
    call("mount", *what, place)
    try:
        yield place
    finally:
        if is_mounted(place):
            unmount(place)


def is_mounted(place: Path) -> bool:
    """Returns whether something is mounted at a place; a file system that is dead counts too."""
    lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    return str(place) in (line.split(" ")[4] for line in lines)


def unmount(place: Path, *, lazily: bool = False) -> None:
    """Unmounts what is at a place; `lazily`: although it is used."""
    try:
        call("umount", *(["-l"] if lazily else []), place)
    except OSError:
        if not lazily:
            call("umount", "-l", place)  # whatever happens, nothing may stay
        raise


def pull_the_plug(place: Path) -> None:
    """Ends all writing to an ext4, as a power cut does; what is in no journal is lost."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    finally:
        os.close(fd)
