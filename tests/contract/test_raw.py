"""Raw samples in every format: pixels that nothing has to decode, compared with the arrays that
were packed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from tests.contract.test_files import resident
from tests.contract.test_verify_reads import flip
from tests.converters.test_converting import content
from tests.support import captions
from torch.utils.data import DataLoader

from fastconv.converters import Sample, convert, merge
from fastconv.converters import pack as pack_samples
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.converters.writer import WRITERS
from fastconv.loaders import (
    CenterCrop,
    FastLoader,
    PackDataset,
    RandomHorizontalFlip,
    SampleError,
    open_dataset,
    open_pack,
)
from fastconv.loaders.reader import MappedReader

Pixels = npt.NDArray[np.uint8]

SHAPE = (12, 16, 3)
COUNT = 40
MAGIC = (0xCED7230A).to_bytes(4, "little")
"""What splits the records of a RecordIO."""


GETS: list[Callable[[PackDataset], Any]] = [
    lambda dataset: dataset[3],
    lambda dataset: dataset.__getitems__([0, 3]),
]


def noise(seed: int, shape: tuple[int, ...]) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def arrays() -> list[Pixels]:
    """Returns pictures of one shape; one has bytes in it that RecordIO has to split, and one begins
    as a JPEG does."""
    out = [noise(seed, SHAPE) for seed in range(COUNT)]
    out[7].reshape(-1)[40:44] = np.frombuffer(MAGIC, np.uint8)
    out[9].reshape(-1)[:3] = 0xFF, 0xD8, 0xFF
    return out


def given(pictures: list[Pixels], format: str) -> Iterator[Sample]:
    for number, pixels in enumerate(pictures):
        texts = {"txt": f"text {number}".encode()} if captions(format=format) else {}
        name = f"c{number % 3}"
        yield Sample(f"{name}/{number:02d}.npy", pixels, name, texts if number % 2 else {})


@pytest.fixture(scope="module", params=WRITERS.names())
def format(request: pytest.FixtureRequest) -> str:
    """Returns the name of a format: of packs, not of the raw folder."""
    return str(request.param)


@pytest.fixture(scope="module")
def raw(format: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack of pictures of one shape; tests do not change it."""
    out = tmp_path_factory.mktemp(format) / "pack"
    report = pack_samples(samples=given(arrays(), format), out=out, format=format)
    assert (report.samples, report.bad) == (COUNT, [])
    return out


