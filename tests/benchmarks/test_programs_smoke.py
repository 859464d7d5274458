"""The benchmarks of decoders, cold loaders and tune run, on a handful of images; what they measure
is not looked at."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from tests.support import measures_on_linux

DECODE = ("RandomResizedCrop(224, flip=0.5)", "Decoding a JPEG", "Resizing", "Pixels")
COLD = ("Stored bytes", "Decoded, RandomResizedCrop(224)")
ENCODE = ("Resize short=256, JPEG of quality 90", "What is lost", "Loading 224 x 224")
TUNE = ("Chosen settings, and all others",)


@measures_on_linux
@pytest.mark.parametrize(
    ("program", "options", "titles"),
    [
        ("decode", (), DECODE),
        ("cold", ("--batch", "2"), COLD),
        ("encode", ("--batch", "2", "--batches", "1"), ENCODE),
        ("tune", ("--batch", "2", "--seconds", "0.01", "--budget", "1", "--choices", "1"), TUNE),
    ],
)
def test_a_benchmark_measures_and_reports(
    root: Path, tmp_path: Path, program: str, options: tuple[str, ...], titles: tuple[str, ...]
) -> None:
    photos = tmp_path / "photos"
    for number in range(4):
        path = photos / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = random.Random(number).randbytes(400 * 300 * 3)
        Image.frombytes("RGB", (400, 300), content).save(path)
    command = [f"benchmarks/{program}.py", "--photos", str(photos), "--rounds", "1", *options]
    command += ["--work", str(tmp_path / "work")]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    for title in titles:
        assert f"### {title}" in done.stdout
