"""Lists the samples of a pack as lines: JSON Lines for programs, a table for people.

Rows are taken out of the table's columns some thousands at a time, and JSON is put together from
its parts: a million samples take some seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted

import numpy as np

from fastconv.loaders.errors import SampleError, printable
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.reader import Reader
from fastconv.loaders.sample import BadFile, Reason

__all__ = ["json_lines", "row_blocks", "table_lines"]

BLOCK = 4096
"""Rows taken out at once."""
BATCH = 64
"""Images read at once: the disk is told of all of them before the first is waited for."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some rows that follow each other: a list for each column.

    Attributes:
        first: Number of the first row.
        key, path: As text.
        label, kind, width, height: As in the sample table.
        size: For each field, in bytes; -1 where the sample lacks it.
        sha256: Of the image, in hexadecimal digits, None where it cannot be read; empty: not asked
            for.
    """

    first: int
    key: list[str]
    path: list[str]
    label: list[int]
    kind: list[int]
    width: list[int]
    height: list[int]
    size: list[list[int]]
    sha256: list[str | None]


def row_blocks(reader: Reader, *, sha256: bool = False, bad: list[BadFile]) -> Iterator[RowBlock]:
    """Yields all samples of a pack.

    Args:
        reader: The opened pack.
        sha256: The images are read, too, and their SHA-256 is taken.
        bad: Takes those that cannot be read.
    """
    table, step = reader.table, BATCH if sha256 else BLOCK
    for start in range(0, len(reader), step):
        stop = min(start + step, len(reader))
        yield RowBlock(
            start,
            [reader.key(row) for row in range(start, stop)],
            table.paths(start, stop),
            table.label[start:stop].tolist(),
            table.kind[start:stop].tolist(),
            table.width[start:stop].tolist(),
            table.height[start:stop].tolist(),
            [size[start:stop].tolist() for size in table.size],
            hashes(reader, start, stop, bad) if sha256 else [],
        )


def hashes(reader: Reader, start: int, stop: int, bad: list[BadFile]) -> list[str | None]:
    """Returns the SHA-256 of the images of some rows."""
    rows = np.arange(start, stop)
    reader.check(rows.tolist())
    reader.hint(rows)
    out: list[str | None] = []
    for row in rows.tolist():
        try:
            data = reader.read(row)
            out.append(None if data is None else hashlib.sha256(data).hexdigest())
        except SampleError as error:
            reason: Reason = error.reason or "unreadable"  # type: ignore[assignment]
            bad.append(BadFile(reader.table.path(row), reason, str(error)))
            out.append(None)
    return out


def class_names(meta: PackMeta) -> list[str]:
    """Returns the name of each label; none where labels are no classes."""
    return list(meta.classes) if meta.labels == "class" else []


def json_lines(block: RowBlock, meta: PackMeta) -> str:
    """Returns a JSON object a row, each on a line, ASCII alone."""
    kinds = [quoted(kind) for kind in KINDS]
    classes = [quoted(name) for name in class_names(meta)]
    sidecars = [quoted(name) for name in meta.fields[1:]]
    quotes = [f'"{digest}"' if digest else "null" for digest in block.sha256]
    hashes = [f', "sha256": {digest}' for digest in quotes]
    lines = []
    rows = zip(
        range(block.first, block.first + len(block.key)),
        map(quoted, block.key), map(quoted, block.path), block.label, block.kind,
        block.width, block.height, zip(*block.size, strict=True),
        hashes or [""] * len(block.key), strict=True,
    )  # fmt: skip
    for number, key, path, label, kind, width, height, sizes, digest in rows:
        name = classes[label] if 0 <= label < len(classes) else "null"
        fields = f"{kinds[kind]}: {sizes[0]}"
        for sidecar, size in zip(sidecars, sizes[1:], strict=True):
            if size >= 0:
                fields += f", {sidecar}: {size}"
        lines.append(
            f'{{"index": {number}, "key": {key}, "path": {path}, "label": {label}, '
            f'"class": {name}, "fields": {{{fields}}}, '
            f'"width": {width or "null"}, "height": {height or "null"}{digest}}}\n'
        )
    return "".join(lines)


HEAD = ("number", "key", "path", "label", "class", "fields", "width x height", "sha256")
"""The columns of the table for people."""
MOST_WIDE = 48
"""Characters that a column is made wide for; what is longer moves the rest of its line."""


def table_lines(
    block: RowBlock, meta: PackMeta, samples: int, pattern: str | None
) -> tuple[str, str]:
    """Returns the rows as lines for people, and the pattern of a line for the next block.

    Args:
        block: The rows.
        meta: What the pack says of itself.
        samples: How many the pack has.
        pattern: That of the block before; None: this is the first, which begins with a head.
    """
    classes = [printable(name) for name in class_names(meta)]
    names = [classes[label] if 0 <= label < len(classes) else "-" for label in block.label]
    fields = []
    for kind, sizes in zip(block.kind, zip(*block.size, strict=True), strict=True):
        present = zip((KINDS[kind], *meta.fields[1:]), sizes, strict=True)
        fields.append(" ".join(f"{name}:{size}" for name, size in present if size >= 0))
    pixels = zip(block.width, block.height, strict=True)
    columns: list[list[str]] = [
        list(map(str, range(block.first, block.first + len(names)))),
        list(map(printable, block.key)),
        list(map(printable, block.path)),
        list(map(str, block.label)),
        names,
        fields,
        [f"{width}x{height}" if width and height else "-" for width, height in pixels],
    ]
    if block.sha256:
        columns.append([digest or "-" for digest in block.sha256])
    lines = []
    if pattern is None:
        head = HEAD[: len(columns)]
        most = [max(map(len, column)) for column in columns]
        most[0] = len(str(samples - 1))
        widths = [max(len(name), min(MOST_WIDE, m)) for name, m in zip(head, most, strict=True)]
        right = [">" if name in ("number", "label") else "<" for name in head]
        cells = [f"{{:{side}{width}}}" for side, width in zip(right, widths, strict=True)]
        pattern = "  ".join([*cells[:-1], "{}"]) + "\n"
        lines.append(pattern.format(*head))
    lines += [pattern.format(*row) for row in zip(*columns, strict=True)]
    return "".join(lines), pattern
