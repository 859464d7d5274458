"""Opens packs of which all is taken over: nothing that is lost or altered goes on unnoticed."""

from __future__ import annotations

import os

from fastconv.loaders.files import unreadable
from fastconv.loaders.identity import digest_of
from fastconv.loaders.index import index_path
from fastconv.loaders.open import open_pack
from fastconv.loaders.reader import NOTHING, Reader, Wanted
from fastconv.loaders.sample import BadFile

__all__ = ["open_whole", "state_of"]


def open_whole(
    path: str | os.PathLike[str], format: str | None = None, wanted: Wanted = NOTHING
) -> Reader:
    """Returns an opened pack whose sample table is the one that was made, held in memory: it stays
    whatever becomes of its file.

    A pack of fastconv that has lost its table is among its own bad records: shards and samples may
    be lost as well.

    Args:
        path, format, wanted: As for `fastconv.loaders.open.open_pack`.

    Raises:
        CorruptPackError: The table is damaged.
        PackError: It cannot be read.
    """
    reader = open_pack(path, format, wanted)
    if reader.root:
        return reader
    reader.table = reader.table.in_memory()
    reader.check_table()
    if reader.lost_table:
        name = os.path.basename(index_path(reader.path))
        words = f"{reader.lost_table}: cannot tell whether shards, samples or classes are missing"
        reader.bad.insert(0, BadFile(name, "lost_table", words))
    return reader


def state_of(reader: Reader) -> str:
    """Returns what changes when a pack is changed: its id; of one without an id, a hash over which
    files it has, their sizes and when they were written to last.

    Raises:
        PackError: The system does not let us look.
    """
    if reader.meta.id:
        return reader.meta.id
    path = reader.path
    try:
        files = sorted(entry.path for entry in os.scandir(path)) if os.path.isdir(path) else [path]
        stats = [(file, os.stat(file)) for file in files]
    except OSError as error:
        raise unreadable(path, error) from error
    told = [(file, stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in stats]
    return digest_of(repr(told), {})
