"""Tells what a file is from its bytes: the signature and the header, never the pixels.

This is the fast check. Packing calls `sniff` once a file, so JPEG and PNG come first and cost one
to three microseconds; other formats are told by `headers`, and what has no signature by Pillow.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from fastconv.converters.foreign import describe
from fastconv.converters.headers import SIGNATURES, iso_media
from fastconv.loaders.kinds import FORMAT_NAMES
from fastconv.loaders.sample import Reason

__all__ = ["BadImage", "Sniffed", "sniff"]


class BadImage(Exception):
    """The file is no image, or none that can be used.

    Attributes:
        reason: Why, as a word for programs.
        message: Why, as a sentence for people, without the file's name.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason: Reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class Sniffed(NamedTuple):
    """What a header says: the kind, and the size in pixels (0, 0 where it is not cheaply known)."""

    kind: str
    width: int
    height: int


_HEAD_BYTES = 512  # enough for every signature, and for a look at a text
_SHORTEST = 12  # no file of fewer bytes is an image with all of its signature
_LARGEST = 2**31 - 1  # more pixels in a row or column are damage

_PNG_HEADER = struct.Struct(">8s4x4sII").unpack_from
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# A JPEG is a chain of segments: marker (2 bytes, the first 0xFF), length (2), contents. The frame
# header (SOF0 to SOF15, one for each process) has precision (1), height (2) and width (2).
_JPEG_SEGMENT = struct.Struct(">HH").unpack_from
_JPEG_FRAMES = frozenset(range(0xFFC0, 0xFFD0)) - {0xFFC4, 0xFFC8, 0xFFCC}
_JPEG_SKIPPED = frozenset(range(0xFFC0, 0xFFFF)) - _JPEG_FRAMES - set(range(0xFFD0, 0xFFDB))
_JPEG_ENDS = frozenset((0xFFD9, 0xFFDA))  # the end of the image, the start of the pixels
_JPEG_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")


def sniff(data: memoryview, size: int) -> Sniffed:
    """Returns the kind and the pixel size of an image file.

    Args:
        data: The file, or the first 64 KiB or more of it.
        size: The size of the whole file in bytes.

    Raises:
        BadImage: `empty`; `not_an_image`, with what it seems to be instead; `truncated`, the
            signature is right and the header ends early; `corrupt`, a JPEG without a picture.
    """
    if not size:
        raise BadImage("empty", "no bytes")
    first = data[0]
    if first == 0xFF and len(data) > 2 and data[1] == 0xD8 and data[2] == 0xFF:
        return _jpeg(data, size)
    if first == 0x89 and len(data) >= 24:
        signature, name, width, height = _PNG_HEADER(data)
        if signature == _PNG_SIGNATURE and name == b"IHDR":
            return Sniffed("png", width, height)
    return _by_signature(data, size)


def _jpeg(data: memoryview, size: int) -> Sniffed:
    place = 2
    try:
        while True:
            marker, length = _JPEG_SEGMENT(data, place)
            if marker in _JPEG_SKIPPED:
                place += 2 + length
            elif marker in _JPEG_FRAMES:
                height, width = _JPEG_SEGMENT(data, place + 5)
                return Sniffed("jpg", width, height)
            elif marker in _JPEG_ENDS:
                break
            else:  # filling bytes, or junk between the segments, which decoders skip
                found = _JPEG_MARKER.search(data, place + 1)
                if found is None:
                    break
                place = found.start()
    except struct.error:
        if len(data) == size:
            raise _truncated("jpg", size) from None
    if len(data) < size:
        return Sniffed("jpg", 0, 0)  # the frame lies behind long EXIF blocks and colour profiles
    raise BadImage("corrupt", "JPEG data are damaged: no frame header")


def _by_signature(data: memoryview, size: int) -> Sniffed:
    head = bytes(data[:_HEAD_BYTES])
    for signature, kind, header in SIGNATURES:
        if not head.startswith(signature):
            continue
        try:
            return _sniffed(header(data, kind))
        except struct.error:
            if len(data) < size:
                return Sniffed(kind, 0, 0)
            raise _truncated(kind, size) from None
        except ValueError:
            continue  # the signature is short, and the rest of the header is not that format's
    if head[4:8] == b"ftyp" and (found := iso_media(data)) is not None:
        return _sniffed(found)
    if size < _SHORTEST and any(signature.startswith(head) for signature, _, _ in SIGNATURES):
        raise BadImage("truncated", f"the image's signature ends early: the file has {size} bytes")
    what = describe(head)
    if what is None:
        from fastconv.loaders.pillow import identify

        if (identified := identify(data)) is not None:
            return _sniffed(identified)
        what = f"an unknown type (starts with {head[:16].hex(' ')})"
    raise BadImage("not_an_image", f"not an image but {what}")


def _sniffed(found: tuple[str, int, int]) -> Sniffed:
    """Returns the same, without a size that no picture has."""
    kind, width, height = found
    if min(width, height) <= 0 or max(width, height) > _LARGEST:
        return Sniffed(kind, 0, 0)
    return Sniffed(kind, width, height)


def _truncated(kind: str, size: int) -> BadImage:
    name = FORMAT_NAMES[kind]
    return BadImage("truncated", f"{name} header ends early: the file has {size} bytes")
