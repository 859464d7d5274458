"""What is written is what dmlc-core would have written, and reads back whole."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters.formats.recordio import RecordIOWriter
from fastconv.converters.repairing import repair
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.converters.writer import Part
from fastconv.loaders import PackChangedError, UsageError, open_dataset, open_pack
from fastconv.loaders.formats.recordio import RecordIOReader, stamp_of
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.table import SampleTable

MAGIC = struct.pack("<I", 0xCED7230A)
ENDS = (
    b"",
    MAGIC,
    MAGIC * 3,
    b"abc",
    MAGIC + b"ab",
    b"x" + MAGIC + b"yz",
    MAGIC[:3],
    MAGIC + b"cd" * 5,
)


def records(data: bytes) -> Iterator[bytes]:
    """Yields what dmlc-core's `RecordIOReader::ReadRecord` reads; the file ends with the last."""
    place = 0
    while place < len(data):
        out = b""
        while True:
            magic, lrec = struct.unpack_from("<4sI", data, place)
            assert magic == MAGIC
            flag, length = lrec >> 29, lrec & (1 << 29) - 1
            assert flag in ((2, 3) if out else (0, 1))
            out += data[place + 8 : place + 8 + length]
            padding = data[place + 8 + length : place + 8 + length + -length % 4]
            assert padding == bytes(-length % 4)
            place += 8 + length + len(padding)
            if flag in (0, 3):
                break
            assert length % 4 == 0
            out += MAGIC
        yield out
    assert place == len(data)


