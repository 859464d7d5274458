"""One pack of several."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.loaders.test_joined import make
from tests.support import OUTS, captions

from fastconv.converters import convert, merge, pack
from fastconv.converters.unpacking import unpack
from fastconv.loaders import UsageError, open_dataset
from fastconv.loaders.open import open_pack


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("out", OUTS)
def test_parts_of_a_folder_give_the_pack_of_the_folder(
    tmp_path: Path, out: str, workers: int | None
) -> None:
    make(tmp_path / "one", {"a": range(5)}, sidecars=True)
    make(tmp_path / "two", {"b": range(10, 14), "c": range(14, 15)}, sidecars=True)
    pack(tmp_path / "one", tmp_path / "one.h5", sidecars=("txt",))
    pack(tmp_path / "two", tmp_path / "two.tar", sidecars=("txt",))
    report = merge([tmp_path / "one.h5", tmp_path / "two.tar"], tmp_path / out, workers=workers)
    assert (report.samples, report.classes, report.bad) == (10, ("a", "b", "c"), [])
    held = captions(out)
    assert report.fields == ("image", *held)
    assert len(report.warnings) == (not held)
    make(tmp_path / "all", {"a": range(5), "b": range(10, 14), "c": range(14, 15)}, sidecars=True)
    pack(tmp_path / "all", tmp_path / f"expected{out}", sidecars=held)
    assert open_pack(tmp_path / out).meta.id == open_pack(tmp_path / f"expected{out}").meta.id


def test_classes_that_both_have(tmp_path: Path) -> None:
    make(tmp_path / "one", {"b": range(2), "c": range(2, 3)})
    make(tmp_path / "two", {"a": range(10, 11), "c": range(11, 12)}, sidecars=True)
    pack(tmp_path / "one", tmp_path / "one.lmdb")
    pack(tmp_path / "two", tmp_path / "two.tar", sidecars=("txt",))
    merge([tmp_path / "one.lmdb", tmp_path / "two.tar"], tmp_path / "out.h5")
    merged = open_dataset(tmp_path / "out.h5", fields=("image", "txt"), decode=None, verify=True)
    joined = open_dataset(
        [tmp_path / "one.lmdb", tmp_path / "two.tar"], fields=("image", "txt"), decode=None
    )
    assert [*merged] == [*joined]
    assert merged.classes == joined.classes == ["a", "b", "c"]
    assert [*merged.samples] == [*joined.samples]


def test_what_is_damaged_is_left_out_and_listed(tmp_path: Path) -> None:
    make(tmp_path / "one", {"a": range(4)})
    make(tmp_path / "two", {"b": range(4)})
    for name in ("one", "two"):
        pack(tmp_path / name, tmp_path / f"{name}.lmdb")
    reader = open_pack(tmp_path / "two.lmdb")
    with open(tmp_path / "two.lmdb/data.mdb", "r+b") as file:
        file.seek(reader.table.base[0] + int(reader.table.offset[0][2]) + 40)
        file.write(b"?")
    report = merge([tmp_path / "one.lmdb", tmp_path / "two.lmdb"], tmp_path / "out.tar")
    assert [(bad.path, bad.reason) for bad in report.bad] == [("b/002.png", "corrupt")]
    assert len(open_dataset(tmp_path / "out.tar", verify=True)) == 7


def test_a_path_that_two_packs_have(tmp_path: Path) -> None:
    make(tmp_path / "one", {"a": range(4)})
    make(tmp_path / "two", {"a": range(3, 5)})
    for name in ("one", "two"):
        pack(tmp_path / name, tmp_path / f"{name}.lmdb")
    words = r"1 path is in the packs twice, .*one\.lmdb: sample 3.*a/003\.png.*two\.lmdb: sample 0"
    with pytest.raises(UsageError, match=words):
        merge([tmp_path / "one.lmdb", tmp_path / "two.lmdb"], tmp_path / "out.tar")
    assert not list(tmp_path.glob("out*"))


def test_what_cannot_be(tmp_path: Path) -> None:
    make(tmp_path / "one", {"a": range(4)})
    pack(tmp_path / "one", tmp_path / "one.lmdb")
    with pytest.raises(UsageError, match="a folder of images: pack it first"):
        merge([tmp_path / "one.lmdb", tmp_path / "one"], tmp_path / "out.tar")
    with pytest.raises(UsageError, match="is a pack that is read: name another"):
        merge([tmp_path / "one.lmdb"], tmp_path / "one.lmdb", overwrite=True)
    with pytest.raises(UsageError, match="at least one"):
        merge([], tmp_path / "out.tar")
    convert(tmp_path / "one.lmdb", tmp_path / "two.h5")  # nothing was touched


def test_names_of_sidecars_stay(tmp_path: Path) -> None:
    """Those that are called otherwise than their image, in packs of different fields."""
    make(tmp_path / "one", {"a": range(2)})
    make(tmp_path / "two", {"a": range(5, 7)})
    files = {
        "one/a/000.TXT": b"one", "one/a/000.Mask.PNG": b"mask", "one/a/001.txt": b"usual",
        "two/a/005.DAT": b"data", "two/a/005.TXT": b"two", "two/a/006.dat": b"usual",
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    pack(tmp_path / "one", tmp_path / "one.lmdb", sidecars=("txt", "mask.png"))
    pack(tmp_path / "two", tmp_path / "two.tar", sidecars=("txt", "dat"))
    packs = [tmp_path / "one.lmdb", tmp_path / "two.tar"]
    for prefix in (False, True):
        merge(packs, tmp_path / "out.h5", prefix=prefix, overwrite=True)
        for source, out in ((tmp_path / "out.h5", "again"), (tmp_path / "again.lmdb", "converted")):
            unpack(source, tmp_path / out)
            for name, data in files.items():
                name = name if prefix else name.partition("/")[2]
                assert (tmp_path / out / name).read_bytes() == data
            there = [file for file in (tmp_path / out).rglob("*") if file.is_file()]
            assert (
                len(there) == 10 + prefix
            )  # folders are those of the packs: with a file of labels
            convert(tmp_path / "out.h5", tmp_path / "again.lmdb", overwrite=True)
            shutil.rmtree(tmp_path / out)
    merge(packs, tmp_path / "out.rec")
    table = open_pack(tmp_path / "out.rec").table
    assert 0 not in table.path_bytes
    assert table.paths(0, 4) == ["a/000.png", "a/001.png", "a/005.png", "a/006.png"]


def test_columns_of_labels_in_one_and_files_in_another(tmp_path: Path) -> None:
    make(tmp_path / "one", {"a": range(2)})
    (tmp_path / "labels.csv").write_text("file_name,label,note\na/000.png,a,x\na/001.png,a,y\n")
    pack(tmp_path / "one", tmp_path / "one.h5", labels=tmp_path / "labels.csv")
    make(tmp_path / "two", {"a": range(5, 6)})
    (tmp_path / "two/a/005.json").write_text('{"box": [1, 2]}')
    pack(tmp_path / "two", tmp_path / "two.h5", sidecars=("json",))
    report = merge([tmp_path / "one.h5", tmp_path / "two.h5"], tmp_path / "out.h5")
    assert "json is the columns of a file of labels in one pack" in report.notices[-1]
    unpack(tmp_path / "out.h5", tmp_path / "files")
    assert (tmp_path / "files/a/005.json").read_text() == '{"box": [1, 2]}'
    assert json.loads((tmp_path / "files/a/001.json").read_text()) == {"note": "y"}
