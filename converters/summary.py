"""What is in a pack, in numbers taken from its sample table; no sample is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.loaders.index import index_path
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.reader import MappedReader, Reader
from fastconv.loaders.sample import BadFile

__all__ = ["FieldSummary", "PackSummary", "Range", "ShardSummary", "summarize_pack"]


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """How many samples have a field, and the bytes of all together."""

    samples: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Range:
    """The smallest, the middle and the largest of some numbers."""

    min: int
    median: int
    max: int


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """A data file: its name, its samples, and its size in bytes."""

    name: str
    samples: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSummary:
    """What is in a pack.

    Attributes:
        pack: Its path.
        format: Name of its format.
        id: The pack's id; "" where fastconv did not make it.
        samples: How many it has.
        labels: "class", "int" or "none".
        classes: Names of the classes.
        class_counts: How many samples each class has.
        unlabelled: How many samples have the label -1.
        fields: What there is of each field, the image first.
        formats: How many images there are of each format.
        bytes: Of all fields together.
        size: Of the pack's files on the disk, in bytes.
        width, height: Of the images whose size is known, in pixels; None where none is.
        settings: The format's options that are not at their default.
        encoding: What images became when they were packed.
        shards: The data files.
        bad: Records that were found damaged when it was opened.
        warnings: What is probably not as it was meant.
        notices: What to know besides.
    """

    pack: str
    format: str
    id: str
    samples: int
    labels: str
    classes: tuple[str, ...]
    class_counts: dict[str, int]
    unlabelled: int
    fields: dict[str, FieldSummary]
    formats: dict[str, int]
    bytes: int
    size: int
    width: Range | None
    height: Range | None
    settings: dict[str, Any]
    encoding: dict[str, Any]
    shards: tuple[ShardSummary, ...]
    bad: list[BadFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "status": "partial" if self.bad else "done",
            "pack": self.pack,
            "format": self.format,
            "id": self.id,
            "samples": self.samples,
            "labels": self.labels,
            "classes": list(self.classes),
            "class_counts": self.class_counts,
            "unlabelled": self.unlabelled,
            "fields": list(self.fields),
            "by_field": {
                name: {"samples": one.samples, "bytes": one.bytes}
                for name, one in self.fields.items()
            },
            "formats": self.formats,
            "bytes": self.bytes,
            "size": self.size,
            "width": range_json(self.width),
            "height": range_json(self.height),
            "settings": self.settings,
            "encoding": self.encoding,
            "shards": [
                {"name": shard.name, "samples": shard.samples, "size": shard.size}
                for shard in self.shards
            ],
            "bad": [bad.to_json() for bad in self.bad],
            "warnings": self.warnings,
            "notices": self.notices,
        }


def range_json(numbers: Range | None) -> dict[str, int] | None:
    """Returns the object that stands for a range."""
    if numbers is None:
        return None
    return {"min": numbers.min, "median": numbers.median, "max": numbers.max}


def summarize_pack(reader: Reader) -> PackSummary:
    """Returns what is in an opened pack."""
    table, meta = reader.table, reader.meta
    fields = {
        name: FieldSummary(int((size >= 0).sum()), int(np.maximum(size, 0).sum()))
        for name, size in zip(meta.fields, table.size, strict=True)
    }
    kinds = np.bincount(table.kind, minlength=1).tolist()
    formats = {KINDS[code]: count for code, count in enumerate(kinds) if count}
    counts: list[int] = []
    if meta.labels == "class":
        labelled = table.label[(table.label >= 0) & (table.label < len(meta.classes))]
        counts = np.bincount(labelled, minlength=len(meta.classes)).tolist()
    rows = np.diff(table.shard_row).tolist()
    return PackSummary(
        pack=reader.path,
        format=meta.format,
        id="" if reader.root else meta.id,
        samples=len(reader),
        labels=meta.labels,
        classes=meta.classes,
        class_counts=dict(zip(meta.classes, counts, strict=False)),
        unlabelled=int((table.label == -1).sum()),
        fields=fields,
        formats=dict(sorted(formats.items(), key=lambda item: -item[1])),
        bytes=sum(one.bytes for one in fields.values()),
        size=size_on_disk(reader),
        width=range_of(table.width),
        height=range_of(table.height),
        settings=dict(meta.settings),
        encoding=dict(meta.encoding),
        shards=tuple(
            ShardSummary(shard.name or os.path.basename(reader.path), count, shard.size)
            for shard, count in zip(meta.shards, rows, strict=False)
        ),
        bad=list(reader.bad),
        warnings=[] if len(reader) else ["the pack holds no samples (0 records)"],
        notices=list(reader.notices),
    )


def range_of(numbers: npt.NDArray[np.uint32]) -> Range | None:
    """Returns the range of the numbers that are not 0."""
    known = numbers[numbers > 0]
    if not known.shape[0]:
        return None
    return Range(int(known.min()), int(np.median(known)), int(known.max()))


def size_on_disk(reader: Reader) -> int:
    """Returns the bytes of a pack's files, its sample table's among them."""
    if not isinstance(reader, MappedReader):
        return sum(int(np.maximum(size, 0).sum()) for size in reader.table.size)
    files = [*reader.files, index_path(reader.path)]
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))
