"""Samples that come from a program: written one behind the other into a file, from which they are
packed like those of any pack."""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import IO, Final, NoReturn, SupportsIndex

import numpy as np

from fastconv.converters.plan import Clash, clashing_rows, without
from fastconv.converters.writer import Rows
from fastconv.loaders.classes import ClassOrder, empty_classes_warning, sort_classes
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import kind_code_of_name
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.listing import Ignored, Ints, Listing, WalkOptions
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.names import is_name, several
from fastconv.loaders.raw import CHANNELS, RAW
from fastconv.loaders.sample import IMAGE, BadFile, Sample
from fastconv.loaders.table import SampleTable

__all__ = ["written"]

BUFFER = 1 << 20
"""Bytes that are written together."""
INT64: Final = range(-(2**63), 2**63)


def written(
    samples: Iterable[Sample],
    path: str,
    *,
    classes: Sequence[str] | None,
    class_order: ClassOrder,
) -> tuple[Listing, SampleTable, Rows]:
    """Writes samples into a file; returns them as if they had been listed, where all that were
    written lie, and which of these they are, int64 (n,).

    Those whose path cannot be a file's are bad; of two with one path, or of which unpacking would
    make one file or a file and a folder of it, the second is.

    Args:
        samples: They; each is forgotten when it is written.
        path: The file; is made.
        classes: Names of the classes, as `pack` takes them.
        class_order: The order of names that are not given.

    Raises:
        UsageError: One is no `Sample`, or an attribute of it is not what its docstring says.
        OSError: The system refuses to write.
    """
    WalkOptions(
        classes=None if classes is None else several("classes", classes), class_order=class_order
    )
    columns = Columns(classes)
    with open(path, "wb", BUFFER) as file:
        for sample in samples:
            columns.add(sample, file)
    return columns.finished(path, class_order)


