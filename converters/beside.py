"""What the writers share whose sample table lies beside the data, and what else may lie there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import ClassVar

from fastconv.converters.verify import DataFile
from fastconv.converters.writer import Writer
from fastconv.loaders.beside import BesideReader
from fastconv.loaders.errors import printable
from fastconv.loaders.index import index_path
from fastconv.loaders.reader import Reader

__all__ = ["BesideWriter"]


class BesideWriter(Writer):
    """Writes a folder of shards, or one file, with the sample table beside.

    Attributes:
        every: What other programs read all of in a folder.
    """

    sharded = True
    own_files = ("index.safetensors",)
    every: ClassVar[str]

    @classmethod
    def problems(cls, reader: Reader) -> Iterable[tuple[str, str]]:
        if not isinstance(reader, BesideReader):
            return ()
        return foreign_shards(reader, cls.every) if reader.meta.id else lost_table(reader)


def foreign_shards(reader: BesideReader, every: str) -> Iterator[tuple[str, str]]:
    """Yields which data files in a folder of shards are not the pack's."""
    if not os.path.isdir(reader.path):
        return
    own = {shard.name for shard in reader.meta.shards}
    for name in reader.shard_names(reader.path):
        if name not in own:
            yield (
                name,
                f"{printable(name)} is no shard of this pack, but programs that read every {every} "
                "in the folder take it for one: move it away",
            )


def lost_table(reader: BesideReader) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with data files that fastconv made, and that are there without a
    table."""
    stamps = []
    for path in reader.files:
        with DataFile(path) as file:
            start, stop, _ = reader.stamped.indices(os.path.getsize(path))
            stamps.append(reader.stamp_in(file.read(start, stop)))
    first = next(filter(None, stamps), None)
    if first is None:
        return
    index = index_path(reader.path)
    yield (
        os.path.basename(index),
        f"cannot tell whether shards or samples are missing: {reader.lost_table}",
    )
    for path, stamp in zip(reader.files, stamps, strict=True):
        if stamp != first:
            yield os.path.basename(path), "not of the same pack as the other shards"
