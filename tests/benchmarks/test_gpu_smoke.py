"""The benchmark for GPUs runs without one where it is told to, and else says that there is none."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from tests.support import measures_on_linux

pytestmark = [
    measures_on_linux,
    pytest.mark.timeout(300),  # a network is trained without a GPU
]


def gpu(root: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Returns what became of the benchmark, on a machine without a GPU."""
    return subprocess.run(
        [sys.executable, root / "benchmarks/gpu.py", *options],
        env=os.environ | {"PYTHONPATH": str(root / "src"), "CUDA_VISIBLE_DEVICES": ""},
        check=False,
        capture_output=True,
        encoding="utf-8",
    )


def test_without_a_gpu_it_says_so_and_does_nothing(root: Path, tmp_path: Path) -> None:
    done = gpu(root, "--work", tmp_path / "work")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu.py: no GPU to measure: --device cuda: ")
    assert "--device cpu" in line
    assert not (tmp_path / "work").exists()


def test_its_plan_runs_on_the_processor(root: Path, tmp_path: Path) -> None:
    photos, work = tmp_path / "photos", tmp_path / "work"
    for number in range(4):
        path = photos / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.Random(number).randbytes(60 * 50 * 3)
        Image.frombytes("RGB", (60, 50), pixels).save(path)
    small = ["--rounds", "1", "--batch", "1", "--workers", "1", "--seconds", "0.01"]
    few = ["--formats", "LMDB", "--ways", "FastLoader", "FastLoader, nvJPEG"]
    done = gpu(root, "--device", "cpu", "--work", work, "--photos", photos, *small, *few)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (work / "gpu.md").read_text(encoding="utf-8")
    assert "- left out: FastLoader, nvJPEG: needs a GPU" in done.stdout
    report = json.loads((work / "gpu.json").read_text(encoding="utf-8"))
    assert report["environment"]["device"].startswith("cpu: no GPU")
    found = {name: values[0] for name, values in report["measured"]["images_per_s"].items()}
    base = next(iter(found)).removesuffix(", none")
    readers = [base, "LMDB, FastLoader"]
    names = [f"{name}, {step}" for step in ("none", "network") for name in readers]
    assert [*found] == [*names, "the network alone, on a batch that is there, network"]
    assert all(value > 0 for value in found.values())
    assert not {"gpu_busy_share", "gpu_wait_share"} & report["measured"].keys()
    plain, trained = (table["rows"] for table in report["tables"])
    assert [row[0] for row in plain] == readers
    assert [row[0] for row in trained] == [*readers, "the network alone, on a batch that is there"]
