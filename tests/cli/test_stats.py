"""`fastconv stats`: statistics of the images of a pack or folder."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import pack
from fastconv.converters.cli.stats import skyline
from fastconv.converters.statistics import statistics

NUMBER = r"\d(?:\.\d+)?"
NORMALIZE = rf"Normalize\(mean=\[({NUMBER}, {NUMBER}, {NUMBER})\], std=\[(.*)\]\)"


@pytest.fixture
def copies(images: Path) -> Path:
    """Returns a folder with an image that lies in two classes, and an empty class."""
    (images / "dog/copy.png").write_bytes((images / "cat/1.png").read_bytes())
    (images / "empty").mkdir()
    return images


def test_for_people(fastconv: Any, copies: Path) -> None:
    done = fastconv("stats", copies, "-q")
    assert done.code == 0
    lines = done.out.splitlines()
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in lines[:9])
    assert rows["images"] == "6"
    assert rows["formats"] == "PNG 4, JPEG 2"
    assert rows["classes"] == "3: cat (3), dog (3), empty (0)"
    assert rows["empty"] == "1 class: empty"
    assert rows["duplicates"] == "copies of other images: 1 of 6"
    assert "cat/1.png (cat) = dog/copy.png (dog)" in done.out
    assert re.search(r"width, pixels +8 +9 +10 +█", done.out)
    found = re.fullmatch(NORMALIZE, lines[-1])
    assert found
    pixels = statistics(copies).pixels
    assert pixels is not None
    for text, values in zip(found.groups(), (pixels.mean, pixels.std), strict=True):
        assert [float(v) for v in text.split(", ")] == pytest.approx(values, abs=1e-4)
    assert "warning: 1 image has copies with another label" in done.err


def test_the_object_is_the_report(fastconv: Any, copies: Path, tmp_path: Path) -> None:
    pack(copies, tmp_path / "p.lmdb")
    done = fastconv("stats", tmp_path / "p.lmdb", "--json", "--workers", "1")
    assert done.code == 0
    answer = done.answer
    assert answer["command"] == "stats"
    report = statistics(tmp_path / "p.lmdb", workers=2)
    assert {name: answer[name] for name in report.to_json()} == json.loads(
        json.dumps(report.to_json())
    )
    assert "seconds" not in answer
    assert [len(channel) for channel in answer["pixels"]["levels"]] == [256] * 3
    assert answer["duplicates"]["across_classes"][0]["classes"] == ["cat", "dog"]
    assert (answer["imbalance"], answer["empty_classes"]) == (1, ["empty"])


def test_without_pixels(fastconv: Any, copies: Path, tmp_path: Path) -> None:
    pack(copies, tmp_path / "p.tar")
    done = fastconv("stats", tmp_path / "p.tar", "--no-pixels")
    assert done.code == 0
    assert "Normalize" not in done.out
    assert "copies of other images: 1 of 6" in done.out
    done = fastconv("stats", copies, "--no-pixels")
    assert "duplicates" not in done.out
    assert "note: duplicates were not looked for" in done.err
    assert "width, pixels" in done.out


def test_a_sample(fastconv: Any, copies: Path) -> None:
    done = fastconv("stats", copies, "--sample", "50%", "--seed", "7")
    assert done.code == 0
    assert "3 of them, by chance (seed 7)" in done.out
    assert "note: 3 of 6 images were not read" in done.err
    for wrong in ("0%", "101%", "half", "0"):
        assert fastconv("stats", copies, "--sample", wrong).code == 2


def test_bad_images(fastconv: Any, copies: Path) -> None:
    (copies / "cat/bad.png").write_bytes((copies / "cat/2.png").read_bytes()[:45])
    done = fastconv("stats", copies)
    assert done.code == 3
    assert "bad: cat/bad.png: truncated: " in done.err
    assert re.search(r"^bad +1$", done.out, re.MULTILINE)
    assert re.search(NORMALIZE, done.out)
    for file in copies.glob("*/*"):
        file.write_bytes(b"nothing")
    done = fastconv("stats", copies, "--json")
    assert (done.code, done.answer["status"]) == (1, "failed")
    assert len(done.answer["bad"]) == 7


def test_a_pack_of_nothing(fastconv: Any, tmp_path: Path) -> None:
    (tmp_path / "p.tar").write_bytes(bytes(10240))
    page = tmp_path / "page.html"
    done = fastconv("stats", tmp_path / "p.tar", "--report", page)
    assert done.code == 0
    assert "warning: the pack holds no samples (0 records)" in done.err
    assert "Normalize" not in done.out
    assert "0 images" in page.read_text()
    assert fastconv("stats", tmp_path / "nowhere").code == 2


def test_many_classes_and_copies_are_not_all_named(fastconv: Any, tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / f"images/c{number:02d}"
        folder.mkdir(parents=True)
        for copy in range(1 + number % 2):
            Image.new("L", (3, 3 + number)).save(folder / f"{copy}.png")
    out = fastconv("stats", tmp_path / "images").out
    assert "30: c01 (2), c03 (2), c05 (2), ..., c24 (1), c26 (1), c28 (1)" in out
    assert "copies of other images: 15 of 45" in out
    assert "... and 10 more groups, all with --json" in out
    assert "c01/0.png = c01/1.png" in out


class Elements(HTMLParser):
    """The elements of a page, which are all closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page(fastconv: Any, copies: Path, tmp_path: Path) -> None:
    hostile = copies / "<script>alert(1)<"
    hostile.mkdir()
    (hostile / "&\udcff\u202e.png").write_bytes((copies / "cat/0.png").read_bytes())
    (hostile / "bad.png").write_bytes(b"<b>")
    page = tmp_path / "page.html"
    done = fastconv("stats", copies, "--report", page)
    assert done.code == 3
    assert done.out.endswith(f"report: {page}\n")
    text = page.read_text(encoding="utf-8")
    elements = Elements(text)
    assert not {"script", "img", "iframe", "b"} & {*elements.found}
    assert all(link.startswith(("#", "data:")) for link in elements.links)
    assert elements.found.count("svg") == 1 + 6 + 1  # values of pixels, sizes, classes
    assert re.search(NORMALIZE, text)
    assert "&lt;script&gt;alert(1)&lt;" in text
    ids = ("pixels", "sizes", "classes", "duplicates", "bad", "notes")
    assert [id for id in ids if f'<h2 id="{id}">' not in text] == []
    assert fastconv("stats", copies, "--report", page, "--no-pixels").code == 3
    assert 'id="pixels"' not in page.read_text()
    page.write_text("<!DOCTYPE html><title>fastconv bench: in.tar</title>")
    done = fastconv("stats", copies, "--report", page)
    assert done.code == 2
    assert "is no report of fastconv stats" in done.err
    assert fastconv("stats", copies, "--report", copies / "page.html").code == 2


def test_the_histogram_in_a_word() -> None:
    assert skyline([0, 0, 8, 0, 1, 4, 0]) == "█ ▁▄"
    assert skyline([1000, 1]) == "█▁"
