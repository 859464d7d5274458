"""Unpacking: every file comes back, and nothing is written anywhere else."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions

from fastconv.converters import Sharding, below, pack
from fastconv.converters.report import Progress
from fastconv.converters.unpacking import UnpackFailedError, UnpackReport, unpack
from fastconv.converters.writer import WRITERS
from fastconv.loaders.arrays import dump_arrays, load_arrays
from fastconv.loaders.errors import FastconvError, UsageError
from fastconv.loaders.open import open_pack

FORMATS = WRITERS.names()


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3 + number % 5, 2), (number % 256, 7, 9)).save(file, "PNG")
    return file.getvalue()


def content(folder: Path | bytes) -> dict[bytes, bytes]:
    """Returns the paths and bytes of all regular files below a folder; there is nothing else."""
    found = {}
    top = os.fsencode(folder)
    for path, _, names in os.walk(top):
        for name in names:
            file = os.path.join(path, name)
            assert not os.path.islink(file)
            with open(file, "rb") as stream:
                found[os.path.relpath(file, top)] = stream.read()
    return found


def write(root: Path, files: dict[bytes, bytes]) -> Path:
    for name, data in files.items():
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return root


def tar(
    path: Path, members: list[tuple[str, bytes]], odd: tuple[tarfile.TarInfo, ...] = ()
) -> Path:
    with tarfile.open(path, "w") as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
        for member in odd:
            file.addfile(member)
    return path


def reasons(report: UnpackReport) -> list[tuple[str, str]]:
    return [(bad.path, bad.reason) for bad in report.bad]


ODD_NAMES = [
    b"cat/plain.png",
    b"cat/-rf.png",
    b"cat/new\nline.png",
    b"cat/tab\t and 'quote' \"double\".png",
    b"cat/back\\slash.png",
    b"cat/not utf-8 \xff\xfe.png",
    b"cat/" + "schön 猫 🐈.png".encode(),
    b"cat/" + b"n" * 251 + b".png",
    b"cat/two.dots.v1.5.png",
    b"cat/UPPER.PNG",
    b"cat/ blank .png",
    b"dog/" + b"/".join(b"d%d" % number for number in range(120)) + b"/deep.png",
    b"dog/" + b"x" * 255 + b"/1.png",
]


@pytest.fixture
def odd_tree(tmp_path: Path) -> Path:
    files = {name: png(number) for number, name in enumerate(ODD_NAMES)}
    files[b"cat/plain.txt"] = b"a caption"
    files[b"cat/UPPER.TXT"] = b""
    files[b"cat/not utf-8 \xff\xfe.txt"] = b"\0\xff"
    return write(tmp_path / "tree", files)


@pytest.mark.parametrize("format", FORMATS)
def test_every_file_comes_back_under_its_name(odd_tree: Path, tmp_path: Path, format: str) -> None:
    sidecars = captions(format=format)
    pack(odd_tree, tmp_path / "pack", format=format, sidecars=sidecars)
    out = tmp_path / "out"
    report = unpack(tmp_path / "pack", out)
    expected = content(odd_tree)
    if not sidecars:
        expected = {name: data for name, data in expected.items() if name in ODD_NAMES}
    assert content(out) == expected
    assert report.status == "done"
    assert (report.samples, report.files) == (len(ODD_NAMES), len(expected))
    assert report.bytes == sum(map(len, expected.values()))
    assert sorted(os.listdir(tmp_path)) == ["out", "pack", "tree"]


def test_it_works_with_shards_and_below_an_empty_folder(odd_tree: Path, tmp_path: Path) -> None:
    pack(odd_tree, tmp_path / "pack", format="webdataset", sharding=Sharding(samples=3))
    out = tmp_path / "out"
    out.mkdir()
    inode = out.stat().st_ino
    unpack(tmp_path / "pack", out)
    assert content(out) == {
        name: data for name, data in content(odd_tree).items() if b".png" in name.lower()
    }
    assert out.stat().st_ino == inode


def test_files_have_the_usual_mode(odd_tree: Path, tmp_path: Path) -> None:
    pack(odd_tree, tmp_path / "p.tar")
    old = os.umask(0o027)
    try:
        unpack(tmp_path / "p.tar", tmp_path / "out")
    finally:
        os.umask(old)
    assert (tmp_path / "out/cat/plain.png").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "out/cat").stat().st_mode & 0o7777 == 0o750


def test_a_sidecar_of_two_images_comes_back_once(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {b"a/x.png": png(1), b"a/x.PNG": png(2), b"a/x.txt": b"both"})
    pack(tree, tmp_path / "p.h5", sidecars=("txt",))
    report = unpack(tmp_path / "p.h5", tmp_path / "out")
    assert content(tmp_path / "out") == content(tree)
    assert (report.samples, report.files, report.bad) == (2, 3, [])


def test_labels_and_columns_of_a_file_come_back(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {b"%d.png" % number: png(number) for number in range(4)})
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "file_name,label,who,n\n0.png,b,Änne,1\n1.png,a,,2\n2.png,b,x,3\n3.png,a,y,4\n"
    )
    first = pack(tree, tmp_path / "p.lmdb", labels=labels)
    report = unpack(tmp_path / "p.lmdb", tmp_path / "out")
    lines = (tmp_path / "out/metadata.jsonl").read_text("ascii").splitlines()
    assert json.loads(lines[0]) == {"who": "", "n": "2", "file_name": "1.png", "label": "a"}
    assert report.files == 5
    again = pack(tmp_path / "out", tmp_path / "q.lmdb", labels=tmp_path / "out/metadata.jsonl")
    assert again.id == first.id


def test_labels_that_are_integers_come_back(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {b"%d.png" % number: png(number) for number in range(2)})
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        '{"file_name": "0.png", "label": -7, "n": 1}\n{"file_name": "1.png", "label": 12}\n'
    )
    first = pack(tree, tmp_path / "p.tar", labels=labels)
    unpack(tmp_path / "p.tar", tmp_path / "out")
    again = pack(tmp_path / "out", tmp_path / "q.tar", labels=tmp_path / "out/metadata.jsonl")
    assert again.id == first.id


def test_labels_of_folders_make_no_file(odd_tree: Path, tmp_path: Path) -> None:
    pack(odd_tree, tmp_path / "p.lmdb")
    unpack(tmp_path / "p.lmdb", tmp_path / "out")
    assert not (tmp_path / "out/metadata.jsonl").exists()


# -- names that lead elsewhere


@pytest.fixture
def unsafe(tmp_path: Path) -> Path:
    """Returns a tar with one good member, and others that lead out of the folder."""
    absolute = str(tmp_path / "absolute.png")
    names = [
        "good.png", "../up1.png", "a/../../up2.png", "./../up3.png", absolute, f"/{absolute}x.png",
        "b//empty.png", "c/../inside.png",
    ]  # fmt: skip
    members = [(name, png(number)) for number, name in enumerate(names)]
    link, hard, folder = (
        tarfile.TarInfo("link.png"),
        tarfile.TarInfo("hard.png"),
        tarfile.TarInfo("d"),
    )
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, "good.png"
    folder.type = tarfile.DIRTYPE
    return tar(tmp_path / "unsafe.tar", members, (link, hard, folder))


def test_no_file_is_written_outside(unsafe: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    report = unpack(unsafe, tmp_path / "place/out")
    assert content(tmp_path / "place") == {b"out/good.png": png(0)}
    assert {reason for _, reason in reasons(report)} == {"unsafe_path"}
    assert len(report.bad) == 7
    assert (report.status, report.samples) == ("partial", 1)
    assert sorted(os.listdir(tmp_path)) == ["place", "unsafe.tar"]


def test_a_pack_of_nothing_safe_makes_nothing(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", [("../1.png", png(1)), ("/2.png", png(2))])
    with pytest.raises(UnpackFailedError, match="unsafe_path") as caught:
        unpack(path, tmp_path / "out")
    assert caught.value.report is not None
    assert caught.value.report.status == "failed"
    assert len(caught.value.report.bad) == 2
    assert os.listdir(tmp_path) == ["p.tar"]


def test_two_samples_of_one_path(tmp_path: Path) -> None:
    """In tars of others, where the later one is called by its number."""
    shards = tmp_path / "shards"
    shards.mkdir()
    tar(shards / "0.tar", [("a.png", png(1)), ("b.png", png(2))])
    tar(shards / "1.tar", [("a.png", png(1)), ("b.png", png(3))])
    report = unpack(shards, tmp_path / "out")
    assert content(tmp_path / "out") == {
        b"a.png": png(1), b"b.png": png(2),
        b"a (sample 2).png": png(1), b"b (sample 3).png": png(3),
    }  # fmt: skip
    assert (report.status, report.samples) == ("done", 4)


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", [("a.png", png(1)), ("a.png/b.png", png(2)), ("c.png", png(3))])
    report = unpack(path, tmp_path / "out")
    assert content(tmp_path / "out") == {b"a.png": png(1), b"c.png": png(3)}
    assert reasons(report) == [("a.png/b.png", "duplicate_key")]


def test_a_name_that_the_file_system_does_not_take(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", [("n" * 300 + ".png", png(1)), ("c.png", png(3))])
    report = unpack(path, tmp_path / "out")
    assert [reason for _, reason in reasons(report)] == ["unsafe_path"]
    assert content(tmp_path / "out") == {b"c.png": png(3)}


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/", "a/..", "\0", "a\0b", "x" * 5000])
def test_names_of_no_file(name: str) -> None:
    with pytest.raises(below.RefusedError) as caught:
        below.safe_parts(name)
    assert caught.value.reason == "unsafe_path"


# -- what is there already


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tree = write(
        tmp_path / "small", {b"cat/1.png": png(1), b"cat/2.png": png(2), b"dog/3.png": png(3)}
    )
    pack(tree, tmp_path / "small.tar")
    return tmp_path / "small.tar"


def test_a_folder_with_something_in_it_is_refused(small: Path, tmp_path: Path) -> None:
    out = write(tmp_path / "out", {b"mine.txt": b"x"})
    with pytest.raises(UsageError, match="not empty"):
        unpack(small, out)
    assert content(out) == {b"mine.txt": b"x"}


def test_overwrite_replaces_files_and_leaves_others(small: Path, tmp_path: Path) -> None:
    old = {b"cat/1.png": b"old", b"cat/mine.txt": b"x", b"dog/3.png": png(3), b"deep/er/y": b"y"}
    out = write(tmp_path / "out", old)
    unpack(small, out, overwrite=True)
    assert content(out) == old | content(tmp_path / "small")


def test_links_are_not_followed(small: Path, tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", {b"1.png": b"safe"})
    out = write(tmp_path / "out", {b"x": b"x"})
    (out / "cat").symlink_to("../elsewhere")
    (out / "dog").mkdir()
    (out / "dog/3.png").symlink_to("../../elsewhere/1.png")
    with pytest.raises(UsageError, match="cat: is there already, a link that is not followed"):
        unpack(small, out, overwrite=True)
    assert content(elsewhere) == {b"1.png": b"safe"}
    assert (out / "cat").is_symlink()
    assert (out / "dog/3.png").is_symlink(), "nothing was changed"
    (out / "cat").unlink()
    report = unpack(small, out, overwrite=True)
    assert content(elsewhere) == {b"1.png": b"safe"}
    assert (out / "dog/3.png").read_bytes() == png(3)
    assert not (out / "dog/3.png").is_symlink()
    assert (report.status, report.samples) == ("done", 3)


def test_what_stands_in_the_way_is_left(small: Path, tmp_path: Path) -> None:
    out = write(tmp_path / "out", {b"cat/1.png/x": b"x", b"dog": b"a file"})
    report = unpack(small, out, overwrite=True)
    assert content(out) == {b"cat/1.png/x": b"x", b"dog": b"a file", b"cat/2.png": png(2)}
    assert reasons(report) == [
        ("cat/1.png", "not_a_regular_file"),
        ("dog/3.png", "not_a_regular_file"),
    ]


def test_a_path_of_what_is_being_written_is_refused(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", [(".fastconv-unpack.partial/1.png", png(1)), ("c.png", png(3))])
    out = write(tmp_path / "out", {b"x": b"x"})
    report = unpack(path, out, overwrite=True)
    assert content(out) == {b"x": b"x", b"c.png": png(3)}
    assert [reason for _, reason in reasons(report)] == ["unsafe_path"]


def test_places_that_cannot_be(small: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    pack(tmp_path / "small", shards, format="webdataset")
    write(tmp_path / "out.partial", {b"mine": b"x"})
    for source, out, words in (
        (small, tmp_path / "no/such/out", "no such folder"),
        (small, small, "not a folder"),
        (shards, shards / "out", "inside the pack"),
        (tmp_path / "small", tmp_path / "copy", "not a pack"),
        (small, tmp_path / "out", "not made by fastconv"),
    ):
        with pytest.raises(UsageError, match=words):
            unpack(source, out)
        assert out == small or not out.exists()


# -- damage, and runs that end early


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_bytes_are_not_written(tmp_path: Path, format: str) -> None:
    tree = write(
        tmp_path / "tree", {b"a/%d.png" % n: png(n) for n in range(3)} | {b"a/1.txt": b"caption"}
    )
    path = tmp_path / "pack"
    fields = pack(tree, path, format=format, sidecars=captions(format=format)).fields
    for slot in range(len(fields)):
        damage(path, 1, slot)
    report = unpack(path, tmp_path / "out")
    assert sorted(content(tmp_path / "out")) == [b"a/0.png", b"a/2.png"]
    names = ["a/1.png", "a/1.txt"][: len(fields)]
    assert reasons(report) == [(name, "corrupt") for name in names]
    assert "sample 1" in report.bad[0].message
    assert (report.status, report.samples) == ("partial", 2)


def test_a_place_outside_the_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pack.tar"
    pack(write(tmp_path / "tree", {b"a/%d.png" % n: png(n) for n in range(3)}), path)
    index = Path(f"{path}.index.safetensors")
    arrays, metadata = load_arrays(index.read_bytes())
    arrays = {name: array.copy() for name, array in arrays.items()}
    arrays["offset/image"][1] = 1 << 40
    index.write_bytes(b"".join(dump_arrays(arrays, metadata)))
    report = unpack(path, tmp_path / "out")
    assert sorted(content(tmp_path / "out")) == [b"a/0.png", b"a/2.png"]
    assert reasons(report) == [("a/1.png", "bad_record")]
    assert "outside the file" in report.bad[0].message


def damage(path: Path, row: int, slot: int) -> None:
    """Changes the last byte of a field."""
    reader: Any = open_pack(path)
    table = reader.table
    place = table.base[slot] + int(table.offset[slot][row]) + int(table.size[slot][row]) - 1
    with open(reader.files[0], "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def test_damaged_records_are_told(tmp_path: Path) -> None:
    path = tar(tmp_path / "p.tar", [("1.png", png(1)), ("2.txt", b"no image"), ("3.png", png(3))])
    report = unpack(path, tmp_path / "out")
    assert content(tmp_path / "out") == {b"1.png": png(1), b"3.png": png(3)}
    assert reasons(report) == [("2", "missing_part")]


def test_a_full_disk_leaves_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", full)
    with pytest.raises(FastconvError, match="no space left") as caught:
        unpack(small, tmp_path / "out")
    assert str(tmp_path / "out") in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["small", "small.tar", "small.tar.index.safetensors"]


@pytest.mark.parametrize("exists", [False, True])
def test_an_interrupt_leaves_nothing(small: Path, tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "out"
    if exists:
        write(out, {b"cat/1.png": b"old"})

    def stop(progress: Progress) -> None:
        assert progress.samples == progress.samples_total == 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(small, out, overwrite=True, progress=stop)
    assert content(out) == ({b"cat/1.png": b"old"} if exists else {})
    assert not (tmp_path / "out.partial").exists()


def test_what_a_killed_run_left_is_discarded(small: Path, tmp_path: Path) -> None:
    write(tmp_path / "out.partial", {b"lock": b"", b"workers": b"", b"files/cat/1.png": b"half"})
    notices: list[str] = []
    unpack(small, tmp_path / "out", notice=notices.append)
    assert content(tmp_path / "out") == content(tmp_path / "small")
    assert len(notices) == 1
    assert "unfinished" in notices[0]


def test_an_empty_pack_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.tar"
    path.write_bytes(bytes(10240))
    with pytest.raises(UnpackFailedError, match=r"empty\.tar: holds no samples \(0 records\)$"):
        unpack(path, tmp_path / "out")
    assert os.listdir(tmp_path) == ["empty.tar"]


@pytest.fixture(autouse=True)
def no_open_files() -> Iterator[None]:
    """Checks that no descriptor of a folder stays open."""
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    after = set(os.listdir("/proc/self/fd")) if before else set()
    names = [link for fd in after - before if (link := target(fd)).startswith("/")]
    assert not [name for name in names if os.path.isdir(name)]


def target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def deep_tree(root: Path, depth: int) -> None:
    """Makes a tree whose paths are longer than the system takes in one piece."""
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for number in range(depth):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        os.symlink("/", "link", dir_fd=here)
        os.mkdir("empty", dir_fd=here)
        os.mkdir(f"folder{number:06d}", dir_fd=here)
        inner = os.open(f"folder{number:06d}", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    deep_tree(tmp_path / "deep", 1200)
    (tmp_path / "kept").mkdir()
    (tmp_path / "deep/to kept").symlink_to(tmp_path / "kept")
    below.remove_tree(str(tmp_path / "deep"))
    assert os.listdir(tmp_path) == ["kept"]
    with pytest.raises(FileNotFoundError):
        below.remove_tree(str(tmp_path / "deep"))


def test_a_folder_that_is_moved_away_while_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "removed/inner/innermost").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("mine")
    remove_files = below.remove_files

    def moved(folder: int) -> str | None:
        if (tmp_path / "removed/inner").exists() and os.path.samestat(
            os.fstat(folder), os.stat(tmp_path / "removed/inner/innermost")
        ):
            (tmp_path / "removed/inner").rename(tmp_path / "mine/inner")
        return remove_files(folder)

    monkeypatch.setattr(below, "remove_files", moved)
    with pytest.raises(OSError, match="moved while"):
        below.remove_tree(str(tmp_path / "removed"))
    assert (tmp_path / "mine/precious").read_text() == "mine"


def test_files_that_cannot_be_moved_are_not_called_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(write(tmp_path / "tree", {b"a/1.png": png(1), b"b/2.png": png(2)}), tmp_path / "p.lmdb")
    (tmp_path / "out").mkdir()
    rename, moved = os.rename, list[str]()

    def refuse(source: str, target: str, **folders: int) -> None:
        if moved:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), target)
        moved.append(source)
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(FastconvError, match="some files are there now") as caught:
        unpack(tmp_path / "p.lmdb", tmp_path / "out")
    assert "nothing was made" not in str(caught.value)
    assert os.listdir(tmp_path / "out") == moved


def test_an_interrupt_waits_until_all_files_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write(tmp_path / "tree", {b"a/1.png": png(1), b"b/2.png": png(2)})
    pack(tree, tmp_path / "p.lmdb")
    (tmp_path / "out").mkdir()
    rename = os.rename

    def interrupted(source: str, target: str, **folders: int) -> None:
        signal.raise_signal(signal.SIGINT)
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path / "p.lmdb", tmp_path / "out")
    assert content(tmp_path / "out") == content(tree)
