"""Opens a pack without PyTorch: path -> format -> Reader."""

from __future__ import annotations

import os

from fastconv.loaders.errors import NotAPackError, PackError, PackNotFoundError, printable
from fastconv.loaders.files import unreadable
from fastconv.loaders.reader import READERS, Reader

__all__ = ["find_format", "open_pack", "require_path"]


def require_path(path: str) -> None:
    """Checks that something lies at a path.

    Raises:
        PackNotFoundError: There is nothing, or a link to nothing.
        PackError: The system does not let us look.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PackNotFoundError(f"{printable(path)}: no such file or folder") from error
    except OSError as error:
        raise unreadable(path, error) from error


def find_format(path: str | os.PathLike[str]) -> type[Reader]:
    """Returns the class that reads what lies at the path, told by its contents.

    Raises:
        PackNotFoundError: There is nothing at the path.
        NotAPackError: No installed format recognises it.
        PackError: The system does not let us look at it, or it is a pipe, socket or device.
    """
    name = os.fsdecode(path)
    require_path(name)
    problem = None
    for reader in READERS.installed():
        try:
            if reader.recognises(name):
                return reader
        except PackError as error:
            problem = problem or error
    if problem is not None:
        raise problem
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
    require_path(name)
    return READERS.load(format).open(name)
