"""Parquet files written byte by byte are what `pyarrow` itself reads, and the same however they
were written."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters import plan as plan_module
from fastconv.converters.formats import parquet
from fastconv.converters.formats.parquet import ParquetOptions, ParquetWriter, paths_of
from fastconv.converters.repairing import repair
from fastconv.converters.structure import part_of, rows_of
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.converters.writer import Layout, pwrite_all
from fastconv.loaders import CorruptPackError, FastconvError, UsageError, open_dataset, open_pack
from fastconv.loaders.errors import printable
from fastconv.loaders.formats.parquet import ParquetReader
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.parquet_bytes import read_footer
from fastconv.loaders.reader import MappedReader
from fastconv.loaders.table import SampleTable

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ID = "0123456789abcdef" * 2
FIELDS = ("image", "json", "mask.png")
CLASSES = ("cat", "dög", "z")

Values = list[list[bytes | None]]


@contextmanager
def groups_of(rows: int, size: int) -> Iterator[None]:
    """Makes row groups of so many rows and bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", rows)
        patch.setattr(parquet, "GROUP_BYTES", size)
        yield


def table_of(sizes: np.ndarray[Any, Any], paths: list[bytes], labels: list[int]) -> SampleTable:
    """Returns a table of samples whose fields have these sizes, int64 (N, fields)."""
    count = len(paths)
    return SampleTable(
        fields=FIELDS[: sizes.shape[1]],
        label=np.array(labels, np.int64),
        kind=np.full(count, 2, np.uint8),
        width=np.ones(count, np.uint32),
        height=np.ones(count, np.uint32),
        path_bytes=np.frombuffer(b"".join(paths), np.uint8),
        path_offset=np.cumsum([0, *map(len, paths)], dtype=np.uint64),
        shard_row=np.array([0, count]),
        offset=(),
        size=tuple(np.ascontiguousarray(column) for column in sizes.T),
        checksum=tuple(np.zeros(count, np.uint64) for _ in range(sizes.shape[1])),
    )


