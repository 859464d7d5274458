"""Reads RecordIO files of images, as MXNet's im2rec makes them: OUT.rec, or a folder of shards.

A file is records, one after the other, without anything between or around them (dmlc-core,
`src/recordio.cc`):

    magic 4 | lrec 4 | data | zeros up to a multiple of 4

`lrec` has the length of the data in its lower 29 bits. Where the magic itself stands in the data,
at a multiple of 4, the record is split there: in its place begins the next part, with an `lrec` of
its own. The upper 3 bits tell parts apart: 0 is a whole record, 1 the first part, 2 one in the
middle, 3 the last. So a split record is its data with four more bytes behind each such magic.

The data of an image:

    flag 4 | label 4 (float) | id 8 | id2 8 | flag labels of 4 each (float) | the image's file

Our own packs bring a sample table (`fastconv.loaders.index`), which is believed when it fits its
data: every shard is as long as it says and has the pack's stamp in its first record's id2. Without
it the records are gone through once. NAME.idx beside a file names its records, NAME.lst their
images.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.beside import BesideReader, open_beside
from fastconv.loaders.compressed import refuse_compressed
from fastconv.loaders.errors import NotAPackError, printable
from fastconv.loaders.files import first_bytes, map_file, open_file
from fastconv.loaders.kinds import KINDS, START_BYTES, kind_code_of_start
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.names import unique_names
from fastconv.loaders.raw import Pixels
from fastconv.loaders.reader import MappedReader, Reader
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = ["RecordIOReader"]

MAGIC = 0xCED7230A
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
MAGIC_ANYWHERE = re.compile(re.escape(MAGIC_BYTES))
LENGTH_BITS = 29
MOST_LENGTH = (1 << LENGTH_BITS) - 1
WHOLE, FIRST, MIDDLE, LAST = range(4)
"""What the upper bits of an `lrec` say of a part."""

PART = struct.Struct("<II")
HEADER = struct.Struct("<IfQQ")
WIDE_HEADER = struct.Struct("<IxxxxdQQ")
"""What some tools for faces have written: labels of eight bytes."""
LAYOUTS = (
    (HEADER, struct.Struct("<f")),
    (HEADER, struct.Struct("<d")),
    (WIDE_HEADER, struct.Struct("<d")),
)
"""Header, and type of the labels behind it; the first by which an image follows is right."""

IMAGE_PLACE = PART.size + HEADER.size
"""Where the image starts in a record of ours."""
STAMP_MARKS = b"fc"

Ints = npt.NDArray[np.int64]


class RecordIOReader(BesideReader):
    """Reads a folder of shards, or one file.

    Attributes:
        numbers: uint64 (N,), of each sample what its file calls it; None in a pack of ours.
        prefixes: What comes before them, one for each file.
    """

    name = "recordio"
    title = "RecordIO"
    suffixes = (".rec",)
    dataset = "RecordIODataset"
    stamped = slice(IMAGE_PLACE - 8, IMAGE_PLACE)
    unknown = "class names and checksums are unknown"
    numbers: npt.NDArray[np.uint64] | None = None
    prefixes: Sequence[str] = ()

    def __new__(cls, path: str, meta: PackMeta, table: SampleTable, *files: Any) -> Self:
        # Very few images are split: of photos of 50 kB, one in 340,000. Asking for each that is
        # read takes a tenth of the time.
        split = table.extra is not None and table.extra.any()
        return object.__new__(_SplitReader if split else cls)  # type: ignore[return-value]

    @classmethod
    def recognises(cls, path: str) -> bool:
        if os.path.isdir(path):
            return bool(cls.shard_names(path))
        head = first_bytes(path, PART.size)
        if len(head) == PART.size and is_head(*PART.unpack(head)):
            return True
        return path.endswith(".rec") and os.path.isfile(path)

    @classmethod
    def open(cls, path: str) -> Self:
        return open_beside(cls, path, cls.scanned)

    @staticmethod
    def stamp_in(data: bytes) -> bytes:
        return data if data[3:4] + data[7:8] == STAMP_MARKS else b""

    @staticmethod
    def stamp(pack_id: str) -> bytes:
        return stamp_of(pack_id)

    def key(self, row: int) -> str:
        if self.numbers is None:
            return super().key(row)
        prefix = self.prefixes[int(np.searchsorted(self._first_rows, row, side="right")) - 1]
        return f"{prefix}{self.numbers.item(row)}"

    @classmethod
    def scanned(cls, path: str, files: Sequence[str]) -> Self:
        """Returns the pack as its records tell it.

        Raises:
            NotAPackError: There is no record in it, or a file is compressed.
            PackChangedError: A file was replaced meanwhile.
            PackError: The system does not let us read one.
        """
        bad: list[BadFile] = []
        notices: list[str] = []
        shards, inodes = [], []
        columns = Columns()
        for file in files:
            mapped = map_file(file)
            label = os.path.basename(file)
            if mapped.view[: len(MAGIC_BYTES)] != MAGIC_BYTES:
                refuse_compressed(file, mapped.view)
            columns.add_file(mapped.view, file, bad, notices)
            if mapped.view.nbytes and not len(columns.place) and len(files) == 1:
                raise NotAPackError(
                    f"{printable(file)}: not a RecordIO file of images: no whole record in it"
                    + "".join(f" ({one.message})" for one in bad[:1])
                )
            shards.append(Shard(label, mapped.view.nbytes))
            inodes.append(mapped.inode)
        prefixes = columns.prefixes([os.path.splitext(shard.name)[0] for shard in shards])
        table = columns.table(prefixes)
        labelled = bool((table.label != -1).any())
        meta = PackMeta(
            format=cls.name, id="", samples=len(table), fields=table.fields,
            labels="int" if labelled else "none", shards=tuple(shards),
        )  # fmt: skip
        reader = cls(path, meta, table, files)
        reader.check_scanned(inodes)
        reader.numbers, reader.prefixes = np.array(columns.number, np.uint64), prefixes
        reader.bad = bad
        reader.notices += notices
        if len(table.fields) > 1:
            reader.notices.append(
                f"labels that are no single integers are the field {' or '.join(table.fields[1:])} "
                "(floats, little-endian), and -1 as labels"
            )
        return reader


class _SplitReader(RecordIOReader):
    """Reads packs in which some images are split."""

    @cached_property
    def _split(self) -> frozenset[int]:
        assert self.table.extra is not None
        return frozenset(np.flatnonzero(self.table.extra).tolist())

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        if row in self._split and not slot:
            return memoryview(self._joined(row))
        return MappedReader.read(self, row, slot)  # super() would take twice the time of the rest

    def load(self, row: int, slot: int = 0) -> bytes | None:
        return self._joined(row) if row in self._split and not slot else super().load(row, slot)

    def fill(self, rows: npt.NDArray[np.int64], places: Sequence[Pixels]) -> None:
        if self._split.isdisjoint(rows.tolist()):
            super().fill(rows, places)
        else:
            Reader.fill(self, rows, places)

    def _joined(self, row: int) -> bytes:
        """Returns a split image, put together."""
        mapped, size = self._guarded(row), self._size_of[0](row)
        assert self.table.extra is not None
        data = joined(self._copy(mapped, row, 0, size + self.table.extra.item(row)))
        if len(data) != size:
            words = "its record is damaged: fastconv repair can mend it"
            raise self.bad_sample(row, words, "bad_record")
        return data


def stamp_of(pack_id: str) -> bytes:
    """Returns what stands for a pack's id as the id2 of each file's first record, 8 bytes: six of
    the id's, and two marks, with which it is never taken for the magic."""
    digits = bytes.fromhex(pack_id[:12])
    return digits[:3] + STAMP_MARKS[:1] + digits[3:] + STAMP_MARKS[1:]


