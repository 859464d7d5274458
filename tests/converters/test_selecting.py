"""A selection gives the very pack of a folder that holds only what was selected."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support import captions
from xxhash import xxh3_64_intdigest

from fastconv.converters import PackFailedError, Sample, Selection, Sharding, convert, pack
from fastconv.converters.writer import WRITERS
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import UsageError
from fastconv.loaders.open import open_pack
from fastconv.loaders.table import SampleTable

FORMATS = WRITERS.names()
SMALL = ("a/02.png", "b/05.png", "c/deep/11.png")
"""Images with a side of 20 pixels; all others have more."""
COPIES = {"b/zz.png": "b/04.png", "c/aa.png": "a/01.png"}
"""Copies, the second with another label."""
MAGIC = b"\x0a\x23\xd7\xce"
"""What RecordIO escapes."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns a folder of three classes, with captions of some, one called otherwise, and an empty
    class."""
    root = tmp_path / "tree"
    for number in range(12):
        name = f"{'aabbbbcccccc'[number]}/{'deep/' if number > 8 else ''}{number:02}.png"
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        size = (20, 90) if name in SMALL else (30 + number, 40)
        Image.new("RGB", size, (number, 9 * number, 7)).save(file)
        if number % 5 == 1:
            data = file.read_bytes()
            file.write_bytes(data + bytes(-len(data) % 4) + MAGIC)
        if number % 3:
            file.with_suffix(".TXT" if number == 4 else ".txt").write_text("word " * number)
    Image.new("RGB", (20, 90), (1, 2, 3)).save(root / "a/02.png")
    for copy, original in COPIES.items():
        shutil.copy(root / original, root / copy)
    (root / "none").mkdir()
    return root


def only(tree: Path, keep: Any) -> Path:
    """Returns a copy of a tree with only some images, and what belongs to them."""
    copy = tree.parent / "selected"
    for file in sorted(tree.rglob("*.png")):
        name = str(file.relative_to(tree))
        if not keep(name):
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        for beside in file.parent.glob(f"{file.stem}.*"):
            shutil.copy2(beside, (copy / name).parent)
    return copy


def content(out: Path) -> dict[str, bytes]:
    """Returns the bytes of a pack's files, by what their paths have behind OUT."""
    found = [path for path in out.parent.iterdir() if path.name.startswith(out.name)]
    files = [file for path in found for file in [path, *path.rglob("*")] if file.is_file()]
    return {str(file)[len(str(out)) :]: file.read_bytes() for file in files}


def paths_of(out: Path) -> list[str]:
    table = open_pack(out).table
    return table.paths(0, len(table))


