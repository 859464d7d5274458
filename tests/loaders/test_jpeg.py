"""JPEG through libjpeg-turbo: Pillow's pixels, without the rows and the detail nobody needs."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastconv.loaders import jpeg, native
from fastconv.loaders.decode import decode_numpy, decode_pil
from fastconv.loaders.errors import SampleError


@pytest.fixture(autouse=True, scope="module")
def without_the_kernel() -> Iterator[None]:
    """The kernel has tests of its own; of some damage it makes other pixels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernel", lambda: None)
        yield


def photo(width: int, height: int) -> Image.Image:
    """Returns something as hard to compress as a photograph: shapes, edges and grain."""
    random = np.random.default_rng(width * 10_000 + height)
    y, x = np.mgrid[0:height, 0:width] / 40
    waves = np.stack([np.sin(x + 2 * y), np.cos(3 * x - y), np.sin(x * y / 3)], 2)
    grain = random.normal(0, 12, (height, width, 3))
    return Image.fromarray((128 + 90 * waves + grain).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


PHOTO = photo(131, 97)
VARIANTS = {
    "4:2:0": encoded(PHOTO, subsampling="4:2:0"),
    "4:2:2": encoded(PHOTO, subsampling="4:2:2"),
    "4:4:4": encoded(PHOTO, subsampling="4:4:4"),
    "4:1:1": encoded(PHOTO, subsampling="4:1:1"),
    "4:4:0": simplejpeg.encode_jpeg(np.asarray(PHOTO), 75, colorsubsampling="440"),
    "best": encoded(PHOTO, quality=100),
    "worst": encoded(PHOTO, quality=1),
    "own tables": encoded(PHOTO, optimize=True),
    "grey": encoded(PHOTO.convert("L")),
    "RGB": encoded(PHOTO, keep_rgb=True),
    "EXIF": encoded(PHOTO, exif=b"Exif\0\0" + bytes(5000)),
    "comment": encoded(PHOTO, comment=b"\xff\xc0 none"),
    "progressive": encoded(PHOTO, progressive=True),
    "restart markers": encoded(PHOTO, restart_marker_rows=1),
    "one row": encoded(photo(50, 1)),
    "one column": encoded(photo(1, 50)),
    "wide": encoded(photo(400, 16)),
    "high": encoded(photo(17, 400)),
}
UNDIVIDED = ("progressive", "restart markers")


def pixels_of(data: bytes, mode: str = "RGB") -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


def header_of(data: bytes) -> jpeg.Header:
    header = jpeg.read_header(memoryview(data))
    assert header is not None
    return header


def top(data: bytes, rows: int, eighths: int = 8) -> Any:
    file = np.frombuffer(data, np.uint8).copy()
    found = jpeg.decode_top(file, header_of(data), rows, eighths)
    return None if found is None else found.copy()


def marker(data: bytes, *codes: int) -> int:
    """Returns where the first segment with one of these markers begins."""
    place = 2
    while data[place + 1] not in codes:
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return place


def patched(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_pictures_are_those_of_pillow(name: str) -> None:
    data = VARIANTS[name]
    expected = pixels_of(data)
    header = header_of(data)
    assert (header.height, header.width) == expected.shape[:2]
    assert header.grey == (name == "grey")
    assert bool(header.step) == (name not in UNDIVIDED)
    found = jpeg.decode(memoryview(data))
    assert found is not None
    assert np.array_equal(found, expected)
    assert np.array_equal(top(data, header.height), expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_rows_of_a_part_are_those_of_the_whole(name: str) -> None:
    data = VARIANTS[name]
    expected = pixels_of(data)
    least = len(expected)
    for rows in range(1, len(expected) + 1):
        found = top(data, rows)
        assert len(found) >= rows
        assert np.array_equal(found[:rows], expected[:rows])
        least = min(least, len(found))
    assert least == (len(expected) if name in UNDIVIDED else min(len(expected), 16, least))


@pytest.mark.parametrize(
    "name", ["4:2:0", "4:4:4", "4:2:2", "4:1:1", "4:4:0", "grey", "progressive"]
)
@pytest.mark.parametrize("eighths", jpeg.EIGHTHS)
def test_the_rows_of_a_small_part_are_those_of_the_small_whole(name: str, eighths: int) -> None:
    data = VARIANTS[name]
    expected = top(data, 97, eighths)
    assert expected.shape == (-(-97 * eighths // 8), -(-131 * eighths // 8), 3)
    for rows in range(1, 98):
        found = top(data, rows, eighths)
        whole_rows = -(-rows * eighths // 8)
        assert np.array_equal(found[:whole_rows], expected[:whole_rows])


def test_a_grey_picture_may_stay_grey() -> None:
    data = VARIANTS["grey"]
    found = jpeg.decode(memoryview(data), grey=True)
    assert found is not None
    assert np.array_equal(found[..., 0], pixels_of(data, "L"))


CMYK = encoded(photo(20, 20).convert("CMYK"))
PLAIN = VARIANTS["4:2:0"]
FRAME = marker(PLAIN, 0xC0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\xff\xd8",
        b"\xff\xd8\xff\xd9",
        b"no image at all",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"\xff\xd8" + bytes(100),
        CMYK,
        patched(PLAIN, FRAME + 1, b"\xc9"),  # arithmetic coding
        patched(PLAIN, FRAME + 1, b"\xc3"),  # lossless
        patched(PLAIN, FRAME + 4, b"\x0c"),  # 12 bits
        patched(PLAIN, FRAME + 5, b"\0\0"),  # its height comes later
        patched(PLAIN, FRAME + 7, b"\0\0"),  # no width
        patched(PLAIN, FRAME + 9, b"\2"),  # two components
        patched(PLAIN, FRAME + 1, b"\xe5"),  # no frame
    ],
)
def test_others_are_left_to_pillow(data: bytes) -> None:
    assert jpeg.read_header(memoryview(data)) is None


def test_padding_between_segments_is_skipped() -> None:
    data = PLAIN[:FRAME] + b"\xff\xff\xff" + PLAIN[FRAME:]
    assert np.array_equal(top(data, 5)[:5], pixels_of(PLAIN)[:5])


def test_colours_in_scans_of_their_own_are_decoded_to_the_end() -> None:
    place = marker(PLAIN, 0xDA) + 4
    header = jpeg.read_header(memoryview(patched(PLAIN, place, b"\1")))
    assert header is not None
    assert header.step == 0


@pytest.mark.parametrize("name", ["4:2:0", "progressive", "restart markers", "grey"])
def test_a_picture_cut_short_is_never_decoded(name: str) -> None:
    data = VARIANTS[name]
    for length in (*range(len(data) - 40, len(data)), *range(0, len(data), 101)):
        cut = data[:length]
        if jpeg.read_header(memoryview(cut)) is None:
            continue
        assert jpeg.decode(memoryview(cut)) is None
        for rows in (1, 30, 97):
            assert top(cut, rows) is None
        with pytest.raises(SampleError) as caught:
            decode_numpy(cut)
        assert caught.value.reason == "truncated"


def test_bytes_behind_the_end_do_not_matter() -> None:
    data = PLAIN + b"made by a camera\xff\xd9"
    assert np.array_equal(top(data, 1), top(PLAIN, 1))
    found = jpeg.decode(memoryview(data))
    assert found is not None
    assert np.array_equal(found, pixels_of(PLAIN))


def test_what_libjpeg_complains_of_is_left_to_pillow() -> None:
    scan = marker(PLAIN, 0xDA)
    data = PLAIN[:scan] + b"stray" + PLAIN[scan:]
    assert jpeg.read_header(memoryview(data)) is None
    assert np.array_equal(decode_numpy(data), np.asarray(decode_pil(data)))
    middle = len(PLAIN) // 2
    data = patched(PLAIN, middle, b"\xff\xd3")  # a restart marker where there are none
    assert jpeg.decode(memoryview(data)) is None
    assert top(data, 97) is None
    assert top(data, 1) is None
    assert np.array_equal(decode_numpy(data), np.asarray(decode_pil(data)))


def test_an_unknown_complaint_about_missing_rows_costs_no_more_than_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jpeg, "_ROWS_LEFT", "as another libjpeg might say")
    assert np.array_equal(top(PLAIN, 1), pixels_of(PLAIN))


@given(st.data())
def test_damaged_pictures_are_what_pillow_makes_of_them(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["4:2:0", "grey", "progressive", "restart markers"]))
    damaged = bytearray(VARIANTS[name])
    for place in data.draw(st.lists(st.integers(2, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        expected = np.asarray(decode_pil(bytes(damaged)))
    except SampleError:
        with pytest.raises(SampleError):
            decode_numpy(bytes(damaged))
    else:
        assert np.array_equal(decode_numpy(bytes(damaged)), expected)


def test_exif_and_xmp_are_found_where_pillow_finds_them() -> None:
    turned = Image.Exif()
    turned[274] = 6
    exif = turned.tobytes()
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x/>"
    segment = b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp
    more = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    data = encoded(PHOTO, exif=exif)
    frame = marker(data, 0xC0)
    data = data[:2] + segment + data[2:frame] + more + data[frame:]
    info = Image.open(io.BytesIO(data)).info
    about = jpeg.read_about(memoryview(data))
    assert about == {"exif": info["exif"], "xmp": info["xmp"]}
    assert len(about["exif"]) > len(exif)
