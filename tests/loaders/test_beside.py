"""Packs whose table lies beside their data: which files are theirs, and a table that is lost."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.loaders import open_dataset, open_pack
from fastconv.loaders.beside import missing_shards
from fastconv.loaders.errors import CorruptPackError, NotAPackError, UsageError
from fastconv.loaders.kinds import KINDS, kind_code_of_start
from fastconv.loaders.open import find_format

FORMATS = ("parquet", "recordio", "tfrecord", "webdataset")


def png() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 3)).save(data, "PNG")
    return data.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in ("a/0.png", "a/1.png", "b/2.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png())
    return root


@pytest.fixture(params=FORMATS)
def shards(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    pytest.importorskip({"parquet": "pyarrow", "tfrecord": "crc32c"}.get(request.param, "numpy"))
    out: Path = tmp_path / request.param
    pack(tree, out, format=request.param, sharding=Sharding(samples=2))
    return out


def test_a_folder_of_shards_is_no_folder_of_images(shards: Path) -> None:
    (shards / "logs/old").mkdir(parents=True)
    (shards / "logs/old/run.txt").write_text("done")
    assert find_format(shards).name == shards.name
    (shards / "logs/preview.png").write_bytes(png())
    assert find_format(shards).name == shards.name
    (shards / "logs/preview.png").unlink()
    (shards / "index.safetensors").unlink()
    assert find_format(shards).name == shards.name


@pytest.mark.parametrize("name", ["metadata.parquet", "train.rec", "train.tfrecord"])
@pytest.mark.parametrize("place", ["", "deep/down"])
def test_a_folder_of_images_stays_one(tree: Path, name: str, place: str) -> None:
    if place:
        (tree / "deep").mkdir()
        for folder in ("a", "b"):
            (tree / folder).rename(tree / f"deep/{folder}")
    (tree / name).write_bytes(b"something else")
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    assert find_format(tree).name == "folder"


@pytest.mark.parametrize("place", ["", "deep/down"])
def test_tars_among_images_may_be_either(tree: Path, place: str) -> None:
    if place:
        (tree / "deep").mkdir()
        for folder in ("a", "b"):
            (tree / folder).rename(tree / f"deep/{folder}")
    with tarfile.open(tree / "old.tar", "w") as tar:
        tar.add(tree, "old", filter=lambda info: None if info.name.endswith(".tar") else info)
    words = r"holds tars \(old.tar\) and images: .* format folder or webdataset"
    for opened in (open_pack, open_dataset, find_format):
        with pytest.raises(NotAPackError, match=words):
            opened(tree)
    assert open_pack(tree, "folder").name == "folder"
    assert open_pack(tree, "webdataset").name == open_pack(tree / "old.tar").name == "webdataset"
    (tree / "old.tar").rename(tree / ".old.tar")
    assert find_format(tree).name == "folder"


def test_a_shard_alone_is_told_to_be_one(shards: Path) -> None:
    reader = open_pack(shards / open_pack(shards).meta.shards[0].name)
    words = f"it is a shard of the pack {shards}"
    assert reader.notices[0].startswith(f"{words}: read alone ")
    assert reader.notices[0].endswith(": name that folder")
    with pytest.raises(CorruptPackError, match=f"{words}: name that folder"):
        reader.require_checksums()


def test_a_lost_table_is_damage(shards: Path) -> None:
    open_pack(shards).require_checksums()
    (shards / "index.safetensors").rename(shards / "other.safetensors")
    reader = open_pack(shards)
    assert "its table index.safetensors is not in it: without it " in reader.notices[0]
    with pytest.raises(CorruptPackError, match="is not in it: copy it along"):
        reader.require_checksums()
    (shards / "index.safetensors").write_bytes(b"no table")
    reader = open_pack(shards)
    assert "the sample table is ignored, the " in reader.notices[0]
    with pytest.raises(CorruptPackError, match="its table does not fit it"):
        reader.require_checksums()


def test_a_notice_is_no_damage(tree: Path) -> None:
    (tree / "train").mkdir()
    reader = open_pack(tree)
    assert reader.notices
    with pytest.raises(UsageError, match="has no checksums: a folder of images keeps none"):
        reader.require_checksums()


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        (["a-000.tar", "a-001.tar"], []),
        (["a-000.tar", "a-002.tar", "a-003.tar"], ["1 of 4 shards are missing: a-001.tar"]),
        (["9.rec", "10.rec", "11.rec", "13.rec"], ["1 of 4 shards are missing: 12.rec"]),
        (["n01440764.tar", "n01443537.tar", "n01484850.tar"], []),  # classes of ImageNet
        (["cifar10.tar", "cifar100.tar", "x.tar"], []),
        (["a-00.tar", "a-01.tar", "a-03.tar", "b-05.tar", "b-06.tar", "b-08.tar"],
         ["1 of 4 shards are missing: a-02.tar", "1 of 4 shards are missing: b-07.tar"]),
        (["a-00003-of-00004.parquet"],
         ["3 of 4 shards are missing: a-00000-of-00004.parquet, a-00001-of-00004.parquet, "
          "a-00002-of-00004.parquet"]),
        (["a-0-of-999999999.rec", "9" * 99 + ".tar", "1" + "0" * 98 + ".tar"], []),
        (["a-1.tar", "a-1e.tar", "1-a-2.tar", "1-a-4.tar", "1-a-5.tar"],
         ["1 of 4 shards are missing: 1-a-3.tar"]),
    ],
)  # fmt: skip
def test_shards_that_are_missing_are_named(names: list[str], lines: list[str]) -> None:
    assert missing_shards(names) == lines


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_that_lacks_a_shard_says_so(tree: Path, tmp_path: Path, format: str) -> None:
    pytest.importorskip({"parquet": "pyarrow", "tfrecord": "crc32c"}.get(format, "numpy"))
    out = tmp_path / "out"
    pack(tree, out, format=format, sharding=Sharding(samples=1))
    (out / "index.safetensors").unlink()
    assert not any("are missing" in notice for notice in open_pack(out).notices)
    _, lost, _ = sorted(file for file in out.iterdir() if file.suffix not in (".idx", ".lst"))
    lost.unlink()
    assert f"1 of 3 shards are missing: {lost.name}" in open_pack(out).notices


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "jpg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "webp"),
        (b"\n\n\n\nftypavif", "avif"),
        (b"MM\0*\0\0\0\x08", "tif"),
        (b"text", "bin"),
        (b"", "bin"),
    ],
)
def test_what_the_first_bytes_tell(start: bytes, kind: str) -> None:
    assert KINDS[kind_code_of_start(start)] == kind
    assert KINDS[kind_code_of_start(memoryview(start))] == kind
