"""Index files that packing writes in the same pass; what verifying and mending do about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import Sharding, convert, pack, repair
from fastconv.converters.indexes.writing import write_indexes
from fastconv.converters.target import Target
from fastconv.converters.verifying import verify
from fastconv.loaders.errors import UsageError

TOOLS = ["dali", "energon", "timm", "wids"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of 9 images."""
    for number in range(9):
        file = tmp_path / f"tree/{('cat', 'dog')[number % 2]}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((20 + number, 9), 70).save(file)
    return tmp_path / "tree"


def shards(tree: Path, name: str, format: str = "webdataset", **settings: Any) -> Path:
    out = tree.parent / name
    report = pack(tree, out, format=format, sharding=Sharding(samples=4), **settings)
    assert report.status == "done"
    return out


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_same_as_those_written_later(tree: Path) -> None:
    now = shards(tree, "out", index_for=TOOLS)
    (tree.parent / "later").mkdir()
    later = shards(tree, "later/out")
    assert write_indexes(later, TOOLS).written
    assert contents(now) == contents(later)
    assert write_indexes(now, TOOLS).written == []
    assert verify(now).status == "done"


def test_convert_writes_them_too(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out.lmdb")
    convert(
        tmp_path / "out.lmdb", tmp_path / "two", format="webdataset",
        sharding=Sharding(samples=4), index_for=["dali"],
    )  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "two").glob("*.idx")) == [
        "two-000000.idx", "two-000001.idx", "two-000002.idx",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "beside"),
    [("out.rec", {"out.idx", "out.lst"}), ("out.tfrecord", {"out.tfrecord.idx"})],
)
def test_a_single_file_has_its_formats_own(tree: Path, name: str, beside: set[str]) -> None:
    out = tree.parent / name
    pack(tree, out)
    assert set(os.listdir(tree.parent)) == {"tree", name, f"{name}.index.safetensors", *beside}
    before = contents(tree.parent)
    (tree / "cat/0.png").rename(tree / "cat/8a.png")
    pack(tree, out, overwrite=True)
    after = contents(tree.parent)
    assert set(before) - {"tree/cat/0.png"} == set(after) - {"tree/cat/8a.png"}
    assert all(before[other] != after[other] for other in beside)
    assert verify(out).notices == []


def test_what_is_in_the_way_is_spared(tree: Path) -> None:
    out = tree.parent / "out.rec"
    pack(tree, out.with_suffix(".tar"), index_for=["dali"])
    with pytest.raises(UsageError, match=r"out\.idx: is in the way, and not the index of"):
        pack(tree, out)
    assert not out.exists()


@pytest.mark.parametrize("names", [("out.rec", "out.tar"), ("out.tar", "out.rec")])
def test_the_index_of_a_pack_beside_is_spared(tree: Path, names: tuple[str, str]) -> None:
    old, new = (tree.parent / name for name in names)
    tools = ["dali", "wids"] if new.suffix == ".tar" else ["dali"]
    pack(tree, new)
    for file in tree.parent.glob("out.[il][ds][xt]"):
        file.unlink()
    pack(tree, old, index_for=["dali"])
    before = contents(tree.parent)
    words = rf"out\.idx: is in the way, .*, but perhaps that of {old}: move it away$"
    with pytest.raises(UsageError, match=words):
        write_indexes(new, tools, overwrite=True)
    assert contents(tree.parent) == before
    (tree.parent / "out.idx").rename(tree.parent / "elsewhere")
    report = write_indexes(new, tools, overwrite=True)
    assert (report.output, "out.idx" in report.written) == (str(new), True)


def test_index_files_of_the_pack_before_go(tree: Path) -> None:
    out = tree.parent / "out.tar"
    pack(tree, out, index_for=["dali", "wids"])
    assert {"out.idx", "out.json"} < set(os.listdir(tree.parent))
    pack(tree, out, overwrite=True, index_for=["wids"])
    assert "out.json" in os.listdir(tree.parent)
    assert "out.idx" not in os.listdir(tree.parent)


def test_a_folder_is_replaced_with_them(tree: Path) -> None:
    out = shards(tree, "out", index_for=TOOLS)
    (out / ".nv-meta/dataset.yaml").write_text("mine")
    shards(tree, "out", overwrite=True)
    assert ".nv-meta" not in os.listdir(out)
    write_indexes(out, TOOLS)
    (out / ".nv-meta/loader.py").touch()
    with pytest.raises(UsageError, match="holds other files too"):
        shards(tree, "out", overwrite=True)


