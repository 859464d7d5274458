"""TFRecords of others, damaged ones, and our own without their table."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.loaders import (
    FastconvError,
    NotAPackError,
    PackChangedError,
    PackError,
    UsageError,
    open_dataset,
    open_pack,
)
from fastconv.loaders.files import MappedFile
from fastconv.loaders.formats import tfrecord
from fastconv.loaders.formats.tfrecord import TFRecordReader
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.open import find_format
from fastconv.loaders.reader import Reader

DAMAGES = 300
"""Times that a file is damaged and read."""

JPEG = b"\xff\xd8\xff\xe0 stands for an image"


def masked(data: bytes) -> bytes:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    crc = register ^ 0xFFFFFFFF
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) % (1 << 32)).to_bytes(4, "little")


def record(data: bytes) -> bytes:
    size = len(data).to_bytes(8, "little")
    return size + masked(size) + data + masked(data)


def varint(number: int) -> bytes:
    number %= 1 << 64
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features: Any) -> bytes:
    """Returns an Example; in a name `__` stands for `/`, a value is bytes, text, an integer, or a
    list."""
    entries = b""
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], int):
            feature = part(3, part(1, b"".join(map(varint, values))))
        else:
            texts = [one.encode() if isinstance(one, str) else one for one in values]
            feature = part(1, b"".join(part(1, text) for text in texts))
        name = name.replace("__", "/")
        entries += part(1, part(1, name.encode()) + part(2, feature))
    return part(1, entries)


def imagenet(number: int, **more: Any) -> bytes:
    """Returns a record as ImageNet's are."""
    features = {
        "image__encoded": JPEG + b"%d" % number,
        "image__filename": f"n{number}.JPEG",
        "image__format": "JPEG",
        "image__class__label": number + 1,
        "image__class__synset": "n0144",
        "image__height": 32,
        "image__width": 48,
        "image__colorspace": "RGB",
    }
    return record(example(**features | more))


def write(file: Path, *records: bytes | bytearray) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(records))
    return file


def told(reader: Reader) -> list[tuple[str, str]]:
    """Returns path and reason of each bad record; every message is one line."""
    assert all(bad.message.isprintable() for bad in reader.bad)
    return [(bad.path, bad.reason) for bad in reader.bad]


def images(reader: Reader) -> list[bytes]:
    return [bytes(reader.read(row) or b"") for row in range(len(reader))]


# -- what is read


def test_records_of_imagenet(tmp_path: Path) -> None:
    file = write(tmp_path / "train-00000-of-00001", *map(imagenet, range(3)))
    reader = open_pack(file)
    table = reader.table
    assert isinstance(reader, TFRecordReader)
    assert images(reader) == [JPEG + b"%d" % number for number in range(3)]
    assert table.label.tolist() == [1, 2, 3]
    assert table.paths(0, 3) == ["n0.JPEG", "n1.JPEG", "n2.JPEG"]
    assert (table.width.tolist(), table.height.tolist()) == ([48] * 3, [32] * 3)
    assert [KINDS[code] for code in table.kind] == ["jpg"] * 3
    assert (reader.meta.labels, reader.meta.classes, reader.meta.fields) == ("int", (), ("image",))
    assert reader.notices == ["labels are as they are stored, up to 3: 0 is unused"]
    assert (reader.bad, reader.meta.id) == ([], "")


