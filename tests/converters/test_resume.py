"""A run that was stopped is taken up by the same call, with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters import plan as plan_module
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import UsageError

SAMPLES = 60

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lmdb": ("out.lmdb", {}),
    "tar": ("out.tar", {}),
    "shards": ("out", {"format": "webdataset", "sharding": Sharding(samples=17)}),
    "hdf5": ("out.h5", {}),
    "vlen": ("out.h5", {"options": {"layout": "vlen"}}),
}
"""What is packed: OUT and arguments."""

STOPPED = """
import json, os, sys
from fastconv.converters import Sharding, journal, pack, plan, target
from fastconv.converters.packing import Run
plan.PART_BYTES = 40_000
journal.SYNC_S = float(sys.argv[4])
left = int(sys.argv[3])

def counted(owner, name):
    call = getattr(owner, name)
    def run(*args, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(0, 9)
        return call(*args, **more)
    setattr(owner, name, run)

# Each of these is a moment between two steps.
for owner, names in {
    os: ["mkdir", "rename", "replace", "truncate", "fsync", "unlink", "rmdir"],
    Run: ["lay_out", "make_files", "publish", "finished", "drop"],
    target: ["swap", "rename_new"],
    journal.Journal: ["_append", "add", "end_pass"],
    target.Target: ["discard"],
}.items():
    for name in names:
        counted(owner, name)
arguments = json.loads(sys.argv[5])
if "sharding" in arguments:
    arguments["sharding"] = Sharding(samples=arguments["sharding"])
pack(sys.argv[1], sys.argv[2], workers=2, **arguments)
"""


def make_tree(root: Path, bad: int = 0) -> Path:
    """Makes a tree; `bad` files of it are no images, in its last class."""
    noise = random.Random(5)
    for number in range(SAMPLES):
        file = root / f"class{number % 3}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 30 + number % 7, 40
        Image.frombytes("RGB", size, noise.randbytes(size[0] * size[1] * 3)).save(file)
    for number in range(bad):
        (root / f"class2/{number + 20:03}.jpg").write_bytes(b"<html>no image</html>" * (number + 1))
    return root


def content(folder: Path) -> dict[str, bytes]:
    """Returns the paths and bytes of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "PART_BYTES", 40_000)


def stopped(source: Path, out: Path, steps: int, arguments: dict[str, Any], sync: float) -> bool:
    """Packs in a process that is killed, with its workers, after so many steps; returns whether."""
    given = {n: v.samples if isinstance(v, Sharding) else v for n, v in arguments.items()}
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, source, out, str(steps), str(sync), json.dumps(given)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


@pytest.mark.parametrize("bad", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_again_and_again(tmp_path: Path, case: str, bad: int) -> None:
    name, arguments = CASES[case]
    tree = make_tree(tmp_path / "tree", bad)
    expected, here = tmp_path / "expected", tmp_path / "here"
    expected.mkdir()
    here.mkdir()
    pack(tree, expected / name, **arguments)
    chance = random.Random(case)
    for _ in range(6):
        # 45 to 150 steps make a run, the last of which publish and clean up.
        if not stopped(tree, here / name, chance.randrange(90), arguments, chance.choice([0, 9])):
            break
    if (here / name).exists() and not (here / f"{name}.partial").exists():
        assert content(here) == content(expected)
        with pytest.raises(UsageError, match="exists already"):
            pack(tree, here / name, **arguments)
        return
    report = pack(tree, here / name, **arguments)
    assert content(here) == content(expected)
    assert (report.samples, len(report.bad)) == (SAMPLES, bad)
    assert len(open_dataset(here / name)) == SAMPLES
