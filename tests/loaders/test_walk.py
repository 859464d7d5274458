"""What a walk finds: order, classes, sidecars, what is left out and what is bad."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastconv.loaders.walk as walk_module
from fastconv.loaders.errors import UsageError
from fastconv.loaders.kinds import EXTENSIONS, KINDS
from fastconv.loaders.table import SampleTable
from fastconv.loaders.walk import Listing, WalkOptions, walk_folder

JPEG = b"\xff\xd8\xff\xe0" + bytes(20)

ORDER = [
    (0, "10/1.jpg"),
    (1, "2/1.jpg"),
    (2, "B/1.jpg"),
    (3, "a/1.jpg"),
    (3, "a/10.jpg"),
    (3, "a/2.jpg"),
    (3, "a/A.jpg"),
    (3, "a/_.jpg"),
    (3, "a/a\n.jpg"),
    (3, "a/a b.jpg"),
    (3, "a/a.b.jpg"),
    (3, "a/a.jpg"),
    (3, "a/a.png"),
    (3, "a/\xe9.jpg"),
    (3, "a/\udcff.jpg"),
    (3, "a/\U0001f408.jpg"),
    (3, "a/B/z.jpg"),
    (3, "a/b/z.jpg"),
    (3, "a/b-c/y.jpg"),
    (3, "a/b/c/x.jpg"),
    (3, "a/b/c-/w.jpg"),
    (3, "a/b/c/c/v.jpg"),
    (3, "a/b0/u.jpg"),
    (3, "a/\udce9/t.jpg"),
    (3, "a/\uf900/s.jpg"),
    (4, "a-b/1.jpg"),
    (5, "\xe4/1.jpg"),
    (6, "\udce4/1.jpg"),
    (7, "\uf900/1.jpg"),
    (8, "\U0001f408/1.jpg"),
]
"""Label and path of these files as torchvision's ImageFolder orders them.

Classes by code point, then whole folder paths, then file names. "-" is before "/", "/" before "0",
"B" before "a". A byte that is not UTF-8 is one of U+DC80 to U+DCFF: after most letters, but before
U+F900 and the emoji, although its byte may be greater than theirs.
"""


def make(root: Path, files: Iterable[str], content: bytes = JPEG) -> Path:
    """Makes files below a folder, and their folders; a name that ends in / is a folder."""
    for name in files:
        path = Path(root, name)
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return root


def table_of(listing: Listing) -> SampleTable:
    """Returns a sample table that has the paths and sizes of a listing."""
    count = len(listing)
    none = np.zeros(count, np.uint64)
    return SampleTable(
        fields=listing.fields,
        label=listing.label,
        kind=listing.kind,
        width=np.zeros(count, np.uint32),
        height=np.zeros(count, np.uint32),
        path_bytes=listing.path_bytes,
        path_offset=listing.path_offset,
        shard_row=np.array([0, count], np.int64),
        offset=tuple(none for _ in listing.fields),
        size=listing.size,
    )


def names_of(listing: Listing) -> list[list[str]]:
    """Returns the paths of all fields of each sample."""
    table = table_of(listing)
    return [table.names(row) for row in range(len(listing))]


def found(root: Path, **options: Any) -> tuple[list[tuple[int, str]], Listing]:
    """Returns label and path of each sample, in order, and the whole listing."""
    listing = walk_folder(str(root), WalkOptions(**options))
    paths = table_of(listing).paths(0, len(listing))
    return list(zip(listing.label.tolist(), paths, strict=True)), listing


def bad_of(listing: Listing) -> dict[str, str]:
    """Returns path -> reason of what is bad; none is named twice."""
    reasons = {file.path: file.reason for file in listing.bad}
    assert len(reasons) == len(listing.bad)
    assert all(file.message for file in listing.bad)
    return dict(reasons)


# Order, against the list above and against torchvision's rules written out.


def test_order_of_a_tricky_tree(tmp_path: Path) -> None:
    make(tmp_path, [path for _, path in reversed(ORDER)])
    rows, listing = found(tmp_path)
    assert rows == ORDER
    assert listing.classes == tuple(dict.fromkeys(path.split("/")[0] for _, path in ORDER))
    assert listing.labels == "class"
    assert (listing.bad, listing.warnings, listing.notices) == ([], [], [])


def test_order_without_labels_is_that_of_whole_folder_paths(tmp_path: Path) -> None:
    make(tmp_path, ["a/b/1.jpg", "a-b/1.jpg", "a/1.jpg", "b.jpg", "a.jpg", "a0/1.jpg"])
    rows, listing = found(tmp_path, labels=False)
    paths = ["a.jpg", "b.jpg", "a/1.jpg", "a-b/1.jpg", "a/b/1.jpg", "a0/1.jpg"]
    assert rows == [(-1, path) for path in paths]
    assert (listing.classes, listing.labels, listing.notices) == ((), "none", [])


def left_out(name: str) -> bool:
    return name.startswith(".") or name.lower() in ("thumbs.db", "@eadir", "lost+found")


def image_folder(root: str) -> tuple[list[str], list[tuple[int, str]]]:
    """Returns the classes and samples of torchvision's ImageFolder, without what is left out."""
    classes = sorted(e.name for e in os.scandir(root) if e.is_dir() and not left_out(e.name))
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            path = os.path.relpath(folder, root)
            if any(left_out(part) for part in path.split("/")):
                continue
            for file in sorted(files):
                extension = file.rpartition(".")[2].lower()
                if not left_out(file) and "." in file and extension in EXTENSIONS:
                    samples.append((label, f"{path}/{file}"))
    return classes, samples


