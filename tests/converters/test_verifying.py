"""Verifying: a whole pack is well, and a changed byte is found wherever it is."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import shutil
import struct
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image
from tests.converters.places import PLACES, data_file, payload
from tests.support import OUTS, captions

from fastconv.converters import Sharding, pack, verifying
from fastconv.converters.engines.local import Answer, Task, raise_error
from fastconv.converters.report import Progress
from fastconv.converters.verifying import (
    VerifyFailedError,
    VerifyReport,
    chosen_rows,
    verify,
)
from fastconv.converters.worker import answer
from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    NotAPackError,
    PackError,
    UsageError,
)
from fastconv.loaders.formats.hdf5 import stored
from fastconv.loaders.formats.lmdb import Database
from fastconv.loaders.index import index_path
from fastconv.loaders.open import open_pack


class SameProcess:
    """Runs tasks here, but sends them and their answers as if to other processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        for task in tasks:
            content, arrays = answer(json.loads(json.dumps(dict(task.content))), task.arrays)
            assert task.about()
            raise_error(content)
            yield Answer(task.number, content, arrays)


@pytest.fixture(autouse=True)
def same_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "processes" not in request.fixturenames:
        monkeypatch.setattr(verifying, "engine_for", lambda *_: SameProcess())


@pytest.fixture
def processes() -> None:
    """Lets a test use real worker processes."""


def png(number: int, size: int = 2) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size + number % 5, size), (number % 256, 7, 9)).save(file, "PNG")
    return file.getvalue()


