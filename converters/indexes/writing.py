"""Writes the index files of a pack that is there already."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fastconv.converters.indexes.kinds import (
    MAKERS,
    check_tools,
    index_files,
    missing,
    write_files,
    wrong,
)
from fastconv.converters.indexes.pack import IndexedPack
from fastconv.converters.outputs import refuse_index
from fastconv.converters.packing import translated_errors
from fastconv.converters.report import Report
from fastconv.converters.system import sync_path, sync_tree
from fastconv.converters.target import Target
from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.open import open_pack

__all__ = ["IndexReport", "write_indexes"]

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport(Report):
    """What indexing did.

    Attributes:
        output: The pack's path.
        format: Name of its format.
        tools: For which tools.
        files: Names of the index files, relative to the folder where the pack's data files lie.
        written: Those of them that were written; the others were there.
        size: Of all index files together, in bytes.
    """

    output: str
    format: str
    tools: Sequence[str]
    files: Sequence[str]
    written: Sequence[str]
    size: int

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """All went well."""
        return "done"


def write_indexes(
    pack: str | os.PathLike[str],
    tools: Sequence[str] = (),
    *,
    format: str | None = None,
    overwrite: bool = False,
    notice: Notice | None = None,
) -> IndexReport:
    """Writes the index files of a pack for other tools, and returns what was done.

    Each file appears whole. While they are written, nothing else packs to the same place.

    Args:
        pack: A pack that fastconv made.
        tools: Such as "dali", besides those whose index files the format has anyway.
        format: Name of the pack's format; by default its contents tell it.
        overwrite: Replaces files that are there and are not the index of this pack, unless they
            may be that of another one beside it.
        notice: Called with each line that a user should see at once.

    Raises:
        UsageError: There is no such index for this pack, or other files are in the way.
        FastconvError: Something failed; each file that was written is whole.
    """
    began = time.monotonic()
    path = os.fsdecode(pack).rstrip("/") or "/"
    indexed, wanted = opened(path, tools, format)
    with translated_errors(path):
        target = Target(os.path.abspath(path), notice or (lambda line: None))
        try:
            if os.path.lexists(target.path("plan")):
                target.keep()
                raise UsageError(
                    f"{printable(target.partial)}: holds an unfinished run of packing: finish that "
                    "by its own command, or remove it"
                )
            target.start_over()
            indexed, wanted = opened(path, tools, format)  # it may be another one by now
            files = index_files(indexed, wanted)
            others = wrong(indexed.folder, files)
            for name in others:
                refuse_index(os.path.join(indexed.folder, name), path, overwrite)
            written = [*missing(indexed.folder, files), *others]
            made = target.path("index")
            write_files(made, {name: files[name] for name in written})
            move(made, indexed.folder, written)
        finally:
            target.discard()
    meta = indexed.meta
    return IndexReport(
        output=path,
        format=meta.format,
        tools=wanted,
        files=list(files),
        written=written,
        size=sum(os.path.getsize(os.path.join(indexed.folder, name)) for name in files),
        samples=meta.samples,
        classes=meta.classes,
        fields=meta.fields,
        bytes=indexed.table.bytes,
        seconds=time.monotonic() - began,
    )


def opened(
    path: str, tools: Sequence[str], format: str | None
) -> tuple[IndexedPack, tuple[str, ...]]:
    """Returns the pack at a path, and the tools whose index files it is to have.

    Raises:
        UsageError: There is no such index for this pack.
        PackError: It cannot be read.
    """
    reader = open_pack(path, format)
    if reader.root:
        raise UsageError(
            f"{printable(path)}: a folder of images, not a pack: pack it first (fastconv pack)"
        )
    if not reader.meta.id:
        raise UsageError(
            f"{printable(path)}: has no sample table of fastconv's: make a pack of it first "
            "(fastconv convert)"
        )
    title = WRITERS.load(reader.meta.format).title
    wanted = check_tools(tools, reader.meta.format, title, alone=not os.path.isdir(path))
    if not wanted:
        has_some = reader.meta.format in MAKERS
        words = "name the tools that are to read it, such as --for dali"
        raise UsageError(
            f"{printable(path)}: {words if has_some else f'{title} has no index files'}"
        )
    return IndexedPack.at(path, reader.meta, reader.table), wanted


def move(source: str, folder: str, names: Iterable[str]) -> None:
    """Moves files into a folder, when their bytes are on the disk."""
    if not os.path.isdir(source):
        return
    sync_tree(source)
    folders = {folder}
    for name in names:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(os.path.join(source, name), path)
        folders.add(os.path.dirname(path))
    for each in folders:
        sync_path(each)
