"""`fastconv info`: what is in a pack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions

from fastconv.converters import Sharding, pack
from fastconv.converters.writer import WRITERS


@pytest.mark.parametrize("format", WRITERS.names())
def test_the_object(fastconv: Any, images: Path, tmp_path: Path, format: str) -> None:
    (images / "cat/1.txt").write_text("text")
    (images / "empty").mkdir()
    path = tmp_path / "pack"
    sidecars = captions(format=format)
    made = pack(images, path, format=format, sidecars=sidecars)
    done = fastconv("info", path, "--json")
    assert done.code == 0
    answer = done.answer
    assert answer["command"] == "info"
    assert answer["status"] == "done"
    assert (answer["format"], answer["id"], answer["samples"]) == (format, made.id, 5)
    assert answer["classes"] == ["cat", "dog", "empty"]
    assert answer["class_counts"] == {"cat": 3, "dog": 2, "empty": 0}
    assert (answer["labels"], answer["unlabelled"]) == ("class", 0)
    size = sum(file.stat().st_size for file in images.glob("*/*.[pj]*"))
    by_field = {"image": {"samples": 5, "bytes": size}}
    by_field |= {name: {"samples": 1, "bytes": 4} for name in sidecars}
    assert answer["fields"] == [*by_field]
    assert answer["by_field"] == by_field
    assert answer["bytes"] == size + 4 * len(sidecars)
    assert answer["size"] == made.size
    assert answer["formats"] == {"png": 3, "jpg": 2}
    assert answer["width"] == {"min": 8, "median": 9, "max": 10}
    assert answer["height"] == {"min": 6, "median": 6, "max": 6}
    assert answer["settings"] == {}
    assert [shard["samples"] for shard in answer["shards"]] == [5]


def test_for_people(fastconv: Any, images: Path, tmp_path: Path) -> None:
    pack(images, tmp_path / "shards", format="webdataset", sharding=Sharding(samples=2))
    done = fastconv("info", tmp_path / "shards")
    assert (done.code, done.err) == (0, "")
    rows = dict(line.split("  ", 1) for line in done.out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["format"] == "WebDataset"
    assert rows["samples"] == "5"
    assert rows["classes"] == "2: cat (3), dog (2)"
    assert rows["images"] == "PNG 3, JPEG 2"
    assert rows["width"] == "8 to 10, median 9 pixels"
    assert rows["shards"].startswith("3 of ")
    assert rows["shards"].endswith(", 1 to 2 samples")


def test_many_classes_are_not_all_named(fastconv: Any, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"images/c{number:02d}").mkdir(parents=True)
        Image.effect_noise((2, 2 + number), 50).save(tmp_path / f"images/c{number:02d}/1.png")
    pack(tmp_path / "images", tmp_path / "p.h5", options={"layout": "vlen"})
    out = fastconv("info", tmp_path / "p.h5").out
    assert "12: c00 (1)," in out
    assert "... and 4 more" in out
    assert '{"layout": "vlen"}' in out
    assert len(fastconv("info", tmp_path / "p.h5", "--json").answer["classes"]) == 12


def test_packs_of_others_and_folders(fastconv: Any, images: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    pack(images, path)
    os.unlink(f"{path}.index.safetensors")
    answer = fastconv("info", path, "--json").answer
    assert (answer["id"], answer["samples"], answer["labels"]) == ("", 5, "int")
    assert answer["width"] is None
    assert answer["size"] == path.stat().st_size
    answer = fastconv("info", images, "--json").answer
    assert (answer["format"], answer["id"], answer["samples"]) == ("folder", "", 5)
    assert answer["size"] == answer["bytes"]
    os.truncate(path, path.stat().st_size - 2000)
    done = fastconv("info", path, "--json")
    assert (done.code, done.answer["status"]) == (3, "partial")
    assert done.answer["bad"][0]["reason"] == "truncated"


def test_labels_that_are_integers(fastconv: Any, images: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    names = sorted(str(file.relative_to(images)) for file in images.glob("*/*"))
    rows = [f"{name},{number - 1}\n" for number, name in enumerate(names)]
    labels.write_text("file_name,label\n" + "".join(rows))
    pack(images, tmp_path / "p.lmdb", labels=labels)
    out = fastconv("info", tmp_path / "p.lmdb").out
    assert "integers, 1 sample without one" in out
    assert "classes" not in out


def test_a_pack_of_nothing(fastconv: Any, tmp_path: Path) -> None:
    (tmp_path / "p.tar").write_bytes(bytes(10240))
    done = fastconv("info", tmp_path / "p.tar", "--json")
    assert done.code == 0
    assert done.answer["samples"] == 0
    assert done.answer["warnings"] == ["the pack holds no samples (0 records)"]
    assert fastconv("info", tmp_path / "nowhere").code == 2
