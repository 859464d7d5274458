"""Tells what a file is from its bytes: the signature and the header, never the pixels.

This is the fast check. Packing calls `sniff` once a file, so JPEG and PNG come first and cost about two
microseconds; the rest is told by a table of signatures, and what has no signature by Pillow.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from fastconv.converters.foreign import describe
from fastconv.loaders import tiff
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


def sniff(data: memoryview, size: int) -> Sniffed:
    """Returns the kind and the pixel size of an image file.

    Args:
        data: The file, or the first 64 KiB or more of it.
        size: The size of the whole file in bytes.

    Raises:
        BadImage: `empty`; `not_an_image`, with what it seems to be instead; `truncated`, the signature is
            right and the header ends early; `corrupt`, a JPEG that describes no picture.
    """
    if not size:
        raise BadImage("empty", "no bytes")
    first = data[0]
    if first == 0xFF and size > 2 and data[1] == 0xD8 and data[2] == 0xFF:
        return _jpeg(data, size)
    if first == 0x89 and size >= 24:
        signature, name, width, height = _PNG_HEADER(data)
        if signature == _PNG_SIGNATURE and name == b"IHDR":
            return Sniffed("png", width, height)
    return _by_signature(data, size)


_PNG_HEADER = struct.Struct(">8s4x4sII").unpack_from
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# A JPEG is a chain of segments: marker (2 bytes, the first 0xFF), length (2), contents. The frame header,
# one for each process (SOF0 to SOF15), has precision (1), height (2) and width (2).
_JPEG_SEGMENT = struct.Struct(">HH").unpack_from
_JPEG_FRAMES = frozenset(range(0xFFC0, 0xFFD0)) - {0xFFC4, 0xFFC8, 0xFFCC}
_JPEG_SKIPPED = frozenset(range(0xFFC0, 0xFFFF)) - _JPEG_FRAMES - set(range(0xFFD0, 0xFFDB))
_JPEG_ENDS = frozenset((0xFFD9, 0xFFDA))  # the end of the image, the start of the pixels
_JPEG_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")


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


def _truncated(kind: str, size: int) -> BadImage:
    return BadImage("truncated", f"{FORMAT_NAMES[kind]} header ends early: the file has {size} bytes")


def _by_signature(data: memoryview, size: int) -> Sniffed:
    head = bytes(data[:512])
    for signature, kind, header in _SIGNATURES:
        if not head.startswith(signature):
            continue
        try:
            return _possible(header(data, kind))
        except struct.error:
            if len(data) < size:
                return Sniffed(kind, 0, 0)
            raise _truncated(kind, size) from None
        except ValueError:
            continue  # the signature is short, and the rest of the header is not that format's
    if head[4:8] == b"ftyp" and (found := _iso_media(data)):
        return _possible(found)
    if size < 12 and any(signature.startswith(head) for signature, _, _ in _SIGNATURES):
        raise BadImage("truncated", f"the signature of an image ends early: the file has {size} bytes")
    what = describe(head)
    if what is None:
        from fastconv.loaders.pillow import identify

        identified = identify(data)
        if identified is not None:
            return _possible(Sniffed(*identified))
        what = f"an unknown type (starts with {head[:16].hex(' ')})"
    raise BadImage("not_an_image", f"not an image but {what}")


def _possible(found: Sniffed) -> Sniffed:
    """Returns the same, without a size that no picture has."""
    return found if 0 <= min(found[1:]) and max(found[1:]) < 2**31 else Sniffed(found.kind, 0, 0)


# The readers of headers. Each returns what it finds, raises `struct.error` where the data end inside the
# header, and `ValueError` where the file is of another format after all.


def _fixed(layout: str, at: int, flip: bool = False) -> Callable[[memoryview, str], Sniffed]:
    """Returns a reader for a header with width and height (flip: height and width) at a fixed place."""
    read = struct.Struct(layout).unpack_from

    def header(data: memoryview, kind: str) -> Sniffed:
        width, height = read(data, at)
        return Sniffed(kind, height, width) if flip else Sniffed(kind, width, height)

    return header


def _unsized(data: memoryview, kind: str) -> Sniffed:
    return Sniffed(kind, 0, 0)


def _text(pattern: bytes, flip: bool = False) -> Callable[[memoryview, str], Sniffed]:
    """Returns a reader for a header of text in which the pattern finds width and height."""
    find = re.compile(pattern).search

    def header(data: memoryview, kind: str) -> Sniffed:
        found = find(data[:8192])
        width, height = map(int, found.groups()) if found else (0, 0)
        return Sniffed(kind, height, width) if flip else Sniffed(kind, width, height)

    return header


def _png_variant(data: memoryview, kind: str) -> Sniffed:
    """Apple's PNG has a chunk of 4 bytes before the header."""
    name, width, height = struct.unpack_from(">12x4s16xII", data)
    return Sniffed(kind, width, height) if name == b"CgBI" else Sniffed(kind, 0, 0)


