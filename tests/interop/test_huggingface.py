"""Our packs through Hugging Face `datasets`, and its Parquet through fastconv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]
Library = Callable[[str], Any]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def datasets(library: Library) -> Any:
    return library("datasets")


def test_webdataset(datasets: Any, photos: Samples, packed: Pack, tmp_path: Path) -> None:
    """It wants the same fields in all samples."""
    out = packed("out", "webdataset", 4, source=photos[0], sidecars=())
    files = {"train": sorted(map(str, out.glob("*.tar")))}
    got = datasets.load_dataset(
        "webdataset", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    raw = got.cast_column("jpg", datasets.Image(decode=False))
    assert [row["jpg"]["bytes"] for row in raw] == [sample.image for sample in photos[1]]
    assert got["cls"][:] == [sample.label for sample in photos[1]]
    assert got["__key__"][:] == [f"{number:02d}" for number in range(11)]
    assert got[0]["jpg"].size == (48, 32)


@pytest.fixture(params=["one file", "shards"])
def out(request: pytest.FixtureRequest, packed: Pack) -> Path:
    options = {"text": "txt"}
    if request.param == "one file":
        return packed("out.parquet", options=options)
    return packed("out", "parquet", 5, options=options)


def test_parquet(datasets: Any, samples: Samples, out: Path, tmp_path: Path) -> None:
    files = sorted(map(str, out.glob("*.parquet"))) if out.is_dir() else str(out)
    got = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert isinstance(got.features["image"], datasets.Image)
    assert got.features["label"].names == ["cat", "dog"]
    raw = got.cast_column("image", datasets.Image(decode=False))
    for row, picture, sample in zip(raw, got, samples[1], strict=True):
        assert row["image"] == {"bytes": sample.image, "path": sample.path}
        assert row["label"] == sample.label
        assert row["txt"] == (None if sample.caption is None else sample.caption.decode())
        assert picture["image"].size[1] == 10


def test_a_folder_of_parquet_files(datasets: Any, packed: Pack, tmp_path: Path) -> None:
    out = packed("out", "parquet", 5)
    got = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert len(got["train"]) == 13


def test_streaming(datasets: Any, samples: Samples, out: Path) -> None:
    files = sorted(map(str, out.glob("*.parquet"))) if out.is_dir() else str(out)
    got = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    raw = got.cast_column("image", datasets.Image(decode=False))
    assert [row["image"]["bytes"] for row in raw] == [sample.image for sample in samples[1]]


def test_what_datasets_writes_is_read(datasets: Any, samples: Samples, tmp_path: Path) -> None:
    """It writes row groups and pages of its own, compresses, and encodes by dictionaries."""
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {
        "image": [{"bytes": s.image, "path": s.path} for s in samples[1]],
        "label": [s.label for s in samples[1]],
    }
    made = datasets.Dataset.from_dict(rows, features=features)
    made.to_parquet(str(tmp_path / "own.parquet"), batch_size=5)
    dataset = open_dataset(tmp_path / "own.parquet", decode=None)
    assert dataset.classes == ["cat", "dog"]
    assert [tuple(dataset[i]) for i in range(13)] == [(s.image, s.label) for s in samples[1]]


def test_what_imagefolder_gives_is_read(
    datasets: Any, library: Library, samples: Samples, tmp_path: Path
) -> None:
    """With the images in it, as it uploads them; else it writes where they lie on this disk."""
    made = datasets.load_dataset(
        "imagefolder", data_dir=str(samples[0]), split="train", cache_dir=str(tmp_path / "cache")
    )
    embed = library("datasets.table").embed_table_storage
    made = made.with_format("arrow").map(embed, batched=True).with_format(None)
    made.to_parquet(str(tmp_path / "own.parquet"))
    dataset = open_dataset(tmp_path / "own.parquet", decode=None)
    assert dataset.classes == ["cat", "dog"]
    assert [tuple(dataset[i]) for i in range(13)] == [(s.image, s.label) for s in samples[1]]