def write(
    folder: Path, values: Values, table: SampleTable, meta: PackMeta, cuts: list[int], seed: int
) -> Layout:
    """Writes the file `folder/data` in parts that end at `cuts`, in any order."""
    writer = ParquetWriter()
    layout = writer.lay_out(str(folder), None, Sharding(), meta, table)
    assert [shard.name for shard in layout.shards] == ["data"]
    fd = os.open(folder / "data", os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(fd, layout.shards[0].size)
        parts = [*pairwise([0, *sorted({cut for cut in cuts if cut < len(table)}), len(table)])]
        random.Random(seed).shuffle(parts)
        for start, stop in parts:
            part = part_of(writer, layout, table, 0, start, stop, len(table))
            for place, data in writer.frame(part, np.arange(stop - start)).pieces():
                pwrite_all(fd, data, place)
            for row in range(start, stop):
                for slot, value in enumerate(values[row]):
                    if value is not None:
                        pwrite_all(fd, value, int(layout.offset[slot][row]))
        writer.finish(str(folder), layout, meta.with_id(ID), table)
    finally:
        os.close(fd)
    assert (folder / "data").stat().st_size == layout.shards[0].size
    return layout


field = st.one_of(st.none(), st.binary(max_size=20), st.integers(0, 300).map(bytes))
rows = st.lists(
    st.tuples(st.integers(0, 500).map(lambda size: b"\xff" * size), field, field).map(list),
    min_size=1,
    max_size=40,
)
name = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(str.encode),
    st.binary(min_size=1).filter(lambda name: b"\0" not in name),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    values=rows,
    names=st.lists(name, min_size=40, max_size=40),
    cuts=st.lists(st.integers(1, 39)),
    limits=st.tuples(st.integers(1, 50), st.integers(1, 5000)),
    labels=st.sampled_from(["none", "class", "int"]),
    fields=st.integers(1, 3),
)
def test_pyarrow_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    values: Values,
    names: list[bytes],
    cuts: list[int],
    limits: tuple[int, int],
    labels: Any,
    fields: int,
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    values = [sample[:fields] for sample in values]
    count = len(values)
    sizes = np.array([[-1 if v is None else len(v) for v in sample] for sample in values])
    given_labels = [row % 3 - (labels == "int") * 7 for row in range(count)]
    table = table_of(sizes, names[:count], given_labels)
    meta = PackMeta(
        format="parquet", samples=count, fields=table.fields, labels=labels,
        classes=CLASSES if labels == "class" else (), generated=table.fields[1:2],
    )  # fmt: skip
    with groups_of(*limits):
        layout = write(folder, values, table, meta, cuts, 1)
        (folder / "again").mkdir()
        write(folder / "again", values, table, meta, [], 2)
    data = (folder / "data").read_bytes()
    assert data == (folder / "again/data").read_bytes()
    assert ParquetReader.stamp_in(data) == ID[:31].encode()
    for slot in range(fields):
        for row, place in enumerate(layout.offset[slot].tolist()):
            value = values[row][slot]
            assert value is None or data[place : place + len(value)] == value

    file = pq.ParquetFile(folder / "data")
    expected: list[Any] = [
        pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        *([] if labels == "none" else [pa.field("label", pa.int64())]),
        *([pa.field("json", pa.string())] if fields > 1 else []),
        *([pa.field("mask.png", pa.binary())] if fields > 2 else []),
    ]
    assert file.schema_arrow.equals(pa.schema(expected))
    columns = file.read().to_pydict() if utf8(values, 1) else read_as_bytes(folder / "data")
    images = columns["image"]
    assert [image["bytes"] for image in images] == [sample[0] for sample in values]
    assert [image["path"] for image in images] == [shown(name) for name in names[:count]]
    assert columns.get("label", given_labels) == given_labels
    for slot in range(1, fields):
        found = columns[FIELDS[slot]]
        found = [value.encode() if isinstance(value, str) else value for value in found]
        assert found == [sample[slot] for sample in values]

    groups = read_footer(memoryview(data))
    assert [group.rows for group in groups] == [
        file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)
    ]
    payload = np.maximum(sizes, 0).sum(axis=1)
    stop = 0
    for number, group in enumerate(groups):
        start, stop = stop, stop + group.rows
        size = payload[start:stop].sum()
        assert group.rows <= limits[0]
        assert size <= limits[1] or group.rows == 1
        if stop < count:  # no larger ones were possible
            assert group.rows == limits[0] or size + payload[stop] > limits[1]
        about = file.metadata.row_group(number)
        assert about.column(0).statistics.null_count == 0
        if labels != "none":
            statistics = about.column(2).statistics
            mine = given_labels[start:stop]
            assert (statistics.min, statistics.max) == (min(mine), max(mine))
        if fields > 2:
            missing = sum(sample[2] is None for sample in values[start:stop])
            statistics = about.column(about.num_columns - 1).statistics
            assert statistics.null_count == missing


def utf8(values: Values, slot: int) -> bool:
    """Returns whether a field is text in all samples."""
    try:
        for sample in values:
            (sample[slot] or b"").decode() if len(sample) > slot else ""
    except UnicodeDecodeError:
        return False
    return True


