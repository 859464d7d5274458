"""The benchmarks and the demo run, on a handful of images; what they measure is not looked at."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image
from tests.support import measures_on_linux


def run(root: Path, script: str, *arguments: str | Path) -> str:
    """Returns what a script of the repository prints."""
    done = subprocess.run(
        [sys.executable, root / script, *arguments],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return done.stdout


def noise(seed: int, size: tuple[int, int]) -> Image.Image:
    """Returns a picture of nothing."""
    return Image.frombytes("RGB", size, random.Random(seed).randbytes(size[0] * size[1] * 3))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of six JPEG files in two classes."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(6):
        place = folder / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        noise(number, (40, 30)).save(place / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def photos(root: Path) -> ModuleType:
    """Returns the program that makes photos, as a module."""
    spec = importlib.util.spec_from_file_location("photos", root / "benchmarks" / "photos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@measures_on_linux
def test_packing_and_reading_are_measured_and_reported(
    root: Path, images: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    options = ["--only", "pack", "read", "--small", "--rounds", "1", "--work", str(work)]
    printed = run(root, "benchmarks/run.py", *options, "--photos", images)
    assert printed in (work / "report.md").read_text(encoding="utf-8")
    for title in ("one tar", "HDF5", "LMDB"):
        assert f"| fastconv, {title}" in printed
    measured = json.loads((work / "pack.json").read_text(encoding="utf-8"))["measured"]
    assert [value > 0 for value in measured["seconds"]["GNU tar cf + sync -d"]] == [True]


@measures_on_linux
def test_growth_is_measured(root: Path, tmp_path: Path) -> None:
    options = ["--counts", "3", "120", "--rounds", "1", "--json", "--work", str(tmp_path)]
    report = json.loads(run(root, "benchmarks/scale.py", *options))
    for title in ("one tar", "HDF5", "LMDB"):
        assert report["measured"]["table"][f"fastconv, {title}, 120"][0] > 0
    assert len(list((tmp_path / "tiny-120").rglob("*.png"))) == 120


def test_demo_packs_and_reads_back(root: Path, tmp_path: Path) -> None:
    printed = run(root, "examples/demo.py", "--images", "16", "--out", tmp_path / "demo")
    assert "byte for byte" in printed
    assert (tmp_path / "demo" / "demo.h5").exists()


def test_demo_deletes_no_other_folder(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(subprocess.CalledProcessError):
        run(root, "examples/demo.py", "--out", tmp_path)
    assert (tmp_path / "precious").exists()


def test_photos_are_the_same_every_time(photos: ModuleType, tmp_path: Path) -> None:
    sources = [noise(0, (900, 700)), noise(1, (700, 900))]
    written = []
    for name in ("one.jpg", "other.jpg"):
        photos.write_photo(3, 7, sources, tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    photos.write_photo(4, 7, sources, tmp_path / "next.jpg")
    assert (tmp_path / "next.jpg").read_bytes() != written[0]


def test_photos_are_named_as_imagenet_is(photos: ModuleType) -> None:
    assert photos.photo_path(203, 100) == "n00000003/n00000003_203.JPEG"
