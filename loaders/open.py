"""Opens a pack without PyTorch: path -> format -> Reader.

A pack may be replaced while it is opened, and some are more than one file. Who opens one then gets
the one or the other, never parts of both: formats raise an error where the parts do not fit, and
the attempt is made again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic, sleep
from typing import Final, TypeVar

from fastconv.loaders.arrays import load_object
from fastconv.loaders.beside import called_like_packs, holds_packs, names_in
from fastconv.loaders.classes import some_of
from fastconv.loaders.compressed import refuse_compressed
from fastconv.loaders.errors import (
    NotAPackError,
    PackChangedError,
    PackError,
    PackNotFoundError,
    UsageError,
    printable,
)
from fastconv.loaders.files import first_bytes, inode_at, unreadable
from fastconv.loaders.index import index_path
from fastconv.loaders.names import is_name
from fastconv.loaders.reader import NOTHING, READERS, Reader, Wanted

__all__ = [
    "PACKS_FILE",
    "find_format",
    "open_pack",
    "packs_in",
    "path_of",
    "require_path",
    "retried",
]

PATIENCE_S: Final = 10.0
"""How long a pack may be in the middle of being replaced; moving its files takes microseconds,
unless the process that does it has to wait."""

PAUSE_S: Final = 2e-3
"""Between two attempts."""

PACKS_FILE: Final = "packs.json"
"""In a folder of several packs that were made at once: their names, as `packs`."""

PATTERN: Final = re.compile(r"[*?]|\[.+\]|\{.+(?:,|\.\.).+\}")
"""What stands in a pattern of several files, as shells and other readers expand it."""

RANGE: Final = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")
"""The part of a pattern that stands for numbers."""

MOST_FILES: Final = 10_000
"""Files of a pattern that are looked for."""

FIRST_BYTES: Final = 16
"""Of a file, which say whether it is compressed."""

UNFINISHED: Final = ".partial"
"""Behind the name of a pack that is being made: the folder where that is done."""

T = TypeVar("T")


def path_of(path: str | os.PathLike[str]) -> str:
    """Returns the path of a pack as text.

    Raises:
        UsageError: It is something else.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise UsageError(f"the path of a pack is text, not {type(path).__name__}") from None
    if not is_name(name):
        raise UsageError(f"the path of a pack cannot be {printable(name)!r}")
    return name


def require_path(path: str) -> None:
    """Checks that something lies at a path.

    Raises:
        PackNotFoundError: There is nothing, or a link to nothing.
        PackError: The system does not let us look.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        words = f"no such file or folder{words_of_pattern(path)}"
        unfinished = path.rstrip("/") + UNFINISHED
        if os.path.isdir(unfinished):
            words += (
                f", but {printable(unfinished)} holds an unfinished run: the command that began it "
                "goes on with it"
            )
        raise PackNotFoundError(f"{printable(path)}: {words}") from error
    except OSError as error:
        raise unreadable(path, error) from error


def words_of_pattern(path: str) -> str:
    """Returns what to add about a path that lies nowhere: where it is a pattern of several files,
    what to name instead, and which of them are missing."""
    if not PATTERN.search(path):
        return ""
    words = (
        f": patterns are not expanded, name the folder {printable(os.path.dirname(path) or '.')}"
    )
    names = list(islice(files_of_pattern(path), MOST_FILES))
    lost = [name for name in names if not os.path.exists(name)]
    if 0 < len(lost) < len(names):
        words += f" (missing in it: {some_of([os.path.basename(name) for name in lost])})"
    return words


def files_of_pattern(pattern: str) -> Iterator[str]:
    """Yields the files that a pattern such as `data-{000..012}.tar` names."""
    found = RANGE.search(pattern)
    if found is None:
        yield pattern
        return
    for number in range(int(found[1]), int(found[2]) + 1):
        start = f"{pattern[: found.start()]}{number:0{len(found[1])}d}"
        yield from (start + end for end in files_of_pattern(pattern[found.end() :]))


def retried(path: str, attempt: Callable[[], T]) -> T:
    """Returns what an attempt to open a pack gives; it is made again where the pack was being
    replaced meanwhile.

    Raises:
        PackChangedError: That went on for too long.
        PackError: What the attempt raised of a pack that stayed what it was.
    """
    end = monotonic() + PATIENCE_S
    while True:
        before = _standing(path)
        try:
            return attempt()
        except PackChangedError:
            if monotonic() > end:
                raise
            sleep(PAUSE_S)
        except PackError:
            if monotonic() > end or _standing(path) == before:
                raise


def _standing(path: str) -> tuple[object, ...]:
    """Returns what lies at a path and beside it. When each was renamed is part of it: the inode of
    a pack that is gone is soon that of another."""
    try:
        renamed = os.stat(path).st_ctime_ns
    except OSError:
        renamed = 0
    return inode_at(path), renamed, inode_at(index_path(path))


def find_format(path: str | os.PathLike[str]) -> type[Reader]:
    """Returns the class that reads what lies at the path, told by its contents.

    Raises:
        PackNotFoundError: There is nothing at the path.
        UsageError: It is no path.
        NotAPackError: No installed format recognises it.
        PackError: The system does not let us look at it, or it is a pipe, socket or device.
    """
    name = path_of(path)
    return retried(name, lambda: _find_format(name))


def _find_format(name: str) -> type[Reader]:
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
    if packs := packs_in(name) or called_like_packs(name):
        raise NotAPackError(holds_packs(name, packs, packs[0]))
    endings = [ending for reader in READERS.installed() for ending in reader.suffixes]
    longer = [f"{ending}." for ending in endings]  # as in data.tar.gz
    inside = (one for one in sorted(names_in(name)) if any(map(one.lower().__contains__, longer)))
    for file in [name, *(os.path.join(name, one) for one in inside)]:
        refuse_compressed(file, first_bytes(file, FIRST_BYTES))
    if name.rstrip("/").endswith(UNFINISHED) and os.path.isdir(name):
        raise NotAPackError(
            f"{printable(name)}: holds an unfinished run, and is no pack: the command that began "
            "it goes on with it"
        )
    no_images = "no images found in it, and " if os.path.isdir(name) else ""
    raise NotAPackError(
        f"{printable(name)}: {no_images}not a pack that fastconv can read (formats: "
        f"{', '.join(READERS.names())})"
    )


def packs_in(folder: str) -> list[str]:
    """Returns the names of the packs in a folder that a split of samples has made; none in any
    other."""
    try:
        with open(os.path.join(folder, PACKS_FILE), "rb") as file:
            packs = load_object(file.read())["packs"]
        names = [name for name in packs if isinstance(name, str) and "/" not in name]
        return [name for name in names if os.path.lexists(os.path.join(folder, name))]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def open_pack(
    path: str | os.PathLike[str], format: str | None = None, wanted: Wanted = NOTHING
) -> Reader:
    """Returns the opened pack at the path.

    Args:
        path: A pack, or a folder of images.
        format: Name of its format; by default it is told by its contents.
        wanted: What is asked of packs that do not say what is what in them.

    Raises:
        UsageError: There is no format of that name.
        PackError: It cannot be read.
    """
    name = path_of(path)

    def attempt() -> Reader:
        require_path(name)
        found = _find_format(name) if format is None else READERS.load(format)
        return found.open_with(name, wanted)

    return retried(name, attempt)
