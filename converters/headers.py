"""The headers of image formats: by which bytes they start, and where width and height stand.

Each reader returns the kind, the width and the height (0, 0 where they are not cheaply known). It
raises `struct.error` where the data end inside the header, and `ValueError` where the file is of
another format after all, which happens with short signatures.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from fastconv.loaders import png, tiff

__all__ = ["SIGNATURES", "Found", "iso_media"]

Found = tuple[str, int, int]
Header = Callable[[memoryview, str], Found]

_TEXT_BYTES = 8192  # where headers of text are looked for
_BOX_BYTES = 65536  # where the parts of headers that have no fixed place are looked for


def _fixed(layout: str, at: int) -> Header:
    """Returns a reader of width and height at a fixed place."""
    read = struct.Struct(layout).unpack_from

    def header(data: memoryview, kind: str) -> Found:
        width, height = read(data, at)
        return kind, width, height

    return header


def _fixed_height_first(layout: str, at: int) -> Header:
    read = struct.Struct(layout).unpack_from

    def header(data: memoryview, kind: str) -> Found:
        height, width = read(data, at)
        return kind, width, height

    return header


def _text(pattern: bytes) -> Header:
    """Returns a reader of a text in which the pattern's groups `w` and `h` are the size."""
    find = re.compile(pattern).search

    def header(data: memoryview, kind: str) -> Found:
        found = find(data[:_TEXT_BYTES])
        return (kind, int(found["w"]), int(found["h"])) if found else (kind, 0, 0)

    return header


def _unsized(data: memoryview, kind: str) -> Found:
    return kind, 0, 0


def _png_variant(data: memoryview, kind: str) -> Found:
    """Apple's PNG has a chunk of 4 bytes, `CgBI`, before the header."""
    name, width, height = struct.unpack_from(">12x4s16xII", data)
    return (kind, width, height) if name == b"CgBI" else (kind, 0, 0)


