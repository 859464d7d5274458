"""The words a sample is described with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["IMAGE", "REASONS", "BadFile", "Reason", "Sample"]

IMAGE = "image"
"""The name by which a sample's image is asked for, whatever its format is."""

Reason = Literal[
    "empty",  # no bytes
    "truncated",  # the image data end early
    "not_an_image",  # the contents are no image
    "unsupported_format",  # an image format that the decoder cannot read
    "corrupt",  # the image data are damaged
    "too_large",  # more pixels, or more bytes, than the limit allows
    "not_a_regular_file",  # a pipe, socket, device or folder
    "unreadable",  # no permission, or the disk answers with an error
    "dangling_symlink",  # the link's target is gone
    "no_class",  # an image outside every class folder
    "vanished",  # went away during the run
    "changed",  # another size than at the start of the run
    "bad_record",  # a damaged record of a pack
    "lost_table",  # the sample table of a pack, without which what is missing cannot be told
    "unsafe_path",  # leads out of the target folder
    "pickle",  # would have to be unpickled
    "missing_part",  # lacks its image or its label
    "duplicate_key",  # two samples with one key
]
REASONS: tuple[str, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample that comes from a program, to be packed.

    Attributes:
        path: Text: relative, with slashes, without parts that are empty, `.` or `..`, and another
            one for each sample: unpacking makes this file. One that no file can have, or that
            another sample has, is bad, and the sample is left out.
        image: The image's bytes, of any format that is packed; or its pixels, uint8 (rows, columns)
            or (rows, columns, channels) with 1, 3 (RGB) or 4 channels (RGBA), which are packed as
            they are. The path then ends in ".npy".
        label: Name of its class, a text with at least one character; or an integer that fits into
            64 bits; or None.
        sidecars: Other fields, name -> bytes, or None where it has none: "txt", "json",
            "mask.png", names that `--sidecar` takes. Unpacking makes a file beside the image of
            each, called like the image with the name as extension.
    """

    path: str
    image: bytes | bytearray | memoryview | npt.NDArray[np.uint8]
    label: str | int | None = None
    sidecars: Mapping[str, bytes | bytearray | memoryview | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadFile:
    """One input that cannot be a sample.

    Attributes:
        path: Relative to the source, as `os.fsdecode` text; of a pack's record, where it lies.
        reason: Why, as a word for programs.
        message: Why, as a sentence for people.
    """

    path: str
    reason: Reason
    message: str

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of the `bad` list in `--json` results and in OUT.bad.jsonl."""
        return {"path": self.path, "reason": self.reason, "message": self.message}
