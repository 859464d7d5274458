"""What a damaged pack was: its description and its sample table, beyond doubt.

A table proves itself: the pack's id is a hash over it. Where the one that a pack opens with is
damaged, the one beside its data is looked at by itself. Where that is, too, or the pack cannot be
opened at all, the table is made again from the folder that was packed, and believed only where it
gives the id that the pack still names.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from json import JSONDecoder, loads
from typing import TypeVar, get_args

import numpy as np
import xxhash

from fastconv.converters.against import has_other_names, sidecars_of
from fastconv.converters.findings import RepairFailedError
from fastconv.converters.outputs import choose_writer
from fastconv.converters.plan import new_table, without
from fastconv.converters.run import described
from fastconv.converters.sniff import BadImage, sniff
from fastconv.converters.sources.folder import scan
from fastconv.converters.structure import writer_of
from fastconv.converters.verify import WINDOW, DataFile
from fastconv.converters.verifying import shards_fit
from fastconv.converters.writer import WRITERS, Writer
from fastconv.loaders.errors import (
    CorruptPackError,
    NotAPackError,
    PackChangedError,
    PackError,
    UsageError,
    printable,
)
from fastconv.loaders.identity import pack_id
from fastconv.loaders.index import index_path, load_index
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.listing import Listing
from fastconv.loaders.meta import LabelKind, PackMeta
from fastconv.loaders.open import find_format, open_pack
from fastconv.loaders.reader import MappedReader, Reader
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["Known", "what_is_known"]


T = TypeVar("T")

META_START = b'{"fastconv":'
MOST_META = 1 << 24
"""A description of more bytes is none."""

CLASSES_LOST = (
    "if it was packed with --classes, whose names the table alone has, give them here, too; else "
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a pack was, beyond doubt.

    Attributes:
        meta: What it said of itself; only the names of its `shards` count, not their sizes.
        table: Its rows. Their places are not sure, or even missing.
        files: Where its data files are, some of which may be missing; empty: one, called as its
            format calls it.
        fits: Whether these are known to be the table's.
        rewritten: Whether other programs seem to have written to them.
    """

    meta: PackMeta
    table: SampleTable
    files: tuple[str, ...]
    fits: bool
    rewritten: bool = False


def what_is_known(
    path: str, root: str, format: str | None, classes: Sequence[str] | None = None
) -> Known:
    """Returns what a pack was.

    Args:
        path: The pack.
        root: The folder that was packed.
        format: Name of its format; None: its contents tell it.
        classes: Names of its classes, where they were given for packing.

    Raises:
        UsageError: It is no pack at all.
        RepairFailedError: Neither the pack nor the folder tells it.
    """
    reader: Reader | None = None
    try:
        reader = open_pack(path, format)
        words = reader.lost_table or "; ".join(reader.notices)
        words = words or ("damaged" if reader.meta.id else "it has none")
    except (CorruptPackError, NotAPackError, PackChangedError) as error:
        words = str(error)
    if reader is not None and reader.root:
        raise UsageError(f"{printable(path)}: a folder of images, not a pack")
    mapped = reader if isinstance(reader, MappedReader) else None
    found = (
        as_opened(mapped) or beside(path, mapped) or made_again(path, mapped, root, format, classes)
    )
    if found is None:
        unsure = mapped is not None and not mapped.meta.id and classes is None
        raise RepairFailedError(
            f"{printable(path)}: cannot be mended: its sample table ({words}) cannot be made again "
            f"from {printable(root)}: {CLASSES_LOST if unsure else ''}pack the folder again "
            "(fastconv pack --overwrite); if it lacks files, save first what can still be read "
            "(fastconv unpack)"
        )
    return found


def as_opened(reader: MappedReader | None) -> Known | None:
    """Returns what an opened pack says; None where its table is not that of its id."""
    if reader is None or not is_sound(reader.meta, reader.table) or not shards_fit(reader):
        return None
    return Known(reader.meta, reader.table, reader.files, fits=True)


def is_sound(meta: PackMeta, table: SampleTable) -> bool:
    """Returns whether a table is the one of a pack's id."""
    return bool(meta.id) and pack_id(meta, table) == meta.id


