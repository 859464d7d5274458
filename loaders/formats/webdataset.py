"""Reads WebDataset shards: tar files whose members KEY.EXT make samples.

Our own packs bring a sample table (`fastconv.loaders.index`), which is believed when it fits its
data: every shard is as long as it says and has the pack's id in its first header. Without it the
headers are read once, one after the other.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.beside import BesideReader, open_beside
from fastconv.loaders.classes import sort_classes
from fastconv.loaders.compressed import refuse_compressed
from fastconv.loaders.errors import NotAPackError, printable
from fastconv.loaders.files import first_bytes, map_file
from fastconv.loaders.index import index_path
from fastconv.loaders.kinds import kind_code, kind_of_name
from fastconv.loaders.meta import LabelKind, PackMeta, Shard
from fastconv.loaders.names import fields_left_out, problem_of_field, unique_names
from fastconv.loaders.sample import BadFile
from fastconv.loaders.table import SampleTable, path_entry
from fastconv.loaders.walk import holds_image

__all__ = ["WebDatasetReader"]

BLOCK = 512
MOST_NAME = 200
"""Characters of the name of a class; a longer text is something else."""
REGULAR = (b"0", b"\0", b"7")
STAMP = re.compile(rb"[0-9a-f]{31}")
MOST_EXTENDED = 1 << 20
"""A name is no longer than this; a larger extended header is damage, not a name."""
MOST_DIGITS = 64
"""A label's file is no longer than this, spaces included."""


class WebDatasetReader(BesideReader):
    """Reads a folder of shards, or one tar."""

    name = "webdataset"
    title = "WebDataset"
    suffixes = (".tar",)
    dataset = "WebDatasetDataset"
    stamped = slice(BLOCK)
    data_file = "a tar"
    read_instead = "headers"
    unknown = "paths, class names and checksums are unknown"

    @classmethod
    def recognises(cls, path: str) -> bool:
        if not os.path.isdir(path):
            return is_tar(path)
        names = cls.shard_names(path)
        if names and not os.path.lexists(index_path(path)) and holds_image(path):
            # An archive beside what was in it, or pictures beside shards: nobody can tell.
            raise NotAPackError(
                f"{printable(path)}: holds tars ({printable(names[0])}) and images: name a tar, "
                "move away what is not meant, or say format folder or webdataset"
            )
        return bool(names)

    @classmethod
    def open(cls, path: str) -> Self:
        return open_beside(cls, path, cls.scanned)

    @staticmethod
    def stamp_in(data: bytes) -> bytes:
        stamp = data[297:329].rstrip(b"\0")
        return stamp if STAMP.fullmatch(stamp) else b""

    def key(self, row: int) -> str:
        if self.meta.id:
            return super().key(row)
        path = self.table.path(row)
        return split_name(path)[0]

    @classmethod
    def scanned(cls, path: str, files: Sequence[str]) -> Self:
        """Returns the pack as its headers tell it.

        Raises:
            NotAPackError: A file is compressed.
            PackChangedError: A file was replaced meanwhile.
            PackError: The system does not let us read one.
        """
        bad: list[BadFile] = []
        shards, inodes = [], []
        builder = TableBuilder()
        for file in files:
            mapped = map_file(file)
            view = mapped.view
            label = os.path.basename(file)
            if not right_checksum(head := bytes(view[:BLOCK])):
                refuse_compressed(file, head)
            for member in members(view, label, bad):
                builder.add(member, view, label, bad)
            builder.end_shard(label, bad)
            shards.append(Shard(label, view.nbytes))
            inodes.append(mapped.inode)
        labels, classes, left_out = builder.named_labels()
        table, fields = builder.table(labels)
        labelled: LabelKind = "int" if (labels != -1).any() else "none"
        meta = PackMeta(
            format=cls.name, id="", samples=len(table), fields=fields,
            labels="class" if classes else labelled, classes=classes, shards=tuple(shards),
        )  # fmt: skip
        reader = cls(path, meta, table, files)
        reader.check_scanned(inodes)
        reader.bad = bad
        if left_out:
            reader.notices.append(f"{left_out} labels are names among integers: left out")
        reader.notices += fields_left_out(builder.left_out)
        return reader


def is_tar(path: str) -> bool:
    """Returns whether a file begins with a tar header."""
    head = first_bytes(path, BLOCK)
    return len(head) == BLOCK and (
        right_checksum(head) or (not any(head) and path.endswith(".tar"))
    )


