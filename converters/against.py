"""Compares a pack with the folder of images that it was made from.

Both sides are matched by hashes of their paths, so that ten million files need some hundred MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.check import check_pixels
from fastconv.converters.engines.local import Task
from fastconv.converters.plan import Cut, cut_parts
from fastconv.converters.sniff import BadImage, sniff
from fastconv.converters.sources.folder import scan
from fastconv.converters.writer import Layout
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import kind_code_of_name
from fastconv.loaders.files import open_file
from fastconv.loaders.listing import Listing, WalkOptions
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.reader import Reader
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = ["Compared", "not_in_pack"]

BLOCK = 4096
"""Paths taken out of a table at once."""
HEAD = 1 << 16
"""Bytes of a file that are enough to tell its format."""


def not_in_pack(reader: Reader, source: str, decode: bool, max_pixels: int) -> list[BadFile]:
    """Returns the files of a folder that packing it now would add to the pack, or might.

    The folder is walked with the pack's own selection: its sidecars, and its rule for classes. What
    cannot be read might be an image, or a folder of them. Files that can be no samples are none.

    Args:
        reader: The pack.
        source: The folder.
        decode, max_pixels: An image that cannot be decoded is no sample.

    Raises:
        UsageError: The folder cannot be walked so.
    """
    table, meta = reader.table, reader.meta
    listing = scan(
        source,
        labels=meta.labels == "class",
        sidecars=sidecars_of(meta),
        any_extension=has_other_names(table),
    )
    files = as_table(listing)
    packed = path_hashes(table)
    there = path_hashes(files)
    order = np.argsort(packed, kind="stable")
    row = np.zeros(len(there), np.int64)
    if len(packed):
        at = np.minimum(np.searchsorted(packed, there, sorter=order), len(packed) - 1)
        row = order[at]
    known = packed[row] == there if len(packed) else np.zeros(len(there), np.bool_)
    bad = [
        BadFile(file.path, file.reason, f"cannot be compared: {file.message}")
        for file in listing.bad
        if file.reason == "unreadable"  # for other reasons it could not be packed
    ]
    paths = []
    for number in np.flatnonzero(~known).tolist():
        path = files.path(number)
        try:
            if is_image(os.path.join(source, path), decode, max_pixels):
                paths.append(path)
        except OSError as error:
            bad.append(BadFile(path, "unreadable", f"cannot be compared: {error.strerror}"))
    for slot, name in enumerate(files.fields[1:], 1):
        lacking = table.size[table.fields.index(name)][row] < 0 if len(packed) else ~known
        extra = np.flatnonzero(known & lacking & (files.size[slot] >= 0))
        paths += [files.names(number)[slot] for number in extra.tolist()]
    message = f"lies in {printable(source)}, but not in the pack"
    return [*bad, *(BadFile(path, "missing_part", message) for path in paths)]


def sidecars_of(meta: PackMeta) -> tuple[str, ...]:
    """Returns the fields that are files beside the images; other packs' fields may be none."""
    found: list[str] = []
    for name in meta.fields[1:]:
        try:
            found += WalkOptions(sidecars=() if name in meta.generated else (name,)).sidecars
        except UsageError:
            continue
    return tuple(found)


def has_other_names(table: SampleTable) -> bool:
    """Returns whether a sample's name is not that of an image: packed with `--any-extension`."""
    blocks = range(0, len(table), BLOCK)
    return any(
        not kind_code_of_name(path.rpartition("/")[2])
        for start in blocks
        for path in table.paths(start, min(start + BLOCK, len(table)))
    )


def path_hashes(table: SampleTable) -> npt.NDArray[np.uint64]:
    """Returns the hash of the path of each row, uint64 (N,)."""
    out = np.empty(len(table), np.uint64)
    for start in range(0, len(table), BLOCK):
        paths = table.paths(start, min(start + BLOCK, len(table)))
        out[start : start + BLOCK] = [xxhash.xxh3_64_intdigest(os.fsencode(path)) for path in paths]
    return out


def as_table(listing: Listing) -> SampleTable:
    """Returns a listing as a table, for the names of its fields."""
    none = np.zeros(0, np.uint32)
    return SampleTable(
        fields=listing.fields, label=listing.label, kind=listing.kind, width=none, height=none,
        path_bytes=listing.path_bytes, path_offset=listing.path_offset,
        shard_row=np.array([0, len(listing)], np.int64), offset=(), size=listing.size,
    )  # fmt: skip


def is_image(path: str, decode: bool, max_pixels: int) -> bool:
    """Returns whether a file would be packed, with or without all its pixels being looked at.

    Raises:
        OSError: It cannot be read, or is no regular file any more.
    """
    with open(open_file(path), "rb", buffering=0) as file:
        head = file.read(-1 if decode else HEAD)
        size = max(os.fstat(file.fileno()).st_size, len(head))
    try:
        kind = sniff(memoryview(head), size).kind
        if decode:
            check_pixels(head, kind, max_pixels)
    except BadImage:
        return False
    return True


class Compared:
    """A pack's files, compared with those of a folder.

    Args:
        table: The pack's rows.
        meta: What it says of itself.
        checksum: Of each field, uint64 (N,).
        source: The folder.
    """

    def __init__(
        self, table: SampleTable, meta: PackMeta, checksum: Sequence[Array], source: str
    ) -> None:
        self.table = table
        self.meta = meta
        self.checksum = checksum
        self.source = source

    def tasks(self, cuts: list[Cut]) -> Iterator[Task]:
        """Yields a task for each part; adds the parts to `cuts`."""
        table, generated = self.table, self.meta.generated
        layout = Layout((), np.array([0, len(table)], np.int64), (), ())
        for cut in cut_parts(table, layout):
            _, start, stop = cut
            first, last = int(table.path_offset[start]), int(table.path_offset[stop])
            arrays: dict[str, Array] = {
                "label": table.label[start:stop],
                "kind": table.kind[start:stop],
                "path": table.path_bytes[first:last],
                "path_offset": table.path_offset[start : stop + 1] - np.uint64(first),
            }
            for slot, name in enumerate(table.fields):
                size = table.size[slot][start:stop]
                arrays[f"size/{name}"] = np.full_like(size, -1) if name in generated else size
                arrays[f"place/{name}"] = np.zeros(stop - start, np.int64)
                arrays[f"checksum/{name}"] = self.checksum[slot][start:stop]
            content = {
                "run": "verify", "root": os.path.abspath(self.source), "first_row": start,
                "fields": table.fields, "samples": len(table),
            }  # fmt: skip

            def about(start: int = start, stop: int = stop) -> str:
                names = [printable(table.path(row)) for row in (start, stop - 1)]
                return f"the files {names[0]} to {names[1]} of {printable(self.source)}"

            cuts.append(cut)
            yield Task(len(cuts) - 1, content, arrays, about)

    def bad(self, found: Sequence[tuple[int, int, Reason, str]]) -> list[BadFile]:
        """Returns what a worker has found, in words."""
        out = []
        source = printable(self.source)
        for row, slot, reason, message in found:
            if reason == "vanished":
                message = f"is in the pack, but not in {source}"
            elif reason == "corrupt":
                reason, message = "changed", f"has other bytes in {source} than in the pack"
            elif reason == "changed":
                message = f"has another size in {source} than in the pack"
            else:
                message = f"in {source}: {message}"
            out.append(BadFile(self.table.names(row)[slot], reason, message))
        return out
