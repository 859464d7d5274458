"""What an error of Pillow's means, together with the file's own account of its length."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image

from fastconv.loaders.damage import sample_error
from fastconv.loaders.decode import decode_pil
from fastconv.loaders.errors import SampleError

DAMAGE = OSError("broken data stream when reading image file")
JPEG = b"\xff\xd8\xff\xe0\0\4AB"
END = b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
LONG_BOX = struct.pack(">I4sQ", 1, b"mdat", 100)  # the size does not fit 4 bytes
ICON = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 50, 22)


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("jpg", JPEG + END, "corrupt"),
        ("jpg", JPEG, "truncated"),
        ("jpg", JPEG + b"\xff\xc3\0\4AB" + END, "unsupported_format"),  # lossless
        ("jpg", JPEG + b"\xff\xc2\0\4AB" + END, "corrupt"),  # progressive
        ("j2k", b"\xff\x4f\xff\x51" + bytes(40), "truncated"),
        ("j2k", b"\xff\x4f\xff\x51" + bytes(40) + END, "corrupt"),
        ("png", PNG + b"\0\0\0\0IEND" + bytes(4), "corrupt"),
        ("png", PNG + b"\0\0\0\x09IDAT" + bytes(8), "truncated"),
        ("png", PNG + b"\0\0\0\0IDAT" + bytes(4), "truncated"),
        ("png", PNG + b"\0\0\0\0\0\1\2\3" + bytes(4), "corrupt"),
        ("webp", b"RIFF\x0c\0\0\0WEBPVP8 " + bytes(4), "corrupt"),
        ("webp", b"RIFF\x0d\0\0\0WEBPVP8 " + bytes(4), "truncated"),
        ("icns", b"icns\0\0\0\x0c" + bytes(4), "corrupt"),
        ("icns", b"icns\0\0\0\x0d" + bytes(4), "truncated"),
        ("ico", ICON + bytes(50), "corrupt"),
        ("ico", ICON + bytes(49), "truncated"),
        ("ico", ICON[:5], "truncated"),
        ("jp2", b"\0\0\0\x08jp2h" + LONG_BOX + bytes(84), "corrupt"),
        ("jp2", b"\0\0\0\x08jp2h" + LONG_BOX + bytes(83), "truncated"),
        ("avif", b"\0\0\0\x08ftyp\0\0\0\0mdat" + bytes(9), "corrupt"),  # up to the end
        ("tif", b"II*\0\x08\0\0\0\0\0", "corrupt"),
        ("tif", b"II*\0\x08\0\0\0\1\0", "truncated"),
        ("gif", b"GIF89a", "corrupt"),
        (None, b"unknown", "corrupt"),
    ],
)
def test_cut_or_damaged(kind: str | None, data: bytes, reason: str) -> None:
    assert sample_error(DAMAGE, memoryview(data), kind).reason == reason


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        (MemoryError(), "too_large", "too many pixels"),
        (Image.DecompressionBombError("Image size (9 pixels)"), "too_large", "9 pixels"),
        (NotImplementedError("Unknown pixel format"), "unsupported_format", "variant"),
        (OSError("decoder jpeg2k not available"), "unsupported_format", "jpeg2k"),
        (EOFError(), "truncated", "EOFError"),
        (struct.error("unpack requires a buffer of 4 bytes"), "truncated", "the header is cut"),
        (ValueError("two\nlines"), "corrupt", "two"),
    ],
)
def test_errors(error: Exception, reason: str, says: str) -> None:
    found = sample_error(error, memoryview(b"GIF89a"), "gif")
    assert found.reason == reason
    assert says in str(found)
    assert str(found).startswith("GIF ")
    assert "\n" not in str(found)


@pytest.mark.parametrize("flags", [4, 0])  # a code that is unknown; none of the kinds there are
def test_a_variant_that_pillow_itself_says_it_lacks(flags: int) -> None:
    """Its plug-ins raise NotImplementedError: here for the pixel format of a DDS."""
    head = b"DDS " + struct.pack("<7I", 124, 0x1007, 8, 8, 0, 0, 0) + bytes(44)
    pixel_format = struct.pack("<2I4s5I", 32, flags, b"XYZW", 0, 0, 0, 0, 0)
    data = head + pixel_format + struct.pack("<5I", 0x1000, 0, 0, 0, 0) + bytes(64)
    with pytest.raises(NotImplementedError):
        Image.open(io.BytesIO(data)).load()
    with pytest.raises(SampleError, match="DDS of a variant that Pillow cannot decode") as caught:
        decode_pil(data)
    assert caught.value.reason == "unsupported_format"