def beside(path: str, reader: MappedReader | None) -> Known | None:
    """Returns what the table beside a pack says, whatever has become of the data files; None where
    it is damaged, too.

    Args:
        path: The pack.
        reader: As it was opened without its table, if it could be. Where it has found as many data
            files as there were, these are the pack's, whatever the table calls them.
    """
    try:
        found = load_index(path)
    except PackError:
        return None
    if found is None or not is_sound(found[0], found[1]):
        return None
    meta, table, _ = found
    shards = meta.shards
    if reader is not None and len(reader.files) == len(table.shard_row) - 1:
        shards = reader.meta.shards
    if len(shards) != len(table.shard_row) - 1:
        return None
    files = tuple(os.path.join(path, shard.name) for shard in shards)
    if not os.path.isdir(path):
        files = (path,)
    return Known(
        meta.with_shards(shards), table, files, fits=names_id(files, writer_of(meta), meta.id)
    )


def made_again(
    path: str,
    reader: MappedReader | None,
    root: str,
    format: str | None,
    names: Sequence[str] | None,
) -> Known | None:
    """Returns what a pack was, from the folder that was packed; None where that does not give the
    same pack."""
    files = reader.files if reader is not None else data_files(path)
    try:
        name = format or likely_format(path)
        old = reader.meta if reader is not None and reader.meta.id else None
        old = old or named_meta(files, name)
        old = old or (described_by(reader) if reader is not None else None)
        # What is not known any more is taken to be as it mostly is.
        old = old or PackMeta(format=name, samples=0, fields=(IMAGE,), labels="class")
        writer = writer_of(old)
    except (PackError, UsageError):
        return None
    rewritten = reader is not None and writer.table_inside and not reader.meta.id
    reader = None if rewritten else reader
    if reader is None and writer.sharded:
        return None  # which samples were in which shard is not known
    for listing in listed_again(old, reader, root, names):
        table = read_table(listing, root, writer)
        meta = described(listing, writer, table)
        ids: set[str] = set()
        if reader is not None:
            given = reader.table
            if len(table) != len(given) or table.fields != given.fields:
                continue
            table = replace(table, shard_row=given.shard_row, offset=given.offset, base=given.base)
            meta = meta.with_shards(reader.meta.shards)
            if reader.meta.id:  # it is over the table: one of the two may be damaged
                ids = {reader.meta.id, pack_id(reader.meta, given)}
        meta = meta.with_id(pack_id(meta, table))
        if meta.id in ids or names_id(files, writer, meta.id):
            shards = reader.files if reader is not None else ()
            return Known(meta, table, shards, fits=True, rewritten=rewritten)
    return None


def likely_format(path: str) -> str:
    """Returns the name of the format that a pack's contents tell, or its ending.

    Raises:
        UsageError: Neither does.
    """
    try:
        return find_format(path).name
    except NotAPackError:
        return choose_writer(path, None).name


def data_files(path: str) -> tuple[str, ...]:
    """Returns the files that a pack's data may be in."""
    if not os.path.isdir(path):
        return (path,)
    paths = (os.path.join(path, name) for name in sorted(os.listdir(path)))
    return tuple(file for file in paths if os.path.isfile(file) and file != index_path(path))


def occurrences(file: DataFile, text: bytes) -> Iterator[int]:
    """Yields where a text is in a file, as far as that can be read."""
    size = os.fstat(file.fd).st_size
    for start in range(0, size, WINDOW):
        try:
            data = file.read(start, min(start + WINDOW + len(text) - 1, size))
        except OSError:
            continue
        at = data.find(text)
        while at >= 0:
            yield start + at
            at = data.find(text, at + 1)


def names_id(files: Sequence[str], writer: Writer, pack_id: str) -> bool:
    """Returns whether a data file bears the id of a pack."""
    text = writer.stamp(pack_id)
    for path in files:
        try:
            with DataFile(path) as file:
                if next(occurrences(file, text), None) is not None:
                    return True
        except OSError:  # missing
            continue
    return False


def named_meta(files: Sequence[str], format: str) -> PackMeta | None:
    """Returns the description of a pack that lies somewhere in its data files, as far as it is not
    damaged; None where none does."""
    for path in files:
        with DataFile(path) as file:
            size = os.fstat(file.fd).st_size
            for place in occurrences(file, META_START):
                try:
                    text = file.read(place, min(place + MOST_META, size)).decode("latin-1")
                except OSError:
                    continue
                try:
                    return PackMeta.from_json(text[: JSONDecoder().raw_decode(text)[1]])
                except ValueError:
                    return what_is_left(text, format)
    return None