@pytest.mark.parametrize(
    ("texts", "labels", "classes"),
    [
        (["cat", "dog", "cat"], [0, 1, 0], ("cat", "dog")),
        (["cat", "dog", "cat"], [1, 3, 1], ("0", "cat", "2", "dog")),
        (["cat", "dog", "bird"], [0, 1, 0], ()),  # two names of one label
        (["cat", "cat", "cat"], [0, 1, 0], ()),  # one name of two labels
        (["2", "dog", "bird"], [0, 1, 3], ()),  # a name is the number of one without a name
        (["cat", "", "cat"], [0, 1, 0], ()),
        (["cat", "dog", "cat"], [0, -2, 0], ()),
        (["cat", "dog", "cat"], [0, 10_000, 0], ()),
        (["cat", "dog", "cat"], [0, -1, 0], ("cat",)),
    ],
)
def test_names_of_classes(
    tmp_path: Path, texts: list[str], labels: list[int], classes: tuple[str, ...]
) -> None:
    records = [
        imagenet(number, image__class__text=text, image__class__label=label)
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    reader = open_pack(write(tmp_path / "data.tfrecord", *records))
    assert (reader.meta.classes, reader.table.label.tolist()) == (classes, labels)
    assert reader.meta.labels == ("class" if classes else "int")


def test_labels_without_names_and_names_without_labels(tmp_path: Path) -> None:
    named = imagenet(0, image__class__text="cat", image__class__label=0)
    other = record(example(image__encoded=JPEG, image__class__text="dog"))
    reader = open_pack(write(tmp_path / "a.tfrecord", named, other, imagenet(1)))
    assert (reader.meta.labels, reader.table.label.tolist()) == ("int", [0, -1, 2])
    reader = open_pack(write(tmp_path / "b.tfrecord", other))
    assert (reader.meta.labels, reader.notices) == ("none", [])


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [("label", 7, 7), ("image__class__label", [5, 6], 5), ("label", "seven", -1), ("other", 7, -1)],
)
def test_other_labels(tmp_path: Path, name: str, value: Any, label: int) -> None:
    file = write(tmp_path / "data.tfrecord", record(example(**{"image": JPEG, name: value})))
    assert open_pack(file).table.label.tolist() == [label]


@pytest.mark.parametrize(
    ("image", "format", "name", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "JPEG", "a.JPEG", "png"),
        (b"RIFF1234WEBP", "", "", "webp"),
        (b"GIF89a", "jpeg", "a", "gif"),
        (b"BM1234\0\0\0\0", "", "", "bmp"),
        (b"qoif", "QOI", "a.jpg", "qoi"),
        (b"qoif", "png", "a.qoi", "png"),
        (b"qoif", "", "a.qoi", "qoi"),
        (b"qoif", "raw", "a", "bin"),
        (b"", "", "", "bin"),
    ],
)
def test_kinds(tmp_path: Path, image: bytes, format: str, name: str, kind: str) -> None:
    features = {"image__encoded": image, "image__format": format, "image__filename": name}
    reader = open_pack(write(tmp_path / "data.tfrecord", record(example(**features))))
    assert KINDS[reader.table.kind[0]] == kind
    assert reader.table.path(0) == (name or f"00000000.{kind}")
    assert images(reader) == [image]


def test_sidecars(tmp_path: Path) -> None:
    records = [
        example(jpg=JPEG, txt="one", key="000"),
        example(jpg=JPEG),
        example(jpg=JPEG, json=b"{}", txt=""),
        example(jpg=JPEG, txt=["two", "values"], image__source="a slash", **{"Large": "x"}),
    ]
    reader = open_pack(write(tmp_path / "data.tfrecord", *map(record, records)))
    assert reader.meta.fields == ("image", "json", "key", "txt")
    got = [[reader.load(row, slot) for slot in range(1, 4)] for row in range(4)]
    assert got == [[None, b"000", b"one"], [None] * 3, [b"{}", None, b""], [None] * 3]
    unpack(tmp_path / "data.tfrecord", tmp_path / "out")
    assert (tmp_path / "out/00000002.json").read_bytes() == b"{}"


def test_names_that_are_none(tmp_path: Path) -> None:
    odd = [b"a\0b.jpg", b"\xff\xfe.jpg", b""]
    records = [record(example(image__encoded=JPEG, image__filename=name)) for name in odd]
    reader = open_pack(write(tmp_path / "data.tfrecord", *records))
    assert reader.table.paths(0, 3) == [
        "00000000.jpg",
        os.fsdecode(b"\xff\xfe.jpg"),
        "00000002.jpg",
    ]


def test_sizes_in_pixels_that_are_none(tmp_path: Path) -> None:
    sizes = [(-1, 5), (1 << 31, 5), ([], "x"), (0, [7, 8])]
    records = [
        record(example(image__encoded=JPEG, image__width=width or [0], image__height=height))
        for width, height in sizes
    ]
    table = open_pack(write(tmp_path / "data.tfrecord", *records)).table
    assert (table.width.tolist(), table.height.tolist()) == ([0] * 4, [5, 5, 0, 7])


# -- what is damaged


