"""What is written is what any reader of TFRecords reads, and nothing else; an independent one reads
it here."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters.columns import joined
from fastconv.converters.formats import tfrecord
from fastconv.converters.formats.tfrecord import TFRecordOptions, TFRecordWriter
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.loaders import PackChangedError, UsageError, open_dataset, open_pack
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.reader import MappedReader
from fastconv.loaders.table import SampleTable

NAMES = {
    b"image/format", b"image/height", b"image/width", b"image/class/label", b"image/class/text",
    b"image/filename", b"image/encoded",
}  # fmt: skip

EDGES = [1, 99, 100, 105, 110, 125, 127, 128, 16_300, 16_370, 16_380, 16_384, 2_097_130, 2_097_152]
EDGES += [1 << 28, (1 << 31) - 400]
"""Sizes of values near which a length takes a byte more."""


# -- an independent reader


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % (1 << 32)


def records(file: Path) -> Iterator[bytes]:
    """Yields the data of each record; both CRCs are right, and the file ends with the last."""
    data = file.read_bytes()
    while data:
        size, check = struct.unpack_from("<QI", data)
        assert check == masked(data[:8])
        record, end = data[12 : 12 + size], data[12 + size : 16 + size]
        assert int.from_bytes(end, "little") == masked(record)
        yield record
        data = data[16 + size :]


def varint(data: bytes) -> tuple[int, bytes]:
    """Returns the number that data begin with, and the rest."""
    number = 0
    for place, byte in enumerate(data[:10]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, data[place + 1 :]
    raise AssertionError("a number that does not end")


def parts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and bytes of each part, all of which have a length."""
    while message:
        tag, message = varint(message)
        assert tag & 7 == 2
        size, message = varint(message)
        assert size <= len(message)
        yield tag >> 3, message[:size]
        message = message[size:]


def only(message: bytes, number: int) -> bytes:
    """Returns the one part of a message."""
    ((found, part),) = parts(message)
    assert found == number
    return part


def features(example: bytes) -> dict[bytes, Any]:
    """Returns the one value of each feature."""
    out: dict[bytes, Any] = {}
    for number, entry in parts(only(example, 1)):
        (one, name), (two, feature) = parts(entry)
        assert (number, one, two) == (1, 1, 2)
        ((kind, values),) = parts(feature)
        assert kind in (1, 3)
        assert name not in out
        value = only(values, 1)
        if kind == 1:
            out[name] = value
        else:
            unsigned, rest = varint(value)
            assert rest == b""
            out[name] = unsigned - (unsigned >> 63 << 64)
    return out


# -- the samples


