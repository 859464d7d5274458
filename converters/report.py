"""What a command reports when it has run, and the progress it reports on the way."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastconv.loaders.errors import FastconvError
from fastconv.loaders.listing import Ignored
from fastconv.loaders.sample import BadFile

__all__ = ["PackFailedError", "PackReport", "Progress", "ProgressCallback", "Report"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, counted in samples and in their bytes."""

    samples: int
    samples_total: int
    bytes: int
    bytes_total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ABC):
    """What the reports of commands have in common.

    Attributes:
        samples: How many there are.
        classes: Names of the classes.
        fields: Names of the fields, the image first.
        bytes: Of all samples' fields together.
        bad: Inputs that could not be samples, or what is wrong in a pack.
        warnings: What is probably not as it was meant.
        notices: What to know besides.
        seconds: The run took.
    """

    samples: int = 0
    classes: Sequence[str] = ()
    fields: Sequence[str] = ()
    bytes: int = 0
    bad: Sequence[BadFile] = ()
    warnings: Sequence[str] = ()
    notices: Sequence[str] = ()
    seconds: float = 0.0

    @property
    @abstractmethod
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of it went well."""

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        values = {each.name: plain(getattr(self, each.name)) for each in dataclasses.fields(self)}
        return {"status": self.status, **values}


def plain(value: Any) -> Any:
    """Returns what stands for a value of a report in JSON."""
    if isinstance(value, BadFile | Ignored | Report):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return round(value, 3) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport(Report):
    """What packing did.

    Attributes:
        output: The pack's path.
        format: Name of its format.
        id: The pack's id, 32 hexadecimal digits; "" where none was made, or several.
        size: Of the pack on the disk with its sample table, in bytes; index files do not count.
        ignored: What was left out because it is no image.
        splits: Where OUT is several packs: by their names, what was done for each; the rest is
            about all of them.
    """

    output: str
    format: str
    id: str = ""
    size: int = 0
    ignored: Ignored = field(default_factory=Ignored)
    splits: Mapping[str, PackReport] = field(default_factory=dict)

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of the inputs were packed."""
        if not all(one.id for one in self.splits.values() or [self]):
            return "failed"
        return "partial" if self.bad else "done"


class PackFailedError(FastconvError):
    """Nothing was published; `report` tells what was found on the way."""

    def __init__(self, message: str, report: PackReport | None = None) -> None:
        super().__init__(message)
        self.report = report