def read_as_bytes(file: Path) -> dict[str, list[Any]]:
    """Returns the columns of a file; those of strings as bytes: they are none."""
    table = pq.read_table(file)
    return {
        name: column.cast(pa.binary()).to_pylist() if name == "json" else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def shown(name: bytes) -> str:
    """Returns how the column of paths has a name."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return printable(name.decode("utf-8", "surrogateescape"))


def test_paths_are_text_each_by_itself() -> None:
    """Together these are UTF-8."""
    table = table_of(np.zeros((3, 1), np.int64), [b"a\xc3", b"\xb6", b"b\0other.txt"], [0] * 3)
    data, sizes = paths_of(table, 0, 3)
    assert data.tobytes() == rb"a\xc3" + rb"\xb6" + b"b"
    assert sizes.tolist() == [5, 4, 1]
    assert paths_of(table, 2, 3)[1].tolist() == [1]


# ------------------------------------------------------------------------------------- files, sizes


def random_table(count: int, most: int) -> SampleTable:
    dice = np.random.default_rng(count)
    sizes = np.stack([dice.integers(0, most, count), dice.integers(-1, most // 9, count)], axis=1)
    return table_of(sizes, [b"class/%d.png" % row for row in range(count)], [1] * count)


@pytest.mark.parametrize(("most", "limit"), [(20, 2_000), (3000, 100_000), (3000, 1500)])
@pytest.mark.parametrize("group", [(7, 4000), (1000, 32_000_000)])
def test_shards_have_no_more_bytes_than_allowed(
    tmp_path: Path, most: int, limit: int, group: tuple[int, int]
) -> None:
    table = random_table(500, most)
    meta = PackMeta(
        format="parquet", samples=500, fields=table.fields, labels="class", classes=CLASSES
    )
    writer = ParquetWriter()
    with groups_of(*group):
        layout = writer.lay_out(str(tmp_path), "name", Sharding(bytes=limit), meta, table)
        count = len(layout.shards)
        counts = np.diff(layout.shard_row)
        for number, (shard, samples) in enumerate(zip(layout.shards, counts, strict=True)):
            assert shard.name == f"name-{number:05d}-of-{count:05d}.parquet"
            assert shard.size <= limit or samples == 1
            # The places of a file follow from its own rows.
            start, stop = layout.shard_row[number : number + 2].tolist()
            rows = rows_of(table, start, stop)
            alone = writer.lay_out(str(tmp_path), None, Sharding(), meta, rows)
            assert alone.shards[0].size == shard.size
            for one, other in zip(alone.offset, layout.offset, strict=True):
                np.testing.assert_array_equal(one, other[start:stop])
    equal = writer.lay_out(str(tmp_path), "name", Sharding(samples=7), meta, table)
    assert {*np.diff(equal.shard_row).tolist()} == {6, 7}


def test_row_groups_of_many_and_of_large_samples(tmp_path: Path) -> None:
    sizes = np.full((2500, 1), 100, np.int64)
    sizes[1500:1600] = 10_000_000
    sizes[1700] = 2_000_000_000
    table = table_of(sizes, [b"%d" % row for row in range(2500)], [0] * 2500)
    meta = PackMeta(format="parquet", samples=2500, fields=("image",), labels="class")
    layout = ParquetWriter().lay_out(str(tmp_path), None, Sharding(), meta, table)
    rows = [group.stop - group.start for group in layout.own["plans"][0].groups]
    assert rows == [1000, 503, *[3] * 32, 101, 1, 799]
    assert layout.shards[0].size > 3_000_000_000


@pytest.mark.parametrize("slot", [0, 1])
def test_a_value_that_is_too_large(tmp_path: Path, slot: int) -> None:
    table = random_table(3, 100)
    table.size[slot][1] = (1 << 31) - 200
    meta = PackMeta(format="parquet", samples=3, fields=table.fields)
    with pytest.raises(
        UsageError, match=f"over 2 GiB: the {table.fields[slot]} of class/1.png has 2147483448 by"
    ):
        ParquetWriter().lay_out(str(tmp_path), None, Sharding(), meta, table)


# ------------------------------------------------------------------------------------------ packing


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of 40 images, of odd names and sizes, most of them with sidecars."""
    root = tmp_path / "tree"
    dice = random.Random(3)
    for number in range(40):
        file = root / ("cat", "dög", "ant")[number % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = dice.randrange(1, 30), dice.randrange(1, 30)
        Image.frombytes("L", size, dice.randbytes(size[0] * size[1])).save(file)
        if number % 5:
            file.with_suffix(".txt").write_text(f"número {number}\n" * dice.randrange(9))
        if number % 7 == 0:
            file.with_suffix(".XML").write_bytes(dice.randbytes(dice.randrange(2000)))
    os.rename(root / "ant/5.png", os.fsencode(root) + b"/ant/caf\xe9.png")
    return root


def content(out: Path) -> dict[str, bytes]:
    """Returns the files of a pack, and their bytes."""
    beside = Path(f"{out}.index.safetensors")
    files = [*out.iterdir()] if out.is_dir() else [out, beside]
    return {file.name: file.read_bytes() for file in files}


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("out.parquet", {}),
    "shards": ("out", {"format": "parquet", "sharding": Sharding(samples=9)}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_packs_are_the_same_however_they_are_made(
    tree: Path, tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, options = SHAPES[shape]
    options = {"sidecars": ("txt", "xml"), **options}
    expected = tmp_path / "1" / name
    expected.parent.mkdir()
    pack(tree, expected, workers=1, **options)
    assert verify(expected).status == "done"
    assert verify(expected).structure
    report = verify(expected, against=tree)
    assert (report.status, report.bad) == ("done", [])

    monkeypatch.setattr(plan_module, "PART_BYTES", 30_000)
    monkeypatch.setattr(parquet, "pwrite_all", failing := Failing(2))
    out = tmp_path / name
    with pytest.raises(FastconvError, match="no space left"):
        pack(tree, out, workers=2, **options)
    failing.left = 1 << 30
    lines: list[str] = []
    pack(tree, out, workers=2, notice=lines.append, **options)
    assert any("going on with an unfinished run" in line for line in lines)
    assert content(out) == content(expected)

    unpack(out, tmp_path / "back")
    for file in tree.rglob("*"):
        if file.is_file():
            assert (tmp_path / "back" / file.relative_to(tree)).read_bytes() == file.read_bytes()


class Failing:
    """Writes, but only so often."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, fd: int, data: bytes, place: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        pwrite_all(fd, data, place)


def test_bad_files_leave_no_trace(tree: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"format": "parquet", "sharding": Sharding(samples=9)}
    pack(tree, tmp_path / "expected", **options)
    for name in ("ant/0.png", "cat/4.jpg", "dög/99.gif"):
        (tree / name).write_bytes(b"no image")
    os.mkdir(tmp_path / "made")
    report = pack(tree, tmp_path / "made/expected", **options)
    assert len(report.bad) == 3
    assert content(tmp_path / "made/expected") == content(tmp_path / "expected")


def test_what_hugging_face_is_told(tree: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with labels.open("w") as file:
        for path in sorted(tree.rglob("*.png")):
            name = os.fsencode(path.relative_to(tree)).decode("utf-8", "surrogateescape")
            line = {"file_name": name, "label": len(name), "note": "schön"}
            file.write(json.dumps(line) + "\n")
    out = tmp_path / "out.parquet"
    pack(tree, out, labels=labels, sidecars=("txt", "xml"), options={"text": "txt"})
    schema = pq.read_schema(out)
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {
        "image": {"_type": "Image"},
        "label": {"_type": "Value", "dtype": "int64"},
        "json": {"_type": "Value", "dtype": "string"},
        "txt": {"_type": "Value", "dtype": "string"},
        "xml": {"_type": "Value", "dtype": "binary"},
    }
    assert [schema.field(name).type for name in ("json", "txt", "xml")] == [
        pa.string(), pa.string(), pa.binary(),
    ]  # fmt: skip
    table = pq.read_table(out)
    assert json.loads(table.column("json")[0].as_py()) == {"note": "schön"}
    assert any("número" in (text.as_py() or "") for text in table.column("txt"))
    assert verify(out).status == "done"
    assert open_pack(out).meta.settings == {"text": "txt"}
    pack(tree, tmp_path / "b.parquet")
    features = json.loads(pq.read_schema(tmp_path / "b.parquet").metadata[b"huggingface"])
    assert features["info"]["features"]["label"] == {
        "_type": "ClassLabel", "names": ["ant", "cat", "dög"],
    }  # fmt: skip


def test_what_it_cannot_hold(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    (tree / "cat/1.label").write_text("a label")
    (tree / "ant/2.label").write_text("a label")
    with pytest.raises(UsageError, match="the sidecar label is the name of the labels' own column"):
        pack(tree, out, sidecars=("label",))
    pack(tree, out, sidecars=("label",), labels=False)
    assert pq.read_schema(out).names == ["image", "label"]
    assert verify(out).status == "done"
    with pytest.raises(UsageError, match="option text: there is no sidecar html: bring it along"):
        pack(tree, tmp_path / "b.parquet", sidecars=("txt",), options={"text": "txt,html"})
    assert ParquetWriter(ParquetOptions("a,b")).settings() == {"text": "a,b"}


# ----------------------------------------------------------------------------------- verify, repair


def test_verify_tells_of_every_byte(tree: Path, tmp_path: Path) -> None:
    for number in range(5, 40):
        for file in tree.glob(f"*/{number}.*"):
            file.unlink()
    out = tmp_path / "out.parquet"
    pack(tree, out, sidecars=("txt",))
    whole = out.read_bytes()
    for place in range(4, len(whole), 3):
        block = bytearray(whole)
        block[place] ^= 1 << place % 8
        out.write_bytes(block)
        # Where the table is not known for that of the file any more, that is told instead.
        try:
            report = verify(out)
            told = report.status == "partial" or "belongs to another pack" in str(report.notices)
        except CorruptPackError as error:  # nor can the file be read without it
            told = "belongs to another pack" in str(error)
        assert told, place
    out.write_bytes(whole + b"x")
    with pytest.raises(FastconvError, match=r"not a complete Parquet file.* ignored: .* says"):
        verify(out)


@pytest.mark.parametrize("shape", SHAPES)
def test_repair(tree: Path, tmp_path: Path, shape: str) -> None:
    name, options = SHAPES[shape]
    out = tmp_path / name
    pack(tree, out, sidecars=("txt",), **options)
    expected = content(out)
    files = [*out.glob("*.parquet")] if out.is_dir() else [out]
    index = out / "index.safetensors" if out.is_dir() else Path(f"{out}.index.safetensors")
    for file in files:  # in a footer, in a page's header, in an image
        block = bytearray(file.read_bytes())
        for place in (5, len(block) // 3, len(block) - 300):
            block[place] ^= 0xFF
        file.write_bytes(block)
    assert repair(out, tree).status == "done"
    assert content(out) == expected
    index.unlink()
    words = str(verify(out).bad)
    assert "cannot tell whether shards or samples are missing" in words
    assert repair(out, tree).status == "done"
    assert content(out) == expected


def test_a_stranger_among_the_shards(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack(tree, out, format="parquet", sharding=Sharding(samples=9))
    shards = sorted(out.glob("*.parquet"))
    (out / "old-00000-of-00001.parquet").write_bytes(shards[0].read_bytes())
    (bad,) = verify(out).bad
    assert bad.path == "old-00000-of-00001.parquet"
    assert "is no shard of this pack, but programs that read every Parquet file" in bad.message
    assert len(open_dataset(out)) == 40
    pack(tree, tmp_path / "b.parquet", sidecars=("txt",))
    (out / "old-00000-of-00001.parquet").unlink()
    (tmp_path / "b.parquet").rename(shards[0])
    (out / "index.safetensors").unlink()
    with pytest.raises(FastconvError, match="has no column txt, which the files beside it have"):
        verify(out)
    reader = open_pack(shards[1])
    assert isinstance(reader, MappedReader)
