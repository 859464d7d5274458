"""Decoding on the GPU. What needs no GPU, which is all but nvJPEG itself, runs on the CPU."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastconv.converters import pack
from fastconv.loaders import (
    CenterCrop,
    FastLoader,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    SampleError,
    UsageError,
    open_dataset,
)
from fastconv.loaders.decode import decode_numpy, decode_with
from fastconv.loaders.decoders import Decoder
from fastconv.loaders.nvjpeg import Encoded, EncodedBatch, render

CPU = torch.device("cpu")

DECODERS: list[Decoder] = [
    RandomResizedCrop(64, flip=0.5),
    CenterCrop(64, resize=80),
    CenterCrop(200),
    CenterCrop((50, 300)),
    RandomHorizontalFlip(1.0, CenterCrop(150, resize=90)),
    Resize((100, 150)),
]


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Returns a picture with soft structures, as photographs have them."""
    noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_what_becomes_of_a_picture_is_the_same_as_on_the_cpu(decoder: Decoder, seed: int) -> None:
    data = jpeg(picture(160 + 8 * seed, 120))
    draw = np.random.default_rng(seed).random(decoder.draws).tolist()
    expected = decode_with(data, decoder, draw)
    whole = torch.from_numpy(decode_numpy(data)).permute(2, 0, 1)
    geometry = decoder.geometry(whole.shape[2], whole.shape[1], draw)
    out = torch.full((3, *expected.shape[:2]), 99, dtype=torch.uint8)
    render(whole, geometry, out)
    difference = np.abs(out.permute(1, 2, 0).numpy().astype(int) - expected)
    assert difference.mean() < 0.5
    assert difference.max() <= 3


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of JPEGs and others, one of which is damaged behind its header."""
    folder = tmp_path / "tree/class"
    folder.mkdir(parents=True)
    for number in range(6):
        picture(160, 120 + 8 * number, number).save(folder / f"{number}.jpg", quality=90)
    picture(90, 90).save(folder / "6.png")
    picture(90, 90).convert("CMYK").save(folder / "7.jpg")
    whole = jpeg(picture(200, 100))
    (folder / "8.jpg").write_bytes(whole[: len(whole) // 2])
    return tmp_path / "tree"


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_batch_is_decoded_and_what_cannot_be_falls_back(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    """The decoder stands in for nvJPEG: it takes JPEGs, and fails as a whole where one is bad."""

    def decode(data: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        try:
            return [
                torch.from_numpy(decode_numpy(each.numpy().tobytes())).permute(2, 0, 1)
                for each in data
            ]
        except SampleError as error:
            raise RuntimeError("nvJPEG: bad JPEG") from error

    monkeypatch.setattr("fastconv.loaders.nvjpeg._decode", decode)
    check_batch(tree, tmp_path, on_error)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_the_same_with_torchvision(tree: Path, tmp_path: Path, on_error: str) -> None:
    pytest.importorskip("torchvision.io", reason="torchvision is not installed")
    check_batch(tree, tmp_path, on_error)


def check_batch(tree: Path, tmp_path: Path, on_error: str) -> None:
    pack(tree, tmp_path / "out.lmdb")
    dataset = open_dataset(
        tmp_path / "out.lmdb",
        decode=CenterCrop(64, resize=80),
        on_error=on_error,  # type: ignore[arg-type]
    )
    pictures, rows = dataset.encoded_batch(range(9))
    assert [isinstance(picture, Encoded) for picture in pictures] == [True] * 6 + [False] * 2 + [
        True
    ]
    fell_back: list[None] = []
    messages: list[str] = []
    batch = EncodedBatch(
        pictures, dataset.table.label[rows], (64, 64), lambda: fell_back.append(None),
        lambda position, error: dataset.cannot_decode(int(rows[position]), error, messages),
    )  # fmt: skip
    if on_error == "raise":
        with pytest.raises(SampleError, match=r"out\.lmdb: sample 8, key 8, path class/8\.jpg: "):
            batch.to(CPU)
        return
    made = batch.to(CPU)
    assert made is not None
    images, labels = made
    assert len(messages) == 1
    assert "sample 8" in messages[0]
    assert len(fell_back) == 3
    assert labels.tolist() == [0] * 8
    assert images.is_contiguous(memory_format=torch.channels_last)
    expected, _, _ = dataset.decode_batch(range(8))
    assert (images.int() - expected.int()).abs().float().mean() < 1


def test_a_batch_of_which_nothing_is_left() -> None:
    broken = Encoded(b"\xff\xd8broken", CenterCrop(8).geometry(8, 8, []))
    batch = EncodedBatch([broken], np.zeros(1, np.int64), (8, 8), lambda: None, lambda *_: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastconv.loaders.nvjpeg.decode_all", lambda files, device: [None])
        assert batch.to(CPU) is None


def test_what_is_needed_is_told(tree: Path) -> None:
    dataset = open_dataset(tree, decode=CenterCrop(64))
    for arguments, words in (
        ({"decode": "gpu"}, "decode is 'gpu': images are decoded on 'cpu' or 'cuda'"),
        ({"decode": "cuda"}, "needs a GPU as the device, not None"),
        ({"decode": "cuda", "device": "cpu"}, "needs a GPU as the device, not cpu"),
    ):
        with pytest.raises(UsageError, match=words):
            FastLoader(dataset, **arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_nvjpeg(tree: Path) -> None:
    pytest.importorskip("torchvision.io", reason="torchvision is not installed")
    dataset = open_dataset(tree, decode=RandomResizedCrop(64, flip=0.5), on_error="skip")
    on_cpu, on_gpu = (
        [*FastLoader(dataset, 4, shuffle=True, device="cuda", decode=where)]
        for where in ("cpu", "cuda")
    )
    for (images, labels), (others, same) in zip(on_cpu, on_gpu, strict=True):
        assert labels.tolist() == same.tolist()
        assert (images.int() - others.int()).abs().float().mean() < 2
