"""Publishing: all or nothing, and a run that is stopped at any moment is made good by the next."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters import pack, system
from fastconv.converters import target as target_module
from fastconv.converters.target import Target
from fastconv.loaders import open as open_module
from fastconv.loaders.errors import (
    FastconvError,
    PackChangedError,
    PackNotFoundError,
    UsageError,
)
from fastconv.loaders.open import open_pack


def make_tree(root: Path, count: int, bad: bool) -> Path:
    (root / "cat").mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (9, 9 + number), (number, count, 7)).save(root / f"cat/{number}.png")
    if bad:
        (root / "cat/bad.png").write_bytes(b"<html>")
    return root


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "old", 3, bad=True)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "new", 5, bad=False)


def content(folder: Path) -> dict[str, bytes]:
    """Returns the paths and bytes of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def images(out: Path) -> list[bytes]:
    reader = open_pack(out)
    return [bytes(reader.read(row) or b"") for row in range(len(reader))]


KILLED = """
import os, sys
from fastconv.converters import pack, target
left = int(sys.argv[3])
def counted(call):
    def run(*paths):
        global left
        if not left:
            os._exit(9)
        left -= 1
        call(*paths)
    return run
target.swap, target.rename_new = counted(target.swap), counted(target.rename_new)
target.Target.discard = lambda self: os._exit(9)
pack(sys.argv[1], sys.argv[2], overwrite=sys.argv[4] == "overwrite")
"""


MOVES = {"out.lmdb": 2, "out.tar": 3, "out.parquet": 3, "out.tfrecord": 4, "out.rec": 5}
"""How many files change places: the list of bad files, the table, index files, the pack."""
KILLS = [(name, moves) for name, most in MOVES.items() for moves in range(most + 1)]


