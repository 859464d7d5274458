"""Index files, compared with what a look at the data files themselves tells. Whether the tools read
them is seen in tests/interop."""

from __future__ import annotations

import json
import os
import struct
import tarfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters.columns import chosen, constant, decimals, lines, ragged, where
from fastconv.converters.indexes import kinds
from fastconv.converters.indexes.kinds import (
    check_tools,
    every_index,
    index_files,
    missing,
    names_below,
    tools_of,
    with_settings,
    write_files,
    wrong,
)
from fastconv.converters.indexes.pack import IndexedPack
from fastconv.converters.indexes.writing import write_indexes
from fastconv.loaders.errors import UsageError
from fastconv.loaders.open import open_pack

Packed = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of 12 images, with captions beside some of them, one empty."""
    root = tmp_path / "tree"
    for number in range(12):
        file = root / ("cat", "dog")[number % 2] / f"{number:02d}.{('jpg', 'png')[number % 3 == 0]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((10 + number, 9), 70).save(file)
        if number % 4:
            file.with_suffix(".txt").write_bytes(b"caption" * (number % 4 - 1))
    return root


@pytest.fixture
def packed(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packed:
    """Returns what packs the folder under a name. Lines are made five at a time."""
    monkeypatch.setattr("fastconv.converters.indexes.pack.ROWS", 5)

    def make(name: str, format: str | None = None, **settings: Any) -> Path:
        sharding = Sharding(samples=7) if format else None
        pack(tree, tmp_path / name, format=format, sharding=sharding, **settings)
        return tmp_path / name

    return make


def indexed(path: Path) -> IndexedPack:
    reader = open_pack(path)
    return IndexedPack.at(str(path), reader.meta, reader.table)


def members(tar: Path) -> list[list[tarfile.TarInfo]]:
    """Returns the members of each sample."""
    with tarfile.open(tar) as file:
        return [list(group) for _, group in groupby(file, lambda one: one.name.partition(".")[0])]


def wds2idx(tar: Path) -> str:
    """Returns the index that DALI's tool makes of a tar."""
    out = [f"v1.2 {len(members(tar))}"]
    for sample in members(tar):
        parts = [f"{m.name.partition('.')[2]} {m.offset_data} {m.size} {m.name}" for m in sample]
        out.append(" ".join(parts))
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("sidecars", [(), ("txt",)])
@pytest.mark.parametrize("labels", [True, False])
def test_dali_index_of_shards(packed: Packed, labels: bool, sidecars: tuple[str, ...]) -> None:
    out = packed("out", "webdataset", labels=labels, sidecars=sidecars)
    report = write_indexes(out, ["dali"])
    assert report.written == ["out-000000.idx", "out-000001.idx"]
    for tar in out.glob("*.tar"):
        assert tar.with_suffix(".idx").read_text() == wds2idx(tar)


def test_dali_index_with_labels_of_any_length(packed: Packed, tmp_path: Path, tree: Path) -> None:
    labels = [0, -1, 7, 10, -300, 123_456_789_012, -(2**63), 2**63 - 1, 99, 100, 1, 5]
    names = sorted(path.relative_to(tree) for path in tree.rglob("*.[jp][pn]g"))
    rows = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    (tmp_path / "labels.csv").write_text("file_name,label\n" + "\n".join(rows))
    out = packed("out", "webdataset", labels=tmp_path / "labels.csv")
    write_indexes(out, ["dali"])
    for tar in out.glob("*.tar"):
        assert tar.with_suffix(".idx").read_text() == wds2idx(tar)


def test_energon_index_of_shards(packed: Packed) -> None:
    out = packed("out", "webdataset", sidecars=("txt",))
    write_indexes(out, ["energon"])
    for tar in out.glob("*.tar"):
        with tarfile.open(tar) as file:
            file.getmembers()
            end = file.offset
        starts = [sample[0].offset for sample in members(tar)]
        assert np.fromfile(f"{tar}.idx", "<u8").tolist() == [*starts, end]
    info = json.loads((out / ".nv-meta/.info.json").read_bytes())
    assert info == {"shard_counts": {"out-000000.tar": 6, "out-000001.tar": 6}}
    dataset = json.loads((out / ".nv-meta/dataset.yaml").read_bytes())
    assert dataset["sample_type"]["__class__"] == "ImageClassificationSample"
    assert dataset["field_map"] == {"image": "jpg,png", "label": "cls"}


