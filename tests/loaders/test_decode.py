"""From the bytes of a field to pixels and text, without a warning or a change of settings."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import threading
import warnings
import zlib
from contextlib import suppress
from typing import Any, get_args

import numpy as np
import pytest
from PIL import (
    Image,
    ImageFile,
    ImageOps,
    PngImagePlugin,
    UnidentifiedImageError,
    features,
)
from tests.support import ARITHMETIC

from fastconv.loaders.decode import Mode, decode_pil, to_text
from fastconv.loaders.errors import SampleError, UsageError
from fastconv.loaders.pillow import load_image


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def picture(mode: str = "RGB", size: tuple[int, int] = (48, 32)) -> Image.Image:
    """Returns a picture whose channels, rows and columns all differ."""
    width, height = size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    pixels = np.stack((x * 5, y * 7, (x + y) * 3), axis=2).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def reference(data: bytes) -> Image.Image:
    """Returns what Pillow opens, with whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        image.load()
        return image


def same(one: Image.Image, other: Image.Image) -> bool:
    return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())


def refused(data: bytes, **options: Any) -> SampleError:
    with pytest.raises(SampleError) as caught:
        decode_pil(data, **options)
    assert "\n" not in str(caught.value)
    assert "BytesIO" not in str(caught.value)
    return caught.value


def png_chunk(name: bytes, contents: bytes) -> bytes:
    checksum = zlib.crc32(name + contents)
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", checksum)


def before_pixels(data: bytes, *chunks: bytes) -> bytes:
    place = data.index(b"IDAT") - 4
    return data[:place] + b"".join(chunks) + data[place:]


