"""What other people's Parquet files hold, as samples: which columns are what, and all rows of them.

Needs `pyarrow`, which is imported when a file is opened.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.loaders.compressed import refuse_compressed
from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    MissingDependencyError,
    UsageError,
    printable,
)
from fastconv.loaders.files import MappedFile, map_file
from fastconv.loaders.kinds import kind_code, kind_of_name
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.names import class_names, is_name, problem_of_field, unique_names
from fastconv.loaders.parquet_bytes import Leaf, RowGroup, plain_values, read_footer
from fastconv.loaders.sample import IMAGE, BadFile, Reason
from fastconv.loaders.table import SampleTable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "Columns",
    "Group",
    "ParquetFile",
    "Rows",
    "arrow_errors",
    "find_columns",
    "read_rows",
    "words_of",
]

Ints = npt.NDArray[np.int64]

IMAGES: Final = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes")
"""Names of columns that are images, the likeliest first."""
LABELS: Final = ("label", "labels", "class", "cls", "target", "category")
"""Names of columns that are labels, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are what.

    Attributes:
        image: The images' bytes.
        kind: The format that the column's name promises; "bin" where it promises none.
        path: The images' names; None where there are none.
        label: The labels; None where there are none.
        classes: Names of the classes, whose numbers the labels are.
        others: Fields besides, by their names.
        notices: What a user should know of the others, and of the classes.
    """

    image: Leaf
    kind: str
    path: Leaf | None
    label: str | None
    classes: tuple[str, ...]
    others: Mapping[str, Leaf]
    notices: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields, the image first."""
        return (IMAGE, *self.others)

    @property
    def leaves(self) -> list[Leaf]:
        """The column of each field."""
        return [self.image, *self.others.values()]


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """An opened file.

    Attributes:
        file: It, mapped.
        groups: Its row groups.
        decoder: It, as `pyarrow` opens it.
    """

    file: MappedFile
    groups: list[RowGroup]
    decoder: pq.ParquetFile

    @classmethod
    def of(cls, path: str) -> ParquetFile:
        """Returns the file at a path, opened.

        Raises:
            NotAPackError: It is compressed as a whole.
            CorruptPackError: It is cut short or damaged.
            MissingDependencyError: There is no `pyarrow`.
            PackError: The system does not let us read it.
        """
        file = map_file(path)
        view = file.view
        refuse_compressed(path, view)
        if view.nbytes < 12 or bytes(view[-4:]) != b"PAR1":
            raise CorruptPackError(
                f"{printable(path)}: not a complete Parquet file, it is truncated or was not "
                "written to its end: copy or make it again"
            )
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise MissingDependencyError(
                f"{printable(path)}: to read this Parquet file, fastconv needs the package "
                "pyarrow: pip install 'fastconv[parquet]'"
            ) from error
        try:
            # What the footer says is read here: pyarrow's own way to it aborts over damage.
            groups = read_footer(view)
            # Our own map is read: names of any bytes can be opened, and forks share no offset.
            source = pa.BufferReader(pa.py_buffer(view))
            decoder = pq.ParquetFile(source, page_checksum_verification=True)
        except arrow_errors() as error:
            raise CorruptPackError(f"{printable(path)}: damaged: {words_of(error)}") from error
        return cls(file, groups, decoder)

    def column(self, group: int, leaf: Leaf) -> pa.ChunkedArray:
        """Returns a column of a row group, decoded.

        Raises:
            arrow_errors(): It is damaged.
            CorruptPackError: The file was cut short since it was opened.
        """
        import pyarrow.compute as pc

        self.file.check()
        table = self.decoder.read_row_group(group, columns=[".".join(leaf)], use_threads=False)
        column = table.column(leaf[0])
        return column if len(leaf) == 1 else pc.struct_field(column, leaf[1])


def arrow_errors() -> tuple[type[Exception], ...]:
    """Returns what `pyarrow` raises over damaged files."""
    import pyarrow as pa

    return (
        pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError,
        MemoryError,
    )  # fmt: skip


