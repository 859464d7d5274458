"""The benchmark of the decoders runs, on a handful of images; what it measures is not looked at."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image


@pytest.mark.skipif(sys.platform != "linux", reason="it measures on Linux")
def test_decoding_is_measured_and_reported(root: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for number in range(4):
        path = photos / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = random.Random(number).randbytes(400 * 300 * 3)
        Image.frombytes("RGB", (400, 300), content).save(path)
    command = ["benchmarks/decode.py", "--photos", str(photos), "--rounds", "1"]
    command += ["--work", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    for title in ("RandomResizedCrop(224, flip=0.5)", "Decoding a JPEG", "Resizing", "Pixels"):
        assert f"### {title}" in done.stdout
