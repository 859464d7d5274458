"""The kernel makes the very pixels that Python makes (`decode_with`), of any JPEG and geometry."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastconv.loaders import native
from fastconv.loaders.decode import decode_with
from fastconv.loaders.decoders import (
    CenterCrop,
    Decoder,
    Geometry,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fastconv.loaders.draws import draws

Pixels = npt.NDArray[np.uint8]
Layout = Literal["pixels", "planes", "every other"]

SIZES = [(1, 1), (1, 9), (8, 8), (15, 2), (16, 16), (17, 31), (33, 16), (70, 53)]


def picture(width: int, height: int) -> Image.Image:
    """Returns a picture with slopes, edges and noise."""
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(width * 100 + height).integers(0, 90, (height, width, 3))
    slopes = np.stack([columns * 3, rows * 4, (rows + columns) * 2], axis=2) % 200
    edges = ((rows // 5 + columns // 7) % 2 * 60)[..., np.newaxis]
    return Image.fromarray(((noise + slopes + edges) % 256).astype(np.uint8))


def encoded(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 85} | options)
    return out.getvalue()


def turned(image: Image.Image, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(image, exif=exif)


def simply(image: Image.Image, subsampling: str) -> bytes:
    data: bytes = simplejpeg.encode_jpeg(np.asarray(image), 80, colorsubsampling=subsampling)
    return data


def by_cjpeg(image: Image.Image, *options: str) -> bytes:
    """Returns what libjpeg-turbo's own program makes."""
    if not shutil.which("cjpeg"):
        if os.environ.get("FASTCONV_ALL_FORMATS") == "1":
            pytest.fail("cjpeg is missing: apt-get install libjpeg-turbo-progs")
        pytest.skip("cjpeg is missing")
    out = io.BytesIO()
    image.save(out, "PPM")
    done = subprocess.run(
        ["cjpeg", *options], input=out.getvalue(), check=True, capture_output=True
    )
    return done.stdout


def without_tables(data: bytes) -> bytes:
    """Returns a JPEG without its Huffman tables, as cameras for films leave them out."""
    place = 2
    kept = data[:2]
    while data[place + 1] != 0xDA:
        stop = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        kept += b"" if data[place + 1] == 0xC4 else data[place:stop]
        place = stop
    return kept + data[place:]


KINDS: dict[str, Any] = {
    "4:4:4": lambda image: encoded(image, subsampling="4:4:4"),
    "4:2:2": lambda image: encoded(image, subsampling="4:2:2"),
    "4:2:0": lambda image: encoded(image, subsampling="4:2:0"),
    "4:4:0": lambda image: simply(image, "440"),
    "4:1:1": lambda image: simply(image, "411"),
    "grey": lambda image: encoded(image.convert("L")),
    "RGB": lambda image: encoded(image, keep_rgb=True),
    "progressive": lambda image: encoded(image, progressive=True),
    "optimized": lambda image: encoded(image, optimize=True),
    "restarts by blocks": lambda image: encoded(image, restart_marker_blocks=1),
    "restarts by rows": lambda image: encoded(image, restart_marker_rows=1),
    "poor": lambda image: encoded(image, quality=3),
    "nearly lossless": lambda image: encoded(image, quality=100, subsampling="4:4:4"),
    "without tables": lambda image: without_tables(encoded(image)),
}

DECODERS: list[Decoder] = [
    CenterCrop(90),
    CenterCrop(20),
    CenterCrop((7, 40), resize=12),
    CenterCrop((30, 11), resize=(40, 90)),
    Resize((9, 14)),
    Resize((4, 4)),
    Resize((2, 2)),
    Resize((80, 1)),
    RandomHorizontalFlip(1.0, Resize((33, 33))),
    RandomResizedCrop(16, flip=0.5),
    RandomResizedCrop((5, 3), scale=(0.5, 1.0), flip=1.0),
    RandomResizedCrop((40, 70), scale=(0.01, 0.3)),
]


def batch(shape: tuple[int, ...], layout: Layout) -> Pixels:
    """Returns room for a batch, (n, rows, columns, channels), in some order."""
    count, rows, columns, channels = shape
    if layout == "planes":
        return np.full((count, channels, rows, columns), 9, np.uint8).transpose(0, 2, 3, 1)
    if layout == "every other":
        wide = np.full((count, 2 * rows, 2 * columns, 2 * channels), 9, np.uint8)
        return wide[:, ::2, ::-2, 1::2]
    return np.full(shape, 9, np.uint8)


def check(
    files: Sequence[bytes],
    decoder: Decoder,
    mode: Literal["RGB", "L"] = "RGB",
    exif_transpose: bool = False,
    layout: Layout = "pixels",
    threads: int = 1,
    seed: int = 0,
    some: bool = False,
) -> None:
    """Compares a batch, all of which the kernel has to do; or, with `some`, some of which."""
    assert decoder.out_size is not None
    numbers = draws(seed, 0, np.arange(len(files)), decoder.draws).tolist()
    out = batch((len(files), *decoder.out_size, 3 if mode == "RGB" else 1), layout)
    done = native.decode(files, decoder, numbers, out, exif_transpose, threads)
    assert done.any() if some else done.all()
    for n in np.flatnonzero(done).tolist():
        expected = decode_with(files[n], decoder, numbers[n], None, mode, exif_transpose)
        assert np.array_equal(out[n], expected)