def _webp(data: memoryview, kind: str) -> Sniffed:
    form, chunk = struct.unpack_from("<8x4s4s", data)
    if form != b"WEBP":
        raise ValueError
    if chunk == b"VP8 ":
        start, width, height = struct.unpack_from("<3sHH", data, 23)
        return Sniffed(kind, width & 0x3FFF, height & 0x3FFF) if start == b"\x9d\x01\x2a" else Sniffed(kind, 0, 0)
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Sniffed(kind, (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8X":
        width, width_top, height, height_top = struct.unpack_from("<HBHB", data, 24)
        return Sniffed(kind, (width | width_top << 16) + 1, (height | height_top << 16) + 1)
    return Sniffed(kind, 0, 0)


def _bmp(data: memoryview, kind: str) -> Sniffed:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes not in (12, 16, 40, 52, 56, 64, 108, 124):
        raise ValueError
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return Sniffed(kind, abs(width), abs(height))  # a negative height: rows from top to bottom


def _tiff(data: memoryview, kind: str) -> Sniffed:
    directory = tiff.read_directory(data)
    return Sniffed(kind, directory.first(tiff.WIDTH), directory.first(tiff.HEIGHT))


def _iso_media(data: memoryview) -> Sniffed | None:
    """AVIF and HEIC: boxes of size (4 bytes), type (4), contents; the first names the brands."""
    length = int.from_bytes(data[:4], "big")
    brands = {bytes(data[at : at + 4]) for at in range(8, min(length, 256) - 3, 4)}
    if brands & {b"avif", b"avis"}:
        kind = "avif"
    elif brands & {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}:
        kind = "heic"
    else:
        return None
    # `ispe` is the size of one stored picture. A large picture is stored as tiles and has one of its own,
    # the largest of them; a thumbnail has a smaller one; one with `clap` shows only a part.
    end = length + int.from_bytes(data[length : length + 4], "big")  # of the box of descriptions, the next
    descriptions = bytes(data[length : min(end, 65536)])
    found = [(0, 0)]
    if b"clap" not in descriptions:
        sizes = re.finditer(rb"ispe\0\0\0\0(.{4})(.{4})", descriptions, re.S)
        found += [(int.from_bytes(m[1], "big"), int.from_bytes(m[2], "big")) for m in sizes]
    return Sniffed(kind, *max(found, key=lambda size: size[0] * size[1]))


def _jp2(data: memoryview, kind: str) -> Sniffed:
    found = re.search(rb"ihdr(.{4})(.{4})", data[:4096], re.S)
    if found is None:
        return Sniffed(kind, 0, 0)
    return Sniffed(kind, int.from_bytes(found[2], "big"), int.from_bytes(found[1], "big"))


def _j2k(data: memoryview, kind: str) -> Sniffed:
    right, bottom, left, top = struct.unpack_from(">IIII", data, 8)
    return Sniffed(kind, right - left, bottom - top)


def _jxl(data: memoryview, kind: str) -> Sniffed:
    """The bare codestream, or boxes of which one, `jxlc` or the first `jxlp`, holds it."""
    if data[:2] == b"\xff\x0a":
        return Sniffed(kind, *_jxl_size(data[2:16]))
    found = re.search(rb"jxl(?:c|p.{4})\xff\x0a(.{12})", data[:65536], re.S)
    return Sniffed(kind, *_jxl_size(found[1])) if found else Sniffed(kind, 0, 0)


_JXL_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def _jxl_size(header: memoryview | bytes) -> tuple[int, int]:
    """Reads bits, the lowest first: small (1), height, ratio (3), and the width where the ratio is 0."""
    bits = int.from_bytes(header, "little")

    def take(count: int) -> int:
        nonlocal bits
        value = bits & (1 << count) - 1
        bits >>= count
        return value

    small = take(1)

    def length() -> int:
        return (take(5) + 1) * 8 if small else take((9, 13, 18, 30)[take(2)]) + 1

    height = length()
    ratio = take(3)
    if not ratio:
        return length(), height
    over, under = _JXL_RATIOS[ratio - 1]
    return height * over // under, height


_PNM_KINDS = {b"1": "pbm", b"2": "pgm", b"3": "ppm", b"4": "pbm", b"5": "pgm", b"6": "ppm", b"f": "pfm", b"F": "pfm"}
_GAP = rb"(?:\s|#[^\n\r]*[\n\r])+"
_PNM = re.compile(rb"P[1-6fF]" + _GAP + rb"(\d+)" + _GAP + rb"(\d+)\s")
_PNM_START = re.compile(rb"P[1-6fF](?:" + _GAP + rb"\d+){0,2}(?:\s|#[^\n\r]*[\n\r])*(?:#[^\n\r]*)?\Z")


def _pnm(data: memoryview, kind: str) -> Sniffed:
    head = bytes(data[:8192])
    kind = _PNM_KINDS.get(head[1:2], kind)
    found = _PNM.match(head)
    if found is None:
        if _PNM_START.match(head):
            raise struct.error
        raise ValueError
    return Sniffed(kind, int(found[1]), int(found[2]))


def _xbm(data: memoryview, kind: str) -> Sniffed:
    found = re.search(rb"#define\s+\S*width\s+(\d+)\s+#define\s+\S*height\s+(\d+)[^\0]*?_bits\s*\[", data[:8192])
    if found is None:
        raise ValueError
    return Sniffed(kind, int(found[1]), int(found[2]))


def _ico(data: memoryview, kind: str) -> Sniffed:
    (count,) = struct.unpack_from("<H", data, 4)
    entries = [struct.unpack_from("<BBxB8xI", data, 6 + 16 * number) for number in range(count)]
    if not entries or any(reserved or offset < 6 + 16 * count for _, _, reserved, offset in entries):
        raise ValueError
    width, height = max(((w or 256, h or 256) for w, h, _, _ in entries), key=lambda wh: wh[0] * wh[1])
    return Sniffed(kind, width, height)


def _pcx(data: memoryview, kind: str, at: int = 0) -> Sniffed:
    version, encoding, bits, left, top, right, bottom = struct.unpack_from("<xBBBHHHH", data, at)
    if version not in (0, 2, 3, 4, 5) or encoding > 1 or bits not in (1, 2, 4, 8) or right < left or bottom < top:
        raise ValueError
    return Sniffed(kind, right - left + 1, bottom - top + 1)


def _dcx(data: memoryview, kind: str) -> Sniffed:
    (at,) = struct.unpack_from("<I", data, 4)
    return _pcx(data, kind, at)


def _sgi(data: memoryview, kind: str) -> Sniffed:
    storage, depth, width, height = struct.unpack_from(">2xBB2xHH", data)
    if storage > 1 or depth not in (1, 2):
        raise ValueError
    return Sniffed(kind, width, height)


def _exr(data: memoryview, kind: str) -> Sniffed:
    found = re.search(rb"dataWindow\0box2i\0\x10\0\0\0(.{16})", data[:65536], re.S)
    if found is None:
        return Sniffed(kind, 0, 0)
    left, top, right, bottom = struct.unpack("<iiii", found[1])
    return Sniffed(kind, right - left + 1, bottom - top + 1)


_SIGNATURES: tuple[tuple[bytes, str, Callable[[memoryview, str], Sniffed]], ...] = (
    (b"RIFF", "webp", _webp),
    (b"GIF87a", "gif", _fixed("<HH", 6)),
    (b"GIF89a", "gif", _fixed("<HH", 6)),
    (b"BM", "bmp", _bmp),
    (b"II*\0", "tif", _tiff),
    (b"MM\0*", "tif", _tiff),
    (b"II+\0", "tif", _tiff),
    (b"MM\0+", "tif", _tiff),
    (_PNG_SIGNATURE, "png", _png_variant),
    (b"\xff\xd8\xff", "jpg", _unsized),
    (b"\xff\x0a", "jxl", _jxl),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl", _jxl),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2", _jp2),
    (b"\xff\x4f\xff\x51", "j2k", _j2k),
    (b"P7\n", "pam", _text(rb"WIDTH\s+(\d+)[^\0]*?HEIGHT\s+(\d+)")),
    (b"P", "ppm", _pnm),
    (b"qoif", "qoi", _fixed(">II", 4)),
    (b"\0\0\1\0", "ico", _ico),
    (b"\0\0\2\0", "cur", _ico),
    (b"icns", "icns", _unsized),
    (b"8BPS\0\1", "psd", _fixed(">II", 14, flip=True)),
    (b"8BPS\0\2", "psd", _fixed(">II", 14, flip=True)),
    (b"DDS ", "dds", _fixed("<II", 12, flip=True)),
    (b"\n", "pcx", _pcx),
    (b"\xb1\x68\xde\x3a", "dcx", _dcx),
    (b"\x01\xda", "sgi", _sgi),
    (b"\x59\xa6\x6a\x95", "ras", _fixed(">II", 4)),
    (b"v/1\x01", "exr", _exr),
    (b"#?RADIANCE", "hdr", _text(rb"\n[-+]Y (\d+) [-+]X (\d+)\n", flip=True)),
    (b"#?RGBE", "hdr", _text(rb"\n[-+]Y (\d+) [-+]X (\d+)\n", flip=True)),
    (b"#define", "xbm", _xbm),
    (b"/* XPM */", "xpm", _text(rb'"\s*(\d+)\s+(\d+)\s+\d+\s+\d+')),
    (b"/*", "xbm", _xbm),
    (b"SIMPLE  =", "fits", _text(rb"NAXIS1\s*=\s*(\d+)[^\0]*?NAXIS2\s*=\s*(\d+)")),
    (b"BLP1", "blp", _fixed("<II", 12)),
    (b"BLP2", "blp", _fixed("<II", 12)),
    (b"FTEX", "ftex", _fixed("<II", 8)),
    (b"DanM", "msp", _fixed("<HH", 4)),
    (b"LinS", "msp", _fixed("<HH", 4)),
    (b"\x80\xe8\0\0", "pxr", _fixed("<HH", 416, flip=True)),
)
