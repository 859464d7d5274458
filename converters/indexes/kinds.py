"""Which index files there are, which of them a pack has, and whether they are right.

An index file follows from a pack's description, its sample table and the names of its data files:
it can be made again at any time, to the byte. So nothing says which ones a pack has but that they
are there: those of tools that were asked for, and those that the format has anyway.

One more tool is one more entry in `MAKERS`: functions that return the names of the files, relative
to the folder where the data files lie, and the bytes of each, which are made as they are taken.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final

import numpy as np

from fastconv.converters.indexes import records, tars
from fastconv.converters.indexes.pack import Files, IndexedPack
from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.files import read_file, unreadable
from fastconv.loaders.names import several

__all__ = [
    "ALWAYS",
    "MAKERS",
    "SETTINGS",
    "check_tools",
    "every_index",
    "index_files",
    "is_file",
    "missing",
    "names_below",
    "resembles",
    "strays",
    "tools_of",
    "with_settings",
    "write_files",
    "wrong",
]

Maker = Callable[[IndexedPack], Files]

SETTINGS: Final = tars.SETTINGS
"""Names of files that people are to change: once they are there, they are right."""

MAKERS: Final[Mapping[str, Mapping[str, Sequence[Maker]]]] = {
    "webdataset": {
        "dali": [tars.dali], "energon": [tars.energon], "timm": [tars.timm], "wids": [tars.wids],
    },
    "tfrecord": {"dali": [records.tfrecord_index], "tfrecord": [records.tfrecord_index]},
    "recordio": {
        "dali": [records.joint_index],
        "mxnet": [records.recordio_index, records.recordio_list],
    },
}  # fmt: skip
"""Format -> tool -> what makes its index files."""

ALWAYS: Final[Mapping[str, tuple[str, ...]]] = {"tfrecord": ("tfrecord",), "recordio": ("mxnet",)}
"""Format -> the tools whose index files each of its packs has."""


def check_tools(
    tools: Iterable[str], format: str, title: str, *, alone: bool = False
) -> tuple[str, ...]:
    """Returns the tools whose index files a pack is to have: those asked for, after the format's
    own.

    Args:
        tools: They.
        format, title: Name of the pack's format, and as people write it.
        alone: Whether the pack is a single file.

    Raises:
        UsageError: There is no such index for a pack like this.
    """
    makers = MAKERS.get(format, {})
    tools = several("index_for", tools)
    for tool in tools:
        if tool not in makers:
            have = f"index files for {', '.join(makers)}" if makers else "no index files"
            known = [WRITERS.load(name).title for name in MAKERS if tool in MAKERS[name]]
            reads = f": it reads {', '.join(known)}" if known else ""
            raise UsageError(f"{title} has {have}, none for {printable(tool)}{reads}")
        if alone and needs_folder(makers[tool]):
            raise UsageError(
                f"{tool} reads a folder of shards, not a single file: name a folder with "
                f"--format {format}"
            )
    return tuple(dict.fromkeys([*ALWAYS.get(format, ()), *tools]))


def needs_folder(makers: Iterable[Maker]) -> bool:
    """Returns whether what they make lies in a folder that is the pack's alone."""
    return any(maker in tars.FOLDERS for maker in makers)


def index_files(pack: IndexedPack, tools: Iterable[str]) -> Files:
    """Returns the index files for some tools, which `check_tools` knows."""
    makers = (maker for tool in tools for maker in MAKERS[pack.meta.format][tool])
    return {name: make for maker in makers for name, make in maker(pack).items()}


def every_index(pack: IndexedPack) -> Files:
    """Returns all index files that a pack may have."""
    return {name: make for files in possible(pack).values() for name, make in files.items()}


