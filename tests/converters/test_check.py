"""Checking an image by decoding all of it."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, PngImagePlugin, features

from fastconv.converters.check import MAX_PIXELS, check_pixels
from fastconv.converters.sniff import BadImage, sniff


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def noise(mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(7).integers(0, 256, (40, 60, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


def check(data: bytes, max_pixels: int = MAX_PIXELS) -> None:
    view = memoryview(data)
    check_pixels(view, sniff(view, len(view)).kind, max_pixels)


def bad(data: bytes, max_pixels: int = MAX_PIXELS) -> BadImage:
    with pytest.raises(BadImage) as caught:
        check(data, max_pixels)
    assert "\n" not in caught.value.message
    return caught.value


def chunk(name: bytes, contents: bytes) -> bytes:
    checksum = zlib.crc32(name + contents)
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", checksum)


def one_bit_png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes((width + 7) // 8)) * height, 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


FILES = {
    "jpg": encoded(noise(), "JPEG"),
    "jpg progressive": encoded(noise(), "JPEG", progressive=True),
    "jpg cmyk": encoded(noise("CMYK"), "JPEG"),
    "png": encoded(noise(), "PNG"),
    "webp": encoded(noise(), "WEBP"),
    "webp lossless": encoded(noise(), "WEBP", lossless=True),
    "gif": encoded(noise(), "GIF"),
    "bmp": encoded(noise(), "BMP"),
    "tif": encoded(noise(), "TIFF"),
    "tif lzw": encoded(noise(), "TIFF", compression="tiff_lzw"),
    "tif of 16 bits": encoded(Image.new("I;16", (60, 40)), "TIFF"),
    "jp2": encoded(noise(), "JPEG2000"),
    "j2k": encoded(noise(), "JPEG2000", no_jp2=True),
    "ppm": encoded(noise(), "PPM"),
    "ico": encoded(noise("RGBA"), "ICO", sizes=[(60, 40)]),
    "tga": encoded(noise(), "TGA"),
    "dds": encoded(noise(), "DDS"),
    "pcx": encoded(noise(), "PCX"),
    "sgi": encoded(noise(), "SGI"),
} | ({"avif": encoded(noise(), "AVIF")} if features.check("avif") else {})


@pytest.mark.parametrize("name", FILES)
def test_whole_files_pass(name: str) -> None:
    check(FILES[name])


@pytest.mark.parametrize("part", [30, 60, 90, 99])
@pytest.mark.parametrize("name", sorted(FILES.keys() - {"dds"}))  # which Pillow 11 and 12 fill up
def test_cut_files_are_truncated(name: str, part: int) -> None:
    data = FILES[name]
    data = data[: min(len(data) * part // 100, len(data) - 20)]  # behind that, no pixels
    try:
        view = memoryview(data)
        kind = sniff(view, len(view)).kind
    except BadImage as error:
        found = error  # the cut lies in the header
    else:
        with pytest.raises(BadImage) as caught:
            check_pixels(view, kind)
        found = caught.value
    assert found.reason == "truncated"


def test_bytes_behind_a_jpeg_and_a_second_one_are_fine() -> None:
    data = FILES["jpg"]
    for rest in (b"\r\n", bytes(10000), data):
        check(data + rest)
    assert bad(data[:-50] + b"\r\n").reason == "truncated"


def test_flipped_pixels_of_a_png_are_corrupt() -> None:
    data = bytearray(FILES["png"])
    start = data.index(b"IDAT") + 4
    (length,) = struct.unpack_from(">I", data, start - 8)
    data[start + length // 2] ^= 0xFF
    assert bad(bytes(data)).reason == "corrupt"
    struct.pack_into(">I", data, start + length, zlib.crc32(data[start - 4 : start + length]))
    assert bad(bytes(data)).reason == "corrupt"  # also where the checksum does not tell


def test_damage_between_the_chunks_of_a_png_is_corrupt() -> None:
    data = FILES["png"]
    place = data.index(b"IDAT") - 4
    assert bad(data[:place] + b"\0\0\0\4\1\2\3\4abcdefgh" + data[place:]).reason == "corrupt"


def test_a_wrong_checksum_beside_the_pixels_is_corrupt() -> None:
    data = FILES["png"]
    place = data.index(b"IDAT") - 4
    text = chunk(b"tEXt", b"Software\0x")
    check(data[:place] + text + data[place:])
    assert bad(data[:place] + text[:-1] + b"?" + data[place:]).reason == "corrupt"


def test_a_png_without_its_end_is_fine_when_all_pixels_are_there() -> None:
    check(FILES["png"][:-12])


def test_texts_of_a_png_do_not_count() -> None:
    data = FILES["png"]
    place = data.index(b"IDAT") - 4
    bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(3 << 20), 9))
    check(data[:place] + bomb + data[place:])


def test_the_limit_is_the_callers() -> None:
    for data in FILES.values():
        check(data, 2400)
        error = bad(data, 2399)
        assert error.reason == "too_large"
        assert "60x40" in error.message
        assert "2399" in error.message


def test_a_bomb_is_refused_before_memory_is_made() -> None:
    data = one_bit_png(20000, 20000)
    assert len(data) < 100_000
    code = (
        "import resource, sys\n"
        "from fastconv.converters.check import check_pixels\n"
        "from fastconv.converters.sniff import BadImage\n"
        "from fastconv.loaders import pillow\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: check_pixels(sys.stdin.buffer.read(), 'png')\n"
        "except BadImage as error: print(error.reason, error.message)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=data,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    told, stayed_small = done.stdout.decode().splitlines()
    assert told == "too_large 20000x20000 is more than the limit of 178956970 pixels"
    assert stayed_small == "True"


def test_a_hundred_megapixels_are_legal_and_silent() -> None:
    check(one_bit_png(10000, 10000))  # a warning would be an error


def test_every_frame_but_the_first_is_left_alone() -> None:
    data = encoded(noise(), "GIF", save_all=True, append_images=[noise().rotate(90)])
    second = data.rindex(b"\x2c\0\0\0\0")
    check(data[: second + 20] + b"\xff" * 20 + data[second + 40 :])


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow as it is without the packages that read more formats."""
    for name, package in (("HEIF", "pillow_heif"), ("JXL", "pillow_jxl")):
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(Image.OPEN, name, raising=False)