@cache
def of_all_sizes(kind: str) -> list[bytes]:
    return [KINDS[kind](picture(*size)) for size in SIZES]


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_pixels(kind: str, decoder: Decoder) -> None:
    check(of_all_sizes(kind), decoder)


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_grey_pixels(kind: str, decoder: Decoder) -> None:
    check(of_all_sizes(kind), decoder, "L")


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("layout", ["pixels", "planes", "every other"])
def test_any_layout_of_the_batch(mode: Literal["RGB", "L"], layout: Layout) -> None:
    for decoder in DECODERS:
        check(of_all_sizes("4:2:0"), decoder, mode, layout=layout)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_orientations(decoder: Decoder, mode: Literal["RGB", "L"]) -> None:
    files = [turned(picture(*size), n) for size in [(70, 53), (48, 64)] for n in range(1, 9)]
    check(files, decoder, mode, exif_transpose=True)
    check(files, decoder, mode)


@pytest.mark.parametrize(
    "options", [("-sample", "2x1,1x2,1x1"), ("-sample", "1x1,2x2,1x2"), ("-sample", "3x2,1x1,1x1")]
)
def test_rare_samplings(options: tuple[str, ...]) -> None:
    files = [by_cjpeg(picture(*size), *options) for size in SIZES]
    for decoder in DECODERS:
        check(files, decoder, some=True)


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_four_colours(decoder: Decoder) -> None:
    """They are left to Pillow where others are decoded at a part of their size."""
    check([encoded(picture(*size).convert("CMYK")) for size in SIZES], decoder, some=True)


@pytest.mark.parametrize("options", [(), ("-progressive",), ("-grayscale",)])
def test_arithmetic_coding(options: tuple[str, ...]) -> None:
    files = [by_cjpeg(picture(*size), "-arithmetic", *options) for size in SIZES]
    for decoder in DECODERS:
        check(files, decoder, some=True)


def ends_of_scans(data: bytes) -> list[int]:
    found, place = [], 2
    while (marker := data[place + 1]) != 0xD9:
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
        if marker == 0xDA:
            while data[place] != 0xFF or not data[place + 1]:
                place += 1
            found.append(place)
    return found


@pytest.mark.parametrize("colours", ["L", "RGB"])
def test_scans_that_are_missing(colours: str) -> None:
    """Neighbours far away have a say in what libjpeg-turbo makes up for them."""
    data = encoded(picture(97, 93).convert(colours), progressive=True, quality=60)
    files = [data[:end] + b"\xff\xd9" for end in ends_of_scans(data)]
    assert len(files) > 4
    for at in (0, 8, 48):
        check(files, Fixed(Geometry(at, at, 40, 40, 40, 40, 0, 0, 40, 40)), some=True)


def test_threads_share_a_batch() -> None:
    files = [data for kind in KINDS for data in of_all_sizes(kind)]
    for threads in (2, 3, 16, 1000):
        check(files, RandomResizedCrop(24, flip=0.5), threads=threads, seed=threads)


@dataclass(frozen=True)
class Fixed:
    """A decoder that wants the same of every picture."""

    wanted: Geometry
    draws: int = 0

    @property
    def out_size(self) -> tuple[int, int]:
        return self.wanted.out_rows, self.wanted.out_columns

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        return self.wanted


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """Draws an axis: length of the picture, where the part begins, its length, what it is resized
    to, where the window begins, its length."""
    length = draw(st.integers(1, 70))
    begin = draw(st.integers(0, length - 1))
    part = draw(st.integers(1, length - begin))
    resized = draw(st.one_of(st.integers(1, 90), st.just(part)))
    window = draw(st.integers(1, 90))
    return length, begin, part, resized, draw(st.integers(1 - window, resized - 1)), window


@given(
    down=axes(),
    across=axes(),
    flip=st.booleans(),
    orientation=st.integers(1, 8),
    kind=st.sampled_from(["4:4:4", "4:2:2", "4:2:0", "4:4:0", "grey", "progressive"]),
    layout=st.sampled_from(["pixels", "planes"]),
    mode=st.sampled_from(["RGB", "L"]),
    transpose=st.booleans(),
)
def test_any_geometry(
    down: tuple[int, ...],
    across: tuple[int, ...],
    flip: bool,
    orientation: int,
    kind: str,
    layout: Layout,
    mode: Literal["RGB", "L"],
    transpose: bool,
) -> None:
    height, y, part_height, rows, top, out_rows = down
    width, x, part_width, columns, left, out_columns = across
    geometry = Geometry(
        *(x, y, part_width, part_height, rows, columns, top, left, out_rows, out_columns, flip)
    )
    if transpose:
        stored = (width, height) if orientation < 5 else (height, width)
        data = turned(picture(*stored), orientation)
    else:
        data = KINDS[kind](picture(width, height))
    decoder = Fixed(geometry)
    out = batch((1, out_rows, out_columns, 3 if mode == "RGB" else 1), layout)
    done = native.decode([data], decoder, [()], out, transpose)
    assert done.all()
    expected = decode_with(data, decoder, (), mode=mode, exif_transpose=transpose)
    assert np.array_equal(out[0], expected)
