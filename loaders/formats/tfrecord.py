"""Reads TFRecord files of images: OUT.tfrecord, or a folder of shards.

What a file is made of stands in `fastconv.loaders.tfexample`. Our own packs bring a sample table
(`fastconv.loaders.index`), which is believed when it fits its data: every shard is as long as it
says and has the pack's id in its first record. Without it all records are read once, so that those
whose CRC differs are left out.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Self

import numpy as np

from fastconv.loaders.beside import STAMP_DIGITS, BesideReader, open_beside
from fastconv.loaders.classes import some_of
from fastconv.loaders.compressed import compressed_with, refuse_compressed
from fastconv.loaders.errors import CorruptPackError, NotAPackError, printable
from fastconv.loaders.files import MappedFile, first_bytes, map_file, unreadable
from fastconv.loaders.index import index_path
from fastconv.loaders.kinds import KINDS, START_BYTES, kind_code, kind_code_of_start, kind_of_name
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.names import (
    class_names,
    fields_left_out,
    problem_of_field,
    unique_names,
)
from fastconv.loaders.raw import is_shape
from fastconv.loaders.reader import NOTHING, Wanted
from fastconv.loaders.sample import IMAGE, BadFile, Reason
from fastconv.loaders.table import SampleTable
from fastconv.loaders.tfexample import (
    FRAMING,
    HEAD,
    PACK,
    compression_of,
    first_integer,
    is_record,
    length_checks,
    masked,
    only_bytes,
    read_example,
    stamp_of,
)

__all__ = ["TFRecordReader"]

START = 512
"""Bytes of a file that tell what it is."""
MOST_BYTES = (1 << 31) - 1
"""Of an Example: protobuf reads no larger message."""

NUMBERED = re.compile(r"-([0-9]{5})-of-([0-9]{5})")
SHARD_NAME = re.compile(rf".+(?:\.tfrecords?(?:\.gz)?|{NUMBERED.pattern})")
"""Many tools give shards no suffix, or put their numbers behind it."""

IMAGE_NAMES = (b"image/encoded", b"image", b"jpg", b"jpeg", b"png", b"webp")
"""What the image is called, in ImageNet's records and those of others."""
LABEL_NAMES = (b"image/class/label", b"label")

FORMATS = {kind: {"jpg": "JPEG", "tif": "TIFF"}.get(kind, kind.upper()).encode() for kind in KINDS}
"""Kind -> `image/format`."""
KIND_OF_FORMAT = {format: kind for kind, format in FORMATS.items() if kind != "raw"}
"""The kind that a format's name tells by itself: raw pixels have to fit their height and width."""
PIXELS = (b"image/width", b"image/height")
TEXTS = (b"image/filename", b"image/format", b"image/class/text")
TOLD = (b"image/", PACK)
"""What features begin with that say something of the image or of the pack, and are no sidecars."""
MOST_UNUSED = 1000
"""Labels that may be unused where classes are named."""

Crc = Callable[[memoryview], int]