def headers(file: Path) -> list[tuple[int, float, int, int, bytes]]:
    """Returns flag, label, id, id2 and image of each record of a file."""
    return [(*struct.unpack_from("<IfQQ", data), data[24:]) for data in records(file.read_bytes())]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of images behind most of which the magic stands."""
    root = tmp_path_factory.mktemp("source") / "tree"
    for number in range(3 * len(ENDS)):
        file = root / ("cat", "dog")[number // 10 % 2] / f"{number:02d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 99, 0)).save(file)
        data = file.read_bytes()
        file.write_bytes(data + bytes(-len(data) % 4) + ENDS[number % len(ENDS)])
    return root


def files_of(tree: Path) -> list[tuple[int, bytes]]:
    """Returns label and bytes of each image, in order."""
    return [
        (label, file.read_bytes())
        for label, name in enumerate(("cat", "dog"))
        for file in sorted((tree / name).iterdir())
    ]


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Path:
    """Returns a pack of the tree."""
    pack(tree, tmp_path / "out.rec")
    return tmp_path / "out.rec"


def test_one_file(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rec"
    report = pack(tree, out, workers=2)
    stamp = int.from_bytes(stamp_of(report.id), "little")
    assert stamp
    assert headers(out) == [
        (0, label, row, 0 if row else stamp, data)
        for row, (label, data) in enumerate(files_of(tree))
    ]
    beside = ["out.idx", "out.lst", "out.rec.index.safetensors"]
    assert sorted(os.listdir(tmp_path)) == sorted(["out.rec", *beside])
    assert verify(out, decode=True).structure
    again = tmp_path / "again.rec"
    pack(tree, again, workers=1)
    assert again.read_bytes() == out.read_bytes()


def test_shards(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = pack(tree, out, format="recordio", sharding=Sharding(samples=5))
    names = sorted(path.name for path in out.glob("*.rec"))
    assert names == [f"out-{number:06d}.rec" for number in range(5)]
    found = [headers(out / name) for name in names]
    assert [len(one) for one in found] == [4, 5, 5, 5, 5]
    assert [one[2] for rows in found for one in rows] == [*range(24)], "ids go on"
    assert [one[4] for rows in found for one in rows] == [data for _, data in files_of(tree)]
    stamp = int.from_bytes(stamp_of(report.id), "little")
    assert [one[3] for rows in found for one in rows[:2]] == [stamp, 0] * 5
    assert verify(out).status == "done"


def test_what_was_packed_is_read(tree: Path, copy: Path, tmp_path: Path) -> None:
    expected = files_of(tree)
    dataset = open_dataset(copy, decode=None)
    assert [(label, image) for image, label in dataset] == expected
    assert [
        (label, bytes(dataset.read(row))) for row, (label, _) in enumerate(expected)
    ] == expected
    verified = open_dataset(copy, decode=None, verify=True)
    assert [image for image, _ in verified.__getitems__(range(24))] == [d for _, d in expected]
    assert unpack(copy, tmp_path / "tree").files == 24
    assert files_of(tmp_path / "tree") == expected


def test_no_image_holds_the_magic(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tree / "cat/a.png")
    pack(tree, tmp_path / "out.rec")
    assert open_pack(tmp_path / "out.rec").table.extra is None


def test_an_image_that_is_nothing_but_the_magic(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "cat").mkdir(parents=True)
    pixels = np.frombuffer(MAGIC * 3 * 150_000, np.uint8).reshape(600, -1, 3)
    Image.fromarray(pixels).save(tree / "cat/a.bmp")
    (tree / "cat/b.bmp").write_bytes((tree / "cat/a.bmp").read_bytes() + bytes(2))
    pack(tree, tmp_path / "out.rec")
    expected = [(tree / name).read_bytes() for name in ("cat/a.bmp", "cat/b.bmp")]
    assert [one[4] for one in headers(tmp_path / "out.rec")] == expected
    assert [bytes(open_pack(tmp_path / "out.rec").read(row) or b"") for row in (0, 1)] == expected
    assert verify(tmp_path / "out.rec").status == "done"


# ------------------------------------------------------------------------------------ one record


def part_of(size: int, extra: int, **more: str) -> Part:
    """Returns the part of one image, the first of its file."""
    return Part(
        first_row=7,
        fields=("image",),
        samples=9,
        label=np.array([3]),
        kind=np.ones(1, np.uint8),
        width=np.zeros(1, np.uint32),
        height=np.zeros(1, np.uint32),
        extra=np.array([extra], np.uint32),
        size=(np.array([size]),),
        place=(np.array([32]),),
        own={},
        **more,
    )


def sealed(part: Part, data: bytes, before: bytes = b"?") -> bytearray:
    """Returns the record of a part's only image, made where something else was before."""
    writer = RecordIOWriter()
    start, stop = writer.bounds(part).tolist()
    record = bytearray(before * (stop - start))
    for place, piece in writer.frame(part, np.arange(1)).pieces():
        record[place : place + len(piece)] = piece
    record[32 : 32 + len(data)] = data
    writer.seal(part, 0, memoryview(record))
    return record


pieces = st.lists(st.one_of(st.sampled_from([MAGIC, MAGIC[:2], b"abcd"]), st.binary(max_size=9)))


@given(pieces.map(b"".join))
def test_a_record_is_split_and_joined(data: bytes) -> None:
    writer = RecordIOWriter()
    extra = writer.extra(memoryview(data))
    assert extra == 4 * sum(data[at : at + 4] == MAGIC for at in range(0, len(data) - 3, 4))
    part = part_of(len(data), extra)
    record = sealed(part, data)
    assert len(record) % 4 == 0
    assert [*records(bytes(record))] == [struct.pack("<IfQQ", 0, 3, 7, 0) + data]
    assert writer.field(part, 0, 0, memoryview(record)[32:]) == data


@given(pieces.map(b"".join), st.integers(0, 6))
def test_of_a_damaged_image_something_as_long_is_made(data: bytes, times: int) -> None:
    part = part_of(len(data), 4 * times)
    record = sealed(part, data)
    assert len(record) == 32 + (len(data) + 3) // 4 * 4 + 4 * times
    assert record == sealed(part, data, b"!"), "nothing of what was there before"
    RecordIOWriter().field(part, 0, 0, memoryview(record)[32:])