@pytest.mark.parametrize(
    ("sidecars", "name"), [(("txt",), "CaptioningSample"), ((), "ImageSample")]
)
def test_energon_samples_without_labels(
    packed: Packed, sidecars: tuple[str, ...], name: str
) -> None:
    out = packed("out", "webdataset", sidecars=sidecars, labels=False)
    write_indexes(out, ["energon"])
    dataset = json.loads((out / ".nv-meta/dataset.yaml").read_bytes())
    assert dataset["sample_type"]["__class__"] == name


@pytest.mark.parametrize(
    ("name", "energon", "timm"),
    [
        ("pets", "train", "train"),
        ("pets-train", "train", "train"),
        ("Pets_Val2", "val", "validation"),
        ("validation", "val", "validation"),
        ("pets.test", "test", "test"),
        ("latest", "train", "train"),
    ],
)
def test_the_split_is_told_by_the_name(packed: Packed, name: str, energon: str, timm: str) -> None:
    out = packed(name, "webdataset")
    write_indexes(out, ["energon", "timm"])
    shards = [f"{name}-000000.tar", f"{name}-000001.tar"]
    split = json.loads((out / ".nv-meta/split.yaml").read_bytes())
    assert split["split_parts"] == {energon: shards}
    assert json.loads((out / "_info.json").read_bytes())["splits"] == {
        timm: {
            "name": timm, "num_samples": 12, "filenames": shards, "shard_lengths": [6, 6],
            "alt_label": "",
        }
    }  # fmt: skip


@pytest.mark.parametrize(("name", "format"), [("out", "webdataset"), ("out.tar", None)])
def test_wids_index(packed: Packed, name: str, format: str | None) -> None:
    out = packed(name, format)
    (index,) = write_indexes(out, ["wids"]).written
    assert index == ("index.json" if format else "out.json")
    folder = out if format else out.parent
    found = json.loads((folder / index).read_bytes())
    assert found["wids_version"] == 1
    assert found["shardlist"] == [
        {"url": tar.name, "nsamples": len(members(tar)), "filesize": tar.stat().st_size}
        for tar in sorted(folder.glob("*.tar"))
    ]


@pytest.mark.parametrize(("name", "format"), [("out", "tfrecord"), ("out.tfrecord", None)])
def test_tfrecord_index(packed: Packed, name: str, format: str | None) -> None:
    out = packed(name, format, sidecars=("txt",))
    write_indexes(out)
    files = sorted(out.glob("*.tfrecord")) if format else [out]
    for file in files:
        data, place, text = file.read_bytes(), 0, ""
        while place < len(data):
            size = struct.unpack_from("<Q", data, place)[0] + 16
            text += f"{place} {size}\n"
            place += size
        assert Path(f"{file}.idx").read_text() == text


def records(data: bytes) -> list[tuple[int, float]]:
    """Returns where each record of a RecordIO file starts, and its label; none of them is split."""
    place, out = 0, []
    while place < len(data):
        magic, size, _, label = struct.unpack_from("<IIIf", data, place)
        assert magic == 0xCED7230A
        out.append((place, label))
        place += 8 + (size + 3) // 4 * 4
    return out


@pytest.mark.parametrize(("name", "format"), [("out", "recordio"), ("out.rec", None)])
def test_recordio_index_and_list(packed: Packed, name: str, format: str | None) -> None:
    out = packed(name, format)
    write_indexes(out, ["dali"])
    reader = open_pack(out)
    number = before = 0
    joint = ""
    for file in sorted(out.glob("*.rec")) if format else [out]:
        index, listed = "", ""
        for place, label in records(file.read_bytes()):
            index += f"{number}\t{place}\n"
            joint += f"{number}\t{before + place}\n"
            listed += f"{number}\t{label:f}\t{reader.table.path(number)}\n"
            number += 1
        before += file.stat().st_size
        assert file.with_suffix(".idx").read_text() == index
        assert file.with_suffix(".lst").read_text() == listed
    assert ((out if format else out.parent) / "out.idx").read_text() == joint
    assert number == 12