def what_is_left(text: str, format: str) -> PackMeta:
    """Returns a description of which some characters are damaged, without what they belong to."""

    fields = re.findall(r'"fields".\[([^]]*)\]', text) or [""]

    def value(name: str, kind: type[T]) -> T:
        found = re.search(rf'"{name}".("[^"]*"|\[[^]]*\]|{{[^}}]*}})', text)
        try:
            content = loads(found[1]) if found is not None else None
        except ValueError:
            content = None
        return content if isinstance(content, kind) else kind()

    labels = value("labels", str)
    classes = [os.fsdecode(str(name).encode("utf-8", "replace")) for name in value("classes", list)]
    return PackMeta(
        format=format,
        samples=0,
        fields=(IMAGE, *(name.strip('"') for name in fields[0].split(",")[1:])),
        generated=tuple(map(str, value("generated", list))),
        labels=labels if labels in get_args(LabelKind) else "class",  # type: ignore[arg-type]
        classes=tuple(classes),
        settings=value("settings", dict),
    )


def described_by(reader: MappedReader) -> PackMeta:
    """Returns what the data of a pack without a table say of it."""
    return replace(reader.meta, settings=WRITERS.load(reader.meta.format).settings_in(reader))


def listed_again(
    meta: PackMeta, reader: MappedReader | None, root: str, given: Sequence[str] | None
) -> Iterator[Listing]:
    """Yields the samples of a folder, as they may have been chosen for a pack; none where a file of
    labels told which.

    Args:
        meta: What the pack says of itself, as far as it is known.
        reader: The pack, where it can be opened.
        root: The folder.
        given: Names of the classes, where the user knows them.
    """
    if meta.generated or (meta.id and meta.labels == "int"):
        return
    other_names = reader is None or has_other_names(reader.table)
    known = meta.classes if meta.labels == "class" and meta.classes else None
    for any_extension in (False, True) if other_names else (False,):
        for classes in (known, None) if given is None else (given,):
            try:
                listing = scan(
                    root, labels=meta.labels != "none", classes=classes,
                    sidecars=sidecars_of(meta), any_extension=any_extension,
                )  # fmt: skip
            except UsageError:  # a class has another name, here or in the pack
                continue
            yield listing
            break


def read_table(listing: Listing, root: str, writer: Writer) -> SampleTable:
    """Returns the table of a listing's rows, with all that their files tell; without those that are
    no samples."""
    table = new_table(listing)
    extra = np.zeros(len(table), np.uint32)
    escapes = type(writer).extra is not Writer.extra
    dropped = np.zeros(len(table), np.bool_)
    for row in range(len(table)):
        for slot, name in enumerate(table.names(row)):
            size = int(table.size[slot][row])
            if size < 0:
                continue
            try:
                whole = escapes and slot == 0
                digest, head = summed(os.path.join(root, name), size, size if whole else WINDOW)
                table.checksum[slot][row] = digest
                if slot == 0:
                    found = sniff(memoryview(head), size)
                    table.kind[row] = kind_code(found.kind)
                    table.width[row], table.height[row] = found.width, found.height
                    extra[row] = writer.extra(memoryview(head)) if escapes else 0
            except (OSError, BadImage):
                if slot:
                    table.size[slot][row] = -1
                else:
                    dropped[row] = True
    if extra.any():
        table = replace(table, extra=extra)
    return without(table, dropped) if dropped.any() else table


def summed(path: str, size: int, window: int) -> tuple[int, bytes]:
    """Returns the checksum of a file of a size, and its first bytes.

    Args:
        path: The file.
        size: In bytes.
        window: How many bytes are read at once, and returned of the first ones.

    Raises:
        OSError: It cannot be read, or has another size.
    """
    digest, head = xxhash.xxh3_64(), b""
    with DataFile(path) as file:
        if os.fstat(file.fd).st_size != size:
            raise OSError(errno.EINVAL, "has another size now", path)
        for start in range(0, size, window):
            data = file.read(start, min(start + window, size))
            digest.update(data)
            head = head or data
    return digest.intdigest(), head
