"""`fastconv pack`: what it says, and what it ends with."""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import OUTS

from fastconv.loaders.open import open_pack

Run = Callable[..., Any]

HTML = b"<!DOCTYPE html><html>404</html>"


def contents(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_it_says_what_it_packed(fastconv: Run, images: Path, tmp_path: Path) -> None:
    (images / ".hidden").write_bytes(b"")
    for name in ("a.txt", "b.txt", "c"):
        (images / "cat" / name).write_bytes(b"")
    out = tmp_path / "out.lmdb"
    done = fastconv("pack", images, out)
    assert (done.code, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    size = r"[\d.]+ kB \(LMDB\), [\d.]+ s, [\d,]+ images/s"
    assert re.fullmatch(rf"{re.escape(str(out))}: 5 images in 2 classes, {size}", first)
    assert rest == ["left out: 1 hidden, 2 .txt, 1 without extension"]
    assert contents(tmp_path) == ["images", "out.lmdb"]


def test_the_object_for_programs(fastconv: Run, images: Path, tmp_path: Path) -> None:
    (images / "cat" / "note.TXT").write_bytes(b"")
    out = tmp_path / "out.h5"
    done = fastconv("pack", images, out, "--json")
    assert (done.code, done.err) == (0, "")
    answer = done.answer
    assert list(answer)[:2] == ["command", "status"]
    assert (answer["command"], answer["status"]) == ("pack", "done")
    assert (answer["output"], answer["format"]) == (str(out), "hdf5")
    assert (answer["samples"], answer["classes"]) == (5, ["cat", "dog"])
    assert (answer["bad"], answer["warnings"]) == ([], [])
    assert answer["ignored"] == {"hidden": 0, "clutter": 0, "extension": {".txt": 1}}
    assert answer["size"] == out.stat().st_size
    assert answer["id"] == open_pack(out).meta.id


def test_quiet_says_nothing_when_all_is_well(fastconv: Run, images: Path, tmp_path: Path) -> None:
    done = fastconv("pack", images, tmp_path / "out.tar", "-q")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_bad_files_are_named_and_the_rest_is_packed(
    fastconv: Run, images: Path, tmp_path: Path
) -> None:
    (images / "dog" / "page.jpg").write_bytes(HTML)
    (images / "dog" / "empty.jpg").write_bytes(b"")
    out = tmp_path / "out.lmdb"
    done = fastconv("pack", images, out, "--quiet")
    assert (done.code, done.out) == (3, "")
    lines = [line.split(": ") for line in done.err.splitlines()]
    assert [line[:3] for line in lines] == [
        ["bad", "dog/empty.jpg", "empty"],
        ["bad", "dog/page.jpg", "not_an_image"],
    ]
    assert all(line[3] for line in lines)
    assert len(open_pack(out)) == 5

    again = fastconv("pack", images, out, "--overwrite", "--json")
    assert (again.code, again.err) == (3, done.err)
    assert again.answer["status"] == "partial"
    listed = (tmp_path / "out.lmdb.bad.jsonl").read_text().splitlines()
    assert again.answer["bad"] == [json.loads(line) for line in listed]
    said = fastconv("pack", images, out, "--overwrite").out.splitlines()
    assert said[-1] == f"bad: 2, listed in {out}.bad.jsonl"


def test_many_bad_files_are_counted(fastconv: Run, images: Path, tmp_path: Path) -> None:
    for number in range(25):
        (images / "cat" / f"bad{number:02d}.png").write_bytes(b"")
    out = tmp_path / "out.lmdb"
    done = fastconv("pack", images, out, "--json")
    lines = done.err.splitlines()
    assert len(lines) == 21
    assert lines[19].startswith("bad: cat/bad19.png: empty: ")
    assert lines[20] == f"bad: ... and 5 more, all in {out}.bad.jsonl"
    assert len(done.answer["bad"]) == 25


def test_strict_publishes_nothing(fastconv: Run, images: Path, tmp_path: Path) -> None:
    (images / "dog" / "page.jpg").write_bytes(HTML)
    out = tmp_path / "out.lmdb"
    done = fastconv("pack", images, out, "--strict", "--json")
    assert done.code == 1
    bad, error = done.err.splitlines()
    assert bad.startswith("bad: dog/page.jpg: not_an_image: ")
    assert error.startswith("error: ")
    assert f"{out}.partial" in error
    answer = done.answer
    assert (answer["status"], answer["samples"]) == ("failed", 0)
    assert answer["error"]["type"] == "PackFailedError"
    assert answer["bad"][0]["path"] == "dog/page.jpg"
    assert not out.exists()


def test_nothing_to_pack(fastconv: Run, tmp_path: Path) -> None:
    source = tmp_path / "images"
    source.mkdir()
    (source / "notes.txt").write_bytes(b"")
    done = fastconv("pack", source, tmp_path / "out.lmdb", "--json")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert done.answer["error"]["type"] == "PackFailedError"
    assert done.answer["ignored"]["extension"] == {".txt": 1}
    assert contents(tmp_path) == ["images"]


def test_wrong_usage_leaves_everything_as_it_is(
    fastconv: Run, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.lmdb"
    assert fastconv("pack", images, out).code == 0
    before = (out / "data.mdb").read_bytes()
    other = tmp_path / "other.h5"
    words = tmp_path / "words.txt"
    words.write_text("cat\n")
    fastconv("pack", images, tmp_path / "plain.lmdb", "--no-labels")
    for arguments, said in (
        ([images, out], "exists already"),
        ([tmp_path / "none", other], "no such folder"),
        ([images, tmp_path / "out.zip"], ".lmdb (lmdb)"),
        ([images, images / "out.lmdb"], "inside the folder"),
        ([images, other, "--shard-size", "1MB"], "not cut into shards"),
        ([images, other, "--shard-size", "1MB", "--shard-samples", "3"], "give one of them"),
        ([images, tmp_path / "s", "--format", "webdataset", "--shard-size", "0"], "positive"),
        ([images, other, "--option", "colour=red"], "no option 'colour'"),
        ([images, other, "--option", "colour"], "NAME=VALUE"),
        ([images, other, "--sidecar", ".txt"], "without the first dot"),
        ([images, other, "--labels", tmp_path / "none.csv"], "no such file"),
        ([images, other, "--no-labels", "--labels", words], "--no-labels"),
        ([images, other, "--classes", tmp_path / "none"], "no such pack or file"),
        ([images, other, "--classes", tmp_path / "plain.lmdb"], "without classes"),
        ([images, other, "--classes", words], "'dog' is not among"),
    ):
        done = fastconv("pack", *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert done.err.startswith("error: ")
        assert said in done.err
        assert done.err.count("\n") == 1
    assert (out / "data.mdb").read_bytes() == before
    assert contents(tmp_path) == ["images", "out.lmdb", "plain.lmdb", "words.txt"]


def test_shards(fastconv: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    done = fastconv("pack", images, f"{out}/", "--format", "webdataset", "--shard-samples", "2")
    assert done.code == 0
    assert contents(out) == [
        "index.safetensors",
        *(f"shards-00000{number}.tar" for number in range(3)),
    ]
    done = fastconv(
        "pack", images, out, "--format", "webdataset", "--shard-size", "1kB", "--overwrite"
    )
    assert done.code == 0
    assert len(contents(out)) == 6


@pytest.mark.parametrize("given", ["a pack", "a folder", "a list"])
def test_classes_of_another_pack(fastconv: Run, images: Path, tmp_path: Path, given: str) -> None:
    training = tmp_path / "training"
    training.mkdir()
    for name in ("ant", "cat", "dog"):
        (training / name).mkdir()
        (training / name / "a.png").write_bytes((images / "cat" / "0.png").read_bytes())
    place = training
    if given == "a pack":
        place = tmp_path / "training.h5"
        assert fastconv("pack", training, place).code == 0
    elif given == "a list":
        place = tmp_path / "classes.txt"
        place.write_text("ant\ncat\n\ndog\n")
    done = fastconv("pack", images, tmp_path / "out.lmdb", "--classes", place, "--json")
    assert done.code == 0
    assert done.answer["classes"] == ["ant", "cat", "dog"]
    assert open_pack(tmp_path / "out.lmdb").table.label.tolist() == [1, 1, 1, 2, 2]
    assert "class" in done.answer["warnings"][0]
    assert done.err == f"warning: {done.answer['warnings'][0]}\n"


def test_what_is_packed(fastconv: Run, images: Path, tmp_path: Path) -> None:
    (images / "cat" / "0.txt").write_text("a cat")
    (images / "cat" / "0.json").write_text("{}")
    (images / "dog" / "0.jpg").rename(images / "dog" / "0.dat")
    (images / "10").mkdir()
    (images / "9").mkdir()
    out = tmp_path / "out.tar"
    done = fastconv(
        "pack", images, out, "--json", "--sidecar", "txt", "--sidecar", "json", "--any-extension",
        "--class-order", "natural", "--check", "decode", "--max-pixels", "100000",
        "--workers", "1",
    )  # fmt: skip
    assert done.code == 0
    assert done.answer["classes"] == ["9", "10", "cat", "dog"]
    assert done.answer["fields"] == ["image", "json", "txt"]
    assert done.answer["samples"] == 5
    plain = fastconv("pack", images, tmp_path / "plain.lmdb", "--no-labels", "--json")
    assert (plain.answer["classes"], plain.answer["samples"]) == ([], 4)


def test_labels_from_a_file(fastconv: Run, images: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    names = [f"cat/{number}.png" for number in range(3)] + ["dog/0.jpg", "dog/1.jpg"]
    lines = [f"{name},{len(name) % 2}" for name in names]
    labels.write_text("\n".join(["file_name,label", *lines]) + "\n")
    out = tmp_path / "out.lmdb"
    assert fastconv("pack", images, out, "--labels", labels).code == 0
    assert open_pack(out).meta.labels == "int"


def test_the_limit_of_pixels(fastconv: Run, images: Path, tmp_path: Path) -> None:
    done = fastconv(
        "pack", images, tmp_path / "out.lmdb", "--check", "decode", "--max-pixels", "50", "--json"
    )
    assert done.code == 3
    assert {bad["reason"] for bad in done.answer["bad"]} == {"too_large"}
    assert done.answer["samples"] == 2


def test_a_name_that_is_not_utf8(fastconv_process: Run, images: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (images / "cat").rename(images / name)
    source, out = tmp_path / name, tmp_path / f"{name}.lmdb"
    images.rename(source)
    done = fastconv_process("pack", source, out, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.answer["classes"] == [name, "dog"]
    assert done.answer["output"] == str(out)


@pytest.mark.parametrize("limit", [6, 7, 8, 9, 10, 12, 14, 24])
def test_few_open_files(fastconv_process: Run, images: Path, tmp_path: Path, limit: int) -> None:
    done = fastconv_process(
        "pack", images, tmp_path / "out.tar", "--workers", "2", "--quiet",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )  # fmt: skip
    made = ["out.tar", "out.tar.index.safetensors"] if done.code == 0 else []
    if done.code:
        assert done.code == 1
        error, *notes = done.err.splitlines()
        assert error.startswith("error: ")
        assert "too many open files" in error.lower()
        made = ["out.tar.partial"] if notes else []
        assert notes == [] or (len(notes) == 1 and "out.tar.partial keeps what is" in notes[0])
    else:
        assert done.err == ""
    assert contents(tmp_path) == ["images", *made]


@pytest.mark.parametrize("out", [out for out in OUTS if not out.endswith((".h5", ".lmdb"))])
def test_what_lies_beside_a_pack_is_named(
    fastconv: Any, images: Path, tmp_path: Path, out: str
) -> None:
    (tmp_path / "packs").mkdir()
    done = fastconv("pack", images, tmp_path / "packs" / out)
    beside = sorted(set(os.listdir(tmp_path / "packs")) - {out})
    indexes = [name for name in beside if not name.endswith(".safetensors")]
    line = f"its table lies beside it: keep {tmp_path}/packs/{out}.index.safetensors too"
    assert beside == sorted([f"{out}.index.safetensors", *indexes])
    assert line + ("; other tools read " if indexes else "") + ", ".join(indexes) in done.out.split(
        "\n"
    )


def test_a_tar_without_its_table_says_what_is_lost(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.tar"
    done = fastconv("pack", images, out)
    assert f"keep {out}.index.safetensors too" in done.out
    Path(f"{out}.index.safetensors").unlink()
    done = fastconv("info", out)
    assert done.code == 0
    assert "its table out.tar.index.safetensors is not beside it" in done.err
    done = fastconv("unpack", out, tmp_path / "restored")
    assert "class names" in done.err
    assert "keep" not in fastconv("pack", images, tmp_path / "out.h5").out


def test_a_selection(fastconv: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    chosen = [
        "--only-classes",
        "cat",
        "--min-size",
        "6",
        "--shuffle",
        "--seed",
        "3",
        "--limit",
        "2",
    ]
    done = fastconv("pack", images, out, *chosen)
    assert done.code == 0
    assert done.err.splitlines() == [
        "note: left out 2 of 5 images of other classes",
        "note: left out 0 of 3 images with a side under 6 pixels",
        "note: shuffled 3 images, seed 3",
        "note: left out 1 of 3 images behind the first 2",
    ]
    assert f"{out}: 2 images in 1 class" in done.out
    again = fastconv("convert", out, tmp_path / "out.h5", "--exclude-duplicates", "--json")
    assert (again.code, again.answer["samples"]) == (0, 2)


def test_a_split(fastconv: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (images / "dog" / "page.jpg").write_bytes(HTML)
    (images / "dog" / "note.txt").touch()
    options = ["--format", "lmdb", "--split", "train=0.5,val=0.5", "--stratify", "--seed", "1"]
    done = fastconv("pack", images, out, *options, "--json")
    assert done.code == 3
    answer = done.answer
    assert (answer["status"], answer["output"], answer["samples"]) == ("partial", str(out), 5)
    assert [one["path"] for one in answer["bad"]] == ["dog/page.jpg"]
    assert answer["ignored"]["extension"] == {".txt": 1}
    for name, one in answer["splits"].items():
        reader = open_pack(out / f"{name}.lmdb")
        assert (one["output"], one["id"]) == (str(out / f"{name}.lmdb"), reader.meta.id)
        assert one["samples"] == len(reader) >= 2
    lines = fastconv("pack", images, out, *options, "--overwrite").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        str(out / "train.lmdb"), str(out / "val.lmdb"), "left out", "bad",
    ]  # fmt: skip
    assert lines[-1] == f"bad: 1, listed in {out}.bad.jsonl"
    for command in ("info", "ls", "verify"):
        shown = fastconv(command, out)
        assert shown.code in (1, 2)
        assert shown.err == (
            f"error: {out}: holds packs (train.lmdb, val.lmdb), and is none itself: name one, "
            f"such as {out}/train.lmdb\n"
        )
    parts = fastconv("convert", out / "train.lmdb", tmp_path / "parts", *options, "--json").answer
    assert list(parts["splits"]) == ["train", "val"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stratify"], "--stratify: needs --split"),
        (["--seed", "3", "--limit", "2"], "--seed: needs --shuffle or --split"),
        (["--split", "a=x"], "--split a=x: write it as train=0.9,val=0.1"),
        (["--split", "a"], "--split a: write it as train=0.9,val=0.1"),
        (["--split", "a=0.1,a=0.2"], "--split: a is there twice"),
        (["--split", "a=0.9,b=0.2"], "the fractions of the splits sum to 1.1"),
        (["--split", "a=1"], "a split makes a folder of packs: name one without .lmdb"),
        (["--shuffle", "--seed", str(2**64)], "seed is 18446744073709551616"),
        (["--only-classes", "cow"], "has no class 'cow': it has cat, dog"),
    ],
)
def test_selections_that_are_refused(
    fastconv: Run, images: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    done = fastconv("pack", images, tmp_path / "out.lmdb", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


def test_sidecars_with_commas(fastconv: Any, images: Path, tmp_path: Path) -> None:
    for ending in ("txt", "json"):
        (images / f"cat/0.{ending}").write_text("{}")
    out = tmp_path / "out.tar"
    options = ["--sidecar", "txt, json", "--json"]
    assert fastconv("pack", images, out, *options).answer["fields"] == ["image", "json", "txt"]
    assert fastconv("scan", images, *options).code == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("out", ["--format", "webdataset"]), ("out", ["--format", "recordio"]), ("out.lmdb", []),
        ("out", ["--format", "lmdb"]),
    ],
)  # fmt: skip
def test_an_empty_folder_is_nothing(
    fastconv: Any, images: Path, tmp_path: Path, name: str, options: list[str]
) -> None:
    out = tmp_path / name
    out.mkdir()
    assert fastconv("pack", images, out, *options).code == 0
    assert fastconv("verify", out).code == 0
    assert not os.path.lexists(f"{out}.partial")
    assert fastconv("pack", images, out, *options).code == 2


@pytest.mark.parametrize("inside", ["file", ".hidden", "folder/"])
def test_a_folder_with_anything_in_it_stays(
    fastconv: Any, images: Path, tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / inside).mkdir() if inside.endswith("/") else (out / inside).touch()
    done = fastconv("pack", images, out, "--format", "webdataset")
    assert (done.code, "exists already" in done.err) == (2, True)
    for link in (tmp_path / "a", tmp_path / "b.tar"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        link.symlink_to("empty")
        assert fastconv("pack", images, link, "--format", "webdataset").code == 2
        assert link.is_symlink()
    monkeypatch.chdir(tmp_path / "empty")
    assert fastconv("pack", images, ".", "--format", "webdataset").code == 2
    assert os.listdir() == []
    (tmp_path / "c.tar").mkdir()  # a file does not take the place of a folder
    assert fastconv("pack", images, tmp_path / "c.tar").code == 2