def test_index_files_that_went_are_named(tree: Path) -> None:
    lines: list[str] = []
    out = tree.parent / "out.tar"
    pack(tree, out, index_for=["dali", "wids"], notice=lines.append)
    pack(tree, out, index_for=["wids"], overwrite=True, notice=lines.append)
    folder = shards(tree, "out", index_for=TOOLS, notice=lines.append)
    shards(tree, "out", index_for=["timm", "energon"], overwrite=True, notice=lines.append)
    shards(tree, "out", "parquet", overwrite=True, notice=lines.append)
    shards(tree, "out", "recordio", overwrite=True, index_for=["dali"], notice=lines.append)
    shards(tree, "out", "recordio", overwrite=True, notice=lines.append)
    gone = "index files of the pack before went with it"
    assert lines == [
        f"{out}: {gone}: out.idx: fastconv index {out} --for dali makes new ones",
        f"{folder}: {gone}: out-000000.idx, out-000001.idx, out-000002.idx, index.json: "
        f"fastconv index {folder} --for dali,wids makes new ones",
        f"{folder}: {gone}: out-000000.tar.idx, out-000001.tar.idx, out-000002.tar.idx, "
        ".nv-meta/.info.json, .nv-meta/split.yaml and 2 more",
        f"{folder}: {gone}: out.idx: fastconv index {folder} --for dali makes new ones",
    ]


def test_the_index_of_another_pack_is_noted(tree: Path) -> None:
    """Nobody asked for it now, but the tool takes it for this pack's."""
    out, lines = tree.parent / "out.tar", list[str]()
    pack(tree, out, index_for=["dali", "wids"])
    for name in (out.name, f"{out.name}.index.safetensors"):
        (tree.parent / name).unlink()
    (tree / "cat/0.png").unlink()
    before = contents(tree.parent)
    pack(tree, out, notice=lines.append)
    make = f"fastconv index {out} --for"
    assert lines == [
        f"{tree.parent}/out.idx: is the index of another pack: {make} dali --overwrite replaces it",
        f"{tree.parent}/out.json: is the index of another pack: {make} wids --overwrite replaces "
        "it",
    ]
    assert before.items() <= contents(tree.parent).items()
    report = verify(out)
    assert report.status == "done"
    assert [line.split(":")[0] for line in report.notices] == [
        "beside it lies the index of another pack, out.idx",
        "beside it lies the index of another pack, out.json",
    ]
    write_indexes(out, ["dali", "wids"], overwrite=True)
    assert verify(out).notices == []


def test_other_files_beside_it_are_not_noted(tree: Path) -> None:
    out, lines = tree.parent / "out.tar", list[str]()
    (tree.parent / "out.json").write_text('{\n  "annotations": []\n}')
    (tree.parent / "out.idx").write_text("0\t0\n1\t200\n")  # that of a RecordIO
    pack(tree, out, notice=lines.append)
    assert (lines, verify(out).notices) == ([], [])


def test_a_tool_without_an_index_is_refused_at_once(tree: Path) -> None:
    with pytest.raises(UsageError, match="LMDB has no index files, none for dali"):
        pack(tree, tree.parent / "out.lmdb", index_for=["dali"])
    with pytest.raises(UsageError, match="timm reads a folder of shards"):
        pack(tree, tree.parent / "out.tar", index_for=["timm"])
    assert os.listdir(tree.parent) == ["tree"]


def test_damage_is_found_and_mended(tree: Path) -> None:
    out = shards(tree, "out", index_for=TOOLS)
    before = contents(out)
    (out / "out-000001.idx").write_bytes(before["out-000001.idx"].replace(b"png", b"jpg"))
    (out / ".nv-meta/split.yaml").write_text("mine")
    (bad,) = verify(out).bad
    assert (bad.path, bad.reason) == ("out-000001.idx", "bad_record")
    report = repair(out, tree)
    assert [file.path for file in report.mended] == ["out-000001.idx"]
    assert contents(out) == before | {".nv-meta/split.yaml": b"mine"}


def test_a_single_file_is_mended_with_them(tree: Path) -> None:
    out = tree.parent / "out.rec"
    pack(tree, out)
    before = contents(tree.parent)
    data = bytearray(out.read_bytes())
    data[300] ^= 1
    out.write_bytes(data)
    (tree.parent / "out.lst").write_bytes(b"")
    assert len(verify(out).bad) == 2
    repair(out, tree)
    assert contents(tree.parent) == before


