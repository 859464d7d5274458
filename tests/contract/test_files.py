"""What happens to the files of a pack that is being opened or read."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from PIL import Image

from fastconv.converters import Sharding
from fastconv.converters import pack as pack_folder
from fastconv.loaders import (
    CenterCrop,
    CorruptPackError,
    FastconvError,
    PackChangedError,
    PackDataset,
    PackError,
    open_dataset,
)
from fastconv.loaders.index import index_path
from fastconv.loaders.open import find_format
from fastconv.loaders.reader import READERS, MappedReader

SEED = 7
DAMAGES = 120
"""Times that a copy of a pack is damaged and read."""


@pytest.fixture
def copy(format: str, pack: Path, tmp_path: Path) -> Path:
    """Returns a copy of the packed tree, to be damaged."""
    if not issubclass(READERS.load(format), MappedReader):
        pytest.skip("nothing of it is mapped")
    out = tmp_path / pack.name
    for file in files_of(pack):
        target = tmp_path / file.relative_to(pack.parent)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    return out


def files_of(pack: Path) -> list[Path]:
    """Returns the files of a pack, a table beside it among them; without those that other tools
    read alone."""
    beside = [path for path in pack.parent.iterdir() if path.name.startswith(pack.name)]
    files = [file for path in beside for file in [path, *path.rglob("*")] if file.is_file()]
    return [file for file in files if file.suffix not in (".idx", ".lst")]


# What touches the maps.
GETS: list[Callable[[PackDataset], Any]] = [
    lambda dataset: dataset[10],
    lambda dataset: dataset.__getitems__([10, 0]),
    lambda dataset: dataset.read(10),
    lambda dataset: dataset.read_many([10]),
    lambda dataset: dataset.hint([10]),
]
TABLE_GETS: list[Callable[[PackDataset], Any]] = [
    lambda dataset: dataset.targets,
    lambda dataset: dataset.table,
    lambda dataset: dataset.samples[0],
    lambda dataset: [*dataset.samples],
]


@pytest.mark.parametrize("left", [0, 5000])
@pytest.mark.parametrize("read_before", [False, True])
def test_files_that_are_cut_short(copy: Path, left: int, read_before: bool) -> None:
    index = Path(index_path(str(copy)))
    for file in files_of(copy):
        whole = file.read_bytes()
        opened = [open_dataset(copy, decode=None) for _ in [*GETS, *TABLE_GETS]]
        listed = opened[-1].samples
        if read_before:
            for dataset in opened:
                dataset[10]
        os.truncate(file, min(left, len(whole) // 2))
        holds_table = file == index or not index.exists()
        for get, dataset in zip([*GETS, *TABLE_GETS], opened, strict=True):
            if get in GETS or holds_table:
                # Touching the missing part would kill the process.
                with pytest.raises(CorruptPackError, match="truncated since it was opened"):
                    get(dataset)
        if holds_table:
            with pytest.raises(CorruptPackError, match="truncated since it was opened"):
                next(iter(listed))
        file.write_bytes(whole)


def test_a_table_that_is_cut_short_before_a_shard_is_read(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack_folder(tree, out, format="webdataset", sharding=Sharding(samples=3))
    for get in (*GETS, *TABLE_GETS):
        dataset = open_dataset(out, decode=None)
        whole = (out / "index.safetensors").read_bytes()
        os.truncate(out / "index.safetensors", 0)
        with pytest.raises(CorruptPackError, match=r"index\.safetensors: truncated since it was"):
            get(dataset)
        (out / "index.safetensors").write_bytes(whole)


def test_a_copy_of_what_was_cut_off_is_an_error(copy: Path) -> None:
    index = Path(index_path(str(copy)))
    if not index.exists():
        pytest.skip("its table is cut off with it")
    shards = [file for file in files_of(copy) if file != index]
    reader = find_format(str(copy)).open(str(copy))
    assert reader.load(0) == reader.read(0)
    for file in shards:
        os.truncate(file, 0)
    with pytest.raises(CorruptPackError, match="truncated since it was opened"):
        reader.load(0)  # without any check before, which a signal would answer


CUT = """
import os, sys
from fastconv.loaders import CorruptPackError, open_dataset
path, verify, *files = sys.argv[1:]
count = 0
def cut(image):
    global count
    count += 1
    if count == 3:
        for file in files:
            os.truncate(file, os.path.getsize(file) // 8)
    return image
dataset = open_dataset(path, transform=cut, verify=verify == "True")
try:
    dataset.__getitems__(range(len(dataset)))
except CorruptPackError as error:
    print(error)
"""


@pytest.mark.parametrize("verify", [False, True])
def test_files_that_are_cut_short_in_the_middle_of_a_batch(copy: Path, verify: bool) -> None:
    """In a process of its own, which touching the missing part would kill."""
    done = subprocess.run(
        [sys.executable, "-c", CUT, copy, str(verify), *files_of(copy)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "truncated since it was opened" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_batches_leave_no_bytes_of_the_pack_in_the_process(format: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(32):
        file = tree / "class" / f"{number}.bmp"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 300), (number, 0, 0)).save(file)
    packed = tree
    if format != "folder":
        packed = tmp_path / "pack"
        pack_folder(tree, packed, format=format)
    dataset = open_dataset(packed, decode=CenterCrop(224))
    for start in range(0, 32, 8):
        dataset.__getitems__([*range(start, start + 8)])
    assert resident(packed) < 3 << 20, "of 8.6 MB that were read"
    assert len(dataset.read(0)) > 270_000


def resident(packed: Path) -> int:
    """Returns how many bytes of maps of a pack's files are in this process."""
    size, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, *rest = line.split()
        if not word.endswith(":"):
            ours = str(packed) in line
        elif word == "Rss:" and ours:
            size += int(rest[0]) << 10
    return size


@pytest.mark.parametrize("sharding", [{}, {"sharding": 3}])
def test_a_pack_that_is_overwritten_before_it_is_read(
    format: str, tree: Path, damaged_tree: Path, tmp_path: Path, sharding: dict[str, int]
) -> None:
    if format == "folder" or (sharding and format != "webdataset"):
        pytest.skip("not a pack, or has no shards")
    options: dict[str, Any] = {"sharding": Sharding(samples=3)} if sharding else {}
    out = tmp_path / "out"
    pack_folder(tree, out, format=format, **options)
    before = [*open_dataset(out, decode=None)]
    dataset = open_dataset(out, decode=None)
    pack_folder(damaged_tree, out, format=format, overwrite=True, **options)
    for row, sample in enumerate(before):
        try:
            assert dataset[row] == sample
        except PackChangedError:  # shards are mapped when they are first read
            assert row >= dataset.table.shard_row[1]
    with pytest.raises(PackChangedError):
        pickle.loads(pickle.dumps(dataset))[0]


def test_a_pack_of_another_format_in_its_place(
    format: str, pack_of: Callable[[str], Path], tmp_path: Path
) -> None:
    other = "lmdb" if format != "lmdb" else "hdf5"
    path = tmp_path / "pack"
    path.symlink_to(pack_of(format))
    beside = pack_of(format).with_name("pack.index.safetensors")
    if beside.exists():
        (tmp_path / beside.name).symlink_to(beside)
    text = pickle.dumps(open_dataset(path))
    path.unlink()
    path.symlink_to(pack_of(other))
    with pytest.raises(PackChangedError, match="was replaced since this dataset was made"):
        pickle.loads(text)[0]


def test_a_pack_that_may_not_be_read(
    pack: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    for name in ("open", "scandir", "listdir"):  # the owner and root may, whatever the mode is
        monkeypatch.setattr(os, name, refuse)
    for open_it in (find_format, open_dataset):
        with pytest.raises(PackError, match=r"cannot be read: Permission denied$") as caught:
            open_it(pack)
        assert str(caught.value).startswith(str(pack))


# ---------------------------------------------------------------------------------------- damage


def damageable(file: Path) -> list[range]:
    """Returns the bytes worth damaging: all, but for what HDF5's own library reads and writes."""
    if not h5py.is_hdf5(file):
        return [range(file.stat().st_size)]
    places: list[range] = []

    def add(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.nbytes:
            start = item.id.get_offset()
            places.append(range(start, start + item.nbytes))

    with h5py.File(file) as opened:
        opened.visititems(add)
    return places


def damage(data: bytearray, places: list[range], dice: random.Random) -> None:
    """Changes a few bytes: anywhere, or in a JSON text."""
    text = data.find(b'{"fastconv"')
    place = dice.choice(dice.choice(places))
    if text >= 0 and dice.random() < 0.4:
        place = text + dice.randrange(900)
    new = dice.choice(
        [
            bytes([data[place % len(data)] ^ 1 << dice.randrange(8)]),
            dice.choice(
                [b"[", b"]", b"{", b'"', b",", b":", b"-", b"0", b"9", b"n", b"\xff", b"\0"]
            ),
            dice.choice([b"null", b'"x"', b"[1]", b"true", b"1e9", b"-1", b"\\u00"]),
            bytes(8),
            b"\xff" * 8,
            (1 << 63).to_bytes(8, "little"),
            dice.randbytes(8),
        ]
    )
    data[place : place + len(new)] = new[: max(len(data) - place, 0)]


def one_line(error: FastconvError) -> None:
    """Asserts that an error is told as every one is."""
    assert str(error).isprintable()


def look_at_everything(dataset: PackDataset) -> None:
    """Asserts that everything is of the right type, or an error of ours."""
    count = len(dataset)
    assert all(isinstance(name, str) for name in dataset.classes)
    assert dataset.class_to_idx.keys() == set(dataset.classes)
    assert dataset.targets.shape == (count,)
    assert len([*dataset.samples]) == count
    for row in range(count):
        path, label = dataset.samples[row]
        assert isinstance(path, str)
        assert isinstance(label, int)
        assert all(isinstance(name, str) for name in dataset.table.names(row))
        try:
            image, label = dataset[row]
            assert isinstance(image, bytes)
            assert isinstance(label, int)
        except FastconvError as error:
            one_line(error)
    for many in (dataset.__getitems__, dataset.read_many):
        try:
            assert len(many(range(count))) == count
        except FastconvError as error:
            one_line(error)


def test_damaged_packs(copy: Path, format: str) -> None:
    dice = random.Random(f"{SEED} {format}")
    files = [(file, file.read_bytes(), damageable(file)) for file in files_of(copy)]
    for _ in range(DAMAGES):
        file, whole, places = dice.choice(files)
        data = bytearray(whole)
        damage(data, places, dice)
        file.write_bytes(data)
        try:
            look_at_everything(open_dataset(copy, decode=None))
        except FastconvError as error:
            one_line(error)
        file.write_bytes(whole)