def is_head(magic: int, lrec: int) -> bool:
    """Returns whether a record begins with these two words."""
    return magic == MAGIC and lrec >> LENGTH_BITS in (WHOLE, FIRST)


def words_of(data: memoryview | bytes) -> npt.NDArray[np.uint32]:
    """Returns bytes as numbers of four each, without those that are left over."""
    return np.frombuffer(data, "<u4", len(data) // 4)


def magics(data: memoryview | bytes) -> Ints:
    """Returns the places of the magic that split a record of these data, int64 (n,)."""
    return np.flatnonzero(words_of(data) == MAGIC) * 4


def joined(stored: memoryview | bytes) -> bytes:
    """Returns the bytes of a split record, or of its end, without what stands between its parts.

    Args:
        stored: As they lie in the file, from a multiple of 4 in the record on.
    """
    words = words_of(stored)
    behind = np.flatnonzero(words == MAGIC) + 1  # no lrec is the magic
    kept = np.delete(words, behind[behind < len(words)])
    return kept.tobytes() + bytes(stored[4 * len(words) :])


class Damaged(Exception):
    """A record that cannot be read.

    Attributes:
        reason, message: Why.
        last: Where the last of its parts is that was looked at.
    """

    def __init__(self, reason: Reason, message: str, last: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.last = last


class Extent(NamedTuple):
    """Where a record lies.

    Attributes:
        start, stop: Of its data in the file, with what stands between parts.
        extra: How many bytes stand between parts.
        following: Where the next record starts.
        last: Where its last part is.
    """

    start: int
    stop: int
    extra: int
    following: int
    last: int


def extent_at(view: memoryview, place: int, known: int = -1) -> Extent:
    """Returns where the record lies whose first part starts at a place.

    Args:
        view: The file.
        place: Where.
        known: The last place of a part that was looked at for other records: parts up to there are
            theirs. So each is looked at once, whatever damaged lengths lead to.

    Raises:
        Damaged: There is none, or it is cut short.
    """
    start, extra, wanted = place + PART.size, 0, (WHOLE, FIRST)
    while True:
        if place + PART.size > view.nbytes:
            raise Damaged("truncated", "the file ends in its head", place)
        magic, lrec = PART.unpack_from(view, place)
        flag, length = lrec >> LENGTH_BITS, lrec & MOST_LENGTH
        if magic != MAGIC or flag not in wanted or (flag in (FIRST, MIDDLE) and length % 4):
            raise Damaged("bad_record", "a record's head is damaged", place)
        stop = place + PART.size + length
        if stop > view.nbytes:
            has = max(view.nbytes - start, 0)
            raise Damaged("truncated", f"cut short: needs {stop - start} bytes, has {has}", place)
        if flag in (WHOLE, LAST):
            return Extent(start, stop, extra, stop + -length % 4, place)
        if stop <= known:
            raise Damaged("bad_record", "its length leads into the parts of another record", place)
        place, wanted = stop, (MIDDLE, LAST)
        extra += 4


class Head(NamedTuple):
    """What the data of a record say of their image.

    Attributes:
        number: The record's id.
        flag: How many labels are between the header and the image.
        label: The only label, where it is an integer; None where it is not, or there are several.
        labels: Where the labels start and stop in the data.
        type: Theirs: "f32" or "f64".
        image: Where the image starts.
        kind: Code of its kind, 0 where the first bytes do not tell it.
    """

    number: int
    flag: int
    label: int | None
    labels: tuple[int, int]
    type: str
    image: int
    kind: int


def head_of(data: memoryview | bytes) -> Head:
    """Returns what the data of a record say of their image.

    Raises:
        Damaged: They are too short.
    """
    found = None
    for header, type_ in LAYOUTS:
        if len(data) < header.size:
            break
        flag, label, number, _ = header.unpack_from(data)
        image = header.size + flag * type_.size
        ends = image == len(data) and (flag > 0 or found is None)  # no image
        kind = kind_code_of_start(data[image : image + START_BYTES]) if image < len(data) else 0
        if kind or ends or (found is None and image < len(data)):
            start = header.size if flag else header.size - 16 - type_.size
            if flag == 1:
                (label,) = type_.unpack_from(data, start)
            whole = int(label) if flag < 2 and is_integer(label) else None
            span = start, start + max(flag, 1) * type_.size
            found = Head(number, flag, whole, span, f"f{8 * type_.size}", image, kind)
            if kind or ends:
                break
    if found is None:
        raise Damaged("bad_record", f"{len(data)} bytes are too few for its labels and an image")
    return found


def is_integer(label: float) -> bool:
    """Returns whether a label is an integer that a table can hold."""
    return label.is_integer() and -(2.0**63) <= label < 2.0**63


def next_head(view: memoryview, place: int, end: int) -> int:
    """Returns the first place from `place` on and before `end` where a record begins, or `end`: the
    magic stands at a multiple of 4 only there."""
    for found in MAGIC_ANYWHERE.finditer(view, place, end + len(MAGIC_BYTES)):
        at = found.start()
        if at % 4 == 0 and at + PART.size <= view.nbytes and is_head(*PART.unpack_from(view, at)):
            return min(at, end)
    return end


def lines_beside(file: str, suffix: str) -> Iterator[list[bytes]]:
    """Yields the cells of each line of a file beside another one; none where it is not there.

    Raises:
        OSError: It cannot be read.
    """
    try:
        fd = open_file(os.path.splitext(file)[0] + suffix)
    except FileNotFoundError:
        return
    with open(fd, "rb") as lines:
        for line in lines:
            yield line.rstrip(b"\r\n").split(b"\t")


def index_of(file: str, notices: list[str]) -> tuple[Ints, Ints]:
    """Returns the places that a file's index names, in order, and the keys of these, int64 (n,)
    each; none where there is no index."""
    places, keys = array("q"), array("q")
    try:
        for key, place in lines_beside(file, ".idx"):
            keys.append(natural(key))
            places.append(natural(place))
    except (OSError, ValueError) as error:
        notices.append(ignored(file, ".idx", error, "a number and a place"))
        del places[:], keys[:]
    order = np.argsort(places, kind="stable")
    return np.array(places, np.int64)[order], np.array(keys, np.int64)[order]


def list_of(file: str, notices: list[str]) -> dict[int, bytes]:
    """Returns the paths that the list beside a file has for its records' numbers."""
    paths: dict[int, bytes] = {}
    try:
        for number, *_, path in lines_beside(file, ".lst"):
            if not path or b"\0" in path or paths.setdefault(natural(number), path) is not path:
                raise ValueError
        if len(set(paths.values())) < len(paths):
            raise ValueError
    except (OSError, ValueError) as error:
        notices.append(ignored(file, ".lst", error, "a number, labels and a path, each once"))
        return {}
    return paths


def natural(text: bytes) -> int:
    """Returns a number that is not negative and that a table can hold.

    Raises:
        ValueError: It is none.
    """
    if not text.isdigit() or (number := int(text)) >> 63:
        raise ValueError
    return number


def ignored(file: str, suffix: str, error: Exception, lines: str) -> str:
    """Returns the notice for what lies beside a file and cannot be used."""
    name = printable(os.path.splitext(os.path.basename(file))[0] + suffix)
    return f"{name} is ignored: {getattr(error, 'strerror', None) or f'its lines are not {lines}'}"


class Gap(NamedTuple):
    """A range of a file in which no record can be read.

    Attributes:
        place: Where it starts.
        reason, message: Why.
    """

    place: int
    reason: Reason
    message: str


def records_of(view: memoryview) -> Iterator[Extent | Gap]:
    """Yields the records of a file, and what is between them where it is damaged."""
    place, known, last = 0, -1, None
    while place < view.nbytes:
        try:
            extent = extent_at(view, place, known)
            known = max(known, extent.last)
        except Damaged as error:
            known = max(known, error.last)
            if last is not None:
                inside = next_head(view, last.start, place)
                if inside < place:  # its length leads past the records that follow it
                    yield Gap(last.start - PART.size, "bad_record", "its length is damaged")
                    place, last = inside, None
                    continue
                yield last
            following = next_head(view, place + 4, view.nbytes)
            if following < view.nbytes and error.reason == "truncated":
                yield Gap(place, "bad_record", "its length is damaged")
            else:
                yield Gap(place, error.reason, error.message)
            place, last = following, None
            continue
        if last is not None:
            yield last
        place, last = extent.following, extent
    if last is not None:
        yield last


class Columns:
    """The samples of all files, as these are gone through.

    Attributes:
        place, size, extra, label, kind, number: One entry for each sample.
        paths: What a list says is the path of each; b"" where none does.
        labels: For each type of labels that are no single integer: where they are in the file, and
            how many bytes; of the first samples, up to the last that has any.
        bounds: The first sample of each file, and the number of samples.
    """

    def __init__(self) -> None:
        self.place, self.size = array("Q"), array("q")
        self.extra, self.kind = array("I"), bytearray()
        self.label, self.number = array("q"), array("Q")
        self.paths: list[bytes] = []
        self.labels: dict[str, tuple[array[int], array[int]]] = {}
        self.bounds = [0]

    def add_file(self, view: memoryview, file: str, bad: list[BadFile], notices: list[str]) -> None:
        """Goes through the records of a file.

        Args:
            view: Its bytes.
            file: Its path.
            bad: Takes what is damaged.
            notices: Takes what a user should know.
        """
        name = os.path.basename(file)
        places, keys = index_of(file, notices)
        without, heads = 0, array("q")
        for count, record in enumerate(records_of(view)):
            place = record.place if isinstance(record, Gap) else record.start - PART.size
            try:
                if isinstance(record, Gap):
                    raise Damaged(record.reason, record.message)
                if self.add(view, record):
                    heads.append(place)
                else:
                    without += 1
            except Damaged as error:
                at = int(np.searchsorted(places, place))
                known = at < len(places) and places[at] == place
                number = f"{name} record {keys[at] if known else count}"
                message = f"{printable(number)} at byte {place}: {error.message}"
                bad.append(BadFile(number, error.reason, message))
        if without:
            notices.append(f"{printable(name)}: {without} records hold labels and no image")
        self.bounds.append(len(self.place))
        fits = self.call(np.array(heads, np.int64), places, keys, name, notices)
        if fits and (lost := int((places >= view.nbytes).sum())):
            message = f"{printable(name)}: {lost} records of its index lie behind its end"
            bad.append(BadFile(name, "truncated", message))
        listed = list_of(file, notices)
        self.paths += [listed.get(number, b"") for number in self.number[self.bounds[-2] :]]

    def add(self, view: memoryview, record: Extent) -> bool:
        """Takes a record; returns whether it has an image.

        Raises:
            Damaged: It is damaged, or its image is empty.
        """
        start, stop, extra, *_ = record
        data: memoryview | bytes = view[start:stop]
        if extra:
            data = joined(view[start:stop])
            if len(data) != stop - start - extra:
                raise Damaged("bad_record", "its parts do not make a whole")
        head = head_of(data)
        if head.image == len(data):
            if not head.flag:
                raise Damaged("empty", "no bytes")
            return False
        before = 4 * len(magics(data[: head.image])) if extra else 0
        if head.label is None:
            if before:
                raise Damaged("bad_record", "its labels are split")
            columns = self.labels.setdefault(f"labels.{head.type}", (array("q"), array("q")))
            for column, nothing in zip(columns, (0, -1), strict=True):
                column.extend([nothing] * (len(self.place) - len(column)))
            columns[0].append(start + head.labels[0])
            columns[1].append(head.labels[1] - head.labels[0])
        self.place.append(start + head.image + before)
        self.size.append(len(data) - head.image)
        self.extra.append(extra - before)
        self.label.append(-1 if head.label is None else head.label)
        self.kind.append(head.kind)
        self.number.append(head.number)
        return True

    def call(self, heads: Ints, places: Ints, keys: Ints, file: str, notices: list[str]) -> bool:
        """Gives the samples of the last file the numbers that its index has for them; returns
        whether it has any.

        Args:
            heads: Where their records start.
            places, keys: The index.
            file: The file's name.
            notices: Takes what a user should know.
        """
        first = self.bounds[-2]
        own, fits = np.array(self.number[first:], np.uint64), np.zeros(0, np.bool_)
        if places.shape[0] and heads.shape[0]:
            at = np.searchsorted(places, heads)
            at[at == places.shape[0]] = 0
            fits = places[at] == heads
            own[fits] = keys[at[fits]]
            if not fits.any():
                notices.append(f"the index of {printable(file)} is ignored: it is another file's")
        if np.unique(own).shape[0] < own.shape[0]:
            notices.append(f"{printable(file)}: its records are numbered: their ids are not unique")
            own = np.arange(own.shape[0], dtype=np.uint64)
        self.number[first:] = array("Q", own.tolist())
        return bool(fits.any())

    def prefixes(self, stems: Sequence[str]) -> list[str]:
        """Returns what must be put before the numbers of each file: nothing, where those of all
        files are different.

        Args:
            stems: The files' names.
        """
        numbers = np.array(self.number, np.uint64)
        if np.unique(numbers).shape[0] == numbers.shape[0]:
            return [""] * len(stems)
        return [f"{stem}/" for stem in stems]

    def table(self, prefixes: Sequence[str]) -> SampleTable:
        """Returns the table of all samples."""
        count = len(self.place)
        fields = ("image", *sorted(self.labels))
        columns = [(self.place, self.size)]
        for name in fields[1:]:
            missing = count - len(self.labels[name][0])
            places, sizes = self.labels[name]
            columns.append((places + array("q", [0] * missing), sizes + array("q", [-1] * missing)))
        entries: list[bytes] = []
        for prefix, start, stop in zip(prefixes, self.bounds, self.bounds[1:], strict=False):
            rows = slice(start, stop)
            entries += [
                path or os.fsencode(f"{prefix}{number}.{KINDS[kind]}")
                for path, number, kind in zip(
                    self.paths[rows], self.number[rows], self.kind[rows], strict=True
                )
            ]
        entries = unique_names(entries, range(count))  # lists beside several files may agree
        extra = np.array(self.extra, np.uint32)
        return SampleTable(
            fields=fields,
            label=np.array(self.label, np.int64),
            kind=np.frombuffer(bytes(self.kind), np.uint8),
            width=np.zeros(count, np.uint32),
            height=np.zeros(count, np.uint32),
            path_bytes=np.frombuffer(b"".join(entries), np.uint8),
            path_offset=np.cumsum([0, *map(len, entries)], dtype=np.uint64),
            shard_row=np.array(self.bounds, np.int64),
            offset=tuple(np.array(places, np.uint64) for places, _ in columns),
            size=tuple(np.array(sizes, np.int64) for _, sizes in columns),
            extra=extra if extra.any() else None,
        )