def put_in_the_way(path: Path, kind: str) -> None:
    """Puts somebody's own file, folder or link at a path, whatever is there."""
    whole = path.read_bytes() if path.exists() else b"mine"
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "mine").write_bytes(b"mine")
    elif kind == "link":
        (path.parent / "elsewhere").write_bytes(whole)
        path.symlink_to("elsewhere")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(b"mine, and of nobody else")


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling link"])
@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("out.rec", "out.idx"),
        ("out.rec", "out.lst"),
        ("out.tfrecord", "out.tfrecord.idx"),
        ("shards", "shards-000000.idx"),
        ("shards", "index.json"),
    ],
)
def test_mending_spares_what_is_called_like_an_index(
    tree: Path, name: str, beside: str, kind: str
) -> None:
    out = tree.parent / name
    if name == "shards":
        shards(tree, name, index_for=TOOLS)
        file, data = out / beside, out / "shards-000002.tar"
    else:
        pack(tree, out)
        file, data = tree.parent / beside, out
    damaged = bytearray(data.read_bytes())
    damaged[-50] ^= 1
    data.write_bytes(damaged)
    put_in_the_way(file, kind)
    before = contents(tree.parent)
    with pytest.raises(UsageError, match=f"{beside}: .*: move (it|them) away"):
        repair(out, tree)
    assert contents(tree.parent) == before
    assert file.is_symlink() == ("link" in kind)
    assert not os.path.lexists(f"{out}.partial")
    (tree.parent / "new").mkdir()
    assert repair(out, tree, out=tree.parent / "new" / name).status == "done"


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_copy_of_the_same_name_spares_what_is_beside_it(tree: Path, kind: str) -> None:
    out, new = tree.parent / "out.rec", tree.parent / "new/out.rec"
    new.parent.mkdir()
    pack(tree, out)
    (tree.parent / "out.lst").write_bytes(b"")
    put_in_the_way(new.with_suffix(".idx"), kind)
    before = contents(tree.parent)
    with pytest.raises(UsageError, match=r"new/out\.idx: exists already"):
        repair(out, tree, out=new)
    assert contents(tree.parent) == before


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link"])
def test_packing_spares_what_is_no_file(tree: Path, kind: str) -> None:
    out = tree.parent / "out.rec"
    pack(tree, out)
    put_in_the_way(out.with_suffix(".idx"), kind)
    out.with_suffix(".lst").write_bytes(b"an index that is not of this pack")
    (tree / "cat/0.png").rename(tree / "cat/8a.png")
    before = contents(tree.parent)
    with pytest.raises(UsageError, match=r"out\.idx: is in the way"):
        pack(tree, out, overwrite=True)
    assert contents(tree.parent) == before


@pytest.mark.parametrize("damage", [0, 0.3, 0.9, "zeros", "flipped", "longer"])
@pytest.mark.parametrize("beside", ["out.idx", "out.lst"])
def test_a_damaged_index_is_still_known(tree: Path, beside: str, damage: object) -> None:
    out, file = tree.parent / "out.rec", tree.parent / beside
    pack(tree, out)
    whole = contents(tree.parent)
    data = bytearray(file.read_bytes())
    if isinstance(damage, int | float):
        del data[int(len(data) * damage) :]
    elif damage == "zeros":
        data = bytearray(len(data))
    elif damage == "flipped":
        data[::3] = bytes(byte ^ 1 for byte in data[::3])
    else:
        data += b"more"
    file.write_bytes(data)
    assert [bad.path for bad in repair(out, tree).mended] == [beside]
    assert contents(tree.parent) == whole


def test_a_mended_copy_spares_what_is_beside_it(tree: Path) -> None:
    out, new = tree.parent / "out.rec", tree.parent / "new.rec"
    pack(tree, out)
    (tree.parent / "out.lst").write_bytes(b"")
    new.with_suffix(".idx").touch()
    with pytest.raises(UsageError, match=r"new\.idx: exists already"):
        repair(out, tree, out=new)
    new.with_suffix(".idx").unlink()
    assert repair(out, tree, out=new).output == str(new)
    assert new.with_suffix(".lst").stat().st_size
    assert verify(new).notices == []


def test_one_that_was_not_copied_along_is_no_damage(tree: Path) -> None:
    out = tree.parent / "out.tfrecord"
    pack(tree, out)
    Path(f"{out}.idx").unlink()
    report = verify(out)
    assert report.status == "done"
    assert report.notices == [
        "index files are missing: out.tfrecord.idx: fastconv index makes them"
    ]
    assert write_indexes(out).written == ["out.tfrecord.idx"]


def test_a_run_that_was_killed_while_it_published_is_finished(tree: Path) -> None:
    out = tree.parent / "out.rec"
    pack(tree, out)
    target = Target(str(out), lambda line: None)
    for name in ("rec", "idx", "lst"):
        out.with_suffix(f".{name}").rename(target.path(name))
    files = {f"/out.{name}": target.path(name) for name in ("idx", "lst")}
    target._write_journal(files | {"": target.path("rec")}, {})
    Path(target.path("idx")).rename(out.with_suffix(".idx"))
    target.keep()
    with pytest.raises(UsageError, match="exists already"):
        pack(tree, out)
    assert verify(out).notices == []
    assert not os.path.lexists(f"{out}.partial")


def test_what_a_killed_run_had_begun_to_publish_is_finished(tmp_path: Path) -> None:
    """Names beside OUT are not all called after it."""
    for name, text in (("out.rec", "old"), ("out.idx", "old"), ("out.json", "stale")):
        (tmp_path / name).write_text(text)
    target = Target(str(tmp_path / "out.rec"), lambda line: None)
    for name in ("data", "idx"):
        Path(target.path(name)).write_text("new")
    files = {"/out.json": None, "/out.idx": target.path("idx"), "": target.path("data")}
    target._write_journal(files, {})
    target.keep()
    Target(str(tmp_path / "out.rec"), lambda line: None).discard()
    assert contents(tmp_path) == {"out.rec": b"new", "out.idx": b"new"}
