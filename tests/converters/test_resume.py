"""A run that was stopped is taken up by the same call, with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters import Sharding, pack
from fastconv.converters import plan as plan_module
from fastconv.converters.engines.local import Answer
from fastconv.converters.journal import Journal
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import FastconvError, UsageError

SAMPLES = 60
MAGIC = b"\x0a\x23\xd7\xce"
"""Between the records of RecordIO; where it stands in an image, that takes more bytes."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lmdb": ("out.lmdb", {}),
    "tar": ("out.tar", {}),
    "shards": ("out", {"format": "webdataset", "sharding": Sharding(samples=17)}),
    "hdf5": ("out.h5", {}),
    "vlen": ("out.h5", {"options": {"layout": "vlen"}}),
    "parquet": ("out.parquet", {}),
    "parquets": ("out", {"format": "parquet", "sharding": Sharding(samples=17)}),
    "tfrecord": ("out.tfrecord", {}),
    "tfrecords": ("out", {"format": "tfrecord", "sharding": Sharding(samples=17)}),
    "recordio": ("out.rec", {}),
    "records": ("out", {"format": "recordio", "sharding": Sharding(samples=17)}),
}
"""What is packed: OUT and arguments."""

STOPPED = """
import json, os, sys
from fastconv.converters import Sharding, journal, pack, plan, target
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
    """Makes a tree; `bad` files of it are no images, in its last class.

    Behind some images stands what RecordIO must escape, for which it needs a second pass.
    """
    noise = random.Random(5)
    for number in range(SAMPLES):
        file = root / f"class{number % 3}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 30 + number % 7, 40
        Image.frombytes("RGB", size, noise.randbytes(size[0] * size[1] * 3)).save(file)
        if number % 25 == 7:
            data = file.read_bytes()
            file.write_bytes(data + bytes(-len(data) % 4) + MAGIC)
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

    def is_published() -> bool:
        return (here / name).exists() and not (here / f"{name}.partial/publish").exists()

    for _ in range(6):
        # 45 to 150 steps make a run, the last of which publish and clean up.
        if not stopped(tree, here / name, chance.randrange(90), arguments, chance.choice([0, 9])):
            break
        if is_published():  # it was killed while it cleaned up
            break
    if is_published():
        assert content(here) == content(expected)  # nothing but an empty folder may be left
        with pytest.raises(UsageError, match="exists already"):
            pack(tree, here / name, **arguments)
        return
    report = pack(tree, here / name, **arguments)
    assert content(here) == content(expected)
    assert (report.samples, len(report.bad)) == (SAMPLES, bad)
    assert len(open_dataset(here / name)) == SAMPLES


def unfinished(tree: Path, out: Path, steps: int = 40, sync: float = 9, **arguments: Any) -> Path:
    """Returns the OUT.partial of a run that was killed after some parts."""
    assert stopped(tree, out, steps, arguments, sync)
    partial = Path(f"{out}.partial")
    assert (partial / "done").stat().st_size > 0
    return partial


@pytest.mark.parametrize("name", OUTS)
def test_bytes_that_a_power_cut_took_are_written_again(tmp_path: Path, name: str) -> None:
    tree = make_tree(tmp_path / "tree")
    pack(tree, tmp_path / name)
    expected = content_of(tmp_path / name)
    for chance in map(random.Random, range(6)):
        out = tmp_path / f"{chance.random()}-{name}"
        partial = unfinished(tree, out)
        data = next(file for file in (partial / "pack0").iterdir() if file.suffix != ".lock")
        size = data.stat().st_size
        with data.open("r+b") as file:
            for _ in range(2):
                file.seek(chance.randrange(size))
                file.write(bytes(chance.randrange(1, 20_000)))
            file.truncate(chance.choice([size, chance.randrange(size)]))
        if chance.random() < 0.5:  # the last records were not on the disk either
            os.truncate(partial / "done", chance.randrange((partial / "done").stat().st_size))
        pack(tree, out)
        assert content_of(out) == expected


def content_of(out: Path) -> list[bytes]:
    """Returns the bytes of a pack's files, whatever it is called."""
    found = [path for path in out.parent.iterdir() if path.name.startswith(out.name)]
    files = [file for path in found for file in [path, *path.rglob("*")] if file.is_file()]
    return [file.read_bytes() for file in sorted(files)]