def test_the_stamp_comes_with_the_id() -> None:
    assert sealed(part_of(4, 0, id="ab" * 16), b"data")[24:32] == b"\xab\xab\xabf\xab\xab\xabc"
    assert RecordIOWriter.stamp("ab" * 16) == stamp_of("ab" * 16)
    for digits in ("0a23d7ce" * 4, "ce0a23d7" * 4):
        assert MAGIC not in stamp_of(digits)


# ------------------------------------------------------------------------- what it does not hold


def laid_out(labels: list[int], sizes: list[int], fields: tuple[str, ...] = ("image",)) -> None:
    """Plans a pack of such images."""
    count = len(labels)
    names = [b"cat/%d.jpg" % row for row in range(count)]
    table = SampleTable(
        fields=fields,
        label=np.array(labels),
        kind=np.ones(count, np.uint8),
        width=np.zeros(count, np.uint32),
        height=np.zeros(count, np.uint32),
        path_bytes=np.frombuffer(b"".join(names), np.uint8),
        path_offset=np.cumsum([0, *map(len, names)], dtype=np.uint64),
        shard_row=np.array([0, count]),
        offset=(),
        size=tuple(np.array(sizes) for _ in fields),
    )
    meta = PackMeta(format="recordio", samples=count, fields=fields, labels="int")
    RecordIOWriter().lay_out("", None, Sharding(), meta, table)


