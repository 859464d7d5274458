"""Opens a pack without PyTorch: path -> format -> Reader."""

from __future__ import annotations

import os

from fastconv.loaders.errors import NotAPackError, PackNotFoundError, printable
from fastconv.loaders.reader import READERS, Reader

__all__ = ["find_format", "open_pack"]


def find_format(path: str | os.PathLike[str]) -> type[Reader]:
    """Returns the class that reads what lies at the path, told by its contents.

    Raises:
        PackNotFoundError: There is nothing at the path.
        NotAPackError: No installed format recognises it.
    """
    name = os.fsdecode(path)
    if not os.path.lexists(name):
        raise PackNotFoundError(f"{printable(name)}: no such file or folder")
    for reader in READERS.installed():
        if reader.recognises(name):
            return reader
    raise NotAPackError(
        f"{printable(name)}: not a pack that fastconv can read (formats: "
        f"{', '.join(READERS.names())})"
    )


def open_pack(path: str | os.PathLike[str], format: str | None = None) -> Reader:
    """Returns the opened pack at the path.

    Args:
        path: A pack, or a folder of images.
        format: Name of its format; by default it is told by its contents.

    Raises:
        UsageError: There is no format of that name.
        PackError: It cannot be read.
    """
    name = os.fsdecode(path)
    if format is None:
        return find_format(name).open(name)
    if not os.path.lexists(name):
        raise PackNotFoundError(f"{printable(name)}: no such file or folder")
    return READERS.load(format).open(name)
