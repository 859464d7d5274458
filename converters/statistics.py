"""Statistics of the images of a pack or folder: what training code is normalised and judged by.

Of each channel, over all pixels of all images together (large images count for more than small
ones), as values in [0, 1]:

    mean = sum(v) / (255 * n)        std = sqrt(sum(v**2) / n - (sum(v) / n)**2) / 255

with v = 0 ... 255 and n the number of pixels: the standard deviation of the population, and what
torchvision's `Normalize` wants. Images are decoded as RGB, at their full size, as the loaders do:
grey ones have three equal channels, alpha is dropped. Worker processes count how often each value
is there, in integers, and the quotients are taken of whole numbers at the end, so the result is the
same, to the last bit, for any number of workers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fastconv.converters.engines.choice import Engine, engine_for
from fastconv.converters.engines.local import Task
from fastconv.converters.packing import check_arguments
from fastconv.converters.part import what_opens
from fastconv.converters.plan import Cut, cut_parts, without
from fastconv.converters.report import Progress, ProgressCallback, Report
from fastconv.converters.run import Source, taken_from
from fastconv.converters.verifying import check_sample, chosen_rows, one_line_errors
from fastconv.converters.whole import open_whole
from fastconv.converters.writer import Layout, Rows
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import FastconvError, printable
from fastconv.loaders.files import inode_at
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.reader import MappedReader, Reader, Wanted
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = [
    "Distribution",
    "Duplicates",
    "PixelStatistics",
    "SameBytes",
    "StatisticsFailedError",
    "StatisticsReport",
    "statistics",
]

LENGTHS = (
    0, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
)  # fmt: skip
EDGES: dict[str, Sequence[float]] = {
    "width": LENGTHS,
    "height": LENGTHS,
    "short_side": LENGTHS,
    "aspect_ratio": (0, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 0.9, 1.1, 4 / 3, 3 / 2, 2, 3, 4),
    "megapixels": (0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
    "bytes": (
        0, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
        2_000_000, 5_000_000, 10_000_000, 20_000_000,
    ),
}  # fmt: skip
"""What is told of the images' sizes -> where its bins begin; the last one has no end. They are the
same for all data, so that two packs can be compared."""

MOST_LABELS = 100_000
"""Different integers that may be classes; where there are more, labels are quantities."""


class PixelStatistics(NamedTuple):
    """What the pixels are, in RGB.

    Attributes:
        images: How many were decoded.
        pixels: Those of all of them together.
        mean, std: Of each channel, in [0, 1].
        levels: How many pixels have each value in each channel, int64 (3, 256).
    """

    images: int
    pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    levels: npt.NDArray[np.int64]

    @classmethod
    def of(cls, levels: npt.NDArray[np.int64], images: int) -> PixelStatistics:
        """Returns what follows from how often each value is there; there is one pixel or more."""
        counts: list[list[int]] = levels.tolist()  # Python's integers: they have no limit
        n = sum(counts[0])
        sums = [sum(v * times for v, times in enumerate(channel)) for channel in counts]
        squares = [sum(v * v * times for v, times in enumerate(channel)) for channel in counts]
        mean = tuple(s / (255 * n) for s in sums)
        std = tuple(
            math.sqrt((n * q - s * s) / (255 * n) ** 2) for s, q in zip(sums, squares, strict=True)
        )
        return cls(images, n, mean, std, levels)

    def to_json(self) -> dict[str, Any]:
        """Returns the object that stands for it."""
        return {
            "images": self.images,
            "pixels": self.pixels,
            "mean": list(self.mean),
            "std": list(self.std),
            "levels": self.levels.tolist(),
        }


class Distribution(NamedTuple):
    """How a number is distributed over images.

    Attributes:
        min, median, max: Of it.
        edges: Where each bin begins; it ends before the next one, the last one has no end.
        counts: How many images are in each bin.
    """

    min: float
    median: float
    max: float
    edges: Sequence[float]
    counts: Sequence[int]

    @classmethod
    def of(cls, values: npt.NDArray[Any], edges: Sequence[float]) -> Distribution:
        """Returns how values are distributed; there is one or more."""
        place = np.searchsorted(np.asarray(edges, values.dtype), values, side="right") - 1
        number = int if values.dtype.kind in "iu" else float
        return cls(
            number(values.min()),
            number(np.median(values)),
            number(values.max()),
            edges,
            np.bincount(place, minlength=len(edges)).tolist(),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the object that stands for it."""
        return {**self._asdict(), "edges": list(self.edges), "counts": list(self.counts)}


