"""What a scan of a source is asked for, and what it gives: samples, in columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.names import is_name, problem_of_field
from fastconv.loaders.sample import BadFile

__all__ = ["Bytes", "Ignored", "Ints", "Listing", "Places", "WalkOptions"]

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """What counts as a sample, and where its label comes from.

    Attributes:
        sidecars: Suffixes of files to bring along as fields, without the first dot and in lower
            case ("txt", "mask.png"); kept sorted, each once.
        class_order: "sorted" by code point as torchvision does, or "natural": digits compared as
            numbers.
        classes: Given class names (another pack's): ids are positions here. None: the folders'.
        labels: False gives no labels: -1 for all, and no classes.
        any_extension: Files of any name are candidates; their contents decide later.

    Raises:
        UsageError: A sidecar's suffix cannot be a field, a class is no name or given twice, or the
            order is unknown.
    """

    sidecars: tuple[str, ...] = ()
    class_order: ClassOrder = "sorted"
    classes: tuple[str, ...] | None = None
    labels: bool = True
    any_extension: bool = False

    def __post_init__(self) -> None:
        for suffix in self.sidecars:
            if problem := problem_of_field(suffix):
                raise UsageError(f"sidecar {printable(suffix)!r}: {problem}")
        object.__setattr__(self, "sidecars", tuple(sorted(set(self.sidecars))))
        if self.class_order not in get_args(ClassOrder):
            raise UsageError(f"class order {self.class_order!r} is unknown: use sorted or natural")
        wrong = [name for name in self.classes or () if not is_name(name)]
        if wrong:
            raise UsageError(
                f"class {wrong[0]!r:.60} is no name: classes are texts, not empty and without NUL"
            )
        twice = [name for name, count in Counter(self.classes or ()).items() if count > 1]
        if twice:
            raise UsageError(f"class {printable(twice[0])!r} is given twice: each has one number")


@dataclass(slots=True)
class Ignored:
    """How many files were left out because they are no images, and why.

    Attributes:
        hidden: Names that begin with a dot; a hidden folder counts once, it is not entered.
        clutter: Names that systems leave behind, as `Thumbs.db`; a folder counts once.
        extension: Others, by extension in lower case with its dot, "" for none (and for all further
            ones once there are 1,000).
    """

    hidden: int = 0
    clutter: int = 0
    extension: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Returns the `ignored` object of `--json` results."""
        extension = dict(sorted(self.extension.items()))
        return {"hidden": self.hidden, "clutter": self.clutter, "extension": extension}


@dataclass(slots=True)
class Listing:
    """The samples of a source in their order, in columns.

    Attributes:
        root: The folder, as given.
        fields: "image", then the sidecars by name.
        label: int64 (N,), class id or integer label, -1 for none.
        kind: uint8 (N,), the kind that the extension promises, a position in `KINDS`; 0 for none.
        path_bytes: uint8 (B,), the paths as `SampleTable.names` reads them.
        path_offset: uint64 (N + 1,), where each starts.
        size: int64 (N,) for each field, in bytes; -1 where the sample lacks it.
        stamp: int64 (N,), a hash of the times when a sample's files were changed last.
        classes: Names of the classes, the label is the position.
        labels: Whether labels are class ids, other integers, or absent.
        bad: Files that should be samples and cannot be.
        ignored: What was left out.
        warnings: Lines about what is probably not as it was meant.
        notices: Lines about what to know.
        encoding: What images became when the source was packed, or become now.
        generated: Fields that are no files, name -> (uint8 (B,), uint64 (N + 1,) offsets); both
            empty where the source is a pack, which has them as fields.
        width, height: uint32 (N,), in pixels, 0 where they are not known yet; None: nowhere.
    """

    root: str
    fields: tuple[str, ...]
    label: Ints
    kind: Bytes
    path_bytes: Bytes
    path_offset: Places
    size: tuple[Ints, ...]
    stamp: Ints
    classes: tuple[str, ...]
    labels: LabelKind
    bad: list[BadFile]
    ignored: Ignored
    warnings: list[str]
    notices: list[str]
    encoding: dict[str, Any] = field(default_factory=dict)
    generated: dict[str, tuple[Bytes, Places]] = field(default_factory=dict)
    width: npt.NDArray[np.uint32] | None = None
    height: npt.NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return int(self.label.shape[0])

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(int(np.maximum(size, 0).sum()) for size in self.size)
