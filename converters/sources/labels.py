"""Labels from a file instead of from class folders, and class names from a text file.

A file of labels has one row a sample: `file_name`, relative to the folder of images, and `label`,
as the metadata files of Hugging Face `datasets` do. It is CSV with a header (.csv, .tsv) or has one
JSON object a line (.jsonl, .ndjson, .json). Other columns go along as the field `json`.
"""

from __future__ import annotations

import csv
import json
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, NoReturn

import numpy as np

from fastconv.loaders.classes import empty_classes_warning, numbers_notice, some_of, sort_classes
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import extension_of, is_clutter, is_hidden
from fastconv.loaders.files import open_file
from fastconv.loaders.listing import Bytes, Ignored, Ints, Listing, Places, WalkOptions
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.sample import BadFile

__all__ = ["EXTRA_FIELD", "apply_labels", "read_class_names"]

EXTRA_FIELD: Final = "json"
"""The field that holds the other columns of a file of labels."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_INT64 = range(-(2**63), 2**63)

Record = tuple[int, dict[str, Any]]


@dataclass(slots=True)
class _Rows:
    """What a file of labels says.

    Attributes:
        file: Its name, for messages.
        position: Name of a file -> number of its row.
        line: Line of each row.
        label: Of each row, as written: text in CSV; integers or text in JSON.
        extra: Of each row, the other columns as a JSON object in UTF-8.
        has_extra: Whether any row has other columns.
    """

    file: str
    position: dict[str, int] = field(default_factory=dict)
    line: list[int] = field(default_factory=list)
    label: list[int | str] = field(default_factory=list)
    extra: list[bytes] = field(default_factory=list)
    has_extra: bool = False

    def refuse(self, line: int, problem: str) -> NoReturn:
        raise UsageError(f"{printable(self.file)}, line {line}: {problem}")


def read_class_names(path: str) -> tuple[str, ...]:
    """Returns the class names of a text file that has one a line; empty lines do not count.

    Raises:
        UsageError: The file cannot be read, has no name, or one of them twice.
    """
    try:
        with _opened(path) as lines:
            names = [line.rstrip("\n") for line in lines]
    except OSError as error:
        raise UsageError(f"{printable(path)}: {error.strerror}") from error
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name.strip() and first.setdefault(name, number) != number:
            raise UsageError(
                f"{printable(path)}, line {number}: class {printable(name)!r} stands there already "
                f"on line {first[name]}; each class has one number"
            )
    if not first:
        raise UsageError(f"{printable(path)}: names no class; write one a line")
    return tuple(first)


def _opened(path: str, newline: str | None = None) -> IO[str]:
    return open(open_file(path), encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def apply_labels(listing: Listing, file: str, options: WalkOptions) -> Listing:
    """Returns a listing's samples with the labels that a file gives them, in the order of labels.

    The listing must have been made without labels, so that it is in the order of folders and names.
    Images that the file does not list are bad, and so are names in it that are no images. Labels
    are class ids where classes are given or where they are names, plain integers otherwise.

    Args:
        listing: What `walk_folder` found, with `labels=False`.
        file: CSV (.csv, .tsv) or JSON Lines (.jsonl, .ndjson, .json).
        options: Those of the walk: its `classes` and `class_order` are meant for these labels.

    Raises:
        UsageError: The file cannot be read or understood, or has a class that is not given.
    """
    rows = _read_rows(file)
    if rows.has_extra and EXTRA_FIELD in listing.fields:
        raise UsageError(
            f"{printable(file)} has more columns than file_name and label, which become the field "
            f"{EXTRA_FIELD}; leave out the sidecar {EXTRA_FIELD}, or those columns"
        )
    ids, kind, classes = _ids(rows, options)
    matched, unlisted, missing = _match(listing, rows)
    own_name = _name_below(file, listing.root)
    if own_name in unlisted:
        unlisted.remove(own_name)  # it is a candidate where files of any name are, and not counted
        own_name = None
    message = f"not listed in {printable(file)}; add it there, or move it away"
    bad = listing.bad + [BadFile(path, "no_class", message) for path in unlisted]
    bad += _not_there(listing, rows, missing)
    there = np.flatnonzero(matched >= 0)
    there = there[np.argsort(ids[matched[there]], kind="stable")]
    matched = matched[there]
    label = ids[matched]
    warnings, notices = list(listing.warnings), list(listing.notices)
    if kind == "class":
        known = label[label >= 0]
        warnings += empty_classes_warning(
            classes, np.bincount(known, minlength=len(classes)).tolist()
        )
        if options.classes is None:
            notices += numbers_notice(classes, options.class_order)

    fields, size = listing.fields, [column[there] for column in listing.size]
    generated = {}
    slot = None
    if rows.has_extra:
        fields = (fields[0], *sorted((*fields[1:], EXTRA_FIELD)))
        slot = fields.index(EXTRA_FIELD)
        extra = [rows.extra[position] for position in matched.tolist()]
        generated[EXTRA_FIELD] = _arena(extra)
        size.insert(slot, np.fromiter(map(len, extra), np.int64, len(extra)))
    path_bytes, path_offset = _arena(_paths(listing, there, slot))
    return replace(
        listing,
        fields=fields,
        label=label,
        kind=listing.kind[there],
        path_bytes=path_bytes,
        path_offset=path_offset,
        size=tuple(size),
        stamp=listing.stamp[there],
        classes=classes,
        labels=kind,
        bad=bad,
        ignored=_without(listing.ignored, own_name),
        warnings=warnings,
        notices=notices,
        generated=generated,
    )


def _read_rows(file: str) -> _Rows:
    rows = _Rows(file)
    suffix = extension_of(os.path.basename(file))
    if suffix not in (".csv", ".tsv", ".jsonl", ".ndjson", ".json"):
        raise UsageError(
            f"{printable(file)}: labels are read from .csv, .tsv, .jsonl, .ndjson or .json"
        )
    read = _csv_records if suffix in (".csv", ".tsv") else _json_records
    try:
        for line, record in read(rows, "\t" if suffix == ".tsv" else ","):
            _add_row(rows, line, record)
    except OSError as error:
        raise UsageError(f"{printable(file)}: {error.strerror}") from error
    if read is _csv_records:
        rows.label = _numbers_of(rows.label)
    if not rows.line:
        raise UsageError(f"{printable(file)}: lists no files")
    return rows


def _csv_records(rows: _Rows, delimiter: str) -> Iterator[Record]:
    with _opened(rows.file, newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        line = 1
        try:
            columns = next(reader, [])
            twice = [name for name, count in Counter(columns).items() if count > 1]
            if twice:
                rows.refuse(1, f"column {printable(twice[0])!r} stands there twice")
            for name in ("file_name", "label"):
                if name not in columns:
                    given = f"(columns: {some_of(columns)})" if columns else "(the file is empty)"
                    if len(columns) == 1 and any(other in columns[0] for other in ";,|\t"):
                        given += ": commas separate columns, in a .tsv tabs"
                    rows.refuse(1, f"has no column {name!r} {given}")
            line = reader.line_num + 1
            for cells in reader:
                if cells and len(cells) != len(columns):
                    rows.refuse(line, f"{len(cells)} cells in {len(columns)} columns")
                if cells:
                    yield line, dict(zip(columns, cells, strict=True))
                line = reader.line_num + 1
        except csv.Error as error:
            rows.refuse(line, f"no CSV: {error}")


def _json_records(rows: _Rows, _: str) -> Iterator[Record]:
    with _opened(rows.file) as text:
        for line, content in enumerate(text, 1):
            if not content.strip():
                continue
            try:
                record = json.loads(content, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                rows.refuse(line, f"no JSON ({error}); write one object a line")
            if not isinstance(record, dict):
                rows.refuse(line, "no JSON object; write one a line")
            for name in ("file_name", "label"):
                if name not in record:
                    rows.refuse(line, f"has no {name!r}")
            yield line, record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is none of its values")


def _add_row(rows: _Rows, line: int, record: dict[str, Any]) -> None:
    given, label = record.pop("file_name"), record.pop("label")
    if not isinstance(given, str):
        rows.refuse(line, "file_name must be text")
    name = _checked_name(rows, line, given)
    if not isinstance(label, int | str) or isinstance(label, bool):
        rows.refuse(line, "label must be an integer or the name of a class")
    if label == "":
        rows.refuse(line, f"{printable(name)!r} has no label")
    if isinstance(label, str):
        _check_text(rows, line, "label", label)
    elif label not in _INT64:
        rows.refuse(line, "label must fit into 64 bits: name a class, or number them anew")
    position = rows.position.setdefault(name, len(rows.line))
    if position != len(rows.line):
        rows.refuse(line, f"{printable(name)!r} is listed already on line {rows.line[position]}")
    rows.line.append(line)
    rows.label.append(label)
    rows.has_extra |= bool(record)
    # Lone surrogates (a CSV that is not UTF-8) become \udcXX, which is JSON's own escape for them.
    try:
        extra = _to_json(record).encode("utf-8", "backslashreplace")
    except (ValueError, RecursionError) as error:  # 1e999, or folded deeper than can be written
        rows.refuse(line, f"a value cannot be kept as JSON: {error}")
    rows.extra.append(extra)


def _check_text(rows: _Rows, line: int, column: str, text: str) -> None:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        rows.refuse(line, f"{column} {printable(text)!r} has half of a surrogate pair")


def _checked_name(rows: _Rows, line: int, given: str) -> str:
    _check_text(rows, line, "file_name", given)
    parts = [part for part in given.split("/") if part not in ("", ".")]
    if os.path.isabs(given) or ".." in parts or not parts or "\0" in given:
        rows.refuse(line, f"{printable(given)!r} is no name of a file below the folder of images")
    return "/".join(parts)


def _ids(rows: _Rows, options: WalkOptions) -> tuple[Ints, LabelKind, tuple[str, ...]]:
    """Returns the label of each row, what labels are, and the names of classes."""
    given = options.classes
    integers = _integers(rows.label)
    if integers is not None:
        if given is None:
            return integers, "int", ()
        for number in np.flatnonzero((integers < -1) | (integers >= len(given))).tolist():
            problem = f"label {integers[number]} is the number of none of the {len(given)} classes"
            rows.refuse(rows.line[number], problem)
        return integers, "class", given
    names = [str(label) for label in rows.label]
    classes = sort_classes(set(names), options.class_order) if given is None else given
    id_of = {name: number for number, name in enumerate(classes)}
    for line, name in zip(rows.line, names, strict=True):
        if name not in id_of:
            problem = f"class {printable(name)!r} is not among the {len(classes)} given classes"
            rows.refuse(line, f"{problem} ({some_of(classes)})")
    return np.array([id_of[name] for name in names], np.int64), "class", classes


def _numbers_of(texts: Sequence[int | str]) -> list[int | str]:
    """Returns the labels of a CSV as integers where all of them are, as the texts otherwise."""
    values = [int(text) for text in texts if _INTEGER.fullmatch(str(text).strip())]
    fit = len(values) == len(texts) and all(value in _INT64 for value in values)
    return [*values] if fit else [*texts]


def _integers(labels: Sequence[int | str]) -> Ints | None:
    """Returns the labels as integers, None unless all of them are."""
    values = [label for label in labels if isinstance(label, int)]
    return np.array(values, np.int64) if len(values) == len(labels) else None


def _match(listing: Listing, rows: _Rows) -> tuple[Ints, list[str], list[str]]:
    """Returns the row of each sample, -1 for none, the samples without one, and the names left."""
    missing = dict(rows.position)
    matched = np.full(len(listing), -1, np.int64)
    unlisted = []
    for number, stored in enumerate(_paths(listing, range(len(listing)))):
        path = os.fsdecode(stored.partition(b"\0")[0])
        matched[number] = position = missing.pop(path, -1)
        if position < 0:
            unlisted.append(path)
    return matched, unlisted, list(missing)


def _not_there(listing: Listing, rows: _Rows, names: Iterable[str]) -> Iterator[BadFile]:
    """Returns why names in the file are not among the samples, unless that is known already."""
    bad = {file.path for file in listing.bad}
    listed = f"listed in {printable(rows.file)}, but"
    for name in names:
        if name in bad:
            continue
        if os.path.lexists(os.path.join(listing.root, name)):
            message = f"{listed} left out: hidden, or without an image extension"
            yield BadFile(name, "not_an_image", message)
        else:
            yield BadFile(name, "vanished", f"{listed} not there")


def _paths(listing: Listing, rows: Iterable[int], new_slot: int | None = None) -> Iterator[bytes]:
    """Returns the paths of samples as the listing stores them, with a place for one more field."""
    block, ends = listing.path_bytes.data, listing.path_offset
    for row in rows:
        stored = bytes(block[int(ends[row]) : int(ends[row + 1])])
        if new_slot is not None and b"\0" in stored:
            names = stored.split(b"\0")
            names.insert(new_slot, b"")
            stored = b"\0".join(names)
        yield stored


def _arena(parts: Iterable[bytes]) -> tuple[Bytes, Places]:
    """Returns the parts, one after the other, and where each starts."""
    block, ends = bytearray(), array("Q", [0])
    for part in parts:
        block += part
        ends.append(len(block))
    return np.frombuffer(block, np.uint8), np.frombuffer(ends, np.uint64)


def _name_below(file: str, root: str) -> str | None:
    """Returns a file's path relative to a folder it lies in, None where it lies elsewhere."""
    folder = os.path.realpath(os.path.dirname(file) or ".")
    top = os.path.realpath(root)
    if os.path.join(folder, "").startswith(os.path.join(top, "")):
        name = os.path.relpath(os.path.join(folder, os.path.basename(file)), top)
        return name.replace(os.sep, "/")
    return None


def _without(ignored: Ignored, name: str | None) -> Ignored:
    """Returns the counts without a file, which counts unless it lies in a folder left out."""
    *folders, own = name.split("/") if name is not None else (".", "")
    if any(is_hidden(folder) or is_clutter(folder) for folder in folders):
        return ignored
    counts = Ignored(ignored.hidden, ignored.clutter, Counter(ignored.extension))
    if is_hidden(own):
        counts.hidden -= 1
    else:
        counts.extension[extension_of(own)] -= 1
    counts.extension = +counts.extension  # without those that are 0 now
    return counts