def words_of(error: Exception) -> str:
    """Returns one line of what `pyarrow` says."""
    return " ".join(printable(str(error).split("\n")[0]).split()) or type(error).__name__


# ----------------------------------------------------------------------------- which column is what


def find_columns(
    file: str, schema: pa.Schema, image_key: str | None = None, label_key: str | None = None
) -> Columns:
    """Returns which columns of a file are what.

    Args:
        file: Its path, for messages.
        schema: Its columns.
        image_key, label_key: The names of these columns; by default the likeliest.

    Raises:
        UsageError: There is no such column, or several, or it cannot be told which one holds the
            images.
    """
    features = hugging_face_features(schema.metadata or {})
    bytes_in = {field.name: leaf for field in schema if (leaf := bytes_leaf(field))}
    image = image_column(file, schema.names, bytes_in, features, image_key)
    label = label_column(file, schema, features, label_key)
    count = Counter(schema.names)
    for name, option in ((image, "--image-key"), (label, "--label-key")):
        if name is not None and count[name] > 1:
            raise UsageError(
                f"{printable(file)}: {count[name]} columns are called {printable(name)}: rename "
                f"them, or name another one with {option}"
            )
    leaf = bytes_in[image]
    path = None
    kind = schema.field(image).type
    if len(leaf) > 1 and kind.get_field_index("path") >= 0 and is_text(kind.field("path").type):
        path = (image, "path")
    others: dict[str, Leaf] = {}
    unread = [name for name in count if count[name] > 1]  # which cannot be told apart
    for field in schema:
        name = field.name.lower()
        leaf_of = bytes_in.get(field.name) or ((field.name,) if is_text(field.type) else None)
        if field.name in (image, label, *unread):
            continue
        if leaf_of and name not in others and not problem_of_field(name):
            others[name] = leaf_of
        else:
            unread.append(field.name)
    names = features.get(label or "", {}).get("names")
    classes = class_names(names) if isinstance(names, list) else ()
    notices = []
    if unread:
        notices.append(f"columns that are not read: {printable(', '.join(unread))}")
    if names and not classes:
        notices.append("the names of classes are left out: some are empty, no text, or there twice")
    return Columns(
        image=leaf,
        kind=kind_of_name(f".{image}") or "bin",
        path=path,
        label=label,
        classes=classes,
        others=dict(sorted(others.items())),
        notices=tuple(notices),
    )