@pytest.mark.parametrize("file", ["plan", "done"])
def test_notes_that_are_damaged_are_not_trusted(tmp_path: Path, file: str) -> None:
    tree = make_tree(tmp_path / "tree")
    pack(tree, tmp_path / "expected.h5")
    chance = random.Random(file)
    partial = unfinished(tree, tmp_path / "out.h5")
    shutil.copytree(partial, tmp_path / "kept")
    for _ in range(25):
        shutil.rmtree(partial, ignore_errors=True)
        (tmp_path / "out.h5").unlink(missing_ok=True)
        shutil.copytree(tmp_path / "kept", partial)
        data = bytearray((partial / file).read_bytes())
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        (partial / file).write_bytes(data[: chance.choice([len(data), place])])
        pack(tree, tmp_path / "out.h5")
        assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "expected.h5").read_bytes()


def change_a_file(tree: Path) -> None:
    file = tree / "class0/000.png"
    status = file.stat()
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def add_a_file(tree: Path) -> None:
    shutil.copy(tree / "class0/000.png", tree / "class1/new.png")


def remove_a_file(tree: Path) -> None:
    (tree / "class2/002.png").unlink()


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (change_a_file, {}, "class0/000.png was changed"),
        (add_a_file, {}, "class1/new.png is new"),
        (remove_a_file, {}, "class2/002.png is gone"),
        (None, {"check": "decode"}, "the check was fast, is decode up to 178956970 pixels"),
        (None, {"options": {"layout": "vlen"}}, "option layout was not given, is vlen"),
        (None, {"format": "lmdb"}, "the format was hdf5, is lmdb"),
        (None, {"labels": False}, "the kind of labels was class, is none"),
        (None, {"sidecars": ["txt"]}, r"the fields are others \(txt is new\)"),
    ],
)
def test_what_is_not_as_it_was_is_named_and_never_mixed_in(
    tmp_path: Path, change: Callable[[Path], None] | None, arguments: dict[str, Any], words: str
) -> None:
    # An ending would tell the format.
    given: dict[str, Any] = {"format": "hdf5"} if "format" in arguments else {}
    ending = "" if given else ".h5"
    tree, out = make_tree(tmp_path / "tree"), tmp_path / f"out{ending}"
    partial = unfinished(tree, out, **given)
    before = content(partial)
    if change is not None:
        change(tree)
    with pytest.raises(UsageError, match=f"{words}.*: undo that, or begin anew with --restart"):
        pack(tree, out, **arguments)
    after = content(partial)
    assert {**after, "lock": b""} == {**before, "lock": b""}
    lines: list[str] = []
    pack(tree, out, restart=True, notice=lines.append, **arguments)
    assert lines[0].startswith("discarded what an unfinished run left")
    pack(tree, tmp_path / f"expected{ending}", **arguments)
    assert content_of(out) == content_of(tmp_path / f"expected{ending}")


def test_what_was_bad_is_looked_at_again_when_it_was_mended(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out.lmdb"
    file = tree / "class1/001.png"
    whole = file.read_bytes()
    status = file.stat()
    file.write_bytes(bytes(len(whole)))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(FastconvError, match=r"1 bad file, and --strict allows none"):
        pack(tree, out, strict=True, workers=2)
    file.write_bytes(whole)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    lines: list[str] = []
    report = pack(tree, out, strict=True, notice=lines.append)
    assert (report.samples, report.bad) == (SAMPLES, [])
    assert lines == ["going on with an unfinished run: 19 of 20 parts are done"]


def test_only_the_parts_under_way_are_done_again(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out.lmdb"
    partial = unfinished(tree, out)
    journal = Journal(str(partial))
    journal.close()
    lines: list[str] = []
    pack(tree, out, notice=lines.append)
    assert 0 < journal.count < 20
    assert lines == [f"going on with an unfinished run: {journal.count} of 20 parts are done"]


def test_a_file_that_grew_and_shrank_again_is_another_one(tmp_path: Path) -> None:
    """The clock may have been moved: any other time of a file counts, not only a later one."""
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out.h5"
    unfinished(tree, out)
    os.utime(tree / "class0/003.png", (0, 0))
    with pytest.raises(UsageError, match=r"class0/003\.png was changed"):
        pack(tree, out)


def test_marks_in_the_journal(tmp_path: Path) -> None:
    answer = Answer(3, {"bad": [], "written": [[0, 4]], "digest": 1}, {})
    (tmp_path / "data").write_bytes(b"data")
    (tmp_path / "plan").write_bytes(b"")
    journal = Journal(str(tmp_path))
    journal.add(0, answer, str(tmp_path / "data"))
    journal.end_pass(0, [str(tmp_path / "data")])
    journal.add(1, answer, str(tmp_path / "data"))
    journal.close()
    again = Journal(str(tmp_path))
    again.close()
    assert (again.count, again.complete) == (2, {0})
    assert [again.records[run][3].sure for run in (0, 1)] == [True, False]