def test_paths_that_a_list_cannot_hold(tmp_path: Path) -> None:
    (tmp_path / "tree/a").mkdir(parents=True)
    for name in (b"a\tb\n.jpg", b"\xff.jpg", "ü.jpg".encode()):
        Image.new("L", (3, 3)).save(os.path.join(os.fsencode(tmp_path), b"tree/a", name))
    pack(tmp_path / "tree", tmp_path / "out.rec")
    write_indexes(tmp_path / "out.rec")
    listed = (tmp_path / "out.lst").read_bytes()
    names = [line.rpartition(b"\t")[2] for line in listed.splitlines()]
    assert sorted(names) == sorted([b"a/a?b?.jpg", b"a/\xff.jpg", "a/ü.jpg".encode()])


# -- writing them for a pack that is there


def test_what_is_there_is_left_alone(packed: Packed) -> None:
    out = packed("out", "webdataset")
    tools = ["dali", "energon", "timm", "wids"]
    first = write_indexes(out, tools)
    assert (first.files, first.tools) == (first.written, tuple(tools))
    assert first.size == sum((out / name).stat().st_size for name in first.files)
    (out / "out-000001.idx").unlink()
    (out / "_info.json").write_text("{}")
    again = write_indexes(out, tools)
    assert again.written == ["out-000001.idx"]
    assert (out / "_info.json").read_text() == "{}"
    assert write_indexes(out, tools).written == []
    assert sorted(os.listdir(out.parent)) == ["out", "tree"]


def test_other_files_are_not_replaced_unasked(packed: Packed) -> None:
    out = packed("out", "webdataset")
    (out / "out-000001.idx").write_text("mine")
    with pytest.raises(UsageError, match=r"out-000001\.idx: is in the way, and not the index of"):
        write_indexes(out, ["dali"])
    assert not (out / "out-000000.idx").exists()
    assert write_indexes(out, ["dali"], overwrite=True).written == [
        "out-000000.idx", "out-000001.idx",
    ]  # fmt: skip


