"""Packing as a whole: the same bytes whatever happened on the way, and nothing lost in silence."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS, captions, needs_captions

from fastconv.converters import PackFailedError, Sharding, pack
from fastconv.converters.report import PackReport
from fastconv.converters.sources.folder import scan
from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import FastconvError, UsageError
from fastconv.loaders.open import open_pack

FORMATS = WRITERS.names()
SHARDED = [name for name in FORMATS if WRITERS.load(name).sharded]
HTML = b"<!DOCTYPE html><html>404</html>"


def content(path: Path) -> dict[str, bytes]:
    """Returns the names and bytes of a pack's files, but for a list of bad files."""
    found = [each for each in path.parent.iterdir() if each.name.startswith(f"{path.stem}.")]
    files = [file for each in [path, *found] for file in [each, *each.rglob("*")] if file.is_file()]
    return {
        str(file.relative_to(path.parent)): file.read_bytes()
        for file in files
        if not file.name.endswith(".bad.jsonl")
    }


def make_tree(root: Path, classes: dict[str, int]) -> Path:
    """Makes images of a few kilobytes, each another one, with captions beside every second."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            file = root / name / f"{number:03d}.{('jpg', 'png')[number % 2]}"
            Image.effect_noise((40, 20 + number % 7), 90).convert("RGB").save(file)
            if number % 2:
                file.with_suffix(".txt").write_text(f"{name} {number}\n" * number)
    return root


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("source") / "tree", {"ant": 5, "bee": 1, "cat": 5})


@pytest.fixture(params=[*FORMATS, *(f"one file in {name}" for name in SHARDED)])
def out(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Returns a format and the name of a pack: every format, those with shards also as one file."""
    name = str(request.param).rpartition(" ")[2]
    return name, f"pack{WRITERS.load(name).suffixes[0]}" if name != request.param else "pack"


Packed = Callable[..., tuple[PackReport, dict[str, bytes]]]


@pytest.fixture
def packed(out: tuple[str, str], tmp_path: Path) -> Packed:
    """Returns what packs a tree."""
    format, out_name = out

    def run(source: Path, name: str, **arguments: Any) -> tuple[PackReport, dict[str, bytes]]:
        folder = tmp_path / name
        folder.mkdir()
        if format in SHARDED and out_name == "pack":
            arguments["sharding"] = Sharding(samples=4)
        sidecars = captions(format=format)
        report = pack(source, folder / out_name, format=format, sidecars=sidecars, **arguments)
        assert not [name for name in os.listdir(folder) if name.endswith(".partial")]
        return report, content(folder / out_name)

    return run


def test_any_number_of_workers_gives_the_same_bytes(tree: Path, packed: Packed) -> None:
    first, one = packed(tree, "one", workers=1)
    again, three = packed(tree, "three", workers=3)
    assert one == three
    assert first.id == again.id
    assert first.samples == 11


