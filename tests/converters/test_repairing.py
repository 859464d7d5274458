"""Mending: whatever byte is damaged, the pack has the very bytes again that it was packed with."""

from __future__ import annotations

import io
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.converters import places
from tests.support import OUTS, captions

from fastconv.converters import (
    RepairFailedError,
    RepairReport,
    Sharding,
    pack,
    repair,
    repairing,
)
from fastconv.converters.recovered import what_is_known
from fastconv.converters.report import Progress
from fastconv.converters.structure import other_bytes, rows_of
from fastconv.converters.target import Target
from fastconv.converters.verifying import verify
from fastconv.loaders.errors import FastconvError, PackChangedError, PackError, UsageError
from fastconv.loaders.index import index_path
from fastconv.loaders.open import open_pack

PACKS: dict[str, dict[str, Any]] = {
    "pack.lmdb": {},
    "pack.tar": {},
    "pack.h5": {},
    "pack.parquet": {},
    "pack.tfrecord": {},
    "pack.rec": {},
    "shards": {"format": "webdataset", "sharding": Sharding(samples=9)},
    "parquets": {"format": "parquet", "sharding": Sharding(samples=9)},
    "tfrecords": {"format": "tfrecord", "sharding": Sharding(samples=9)},
    "records": {"format": "recordio", "sharding": Sharding(samples=9)},
    "vlen.h5": {"options": {"layout": "vlen"}},
}
INSIDE = ["pack.lmdb", "pack.h5", "vlen.h5"]
"""Those that have their tables in them."""
BESIDE = [name for name in PACKS if name not in INSIDE]
DATA = (".tar", ".parquet", ".tfrecord", ".rec")
SHARDS = [name for name in PACKS if "sharding" in PACKS[name]]


def fields_of(name: str) -> list[str]:
    """Returns the endings of the files of a sample, as far as a pack has them."""
    return ["png", *captions(name, PACKS[name].get("format"))]


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (2 + number % 5, 2), (number % 256, 7, 9)).save(file, "PNG")
    return file.getvalue()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(scope="session")
def whole_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with some tiny images, and captions beside most."""
    files = {}
    for number in range(23):
        name = f"{'ant' if number < 9 else 'bee'}/{number:03d}"
        files[f"{name}.png"] = png(number)
        if number % 4:
            files[f"{name}.txt"] = b"x" * (number * 7)
    return write(tmp_path_factory.mktemp("source") / "tree", files)


@pytest.fixture(scope="session")
def whole_packs(whole_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the bytes of all files of a pack of each kind, by names relative to a folder."""
    folder = tmp_path_factory.mktemp("packs")
    out = {}
    for name, arguments in PACKS.items():
        path = folder / name.replace(".", "-") / name
        path.parent.mkdir()
        pack(whole_tree, path, sidecars=fields_of(name)[1:], **arguments)
        out[name] = contents(path)
    return out


@pytest.fixture
def tree(whole_tree: Path, tmp_path: Path) -> Path:
    """Returns a copy of the folder that a test may change."""
    names = [file for file in whole_tree.rglob("*") if file.is_file()]
    return write(tmp_path / "tree", {str(f.relative_to(whole_tree)): f.read_bytes() for f in names})


def contents(path: Path) -> dict[str, bytes]:
    """Returns the bytes of a pack's files, by names relative to the folder that it is in."""
    files = path.iterdir() if path.is_dir() else path.parent.glob(f"{path.stem}.*")
    return {str(f.relative_to(path.parent)): f.read_bytes() for f in files if f.is_file()}


