"""What `verify` and `repair` find, and the words for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastconv.converters.report import Report
from fastconv.loaders.errors import FastconvError, printable
from fastconv.loaders.sample import BadFile

__all__ = [
    "BadPlace",
    "NoDamage",
    "RepairFailedError",
    "RepairReport",
    "VerifyFailedError",
    "VerifyReport",
    "bytes_differ",
]


class BadPlace(BadFile):
    """Something wrong in a pack that belongs to no sample; its `path` says where."""

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of the `bad` list in `--json` results."""
        return {"where": self.path, "reason": self.reason, "message": self.message}


class NoDamage(BadPlace):
    """Something that `repair` leaves to its owner: a file of another that is called like one of the
    pack, or one that nobody lets us read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Report):
    """What verifying found: `bad` is what is damaged, missing or different.

    Attributes:
        pack: The pack's path.
        format: Name of its format.
        id: The pack's id; "" where it was not made by fastconv, or has lost its sample table.
        checksums: Whether the samples were compared with their checksums.
        structure: Whether all other bytes were compared with what fastconv writes.
        pixels: Whether all images were decoded.
        source: The folder that it was compared with; None: with none.
        looked_at: How many samples were looked at: all, unless only some were to be.
        seed: By which these were chosen; None: all were looked at.
    """

    pack: str
    format: str
    id: str
    checksums: bool
    structure: bool
    pixels: bool
    source: str | None
    looked_at: int
    seed: int | None

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all is well, something is bad, or there is no whole sample."""
        if self.bad and not self.samples:
            return "failed"
        return "partial" if self.bad else "done"

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        out = Report.to_json(self)
        checked = ("checksums", "structure", "pixels", "source")
        return out | {"checked": {name: out.pop(name) for name in checked}}


class VerifyFailedError(FastconvError):
    """The pack has no whole sample; `report` tells what was found."""

    def __init__(self, message: str, report: VerifyReport | None = None) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(Report):
    """What mending did: `bad` is what could not be mended.

    Attributes:
        pack: The pack's path.
        format: Name of its format.
        id: The pack's id.
        source: The folder.
        output: Where the mended pack is; None: none was made, there was nothing to mend.
        mended: What was damaged or missing and is whole now.
        from_source: How many fields were taken from the folder.
    """

    pack: str
    format: str
    id: str
    source: str
    output: str | None = None
    mended: Sequence[BadFile] = ()
    from_source: int = 0

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of what was damaged is mended."""
        if self.bad and self.output is None:
            return "failed"
        return "partial" if self.bad else "done"


class RepairFailedError(FastconvError):
    """Nothing could be mended, and nothing was changed; `report` tells what was found."""

    def __init__(self, message: str, report: RepairReport | None = None) -> None:
        super().__init__(message)
        self.report = report


def bytes_differ(file: str, start: int, stop: int, readable: bool) -> BadPlace:
    """Returns what is said of bytes that belong to no sample."""
    where = f"{os.path.basename(file)} offset {start}"
    if not readable:
        message = f"cannot be read up to {stop}: the disk answers with an error"
        return BadPlace(where, "unreadable", f"{printable(file)}: {message}")
    message = (
        f"{printable(file)}: bytes {start} to {stop - 1} are not what fastconv writes there "
        "(names, page heads, padding): mend the pack (fastconv repair), or copy it again"
    )
    return BadPlace(where, "bad_record", message)
