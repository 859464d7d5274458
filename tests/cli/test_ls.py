"""`fastconv ls`: every sample on a line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import pack
from fastconv.converters.cli import main
from fastconv.converters.writer import WRITERS


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("format", [*WRITERS.names(), "folder"])
def test_json_lines(fastconv: Any, images: Path, tmp_path: Path, format: str) -> None:
    path = images
    if format != "folder":
        path = tmp_path / "pack"
        pack(images, path, format=format)
    done = fastconv("ls", path, "--json", "--sha256")
    assert done.code == 0
    assert done.out.isascii()
    rows = lines(done.out)
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["key"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["path"] for row in rows[2:4]] == ["cat/2.png", "dog/0.jpg"]
    assert [(row["label"], row["class"]) for row in rows[2:4]] == [(0, "cat"), (1, "dog")]
    for row in rows:
        data = (images / row["path"]).read_bytes()
        assert row["sha256"] == hashlib.sha256(data).hexdigest()
        assert row["fields"] == {row["path"][-3:]: len(data)}
    size = [None, None] if format == "folder" else [10, 6]
    assert [rows[2]["width"], rows[2]["height"]] == size


def test_sidecars_and_no_labels(fastconv: Any, images: Path, tmp_path: Path) -> None:
    (images / "cat/1.txt").write_text("")
    (images / "cat/2.txt").write_text("four")
    pack(images, tmp_path / "p.lmdb", sidecars=("txt",), labels=False)
    rows = lines(fastconv("ls", tmp_path / "p.lmdb", "--json").out)
    assert [set(row["fields"]) for row in rows[:3]] == [{"png"}, {"png", "txt"}, {"png", "txt"}]
    assert [row["fields"].get("txt") for row in rows[:3]] == [None, 0, 4]
    assert {(row["label"], row["class"]) for row in rows} == {(-1, None)}
    assert "sha256" not in rows[0]


def test_the_table(fastconv: Any, images: Path, tmp_path: Path) -> None:
    (images / "cat/1.txt").write_text("text")
    pack(images, tmp_path / "p.h5", sidecars=("txt",))
    size = [(images / f"cat/{n}.png").stat().st_size for n in range(3)]
    out = fastconv("ls", tmp_path / "p.h5").out.splitlines()
    assert out[0].split() == [
        "number",
        "key",
        "path",
        "label",
        "class",
        "fields",
        "width",
        "x",
        "height",
    ]
    assert out[1].split() == ["0", "0", "cat/0.png", "0", "cat", f"png:{size[0]}", "8x6"]
    assert out[2].split() == ["1", "1", "cat/1.png", "0", "cat", f"png:{size[1]}", "txt:4", "9x6"]
    assert len({line.index(" cat") for line in out[1:4]}) == 1
    digest = hashlib.sha256((images / "cat/0.png").read_bytes()).hexdigest()
    out = fastconv("ls", tmp_path / "p.h5", "--sha256").out.splitlines()
    assert out[0].split()[-1] == "sha256"
    assert out[1].split()[-1] == digest


def test_names_that_no_terminal_shows(fastconv: Any, tmp_path: Path) -> None:
    names = [b"new\nline.png", b"\x1b[31m.png", b"latin \xe9.png", "猫.png".encode()]
    for name in names:
        file = tmp_path / "images/c" / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(file)
    pack(tmp_path / "images", tmp_path / "p.tar")
    done = fastconv("ls", tmp_path / "p.tar")
    assert len(done.out.splitlines()) == 5
    assert "\x1b" not in done.out
    assert "c/latin \\xe9.png" in done.out
    assert "c/猫.png" in done.out
    rows = lines(fastconv("ls", tmp_path / "p.tar", "--json").out)
    assert {os.fsencode(row["path"]) for row in rows} == {b"c/" + name for name in names}


def test_more_rows_than_a_block(
    fastconv: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(11):
        (tmp_path / "images/c").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / f"images/c/{number:02d}.png")
    pack(tmp_path / "images", tmp_path / "p.tar")
    monkeypatch.setattr("fastconv.converters.rows.BLOCK", 4)
    out = fastconv("ls", tmp_path / "p.tar").out.splitlines()
    assert len(out) == 12
    assert out[0].startswith("number")
    assert out[11].split()[:3] == ["10", "10", "c/10.png"]
    rows = lines(fastconv("ls", tmp_path / "p.tar", "--json").out)
    assert [row["key"] for row in rows] == [f"{number:02d}" for number in range(11)]


def test_a_reader_that_has_seen_enough(images: Path, tmp_path: Path) -> None:
    pack(images, tmp_path / "p.tar")
    listing = subprocess.Popen(
        [sys.executable, "-m", "fastconv", "ls", str(tmp_path / "p.tar"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert listing.stdout is not None
    listing.stdout.close()  # before anything was written
    _, errors = listing.communicate()
    assert errors == b""
    assert listing.returncode == 0


def test_damaged_records_are_told(fastconv: Any, images: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    pack(images, path)
    os.unlink(f"{path}.index.safetensors")
    os.truncate(path, path.stat().st_size - 2700)
    done = fastconv("ls", path, "--json")
    assert done.code == 3
    assert len(lines(done.out)) == 4
    assert "truncated" in done.err


def test_images_that_cannot_be_read(
    fastconv: Any, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastconv.loaders.formats.folder import FolderReader

    check = FolderReader.check

    def vanishes(self: FolderReader, rows: list[int]) -> None:
        (images / "cat/1.png").unlink(missing_ok=True)
        check(self, rows)

    monkeypatch.setattr(FolderReader, "check", vanishes)
    done = fastconv("ls", images, "--json", "--sha256")
    assert done.code == 3
    assert lines(done.out)[1]["sha256"] is None
    assert "cat/1.png: vanished" in done.err


def test_what_cannot_be_listed(fastconv: Any, tmp_path: Path) -> None:
    done = fastconv("ls", tmp_path / "nowhere", "--json")
    assert done.code == 2
    assert done.answer["error"]["type"] == "PackNotFoundError"
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    done = fastconv("ls", tmp_path / "empty.tar", "--json")
    assert (done.code, done.out) == (0, "")
    assert "0 records" in done.err
    assert main(["ls", "--format", "nothing", str(tmp_path)]) == 2
