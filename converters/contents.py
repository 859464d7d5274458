"""What a pack holds: its samples one by one, for `ls`, and all of it together, for `info`.

Everything comes from the sample table, in columns: a pack of millions is described without reading it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.loaders.kinds import KINDS
from fastconv.loaders.reader import Reader

__all__ = ["Contents", "FieldContents", "Row", "contents", "rows"]

BLOCK = 4096
"""Rows whose columns are turned into Python's numbers together."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample.

    Attributes:
        index: Its number.
        key: Its name inside the container.
        path: Where it comes from, as `os.fsdecode` text.
        label: Class id or integer label, -1 for none.
        class_name: Name of its class; None where there is none.
        fields: Name -> size in bytes of each field that it has; the image by the name of its format.
        width, height: Of its image in pixels; None where unknown.
        sha256: Of its image, where that was asked for.
    """

    index: int
    key: str
    path: str
    label: int
    class_name: str | None
    fields: dict[str, int]
    width: int | None
    height: int | None
    sha256: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `ls --json` prints."""
        entry: dict[str, Any] = {
            "index": self.index,
            "key": self.key,
            "path": self.path,
            "label": self.label,
            "class": self.class_name,
            "fields": self.fields,
            "width": self.width,
            "height": self.height,
        }
        if self.sha256 is not None:
            entry["sha256"] = self.sha256
        return entry


def rows(reader: Reader, sha256: bool = False) -> Iterator[Row]:
    """Yields all samples in order.

    Args:
        reader: The opened pack.
        sha256: Whether to read each image for its SHA-256.

    Raises:
        PackError: An image cannot be read.
    """
    table, meta = reader.table, reader.meta
    classes = meta.classes if meta.labels == "class" else ()
    for start in range(0, len(table), BLOCK):
        stop = min(start + BLOCK, len(table))
        if sha256:
            reader.hint(np.arange(start, stop))
        columns = zip(
            range(start, stop),
            table.paths(start, stop),
            table.label[start:stop].tolist(),
            table.kind[start:stop].tolist(),
            table.width[start:stop].tolist(),
            table.height[start:stop].tolist(),
            zip(*(size[start:stop].tolist() for size in table.size), strict=True),
            strict=True,
        )
        for index, path, label, kind, width, height, sizes in columns:
            fields = {KINDS[kind]: sizes[0]}
            for name, size in zip(table.fields[1:], sizes[1:], strict=True):
                if size >= 0:
                    fields[name] = size
            yield Row(
                index, reader.key(index), path, label,
                classes[label] if 0 <= label < len(classes) else None,
                fields, width or None, height or None,
                hashlib.sha256(reader.read(index) or b"").hexdigest() if sha256 else None,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldContents:
    """One field of all samples.

    Attributes:
        samples: How many have it.
        bytes: Of all of them together.
        generated: It was no file: it comes from a file of labels.
    """

    samples: int
    bytes: int
    generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A pack as a whole.

    Attributes:
        path: Where it lies.
        format: Name of its format.
        id: Its id; "" where fastconv did not make it.
        samples: How many.
        labels: What labels are: "class", "int" or "none".
        classes: Names of the classes.
        class_counts: Name of a class -> its samples.
        fields: Name -> what there is of it, the image first.
        kinds: Format of an image -> how many there are.
        bytes: Of all fields together.
        size: Of its files on the disk, in bytes.
        widths, heights: (smallest, median, largest) in pixels; None where none are known.
        settings: Of the format's options, what is not the default.
        shards: Names and sizes of its data files.
    """

    path: str
    format: str
    id: str
    samples: int
    labels: str
    classes: tuple[str, ...]
    class_counts: dict[str, int]
    fields: dict[str, FieldContents]
    kinds: dict[str, int]
    bytes: int
    size: int
    widths: tuple[int, int, int] | None
    heights: tuple[int, int, int] | None
    settings: dict[str, Any] = field(default_factory=dict)
    shards: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `info --json` prints."""
        return {
            "path": self.path,
            "format": self.format,
            "id": self.id or None,
            "samples": self.samples,
            "labels": self.labels,
            "classes": list(self.classes),
            "class_counts": self.class_counts,
            "fields": {
                name: {"samples": f.samples, "bytes": f.bytes, "generated": f.generated}
                for name, f in self.fields.items()
            },
            "formats": self.kinds,
            "bytes": self.bytes,
            "size": self.size,
            "width": self.widths and dict(zip(("min", "median", "max"), self.widths, strict=True)),
            "height": self.heights and dict(zip(("min", "median", "max"), self.heights, strict=True)),
            "settings": self.settings,
            "shards": [{"name": name, "size": size} for name, size in self.shards],
        }


def contents(reader: Reader) -> Contents:
    """Returns what there is in a pack."""
    table, meta = reader.table, reader.meta
    fields = {}
    for name, size in zip(table.fields, table.size, strict=True):
        there = size[size >= 0]
        fields[name] = FieldContents(int(there.shape[0]), int(there.sum()), name in meta.generated)
    kinds = np.bincount(table.kind, minlength=len(KINDS)).tolist()
    counts: dict[str, int] = {}
    if meta.labels == "class":
        known = table.label[table.label >= 0]
        numbers = np.bincount(known, minlength=len(meta.classes)).tolist()
        counts = dict(zip(meta.classes, numbers, strict=False))
    return Contents(
        path=reader.path,
        format=meta.format,
        id=meta.id,
        samples=len(table),
        labels=meta.labels,
        classes=meta.classes,
        class_counts=counts,
        fields=fields,
        kinds={name: count for name, count in zip(KINDS, kinds, strict=True) if count},
        bytes=sum(f.bytes for f in fields.values()),
        size=size_on_disk(reader.path),
        widths=three(table.width),
        heights=three(table.height),
        settings=dict(meta.settings),
        shards=tuple((shard.name or os.path.basename(reader.path), shard.size) for shard in meta.shards),
    )


def three(pixels: npt.NDArray[np.uint32]) -> tuple[int, int, int] | None:
    """Returns the smallest, median and largest of the known ones."""
    known = pixels[pixels > 0]
    if not known.shape[0]:
        return None
    return int(known.min()), int(np.median(known)), int(known.max())


def size_on_disk(path: str) -> int:
    """Returns the bytes of a pack's files, with the table that lies beside a single one."""
    if os.path.isdir(path):
        return sum(
            os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names
        )
    beside = f"{path}.index.safetensors"
    return os.path.getsize(path) + (os.path.getsize(beside) if os.path.exists(beside) else 0)
