"""The loaders' benchmark runs, on a handful of images; what it measures is not looked at."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it measures on Linux")

LOADERS = ["ImageFolder, DataLoader, Pillow", "FastLoader, LMDB", "webdataset"]


def run(root: Path, *arguments: str | Path) -> str:
    """Returns what the benchmark prints."""
    done = subprocess.run(
        [sys.executable, root / "benchmarks" / "loaders.py", *arguments],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return done.stdout


def test_loaders_are_compared_and_those_that_are_missing_are_named(
    root: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    for number in range(8):
        place = photos / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.Random(number).randbytes(300 * 260 * 3)
        Image.frombytes("RGB", (300, 260), pixels).save(place / f"{number}.jpg")
    small = ["--rounds", "1", "--batches", "2", "--batch", "2", "--geometry", "train"]
    work = tmp_path / "work"
    printed = run(root, "--json", "--work", work, "--photos", photos, *small, "--only", *LOADERS)
    report = json.loads(printed)
    speeds = report["measured"]["images/s"]
    assert [speeds[f"{name}, train"][0] > 0 for name in LOADERS[:2]] == [True, True]
    (table,) = report["tables"]
    assert [row[0] for row in table["rows"]] == LOADERS[:2]
    assert "left out: webdataset: is not installed" in table["notes"]


def test_a_large_pack_is_measured(root: Path, tmp_path: Path) -> None:
    small = ["--samples", "300", "--rounds", "1"]
    report = json.loads(run(root, "--million", *small, "--json", "--work", tmp_path))
    for title in ("one tar", "HDF5", "LMDB"):
        assert report["measured"]["first, FastLoader"][title][0] > 0
        assert report["measured"]["PSS"][title][0] > 0
