"""`fastconv verify`: what it says, and what it ends with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters import pack
from fastconv.loaders.open import open_pack


@pytest.fixture
def packed(images: Path, tmp_path: Path) -> Path:
    pack(images, tmp_path / "p.tar")
    return tmp_path / "p.tar"


def damage(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def test_a_pack_that_is_well(fastconv: Any, packed: Path, images: Path) -> None:
    done = fastconv("verify", packed, "--decode", "--against", images, "--workers", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{packed}: all is well: 5 samples, ")
    assert f"(checksums, structure, pixels, source {images})" in done.out
    done = fastconv("verify", packed, "--quiet")
    assert (done.code, done.out) == (0, "")


def test_the_object(fastconv: Any, packed: Path) -> None:
    answer = fastconv("verify", packed, "--json").answer
    assert (answer["command"], answer["status"], answer["format"]) == (
        "verify",
        "done",
        "webdataset",
    )
    assert (answer["samples"], answer["classes"]) == (5, ["cat", "dog"])
    assert (answer["bad"], answer["warnings"]) == ([], [])
    assert answer["checked"] == {
        "checksums": True, "structure": True, "pixels": False, "source": None,
    }  # fmt: skip


def test_damage(fastconv: Any, packed: Path) -> None:
    place = int(open_pack(packed).table.offset[0][2])
    damage(packed, place + 20)
    damage(packed, place - 512 + 110)
    done = fastconv("verify", packed, "--json")
    assert done.code == 3
    assert done.answer["status"] == "partial"
    first, second = done.answer["bad"]
    assert (first["path"], first["reason"]) == ("cat/2.png", "corrupt")
    assert "sample 2, key 2" in first["message"]
    assert (second["where"], second["reason"]) == (
        f"p.tar offset {place - 512 + 110}",
        "bad_record",
    )
    assert "path" not in second
    done = fastconv("verify", packed)
    assert "bad: cat/2.png: corrupt: " in done.err
    assert "2 bad" in done.out


def test_much_that_is_bad_is_grouped(fastconv: Any, packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "cat").mkdir(parents=True)
    for number in range(30, 50):
        Image.new("RGB", (3, 3)).save(other / f"cat/{number}.png")
    done = fastconv("verify", packed, "--against", other)
    assert done.code == 3
    lines = done.err.splitlines()
    (note,) = [line for line in lines if not line.startswith("bad: ")]
    assert note.startswith("note: what the pack lacks may be images that --check decode left out")
    assert sum(": missing_part: " in line for line in lines) == 3
    assert sum(": vanished: " in line for line in lines) == 3
    assert lines[-2:] == [
        "bad: ... and 17 more: missing_part, all with --json",
        "bad: ... and 2 more: vanished, all with --json",
    ]
    assert "25 bad" in done.out
    answer = fastconv("verify", packed, "--against", other, "--json").answer
    assert (len(answer["bad"]), answer["status"]) == (25, "partial")


def test_a_pack_without_checksums(fastconv: Any, packed: Path) -> None:
    os.unlink(f"{packed}.index.safetensors")
    done = fastconv("verify", packed, "--json")
    assert done.code == 3
    assert len(done.answer["bad"]) == 1
    assert "cannot tell whether shards or samples are missing" in done.err
    assert "warning: its checksums were not compared" in done.err


def test_what_cannot_be_verified(fastconv: Any, packed: Path, images: Path, tmp_path: Path) -> None:
    done = fastconv("verify", tmp_path / "nowhere", "--json")
    assert (done.code, done.answer["error"]["type"]) == (2, "PackNotFoundError")
    done = fastconv("verify", packed, "--against", tmp_path / "nowhere", "--json")
    assert (done.code, done.answer["error"]["type"]) == (2, "UsageError")
    pack(images, tmp_path / "p.lmdb")
    os.truncate(tmp_path / "p.lmdb/data.mdb", 9000)
    done = fastconv("verify", tmp_path / "p.lmdb")
    assert done.code == 1
    assert "truncated" in done.err
    _, note = done.err.splitlines()
    assert note == (
        "note: what the folder that was packed still has can be mended: "
        f"fastconv repair {tmp_path / 'p.lmdb'} --from SRC"
    )


def test_what_is_only_called_like_an_index_is_not_said_to_be_mended(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.rec"
    pack(images, out)
    index = out.with_suffix(".idx")
    index.write_bytes(b"mine, and of nobody else")
    done = fastconv("verify", out)
    assert done.code == 3
    assert done.err == (
        f"bad: p.idx: bad_record: {out}: p.idx is not the index of this pack, nor what is left of "
        "it: move it away, fastconv index makes its own\n"
    )
    index.unlink()
    assert fastconv("index", out).code == 0
    assert fastconv("verify", out).code == 0


def test_a_quick_look(fastconv: Any, packed: Path) -> None:
    done = fastconv("verify", packed, "--sample", "50%", "--seed", 3)
    assert done.code == 0
    words = "all is well in the 3 of 5 samples that were looked at (seed 3; checksums, table)"
    assert done.out.startswith(f"{packed}: {words}")
    assert done.err == ("note: 2 of 5 samples, and the bytes between samples were not looked at\n")
    answer = fastconv("verify", packed, "--sample", "2", "--json").answer
    assert (answer["samples"], answer["looked_at"], answer["seed"]) == (5, 2, 0)
    assert answer["checked"]["structure"] is False
    assert answer["notices"] == ["3 of 5 samples, and the bytes between samples were not looked at"]
    answer = fastconv("verify", packed, "--json").answer
    assert (answer["looked_at"], answer["seed"]) == (5, None)


def test_a_quick_look_finds_damage(fastconv: Any, packed: Path) -> None:
    damage(packed, int(open_pack(packed).table.offset[0][2]) + 20)
    codes = [fastconv("verify", packed, "--sample", 3, "--seed", seed).code for seed in range(8)]
    assert {*codes} == {0, 3}


@pytest.mark.parametrize("text", ["0", "0%", "101%", "1.5", "-1", "many", "%", "1e3"])
def test_no_quick_look(fastconv: Any, packed: Path, text: str) -> None:
    done = fastconv("verify", packed, f"--sample={text}")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["200%", "100.1%", "0", "0%", "0.0%"])
def test_a_sample_of_none_or_of_more_than_all(fastconv: Any, images: Path, text: str) -> None:
    done = fastconv("verify", images, "--sample", text)
    assert done.code == 2
    assert f"'{text}' is not from 1 to all samples: write 500, or 1%" in " ".join(done.err.split())


@pytest.mark.parametrize("format", ["webdataset", "parquet", "tfrecord", "recordio"])
def test_a_folder_without_files_of_the_format(fastconv: Any, images: Path, format: str) -> None:
    done = fastconv("verify", images, "--format", format)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith(f"error: {images}: not a ")


@pytest.mark.parametrize("out", OUTS)
def test_a_folder_of_packs(fastconv: Any, images: Path, tmp_path: Path, out: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    pack(images, folder / out)
    done = fastconv("verify", folder)
    assert done.code != 0
    one = f"holds a pack, and is none itself: name {folder}/{out}"
    assert done.err == f"error: {folder}: {one}\n"
    for other in ("10.tar", "9.lmdb", ".hidden.rec"):
        pack(images, folder / other)
    several = f"holds packs (10.tar, 9.lmdb, {out}), and is none itself: name one, such as {folder}"
    assert fastconv("verify", folder).err.startswith(f"error: {folder}: {several}/")
