"""What it means when Pillow cannot decode an image: cut, damaged, or of another variant.

Pillow's exceptions mix these up (a cut JPEG 2000 is a "broken data stream"), so the file's own
account of its length is asked as well. Only called after a failure.
"""

from __future__ import annotations

import re
import struct

from fastconv.loaders import png, tiff
from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import FORMAT_NAMES

__all__ = ["PIXEL_TAGS", "sample_error"]

PIXEL_TAGS = frozenset(
    (256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 282, 283, 284, 292, 293, 296, 297, 317,
     320, 322, 323, 324, 325, 332, 338, 339, 347, *range(512, 522), 529, 530, 531, 532, 700, 34675,
     50674)
)  # fmt: skip
"""The TIFF tags that say how the pixels are stored, turned and coloured."""

_EARLY = re.compile("truncated|incomplete|not enough|end of file|buffer is not large enough", re.I)
_UNSUPPORTED = re.compile(
    "unsupported|unimplemented|not (yet )?supported|cannot handle|not available"
    "|unknown pixel mode|unknown data organization",
    re.I,
)
_END_OF_DATA = (EOFError, IndexError, struct.error)
_JPEG_TAIL = 4096  # cameras write a few bytes behind the end marker


def sample_error(error: Exception, data: memoryview, kind: str | None) -> SampleError:
    """Returns what an error of Pillow's says about the image.

    Args:
        error: What opening or decoding the data raised.
        data: The file.
        kind: Its kind, None where it is unknown.
    """
    name = FORMAT_NAMES[kind] if kind else "image"
    lines = str(error).split("\n")
    text = lines[0].strip() or type(error).__name__
    if isinstance(error, struct.error):
        text = "the header is cut"
    if isinstance(error, MemoryError):
        return SampleError(f"{name} has too many pixels for the memory", "too_large")
    if type(error).__name__ == "DecompressionBombError":
        return SampleError(f"{name} has too many pixels: {text}", "too_large")
    if _ends_early(error, text, data, kind):
        return SampleError(f"{name} data end early: {text}", "truncated")
    if _is_unsupported(error, text, data, kind):
        variant = f"{name} of a variant that Pillow cannot decode: {text}"
        return SampleError(variant, "unsupported_format")
    return SampleError(f"{name} data are damaged: {text}", "corrupt")


def _is_unsupported(error: Exception, text: str, data: memoryview, kind: str | None) -> bool:
    if isinstance(error, NotImplementedError) or isinstance(error.__cause__, KeyError):
        return True
    if kind == "jpg" and _jpeg_process(data) not in (None, 0xC0, 0xC1, 0xC2, 0xC9, 0xCA):
        return True  # lossless, hierarchical: not damaged, but libjpeg cannot
    if kind == "png" and bytes(data[12:16]) == b"CgBI":
        return True  # Apple's variant, made for iPhones
    return _UNSUPPORTED.search(text) is not None


def _jpeg_process(data: memoryview) -> int | None:
    """Returns the second byte of the marker of a JPEG's frame header; it names the process."""
    place = 2
    while place + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, place)
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            return int(marker & 0xFF)
        place += 2 + length
    return None


def _ends_early(error: Exception, text: str, data: memoryview, kind: str | None) -> bool:
    if _EARLY.search(text) or isinstance(error, _END_OF_DATA):
        return True
    if isinstance(error.__cause__, _END_OF_DATA):
        return True
    try:
        return _promised_bytes(data, kind) > len(data)
    except (ValueError, struct.error):
        return True  # the header itself is cut


def _promised_bytes(data: memoryview, kind: str | None) -> int:
    """Returns how long the file should be by its own account; 0 where it does not say."""
    if kind in ("jpg", "j2k"):
        return 0 if b"\xff\xd9" in bytes(data[-_JPEG_TAIL:]) else len(data) + 1
    if kind == "png":
        return _end_of_chunks(data)
    if kind == "webp":
        return int.from_bytes(data[4:8], "little") + 8
    if kind == "icns":
        return int.from_bytes(data[4:8], "big")
    if kind in ("ico", "cur"):
        (count,) = struct.unpack_from("<H", data, 4)
        places = (struct.unpack_from("<II", data, 14 + 16 * number) for number in range(count))
        return max((sum(place) for place in places), default=0)
    if kind == "tif":
        directory = tiff.read_directory(data)
        ends = [entry.end for tag, entry in directory.entries.items() if tag in PIXEL_TAGS]
        return max(directory.end_of_pixels(), *ends, 0)
    if kind in ("avif", "heic", "jp2", "jxl"):
        return _end_of_boxes(data)
    return 0


def _end_of_chunks(data: memoryview) -> int:
    """Returns where the last chunk ends, behind the data where that is not the end of a PNG."""
    for name, _, end in png.chunks(data):
        if not name.isalpha():
            return 0  # astray: damaged, not cut
        if name == b"IEND" or end > len(data):
            return end
    return len(data) + 1


def _end_of_boxes(data: memoryview) -> int:
    """Returns where the last box ends; a box is size (4 bytes), name (4), and contents."""
    place = 0
    while place + 8 <= len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if size == 1:  # the size does not fit 4 bytes
            (size,) = struct.unpack_from(">Q", data, place + 8)
        if size < 8:  # 0: up to the end of the file
            break
        place += size
    return place