SELECTIONS: dict[str, tuple[Selection, Any]] = {
    "classes": (Selection(only_classes=["c", "a"]), lambda name: name[0] in "ac"),
    "size": (Selection(min_size=21), lambda name: name not in SMALL),
    "duplicates": (Selection(exclude_duplicates=True), lambda name: name not in COPIES),
    "limit": (Selection(limit=5), lambda name: name in ("a/00.png", "a/01.png", "a/02.png",
                                                        "b/02.png", "b/03.png")),
    "all": (
        Selection(only_classes=["b", "c"], min_size=21, exclude_duplicates=True, limit=6),
        lambda name: name[0] in "bc" and name not in (*SMALL, "b/zz.png") and name < "c/09",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SELECTIONS)
@pytest.mark.parametrize("target", FORMATS)
def test_it_is_the_pack_of_what_was_selected(
    tree: Path, tmp_path: Path, target: str, case: str
) -> None:
    """From the folder, and from a pack of it: of another format each time."""
    selection, keep = SELECTIONS[case]
    held = captions(format=target)
    source = FORMATS[(FORMATS.index(target) + len(case)) % len(FORMATS)]
    both = tuple(name for name in held if captions(format=source))
    selected = only(tree, keep)
    if "c" not in selection.only_classes:
        for name in ("a", "b", "c", "none"):  # other classes keep their numbers
            (selected / name).mkdir(exist_ok=True)
    for name in ("expected", "folder", "pack", "fewer"):
        (tmp_path / name).mkdir()
    expected = pack(selected, tmp_path / "expected/out", format=target, sidecars=held)
    report = pack(tree, tmp_path / "folder/out", format=target, sidecars=held, selection=selection)
    assert content(tmp_path / "folder/out") == content(tmp_path / "expected/out")
    assert (report.id, report.classes) == (expected.id, expected.classes)
    if both != held:
        (tmp_path / "expected/out").rename(tmp_path / "fewer/out")
        shutil.rmtree(tmp_path / "expected")
        (tmp_path / "expected").mkdir()
        pack(selected, tmp_path / "expected/out", format=target, sidecars=both)
    sharding = Sharding(samples=5) if WRITERS.load(source).sharded else None
    pack(tree, tmp_path / "in", format=source, sidecars=both, sharding=sharding)
    convert(tmp_path / "in", tmp_path / "pack/out", format=target, selection=selection)
    assert content(tmp_path / "pack/out") == content(tmp_path / "expected/out")


@pytest.mark.parametrize("source", ["folder", *FORMATS])
def test_shuffled_samples_are_themselves(tree: Path, tmp_path: Path, source: str) -> None:
    """Bytes, labels and captions go with the path; the order is that of the hashes."""
    selection = Selection(shuffle=True, seed=9, limit=10)
    held = captions(format=source) if source != "folder" else ("txt",)
    out = tmp_path / "out.h5"
    if source == "folder":
        pack(tree, out, sidecars=held, selection=selection)
    else:
        sharding = Sharding(samples=5) if WRITERS.load(source).sharded else None
        pack(tree, tmp_path / "in", format=source, sidecars=held, sharding=sharding)
        convert(tmp_path / "in", out, selection=selection)
    names = [str(file.relative_to(tree)) for file in tree.rglob("*.png")]
    names.sort(key=lambda name: xxh3_64_intdigest(f"{name}\0order".encode(), 9))
    assert paths_of(out) == names[:10]
    reader = open_pack(out)
    for row, name in enumerate(names[:10]):
        assert bytes(reader.read(row) or b"") == (tree / name).read_bytes()
        assert reader.meta.classes[reader.table.label[row]] == name[0]
        if held:
            beside = next(iter((tree / name).parent.glob(f"{Path(name).stem}.[tT]*")), None)
            data = reader.read(row, 1)
            assert (None if data is None else bytes(data)) == (beside and beside.read_bytes())


@pytest.mark.parametrize("through", [None, "in.h5"])
def test_columns_of_a_file_of_labels_go_with_their_images(
    tree: Path, tmp_path: Path, through: str | None
) -> None:
    names = sorted(str(file.relative_to(tree)) for file in tree.rglob("*.png"))
    rows = {name: f"{name},{number % 3 + 5},note {number}" for number, name in enumerate(names)}

    def write(file: str, names: list[str]) -> Path:
        lines = ["file_name,label,note", *(rows[name] for name in names)]
        (tmp_path / file).write_text("\n".join(lines))
        return tmp_path / file

    every = write("labels.csv", names)
    kept = [name for name in names if rows[name].split(",")[1] != "6" and name not in SMALL]
    selection = Selection(only_classes=["5", "7"], min_size=21)
    pack(only(tree, kept.__contains__), tmp_path / "expected.lmdb", labels=write("few.csv", kept))
    if through:
        pack(tree, tmp_path / through, labels=every)
        convert(tmp_path / through, tmp_path / "out.lmdb", selection=selection)
    else:
        pack(tree, tmp_path / "out.lmdb", labels=every, selection=selection)
    assert content(tmp_path / "out.lmdb") == content(tmp_path / "expected.lmdb")
    with pytest.raises(UsageError, match=r"has no label '8': it has 5, 6, 7"):
        pack(tree, tmp_path / "o.lmdb", labels=every, selection=Selection(only_classes=["8"]))
    shuffled = pack(tree, tmp_path / "s.lmdb", labels=every, selection=Selection(shuffle=True))
    assert shuffled.fields == ("image", "json")
    for row, name in enumerate(paths_of(tmp_path / "s.lmdb")):
        data = open_pack(tmp_path / "s.lmdb").read(row, 1)
        assert json.loads(bytes(data or b"")) == {"note": rows[name].split(",")[2]}


def test_each_step_says_what_it_left_out(tree: Path, tmp_path: Path) -> None:
    report = pack(tree, tmp_path / "out.h5", selection=Selection(
        only_classes=["b", "c"], min_size=21, exclude_duplicates=True, shuffle=True, limit=6
    ))  # fmt: skip
    assert report.notices == [
        "left out 3 of 15 images of other classes",
        "left out 2 of 12 images with a side under 21 pixels",
        "left out 1 of 10 images with the bytes of one before them",
        "shuffled 9 images, seed 0",
        "left out 3 of 9 images behind the first 6",
    ]
    assert report.warnings == []  # none is a class of the pack no more


@pytest.mark.parametrize("through", [None, "in.tar"])
def test_duplicates_with_different_labels_are_told(
    tree: Path, tmp_path: Path, through: str | None
) -> None:
    selection = Selection(exclude_duplicates=True)
    if through:
        pack(tree, tmp_path / through)
        report = convert(tmp_path / through, tmp_path / "out.h5", selection=selection)
    else:
        report = pack(tree, tmp_path / "out.h5", selection=selection)
    assert report.warnings[0] == (
        "1 image is there more than once, byte for byte, with different labels, such as a/01.png "
        "and c/aa.png: one of them is wrong; the first stays"
    )
    assert report.samples == 13


def test_images_of_one_size_that_differ_stay(tmp_path: Path) -> None:
    for number in range(600):
        file = tmp_path / f"tree/{number % 7}.{number:03}.bmp"
        file.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (number % 250, number // 250, 0)).save(file)
    report = pack(
        tmp_path / "tree", tmp_path / "out.h5", selection=Selection(exclude_duplicates=True)
    )
    assert report.samples == 600


def test_a_class_that_has_lost_all_its_images_is_named(tree: Path, tmp_path: Path) -> None:
    report = pack(tree, tmp_path / "out.h5", selection=Selection(limit=3))
    assert report.warnings == ["3 classes have no images and keep their numbers: b, c, none"]
    assert open_dataset(tmp_path / "out.h5").classes == ["a", "b", "c", "none"]


def test_what_is_bad_stays_told(tree: Path, tmp_path: Path) -> None:
    (tree / "a/zz.jpg").write_bytes(b"<html>")
    (tree / "b/zero.jpg").write_bytes(b"")
    (tree / "c/cut.png").write_bytes((tree / "a/00.png").read_bytes()[:20])
    plain = pack(tree, tmp_path / "plain.h5")
    for name, selection in (("size", {"min_size": 21}), ("same", {"exclude_duplicates": True})):
        report = pack(tree, tmp_path / f"{name}.h5", selection=Selection(**selection))
        assert sorted(report.bad, key=lambda bad: bad.path) == sorted(
            plain.bad, key=lambda bad: bad.path
        )
    report = pack(tree, tmp_path / "few.h5", selection=Selection(min_size=21, limit=13))
    assert report.samples == 12  # bad ones take no place of the limit


def test_a_size_that_no_header_tells_keeps_the_image(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    Image.new("RGB", (9, 9)).save(tree / "small.png")
    Image.new("RGB", (90, 90)).save(tree / "large.png")
    (tree / "odd.icns").write_bytes(b"icns" + bytes(40))
    report = pack(tree, tmp_path / "out.h5", selection=Selection(min_size=20))
    assert paths_of(tmp_path / "out.h5") == ["large.png", "odd.icns"]
    assert report.notices[-1] == (
        "left out 1 of 3 images with a side under 20 pixels; kept 1 whose header does not tell "
        "their size"
    )


def test_a_pack_of_others_is_looked_at(tmp_path: Path) -> None:
    """It has neither sizes nor checksums."""
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        for number, side in enumerate((9, 30, 30, 40, 8)):
            made = io.BytesIO()
            Image.new("RGB", (side, side), (side, 0, 0)).save(made, "PNG")
            for ending, data in (("png", made.getvalue()), ("cls", b"%d" % (number % 2))):
                info = tarfile.TarInfo(f"k{number}.{ending}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    selection = Selection(min_size=20, exclude_duplicates=True)
    report = convert(tmp_path / "in.tar", tmp_path / "out.lmdb", selection=selection)
    reader = open_pack(tmp_path / "out.lmdb")
    assert reader.table.width.tolist() == [30, 40]
    assert "with different labels" in report.warnings[0]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(only_classes=["d"]), r"has no class 'd': it has a, b, c, none"),
        (Selection(only_classes=["none"]), "no image of .* is selected: left out 15 of 15"),
        (Selection(min_size=1000), r"no image of .* is selected: .* with a side under 1000 pixels"),
    ],
)
def test_nothing_is_left(tree: Path, tmp_path: Path, selection: Selection, words: str) -> None:
    with pytest.raises((UsageError, PackFailedError), match=words):
        pack(tree, tmp_path / "out.h5", selection=selection)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_classes_of_a_source_without_labels(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no classes to choose from"):
        pack(tree, tmp_path / "o.h5", labels=False, selection=Selection(only_classes=["a"]))


def test_another_selection_is_another_run(tree: Path, tmp_path: Path) -> None:
    os.truncate(tree / "a/00.png", 20)
    selection = Selection(shuffle=True, seed=1)
    with pytest.raises(PackFailedError):
        pack(tree, tmp_path / "out.lmdb", strict=True, workers=2, selection=selection)
    other = Selection(shuffle=True, seed=2)
    words = "what is selected was --shuffle --seed 1, is --shuffle --seed 2"
    with pytest.raises(UsageError, match=words):
        pack(tree, tmp_path / "out.lmdb", selection=other)
    pack(tree, tmp_path / "out.lmdb", selection=other, restart=True)


def test_rows_of_a_listing_are_gathered_in_blocks(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastconv.converters import selecting
    from fastconv.loaders.walk import WalkOptions, walk_folder

    listing = walk_folder(str(tree), WalkOptions(sidecars=("txt",)))

    def names(of: Any) -> list[list[str]]:
        nothing: Any = np.zeros(0)
        table = SampleTable(
            fields=of.fields, label=of.label, kind=of.kind, width=nothing, height=nothing,
            path_bytes=of.path_bytes, path_offset=of.path_offset, shard_row=nothing, offset=(),
            size=of.size,
        )  # fmt: skip
        return [table.names(row) for row in range(len(of))]

    rows = np.array([5, 5, 0, 13, 2, 7, 1], np.int64)
    for block in (1, 10, 25, 1000):
        monkeypatch.setattr(selecting, "BLOCK", block)
        made = selecting.taken(listing, rows)
        assert names(made) == [names(listing)[row] for row in rows.tolist()]
        assert made.label.tolist() == listing.label[rows].tolist()


def test_shuffled_samples_of_many_shards(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few files are open at once, and each is looked at when it is opened again."""
    from fastconv.converters import part

    monkeypatch.setattr(part, "MOST_FILES", 2)
    pack(tree, tmp_path / "in", format="webdataset", sharding=Sharding(samples=1))
    opened: list[int] = []

    def fd(source: part.FileSource, number: int) -> int:
        found = get(source, number)
        opened.append(len(source.fds))
        return found

    get = part.FileSource.fd
    monkeypatch.setattr(part.FileSource, "fd", fd)
    selection = Selection(shuffle=True)
    convert(tmp_path / "in", tmp_path / "out.lmdb", selection=selection)
    assert max(opened) == 2
    pack(tree, tmp_path / "expected.lmdb", selection=selection)
    assert content(tmp_path / "out.lmdb") == content(tmp_path / "expected.lmdb")


@pytest.mark.parametrize("target", FORMATS)
def test_raw_samples_keep_their_shapes(tmp_path: Path, target: str) -> None:
    """Their pixels tell nothing of themselves."""
    images = {f"{n:02}.npy": np.full((4 + n % 5, 6, 3), n, np.uint8) for n in range(20)}
    pack(samples=[Sample(name, image) for name, image in images.items()], out=tmp_path / "in.h5")
    selection = Selection(min_size=5, shuffle=True)
    convert(tmp_path / "in.h5", tmp_path / "out", format=target, selection=selection)
    reader = open_pack(tmp_path / "out")
    names = reader.table.paths(0, len(reader))
    assert sorted(names) == [name for name, image in images.items() if len(image) >= 5]
    assert names != sorted(names)
    for row, name in enumerate(names):
        assert bytes(reader.read(row) or b"") == images[name].tobytes()
        assert int(reader.table.height[row]) == len(images[name])
