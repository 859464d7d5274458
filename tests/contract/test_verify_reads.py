"""`verify=True`: no other bytes than those that were packed, in any way of reading."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from torch.utils.data import DataLoader, Subset

from fastconv.converters import Sharding
from fastconv.converters import pack as pack_folder
from fastconv.loaders import (
    CenterCrop,
    CorruptPackError,
    FastLoader,
    PackDataset,
    SampleError,
    UsageError,
    make_loader,
    open_dataset,
    open_pack,
)
from fastconv.loaders.arrays import dump_arrays, load_arrays
from fastconv.loaders.files import MappedFile
from fastconv.loaders.reader import READERS, MappedReader

CROP = CenterCrop(8)
IMAGE, CAPTION = 3, 6
"""The samples whose image and whose caption are damaged."""

GETS: list[Callable[[PackDataset], Any]] = [
    lambda dataset: dataset[IMAGE],
    lambda dataset: dataset.__getitems__([0, IMAGE]),
    lambda dataset: dataset.read(IMAGE),
    lambda dataset: dataset.read_many([0, IMAGE]),
    lambda dataset: [*dataset],
    lambda dataset: Subset(dataset, [0, IMAGE])[1],
    lambda dataset: pickle.loads(pickle.dumps(dataset))[IMAGE],
]


def copy_of(pack: Path, folder: Path) -> Path:
    """Returns a copy of a pack, with the table beside it."""
    for file in pack.parent.iterdir():
        if file.name.startswith(pack.name):
            (shutil.copytree if file.is_dir() else shutil.copyfile)(file, folder / file.name)
    return folder / pack.name


def flip(pack: Path, row: int, slot: int, byte: int = -1) -> str:
    """Damages a bit of a field's bytes; returns what an error has to say of the sample."""
    reader = open_pack(pack)
    assert isinstance(reader, MappedReader)
    table = reader.table
    shard = int(np.searchsorted(table.shard_row, row, side="right")) - 1
    start = table.base[slot] + int(table.offset[slot][row])
    place = start + byte % int(table.size[slot][row])
    with open(reader.files[shard], "r+b") as file:
        file.seek(place)
        old = file.read(1)[0]
        file.seek(place)
        file.write(bytes([old ^ 4]))
    return (
        f"{pack}: sample {row}, key {row:02d}, path {table.path(row)}: its bytes are damaged, the "
        f"checksum differs: fastconv repair can mend it ({table.fields[slot]} in "
        f"{os.path.basename(reader.files[shard])} at byte {start})"
    )


@pytest.fixture
def whole(format: str, pack: Path) -> Path:
    """Returns the packed tree."""
    if not issubclass(READERS.load(format), MappedReader):
        pytest.skip("has no checksums")
    return pack


@pytest.fixture
def bad(whole: Path, fields: tuple[str, ...], tmp_path: Path) -> tuple[Path, str, str]:
    """Returns a pack with a damaged image and a damaged caption, and the errors of both; "" where
    the format holds images alone."""
    copy = copy_of(whole, tmp_path)
    return copy, flip(copy, IMAGE, 0), flip(copy, CAPTION, 1) if len(fields) > 1 else ""


def message(get: Callable[..., Any], *arguments: Any) -> str:
    """Returns what the error says that this raises."""
    with pytest.raises(SampleError) as caught:
        get(*arguments)
    assert caught.value.reason == "corrupt"
    return str(caught.value)


def test_a_whole_pack_is_as_without(whole: Path, fields: tuple[str, ...]) -> None:
    one = open_dataset(whole, decode=None, fields=fields)
    other = open_dataset(whole, decode=None, fields=fields, verify=True)
    rows = [*range(len(one))]
    assert [*one] == [*other] == one.__getitems__(rows) == other.__getitems__(rows)
    for name in fields:
        assert one.read_many(rows, name) == other.read_many(rows, name)
        assert [one.read(row, name) for row in rows] == [other.read(row, name) for row in rows]
    view = other.read(0)
    assert view.readonly
    with pytest.raises(UsageError, match="has no field 'json'"):
        other.read(0, "json")
    assert repr(other) == repr(one) + "\n    Verify: every field by its checksum"


def test_damaged_bytes_are_an_error_however_they_are_read(bad: tuple[Path, str, str]) -> None:
    pack, image, caption = bad
    for decode in ("pil", "tensor", "numpy", None, CROP):
        dataset = open_dataset(pack, decode=decode, verify=True)
        for get in GETS:
            assert message(get, dataset) == image
        assert dataset.read(CAPTION)
        assert dataset[CAPTION]
        if not caption:
            continue
        assert message(dataset.read, CAPTION, "txt") == caption
        assert message(dataset.read_many, [CAPTION], "txt") == caption
        both = open_dataset(pack, decode=decode, fields=("image", "txt"), verify=True)
        assert message(both.__getitem__, CAPTION) == caption
        assert message(both.__getitem__, IMAGE) == image
    dataset = open_dataset(pack, decode=CROP, verify=True)
    assert message(dataset.decode_batch, [0, IMAGE]) == image