def test_a_record_whose_crc_differs(tmp_path: Path) -> None:
    whole = [*map(imagenet, range(3))]
    file = write(tmp_path / "data.tfrecord", *whole)
    place = len(whole[0])
    data = bytearray(file.read_bytes())
    data[place + 60] ^= 1
    file.write_bytes(data)
    reader = open_pack(file)
    assert told(reader) == [(f"data.tfrecord record 1, offset {place}", "bad_record")]
    assert "CRC-32C differs" in reader.bad[0].message
    assert images(reader) == [JPEG + b"0", JPEG + b"2"]
    report = verify(file)
    assert (report.status, report.samples, len(report.bad)) == ("partial", 2, 1)


def test_a_record_whose_length_is_damaged(tmp_path: Path) -> None:
    whole = [*map(imagenet, range(3))]
    for wrong in (1, 0x80, 0xFF):
        for place in range(12):
            second = bytearray(whole[1])
            second[place] ^= wrong
            reader = open_pack(write(tmp_path / "data.tfrecord", whole[0], second, whole[2]))
            assert images(reader) == [JPEG + b"0"]
            assert told(reader) == [
                (f"data.tfrecord record 1, offset {len(whole[0])}", "bad_record")
            ]
            assert "what follows is lost" in reader.bad[0].message


def test_any_end_of_a_file(tmp_path: Path) -> None:
    whole = [*map(imagenet, range(2))]
    data = b"".join(whole)
    file = tmp_path / "data.tfrecord"
    for size in range(12, len(data) + 1):
        file.write_bytes(data[:size])
        reader = open_pack(file)
        count, rest = (0, size) if size < len(whole[0]) else (1, size - len(whole[0]))
        count, rest = (2, 0) if size == len(data) else (count, rest)
        assert len(reader) == count
        place = sum(map(len, whole[:count]))
        cut = [(f"data.tfrecord record {count}, offset {place}", "truncated")]
        assert told(reader) == (cut if rest else [])


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"text that is no message", "bad_record", "not a tf.train.Example"),
        (b"", "missing_part", "has no image"),
        (example(image__class__label=1), "missing_part", "has no image"),
        (example(image__encoded=1), "missing_part", "has no image"),
        (example(image__encoded=[JPEG, JPEG]), "missing_part", "has no image"),
        (part(1, part(1, part(1, b"a") + part(2, part(1, b"\x0a\x7f")))), "bad_record", "not a tf"),
        (
            example(image=JPEG)
            + part(1, part(1, part(1, b"label") + part(2, part(3, b"\x08\xff")))),
            "bad_record",
            "not a tf.train.Example",
        ),
    ],
)
def test_records_that_are_no_samples(tmp_path: Path, data: bytes, reason: str, words: str) -> None:
    file = write(tmp_path / "data.tfrecord", imagenet(0), record(data), imagenet(1))
    reader = open_pack(file)
    assert images(reader) == [JPEG + b"0", JPEG + b"1"]
    assert told(reader) == [(f"data.tfrecord record 1, offset {len(imagenet(0))}", reason)]
    assert words in reader.bad[0].message


def test_a_record_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "MOST_BYTES", len(imagenet(0)) - 16)
    file = write(tmp_path / "data.tfrecord", imagenet(0, more="x"), imagenet(0))
    reader = open_pack(file)
    assert (len(reader), told(reader)) == (1, [("data.tfrecord record 0, offset 0", "bad_record")])


def test_any_damage(tmp_path: Path) -> None:
    """Whatever the bytes are, there are samples, or an error of ours."""
    whole = b"".join(imagenet(number, txt="caption") for number in range(3))
    dice = random.Random(5)
    file = tmp_path / "data.tfrecord"
    messages = []
    for _ in range(DAMAGES):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            place = dice.randrange(12, len(data))
            data[place : place + dice.randrange(3)] = dice.randbytes(dice.randrange(1, 4))
        # CRCs that are right, so that what is in the records is looked at.
        records, rest = [], bytes(data)
        while len(rest) > 16:
            size = min(int.from_bytes(rest[:8], "little"), len(rest) - 16)
            records.append(record(rest[12 : 12 + size]))
            rest = rest[16 + size :]
        write(file, *records)
        try:
            reader = open_pack(file)
            told(reader)
            assert all(isinstance(reader.load(row), bytes) for row in range(len(reader)))
        except FastconvError as error:
            messages.append(str(error))
    assert all(message.isprintable() for message in messages)