class TFRecordReader(BesideReader):
    """Reads a folder of shards, or one file."""

    name = "tfrecord"
    title = "TFRecord"
    suffixes = (".tfrecord", ".tfrecords")
    dataset = "TFRecordDataset"
    stamped = slice(START)
    unknown = "all records are read first, and checksums are unknown"

    @classmethod
    def recognises(cls, path: str) -> bool:
        if not os.path.isdir(path):
            return is_tfrecord(path)
        names = cls.shard_names(path)
        return bool(names) and (
            names[0].endswith(cls.suffixes) or is_tfrecord(os.path.join(path, names[0]))
        )

    @classmethod
    def is_shard(cls, name: str) -> bool:
        return SHARD_NAME.fullmatch(name) is not None

    @classmethod
    def open(cls, path: str) -> Self:
        return open_beside(cls, path, cls.scanned)

    @classmethod
    def open_with(cls, path: str, wanted: Wanted) -> Self:
        named = wanted.image_key is not None or wanted.label_key is not None
        return open_beside(cls, path, partial(cls.scanned, wanted=wanted), ask=not named)

    @staticmethod
    def stamp_in(data: bytes) -> bytes:
        return stamp_of(data)[0][:STAMP_DIGITS].encode()

    def check_belongs(self) -> None:
        super().check_belongs()
        if len(self):
            _, base = stamp_of(self._mapped(0).view)
            if self.meta.settings.get("label_base", 0) != base:
                raise CorruptPackError(
                    f"{printable(index_path(self.path))}: damaged: its settings are not those of "
                    f"{printable(self.files[0])}"
                )

    @classmethod
    def scanned(cls, path: str, files: Sequence[str], wanted: Wanted = NOTHING) -> Self:
        """Returns the pack as its records tell it, with the features that are wanted.

        Raises:
            NotAPackError: It is compressed, or no TFRecord.
            PackChangedError: A file was replaced meanwhile.
            PackError: The system does not let us read one.
        """
        crc = crc_function()
        builder = TableBuilder(wanted)
        shards, inodes, bases = [], [], set()
        for file in files:
            mapped = map_file(file)
            start = bytes(mapped.view[:START])
            if compression := compression_of(start):
                raise compressed_with(file, compression)
            if not is_record(start):
                refuse_compressed(file, start)
            if start and file == path and not is_record(start):
                raise NotAPackError(f"{printable(file)}: not a TFRecord: it begins with no record")
            _, builder.base = stamp_of(start)
            builder.add_file(mapped, os.path.basename(file), crc)
            bases.add(builder.base)
            shards.append(Shard(os.path.basename(file), mapped.view.nbytes))
            inodes.append(mapped.inode)
        table, classes = builder.table(), builder.classes()
        labelled = bool((table.label != -1).any())
        meta = PackMeta(
            format=cls.name, id="", samples=len(table), fields=table.fields, classes=classes,
            labels="class" if classes else "int" if labelled else "none", shards=tuple(shards),
            settings={"label_base": 1} if bases == {1} else {},
        )  # fmt: skip
        reader = cls(path, meta, table, files)
        reader.check_scanned(inodes)
        reader.bad = builder.bad
        if file_names := [shard.name for shard in shards if os.path.isdir(path)]:
            reader.notices += notices_of_names(file_names)
        if labelled and int(table.label[table.label != -1].min()) > 0:
            reader.notices.append(
                f"labels are as they are stored, up to {table.label.max()}: 0 is unused"
            )
        reader.notices += fields_left_out(builder.left_out)
        if builder.too_small:
            reader.notices.append(
                f"labels that do not fit into 64 bits are left out: {builder.too_small}"
            )
        if crc is None and len(table):
            reader.notices.append(
                "whether the records' CRCs are right was not looked at: "
                "pip install 'fastconv[tfrecord]'"
            )
        return reader


def is_tfrecord(path: str) -> bool:
    """Returns whether a file is a TFRecord, perhaps a compressed or an empty one."""
    start = first_bytes(path, START)
    if start:
        return is_record(start) or compression_of(start) is not None
    return bool(SHARD_NAME.fullmatch(os.path.basename(path))) and os.path.isfile(path)


def notices_of_names(names: Sequence[str]) -> list[str]:
    """Returns what is worth saying of the names of all shards in a folder."""
    found = ((name, NUMBERED.search(name)) for name in names)
    sets = dict.fromkeys((name[: number.start()], number[2]) for name, number in found if number)
    if len(sets) < 2:
        return []
    stems = ", ".join(printable(stem) for stem, _ in sets)
    return [f"shards of several sets lie here and are read as one: {stems}"]


def crc_function() -> Crc | None:
    """Returns what gives the CRC-32C of bytes; None where the package for that is not installed."""
    try:
        from crc32c import crc32c
    except ModuleNotFoundError:
        return None
    return crc32c