PICTURES: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
    "jpg": (picture(), "JPEG", {}),
    "jpg grey": (picture("L"), "JPEG", {}),
    "jpg cmyk": (picture("CMYK"), "JPEG", {}),
    "jpg rgb": (picture(), "JPEG", {"keep_rgb": True}),
    "jpg progressive": (picture(), "JPEG", {"progressive": True}),
    "mpo": (picture(), "MPO", {"save_all": True, "append_images": [picture().rotate(180)]}),
    "png": (picture(), "PNG", {}),
    "png grey": (picture("L"), "PNG", {}),
    "png black and white": (picture("1"), "PNG", {}),
    "png grey alpha": (picture("LA"), "PNG", {}),
    "png alpha": (picture("RGBA"), "PNG", {}),
    "png palette": (picture().quantize(16), "PNG", {}),
    "png palette, one transparent": (picture().quantize(16), "PNG", {"transparency": 3}),
    "png palette, half transparent": (
        picture().quantize(16),
        "PNG",
        {"transparency": bytes([0, 128, 200, 255])},
    ),
    "png, one colour transparent": (picture(), "PNG", {"transparency": (5, 7, 6)}),
    "png grey, one value transparent": (picture("L"), "PNG", {"transparency": 5}),
    "apng": (picture(), "PNG", {"save_all": True, "append_images": [picture().rotate(180)]}),
    "apng with a picture of its own": (
        picture(),
        "PNG",
        {"save_all": True, "default_image": True, "append_images": [picture().rotate(180)]},
    ),
    "gif": (picture().quantize(16), "GIF", {"transparency": 2}),
    "gif animated": (
        picture(),
        "GIF",
        {"save_all": True, "append_images": [picture().rotate(180)]},
    ),
    "webp": (picture(), "WEBP", {"lossless": True}),
    "webp alpha": (picture("RGBA"), "WEBP", {}),
    "webp animated": (picture(), "WEBP", {"save_all": True, "append_images": [picture("L")]}),
    "bmp": (picture(), "BMP", {}),
    "tif": (picture(), "TIFF", {}),
    "tif lzw": (picture("RGBA"), "TIFF", {"compression": "tiff_lzw"}),
    "tif jpeg": (picture(), "TIFF", {"compression": "jpeg"}),
    "tif fax": (picture("1"), "TIFF", {"compression": "group4"}),
    "tif palette": (picture().quantize(16), "TIFF", {}),
    "tif cmyk": (picture("CMYK"), "TIFF", {"compression": "tiff_adobe_deflate"}),
    "tif lab": (picture("LAB"), "TIFF", {}),
    "tif big": (picture(), "TIFF", {"big_tiff": True}),
    "tif of two pages": (picture(), "TIFF", {"save_all": True, "append_images": [picture("L")]}),
    "jp2": (picture(), "JPEG2000", {}),
    "ppm": (picture(), "PPM", {}),
    "ico": (picture("RGBA"), "ICO", {"sizes": [(48, 32)]}),
    "tga": (picture("RGBA"), "TGA", {}),
    "dds": (picture("RGBA"), "DDS", {}),
    "pcx": (picture(), "PCX", {}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_pillows(name: str) -> None:
    image, file_format, options = PICTURES[name]
    data = encoded(image, file_format, **options)
    expected = reference(data)
    unchanged = decode_pil(data, "unchanged")
    assert same(unchanged, expected)
    assert unchanged.getpalette() == expected.getpalette()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rgb = expected.convert("RGB")
        grey = rgb.convert("L") if expected.mode == "LAB" else expected.convert("L")
    assert same(decode_pil(memoryview(data)), rgb)
    assert same(decode_pil(data, "L"), grey)


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
def test_avif() -> None:
    data = encoded(picture(), "AVIF")
    assert same(decode_pil(data), reference(data))


def test_the_image_stands_alone() -> None:
    for mode in get_args(Mode):
        image = decode_pil(encoded(picture(), "JPEG"), mode)
        assert type(image) is Image.Image
        assert same(pickle.loads(pickle.dumps(image)), image)
        image.putpixel((0, 0), 255)  # is no view on anything read-only
    buffer = bytearray(encoded(picture(), "PNG"))
    decode_pil(memoryview(buffer))
    buffer.clear()  # raises BufferError where something still holds the bytes


SIXTEEN = np.array([[0, 255, 256, 300], [12000, 32768, 40000, 65535]], np.uint16)


def sixteen_bit(name: str) -> bytes:
    image = Image.fromarray(SIXTEEN)
    if name == "pgm":
        return b"P5 4 2 65535\n" + SIXTEEN.astype(">u2").tobytes()
    if name == "tif, the other byte order":
        return encoded(Image.frombytes("I;16B", (4, 2), SIXTEEN.astype(">u2").tobytes()), "TIFF")
    if name == "tif of 32 bits":
        return encoded(Image.fromarray(SIXTEEN.astype(np.int32)), "TIFF")
    return encoded(image, name.upper())


@pytest.mark.parametrize(
    "name", ["png", "tiff", "tif, the other byte order", "pgm", "tif of 32 bits"]
)
def test_16_bit_grey_is_scaled_and_never_clipped(name: str) -> None:
    data = sixteen_bit(name)
    unchanged = decode_pil(data, "unchanged")
    assert unchanged.mode in ("I;16", "I;16B", "I")
    assert (np.asarray(unchanged) == SIXTEEN).all()
    assert (np.asarray(decode_pil(data, "L")) == SIXTEEN >> 8).all()
    assert (np.asarray(decode_pil(data)) == (SIXTEEN >> 8)[:, :, None]).all()


def test_floats_are_given_as_they_are_or_not_at_all() -> None:
    values = np.array([[-3.5, 0.25], [0.75, 1234.5]], np.float32)
    data = encoded(Image.fromarray(values), "TIFF")
    assert (np.asarray(decode_pil(data, "unchanged")) == values).all()
    for mode in ("RGB", "L"):
        error = refused(data, mode=mode)
        assert str(error) == "float image: open with mode='unchanged'"
        assert error.reason == "unsupported_format"


@pytest.mark.parametrize("value", [-1, 65536])
def test_integers_of_more_than_16_bits_are_not_clipped(value: int) -> None:
    values = np.array([[0, value]], np.int32)
    data = encoded(Image.fromarray(values), "TIFF")
    assert (np.asarray(decode_pil(data, "unchanged")) == values).all()
    assert "mode='unchanged'" in str(refused(data))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(file_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "a description"
    data = encoded(picture(), file_format, exif=exif)
    assert same(decode_pil(data), reference(data).convert("RGB"))
    upright = decode_pil(data, exif_transpose=True)
    assert same(upright, ImageOps.exif_transpose(reference(data)).convert("RGB"))
    assert same(ImageOps.exif_transpose(upright), upright)


def test_orientation_in_xmp_alone() -> None:
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", xmp.decode())
    for data in (encoded(picture(), "JPEG", xmp=xmp), encoded(picture(), "PNG", pnginfo=texts)):
        assert decode_pil(data).size == (48, 32)
        assert decode_pil(data, exif_transpose=True).size == (32, 48)


BROKEN_EXIF = {
    "directory behind the end": b"II*\0" + struct.pack("<I", 0x7FFFFFF0),
    "a tag of 4 GB": b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 0x010E, 2, 2**32 - 1, 8),
    "no header": b"XXXX\0\0\0\0",
    "nothing": b"",
    "cut": b"MM\0*\0\0\0\x08\0\x09\x01\x12",
    "orientation 99": b"II*\0\x08\0\0\0"
    + struct.pack("<HHHIHH", 1, 0x0112, 3, 1, 99, 0)
    + bytes(4),
    "orientation of text": b"II*\0\x08\0\0\0" + struct.pack("<HHHI", 1, 0x0112, 2, 4) + b"6\0\0\0",
}


@pytest.mark.parametrize("name", BROKEN_EXIF)
def test_broken_exif_changes_nothing(name: str) -> None:
    block = b"Exif\0\0" + BROKEN_EXIF[name]
    plain = encoded(picture(), "JPEG")
    data = plain[:2] + struct.pack(">HH", 0xFFE1, len(block) + 2) + block + plain[20:]
    assert data[20:].find(b"JFIF") < 0  # with it, Pillow would not look into the EXIF block
    assert same(decode_pil(data, exif_transpose=True), decode_pil(plain))
    png = before_pixels(encoded(picture(), "PNG"), png_chunk(b"eXIf", BROKEN_EXIF[name]))
    assert same(decode_pil(png, exif_transpose=True), picture())


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_avif_turns_as_its_own_description_says(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "a description"
    data = encoded(picture(), "AVIF", exif=exif)
    upright = decode_pil(data, exif_transpose=True)
    assert same(upright, ImageOps.exif_transpose(reference(data)))
    broken = data.replace(struct.pack(">HHI", 0x010E, 2, 14), struct.pack(">HHI", 0x010E, 2, 2**31))
    assert broken != data
    assert same(decode_pil(broken, exif_transpose=True), upright)


def test_mpo_with_a_broken_index() -> None:
    data = encoded(picture(), "MPO", save_all=True, append_images=[picture("L")])
    place = data.index(b"MPF\0") + 4
    broken = data[:place] + b"XX" + data[place + 2 :]
    assert same(decode_pil(broken), decode_pil(data))


def test_arithmetic_coding_beyond_the_first_64_kib() -> None:
    """Pillow itself refuses such files: it hands them over by pieces of this size."""
    comment = b"\xff\xfe" + struct.pack(">H", 2**16 - len(ARITHMETIC) + 50)
    data = ARITHMETIC[:2] + comment.ljust(2**16 - len(ARITHMETIC) + 52) + ARITHMETIC[2:]
    assert data.index(b"\xff\xda") < 2**16 - 20 < 2**16 + 20 < len(data)
    assert same(decode_pil(data), decode_pil(ARITHMETIC))


@pytest.mark.parametrize("frames", [0, 2**32 - 1])
def test_animated_png_with_a_broken_count(frames: int) -> None:
    control = png_chunk(b"acTL", struct.pack(">II", frames, 0))
    data = before_pixels(encoded(picture(), "PNG"), control, control)
    assert same(decode_pil(data), picture())


def test_png_texts_and_profiles_of_any_size() -> None:
    bomb = zlib.compress(bytes(3 << 20), 9)
    data = before_pixels(
        encoded(picture(), "PNG"),
        png_chunk(b"iCCP", b"profile\0\0" + bomb),
        png_chunk(b"zTXt", b"Comment\0\0" + bomb),
        png_chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb),
    )
    assert len(data) < 20_000
    assert same(decode_pil(data), picture())
    behind = encoded(picture(), "PNG")
    behind = behind[:-12] + png_chunk(b"zTXt", b"Comment\0\0" + bomb) + behind[-12:]
    assert same(decode_pil(behind), picture())


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_tiff_with_broken_tags(byte_order: str) -> None:
    # Compression with two values, a text behind the end, an EXIF directory behind the end.
    pixels = picture("L", (4, 2)).tobytes()
    tags = [
        (256, 3, 1, 4), (257, 3, 1, 2), (258, 3, 1, 8), (259, 3, 2, 0x00010001), (262, 3, 1, 1),
        (270, 2, 2**31, 9), (273, 4, 1, 8), (277, 3, 1, 1), (278, 3, 1, 2), (279, 4, 1, 8),
        (34665, 4, 1, 2**31),
    ]  # fmt: skip
    rows = b"".join(
        struct.pack(byte_order + "HHIHH", tag, kind, count, value, 0)
        if kind == 3 and count == 1
        else struct.pack(byte_order + "HHII", tag, kind, count, value)
        for tag, kind, count, value in tags
    )
    head = (b"II" if byte_order == "<" else b"MM") + struct.pack(byte_order + "HI", 42, 16)
    data = head + pixels + struct.pack(byte_order + "H", len(tags)) + rows + bytes(4)
    with (
        pytest.warns(UserWarning, match="tag|EXIF|Truncated"),
        suppress(UnidentifiedImageError),
    ):  # before Pillow 13
        Image.open(io.BytesIO(data)).load()
    assert same(decode_pil(data), picture("L", (4, 2)).convert("RGB"))


def test_tiff_tags_never_stand_in_for_missing_pixels() -> None:
    data = encoded(picture("L"), "TIFF")
    for size in range(len(data) - 300, len(data), 7):
        assert refused(data[:size]).reason == "truncated"


def test_icon_of_another_size_than_promised() -> None:
    inside = encoded(picture("RGBA"), "PNG")
    data = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inside), 22) + inside
    assert same(decode_pil(data, "unchanged"), picture("RGBA"))
    with pytest.raises(SampleError, match="48x32"):
        load_image(data, max_pixels=48 * 32 - 1)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "PPM"])