def test_a_pack_in_the_working_folder(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    out = packed("out", "webdataset")
    monkeypatch.chdir(out)
    assert len(write_indexes(".", ["dali"]).written) == 2


def test_an_unfinished_run_of_packing_is_kept(packed: Packed) -> None:
    out = packed("out.tar")
    partial = out.with_name("out.tar.partial")
    partial.mkdir()
    for name in ("lock", "plan"):
        (partial / name).touch()
    with pytest.raises(UsageError, match="holds an unfinished run of packing"):
        write_indexes(out, ["dali"])
    assert (partial / "plan").exists()


def test_a_pack_of_others_has_no_table(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "out.tar", "w") as tar:
        tar.add(tree / "cat/00.png", "0.png")
    with pytest.raises(UsageError, match="has no sample table of fastconv's"):
        write_indexes(tmp_path / "out.tar", ["dali"])


@pytest.mark.parametrize(
    ("name", "format", "tools", "words"),
    [
        ("out.tar", None, [], "name the tools that are to read it, such as --for dali"),
        ("out.tar", None, ["energon"], "energon reads a folder of shards, not a single file"),
        ("out.tar", None, ["timm"], "timm reads a folder of shards, not a single file"),
        ("out", "webdataset", ["mxnet"], "none for mxnet: it reads RecordIO"),
        ("out", "webdataset", ["x\n"], r"index files for dali, energon, timm, wids, none for x\\n"),
        ("out.lmdb", None, [], r"out\.lmdb: LMDB has no index files$"),
        ("out.lmdb", None, ["dali"], "LMDB has no index files, none for dali: it reads Web"),
        ("out.h5", None, ["tensorpack"], "HDF5 has no index files, none for tensorpack"),
    ],
)
def test_what_there_is_no_index_for(
    packed: Packed, name: str, format: str | None, tools: list[str], words: str
) -> None:
    out = packed(name, format)
    with pytest.raises(UsageError, match=words):
        write_indexes(out, tools)


# -- what packing, verifying and mending ask


def test_tools_are_the_formats_own_and_those_asked_for() -> None:
    assert check_tools([], "lmdb", "LMDB") == ()
    assert check_tools(["dali", "dali"], "recordio", "RecordIO") == ("mxnet", "dali")
    assert check_tools(["tfrecord"], "tfrecord", "TFRecord", alone=True) == ("tfrecord",)


def test_a_pack_has_the_index_files_that_are_there(packed: Packed) -> None:
    out = packed("out", "webdataset")
    found = indexed(out)
    assert tools_of(found) == ()
    write_indexes(out, ["dali", "timm"])
    assert tools_of(found) == ("dali", "timm")
    files = index_files(found, tools_of(found))
    assert (
        set(files) == {"out-000000.idx", "out-000001.idx", "_info.json"} < set(every_index(found))
    )
    assert (missing(str(out), files), wrong(str(out), files)) == ([], [])
    (out / "out-000000.idx").unlink()
    (out / "out-000001.idx").write_bytes((out / "out-000001.idx").read_bytes() + b"\n")
    (out / "_info.json").write_text("{}")
    assert tools_of(found) == ("dali", "timm")
    assert missing(str(out), files) == ["out-000000.idx"]
    assert wrong(str(out), files) == ["out-000001.idx"]


def test_what_lies_beside_a_file_may_be_anothers(packed: Packed) -> None:
    one, other = packed("out.tar"), packed("out.rec")
    write_indexes(other)
    assert tools_of(indexed(one)) == ()
    (one.parent / "out.idx").unlink()
    write_indexes(one, ["dali"])
    assert tools_of(indexed(one)) == ("dali",)
    files = index_files(indexed(other), tools_of(indexed(other)))
    assert wrong(str(one.parent), files) == ["out.idx"]


@pytest.mark.parametrize("name", ["out.tar", "out.rec", "out.tfrecord"])
def test_names_are_known_beforehand(packed: Packed, name: str) -> None:
    out = packed(name)
    empty = IndexedPack.empty(str(out), indexed(out).writer)
    assert set(every_index(empty)) == set(every_index(indexed(out)))


def test_settings_are_kept(packed: Packed, tmp_path: Path) -> None:
    out = packed("out", "webdataset")
    write_indexes(out, ["energon"])
    (out / ".nv-meta/split.yaml").write_text("mine")
    files = index_files(indexed(out), ["energon"])
    write_files(str(tmp_path / "copy"), with_settings(files, str(out)))
    assert (tmp_path / "copy/.nv-meta/split.yaml").read_text() == "mine"
    for name in set(files).difference(kinds.SETTINGS):
        assert (tmp_path / "copy" / name).read_bytes() == (out / name).read_bytes()


def test_names_below_a_folder(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "f/g").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    assert sorted(names_below(str(tmp_path))) == ["a/b/c", "a/d", "e", "f/g", "link"]


# -- lines of text


def test_decimals() -> None:
    numbers = [0, 1, -1, 9, 10, -10, 2**63 - 1, -(2**63), 1000]
    column = decimals(np.array(numbers))
    text = lines([column, constant(b"\n", len(numbers))])
    assert text.decode().split() == [str(number) for number in numbers]
    padded = lines([decimals(np.array([0, 7, 12345]), 3), constant(b"\n", 3)])
    assert padded == b"000\n007\n12345\n"


def test_lines_of_some_rows_only() -> None:
    text = np.frombuffer(b"onethree", np.uint8)
    words = ragged(text, np.array([0, 8, 3]), np.array([3, 8, 8]))
    kinds = chosen([b"x", b"", b"long"], np.array([2, 0, 1]))
    some = where(np.array([True, False, True]), [constant(b"+", 3), words])
    assert lines([kinds, *some, constant(b"\n", 3)]) == b"long+one\nx\n+three\n"
    nothing = np.zeros(0, np.int64)
    assert lines([ragged(text, nothing, nothing)]) == b""
