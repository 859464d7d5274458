"""Reads Parquet files: our own through their sample table, those of others through `pyarrow`.

Our own packs bring a sample table (`fastconv.loaders.index`), which is believed when it fits its
data: every file is as long as it says and has the pack's id in its footer. All others are read as
Hugging Face `datasets`, pandas and others write them: a column of images, one of labels, columns of
text. Where the images are stored as they are, neither compressed nor encoded, they are found once
and read through our own map as those of any pack; else `pyarrow` decodes the row groups that they
are in.
"""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from fastconv.loaders.beside import BesideReader, being_replaced, names_in, open_beside
from fastconv.loaders.errors import (
    FastconvError,
    NotAPackError,
    PackChangedError,
    UsageError,
    printable,
)
from fastconv.loaders.files import first_bytes
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.parquet_columns import (
    Columns,
    ParquetFile,
    Rows,
    arrow_errors,
    read_rows,
    words_of,
)
from fastconv.loaders.reader import Reader, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParquetReader"]

MAGIC: Final = b"PAR1"
CREATED_BY: Final = b"fastconv version 1"
"""Who has written a file, as its footer says it: the version is that of the layout."""
KEY: Final = b"fastconv"
"""What the footer keeps the first digits of the pack's id under."""
STAMP: Final = re.compile(rb"\x18\x08%b\x18\x1f([0-9a-f]{31})\x00\x18\x12%b" % (KEY, CREATED_BY))
"""Both, as they follow each other at the footer's end."""
DATA: Final = (".tar", ".tfrecord", ".rec", ".mdb")
"""Endings of files beside which tools keep Parquet files that hold something else, such as URLs."""
SHARD: Final = re.compile(r"(.*)-\d+-of-\d+\b")
"""The name of a file among others of its set."""
TAIL: Final = 4096
"""Bytes at the end of a file that hold the stamp; behind it are three for each column."""


class ParquetPack(Reader):
    """A Parquet file, or a folder of them."""

    name = "parquet"
    title = "Parquet"
    suffixes = (".parquet",)
    dataset = "ParquetDataset"

    @classmethod
    def recognises(cls, path: str) -> bool:
        return holds_parquet(path) and not any(name.endswith(DATA) for name in names_in(path))

    @classmethod
    def open(cls, path: str) -> Reader:
        return cls.open_columns(path)

    @classmethod
    def open_with(cls, path: str, wanted: Wanted) -> Reader:
        return cls.open_columns(path, wanted.image_key, wanted.label_key)

    @classmethod
    def open_columns(
        cls, path: str, image_key: str | None = None, label_key: str | None = None
    ) -> Reader:
        """Returns the opened pack; the sample table knows its own columns, so it is not asked
        where some are named.

        Args:
            path: The pack.
            image_key, label_key: Names of the columns that hold images and labels; by default the
                likeliest.

        Raises:
            UsageError: There are no such columns.
            MissingDependencyError: They must be read with `pyarrow`, which is not installed.
            PackError: As from `open`.
        """
        named = image_key is not None or label_key is not None
        scan = partial(scanned, image_key=image_key, label_key=label_key)
        return open_beside(ParquetReader, path, scan, ask=not named)


class ParquetReader(ParquetPack, BesideReader):
    """Reads files whose values lie there as they are: all of our own, and some of others."""

    stamped = slice(-TAIL, None)
    read_instead = "columns"
    unknown = "checksums are unknown"

    @staticmethod
    def stamp_in(data: bytes) -> bytes:
        found = STAMP.search(data)
        return found[1] if found else b""