STEMS = ["a", "B", "10", "2", "a.b", "a b", "\xe9", "\udce9", "\U0001f408", ".h", "-"]
FILES = st.tuples(
    st.sampled_from(STEMS), st.sampled_from([".jpg", ".PNG", ".txt", ".TXT", ".mask.png", "", "."])
).map("".join)
FOLDERS = st.sampled_from(
    ["a", "a-b", "a0", "b", "A", "1", "\xe9", "\udcff", "\uf900", ".git", "@eaDir", "x.jpg"]
)
TREES = st.lists(
    st.tuples(st.lists(FOLDERS, max_size=4), FILES).map(lambda t: "/".join([*t[0], t[1]])),
    max_size=40,
)


def make_any(root: str, files: list[str]) -> None:
    """Makes those of the files that can be there together."""
    for name in files:
        path = Path(root, name)
        if not path.is_dir() and not any(p.is_file() for p in path.parents):
            make(Path(root), [name])


@given(TREES)
def test_same_as_image_folder(files: list[str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        make_any(root, files)
        classes, samples = image_folder(root)
        rows, listing = found(Path(root))
        if samples:
            assert (list(listing.classes), rows) == (classes, samples)
            assert set(bad_of(listing).values()) <= {"no_class"}
        else:
            assert (listing.classes, listing.labels, listing.bad) == ((), "none", [])
            assert all(label == -1 and "/" not in path for label, path in rows)


@given(TREES)
def test_every_file_is_somewhere_and_the_columns_fit(files: list[str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        make_any(root, files)
        for options in ({}, {"labels": False}, {"any_extension": True}):
            rows, listing = found(Path(root), **options)
            entered = [
                os.path.join(folder, file)
                for folder, _, names in os.walk(root)
                for file in names
                if not any(left_out(part) for part in Path(folder).relative_to(root).parts)
                and not left_out(file)
            ]
            assert len(entered) == len(rows) + len(listing.bad) + listing.ignored.extension.total()
            for (_, path), kind, size in zip(
                rows, listing.kind.tolist(), listing.size[0].tolist(), strict=True
            ):
                assert size == os.path.getsize(os.path.join(root, path))
                extension = path.rpartition(".")[2].lower() if "." in path else ""
                assert KINDS[kind] == EXTENSIONS.get(extension, "bin")
            types = [a.dtype.name for a in (listing.label, listing.kind, listing.path_bytes)]
            assert types == ["int64", "uint8", "uint8"]
            assert listing.path_offset.dtype == np.uint64
            assert int(listing.path_offset[-1]) == len(listing.path_bytes)


# Classes.


def test_nested_folders_belong_to_the_first(tmp_path: Path) -> None:
    make(tmp_path, ["dog/1.jpg", "cat/x/y/1.jpg", "cat/dog/1.jpg"])
    rows, listing = found(tmp_path)
    assert rows == [(0, "cat/dog/1.jpg"), (0, "cat/x/y/1.jpg"), (1, "dog/1.jpg")]
    assert listing.classes == ("cat", "dog")


def test_empty_classes_keep_their_number(tmp_path: Path) -> None:
    make(tmp_path, ["ant/1.jpg", "bee/notes.txt", "cat/1.jpg"])
    rows, listing = found(tmp_path)
    assert rows == [(0, "ant/1.jpg"), (2, "cat/1.jpg")]
    assert listing.classes == ("ant", "bee", "cat")
    assert listing.warnings == ["1 class has no images and keeps its number: bee"]


def test_many_empty_classes_are_one_short_line(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", *(f"z{number:04}/" for number in range(1200))])
    _, listing = found(tmp_path)
    assert len(listing.classes) == 1201
    assert listing.warnings == [
        "1,200 classes have no images and keep their numbers: "
        "z0000, z0001, z0002, z0003, z0004 and 1,195 more"
    ]


@pytest.mark.parametrize("folder", ["notes/a.txt", "empty/", ".git/1.jpg", "deep/er/"])
def test_flat_folder_has_no_labels(tmp_path: Path, folder: str) -> None:
    rows, listing = found(make(tmp_path, ["b.jpg", "a.jpg", folder]))
    assert rows == [(-1, "a.jpg"), (-1, "b.jpg")]
    assert (listing.classes, listing.labels, listing.bad) == ((), "none", [])
    assert listing.warnings == []
    assert len(listing.notices) == 1
    assert "no class folders" in listing.notices[0]


def test_images_beside_class_folders_are_bad(tmp_path: Path) -> None:
    make(tmp_path, ["cat/1.jpg", "b.jpg", "a.PNG", "README.md"])
    rows, listing = found(tmp_path)
    assert rows == [(0, "cat/1.jpg")]
    assert bad_of(listing) == {"a.PNG": "no_class", "b.jpg": "no_class"}
    assert listing.ignored.extension == {".md": 1}
    assert found(tmp_path, labels=False)[1].bad == []


def test_a_folder_of_bad_images_is_a_class(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg"])
    make(tmp_path, ["cat/1.jpg"], b"")
    rows, listing = found(tmp_path)
    assert rows == []
    assert listing.classes == ("cat",)
    assert bad_of(listing) == {"a.jpg": "no_class", "cat/1.jpg": "empty"}


def test_nothing_at_all(tmp_path: Path) -> None:
    rows, listing = found(tmp_path)
    assert rows == []
    assert (listing.path_offset.tolist(), listing.size[0].tolist()) == ([0], [])
    assert (listing.classes, listing.labels, listing.notices) == ((), "none", [])


def test_numbers_as_names_are_told_of(tmp_path: Path) -> None:
    make(tmp_path, [f"{number}/1.jpg" for number in range(12)])
    rows, listing = found(tmp_path)
    assert listing.classes[:4] == ("0", "1", "10", "11")
    assert [label for label, path in rows if path.startswith("2/")] == [4]
    assert len(listing.notices) == 1
    assert "--class-order natural" in listing.notices[0]
    rows, listing = found(tmp_path, class_order="natural")
    assert rows == [(number, f"{number}/1.jpg") for number in range(12)]
    assert listing.notices == []


@pytest.mark.parametrize("names", [["0", "1", "9"], ["00", "01", "10"], ["1", "10", "x"]])
def test_numbers_in_their_order_are_nothing_to_tell(tmp_path: Path, names: list[str]) -> None:
    assert found(make(tmp_path, [f"{n}/1.jpg" for n in names]))[1].notices == []


def test_given_classes(tmp_path: Path) -> None:
    make(tmp_path, ["cat/1.jpg", "ant/1.jpg", "notes/a.txt"])
    rows, listing = found(tmp_path, classes=("dog", "cat", "ant"))
    assert rows == [(1, "cat/1.jpg"), (2, "ant/1.jpg")]
    assert listing.classes == ("dog", "cat", "ant")
    assert listing.ignored.extension == {".txt": 1}
    assert listing.warnings == ["1 class has no images and keeps its number: dog"]


@pytest.mark.parametrize("classes", [("cat",), ()])
@pytest.mark.parametrize("content", [JPEG, b""])
def test_unknown_class_is_named(tmp_path: Path, classes: tuple[str, ...], content: bytes) -> None:
    make(tmp_path, ["cat/1.jpg", "\udce4/x/1.jpg"], content)
    if classes:
        with pytest.raises(UsageError, match=r"'\\\\xe4' is not among the 1 given classes \(cat\)"):
            found(tmp_path, classes=classes)
    else:
        with pytest.raises(UsageError, match="'cat' is not among the 0 given"):
            found(tmp_path, classes=classes)


def test_given_classes_of_a_flat_folder(tmp_path: Path) -> None:
    rows, listing = found(make(tmp_path, ["1.jpg", "x/a.txt"]), classes=())
    assert rows == [(-1, "1.jpg")]
    assert (listing.classes, listing.ignored.extension) == ((), {".txt": 1})


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["train", "val"], True),
        (["Training", "testing", "readme"], True),
        (["validation"], True),
        (["car", "train", "tram"], False),
        (["latest", "valid8"], False),
    ],
)
def test_splits_are_told_of(tmp_path: Path, names: list[str], told: bool) -> None:
    _, listing = found(make(tmp_path, [f"{name}/cat/1.jpg" for name in names]))
    assert ["splits" in line for line in listing.warnings] == [True] * told
    assert listing.classes == tuple(sorted(names))


# What is left out.


def test_hidden_and_clutter_are_not_entered(tmp_path: Path) -> None:
    make(
        tmp_path,
        [
            ".DS_Store", "._cat", ".git/1.jpg", "cat/.ipynb_checkpoints/1.jpg", "cat/1.jpg",
            "cat/THUMBS.DB", "cat/desktop.ini", "cat/EhThumbs.db", "@eaDir/1.jpg", "#recycle/1.jpg",
            "__macosx/1.jpg", "lost+found/1.jpg", "$RECYCLE.BIN/1.jpg", "cat/._1.jpg",
        ],
    )  # fmt: skip
    rows, listing = found(tmp_path)
    assert rows == [(0, "cat/1.jpg")]
    assert listing.ignored.to_json() == {"hidden": 5, "clutter": 8, "extension": {}}
    assert listing.warnings == []


def test_hidden_images_are_told_of(tmp_path: Path) -> None:
    _, listing = found(make(tmp_path, ["cat/1.jpg", "cat/.2.jpg", ".3.PNG", ".4.jpg/"]))
    assert listing.ignored.hidden == 3
    assert len(listing.warnings) == 1
    assert listing.warnings[0].startswith("2 hidden files left out")
    assert "rename" in listing.warnings[0]


def test_others_are_counted_by_extension(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/1.txt", "a/2.TXT", "a/README", "a/x.", "a/b.tar.gz", "x.json"])
    _, listing = found(tmp_path)
    assert listing.ignored.to_json() == {
        "hidden": 0,
        "clutter": 0,
        "extension": {"": 2, ".gz": 1, ".json": 1, ".txt": 2},
    }
    assert list(listing.ignored.to_json()["extension"]) == ["", ".gz", ".json", ".txt"]


def test_many_extensions_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "MOST_EXTENSIONS", 3)
    make(tmp_path, [f"a/scan.{number}" for number in range(10)])
    assert found(tmp_path)[1].ignored.extension == {".0": 1, ".1": 1, ".2": 1, "": 7}


def test_images_without_an_extension_are_told_of(tmp_path: Path) -> None:
    make(tmp_path, ["cat/1.jpg", "cat/noext", "cat/e.jpg?size=large", "cat/known.dat"])
    make(tmp_path, ["cat/text", "cat/empty."], b"no image")
    _, listing = found(tmp_path)
    assert listing.warnings == [
        "2 files without an image extension look like images; use --any-extension"
    ]
    assert listing.ignored.extension.total() == 5


@pytest.mark.parametrize(
    ("start", "is_image"),
    [
        (b"\x89PNG\r\n\x1a\n", True),
        (b"GIF89a", True),
        (b"RIFF\x10\0\0\0WEBPVP8 ", True),
        (b"RIFF\x10\0\0\0WAVEfmt ", False),
        (b"BM\x9a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", True),
        (b"BM is a text of two letters", False),
        (b"II*\0\x08\0\0\0", True),
        (b"MM\0*\0\0\0\x08", True),
        (b"\0\0\0\x20ftypavif", True),
        (b"\0\0\0\x20ftypheic", True),
        (b"\0\0\0\x20ftypisom", False),
        (b"\0\0\0\x0cjP  \r\n\x87\n", True),
        (b"P6\n# a comment\n", True),
        (b"P-value", False),
        (b"", False),
    ],
)
def test_what_looks_like_an_image(tmp_path: Path, start: bytes, is_image: bool) -> None:
    _, listing = found(make(tmp_path, ["a/x"], start))
    assert len(listing.warnings) == is_image


def test_looks_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "MOST_LOOKS", 3)
    _, listing = found(make(tmp_path, [f"a/{number}" for number in range(10)]))
    assert listing.warnings == [
        "at least 3 files without an image extension look like images; use --any-extension"
    ]
    assert listing.ignored.extension == {"": 10}


def test_any_extension(tmp_path: Path) -> None:
    make(tmp_path, ["cat/1.jpg", "cat/noext", "cat/a.txt", "cat/.h", "cat/Thumbs.db", "top"])
    make(tmp_path, ["LICENSE"], b"no image")
    make(tmp_path, ["cat/void"], b"")
    os.symlink("nowhere", tmp_path / "cat/link")
    rows, listing = found(tmp_path, any_extension=True)
    assert rows == [(0, "cat/1.jpg"), (0, "cat/a.txt"), (0, "cat/noext")]
    assert [KINDS[code] for code in listing.kind.tolist()] == ["jpg", "bin", "bin"]
    # Only what is called like an image, or looks like one, can be bad.
    assert bad_of(listing) == {"top": "no_class"}
    assert listing.ignored.extension == {"": 3}
    assert listing.warnings == []


# Special files.


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    make(tmp_path, ["pool/x.jpg"], b"12345")
    make(tmp_path, ["tree/a/"])
    os.symlink("../../pool/x.jpg", tmp_path / "tree/a/1.jpg")
    os.symlink("../../pool/x.jpg", tmp_path / "tree/a/2.png")
    os.link(tmp_path / "pool/x.jpg", tmp_path / "tree/a/3.jpg")
    rows, listing = found(tmp_path / "tree")
    assert rows == [(0, "a/1.jpg"), (0, "a/2.png"), (0, "a/3.jpg")]
    assert listing.size[0].tolist() == [5, 5, 5]


def test_what_cannot_be_a_sample_is_bad(tmp_path: Path) -> None:
    make(tmp_path, ["a/folder.jpg/1.jpg"])
    make(tmp_path, ["a/empty.jpg"], b"")
    os.symlink("nowhere", tmp_path / "a/dangling.jpg")
    os.symlink("self.jpg", tmp_path / "a/self.jpg")
    os.symlink("nowhere", tmp_path / "a/notes")
    os.mkfifo(tmp_path / "a/pipe.jpg")
    os.mkfifo(tmp_path / "a/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tmp_path / "a")  # a socket's path must be short
        try:
            listener.bind("socket.png")
        finally:
            os.chdir(here)
        rows, listing = found(tmp_path)
    assert rows == [(0, "a/folder.jpg/1.jpg")]
    assert bad_of(listing) == {
        "a/dangling.jpg": "dangling_symlink",
        "a/empty.jpg": "empty",
        "a/pipe.jpg": "not_a_regular_file",
        "a/self.jpg": "dangling_symlink",
        "a/socket.png": "not_a_regular_file",
    }
    assert listing.ignored.extension == {"": 2}
    assert listing.warnings == []


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    make(tmp_path, ["pool/deep/1.jpg", "tree/b/1.jpg"])
    os.symlink("../pool", tmp_path / "tree/a")
    os.symlink("../../tree/a/deep", tmp_path / "tree/b/other")
    rows, listing = found(tmp_path / "tree")
    assert rows == [(0, "a/deep/1.jpg"), (1, "b/1.jpg"), (1, "b/other/1.jpg")]
    assert listing.warnings == []


@pytest.mark.parametrize("target", ["..", ".", "../..", "/", "../x/.."])
@pytest.mark.parametrize("labels", [True, False])
def test_links_that_lead_back_are_not_followed(tmp_path: Path, target: str, labels: bool) -> None:
    make(tmp_path, ["tree/cat/1.jpg", "tree/x/"])
    os.symlink(target, tmp_path / "tree/cat/up")
    os.symlink("self", tmp_path / "tree/cat/self")
    rows, listing = found(tmp_path / "tree", labels=labels)
    assert [path for _, path in rows] == ["cat/1.jpg"]
    loops = [line for line in listing.warnings if "lead back" in line]
    assert len(loops) == 1
    assert loops[0].endswith(": cat/self, cat/up")
    assert listing.ignored.extension == {}


def test_a_link_to_the_root_is_no_class(tmp_path: Path) -> None:
    make(tmp_path, ["cat/1.jpg"])
    os.symlink(".", tmp_path / "again")
    rows, listing = found(tmp_path)
    assert rows == [(0, "cat/1.jpg")]
    assert listing.classes == ("cat",)


def test_links_that_lead_to_each_other_end(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "b/1.jpg"])
    os.symlink("../b", tmp_path / "a/b")
    os.symlink("../a", tmp_path / "b/a")
    rows, listing = found(tmp_path)
    assert [path for _, path in rows] == ["a/1.jpg", "a/b/1.jpg", "b/1.jpg", "b/a/1.jpg"]
    assert listing.warnings[0].endswith(": a/b/a, b/a/b")


def test_a_link_back_from_outside_ends(tmp_path: Path) -> None:
    # The link lies in a folder that was itself reached through a link, and leads above the root.
    make(tmp_path, ["tree/a/1.jpg", "pool/2.jpg"])
    os.symlink("../../pool", tmp_path / "tree/a/pool")
    os.symlink("..", tmp_path / "pool/up")
    rows, listing = found(tmp_path / "tree")
    assert [path for _, path in rows] == ["a/1.jpg", "a/pool/2.jpg"]
    assert listing.warnings[0].endswith(": a/pool/up")


def test_what_may_not_be_read_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, ["a/1.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg", "c/1.jpg"])
    scan, status = os.scandir, os.stat

    def no_scan(path: str) -> Any:
        if path.endswith("b"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    def no_status(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("a/2.jpg"):
            raise PermissionError(13, "Permission denied")
        if str(path).endswith("a/3.jpg"):
            raise FileNotFoundError(2, "No such file or directory")
        return status(path, **options)

    monkeypatch.setattr(os, "scandir", no_scan)
    monkeypatch.setattr(os, "stat", no_status)
    rows, listing = found(tmp_path)
    monkeypatch.undo()
    assert rows == [(0, "a/1.jpg"), (2, "c/1.jpg")]
    assert bad_of(listing) == {"b": "unreadable", "a/2.jpg": "unreadable", "a/3.jpg": "vanished"}


@pytest.mark.parametrize("name", ["nowhere", "file.jpg"])
def test_root_must_be_a_folder(tmp_path: Path, name: str) -> None:
    make(tmp_path, ["file.jpg"])
    with pytest.raises(UsageError, match=f"{name}: "):
        walk_folder(str(tmp_path / name))


def test_each_candidate_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, [f"{name}/{number}.jpg" for name in "abc" for number in range(20)])
    make(tmp_path, [f"a/{number}.txt" for number in range(20)])
    asked: list[str] = []
    status = os.stat

    def counted(path: Any, **options: Any) -> os.stat_result:
        asked.append(str(path))
        return status(path, **options)

    monkeypatch.setattr(os, "stat", counted)
    rows, _ = found(tmp_path)
    monkeypatch.undo()
    assert (len(rows), len(asked), len(set(asked))) == (60, 60, 60)


# Sidecars.


def test_sidecars_become_fields(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/2.jpg", "a/3.png", "a/sub/1.jpg"])
    make(tmp_path, ["a/1.txt", "a/1.mask.png", "a/3.txt", "a/other.csv"], b"123")
    make(tmp_path, ["a/2.txt"], b"")
    rows, listing = found(tmp_path, sidecars=("txt", "mask.png"))
    assert listing.fields == ("image", "mask.png", "txt")
    assert [path for _, path in rows] == ["a/1.jpg", "a/2.jpg", "a/3.png", "a/sub/1.jpg"]
    assert [column.tolist() for column in listing.size[1:]] == [[3, -1, -1, -1], [3, 0, 3, -1]]
    assert names_of(listing)[:2] == [
        ["a/1.jpg", "a/1.mask.png", "a/1.txt"],
        ["a/2.jpg", "", "a/2.txt"],
    ]
    assert listing.ignored.extension == {".csv": 1}
    assert listing.warnings == []
    assert b"\0" not in listing.path_bytes.tobytes()


def test_sidecars_keep_their_own_names(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/2.jpg", "a/3.jpg"])
    make(tmp_path, ["a/1.TXT", "a/1.json", "a/2.Txt", "a/2.TXT", "a/3.txt", "a/3.TXT"], b"123")
    _, listing = found(tmp_path, sidecars=("txt", "json"))
    assert names_of(listing) == [
        ["a/1.jpg", "a/1.json", "a/1.TXT"],
        ["a/2.jpg", "", "a/2.TXT"],
        ["a/3.jpg", "", "a/3.txt"],
    ]
    assert listing.ignored.extension == {".txt": 2}
    assert listing.warnings == [
        "2 sidecars left out for lack of an image of the same name, the first: a/2.Txt"
    ]


def test_one_sidecar_may_serve_two_images(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/1.png"])
    make(tmp_path, ["a/1.txt"], b"123")
    _, listing = found(tmp_path, sidecars=("txt",))
    assert names_of(listing) == [["a/1.jpg", "a/1.txt"], ["a/1.png", "a/1.txt"]]
    assert listing.size[1].tolist() == [3, 3]


def test_a_sidecar_is_never_a_sample(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/1.MASK.png", "a/lone.mask.png", "a/mask.png"])
    rows, listing = found(tmp_path, sidecars=("mask.png",), any_extension=True)
    assert [path for _, path in rows] == ["a/1.jpg", "a/mask.png"]
    assert names_of(listing)[0] == ["a/1.jpg", "a/1.MASK.png"]
    assert listing.ignored.extension == {".png": 1}


def test_sidecars_of_bad_images_are_not_left_alone(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "top.jpg", "a/2.txt", "top.txt", "alone.txt"])
    make(tmp_path, ["a/2.jpg"], b"")
    _, listing = found(tmp_path, sidecars=("txt",))
    assert bad_of(listing) == {"a/2.jpg": "empty", "top.jpg": "no_class"}
    assert listing.ignored.extension == {".txt": 1}
    assert "1 sidecar left out" in listing.warnings[0]


def test_bad_sidecars_are_named_once(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "a/1.png", "a/2.jpg", "a/3.jpg", "a/3.txt/"])
    os.symlink("nowhere", tmp_path / "a/1.txt")
    os.mkfifo(tmp_path / "a/2.txt")
    rows, listing = found(tmp_path, sidecars=("txt",))
    assert len(rows) == 4
    assert listing.size[1].tolist() == [-1, -1, -1, -1]
    assert bad_of(listing) == {"a/1.txt": "dangling_symlink", "a/2.txt": "not_a_regular_file"}


@given(TREES)
def test_sidecars_as_written_out(files: list[str]) -> None:
    suffixes = ("mask.png", "txt")
    with tempfile.TemporaryDirectory() as root:
        make_any(root, files)
        rows, listing = found(Path(root), sidecars=suffixes, labels=False)
        used = set()
        for (_, path), names in zip(rows, names_of(listing), strict=True):
            folder, _, name = path.rpartition("/")
            assert not any(name.lower().endswith("." + suffix) for suffix in suffixes)
            stem = os.path.splitext(name)[0]
            expected = [path]
            for suffix in suffixes:
                there = [
                    os.path.join(folder, other)
                    for other in sorted(os.listdir(os.path.join(root, folder)))
                    if other[: len(stem)] == stem
                    and other[len(stem) :].lower() == "." + suffix
                    and os.path.isfile(os.path.join(root, folder, other))
                ]
                usual = os.path.join(folder, f"{stem}.{suffix}")
                expected.append(usual if usual in there else [*there, ""][0])
            assert names == expected
            used |= {name for name in names[1:] if name}
        every = {path for path in files if not any(left_out(part) for part in path.split("/"))}
        every = {path for path in every if os.path.isfile(os.path.join(root, path))}
        assert len(every) == len(rows) + len(used) + listing.ignored.extension.total()


@pytest.mark.parametrize(
    ("suffix", "why"),
    [
        ("", "empty"),
        ("png", "image extension"),
        ("jpg", "image extension"),
        ("cls", "something else"),
        ("image", "something else"),
        ("__key__", "something else"),
        (".txt", "without the first dot: txt"),
        ("TXT", "lower case: txt"),
        ("a b", "a-z"),
        ("../x", "first dot"),
        ("a/b", "a-z"),
        ("a..b", "a-z"),
        ("a.", "a-z"),
        ("\xe9", "a-z"),
        ("x" * 65, "64"),
    ],
)
def test_suffixes_that_cannot_be_fields(suffix: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        WalkOptions(sidecars=("txt", suffix))


@pytest.mark.parametrize("name", ["", "a\0", "\ud800", 5, None])
def test_classes_that_are_no_names_are_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="is no name: classes are texts"):
        WalkOptions(classes=("cat", name))


def test_options_are_put_in_order_and_checked() -> None:
    assert WalkOptions(sidecars=("txt", "json", "txt")).sidecars == ("json", "txt")
    with pytest.raises(UsageError, match="'cat' is given twice"):
        WalkOptions(classes=("cat", "dog", "cat"))
    with pytest.raises(UsageError, match="sorted or natural"):
        WalkOptions(class_order="numeric")  # type: ignore[arg-type]


def test_the_order_is_the_same_in_any_locale(tmp_path: Path) -> None:
    for folder in (b"\xff", "豈".encode(), "🐈".encode(), "é".encode(), b"e", b"10", b"9"):
        for name in (b"\xe9.jpg", "豈.jpg".encode(), "🐈.jpg".encode()):
            file = os.path.join(os.fsencode(tmp_path), folder, name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            try:
                with open(file, "wb") as image:
                    image.write(b"x")
            except OSError:
                pytest.skip("this file system takes UTF-8 names only")
    code = (
        "import os, sys\n"
        "from fastconv.loaders.walk import WalkOptions, walk_folder\n"
        "for order in ('sorted', 'natural'):\n"
        "    listing = walk_folder(sys.argv[1], WalkOptions(class_order=order))\n"
        "    print(bytes(listing.path_bytes), [*map(os.fsencode, listing.classes)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            check=True,
            capture_output=True,
            env={"PYTHONPATH": os.pathsep.join(sys.path), **locale},
        ).stdout
        for locale in (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"LC_ALL": "C.UTF-8"},
        )
    }
    assert len(outputs) == 1