def jpeg(seed: int, cut: int = 0) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 40 + seed), 80).save(file, "JPEG", quality=90)
    return file.getvalue()[: -cut or None]


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with many tiny images, some of several pages, and captions beside most."""
    root = tmp_path_factory.mktemp("source") / "tree"
    files = {}
    for number in range(200):
        name = f"{'ant' if number < 90 else 'bee'}/{number:03d}"
        files[f"{name}.png"] = png(number) if number % 9 else jpeg(number % 7)
        if number % 4:
            files[f"{name}.txt"] = b"x" * (number % 50)
    return write(root, files)


PACKS: dict[str, dict[str, Any]] = {
    "pack.lmdb": {},
    "pack.tar": {},
    "pack.h5": {},
    "pack.parquet": {},
    "pack.tfrecord": {},
    "pack.rec": {},
    "shards": {"format": "webdataset", "sharding": Sharding(samples=30)},
    "parquets": {"format": "parquet", "sharding": Sharding(samples=30)},
    "tfrecords": {"format": "tfrecord", "sharding": Sharding(samples=30)},
    "records": {"format": "recordio", "sharding": Sharding(samples=30)},
    "vlen.h5": {"options": {"layout": "vlen"}},
}
BESIDE = [name for name in PACKS if name not in ("pack.lmdb", "pack.h5", "vlen.h5")]
"""Those whose tables lie beside their data."""
SHARDS = [name for name in PACKS if "sharding" in PACKS[name]]
FILES = [name for name in BESIDE if name not in SHARDS]


def make(tree: Path, path: Path) -> Path:
    """Packs a folder as the name says, with its captions where these can be held."""
    arguments = PACKS.get(path.name, {})
    pack(tree, path, sidecars=captions(path.name, arguments.get("format")), **arguments)
    return path


@pytest.fixture(params=PACKS)
def packed(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    path = tmp_path / "here" / str(request.param)
    path.parent.mkdir()
    return make(tree, path)


def index_of(path: Path) -> Path:
    return Path(index_path(str(path)))


def change(file: Path, place: int, data: bytes | None = None) -> None:
    """Changes a byte of a file, or writes some."""
    with open(file, "r+b") as stream:
        stream.seek(place)
        old = stream.read(1)
        stream.seek(place)
        stream.write(bytes([old[0] ^ 0x21]) if data is None else data)


def found(report: VerifyReport) -> list[tuple[str, str]]:
    """Returns what was found: a path or a place, and the reason."""
    entries = [bad.to_json() for bad in report.bad]
    return [(str(e.get("path", e.get("where"))), e["reason"]) for e in entries]


def state(folder: Path) -> dict[str, tuple[int, int]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(f.relative_to(folder)): (f.stat().st_mtime_ns, f.stat().st_size) for f in files}


# -- what is well


def test_a_pack_just_made_is_well(packed: Path, tree: Path) -> None:
    before = state(packed.parent)
    seen: list[Progress] = []
    report = verify(packed, decode=True, against=tree, progress=seen.append)
    assert found(report) == []
    assert report.warnings == []
    assert (report.status, report.samples, report.classes) == ("done", 200, ("ant", "bee"))
    held = captions(packed.name, PACKS[packed.name].get("format"))
    assert report.fields == ("image", *held)
    assert report.checksums
    assert report.pixels
    assert report.structure == (packed.name != "vlen.h5")
    assert report.source == str(tree)
    assert (seen[-1].samples, seen[-1].bytes) == (seen[-1].samples_total, seen[-1].bytes_total)
    assert state(packed.parent) == before


def test_it_runs_in_processes(tree: Path, tmp_path: Path, processes: None) -> None:
    pack(tree, tmp_path / "p.lmdb", sidecars=("txt",))
    change(tmp_path / "p.lmdb/data.mdb", payload(tmp_path / "p.lmdb", 7, 1))
    report = verify(tmp_path / "p.lmdb", workers=2, against=tree)
    assert found(report) == [("ant/007.txt", "corrupt")]


def test_packs_of_one_part_and_of_many(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastconv.converters.plan.PART_BYTES", 20_000)
    monkeypatch.setattr("fastconv.converters.structure.REACH", 400)
    monkeypatch.setattr("fastconv.converters.verify.WINDOW", 4096)
    for name in PACKS:
        assert found(verify(make(tree, tmp_path / name))) == []


def test_fields_larger_than_a_window(tmp_path: Path) -> None:
    large = png(1) + bytes(range(256)) * 10_000
    tree = write(
        tmp_path / "tree", {"a/1.png": large, "a/1.txt": b"x" * 3_000_000, "a/2.png": png(2)}
    )
    for name in OUTS:
        path = make(tree, tmp_path / name)
        assert found(verify(path, decode=True, against=tree)) == []
        slots = len(open_pack(path).meta.fields)
        for slot, at in [(0, 2_000_000), (1, 1_500_000)][:slots]:
            change(data_file(path), payload(path, 0, slot) + at)
        expected = [("a/1.png", "corrupt"), ("a/1.txt", "corrupt")]
        assert found(verify(path)) == expected[:slots]
    (tree / "a/1.txt").write_bytes(b"x" * 2_999_999 + b"y")
    pack(tree, tmp_path / "q.h5", sidecars=("txt",))
    (tree / "a/1.txt").write_bytes(b"x" * 3_000_000)
    assert found(verify(tmp_path / "q.h5", against=tree)) == [("a/1.txt", "changed")]


# -- a changed byte


def test_a_byte_of_a_sample(packed: Path) -> None:
    slots = len(open_pack(packed).meta.fields)
    change(data_file(packed), payload(packed, 40, 0) + 10)
    change(data_file(packed), payload(packed, 45, slots - 1) + 3)
    report = verify(packed)
    second = "ant/045.txt" if slots > 1 else "ant/045.png"
    assert found(report) == [("ant/040.png", "corrupt"), (second, "corrupt")]
    assert report.status == "partial"
    assert "sample 40, key 040" in report.bad[0].message
    assert slots == 1 or "field txt" in report.bad[1].message


ALONE = {"pack.tar": ("id", "first checksum"), "pack.parquet": ("magic",)}
"""By which alone a file is told from others."""
OF_ANOTHER = ("id", "stamp", "mark of the stamp", "fastconv version in the footer")
"""By which the table beside a single file knows it."""


@pytest.mark.parametrize("name", BESIDE)
def test_bytes_between_samples(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    file = data_file(path)
    for what, place in PLACES[file.suffix](path).items():
        change(file, place)
        if what in ALONE.get(name, ()):
            with pytest.raises(NotAPackError):
                verify(path)
        else:
            report = verify(path)
            assert report.status == "partial", what
            believed = name in SHARDS or what not in OF_ANOTHER
            assert report.checksums == report.structure == believed, what
            where = f"{file.name} offset {place}" if believed else name
            assert found(report)[-1] == (where, "bad_record"), what
            if believed:
                assert len(report.bad) == 1, what
            else:
                assert "belongs to another pack" in report.bad[-1].message
        change(file, place)
    assert found(verify(path)) == []


@pytest.mark.parametrize("name", BESIDE)
def test_any_byte_of_a_data_file(tree: Path, tmp_path: Path, name: str) -> None:
    """Whatever a byte is of: none is free to be another."""
    path = make(tree, tmp_path / name)
    file, chance = data_file(path), random.Random(name)
    size = os.path.getsize(file)
    ends = [chance.randrange(80) for _ in range(10)]
    for place in [*ends, *(size - 1 - end for end in ends), *chance.sample(range(size), 30)]:
        change(file, place)
        try:
            assert verify(path).status == "partial", place
        except NotAPackError:
            assert place < 512
        except CorruptPackError:
            assert place > size - 128  # the end of a Parquet file, which bears the stamp
        change(file, place)
    assert found(verify(path)) == []


@pytest.mark.parametrize("name", ["pack.tfrecord", "tfrecords", "pack.rec", "records"])
def test_bytes_of_index_files(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    folder = path if path.is_dir() else tmp_path
    files = [file for file in folder.iterdir() if file.suffix in (".idx", ".lst")]
    kinds = 2 if data_file(path).suffix == ".rec" else 1
    assert len(files) == (7 if name in SHARDS else 1) * kinds
    for file in files:
        data = file.read_bytes()
        middle = len(data) // 2
        other = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        for wrong in (other, data[:-1], data + b"\n", b""):
            file.write_bytes(wrong)
            report = verify(path)
            assert found(report) == [(file.name, "bad_record")]
            assert report.bad[0].message.endswith(f": {file.name} is not the index of this pack")
            assert report.structure
        file.unlink()
        report = verify(path)
        assert (report.status, len(report.notices)) == ("done", 1)
        assert report.notices[0].startswith(f"index files are missing: {file.name}: fastconv ")
        file.write_bytes(data)
    assert found(verify(path)) == []


def lmdb_places(path: Path) -> dict[str, int]:
    """Returns places in an LMDB of every kind, by what they are."""
    data = data_file(path).read_bytes()
    pages = range(2, len(data) // 4096)
    flags = {number: struct.unpack_from("<H", data, number * 4096 + 10)[0] for number in pages}
    numbered = [n for n in pages if struct.unpack_from("<Q", data, n * 4096)[0] == n]
    leaf = next(n * 4096 for n in numbered if flags[n] == 2)
    branch = next(n * 4096 for n in numbered if flags[n] == 1)
    run = next(n * 4096 for n in numbered if flags[n] == 4)
    lower, upper = struct.unpack_from("<HH", data, leaf + 12)
    return {
        "leaf head": leaf + 1, "leaf flags": leaf + 10, "leaf pointer": leaf + 17,
        "leaf slack": leaf + lower,
        "node size": leaf + upper, "node flags": leaf + upper + 4, "node key": leaf + upper + 9,
        "branch head": branch + 12, "branch node": branch + 4096 - 9, "branch slack": branch + 2000,
        "run head": run + 12, "meta magic": 16 + 8, "meta map": 4096 + 32,
        "meta entries": 4096 + 16 + 112, "meta root": 4096 + 16 + 116, "meta slack": 4096 + 3000,
    }  # fmt: skip


def test_bytes_of_an_lmdb_between_its_samples(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    pack(tree, path, sidecars=("txt",))
    for what, place in lmdb_places(path).items():
        change(data_file(path), place)
        try:
            report = verify(path)
            assert report.status == "partial", what
            assert {reason for _, reason in found(report)} == {"bad_record"}, what
        except PackError:
            pass
        change(data_file(path), place)
    assert found(verify(path)) == []


@pytest.mark.parametrize("name", BESIDE)
def test_bytes_of_a_table_beside_its_data(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    index = index_of(path)
    data = index.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    places = {
        column: start + entry["data_offsets"][0]
        for column, entry in header.items()
        if column[0] != "_"
    }
    assert len(places) == 7 + 3 * len(open_pack(path).meta.fields)
    places |= {"size": 0, "text": data.index(b"fastconv"), "id": data.index(b'\\"id\\"') + 10}
    for what, place in places.items():
        change(index, place)
        try:
            assert verify(path).status == "partial", what
        except CorruptPackError:
            assert what == "shard_row"
        change(index, place)
    assert found(verify(path)) == []
    change(index, start - 1, b"\t")
    assert found(verify(path)) == [(index.name, "bad_record")]
    change(index, start - 1, b" ")
    with open(index, "ab") as file:
        file.write(b"more")
    assert found(verify(path)) == [(index.name, "bad_record")]


def table_places(path: Path) -> dict[str, int]:
    """Returns where the 50th byte of each column of a table inside its pack is."""
    reader = open_pack(path)
    names = set(reader.table.arrays()) - {"shard_row"}
    if path.name.endswith(".h5"):
        with h5py.File(path) as file:
            datasets = {name: file[stored(reader.meta)[name][0]] for name in names}
            return {name: dataset.id.get_offset() + 49 for name, dataset in datasets.items()}
    database = Database(str(path), memoryview(data_file(path).read_bytes()))
    entries = {name: database.get(f"__table__/{name}".encode()) for name in names}
    return {name: entry.place + 49 for name, entry in entries.items() if entry is not None}


@pytest.mark.parametrize("name", ["pack.h5", "pack.lmdb"])
def test_bytes_of_a_table_inside(tree: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    pack(tree, path, sidecars=("txt",))
    file = data_file(path)
    places = table_places(path)
    assert len(places) == 12
    for column, place in places.items():
        change(file, place)
        try:
            report = verify(path)
            assert report.status == "partial", column
            assert report.checksums
            assert not report.structure or column.startswith("offset")
        except PackError:
            pass
        change(file, place)
    assert found(verify(path)) == []


def test_the_last_offset_of_an_hdf5(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path, sidecars=("txt",))
    with h5py.File(path) as file:
        place = file["offsets"].id.get_offset() + 8 * 200
    change(path, place)
    report = verify(path)
    assert report.status == "partial" or report.warnings


@pytest.mark.parametrize("name", ["pack.h5", "vlen.h5"])
def test_what_other_programs_would_read_otherwise_in_an_hdf5(
    tree: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    pack(tree, path, sidecars=("txt",), **PACKS[name])
    whole = path.read_bytes()
    with h5py.File(path) as file:
        lengths = {n: file[n].shape[0] for n in ("fields/txt/data", "labels") if n in file}
    places = {
        "classes": whole.index(b'["ant", "bee"]') + 3,
        "a name of another object": whole.index(b"offsets\0"),
        "a length": whole.index(struct.pack("<QQ", *[lengths["fields/txt/data"]] * 2)),
        "the end": 40,
    }
    for what, place in places.items():
        change(path, place)
        try:
            report = verify(path)
            assert {reason for _, reason in found(report)} == {"bad_record"}, what
            assert not report.warnings, what
        except PackError:
            assert what in ("a name of another object", "the end")
        path.write_bytes(whole)
    with open(path, "ab") as file:
        file.write(b"more")
    report = verify(path)
    assert found(report) == [(name, "bad_record")]
    assert "by its own superblock" in report.bad[0].message


def test_a_field_of_any_name_in_an_hdf5(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {"a/1.png": png(1), "a/1.data": b"x", "a/1.images": b"yz"})
    pack(tree, tmp_path / "p.h5", sidecars=("data", "images"))
    assert found(verify(tmp_path / "p.h5", against=tree)) == []


def test_elements_of_variable_length_are_those_of_the_samples(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "vlen.h5"
    pack(tree, path, **PACKS["vlen.h5"])
    whole = path.read_bytes()
    with h5py.File(path) as file:
        start = file["images"].id.get_offset()
    one, two, three = (start + 16 * row for row in (31, 32, 33))
    size = int.from_bytes(whole[one : one + 4], "little")
    exchanged = {one: whole[two : two + 16], two: whole[one : one + 16]}
    for changes, bad in (
        (exchanged, [31, 32]),
        ({one: struct.pack("<I", size - 1)}, [31]),
        ({one: struct.pack("<I", 0)}, [31]),
        ({payload(path, 31) - 8: struct.pack("<Q", size + 1)}, [31]),
        ({three: whole[one : one + 16]}, [33]),
    ):
        for place, data in changes.items():
            change(path, place, data)
        report = verify(path)
        told = [word.message.partition("element ")[2].partition(" ")[0] for word in report.bad]
        assert told == list(map(str, bad)), changes
        path.write_bytes(whole)
    change(path, one + 12, struct.pack("<I", 60_000))
    assert "has no value 60000" in verify(path).bad[0].message
    path.write_bytes(whole)
    (heap,) = struct.unpack_from("<Q", whole, one + 4)
    free = heap + 16
    while whole[free : free + 2] != bytes(2):
        length = int.from_bytes(whole[free + 8 : free + 16], "little")
        free += 16 + (length + 7) // 8 * 8
    for at in (heap + 4, heap + 15, free + 13):
        change(path, at)
        assert [word.message.rpartition(" at ")[2] for word in verify(path).bad] == [str(heap)]
        path.write_bytes(whole)
    change(path, start + 16 * 40, whole[start + 16 * 41 : start + 16 * 60])
    assert len(verify(path).bad) == 9


def test_bytes_of_an_hdf5_that_no_program_has_to_notice_give_a_warning(
    tree: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path)
    node = path.read_bytes().index(b"SNOD")
    change(path, node + 8 + 8 * 40 - 1)  # the last of its eight entries is not used
    report = verify(path)
    assert (report.status, len(report.warnings)) == ("done", 1)
    assert "HDF5 library" in report.warnings[0]


def test_a_disk_that_cannot_be_read(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tree, tmp_path / "p.tar", sidecars=("txt",))
    place = payload(tmp_path / "p.tar", 9)
    read = os.pread

    def failing(fd: int, size: int, start: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("p.tar") and start <= place < start + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, size, start)

    monkeypatch.setattr("fastconv.converters.verify.WINDOW", 16384)
    monkeypatch.setattr("os.pread", failing)
    report = verify(tmp_path / "p.tar")
    reasons = {reason for _, reason in found(report)}
    assert reasons == {"unreadable"}
    names = [name for name, _ in found(report)]
    assert "ant/009.jpg" in names or "ant/009.png" in names
    assert any(name.startswith("p.tar offset") for name in names)


# -- a quick look


def test_some_samples_are_looked_at(packed: Path) -> None:
    seen: list[Progress] = []
    report = verify(packed, sample=20, decode=True, progress=seen.append)
    assert (report.status, report.samples, report.looked_at, report.seed) == ("done", 200, 20, 0)
    assert report.checksums
    assert not report.structure
    assert report.notices[-1].startswith("180 of 200 samples, and the bytes between samples")
    assert (seen[-1].samples, seen[-1].samples_total) == (20, 20)
    assert 0 < seen[-1].bytes == seen[-1].bytes_total < report.bytes
    assert verify(packed, sample=0.001).looked_at == 1
    assert verify(packed, sample=1.0).looked_at == 200
    assert verify(packed, sample=1000).looked_at == 200
    whole = verify(packed)
    assert (whole.looked_at, whole.seed) == (200, None)


def test_the_same_samples_for_the_same_seed(packed: Path) -> None:
    rows = {seed: set(chosen_rows(20, seed, 200).tolist()) for seed in range(20)}
    assert rows[3] == set(chosen_rows(0.1, 3, 200).tolist()) < set(chosen_rows(40, 3, 200).tolist())
    assert len(set().union(*rows.values())) > 150
    bad = {seed for seed, chosen in rows.items() if 40 in chosen}
    assert bad
    change(data_file(packed), payload(packed, 40, 0) + 10)
    for seed in rows:
        expected = [("ant/040.png", "corrupt")] if seed in bad else []
        assert found(verify(packed, sample=20, seed=seed)) == expected


def test_the_table_is_checked_at_a_quick_look(tree: Path, tmp_path: Path) -> None:
    for name in OUTS:
        path = make(tree, tmp_path / name)
        table, index = open_pack(path).table, index_of(path)
        file = index if index.exists() else data_file(path)
        change(file, file.read_bytes().index(table.checksum[0][:9].tobytes()))
        assert ("the sample table", "bad_record") in found(verify(path, sample=1))


@pytest.mark.parametrize("name", SHARDS)
def test_a_quick_look_reads_little(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = make(tree, tmp_path / name)
    sizes: list[int] = []
    read = os.pread

    def counted(fd: int, size: int, start: int) -> bytes:
        sizes.append(size)
        return read(fd, size, start)

    monkeypatch.setattr("os.pread", counted)
    rows = chosen_rows(10, 0, 200)
    size = sum(int(np.maximum(column[rows], 0).sum()) for column in open_pack(path).table.size)
    assert verify(path, sample=10).status == "done"
    assert sum(sizes) == size


def test_a_quick_look_at_what_is_no_pack_of_ours(tmp_path: Path) -> None:
    files = {f"a/{number:03d}.png": png(number) for number in range(100)}
    tree = write(tmp_path / "tree", {**files, "a/050.png": b"\x89PNG\r\n\x1a\n" + bytes(50)})
    path = tar(tmp_path / "p.tar", {name[2:]: data for name, data in files.items()})
    assert verify(path, sample=10, decode=True).looked_at == 10
    report = verify(tree, sample=99, decode=True)
    assert (report.looked_at, report.checksums) == (99, False)
    assert found(verify(tree, sample=100, decode=True)) == [("a/050.png", "corrupt")]


def test_samples_that_lie_outside_at_a_quick_look(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path)
    with h5py.File(path, "r+") as file:
        file["offsets"][7] = 1 << 40
    report = verify(path, sample=200)
    assert ("ant/007.png", "bad_record") in found(report)


@pytest.mark.parametrize("sample", [0, -1, 0.0, 1.5, True, float("nan")])
def test_no_quick_look_at_nothing(tree: Path, sample: float) -> None:
    with pytest.raises(UsageError, match="a quick look is at"):
        verify(tree, sample=sample)


def test_a_quick_look_is_not_compared(tree: Path) -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        verify(tree, sample=1, against=tree)


# -- a pack that is not whole


@pytest.mark.parametrize("name", ["pack.lmdb", "pack.h5"])
def test_a_pack_cut_short(tree: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    pack(tree, path)
    size = os.path.getsize(data_file(path))
    for kept in (size // 2, size - 1, 100):
        os.truncate(data_file(path), kept)
        with pytest.raises(PackError, match=r"truncated|damaged"):
            verify(path)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("pack.tar", "100.png"),
        ("pack.tfrecord", "pack.tfrecord record 100, offset "),
        ("pack.rec", "pack.rec record 100"),
    ],
)
def test_records_cut_short(tree: Path, tmp_path: Path, name: str, first: str) -> None:
    path = make(tree, tmp_path / name)
    os.truncate(path, payload(path, 100) + 5)
    report = verify(path)
    assert found(report)[0][0].startswith(first)
    assert found(report)[0][1] == "truncated"
    assert found(report)[-1] == (name, "bad_record")
    assert f"has {os.path.getsize(path)} bytes, needs" in report.bad[-1].message
    assert any("its checksums were not compared" in line for line in report.warnings)


@pytest.mark.parametrize("kept", [0.5, -1, 100])
def test_a_parquet_cut_short(tree: Path, tmp_path: Path, kept: float) -> None:
    path = make(tree, tmp_path / "pack.parquet")
    size = os.path.getsize(path)
    os.truncate(path, int(size * kept if kept == 0.5 else kept % size))
    with pytest.raises(CorruptPackError, match=r"truncated"):
        verify(path)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_meanwhile(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = make(tree, tmp_path / name)
    monkeypatch.setattr("fastconv.converters.plan.PART_BYTES", 20_000)

    def cut(progress: Progress) -> None:
        os.truncate(path, 100)

    with pytest.raises(FastconvError, match="truncated since it was opened"):
        verify(path, progress=cut)


@pytest.mark.parametrize("name", ["pack.lmdb", *BESIDE])
def test_bytes_behind_the_end(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    size = data_file(path).stat().st_size + 4096
    os.truncate(data_file(path), size)
    if data_file(path).suffix == ".parquet":
        with pytest.raises(CorruptPackError, match=f"its sample table is ignored: .* has {size} "):
            verify(path)
        return
    report = verify(path)
    where = "data.mdb" if name == "pack.lmdb" else name
    assert found(report)[-1] == (where, "bad_record")
    assert f"has {size} bytes" in report.bad[-1].message


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_that_is_gone(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    data_file(path).unlink()
    report = verify(path)
    assert found(report) == [(name, "bad_record")]
    assert "is missing" in report.bad[0].message


def test_an_lmdb_that_somebody_wrote_to(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.lmdb"
    pack(tree, path)
    with lmdb.open(str(path), map_size=1 << 24) as env, env.begin(write=True) as transaction:
        transaction.put(b"001", b"something else")
    report = verify(path)
    assert found(report) == [("p.lmdb", "bad_record")]
    assert "written to since" in report.bad[0].message


def test_a_pack_that_lays_its_samples_out_otherwise(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.tar"
    pack(tree, path)
    monkeypatch.setattr("fastconv.converters.formats.webdataset.BLOCK", 1024)
    report = verify(path)
    assert found(report) == [("p.tar", "bad_record")]
    assert "at other places" in report.bad[0].message


def test_settings_of_another_version(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    pack(tree, path)
    index = Path(f"{path}.index.safetensors")
    data = index.read_bytes()
    settings = b'\\"settings\\":{}'
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip().replace(settings, b'\\"settings\\":{\\"turbo\\":1}')
    header += b" " * (-(8 + len(header)) % 64)
    index.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    with pytest.raises(CorruptPackError, match="turbo"):
        verify(path)


def test_no_space_for_scratch_files(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pack(tree, tmp_path / "p.tar")
    monkeypatch.setattr("fastconv.converters.structure.pwrite_all", full)
    with pytest.raises(PackError, match="TMPDIR"):
        verify(tmp_path / "p.tar")


# -- packs of others


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def test_a_tar_of_somebody_else(tmp_path: Path) -> None:
    members = {
        "1.png": png(1),
        "1.cls": b"3",
        "2.jpg": jpeg(2, cut=300),
        "3.jpg": png(3),
        "4.txt": b"x",
    }
    path = tar(tmp_path / "p.tar", members)
    report = verify(path)
    assert found(report) == [("4", "missing_part")]
    assert (report.id, report.checksums, report.structure) == ("", False, False)
    assert len(report.warnings) == 1
    assert "--decode" in report.warnings[0]
    report = verify(path, decode=True)
    assert found(report) == [("4", "missing_part"), ("2.jpg", "truncated")]
    assert report.pixels


def test_a_tar_without_a_whole_sample(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", {"4.txt": b"x"})
    with pytest.raises(VerifyFailedError, match="missing_part") as caught:
        verify(path)
    assert caught.value.report is not None
    assert caught.value.report.status == "failed"


def test_a_tar_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    path.write_bytes(bytes(10240))
    report = verify(path)
    assert report.status == "done"
    assert "the pack holds no samples (0 records)" in report.warnings


@pytest.mark.parametrize("name", FILES)
def test_our_files_without_their_table(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    index_of(path).unlink()
    report = verify(path)
    assert (report.status, report.samples, report.checksums) == ("partial", 200, False)
    assert found(report) == [(f"{name}.index.safetensors", "bad_record")]
    assert any("its checksums were not compared" in line for line in report.warnings)


def test_a_raw_folder(tmp_path: Path) -> None:
    tree = write(
        tmp_path / "tree", {"a/1.png": png(1), "a/2.jpg": jpeg(1, cut=300), "b/3.jpg": png(3)}
    )
    report = verify(tree)
    assert report.status == "done"
    assert len(report.warnings) == 1
    assert found(verify(tree, decode=True)) == [("a/2.jpg", "truncated")]


def test_a_raw_folder_whose_files_go_away(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {f"a/{number:03d}.png": png(number) for number in range(100)})

    def remove(progress: Progress) -> None:
        (tree / "a/099.png").unlink(missing_ok=True)

    assert found(verify(tree, progress=remove)) == [("a/099.png", "vanished")]


# -- what other programs read


def recreate(path: Path, name: str, kind: Any, **more: Any) -> None:
    """Puts another dataset in the place of one, with the same bytes as far as the type lets it."""
    with h5py.File(path, "r+") as file:
        values = file[name][()]
        del file[name]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        for setting, value in more.items():
            getattr(plan, setting)(*value)
        space = h5py.h5s.create_simple(values.shape)
        made = h5py.h5d.create(file.id, name.encode(), kind, space, plan)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)


def bits(precision: int, offset: int = 0) -> Any:
    kind = h5py.h5t.STD_U8LE.copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    return kind


U8 = h5py.h5t.STD_U8LE
CHUNKS: dict[str, Any] = {"set_chunk": [(64,)]}
STORED: dict[str, tuple[Any, dict[str, Any]]] = {
    "fewer bits": (bits(4), {}),
    "bits elsewhere": (bits(4, 2), {}),
    "signed": (h5py.h5t.STD_I8LE, {}),
    "bit field": (h5py.h5t.STD_B8LE, {}),
    "enumerated": (h5py.h5t.py_create(h5py.enum_dtype({"a": 1}, "u1"), logical=True), {}),
    "in pieces": (U8, CHUNKS),
    "compressed": (U8, CHUNKS | {"set_deflate": [4]}),
    "inside its header": (U8, {"set_layout": [h5py.h5d.COMPACT]}),
    "filled": (U8, {"set_fill_value": [np.array(7, np.uint8)]}),
}


@pytest.mark.parametrize("what", STORED)
@pytest.mark.parametrize("name", ["pack.h5", "vlen.h5"])
def test_an_array_of_an_hdf5_that_is_stored_otherwise(
    tree: Path, tmp_path: Path, name: str, what: str
) -> None:
    kind, more = STORED[what]
    path = tmp_path / name
    pack(tree, path, sidecars=("txt",), **PACKS[name])
    recreate(path, "fields/txt/data", kind, **more)
    if what == "filled":  # our own map has no use for it
        report = verify(path)
        assert (report.status, len(report.bad)) == ("partial", 1)
        assert "fields/txt/data is filled with 7" in report.bad[0].message
    else:
        with pytest.raises(CorruptPackError, match=r"the dataset /?fields/txt/data is "):
            open_pack(path)


def test_an_array_of_an_hdf5_that_is_moved_is_well(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path, sidecars=("txt",))
    recreate(path, "fields/txt/data", U8)
    assert found(verify(path)) == []


def test_an_array_of_an_hdf5_in_another_file(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pack.h5"
    pack(tree, path, sidecars=("txt",))
    recreate(path, "fields/txt/data", U8, set_external=(b"beside.raw", 0, h5py.h5f.UNLIMITED))
    assert (tmp_path / "beside.raw").exists()
    with pytest.raises(CorruptPackError, match="not one block inside the file"):
        verify(path)


@pytest.mark.parametrize("name", ["pack.h5", "vlen.h5"])
def test_one_byte_of_a_type_in_an_hdf5(tree: Path, tmp_path: Path, name: str) -> None:
    """The library gives other numbers where a type has fewer bits than its bytes hold."""
    path = tmp_path / name
    pack(tree, path, sidecars=("txt",), **PACKS[name])
    whole = path.read_bytes()
    count = 0
    for flags, size in ((0, 1), (0, 4), (0, 8), (8, 8)):
        # How a type of whole numbers is stored: class, flags, size, first bit, number of bits.
        message = struct.pack("<BBHIHH", 0x10, flags, 0, size, 0, 8 * size)
        for place in [each.start() for each in re.finditer(re.escape(message), whole)]:
            for at, byte in ((place + 10, 4 * size), (place + 8, 1), (place, 0x14)):
                path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
                try:
                    assert verify(path).status == "partial", (size, at)
                except CorruptPackError:
                    count += 1
    assert count > 30


def test_more_than_its_values_in_an_hdf5(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path, sidecars=("txt",))
    whole = path.read_bytes()
    with h5py.File(path) as file:
        length = file["fields/txt/data"].shape[0]
        header = h5py.h5o.get_info(file["fields/txt/data"].id).addr
    # The first version of an object's header: 16 bytes, then messages: type, size, flags, content.
    place = header + 16
    while (kind := int.from_bytes(whole[place : place + 2], "little")) != 0:
        place += 8 + int.from_bytes(whole[place + 2 : place + 4], "little")
        assert place < header + 400
    assert int.from_bytes(whole[place + 2 : place + 4], "little") >= 24
    deflate = struct.pack("<BB6xHHHHII", 1, 1, 1, 0, 0, 1, 4, 0)
    changes = {
        "goes through a filter": {place: b"\x0b\0", place + 8: deflate},
        "can grow to": {whole.index(struct.pack("<QQ", length, length)) + 8: b"\xff" * 8},
    }
    assert kind == 0
    for words, pieces in changes.items():
        for at, data in pieces.items():
            change(path, at, data)
        report = verify(path)
        assert found(report) == [("pack.h5", "bad_record")], words
        assert words in report.bad[0].message
        path.write_bytes(whole)


def test_a_type_of_text_in_an_hdf5(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.h5"
    pack(tree, path)
    with h5py.File(path, "r+") as file:
        value = file["classes"][()]
        del file["classes"]
        file["classes"] = np.array(value, h5py.string_dtype("utf-8", len(value)))
    report = verify(path)
    assert found(report) == [("pack.h5", "bad_record")]
    assert "classes is no plain text" in report.bad[0].message


# -- files of others beside its own


@pytest.mark.parametrize("name", SHARDS)
def test_foreign_files_among_the_shards(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    first = data_file(path)
    others = [f"{first.stem[:-1]}9{first.suffix}", f"other{first.suffix}"]
    for other in others:
        (path / other).write_bytes(first.read_bytes())
    (path / f".hidden{first.suffix}").write_bytes(b"")
    report = verify(path)
    assert sorted(found(report)) == [(other, "bad_record") for other in sorted(others)]
    assert all("is no shard of this pack" in bad.message for bad in report.bad)


@pytest.mark.parametrize("name", [*SHARDS, "pack.lmdb"])
def test_other_files_in_its_folder_are_noted(tree: Path, tmp_path: Path, name: str) -> None:
    path = make(tree, tmp_path / name)
    for other in (".DS_Store", "a", "b", "c", "d"):
        (path / other).write_bytes(b"")
    if name == "pack.lmdb":
        (path / "lock.mdb").write_bytes(b"")
    report = verify(path)
    assert (report.status, report.warnings) == ("done", [])
    assert report.notices == ["in its folder lie files that are not the pack's: a, b, c and 1 more"]


@pytest.mark.parametrize("name", SHARDS)
def test_shards_of_ours_without_their_table(tree: Path, tmp_path: Path, name: str) -> None:
    path, other = make(tree, tmp_path / name), tmp_path / "other" / name
    shutil.copytree(tree, tmp_path / "other/tree")
    (tmp_path / "other/tree/bee/199.txt").write_bytes(b"other")
    (tmp_path / "other/tree/bee/199.png").write_bytes(png(3))
    make(tmp_path / "other/tree", other)
    index_of(path).unlink()
    shards = [shard.name for shard in open_pack(path).meta.shards]
    (path / shards[-1]).unlink()
    report = verify(path)
    assert found(report) == [("index.safetensors", "bad_record")]
    assert "cannot tell whether shards or samples are missing" in report.bad[0].message
    (other / shards[1]).rename(path / shards[1])
    assert found(verify(path))[1:] == [(shards[1], "bad_record")]


# -- pixels


def test_damaged_pixels_are_found_by_decoding(tmp_path: Path) -> None:
    tree = write(
        tmp_path / "tree", {"a/1.png": png(1), "a/2.jpg": jpeg(1, cut=300), "a/3.png": png(9, 50)}
    )
    for name in OUTS:
        pack(tree, tmp_path / name)
        assert verify(tmp_path / name).status == "done"
        report = verify(tmp_path / name, decode=True, max_pixels=1000_000)
        assert found(report) == [("a/2.jpg", "truncated")]
        report = verify(tmp_path / name, decode=True, max_pixels=2600)
        assert found(report) == [("a/2.jpg", "too_large"), ("a/3.png", "too_large")]


# -- the folder that was packed


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files = {f"{name}/{number}.png": png(number) for name in ("ant", "bee") for number in range(4)}
    return write(tmp_path / "source", files | {"ant/1.txt": b"caption", "bee/2.txt": b"caption"})


@pytest.mark.parametrize("name", OUTS)
def test_what_differs_from_the_folder(source: Path, tmp_path: Path, name: str) -> None:
    path = make(source, tmp_path / name)
    (source / "ant/0.png").unlink()
    (source / "ant/1.txt").write_bytes(b"captiom")
    (source / "ant/2.png").write_bytes(png(2) + b"more")
    (source / "ant/3.png").rename(source / "bee/3 new.png")
    write(
        source,
        {"ant/new.png": png(1), "ant/page.png": b"<html>", "bee/1.txt": b"new", "x.md": b"x"},
    )
    report = verify(path, against=source)
    expected = [
        ("ant/0.png", "vanished"),
        ("ant/1.txt", "changed"),
        ("ant/2.png", "changed"),
        ("ant/3.png", "vanished"),
        ("ant/new.png", "missing_part"),
        ("bee/1.txt", "missing_part"),
        ("bee/3 new.png", "missing_part"),
    ]
    held = (".png", *(f".{ending}" for ending in captions(name)))
    assert sorted(found(report)) == [one for one in expected if one[0].endswith(held)]
    assert all(str(source) in bad.message for bad in report.bad)
    assert report.status == "partial"


def test_a_folder_is_walked_as_it_was_packed(source: Path, tmp_path: Path) -> None:
    write(source, {"outside.png": png(1), "ant/none": png(2), "ant/text": b"text"})
    pack(source, tmp_path / "p.lmdb")
    assert found(verify(tmp_path / "p.lmdb", against=source)) == []
    pack(source, tmp_path / "q.lmdb", any_extension=True, labels=False)
    assert found(verify(tmp_path / "q.lmdb", against=source)) == []


def test_what_cannot_be_read_cannot_be_compared(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(source, tmp_path / "p.lmdb", sidecars=("txt",))
    os.mkfifo(source / "ant/pipe.png")  # could not be packed: nothing to compare
    (source / "ant/0.png").unlink()
    (source / "ant/0.png").symlink_to("nowhere.png")
    (source / "ant/other.png").symlink_to("nowhere.png")
    write(source, {"bee/locked.png": png(1), "bee/closed/9.png": png(9)})
    names = {"closed", "locked.png"}

    def refused(system: Any) -> Any:
        def call(path: Any, *rest: Any, **more: Any) -> Any:
            if str(path).rpartition("/")[2] in names:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return system(path, *rest, **more)

        return call

    monkeypatch.setattr("os.scandir", refused(os.scandir))
    monkeypatch.setattr("os.open", refused(os.open))
    report = verify(tmp_path / "p.lmdb", against=source)
    assert sorted(found(report)) == [
        ("ant/0.png", "vanished"),
        ("bee/closed", "unreadable"),
        ("bee/locked.png", "unreadable"),
    ]
    assert sum("cannot be compared" in bad.message for bad in report.bad) == 2


def test_what_packing_left_out_is_not_missed(source: Path, tmp_path: Path) -> None:
    (source / "ant/gone.png").symlink_to("nowhere.png")
    (source / "ant/loop.png").symlink_to("loop.png")
    (source / "ant/empty.png").touch()
    pack(source, tmp_path / "p.lmdb")
    assert verify(tmp_path / "p.lmdb", against=source).status == "done"
    write(source, {"ant/cut.png": png(1, 50)[:60], "ant/wide.png": png(1, 80)})
    assert len(pack(source, tmp_path / "q.lmdb", check="decode", max_pixels=6000).bad) == 5
    report = verify(tmp_path / "q.lmdb", against=source, decode=True, max_pixels=6000)
    assert (report.bad, report.notices) == ([], [])
    report = verify(tmp_path / "q.lmdb", against=source)
    assert found(report) == [("ant/cut.png", "missing_part"), ("ant/wide.png", "missing_part")]
    assert "with --decode (in Python decode=True) those are not missed" in report.notices[0]
    write(source, {"ant/new.png": png(3)})
    report = verify(tmp_path / "q.lmdb", against=source, decode=True, max_pixels=6000)
    assert found(report) == [("ant/new.png", "missing_part")]


def test_columns_of_labels_are_no_files(source: Path, tmp_path: Path) -> None:
    names = sorted(str(file.relative_to(source)) for file in source.rglob("*.png"))
    labels = tmp_path / "labels.csv"
    labels.write_text("file_name,label,n\n" + "".join(f"{name},a,1\n" for name in names))
    pack(source, tmp_path / "p.tar", labels=labels, sidecars=("txt",))
    assert found(verify(tmp_path / "p.tar", against=source)) == []


def test_a_pack_without_checksums_is_compared_too(tmp_path: Path) -> None:
    files = {"a/1.png": png(1), "a/1.txt": b"caption", "a/2.png": png(2), "a/3.png": png(3)}
    source = write(tmp_path / "source", files)
    path = tar(tmp_path / "p.tar", files)
    assert found(verify(path, against=source)) == []
    (source / "a/2.png").write_bytes(png(7))
    (source / "a/1.txt").write_bytes(b"captiom")
    report = verify(path, against=source)
    assert sorted(found(report)) == [("a/1.txt", "changed"), ("a/2.png", "changed")]
    assert found(verify(tmp_path / "source", against=source)) == []


def test_a_damaged_table_is_not_compared(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    pack(source, path)
    index = Path(f"{path}.index.safetensors")
    change(index, index.read_bytes().rindex(b"ant/0.png"))
    report = verify(path, against=source)
    assert found(report) == [("the sample table", "bad_record")]
    assert any("not compared" in line for line in report.warnings)


def test_wrong_arguments(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.tar"
    pack(source, path)
    with pytest.raises(UsageError, match="no such folder"):
        verify(path, against=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="worker"):
        verify(path, workers=0)
    with pytest.raises(PackError, match="no such file"):
        verify(tmp_path / "nowhere")
