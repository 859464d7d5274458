"""`fastconv scan`: it says what `fastconv pack` would do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from tests.support import OUTS

from fastconv.converters.writer import WRITERS

Run = Callable[..., Any]


def test_it_says_what_it_found(fastconv: Run, images: Path) -> None:
    (images / "cat" / "Thumbs.db").write_bytes(b"")
    (images / "dog" / "0.txt").write_text("a dog")
    (images / "dog" / "2.png").write_bytes((images / "dog" / "0.jpg").read_bytes())
    (images / "dog" / "empty.png").write_bytes(b"")
    done = fastconv("scan", images)
    assert done.code == 3
    assert done.err.startswith("bad: dog/empty.png: empty: ")
    first, *lines = done.out.splitlines()
    assert first.startswith(f"{images}: 6 images, ")
    place = lines.index("size of the pack:")
    assert lines[:place] == [
        "formats: 3 JPEG, 3 PNG",
        "left out: 1 clutter, 1 .txt",
        "bad: 1",
        "classes: 2",
        "  cat  3",
        "  dog  3",
    ]
    titles = [WRITERS.load(name).title for name in WRITERS.names()]
    assert [line.split()[0] for line in lines[place + 1 :]] == titles


def test_the_object_for_programs(fastconv: Run, images: Path, tmp_path: Path) -> None:
    (images / "dog" / "2.png").write_bytes((images / "dog" / "0.jpg").read_bytes())
    (images / "empty").mkdir()
    done = fastconv("scan", images, "--json")
    assert done.code == 0
    answer = done.answer
    assert (answer["command"], answer["status"], answer["output"]) == ("scan", "done", None)
    assert answer["formats"] == {"png": 3, "jpg": 3}
    assert list(answer["class_counts"].items()) == [("cat", 3), ("dog", 3), ("empty", 0)]
    assert answer["bytes"] == sum(file.stat().st_size for file in images.glob("*/*"))
    for name in OUTS:
        packed = fastconv("pack", images, tmp_path / name, "--json").answer
        assert answer["sizes"][packed["format"]] == packed["size"]
        for key in ("samples", "classes", "fields", "bytes", "bad", "ignored", "warnings"):
            assert answer[key] == packed[key]


def test_one_is_told_as_one(fastconv: Run, tmp_path: Path) -> None:
    for name in ("a/1.png", "a/page"):
        (tmp_path / "tree/a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / "tree" / name, "PNG")
    tree, out = tmp_path / "tree", tmp_path / "out.tar"
    words = "1 file without an image extension looks like an image; use --any-extension\n"
    for command in (
        ("scan", tree), ("pack", tree, out), ("verify", out), ("verify", out, "--sample", 1),
        ("info", out), ("stats", out), ("unpack", out, tmp_path / "files"),
        ("repair", out, "--from", tree), ("merge", out, out, tmp_path / "two.lmdb"),
    ):  # fmt: skip
        done = fastconv(*command)
        assert words in done.err or command[0] not in ("scan", "pack")
        assert re.search(r"(^|[^0-9,])1 (image|sample|file|path is)\b", done.out + done.err), (
            command
        )
        assert not re.search(
            r"(^|[^0-9,])1 (images|samples|files|paths)\b(?!/s)", done.out + done.err
        )


def test_it_selects_as_pack_does(fastconv: Run, images: Path) -> None:
    (images / "cat" / "0.txt").write_text("a cat")
    (images / "cat" / "3").write_bytes((images / "cat" / "0.png").read_bytes())
    answer = fastconv(
        "scan", images, "--sidecar", "txt", "--any-extension", "--no-labels", "--json"
    ).answer
    assert (answer["samples"], answer["classes"], answer["class_counts"]) == (6, [], {})
    assert answer["fields"] == ["image", "txt"]
    assert fastconv("scan", images, "--check", "decode", "--max-pixels", "1").code == 1
    assert fastconv("scan", images, "--no-labels", "--classes", images).code == 2


def test_nothing_to_pack(fastconv: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    done = fastconv("scan", tmp_path, "--json")
    assert done.code == 1
    assert done.err.startswith(f"error: no images found in {tmp_path}")
    assert (done.answer["status"], done.answer["samples"]) == ("failed", 0)
    assert done.answer["ignored"]["extension"] == {".txt": 1}
    assert fastconv("scan", tmp_path / "none", "--json").code == 2


def test_only_some_of_many_classes_are_shown(fastconv: Run, images: Path) -> None:
    for number in range(30):
        (images / f"n{number:02d}").mkdir()
    lines = fastconv("scan", images).out.splitlines()
    shown = [line for line in lines if line.startswith("  n")]
    assert len(shown) == 18
    assert "  ... and 12 more, all with --json" in lines


def test_nothing_is_left_behind(fastconv_process: Run, images: Path, tmp_path: Path) -> None:
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    images.chmod(0o555)
    before = sorted(os.listdir(images))
    done = fastconv_process(
        "scan", images, cwd=tmp_path / "here", env={"TMPDIR": str(tmp_path / "temporary")}
    )
    images.chmod(0o755)
    assert done.code == 0
    assert sorted(os.listdir(images)) == before
    assert os.listdir(tmp_path / "here") == os.listdir(tmp_path / "temporary") == []


def test_a_pipe_of_class_names_is_not_waited_for(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "classes.txt")
    done = fastconv("scan", images, "--classes", tmp_path / "classes.txt")
    assert done.code == 2
    assert "no such pack or file of class names" in done.err
