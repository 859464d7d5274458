"""Several packs as one Dataset."""

from __future__ import annotations

import io
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from fastconv.converters import pack
from fastconv.loaders import (
    CenterCrop,
    CorruptPackError,
    FastLoader,
    JoinedDataset,
    PackChangedError,
    SampleError,
    UsageError,
    open_dataset,
)


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30, 20), (number, 7, 9)).save(file, "PNG")
    return file.getvalue()


def make(folder: Path, classes: dict[str, range], sidecars: bool = False) -> Path:
    """Returns a folder with an image for each number, which is its colour."""
    for name, numbers in classes.items():
        for number in numbers:
            file = folder / name / f"{number:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(number))
            if sidecars:
                file.with_suffix(".txt").write_text(f"caption {number}")
    return folder


@pytest.fixture
def packs(tmp_path: Path) -> list[str]:
    """Returns an LMDB of the classes a and c, a tar with captions of b and c, and a folder of c."""
    make(tmp_path / "one", {"a": range(3), "c": range(3, 5)})
    make(tmp_path / "two", {"b": range(10, 14), "c": range(14, 15)}, sidecars=True)
    make(tmp_path / "three", {"c": range(20, 22)})
    pack(tmp_path / "one", tmp_path / "one.lmdb")
    pack(tmp_path / "two", tmp_path / "two.tar", sidecars=("txt",))
    return [str(tmp_path / name) for name in ("one.lmdb", "two.tar", "three")]


NUMBERS = [*range(5), *range(10, 15), 20, 21]
LABELS = [0, 0, 0, 2, 2, 1, 1, 1, 1, 2, 2, 2]


def test_samples_follow_each_other_and_classes_are_joined_by_name(packs: list[str]) -> None:
    dataset = open_dataset(packs, decode=None)
    assert isinstance(dataset, JoinedDataset)
    assert (len(dataset), dataset.classes) == (12, ["a", "b", "c"])
    assert [*dataset] == [(png(n), label) for n, label in zip(NUMBERS, LABELS, strict=True)]
    assert dataset.targets.tolist() == LABELS
    assert dataset.__getitems__([11, 0, 5]) == [dataset[11], dataset[0], dataset[5]]
    assert [bytes(view) for view in dataset.read_many([6, 0])] == [png(11), png(0)]
    assert bytes(dataset.read(-1)) == png(21)
    paths = [path for path, _ in dataset.samples]
    assert paths[:1] == ["a/000.png"]
    assert paths[-1] == f"{packs[2]}/c/021.png"
    assert [dataset.samples[row][0] for row in range(12)] == paths


def test_fields_that_a_pack_lacks_are_none(packs: list[str]) -> None:
    dataset = open_dataset(packs[:2], fields=("txt",), decode=None)
    assert [field for field, _ in dataset] == [None] * 5 + [
        b"caption %d" % n for n in range(10, 15)
    ]
    with pytest.raises(UsageError, match="has no field 'json'"):
        open_dataset(packs[:2], fields=("json",))


def test_columns_are_those_of_the_packs(packs: list[str]) -> None:
    joined = open_dataset(packs[:2]).table
    tables = [open_dataset(path).table for path in packs[:2]]
    assert joined.arrays().keys() >= {"size/image", "size/txt", "checksum/image", "width"}
    for name in ("kind", "width", "height"):
        whole = np.concatenate([getattr(table, name) for table in tables])
        np.testing.assert_array_equal(getattr(joined, name), whole)
    assert joined.size[1].tolist() == [-1] * 5 + [10] * 5
    assert joined.paths(3, 8) == [joined.path(row) for row in range(3, 8)]
    assert joined.names(6) == ["b/011.png", "b/011.txt"]
    assert int(joined.path_offset[-1]) == joined.path_bytes.nbytes
    assert joined.shard_row.tolist() == [0, 5, 10]


def test_loaders_take_it(packs: list[str]) -> None:
    dataset = open_dataset(packs, decode=CenterCrop(16))
    got = [(images[:, 0, 0, 0].tolist(), labels.tolist()) for images, labels in
           FastLoader(dataset, batch_size=5, shuffle=False, normalize=None)]  # fmt: skip
    assert [n for numbers, _ in got for n in numbers] == NUMBERS
    assert [n for _, labels in got for n in labels] == LABELS


def second(batch: list[tuple[bytes, int]]) -> list[int]:
    return [label for _, label in batch]


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_worker_processes(packs: list[str], method: str) -> None:
    dataset = open_dataset(packs, decode=None)
    loader = DataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context=method, collate_fn=second
    )
    assert [label for labels in loader for label in labels] == LABELS
    assert len(pickle.dumps(dataset)) < 4096


def test_a_pack_that_is_replaced_is_another(packs: list[str], tmp_path: Path) -> None:
    copy = pickle.dumps(open_dataset(packs))
    make(tmp_path / "one", {"a": range(3, 4)})
    pack(tmp_path / "one", packs[0], overwrite=True)
    with pytest.raises(PackChangedError):
        pickle.loads(copy)[0]


def test_checksums(packs: list[str]) -> None:
    assert bytes(open_dataset(packs[:2], verify=True).read(9)) == png(14)
    with pytest.raises(UsageError, match="three: has no checksums"):
        open_dataset(packs, verify=True)
    table = open_dataset(packs[1]).table
    with open(packs[1], "r+b") as file:
        file.seek(int(table.offset[0][0]) + 3)
        file.write(b"?")
    with pytest.raises(SampleError, match=r"two\.tar: sample 0.*checksum differs"):
        open_dataset(packs[:2], verify=True)[5]


def test_a_damaged_table_is_told(packs: list[str]) -> None:
    index = Path(packs[1] + ".index.safetensors")
    data = index.read_bytes()
    index.write_bytes(data.replace(b"b/010.png", b"b/910.png"))
    with pytest.raises(CorruptPackError, match="sample table is damaged"):
        open_dataset(packs[:2], verify=True)


def test_same_classes_keep_their_order(tmp_path: Path) -> None:
    make(tmp_path / "tree", {"a": range(1), "b": range(1, 2)})
    for name in ("x.lmdb", "y.h5"):
        pack(tmp_path / "tree", tmp_path / name, classes=("b", "a"))
    pack(make(tmp_path / "more", {"0": range(1)}), tmp_path / "z.h5")
    assert open_dataset([tmp_path / "x.lmdb", tmp_path / "y.h5"]).classes == ["b", "a"]
    dataset = open_dataset([tmp_path / "x.lmdb", tmp_path / "z.h5"])
    assert (dataset.classes, dataset.targets.tolist()) == (["b", "a", "0"], [0, 1, 2])


def test_labels_that_do_not_go_together(packs: list[str], tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file_name,label\na/000.png,9\na/001.png,4\n")
    pack(tmp_path / "one", tmp_path / "ints.h5", labels=tmp_path / "labels.csv")
    pack(tmp_path / "one", tmp_path / "none.h5", labels=False)
    with pytest.raises(UsageError, match=r"one\.lmdb: has classes, .*ints\.h5 has integers"):
        open_dataset([packs[0], tmp_path / "ints.h5"])
    dataset = open_dataset([tmp_path / "none.h5", tmp_path / "ints.h5"])
    assert (dataset.classes, dataset.targets.tolist()) == ([], [-1] * 5 + [4, 9])


def test_what_cannot_be(packs: list[str]) -> None:
    with pytest.raises(UsageError, match="at least one"):
        open_dataset([])
    with pytest.raises(UsageError, match="leave format out"):
        open_dataset(packs, format="lmdb")
