"""Parquet files of others, as `pyarrow` writes them, and our own without their table."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from fastconv.converters import Sharding, pack
from fastconv.loaders import (
    CorruptPackError,
    FastconvError,
    MissingDependencyError,
    NotAPackError,
    PackChangedError,
    SampleError,
    UsageError,
    open_dataset,
    open_pack,
)
from fastconv.loaders.formats.parquet import DecodedReader, ParquetReader
from fastconv.loaders.open import find_format
from fastconv.loaders.reader import Reader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DAMAGES = 300
"""Times that a file is damaged and read."""

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

PLAIN: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False},
    "plain-v2": {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
    "plain-small-pages": {"compression": "none", "use_dictionary": False, "data_page_size": 200},
}
DECODED: dict[str, dict[str, Any]] = {
    "snappy": {},
    "gzip": {"compression": "gzip", "use_dictionary": False, "write_page_checksum": True},
    "dictionary": {"compression": "none"},
    "delta": {
        "compression": "none",
        "use_dictionary": False,
        "column_encoding": {"image.bytes": "DELTA_LENGTH_BYTE_ARRAY"},
    },
}


def images(count: int, seed: int = 0) -> list[bytes]:
    """Returns stand-ins for images: bytes of any length but 0."""
    dice = random.Random(seed)
    return [dice.randbytes(dice.choice((1, 7, 100, 3000))) for _ in range(count)]


def structs(rows: list[Any]) -> Any:
    """Returns a column as Hugging Face has it."""
    return pa.array(rows, IMAGE)


def features(**columns: dict[str, Any]) -> dict[str, str]:
    """Returns what Hugging Face says of its columns."""
    return {"huggingface": json.dumps({"info": {"features": columns}})}


def write(file: Path, columns: dict[str, Any], metadata: Any = None, **options: Any) -> Path:
    """Writes a file; returns its path."""
    table = pa.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata(metadata)
    pq.write_table(table, file, **options)
    return file


def stored(reader: Reader, slot: int = 0) -> list[bytes | None]:
    """Returns the bytes of a field of all samples, read in another order."""
    rows = [*range(len(reader))]
    random.Random(1).shuffle(rows)
    found = {row: reader.load(row, slot) for row in rows}
    return [found[row] for row in range(len(reader))]


# ------------------------------------------------------------------------------------------ columns


@pytest.mark.parametrize("kind", [*PLAIN, *DECODED])
@pytest.mark.parametrize("group", [1, 3, 100])
def test_images_of_hugging_face(tmp_path: Path, kind: str, group: int) -> None:
    data = images(40)
    rows: list[Any] = [{"bytes": each, "path": f"a/{row}.png"} for row, each in enumerate(data)]
    rows[3], rows[8] = None, {"bytes": None, "path": "x.jpg"}
    rows[20]["bytes"], rows[21]["path"] = b"", None
    labels = [None if row == 5 else row % 2 for row in range(40)]
    texts = [None if row % 3 else "x" * row for row in range(40)]
    file = write(
        tmp_path / "a.parquet",
        {"image": structs(rows), "label": labels, "txt": texts, "width": range(40)},
        features(image={"_type": "Image"}, label={"_type": "ClassLabel", "names": ["cat", "dog"]}),
        row_group_size=group, **(PLAIN | DECODED)[kind],
    )  # fmt: skip
    reader = open_pack(file)
    assert type(reader) is (ParquetReader if kind in PLAIN else DecodedReader)
    keep = [row for row in range(40) if row not in (3, 8, 20)]
    assert stored(reader) == [data[row] for row in keep]
    assert stored(reader, 1) == [None if texts[row] is None else b"x" * row for row in keep]
    assert reader.meta.fields == ("image", "txt")
    assert reader.meta.classes == ("cat", "dog")
    assert reader.table.label.tolist() == [-1 if row == 5 else row % 2 for row in keep]
    names = [f"a/{row}.png" if row != 21 else "row 21" for row in keep]
    assert reader.table.paths(0, len(keep)) == names
    assert reader.table.names(2) == ["a/2.png", ""]
    assert [(bad.path, bad.reason) for bad in reader.bad] == [
        (f"row {row}", "empty") for row in (3, 8, 20)
    ]
    assert [bad.message for bad in reader.bad] == [
        "a.parquet: row 3: has no image: it is null or empty",
        "a.parquet: row 8: has no image, only the path of a file: x.jpg",
        "a.parquet: row 20: has no image, only the path of a file: a/20.png",
    ]
    assert "columns that are not read: width" in reader.notices
    views = reader.read_many([5, 0], (0, 1))
    assert [bytes(row[0] or b"") for row in views] == [data[6], data[0]]
    assert all(view.readonly for row in views for view in row if view is not None)


def test_images_as_they_are_beside_texts_that_are_not(tmp_path: Path) -> None:
    """What Hugging Face writes."""
    data = images(20)
    texts = [None if row == 4 else f"text {row // 3}" for row in range(20)]
    columns = {"image": structs([{"bytes": each, "path": "1.png"} for each in data])}
    file = write(
        tmp_path / "a.parquet", columns | {"caption": texts}, row_group_size=6,
        use_dictionary=["caption"],
        compression={"image.bytes": "none", "image.path": "none", "caption": "snappy"},
    )  # fmt: skip
    reader = open_pack(file)
    assert isinstance(reader, DecodedReader)
    assert reader.notices == []  # nothing is decoded for an image
    assert stored(reader) == data
    assert stored(reader, 1) == [text and text.encode() for text in texts]
    dataset = open_dataset(file, decode=None, fields=("image", "caption"))
    assert dataset.__getitems__([7, 4, 0]) == [
        (data[row], text and text.encode(), -1) for row in (7, 4, 0) for text in [texts[row]]
    ]
    os.truncate(file, 100)
    for get in (reader.load, reader.read, lambda row: reader.check([row])):
        with pytest.raises(CorruptPackError, match="truncated since it was opened"):
            get(0)


@pytest.mark.parametrize("kind", [*PLAIN, *DECODED])
@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_bytes_and_labels_of_text(tmp_path: Path, kind: str, type_: Any) -> None:
    data, given = images(5), ["dog", "cat", None, "dög", "cat"]
    options = (PLAIN | DECODED)[kind] | {"column_encoding": None}
    for number, labels in enumerate(
        [pa.array(given), pa.array(given, pa.large_string()), pa.array(given).dictionary_encode()]
    ):
        columns = {"jpg": pa.array(data, type_), "label": labels}
        file = write(tmp_path / f"{number}.parquet", columns, row_group_size=2, **options)
        reader = open_pack(file)
        assert stored(reader) == data
        assert reader.meta.classes == ("cat", "dog", "dög")
        assert reader.meta.labels == "class"
        assert reader.table.label.tolist() == [1, 0, -1, 2, 0]
        assert reader.table.paths(0, 5) == [f"row {row}" for row in range(5)]
        assert reader.table.kind.tolist() == [1] * 5  # what the column is called


@pytest.mark.parametrize(
    ("labels", "metadata", "expected"),
    [
        (pa.array([3, -7, None], pa.int8()), None, ("int", (), [3, -7, -1])),
        (pa.array([1, 0, 9], pa.uint32()), None, ("int", (), [1, 0, 9])),
        (pa.array([1, 0, 1]), ["a", "b"], ("class", ("a", "b"), [1, 0, 1])),
        (pa.array([1, 0, 2]), ["a", "b"], ("int", (), [1, 0, 2])),  # not the names of these
        (pa.array([0.5, 1, 2]), None, ("none", (), [-1, -1, -1])),
    ],
)
def test_labels(tmp_path: Path, labels: Any, metadata: Any, expected: tuple[Any, ...]) -> None:
    about = metadata and features(label={"_type": "ClassLabel", "names": metadata})
    columns = {"image": pa.array(images(3)), "label": labels}
    reader = open_pack(write(tmp_path / "a.parquet", columns, about))
    assert (reader.meta.labels, reader.meta.classes, reader.table.label.tolist()) == expected


def test_names_that_are_there_twice(tmp_path: Path) -> None:
    paths = ["1.jpg", "1.jpg", None, "", "row 2", "1.jpg", "a\0b.jpg", "1 (row 1).jpg"]
    rows = [{"bytes": b"x", "path": path} for path in paths]
    reader = open_pack(write(tmp_path / "a.parquet", {"image": structs(rows)}))
    assert reader.table.paths(0, 8) == [
        "1.jpg", "1 (row 1).jpg", "row 2", "row 3", "row 2 (row 4)", "1 (row 5).jpg", "row 6",
        "1 (row 1) (row 7).jpg",
    ]  # fmt: skip


def test_the_likeliest_column(tmp_path: Path) -> None:
    one, other = images(2, 1), images(2, 2)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"mask": pa.array(other), "IMG": pa.array(one)}, None),
        ({"data": pa.array(one), "text": ["a", "b"]}, None),
        ({"jpg": pa.array(other), "image": structs([{"bytes": each} for each in one])}, None),
        ({"x": pa.array(other), "y": pa.array(one)}, features(y={"_type": "Image"})),
        ({"png": pa.array(other), "y": pa.array(one)}, features(y={"_type": "Image"})),
        ({"y": pa.array(one), "jpg": ["text", "text"]}, {"huggingface": "[1]"}),
    ]
    for number, (columns, about) in enumerate(cases):
        reader = open_pack(write(tmp_path / f"{number}.parquet", columns, about))
        assert stored(reader) == one, columns
    columns = {"label": [1, 2], "target": [3, 4], "other": ["b", "a"], "jpg": pa.array(one)}
    file = write(tmp_path / "labels.parquet", columns)
    assert open_pack(file).table.label.tolist() == [1, 2]
    reader = ParquetReader.open_columns(str(file), label_key="other")
    assert reader.table.label.tolist() == [1, 0]
    about = features(target={"_type": "ClassLabel", "names": [*"abcde"]})
    reader = open_pack(write(file, columns, about))
    assert reader.table.label.tolist() == [3, 4]
    assert reader.meta.classes == ("a", "b", "c", "d", "e")
    assert reader.meta.fields == ("image", "other")


def test_columns_that_are_named(tmp_path: Path) -> None:
    one, other = images(2, 1), images(2, 2)
    columns = {"x": pa.array(one), "y.z": pa.array(other), "number": [1, 2]}
    file = write(tmp_path / "a.parquet", columns)
    for key, expected in (("x", one), ("y.z", other)):
        assert stored(ParquetReader.open_columns(str(file), key, "number")) == expected
    with pytest.raises(
        UsageError, match=r"cannot tell which column .*\(its columns are x, y\.z, n"
    ):
        open_pack(file)
    for key in ("number", "w", "image"):
        with pytest.raises(UsageError, match=f"no image column {key}: its columns are x, y"):
            ParquetReader.open_columns(str(file), key)
    with pytest.raises(UsageError, match=r"no label column x: .* hold integers or text: number"):
        ParquetReader.open_columns(str(file), "y.z", "x")


def test_no_column_of_images(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"URL": ["http://a"], "TEXT": ["a"], "similarity": [0.5]})
    with pytest.raises(
        UsageError, match=r"a\.parquet: no image column: its columns are URL, TEXT, similarity; "
    ) as caught:
        open_pack(file)
    assert str(caught.value).isprintable()
    nested = pa.array([[{"bytes": b"x", "path": "a"}]], pa.list_(IMAGE))
    with pytest.raises(UsageError, match="no image column: its columns are images"):
        open_pack(write(tmp_path / "b.parquet", {"images": nested}))


def test_other_columns_are_fields(tmp_path: Path) -> None:
    columns = {
        "image": pa.array(images(2)),
        "Caption": ["one", None],
        "mask": structs([{"bytes": b"m"}, None]),
        "raw": pa.array([b"", b"r"]),
        "png": pa.array([b"p", b"p"]),  # an extension of images is no name of a sidecar
        "bad name": ["a", "b"],
        "size": [1, 2],
    }
    for number, options in enumerate([*PLAIN.values(), {}]):
        reader = open_pack(write(tmp_path / f"{number}.parquet", columns, **options))
        assert reader.meta.fields == ("image", "caption", "mask", "raw")
        assert stored(reader, 1) == [b"one", None]
        assert stored(reader, 2) == [b"m", None]
        assert stored(reader, 3) == [b"", b"r"]
        assert "columns that are not read: png, bad name, size" in reader.notices


# -------------------------------------------------------------------------------------------- files


def test_a_folder_of_files(tmp_path: Path) -> None:
    data = images(10)
    for number, (start, stop) in enumerate([(0, 4), (4, 4), (4, 10)]):
        rows = [{"bytes": data[row], "path": None} for row in range(start, stop)]
        options = PLAIN["plain"] if number else {}
        columns = {"image": structs(rows), "label": pa.array([*range(start, stop)], pa.int64())}
        write(tmp_path / f"train-{number:05d}-of-00003.parquet", columns, **options)
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".hidden.parquet").write_text("no")
    reader = open_pack(tmp_path)
    assert isinstance(reader, DecodedReader)
    assert stored(reader) == data
    assert reader.table.label.tolist() == [*range(10)]
    assert reader.table.paths(8, 10) == ["row 8", "row 9"]
    assert reader.table.shard_row.tolist() == [0, 4, 4, 10]
    for file in tmp_path.glob("train*"):
        write(file, pq.read_table(file), **PLAIN["plain"])
    reader = open_pack(tmp_path)
    assert isinstance(reader, ParquetReader)
    assert stored(reader) == data
    write(tmp_path / "train-00001-of-00003.parquet", {"jpg": pa.array(data)})
    with pytest.raises(
        CorruptPackError, match=r"00001-of-00003\.parquet: has no column image, which"
    ):
        open_pack(tmp_path)
    write(tmp_path / "test-00000-of-00001.parquet", {"image": pa.array(data)})
    with pytest.raises(UsageError, match=r"holds the files of several data sets \(test, train\)"):
        open_pack(tmp_path)


def test_notes_beside_other_data(tmp_path: Path) -> None:
    """Such as `img2dataset` writes beside each tar."""
    write(tmp_path / "00000.parquet", {"url": ["http://a"], "jpg": pa.array(images(1))})
    assert find_format(tmp_path) is ParquetReader
    (tmp_path / "00000.tar").write_bytes(bytes(10240))
    assert find_format(tmp_path).name == "webdataset"
    assert len(open_pack(tmp_path, "parquet")) == 1


def test_what_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for path in (file, tmp_path / "empty"):
        for format in (None, "parquet"):
            with pytest.raises(NotAPackError):
                open_pack(path, format)


def test_files_without_their_end(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", {"image": pa.array(images(3))}).read_bytes()
    for length in (4, 7, 11, 100, len(whole) - 1):
        (tmp_path / "a.parquet").write_bytes(whole[:length])
        with pytest.raises(CorruptPackError, match=r"a\.parquet: not a complete Parquet file"):
            open_pack(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(whole)
    with pytest.raises(CorruptPackError, match=r"a\.parquet: not a complete Parquet file"):
        open_pack(tmp_path)
    (tmp_path / "a.parquet").write_bytes(whole[:-8] + b"\xff\xff\xff\x7fPAR1")
    with pytest.raises(CorruptPackError, match=r"a\.parquet: damaged: its footer has not the size"):
        open_pack(tmp_path / "a.parquet")


def test_names_that_are_not_text(tmp_path: Path) -> None:
    data = images(3)
    name = os.fsdecode(b"caf\xe9.parquet")
    write(tmp_path / "a.parquet", {"image": pa.array(data)}).rename(tmp_path / name)
    reader = open_pack(tmp_path / name)
    assert stored(reader) == data


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.parquet", {"image": pa.array(images(3))})
    own = packed(tmp_path, "own.parquet")
    for name in [*sys.modules]:
        if name.partition(".")[0] == "pyarrow":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingDependencyError, match=r"a\.parquet: .* install 'fastconv\[parquet\]'"
    ):
        open_pack(file)
    assert len(open_dataset(own)) == 7
    index = Path(f"{own}.index.safetensors")
    index.write_bytes(index.read_bytes()[:-9])
    with pytest.raises(
        MissingDependencyError, match=r"\(its sample table is ignored: .* cut short"
    ):
        open_pack(own)


# ------------------------------------------------------------------------------------------- damage


def test_a_damaged_row_group(tmp_path: Path) -> None:
    data = [random.Random(row).randbytes(5000) for row in range(3)]
    file = write(
        tmp_path / "a.parquet", {"image": pa.array(data), "label": [4, 5, 6]}, row_group_size=1,
        **DECODED["gzip"],
    )  # fmt: skip
    chunk = pq.read_metadata(file).row_group(1).column(0)
    opened = open_dataset(file, decode=None)
    block = bytearray(file.read_bytes())
    block[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    status = file.stat()
    with file.open("r+b") as writing:
        writing.write(block)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [opened[0], opened[2]] == [(data[0], 4), (data[2], 6)]
    with pytest.raises(
        SampleError, match="sample 1, key 1, path row 1: its row group is damaged: "
    ):
        opened[1]
    assert opened[0] == (data[0], 4)
    reader = open_pack(file)
    assert stored(reader) == [data[0], data[2]]
    assert reader.table.paths(0, 2) == ["row 0", "row 2"]
    (bad,) = reader.bad
    assert (bad.path, bad.reason) == ("row 1", "bad_record")
    assert bad.message.startswith("a.parquet: row 1: its row group is damaged: ")


def test_a_damaged_page_of_plain_values(tmp_path: Path) -> None:
    data = images(9)
    file = write(
        tmp_path / "a.parquet", {"image": pa.array(data)}, row_group_size=3, **PLAIN["plain"]
    )
    chunk = pq.read_metadata(file).row_group(1).column(0)
    block = bytearray(file.read_bytes())
    first = block.index(len(data[3]).to_bytes(4, "little") + data[3], chunk.data_page_offset)
    block[first + 3] = 0x7F
    file.write_bytes(block)
    reader = open_pack(file)
    assert stored(reader) == data[:3] + data[6:]
    assert [bad.path for bad in reader.bad] == ["row 3", "row 4", "row 5"]


@pytest.mark.parametrize("kind", ["plain", "plain-v2", "gzip"])
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    dice = random.Random(kind)
    rows = [{"bytes": each, "path": None} for each in images(8)]
    file = write(
        tmp_path / "a.parquet", {"image": structs([*rows, None]), "label": range(9)},
        row_group_size=4, **(PLAIN | DECODED)[kind],
    )  # fmt: skip
    whole = file.read_bytes()
    for _ in range(DAMAGES):
        block = bytearray(whole)
        place = len(block) - dice.randrange(1, dice.choice((2500, len(block))))
        block[place] = dice.choice((block[place] ^ 1 << dice.randrange(8), 0, 255))
        file.write_bytes(block)
        try:
            look_at_everything(open_pack(file, "parquet"))
        except FastconvError as error:
            one_line(str(error))


def one_line(text: str) -> None:
    """Asserts that an error is told as every one is."""
    assert text.isprintable()


def look_at_everything(reader: Reader) -> None:
    """Asserts that everything is read, or an error of ours."""
    for bad in reader.bad:
        one_line(bad.message)
    for row in range(len(reader)):
        try:
            assert reader.load(row)
        except FastconvError as error:
            one_line(str(error))


def test_a_file_that_changes_while_it_is_open(tmp_path: Path) -> None:
    files = [
        write(tmp_path / name, {"image": pa.array(images(4))}, row_group_size=2, **DECODED["gzip"])
        for name in ("a.parquet", "b.parquet")
    ]
    reader = open_pack(tmp_path)
    assert reader.load(0) == reader.load(4)
    os.truncate(files[1], 10)
    with pytest.raises(CorruptPackError, match=r"b\.parquet: truncated since it was opened"):
        reader.load(6)
    write(files[0], {"image": pa.array(images(4, 5))})
    os.utime(files[0], ns=(1, 1))
    with pytest.raises(PackChangedError, match=r"a\.parquet: was replaced since it was opened"):
        reader.load(0)


# ------------------------------------------------------------------------- threads, forks, pickling


def test_threads_and_workers(tmp_path: Path) -> None:
    data = images(60)
    file = write(tmp_path / "a.parquet", {"image": pa.array(data)}, row_group_size=7)
    dataset = open_dataset(file, decode=None)
    order = [row % 60 for row in range(0, 600, 7)]
    expected = [(data[row], -1) for row in order]
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(dataset.__getitem__, order)] == expected
    assert [pickle.loads(pickle.dumps(dataset))[row] for row in order[:9]] == expected[:9]
    loader = DataLoader(
        dataset, 6, num_workers=2, multiprocessing_context="fork", collate_fn=list, timeout=90
    )
    assert [sample[0] for batch in loader for sample in batch] == data


# --------------------------------------------------------------------------------------- our own


def packed(folder: Path, name: str, **options: Any) -> Path:
    """Returns a pack of seven images of two classes."""
    tree = folder / "tree"
    for number in range(7):
        file = tree / f"class {number // 4}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (number, 0, 0)).save(file)
        if number != 2:
            file.with_suffix(".txt").write_text(f"número {number}" * number, encoding="utf-8")
    pack(tree, folder / name, format="parquet", sidecars=("txt",), **options)
    return folder / name


@pytest.mark.parametrize("options", [{}, {"sharding": Sharding(samples=3)}])
def test_without_the_table(tmp_path: Path, options: dict[str, Any]) -> None:
    out = packed(tmp_path, "out" if options else "out.parquet", **options)
    index = out / "index.safetensors" if options else Path(f"{out}.index.safetensors")
    whole = open_pack(out)
    index.rename(tmp_path / "kept")
    reader = open_pack(out)
    assert isinstance(reader, ParquetReader)
    assert reader.meta.id == ""
    assert (reader.meta.classes, reader.meta.fields) == (whole.meta.classes, whole.meta.fields)
    for name in ("label", "kind", "path_bytes", "path_offset", "shard_row"):
        np.testing.assert_array_equal(getattr(reader.table, name), getattr(whole.table, name))
    for name in ("offset", "size"):
        for one, other in zip(getattr(reader.table, name), getattr(whole.table, name), strict=True):
            there = whole.table.size[1] >= 0
            np.testing.assert_array_equal(one[there], other[there])
    assert [stored(reader, slot) for slot in (0, 1)] == [stored(whole, slot) for slot in (0, 1)]
    (notice,) = reader.notices
    assert notice.startswith(f"its table {index.name} is not {'in' if options else 'beside'} it: ")
    with pytest.raises(FastconvError, match="has no checksums: its table"):
        open_dataset(out, verify=True)


def test_a_table_of_another_pack(tmp_path: Path) -> None:
    """Both have the same sizes and places."""
    one, other = packed(tmp_path / "1", "out.parquet"), packed(tmp_path / "2", "out.parquet")
    file = tmp_path / "2/tree/class 0/1.png"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    pack(tmp_path / "2/tree", other, sidecars=("txt",), overwrite=True)
    Path(f"{other}.index.safetensors").rename(f"{one}.index.safetensors")
    reader = open_pack(one)
    assert reader.meta.id == ""
    assert len(reader) == 7
    assert "the sample table is ignored, the columns are read instead: " in reader.notices[0]
    assert "out.parquet: belongs to another pack than " in reader.notices[0]


def test_a_pack_that_others_have_written_anew(tmp_path: Path) -> None:
    out = packed(tmp_path, "out.parquet")
    expected = stored(open_pack(out))
    pq.write_table(pq.read_table(out), out)
    reader = open_pack(out)
    assert stored(reader) == expected
    assert "says" in reader.notices[-1]
    Path(f"{out}.index.safetensors").unlink()
    assert not any("its table" in notice for notice in open_pack(out).notices)  # it is not ours


def test_a_folder_of_packs_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    folder.mkdir()
    for number in range(2):
        out = packed(tmp_path / str(number), "a.parquet")
        for file in (out, Path(f"{out}.index.safetensors")):
            file.rename(folder / file.name.replace("a.", f"a{number}."))
    with pytest.raises(UsageError, match=r"holds packs .* such as .*packs/a0\.parquet"):
        open_pack(folder)