def test_every_byte_counts(whole: Path, fields: tuple[str, ...], tmp_path: Path) -> None:
    pack = copy_of(whole, tmp_path)
    table = open_pack(pack).table
    for slot, row in ((0, 0), (0, 10), (len(fields) - 1, 4)):
        for byte in (0, 1, int(table.size[slot][row]) // 2, -1):
            expected = flip(pack, row, slot, byte)
            dataset = open_dataset(pack, verify=True)
            assert message(dataset.read, row, table.fields[slot]) == expected
            flip(pack, row, slot, byte)  # back again
            assert dataset.read(row, table.fields[slot]) is not None


def test_without_it_nothing_is_compared(bad: tuple[Path, str, str], whole: Path) -> None:
    dataset, right = open_dataset(bad[0]), open_dataset(whole)
    assert dataset.read(IMAGE) != right.read(IMAGE)
    assert dataset.read(IMAGE)[:-1] == right.read(IMAGE)[:-1]


def test_damaged_samples_are_skipped_and_counted(
    bad: tuple[Path, str, str], fields: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    pack, image, caption = bad
    dataset = open_dataset(pack, decode=None, fields=fields, verify=True, on_error="skip")
    left_out = [row for row, sample in enumerate(dataset) if sample is None]
    messages = [f"skipped {words}" for words in (image, caption) if words]
    assert left_out == [IMAGE, CAPTION][: len(messages)]
    assert len(dataset.__getitems__(range(11))) == 11 - len(messages)
    assert dataset.skipped == 2 * len(messages)
    assert caplog.messages == messages * 2
    crop = open_dataset(pack, decode=CROP, verify=True, on_error="skip")
    skipped: list[str] = []
    _, _, kept = crop.decode_batch(range(11), skipped=skipped)
    assert np.flatnonzero(~kept).tolist() == [IMAGE]
    assert skipped == [image]


def test_loaders_compare(bad: tuple[Path, str, str]) -> None:
    pack, image, _ = bad
    dataset = open_dataset(pack, decode=CROP, verify=True)
    threads = FastLoader(Subset(dataset, [0, IMAGE]), 2, num_workers=1)
    assert message(list, threads) == image
    for kind in ("threads", "processes"):
        skipping = open_dataset(pack, decode=CROP, verify=True, on_error="skip")
        workers: dict[str, Any] = {"num_workers": 1}
        if kind == "processes":
            workers |= {"multiprocessing_context": "fork", "persistent_workers": False}
        loader = make_loader(skipping, 4, kind=kind, **workers)
        assert sum(len(labels) for _, labels in loader) == 10
        if isinstance(loader, FastLoader):
            assert loader.skipped == [image]
    processes = DataLoader(
        dataset, 4, num_workers=1, multiprocessing_context="fork", collate_fn=list, timeout=90
    )
    batches = iter(processes)
    with pytest.raises(SampleError) as caught:
        next(batches)
    assert image in str(caught.value)
    assert [len(batch) for batch in batches] == [4, 3]


def test_a_field_that_has_gone_is_damage_too(tree: Path, tmp_path: Path) -> None:
    """A table that says of a field that it is not there, and has a checksum of it."""
    out = tmp_path / "out.lmdb"
    pack_folder(tree, out, sidecars=("txt",))
    size = open_pack(out).table.size[1]
    block = (out / "data.mdb").read_bytes()
    place = block.index(size.tobytes()) + 8 * CAPTION
    (out / "data.mdb").write_bytes(block[:place] + b"\xff" * 8 + block[place + 8 :])
    assert open_dataset(out).read(CAPTION, "txt") is None
    with pytest.raises(CorruptPackError, match="its sample table is damaged"):
        open_dataset(out, verify=True)
    reader = open_pack(out)
    assert message(reader.verified, CAPTION, 1).startswith(f"{out}: sample {CAPTION}, ")
    assert reader.verified(1, 1) is None  # it never had one


# ------------------------------------------------------------------------------- without checksums


def refusal(path: Path, **options: Any) -> str:
    """Returns why a pack cannot be opened so that it is compared."""
    assert len(open_dataset(path, **options))
    with pytest.raises((UsageError, CorruptPackError)) as caught:
        open_dataset(path, verify=True, **options)
    text = str(caught.value)
    assert text.isprintable()
    assert text.startswith(f"{path}: has no checksums: ")
    assert text.endswith(", or leave out verify=True")
    return text.removeprefix(f"{path}: has no checksums: ").removesuffix(
        ", or leave out verify=True"
    )


def test_a_folder_of_images_has_none(tree: Path) -> None:
    assert refusal(tree) == "a folder of images keeps none: pack it"
    assert refusal(tree, format="folder") == "a folder of images keeps none: pack it"


def test_a_tar_without_its_table_has_none(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    pack_folder(tree, out)
    index = Path(f"{out}.index.safetensors")
    block = index.read_bytes()
    index.write_bytes(block[:-100])
    text = f"its table does not fit it ({index}: cut short: "
    assert refusal(out).startswith(text)
    assert refusal(out).endswith("): copy the pack again")
    index.unlink()
    assert refusal(out) == f"its table {index.name} is not beside it: copy it along"
    shards = tmp_path / "shards"
    pack_folder(tree, shards, format="webdataset", sharding=Sharding(samples=3))
    (shards / "index.safetensors").unlink()
    assert refusal(shards) == "its table index.safetensors is not in it: copy it along"


def test_packs_of_others_have_none(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "others.tar"
    with tarfile.open(out, "w") as tar:
        for name in ("10.png", "9.jpg"):
            tar.add(tree / "cat" / name, name)
    assert refusal(out) == "it was not made by fastconv: unpack it and pack it again"


def test_a_database_that_was_written_to_has_none(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    pack_folder(tree, out)
    with lmdb.open(str(out), map_size=1 << 26) as env, env.begin(write=True) as transaction:
        transaction.put(b"more", b"bytes")
    assert refusal(out) == "it was written to since it was packed: pack it again"


def test_a_table_without_checksums(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    pack_folder(tree, out)
    index = Path(f"{out}.index.safetensors")
    arrays, metadata = load_arrays(index.read_bytes())
    del arrays["checksum/image"]
    index.write_bytes(b"".join(dump_arrays(arrays, metadata)))
    with pytest.raises(CorruptPackError, match="its sample table is damaged"):
        open_dataset(out, verify=True)


def test_it_is_a_yes_or_a_no(pack: Path) -> None:
    with pytest.raises(UsageError, match="verify is 'all': it can be True, False"):
        open_dataset(pack, verify="all")  # type: ignore[arg-type]


# ------------------------------------------------------------------------ damage tells where it is


def place_of(pack: Path, row: int) -> str:
    reader = open_pack(pack)
    return reader.place(row) and f" ({reader.place(row)})"


def test_an_image_that_cannot_be_decoded_tells_its_place(damaged_pack: Path, format: str) -> None:
    with pytest.raises(SampleError) as caught:
        open_dataset(damaged_pack)[1]
    text = str(caught.value)
    assert text.startswith(f"{damaged_pack}: sample 1, key 1, path cat/broken.jpg: ")
    assert text.endswith(place_of(damaged_pack, 1))
    assert (" at byte " in text) == (format != "folder")


def test_a_disk_that_fails_tells_its_place(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(whole, on_error="skip")
    strict = open_dataset(whole)

    def fail(*_: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(MappedFile, "read", fail)
    with pytest.raises(SampleError) as caught:
        strict[2]
    assert str(caught.value) == (
        f"{whole}: sample 2, key 02, path cat/Z.JPEG: cannot be read: Input/output error"
        f"{place_of(whole, 2)}"
    )
    assert caught.value.reason == "unreadable"
    assert dataset[2] is None


def test_a_file_that_was_short_for_a_moment(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(whole, decode=None)
    monkeypatch.setattr(MappedFile, "read", lambda *_: b"\x89PNG")
    with pytest.raises(SampleError, match=r"path cat/10\.png: the file ended early: .* at byte "):
        dataset[0]


def test_a_place_outside_the_file_is_skipped(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    pack_folder(tree, out)
    offset = open_pack(out).table.offset[0]
    block = (out / "data.mdb").read_bytes()
    place = block.index(offset.tobytes()) + 8 * 2
    (out / "data.mdb").write_bytes(block[: place + 5] + b"\x01" + block[place + 6 :])
    dataset: PackDataset = open_dataset(out, on_error="skip")
    assert [row for row, sample in enumerate(dataset) if sample is None] == [2]
    assert dataset.skipped == 1
    for options in ({}, {"verify": True}):
        with pytest.raises(SampleError, match=r"cat/Z\.JPEG: its place is outside the file") as e:
            open_dataset(out, **options)[2]  # type: ignore[arg-type]
        assert e.value.reason == "bad_record"
        assert "(image in data.mdb at byte " in str(e.value)
