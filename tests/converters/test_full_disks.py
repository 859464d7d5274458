"""Disks and limits that run out: one clear line, nothing at OUT, and the same command goes on."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import Sharding, convert, pack, repair
from fastconv.converters import plan as plan_module
from fastconv.converters.formats.hdf5 import system_errors
from fastconv.converters.verifying import verify
from fastconv.loaders.errors import FastconvError, UsageError
from fastconv.loaders.open import open_pack
from fastconv.loaders.reader import MappedReader

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lmdb": ("out.lmdb", {}),
    "tar": ("out.tar", {}),
    "shards": ("out", {"format": "webdataset", "sharding": Sharding(samples=9)}),
    "hdf5": ("out.h5", {}),
    "vlen": ("out.h5", {"options": {"layout": "vlen"}}),
    "parquet": ("out.parquet", {}),
    "parquets": ("out", {"format": "parquet", "sharding": Sharding(samples=9)}),
    "tfrecord": ("out.tfrecord", {}),
    "tfrecords": ("out", {"format": "tfrecord", "sharding": Sharding(samples=9)}),
    "recordio": ("out.rec", {}),
    "records": ("out", {"format": "recordio", "sharding": Sharding(samples=9)}),
}
"""What is packed: OUT and arguments."""

COMMANDS = {
    "lmdb": ["out.lmdb"],
    "tar": ["out.tar"],
    "shards": ["out", "--format", "webdataset", "--shard-samples", "9"],
    "hdf5": ["out.h5"],
    "vlen": ["out.h5", "--option", "layout=vlen"],
    "parquet": ["out.parquet"],
    "parquets": ["out", "--format", "parquet", "--shard-samples", "9"],
    "tfrecord": ["out.tfrecord"],
    "tfrecords": ["out", "--format", "tfrecord", "--shard-samples", "9"],
    "recordio": ["out.rec"],
    "records": ["out", "--format", "recordio", "--shard-samples", "9"],
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder of 30 images, more than one part."""
    monkeypatch.setattr(plan_module, "PART_BYTES", 60_000)
    root = tmp_path / "tree"
    for number in range(30):
        file = root / f"class{number % 2}" / f"{number:02}.bmp"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 40), (number, 0, 0)).save(file)
    return root


@contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Sets a limit of this process for a while."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_limits_of_a_files_size(tree: Path, tmp_path: Path, case: str, bad: bool) -> None:
    """At every size something else does not fit: a part, a table, the notes of what is finished."""
    name, arguments = CASES[case]
    if bad:
        (tree / "class1/07.jpg").write_bytes(b"<html>")
    (tmp_path / "expected").mkdir()
    pack(tree, tmp_path / "expected" / name, **arguments)
    largest = max(p.stat().st_size for p in (tmp_path / "expected").rglob("*") if p.is_file())
    failed = 0
    for number in range(8):
        out = tmp_path / f"{number}" / name
        out.parent.mkdir()
        words = None
        try:
            with limited(resource.RLIMIT_FSIZE, largest * (2 * number + 1) // 15):
                pack(tree, out, **arguments)
        except FastconvError as error:
            words = str(error)
        if words is None:
            continue
        failed += 1
        assert "no space left for a file this large" in words
        assert "\n" not in words
        assert os.listdir(out.parent) == []  # so little is soon done again
        pack(tree, out, **arguments)
        assert verify(out).bad == []
    assert failed >= 5


@pytest.mark.parametrize("case", CASES)
def test_limits_of_a_files_size_for_what_mends_and_converts(
    tree: Path, tmp_path: Path, case: str
) -> None:
    """What is there stays as it is, and nothing is left."""
    name, arguments = CASES[case]
    out = tmp_path / "here" / name
    out.parent.mkdir()
    pack(tree, out, **arguments)
    reader = open_pack(out)
    assert isinstance(reader, MappedReader)
    with open(reader.files[0], "r+b") as file:
        file.seek(reader.table.base[0] + int(reader.table.offset[0][0]) + 60)
        file.write(b"\xff")
    files = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    largest = max(map(len, files.values()))
    for number in range(4):
        with limited(resource.RLIMIT_FSIZE, largest * (2 * number + 1) // 8):
            for make in (
                lambda: repair(out, tree),
                lambda: convert(out, tmp_path / "here" / f"new{out.suffix}", **arguments),
            ):
                with pytest.raises(FastconvError) as caught:
                    make()
                assert re.search(": (no space left for a file|File too large)", str(caught.value))
                assert "\n" not in str(caught.value)
                assert {p: p.read_bytes() for p in out.parent.rglob("*") if p.is_file()} == files
    assert repair(out, tree).status == "done"
    assert verify(out).bad == []


@pytest.mark.parametrize("case", CASES)
def test_few_open_files_beside_an_older_pack(tree: Path, tmp_path: Path, case: str) -> None:
    """Nobody is told that the older pack is none, and to be removed."""
    name, *options = COMMANDS[case]
    pack(tree, tmp_path / name, **CASES[case][1])
    before = sorted(os.listdir(tmp_path))
    for limit in (7, 11):
        done = subprocess.run(
            [sys.executable, "-m", "fastconv", "pack", str(tree), str(tmp_path / name), *options,
             "--overwrite", "--workers", "2", "--quiet"],
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        if done.returncode:
            assert "too many open files" in done.stderr.lower()
        assert sorted(set(os.listdir(tmp_path)) - {f"{name}.partial"}) == before
        assert verify(tmp_path / name).bad == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("hdf5", "vlen")])
def test_a_pack_that_cannot_be_looked_at_is_not_called_foreign(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, number: int
) -> None:
    name, arguments = CASES[case]
    pack(tree, tmp_path / name, **arguments)

    def refuse(path: str) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("fastconv.loaders.files.open_file", refuse)
    with pytest.raises(FastconvError, match=os.strerror(number)) as caught:
        pack(tree, tmp_path / name, overwrite=True, **arguments)
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize("words", ["file write failed: errno = 28, buf = 0x5", "errno = 28"])
@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_a_library_that_cannot_write_says_what_the_system_said(
    kind: type[Exception], words: str
) -> None:
    @system_errors("out.h5")
    def write() -> None:
        try:
            raise kind(words)
        finally:
            raise RuntimeError("the file cannot be closed")

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "out.h5")


def test_a_mistake_in_the_use_of_a_library_stays_one() -> None:
    with pytest.raises(RuntimeError, match="no such thing"), system_errors("out.h5"):
        raise RuntimeError("no such thing")