def test_pixel_limit_is_pillows_and_nothing_is_said_below_it(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    legal, bomb = (encoded(picture(size=size), file_format) for size in ((15, 10), (20, 11)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow warns above, and refuses above 200
    assert decode_pil(legal).size == (15, 10)
    error = refused(bomb)
    assert error.reason == "too_large"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode_pil(bomb).size == (20, 11)


DAMAGED = {
    "nothing": (b"", "empty"),
    "text": (b"not an image, " * 9, "not_an_image"),
    "a cut jpeg": (encoded(picture(), "JPEG")[:-100], "truncated"),
    "a cut png": (encoded(picture(), "PNG")[:-100], "truncated"),
    "a jpeg's first bytes": (b"\xff\xd8\xff\xe0", "truncated"),
    "a gif's first bytes": (b"GIF89a", "truncated"),
    "jpeg xl": (b"\xff\x0a" + bytes(30), "unsupported_format"),
    "heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40), "unsupported_format"),
    "openexr": (b"v/1\x01\x02\0\0\0" + bytes(40), "unsupported_format"),
    "radiance": (b"#?RADIANCE\n\n-Y 1 +X 1\n", "unsupported_format"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_decoded_says_why(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pillow_heif", "pillow_jxl"):
        monkeypatch.setitem(sys.modules, package, None)  # as if not installed
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    monkeypatch.delitem(Image.OPEN, "JXL", raising=False)
    data, reason = DAMAGED[name]
    assert refused(data).reason == reason


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="unchanged"):
        decode_pil(encoded(picture(), "PNG"), "rgb")  # type: ignore[arg-type]


def test_threads_decode_side_by_side_and_nothing_global_changes() -> None:
    files = [encoded(image, name, **options) for image, name, options in PICTURES.values()]
    expected = [decode_pil(data).tobytes() for data in files]
    filters, show = warnings.filters, warnings.showwarning
    before = (
        list(filters), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES,
        PngImagePlugin.MAX_TEXT_CHUNK, ImageFile.MAXBLOCK,
    )  # fmt: skip
    failed: list[int] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(5):
            failed.extend(
                number
                for number, data in enumerate(files)
                if decode_pil(data).tobytes() != expected[number] or warnings.filters is not filters
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert warnings.showwarning is show
    assert before == (
        list(warnings.filters), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES,
        PngImagePlugin.MAX_TEXT_CHUNK, ImageFile.MAXBLOCK,
    )  # fmt: skip


def test_text_fields() -> None:
    assert to_text("txt", memoryview("Bücher 書\n".encode())) == "Bücher 書\n"
    assert to_text("json", b'{"a": 1}') == '{"a": 1}'
    assert to_text("left.MD", b"") == ""
    assert to_text("txt", b"\xff\xfe") == b"\xff\xfe"
    assert to_text("png", b"text") == b"text"
    assert to_text("mask.png", memoryview(b"\x89PNG")) == b"\x89PNG"
