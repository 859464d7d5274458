"""What a file is, told from its first bytes."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, features

from fastconv.converters.sniff import BadImage, Sniffed, sniff
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.sample import REASONS


def look(data: bytes) -> Sniffed:
    return sniff(memoryview(data), len(data))


def outcome(data: bytes) -> str:
    """Returns the kind, or the reason for which there is none."""
    try:
        return look(data).kind
    except BadImage as error:
        return error.reason


def bad(data: bytes) -> BadImage:
    with pytest.raises(BadImage) as caught:
        look(data)
    assert caught.value.reason in REASONS
    assert "\n" not in caught.value.message
    return caught.value


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def picture(mode: str = "RGB", size: tuple[int, int] = (37, 21)) -> Image.Image:
    return Image.linear_gradient("L").resize(size).convert(mode)


def segment(marker: int, contents: bytes) -> bytes:
    return struct.pack(">HH", marker, len(contents) + 2) + contents


def jpeg(*segments: bytes, process: int = 0xFFC0) -> bytes:
    """Returns a JPEG header of 300 x 200 pixels with these segments before the frame."""
    frame = segment(process, struct.pack(">BHHB", 8, 200, 300, 3) + bytes(9))
    return b"\xff\xd8" + b"".join(segments) + frame


WRITTEN: list[tuple[str, str, str, dict[str, Any]]] = [
    ("JPEG", "RGB", "jpg", {}),
    ("JPEG", "L", "jpg", {"progressive": True}),
    ("JPEG", "CMYK", "jpg", {}),
    ("MPO", "RGB", "jpg", {"save_all": True, "append_images": [Image.new("RGB", (8, 8))]}),
    ("PNG", "RGBA", "png", {}),
    ("PNG", "RGB", "png", {"save_all": True, "append_images": [Image.new("RGB", (8, 8))]}),
    ("WEBP", "RGB", "webp", {}),
    ("WEBP", "RGB", "webp", {"lossless": True}),
    ("WEBP", "RGBA", "webp", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}),
    ("GIF", "P", "gif", {}),
    ("BMP", "RGB", "bmp", {}),
    ("DIB", "RGB", "bmp", {}),
    ("TIFF", "RGB", "tif", {}),
    ("TIFF", "I;16B", "tif", {}),
    ("TIFF", "L", "tif", {"big_tiff": True}),
    ("JPEG2000", "RGB", "jp2", {}),
    ("JPEG2000", "RGB", "j2k", {"no_jp2": True}),
    ("PPM", "RGB", "ppm", {}),
    ("PPM", "L", "pgm", {}),
    ("PPM", "1", "pbm", {}),
    ("PPM", "F", "pfm", {}),
    ("ICO", "RGBA", "ico", {"sizes": [(16, 16), (37, 21)]}),
    ("TGA", "RGB", "tga", {}),
    ("TGA", "L", "tga", {"compression": "tga_rle"}),
    ("DDS", "RGBA", "dds", {}),
    ("PCX", "RGB", "pcx", {}),
    ("SGI", "RGB", "sgi", {}),
    ("XBM", "1", "xbm", {}),
    ("MSP", "1", "msp", {}),
    ("BLP", "P", "blp", {"blp_version": "BLP1"}),
    ("BLP", "P", "blp", {"blp_version": "BLP2"}),
]


def written(file_format: str, mode: str, options: dict[str, Any]) -> bytes:
    image = Image.new(mode, (37, 21)) if ";" in mode else picture(mode)
    return encoded(image, file_format, **options)


@pytest.mark.parametrize(("file_format", "mode", "kind", "options"), WRITTEN)
def test_formats_that_pillow_writes(
    file_format: str, mode: str, kind: str, options: dict[str, Any]
) -> None:
    assert look(written(file_format, mode, options)) == (kind, 37, 21)


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
def test_avif() -> None:
    assert look(encoded(picture(), "AVIF")) == ("avif", 37, 21)


def test_icns() -> None:
    assert look(encoded(picture(size=(64, 64)), "ICNS")) == ("icns", 0, 0)


def box(name: bytes, contents: bytes) -> bytes:
    return struct.pack(">I", len(contents) + 8) + name + contents


def ispe(width: int, height: int) -> bytes:
    return box(b"ispe", struct.pack(">III", 0, width, height))


def exr(*window: int) -> bytes:
    attribute = b"dataWindow\0box2i\0" + struct.pack("<I4i", 16, *window)
    return b"v/1\x01\x02\0\0\0" + b"compression\0compression\0\x01\0\0\0\x03" + attribute + b"\0"


def apple_png() -> bytes:
    cgbi = b"\0\0\0\x04CgBI\x50\0\x20\x02" + bytes(4)
    header = b"\0\0\0\x0dIHDR" + struct.pack(">II", 30, 20) + b"\x08\x06\0\0\0" + bytes(4)
    return b"\x89PNG\r\n\x1a\n" + cgbi + header


HEADERS = {
    "heic": (box(b"ftyp", b"heic\0\0\0\0mif1heic") + box(b"meta", ispe(8, 6)), ("heic", 8, 6)),
    "heic, tiles, whole and thumbnail": (
        box(b"ftyp", b"mif1\0\0\0\0heic")
        + box(b"meta", ispe(512, 512) + ispe(4032, 3024) + ispe(320, 240)),
        ("heic", 4032, 3024),
    ),
    "heic, a part of the stored picture": (
        box(b"ftyp", b"heic\0\0\0\0") + box(b"meta", ispe(64, 64) + box(b"clap", bytes(32))),
        ("heic", 0, 0),
    ),
    "heic without a description": (box(b"ftyp", b"heic\0\0\0\0") + bytes(40), ("heic", 0, 0)),
    "avif in a general container": (
        box(b"ftyp", b"mif1\0\0\0\0mif1avif") + box(b"meta", ispe(5, 4)),
        ("avif", 5, 4),
    ),
    "jxl": (bytes.fromhex("ff0a3107002d880200d8"), ("jxl", 300, 200)),
    "jxl, small": (bytes.fromhex("ff0a7f06002d880200 72"), ("jxl", 256, 256)),
    "jxl, ratio": (bytes.fromhex("ff0aba211d002d880200"), ("jxl", 1920, 1080)),
    "jxl, boxes": (
        b"\0\0\0\x0cJXL \r\n\x87\n"
        + box(b"ftyp", b"jxl \0\0\0\0jxl ")
        + box(b"jxlp", bytes(4) + bytes.fromhex("ff0a308064c9002d8802000c017784d7")),
        ("jxl", 1203, 7),
    ),
    "jxl without pixels": (
        b"\0\0\0\x0cJXL \r\n\x87\n" + box(b"ftyp", b"jxl \0\0\0\0jxl "),
        ("jxl", 0, 0),
    ),
    "qoi": (b"qoif" + struct.pack(">IIBB", 30, 20, 3, 0), ("qoi", 30, 20)),
    "cur": (
        b"\0\0\2\0\2\0"
        + struct.pack("<BBBBHHII", 16, 16, 0, 0, 0, 0, 9, 38)
        + struct.pack("<BBBBHHII", 0, 0, 0, 0, 0, 0, 9, 47),
        ("cur", 256, 256),
    ),
    "psd": (b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 20, 30, 8, 3), ("psd", 30, 20)),
    "psb": (b"8BPS\0\2" + bytes(6) + struct.pack(">HIIHH", 3, 20, 30, 8, 3), ("psd", 30, 20)),
    "dcx": (
        struct.pack("<III", 0x3ADE68B1, 12, 0) + b"\n\5\1\x08" + struct.pack("<4H", 1, 2, 30, 21),
        ("dcx", 30, 20),
    ),
    "sun raster": (struct.pack(">5I", 0x59A66A95, 30, 20, 24, 1800), ("ras", 30, 20)),
    "exr": (exr(0, 0, 29, 19), ("exr", 30, 20)),
    "exr, crossed window": (exr(0, 0, -9, -9), ("exr", 0, 0)),
    "hdr": (
        b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 20 +X 30\n\x02\x02",
        ("hdr", 30, 20),
    ),
    "xpm": (b'/* XPM */\nstatic char *x[] = {\n"30 20 2 1",\n" c None",', ("xpm", 30, 20)),
    "xbm after a comment": (
        b"/* icon */\n#define i_width 30\n#define i_height 20\nstatic char i_bits[] = {\n0x00};",
        ("xbm", 30, 20),
    ),
    "fits": (
        b"SIMPLE  =                    T".ljust(80)
        + b"NAXIS   =                    2".ljust(80)
        + b"NAXIS1  =                   30".ljust(80)
        + b"NAXIS2  =                   20".ljust(80),
        ("fits", 30, 20),
    ),
    "ftex": (b"FTEX" + struct.pack("<iii", 65536, 30, 20), ("ftex", 30, 20)),
    "pixar": (b"\x80\xe8\0\0" + bytes(412) + struct.pack("<HH", 20, 30), ("pxr", 30, 20)),
    "pam": (b"P7\nWIDTH 30\nHEIGHT 20\nDEPTH 4\nMAXVAL 255\nENDHDR\n", ("pam", 30, 20)),
    "pfm in colour": (b"PF\n30 20\n-1.0\n" + bytes(12), ("pfm", 30, 20)),
    "pgm of text, with comments": (b"P2\n# made by hand\n30 # w\n20\n255\n0 1", ("pgm", 30, 20)),
    "bmp, rows from top to bottom": (
        b"BM" + bytes(12) + struct.pack("<IiiHH", 40, 30, -20, 1, 24),
        ("bmp", 30, 20),
    ),
    "bmp of OS/2": (b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 30, 20, 1, 24), ("bmp", 30, 20)),
    "apple's png": (apple_png(), ("png", 30, 20)),
    "webp of an unknown chunk": (b"RIFF\x20\0\0\0WEBPXXXX" + bytes(20), ("webp", 0, 0)),
    "flc": (
        struct.pack("<IHHHHHHI", 128, 0xAF12, 1, 30, 20, 8, 3, 70) + bytes(108 + 16 + 16),
        ("fli", 30, 20),
    ),
    "a size that no picture has": (b"qoif" + struct.pack(">II", 2**32 - 1, 5), ("qoi", 0, 0)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_written_out(name: str) -> None:
    data, expected = HEADERS[name]
    assert look(data) == expected


@pytest.mark.parametrize("process", sorted({*range(0xFFC0, 0xFFD0)} - {0xFFC4, 0xFFC8, 0xFFCC}))
def test_jpeg_of_every_process(process: int) -> None:
    assert look(jpeg(process=process)) == ("jpg", 300, 200)


def test_jpeg_with_everything_before_its_frame() -> None:
    thumbnail = jpeg()  # an EXIF block holds a JPEG of its own
    blocks = [
        segment(0xFFE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        segment(0xFFE1, b"Exif\0\0" + thumbnail.ljust(60000, b"\0")),
        *(segment(0xFFE2, b"ICC_PROFILE\0" + bytes(65000)) for _ in range(3)),
        segment(0xFFFE, b"a comment"),
        segment(0xFFDB, bytes(65)),
        segment(0xFFC4, bytes(30)),
        segment(0xFFDD, bytes(2)),
    ]
    assert look(jpeg(*blocks)) == ("jpg", 300, 200)


@pytest.mark.parametrize(
    "junk", [b"\xff", b"\xff\xff\xff", b"\0\0", b"junk", b"\xff\x00", b"\xff\x01"]
)
def test_jpeg_with_junk_between_its_segments(junk: bytes) -> None:
    data = jpeg(
        segment(0xFFE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"), junk, segment(0xFFDB, bytes(65)), junk
    )
    assert look(data) == ("jpg", 300, 200)


def test_jpeg_whose_frame_lies_behind_the_bytes_at_hand() -> None:
    data = jpeg(*(segment(0xFFE2, bytes(65000)) for _ in range(4)))
    assert sniff(memoryview(data)[:65536], len(data)) == ("jpg", 0, 0)


@pytest.mark.parametrize(
    "rest",
    [
        bytes(1000),  # a download that was never filled in
        segment(0xFFE0, b"JFIF\0") + segment(0xFFDA, bytes(10)) + bytes(100),
        b"\xff\xd9",
    ],
)
def test_jpeg_without_a_frame(rest: bytes) -> None:
    error = bad(b"\xff\xd8\xff\xe0\0\x02" + rest)
    assert error.reason in ("corrupt", "truncated")


def test_jpeg_cut_in_its_header() -> None:
    data = jpeg(segment(0xFFE1, bytes(5000)))
    for size in (2, 3, 5, 100, len(data) - 18, len(data) - 15):
        assert bad(data[:size]).reason == "truncated", size


@pytest.mark.parametrize(("file_format", "mode", "kind", "options"), WRITTEN)
def test_every_cut_is_told_or_harmless(
    file_format: str, mode: str, kind: str, options: dict[str, Any]
) -> None:
    data = written(file_format, mode, options)
    for size in range(1, min(len(data), 120)):
        told = outcome(data[:size])
        assert told in (*KINDS, "truncated", "not_an_image", "corrupt"), size


@pytest.mark.parametrize(("file_format", "mode", "kind", "options"), WRITTEN)
def test_the_first_64_kib_are_enough(
    file_format: str, mode: str, kind: str, options: dict[str, Any]
) -> None:
    data = written(file_format, mode, options)
    assert sniff(memoryview(data.ljust(65536, b"\0")), 10**9) == (kind, 37, 21)


def test_a_directory_behind_the_bytes_at_hand() -> None:
    data = b"II*\0" + struct.pack("<I", 10**8) + bytes(65536)
    assert sniff(memoryview(data), 10**9) == ("tif", 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0",
        b"\x89PN",
        b"GIF89a\x05",
        b"RIFF\x20\0\0\0WEBPVP8 ",
        b"RIFF",
        b"II*\0\x08\0\0\0\x05\0",
        b"II*\0\x00\x00\x01\0" + bytes(40),  # its directory would lie behind the end
        b"BM",
        b"P6\n",
        b"P6\n# comment\n30",
        b"\0\0\0\x0c",
        b"qoif\0\0",
        b"\0\0\1\0\1\0\x10",
    ],
)
def test_cut_headers(data: bytes) -> None:
    assert bad(data).reason == "truncated"


def test_no_bytes() -> None:
    assert bad(b"").reason == "empty"


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 4711\n"
FOREIGN = {
    "Git LFS pointer": LFS,
    "git lfs pull": LFS,
    "HTML": b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>",
    "an HTML page": b"\xef\xbb\xbf\r\n<!-- cached --> <HTML>",
    "JSON": b'{"error": "AccessDenied"}',
    "SVG": b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    "XML": b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>',
    "PDF": b"%PDF-1.4\n",
    "ZIP": b"PK\x03\x04" + bytes(30),
    "gzip": b"\x1f\x8b\x08\0",
    "tar archive": b"a.jpg".ljust(257, b"\0") + b"ustar\x0000" + bytes(248),
    "MPEG": b"\0\0\x01\xba" + bytes(30),
    "brand isom": box(b"ftyp", b"isom\0\0\2\0isomiso2mp41"),
    "WAVE": b"RIFF\x24\0\0\0WAVEfmt " + bytes(20),
    "DICOM": bytes(128) + b"DICM" + bytes(20),
    "NumPy": b"\x93NUMPY\x01\0",
    "AppleDouble": b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ",
    "zero bytes": bytes(4096),
    "text: photo unavailable": "photo unavailable\n".encode("utf-16"),
    "text: not found": b"not found\n",
    "text: P6 is a bicycle": b"P6 is a bicycle",
    "text: BMW": b"BMW of 1972 and more text",
    "text: caf\u00e9": "caf\u00e9".encode(),
    "starts with 00 01 02 03 fe": b"\0\1\2\3\xfe\xff\x01" * 9,
}


@pytest.mark.parametrize("shown", FOREIGN)
def test_what_is_no_image_says_what_it_is(shown: str) -> None:
    error = bad(FOREIGN[shown])
    assert error.reason == "not_an_image"
    assert shown in error.message


def test_long_texts_and_control_characters_are_shown_in_one_short_line() -> None:
    message = bad(b"a\x1b[31m" + b"very long " * 50).message
    assert len(message) < 100
    assert message.isprintable()


@given(st.binary(max_size=600))
@example(b"#define a_width 9999999999\n#define a_height 1\na_bits[] = {")
@example(b"P6\n" + b"9" * 5000 + b" 1\n")
@example(b"\0\0\1\0\xff\xff" + bytes(16))
@example(b"\xff\x4f\xff\x51\0\0\0\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff")
@example(b"\0\0\0\x10ftypavif\xff\xff\xff\xffmeta")
def test_any_bytes_are_told_or_refused(data: bytes) -> None:
    told = outcome(data)
    assert told in (*KINDS, *REASONS)
    if told in KINDS:
        _, width, height = look(data)
        assert 0 <= width < 2**32
        assert 0 <= height < 2**32


def test_the_buffer_may_be_a_part_of_another_and_stays_free() -> None:
    data = encoded(picture(), "PNG")
    buffer = bytearray(b"before" + data + b"behind")
    view = memoryview(buffer)[6 : 6 + len(data)]
    assert sniff(view, len(data)) == ("png", 37, 21)
    view.release()
    buffer.clear()  # raises BufferError where something still holds the bytes


def test_bad_image_keeps_its_parts_between_processes() -> None:
    error = pickle.loads(pickle.dumps(bad(b"")))
    assert (type(error), error.reason, str(error)) == (BadImage, "empty", "no bytes")


def test_pillow_is_only_loaded_for_unknown_bytes() -> None:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0"
    data += struct.pack(">I", zlib.crc32(data[12:29]))
    code = (
        "import sys\n"
        "from fastconv.converters.sniff import BadImage, sniff\n"
        f"sniff(memoryview({data!r}), {len(data)})\n"
        "try: sniff(memoryview(b'<html>'), 6)\n"
        "except BadImage: pass\n"
        "print('PIL' in sys.modules)"
    )
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