def records(
    view: memoryview, damaged: Callable[[int, int, Reason, str], None]
) -> Iterator[tuple[int, int]]:
    """Yields where each record's data starts, and its size.

    Args:
        view: The file.
        damaged: Called with the number and place of a record that ends them early, the reason, and
            words.
    """
    places, lengths, checks = array("Q"), array("Q"), array("I")
    place, size = 0, view.nbytes
    while place + HEAD <= size:
        length, check = struct.unpack_from("<QI", view, place)
        for column, value in ((places, place), (lengths, length), (checks, check)):
            column.append(value)
        place += FRAMING + length
    right = length_checks(np.array(lengths, np.uint64)) == np.array(checks, np.uint32)
    whole = len(right) if right.all() else int(np.argmin(right))
    if whole < len(right):
        damaged(whole, places[whole], "bad_record", "its length is damaged: what follows is lost")
    elif place > size:
        whole -= 1
        words = f"cut short: needs {place - places[whole]} bytes, has {size - places[whole]}"
        damaged(whole, places[whole], "truncated", words)
    elif place < size:
        damaged(whole, place, "truncated", f"cut short: has {size - place} bytes")
    for start, length in zip(places[:whole], lengths[:whole], strict=True):
        yield start + HEAD, length


class TableBuilder:
    """Takes the records of all shards one by one.

    Attributes:
        bad: Those that are no samples.
        base: What the labels of the file that is being taken start from.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.images, self.label_names = (
            names if key is None else (os.fsencode(key),)
            for key, names in ((wanted.image_key, IMAGE_NAMES), (wanted.label_key, LABEL_NAMES))
        )
        self.bad: list[BadFile] = []
        self.base = 0
        self.labels = array("q")
        self.kinds = bytearray()
        self.pixels = array("I"), array("I")
        self.columns: dict[str, tuple[array[int], array[int]]] = {}
        self.paths: list[bytes] = []
        self.shard_rows = array("q", [0])
        self.texts: dict[int, bytes] = {}
        self.named = True
        self.left_out: set[str] = set()
        self.too_small = 0

    def add_file(self, mapped: MappedFile, file: str, crc: Crc | None) -> None:
        """Takes all records of a file.

        Args:
            mapped: The file.
            file: Its name, for messages.
            crc: Gives the CRC-32C of bytes; None: it is not compared.

        Raises:
            PackError: The system does not let us read it.
        """

        def damaged(number: int, place: int, reason: Reason, words: str) -> None:
            where = f"record {number}, offset {place}"
            message = f"{printable(file)}: {where}: {words}"
            self.bad.append(BadFile(f"{file} {where}", reason, message))

        for number, (place, size) in enumerate(records(mapped.view, damaged)):
            if size > MOST_BYTES:
                damaged(number, place - HEAD, "bad_record", "too large for a tf.train.Example")
                continue
            try:
                data = mapped.read(place, size + FRAMING - HEAD)
            except OSError as error:
                raise unreadable(mapped.path, error) from error
            check = int.from_bytes(data[size:], "little")
            if crc is not None and masked(crc(memoryview(data)[:size])) != check:
                words = "its CRC-32C differs: the bytes are damaged"
                damaged(number, place - HEAD, "bad_record", words)
                continue
            try:
                if not self.add(data, size, place):
                    names = some_of(sorted(map(os.fsdecode, read_example(data, size))))
                    words = f"has no image (its features are {names}): name it with --image-key"
                    damaged(number, place - HEAD, "missing_part", words)
            except (ValueError, IndexError) as error:
                words = f"not a tf.train.Example: {error}"
                damaged(number, place - HEAD, "bad_record", words)
        self.shard_rows.append(len(self.paths))

    def add(self, data: bytes, size: int, place: int) -> bool:
        """Takes a record; returns whether it has an image.

        Args:
            data: Its bytes, and more.
            size: How many are its.
            place: Where they are in the file.

        Raises:
            ValueError, IndexError: It is no Example.
        """
        features = read_example(data, size)
        values = {name: value for name, one in features.items() if (value := only_bytes(data, one))}
        image = next((name for name in self.images if name in values), None)
        if image is None:
            return False
        wanted = (*self.label_names, *PIXELS)
        numbers = {name: first_integer(data, features.get(name)) for name in wanted}
        stored = (number for name in self.label_names if (number := numbers[name]) is not None)
        label = next(stored, self.base - 1) - self.base
        if label < -(1 << 63):
            self.too_small, label = self.too_small + 1, -1
        text = {name: data[slice(*values.get(name, (0, 0)))] for name in TEXTS}
        start, stop = values[image]
        path = os.fsdecode(text[b"image/filename"])
        width, height = (
            pixels if 0 < (pixels := numbers[name] or 0) < 1 << 31 else 0 for name in PIXELS
        )
        if text[b"image/format"] == FORMATS["raw"] and is_shape(width, height, stop - start):
            kind = "raw"  # whatever its first bytes look like
        else:
            kind = kind_of(data[start : start + START_BYTES], text[b"image/format"], path)
        if not path or "\0" in path:
            path = f"{len(self.paths):08d}.{kind}"
        self.put(IMAGE, place, values[image])
        for key, value in values.items():
            if key.startswith(TOLD) or key in (*IMAGE_NAMES, *self.images):
                continue
            field = os.fsdecode(key)
            if field in self.columns or not problem_of_field(field):
                self.put(field, place, value)
            else:
                self.left_out.add(field)
        self.paths.append(os.fsencode(path))
        self.kinds.append(kind_code(kind))
        self.labels.append(label)
        if label != -1 and self.named:
            name = text[b"image/class/text"]
            self.named = bool(name) and self.texts.setdefault(label, name) == name
        for column, pixels in zip(self.pixels, (width, height), strict=True):
            column.append(pixels)
        return True

    def put(self, field: str, place: int, value: tuple[int, int]) -> None:
        """Notes a field of the record that is being taken.

        Args:
            field: Its name.
            place: Of the record's data in the file.
            value: Where it starts and stops in these.
        """
        places, sizes = self.columns.setdefault(field, (array("Q"), array("q")))
        self.fill(places, sizes)
        places.append(place + value[0])
        sizes.append(value[1] - value[0])

    def fill(self, places: array[int], sizes: array[int]) -> None:
        """Notes that the samples so far lack a field, but for those that have it."""
        missing = len(self.paths) - len(places)
        places.extend([0] * missing)
        sizes.extend([-1] * missing)

    def table(self) -> SampleTable:
        """Returns the table of all samples."""
        columns = {IMAGE: (array("Q"), array("q")), **dict(sorted(self.columns.items()))}
        for places, sizes in columns.values():
            self.fill(places, sizes)
        width, height = self.pixels
        paths = unique_names(self.paths, range(len(self.paths)))
        return SampleTable(
            fields=tuple(columns),
            label=np.array(self.labels, np.int64),
            kind=np.frombuffer(bytes(self.kinds), np.uint8),
            width=np.array(width, np.uint32),
            height=np.array(height, np.uint32),
            path_bytes=np.frombuffer(b"".join(paths), np.uint8),
            path_offset=np.cumsum([0, *map(len, paths)], dtype=np.uint64),
            shard_row=np.array(self.shard_rows, np.int64),
            offset=tuple(np.array(places, np.uint64) for places, _ in columns.values()),
            size=tuple(np.array(sizes, np.int64) for _, sizes in columns.values()),
        )

    def classes(self) -> tuple[str, ...]:
        """Returns the classes' names; none where records do not name them, each label by one name
        of its own. A label that no record has is called by its number."""
        texts = self.texts
        count = max(texts, default=-1) + 1
        if not self.named or not texts or min(texts) < 0 or count - len(texts) > MOST_UNUSED:
            return ()
        return class_names(
            [os.fsdecode(texts.get(number, b"%d" % number)) for number in range(count)]
        )


def kind_of(start: bytes, format: bytes, path: str) -> str:
    """Returns the kind of an image by its first bytes, its format's name, or its file's."""
    if code := kind_code_of_start(start):  # what records say of themselves is often wrong
        return KINDS[code]
    return KIND_OF_FORMAT.get(format.upper()) or kind_of_name(path) or "bin"
