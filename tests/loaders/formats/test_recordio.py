"""RecordIO files that others have made: whatever dmlc-core writes is read, and what is damaged is
told."""

from __future__ import annotations

import io
import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastconv.loaders import NotAPackError, SampleError, open_dataset, open_pack
from fastconv.loaders.files import MappedFile
from fastconv.loaders.formats import recordio
from fastconv.loaders.formats.recordio import RecordIOReader
from fastconv.loaders.open import find_format

MAGIC = struct.pack("<I", 0xCED7230A)
Labels = float | Sequence[float]


def record(data: bytes) -> bytes:
    """Returns what dmlc-core's `RecordIOWriter::WriteRecord` writes of these data."""
    out, done, words = b"", 0, len(data) // 4
    for place in range(0, 4 * words, 4):
        if data[place : place + 4] == MAGIC:
            lrec = (2 if done else 1) << 29 | place - done
            out += MAGIC + struct.pack("<I", lrec) + data[done:place]
            done = place + 4
    lrec = (3 if done else 0) << 29 | len(data) - done
    return out + MAGIC + struct.pack("<I", lrec) + data[done:] + bytes(-len(data) % 4)


def packed(label: Labels, number: int, image: bytes) -> bytes:
    """Returns what MXNet's `recordio.pack` makes of an image."""
    if isinstance(label, Sequence):
        labels = struct.pack(f"<{len(label)}f", *label)
        return struct.pack("<IfQQ", len(label), 0, number, 0) + labels + image
    return struct.pack("<IfQQ", 0, label, number, 0) + image


