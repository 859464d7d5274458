"""What packing would do, told without doing it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions

from fastconv.converters.packing import pack
from fastconv.converters.scanning import scan
from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import UsageError

SUFFIX = {name: WRITERS.load(name).suffixes[0] for name in WRITERS.names()}


def make_tree(root: Path) -> Path:
    for number in range(23):
        folder = root / f"class{number % 3}" / "deeper"
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.effect_noise((30 + 9 * number, 20), 80).convert("RGB")
        picture.save(folder / f"{number}.{('jpg', 'png', 'webp')[number % 3]}")
        if number % 4:
            (folder / f"{number}.txt").write_text("caption " * number)
    return root


def spoil(root: Path) -> None:
    """Adds what cannot be packed, of several kinds, some of it only known from the contents."""
    folder = root / "class1"
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "page.png").write_bytes(b"<!DOCTYPE html>" + b" " * 100_000)
    (folder / "noise.jpg").write_bytes(b"\x07" * 3_000_000)
    (folder / "folder.jpg" / "inner").mkdir(parents=True)
    (folder / "dangling.png").symlink_to("nowhere")
    # A JPEG's frame may lie behind more than 64 KiB of other segments; here there is none.
    segment = b"\xff\xe1\xff\xff" + bytes(65533)
    (folder / "frameless.jpg").write_bytes(b"\xff\xd8" + segment * 3 + b"\xff\xd9" + bytes(9))
    good = (root / "class0" / "deeper" / "0.jpg").read_bytes()
    (folder / "long.jpg").write_bytes(good[:2] + segment * 3 + good[2:])
    (folder / "cut.jpg").write_bytes(good[: len(good) // 2])
    (folder / "cut.txt").write_text("of what is cut")


def total(out: Path) -> int:
    """Returns the bytes of all files of a pack."""
    files = [out, *out.rglob("*"), out.with_name(f"{out.name}.index.safetensors")]
    return sum(file.stat().st_size for file in files if file.is_file())


@pytest.mark.parametrize("format", WRITERS.names())
@pytest.mark.parametrize("check", ["fast", "decode"])
@pytest.mark.parametrize("spoilt", [False, True])
def test_it_tells_what_packing_does(tmp_path: Path, format: str, check: Any, spoilt: bool) -> None:
    source = make_tree(tmp_path / "tree")
    if spoilt:
        spoil(source)
    out = tmp_path / f"out{SUFFIX[format]}"
    sidecars = captions(format=format)
    told = scan(source, check=check, sidecars=sidecars)
    made = pack(source, out, check=check, sidecars=sidecars)
    assert told.status == made.status == ("partial" if spoilt else "done")
    assert (told.samples, told.bytes) == (made.samples, made.bytes)
    assert (told.classes, told.fields) == (made.classes, made.fields)
    assert told.bad == made.bad
    assert told.ignored == made.ignored
    unsized = [line for line in told.warnings if line.startswith("no size of a pack in RecordIO: ")]
    assert len(unsized) == len(sidecars), "which it holds none of"
    assert told.warnings == [*made.warnings, *unsized]
    assert told.sizes[format] == made.size == total(out)
    if not spoilt:
        assert told.formats == {"jpg": 8, "png": 8, "webp": 7}


def test_the_fast_check_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_tree(tmp_path / "tree")
    large = source / "class0" / "large.png"
    large.write_bytes((source / "class1" / "deeper" / "1.png").read_bytes() + bytes(5_000_000))
    read = Counter[str]()
    readv = os.readv

    def counting(fd: int, buffers: Any) -> int:
        done = readv(fd, buffers)
        read[os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))] += done
        return done

    monkeypatch.setattr(os, "readv", counting)
    told = scan(source, sidecars=["txt"])
    assert told.samples == 24
    assert read["large.png"] == 65536
    assert not [name for name in read if name.endswith(".txt")]


def test_a_size_that_cannot_be_known_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_tree(tmp_path / "tree")

    def refuse(*arguments: object) -> None:
        raise UsageError("LMDB holds no value over 4 GiB")

    monkeypatch.setattr(WRITERS.load("lmdb"), "lay_out", refuse)
    told = scan(source)
    assert {*told.sizes} == {*WRITERS.names()} - {"lmdb"}
    assert told.warnings == ["no size of a pack in LMDB: LMDB holds no value over 4 GiB"]


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert scan(tmp_path).status == "failed"
    (tmp_path / "a" / "x.jpg").write_bytes(b"")
    told = scan(tmp_path)
    assert (told.status, told.samples, told.bytes, len(told.bad)) == ("failed", 0, 0, 1)
    assert {*told.sizes.values()} == {0}


@pytest.mark.parametrize("wrong", [{"check": "slow"}, {"workers": 0}, {"class_order": "odd"}])
def test_wrong_arguments(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        scan(tmp_path, **wrong)
    with pytest.raises(UsageError, match="no such folder"):
        scan(tmp_path / "none")
