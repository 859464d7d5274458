"""The index files of WebDataset shards through the tools that want them: Megatron Energon, timm and
wids (DALI's are in test_dali.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]
Library = Callable[[str], Any]
Run = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore")


def test_energon(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out", "webdataset", 5, index_for=["energon"])
    energon = library("megatron.energon")
    dataset = energon.get_train_dataset(
        out, worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=0),
        batch_size=1, shuffle_buffer_size=None, max_samples_per_sequence=None, repeat=False,
    )  # fmt: skip
    got = {int(s.__key__[0]): (s.image[0], s.label[0]) for s in energon.get_loader(dataset)}
    assert sorted(got) == list(range(13))
    for row, (image, label) in enumerate(open_dataset(out)):
        pixels, own = got[row]
        assert own == label
        difference = np.asarray(image) / 255 - pixels.numpy().transpose(1, 2, 0)
        assert np.abs(difference).max() < 0.01


def test_energon_reads_captions(samples: Samples, packed: Pack, library: Library) -> None:
    flat = samples[0].parent / "captions"
    if not flat.exists():
        flat.mkdir()
        for sample in samples[1]:
            if sample.caption:
                stem = sample.path.replace("/", "-").rpartition(".")
                (flat / f"{stem[0]}.{stem[2]}").write_bytes(sample.image)
                (flat / f"{stem[0]}.txt").write_bytes(sample.caption)
    out = packed("out", "webdataset", 5, source=flat, index_for=["energon"])
    energon = library("megatron.energon")
    dataset = energon.get_train_dataset(
        out, worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=0),
        batch_size=1, shuffle_buffer_size=None, max_samples_per_sequence=None, repeat=False,
    )  # fmt: skip
    got = sorted(sample.caption[0].encode() for sample in energon.get_loader(dataset))
    assert got == sorted(sample.caption for sample in samples[1] if sample.caption)


def test_energon_prepares_the_same_index(packed: Pack, library: Library, tmp_path: Path) -> None:
    library("megatron.energon")
    out = packed("out", "webdataset", 5, index_for=["energon"])
    copy = tmp_path / "copy"
    copy.mkdir()
    for shard in out.glob("*.tar"):
        shutil.copy(shard, copy)
    subprocess.run(
        [Path(sys.executable).with_name("energon"), "prepare", "--non-interactive",
         "--split-parts", "train:.*", "--num-workers", "1", "--sample-type",
         "ImageClassificationSample", "--field-map", '{"image": "jpg,png", "label": "cls"}', copy],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    for shard in out.glob("*.tar"):
        index = f"{shard.name}.idx"
        assert (out / index).read_bytes() == (copy / index).read_bytes()
    counts = [
        json.loads((folder / ".nv-meta/.info.json").read_bytes())["shard_counts"]
        for folder in (out, copy)
    ]
    assert counts[0] == counts[1]


def test_timm(samples: Samples, packed: Pack, reader: Run) -> None:
    out = packed("out", "webdataset", 5, index_for=["timm"])
    got = reader("timm_wds", "timm", out, "train")
    expected = [[*image.size, label] for image, label in open_dataset(out)]
    assert got == {"length": 13, "samples": expected}


def test_timm_knows_a_validation_split_by_its_name(packed: Pack, reader: Run) -> None:
    out = packed("pets-val", "webdataset", 5, index_for=["timm"])
    assert reader("timm_wds", "timm", out, "validation")["length"] == 13


@pytest.mark.parametrize(("name", "format"), [("out", "webdataset"), ("out.tar", None)])
def test_wids(
    samples: Samples,
    packed: Pack,
    library: Library,
    tmp_path: Path,
    name: str,
    format: str | None,
) -> None:
    out = packed(name, format, 5 if format else None, index_for=["wids"])
    index = out / "index.json" if format else out.with_suffix(".json")
    dataset = library("wids").ShardListDataset(
        str(index), cache_dir=str(tmp_path / "cache"), transformations=[]
    )
    assert len(dataset) == 13
    for row in (12, 0, 7, 3):
        sample, expected = dataset[row], samples[1][row]
        assert sample["." + expected.path[-3:]].read() == expected.image
        assert sample[".cls"].read() == b"%d" % expected.label
