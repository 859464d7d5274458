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
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.beside import BesideReader, open_beside
from fastconv.loaders.classes import some_of, sort_classes
from fastconv.loaders.compressed import refuse_compressed
from fastconv.loaders.errors import NotAPackError, UsageError, printable
from fastconv.loaders.files import first_bytes, map_file
from fastconv.loaders.index import index_path
from fastconv.loaders.kinds import kind_code, kind_of_name
from fastconv.loaders.meta import LabelKind, PackMeta, Shard
from fastconv.loaders.names import fields_left_out, problem_of_field, unique_names
from fastconv.loaders.reader import NOTHING, Wanted
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
NO_TEXT, NO_LABEL = -1, -2
"""In place of the number of a label that is a name: there is none, or what is there is no label."""


class WebDatasetReader(BesideReader):
    """Reads a folder of shards, or one tar."""

    name = "webdataset"
    title = "WebDataset"
    suffixes = (".tar",)
    dataset = "WebDatasetDataset"
    stamped = slice(BLOCK)
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

    @classmethod
    def open_with(cls, path: str, wanted: Wanted) -> Self:
        named = wanted.image_key is not None or wanted.label_key is not None
        return open_beside(cls, path, partial(cls.scanned, wanted=wanted), ask=not named)

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
    def scanned(cls, path: str, files: Sequence[str], wanted: Wanted = NOTHING) -> Self:
        """Returns the pack as its headers tell it, with the members that are wanted.

        Raises:
            NotAPackError: A file is compressed.
            UsageError: No sample has these, or it cannot be told which members are the images.
            PackChangedError: A file was replaced meanwhile.
            PackError: The system does not let us read one.
        """
        bad: list[BadFile] = []
        shards, inodes = [], []
        builder = TableBuilder(wanted)
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
        builder.check_found(path)
        labels, classes, notices = builder.named_labels()
        table, fields = builder.table(labels)
        labelled: LabelKind = "int" if (labels != -1).any() else "none"
        meta = PackMeta(
            format=cls.name, id="", samples=len(table), fields=fields,
            labels="class" if classes else labelled, classes=classes, shards=tuple(shards),
        )  # fmt: skip
        reader = cls(path, meta, table, files)
        reader.check_scanned(inodes)
        reader.bad = bad
        reader.notices += notices
        if builder.scattered:
            reader.notices.append(
                "samples whose members do not follow each other, of which other readers make "
                f"several: {some_of([*builder.scattered])}"
            )
        reader.notices += fields_left_out(builder.left_out)
        return reader


def is_tar(path: str) -> bool:
    """Returns whether a file begins with a tar header."""
    head = first_bytes(path, BLOCK)
    return len(head) == BLOCK and (
        right_checksum(head) or (not any(head) and path.endswith(".tar"))
    )


def right_checksum(header: bytes) -> bool:
    """Returns whether a header is whole and its checksum fits; some tars count signed bytes."""
    if len(header) < BLOCK:
        return False
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


@dataclass(slots=True)
class Gathered:
    """What is known of a sample before the end of its shard.

    Attributes:
        parts: Its members, by their extension.
        label: Its label; -1 for none, or one that is no integer.
        text: Number of its label among those that are names; else `NO_TEXT` or `NO_LABEL`.
    """

    parts: dict[str, Member] = field(default_factory=dict)
    label: int = -1
    text: int = NO_TEXT


