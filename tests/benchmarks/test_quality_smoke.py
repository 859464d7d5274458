"""The pixels' benchmark runs, on three grey images, beside a torchvision that makes black."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image
from tests.support import measures_on_linux

pytestmark = measures_on_linux

BLACK = """#!/bin/sh
exec "{python}" -c 'import sys, numpy
numpy.save(sys.argv[-1], numpy.zeros(({count}, 224, 224, 3), numpy.uint8))' "$@"
"""


def compare(root: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Returns how the program ended; of its photos a third is lighter than the others."""
    for number in range(3):
        folder = tmp_path / "photos" / f"class{number}"
        folder.mkdir(parents=True)
        grey = (160,) * 3 if number == 1 else (40,) * 3
        Image.new("RGB", (300, 260), grey).save(folder / "photo.jpg", quality=100)
    options = ["--json", "--photos", str(tmp_path / "photos"), "--work", str(tmp_path / "work")]
    return subprocess.run(
        [sys.executable, root / "benchmarks" / "quality.py", *options],
        env=os.environ | {"PYTHONPATH": str(root / "src"), "FASTCONV_NATIVE": "0"},
        capture_output=True,
        encoding="utf-8",
    )


def test_pixels_are_compared_and_those_that_are_missing_are_named(
    root: Path, tmp_path: Path
) -> None:
    peers = tmp_path / "work" / "loader-peers"
    python = peers / "torchvision" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(BLACK.format(python=sys.executable, count=3), encoding="utf-8")
    python.chmod(0o755)
    (peers / "torchvision.ok").touch()
    done = compare(root, tmp_path)
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert len(tables) == 2
    for table in tables:
        assert table["rows"] == [
            [name, "80.000", "0.0 %", "160.000", "160"]
            for name in ("fastconv", "Pillow", "Pillow, draft mode")
        ]
        for name in ("fastconv, the kernel", "DALI, CPU", "OpenCV, INTER_AREA"):
            assert f"left out: {name}: is not installed" in table["notes"]


def test_without_torchvision_there_is_nothing_to_compare_with(root: Path, tmp_path: Path) -> None:
    done = compare(root, tmp_path)
    assert done.returncode == 2
    assert "torchvision, with which all are compared: is not installed" in done.stderr