def test_sidecars(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no sidecars \(json, txt\): leave them out or choose"):
        laid_out([0], [5], ("image", "json", "txt"))
    captions = tmp_path / "tree"
    shutil.copytree(tree, captions)
    (captions / "cat/00.txt").write_text("caption")
    with pytest.raises(UsageError, match="images and labels only"):
        pack(captions, tmp_path / "out.rec", sidecars=("txt",))
    assert sorted(os.listdir(tmp_path)) == ["tree"]


def test_labels_that_a_float_does_not_hold() -> None:
    numbers = (0, 1, 24, 25, 53, 62)
    held = [sign * (1 << n) for n in numbers for sign in (1, -1)]
    held += [-1, 12345, (1 << 24) - 1, ((1 << 24) - 1) << 39, -(1 << 63), (1 << 24) + 2]
    assert all(int(np.float32(label)) == label for label in held)
    laid_out(held, [5] * len(held))
    (magic,) = struct.unpack("<f", MAGIC)
    for label in ((1 << 24) + 1, -(1 << 24) - 1, (1 << 63) - 1, (1 << 53) + 1, int(magic)):
        with pytest.raises(UsageError, match=f"32-bit floats, which cannot hold {label}: number"):
            laid_out([0, label, 1], [5, 5, 5])


def test_images_of_half_a_gibibyte() -> None:
    laid_out([0], [(1 << 29) - 25])
    with pytest.raises(UsageError, match=r"or more, such as cat/1.jpg: leave it out or choose"):
        laid_out([0, 0], [5, (1 << 29) - 24])


def test_images_without_labels(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out.rec", labels=False)
    assert {one[1] for one in headers(tmp_path / "out.rec")} == {-1}
    (tmp_path / "out.rec.index.safetensors").unlink()
    assert open_pack(tmp_path / "out.rec").meta.labels == "none"


# -------------------------------------------------------------------------- the table and the data


def test_without_the_table(tree: Path, copy: Path) -> None:
    copy.with_name("out.rec.index.safetensors").unlink()
    assert open_pack(copy).table.path(23) == "dog/19.jpg", "as the list beside it says"
    for name in ("out.idx", "out.lst"):
        copy.with_name(name).unlink()
    reader = open_pack(copy)
    assert [bytes(reader.read(row) or b"") for row in range(24)] == [d for _, d in files_of(tree)]
    assert reader.table.label.tolist() == [label for label, _ in files_of(tree)]
    assert reader.key(23) == "23"
    assert reader.table.path(23) == "23.jpg"
    (notice,) = reader.notices
    assert notice.startswith("its table out.rec.index.safetensors is not beside it: without it")
    report = verify(copy)
    assert [bad.message for bad in report.bad] == [
        f"{copy}: cannot tell whether shards or samples are missing: "
        "its table out.rec.index.safetensors is not beside it: copy it along"
    ]
    (copy.parent / "out.lst").write_text(
        "".join(f"{row}\t0\tsome/where/{row}.jpg\n" for row in range(24))
    )
    assert open_pack(copy).table.path(23) == "some/where/23.jpg"


def test_a_table_of_another_pack_is_not_believed(tree: Path, copy: Path) -> None:
    data = bytearray(copy.read_bytes())
    data[24] ^= 1
    copy.write_bytes(data)
    reader = open_pack(copy)
    (notice,) = reader.notices
    assert notice.startswith("the sample table is ignored, the records are read instead: ")
    assert "belongs to another pack" in notice
    assert [bytes(reader.read(row) or b"") for row in range(24)] == [d for _, d in files_of(tree)]
    data[24] ^= 1
    copy.write_bytes(data + bytes(4))
    assert "has" in open_pack(copy).notices[0]


def test_shards_of_another_pack(tree: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    for folder, labels in ((out, True), (other, False)):
        pack(tree, folder, format="recordio", sharding=Sharding(samples=9), labels=labels)
    shutil.copyfile(other / "other-000001.rec", out / "out-000001.rec")
    dataset = open_dataset(out, decode=None)
    assert dataset[0][0] == files_of(tree)[0][1]
    with pytest.raises(PackChangedError, match=r"out-000001\.rec: belongs to another pack"):
        dataset[10]


def test_problems_of_a_folder(tree: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    for folder, labels in ((out, True), (other, False)):
        pack(tree, folder, format="recordio", sharding=Sharding(samples=9), labels=labels)
    shutil.copyfile(other / "other-000001.rec", out / "stray.rec")
    assert [bad.path for bad in verify(out).bad] == ["stray.rec"]
    (out / "index.safetensors").unlink()
    assert [bad.path for bad in verify(out).bad] == ["index.safetensors", "stray.rec"]


def test_a_folder_of_several_packs_is_none(tree: Path, tmp_path: Path) -> None:
    for name in ("a.rec", "b.rec"):
        pack(tree, tmp_path / name)
    with pytest.raises(
        UsageError, match=r"holds packs \(a\.rec, b\.rec\), and is none itself: name one"
    ):
        open_pack(tmp_path)


def test_every_byte_is_verified_and_mended(tree: Path, copy: Path, tmp_path: Path) -> None:
    whole = copy.read_bytes()
    table = open_pack(copy).table
    place, size = int(table.offset[0][2]), int(table.size[0][2])
    assert table.extra is not None
    behind = place + size + int(table.extra[2])
    padded = int(table.offset[0][3]) + int(table.size[0][3])
    assert whole[padded : int(table.offset[0][4]) - 32] == bytes(1)
    # Of a record of four parts: magic, lrec, flag, label, id, id2, image, an lrec between parts,
    # its end; of the one behind it the zero at its end.
    at = whole.index(MAGIC, place)
    for byte in (*(place - 32 + n for n in range(0, 32, 4)), place, at, at + 4, behind - 1, padded):
        data = bytearray(whole)
        data[byte] ^= 4
        copy.write_bytes(data)
        report = verify(copy)
        assert len(report.bad) == 1, byte - place
        assert repair(copy, tree).status == "done"
        assert copy.read_bytes() == whole


def test_a_damaged_column_of_the_table(copy: Path) -> None:
    reader = open_pack(copy)
    assert isinstance(reader, RecordIOReader)
    for wrong in (8, 0xFFFFFFF0):
        table = replace(reader.table, extra=np.full(24, wrong, np.uint32))
        other = RecordIOReader(reader.path, reader.meta, table, reader.files)
        for get in (other.read, other.load):
            with pytest.raises(OSError, match="sample 3, key 03"):
                get(3)
