"""Converting gives the very pack that the folder would have given."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions, needs_captions

from fastconv.converters import PackFailedError, Sharding, convert, pack
from fastconv.converters.writer import WRITERS
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import PackNotFoundError, UsageError
from fastconv.loaders.open import open_pack

FORMATS = WRITERS.names()


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9 + number, 9), (number, 2 * number, 7)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder with sidecars, one of them empty, one missing, and an empty class."""
    for number in range(12):
        file = tmp_path / f"tree/class {number % 3}/deep/{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(number))
        if number % 4:
            file.with_suffix(".txt").write_text("caption\n" * (number - 1))
    (tmp_path / "tree/none").mkdir()
    return tmp_path / "tree"


def content(out: Path) -> dict[str, bytes]:
    """Returns the bytes of a pack's files, by what their paths have behind OUT."""
    found = [path for path in out.parent.iterdir() if path.name.startswith(out.name)]
    files = [file for path in found for file in [path, *path.rglob("*")] if file.is_file()]
    return {str(file)[len(str(out)) :]: file.read_bytes() for file in files}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_every_format_into_every_other(
    tree: Path, tmp_path: Path, source: str, target: str
) -> None:
    """Captions stay where both formats hold them."""
    sharding = Sharding(samples=5) if WRITERS.load(source).sharded else None
    held = captions(format=source)
    pack(tree, tmp_path / "in", format=source, sidecars=held, sharding=sharding)
    kept = held if captions(format=target) else ()
    for name in ("a", "expected"):
        (tmp_path / name).mkdir()
    expected = pack(tree, tmp_path / "expected/out", format=target, sidecars=kept)
    report = convert(tmp_path / "in", tmp_path / "a/out", format=target)
    assert content(tmp_path / "a/out") == content(tmp_path / "expected/out")
    assert (report.status, report.samples, report.fields) == ("done", 12, ("image", *kept))
    assert (report.id, report.bytes, report.size) == (expected.id, expected.bytes, expected.size)
    left_out = f"{WRITERS.load(target).title} holds images and labels alone: left out are the "
    assert report.warnings == [] if kept == held else [f"{left_out}sidecars txt"]


@pytest.mark.parametrize("workers", [None, 2])
def test_labels_of_a_file_and_its_columns_stay(
    tree: Path, tmp_path: Path, workers: int | None
) -> None:
    lines = ["file_name,label,note"]
    lines += [f"class {n % 3}/deep/{n:02}.png,{['x', 'y'][n % 2]},n{n}" for n in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    pack(tree, tmp_path / "in.h5", labels=tmp_path / "labels.csv")
    pack(tree, tmp_path / "expected.lmdb", labels=tmp_path / "labels.csv")
    convert(tmp_path / "in.h5", tmp_path / "out.lmdb", workers=workers)
    assert content(tmp_path / "out.lmdb") == content(tmp_path / "expected.lmdb")


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("source", FORMATS)
def test_what_is_damaged_is_left_out_and_listed(
    tree: Path, tmp_path: Path, source: str, slot: int
) -> None:
    if slot == 1:
        needs_captions(format=source)
    held = captions(format=source)
    pack(tree, tmp_path / "in", format=source, sidecars=held)
    reader: Any = open_pack(tmp_path / "in")
    row = reader.table.paths(0, 12).index("class 1/deep/07.png")
    place = reader.table.base[slot] + int(reader.table.offset[slot][row])
    with open(reader.files[0], "r+b") as file:
        file.seek(place + 3)
        file.write(b"?")
    with pytest.raises(PackFailedError, match="1 bad file, and --strict"):
        convert(tmp_path / "in", tmp_path / "out.h5", strict=True)
    report = convert(tmp_path / "in", tmp_path / "out.h5", restart=True)
    name = "class 1/deep/07.png" if slot == 0 else "class 1/deep/07.txt"
    assert [(bad.path, bad.reason) for bad in report.bad] == [(name, "corrupt")]
    (tree / name).unlink()
    if slot == 0:
        (tree / name).with_suffix(".txt").unlink()
    pack(tree, tmp_path / "expected.h5", sidecars=held)
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "expected.h5").read_bytes()


def test_a_tar_of_others(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        for number in range(3):
            for name, data in ((f"k{number}.png", png(number)), (f"k{number}.cls", b"%d" % number)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    report = convert(tmp_path / "in.tar", tmp_path / "out.lmdb")
    assert (report.samples, report.bad) == (3, [])
    dataset = open_dataset(tmp_path / "out.lmdb", decode=None, verify=True)
    assert [*dataset] == [(png(number), number) for number in range(3)]
    assert [path for path, _ in dataset.samples] == ["k0.png", "k1.png", "k2.png"]


def test_a_folder_is_packed(tree: Path, tmp_path: Path) -> None:
    convert(tree, tmp_path / "out.h5")
    pack(tree, tmp_path / "expected.h5")
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "expected.h5").read_bytes()


def test_what_cannot_be_is_told(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "in", format="webdataset")
    before = content(tmp_path / "in")
    for source, out, words in (
        ("in", "in", "is a pack that is read: name another"),
        ("in", "tree", "exists already"),
        ("in", "in/out.h5", "lies inside"),
        ("in", "out.xyz", "its ending tells no format"),
    ):
        with pytest.raises(UsageError, match=words):
            convert(tmp_path / source, tmp_path / out, format=None if "." in out else "webdataset")
    with pytest.raises(PackNotFoundError):
        convert(tmp_path / "nothing", tmp_path / "out.h5")
    assert content(tmp_path / "in") == before
    assert sorted(os.listdir(tmp_path)) == ["in", "tree"]


def test_a_pack_that_is_replaced_meanwhile_is_not_mixed_in(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tree, tmp_path / "in.h5")
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    (other / "class 0/deep/00.png").write_bytes(png(50))
    from fastconv.converters.run import Run

    lay_out = Run.lay_out

    def replaced(*args: Any) -> Any:
        monkeypatch.setattr(Run, "lay_out", lay_out)
        pack(other, tmp_path / "new.h5")
        os.replace(tmp_path / "new.h5", tmp_path / "in.h5")
        return lay_out(*args)

    monkeypatch.setattr(Run, "lay_out", replaced)
    with pytest.raises(Exception, match="was changed or replaced while it was read"):
        convert(tmp_path / "in.h5", tmp_path / "out.lmdb")
    assert not (tmp_path / "out.lmdb").exists()