def killed(source: Path, out: Path, moves: int, overwrite: bool) -> None:
    """Packs, and is killed when so many files have been moved."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(out), str(moves),
         "overwrite" if overwrite else ""],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )  # fmt: skip
    assert done.returncode == 9


@pytest.mark.parametrize(("name", "moves"), KILLS)
def test_an_overwriting_run_killed_between_its_moves(
    old: Path, new: Path, tmp_path: Path, name: str, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_module, "PATIENCE_S", 0.1)
    folder, expected = tmp_path / "here", tmp_path / "expected"
    folder.mkdir()
    expected.mkdir()
    pack(new, expected / name)
    pack(old, folder / name)
    before = images(folder / name)
    killed(new, folder / name, moves, overwrite=True)
    if 2 <= moves < MOVES[name]:  # its table has been moved, and itself not yet
        with pytest.raises(PackChangedError, match="run the same fastconv pack again"):
            open_pack(folder / name)
    else:
        assert images(folder / name) in (before, images(expected / name))
    pack(new, folder / name, overwrite=True)
    assert content(folder) == content(expected)
    assert os.listdir(folder).count(f"{name}.partial") == 0


@pytest.mark.parametrize(("name", "moves"), KILLS)
def test_a_first_run_killed_between_its_moves(
    old: Path, tmp_path: Path, name: str, moves: int
) -> None:
    folder, expected = tmp_path / "here", tmp_path / "expected"
    folder.mkdir()
    expected.mkdir()
    pack(old, expected / name)
    out = folder / name
    killed(old, out, moves, overwrite=False)
    if moves < MOVES[name]:
        with pytest.raises(PackNotFoundError):
            open_pack(out)
    lines: list[str] = []
    pack(old, out, notice=lines.append)  # the same command, which was not told to overwrite
    assert content(folder) == content(expected)
    assert len(lines) == (moves < MOVES[name])
    with pytest.raises(UsageError, match="exists already"):
        pack(old, out)


def test_what_a_killed_run_made_is_whole_before_the_next_one_is(
    old: Path, new: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.tar"
    pack(old, out)
    killed(new, out, 2, overwrite=True)
    lines: list[str] = []
    Target(str(out), lines.append).discard()
    assert lines == [f"{out}: published what a killed run had begun to publish"]
    reader = open_pack(out)
    assert (len(reader), reader.meta.classes, reader.notices) == (5, ("cat",), [])
    assert sorted(os.listdir(tmp_path)) == ["new", "old", "out.tar", "out.tar.index.safetensors"]


def test_what_came_to_out_since_is_not_touched(old: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    killed(old, out, 2, overwrite=False)
    out.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        pack(old, out)
    Target(str(out), lambda line: None).discard()
    assert out.read_text() == "mine"


@pytest.mark.parametrize("journal", [b"", b'{".bad.js', b"[1]", b'{"": 1}', b'{"/x": [1, 2]}'])
def test_a_journal_that_was_not_finished(new: Path, tmp_path: Path, journal: bytes) -> None:
    out = tmp_path / "out.h5"
    (tmp_path / "out.h5.partial").mkdir()
    (tmp_path / "out.h5.partial/lock").write_text("1")
    (tmp_path / "out.h5.partial/publish").write_bytes(journal)
    assert pack(new, out).samples == 5
    assert sorted(os.listdir(tmp_path)) == ["new", "out.h5"]


def failing_at(calls: dict[int, int], call: Callable[..., None]) -> Callable[..., None]:
    """Returns a function whose numbered calls fail with an errno."""
    count = 0

    def run(*paths: str) -> None:
        nonlocal count
        count += 1
        if count in calls:
            raise OSError(calls[count], os.strerror(calls[count]), paths[1])
        call(*paths)

    return run


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_move_that_fails_undoes_the_others(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    out = tmp_path / "out.tar"
    pack(old, out)
    before = content(tmp_path)
    swap = failing_at({call: errno.EPERM}, system.swap)
    monkeypatch.setattr(target_module, "swap", swap)
    with pytest.raises(FastconvError, match="nothing was made"):
        pack(new, out, overwrite=True)
    assert content(tmp_path) == before


def test_a_move_that_cannot_be_undone_is_finished_by_the_next_run(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tar"
    pack(old, out)
    swap = failing_at({3: errno.EPERM, 4: errno.EIO}, system.swap)
    monkeypatch.setattr(target_module, "swap", swap)
    with pytest.raises(FastconvError, match="was published in part"):
        pack(new, out, overwrite=True)
    monkeypatch.undo()
    Target(str(out), lambda line: None).discard()
    assert len(open_pack(out)) == 5
    assert sorted(os.listdir(tmp_path)) == ["new", "old", "out.tar", "out.tar.index.safetensors"]


def test_file_systems_that_cannot_exchange(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_renameat2", lambda *arguments: False)
    for name in OUTS:
        pack(old, tmp_path / name)
        pack(new, tmp_path / name, overwrite=True)
        assert len(open_pack(tmp_path / name)) == 5
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("one")
    other.write_text("other")
    monkeypatch.setattr(os, "rename", failing_at({2: errno.EPERM}, os.rename))
    with pytest.raises(PermissionError):
        system.exchange(str(one), str(other))
    assert (one.read_text(), other.read_text()) == ("one", "other")


@pytest.mark.parametrize("kind", ["link", "link to nothing", "file"])
def test_what_is_no_folder_of_ours_is_refused_and_stays(
    new: Path, tmp_path: Path, kind: str
) -> None:
    partial = tmp_path / "out.h5.partial"
    if kind == "file":
        partial.write_text("mine")
    else:
        partial.symlink_to(tmp_path / "elsewhere")
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UsageError, match="was not made by fastconv"):
        pack(new, tmp_path / "out.h5")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("renames", [True, False])
def test_a_folder_takes_the_place_of_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    if not renames:
        monkeypatch.setattr(system, "_renameat2", lambda *arguments: False)
    source, place = tmp_path / "source", tmp_path / "place"
    source.mkdir()
    (source / "file").touch()
    place.mkdir()
    (place / "mine").touch()
    with pytest.raises(FileExistsError):
        system.rename_new(str(source), str(place))
    (place / "mine").unlink()
    system.rename_new(str(source), str(place))
    assert (os.listdir(place), source.exists()) == (["file"], False)


def test_what_comes_into_an_empty_folder_meanwhile_stays(
    new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rename = os.rename

    def late(source: str, target: str) -> None:
        if target == str(out):
            (out / "mine").touch()
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(UsageError, match="exists already"):
        pack(new, out, format="webdataset")
    assert os.listdir(out) == ["mine"]
    assert not os.path.lexists(f"{out}.partial/publish")


def test_a_run_killed_before_it_took_the_place_of_an_empty_folder(
    new: Path, tmp_path: Path
) -> None:
    for name, moves in (("0.lmdb", 0), ("1.lmdb", 1), ("2.lmdb", 2)):
        out = tmp_path / name
        out.mkdir()
        killed(new, out, moves, overwrite=False)
        pack(new, out)
        assert len(open_pack(out)) == 5
        assert not os.path.lexists(f"{out}.partial")


@pytest.mark.parametrize("call", ["rmdir", "unlink"])
def test_a_clean_up_that_fails_is_no_failure(
    new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    out, lines = tmp_path / "out.h5", list[str]()

    def refuse(path: Any, **more: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(os, call, refuse)
    assert pack(new, out, notice=lines.append).samples == 5
    monkeypatch.undo()
    assert len(open_pack(out)) == 5
    assert lines == [
        f"{out}.partial: cannot be removed (Operation not permitted): remove it yourself"
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_is_published(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    out, lines = tmp_path / "out.tar", list[str]()
    pack(old, out)
    swap = system.swap

    def signalled(*paths: str) -> None:
        signal.raise_signal(number)
        swap(*paths)

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target_module, "swap", signalled)
    handler = signal.signal(number, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            pack(new, out, overwrite=True, notice=lines.append)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, handler)
    assert len(open_pack(out)) == 5
    assert lines == [f"{out}: was published before the run was interrupted"]
    assert sorted(os.listdir(tmp_path)) == ["new", "old", "out.tar", "out.tar.index.safetensors"]
