"""The loaders' benchmark runs, on a handful of images; what it measures is not looked at."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from PIL import Image
from tests.support import measures_on_linux

pytestmark = measures_on_linux

LOADERS = ["ImageFolder, DataLoader, Pillow", "FastLoader, LMDB", "webdataset"]


def run(*command: str | Path, root: Path) -> str:
    """Returns what a Python program prints that uses the sources."""
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return done.stdout


def make_photos(folder: Path) -> None:
    """Makes eight JPEG files in two classes."""
    for number in range(8):
        place = folder / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.Random(number).randbytes(300 * 260 * 3)
        Image.frombytes("RGB", (300, 260), pixels).save(place / f"{number}.jpg")


def test_loaders_are_compared_and_those_that_are_missing_are_named(
    root: Path, tmp_path: Path
) -> None:
    photos, work = tmp_path / "photos", tmp_path / "work"
    make_photos(photos)
    small = ["--rounds", "1", "--batches", "2", "--batch", "2", "--geometry", "train"]
    script = root / "benchmarks" / "loaders.py"
    options = ["--json", *small, "--only", *LOADERS]
    report = json.loads(run(script, "--work", work, "--photos", photos, *options, root=root))
    speeds = report["measured"]["images/s"]
    assert [speeds[f"{name}, train"][0] > 0 for name in LOADERS[:2]] == [True, True]
    (table,) = report["tables"]
    assert [row[0] for row in table["rows"]] == LOADERS[:2]
    assert "left out: webdataset: is not installed" in table["notes"]


def test_what_a_pack_takes_in_workers_is_measured(root: Path, tmp_path: Path) -> None:
    photos, pack = tmp_path / "photos", tmp_path / "pack.lmdb"
    make_photos(photos)
    run("-m", "fastconv", "pack", photos, pack, "--quiet", root=root)
    found = json.loads(run(root / "benchmarks" / "million.py", pack, root=root))
    assert {name for name, value in found.items() if value > 0} > {"first, FastLoader", "PSS"}
