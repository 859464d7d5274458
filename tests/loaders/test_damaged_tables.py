"""Sample tables that are whole but do not fit their pack are told, not believed."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.loaders.arrays import dump_arrays, load_arrays
from fastconv.loaders.errors import CorruptPackError, SampleError
from fastconv.loaders.open import open_pack
from fastconv.loaders.reader import Reader


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(6):
        file = tmp_path / f"tree/{'ab'[number % 2]}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4 + number)).save(file)
    return tmp_path / "tree"


@pytest.mark.parametrize("bounds", [[0, 1, 3, 6], [0, 6], [0, 5, 3, 6], [0, 2, 4, 5, 6]])
def test_table_with_other_shards(tree: Path, tmp_path: Path, bounds: list[int]) -> None:
    out = tmp_path / "out"
    pack(tree, out, format="webdataset", sharding=Sharding(samples=3))
    index = out / "index.safetensors"
    arrays, metadata = load_arrays(index.read_bytes())
    arrays["shard_row"] = np.array(bounds)
    index.write_bytes(b"".join(dump_arrays(arrays, metadata)))
    reader = open_pack(out)
    assert "the sample table is ignored" in reader.notices[0]
    assert [reader.table.label[row] for row in range(6)] == [0, 0, 0, 1, 1, 1]


def edited(out: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Reader:
    """Returns the pack of a tar whose table was changed: columns, and what it says."""
    index = Path(f"{out}.index.safetensors")
    arrays, metadata = load_arrays(index.read_bytes())
    content = json.loads(metadata["fastconv"])
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays, content)
    index.write_bytes(b"".join(dump_arrays(arrays, {"fastconv": json.dumps(content)})))
    return open_pack(out)


@pytest.fixture
def tar(tree: Path, tmp_path: Path) -> Path:
    pack(tree, tmp_path / "out.tar")
    return tmp_path / "out.tar"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kind", np.uint8(250)),
        ("path_offset", np.uint64(1 << 63)),
        ("shard_row", np.int64(6)),
    ],
)
def test_columns_that_cannot_be(tar: Path, column: str, value: Any) -> None:
    reader = edited(tar, lambda arrays, _: arrays[column].fill(value))
    assert "the sample table is ignored" in reader.notices[0]
    assert len(reader) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "lmdb"),
        ("samples", 7),
        ("shards", []),
        ("shards", [["", 1], ["", 2]]),
        ("fields", ["image", "txt"]),
    ],
)
def test_descriptions_that_do_not_fit(tar: Path, name: str, value: object) -> None:
    reader = edited(tar, lambda _, content: content.update({name: value}))
    assert "the sample table is ignored" in reader.notices[0]
    assert len(reader) == 6


@pytest.mark.parametrize("place", [1 << 44, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("column", ["offset/image", "size/image"])
def test_places_outside_the_file(tar: Path, column: str, place: int) -> None:
    def change(arrays: dict[str, Any], _: object) -> None:
        arrays[column][1:3] = min(place, np.iinfo(arrays[column].dtype).max)

    reader = edited(tar, change)
    reader.hint(np.arange(6))
    assert bytes(reader.read(5) or b"")[:4] == b"\x89PNG"
    for row in (1, 2):
        for get in (reader.read, reader.load):
            with pytest.raises(SampleError, match="is outside the file") as caught:
                get(row)
            assert caught.value.reason == "bad_record"
            assert f"sample {row}, key {row}, path " in str(caught.value)
            assert "(image in out.tar at byte " in str(caught.value)


def test_sidecars_without_names(tree: Path, tmp_path: Path) -> None:
    for number in range(6):
        (tree / f"{'ab'[number % 2]}/{number}.TXT").touch()
    out = tmp_path / "out.tar"
    pack(tree, out, sidecars=("txt", "xml"))

    def change(arrays: dict[str, Any], _: object) -> None:
        arrays["path"][arrays["path"] == 0] = ord("x")
        arrays["path"][5] = 0

    reader = edited(out, change)
    assert len(reader.table.names(0)) == 3


@pytest.mark.parametrize("column", ["path", "path_offset", "kind", "label"])
def test_lmdb_that_has_lost_a_column(tree: Path, tmp_path: Path, column: str) -> None:
    pack(tree, tmp_path / "out.lmdb")
    with lmdb.open(str(tmp_path / "out.lmdb"), map_size=1 << 26) as env, env.begin(write=True) as t:
        t.delete(f"__table__/{column}".encode())
    reader = open_pack(tmp_path / "out.lmdb")
    assert "read by its keys" in reader.notices[0]
    assert len(reader) == 6
    assert bytes(reader.read(5) or b"")[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (40, bytes(4)),  # the size of pages
        (40, b"\xff" * 4),
        (40, (4097).to_bytes(4, "little")),
        (128, b"\xfe" * 8),  # the root of the tree
        (136, b"\xff" * 8),  # the last page
    ],
)
def test_lmdb_whose_head_is_damaged(tree: Path, tmp_path: Path, place: int, data: bytes) -> None:
    pack(tree, tmp_path / "out.lmdb")
    with open(tmp_path / "out.lmdb/data.mdb", "r+b") as file:
        for page in (0, 4096):
            file.seek(page + place)
            file.write(data)
    with pytest.raises(CorruptPackError, match=r"^\S+data\.mdb: (damaged|truncated)"):
        open_pack(tmp_path / "out.lmdb")


@pytest.mark.parametrize("places", [b"5       ", b"null    ", b'{"a":5} '])
def test_lmdb_that_does_not_say_where_its_table_was(
    tree: Path, tmp_path: Path, places: bytes
) -> None:
    pack(tree, tmp_path / "out.lmdb")
    file = tmp_path / "out.lmdb/data.mdb"
    data = file.read_bytes()
    start = data.index(b'"table":') + 8
    stop = data.index(b"}", start) + 1
    file.write_bytes(data[:start] + places.ljust(stop - start) + data[stop:])
    with pytest.raises(CorruptPackError, match="the places of its table are missing"):
        open_pack(tmp_path / "out.lmdb")


def hdf5(tree: Path, tmp_path: Path, layout: str) -> Path:
    out = tmp_path / "out.h5"
    pack(tree, out, options={"layout": layout})
    return out


def test_hdf5_has_nothing_in_the_heap_of_the_library(tree: Path, tmp_path: Path) -> None:
    """Where a size in it is zero, the library never comes back."""
    assert b"GCOL" not in hdf5(tree, tmp_path, "contiguous").read_bytes()


@pytest.mark.parametrize(
    ("at", "size"), [(8, 0), (8, 8), (24, 0), (24, 8), (24, 1 << 62), (24, (1 << 64) - 1)]
)
def test_hdf5_whose_heap_is_damaged(tree: Path, tmp_path: Path, at: int, size: int) -> None:
    out = hdf5(tree, tmp_path, "vlen")
    data = bytearray(out.read_bytes())
    place = data.index(b"GCOL")
    data[place + at : place + at + 8] = size.to_bytes(8, "little")
    out.write_bytes(data)
    with pytest.raises(CorruptPackError, match=r"^\S+out\.h5: .*has no value"):
        open_pack(out)


@pytest.mark.parametrize("value", ["text of variable length", np.zeros(3), np.bytes_("[]")])
def test_hdf5_with_another_description(tree: Path, tmp_path: Path, value: Any) -> None:
    out = hdf5(tree, tmp_path, "contiguous")
    with h5py.File(out, "r+") as file:
        del file["fastconv"]
        file["fastconv"] = value
    with pytest.raises(CorruptPackError, match=r"^\S+out\.h5: not a whole pack: "):
        open_pack(out)


def test_hdf5_that_is_replaced_while_it_is_opened(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = hdf5(tree, tmp_path, "contiguous")
    (tree / "a/0.png").unlink()
    real = h5py.File

    def replace_first(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        pack(tree, out, overwrite=True)
        return real(*args, **options)

    monkeypatch.setattr(h5py, "File", replace_first)
    assert len(open_pack(out)) == 5  # of the new one: it was opened again


def test_hdf5_of_many_classes(tmp_path: Path) -> None:
    for number in range(400):
        file = tmp_path / f"tree/{number:03}{'x' * 200}/a.png"
        file.parent.mkdir(parents=True)
        Image.new("1", (1, 1)).save(file)
    out = hdf5(tmp_path / "tree", tmp_path, "contiguous")
    with h5py.File(out) as file:  # and fastconv can open it meanwhile
        assert tuple(json.loads(file["classes"][()])) == open_pack(out).meta.classes
        assert len(file["classes"][()]) > 1 << 16  # more than an attribute can hold


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    block = io.BytesIO()
    with tarfile.open(fileobj=block, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return block.getvalue()


def member(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info, data


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (b"7", 7), (b" -3\n", -3), (b"%d" % (2**63 - 1), 2**63 - 1), (b"%d" % -(2**63), -(2**63)),
        (b"%d" % 2**63, -1), (b"%d" % (-(2**63) - 1), -1), (b"9" * 6000, -1), (b"\xff", -1),
        (b"", -1), (b"1" + b" " * 100, -1),
    ],
)  # fmt: skip
def test_labels_of_a_tar(tmp_path: Path, text: bytes, label: int) -> None:
    out = tmp_path / "out.tar"
    out.write_bytes(tar_of(member("0.jpg", b"x"), member("0.cls", text)))
    assert open_pack(out).table.label.tolist() == [label]


@pytest.mark.parametrize("length", [b"9" * 5999, b"0", b"-5", b"x"])
def test_headers_of_a_tar_whose_length_cannot_be(tmp_path: Path, length: bytes) -> None:
    out = tmp_path / "out.tar"
    extended = member("x", length + b" path=y.jpg\n", tarfile.XHDTYPE)
    out.write_bytes(tar_of(extended, member("0.jpg", b"x")))
    assert [open_pack(out).table.path(0)] == ["0.jpg"]
