"""HDF5 of raw samples: the images are one array, as any program reads it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from tests.support import OUTS

from fastconv.converters import Sample, convert, pack, repair
from fastconv.converters.verifying import verify
from fastconv.loaders import open_dataset

Pixels = npt.NDArray[np.uint8]


def pictures(*shape: int) -> list[Pixels]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, shape, np.uint8) for _ in range(20)]


def packed(out: Path, given: list[Pixels], **options: object) -> Path:
    samples = (
        Sample(f"{n}.npy", pixels, n, {"txt": b"text"} if n % 3 else {})
        for n, pixels in enumerate(given)
    )
    report = pack(samples=samples, out=out, options=options)
    assert report.bad == []
    return out


@pytest.mark.parametrize("shape", [(6, 5, 3), (6, 5, 4), (6, 5, 1), (6, 5)])
def test_images_of_one_shape_are_one_array(tmp_path: Path, shape: tuple[int, ...]) -> None:
    given = pictures(*shape)
    out = packed(tmp_path / "out.h5", given)
    with h5py.File(out) as file:
        images = file["images"]
        assert (images.shape, images.dtype, images.chunks) == (
            (20, 6, 5, *(*shape, 1)[2:3]),
            "u1",
            None,
        )
        np.testing.assert_array_equal(images[5], given[5].reshape(images.shape[1:]))
        np.testing.assert_array_equal(images[:], np.stack(given).reshape(images.shape))
        assert "data" not in file
        start, stop = file["offsets"][7:9]
        assert images[:].tobytes()[start:stop] == given[7].tobytes()
    dataset = open_dataset(out, decode="numpy", mode="unchanged")
    np.testing.assert_array_equal([image for image, _ in dataset], np.squeeze(np.stack(given)))
    assert verify(out, decode=True).bad == []


def test_images_of_several_shapes_are_bytes(tmp_path: Path) -> None:
    given = [*pictures(6, 5, 3), *pictures(5, 6, 3)]
    out = packed(tmp_path / "out.h5", given)
    with h5py.File(out) as file:
        assert "images" not in file
        assert file["data"].shape == (20 * 2 * 90,)
    assert verify(out).bad == []


def test_images_of_variable_length_stay_so(tmp_path: Path) -> None:
    given = pictures(6, 5, 3)
    out = packed(tmp_path / "out.h5", given, layout="vlen")
    with h5py.File(out) as file:
        assert [image.tobytes() for image in file["images"]] == [one.tobytes() for one in given]
    np.testing.assert_array_equal([*open_dataset(out, decode="numpy")][4][0], given[4])
    assert verify(out).bad == []


@pytest.mark.parametrize("name", [name for name in OUTS if "h5" not in name])
def test_they_are_one_array_when_they_are_converted(tmp_path: Path, name: str) -> None:
    given = pictures(6, 5, 3)
    samples = (Sample(f"{n}.npy", pixels, n) for n, pixels in enumerate(given))
    pack(samples=samples, out=tmp_path / name)
    convert(tmp_path / name, tmp_path / "made.h5")
    with h5py.File(tmp_path / "made.h5") as file:
        np.testing.assert_array_equal(file["images"][:], np.stack(given))


def test_what_another_program_has_made_of_the_array_is_told(tmp_path: Path) -> None:
    """The bytes are where they were, but no longer those of pictures of that shape."""
    out = packed(tmp_path / "out.h5", pictures(6, 5, 3))
    with h5py.File(out, "r+") as file:
        images = file["images"][:]
        del file["images"]
        file["images"] = images.reshape(20, 5, 6, 3)
    messages = [bad.message for bad in verify(out).bad]
    assert any("images is (20, 5, 6, 3), not (20, 6, 5, 3)" in message for message in messages)
    assert open_dataset(out, decode="numpy")[3][0].tobytes() == images[3].tobytes()


def test_the_array_is_mended(tmp_path: Path) -> None:
    """What HDF5's library says of the array, that is, not its pixels."""
    out = packed(tmp_path / "out.h5", pictures(6, 5, 3))
    whole = out.read_bytes()
    with h5py.File(out, "r+") as file:
        file.attrs.modify("id", np.bytes_("0" * 32))
    assert out.read_bytes() != whole
    (tmp_path / "empty").mkdir()
    repair(out, tmp_path / "empty")
    assert out.read_bytes() == whole