def save(file: Path, number: int, **options: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (3 + number, 300), (number, 99, 0)).save(file, **options)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of images of several formats in two classes, some with captions."""
    root = tmp_path_factory.mktemp("source") / "tree"
    for number, name in enumerate(
        ["a.jpg", "b.png", "deep/er/c.gif", "d.webp", "e.bmp", "ünï cödé.tif", "f.jpg", "g.png"]
    ):
        save(root / ("cät" if number < 5 else "dog") / name, number)
    for number in range(20):
        save(root / "dog/many" / f"{number:02d}.jpg", number)
    (root / "cät/b.txt").write_bytes(b"")
    (root / "dog/f.TXT").write_bytes("schön".encode())
    (root / "dog/f.json").write_bytes(b"{}" * 200)
    (root / "dog/g.PNG").write_bytes((root / "cät/a.jpg").read_bytes())  # its name says otherwise
    return root


def expected(tree: Path, out: Path, base: int = 0) -> list[dict[bytes, Any]]:
    """Returns the features that each record has to have."""
    reader = open_pack(out)
    table = reader.table
    found = []
    for row in range(len(reader)):
        path, *sidecars = table.names(row)
        with Image.open(tree / path) as image:
            width, height = image.size
            format = str(image.format).encode()
        top = Path(path).parts[0]
        found.append(
            {
                b"image/format": format,
                b"image/height": height,
                b"image/width": width,
                b"image/class/label": ["cät", "dog"].index(top) + base,
                b"image/class/text": os.fsencode(top),
                b"image/filename": os.fsencode(path),
                b"image/encoded": (tree / path).read_bytes(),
            }
        )
        for name, file in zip(table.fields[1:], sidecars, strict=True):
            if file:
                found[-1][name.encode()] = (tree / file).read_bytes()
    return found


def without_stamp(example: dict[bytes, Any]) -> dict[bytes, Any]:
    return {name: value for name, value in example.items() if name != b"fastconv/pack"}


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("shards", [None, 3, 100])
def test_records(tree: Path, tmp_path: Path, shards: int | None, base: int) -> None:
    out = tmp_path / ("out" if shards else "out.tfrecord")
    pack(
        tree, out, format="tfrecord", sidecars=("txt", "json"), options={"label_base": base},
        sharding=Sharding(samples=shards) if shards else None,
    )  # fmt: skip
    files = [out]
    if shards:
        count = -(-29 // shards)
        files = [out / f"out-{number:05d}-of-{count:05d}.tfrecord" for number in range(count)]
        assert sorted(out.glob("*.tfrecord")) == files
    got = []
    for file in files:
        first, *others = map(features, records(file))
        assert first[b"fastconv/pack"][:33] == f"{base}{open_pack(out).meta.id}".encode()
        assert not any(b"fastconv/pack" in other for other in others)
        got += [first, *others]
    assert list(map(without_stamp, got)) == expected(tree, out, base)
    assert all(one.keys() >= NAMES for one in got)
    assert open_dataset(out).targets.tolist() == [one[b"image/class/label"] - base for one in got]


def test_labels_that_are_no_classes(tree: Path, tmp_path: Path) -> None:
    numbers = [0, -1, 127, 128, (1 << 63) - 2, -(1 << 63), 1 << 35, 7]
    wanted = {f"dog/many/{row:02d}.jpg": label for row, label in enumerate(numbers)}
    lines = [f"{name},{label}\n" for name, label in wanted.items()]
    (tmp_path / "labels.csv").write_text("file_name,label\n" + "".join(lines))
    for base in (0, 1):
        out = tmp_path / f"{base}.tfrecord"
        pack(tree, out, labels=tmp_path / "labels.csv", options={"label_base": base})
        got = {one[b"image/filename"].decode(): one for one in map(features, records(out))}
        assert {name: one[b"image/class/label"] - base for name, one in got.items()} == wanted
        assert not any(b"image/class/text" in one for one in got.values())


def test_without_labels(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out.tfrecord", labels=False)
    for one in map(features, records(tmp_path / "out.tfrecord")):
        assert not one.keys() & {b"image/class/label", b"image/class/text"}


def test_unpacked_again(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tfrecord"
    pack(tree, out, sidecars=("txt", "json"))
    unpack(out, tmp_path / "back")
    for file in (tmp_path / "back").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tree / file.relative_to(tmp_path / "back")).read_bytes()


def test_shards_are_as_large_as_they_may_be(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out", format="tfrecord", sharding=Sharding(bytes=9000))
    sizes = [file.stat().st_size for file in (tmp_path / "out").glob("*.tfrecord")]
    alone = [shard for shard in sizes if shard > 9000]
    counts = np.diff(open_pack(tmp_path / "out").table.shard_row)
    assert len(alone) == sum(
        size > 9000 and count == 1
        for size, count in zip(
            (s.size for s in open_pack(tmp_path / "out").meta.shards), counts, strict=True
        )
    )
    assert len(sizes) > 2


def test_a_bad_file_is_as_if_it_had_never_been_there(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy)
    sharding = Sharding(samples=3)
    pack(copy, tmp_path / "out", format="tfrecord", sharding=sharding)
    (copy / "cät/aa.jpg").write_bytes(b"no image")
    (copy / "dog/many/055.jpg").write_bytes(b"")
    (tmp_path / "other").mkdir()
    report = pack(copy, tmp_path / "other/out", format="tfrecord", sharding=sharding)
    assert len(report.bad) == 2
    for file in (tmp_path / "out").iterdir():
        assert file.read_bytes() == (tmp_path / "other/out" / file.name).read_bytes()


# -- places and sizes


def table_of(
    sizes: list[int], paths: list[bytes], kinds: list[int], captions: list[int] | None = None
) -> SampleTable:
    """Returns a table of made-up samples, in classes 0 and 1 by turns."""
    count = len(sizes)
    size = [np.array(sizes, np.int64)]
    if captions is not None:
        size.append(np.array(captions, np.int64))
    return SampleTable(
        fields=("image", "txt")[: len(size)],
        label=np.arange(count, dtype=np.int64) % 2,
        kind=np.array(kinds, np.uint8),
        width=np.arange(count, dtype=np.uint32) * np.uint32(1 << 20),
        height=np.arange(count, dtype=np.uint32),
        path_bytes=np.frombuffer(b"".join(paths), np.uint8),
        path_offset=np.cumsum([0, *map(len, paths)], dtype=np.uint64),
        shard_row=np.array([0, count], np.int64),
        offset=(),
        size=tuple(size),
    )


def meta_of(table: SampleTable) -> PackMeta:
    return PackMeta(
        format="tfrecord", samples=len(table), fields=table.fields, labels="class",
        classes=("ant", "b" * 300),
    )  # fmt: skip


def nested(size: int, name: bytes) -> tuple[bytes, int]:
    """Returns what stands before a value of bytes, and the size of all of it."""

    def number(value: int) -> bytes:
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    head = b""
    for before in (b"\x0a", b"\x0a", b"\x12", b""):
        head = before + number(size + len(head)) + head
        if before == b"\x12":
            head = b"\x0a" + number(len(name)) + name + head
    return b"\x0a" + head, size + 1 + len(head)


@pytest.mark.parametrize("name", [b"image/encoded", b"x" * 127, b"x" * 128])
def test_lengths_near_where_they_take_a_byte_more(name: bytes) -> None:
    sizes = np.unique([[edge + more for more in range(-30, 31)] for edge in EDGES])
    sizes = np.append(sizes[sizes >= 0], -1)
    totals = tfrecord.entry_sizes(name, sizes).tolist()
    data, lengths = joined(tfrecord.entry_heads(name, sizes))
    ends = np.cumsum(lengths).tolist()
    for size, total, start, end in zip(sizes.tolist(), totals, [0, *ends], ends, strict=False):
        head, whole = nested(size, name) if size >= 0 else (b"", 0)
        assert (data[start:end].tobytes(), total) == (head, whole)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_numbers(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    data = joined([tfrecord.varints(column)])[0].tobytes()
    for number, size in zip(numbers, tfrecord.varint_sizes(column).tolist(), strict=True):
        found, rest = varint(data)
        assert (found, len(data) - len(rest)) == (number % (1 << 64), size)
        assert size == 1 or data[size - 1]  # no byte more than it needs
        data = rest
    assert data == b""


def test_places_do_not_depend_on_what_is_known_last() -> None:
    writer = TFRecordWriter()
    sizes, paths = [1000, 0, 17, 130], [b"a", b"b" * 200, b"c/d.jpg", b"e"]
    plain = table_of(sizes, paths, [0, 0, 0, 0], [-1, 0, 5, 16384])
    other = table_of(
        sizes, paths, [KINDS.index("spider"), 1, KINDS.index("im"), 2], [-1, 0, 5, 16384]
    )
    layouts = [
        writer.lay_out("", None, Sharding(), meta_of(table), table) for table in (plain, other)
    ]
    assert layouts[0].shards == layouts[1].shards
    for one, two in zip(layouts[0].offset, layouts[1].offset, strict=True):
        assert one.tolist() == two.tolist()


def test_names_of_formats_take_the_same_room() -> None:
    sizes = {
        len(tfrecord.known_last(code, height, width))
        for code in range(len(KINDS))
        for height, width in ((0, 0), (1, 128), ((1 << 32) - 1, (1 << 31) - 1))
    }
    assert len(sizes) == 1
    for code, kind in enumerate(KINDS):
        block = tfrecord.known_last(code, 70_000, (1 << 32) - 1)
        found = features(b"\x0a" + tfrecord.varint(len(block)) + block)
        assert found[b"image/format"] == {"jpg": b"JPEG", "tif": b"TIFF"}.get(
            kind, kind.upper().encode()
        )
        assert (found[b"image/height"], found[b"image/width"]) == (70_000, (1 << 32) - 1)


# -- what is wrong


@pytest.mark.parametrize("base", [-1, 2])
def test_labels_start_from_0_or_1(base: int) -> None:
    with pytest.raises(UsageError, match=f"label_base is 0 or 1, not {base}"):
        TFRecordOptions(label_base=base)


def test_a_label_that_cannot_be_counted_from_1() -> None:
    table = table_of([1], [b"a"], [1])
    table.label[0] = (1 << 63) - 1
    with pytest.raises(UsageError, match="leave out label_base"):
        TFRecordWriter(TFRecordOptions(label_base=1)).lay_out(
            "", None, Sharding(), meta_of(table), table
        )


@pytest.mark.parametrize(
    ("sizes", "captions"), [([1, 1 << 31], None), ([1, 1 << 30], [0, 1 << 30])]
)
def test_more_than_a_message_holds(sizes: list[int], captions: list[int] | None) -> None:
    table = table_of(sizes, [b"a", b"b\x1b.png"], [1, 1], captions)
    with pytest.raises(UsageError, match=r"^b\\x1b\.png: TFRecord .* no sample of 2 GiB") as caught:
        TFRecordWriter().lay_out("", None, Sharding(), meta_of(table), table)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["image/encoded", "a\nb", "\udcff"])
def test_a_sidecar_that_cannot_be_a_feature(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a feature of a TFRecord") as caught:
        tfrecord.check_names([name])
    assert str(caught.value).isprintable()


# -- what verify finds


@pytest.fixture
def shards(tree: Path, tmp_path: Path) -> Path:
    """Returns a folder of small shards."""
    out = tmp_path / "out"
    options = {"label_base": 1}
    pack(
        tree, out, format="tfrecord", sidecars=("txt",), sharding=Sharding(samples=10),
        options=options,
    )  # fmt: skip
    return out


def between(out: Path) -> Iterator[tuple[Path, int]]:
    """Yields file and place of some bytes that belong to no sample."""
    reader = open_pack(out)
    assert isinstance(reader, MappedReader)
    table = reader.table
    for shard, file in enumerate(map(Path, reader.files)):
        inside: set[int] = set()
        for row in range(*table.shard_row[shard : shard + 2].tolist()):
            for offset, size in zip(table.offset, table.size, strict=True):
                if size[row] > 0:
                    inside |= {*range(int(offset[row]), int(offset[row] + size[row]))}
        others = [place for place in range(file.stat().st_size) if place not in inside]
        yield from ((file, place) for place in [*others[:400:11], *others[400::101], others[-1]])


def test_any_byte_between_samples(shards: Path) -> None:
    assert verify(shards).status == "done"
    for file, place in between(shards):
        whole = file.read_bytes()
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        report = verify(shards)
        assert report.status == "partial", (file, place)
        file.write_bytes(whole)


def test_a_foreign_shard_in_the_folder(shards: Path) -> None:
    (shards / "other-00000-of-00001").write_bytes(b"")
    report = verify(shards)
    assert [bad.path for bad in report.bad] == ["other-00000-of-00001"]
    assert "is no shard of this pack" in report.bad[0].message


def test_shards_of_two_packs_without_a_table(shards: Path, tmp_path: Path) -> None:
    (shards / "index.safetensors").unlink()
    assert [bad.path for bad in verify(shards).bad] == ["index.safetensors"]
    save(tmp_path / "more/x.jpg", 1)
    pack(tmp_path / "more", tmp_path / "out-00009-of-00009.tfrecord")
    shutil.copy(tmp_path / "out-00009-of-00009.tfrecord", shards)
    assert [bad.path for bad in verify(shards).bad] == [
        "index.safetensors", "out-00009-of-00009.tfrecord",
    ]  # fmt: skip


def test_a_shard_of_another_pack(shards: Path, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    other = tmp_path / "two/out"
    pack(tree, other, format="tfrecord", sidecars=("txt",), sharding=Sharding(samples=10))
    first, last = sorted(file.name for file in shards.glob("*.tfrecord"))[::2]
    shutil.copy(other / last, shards)
    dataset = open_dataset(shards)
    with pytest.raises(PackChangedError, match="belongs to another pack"):
        dataset[25]
    shutil.copy(other / first, shards)
    assert "the records are read instead" in open_pack(shards).notices[0]
