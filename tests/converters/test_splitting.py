"""A split gives a folder of packs, each as one of its samples alone, all of them in one step."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions

from fastconv.converters import (
    Encoding,
    PackFailedError,
    PackReport,
    Selection,
    Sharding,
    Split,
    convert,
    pack,
)
from fastconv.converters import plan as plan_module
from fastconv.converters.report import Progress
from fastconv.converters.writer import WRITERS
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import NotAPackError, UsageError
from fastconv.loaders.open import open_pack

FORMATS = WRITERS.names()
SPLIT = Split(fractions={"train": 0.6, "val": 0.3}, seed=2)
SAMPLES = 40

STOPPED = """
import os, sys
from fastconv.converters import Split, journal, pack, plan, splitting, target
from fastconv.converters.run import Run
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
    Run: ["lay_out", "make_files", "publish", "finished"],
    target: ["swap", "rename_new"],
    journal.Journal: ["_append", "add"],
    target.Target: ["discard"],
    splitting: ["packed", "publish", "take_up"],
}.items():
    for name in names:
        counted(owner, name)
split = Split(fractions={"train": 0.6, "val": 0.3}, seed=2)
pack(
    sys.argv[1], sys.argv[2], format=sys.argv[5], split=split, workers=2,
    overwrite=len(sys.argv) > 6,
)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of three classes, with captions."""
    return make_tree(tmp_path / "tree")


def make_tree(root: Path, seed: int = 5) -> Path:
    noise = random.Random(seed)
    for number in range(SAMPLES):
        file = root / f"class{number % 3}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 30 + number % 7, 40
        Image.frombytes("RGB", size, noise.randbytes(size[0] * size[1] * 3)).save(file)
        if number % 4:
            file.with_suffix(".txt").write_text("word " * number)
    return root


def content(folder: Path) -> dict[str, bytes]:
    """Returns the paths and bytes of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def paths_of(out: Path) -> list[str]:
    table = open_pack(out).table
    return table.paths(0, len(table))


def place(out: Path, format: str, name: str) -> Path:
    """Returns where a split's pack lies."""
    writer = WRITERS.load(format)
    return out / (name if writer.sharded else f"{name}{writer.suffixes[0]}")


@pytest.mark.parametrize("through", ["folder", "pack"])
@pytest.mark.parametrize("format", FORMATS)
def test_each_pack_is_that_of_its_samples_alone(
    tree: Path, tmp_path: Path, format: str, through: str
) -> None:
    held = captions(format=format)
    sharding = Sharding(samples=7) if WRITERS.load(format).sharded else None
    out = tmp_path / "out"
    how: dict[str, Any] = {"format": format, "sharding": sharding, "split": SPLIT}
    if through == "folder":
        report = pack(tree, out, sidecars=held, **how)
    else:
        pack(tree, tmp_path / "in.h5", sidecars=held)
        report = convert(tmp_path / "in.h5", out, **how)
    assert not list(tmp_path.glob("out?*"))
    names = [str(file.relative_to(tree)) for file in sorted(tree.rglob("*.png"))]
    seen: set[str] = set()
    for name, one in report.splits.items():
        made = place(out, format, name)
        mine = paths_of(made)
        assert seen.isdisjoint(mine)
        seen.update(mine)
        copy = tmp_path / f"copy of {name}"
        for path in mine:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            for beside in (tree / path).parent.glob(f"{Path(path).stem}.*"):
                shutil.copy2(beside, (copy / path).parent)
        (tmp_path / "expected").mkdir(exist_ok=True)
        expected = place(tmp_path / "expected", format, name)
        alone = pack(copy, expected, format=format, sidecars=held, sharding=sharding)
        assert {**content(made), "": made.is_file() and made.read_bytes()} == {
            **content(expected), "": expected.is_file() and expected.read_bytes(),
        }  # fmt: skip
        assert (one.id, one.samples, one.size) == (alone.id, alone.samples, alone.size)
        assert one.output == str(made)
    assert (report.status, report.samples) == ("done", len(seen))
    left = len(names) - len(seen)
    assert report.notices == [f"left out {left} of {SAMPLES} images that are in no split"]


def test_options_of_packs_go_with_each(tree: Path, tmp_path: Path) -> None:
    report = pack(
        tree, tmp_path / "out", format="webdataset", split=SPLIT, index_for=["wids"],
        encoding=Encoding(resize="short=16"), selection=Selection(limit=30, shuffle=True),
    )  # fmt: skip
    assert report.samples < 30
    for name in SPLIT.fractions:
        reader = open_pack(tmp_path / "out" / name)
        assert set(reader.table.width.tolist()) <= set(range(10, 17))
        assert any("json" in file.name for file in (tmp_path / "out" / name).iterdir())
    assert report.notices[-1].startswith("val: ")