class DecodedReader(ParquetPack):
    """Reads files in which not all values lie as they are: those that do through maps, of others
    the row group that each thread has read last is kept, decoded.

    Args:
        stored: The pack as if they all did.
        rows: Its rows.
        columns: What its fields are.
    """

    def __init__(self, stored: ParquetReader, rows: Rows, columns: Columns) -> None:
        super().__init__(stored.path, stored.meta, stored.table)
        self._stored = stored
        self._rows = rows
        self._leaves = columns.leaves
        self._firsts = [group.first for group in rows.groups]
        self._kept = threading.local()
        if not rows.plain[0]:
            self.notices.append(
                "its images are compressed or encoded once more, so that whole row groups are "
                "decoded to read one: convert it (fastconv convert) before training on it"
            )

    def check(self, rows: Sequence[int]) -> None:
        self._stored.check(rows)

    def hint(self, rows: npt.NDArray[np.int64], slots: Sequence[int] = (0,)) -> None:
        plain = [slot for slot in slots if self._rows.plain[slot]]
        if plain:
            self._stored.hint(rows, plain)

    def load(self, row: int, slot: int = 0) -> bytes | None:
        return self._stored.load(row, slot) if self._rows.plain[slot] else super().load(row, slot)

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        if self._rows.plain[slot]:
            return self._stored.read(row, slot)
        size = self.table.size[slot].item(row)
        if size < 0:
            return None
        number = self._rows.number.item(row)
        group = bisect_right(self._firsts, number) - 1
        try:
            value = self._column(group, slot)[number - self._firsts[group]]
            return memoryview(value.as_buffer()).toreadonly() if size else memoryview(b"")
        except FastconvError:
            raise
        except arrow_errors() as error:
            words = f"its row group is damaged: {words_of(error)}"
            raise self.bad_sample(row, words, "bad_record", slot) from error

    def _column(self, number: int, slot: int) -> pa.ChunkedArray:
        """Returns a field's column in a row group, decoded."""
        group, kept = self._rows.groups[number], self._kept.__dict__
        if kept.get("file") != group.file:
            opened = ParquetFile.of(self._stored.files[group.file])
            if (opened.file.inode, opened.file.mtime) != self._rows.files[group.file][:2]:
                raise PackChangedError(
                    f"{printable(opened.file.path)}: was replaced since it was opened: open the "
                    "pack again"
                )
            kept.clear()
            kept |= {"file": group.file, "opened": opened}
        if kept.get("group") != number:
            kept |= {"group": number, "columns": {}}
        columns = kept["columns"]
        if slot not in columns:
            columns[slot] = kept["opened"].column(group.number, self._leaves[slot])
        found: pa.ChunkedArray = columns[slot]
        return found


def scanned(
    path: str, files: Sequence[str], image_key: str | None, label_key: str | None
) -> ParquetReader | DecodedReader:
    """Returns the pack as its columns tell it.

    Raises:
        NotAPackError: It is none.
        UsageError: It has no column of images, or is several sets of files.
        CorruptPackError: A file is damaged, or cut short.
        PackChangedError: One was replaced meanwhile.
        MissingDependencyError: There is no `pyarrow`.
        PackError: The system does not let us read one.
    """
    if not holds_parquet(path):
        raise NotAPackError(f"{printable(path)}: not a Parquet file, nor a folder of them")
    if os.path.isdir(path):
        refuse_several_sets(path, [os.path.basename(file) for file in files])
    rows, columns = read_rows(path, files, image_key, label_key)
    meta = PackMeta(
        format=ParquetPack.name, id="", samples=len(rows.table), fields=columns.fields,
        labels=rows.labels, classes=rows.classes,
        shards=tuple(
            Shard(os.path.basename(file), size)
            for file, (*_, size) in zip(files, rows.files, strict=True)
        ),
    )  # fmt: skip
    stored = ParquetReader(path, meta, rows.table, files)
    now = [(found.inode, found.mtime) for found in stored.found]
    if now != [(file.inode, file.mtime) for file in rows.files]:
        raise being_replaced(path)
    reader = stored if all(rows.plain) else DecodedReader(stored, rows, columns)
    reader.bad = rows.bad
    reader.notices += [*columns.notices, *rows.notices]
    return reader


def holds_parquet(path: str) -> bool:
    """Returns whether a path is a Parquet file, or a folder with some.

    Raises:
        PackError: The system does not let us look.
    """
    if os.path.isdir(path):
        return bool(ParquetReader.shard_names(path))
    return first_bytes(path, 4) == MAGIC


def refuse_several_sets(folder: str, names: Sequence[str]) -> None:
    """Refuses to read several sets of shards as one, such as those for training and for testing.

    Raises:
        UsageError: There are several.
    """
    sets = sorted({found[1] for name in names if (found := SHARD.match(name))})
    if len(sets) > 1:
        raise UsageError(
            f"{printable(folder)}: holds the files of several data sets "
            f"({printable(', '.join(sets))}): move each of them into a folder of its own"
        )