def test_without_what_computes_crcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    data = bytearray(imagenet(0))
    data[-1] ^= 1
    reader = open_pack(write(tmp_path / "data.tfrecord", data))
    assert (len(reader), reader.bad) == (1, [])
    assert "pip install 'fastconv[tfrecord]'" in reader.notices[-1]


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    file = write(tmp_path / "data.tfrecord", imagenet(0))
    monkeypatch.setattr(MappedFile, "read", fail)
    with pytest.raises(PackError, match=r"data\.tfrecord: cannot be read: Input/output error$"):
        open_pack(file)


# -- what it is called


@pytest.mark.parametrize("name", ["a.tfrecord", "train-00000-of-00001", "data", "a.tar", "x.bin"])
def test_files_of_any_name(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, imagenet(0))
    assert find_format(file) is TFRecordReader
    assert images(open_pack(file)) == [JPEG + b"0"]


@pytest.mark.parametrize("name", ["a.tfrecord", "b.tfrecords", "train-00000-of-00001", "c"])
def test_an_empty_file(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name)
    if name == "c":
        with pytest.raises(NotAPackError):
            find_format(file)
        return
    assert len(open_pack(file)) == 0
    assert "the pack holds no samples (0 records)" in verify(file).warnings
    with pytest.raises(UsageError, match="holds no samples"):
        open_dataset(file)


@pytest.mark.parametrize("data", [b"no record", b"\xff\xd8\xff" * 9, b"x" * 5000])
def test_other_files(tmp_path: Path, data: bytes) -> None:
    file = write(tmp_path / "a.tfrecord", data)
    with pytest.raises(NotAPackError, match="not a pack that fastconv can read"):
        open_pack(file)
    with pytest.raises(NotAPackError, match="not a TFRecord: it begins with no record"):
        open_pack(file, "tfrecord")


def test_compressed_files(tmp_path: Path) -> None:
    whole = imagenet(0) * 9
    for name, data in (("gzip", gzip.compress(whole)), ("zlib", zlib.compress(whole))):
        for file in (tmp_path / f"{name}.tfrecord", tmp_path / name / "a-00000-of-00001"):
            write(file, data)
            place = file if file.suffix else file.parent
            with pytest.raises(NotAPackError, match=f"{name}-compressed, so that") as caught:
                open_dataset(place)
            assert str(caught.value).startswith(str(file))
            assert "decompress it first" in str(caught.value)


