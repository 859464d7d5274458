"""A folder of images as it is, read file by file: what packs are compared with.

The list is stored nowhere, so whoever opens a folder walks through it: the main process, and each
worker that does not inherit the opened one (start methods spawn and forkserver).
"""

from __future__ import annotations

import os
from typing import ClassVar, Final, Self

import numpy as np

from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import NotAPackError, PackError, SampleError, UsageError, printable
from fastconv.loaders.filenames import is_hidden
from fastconv.loaders.files import read_file, unreadable
from fastconv.loaders.identity import digest_of
from fastconv.loaders.listing import Listing, WalkOptions
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.reader import NOTHING, Reader, Wanted
from fastconv.loaders.sample import IMAGE, Reason
from fastconv.loaders.table import SampleTable
from fastconv.loaders.walk import holds_image, walk_folder

__all__ = ["FolderReader"]

PACKS: Final = ("data.mdb", "index.safetensors")
"""Files of which a folder is a pack, whatever else it holds."""


class FolderReader(Reader):
    """Reads the files of a folder by ImageFolder's rules."""

    name: ClassVar[str] = "folder"
    title: ClassVar[str] = "raw folder"
    dataset: ClassVar[str] = "ImageFolderDataset"

    def __init__(self, path: str, listing: Listing) -> None:
        count = len(listing)
        table = SampleTable(
            fields=listing.fields,
            label=listing.label,
            kind=listing.kind,
            width=np.zeros(count, np.uint32),
            height=np.zeros(count, np.uint32),
            path_bytes=listing.path_bytes,
            path_offset=listing.path_offset,
            shard_row=np.array([0, count], np.int64),
            offset=tuple(np.zeros(count, np.uint64) for _ in listing.fields),
            size=listing.size,
        )
        meta = PackMeta(
            format=self.name,
            id=_id_of(listing),
            samples=count,
            fields=listing.fields,
            labels=listing.labels,
            classes=listing.classes,
        )
        super().__init__(path, meta, table)
        self.root = path
        self.no_checksums = "a folder of images keeps none: pack it"
        self.notices += listing.warnings + listing.notices
        self.bad += listing.bad

    @classmethod
    def recognises(cls, path: str) -> bool:
        try:
            names = os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(path, error) from error
        packs = (name for name in names if name in PACKS or name.endswith(".tar"))
        return all(map(is_hidden, packs)) and holds_image(path)

    @classmethod
    def open(cls, path: str) -> Self:
        return cls.open_with(path, NOTHING)

    @classmethod
    def open_with(cls, path: str, wanted: Wanted) -> Self:
        wanted.refuse_keys(cls.title)
        if not os.path.isdir(path):
            raise NotAPackError(f"{printable(path)}: not a folder of images")
        if not os.access(path, os.R_OK | os.X_OK):
            raise PackError(f"{printable(path)}: no permission to read this folder")
        sidecars = tuple(name for name in wanted.fields if name != IMAGE)
        try:
            options = WalkOptions(sidecars=sidecars)
        except UsageError as error:
            raise UsageError(f"{printable(path)}: has no such field: {error}") from None
        listing = walk_folder(path, options)
        if not len(listing):
            raise NotAPackError(f"{printable(path)}: holds no images")
        for name, size in zip(listing.fields, listing.size, strict=True):
            if (size < 0).all():
                raise UsageError(
                    f"{printable(path)}: has no field {name!r}: "
                    "no image has a file of that ending beside it"
                )
        return cls(path, listing)

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        data = self.load(row, slot)
        return None if data is None else memoryview(data)

    def load(self, row: int, slot: int = 0) -> bytes | None:
        table = self.table
        if slot and table.size[slot].item(row) < 0:
            return None
        path = table.names(row)[slot] if slot else table.path(row)
        file = os.path.join(self.root, path)
        try:
            return read_file(file)
        except OSError as error:
            why, reason = _explain(file, error)
            beside = f": {printable(path)}" if slot else ""
            raise SampleError(f"{self.where(row)}{beside}: {why}", reason) from error


def _explain(file: str, error: OSError) -> tuple[str, Reason]:
    """Returns why a file cannot be read, as a sentence and as a word."""
    if os.path.islink(file) and not os.path.exists(file):
        return "the link's target is gone", "dangling_symlink"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return "went away since the folder was listed", "vanished"
    if not os.path.isfile(file):
        return "is a folder, pipe, socket or device now", "not_a_regular_file"
    return f"cannot be read: {error.strerror or error}", "unreadable"


def _id_of(listing: Listing) -> str:
    """Returns a hash over which sample has which number and label: 32 hexadecimal digits."""
    columns: dict[str, Array] = {
        "path_offset": listing.path_offset,
        "path": listing.path_bytes,
        "label": listing.label,
    }
    return digest_of("", columns)