def test_classes_are_those_of_all(tree: Path, tmp_path: Path) -> None:
    (tree / "one").mkdir()
    shutil.copy(tree / "class0/000.png", tree / "one/single.png")
    report = pack(tree, tmp_path / "out", format="hdf5", split=SPLIT)
    for name in SPLIT.fractions:
        assert open_dataset(tmp_path / f"out/{name}.h5").classes == [
            "class0", "class1", "class2", "one",
        ]  # fmt: skip
    lacking = [
        name for name in SPLIT.fractions if "one/single.png" not in paths_of(
            tmp_path / f"out/{name}.h5")
    ]  # fmt: skip
    words = "1 class has no images and keeps its number: one"
    assert report.warnings == [f"{name}: {words}" for name in lacking]
    assert lacking


def test_the_folder_names_its_packs(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out", format="lmdb", split=SPLIT)
    words = r"holds packs \(train.lmdb, val.lmdb\), and is none itself: name one, such as"
    with pytest.raises(NotAPackError, match=words):
        open_dataset(tmp_path / "out")
    assert json.loads((tmp_path / "out/packs.json").read_text())["split"] == str(SPLIT)


@pytest.mark.parametrize("format", FORMATS)
def test_overwrite_replaces_what_a_split_made_and_nothing_else(
    tree: Path, tmp_path: Path, format: str
) -> None:
    out = tmp_path / "out"
    pack(tree, out, format=format, split=SPLIT)
    with pytest.raises(UsageError, match="exists already"):
        pack(tree, out, format=format, split=SPLIT)
    pack(tree, tmp_path / "expected", format=format, split=Split(fractions={"a": 1}))
    pack(tree, out, format=format, split=Split(fractions={"a": 1}), overwrite=True)
    assert content(out) == content(tmp_path / "expected")
    other = out / "notes.txt"
    other.write_text("mine")
    with pytest.raises(UsageError, match="or holds other files too: it is not overwritten"):
        pack(tree, out, format=format, split=SPLIT, overwrite=True)
    other.unlink()
    if (pack_at := place(out, format, "a")).is_dir():
        (pack_at / "mine").touch()
        with pytest.raises(UsageError, match="or holds other files too: it is not overwritten"):
            pack(tree, out, format=format, split=SPLIT, overwrite=True)


def test_packs_that_only_lie_together_are_not_replaced(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    pack(tree, tmp_path / "mine/a.lmdb")
    with pytest.raises(UsageError, match="a folder that is not a pack"):
        pack(tree, tmp_path / "mine", format="lmdb", split=SPLIT, overwrite=True)


def test_bad_files_are_told_once(tree: Path, tmp_path: Path) -> None:
    for number in range(20):
        (tree / f"class0/bad{number}.jpg").write_bytes(b"<html>" * (number + 1))
    (tree / "class1/zero.png").write_bytes(b"")
    report = pack(
        tree, tmp_path / "out", format="lmdb", split=Split(fractions={"a": 0.5, "b": 0.5})
    )
    plain = pack(tree, tmp_path / "plain.lmdb")

    def told(report: PackReport) -> list[str]:
        return sorted(bad.path for bad in report.bad)

    assert (report.status, told(report)) == ("partial", told(plain))
    assert all(told(one) for one in report.splits.values())
    listed = (tmp_path / "out.bad.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["path"] for line in listed) == told(plain)
    (tree / "class1/zero.png").unlink()
    with pytest.raises(PackFailedError, match=r"bad files?, and --strict allows none") as caught:
        pack(tree, tmp_path / "out", format="lmdb", split=SPLIT, strict=True, overwrite=True)
    assert caught.value.report is not None
    assert caught.value.report.status == "failed"
    assert list(open_dataset(tmp_path / "out/a.lmdb").classes) == ["class0", "class1", "class2"]


@pytest.mark.parametrize(
    ("out", "arguments", "words"),
    [
        ("out.lmdb", {}, r"name one without .lmdb, and give --format lmdb"),
        ("out.tar", {"format": "webdataset"}, r"name one without .tar"),
        ("out", {}, "its ending tells no format"),
        ("out", {"format": "lmdb", "sharding": Sharding(samples=3)}, "is not cut into shards"),
        (
            "out",
            {"format": "lmdb", "split": Split(fractions={"a": 0.99, "b": 1e-9})},
            "b gets none",
        ),
        ("tree/out", {"format": "lmdb"}, "lies inside the folder that is packed"),
    ],
)
def test_what_cannot_be(
    tree: Path, tmp_path: Path, out: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        pack(tree, tmp_path / out, **{"split": SPLIT, **arguments})
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_nothing_to_split(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(PackFailedError, match="no images found"):
        pack(tmp_path / "tree", tmp_path / "out", format="lmdb", split=SPLIT)
    (tmp_path / "tree/a.jpg").touch()
    with pytest.raises(PackFailedError, match="no usable image in") as caught:
        pack(tmp_path / "tree", tmp_path / "out", format="lmdb", split=SPLIT)
    assert caught.value.report is not None
    assert [bad.path for bad in caught.value.report.bad] == ["a.jpg"]


def test_progress_is_that_of_all(tree: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    split = Split(fractions={"a": 0.5, "b": 0.5})
    pack(tree, tmp_path / "out", format="lmdb", split=split, progress=seen.append)
    assert [one.samples for one in seen] == sorted({one.samples for one in seen})
    assert {one.samples_total for one in seen} == {SAMPLES}
    assert (seen[-1].samples, seen[-1].bytes) == (SAMPLES, seen[-1].bytes_total)


def stopped(source: Path, out: Path, steps: int, sync: float, format: str, *more: str) -> bool:
    """Packs in a process that is killed, with its workers, after so many steps; returns whether."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, source, out, str(steps), str(sync), format, *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("format", ["lmdb", "webdataset", "hdf5"])
def test_a_run_that_is_killed_again_and_again(
    tree: Path, tmp_path: Path, format: str, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT is what it was or what it is to be, at any moment."""
    monkeypatch.setattr(plan_module, "PART_BYTES", 40_000)
    (tree / "class1/bad.jpg").write_bytes(b"<html>")
    before: dict[str, bytes] = {}
    here = tmp_path / "here"
    here.mkdir()
    if older:
        pack(make_tree(tmp_path / "old", 6), here / "out", format=format, split=SPLIT)
        before = content(here)
    (tmp_path / "expected").mkdir()
    pack(tree, tmp_path / "expected/out", format=format, split=SPLIT)
    expected = content(tmp_path / "expected")
    chance = random.Random(f"{format} {older}")
    for _ in range(5):
        more = ["overwrite"] if older else []
        killed = stopped(tree, here / "out", chance.randrange(160), chance.choice([0, 9]), format,
                         *more)  # fmt: skip
        now = {n: d for n, d in content(here).items() if not n.startswith("out.partial/")}
        assert now in (before, expected) or (here / "out.partial/publish").exists()
        if not killed or (now == expected and not (here / "out.partial/publish").exists()):
            break
    else:
        report = pack(tree, here / "out", format=format, split=SPLIT, overwrite=older)
        assert [bad.path for bad in report.bad] == ["class1/bad.jpg"]
        assert report.samples == sum(len(open_pack(one.output)) for one in report.splits.values())
    shutil.rmtree(here / "out.partial", ignore_errors=True)  # an empty folder may be left
    assert content(here) == expected


def between(tree: Path, out: Path) -> None:
    """Leaves a run that was killed when its first pack was made."""
    for steps in range(40, 400, 4):
        shutil.rmtree(f"{out}.partial", ignore_errors=True)
        assert stopped(tree, out, steps, 9, "lmdb")
        if Path(f"{out}.partial/splits/val.lmdb.partial/done").exists():
            return
    pytest.fail("no such moment")


def test_packs_that_are_made_are_not_made_again(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "PART_BYTES", 40_000)
    out = tmp_path / "out"
    between(tree, out)
    made = (tmp_path / "out.partial/splits/train.lmdb/data.mdb").stat()
    for arguments, words in (
        ({"split": Split(fractions={"train": 0.6, "val": 0.3})}, "the split was .*, is --split"),
        ({"split": SPLIT, "check": "decode"}, "the check was fast, is decode"),
        ({"split": None}, "the split was .*, is not given"),
    ):
        with pytest.raises(UsageError, match=f"{words}.* begin anew with --restart"):
            pack(tree, out, format="lmdb" if arguments["split"] else "hdf5", **arguments)
    report = pack(tree, out, format="lmdb", split=SPLIT)
    now = (out / "train.lmdb/data.mdb").stat()
    assert (now.st_ino, now.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    fresh = pack(tree, tmp_path / "expected", format="lmdb", split=SPLIT)
    assert content(out) == content(tmp_path / "expected")
    for name in SPLIT.fractions:
        one, other = report.splits[name], fresh.splits[name]
        assert (one.id, one.samples, one.bytes, one.size) == (
            other.id, other.samples, other.bytes, other.size,
        )  # fmt: skip


def test_restart_begins_anew(tree: Path, tmp_path: Path) -> None:
    between(tree, tmp_path / "out")
    other = Split(fractions={"a": 1}, stratify=True)
    lines: list[str] = []
    pack(tree, tmp_path / "out", format="lmdb", split=other, restart=True, notice=lines.append)
    assert lines[-1].startswith("discarded what an unfinished run left")
    assert sorted(content(tmp_path / "out")) == ["a.lmdb/data.mdb", "packs.json"]
    assert not (tmp_path / "out.partial").exists()