def picture(seed: int, size: int = 0) -> bytes:
    """Returns a small JPEG; behind it as many zeros as make its bytes a multiple of 4, and more."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (seed * 40 % 256, 99, seed)).save(file, "JPEG")
    data = file.getvalue()
    return data + bytes(-len(data) % 4 + size)


def write(folder: Path, data: Sequence[bytes], name: str = "a.rec") -> tuple[Path, list[int]]:
    """Returns a new file of records, and where each starts."""
    records = [record(one) for one in data]
    (folder / name).write_bytes(b"".join(records))
    return folder / name, np.cumsum([0, *map(len, records)]).tolist()


def images(reader: RecordIOReader) -> list[bytes]:
    """Returns all images, read in each way."""
    views = [bytes(reader.read(row) or b"") for row in range(len(reader))]
    assert views == [reader.load(row) for row in range(len(reader))]
    return views


def opened(path: Path) -> RecordIOReader:
    reader = open_pack(path)
    assert isinstance(reader, RecordIOReader)
    return reader


# ------------------------------------------------------------------------------------------- whole


def test_what_im2rec_makes(tmp_path: Path) -> None:
    pictures = [picture(seed, seed) for seed in range(3)]
    path, _ = write(tmp_path, [packed(row, 10 * row + 10, one) for row, one in enumerate(pictures)])
    before = sorted(os.listdir(tmp_path))
    reader = opened(path)
    assert images(reader) == pictures
    assert reader.table.label.tolist() == [0, 1, 2]
    assert [reader.key(row) for row in range(3)] == ["10", "20", "30"]
    assert reader.table.paths(0, 3) == ["10.jpg", "20.jpg", "30.jpg"]
    assert (reader.notices, reader.bad, reader.meta.labels) == ([], [], "int")
    assert open_dataset(path)[1][1] == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_the_kind_is_told_from_the_bytes(tmp_path: Path) -> None:
    data: list[bytes] = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        file = io.BytesIO()
        Image.new("RGB", (8, 8)).save(file, kind)
        data.append(packed(0, len(data), file.getvalue()))
    path, _ = write(tmp_path, [*data, packed(0, 9, b"no image")])
    assert opened(path).table.paths(0, 7) == [
        "0.png", "1.jpg", "2.webp", "3.gif", "4.bmp", "5.tif", "9.bin",
    ]  # fmt: skip


def test_without_any_label(tmp_path: Path) -> None:
    path, _ = write(tmp_path, [packed(-1, row, picture(row)) for row in range(2)])
    assert opened(path).meta.labels == "none"


def test_the_index_names_records_and_the_list_their_images(tmp_path: Path) -> None:
    path, places = write(tmp_path, [packed(row, 0, picture(row)) for row in range(3)])
    lines = [f"{7 - row}\t{places[row]}\n" for row in (2, 0, 1)]
    (tmp_path / "a.idx").write_text("".join(lines))
    (tmp_path / "a.lst").write_bytes(b"7\t0.000000\tcat/\xff 1.jpg\r\n5\t1\t2.5\tdog/2.jpg\n")
    reader = opened(path)
    assert [reader.key(row) for row in range(3)] == ["7", "6", "5"]
    assert reader.table.paths(0, 3) == [os.fsdecode(b"cat/\xff 1.jpg"), "6.jpg", "dog/2.jpg"]
    assert reader.notices == []


@pytest.mark.parametrize("seed", range(8))
def test_split_records(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    pieces = [MAGIC, MAGIC, MAGIC * 3, b"abcd", b"x", b"\xce", MAGIC[:3], bytes(9)]
    pictures = [
        picture(row) + b"".join(dice.choices(pieces, k=dice.randrange(9))) for row in range(40)
    ]
    path, _ = write(tmp_path, [packed(row, row, one) for row, one in enumerate(pictures)])
    reader = opened(path)
    assert images(reader) == pictures
    split = [sum(p[at : at + 4] == MAGIC for at in range(0, len(p) - 3, 4)) for p in pictures]
    assert reader.table.extra is not None
    assert (reader.table.extra // 4).tolist() == split
    assert [reader.key(row) for row in range(40)] == [str(row) for row in range(40)]
    dataset = open_dataset(path, decode=None)
    assert [one for one, _ in dataset.__getitems__(range(40))] == pictures


def test_a_split_header(tmp_path: Path) -> None:
    (number,) = struct.unpack("<Q", MAGIC + bytes(4))
    (label,) = struct.unpack("<f", MAGIC)
    pictures = [picture(1), picture(2) + MAGIC, picture(3)]
    path, places = write(
        tmp_path,
        [
            packed(label, 1, pictures[0]),
            packed(5, number, pictures[1]),
            packed([label, 1.5], 3, pictures[2]),
        ],
    )
    reader = opened(path)
    assert images(reader) == pictures[:2]
    assert reader.table.label.tolist() == [int(label), 5]
    assert reader.key(1) == str(number)
    (bad,) = reader.bad
    assert bad.message == f"a.rec record 2 at byte {places[2]}: its labels are split"


def test_labels_that_are_no_single_integer_are_a_field(tmp_path: Path) -> None:
    pictures = [picture(seed) for seed in range(6)]
    labels: list[Labels] = [4, [1, 2, 3], 0.5, [7], [1.5], [float("nan"), 1e30]]
    path, _ = write(
        tmp_path,
        [packed(*one) for one in zip(labels, range(6), pictures, strict=True)],
    )
    reader = opened(path)
    assert images(reader) == pictures
    assert reader.table.label.tolist() == [4, -1, -1, 7, -1, -1]
    assert reader.meta.fields == ("image", "labels.f32")
    found = [reader.read(row, 1) for row in range(6)]
    assert [one is None for one in found] == [True, False, False, True, False, False]
    for row in (1, 2, 4, 5):
        values = np.atleast_1d(np.array(labels[row], np.float32))
        np.testing.assert_array_equal(np.frombuffer(found[row] or b"", "<f4"), values)
    (notice,) = reader.notices
    assert "labels.f32" in notice


def test_labels_of_eight_bytes(tmp_path: Path) -> None:
    """As tools for faces have written them: behind the usual header, or with a wider one."""
    pictures = [picture(seed) for seed in range(4)]
    wide = struct.Struct("<IxxxxdQQ")
    path, _ = write(
        tmp_path,
        [
            struct.pack("<IfQQdd", 2, 0, 11, 0, 3.5, 1e300) + pictures[0],
            wide.pack(2, 0, 12, 0) + struct.pack("<dd", 1.25, 2) + pictures[1],
            wide.pack(0, 9, 13, 0) + pictures[2],
            wide.pack(1, 0, 14, 0) + struct.pack("<d", 8) + pictures[3],
        ],
    )
    reader = opened(path)
    assert images(reader) == pictures
    assert [reader.key(row) for row in range(4)] == ["11", "12", "13", "14"]
    assert reader.table.label.tolist() == [-1, -1, 9, 8]
    assert reader.meta.fields == ("image", "labels.f64")
    assert np.frombuffer(reader.read(0, 1) or b"", "<f8").tolist() == [3.5, 1e300]
    assert np.frombuffer(reader.read(1, 1) or b"", "<f8").tolist() == [1.25, 2]
    assert reader.read(2, 1) is None


def test_records_that_hold_labels_alone_are_no_samples(tmp_path: Path) -> None:
    """Those of faces begin with one that says how many there are, and end with one a person."""
    path, _ = write(
        tmp_path,
        [packed([3, 5], 0, b""), packed(0, 1, picture(1)), packed(1, 2, picture(2)),
         packed([1, 2], 3, b"")],
    )  # fmt: skip
    reader = opened(path)
    assert [reader.key(row) for row in range(2)] == ["1", "2"]
    assert reader.bad == []
    assert reader.notices == ["a.rec: 2 records hold labels and no image"]


def test_ids_that_are_not_unique(tmp_path: Path) -> None:
    path, _ = write(tmp_path, [packed(0, 0, picture(row)) for row in range(3)])
    reader = opened(path)
    assert reader.table.paths(0, 3) == ["0.jpg", "1.jpg", "2.jpg"]
    assert reader.notices == ["a.rec: its records are numbered: their ids are not unique"]


def test_a_folder_of_files(tmp_path: Path) -> None:
    for name in ("b.rec", "a.rec"):
        write(tmp_path, [packed(0, row, picture(row)) for row in range(2)], name)
    (tmp_path / ".c.rec").write_bytes(b"hidden")
    reader = opened(tmp_path)
    assert reader.table.paths(0, 4) == ["a/0.jpg", "a/1.jpg", "b/0.jpg", "b/1.jpg"]
    assert [reader.key(row) for row in range(4)] == ["a/0", "a/1", "b/0", "b/1"]
    write(tmp_path, [packed(0, 2 + row, picture(row)) for row in range(2)], "b.rec")
    assert [opened(tmp_path).key(row) for row in range(4)] == ["0", "1", "2", "3"]


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.rec").touch()
    assert len(opened(tmp_path / "a.rec")) == 0


def test_a_name_is_enough_to_be_looked_at_but_not_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(b"something else" * 9)
    assert find_format(path) is RecordIOReader
    with pytest.raises(NotAPackError, match="not a RecordIO file of images"):
        open_pack(path)


# ------------------------------------------------------------------------------ beside the records


@pytest.mark.parametrize(
    "text", ["0 0\n", "zero\t0\n", "-1\t0\n", "0\t0\t0\n", "\n", f"{1 << 63}\t0\n"]
)
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    path, _ = write(tmp_path, [packed(0, 5, picture(0))])
    (tmp_path / "a.idx").write_text(text)
    reader = opened(path)
    assert reader.key(0) == "5"
    assert reader.notices == ["a.idx is ignored: its lines are not a number and a place"]


def test_an_index_of_another_file(tmp_path: Path) -> None:
    path, places = write(tmp_path, [packed(0, 5, picture(0))])
    (tmp_path / "a.idx").write_text(f"0\t4\n1\t{places[-1] + 4}\n")
    reader = opened(path)
    assert (reader.key(0), reader.bad) == ("5", [])
    assert reader.notices == ["the index of a.rec is ignored: it is another file's"]


@pytest.mark.parametrize(
    "text",
    [b"0\n", b"x\t0\ta.jpg\n", b"0\t0\t\n", b"0\t0\ta\0b\n", b"0\t0\ta\n0\t0\tb\n",
     b"0\t0\ta\n1\t0\ta\n", b"1\t/some/where.jpg\t0\n1\t/some/other.jpg\t1\n"],
)  # fmt: skip
def test_a_list_that_is_none(tmp_path: Path, text: bytes) -> None:
    path, _ = write(tmp_path, [packed(0, 0, picture(0))])
    (tmp_path / "a.lst").write_bytes(text)
    reader = opened(path)
    assert reader.table.path(0) == "0.jpg"
    assert reader.notices == [
        "a.lst is ignored: its lines are not a number, labels and a path, each once"
    ]


def test_what_lies_beside_cannot_be_read(tmp_path: Path) -> None:
    path, _ = write(tmp_path, [packed(0, 0, picture(0))])
    (tmp_path / "a.idx").mkdir()
    os.mkfifo(tmp_path / "a.lst")
    assert opened(path).notices == [
        "a.idx is ignored: Is a directory",
        "a.lst is ignored: not a regular file",
    ]


# ------------------------------------------------------------------------------------------ damage


@pytest.fixture
def four(tmp_path: Path) -> tuple[Path, list[int], list[bytes]]:
    """Returns a file of four records, the third of them split, where they start, and their
    images."""
    pictures = [
        picture(0),
        picture(1, 2),
        picture(2) + MAGIC + b"abc" + MAGIC + b"abcd" + MAGIC,
        picture(3, 1),
    ]
    path, places = write(tmp_path, [packed(row, row, one) for row, one in enumerate(pictures)])
    return path, places, pictures


def test_a_file_that_is_cut_anywhere(four: tuple[Path, list[int], list[bytes]]) -> None:
    path, places, pictures = four
    for end in range(places[-1] - 1, places[1] - 1, -1):
        os.truncate(path, end)
        reader = opened(path)
        whole = sum(stop <= end for stop in places[1:])
        # Where nothing but zeros behind the data is gone, the image is still there.
        assert images(reader) in (pictures[:whole], pictures[: whole + 1])
        if len(reader) == whole and end not in places:
            (bad,) = reader.bad
            assert (bad.path, bad.reason) == (f"a.rec record {whole}", "truncated")
            assert f"at byte {places[whole]}: " in bad.message
        else:
            assert reader.bad == []
    os.truncate(path, places[1] - 1)
    with pytest.raises(NotAPackError, match="record 0 at byte 0: cut short: needs"):
        open_pack(path)


@pytest.mark.parametrize("first", [0, 7])
def test_a_record_whose_magic_is_damaged(
    four: tuple[Path, list[int], list[bytes]], first: int
) -> None:
    path, places, pictures = four
    if first:
        lines = [f"{first + row}\t{place}\n" for row, place in enumerate(places[:4])]
        (path.parent / "a.idx").write_text("".join(lines))
    whole = path.read_bytes()
    for row in range(4):
        data = bytearray(whole)
        data[places[row]] ^= 1
        path.write_bytes(data)
        reader = opened(path)
        (bad,) = reader.bad
        assert (bad.path, bad.reason) == (f"a.rec record {first + row}", "bad_record")
        assert f"at byte {places[row]}: " in bad.message
        keys = [str(first + at) for at in range(4) if at != row]
        assert [reader.key(at) for at in range(3)] == keys
        assert images(reader) == pictures[:row] + pictures[row + 1 :]


@pytest.mark.parametrize("length", [0, 5, 300, 1200, 3000, (1 << 29) - 1])
def test_a_length_that_is_damaged(four: tuple[Path, list[int], list[bytes]], length: int) -> None:
    """What follows is read all the same, and what is damaged is told, or is seen in the image."""
    path, places, pictures = four
    for row in range(3):
        data = bytearray(path.read_bytes())
        data[places[row] + 4 : places[row] + 8] = struct.pack("<I", length)
        (path.parent / "b.rec").write_bytes(data)
        reader = opened(path.parent / "b.rec")
        found = images(reader)
        assert [one for one in found if one in pictures] == pictures[:row] + pictures[row + 1 :]
        assert {bad.reason for bad in reader.bad} == {"bad_record"}


def test_damage_between_the_parts_of_a_record(four: tuple[Path, list[int], list[bytes]]) -> None:
    path, places, pictures = four
    data = path.read_bytes()
    split = places[2] + 8 + 24 + len(picture(2))
    assert data[split : split + 4] == MAGIC
    for place, new in (
        (split, b"XXXX"),
        (split + 4, struct.pack("<I", 2 << 29 | 5)),
        (split + 4, struct.pack("<I", 1 << 29 | 4)),
        (split + 4, struct.pack("<I", 3 << 29 | 4)),
    ):
        (path.parent / "b.rec").write_bytes(data[:place] + new + data[place + 4 :])
        reader = opened(path.parent / "b.rec")
        assert [one for one in images(reader) if one in pictures] == [*pictures[:2], pictures[3]]
        assert {bad.reason for bad in reader.bad} == {"bad_record"}


def test_the_index_tells_of_records_behind_the_end(
    four: tuple[Path, list[int], list[bytes]],
) -> None:
    path, places, _ = four
    (path.parent / "a.idx").write_text("".join(f"{n}\t{p}\n" for n, p in enumerate(places[:4])))
    os.truncate(path, places[1] + 40)
    assert [bad.message for bad in opened(path).bad] == [
        f"a.rec record 1 at byte {places[1]}: cut short: needs {len(packed(0, 0, picture(1, 2)))} "
        "bytes, has 32",
        "a.rec: 2 records of its index lie behind its end",
    ]


def test_records_without_what_makes_an_image(tmp_path: Path) -> None:
    path, _ = write(
        tmp_path, [packed(0, 0, b""), b"short", packed([1] * 99, 2, b"")[:60], packed(1, 3, b"x")]
    )
    reader = opened(path)
    assert images(reader) == [b"x"]
    assert [(bad.path, bad.reason) for bad in reader.bad] == [
        ("a.rec record 0", "empty"),
        ("a.rec record 1", "bad_record"),
        ("a.rec record 2", "bad_record"),
    ]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 4, 32, 128, 255])), max_size=6
    ),
    inside=st.booleans(),
    end=st.integers(0, 8),
)
def test_no_damage_is_more_than_an_error(
    tmp_path: Path, flips: list[tuple[int, int]], inside: bool, end: int
) -> None:
    pictures = [picture(0), picture(1) + MAGIC * 2 + b"ab", picture(2)]
    path, places = write(
        tmp_path, [packed([row, 1.5], row, one) for row, one in enumerate(pictures)]
    )
    damaged = bytearray(path.read_bytes())
    for place, bits in flips:
        at = places[place % 3] + place % 48 if inside else place
        damaged[at % len(damaged)] ^= bits
    path.write_bytes(damaged[: len(damaged) - end])
    try:
        reader = opened(path)
    except NotAPackError:
        return
    for row in range(len(reader)):
        for slot in range(len(reader.meta.fields)):
            assert reader.read(row, slot) == reader.load(row, slot)
    assert all(bad.message.isprintable() for bad in reader.bad)


def test_a_disk_that_fails_under_a_split_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = write(tmp_path, [packed(0, 0, picture(0) + MAGIC)])
    reader = opened(path)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MappedFile, "read", fail)
    with pytest.raises(SampleError, match="cannot be read: Input/output error"):
        reader.load(0)


# ----------------------------------------------------------------------------------------- hostile


class Counting:
    """What takes the heads of parts out of a file, and counts how many it has taken."""

    size = recordio.PART.size
    unpack = recordio.PART.unpack

    def __init__(self) -> None:
        self.taken = 0

    def unpack_from(self, view: memoryview, place: int) -> tuple[int, ...]:
        self.taken += 1
        return struct.unpack_from("<II", view, place)


def part(flag: int, length: int) -> bytes:
    return MAGIC + struct.pack("<I", flag << 29 | length)


@pytest.mark.parametrize("end", ["", "last", "last and more"])
@pytest.mark.parametrize("flag", [0, 1])
def test_heads_that_lead_into_each_other_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int, end: str
) -> None:
    """Many records, each as long as to where one and the same row of parts begins."""
    count = 300
    heads = b"".join(part(flag, 8 * (count - row - 1)) for row in range(count))
    ends = {"": b"", "last": part(3, 0), "last and more": part(3, 0) + b"12345678"}
    rest = [record(packed(row, row, picture(row))) for row in range(2)]
    data = heads + part(1, 0) * (not flag) + part(2, 0) * count + ends[end]
    (tmp_path / "a.rec").write_bytes(rest[0] + data + rest[1])
    counting = Counting()
    monkeypatch.setattr(recordio, "PART", counting)
    reader = opened(tmp_path / "a.rec")
    assert counting.taken < 8 * (2 * count + 4)
    assert images(reader) == [picture(0), picture(1)]
    assert reader.bad
    assert {bad.reason for bad in reader.bad} <= {"bad_record", "truncated"}
