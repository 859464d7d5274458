"""Samples that come from a program: written one behind the other into a file, from which they are
packed like those of any pack."""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import IO

import numpy as np

from fastconv.converters.plan import repeated_paths, without
from fastconv.converters.writer import Rows
from fastconv.loaders.classes import ClassOrder, empty_classes_warning, sort_classes
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import kind_code_of_name
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.listing import Ignored, Ints, Listing, WalkOptions
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.raw import CHANNELS, RAW
from fastconv.loaders.sample import IMAGE, BadFile, Sample
from fastconv.loaders.table import SampleTable

__all__ = ["written"]

BUFFER = 1 << 20
"""Bytes that are written together."""


def written(
    samples: Iterable[Sample],
    path: str,
    *,
    classes: Sequence[str] | None,
    class_order: ClassOrder,
) -> tuple[Listing, SampleTable, Rows]:
    """Writes samples into a file; returns them as if they had been listed, where all that were
    written lie, and which of these they are, int64 (n,).

    Those whose path cannot be a file's are bad; of two with one path the second is.

    Args:
        samples: They; each is forgotten when it is written.
        path: The file; is made.
        classes: Names of the classes, as `pack` takes them.
        class_order: The order of names that are not given.

    Raises:
        UsageError: A label or a field cannot be one, or is no `Sample`.
        OSError: The system refuses to write.
    """
    columns = Columns(classes)
    with open(path, "wb", BUFFER) as file:
        for sample in samples:
            columns.add(sample, file)
    return columns.finished(path, class_order)


class Columns:
    """What is known of samples, as they come: flat arrays.

    Args:
        classes: Names of the classes, if they are given.
    """

    def __init__(self, classes: Sequence[str] | None) -> None:
        self.given = classes
        self.number = {name: label for label, name in enumerate(classes or ())}
        self.kind_of_labels: LabelKind = "none"
        self.label, self.kind = array("q"), array("B")
        self.width, self.height = array("I"), array("I")
        self.paths, self.path_end = bytearray(), array("q", [0])
        self.offset = {IMAGE: array("q")}
        self.size = {IMAGE: array("q")}
        self.bad: list[BadFile] = []
        self.place = 0

    def __len__(self) -> int:
        return len(self.label)

    def add(self, sample: Sample, file: IO[bytes]) -> None:
        """Writes a sample, and notes where it lies.

        Raises:
            UsageError: Its label or a field cannot be one.
        """
        if not isinstance(sample, Sample):
            raise UsageError(f"samples are fastconv.converters.Sample, not {type(sample).__name__}")
        if problem := problem_of_path(sample.path):
            self.bad.append(BadFile(sample.path, "unsafe_path", problem))
            return
        label, (width, height) = self.label_of(sample), pixels_of(sample)
        for name in sample.sidecars.keys() - (self.size.keys() - {IMAGE}):
            WalkOptions(sidecars=(name,))  # refuses what cannot be a field
            self.size[name] = array("q", [-1]) * len(self)
            self.offset[name] = array("q", [0]) * len(self)
        for name, sizes in self.size.items():
            data = sample.image if name == IMAGE else sample.sidecars.get(name)
            view = None if data is None else bytes_of(sample, name, data)
            sizes.append(-1 if view is None else view.nbytes)
            self.offset[name].append(self.place)
            if view is not None:
                file.write(view)
                self.place += view.nbytes
        self.label.append(label)
        # An image that does not say what it is, is told by its bytes.
        kind = RAW if width else kind_code_of_name(sample.path.rpartition("/")[2])
        self.kind.append(kind or kind_code("jpg"))
        self.width.append(width)
        self.height.append(height)
        self.paths += os.fsencode(sample.path)
        self.path_end.append(len(self.paths))

    def label_of(self, sample: Sample) -> int:
        """Returns a sample's label as a number.

        Raises:
            UsageError: It is none, or of another kind than those before, or of no class.
        """
        if sample.label is None:
            return -1
        try:
            label = sample.label if isinstance(sample.label, str) else operator.index(sample.label)
        except TypeError:
            label = True
        if label is True or isinstance(sample.label, bool):
            raise UsageError(
                f"{printable(sample.path)}: its label is a {type(sample.label).__name__}: give the "
                "name of a class, an integer, or None"
            )
        kind: LabelKind = "class" if isinstance(label, str) or self.given is not None else "int"
        if self.kind_of_labels not in ("none", kind):
            raise UsageError(
                f"{printable(sample.path)}: its label is {label!r}: labels are all names of "
                "classes, or all integers"
            )
        self.kind_of_labels = kind
        if isinstance(label, str):
            if self.given is None:
                return self.number.setdefault(label, len(self.number))
            if label not in self.number:
                raise UsageError(
                    f"{printable(sample.path)}: its class {printable(label)!r} is none of the "
                    f"{len(self.number)} that were given"
                )
            return self.number[label]
        limit = range(len(self.number)) if kind == "class" else range(-(2**63), 2**63)
        if label not in limit:
            raise UsageError(
                f"{printable(sample.path)}: its label {label} is outside {limit.start} to "
                f"{limit.stop - 1}"
            )
        return label

    def finished(self, path: str, order: ClassOrder) -> tuple[Listing, SampleTable, Rows]:
        """Returns the samples as if they had been listed, where all that were written lie, and
        which of these they are, int64 (n,).

        Args:
            path: The file that they were written to.
            order: Of the classes, where these were not given.
        """
        label: Ints = np.array(self.label, np.int64)
        classes = tuple(self.given or ())
        if self.given is None and self.kind_of_labels == "class":
            classes = sort_classes(self.number, order)
            new = {name: number for number, name in enumerate(classes)}
            # The last one is for -1, no label.
            label = np.array([*(new[name] for name in self.number), -1], np.int64)[label]
        elif self.given is not None:
            self.kind_of_labels = "class"
        names = (IMAGE, *sorted(self.size.keys() - {IMAGE}))
        count = len(self)
        table = places = SampleTable(
            fields=names,
            label=label,
            kind=np.array(self.kind, np.uint8),
            width=np.array(self.width, np.uint32),
            height=np.array(self.height, np.uint32),
            path_bytes=np.frombuffer(self.paths, np.uint8),
            path_offset=np.array(self.path_end, np.int64).astype(np.uint64),
            shard_row=np.array([0, count], np.int64),
            offset=tuple(np.array(self.offset[name], np.int64).astype(np.uint64) for name in names),
            size=tuple(np.array(self.size[name], np.int64) for name in names),
        )
        again = np.zeros(count, np.bool_)
        for first, later in repeated_paths(table):
            again[later] = True
            name = table.path(later)
            message = f"sample {later} has the path of sample {first}"
            self.bad.append(BadFile(name, "duplicate_key", message))
        table, rows = without(table, again), np.flatnonzero(~again)
        warnings = []
        if classes:
            labelled = table.label[table.label >= 0]
            used = np.bincount(labelled, minlength=len(classes)).tolist()
            warnings = empty_classes_warning(classes, used)
        listing = Listing(
            root=path,
            fields=names,
            label=table.label,
            kind=table.kind,
            path_bytes=table.path_bytes,
            path_offset=table.path_offset,
            size=table.size,
            stamp=np.zeros(len(table), np.int64),
            classes=classes,
            labels=self.kind_of_labels,
            bad=self.bad,
            ignored=Ignored(),
            warnings=warnings,
            notices=[],
            width=table.width,
            height=table.height,
        )
        return listing, places, rows