def _webp(data: memoryview, kind: str) -> Found:
    form, chunk = struct.unpack_from("<8x4s4s", data)
    if form != b"WEBP":
        raise ValueError
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return kind, width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return kind, (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X":
        width, width_top, height, height_top = struct.unpack_from("<HBHB", data, 24)
        return kind, (width | width_top << 16) + 1, (height | height_top << 16) + 1
    return kind, 0, 0


def _bmp(data: memoryview, kind: str) -> Found:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes not in (12, 16, 40, 52, 56, 64, 108, 124):
        raise ValueError
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return kind, width, abs(height)  # a negative height: rows from top to bottom


def _tiff(data: memoryview, kind: str) -> Found:
    directory = tiff.read_directory(data)
    return kind, directory.first(tiff.WIDTH), directory.first(tiff.HEIGHT)


_HEIC_BRANDS = frozenset(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
)


def iso_media(data: memoryview) -> Found | None:
    """Returns what an ISO media file is, if it is AVIF or HEIC; None for a video.

    Such a file is a chain of boxes: size (4 bytes), name (4), contents. The first, `ftyp`, names
    the brands; the second, `meta`, describes the pictures.
    """
    length = int.from_bytes(data[:4], "big")
    brands = {bytes(data[at : at + 4]) for at in range(8, min(length, 256) - 3, 4)}
    if brands & {b"avif", b"avis"}:
        kind = "avif"
    elif brands & _HEIC_BRANDS:
        kind = "heic"
    else:
        return None
    end = length + int.from_bytes(data[length : length + 4], "big")
    meta = bytes(data[length : min(end, _BOX_BYTES)])
    if b"clap" in meta:
        return kind, 0, 0  # only a part of the stored picture is shown
    # `ispe` is the size of one stored picture. A large picture is stored as tiles and has one of
    # its own, the largest of them; a thumbnail has a smaller one.
    sizes = (
        struct.unpack(">II", found[1])
        for found in re.finditer(rb"ispe\0\0\0\0(.{8})", meta, re.DOTALL)
    )
    width, height = max(sizes, key=lambda size: int(size[0] * size[1]), default=(0, 0))
    return kind, width, height


def _jp2(data: memoryview, kind: str) -> Found:
    found = re.search(rb"ihdr(.{8})", data[:_BOX_BYTES], re.DOTALL)
    height, width = struct.unpack(">II", found[1]) if found else (0, 0)
    return kind, width, height


def _j2k(data: memoryview, kind: str) -> Found:
    right, bottom, left, top = struct.unpack_from(">IIII", data, 8)
    return kind, right - left, bottom - top


def _jxl(data: memoryview, kind: str) -> Found:
    """The bare codestream, or boxes of which `jxlc` or the first `jxlp` holds it."""
    if bytes(data[:2]) == b"\xff\x0a":
        return kind, *_jxl_size(data[2:16])
    found = re.search(rb"jxl(?:c|p.{4})\xff\x0a(.{12})", data[:_BOX_BYTES], re.DOTALL)
    return (kind, *_jxl_size(found[1])) if found else (kind, 0, 0)


_JXL_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def _jxl_size(header: memoryview | bytes) -> tuple[int, int]:
    """Reads bits, the lowest first: small (1), height, ratio (3), width where the ratio is 0."""
    bits = int.from_bytes(header, "little")

    def take(count: int) -> int:
        nonlocal bits
        value = bits & (1 << count) - 1
        bits >>= count
        return value

    def length() -> int:
        return (take(5) + 1) * 8 if small else take((9, 13, 18, 30)[take(2)]) + 1

    small = take(1)
    height = length()
    ratio = take(3)
    if not ratio:
        return length(), height
    over, under = _JXL_RATIOS[ratio - 1]
    return height * over // under, height


_PNM_KINDS = {
    b"1": "pbm", b"2": "pgm", b"3": "ppm", b"4": "pbm", b"5": "pgm", b"6": "ppm",
    b"f": "pfm", b"F": "pfm",
}  # fmt: skip
_GAP = rb"(?:\s|#[^\n\r]*[\n\r])+"
_PNM = re.compile(rb"P([1-6fF])" + _GAP + rb"(\d{1,9})" + _GAP + rb"(\d{1,9})\s")
_PNM_START = re.compile(
    rb"P[1-6fF](?:" + _GAP + rb"\d{1,9}){0,2}(?:\s|#[^\n\r]*[\n\r])*(?:#[^\n\r]*)?\Z"
)


def _pnm(data: memoryview, kind: str) -> Found:
    head = bytes(data[:_TEXT_BYTES])
    found = _PNM.match(head)
    if found is None:
        if _PNM_START.match(head):
            raise struct.error
        raise ValueError
    return _PNM_KINDS[found[1]], int(found[2]), int(found[3])


_XBM = re.compile(
    rb"#define\s+\S*width\s+(\d{1,9})\s+#define\s+\S*height\s+(\d{1,9})\s[^\0]*?_bits\s*\["
)


def _xbm(data: memoryview, kind: str) -> Found:
    found = _XBM.search(data[:_TEXT_BYTES])
    if found is None:
        raise ValueError
    return kind, int(found[1]), int(found[2])


def _ico(data: memoryview, kind: str) -> Found:
    (count,) = struct.unpack_from("<H", data, 4)
    first_offset = 6 + 16 * count
    largest = (0, 0)
    for number in range(count):
        width, height, reserved, offset = struct.unpack_from("<BBxB8xI", data, 6 + 16 * number)
        if reserved or offset < first_offset:
            raise ValueError
        largest = max(largest, (width or 256, height or 256))
    if not count:
        raise ValueError
    return kind, *largest


def _pcx(data: memoryview, kind: str, at: int = 0) -> Found:
    version, encoding, bits, left, top, right, bottom = struct.unpack_from("<xBBBHHHH", data, at)
    if version not in (0, 2, 3, 4, 5) or encoding > 1 or bits not in (1, 2, 4, 8):
        raise ValueError
    if right < left or bottom < top:
        raise ValueError
    return kind, right - left + 1, bottom - top + 1


def _dcx(data: memoryview, kind: str) -> Found:
    (at,) = struct.unpack_from("<I", data, 4)
    return _pcx(data, kind, at)


def _sgi(data: memoryview, kind: str) -> Found:
    storage, depth, width, height = struct.unpack_from(">2xBB2xHH", data)
    if storage > 1 or depth not in (1, 2):
        raise ValueError
    return kind, width, height


def _exr(data: memoryview, kind: str) -> Found:
    found = re.search(rb"dataWindow\0box2i\0\x10\0\0\0(.{16})", data[:_BOX_BYTES], re.DOTALL)
    if found is None:
        return kind, 0, 0
    left, top, right, bottom = struct.unpack("<iiii", found[1])
    return kind, right - left + 1, bottom - top + 1


_hdr = _text(rb"\n[-+]Y (?P<h>\d{1,9}) [-+]X (?P<w>\d{1,9})\n")

SIGNATURES: tuple[tuple[bytes, str, Header], ...] = (
    (b"RIFF", "webp", _webp),
    (b"GIF87a", "gif", _fixed("<HH", 6)),
    (b"GIF89a", "gif", _fixed("<HH", 6)),
    (b"BM", "bmp", _bmp),
    (b"II*\0", "tif", _tiff),
    (b"MM\0*", "tif", _tiff),
    (b"II+\0", "tif", _tiff),
    (b"MM\0+", "tif", _tiff),
    (png.SIGNATURE, "png", _png_variant),
    (b"\xff\xd8\xff", "jpg", _unsized),
    (b"\xff\x0a", "jxl", _jxl),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl", _jxl),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2", _jp2),
    (b"\xff\x4f\xff\x51", "j2k", _j2k),
    (b"P7\n", "pam", _text(rb"WIDTH\s+(?P<w>\d{1,9})[^\0]*?HEIGHT\s+(?P<h>\d{1,9})")),
    (b"P", "ppm", _pnm),
    (b"qoif", "qoi", _fixed(">II", 4)),
    (b"\0\0\1\0", "ico", _ico),
    (b"\0\0\2\0", "cur", _ico),
    (b"icns", "icns", _unsized),
    (b"8BPS\0\1", "psd", _fixed_height_first(">II", 14)),
    (b"8BPS\0\2", "psd", _fixed_height_first(">II", 14)),
    (b"DDS ", "dds", _fixed_height_first("<II", 12)),
    (b"\n", "pcx", _pcx),
    (b"\xb1\x68\xde\x3a", "dcx", _dcx),
    (b"\x01\xda", "sgi", _sgi),
    (b"\x59\xa6\x6a\x95", "ras", _fixed(">II", 4)),
    (b"v/1\x01", "exr", _exr),
    (b"#?RADIANCE", "hdr", _hdr),
    (b"#?RGBE", "hdr", _hdr),
    (b"#define", "xbm", _xbm),
    (b"/* XPM */", "xpm", _text(rb'"\s*(?P<w>\d{1,9})\s+(?P<h>\d{1,9})\s+\d+\s+\d+')),
    (b"/*", "xbm", _xbm),
    (b"SIMPLE  =", "fits", _text(rb"NAXIS1\s*=\s*(?P<w>\d{1,9})\D.*?NAXIS2\s*=\s*(?P<h>\d{1,9})")),
    (b"BLP1", "blp", _fixed("<II", 12)),
    (b"BLP2", "blp", _fixed("<II", 12)),
    (b"FTEX", "ftex", _fixed("<II", 8)),
    (b"DanM", "msp", _fixed("<HH", 4)),
    (b"LinS", "msp", _fixed("<HH", 4)),
    (b"\x80\xe8\0\0", "pxr", _fixed_height_first("<HH", 416)),
)
"""Signature, kind and header reader of each format; of two that match, the first that accepts."""