def hugging_face_features(metadata: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """Returns what Hugging Face `datasets` says of each column, as far as it says something."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return {name: about for name, about in features.items() if isinstance(about, dict)}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def image_column(
    file: str,
    names: Sequence[str],
    bytes_in: Mapping[str, Leaf],
    features: Mapping[str, Mapping[str, Any]],
    key: str | None,
) -> str:
    """Returns the name of the column that holds the images.

    Raises:
        UsageError: There is none, or it cannot be told which.
    """
    told = [name for name in bytes_in if features.get(name, {}).get("_type") == "Image"]
    pool = told or [*bytes_in]
    known = {name.lower(): name for name in reversed(pool)}
    named = [known[name] for name in IMAGES if name in known]
    if key is not None:
        named, pool = [], [key] if key in bytes_in else []
    shown = printable(", ".join(names))
    if not pool:
        wanted = "" if key is None else f" {printable(key)}"
        raise UsageError(
            f"{printable(file)}: no image column{wanted}: its columns are {shown}; images are a "
            "column of bytes, or of bytes and path as Hugging Face datasets have them"
        )
    if not (named or told) and len(pool) > 1:
        raise UsageError(
            f"{printable(file)}: cannot tell which column holds the images (its columns are "
            f"{shown}): name it with --image-key"
        )
    return (named or pool)[0]


def label_column(
    file: str, schema: pa.Schema, features: Mapping[str, Mapping[str, Any]], key: str | None
) -> str | None:
    """Returns the name of the column that holds the labels; None where none does.

    Raises:
        UsageError: The one that was asked for does not.
    """
    fit = [field.name for field in schema if is_label(field.type)]
    if key is not None:
        if key not in fit:
            raise UsageError(
                f"{printable(file)}: no label column {printable(key)}: of its columns, these hold "
                f"integers or text: {printable(', '.join(fit)) or 'none'}"
            )
        return key
    told = [name for name in fit if features.get(name, {}).get("_type") == "ClassLabel"]
    known = {name.lower(): name for name in reversed(fit)}
    return next(iter([*told, *(known[name] for name in LABELS if name in known)]), None)


def bytes_leaf(field: pa.Field) -> Leaf | None:
    """Returns where the bytes of a column are; None where it has none."""
    if is_bytes(field.type):
        return (field.name,)
    import pyarrow as pa

    if pa.types.is_struct(field.type):
        part = field.type.get_field_index("bytes")
        if part >= 0 and is_bytes(field.type.field(part).type):
            return (field.name, "bytes")
    return None


def is_bytes(kind: pa.DataType) -> bool:
    """Returns whether values are bytes."""
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values are text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_label(kind: pa.DataType) -> bool:
    """Returns whether values can be labels: integers, or text, of which every value is a class."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or is_text(kind))


# ------------------------------------------------------------------------------------- all its rows


class Group(NamedTuple):
    """A row group: which file it is in, its number there, where its rows start in the file and in
    all files together, and how many they are."""

    file: int
    number: int
    start: int
    first: int
    rows: int


class Found(NamedTuple):
    """What a row group holds.

    Attributes:
        place: Of each field int64 (n,): where its bytes start in the file, where that is known.
        size: Of each field int64 (n,): how many they are; -1 where it is missing.
        label: int64 or bytes (n,); None where there are no labels.
        name: Of the images; None where one has none.
        too_large: How many labels do not fit into 64 bits; they are missing.
    """

    place: list[Ints]
    size: list[Ints]
    label: pa.Array | None
    name: list[bytes | None]
    too_large: int

    def of_rows(self, rows: Ints) -> Found:
        """Returns the same of some rows."""
        return Found(
            [column[rows] for column in self.place],
            [column[rows] for column in self.size],
            None if self.label is None else self.label.take(rows),
            [self.name[row] for row in rows.tolist()],
            self.too_large,
        )


class FileState(NamedTuple):
    """A file as it was when its rows were read: which one, when it was last written to (ns), and
    its bytes."""

    inode: tuple[int, int]
    mtime: int
    size: int


@dataclass(frozen=True, slots=True)
class Rows:
    """What files hold.

    Attributes:
        table: The samples; the places of a field are 0 where it is not stored as it is.
        classes: Names of the classes.
        labels: What the labels are.
        files: The files, as they were.
        groups: The row groups.
        number: int64 (N,): which row of all files each sample is.
        plain: Of each field whether it is stored as it is.
        bad: Rows that are no samples.
        notices: What a user should know of the labels.
    """

    table: SampleTable
    classes: tuple[str, ...]
    labels: LabelKind
    files: tuple[FileState, ...]
    groups: tuple[Group, ...]
    number: Ints
    plain: tuple[bool, ...]
    bad: list[BadFile]
    notices: list[str]


def read_rows(
    path: str, files: Sequence[str], image_key: str | None, label_key: str | None
) -> tuple[Rows, Columns]:
    """Returns all rows of files, and which columns they come from.

    Args:
        path: The pack, for messages.
        files: One or more.
        image_key, label_key: As for `find_columns`.

    Raises:
        UsageError: There is no such column, or none of images.
        CorruptPackError: A file is cut short, lacks a column, or is damaged where it says what it
            holds.
        MissingDependencyError: There is no `pyarrow`.
        PackError: The system does not let us read one.
    """
    scan: Scan | None = None
    for name in files:
        file = ParquetFile.of(name)
        if scan is None:
            schema = file.decoder.schema_arrow
            scan = Scan(find_columns(path, schema, image_key, label_key))
        scan.add(file)
    assert scan is not None
    return scan.rows(), scan.columns


class Scan:
    """Gathers what files hold, one after the other: no more than one of them is open.

    Attributes:
        files: Inode, time of the last change and size of each.
        groups: Their row groups.
        parts: What these hold of samples.
        numbers: Which of all rows they are.
        counts: How many samples each file has.
        plain: Of each field whether it is stored as it is.
        bad: Rows that are no samples.

    Args:
        columns: Which column is what.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.files: list[FileState] = []
        self.groups: list[Group] = []
        self.parts: list[Found] = []
        self.numbers: list[Ints] = []
        self.counts: list[int] = []
        self.plain = [True] * len(columns.leaves)
        self.bad: list[BadFile] = []

    def add(self, parquet: ParquetFile) -> None:
        """Takes the next file.

        Raises:
            CorruptPackError: It lacks a column.
        """
        file, columns = parquet.file, self.columns
        check_columns(parquet, columns)
        for slot, leaf in enumerate(columns.leaves):
            self.plain[slot] &= all(group.chunks[leaf].plain for group in parquet.groups)
        self.files.append(FileState(file.inode, file.mtime, file.view.nbytes))
        first = self.groups[-1].first + self.groups[-1].rows if self.groups else 0
        start = count = 0
        for number, about in enumerate(parquet.groups):
            group = Group(len(self.files) - 1, number, start, first + start, about.rows)
            self.groups.append(group)
            start += about.rows
            try:
                part = read_group(parquet, number, columns)
            except FastconvError:
                raise
            except arrow_errors() as error:
                words = f"its row group is damaged: {words_of(error)}"
                self.refuse(file.path, group, range(group.rows), "bad_record", words)
                continue
            there = part.size[0] > 0
            for row in np.flatnonzero(~there).tolist():
                self.refuse(file.path, group, [row], "empty", no_image(part.name[row]))
            rows = np.flatnonzero(there)
            self.numbers.append(rows + group.first)
            self.parts.append(part.of_rows(rows))
            count += len(rows)
        self.counts.append(count)

    def refuse(
        self, path: str, group: Group, rows: Iterable[int], reason: Reason, words: str
    ) -> None:
        """Takes note of rows of a row group that are no samples."""
        for row in rows:
            where = f"{printable(os.path.basename(path))}: row {group.start + row}"
            self.bad.append(BadFile(f"row {group.first + row}", reason, f"{where}: {words}"))

    def rows(self) -> Rows:
        """Returns what was gathered."""
        columns = self.columns
        nothing = np.zeros(0, np.int64)
        number = np.concatenate([nothing, *self.numbers])
        label, classes, labels, notices = labels_of(self.parts, columns, len(number))
        given = [name for part in self.parts for name in part.name]
        names = unique_names(given, number.tolist(), "row")
        slots = range(len(columns.fields))
        place = [
            np.concatenate([nothing, *(part.place[slot] for part in self.parts)]) for slot in slots
        ]
        table = SampleTable(
            fields=columns.fields,
            label=label,
            kind=kinds_of(names, columns.kind),
            width=np.zeros(len(number), np.uint32),
            height=np.zeros(len(number), np.uint32),
            path_bytes=np.frombuffer(b"".join(names), np.uint8),
            path_offset=np.cumsum([0, *map(len, names)], dtype=np.uint64),
            shard_row=np.cumsum([0, *self.counts]),
            offset=tuple(column.astype(np.uint64) for column in place),
            size=tuple(
                np.concatenate([nothing, *(part.size[slot] for part in self.parts)])
                for slot in slots
            ),
        )
        return Rows(
            table,
            classes,
            labels,
            tuple(self.files),
            tuple(self.groups),
            number,
            tuple(self.plain),
            self.bad,
            notices,
        )


def check_columns(parquet: ParquetFile, columns: Columns) -> None:
    """Checks that a file has the columns.

    Raises:
        CorruptPackError: It lacks one.
    """
    wanted = [*columns.leaves, columns.path, columns.label and (columns.label,)]
    for leaf in filter(None, wanted):
        if any(leaf not in group.chunks for group in parquet.groups):
            raise CorruptPackError(
                f"{printable(parquet.file.path)}: has no column {printable(leaf[0])}, which the "
                "files beside it have: move it away"
            )


def no_image(name: bytes | None) -> str:
    """Returns what is wrong with a row without an image.

    Args:
        name: That it has for the image.
    """
    if name:  # what `datasets` writes of local files, unless it is asked to embed them
        return f"has no image, only the path of a file: {printable(os.fsdecode(name))}"
    return "has no image: it is null or empty"


def read_group(parquet: ParquetFile, number: int, columns: Columns) -> Found:
    """Returns what a row group holds.

    Args:
        parquet: Its file.
        number: Which one.
        columns: Which columns are what.

    Raises:
        arrow_errors(): It is damaged.
        CorruptPackError: The file was cut short since it was opened.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    about = parquet.groups[number]
    places, sizes = [], []
    for leaf in columns.leaves:
        chunk = about.chunks[leaf]
        if chunk.plain:
            place, size = plain_values(
                parquet.file.view, chunk.start, chunk.stop, about.rows, chunk.most
            )
        else:
            lengths = pc.binary_length(parquet.column(number, leaf))
            size = lengths.fill_null(-1).to_numpy().astype(np.int64)
            place = np.zeros(len(size), np.int64)
        places.append(place)
        sizes.append(size)
    label, too_large = None, 0
    name: list[bytes | None] = [None] * about.rows
    if columns.label is not None:
        column = parquet.column(number, (columns.label,))
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.type == pa.uint64():
            fits = pc.less(column, pa.scalar(1 << 63, pa.uint64()))
            too_large = pc.sum(pc.invert(fits)).as_py() or 0
            column = pc.if_else(fits, column, pa.scalar(None, pa.uint64()))
        kind = pa.large_binary() if is_text(column.type) else pa.int64()
        label = column.cast(kind).combine_chunks()
    if columns.path is not None:
        column = parquet.column(number, columns.path)
        name = column.cast(pa.large_binary()).to_pylist()
    if {about.rows} != {len(name), *map(len, sizes), len(name if label is None else label)}:
        raise ValueError("its columns do not have as many rows as it says")
    return Found(places, sizes, label, name, too_large)


def labels_of(
    parts: Sequence[Found], columns: Columns, count: int
) -> tuple[Ints, tuple[str, ...], LabelKind, list[str]]:
    """Returns the labels of all samples, the names of the classes, what the labels are, and what a
    user should know of them.

    Args:
        parts: What the row groups hold.
        columns: Which columns they come from.
        count: How many samples there are.
    """
    import pyarrow as pa

    known = [part.label for part in parts if part.label is not None]
    if not known:
        return np.full(count, -1, np.int64), (), "none", []
    found = pa.chunked_array(known).combine_chunks()
    if pa.types.is_integer(found.type):
        label: Ints = found.fill_null(-1).to_numpy(zero_copy_only=False)
        named = bool(columns.classes) and label.max(initial=-1) < len(columns.classes)
        lost = sum(part.too_large for part in parts)
        notices = [f"labels that do not fit into 64 bits are left out: {lost}"] if lost else []
        return label, columns.classes if named else (), "class" if named else "int", notices
    found = found.dictionary_encode()
    names = [os.fsdecode(name) for name in found.dictionary.to_pylist()]
    classes = sorted(filter(is_name, names))
    ids = {name: number for number, name in enumerate(classes)}
    of_code = np.array([*(ids.get(name, -1) for name in names), -1], np.int64)
    label = of_code[found.indices.fill_null(len(names)).to_numpy()]
    lost = int((label < 0).sum()) - found.null_count
    notices = [f"labels that are no names of classes are left out: {lost}"] if lost else []
    return label, tuple(classes), "class", notices


def kinds_of(names: Sequence[bytes], usual: str) -> npt.NDArray[np.uint8]:
    """Returns the formats that names promise, uint8 (N,), as in the sample table.

    Args:
        names: They.
        usual: What those promise that have no image's extension.
    """
    found = (kind_of_name(os.fsdecode(name)) or usual for name in names)
    return np.fromiter(map(kind_code, found), np.uint8, len(names))
