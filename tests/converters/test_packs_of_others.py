"""Packs that other tools have made: their labels, the names of their columns, their paths."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from PIL import Image

from fastconv.converters import PackFailedError, convert, merge, pack
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.converters.writer import WRITERS
from fastconv.loaders import PackDataset, UsageError, open_dataset, open_pack
from fastconv.loaders.errors import NotAPackError
from fastconv.loaders.reader import Wanted
from fastconv.loaders.tfexample import masked

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402 - after what skips without it


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 9), (number, 2, 7)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def make_tar(path: Path, labels: Sequence[str]) -> Path:
    members = [
        member
        for number, label in enumerate(labels)
        for member in ((f"{number}.png", png(number)), (f"{number}.cls", label.encode()))
    ]
    return write_tar(path, members)


def test_names_as_labels_of_a_tar_are_classes(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "in.tar", ["zebra", "ant\n", "zebra"])
    dataset = open_dataset(path)
    assert (dataset.classes, dataset.targets.tolist()) == (["ant", "zebra"], [1, 0, 1])
    convert(path, tmp_path / "out.h5")
    assert open_dataset(tmp_path / "out.h5").classes == ["ant", "zebra"]


@pytest.mark.parametrize(
    ("labels", "classes", "targets", "notices"),
    [
        (["5", "cat", "9" * 40, " -1\n", "", "7.0", "-3\n"], (), [5, -1, -1, -1, -1, -1, -3],
         ["labels that are no integers of 64 bits are left out: 1.png, 2.png, 5.png"]),
        (["cat", "\0", "-1", "9" * 40, "ant"], ("ant", "cat"), [1, -1, -1, -1, 0],
         ["labels that are no names of classes are left out: 1.png, 3.png"]),
        (["\0", "-1", " "], (), [-1, -1, -1],
         ["labels that are no integers of 64 bits are left out: 0.png"]),
        (["5", "", "-1"], (), [5, -1, -1], []),
    ],
)  # fmt: skip
def test_labels_of_a_tar_that_are_left_out_are_named(
    tmp_path: Path,
    labels: list[str],
    classes: tuple[str, ...],
    targets: list[int],
    notices: list[str],
) -> None:
    reader = open_pack(make_tar(tmp_path / "in.tar", labels))
    assert (reader.meta.classes, reader.table.label.tolist()) == (classes, targets)
    assert reader.notices == notices


PARTS = {
    f"{number}.{extension}": data
    for number in range(4)
    for extension, data in (
        ("png", png(number)), ("cls", b"%d" % number), ("txt", b"text %d" % number),
    )
}  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_members_of_a_tar_in_any_order_are_the_same_samples(tmp_path: Path, seed: int) -> None:
    for shard in range(2):
        names = [*PARTS]
        Random(seed + shard).shuffle(names)
        write_tar(tmp_path / f"in/{shard}.tar", [(name, PARTS[name]) for name in names])
    dataset = open_dataset(tmp_path / "in", decode=None, fields=("image", "txt"))
    expected = [(n, PARTS[f"{n}.png"], PARTS[f"{n}.txt"]) for n in range(4)]
    samples = [(label, image, text) for image, text, label in dataset]
    assert sorted(samples[:4]) == sorted(samples[4:]) == expected
    assert open_pack(tmp_path / "in").bad == []


def test_members_of_a_tar_that_do_not_follow_each_other_are_told(tmp_path: Path) -> None:
    order = ["0.png", "0.cls", "1.png", "2.png", "1.cls", "2.cls", "1.txt", "3.png", "3.cls"]
    reader = open_pack(write_tar(tmp_path / "in.tar", [(name, PARTS[name]) for name in order]))
    assert [reader.key(row) for row in range(4)] == ["0", "1", "2", "3"]
    assert reader.table.label.tolist() == [0, 1, 2, 3]
    assert reader.notices == [
        "samples whose members do not follow each other, of which other readers make several: "
        "in.tar 1, in.tar 2"
    ]
    reader = open_pack(write_tar(tmp_path / "in.tar", [(name, PARTS[name]) for name in PARTS]))
    assert reader.notices == []
    twice = [("0.png", png(0)), ("1.png", png(1)), ("0.png", png(2))]
    reader = open_pack(write_tar(tmp_path / "in.tar", twice))
    assert [(bad.path, bad.reason) for bad in reader.bad] == [("0.png", "duplicate_key")]
    assert [reader.load(row) for row in range(2)] == [png(0), png(1)]


def stereo(path: Path, samples: int = 3) -> Path:
    members = [
        member
        for n in range(samples)
        for member in (
            (f"{n}.Left.png", png(n)), (f"{n}.right.png", png(n + 100)),
            (f"{n}.y.cls", b"%d" % (n + 4)), (f"{n}.cls", b"9"),
        )
    ]  # fmt: skip
    return write_tar(path, members)


def test_members_of_a_tar_are_named(tmp_path: Path) -> None:
    path = stereo(tmp_path / "in.tar")
    with pytest.raises(UsageError, match=r"image \(left.png, right.png\): .* --image-key"):
        open_pack(path)
    options = {"image_key": "left.PNG", "label_key": "y.cls"}
    expected = [(png(n), png(n + 100), n + 4) for n in range(3)]
    fields = ("image", "right.png")
    assert [*open_dataset(path, decode=None, fields=fields, **options)] == expected  # type: ignore[arg-type]
    for out in ("out.lmdb", "out.tar"):
        convert(path, tmp_path / out, workers=2, **options)  # type: ignore[arg-type]
        assert [*open_dataset(tmp_path / out, decode=None, fields=fields)] == expected
    assert verify(path, **options).bad == []  # type: ignore[arg-type]
    unpack(path, tmp_path / "unpacked", **options)  # type: ignore[arg-type]
    assert (tmp_path / "unpacked/0.Left.png").read_bytes() == png(0)
    assert (tmp_path / "unpacked/0.right.png").read_bytes() == png(100)
    assert open_pack(path, wanted=Wanted((), "right.png")).table.label.tolist() == [9, 9, 9]


def test_checksums_of_headers_may_count_signed_bytes(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "in.tar", [("é.png", png(0)), ("b.png", png(1))])
    data = bytearray(path.read_bytes())
    signed = sum(struct.unpack("148b", data[:148])) + sum(struct.unpack("356b", data[156:512]))
    data[148:156] = b"%06o\0 " % (signed + 8 * 32)
    path.write_bytes(data)
    assert [path for path, _ in open_dataset(path).samples] == ["é.png", "b.png"]
    data[148:156] = b"%06o\0 " % (signed + 8 * 32 - 256)
    path.write_bytes(data)
    with pytest.raises(NotAPackError):
        open_pack(path)


@pytest.mark.parametrize("ours", [False, True])
def test_members_that_no_sample_of_a_tar_has(tmp_path: Path, ours: bool) -> None:
    path = make_tar(tmp_path / "in.tar", ["1", "2"])
    if ours:
        convert(path, tmp_path / "out.tar")
        path = tmp_path / "out.tar"
    for wanted in (Wanted((), "left.png"), Wanted((), None, "left.png")):
        with pytest.raises(UsageError, match=r"has the \w+ left.png: their members are cls, png"):
            open_pack(path, wanted=wanted)


def test_samples_of_a_tar_without_one_image_are_bad(tmp_path: Path) -> None:
    members = [("0.png", png(0)), ("1.a.png", png(1)), ("1.b.png", png(2)), ("2.txt", b"")]
    reader = open_pack(write_tar(tmp_path / "in.tar", members))
    assert len(reader) == 1
    assert [(bad.path, bad.reason, bad.message) for bad in reader.bad] == [
        ("1", "missing_part",
         "in.tar: sample 1 has several images (a.png, b.png): name one with --image-key"),
        ("2", "missing_part", "in.tar: sample 2 has no image, only txt"),
    ]  # fmt: skip
    reader = open_pack(tmp_path / "in.tar", wanted=Wanted((), "a.png"))
    assert [bad.path for bad in reader.bad] == ["0", "2"]
    assert reader.load(0) == png(1)


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
    with pytest.raises(UsageError, match=r"packs are called one, .*: give one of them another"):
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


def write_tfrecord(path: Path, records: Iterable[bytes]) -> Path:
    with open(path, "wb") as file:
        for features in records:
            example = bytes([0x0A, *varint(len(features))]) + features
            head = struct.pack("<Q", len(example))
            file.write(head + struct.pack("<I", masked(crc32c(head))))
            file.write(example + struct.pack("<I", masked(crc32c(example))))
    return path


def test_features_are_named(tmp_path: Path) -> None:
    write_tfrecord(
        tmp_path / "in.tfrecord",
        (feature("image_raw", png(n)) + feature("y", bytes([n + 4]), 3) for n in range(3)),
    )
    with pytest.raises(PackFailedError, match=r"image_raw, y\): name it with --image-key"):
        convert(tmp_path / "in.tfrecord", tmp_path / "out.h5")
    convert(tmp_path / "in.tfrecord", tmp_path / "out.h5", image_key="image_raw", label_key="y")
    dataset = open_dataset(tmp_path / "out.h5", decode=None)
    assert [*dataset] == [(png(0), 4), (png(1), 5), (png(2), 6)]


@pytest.mark.parametrize("name", ["in.rec", "in.lmdb", "in.h5"])
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


# -------------------------------------------------------------- names that no pack of ours may have


def tar_with(*fields: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        members = [("0.png", png(0)), ("0.txt", b"text"), *((f"0.{name}", b"x") for name in fields)]
        return write_tar(folder / "in.tar", members)

    return make


def tfrecord_with(*fields: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        parts = [feature("image/encoded", png(0)), feature("txt", b"text")]
        return write_tfrecord(
            folder / "in.tfrecord", [b"".join([*parts, *(feature(n, b"x") for n in fields)])]
        )

    return make


def parquet_with(*fields: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        names = ["image", "txt", *fields]
        values = [[png(0)], [b"text"], *([b"x"] for _ in fields)]
        pq.write_table(
            pa.Table.from_arrays(list(map(pa.array, values)), names), folder / "in.parquet"
        )
        return folder / "in.parquet"

    return make


def whole_in_every_format(source: Path, folder: Path) -> list[PackDataset]:
    """Returns what a pack of others is converted to, each opened and verified, and unpacks it."""
    made = []
    for name in WRITERS.names():
        out = folder / f"out.{name}"
        assert convert(source, out, format=name, workers=1).bad == []
        assert verify(out).bad == []
        made.append(open_dataset(out, decode=None))
    assert unpack(source, folder / "unpacked").bad == []
    return made


ODD_NAMES = [".", "a..b", "é", "a b", "__len__", "l" * 65]


@pytest.mark.parametrize(
    ("make", "more"),
    [(tar_with, ["image"]), (tfrecord_with, ["cls", "bmp"]), (parquet_with, ["bmp"])],
)
def test_fields_that_no_sidecar_can_be_called_are_left_out(
    tmp_path: Path, make: Callable[..., Callable[[Path], Path]], more: list[str]
) -> None:
    for name in [*ODD_NAMES, *more]:
        reader = open_pack(make(name)(tmp_path))
        assert reader.table.fields == ("image", "txt")
        assert any(name in notice for notice in reader.notices)
    for dataset in whole_in_every_format(make(*ODD_NAMES, *more)(tmp_path), tmp_path):
        assert [*dataset] == [(png(0), -1)]


def test_a_field_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    source = tar_with("t\udcff")(tmp_path)
    assert open_pack(source).notices == [r"fields left out, no sidecar can have their names: t\xff"]
    whole_in_every_format(source, tmp_path)


@pytest.mark.parametrize(
    "names", [["a", "a", "b"], ["a", "\ud800"], ["", "b"], ["a\0", "b"], [None, "b"], [1, 2]]
)
def test_classes_without_names_of_their_own_stay_integers(
    tmp_path: Path, names: list[object]
) -> None:
    table = pa.table({"image": [png(0), png(1)], "label": [1, 0]})
    about = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    text = json.dumps({"info": {"features": about}})
    pq.write_table(table.replace_schema_metadata({"huggingface": text}), tmp_path / "in.parquet")
    reader = open_pack(tmp_path / "in.parquet")
    assert any("the names of classes are left out" in notice for notice in reader.notices)
    for dataset in whole_in_every_format(tmp_path / "in.parquet", tmp_path):
        assert (dataset.classes, dataset.targets.tolist()) == ([], [1, 0])


def test_texts_that_are_no_names_are_no_labels(tmp_path: Path) -> None:
    labels = ["", "b", "a\0", None, "a"]
    table = pa.table({"image": [png(n) for n in range(5)], "label": labels})
    pq.write_table(table, tmp_path / "in.parquet")
    notices = open_pack(tmp_path / "in.parquet").notices
    assert "labels that are no names of classes are left out: 2" in notices
    for dataset in whole_in_every_format(tmp_path / "in.parquet", tmp_path):
        assert dataset.targets.tolist() == [-1, 1, -1, -1, 0]


def test_columns_of_one_name_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    columns = {"image": [png(0)], "bytes": [b"x"], "label": [1]}
    for name, option in (("image", "--image-key"), ("label", "--label-key")):
        values = [pa.array(columns[column]) for column in (*columns, name)]
        pq.write_table(pa.Table.from_arrays(values, [*columns, name]), path)
        with pytest.raises(UsageError, match=f"2 columns are called {name}: .* {option}"):
            open_pack(path)
    source = parquet_with("json", "json")(tmp_path)
    assert open_pack(source).table.fields == ("image", "txt")
    assert "columns that are not read: json" in open_pack(source).notices


def test_labels_of_more_than_64_bits_are_left_out(tmp_path: Path) -> None:
    labels = pa.array([2**64 - 1, 2**63, 2**63 - 1, None, 3], pa.uint64())
    table = pa.table({"image": [png(n) for n in range(5)], "label": labels})
    pq.write_table(table, tmp_path / "in.parquet")
    stamp = feature("fastconv/pack", b"1" + b"0" * 32 + bytes(4))
    value = bytes([0x0A, 10, *varint(1 << 63)])
    smallest = (
        bytes([0x0A, 19 + 2 + 2 + 12, 0x0A, 17])
        + b"image/class/label"
        + bytes([0x12, 14, 0x1A, 12])
        + value
    )
    image = feature("image/encoded", png(0))
    write_tfrecord(tmp_path / "in.tfrecord", [stamp + image + smallest, image])
    for name, expected in (
        ("in.parquet", [-1, -1, 2**63 - 1, -1, 3]),
        ("in.tfrecord", [-1, -1]),
    ):
        reader = open_pack(tmp_path / name)
        assert reader.table.label.tolist() == expected
        lost = expected.count(-1) - 1
        assert f"labels that do not fit into 64 bits are left out: {lost}" in reader.notices


def test_samples_of_one_path_get_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    for number in range(2):
        members = [("a/0.png", png(number)), ("a/0.txt", b"%d" % number)]
        write_tar(tmp_path / f"tars/{number}.tar", members)
    records = [
        feature("image/encoded", png(n))
        + feature("image/filename", b"a/0.png")
        + feature("txt", b"%d" % n)
        for n in range(2)
    ]
    for source in (tmp_path / "tars", write_tfrecord(tmp_path / "in.tfrecord", records)):
        unpack(source, tmp_path / f"{source.name}.out")
        assert {
            str(file.relative_to(tmp_path / f"{source.name}.out/a")): file.read_bytes()
            for file in (tmp_path / f"{source.name}.out/a").iterdir()
        } == {
            "0.png": png(0), "0.txt": b"0",
            "0 (sample 1).png": png(1), "0 (sample 1).txt": b"1",
        }  # fmt: skip