BAD = {
    "first": ["ant/000.jpg"],
    "middle": ["ant/003.png"],
    "last": ["cat/004.jpg"],
    "last two, and with them the last shard": ["cat/003.png", "cat/004.jpg", "cat/002.jpg"],
    "class emptied": ["bee/000.jpg"],
    "digits of the keys": ["ant/001.png"],
    "most": [f"ant/00{n}.{e}" for n, e in enumerate(["jpg", "png"] * 2)]
    + ["cat/000.jpg", "cat/001.png"],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_files_leave_no_trace_in_the_pack(
    tree: Path, tmp_path: Path, packed: Packed, bad: list[str]
) -> None:
    damaged, without = tmp_path / "damaged", tmp_path / "without"
    for copy in (damaged, without):
        shutil.copytree(tree, copy)
    for name in bad:
        (damaged / name).write_bytes(HTML)
        (without / name).unlink()
        # The caption goes with its image.
        for copy in (damaged, without):
            (copy / name).with_suffix(".txt").unlink(missing_ok=True)
    report, got = packed(damaged, "got")
    clean, expected = packed(without, "expected")
    assert {(entry.path, entry.reason) for entry in report.bad} == {
        (name, "not_an_image") for name in bad
    }
    assert report.status == "partial"
    assert clean.status == "done"
    assert got == expected
    assert report.id == clean.id


def test_unreadable_sidecar_costs_only_itself(
    tree: Path,
    tmp_path: Path,
    out: tuple[str, str],
    packed: Packed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caption that changes between the scan and the reading is left out; its image stays."""
    needs_captions(format=out[0])
    changed, without = tmp_path / "changed", tmp_path / "without"
    for copy in (changed, without):
        shutil.copytree(tree, copy)
    (without / "ant/001.txt").unlink()
    after_scan(
        monkeypatch, lambda: (changed / "ant/001.txt").write_text("longer than it was" * 100)
    )
    report, got = packed(changed, "got")
    assert [(entry.path, entry.reason) for entry in report.bad] == [("ant/001.txt", "changed")]
    assert report.samples == 11
    monkeypatch.undo()
    _, expected = packed(without, "expected")
    assert got == expected


def after_scan(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Lets something happen to the source when it was listed and not yet read."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        listing = scan(*args, **kwargs)
        change()
        return listing

    monkeypatch.setattr("fastconv.converters.packing.scan", changed)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "vanished"),
    "grown": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "changed"),
    "shrunk": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "changed"),
    "emptied": (lambda path: path.write_bytes(b""), "changed"),
    "a pipe": (fifo, "not_a_regular_file"),
    "a folder": (folder, "not_a_regular_file"),
    "a link to nothing": (link_to_nothing, "vanished"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_files_that_change_during_the_run(
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[Callable[[Path], object], str],
) -> None:
    source = tmp_path / "tree"
    shutil.copytree(tree, source)
    after_scan(monkeypatch, lambda: change[0](source / "cat/002.jpg"))
    report = pack(source, tmp_path / "out.tar")
    assert [(entry.path, entry.reason) for entry in report.bad] == [("cat/002.jpg", change[1])]
    assert report.samples == 10
    listed = (tmp_path / "out.tar.bad.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in listed] == ["cat/002.jpg"]


def test_names_that_lie_about_the_format(tmp_path: Path) -> None:
    """The field is named by the bytes; the path comes back as it was."""
    source = tmp_path / "tree/cat"
    source.mkdir(parents=True)
    for number, kind in enumerate(["PNG", "JPEG", "GIF", "PNG"]):
        Image.new("RGB", (9, 9 + number)).save(source / f"{number}.jpg", kind)
    pack(tmp_path / "tree", tmp_path / "out.tar")
    names = subprocess.run(
        ["tar", "tf", str(tmp_path / "out.tar")], check=True, capture_output=True, text=True
    )
    assert names.stdout.split() == [
        "0.png",
        "0.cls",
        "1.jpg",
        "1.cls",
        "2.gif",
        "2.cls",
        "3.png",
        "3.cls",
    ]
    reader = open_pack(tmp_path / "out.tar")
    assert [reader.table.path(row) for row in range(4)] == [f"cat/{n}.jpg" for n in range(4)]
    assert reader.table.height.tolist() == [9, 10, 11, 12]


def test_large_files_go_through_in_pieces(tmp_path: Path, packed: Packed) -> None:
    source = tmp_path / "tree/cat"
    source.mkdir(parents=True)
    Image.effect_noise((1200, 1100), 90).save(source / "big.bmp")
    Image.effect_noise((9, 9), 90).save(source / "small.bmp")
    with open(source / "big.bmp", "ab") as file:  # bytes after the image are kept too
        file.write(os.urandom(2 << 20))
    (source / "big.txt").write_bytes(os.urandom(3 << 20))
    report, _ = packed(tmp_path / "tree", "out", check="decode")
    assert report.status == "done"
    reader = open_pack(report.output)
    assert bytes(reader.read(0) or b"") == (source / "big.bmp").read_bytes()
    if len(report.fields) > 1:
        assert bytes(reader.read(0, 1) or b"") == (source / "big.txt").read_bytes()
    assert bytes(reader.read(1) or b"") == (source / "small.bmp").read_bytes()
    assert reader.table.width.tolist() == [1200, 9]


def test_nothing_usable_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "tree/cat"
    source.mkdir(parents=True)
    (source / "a.jpg").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    with pytest.raises(PackFailedError, match="LFS") as caught:
        pack(tmp_path / "tree", tmp_path / "out.lmdb")
    assert caught.value.report is not None
    assert [entry.reason for entry in caught.value.report.bad] == ["not_an_image"]
    assert os.listdir(tmp_path) == ["tree"]
    (source / "a.jpg").unlink()
    with pytest.raises(PackFailedError, match="no images found in"):
        pack(tmp_path / "tree", tmp_path / "out.lmdb")
    assert os.listdir(tmp_path) == ["tree"]


def test_strict_publishes_nothing_and_names_what_it_keeps(tree: Path, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    shutil.copytree(tree, source)
    (source / "ant/000.jpg").write_bytes(HTML)
    with pytest.raises(PackFailedError, match=r"out\.h5\.partial"):
        pack(source, tmp_path / "out.h5", strict=True)
    assert not (tmp_path / "out.h5").exists()
    assert (tmp_path / "out.h5.partial").is_dir()
    pack(source, tmp_path / "out.h5")
    assert sorted(os.listdir(tmp_path)) == ["out.h5", "out.h5.bad.jsonl", "tree"]
    (source / "ant/000.jpg").unlink()
    pack(source, tmp_path / "out.h5", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["out.h5", "tree"], (
        "a list of bad files that are no more goes"
    )


@pytest.mark.parametrize("name", OUTS)
def test_overwriting_is_one_step_and_only_when_asked(tree: Path, tmp_path: Path, name: str) -> None:
    other = make_tree(tmp_path / "other", {"x": 2})
    pack(other, tmp_path / name)
    before = content(tmp_path / name)
    with pytest.raises(UsageError, match="exists already"):
        pack(tree, tmp_path / name)
    with pytest.raises(UsageError, match="no such folder"):
        pack(tmp_path / "nowhere", tmp_path / name, overwrite=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackFailedError):
        pack(tmp_path / "empty", tmp_path / name, overwrite=True)
    assert content(tmp_path / name) == before
    old = open_pack(tmp_path / name)
    kept = bytes(old.read(0) or b"")
    pack(tree, tmp_path / name, overwrite=True)
    assert bytes(old.read(0) or b"") == kept, "who has it open keeps the old one"
    assert len(open_pack(tmp_path / name)) == 11


def test_refuses_what_cannot_be_meant(tree: Path, tmp_path: Path) -> None:
    for arguments, words in [
        ({"out": tmp_path / "out.xyz"}, "out.xyz: its ending tells no format"),
        ({"out": tmp_path / "no/such/out.lmdb"}, "no such folder"),
        ({"out": tree / "cat/out.lmdb"}, "lies inside"),
        ({"out": tree / "out.tar"}, "lies inside"),
        ({"out": tmp_path / "out.h5", "sharding": Sharding(bytes=10)}, "not cut into shards"),
        ({"out": tmp_path / "out.tar", "sharding": Sharding(bytes=10)}, "not cut into shards"),
        ({"out": tmp_path / "out.h5", "workers": 0}, "at least one worker"),
        ({"out": tmp_path / "out.h5", "options": {"color": 1}}, "no option 'color'"),
        ({"out": tmp_path / "out.h5", "format": "zip"}, "unknown format"),
        ({"out": tmp_path / "out.h5", "check": "slow"}, "check is"),
        ({"out": tmp_path / "out.h5", "sidecars": "txt"}, r"sidecars is 'txt': give a list"),
        ({"out": tmp_path / "out.h5", "classes": tmp_path}, "classes is .*: give a list"),
        ({"out": tmp_path / "out.tar", "index_for": "dali"}, "index_for is 'dali': give a list"),
        ({"out": tmp_path / "out.h5", "encoding": {"resize": 9}}, "fastconv.converters.Encoding"),
        ({"out": tmp_path / "out.h5", "selection": 5}, "fastconv.converters.Selection"),
        ({"out": tmp_path / "out", "format": "lmdb", "split": 0.5}, "fastconv.converters.Split"),
        ({"out": tmp_path / "out.tar", "sharding": 9}, "fastconv.converters.Sharding"),
    ]:
        with pytest.raises(UsageError, match=words):
            pack(tree, **arguments)  # type: ignore[arg-type]
    holiday = tmp_path / "holiday"
    holiday.mkdir()
    (holiday / "letter.doc").write_text("mine")
    with pytest.raises(UsageError, match="not a pack"):
        pack(tree, holiday, format="webdataset", overwrite=True)
    assert os.listdir(tmp_path) == ["holiday"]


def test_folder_that_is_no_leftover_is_not_touched(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out.h5.partial").mkdir()
    (tmp_path / "out.h5.partial/mine").write_text("mine")
    with pytest.raises(UsageError, match="not made by fastconv"):
        pack(tree, tmp_path / "out.h5")
    assert (tmp_path / "out.h5.partial/mine").read_text() == "mine"


def test_two_runs_into_one_place(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastconv.converters import run

    inside, go_on = threading.Event(), threading.Event()
    publish = run.Run.publish

    def slow(self: run.Run, *args: object) -> None:
        inside.set()
        assert go_on.wait(60)
        publish(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(run.Run, "publish", slow)
    thread = threading.Thread(target=pack, args=(tree, tmp_path / "out.lmdb"))
    thread.start()
    assert inside.wait(60)
    try:
        with pytest.raises(FastconvError, match=f"process {os.getpid()} is making it"):
            pack(tree, tmp_path / "out.lmdb")
    finally:
        go_on.set()
        thread.join()
    assert len(open_pack(tmp_path / "out.lmdb")) == 11
    assert os.listdir(tmp_path) == ["out.lmdb"]


@pytest.mark.parametrize("name", OUTS)
def test_file_size_limit_is_one_clear_line(tree: Path, tmp_path: Path, name: str) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "from fastconv.converters import pack\n"
        "try: pack(sys.argv[1], sys.argv[2])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tree), str(tmp_path / name)],
        capture_output=True,
        text=True,
        env=env,
    )
    assert done.stdout.startswith("FastconvError "), done
    assert "no space left" in done.stdout
    assert name in done.stdout
    assert os.listdir(tmp_path) == []


def test_works_in_an_unguarded_script(tree: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom fastconv.converters import pack\n"
        "print(pack(sys.argv[1], sys.argv[2], workers=3).samples)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(tree), str(tmp_path / "out.h5")],
        capture_output=True,
        text=True,
        env=env,
    )
    assert (done.stdout, done.stderr) == ("11\n", "")


def test_no_space_left(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    out = tmp_path / "out.lmdb"
    words = (
        rf"^{out}: no space left on the device \([0-9,]+ bytes are needed, 4,096 are free\): free"
    )
    with pytest.raises(FastconvError, match=words) as caught:
        pack(tree, out)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("format", ["lmdb", *SHARDED])
def test_overwrite_spares_folders_with_anything_else(
    tree: Path, tmp_path: Path, format: str
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    subprocess.run(["tar", "cf", str(mine / "b.tar"), "-C", str(tree), "ant/000.jpg"], check=True)
    (mine / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a pack"):
        pack(tree, mine, format=format, overwrite=True)
    assert sorted(os.listdir(mine)) == ["b.tar", "thesis.txt"]
    ours = tmp_path / "ours"
    pack(tree, ours, format=format)
    pack(tree, ours, format=format, overwrite=True)
    (ours / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="other files"):
        pack(tree, ours, format=format, overwrite=True)
    assert (ours / "thesis.txt").exists()


BESIDE = [
    *((name, f"{name}.bad.jsonl") for name in OUTS),
    *((name, f"{name}.index.safetensors") for name in OUTS if name not in ("out.h5", "out.lmdb")),
    ("out.tfrecord", "out.tfrecord.idx"),
    ("out.rec", "out.idx"),
    ("out.rec", "out.lst"),
]
"""Names of packs, and of what may lie beside them."""


@pytest.mark.parametrize(("out_name", "name"), BESIDE)
def test_what_lies_beside_is_not_replaced(
    tree: Path, tmp_path: Path, out_name: str, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="in the way"):
            pack(tree, tmp_path / out_name, overwrite=overwrite)
    assert (tmp_path / name / "precious").exists()
    assert os.listdir(tmp_path) == [name]


def test_a_device_is_not_overwritten(tree: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "out.h5"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="device, pipe or socket"):
        pack(tree, pipe, overwrite=True)
    assert os.listdir(tmp_path) == ["out.h5"]


def test_a_folder_is_not_packed_into_itself(tree: Path) -> None:
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="is the folder that is packed"):
            pack(tree, tree, format="lmdb", overwrite=overwrite)