def mixed() -> list[Pixels]:
    """Returns pictures of all that a raw sample can be, of several sizes."""
    return [
        noise(1, (5, 9)), noise(2, (5, 9, 3)), noise(3, (7, 4, 4)), noise(4, (1, 1, 1)),
        noise(5, (20, 3, 3)), np.asfortranarray(noise(6, (6, 5, 3))),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def several(format: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack of raw samples of several shapes, and a PNG behind them."""
    file = io.BytesIO()
    Image.fromarray(noise(9, (8, 8, 3))).save(file, "PNG")
    samples = [Sample(f"{n}.npy", pixels) for n, pixels in enumerate(mixed())]
    out = tmp_path_factory.mktemp(format) / "pack"
    samples.append(Sample("6.png", file.getvalue()))
    pack_samples(samples=samples, out=out, format=format)
    return out


def oracle(pixels: Pixels, mode: str) -> Image.Image:
    """Returns a picture as Pillow makes it of an array."""
    image = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    return image if mode == "unchanged" else image.convert(mode)


# -------------------------------------------------------------------------------- one by one


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L", "unchanged"])
def test_pictures_are_the_arrays_that_were_packed(several: Path, mode: Any, verified: bool) -> None:
    expected = [oracle(pixels, mode) for pixels in (*mixed(), noise(9, (8, 8, 3)))]
    options: dict[str, Any] = {"mode": mode, "verify": verified}
    images = open_dataset(several, **options)
    tensors = open_dataset(several, decode="tensor", **options)
    pixels = open_dataset(several, decode="numpy", **options)
    for row, image in enumerate(expected):
        found, label = images[row]
        assert (found.mode, found.size, label) == (image.mode, image.size, -1)
        assert found.tobytes() == image.tobytes()
        array = pixels[row][0]
        assert (array.dtype, array.flags.writeable) == (np.uint8, True)
        np.testing.assert_array_equal(array, np.array(image))
        planes = np.atleast_3d(np.array(image)).transpose(2, 0, 1)
        np.testing.assert_array_equal(tensors[row][0].numpy(), planes)
    for dataset in (tensors, pixels):
        batch = [sample[0] for sample in dataset.__getitems__([2, 0, 6])]
        for row, sample in zip((2, 0, 6), batch, strict=True):
            np.testing.assert_array_equal(sample, dataset[row][0])


def test_the_stored_bytes_are_the_pixels(raw: Path) -> None:
    dataset, table = open_dataset(raw, decode=None), open_pack(raw).table
    for row, pixels in enumerate(arrays()):
        assert dataset[row] == (pixels.tobytes(), row % 3)
        shape = (table.height[row], table.width[row], -1)
        view = np.frombuffer(dataset.read(row), np.uint8).reshape(shape)
        np.testing.assert_array_equal(view, pixels)
        assert not view.flags.writeable


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    "decoder", [CenterCrop(8), CenterCrop(20, resize=24), RandomHorizontalFlip(1.0)], ids=str
)
def test_decoders_treat_them_as_the_pixels_of_a_file(
    raw: Path, several: Path, tmp_path: Path, decoder: Any, mode: Any
) -> None:
    for pack, pictures in ((raw, arrays()), (several, mixed())):
        files = tmp_path / pack.parent.name
        files.mkdir()
        for row, pixels in enumerate(pictures):
            Image.fromarray(np.squeeze(pixels, 2) if pixels.shape[2:] == (1,) else pixels).save(
                files / f"{row:02d}.png"
            )
        expected = open_dataset(files, decode=decoder, mode=mode)
        found = open_dataset(pack, decode=decoder, mode=mode)
        rows = range(len(pictures))
        for ours, theirs in zip(found.__getitems__(rows), expected.__getitems__(rows), strict=True):
            assert torch.equal(ours[0], theirs[0])
        assert all(torch.equal(found[row][0], expected[row][0]) for row in rows)


# -------------------------------------------------------------------------------- batches

ORDER = [5, 39, 7, 0, 0, 9, 21, 8, 6]


@pytest.mark.parametrize("verified", [False, True])
def test_batches(raw: Path, verified: bool) -> None:
    expected = np.stack([arrays()[row] for row in ORDER])
    for decode in ("tensor", CenterCrop(SHAPE[:2])):
        dataset = open_dataset(raw, decode=decode, verify=verified)
        assert dataset.batch_shape == SHAPE
        images, labels, kept = dataset.decode_batch(ORDER)
        np.testing.assert_array_equal(images.numpy(), expected.transpose(0, 3, 1, 2))
        assert labels.tolist() == [row % 3 for row in ORDER]
        assert kept.all()
        batch = torch.stack([image for image, _ in dataset.__getitems__(ORDER)])
        assert torch.equal(batch, images)
    dataset = open_dataset(raw, decode="numpy", verify=verified)
    np.testing.assert_array_equal([image for image, _ in dataset.__getitems__(ORDER)], expected)


@pytest.mark.parametrize("mode", ["RGB", "L", "unchanged"])
@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,)])
def test_batches_of_every_mode(
    format: str, tmp_path: Path, channels: tuple[int, ...], mode: Any
) -> None:
    pictures = [noise(seed, (4, 6, *channels)) for seed in range(5)]
    pack_samples(samples=given(pictures, format), out=tmp_path / "pack", format=format)
    expected = np.stack([np.array(oracle(pixels, mode)) for pixels in pictures])
    (images, _), *_ = FastLoader(open_dataset(tmp_path / "pack", decode="numpy", mode=mode), 5)
    assert images.dtype == torch.uint8
    np.testing.assert_array_equal(images.numpy(), expected)
    (images, _), *_ = FastLoader(open_dataset(tmp_path / "pack", decode="tensor", mode=mode), 5)
    planes = expected.reshape(*expected.shape[:3], -1).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(images.numpy(), planes)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_loaders_give_them(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.stack(arrays())
    dataset = open_dataset(raw, decode="tensor")
    whole = FastLoader(dataset, 39, num_workers=2)
    monkeypatch.setattr("fastconv.loaders.loader.COPIED_PART", 17 * dataset[0][0].numel())
    for loader in (
        whole,
        FastLoader(dataset, 39, num_workers=2),  # in parts of 17
        DataLoader(dataset, 16),
        DataLoader(dataset, 16, num_workers=1, multiprocessing_context="fork"),
    ):
        batches = [*loader]
        images = torch.cat([images for images, _ in batches]).numpy()
        np.testing.assert_array_equal(images, expected.transpose(0, 3, 1, 2))
        assert torch.cat([labels for _, labels in batches]).tolist() == [
            n % 3 for n in range(COUNT)
        ]


def test_a_batch_is_copied_whole(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded or rendered, and rows are asked for together."""
    asked: list[list[int]] = []
    fill = MappedReader.fill

    def noted(self: MappedReader, rows: Any, places: Any) -> None:
        asked.append(rows.tolist())
        fill(self, rows, places)

    def never(*arguments: Any) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr("fastconv.loaders.datasets.decode_numpy", never)
    monkeypatch.setattr("fastconv.loaders.datasets.decode_with", never)
    monkeypatch.setattr(MappedReader, "fill", noted)
    plain = [n for n in range(COUNT) if n != 7]  # which RecordIO has split
    for decode in ("tensor", CenterCrop(SHAPE[:2])):
        dataset = open_dataset(raw, decode=decode)
        dataset.__getitems__(plain)
        dataset.decode_batch(plain)
        assert asked == [plain, plain]
        asked.clear()
        assert dataset.copies_images
    assert not open_dataset(raw, decode=CenterCrop(8)).copies_images


# -------------------------------------------------------------------------------- damage


def test_damaged_pixels_are_told_and_skipped(raw: Path, format: str, tmp_path: Path) -> None:
    pack_samples(samples=given(arrays(), format), out=tmp_path / "pack", format=format)
    words = flip(tmp_path / "pack", 3, 0)
    for decode in ("tensor", "numpy", "pil", CenterCrop(SHAPE[:2]), CenterCrop(8)):
        dataset = open_dataset(tmp_path / "pack", decode=decode, verify=True)
        for get in GETS:
            with pytest.raises(SampleError) as caught:
                get(dataset)
            assert (str(caught.value), caught.value.reason) == (words, "corrupt")
    skipping = open_dataset(tmp_path / "pack", decode="tensor", verify=True, on_error="skip")
    whole = open_dataset(raw, decode="tensor")
    images = [image for image, _ in skipping.__getitems__([2, 3, 4])]
    assert torch.equal(torch.stack(images), torch.stack([whole[2][0], whole[4][0]]))
    skipped: list[str] = []
    images_, _, kept = skipping.decode_batch([2, 3, 4], skipped=skipped)
    assert (kept.tolist(), skipped) == ([True, False, True], [words])
    assert torch.equal(images_[2], whole[4][0])


def test_a_file_that_was_cut_short_is_an_error(format: str, raw: Path, tmp_path: Path) -> None:
    """Without any check before, where touching a map would end in a signal."""
    pack_samples(samples=given(arrays(), format), out=tmp_path / "pack", format=format)
    code = (
        "import os, sys, numpy as np\n"
        "from fastconv.loaders import CorruptPackError, open_pack\n"
        "reader = open_pack(sys.argv[1])\n"
        f"place = np.empty({SHAPE}, np.uint8)\n"
        "reader.fill(np.array([0]), [place])\n"
        "table = reader.table = reader.table.in_memory()\n"
        "reader._size_of, reader._offset_of = [table.size[0].item], [table.offset[0].item]\n"
        "reader.guard = lambda row: None\n"
        "os.truncate(reader.files[0], 0)\n"
        "try:\n"
        "    reader.fill(np.array([5, 1]), [place, place.copy()])\n"
        "except CorruptPackError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "pack"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "truncated since it was opened" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_batches_leave_no_bytes_of_the_pack_in_the_process(format: str, tmp_path: Path) -> None:
    pictures = [noise(seed, (300, 300, 3)) for seed in range(32)]
    pack_samples(samples=given(pictures, format), out=tmp_path / "pack", format=format)
    dataset = open_dataset(tmp_path / "pack", decode="tensor")
    for start in range(0, 32, 8):
        dataset.__getitems__([*range(start, start + 8)])
    assert resident(tmp_path / "pack") < 3 << 20, "of 8.6 MB that were read"


# -------------------------------------------------------------------------------- the other tools


def test_unpacking_gives_arrays(raw: Path, format: str, tmp_path: Path) -> None:
    report = unpack(raw, tmp_path / "out")
    assert (report.samples, report.bad) == (COUNT, [])
    for number, pixels in enumerate(arrays()):
        file = tmp_path / f"out/c{number % 3}/{number:02d}.npy"
        np.testing.assert_array_equal(np.load(file, allow_pickle=False), pixels)
        with_text = bool(number % 2 and captions(format=format))
        assert file.with_suffix(".txt").exists() == with_text


def test_unpacking_gives_arrays_of_every_shape(several: Path, tmp_path: Path) -> None:
    unpack(several, tmp_path / "out")
    for number, pixels in enumerate(mixed()):
        expected = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
        np.testing.assert_array_equal(np.load(tmp_path / f"out/{number}.npy"), expected)


def test_verifying_finds_nothing_wrong_and_what_is(
    raw: Path, several: Path, format: str, tmp_path: Path
) -> None:
    for pack in (raw, several):
        for decode in (False, True):
            assert verify(pack, decode=decode).bad == []
    pack_samples(samples=given(arrays(), format), out=tmp_path / "pack", format=format)
    flip(tmp_path / "pack", 3, 0)
    assert {bad.path for bad in verify(tmp_path / "pack", decode=True).bad} >= {"c0/03.npy"}


@pytest.mark.parametrize("source", WRITERS.names())
def test_converting_gives_the_pack_of_the_arrays(raw: Path, source: str, tmp_path: Path) -> None:
    format = open_pack(raw).name
    if bool(captions(format=source)) != bool(captions(format=format)):
        pytest.skip("others have sidecars")
    (tmp_path / "made").mkdir()
    pack_samples(samples=given(arrays(), source), out=tmp_path / "source", format=source)
    convert(tmp_path / "source", tmp_path / "made/pack", format=format)
    assert content(tmp_path / "made/pack") == content(raw)


def test_merging(raw: Path, format: str, tmp_path: Path) -> None:
    other = [noise(seed, SHAPE) for seed in range(100, 104)]
    (tmp_path / "other").mkdir()
    pack_samples(samples=given(other, format), out=tmp_path / "other/more", format=format)
    merge([raw, tmp_path / "other/more"], tmp_path / "both", format=format, prefix=True)
    joined = open_dataset([raw, tmp_path / "other/more"], decode="numpy")
    merged = open_dataset(tmp_path / "both", decode="numpy")
    order = [41, 3, 0, 43, 39]
    expected = [[*arrays(), *other][row] for row in order]
    for dataset in (joined, merged):
        assert dataset.batch_shape == SHAPE
        np.testing.assert_array_equal([image for image, _ in dataset.__getitems__(order)], expected)
        np.testing.assert_array_equal(dataset[41][0], other[1])


def test_what_is_said_of_them(raw: Path) -> None:
    def said(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fastconv", command, "--json", raw],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    about = json.loads(said("info"))
    assert about["formats"] == {"raw": COUNT}
    assert about["width"]["max"] == 16
    line = json.loads(said("ls").splitlines()[0])
    assert (line["fields"]["raw"], line["width"], line["height"]) == (576, 16, 12)