class SameBytes(NamedTuple):
    """Images that are the same, byte for byte.

    Attributes:
        paths: Of two images or more, in the order of the pack.
        classes: What each is labelled; None: it has no label.
        bytes: Of each.
    """

    paths: Sequence[str]
    classes: Sequence[str | None]
    bytes: int

    @property
    def across(self) -> bool:
        """Whether they have different labels, of which at most one can be right."""
        return len({*self.classes} - {None}) > 1

    def to_json(self) -> dict[str, Any]:
        """Returns the object that stands for it."""
        return {"paths": list(self.paths), "classes": list(self.classes), "bytes": self.bytes}


class Duplicates(NamedTuple):
    """Images that are there more than once, by xxh3-64 and size of their bytes.

    Attributes:
        compared: How many images were compared.
        groups: Those that are the same, in the order of the pack.
    """

    compared: int
    groups: Sequence[SameBytes]

    @property
    def copies(self) -> int:
        """How many images could go without any being lost."""
        return sum(len(group.paths) - 1 for group in self.groups)

    @property
    def across_classes(self) -> list[SameBytes]:
        """Those of different labels."""
        return [group for group in self.groups if group.across]

    def to_json(self) -> dict[str, Any]:
        """Returns the object that stands for it."""
        return {
            "compared": self.compared,
            "copies": self.copies,
            "groups": [group.to_json() for group in self.groups],
            "across_classes": [group.to_json() for group in self.across_classes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsReport(Report):
    """What was found; images that are bad count nowhere.

    Attributes:
        pack: Path of the pack or folder.
        format: Name of its format.
        id: The pack's id; "" where fastconv did not make it.
        looked_at: How many images were read.
        seed: By which these were chosen; None: all were, or none.
        bytes: Of the images that `sizes` and `formats` are about.
        pixels: None where none were decoded.
        sizes: Name of a number -> how it is distributed: width, height, short_side (pixels),
            aspect_ratio (width by height), megapixels, bytes; those of which nothing is known are
            left out. Widths and heights are those that the files' headers tell.
        formats: Format of images -> how many there are; the most frequent first.
        labels: "class", "int" or "none".
        class_counts: Class, or integer as text -> how many images it has, of the whole pack.
        unlabelled: How many images have the label -1, of the whole pack.
        duplicates: None where nothing is known of the images' bytes.
    """

    pack: str
    format: str
    id: str
    looked_at: int
    seed: int | None
    pixels: PixelStatistics | None
    sizes: Mapping[str, Distribution]
    formats: Mapping[str, int]
    labels: str
    class_counts: Mapping[str, int]
    unlabelled: int
    duplicates: Duplicates | None

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether no image is bad, some are, or all of those that were read."""
        if self.bad and self.looked_at and not self.formats:
            return "failed"
        return "partial" if self.bad else "done"

    @property
    def imbalance(self) -> float | None:
        """How many times as many images the largest class has as the smallest that has any."""
        filled = [count for count in self.class_counts.values() if count]
        return max(filled) / min(filled) if filled else None

    @property
    def empty_classes(self) -> list[str]:
        """Classes without an image."""
        return [name for name, count in self.class_counts.items() if not count]

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints. How long the run took is not in it: it is the
        same whenever the data are."""
        return {
            "status": self.status,
            "pack": self.pack,
            "format": self.format,
            "id": self.id,
            "samples": self.samples,
            "looked_at": self.looked_at,
            "seed": self.seed,
            "bytes": self.bytes,
            "pixels": self.pixels and self.pixels.to_json(),
            "sizes": {name: one.to_json() for name, one in self.sizes.items()},
            "formats": dict(self.formats),
            "labels": self.labels,
            "classes": list(self.classes),
            "class_counts": dict(self.class_counts),
            "imbalance": self.imbalance,
            "empty_classes": self.empty_classes,
            "unlabelled": self.unlabelled,
            "duplicates": self.duplicates and self.duplicates.to_json(),
            "bad": [bad.to_json() for bad in self.bad],
            "warnings": list(self.warnings),
            "notices": list(self.notices),
        }


class StatisticsFailedError(FastconvError):
    """All images that were read are bad; `report` tells what was found."""

    def __init__(self, message: str, report: StatisticsReport | None = None) -> None:
        super().__init__(message)
        self.report = report


def statistics(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
    pixels: bool = True,
    sample: int | float | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> StatisticsReport:
    """Returns statistics of the images of a pack or folder, taken in one pass; nothing is written.

    What a pack's sample table tells, sizes, formats and checksums, is told of all images, whichever
    are read. Where there is no such table, it is told of those that are read.

    Args:
        path: A pack of any format, or a folder of images.
        format: Name of its format; by default its contents tell it.
        image_key, label_key: Of packs of others: what images and labels are called, see `convert`.
        pixels: Images are decoded. Without, nothing is read of a pack that has a sample table, and
            of other images no more than their headers: duplicates are not found then.
        sample: Only so many images are read, or, as a float up to 1, such a share of them: chosen
            by chance, the same for the same seed.
        seed: Chooses them.
        workers: Number of processes; by default one a core.
        progress: Called now and then, in this thread.

    Raises:
        UsageError: An argument is wrong.
        StatisticsFailedError: All images that were read are bad.
        FastconvError: It cannot be read, or was changed meanwhile.
    """
    began = time.monotonic()
    check_arguments(workers, "fast")
    check_sample(sample, None)
    wanted = Wanted((), image_key, label_key)
    reader = open_whole(path, format, wanted)
    run = Statistics(reader, pixels)
    if pixels or not reader.table.checksum:
        rows = np.arange(len(reader)) if sample is None else chosen_rows(sample, seed, len(reader))
        size = int(reader.table.size[0][rows].sum())
        with one_line_errors(reader.path), engine_for(workers, len(rows), size, pixels) as engine:
            run.look(rows, engine, wanted, progress)
    report = run.report(None if run.looked_at == len(reader) else seed, began)
    if report.status == "failed":
        first = report.bad[0]
        raise StatisticsFailedError(
            f"{printable(reader.path)}: no whole image among the {run.looked_at:,} that were read, "
            f"the first bad one is {printable(first.path)}: {first.reason}: {first.message}",
            report,
        )
    return report


class Statistics:
    """One run over one pack.

    Args:
        reader: The opened pack.
        pixels: As `statistics` takes it.

    Attributes:
        seen: Of which images something is known.
        sound: Which are not found bad.
        kind, width, height, checksum: Of each image, as in the sample table.
    """

    def __init__(self, reader: Reader, pixels: bool) -> None:
        table, count = reader.table, len(reader)
        # Without its checksums, a table is one that was made of what the pack's own headers tell.
        self.known = bool(table.checksum)
        self.reader = reader
        self.pixels = pixels
        self.seen = np.full(count, self.known)
        self.sound = np.ones(count, np.bool_)
        self.kind, self.width, self.height = (
            column.copy() for column in (table.kind, table.width, table.height)
        )
        self.checksum = table.checksum[0] if self.known else np.zeros(count, np.uint64)
        self.levels = np.zeros((3, 256), np.int64)
        self.decoded = self.looked_at = 0
        self.bad = list(reader.bad)

    def look(
        self, rows: Rows, engine: Engine, wanted: Wanted, progress: ProgressCallback | None
    ) -> None:
        """Reads the images of some rows."""
        sizes = self.reader.table.size[0]
        cuts: list[Cut] = []
        found: dict[int, list[BadFile]] = {}
        done = Progress(0, len(rows), 0, int(sizes[rows].sum()))
        for answer in engine.run(self.tasks(rows, cuts, wanted)):
            cut = cuts[answer.number]
            mine = rows[cut.start : cut.stop]
            self.take(mine, answer.arrays)
            bad = answer.content["bad"]
            self.sound[mine[[row for row, *_ in bad]]] = False
            found[answer.number] = [
                self.bad_image(int(mine[row]), *words) for row, _, *words in sorted(bad)
            ]
            done = replace(
                done,
                samples=done.samples + len(mine),
                bytes=done.bytes + int(sizes[mine].sum()),
            )
            if progress is not None:
                progress(done)
        for _, files in sorted(found.items()):
            self.bad += files
        self.looked_at = len(rows)
        self.decoded = int(self.sound[rows].sum()) if self.pixels else 0

    def take(self, rows: Rows, arrays: Mapping[str, Array]) -> None:
        """Takes over what a worker has found."""
        if self.known:  # but what the table does not know, because headers do not tell it
            unknown = self.width[rows] == 0
            for name in ("width", "height"):
                column = getattr(self, name)
                column[rows] = np.where(unknown, arrays[name], column[rows])
        else:
            self.seen[rows] = True
            for name in ("kind", "width", "height", "checksum"):
                if name in arrays:
                    getattr(self, name)[rows] = arrays[name]
        if self.pixels:
            self.levels += arrays["levels"].reshape(3, 256)

    def tasks(self, rows: Rows, cuts: list[Cut], wanted: Wanted) -> Iterator[Task]:
        """Yields a task for each part of some rows; adds the parts to `cuts`."""
        reader = self.reader
        table = of_images(reader.table)
        if len(rows) < len(table):
            left_out = np.ones(len(table), np.bool_)
            left_out[rows] = False
            table = without(table, left_out)
        source = source_of(reader, rows, wanted)
        for cut in cut_parts(table, Layout((), np.array([0, len(table)], np.int64), (), ())):
            _, start, stop = cut
            content, arrays = source(table, cut)
            content |= {
                "run": "stats", "pixels": self.pixels, "fields": table.fields, "first_row": start,
                "samples": len(table),
            }  # fmt: skip
            arrays |= {
                "label": table.label[start:stop],
                "kind": table.kind[start:stop],
                "width": table.width[start:stop],
                "height": table.height[start:stop],
                "size/image": table.size[0][start:stop],
                "place/image": np.zeros(stop - start, np.int64),
            }

            def about(first: int = int(rows[start]), last: int = int(rows[stop - 1])) -> str:
                return f"the images {first} to {last} of {printable(reader.path)}"

            cuts.append(cut)
            yield Task(len(cuts) - 1, content, arrays, about)

    def bad_image(self, row: int, reason: Reason, message: str) -> BadFile:
        """Returns a bad image, in words."""
        reader = self.reader
        if not reader.root and not message.startswith(printable(reader.path)):
            key = printable(reader.key(row))
            message = f"{printable(reader.path)}: sample {row}, key {key}: {message}"
        return BadFile(reader.table.path(row), reason, message)

    def report(self, seed: int | None, began: float) -> StatisticsReport:
        """Returns what was found."""
        reader, meta = self.reader, self.reader.meta
        told = self.seen & self.sound
        kinds = np.bincount(self.kind[told], minlength=len(KINDS))
        warnings, notices = [], list(reader.notices)
        if not len(reader):
            warnings.append("the pack holds no samples (0 records)")
        if seed is not None and self.looked_at:
            rest = len(reader) - self.looked_at
            notices.append(f"{rest:,} of {len(reader):,} images were not read")
        pixels = PixelStatistics.of(self.levels, self.decoded) if self.levels.any() else None
        if pixels is not None and not all(pixels.std):
            warnings.append(
                "all pixels have the same value in a channel: its standard deviation is 0, and "
                "Normalize cannot divide by it"
            )
        counts, unlabelled = self.class_counts()
        if meta.labels == "int" and not counts and unlabelled < len(reader):
            notices.append(f"the labels are over {MOST_LABELS:,} different integers: no classes")
        duplicates = self.duplicates(told)
        if duplicates is None and len(reader):
            notices.append("duplicates were not looked for: no checksums without the images' bytes")
        elif duplicates is not None and (across := len(duplicates.across_classes)):
            warnings.append(
                f"{across:,} {'image has' if across == 1 else 'images have'} copies with another "
                "label: at most one of the labels is right"
            )
        return StatisticsReport(
            pack=reader.path,
            format=meta.format,
            id="" if reader.root else meta.id,
            samples=len(reader),
            looked_at=self.looked_at,
            seed=seed if self.looked_at else None,
            bytes=int(reader.table.size[0][told].sum()),
            pixels=pixels,
            sizes=self.sizes(told),
            formats={
                KINDS[code]: int(kinds[code])
                for code in np.argsort(-kinds, kind="stable")
                if kinds[code]
            },
            labels=meta.labels,
            classes=meta.classes,
            class_counts=counts,
            unlabelled=unlabelled,
            duplicates=duplicates,
            bad=self.bad,
            warnings=warnings,
            notices=notices,
            seconds=time.monotonic() - began,
        )

    def sizes(self, told: npt.NDArray[np.bool_]) -> dict[str, Distribution]:
        """Returns how the sizes of some images are distributed."""
        sized = told & (self.width > 0) & (self.height > 0)
        width, height = (side[sized].astype(np.int64) for side in (self.width, self.height))
        values = {
            "width": width,
            "height": height,
            "short_side": np.minimum(width, height),
            "aspect_ratio": width / np.maximum(height, 1),
            "megapixels": width * height / 1e6,
            "bytes": self.reader.table.size[0][told],
        }
        return {
            name: Distribution.of(values[name], edges)
            for name, edges in EDGES.items()
            if len(values[name])
        }

    def class_counts(self) -> tuple[dict[str, int], int]:
        """Returns how many images each class has, and how many have none."""
        meta, label = self.reader.meta, self.reader.table.label[self.sound]
        unlabelled = int((label == -1).sum())
        if meta.labels == "class":
            label = label[(label >= 0) & (label < len(meta.classes))]
            counts = np.bincount(label, minlength=len(meta.classes)).tolist()
            return dict(zip(meta.classes, counts, strict=True)), unlabelled
        if meta.labels == "int":
            values, numbers = np.unique(label[label != -1], return_counts=True)
            if len(values) <= MOST_LABELS:
                return dict(zip(map(str, values), numbers.tolist(), strict=True)), unlabelled
        return {}, unlabelled

    def duplicates(self, told: npt.NDArray[np.bool_]) -> Duplicates | None:
        """Returns which of some images are the same; None where their checksums are unknown."""
        if not self.known and not (self.pixels and self.looked_at):
            return None
        table = self.reader.table
        rows = np.flatnonzero(told)
        # Sorting is stable: the rows of each group stay in their order.
        order = rows[np.lexsort((table.size[0][rows], self.checksum[rows]))]
        size, checksum = table.size[0][order], self.checksum[order]
        same = (size[1:] == size[:-1]) & (checksum[1:] == checksum[:-1])
        edges = np.flatnonzero(np.diff(same.astype(np.int8), prepend=0, append=0))
        groups = [
            order[start : stop + 1].tolist()
            for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        ]
        return Duplicates(
            len(rows),
            [
                SameBytes(
                    [table.path(row) for row in group],
                    [self.label_text(int(table.label[row])) for row in group],
                    int(table.size[0][group[0]]),
                )
                for group in sorted(groups)
            ],
        )

    def label_text(self, label: int) -> str | None:
        """Returns what a label means; None: nothing."""
        meta = self.reader.meta
        if meta.labels == "none" or label == -1:
            return None
        if meta.labels == "class" and 0 <= label < len(meta.classes):
            return meta.classes[label]
        return str(label)


def source_of(reader: Reader, rows: Rows, wanted: Wanted) -> Source:
    """Returns what says where the images of a part of some rows are.

    Args:
        reader: The pack.
        rows: Of its table.
        wanted: What was asked of it.
    """
    path = os.path.abspath(reader.path)
    inode = [*(inode_at(path) or ())]

    def files(table: SampleTable, cut: Cut) -> tuple[dict[str, Any], dict[str, Array]]:
        first, last = int(table.path_offset[cut.start]), int(table.path_offset[cut.stop])
        return {"source": "folder", "root": path, "inode": inode}, {
            "path": table.path_bytes[first:last],
            "path_offset": table.path_offset[cut.start : cut.stop + 1] - np.uint64(first),
        }

    if reader.root:
        return files
    if isinstance(reader, MappedReader) and reader.table.extra is None:
        data = [os.path.abspath(file) for file in reader.files]
        return taken_from("pack", of_images(reader.table), data, rows, reader.found)
    packs = [what_opens(reader, wanted)]

    def records(table: SampleTable, cut: Cut) -> tuple[dict[str, Any], dict[str, Array]]:
        mine = rows[cut.start : cut.stop]
        return {"source": "reader", "packs": packs}, {"pack": np.zeros_like(mine), "row": mine}

    return records


def of_images(table: SampleTable) -> SampleTable:
    """Returns a table without the sidecars."""
    return replace(
        table,
        fields=table.fields[:1],
        size=table.size[:1],
        offset=table.offset[:1],
        checksum=table.checksum[:1],
        base=table.base[:1],
    )
