"""Packs that other tools have made: their labels, the names of their columns, their paths."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c
from PIL import Image

from fastconv.converters import PackFailedError, convert, merge, pack
from fastconv.converters.unpacking import unpack
from fastconv.loaders import UsageError, open_dataset
from fastconv.loaders.tfexample import masked

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402 - after what skips without it


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 9), (number, 2, 7)).save(file, "PNG")
    return file.getvalue()


def make_tar(path: Path, labels: Sequence[str]) -> Path:
    with tarfile.open(path, "w") as tar:
        for number, label in enumerate(labels):
            for name, data in ((f"{number}.png", png(number)), (f"{number}.cls", label.encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def test_names_as_labels_of_a_tar_are_classes(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "in.tar", ["zebra", "ant\n", "zebra"])
    dataset = open_dataset(path)
    assert (dataset.classes, dataset.targets.tolist()) == (["ant", "zebra"], [1, 0, 1])
    convert(path, tmp_path / "out.h5")
    assert open_dataset(tmp_path / "out.h5").classes == ["ant", "zebra"]


def test_names_among_integers_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_dataset(make_tar(tmp_path / "in.tar", ["5", "cat", "9" * 40]))
    assert (dataset.classes, dataset.targets.tolist()) == ([], [5, -1, -1])
    assert "1 labels are names among integers: left out" in caplog.text


def parquet(path: Path, column: str = "photo", label: str = "klass", bad: bool = False) -> Path:
    images = [png(0), b"nonsense" if bad else png(1), png(2)]
    table = pa.table({column: images, "thumb": images, label: ["b", "a", "b"]})
    pq.write_table(table, path, compression="gzip")
    return path


def test_columns_are_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "in.parquet")
    with pytest.raises(UsageError, match=r"photo, thumb, klass.*--image-key"):
        open_dataset(path)
    dataset = open_dataset(path, image_key="photo", label_key="klass", decode=None)
    assert [*dataset] == [(png(0), 1), (png(1), 0), (png(2), 1)]
    assert dataset.classes == ["a", "b"]
    convert(path, tmp_path / "out.lmdb", image_key="photo", label_key="klass", workers=2)
    assert [*open_dataset(tmp_path / "out.lmdb", decode=None)] == [*dataset]
    unpack(path, tmp_path / "out", image_key="photo", label_key="klass")
    assert len([*(tmp_path / "out").glob("row ?")]) == 3
    lines = (tmp_path / "out/metadata.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["b", "a", "b"]


def test_rows_that_are_no_images_are_bad(tmp_path: Path) -> None:
    path = parquet(tmp_path / "in.parquet", "image", bad=True)
    with pytest.raises(PackFailedError, match="1 bad file"):
        convert(path, tmp_path / "out.lmdb", strict=True)
    report = convert(path, tmp_path / "out.lmdb", restart=True)
    assert [(bad.path, bad.reason) for bad in report.bad] == [("row 1", "not_an_image")]


def test_paths_that_two_packs_have_get_the_packs_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        convert(parquet(tmp_path / f"{name}.parquet", "image", "label"), tmp_path / f"{name}.h5")
    packs = [tmp_path / "one.h5", tmp_path / "two.h5"]
    with pytest.raises(UsageError, match=r"3 paths are in the packs twice, .*--prefix"):
        merge(packs, tmp_path / "out.lmdb")
    merge(packs, tmp_path / "out.lmdb", prefix=True)
    samples = open_dataset(tmp_path / "out.lmdb").samples
    assert [path for path, _ in samples[:4]] == ["one/row 0", "one/row 1", "one/row 2", "two/row 0"]
    (tmp_path / "other").mkdir()
    convert(tmp_path / "one.parquet", tmp_path / "other/one.tar")
    with pytest.raises(UsageError, match="two of the packs are called one"):
        merge([packs[0], tmp_path / "other/one.tar"], tmp_path / "out.h5", prefix=True)


def feature(name: str, data: bytes, kind: int = 1) -> bytes:
    def part(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, *varint(len(content))]) + content

    values = part(kind, part(1, data))
    return part(1, part(1, name.encode()) + part(2, values))


def varint(number: int) -> list[int]:
    out = []
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return [*out, number]


def test_features_are_named(tmp_path: Path) -> None:
    with open(tmp_path / "in.tfrecord", "wb") as file:
        for number in range(3):
            features = feature("image_raw", png(number)) + feature("y", bytes([number + 4]), 3)
            example = bytes([0x0A, *varint(len(features))]) + features
            head = struct.pack("<Q", len(example))
            file.write(head + struct.pack("<I", masked(crc32c(head))))
            file.write(example + struct.pack("<I", masked(crc32c(example))))
    with pytest.raises(PackFailedError, match=r"image_raw, y\): name it with --image-key"):
        convert(tmp_path / "in.tfrecord", tmp_path / "out.h5")
    convert(tmp_path / "in.tfrecord", tmp_path / "out.h5", image_key="image_raw", label_key="y")
    dataset = open_dataset(tmp_path / "out.h5", decode=None)
    assert [*dataset] == [(png(0), 4), (png(1), 5), (png(2), 6)]


@pytest.mark.parametrize("name", ["in.tar", "in.lmdb", "in.h5"])
def test_formats_without_columns_have_none_to_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "tree/a").mkdir(parents=True)
    (tmp_path / "tree/a/1.png").write_bytes(png(1))
    pack(tmp_path / "tree", tmp_path / name)
    with pytest.raises(UsageError, match="no columns to choose from"):
        open_dataset(tmp_path / name, image_key="photo")


@pytest.mark.parametrize("kind", ["int", "names", "folders"])
def test_labels_that_folders_do_not_tell_come_back(tmp_path: Path, kind: str) -> None:
    for number in range(4):
        file = tmp_path / f"tree/{number % 2}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(number))
    given = {"int": ["3", "1", "4", "1"], "names": ["x", "y", "y", "x"]}
    labels = given.get(kind)
    if labels is not None:
        lines = [f"{n % 2}/{n}.png,{label}" for n, label in enumerate(labels)]
        (tmp_path / "labels.csv").write_text("\n".join(["file_name,label", *lines]))
    options = {} if labels is None else {"labels": tmp_path / "labels.csv"}
    pack(tmp_path / "tree", tmp_path / "one.tar", **options)  # type: ignore[arg-type]
    unpack(tmp_path / "one.tar", tmp_path / "restored")
    file = tmp_path / "restored/metadata.jsonl"
    assert file.exists() == (labels is not None)
    pack(tmp_path / "restored", tmp_path / "two.tar", labels=file if labels else True)
    one, two = open_dataset(tmp_path / "one.tar"), open_dataset(tmp_path / "two.tar")
    assert (one.classes, one.targets.tolist()) == (two.classes, two.targets.tolist())
