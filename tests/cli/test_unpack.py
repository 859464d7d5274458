"""`fastconv unpack`: what it says, and what it ends with."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fastconv.converters import pack


@pytest.fixture
def packed(images: Path, tmp_path: Path) -> Path:
    pack(images, tmp_path / "p.lmdb")
    return tmp_path / "p.lmdb"


def unsafe(path: Path, images: Path, *names: str) -> Path:
    data = (images / "cat/0.png").read_bytes()
    with tarfile.open(path, "w") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def test_all_comes_back(fastconv: Any, packed: Path, images: Path, tmp_path: Path) -> None:
    done = fastconv("unpack", packed, tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{tmp_path}/out: 5 files, ")
    for file in images.glob("*/*"):
        assert (tmp_path / "out" / file.relative_to(images)).read_bytes() == file.read_bytes()
    assert fastconv("unpack", packed, tmp_path / "again", "-q").out == ""


def test_the_object(fastconv: Any, packed: Path, tmp_path: Path) -> None:
    answer = fastconv("unpack", packed, tmp_path / "out", "--json").answer
    assert (answer["command"], answer["status"]) == ("unpack", "done")
    assert answer["output"] == str(tmp_path / "out")
    assert (answer["format"], answer["samples"], answer["files"]) == ("lmdb", 5, 5)
    assert answer["classes"] == ["cat", "dog"]
    assert (answer["bad"], answer["warnings"]) == ([], [])


def test_a_full_folder(fastconv: Any, packed: Path, tmp_path: Path) -> None:
    (tmp_path / "out/cat").mkdir(parents=True)
    (tmp_path / "out/cat/0.png").write_text("old")
    done = fastconv("unpack", packed, tmp_path / "out", "--json")
    assert done.code == 2
    assert done.answer["status"] == "failed"
    assert done.answer["error"]["type"] == "UsageError"
    assert (tmp_path / "out/cat/0.png").read_text() == "old"
    assert fastconv("unpack", packed, tmp_path / "out", "--overwrite").code == 0
    assert (tmp_path / "out/cat/0.png").stat().st_size > 3


def test_paths_that_lead_out(fastconv: Any, images: Path, tmp_path: Path) -> None:
    path = unsafe(tmp_path / "p.tar", images, "good.png", "../evil.png", "/evil2.png")
    done = fastconv("unpack", path, tmp_path / "out", "--json")
    assert done.code == 3
    assert done.answer["status"] == "partial"
    bad = [(bad["path"], bad["reason"]) for bad in done.answer["bad"]]
    assert bad == [("../evil.png", "unsafe_path"), ("/evil2.png", "unsafe_path")]
    assert os.listdir(tmp_path / "out") == ["good.png"]
    assert not (tmp_path / "evil.png").exists()
    done = fastconv("unpack", path, tmp_path / "other")
    assert "bad: ../evil.png: unsafe_path: " in done.err
    assert "bad: 2, not written" in done.out


def test_nothing_but_bad_paths(fastconv: Any, images: Path, tmp_path: Path) -> None:
    path = unsafe(tmp_path / "p.tar", images, "../evil.png")
    done = fastconv("unpack", path, tmp_path / "out", "--json")
    assert done.code == 1
    assert done.answer["status"] == "failed"
    assert done.answer["error"]["type"] == "UnpackFailedError"
    assert [bad["reason"] for bad in done.answer["bad"]] == ["unsafe_path"]
    assert not (tmp_path / "out").exists()


def test_an_interrupt(
    fastconv: Any, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.write", interrupt)
    done = fastconv("unpack", packed, tmp_path / "out")
    assert done.code == 130
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