def right_checksum(header: bytes) -> bool:
    """Returns whether a header's checksum fits; some tars count signed bytes."""
    try:
        given = int(header[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        return False
    total = sum(header) - sum(header[148:156]) + 8 * 32
    if given == total:
        return True
    return given == total - 256 * sum(byte > 127 for byte in header[:148] + header[156:])


class Member(NamedTuple):
    """A regular file in a tar.

    Attributes:
        name: As `os.fsdecode` text, without a leading `./`.
        place: Where its bytes start.
        size: How many they are.
    """

    name: str
    place: int
    size: int


def number(text: bytes) -> int:
    """Returns a number of a header: octal digits, or binary when the first bit is set.

    Raises:
        ValueError: It is neither.
    """
    if text[0] & 0x80:
        return int.from_bytes(text[1:], "big")
    digits = text.strip(b" \0") or b"0"
    if not digits.isdigit():  # int() takes a sign and underscores, too
        raise ValueError
    return int(digits, 8)


def pax_path(data: bytes) -> str | None:
    """Returns the path that an extended header gives."""
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > 9 or int(length) <= len(length) + 1:
            return None
        record = data[len(length) + 1 : int(length) - 1]
        if record.startswith(b"path="):
            return os.fsdecode(record[5:].partition(b"\0")[0])
        data = data[int(length) :]
    return None


def members(view: memoryview, file: str, bad: list[BadFile]) -> Iterator[Member]:
    """Yields the regular files of a tar; what ends it before its end mark goes to `bad`."""
    place, given = 0, None
    while place + BLOCK <= view.nbytes:
        header = bytes(view[place : place + BLOCK])
        if not any(header):
            return
        try:
            if not right_checksum(header):
                raise ValueError
            size = number(header[124:136])
        except ValueError:
            bad.append(
                BadFile(
                    f"{file} offset {place}",
                    "bad_record",
                    f"{file}: damaged tar header at {place}: what follows is lost",
                )
            )
            return
        start, flag = place + BLOCK, header[156:157]
        name = given or os.fsdecode(header[:100].partition(b"\0")[0])
        if given is None and header[257:263] == b"ustar\0" and header[345]:
            name = os.fsdecode(header[345:500].partition(b"\0")[0]) + "/" + name
        if start + size > view.nbytes:
            bad.append(
                BadFile(
                    name,
                    "truncated",
                    f"{file}: member {printable(name)} is cut short: needs {size} bytes, has "
                    f"{view.nbytes - start}",
                )
            )
            return
        place = start + (size + BLOCK - 1) // BLOCK * BLOCK
        if flag in (b"x", b"L") and size <= MOST_EXTENDED:
            data = bytes(view[start : start + size])
            given = pax_path(data) if flag == b"x" else os.fsdecode(data.partition(b"\0")[0])
            continue
        given = None
        if flag in REGULAR and not name.endswith("/"):
            while name.startswith("./"):
                name = name[2:]
            yield Member(name, start, size)
    if view.nbytes % BLOCK or view.nbytes == 0:
        bad.append(
            BadFile(
                file, "truncated", f"{file}: ends without an end mark, in the middle of a header"
            )
        )


def class_name_of(data: bytes) -> str:
    """Returns the name that a label is; "" where it is none."""
    try:
        name = data.decode().strip()
    except UnicodeDecodeError:
        return ""
    number = name.lstrip("+-").isdigit()  # too large for a table
    return name if name.isprintable() and len(name) <= MOST_NAME and not number else ""


def label_of(data: bytes) -> int:
    """Returns the number in a label's file; -1 where it is none that a table can hold."""
    try:
        label = int(data[:MOST_DIGITS])
    except ValueError:
        return -1
    return label if len(data) <= MOST_DIGITS and -(1 << 63) <= label < 1 << 63 else -1


def split_name(name: str) -> tuple[str, str]:
    """Returns key and extension: the name up to and after the first dot of its last component
    (webdataset, `tariterators.base_plus_ext`)."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return folder + slash + stem, extension


class TableBuilder:
    """Groups members that follow each other under one key into samples."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.parts: dict[str, Member] = {}
        self.label = -1
        self.text = -1
        self.rows = 0
        self.fields: dict[str, tuple[array[int], array[int]]] = {}
        self.labels = array("q")
        self.texts = array("q")
        self.names_of_classes: dict[str, int] = {}
        self.kinds = bytearray()
        self.images: tuple[array[int], array[int]] = (array("q"), array("q"))
        self.names: list[tuple[str, dict[str, str]]] = []
        self.shard_rows = array("q", [0])
        self.seen: set[str] = set()
        self.left_out: set[str] = set()

    def add(self, member: Member, view: memoryview, file: str, bad: list[BadFile]) -> None:
        """Takes the next member of a shard."""
        key, extension = split_name(member.name)
        base = key.rpartition("/")[2]
        if not base or not extension or (base.startswith("__") and base.endswith("__")):
            return
        if key != self.key:
            self.end_sample(file, bad)
            self.key = key
        extension = extension.lower()
        if extension in self.parts:
            bad.append(
                BadFile(
                    member.name,
                    "duplicate_key",
                    f"{file}: member {printable(member.name)} is there twice: the first is used",
                )
            )
            return
        self.parts[extension] = member
        if extension == "cls":
            data = bytes(view[member.place : member.place + member.size])
            self.label = label_of(data)
            name = "" if self.label != -1 else class_name_of(data)
            if name:
                self.text = self.names_of_classes.setdefault(name, len(self.names_of_classes))

    def end_sample(self, file: str, bad: list[BadFile]) -> None:
        """Closes the sample that is being gathered."""
        parts, key, label, text = self.parts, self.key, self.label, self.text
        self.key, self.parts, self.label, self.text = None, {}, -1, -1
        if key is None:
            return
        images = [name for name in parts if kind_of_name("." + name) and "." not in name]
        images = images or [name for name in parts if kind_of_name("." + name)]
        if len(images) != 1:
            what = "has no image" if not images else f"has several images ({', '.join(images)})"
            bad.append(BadFile(key, "missing_part", f"{file}: sample {printable(key)} {what}"))
            return
        if key in self.seen:
            bad.append(
                BadFile(
                    key,
                    "missing_part",
                    f"{file}: the members of {printable(key)} do not follow each other: make "
                    "the tar with --sort=name",
                )
            )
            return
        self.seen.add(key)
        image = parts.pop(images[0])
        own_label = parts.pop("cls", None)
        self.labels.append(label if own_label is not None else -1)
        self.texts.append(text if own_label is not None else -1)
        self.kinds.append(kind_code(kind_of_name("." + images[0]) or "bin"))
        for column, value in zip(self.images, (image.place, image.size), strict=True):
            column.append(value)
        names = {}
        for name, member in parts.items():
            if name not in self.fields and problem_of_field(name):
                self.left_out.add(name)
                continue
            places, sizes = self.fields.setdefault(name, (array("q"), array("q")))
            missing = self.rows - len(places)
            places.extend([0] * missing)
            sizes.extend([-1] * missing)
            places.append(member.place)
            sizes.append(member.size)
            names[name] = member.name.rpartition("/")[2]
        self.names.append((image.name, names))
        self.rows += 1

    def end_shard(self, file: str, bad: list[BadFile]) -> None:
        """Closes a shard: a sample does not go on in the next one."""
        self.end_sample(file, bad)
        self.seen.clear()
        self.shard_rows.append(self.rows)

    def named_labels(self) -> tuple[npt.NDArray[np.int64], tuple[str, ...], int]:
        """Returns the labels, the classes where labels are names, and how many names were left out:
        those among integers."""
        labels, texts = np.array(self.labels, np.int64), np.array(self.texts, np.int64)
        if not self.names_of_classes or (labels != -1).any():
            return labels, (), int((texts >= 0).sum())
        classes = sort_classes(self.names_of_classes, "sorted")
        number = {name: label for label, name in enumerate(classes)}
        # The last one is for -1, no label.
        new = np.array([*(number[name] for name in self.names_of_classes), -1], np.int64)
        return new[texts], classes, 0

    def table(self, labels: npt.NDArray[np.int64]) -> tuple[SampleTable, tuple[str, ...]]:
        """Returns the table of all samples with these labels, and its fields."""
        fields = ("image", *sorted(self.fields))
        for places, sizes in self.fields.values():
            missing = self.rows - len(places)
            places.extend([0] * missing)
            sizes.extend([-1] * missing)
        columns = [self.images, *(self.fields[name] for name in fields[1:])]
        # Other shards often count from 0 again; the sidecars are then called like the image.
        given = [os.fsencode(path) for path, _ in self.names]
        unique = unique_names(given, range(self.rows))
        entries = [
            path_entry(path, names, fields) if own == own_given else own
            for own, own_given, (path, names) in zip(unique, given, self.names, strict=True)
        ]
        ends = np.cumsum([0, *map(len, entries)], dtype=np.uint64)
        table = SampleTable(
            fields=fields,
            label=labels,
            kind=np.frombuffer(bytes(self.kinds), np.uint8),
            width=np.zeros(self.rows, np.uint32),
            height=np.zeros(self.rows, np.uint32),
            path_bytes=np.frombuffer(b"".join(entries), np.uint8),
            path_offset=ends,
            shard_row=np.array(self.shard_rows, np.int64),
            offset=tuple(np.array(places, np.uint64) for places, _ in columns),
            size=tuple(np.array(sizes, np.int64) for _, sizes in columns),
        )
        return table, fields
