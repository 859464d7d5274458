"""Raw samples: their shapes, their modes, and what is told of those that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from fastconv.converters import Sample, pack
from fastconv.converters.verify import FieldCheck
from fastconv.loaders import (
    CenterCrop,
    FastLoader,
    PackDataset,
    SampleError,
    UsageError,
    open_dataset,
    open_pack,
)
from fastconv.loaders.decode import decode_numpy, decode_pil, decode_with, in_mode
from fastconv.loaders.kinds import EXTENSIONS, KINDS
from fastconv.loaders.nvjpeg import Encoded
from fastconv.loaders.raw import RAW, common_shape, is_shape, shape_of

Pixels = npt.NDArray[np.uint8]


GETS: list[Callable[[PackDataset], Any]] = [
    lambda dataset: dataset[1],
    lambda dataset: dataset.__getitems__([0, 1]),
]
"""Ways to get the second sample."""


def noise(seed: int, *shape: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def packed(out: Path, *pictures: Pixels) -> Path:
    """Returns a pack of raw samples."""
    pack(samples=(Sample(f"{n}.npy", pixels) for n, pixels in enumerate(pictures)), out=out)
    return out


def test_the_kind_is_the_last_one_and_no_files_are_so() -> None:
    assert KINDS[RAW] == KINDS[-1] == "raw"
    assert "raw" not in EXTENSIONS
    assert "raw" not in EXTENSIONS.values()


def test_shapes() -> None:
    assert shape_of(3, 2, 6) == (2, 3, 1)
    assert shape_of(3, 2, 18) == (2, 3, 3)
    assert shape_of(3, 2, 24) == (2, 3, 4)
    for width, height, size in (
        (3, 2, 12),
        (3, 2, 30),
        (3, 2, 19),
        (3, 2, 0),
        (0, 2, 6),
        (0, 0, 0),
    ):
        assert not is_shape(width, height, size)
        words = f"its {size} bytes are no raw pixels of {width}x{height}"
        with pytest.raises(SampleError, match=words) as caught:
            shape_of(width, height, size)
        assert caught.value.reason == "bad_record"


@pytest.mark.parametrize("mode", ["RGB", "L", "unchanged"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_modes_are_those_of_pillow(channels: int, mode: Any) -> None:
    pixels = noise(0, 3, 7, 5, channels)
    images = [Image.fromarray(one[..., 0] if channels == 1 else one) for one in pixels]
    expected = [np.array(one if mode == "unchanged" else one.convert(mode)) for one in images]
    np.testing.assert_array_equal(np.squeeze(in_mode(pixels, mode)), expected)
    for one, picture in zip(pixels, expected, strict=True):
        np.testing.assert_array_equal(decode_numpy(one, mode), picture)
        np.testing.assert_array_equal(np.array(decode_pil(one, mode)), picture)
        np.testing.assert_array_equal(decode_numpy(one, mode, exif_transpose=True), picture)
        if mode != "unchanged":
            cut = decode_with(one, CenterCrop(3), (), mode=mode)
            np.testing.assert_array_equal(np.squeeze(cut), picture[2:5, 1:4])
    with pytest.raises(UsageError, match="unknown mode"):
        decode_pil(pixels[0], "CMYK")  # type: ignore[arg-type]


def test_a_table_that_does_not_fit_its_pixels(tmp_path: Path) -> None:
    out = packed(tmp_path / "out.tar", noise(0, 4, 6, 3), noise(1, 4, 6, 3))
    for decode in ("pil", "numpy", "tensor", CenterCrop(2), CenterCrop((4, 6))):
        dataset = open_dataset(out, decode=decode)
        reader = dataset._opened()
        reader.table = replace(reader.table, width=np.array([6, 5], np.uint32))
        assert reader.common_shape is None
        assert dataset[0] is not None
        for get in GETS:
            with pytest.raises(
                SampleError, match=r"sample 1, key 1, .*72 bytes are no raw"
            ) as caught:
                get(dataset)
            assert caught.value.reason == "bad_record"


def test_checking_pixels_looks_at_their_number(tmp_path: Path) -> None:
    reader = open_pack(packed(tmp_path / "out.tar", noise(0, 4, 6, 3), noise(1, 4, 6, 3)))
    table = replace(reader.table, width=np.array([6, 5], np.uint32))
    for decode in (False, True):
        check = FieldCheck(table, table.checksum, decode, 1 << 30)
        for row in (0, 1):
            data = reader.read(row)
            assert data is not None
            check(row, 0, data)
        assert [bad[:3] for bad in check.bad] == [(1, 0, "bad_record")] * decode


def test_common_shapes(tmp_path: Path) -> None:
    small, other = noise(0, 4, 6, 3), noise(0, 6, 4, 3)
    for name, pictures, shape in (
        ("one", [small, small], (4, 6, 3)),
        ("turned", [small, other], None),  # of as many bytes
        ("grey", [noise(0, 4, 6), noise(0, 4, 6, 1)], (4, 6, 1)),
        ("both", [small, noise(0, 4, 6)], None),
    ):
        table = open_dataset(packed(tmp_path / f"{name}.tar", *pictures)).table
        assert common_shape(table) == shape
    joined = open_dataset([tmp_path / "one.tar", tmp_path / "grey.tar"], decode="tensor")
    assert joined.batch_shape is None
    assert [image.shape[0] for image, _ in joined] == [3] * 4


def test_batches_of_one_size_are_asked_of_the_decoder_else(tmp_path: Path) -> None:
    out = packed(tmp_path / "out.tar", noise(0, 4, 6, 3), noise(1, 4, 6, 3))
    assert open_dataset(out, decode="tensor").batch_shape == (4, 6, 3)
    assert open_dataset(out, decode="tensor", mode="L").batch_shape == (4, 6, 1)
    for options in (
        {"decode": "pil"}, {"decode": None}, {"decode": "tensor", "transform": abs},
        {"decode": "numpy", "fields": ("image",)},
    ):  # fmt: skip
        assert open_dataset(out, **options).batch_shape is None


def test_loaders_convert_tensors_alone(tmp_path: Path) -> None:
    pictures = [noise(seed, 4, 6, 4) for seed in range(2)]
    out = packed(tmp_path / "out.tar", *pictures)
    normalize = ([0.5] * 3, [0.25] * 3)
    (images, _), *_ = FastLoader(open_dataset(out, decode="tensor"), 2, normalize=normalize)
    expected = (np.stack(pictures)[..., :3] / 255 - 0.5) / 0.25
    np.testing.assert_allclose(images.permute(0, 2, 3, 1), expected, atol=1e-5)
    with pytest.raises(UsageError, match="normalize and dtype need images"):
        FastLoader(open_dataset(out, decode="numpy"), 2, dtype=torch.float32)
    with pytest.raises(UsageError, match="not 4"):
        FastLoader(open_dataset(out, decode="tensor", mode="unchanged"), 2, normalize=normalize)


def test_a_gpu_has_nothing_to_decode(tmp_path: Path) -> None:
    """Not even where the pixels begin as a JPEG does."""
    pictures = [noise(seed, 8, 8, 3) for seed in range(3)]
    pictures[1].reshape(-1)[:3] = 0xFF, 0xD8, 0xFF
    out = packed(tmp_path / "out.lmdb", *pictures)
    found, rows = open_dataset(out, decode=CenterCrop(4)).encoded_batch(range(3))
    assert not any(isinstance(picture, Encoded) for picture in found)
    np.testing.assert_array_equal(np.stack(found), np.stack(pictures)[:, 2:6, 2:6])
    assert rows.tolist() == [0, 1, 2]


def test_records_tell_of_them_without_their_table(tmp_path: Path) -> None:
    pictures = [noise(0, 8, 6, 3), noise(1, 3, 5, 1), noise(2, 4, 4, 4)]
    pictures[0].reshape(-1)[:3] = 0xFF, 0xD8, 0xFF
    out = packed(tmp_path / "out.tfrecord", *pictures)
    (tmp_path / "out.tfrecord.index.safetensors").unlink()
    dataset = open_dataset(out, decode="numpy", mode="unchanged")
    assert [path for path, _ in dataset.samples] == ["0.npy", "1.npy", "2.npy"]
    for row, pixels in enumerate(pictures):
        np.testing.assert_array_equal(dataset[row][0], np.squeeze(pixels))


def test_a_database_that_was_written_to_keeps_their_shapes(tmp_path: Path) -> None:
    pictures = [noise(0, 8, 6, 3), noise(1, 8, 6, 3)]
    out = packed(tmp_path / "out.lmdb", *pictures)
    with lmdb.open(str(out), map_size=1 << 22) as database, database.begin(write=True) as change:
        change.put(b"2", b"more")
        change.put(b"0", pictures[1].tobytes())
    dataset = open_dataset(out, decode="numpy")
    assert len(dataset) == 3
    for row in (0, 1):
        np.testing.assert_array_equal(dataset[row][0], pictures[1])