class TableBuilder:
    """Groups the members of a shard that share a key into samples.

    Attributes:
        scattered: Shards and keys of the samples whose members do not follow each other.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.image = None if wanted.image_key is None else wanted.image_key.lower()
        self.label = "cls" if wanted.label_key is None else wanted.label_key.lower()
        self.wanted = wanted
        self.key: str | None = None
        self.samples: dict[str, Gathered] = {}
        self.scattered: dict[str, None] = {}
        self.extensions: set[str] = set()
        self.choice: set[str] = set()
        self.rows = 0
        self.fields: dict[str, tuple[array[int], array[int]]] = {}
        self.labels = array("q")
        self.texts = array("q")
        self.names_of_classes: dict[str, int] = {}
        self.kinds = bytearray()
        self.images: tuple[array[int], array[int]] = (array("q"), array("q"))
        self.names: list[tuple[str, dict[str, str]]] = []
        self.shard_rows = array("q", [0])
        self.left_out: set[str] = set()

    def add(self, member: Member, view: memoryview, file: str, bad: list[BadFile]) -> None:
        """Takes the next member of a shard."""
        key, extension = split_name(member.name)
        base = key.rpartition("/")[2]
        if not base or not extension or (base.startswith("__") and base.endswith("__")):
            return
        if key not in self.samples:
            self.samples[key] = Gathered()
        elif key != self.key:
            self.scattered[f"{file} {key}"] = None
        self.key = key
        sample = self.samples[key]
        extension = extension.lower()
        if extension in sample.parts:
            bad.append(
                BadFile(
                    member.name,
                    "duplicate_key",
                    f"{file}: member {printable(member.name)} is there twice: the first is used",
                )
            )
            return
        sample.parts[extension] = member
        if extension == self.label:
            data = bytes(view[member.place : member.place + member.size])
            sample.label = label_of(data)
            if sample.label != -1 or data.strip() in (b"", b"-1"):
                return
            sample.text = NO_LABEL
            if name := class_name_of(data):
                sample.text = self.names_of_classes.setdefault(name, len(self.names_of_classes))

    def images_of(self, parts: dict[str, Member]) -> list[str]:
        """Returns the extensions of a sample's members that may be its image."""
        if self.image is not None:
            return [self.image] if self.image in parts else []
        images = [name for name in parts if kind_of_name("." + name)]
        return [name for name in images if "." not in name] or images

    def end_sample(self, key: str, sample: Gathered, file: str, bad: list[BadFile]) -> None:
        """Takes a sample all of whose members are known."""
        parts = sample.parts
        self.extensions.update(parts)
        images = self.images_of(parts)
        if len(images) != 1:
            self.choice.update(images)
            what = (
                f"has several images ({some_of(images)}): name one with --image-key"
                if images
                else f"has no image, only {some_of(list(parts))}"
            )
            bad.append(BadFile(key, "missing_part", f"{file}: sample {printable(key)} {what}"))
            return
        image = parts.pop(images[0])
        parts.pop(self.label, None)
        self.labels.append(sample.label)
        self.texts.append(sample.text)
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
        for key, sample in self.samples.items():
            self.end_sample(key, sample, file, bad)
        self.key, self.samples = None, {}
        self.shard_rows.append(self.rows)

    def check_found(self, path: str) -> None:
        """Checks that samples have what is wanted of them.

        Raises:
            UsageError: None has, or it cannot be told which of their members are the images.
        """
        members = f"their members are {some_of(sorted(self.extensions))}"
        for name, given in (("image", self.wanted.image_key), ("label", self.wanted.label_key)):
            if given is not None and self.extensions and given.lower() not in self.extensions:
                raise UsageError(
                    f"{printable(path)}: no sample has the {name} {printable(given)}: {members}"
                )
        if self.choice and not self.rows:
            raise UsageError(
                f"{printable(path)}: cannot tell which member of a sample is its image "
                f"({some_of(sorted(self.choice))}): name it with --image-key"
            )

    def named_labels(self) -> tuple[npt.NDArray[np.int64], tuple[str, ...], list[str]]:
        """Returns the labels, the classes where labels are names, and what a user should know of
        those that are left out: names among integers, and what is neither."""
        labels, texts = np.array(self.labels, np.int64), np.array(self.texts, np.int64)
        classes: tuple[str, ...] = ()
        if not self.names_of_classes or (labels != -1).any():
            lost, wanted = texts != NO_TEXT, "integers of 64 bits"
        else:
            classes = sort_classes(self.names_of_classes, "sorted")
            number = {name: label for label, name in enumerate(classes)}
            # The last ones are for NO_LABEL and NO_TEXT, no label.
            new = np.array([*(number[name] for name in self.names_of_classes), -1, -1], np.int64)
            labels, lost, wanted = new[texts], texts == NO_LABEL, "names of classes"
        paths = [self.names[row][0] for row in np.flatnonzero(lost).tolist()]
        notices = [f"labels that are no {wanted} are left out: {some_of(paths)}"] if paths else []
        return labels, classes, notices

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
