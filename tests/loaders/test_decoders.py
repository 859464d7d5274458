"""Decoders: torchvision's geometry and pixels, in Datasets and batches."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Subset

from fastconv.loaders import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    SampleError,
    UsageError,
    open_dataset,
)
from fastconv.loaders import scratch as scratch_module
from fastconv.loaders.decode import Mode, decode_pil, decode_with
from fastconv.loaders.decoders import Decoder, Geometry, is_decoder
from fastconv.loaders.draws import draws
from fastconv.loaders.scratch import scratch

Pixels = npt.NDArray[np.uint8]


class Batch(list[int]):
    """Indices that know their seed and epoch, as those of the samplers do."""

    def __init__(self, indices: Sequence[int], seed: int, epoch: int) -> None:
        super().__init__(indices)
        self.seed = seed
        self.epoch = epoch


def photo(width: int, height: int, number: int = 0) -> Image.Image:
    """Returns something with the shapes, edges and grain of a photograph."""
    random = np.random.default_rng((width, height, number))
    y, x = np.mgrid[0:height, 0:width] / 60
    waves = np.stack([np.sin(x + 2 * y), np.cos(3 * x - y + number), np.sin(x * y / 3)], 2)
    grain = random.normal(0, 6, (height, width, 3))
    return Image.fromarray((128 + 90 * np.tanh(3 * waves) + grain).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def reference(
    data: bytes,
    decoder: Decoder,
    draw: Sequence[float] = (),
    mode: Mode = "RGB",
    exif_transpose: bool = False,
) -> Pixels:
    """Returns what torchvision does: the whole picture, cropped, resized, cropped and flipped."""
    pixels = np.array(decode_pil(data, mode, exif_transpose))
    image = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)[None]
    g = decoder.geometry(image.shape[3], image.shape[2], draw)
    image = image[:, :, g.y : g.y + g.height, g.x : g.x + g.width]
    if tuple(image.shape[2:]) != (g.rows, g.columns):
        size = (g.rows, g.columns)
        image = torch.nn.functional.interpolate(image, size, mode="bilinear", antialias=True)
    right, bottom = g.left + g.out_columns - g.columns, g.top + g.out_rows - g.rows
    around = (max(-g.left, 0), max(right, 0), max(-g.top, 0), max(bottom, 0))
    image = torch.nn.functional.pad(image, around)
    top, left = max(g.top, 0), max(g.left, 0)
    image = image[0, :, top : top + g.out_rows, left : left + g.out_columns]
    if g.flip:
        image = image.flip(2)
    found: Pixels = image.permute(1, 2, 0).numpy()
    return found


def difference(one: Pixels, other: Pixels) -> float:
    assert one.shape == other.shape
    return float(np.abs(one.astype(int) - other).mean())


def random_numbers(decoder: Decoder, row: int = 0) -> list[float]:
    numbers: list[float] = draws(0, 0, np.array([row]), decoder.draws)[0].tolist()
    return numbers


# ----------------------------------------------------------------------------------- geometry

# (decoder, width, height) -> rows, columns, top, left, as torchvision 0.29 gives them.
KNOWN = [
    (CenterCrop(224, resize=256), 500, 375, (256, 341, 16, 58)),
    (CenterCrop(224, resize=256), 375, 500, (341, 256, 58, 16)),
    (CenterCrop(224, resize=256), 256, 256, (256, 256, 16, 16)),
    (CenterCrop((100, 201), resize=(150, 200)), 30, 40, (150, 200, 25, 0)),
    (CenterCrop(100), 103, 106, (106, 103, 3, 2)),
    (CenterCrop(100), 105, 101, (101, 105, 0, 2)),
    (CenterCrop(100), 51, 60, (60, 51, -20, -24)),
    (CenterCrop(100), 150, 99, (99, 150, 0, 25)),
    (Resize(256), 500, 375, (256, 341, 0, 0)),
    (Resize(300), 10, 1000, (30000, 300, 0, 0)),
    (Resize(256, max_size=300), 500, 375, (225, 300, 0, 0)),
    (Resize(256, max_size=300), 375, 500, (300, 225, 0, 0)),
    (Resize(256, max_size=400), 500, 375, (256, 341, 0, 0)),
    (Resize((7, 9)), 500, 375, (7, 9, 0, 0)),
]


@pytest.mark.parametrize(("decoder", "width", "height", "expected"), KNOWN)
def test_sizes_and_places_are_those_of_torchvision(
    decoder: Decoder, width: int, height: int, expected: tuple[int, ...]
) -> None:
    found = decoder.geometry(width, height, ())
    assert found[:4] == (0, 0, width, height)
    assert found[4:8] == expected
    assert found[8:10] == (decoder.out_size or expected[:2])
    assert not found.flip
    assert decoder.draws == 0


def test_a_very_long_picture_keeps_a_row() -> None:
    assert Resize(2, max_size=3).geometry(1000, 1, ())[4:6] == (1, 3)


@given(
    st.integers(1, 2000),
    st.integers(1, 2000),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=23, max_size=23),
)
def test_a_random_part_lies_in_the_picture(width: int, height: int, draw: list[float]) -> None:
    found = RandomResizedCrop((30, 50), flip=0.5).geometry(width, height, draw)
    assert found.x >= 0
    assert found.y >= 0
    assert found.width >= 1
    assert found.height >= 1
    assert found.x + found.width <= width
    assert found.y + found.height <= height
    assert found[4:10] == (30, 50, 0, 0, 30, 50)
    assert found.flip == (draw[22] < 0.5)


def test_the_place_of_a_much_larger_part_is_on_a_grid() -> None:
    decoder = RandomResizedCrop(100)
    places = set()
    for draw in draws(0, 0, np.arange(500), decoder.draws).tolist():
        found = decoder.geometry(1200, 1100, draw)
        reduction = min(found.width, found.height) / 100
        grid = max(step for step in (1, 2, 4, 8) if step <= reduction)
        assert (found.x % grid, found.y % grid) == (0, 0)
        places.add((grid, found.x // grid % 2))
    assert places == {(grid, odd) for grid in (2, 4, 8) for odd in (0, 1)}


def test_random_parts_are_spread_as_torchvision_spreads_them() -> None:
    decoder = RandomResizedCrop(224)
    numbers = draws(0, 0, np.arange(20_000), decoder.draws).tolist()
    parts = np.array([decoder.geometry(500, 375, draw)[:4] for draw in numbers])
    # From 20,000 crops of torchvision 0.29.1: x, y, width, height.
    assert parts.mean(0) == pytest.approx([108.8, 52.5, 281.7, 270.1], rel=0.02, abs=1.2)
    assert parts.std(0) == pytest.approx([80.7, 50.6, 86.2, 70.3], rel=0.03)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(500, 50, (217, 0, 67, 50)), (50, 500, (0, 216, 50, 67)), (60, 50, (0, 0, 60, 50))],
)
def test_where_no_part_fits_it_is_the_middle(
    width: int, height: int, expected: tuple[int, ...]
) -> None:
    draw = [0.999999] * 23  # all ten are as large as the picture, and too wide
    decoder = RandomResizedCrop(10)
    if width < height:
        draw[1:20:2] = [0.0] * 10  # or too high
    assert decoder.geometry(width, height, draw)[:4] == pytest.approx(expected, abs=1)


def test_scale_and_ratio_bound_the_parts() -> None:
    decoder = RandomResizedCrop(10, scale=(0.25, 0.25), ratio=(1.0, 1.0))
    found = decoder.geometry(400, 400, random_numbers(decoder))
    assert (found.width, found.height) == (200, 200)


def test_a_flip_comes_after_another_decoder() -> None:
    decoder = RandomHorizontalFlip(0.25, CenterCrop(8))
    assert decoder.draws == 1
    assert decoder.out_size == (8, 8)
    assert decoder.geometry(10, 10, [0.2]) == CenterCrop(8).geometry(10, 10, ())._replace(flip=True)
    assert not decoder.geometry(10, 10, [0.25]).flip
    twice = RandomHorizontalFlip(1.0, RandomResizedCrop(8, flip=1.0))
    assert twice.draws == 24
    assert not twice.geometry(10, 10, [0.5] * 24).flip
    alone = RandomHorizontalFlip()
    assert alone.out_size is None
    assert alone.geometry(7, 5, [0.4]) == Geometry(0, 0, 7, 5, 5, 7, 0, 0, 5, 7, True)


def test_decoders_are_values() -> None:
    decoder = RandomResizedCrop([224, 200], flip=0.5)  # type: ignore[arg-type]
    assert decoder == RandomResizedCrop((224, 200), flip=0.5)
    assert pickle.loads(pickle.dumps(decoder)) == decoder
    assert len({decoder, RandomResizedCrop((224, 200), flip=0.5)}) == 1
    assert repr(CenterCrop(224, resize=256)) == "CenterCrop(size=224, resize=256)"
    assert CenterCrop(np.int64(224)).size == 224  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        decoder.size = 3  # type: ignore[misc]
    assert is_decoder(decoder)
    assert not is_decoder(RandomResizedCrop)
    assert not is_decoder("pil")


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (Resize, (0,), "size is 0: it is a number of pixels, or (rows, columns)"),
        (Resize, ("224",), "size is '224'"),
        (Resize, ((3, 4, 5),), "size is (3, 4, 5)"),
        (Resize, ((3, 0),), "size is (3, 0)"),
        (Resize, (2.5,), "size is 2.5"),
        (Resize, ((3, 4), 9), "max_size needs a size that is one number"),
        (Resize, (9, 9), "max_size is 9: it is larger than size, 9"),
        (CenterCrop, (4, -1), "resize is -1"),
        (RandomResizedCrop, (4, (0.5, 0.1)), "scale is (0.5, 0.1)"),
        (RandomResizedCrop, (4, 0.5), "scale is 0.5"),
        (RandomResizedCrop, (4, (0.1, 1), (0, 1)), "ratio is (0, 1): it is (smallest, largest)"),
        (RandomResizedCrop, (4, (0.1, 1), (1, 1), 1.5), "flip is 1.5: it is a probability"),
        (RandomHorizontalFlip, ("always",), "p is 'always'"),
        (RandomHorizontalFlip, (0.5, CenterCrop), "after is <class"),
    ],
)
def test_wrong_arguments_are_refused(kind: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind(*arguments)
    assert words in str(caught.value)


# ------------------------------------------------------------------------------------- pixels

EXACT: list[Decoder] = [
    RandomResizedCrop(224, flip=0.5),
    RandomResizedCrop((300, 200), scale=(0.01, 0.3)),
    CenterCrop(224, resize=256),
    CenterCrop(224, resize=330),
    CenterCrop(224),
    CenterCrop(500),
    CenterCrop((400, 100), resize=(300, 300)),
    Resize(200),
    Resize(340),
    Resize((330, 200)),
    RandomHorizontalFlip(1.0),
    RandomHorizontalFlip(1.0, CenterCrop(500)),
    RandomHorizontalFlip(1.0, CenterCrop((200, 300), resize=256)),
]


@pytest.mark.parametrize("decoder", EXACT, ids=repr)
@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4", "progressive", "PNG", "grey", "CMYK"])
def test_pixels_are_those_of_torchvision(decoder: Decoder, kind: str) -> None:
    image = photo(331, 298)
    data = {
        "PNG": lambda: encoded(image, "PNG"),
        "grey": lambda: encoded(image.convert("L")),
        "CMYK": lambda: encoded(image.convert("CMYK")),
        "progressive": lambda: encoded(image, progressive=True),
    }.get(kind, lambda: encoded(image, subsampling=kind))()
    for row in range(4):
        draw = random_numbers(decoder, row)
        found = decode_with(data, decoder, draw)
        assert found.dtype == np.uint8
        assert np.array_equal(found, reference(data, decoder, draw))


sides = st.integers(1, 60)
sizes = st.one_of(sides, st.tuples(sides, sides))


@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.one_of(
        st.builds(CenterCrop, sizes, sizes),
        st.builds(CenterCrop, sizes),
        st.builds(Resize, sizes),
        st.builds(RandomResizedCrop, sizes, flip=st.just(0.5)),
        st.builds(RandomHorizontalFlip, st.just(0.5), st.builds(CenterCrop, sizes, sizes)),
    ),
    st.sampled_from(["4:2:0", "4:4:4"]),
    st.integers(0, 1000),
)
def test_any_size_gives_the_pixels_of_torchvision(
    width: int, height: int, decoder: Decoder, subsampling: str, row: int
) -> None:
    data = encoded(photo(width, height), subsampling=subsampling)
    draw = random_numbers(decoder, row)
    found = decode_with(data, decoder, draw)
    expected = reference(data, decoder, draw)
    geometry = decoder.geometry(width, height, draw)
    assert found.shape == expected.shape
    if geometry.width < 2 * geometry.columns or geometry.height < 2 * geometry.rows:
        assert np.array_equal(found, expected)


REDUCED: list[Decoder] = [
    CenterCrop(224, resize=256),
    CenterCrop(112, resize=128),
    CenterCrop((50, 90), resize=64),
    RandomResizedCrop(96, scale=(0.3, 1.0), flip=0.5),
    RandomResizedCrop(40, scale=(0.3, 1.0)),
    Resize(160),
    Resize((70, 80)),
    RandomHorizontalFlip(1.0, CenterCrop(56, resize=64)),
]


@pytest.mark.parametrize("decoder", REDUCED, ids=repr)
@pytest.mark.parametrize("size", [(800, 600), (741, 999)])
def test_pixels_of_reduced_pictures_are_near_those_of_torchvision(
    decoder: Decoder, size: tuple[int, int]
) -> None:
    data = encoded(photo(*size), quality=92)
    for row in range(4):
        draw = random_numbers(decoder, row)
        found = decode_with(data, decoder, draw)
        assert difference(found, reference(data, decoder, draw)) < 1.5
        shifted = np.roll(reference(data, decoder, draw), 1, axis=1)  # a pixel amiss shows
        assert difference(found, shifted) > 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(331, 298), (664, 600)])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_pictures_are_turned_before_they_are_cropped(
    orientation: int, size: tuple[int, int], file_format: str
) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(photo(*size), file_format, exif=exif)
    decoders: list[Decoder] = [CenterCrop((200, 270), resize=290), RandomResizedCrop((100, 150))]
    for decoder in decoders:
        draw = random_numbers(decoder)
        found = decode_with(data, decoder, draw, exif_transpose=True)
        expected = reference(data, decoder, draw, exif_transpose=True)
        assert difference(found, expected) < 1.5
        stored = decode_with(data, decoder, draw)
        assert difference(stored, reference(data, decoder, draw)) < 1.5


def test_a_turned_picture_of_odd_size_is_decoded_whole() -> None:
    exif = Image.Exif()
    exif[274] = 3
    data = encoded(photo(641, 601), exif=exif)
    decoder = CenterCrop(200, resize=220)
    expected = reference(data, decoder, exif_transpose=True)
    assert np.array_equal(decode_with(data, decoder, (), exif_transpose=True), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_picture_of_one_pixel(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1), (9, 99, 199)).save(buffer, "JPEG", exif=exif)
    found = decode_with(buffer.getvalue(), Resize((3, 2)), (), exif_transpose=True)
    assert (found == decode_with(buffer.getvalue(), Resize((1, 1)), ())).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(40, 1), (1, 40)])
def test_a_turned_picture_of_one_row_or_column(size: tuple[int, int], orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(photo(*size).convert("L"), exif=exif)
    for decoder in (Resize((9, 4)), Resize((4, 70))):
        found = decode_with(data, decoder, (), mode="L", exif_transpose=True)
        expected = reference(data, decoder, mode="L", exif_transpose=True)
        assert difference(found, expected) < 1.5


@pytest.mark.parametrize("decoder", [CenterCrop(224, resize=256), RandomResizedCrop(150)], ids=repr)
@pytest.mark.parametrize("kind", ["colour", "grey", "PNG"])
def test_grey_is_made_before_resizing(decoder: Decoder, kind: str) -> None:
    image = photo(331, 298)
    if kind == "grey":
        image = image.convert("L")
    data = encoded(image, "PNG" if kind == "PNG" else "JPEG")
    draw = random_numbers(decoder)
    found = decode_with(data, decoder, draw, mode="L")
    assert found.shape[2] == 1
    assert np.array_equal(found, reference(data, decoder, draw, "L"))


def test_16_bits_are_scaled_and_floats_refused() -> None:
    values = np.linspace(0, 65535, 60 * 50).astype(np.uint16).reshape(50, 60)
    data = encoded(Image.fromarray(values), "PNG")
    decoder = CenterCrop(50)
    found = decode_with(data, decoder, ())
    assert np.array_equal(found[..., 1], (values >> 8)[:, 5:55])
    data = encoded(Image.fromarray(values.astype(np.float32)), "TIFF")
    with pytest.raises(SampleError, match="float image"):
        decode_with(data, decoder, ())


def test_an_image_is_put_where_it_belongs() -> None:
    data = encoded(photo(331, 298))
    decoder = CenterCrop(64, resize=200)
    batch = np.full((3, 64, 64, 3), 7, np.uint8)
    assert decode_with(data, decoder, (), batch[1]).base is batch
    assert np.array_equal(batch[1], reference(data, decoder))
    assert (batch[[0, 2]] == 7).all()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_pictures_cut_short_are_never_shown(share: float) -> None:
    data = encoded(photo(331, 298))
    cut = data[: int(len(data) * share)]
    decoders: list[Decoder] = [CenterCrop(10), RandomResizedCrop(32), Resize(10)]
    for decoder in decoders:
        with pytest.raises(SampleError) as caught:
            decode_with(cut, decoder, [0.0] * decoder.draws)
        assert caught.value.reason == "truncated"


def test_no_bytes_are_no_picture() -> None:
    with pytest.raises(SampleError) as caught:
        decode_with(b"", CenterCrop(10), ())
    assert caught.value.reason == "empty"


def test_too_many_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(photo(60, 50))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1499)
    with pytest.raises(SampleError) as caught:
        decode_with(data, CenterCrop(10), ())
    assert caught.value.reason == "too_large"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode_with(data, CenterCrop(10), ()).shape == (10, 10, 3)


def test_threads_do_not_disturb_each_other() -> None:
    decoder = RandomResizedCrop(110, flip=0.5)
    data = [encoded(photo(100 + 7 * n, 90 + 5 * n, n)) for n in range(16)]
    numbers = [random_numbers(decoder, n) for n in range(16)]
    expected = [reference(one, decoder, draw) for one, draw in zip(data, numbers, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(decode_with, data, [decoder] * 16, numbers))
            assert all(map(np.array_equal, found, expected))


def test_scratch_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_module, "KEPT_BYTES", 1000)
    first = scratch("a test", 400)
    assert first.shape == (400,)
    assert scratch("a test", 800).base is first.base
    assert scratch("another test", 100).base is not first.base
    huge = scratch("a test", 5000)
    assert huge.shape == (5000,)
    assert huge.base is None
    assert scratch("a test", 10).base is first.base


# ----------------------------------------------------------------------------------- datasets

WHOLE: tuple[Literal["numpy", "tensor"], ...] = ("numpy", "tensor")
NAMES = ["cat/0.jpg", "cat/1.png", "cat/2.jpg", "dog/3.jpg", "dog/4.jpg", "dog/5.jpg"]
LABELS = [0, 0, 0, 1, 1, 1]
BROKEN = 3


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number, name in enumerate(NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = photo(60 + 9 * number, 80 - 5 * number, number)
        image = image.convert("CMYK") if number == 2 else image
        image.save(path)
    (root / "cat/0.txt").write_text("zero", encoding="utf-8")
    return root


@pytest.fixture
def damaged(tree: Path) -> Path:
    data = (tree / NAMES[BROKEN]).read_bytes()
    (tree / NAMES[BROKEN]).write_bytes(data[: len(data) // 2])
    return tree


def test_whole_images_as_tensors_and_arrays(tree: Path) -> None:
    images = open_dataset(tree)
    tensors = open_dataset(tree, decode="tensor")
    arrays = open_dataset(tree, decode="numpy")
    for row in range(len(NAMES)):
        expected = np.asarray(images[row][0])
        assert np.array_equal(arrays[row][0], expected)
        assert arrays[row][0].flags.writeable
        tensor, label = tensors[row]
        assert tensor.dtype == torch.uint8
        assert tensor.shape == (3, *expected.shape[:2])
        assert np.array_equal(tensor.permute(1, 2, 0).numpy(), expected)
        assert label == LABELS[row]
    batch = tensors.__getitems__([4, 1])
    assert torch.equal(batch[0][0], tensors[4][0])
    with pytest.raises(UsageError, match="no images of one size"):
        tensors.decode_batch([0])


@pytest.mark.parametrize("mode", ["L", "unchanged"])
def test_whole_images_in_other_modes(tree: Path, mode: Mode) -> None:
    photo(30, 20).convert("L").save(tree / "dog/9.jpg")
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100).save(tree / "dog/9.png")
    images = open_dataset(tree, mode=mode)
    arrays = open_dataset(tree, mode=mode, decode="numpy")
    tensors = open_dataset(tree, mode=mode, decode="tensor")
    for row in range(len(images)):
        expected = np.asarray(images[row][0])
        array, tensor = arrays[row][0], tensors[row][0]
        assert array.dtype == expected.dtype
        assert np.array_equal(array, expected)
        assert np.array_equal(tensor.movedim(0, -1).squeeze(-1).numpy(), expected)
    assert arrays[-1][0].dtype == (np.uint8 if mode == "L" else np.uint16)
    assert tensors[-1][0].dtype == (torch.uint8 if mode == "L" else torch.int32)


def test_whole_images_turned_upright(tree: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    photo(60, 40).save(tree / "cat/0.jpg", exif=exif)
    expected = np.asarray(open_dataset(tree, exif_transpose=True)[0][0])
    assert expected.shape == (60, 40, 3)
    for decode in WHOLE:
        found = open_dataset(tree, decode=decode, exif_transpose=True)[0][0]
        found = found if decode == "numpy" else found.permute(1, 2, 0).numpy()
        assert np.array_equal(found, expected)
    exif[274] = 99
    photo(60, 40).save(tree / "cat/0.jpg", exif=exif)
    assert open_dataset(tree, decode="numpy", exif_transpose=True)[0][0].shape == (40, 60, 3)


def test_a_decoder_gives_tensors(tree: Path) -> None:
    decoder = CenterCrop(32, resize=40)
    dataset = open_dataset(tree, decode=decoder)
    assert dataset.batch_shape == (32, 32, 3)
    assert "Decode: CenterCrop(size=32, resize=40)" in repr(dataset)
    for row, name in enumerate(NAMES):
        image, label = dataset[row]
        assert image.dtype == torch.uint8
        assert image.shape == (3, 32, 32)
        expected = reference((tree / name).read_bytes(), decoder)
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)
        assert label == LABELS[row]
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[0][0], dataset[0][0])
    assert len(pickle.dumps(dataset)) < 4096


def test_a_batch_is_one_array(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CenterCrop(32))
    order = [5, 0, 3, 3]
    samples = dataset.__getitems__(order)
    images, labels, kept = dataset.decode_batch(order)
    assert images.shape == (4, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [LABELS[row] for row in order]
    assert kept.tolist() == [True] * 4
    for place, (image, label) in enumerate(samples):
        assert torch.equal(image, images[place])
        assert torch.equal(image, dataset[order[place]][0])
        assert label == labels[place]
        assert image.untyped_storage().data_ptr() == samples[0][0].untyped_storage().data_ptr()
        assert image.storage_offset() == place * 32 * 32 * 3
    memory = np.empty((6, 32, 32, 3), np.uint8)
    found = dataset.decode_batch(order, memory[1:5])[0]
    assert found.data_ptr() == memory[1:].ctypes.data
    assert torch.equal(found, images)
    for wrong in (memory, memory[1:5, :, ::-1], memory[:4, :, :, :1]):
        with pytest.raises(UsageError, match=r"out is .*: it has to be \(4, 32, 32, 3\)"):
            dataset.decode_batch(order, wrong)
    dataset.hint(order)
    with pytest.raises(IndexError):
        dataset.hint([6])


def test_transforms_come_after_the_decoder(tree: Path) -> None:
    dataset = open_dataset(
        tree,
        decode=CenterCrop(32),
        transform=lambda image: image.float() / 255,
        target_transform=lambda label: -label,
        fields=("txt", "image"),
    )
    plain = open_dataset(tree, decode=CenterCrop(32))
    text, image, label = dataset[0]
    assert text == "zero"
    assert torch.equal(image, plain[0][0] / 255)
    assert dataset.__getitems__([5, 0])[1][0] == "zero"
    assert torch.equal(dataset.__getitems__([5, 0])[0][1], plain[5][0] / 255)
    assert label == 0
    assert dataset[5][2] == -1
    assert dataset.batch_shape is None
    without_image = open_dataset(tree, decode=CenterCrop(32), fields=("txt",))
    assert without_image.__getitems__([0, 1]) == [("zero", 0), (None, 0)]


def test_results_of_many_sizes_are_samples(tree: Path) -> None:
    dataset = open_dataset(tree, decode=Resize(16))
    assert dataset.batch_shape is None
    found = {tuple(image.shape) for image, _ in dataset.__getitems__(range(6))}
    assert len(found) > 3
    assert all(min(shape[1:]) == 16 for shape in found)


def test_one_channel_in_grey(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CenterCrop(32), mode="L")
    assert dataset.batch_shape == (32, 32, 1)
    assert dataset.decode_batch([0, 1])[0].shape == (2, 1, 32, 32)
    with pytest.raises(UsageError, match="a decoder needs 'RGB' or 'L'"):
        open_dataset(tree, decode=CenterCrop(32), mode="unchanged")


def test_damaged_samples_are_named(damaged: Path) -> None:
    dataset = open_dataset(damaged, decode=CenterCrop(8))
    calls = (lambda: dataset[BROKEN], lambda: dataset.decode_batch([0, BROKEN]))
    for call in (*calls, lambda: dataset.__getitems__([BROKEN])):
        with pytest.raises(SampleError) as caught:
            call()
        assert caught.value.reason == "truncated"
        assert f"sample {BROKEN}, key {BROKEN}, path dog/3.jpg" in str(caught.value)


def test_damaged_samples_are_skipped(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_dataset(damaged, decode=CenterCrop(8), on_error="skip")
    order = [4, BROKEN, 0]
    with caplog.at_level(logging.WARNING):
        assert dataset[BROKEN] is None
        samples = dataset.__getitems__(order)
        images, labels, kept = dataset.decode_batch(order)
    assert [label for _, label in samples] == [1, 0]
    assert torch.equal(samples[1][0], images[2])
    assert samples[1][0].storage_offset() == 8 * 8 * 3
    assert labels.tolist() == [1, 1, 0]
    assert kept.tolist() == [True, False, True]
    assert dataset.skipped == 3
    assert len(caplog.records) == 3
    messages: list[str] = []
    dataset.decode_batch(order, skipped=messages)
    assert len(messages) == 1
    assert "dog/3.jpg" in messages[0]
    assert len(caplog.records) == 3
    assert dataset.skipped == 4


# ---------------------------------------------------------------------------------- randomness

CROP = RandomResizedCrop(64, flip=0.5)


def test_epochs_differ_and_runs_agree(tree: Path) -> None:
    order = [3, 0, 5, 1]
    first, again = (open_dataset(tree, decode=CROP) for _ in range(2))
    images = first.decode_batch(Batch(order, seed=1, epoch=0))[0]
    assert torch.equal(again.decode_batch(Batch(order, 1, 0))[0], images)
    assert not torch.equal(first.decode_batch(Batch(order, 1, 1))[0], images)
    assert not torch.equal(first.decode_batch(Batch(order, 2, 0))[0], images)
    for place, row in enumerate(order):  # in batches of one, in another order, as samples
        assert torch.equal(again.decode_batch(Batch([row], 1, 0))[0][0], images[place])
        ((image, _),) = again.__getitems__(Batch([row], 1, 0))
        assert torch.equal(image, images[place])


def test_random_parts_are_those_of_the_generator(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CROP)
    numbers = draws(9, 4, np.array([5]), CROP.draws)[0].tolist()
    expected = reference((tree / NAMES[5]).read_bytes(), CROP, numbers)
    image = dataset.decode_batch(Batch([5], 9, 4))[0][0]
    assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_threads_make_the_parts_of_a_batch(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CROP)
    order = [row % 6 for row in range(60)]
    expected = dataset.decode_batch(Batch(order, 1, 0))[0]
    memory = np.empty((60, 64, 64, 3), np.uint8)

    def make(start: int) -> None:
        dataset.decode_batch(Batch(order[start : start + 7], 1, 0), memory[start : start + 7])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(0, 60, 7)))
    assert torch.equal(torch.from_numpy(memory).permute(0, 3, 1, 2), expected)


def test_plain_indices_draw_from_torch(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CROP)
    torch.manual_seed(5)
    once = [dataset[0][0], dataset[0][0], dataset.__getitems__([0])[0][0]]
    torch.manual_seed(5)
    again = [dataset[0][0], dataset[0][0], dataset.decode_batch([0])[0][0]]
    assert all(map(torch.equal, once, again))
    assert not torch.equal(once[0], once[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_collates_them(tree: Path, workers: int) -> None:
    dataset = open_dataset(tree, decode=RandomHorizontalFlip(after=CenterCrop(16)))
    for part in (dataset, Subset(dataset, [1, 2, 3, 4])):
        loader = DataLoader(part, batch_size=2, num_workers=workers)
        batches = list(loader)
        assert all(images.shape == (2, 3, 16, 16) for images, _ in batches)
        assert len(batches) == len(part) // 2
