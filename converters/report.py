"""What a command reports when it has run, and the progress it reports on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastconv.loaders.errors import FastconvError
from fastconv.loaders.listing import Ignored
from fastconv.loaders.sample import BadFile

__all__ = ["PackFailedError", "PackReport", "Progress", "ProgressCallback"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, counted in samples and in their bytes."""

    samples: int
    samples_total: int
    bytes: int
    bytes_total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """What packing did.

    Attributes:
        output: The pack's path.
        format: Name of its format.
        id: The pack's id, 32 hexadecimal digits; "" where none was made.
        samples: How many were packed.
        classes: Names of the classes.
        fields: Names of the fields, the image first.
        bytes: Of all samples' fields together.
        size: Of the pack on the disk, in bytes.
        bad: Inputs that could not be samples.
        ignored: What was left out because it is no image.
        warnings: What is probably not as it was meant.
        notices: What to know besides.
        seconds: The run took.
    """

    output: str
    format: str
    id: str = ""
    samples: int = 0
    classes: Sequence[str] = ()
    fields: Sequence[str] = ()
    bytes: int = 0
    size: int = 0
    bad: Sequence[BadFile] = ()
    ignored: Ignored = field(default_factory=Ignored)
    warnings: Sequence[str] = ()
    notices: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of the inputs were packed."""
        if not self.id:
            return "failed"
        return "partial" if self.bad else "done"

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "status": self.status,
            "output": self.output,
            "format": self.format,
            "id": self.id,
            "samples": self.samples,
            "classes": list(self.classes),
            "fields": list(self.fields),
            "bytes": self.bytes,
            "size": self.size,
            "bad": [bad.to_json() for bad in self.bad],
            "ignored": self.ignored.to_json(),
            "warnings": list(self.warnings),
            "notices": list(self.notices),
            "seconds": round(self.seconds, 3),
        }


class PackFailedError(FastconvError):
    """Nothing was published; `report` tells what was found on the way."""

    def __init__(self, message: str, report: PackReport | None = None) -> None:
        super().__init__(message)
        self.report = report
