"""The directory of TIFF files and EXIF blocks."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastconv.loaders import tiff
from fastconv.loaders.tiff import Entry, read_directory


def encoded(**options: object) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((30, 20)).save(out, "TIFF", **options)
    return out.getvalue()


def block(order: str, *tags: tuple[int, int, int, bytes]) -> bytes:
    rows = b"".join(struct.pack(order + "HHI", *tag[:3]) + tag[3].ljust(4, b"\0") for tag in tags)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    return head + struct.pack(order + "H", len(tags)) + rows + bytes(4)


@pytest.mark.parametrize("big_tiff", [False, True])
def test_size_and_end_of_pixels(big_tiff: bool) -> None:
    data = encoded(big_tiff=big_tiff)
    directory = read_directory(memoryview(data))
    assert (directory.first(tiff.WIDTH), directory.first(tiff.HEIGHT)) == (30, 20)
    assert directory.big is big_tiff
    assert 600 <= directory.end_of_pixels() <= len(data)


@pytest.mark.parametrize("order", ["<", ">"])
def test_values_inside_and_outside_their_entries(order: str) -> None:
    data = block(
        order,
        (tiff.ORIENTATION, 3, 1, struct.pack(order + "H", 6)),
        (500, 3, 2, struct.pack(order + "HH", 1, 2)),
        (501, 4, 2, struct.pack(order + "I", 8)),  # elsewhere: here, the start of the directory
        (502, 1, 4, b"\1\2\3\4"),
        (503, 4, 2**31, struct.pack(order + "I", 8)),
        (504, 2, 4, b"abc\0"),
        (505, 99, 1, b"\1"),
        (tiff.ORIENTATION, 3, 1, struct.pack(order + "H", 3)),
    )
    directory = read_directory(memoryview(data))
    assert directory.first(tiff.ORIENTATION) == 6  # the first of two
    assert list(directory.integers(500)) == [1, 2]
    assert len(list(directory.integers(501))) == 2
    assert list(directory.integers(502)) == [1, 2, 3, 4]
    assert list(directory.integers(503)) == []  # behind the end
    assert list(directory.integers(504)) == []  # a text
    assert 505 not in directory.entries
    assert directory.first(999) == 0


@pytest.mark.parametrize("big_tiff", [False, True])
def test_a_copy_with_fewer_tags_shows_the_same(big_tiff: bool) -> None:
    data = encoded(big_tiff=big_tiff, description="left out", compression="tiff_lzw") + b"!"
    directory = read_directory(memoryview(data))
    kept = {tag: entry for tag, entry in directory.entries.items() if tag != 270}
    copy = tiff.with_tags(directory, kept)
    assert read_directory(memoryview(copy)).entries.keys() == kept.keys()
    pixels = [Image.open(io.BytesIO(file)).tobytes() for file in (data, copy)]
    assert pixels[0] == pixels[1]
    assert 270 not in Image.open(io.BytesIO(copy)).tag_v2  # type: ignore[attr-defined]


def test_other_files_and_cut_ones() -> None:
    for data in (b"", b"IJ*\0\x08\0\0\0", b"II\x2c\0\x08\0\0\0"):
        with pytest.raises(ValueError, match="no TIFF header"):
            read_directory(memoryview(data))
    whole = block("<", (256, 3, 1, b"\1\0"))
    for size in range(2, len(whole) - 4):  # the offset of the next directory is not looked at
        with pytest.raises(struct.error):
            read_directory(memoryview(whole)[:size])
    with pytest.raises(struct.error, match="outside"):
        read_directory(memoryview(b"II*\0\xff\xff\xff\xff" + bytes(100)))


@given(st.sampled_from([b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"]), st.binary(max_size=200))
def test_any_bytes_behind_a_header(head: bytes, rest: bytes) -> None:
    data = memoryview(head + rest)
    try:
        directory = read_directory(data)
    except struct.error:
        return
    for tag in directory.entries:
        assert len(list(directory.integers(tag))) <= len(data)
    assert directory.end_of_pixels() >= 0


def test_an_entry_of_an_unknown_type_has_no_values() -> None:
    assert Entry(99, 5, 100).end == 100
    assert Entry(4, 5, 100).end == 120