def tools_of(pack: IndexedPack) -> tuple[str, ...]:
    """Returns the tools whose index files a pack has: those of its format, and those of which at
    least one file is there.

    What lies beside a single file may be another pack's: it counts where it is right to the byte.
    """
    found = list(ALWAYS.get(pack.meta.format, ()))
    for tool, files in possible(pack).items():
        absent = missing(pack.folder, files)
        if not (absent or wrong(pack.folder, files) if pack.alone else len(absent) == len(files)):
            found.append(tool)
    return tuple(dict.fromkeys(found))


def possible(pack: IndexedPack) -> dict[str, Files]:
    """Returns for each tool the index files that a pack may have."""
    tools = MAKERS.get(pack.meta.format, {}).items()
    return {
        tool: index_files(pack, [tool])
        for tool, makers in tools
        if not (pack.alone and needs_folder(makers))
    }


def missing(folder: str, files: Files) -> list[str]:
    """Returns which index files are not in a folder."""
    return [name for name in files if not os.path.lexists(os.path.join(folder, name))]


def wrong(folder: str, files: Files) -> list[str]:
    """Returns which index files in a folder are not what they should be.

    Raises:
        PackError: The system does not let us read one.
    """
    there = set(files).difference(missing(folder, files), SETTINGS)
    return [
        name
        for name, make in files.items()
        if name in there and not same_bytes(os.path.join(folder, name), make())
    ]


def opened(path: str) -> BinaryIO:
    """Returns a file, to be read.

    Raises:
        PackError: The system does not let us.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise unreadable(path, error) from error


def same_bytes(path: str, pieces: Iterable[bytes]) -> bool:
    """Returns whether a path is a file with exactly these bytes."""
    if not os.path.isfile(path):
        return False
    with opened(path) as file:
        return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)


def is_file(path: str) -> bool:
    """Returns whether a path is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def resembles(path: str, pieces: Iterable[bytes | memoryview]) -> bool:
    """Returns whether a path is what is left of a file with these bytes: a file, no link, at least
    half of whose bytes are theirs or zero."""
    if not is_file(path):
        return False
    right = 0
    with opened(path) as file:
        for piece in pieces:
            should = np.frombuffer(piece, np.uint8)
            there = np.frombuffer(file.read(len(should)), np.uint8)
            right += int(np.count_nonzero((there == should[: len(there)]) | (there == 0)))
        return 2 * right >= os.fstat(file.fileno()).st_size


def strays(pack: IndexedPack, tools: Sequence[str]) -> dict[str, str]:
    """Returns the names of what lies where a pack's index files for other tools would, and is that
    of another pack, by its first bytes; and for each the tool that would take it for the pack's.

    Args:
        pack: A single file. What lies in a folder of shards is the pack's.
        tools: Those whose index files it has.
    """
    own = index_files(pack, tools)
    return {
        name: tool
        for tool, files in possible(pack).items()
        for name, make in files.items()
        if name not in own and begins_like(os.path.join(pack.folder, name), make())
    }


def begins_like(path: str, pieces: Iterable[bytes]) -> bool:
    """Returns whether a path is a file that begins with these bytes, but for other numbers."""
    if not is_file(path):
        return False
    should = next(iter(pieces))[:64].translate(None, b"0123456789")[:16]
    with opened(path) as file:
        return file.read(64).translate(None, b"0123456789").startswith(should)


def with_settings(files: Files, folder: str) -> Files:
    """Returns index files of which those that people may have changed are as they are in a
    folder."""
    own = {name: os.path.join(folder, name) for name in files if name in SETTINGS}
    return {
        **files,
        **{n: partial(contents, path) for n, path in own.items() if os.path.isfile(path)},
    }


def contents(path: str) -> list[bytes]:
    """Returns the bytes of a file."""
    return [read_file(path)]


def names_below(folder: str) -> list[str]:
    """Returns the names of all files below a folder, relative to it, and of its empty folders."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            inside = names_below(entry.path) if entry.is_dir(follow_symlinks=False) else []
            names += [f"{entry.name}/{name}" for name in inside] or [entry.name]
    return names


def write_files(folder: str, files: Files) -> None:
    """Writes index files into a folder."""
    for name, make in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.writelines(make())
