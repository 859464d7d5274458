"""`fastconv repair`: what it says, and what it ends with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fastconv.converters import pack
from fastconv.loaders.open import open_pack


@pytest.fixture
def packed(images: Path, tmp_path: Path) -> Path:
    pack(images, tmp_path / "p.tar")
    return tmp_path / "p.tar"


def damage(path: Path, *rows: int) -> None:
    data = bytearray(path.read_bytes())
    for row in rows:
        data[int(open_pack(path).table.offset[0][row]) + 20] ^= 0x10
    path.write_bytes(data)


def test_nothing_to_mend(fastconv: Any, packed: Path, images: Path) -> None:
    done = fastconv("repair", packed, "--from", images)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{packed}: nothing to mend: 5 samples, ")
    answer = fastconv("repair", packed, "--from", images, "--json").answer
    assert (answer["status"], answer["output"], answer["mended"]) == ("done", None, [])


def test_all_is_mended(fastconv: Any, packed: Path, images: Path) -> None:
    whole = packed.read_bytes()
    damage(packed, 2, 3)
    done = fastconv("repair", packed, "--from", images)
    assert (done.code, done.err) == (0, "")
    first, second, last = done.out.splitlines()
    assert (first, second) == ("mended: cat/2.png: corrupt", "mended: dog/0.jpg: corrupt")
    assert last.startswith(f"{packed}: 2 mended (2 from {images}): 5 samples, ")
    assert packed.read_bytes() == whole
    damage(packed, 2)
    done = fastconv("repair", packed, "--from", images, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert fastconv("verify", packed).code == 0


def test_the_object(fastconv: Any, packed: Path, images: Path, tmp_path: Path) -> None:
    damage(packed, 2)
    out = tmp_path / "mended.tar"
    answer = fastconv("repair", packed, "--from", images, "-o", out, "--json").answer
    assert (answer["command"], answer["status"], answer["output"]) == ("repair", "done", str(out))
    assert (answer["pack"], answer["source"], answer["format"]) == (
        str(packed), str(images), "webdataset",
    )  # fmt: skip
    assert (answer["samples"], answer["classes"], answer["bad"]) == (5, ["cat", "dog"], [])
    assert answer["from_source"] == 1
    assert [entry["path"] for entry in answer["mended"]] == ["cat/2.png"]
    assert fastconv("verify", out).code == 0
    assert fastconv("verify", packed).code == 3


def test_what_is_not_mended_is_named(fastconv: Any, packed: Path, images: Path) -> None:
    damage(packed, 2, 3)
    (images / "cat/2.png").unlink()
    done = fastconv("repair", packed, "--from", images)
    assert done.code == 3
    assert done.err.startswith("bad: cat/2.png: vanished: ")
    assert "1 mended (1 from " in done.out
    assert ", 1 could not be: 5 samples" in done.out
    done = fastconv("repair", packed, "--from", images, "--json")
    assert done.code == 1
    assert "nothing was changed" in done.err
    answer = done.answer
    assert (answer["status"], answer["output"]) == ("failed", None)
    assert [entry["path"] for entry in answer["bad"]] == ["cat/2.png"]
    assert answer["error"]["type"] == "RepairFailedError"


def test_much_that_is_mended_is_counted(fastconv: Any, images: Path, tmp_path: Path) -> None:
    for number in range(20):
        (images / f"cat/x{number:02d}.png").write_bytes((images / "cat/1.png").read_bytes())
    pack(images, tmp_path / "p.tar")
    damage(tmp_path / "p.tar", *range(15))
    done = fastconv("repair", tmp_path / "p.tar", "--from", images)
    assert done.code == 0
    assert done.out.count("mended: cat/") == 10
    assert "mended: ... and 5 more, all with --json" in done.out


def test_wrong_usage(fastconv: Any, packed: Path, images: Path, tmp_path: Path) -> None:
    done = fastconv("repair", packed)
    assert (done.code, done.out) == (2, "")
    assert "--from" in done.err
    done = fastconv("repair", packed, "--from", tmp_path / "nowhere", "--json")
    assert (done.code, done.answer["error"]["type"]) == (2, "UsageError")
    done = fastconv("repair", tmp_path / "nowhere", "--from", images)
    assert done.code == 2


def test_what_cannot_be_mended(fastconv: Any, images: Path, tmp_path: Path) -> None:
    pack(images, tmp_path / "p.lmdb")
    os.truncate(tmp_path / "p.lmdb/data.mdb", 9000)
    done = fastconv("repair", tmp_path / "p.lmdb", "--from", images)
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "pack the folder again" in done.err


def test_names_of_classes(fastconv: Any, images: Path, tmp_path: Path) -> None:
    names, out = tmp_path / "names.txt", tmp_path / "named.tar"
    names.write_text("bird\ncat\ndog\n")
    assert fastconv("pack", images, out, "--classes", names).code == 0
    table = tmp_path / "named.tar.index.safetensors"
    whole = table.read_bytes()
    table.unlink()
    done = fastconv("repair", out, "--from", images)
    assert done.code == 1
    assert "if it was packed with --classes, whose names the table alone has, give" in done.err
    assert done.err.count("\n") == 1
    assert fastconv("repair", out, "--from", images, "--classes", names).code == 0
    assert table.read_bytes() == whole
