"""One pack of several."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.loaders.test_joined import make
from tests.support import OUTS, captions

from fastconv.converters import convert, merge, pack
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
    words = (
        r"1 paths are in the packs twice, .*one\.lmdb: sample 3.*a/003\.png.*two\.lmdb: sample 0"
    )
    with pytest.raises(UsageError, match=words):
        merge([tmp_path / "one.lmdb", tmp_path / "two.lmdb"], tmp_path / "out.tar")
    assert not list(tmp_path.glob("out*"))


def test_what_cannot_be(tmp_path: Path) -> None:
    make(tmp_path / "one", {"a": range(4)})
    pack(tmp_path / "one", tmp_path / "one.lmdb")
    with pytest.raises(UsageError, match="a folder of images: pack it first"):
        merge([tmp_path / "one.lmdb", tmp_path / "one"], tmp_path / "out.tar")
    with pytest.raises(UsageError, match="is the pack that is converted"):
        merge([tmp_path / "one.lmdb"], tmp_path / "one.lmdb", overwrite=True)
    with pytest.raises(UsageError, match="at least one"):
        merge([], tmp_path / "out.tar")
    convert(tmp_path / "one.lmdb", tmp_path / "two.h5")  # nothing was touched
