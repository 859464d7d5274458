"""What `make torture` has found, each as small as it can be."""

from __future__ import annotations

import os
import random
import signal
import sys
import weakref
from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters import Sharding, pack
from fastconv.converters import journal as journal_module
from fastconv.converters import plan as plan_module
from fastconv.converters.cli.interrupts import Interrupted, interruptible
from fastconv.converters.journal import Journal
from fastconv.converters.run import Run
from fastconv.converters.system import sync_path


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder of 40 images, some ten parts."""
    monkeypatch.setattr(plan_module, "PART_BYTES", 40_000)
    noise = random.Random(5)
    for number in range(40):
        file = tmp_path / f"tree/class{number % 2}/{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 20 + number % 7, 40
        Image.frombytes("RGB", size, noise.randbytes(size[0] * size[1] * 3)).save(file)
    return tmp_path / "tree"


def interrupted(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int, run: Callable[[], object]
) -> None:
    """Runs something that is interrupted when a method is called, after so many times."""
    call, left = getattr(owner, name), after

    def stop(*args: Any) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return call(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(KeyboardInterrupt):
            run()


@pytest.mark.parametrize("name", [*OUTS, "vlen.h5"])
@pytest.mark.parametrize("bad", [False, True])
def test_a_run_that_ends_before_it_publishes_has_left_its_parts_where_they_were(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bad: bool
) -> None:
    """Parts that are on the disk are not read again: what is made of them is another file, or makes
    no difference to them."""
    if bad:
        (tree / "class0/3.jpg").write_bytes(b"<html>")
    options = {"layout": "vlen"} if name == "vlen.h5" else None
    expected, out = tmp_path / "expected" / name, tmp_path / "here" / name
    for path in (expected, out):
        path.parent.mkdir()
    pack(tree, expected, options=options)

    interrupted(monkeypatch, Run, "publish", 0, lambda: pack(tree, out, options=options, workers=1))
    journal = Journal(f"{out}.partial")
    last = max(journal.records)
    journal.end_pass(last, glob(f"{out}.partial/pack{last}/data*"))
    journal.close()
    pack(tree, out, options=options)
    assert contents(out.parent) == contents(expected.parent)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the paths and bytes of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_part_that_was_lost_is_not_made_sure_by_the_next_mark(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes a part; the next run finds that, and is stopped before it is done anew."""
    pack(tree, tmp_path / "expected.lmdb")
    out = tmp_path / "out.lmdb"
    interrupted(monkeypatch, Journal, "add", 5, lambda: pack(tree, out, workers=1))
    partial = tmp_path / "out.lmdb.partial"
    journal = Journal(str(partial))
    journal.close()
    assert [*journal.records[0]] == [0, 1, 2, 3, 4]
    start, stop = journal.records[0][2].answer.content["written"][0]
    with (partial / "pack0/data.mdb").open("r+b") as file:
        file.seek(start)
        file.write(bytes(stop - start))
    interrupted(monkeypatch, Journal, "add", 0, lambda: pack(tree, out, workers=1))
    journal = Journal(str(partial))
    assert [*journal.records[0]] == [0, 1, 3, 4]
    assert journal.count == 4
    journal.end_pass(0, [str(partial / "pack0/data.mdb")])  # all that is noted is sure
    journal.close()
    pack(tree, out)
    assert (out / "data.mdb").read_bytes() == (tmp_path / "expected.lmdb/data.mdb").read_bytes()


def test_files_that_are_gone_take_their_parts_with_them(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tree, tmp_path / "expected.lmdb")
    out = tmp_path / "out.lmdb"
    interrupted(monkeypatch, Journal, "add", 5, lambda: pack(tree, out, workers=1))
    partial = tmp_path / "out.lmdb.partial"
    (partial / "pack0/data.mdb").unlink()
    interrupted(monkeypatch, Journal, "add", 1, lambda: pack(tree, out, workers=1))
    journal = Journal(str(partial))
    assert ([*journal.records[0]], journal.count) == ([0], 1)
    journal.end_pass(0, [str(partial / "pack0/data.mdb")])
    journal.close()
    pack(tree, out)
    assert (out / "data.mdb").read_bytes() == (tmp_path / "expected.lmdb/data.mdb").read_bytes()


def test_a_mark_brings_what_a_killed_run_has_written_to_the_disk_too(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts are as they were, in memory: the disk may not have them."""
    (tree / "class1/99.jpg").write_bytes(b"<html>")  # the end of the first pass waits for the mark
    out = tmp_path / "out"
    shards: dict[str, Any] = {"format": "webdataset", "sharding": Sharding(samples=14)}
    interrupted(monkeypatch, Journal, "add", 5, lambda: pack(tree, out, workers=1, **shards))
    synced: list[str] = []

    def noted(path: str) -> None:
        synced.append(path)
        sync_path(path)

    monkeypatch.setattr(journal_module, "SYNC_S", 0)
    monkeypatch.setattr(journal_module, "sync_path", noted)
    partial = tmp_path / "out.partial"
    journal = Journal(str(partial))
    journal.close()
    first = sorted(os.listdir(partial / "pack0"))[0]
    pack(tree, out, workers=1, **shards)
    before_the_notes = synced[: synced.index(str(partial / "plan"))]
    assert str(partial / "pack0" / first) in before_the_notes


def test_what_is_cut_off_does_not_follow_what_is_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "done").write_bytes(b"no record")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Journal(str(tmp_path)).close()
    assert len(synced) == 1
    assert (tmp_path / "done").read_bytes() == b""
    Journal(str(tmp_path)).close()
    assert len(synced) == 1


def test_an_interrupt_where_python_cannot_raise_it_is_not_told_as_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes again; in between nothing is written."""

    class Thing:
        pass

    @interruptible()
    def run() -> None:
        thing = Thing()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
        assert reference() is None
        raise ValueError  # what it is that ends this does not matter

    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    handlers = {number: signal.getsignal(number) for number in (1, 2, 14, 15)}
    try:
        with pytest.raises(Interrupted):
            run()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert lost == []
    assert sys.unraisablehook == lost.append