@pytest.fixture(params=PACKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def packed(name: str, whole_packs: dict[str, Any], tmp_path: Path) -> Path:
    write(tmp_path / "here", whole_packs[name])
    return tmp_path / "here" / name


@pytest.fixture
def whole(name: str, whole_packs: dict[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = whole_packs[name]
    return found


def data_file(path: Path, shard: int = 0) -> Path:
    return Path(open_pack(path).files[shard])  # type: ignore[attr-defined]


def change(file: Path, place: int, data: bytes | None = None) -> None:
    """Changes a byte of a file, or writes some."""
    with open(file, "r+b") as stream:
        stream.seek(place)
        old = stream.read(1)
        stream.seek(place)
        stream.write(bytes([old[0] ^ 0x21]) if data is None else data)


def payload(path: Path, row: int, slot: int = 0) -> int:
    table = open_pack(path).table
    return table.base[slot] + int(table.offset[slot][row])


def is_mended(path: Path, tree: Path, whole: dict[str, bytes]) -> RepairReport:
    """Mends a pack, and returns the report when all is as it was."""
    report = repair(path, tree)
    assert (report.status, report.output) == ("done", str(path))
    assert report.bad == []
    assert contents(path) == whole
    assert not Path(f"{path}.partial").exists()
    return report


def mended_or_told(path: Path, tree: Path, whole: dict[str, bytes]) -> str:
    """Mends a pack; returns "" when all is as it was, else why it cannot be mended."""
    try:
        report = repair(path, tree)
    except (RepairFailedError, UsageError) as error:
        return str(error)
    assert (report.status, contents(path)) == ("done", whole)
    return ""


# -- what is mended


def test_nothing_to_mend(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in packed.parent.rglob("*")}
    report = repair(packed, tree)
    assert (report.status, report.output, report.mended) == ("done", None, ())
    assert report.samples == 23
    assert {file: file.stat().st_mtime_ns for file in packed.parent.rglob("*")} == before


def test_samples_come_from_the_folder(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    seen: list[Progress] = []
    file, fields = data_file(packed), fields_of(packed.name)
    change(file, payload(packed, 3) + 20)
    slot = len(fields) - 1
    change(file, payload(packed, 5, slot) + 7)
    mode = 0o640
    file.chmod(mode)
    report = repair(packed, tree, progress=seen.append)
    assert contents(packed) == whole
    assert [bad.path for bad in report.mended] == ["ant/003.png", f"ant/005.{fields[slot]}"]
    assert (report.from_source, report.samples) == (2, 23)
    assert report.fields == ("image", *fields[1:])
    assert (report.format, report.id) == (open_pack(packed).meta.format, open_pack(packed).meta.id)
    assert {progress.samples_total for progress in seen} == {23}
    assert file.stat().st_mode & 0o777 == mode
    assert verify(packed, against=tree).status == "done"


def test_a_folder_that_has_only_what_is_damaged(
    packed: Path, whole: dict[str, bytes], tree: Path
) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    for file in [*tree.rglob("*.*")]:
        if file.name != "003.png":
            file.unlink()
    is_mended(packed, tree, whole)


def between(path: Path, shard: int = 0) -> list[int]:
    """Returns the places of a data file that belong to no sample."""
    reader = open_pack(path)
    first, last = reader.table.shard_row[shard : shard + 2].tolist()
    size = os.path.getsize(data_file(path, shard))
    ranges = other_bytes(rows_of(reader.table, first, last), size)
    return [place for start, stop in ranges for place in range(start, stop)]


@pytest.mark.parametrize("seed", range(3))
def test_any_byte_between_the_samples(
    packed: Path, whole: dict[str, bytes], tree: Path, seed: int
) -> None:
    chance = random.Random(seed)
    file, places = data_file(packed), between(packed)
    only_id: range | tuple[()] = ()
    if packed.suffix == ".lmdb":  # has its id in this one place
        start = file.read_bytes().index(open_pack(packed).meta.id.encode())
        only_id = range(start, start + 32)
    for place in chance.sample(places, 12):
        change(file, place)
        told = mended_or_told(packed, tree, whole)
        if place in only_id:
            assert "pack the folder again" in told or not told
        elif "damage looks so" in told:
            out = packed.parent / str(place)
            repair(packed, tree, out=out)
            assert (out / "data.mdb").read_bytes() == whole[f"{packed.name}/data.mdb"]
            shutil.rmtree(out)
        else:
            assert not told, place
        write(packed.parent, whole)


@pytest.mark.parametrize("name", BESIDE, indirect=True)
def test_every_kind_of_byte_between_the_samples(
    packed: Path, whole: dict[str, bytes], tree: Path
) -> None:
    file = places.data_file(packed)
    for what, place in places.PLACES[file.suffix](packed).items():
        change(file, place)
        report = repair(packed, tree)
        assert (report.status, contents(packed) == whole) == ("done", True), what
        assert (report.output, report.bad) == (str(packed), []), what


@pytest.mark.parametrize(
    "name", ["pack.tfrecord", "tfrecords", "pack.rec", "records"], indirect=True
)
def test_index_files(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    files = [name for name in whole if Path(name).suffix in (".idx", ".lst")]
    assert len(files) == (3 if packed.is_dir() else 1) * (1 + (DATA[3] in str(sorted(whole))))
    for name in files:
        file, data = packed.parent / name, whole[name]
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        for damaged in (flipped, data[:middle], data + b"\n", b"", bytes(len(data))):
            file.write_bytes(damaged)
            report = is_mended(packed, tree, whole)
            assert [bad.path for bad in report.mended] == [file.name]


def text_places(path: Path) -> dict[str, int]:
    """Returns places in what a pack says of itself."""
    data = data_file(path).read_bytes()
    start = data.index(b'{"fastconv":')
    words = [
        b'"format"', b'"id":"', b'"samples"', b'"fields":["image', b'"labels":"', b'"classes":["a',
        b'"settings"', b'"shards"', b'"kinds":["', b'","png',
    ]  # fmt: skip
    return {word.decode(): data.index(word, start) + len(word) for word in words}


@pytest.mark.parametrize("name", INSIDE, indirect=True)
def test_what_a_pack_says_of_itself(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    file = data_file(packed)
    for word, place in text_places(packed).items():
        change(file, place)
        told = mended_or_told(packed, tree, whole)
        # An LMDB has its id in this one place.
        assert ("pack the folder again" in told) == (word == '"id":"' and ".lmdb" in packed.name)
        write(packed.parent, whole)


@pytest.mark.parametrize("name", INSIDE, indirect=True)
def test_columns_of_a_table_inside(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    file, data = data_file(packed), data_file(packed).read_bytes()
    table = open_pack(packed).table
    columns = {name: column for name, column in table.arrays().items() if name != "shard_row"}
    assert len(columns) == 12
    for name, column in columns.items():
        place = data.index(np.ascontiguousarray(column[3:9]).tobytes())
        change(file, place + 2)
        report = repair(packed, tree)
        assert (report.status, contents(packed)) == ("done", whole), name
        write(packed.parent, whole)


@pytest.mark.parametrize("name", [name for name in PACKS if name != "vlen.h5"], indirect=True)
@pytest.mark.parametrize("place", [0, 3, 8, 16, 18, 100])
def test_what_a_pack_is_told_by(
    packed: Path, whole: dict[str, bytes], tree: Path, place: int
) -> None:
    change(data_file(packed), place)
    is_mended(packed, tree, whole)


@pytest.mark.parametrize("name", BESIDE, indirect=True)
def test_any_byte_of_a_table_beside(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    index = Path(index_path(str(packed)))
    size = index.stat().st_size
    for place in [*range(0, 8), *range(11, size, 83), size - 1]:
        change(index, place)
        report = repair(packed, tree)
        assert (report.status, contents(packed)) == ("done", whole), place
        write(packed.parent, whole)


@pytest.mark.parametrize("name", BESIDE, indirect=True)
def test_a_table_that_is_gone(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    Path(index_path(str(packed))).unlink()
    is_mended(packed, tree, whole)
    Path(index_path(str(packed))).write_bytes(b"")
    file = data_file(packed)
    change(file, payload(packed, 2) + 9)
    told = mended_or_told(packed, tree, whole)
    # A damaged TFRecord is left out, by its CRC: how many there were is not known any more.
    assert ("pack the folder again" in told) == (file.suffix == ".tfrecord")


def test_bytes_behind_the_end(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    with open(data_file(packed), "ab") as file:
        file.write(b"more")
    is_mended(packed, tree, whole)


@pytest.mark.parametrize("name", [name for name in PACKS if name != "pack.lmdb"], indirect=True)
@pytest.mark.parametrize("cut", [1, 10, 300, 2000])
def test_a_file_cut_short(packed: Path, whole: dict[str, bytes], tree: Path, cut: int) -> None:
    file = data_file(packed)
    os.truncate(file, file.stat().st_size - min(cut, file.stat().st_size))
    report = is_mended(packed, tree, whole)
    assert report.mended


@pytest.mark.parametrize("name", BESIDE, indirect=True)
@pytest.mark.parametrize("kept", [0, 1, 10, 512, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("zeros", [False, True])
def test_files_of_which_little_is_left(
    packed: Path, whole: dict[str, bytes], tree: Path, kept: float, zeros: bool
) -> None:
    """All that the table knows comes from the folder; where the rest is a hole, too."""
    for name in [name for name in whole if Path(name).suffix in DATA]:
        file = packed.parent / name
        size = file.stat().st_size
        left = min(int(kept * size) if isinstance(kept, float) else kept, size - 1)
        os.truncate(file, left)
        if zeros:
            os.truncate(file, size)
    is_mended(packed, tree, whole)


@pytest.mark.parametrize("name", BESIDE, indirect=True)
def test_what_is_left_of_another_pack_is_not_replaced(
    packed: Path, whole: dict[str, bytes], tree: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "other", {f"a/{n}.png": png(n + 50) for n in range(23)})
    pack(other, tmp_path / packed.name, **PACKS[packed.name])
    theirs = contents(tmp_path / packed.name)
    for name in [name for name in whole if Path(name).suffix in DATA]:
        file = packed.parent / name
        file.write_bytes(theirs[name][:900])
    damaged = contents(packed)
    with pytest.raises(RepairFailedError, match="is not the data of the table beside it"):
        repair(packed, tree)
    assert contents(packed) == damaged


def test_an_empty_file_and_a_folder_that_lacks_some(
    whole_packs: dict[str, Any], tmp_path: Path, tree: Path
) -> None:
    path = write(tmp_path / "here", whole_packs["pack.tar"]) / "pack.tar"
    path.write_bytes(b"")
    (tree / "ant/003.png").unlink()
    report = repair(path, tree)
    assert (report.status, [bad.path for bad in report.bad]) == ("partial", ["ant/003.png"])
    assert [bad.path for bad in verify(path).bad] == ["ant/003.png"]
    path.write_bytes(b"")
    shutil.rmtree(tree / "bee")
    with pytest.raises(RepairFailedError):
        repair(path, tree)
    assert path.read_bytes() == b""


def test_a_lost_table_says_how_it_was_packed(tmp_path: Path, tree: Path) -> None:
    """Which options a pack was made with, its data tell where the table is lost."""
    for file in tree.rglob("*.png"):
        file.with_suffix(".json").write_text("{}")
    options: dict[str, list[dict[str, Any]]] = {
        "p.parquet": [{"text": "txt"}, {"text": "txt,json"}, {"text": "json, txt"}],
        "p.tfrecord": [{"label_base": 1}],
    }
    for name, several in options.items():
        for number, chosen in enumerate(several):
            path = tmp_path / str(number) / name
            path.parent.mkdir(exist_ok=True)
            pack(tree, path, sidecars=["txt", "json"], options=chosen)
            before = contents(path)
            Path(index_path(str(path))).unlink()
            is_mended(path, tree, before)


@pytest.mark.parametrize("names", [["ant", "bee", "cow"], ["ape", "bee", "ant"]])
@pytest.mark.parametrize("name", [name for name in OUTS if name not in ("out.lmdb", "out.h5")])
def test_a_lost_table_had_classes_without_images(
    tmp_path: Path, tree: Path, name: str, names: list[str]
) -> None:
    path = tmp_path / name
    pack(tree, path, classes=names)
    before = contents(path)
    table = Path(index_path(str(path)))
    table.unlink()
    if name != "out.parquet":  # which tells the names of all classes itself
        with pytest.raises(RepairFailedError, match=r"packed with --classes.*give them here"):
            repair(path, tree)
        with pytest.raises(RepairFailedError, match=r"cannot be made again.*: pack the folder"):
            repair(path, tree, classes=["ant", "bee", "dog"])
    assert repair(path, tree, classes=names).mended
    assert contents(path) == before


def test_an_lmdb_cut_short_has_lost_what_tells_of_it(
    whole_packs: dict[str, Any], tmp_path: Path, tree: Path
) -> None:
    write(tmp_path, whole_packs["pack.lmdb"])
    os.truncate(tmp_path / "pack.lmdb/data.mdb", 9000)
    with pytest.raises(RepairFailedError, match=r"truncated.*pack the folder again"):
        repair(tmp_path / "pack.lmdb", tree)


@pytest.mark.parametrize("name", SHARDS, indirect=True)
def test_shards_that_are_gone(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    files = [data_file(packed, shard) for shard in range(3)]
    files[1].unlink()
    report = is_mended(packed, tree, whole)
    assert "is missing" in report.mended[0].message
    os.truncate(files[0], 700)
    files[2].write_bytes(b"")
    is_mended(packed, tree, whole)


def test_much_is_damaged_at_once(packed: Path, whole: dict[str, bytes], tree: Path) -> None:
    chance = random.Random(4)
    for name, data in whole.items():
        for _ in range(40):
            change(packed.parent / name, chance.randrange(len(data)))
    damaged = contents(packed)
    if told := mended_or_told(packed, tree, whole):
        assert "\n" not in told
        assert contents(packed) == damaged


@given(data=st.data())
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
def test_random_damage(
    packed: Path, whole: dict[str, bytes], tree: Path, data: st.DataObject
) -> None:
    file = packed.parent / data.draw(st.sampled_from(sorted(whole)))
    size = len(whole[str(file.relative_to(packed.parent))])
    start = data.draw(st.integers(0, size - 1))
    garbage = data.draw(st.binary(min_size=1, max_size=40))
    change(file, start, garbage[: size - start])
    told = mended_or_told(packed, tree, whole)
    write(packed.parent, whole)
    # An index of which next to nothing is left may be somebody else's file.
    assert re.search("pack the folder again|damage looks so|is in the way|^$", told)


def test_fields_larger_than_a_window(tmp_path: Path) -> None:
    large = png(1) + bytes(range(256)) * 10_000
    tree = write(tmp_path / "tree", {"a/1.png": large, "a/2.png": png(2), "a/3.png": png(3)})
    for name in OUTS:
        pack(tree, tmp_path / name)
        before = contents(tmp_path / name)
        change(data_file(tmp_path / name), payload(tmp_path / name, 0) + 2_000_000)
        change(data_file(tmp_path / name), payload(tmp_path / name, 2) + 40)
        is_mended(tmp_path / name, tree, before)


def test_packs_of_many_parts(
    packed: Path, whole: dict[str, bytes], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastconv.converters.plan.PART_BYTES", 20_000)
    change(data_file(packed), payload(packed, 3) + 20)
    is_mended(packed, tree, whole)


def test_what_the_library_has_moved_is_as_it_was(
    whole_packs: dict[str, Any], tmp_path: Path, tree: Path
) -> None:
    path = write(tmp_path, whole_packs["pack.h5"]) / "pack.h5"
    with h5py.File(path, "r+") as file:
        data = file["data"][:]
        del file["data"]
        file["data"] = data
    change(path, payload(path, 3) + 20)
    is_mended(path, tree, whole_packs["pack.h5"])


def test_slack_that_nobody_reads(whole_packs: dict[str, Any], tmp_path: Path, tree: Path) -> None:
    for name in ("pack.h5", "vlen.h5"):
        path = write(tmp_path, whole_packs[name]) / name
        node = path.read_bytes().index(b"SNOD")
        change(path, node + 8 + 8 * 40 - 1)
        report = is_mended(path, tree, whole_packs[name])
        assert re.match(rf"{name} offset \d+", report.mended[0].path)


def test_packs_of_other_selections(tmp_path: Path) -> None:
    """A table is made again from the folder by what the pack says of how it was chosen."""
    files = {f"{name}/{number}.png": png(number) for name in ("c10", "c9") for number in range(4)}
    tree = write(tmp_path / "tree", files | {"c9/none": png(5), "c9/bad.png": b"<html>"})
    selections: list[dict[str, Any]] = [
        {"labels": False},
        {"class_order": "natural"},
        {"classes": ["other", "c9", "c10"]},
        {"any_extension": True},
        {"check": "decode"},
    ]
    for number, arguments in enumerate(selections):
        for name in OUTS:
            path = tmp_path / str(number) / name
            path.parent.mkdir(exist_ok=True)
            report = pack(tree, path, **arguments)
            assert len(report.bad) == 1 or "any_extension" in arguments
            before = contents(path)
            table, file = open_pack(path).table, Path(index_path(str(path)))
            file = file if file.exists() else data_file(path)
            change(file, file.read_bytes().index(table.checksum[0].tobytes()))
            repair(path, tree)
            assert contents(path) == before, (arguments, name)


# -- what is not mended


def test_what_the_folder_lacks_stays_as_it_is(
    packed: Path, whole: dict[str, bytes], tree: Path
) -> None:
    file, fields = data_file(packed), fields_of(packed.name)
    places = [(1, 0), (2, 0), (3, 0), (5, 1), (6, 1)][: 3 if len(fields) == 1 else None]
    for row, slot in places:
        change(file, payload(packed, row, slot) + 5)
    damaged = file.read_bytes()
    (tree / "ant/001.png").unlink()
    (tree / "ant/002.png").write_bytes(b"other")
    (tree / "ant/005.txt").write_bytes(b"y" * 35)
    report = repair(packed, tree)
    assert (report.status, report.output) == ("partial", str(packed))
    told = [("ant/001.png", "vanished"), ("ant/002.png", "changed"), ("ant/005.txt", "changed")]
    told = told[: len(fields) + 1]
    assert [(bad.path, bad.reason) for bad in report.bad] == told
    assert [bad.path for bad in report.mended] == ["ant/003.png", "ant/006.txt"][: len(fields)]
    assert all("sample" in bad.message for bad in report.bad)
    expected = bytearray(damaged)
    for row, slot in places[2::2]:
        expected[payload(packed, row, slot) + 5] ^= 0x21
    assert file.read_bytes() == expected
    assert [bad.path for bad in verify(packed).bad] == [path for path, _ in told]
    with pytest.raises(RepairFailedError, match=r"nothing was changed.*ant/001\.png") as caught:
        repair(packed, tree)
    assert file.read_bytes() == expected
    assert caught.value.report is not None
    assert (caught.value.report.status, caught.value.report.bad) == ("failed", report.bad)


def test_fields_that_were_no_files(tmp_path: Path, tree: Path) -> None:
    labels = tmp_path / "labels.csv"
    names = sorted(str(file.relative_to(tree)) for file in tree.rglob("*.png"))
    labels.write_text("file_name,label,n\n" + "".join(f"{name},a,123\n" for name in names))
    path = tmp_path / "p.tar"
    pack(tree, path, labels=labels)
    before = contents(path)
    (slot,) = [slot for slot, field in enumerate(open_pack(path).meta.fields) if slot and field]
    change(path, payload(path, 4, slot) + 2)
    with pytest.raises(RepairFailedError, match="come from a file of labels"):
        repair(path, tree)
    change(path, payload(path, 4, slot) + 2)
    change(path, payload(path, 4) - 500)
    is_mended(path, tree, before)
    change(Path(index_path(str(path))), len(before["p.tar.index.safetensors"]) - 1)
    with pytest.raises(RepairFailedError, match="cannot be made again"):
        repair(path, tree)


def test_a_table_that_the_folder_does_not_give_any_more(
    packed: Path, whole: dict[str, bytes], tree: Path
) -> None:
    table = open_pack(packed).table
    file = Path(index_path(str(packed)))
    file = file if file.exists() else data_file(packed)
    change(file, file.read_bytes().index(table.checksum[0][:9].tobytes()))
    damaged = contents(packed)
    (tree / "bee/020.png").unlink()
    with pytest.raises(RepairFailedError, match=r"sample table \(damaged.*pack the folder again"):
        repair(packed, tree)
    write(tree, {"bee/020.png": png(21)})
    with pytest.raises(RepairFailedError, match=r"sample table \(damaged.*pack the folder again"):
        repair(packed, tree)
    assert contents(packed) == damaged
    assert not Path(f"{packed}.partial").exists()


def test_the_table_of_another_pack(whole_packs: dict[str, Any], tmp_path: Path, tree: Path) -> None:
    path = write(tmp_path, whole_packs["pack.tar"]) / "pack.tar"
    other = write(tmp_path / "other", {f"a/{n}.png": png(n + 50) for n in range(23)})
    pack(other, tmp_path / "new.tar")
    path.write_bytes((tmp_path / "new.tar").read_bytes())
    with pytest.raises(RepairFailedError, match="is not the data of the table beside it"):
        repair(path, tree)
    assert path.read_bytes() == (tmp_path / "new.tar").read_bytes()


def test_a_database_that_somebody_wrote_to(
    whole_packs: dict[str, Any], tmp_path: Path, tree: Path
) -> None:
    path = write(tmp_path, whole_packs["pack.lmdb"]) / "pack.lmdb"
    with lmdb.open(str(path), map_size=1 << 24) as env, env.begin(write=True) as transaction:
        transaction.put(b"01", b"something else")
    with pytest.raises(UsageError, match=r"written to since.*--out"):
        repair(path, tree)
    report = repair(path, tree, out=tmp_path / "new.lmdb")
    assert report.output == str(tmp_path / "new.lmdb")
    mended = (tmp_path / "new.lmdb/data.mdb").read_bytes()
    assert mended == whole_packs["pack.lmdb"]["pack.lmdb/data.mdb"]


def test_packs_of_others_and_no_packs(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UsageError, match="a folder of images, not a pack"):
        repair(tree, tree)
    (tmp_path / "p.tar").write_bytes(bytes(10240))
    with pytest.raises(RepairFailedError, match="it has none"):
        repair(tmp_path / "p.tar", tree)
    (tmp_path / "p.txt").write_bytes(b"text")
    with pytest.raises(RepairFailedError, match="not a pack"):
        repair(tmp_path / "p.txt", tree)
    with pytest.raises(PackError, match="no such file"):
        repair(tmp_path / "nowhere", tree)
    with pytest.raises(UsageError, match="no such folder"):
        repair(tmp_path / "p.tar", tmp_path / "nowhere")


# -- where it is put


def test_another_place(packed: Path, whole: dict[str, bytes], tree: Path, tmp_path: Path) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    damaged = contents(packed)
    out = tmp_path / "there" / packed.name
    with pytest.raises(UsageError, match="no such folder"):
        repair(packed, tree, out=out)
    out.parent.mkdir()
    report = repair(packed, tree, out=f"{out}/")
    assert report.output == str(out)
    assert contents(out) == whole
    assert contents(packed) == damaged
    with pytest.raises(UsageError, match="exists already"):
        repair(packed, tree, out=out)


@pytest.mark.parametrize("name", [*SHARDS, "pack.lmdb"], indirect=True)
def test_files_of_others_in_its_folder(
    packed: Path, whole: dict[str, bytes], tree: Path, tmp_path: Path
) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    (packed / "notes.txt").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"notes\.txt: move them away"):
        repair(packed, tree)
    repair(packed, tree, out=tmp_path / packed.name)
    assert contents(tmp_path / packed.name) == whole
    (packed / "notes.txt").unlink()
    if packed.suffix == ".lmdb":
        (packed / "lock.mdb").write_bytes(b"")
    is_mended(packed, tree, whole)


def test_a_link_is_not_replaced(
    packed: Path, whole: dict[str, bytes], tree: Path, tmp_path: Path
) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    link = tmp_path / packed.name
    for file in packed.parent.iterdir():
        (tmp_path / file.name).symlink_to(file)
    with pytest.raises(UsageError, match="is a link"):
        repair(link, tree)
    is_mended(packed, tree, whole)


def test_the_file_of_a_database(whole_packs: dict[str, Any], tmp_path: Path, tree: Path) -> None:
    path = tmp_path / "alone.lmdb"
    data = whole_packs["pack.lmdb"]["pack.lmdb/data.mdb"]
    path.write_bytes(data)
    change(path, payload(path, 3) + 20)
    repair(path, tree)
    assert path.read_bytes() == data


# -- what comes between


def test_an_unfinished_run_of_packing_is_kept(packed: Path, tree: Path) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    target = Target(str(packed), lambda line: None)
    Path(target.path("plan")).write_bytes(b"of hours")
    with pytest.raises(FastconvError, match=r"process \d+ is making it"):
        repair(packed, tree)
    target.keep()
    with pytest.raises(UsageError, match="holds an unfinished run of packing"):
        repair(packed, tree)
    assert Path(target.path("plan")).read_bytes() == b"of hours"


def test_a_pack_that_is_replaced_meanwhile(
    packed: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data_file(packed)
    change(file, payload(packed, 3) + 20)

    def touched(*arguments: Any) -> Any:
        os.utime(file, (1, 1))
        return what_is_known(*arguments)

    monkeypatch.setattr("fastconv.converters.repairing.what_is_known", touched)
    with pytest.raises(PackChangedError, match="run it again"):
        repair(packed, tree)
    assert not Path(f"{packed}.partial").exists()


def test_a_copy_that_is_not_whole_is_not_published(
    packed: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    before = contents(packed)
    write_copy = repairing.Mending.write

    def damaged(run: Any, target: Target) -> str:
        copy = write_copy(run, target)
        change(data_file(Path(copy)), payload(Path(copy), 8) + 20)
        return copy

    monkeypatch.setattr(repairing.Mending, "write", damaged)
    with pytest.raises(FastconvError, match="not as it must be, nothing was changed"):
        repair(packed, tree)
    assert contents(packed) == before
    assert not Path(f"{packed}.partial").exists()


def test_no_space(packed: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    before = contents(packed)
    name = "fastconv.converters.repairing.need_space"
    look = pkgutil.resolve_name(name)
    monkeypatch.setattr(name, lambda folder, size: look(folder, 1 << 62))
    with pytest.raises(FastconvError, match="no space left"):
        repair(packed, tree)
    assert contents(packed) == before
    assert not Path(f"{packed}.partial").exists()


def test_a_disk_that_cannot_be_read(
    packed: Path, whole: dict[str, bytes], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a field that the folder lacks, all is kept that can be read."""
    fields = fields_of(packed.name)
    file, place = data_file(packed), payload(packed, 6, len(fields) - 1)
    lacking = f"ant/006.{fields[-1]}"
    read = os.pread

    def failing(fd: int, size: int, start: int) -> bytes:
        same = os.path.samestat(os.fstat(fd), status)
        if same and start <= place + 20 < start + size:
            raise OSError(5, os.strerror(5))
        return read(fd, size, start)

    status = file.stat()
    monkeypatch.setattr("os.pread", failing)
    monkeypatch.setattr(repairing, "PAGE", 16)
    change(file, payload(packed, 3) + 20)
    status = file.stat()
    (tree / lacking).rename(tree / "ant/away")
    report = repair(packed, tree)
    monkeypatch.setattr("os.pread", read)
    assert [bad.path for bad in report.bad] == [lacking]
    name = str(file.relative_to(packed.parent))
    expected = bytearray(whole[name])
    expected[place + 16 : place + 32] = bytes(16)
    found = (packed.parent / name).read_bytes()
    if file.suffix == ".tfrecord":  # no program is to take what was not read for whole
        start, stop = record_around(found, place)
        assert found[stop - 4 : stop] == bytes(4)
        stop_of_field = place + (tree / "ant/away").stat().st_size
        expected[start:place] = found[start:place]
        expected[stop_of_field:stop] = found[stop_of_field:stop]
    assert found == expected
    (tree / "ant/away").rename(tree / lacking)
    is_mended(packed, tree, whole)


def record_around(data: bytes, place: int) -> tuple[int, int]:
    """Returns where the TFRecord starts that has a place in it, and where it ends."""
    start = stop = 0
    while stop <= place:
        start = stop
        stop += 16 + int.from_bytes(data[start : start + 8], "little")
    return start, stop


KILLED = """
import os, signal, sys
from fastconv.converters import repair
step, left = sys.argv[3], int(sys.argv[4])
real = getattr(os, step)
def call(*arguments, **more):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **more)
setattr(os, step, call)
repair(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize(
    "name", ["pack.lmdb", "pack.h5", "vlen.h5", "pack.tar", "shards", "pack.rec", "tfrecords"],
    indirect=True,
)  # fmt: skip
@pytest.mark.parametrize("step", ["pwrite", "fsync", "replace", "unlink"])
def test_killed_while_it_mends(
    packed: Path, whole: dict[str, bytes], tree: Path, step: str
) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    damaged = contents(packed)
    killed = 0
    for count in (0, 2, 7):
        command = [sys.executable, "-c", KILLED, str(packed), str(tree), step, str(count)]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env={**os.environ, **paths}, check=False)
        now = contents(packed)
        assert now in (damaged, whole)
        if now == damaged:
            assert done.returncode == -signal.SIGKILL
            killed += 1
        report = repair(packed, tree)
        assert report.status == "done"
        assert contents(packed) == whole
        assert not Path(f"{packed}.partial").exists()
        change(data_file(packed), payload(packed, 3) + 20)
    assert killed


def test_the_object(packed: Path, tree: Path) -> None:
    change(data_file(packed), payload(packed, 3) + 20)
    answer = repair(packed, tree).to_json()
    json.dumps(answer)
    assert answer["status"] == "done"
    assert [entry["path"] for entry in answer["mended"]] == ["ant/003.png"]