def test_a_folder_of_shards(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write(tmp_path / f"set/train.tfrecord-{number:05d}-of-00003", imagenet(number))
        write(tmp_path / f"set/train.tfrecord-{number:05d}-of-00003.idx", b"0 16\n")
    write(tmp_path / "set/.hidden.tfrecord", b"no record")
    write(tmp_path / "set/dataset_info.json", b"{}")
    reader = open_pack(tmp_path / "set")
    assert images(reader) == [JPEG + b"%d" % number for number in range(3)]
    assert reader.table.shard_row.tolist() == [0, 1, 2, 3]
    assert reader.notices == ["labels are as they are stored, up to 3: 0 is unused"]


def test_shards_that_are_empty_or_damaged(tmp_path: Path) -> None:
    write(tmp_path / "set/a.tfrecord", imagenet(0))
    write(tmp_path / "set/b.tfrecord")
    write(tmp_path / "set/c.tfrecord", b"no record at all")
    write(tmp_path / "set/d.tfrecord", imagenet(1), imagenet(2)[:-1])
    reader = open_pack(tmp_path / "set")
    assert images(reader) == [JPEG + b"0", JPEG + b"1"]
    assert reader.table.shard_row.tolist() == [0, 1, 1, 1, 2]
    place = len(imagenet(1))
    assert told(reader) == [
        ("c.tfrecord record 0, offset 0", "bad_record"),
        (f"d.tfrecord record 1, offset {place}", "truncated"),
    ]


def test_shards_that_are_missing_and_several_sets(tmp_path: Path) -> None:
    for name in ("train-00000-of-00003", "train-00002-of-00003", "val-00000-of-00001"):
        write(tmp_path / "set" / name, imagenet(-1))
    assert open_pack(tmp_path / "set").notices == [
        "shards of several sets lie here and are read as one: train, val",
        "1 of 3 shards are missing: train-00001-of-00003",
    ]


def test_other_folders(tmp_path: Path) -> None:
    write(tmp_path / "set/model.data-00000-of-00001", b"a checkpoint of TensorFlow")
    assert not TFRecordReader.recognises(str(tmp_path / "set"))
    assert not TFRecordReader.recognises(str(tmp_path / "nothing"))


# -- our own


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "tree"
    for number in range(7):
        file = root / ("cat", "dog")[number // 4] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + number, 5), (number, 0, 0)).save(file)
        if number % 2:
            file.with_suffix(".txt").write_text("caption" * number)
    return root


@pytest.fixture(params=["file", "shards"])
def out(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    """Returns a pack whose labels start from 1."""
    place = tmp_path / ("out.tfrecord" if request.param == "file" else "out")
    sharding = Sharding(samples=2) if request.param == "shards" else None
    options = {"label_base": 1}
    pack(tree, place, format="tfrecord", sidecars=("txt",), sharding=sharding, options=options)
    return place


def table_file(out: Path) -> Path:
    return out / "index.safetensors" if out.is_dir() else Path(f"{out}.index.safetensors")


def columns(reader: Reader) -> dict[str, list[Any]]:
    """Returns what does not depend on where samples lie, and what their bytes are."""
    arrays = reader.table.arrays()
    found = {
        name: column.tolist()
        for name, column in arrays.items()
        if not name.startswith(("offset", "checksum"))
    }
    fields = range(len(reader.meta.fields))
    return found | {"": [reader.load(row, slot) for row in range(len(reader)) for slot in fields]}


def test_without_their_table(out: Path) -> None:
    whole = open_pack(out)
    assert whole.notices == []
    table_file(out).unlink()
    reader = open_pack(out)
    assert columns(reader) == columns(whole)
    for name in ("classes", "labels", "fields", "settings"):
        assert getattr(reader.meta, name) == getattr(whole.meta, name)
    (notice,) = reader.notices
    assert "without it all records are read first" in notice
    with pytest.raises(FastconvError, match="copy it along"):
        open_dataset(out, verify=True)


def test_without_what_computes_crcs_it_is_read(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert open_pack(out).notices == []


def test_a_table_that_does_not_fit(out: Path, tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / out.name
    other.parent.mkdir()
    sharding = Sharding(samples=2) if out.is_dir() else None
    pack(tree, other, format="tfrecord", sidecars=("txt",), sharding=sharding)
    shutil.copy(table_file(other), table_file(out))
    reader = open_pack(out)
    assert "the records are read instead" in reader.notices[-1]
    assert reader.table.label.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_a_table_with_other_settings(out: Path) -> None:
    table = table_file(out)
    text = table.read_bytes()
    wrong = text.replace(b'\\"label_base\\":1', b'\\"label_base\\":0')
    assert wrong != text
    table.write_bytes(wrong)
    assert "its settings are not those of" in open_pack(out).notices[-1]


def test_a_file_that_has_grown(out: Path) -> None:
    file = sorted(out.glob("*.tfrecord"))[0] if out.is_dir() else out
    with open(file, "ab") as stream:
        stream.write(imagenet(5))
    reader = open_pack(out)
    assert "index.safetensors says" in reader.notices[-1]
    assert len(reader) == 8


def test_a_folder_that_holds_packs(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name in ("a", "b"):
        pack(tree, tmp_path / "set" / f"{name}.tfrecord")
    with pytest.raises(UsageError, match=r"holds packs \(a.tfrecord, b.tfrecord\), and is none"):
        open_pack(tmp_path / "set")


def test_a_file_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "data.tfrecord", imagenet(0))
    add_file = tfrecord.TableBuilder.add_file

    def replacing(self: tfrecord.TableBuilder, *arguments: Any) -> None:
        add_file(self, *arguments)
        os.replace(write(tmp_path / "other", imagenet(1)), file)

    monkeypatch.setattr(tfrecord.TableBuilder, "add_file", replacing)
    with pytest.raises(PackChangedError, match="is being replaced"):
        TFRecordReader.open(str(file))


def test_a_pack_that_is_being_published(out: Path) -> None:
    table_file(out).unlink()
    mark = Path(f"{out}.partial/publish")
    mark.parent.mkdir()
    mark.write_bytes(b"")
    with pytest.raises(PackChangedError, match="is being replaced"):
        TFRecordReader.open(str(out))