@pytest.mark.usefixtures("no_plugins")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\x0a" + bytes(30), "JPEG XL needs a package: pip install 'fastconv[jxl]'"),
        (b"\0\0\0\x14ftypheic\0\0\0\0mif1", "HEIC needs a package: pip install 'fastconv[heif]'"),
        (b"v/1\x01\x02\0\0\0" + bytes(40), "OpenEXR cannot be decoded by Pillow"),
        (b"#?RADIANCE\n\n-Y 1 +X 1\n", "Radiance HDR cannot be decoded by Pillow"),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\n\0", "PAM"),
    ],
)
def test_formats_that_pillow_lacks_are_named(data: bytes, says: str) -> None:
    error = bad(data)
    assert error.reason == "unsupported_format"
    assert error.message.startswith(says)


def test_a_plugin_that_is_installed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # The reader of JPEG XL registers itself when it is imported.
    name = "pillow_jxl"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(Image.OPEN, "JXL", raising=False)

    class Finder:
        def find_spec(self, wanted: str, *_: Any) -> Any:
            if wanted != name:
                return None
            from importlib.machinery import ModuleSpec

            return ModuleSpec(wanted, self)  # type: ignore[arg-type]

        def create_module(self, _: Any) -> None:
            return None

        def exec_module(self, _: Any) -> None:
            def opened(*_: Any) -> Image.Image:
                return noise()

            monkeypatch.setitem(Image.OPEN, "JXL", (opened, None))

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    check(b"\xff\x0a" + bytes(30))
    monkeypatch.delitem(sys.modules, name, raising=False)


def jpeg_with(process: int, bits: int) -> bytes:
    data = bytearray(FILES["jpg"])
    frame = data.index(b"\xff\xc0")
    data[frame + 1], data[frame + 4] = process, bits
    return bytes(data)


@pytest.mark.parametrize(("process", "bits"), [(0xC0, 12), (0xC7, 8), (0xCB, 8)])
def test_variants_of_jpeg_that_are_not_for_libjpeg(process: int, bits: int) -> None:
    error = bad(jpeg_with(process, bits))
    assert error.reason == "unsupported_format"
    assert "JPEG" in error.message


def test_variants_of_other_formats() -> None:
    tif = bytearray(FILES["tif"])
    photometric = tif.index(struct.pack("<HHI", 262, 3, 1))
    struct.pack_into("<H", tif, photometric + 8, 32803)  # raw camera pixels
    assert bad(bytes(tif)).reason == "unsupported_format"
    png = FILES["png"]
    apple = (
        png[:8] + b"\0\0\0\4CgBI\x50\0\x20\2" + struct.pack(">I", zlib.crc32(b"CgBI\x50\0\x20\2"))
    )
    raw = zlib.compress(bytes(40 * 241))[2:-4]  # without the header of zlib
    apple += chunk(b"IHDR", struct.pack(">IIBBBBB", 60, 40, 8, 6, 0, 0, 0))
    apple += chunk(b"IDAT", raw) + chunk(b"IEND", b"")
    assert bad(apple).reason == "unsupported_format"


def test_settings_of_pillow_stay() -> None:
    before = (
        Image.MAX_IMAGE_PIXELS,
        ImageFile.LOAD_TRUNCATED_IMAGES,
        PngImagePlugin.MAX_TEXT_CHUNK,
    )
    for data in FILES.values():
        check(data)
    assert before == (
        Image.MAX_IMAGE_PIXELS,
        ImageFile.LOAD_TRUNCATED_IMAGES,
        PngImagePlugin.MAX_TEXT_CHUNK,
    )