class Columns:
    """What is known of samples, as they come: flat arrays.

    Args:
        classes: Names of the classes, if they are given.

    Attributes:
        given: How many samples there were so far, bad ones among them.
        number_of_row: Of those that were written, which of the given ones each is.
    """

    def __init__(self, classes: Sequence[str] | None) -> None:
        self.classes = classes
        self.given = 0
        self.number_of_row = array("q")
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
            UsageError: It is none, or an attribute of it is not what it must be.
        """
        self.given += 1
        if problem := problem_of(sample):
            raise UsageError(f"sample {self.given - 1}{problem}")
        if problem := problem_of_path(sample.path):
            self.bad.append(BadFile(sample.path, "unsafe_path", problem))
            return
        label, (width, height) = self.label_of(sample), pixels_of(sample)
        for name in sample.sidecars.keys() - (self.size.keys() - {IMAGE}):
            self.check_field(sample, name)
            self.size[name] = array("q", [-1]) * len(self)
            self.offset[name] = array("q", [0]) * len(self)
        for name, sizes in self.size.items():
            data = sample.image if name == IMAGE else sample.sidecars.get(name)
            view = None if data is None else bytes_of(data)
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
        self.number_of_row.append(self.given - 1)

    def refuse(self, sample: Sample, problem: str) -> NoReturn:
        raise UsageError(f"sample {self.given - 1}, {printable(sample.path)}: {problem}")

    def check_field(self, sample: Sample, name: str) -> None:
        """Checks that a sidecar can be a field.

        Raises:
            UsageError: It cannot.
        """
        try:
            WalkOptions(sidecars=(name,))
        except UsageError as error:
            self.refuse(sample, str(error))

    def label_of(self, sample: Sample) -> int:
        """Returns a sample's label as a number.

        Raises:
            UsageError: It is of another kind than those before, or of no class.
        """
        if sample.label is None:
            return -1
        label = sample.label if isinstance(sample.label, str) else operator.index(sample.label)
        kind: LabelKind = "class" if isinstance(label, str) or self.classes is not None else "int"
        if self.kind_of_labels not in ("none", kind):
            self.refuse(
                sample, f"its label is {label!r}: labels are all names of classes, or all integers"
            )
        self.kind_of_labels = kind
        if isinstance(label, str):
            if self.classes is None:
                return self.number.setdefault(label, len(self.number))
            if label not in self.number:
                self.refuse(
                    sample,
                    f"its class {printable(label)!r} is none of the {len(self.number)} that were "
                    "given",
                )
            return self.number[label]
        limit = range(len(self.number)) if kind == "class" else INT64
        if label not in limit:
            self.refuse(sample, f"its label {label} is outside {limit.start} to {limit.stop - 1}")
        return label

    def finished(self, path: str, order: ClassOrder) -> tuple[Listing, SampleTable, Rows]:
        """Returns the samples as if they had been listed, where all that were written lie, and
        which of these they are, int64 (n,).

        Args:
            path: The file that they were written to.
            order: Of the classes, where these were not given.
        """
        label: Ints = np.array(self.label, np.int64)
        classes = tuple(self.classes or ())
        if self.classes is None and self.kind_of_labels == "class":
            classes = sort_classes(self.number, order)
            new = {name: number for number, name in enumerate(classes)}
            # The last one is for -1, no label.
            label = np.array([*(new[name] for name in self.number), -1], np.int64)[label]
        elif self.classes is not None:
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
        with open(path, "rb") as file:
            for clash in clashing_rows(table, partial(same_bytes, file, table)):
                again[clash.row] = True
                self.bad.append(BadFile(table.path(clash.row), "duplicate_key", self.words(clash)))
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

    def words(self, clash: Clash) -> str:
        """Returns what is wrong with a sample of which unpacking could not make all files."""
        number, other = self.number_of_row[clash.row], self.number_of_row[clash.other]
        if clash.same_path:
            return f"sample {number} has the path of sample {other}"
        what = "a file and a folder" if clash.folder else "two files"
        whose = "" if number == other else f", one by sample {other}"
        return f"sample {number}: {printable(clash.path)} would be {what}{whose}"


def pixels_of(sample: Sample) -> tuple[int, int]:
    """Returns width and height of an image that is given as pixels; 0, 0 where it is a file."""
    image = sample.image
    if not isinstance(image, np.ndarray) or image.ndim == 1:
        return 0, 0
    return image.shape[1], image.shape[0]


def same_bytes(
    file: IO[bytes], table: SampleTable, one: tuple[int, int], other: tuple[int, int]
) -> bool:
    """Returns whether two fields, each a row and a slot, have the same bytes.

    Args:
        file: Holds them.
        table: Says where.
    """
    found = []
    for row, slot in (one, other):
        file.seek(int(table.offset[slot][row]))
        found.append(file.read(int(table.size[slot][row])))
    return found[0] == found[1]


def problem_of(sample: object) -> str:
    """Returns what of a sample is of another type than it must be, "" where nothing is; begins with
    what follows its number."""
    if not isinstance(sample, Sample):
        return f": samples are fastconv.converters.Sample, not {type(sample).__name__}"
    path, label, sidecars = sample.path, sample.label, sample.sidecars
    if not isinstance(path, str):
        return f": its path is {type(path).__name__}, not text"
    problem = problem_of_image(path, sample.image) or problem_of_label(label)
    if not problem and not isinstance(sidecars, Mapping):
        problem = f"its sidecars are a {type(sidecars).__name__}: give names and bytes, as a dict"
    for name, data in sidecars.items() if not problem else ():
        if not isinstance(name, str):
            problem = f"the name of a sidecar is a {type(name).__name__}, not text"
        elif data is not None and bytes_of(data) is None:
            problem = f"its {name} is a {type(data).__name__}: give the bytes of a file"
    return problem and f", {printable(path)}: {problem}"


def problem_of_image(path: str, image: object) -> str:
    """Returns what keeps something from being an image, "" where nothing does."""
    if not isinstance(image, np.ndarray) or image.ndim == 1:
        fits = bytes_of(image) is not None
        return "" if fits else f"its image is a {type(image).__name__}: give the bytes of a file"
    rows, columns, channels = (*image.shape, 1)[:3] if 1 < image.ndim < 4 else (0, 0, 0)
    if image.dtype != np.uint8 or not rows * columns or channels not in CHANNELS:
        return (
            f"its image is an array of {image.dtype} {image.shape}: pixels are uint8 (rows, "
            "columns) or (rows, columns, 1, 3 or 4)"
        )
    if not path.endswith(".npy"):
        return (
            "its image is given as pixels: let the path end in .npy, which is what unpacking "
            "makes of them"
        )
    return ""


def problem_of_label(label: object) -> str:
    """Returns what keeps something from being a label, "" where nothing does."""
    if isinstance(label, str):
        return (
            ""
            if is_name(label)
            else f"its label {printable(label)!r} cannot be the name of a class"
        )
    if label is None or (isinstance(label, SupportsIndex) and not isinstance(label, bool)):
        return ""
    return f"its label is a {type(label).__name__}: give the name of a class, an integer, or None"


def bytes_of(data: object) -> memoryview | None:
    """Returns the bytes of a field; None where it is something else."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]
        return (view if view.c_contiguous else memoryview(view.tobytes())).cast("B")
    except (TypeError, ValueError):  # it was released
        return None


def problem_of_path(path: str) -> str:
    """Returns what keeps a text from being the path of a sample; "" where nothing does."""
    if not path or "\0" in path or path.startswith("/") or {"", ".", ".."} & set(path.split("/")):
        return "the path of a sample is relative, without . and .. and empty parts"
    if not is_name(path):
        return "the path of a sample has half of a surrogate pair, which no file's name has"
    return ""