def pixels_of(sample: Sample) -> tuple[int, int]:
    """Returns width and height of an image that is given as pixels; 0, 0 where it is a file.

    Raises:
        UsageError: It is an array of something else, or its path is not that of a `.npy`.
    """
    image = sample.image
    if not isinstance(image, np.ndarray) or image.ndim == 1:
        return 0, 0
    rows, columns, channels = (*image.shape, 1)[:3] if image.ndim < 4 else (0, 0, 0)
    if image.dtype != np.uint8 or not rows * columns or channels not in CHANNELS:
        raise UsageError(
            f"{printable(sample.path)}: its image is an array of {image.dtype} {image.shape}: "
            "pixels are uint8 (rows, columns) or (rows, columns, 1, 3 or 4)"
        )
    if not sample.path.endswith(".npy"):
        raise UsageError(
            f"{printable(sample.path)}: its image is given as pixels: let the path end in .npy, "
            "which is what unpacking makes of them"
        )
    return columns, rows


def bytes_of(sample: Sample, name: str, data: object) -> memoryview:
    """Returns the bytes of a field.

    Raises:
        UsageError: It is something else.
    """
    try:
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data)
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(
            f"{printable(sample.path)}: its {name} is a {type(data).__name__}: give the bytes of a "
            "file"
        ) from None


def problem_of_path(path: str) -> str:
    """Returns what keeps a text from being the path of a sample; "" where nothing does."""
    if not isinstance(path, str) or not path:
        return "the path of a sample is a text"
    if "\0" in path or path.startswith("/") or {"", ".", ".."} & set(path.split("/")):
        return "the path of a sample is relative, without . and .. and empty parts"
    return ""
