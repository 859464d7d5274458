"""The raw folder as a Reader: its order, its labels, its files' bytes, and what goes wrong."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest

from fastconv.loaders.errors import NotAPackError, SampleError, UsageError
from fastconv.loaders.formats.folder import FolderReader
from fastconv.loaders.open import find_format, open_pack
from fastconv.loaders.reader import Wanted

PNG = b"\x89PNG\r\n\x1a\n"

# Torchvision's order: class, then folder path, then file name, all by code point.
ORDER = [
    ("cat/Z.JPG", 0),
    ("cat/a.png", 0),
    ("cat/é.png", 0),
    ("cat/in/1.png", 0),
    ("cat/in-between/1.png", 0),
    ("cat/in/deep/1.png", 0),
    ("dog/10.png", 1),
    ("dog/9.png", 1),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, _ in ORDER:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PNG + name.encode())
    for name, text in {
        "cat/a.txt": "a",
        "cat/é.TXT": "",
        "dog/notes.md": "-",
        "cat/.x.png": "-",
    }.items():
        (root / name).write_text(text)
    return root


def stored(reader: FolderReader, row: int, slot: int = 0) -> bytes | None:
    view = reader.read(row, slot)
    return None if view is None else bytes(view)


def test_lists_the_files_in_order(tree: Path) -> None:
    reader = FolderReader.open(str(tree))
    paths = reader.table.paths(0, len(reader))
    assert list(zip(paths, reader.table.label.tolist(), strict=True)) == ORDER
    assert reader.meta.classes == ("cat", "dog")
    assert reader.meta.labels == "class"
    assert reader.meta.samples == len(ORDER)
    assert reader.table.checksum == ()


def test_reads_the_files(tree: Path) -> None:
    reader = FolderReader.open(str(tree))
    for row, (name, _) in enumerate(ORDER):
        assert stored(reader, row) == (tree / name).read_bytes()
    view = reader.read(0)
    assert view is not None
    assert view.readonly


def test_reads_a_batch(tree: Path) -> None:
    reader = FolderReader.open_with(str(tree), Wanted(("image", "txt")))
    first, second = reader.read_many([2, 0], (0, 1))
    assert [None if view is None else bytes(view) for view in first] == [
        PNG + "cat/é.png".encode(),
        b"",
    ]
    assert [None if view is None else bytes(view) for view in second] == [PNG + b"cat/Z.JPG", None]


def test_sidecars_are_fields_when_asked_for(tree: Path) -> None:
    assert FolderReader.open(str(tree)).table.fields == ("image",)
    reader = FolderReader.open_with(str(tree), Wanted(("txt", "image")))
    assert reader.table.fields == ("image", "txt")
    assert [stored(reader, row, 1) for row in range(3)] == [None, b"a", b""]


def test_a_sidecar_that_no_image_has_is_no_field(tree: Path) -> None:
    with pytest.raises(
        UsageError, match=r"tree: has no field 'json': no image has a file of that ending"
    ):
        FolderReader.open_with(str(tree), Wanted(("image", "json")))


def test_without_classes_there_are_no_labels(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(PNG)
    (tmp_path / "a.png").write_bytes(PNG)
    reader = FolderReader.open(str(tmp_path))
    assert reader.table.paths(0, 2) == ["a.png", "b.png"]
    assert reader.table.label.tolist() == [-1, -1]
    assert reader.meta.classes == ()
    assert any("no class folders" in notice for notice in reader.notices)


def test_files_that_cannot_be_samples_are_named(tree: Path) -> None:
    (tree / "dog/0.png").write_bytes(b"")
    reader = FolderReader.open(str(tree))
    assert [(bad.path, bad.reason) for bad in reader.bad] == [("dog/0.png", "empty")]
    assert len(reader) == len(ORDER)


def test_the_id_is_that_of_the_list(tree: Path) -> None:
    first = FolderReader.open(str(tree)).meta.id
    assert len(bytes.fromhex(first)) == 16
    (tree / "cat/a.png").write_bytes(PNG + b"other contents")
    assert FolderReader.open(str(tree)).meta.id == first
    (tree / "cat/a.png").rename(tree / "cat/b.png")
    assert FolderReader.open(str(tree)).meta.id != first


def test_a_file_that_went_away(tree: Path) -> None:
    reader = FolderReader.open_with(str(tree), Wanted(("txt",)))
    (tree / "cat/a.png").unlink()
    (tree / "cat/a.txt").unlink()
    with pytest.raises(SampleError) as caught:
        reader.read(1)
    assert caught.value.reason == "vanished"
    assert str(caught.value) == (
        f"{tree}: sample 1, key 1, path cat/a.png: went away since the folder was listed"
    )
    with pytest.raises(SampleError, match=r"path cat/a\.png: cat/a\.txt: went away"):
        reader.read(1, 1)


def test_a_link_whose_target_went_away(tree: Path) -> None:
    reader = FolderReader.open(str(tree))
    (tree / "cat/a.png").unlink()
    (tree / "cat/a.png").symlink_to("nowhere.png")
    with pytest.raises(SampleError) as caught:
        reader.read(1)
    assert caught.value.reason == "dangling_symlink"


def test_a_file_that_became_a_folder(tree: Path) -> None:
    reader = FolderReader.open(str(tree))
    (tree / "cat/a.png").unlink()
    (tree / "cat/a.png").mkdir()
    with pytest.raises(SampleError) as caught:
        reader.read(1)
    assert caught.value.reason == "not_a_regular_file"


def test_a_file_that_may_not_be_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = FolderReader.open(str(tree))

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        builtins, "open", refuse
    )  # the owner and root may read whatever the mode is
    with pytest.raises(SampleError, match="cannot be read: Permission denied") as caught:
        reader.read(1)
    assert caught.value.reason == "unreadable"


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"c", b"caf\xe9.png")
    (tmp_path / "c").mkdir()
    try:
        with open(name, "wb") as file:
            file.write(PNG)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    reader = FolderReader.open(str(tmp_path))
    assert stored(reader, 0) == PNG
    assert r"path c/caf\xe9.png" in reader.where(0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a/1.png", "b/2.png"], True),
        (["1.jpg"], True),
        (["readme.md"], False),
        ([], False),
        ([".git/config"], False),
        (["data.mdb", "lock.mdb"], False),
        (["data.mdb", "a/1.png"], False),
        (["train-000000.tar", "index.safetensors"], False),
        (["train-000000.tar", "logo.png"], False),
    ],
)
def test_recognises(tmp_path: Path, names: list[str], expected: bool) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    assert FolderReader.recognises(str(tmp_path)) is expected
    assert FolderReader.recognises(str(tmp_path / "nothing")) is False


def test_a_folder_is_found_by_its_contents(tree: Path) -> None:
    assert find_format(tree) is FolderReader
    assert isinstance(open_pack(tree), FolderReader)
    assert isinstance(open_pack(tree, "folder"), FolderReader)


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(NotAPackError, match="holds no images"):
        FolderReader.open(str(tmp_path))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)
    with pytest.raises(NotAPackError, match=r"x\.png: not a folder of images"):
        FolderReader.open(str(tmp_path / "x.png"))
