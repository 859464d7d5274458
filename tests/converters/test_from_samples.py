"""Samples that a program gives."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from tests.converters.test_converting import content
from tests.loaders.test_joined import make, png
from tests.support import captions

from fastconv.converters import PackFailedError, Sample, Sharding, pack
from fastconv.converters.unpacking import unpack
from fastconv.converters.writer import WRITERS
from fastconv.loaders import UsageError, open_dataset


def samples(tree: Path, fields: tuple[str, ...] = ("txt",)) -> Iterator[Sample]:
    """Yields the samples of a folder of classes, with their captions."""
    for file in sorted(tree.rglob("*.png")):
        texts = {name: file.with_suffix(f".{name}") for name in fields}
        sidecars = {name: text.read_bytes() for name, text in texts.items() if text.exists()}
        yield Sample(str(file.relative_to(tree)), file.read_bytes(), file.parent.name, sidecars)


@pytest.mark.parametrize("format", WRITERS.names())
@pytest.mark.parametrize("workers", [None, 2])
def test_the_samples_of_a_folder_give_its_pack(
    tmp_path: Path, format: str, workers: int | None
) -> None:
    tree = make(tmp_path / "tree", {"a": range(5), "b": range(5, 12)}, sidecars=True)
    (tree / "a/003.txt").unlink()
    (tree / "b/007.txt").write_text("")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    options: dict[str, Any] = {"format": format, "workers": workers}
    if WRITERS.load(format).sharded:
        options["sharding"] = Sharding(samples=5)
    fields = captions(format=format)
    report = pack(samples=samples(tree, fields), out=tmp_path / "one/out", **options)
    pack(tree, tmp_path / "two/out", sidecars=fields, **options)
    assert content(tmp_path / "one/out") == content(tmp_path / "two/out")
    assert (report.samples, report.classes, report.fields) == (12, ("a", "b"), ("image", *fields))


def test_images_of_any_name_and_labels_of_any_kind(tmp_path: Path) -> None:
    given = [Sample(f"x{n}", png(n), 7 * n, {"json": b"{}"} if n else {}) for n in range(3)]
    given.append(Sample("last.jpeg", memoryview(png(9))))
    pack(samples=given, out=tmp_path / "out.tar")
    dataset = open_dataset(tmp_path / "out.tar", fields=("image", "json"), decode=None)
    assert [*dataset] == [
        (png(0), None, 0), (png(1), b"{}", 7), (png(2), b"{}", 14), (png(9), None, -1)
    ]  # fmt: skip
    assert [path for path, _ in dataset.samples] == ["x0", "x1", "x2", "last.jpeg"]


def test_classes_that_are_given(tmp_path: Path) -> None:
    given = [Sample("a.png", png(1), "dog"), Sample("b.png", png(2), 0)]
    pack(samples=given, out=tmp_path / "out.h5", classes=("cat", "dog"))
    dataset = open_dataset(tmp_path / "out.h5")
    assert (dataset.classes, dataset.targets.tolist()) == (["cat", "dog"], [1, 0])
    for label, words in (("cow", "a.png: its class 'cow' is none of the 2"), (2, "outside 0 to 1")):
        with pytest.raises(UsageError, match=words):
            pack(
                samples=[Sample("a.png", png(1), label)], out=tmp_path / "o.h5", classes=("x", "y")
            )


def test_pixels_are_given_as_arrays(tmp_path: Path) -> None:
    array = np.zeros((2, 3, 3), np.uint8)
    file = np.frombuffer(png(1), np.uint8)  # the bytes of a file, as numpy may have read them
    pack(samples=[Sample("a.npy", array, 1), Sample("b.png", file, 2)], out=tmp_path / "out.tar")
    assert [kind for _, kind in open_dataset(tmp_path / "out.tar", decode=None)] == [1, 2]
    assert open_dataset(tmp_path / "out.tar", decode=None)[1] == (png(1), 2)
    cases: list[tuple[str, Any, str]] = [
        ("a.npy", array.astype(np.float32), r"a\.npy: its image is an array of float32 \(2, 3"),
        ("a.npy", np.zeros((2, 3, 2), np.uint8), "1, 3 or 4"),
        ("a.npy", np.zeros((0, 3, 3), np.uint8), "pixels are uint8"),
        ("a.npy", np.zeros((2, 2, 3, 3), np.uint8), "pixels are uint8"),
        ("a.png", array, r"a\.png: its image is given as pixels: let the path end in \.npy"),
    ]
    for name, wrong, words in cases:
        with pytest.raises(UsageError, match=words):
            pack(samples=[Sample(name, wrong)], out=tmp_path / "other.tar")
        assert not (tmp_path / "other.tar").exists()


def test_what_is_bad_is_named_and_the_rest_is_packed(tmp_path: Path) -> None:
    names = ["a.png", "../b.png", "/c.png", "d.png", "a.png", "e.png", "f\0.png", ""]
    given = [Sample(name, b"text" if name == "d.png" else png(1)) for name in names]
    report = pack(samples=given, out=tmp_path / "out.lmdb")
    assert {(bad.path, bad.reason) for bad in report.bad} == {
        ("../b.png", "unsafe_path"), ("/c.png", "unsafe_path"), ("f\0.png", "unsafe_path"),
        ("", "unsafe_path"), ("a.png", "duplicate_key"), ("d.png", "not_an_image"),
    }  # fmt: skip
    dataset = open_dataset(tmp_path / "out.lmdb")
    assert [path for path, _ in dataset.samples] == ["a.png", "e.png"]


class Mine(Exception):
    pass


def failing(error: Exception) -> Iterator[Sample]:
    yield Sample("a.png", png(1))
    raise error


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    out = tmp_path / "out.lmdb"
    cases: list[tuple[Any, type[Exception], str]] = [
        (failing(Mine()), Mine, "$"),
        (failing(FileNotFoundError(2, "mine", "x")), FileNotFoundError, r"2\] mine: 'x'"),
        (failing(UsageError("mine")), UsageError, "^mine$"),
        ([], PackFailedError, "no images found"),
        ([Sample("a.png", b"")], PackFailedError, "no usable image"),
        ([Sample("a.png", png(1), 1), Sample("b.png", png(1), "x")], UsageError, "all integers"),
        ([("a.png", png(1))], UsageError, "sample 0: samples are .* not tuple"),
        (5, UsageError, "samples are something that gives Sample, not int"),
        (Sample("a.png", png(1)), UsageError, "something that gives Sample, not Sample"),
    ]
    for given, error, words in cases:
        with pytest.raises(error, match=words):
            pack(samples=given, out=out)
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"path": b"a.png"}, "^sample 1: its path is bytes, not text"),
        ({"path": None}, "^sample 1: its path is NoneType, not text"),
        ({"image": None}, "its image is a NoneType: give the bytes"),
        ({"image": "text"}, "its image is a str: give the bytes"),
        ({"label": 1.5}, "its label is a float: give the name"),
        ({"label": True}, "its label is a bool: give the name"),
        ({"label": ""}, "its label '' cannot be the name of a class"),
        ({"label": "a\0"}, "its label .* cannot be the name of a class"),
        ({"label": "\ud800"}, r"its label '\\+ud800' cannot be the name of a class"),
        ({"label": 1 << 63}, "its label 9223372036854775808 is outside"),
        ({"sidecars": None}, "its sidecars are a NoneType"),
        ({"sidecars": ["txt"]}, "its sidecars are a list"),
        ({"sidecars": {5: b""}}, "the name of a sidecar is a int"),
        ({"sidecars": {"txt": "text"}}, "its txt is a str: give the bytes"),
        ({"sidecars": {"image": b""}}, "something else inside"),
        ({"sidecars": {"\ud800": b""}}, "may only have a-z"),
    ],
)
def test_attributes_that_cannot_be_are_named(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    given = [Sample("../bad.png", png(0)), Sample(**{"path": "b.png", "image": png(1)} | wrong)]
    with pytest.raises(UsageError, match=words) as found:
        pack(samples=given, out=tmp_path / "out.parquet")
    assert str(found.value).startswith("sample 1" if "path" in wrong else "sample 1, b.png: ")
    assert os.listdir(tmp_path) == []


def test_bytes_of_any_kind_are_taken(tmp_path: Path) -> None:
    twice = bytes(byte for byte in png(1) for _ in range(2))
    given = [
        Sample("a.png", memoryview(twice)[::2]),
        Sample("b.png", memoryview(png(1)).cast("B", (1, len(png(1)))), None, {"txt": None}),
        Sample("c.png", bytearray(png(1)), None, {"txt": b""}),
    ]
    assert pack(samples=given, out=tmp_path / "out.tar").bad == []
    dataset = open_dataset(tmp_path / "out.tar", fields=("image", "txt"), decode=None)
    assert [*dataset] == [(png(1), text, -1) for text in (None, None, b"")]


def test_a_path_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    given = [Sample("\ud800.png", png(1)), Sample("\udcff.png", png(1))]
    report = pack(samples=given, out=tmp_path / "out.tar")
    assert [(bad.path, bad.reason) for bad in report.bad] == [("\ud800.png", "unsafe_path")]
    assert [path for path, _ in open_dataset(tmp_path / "out.tar").samples] == ["\udcff.png"]


NAMES = ["a", "a.png", "a.jpg", "a.txt", "a.b.jpg", "a.png/b.png", "a/a.png", "a.txt/b"]


@settings(deadline=None, max_examples=25)
@given_(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(st.sampled_from(["txt", "b.txt"]), st.sampled_from([b"", b"1"])),
        ),
        max_size=8,
    )
)
def test_what_is_packed_is_unpacked_whole(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, dict[str, bytes]]]
) -> None:
    """Of samples that would make one file, or a file and a folder, the first one stays."""
    folder = tmp_path_factory.mktemp("clash")
    there: dict[str, bytes] = {}
    above: set[str] = set()
    images: set[str] = set()
    bad = []
    drawn = [("z.png", {}), *drawn]  # which is in nobody's way
    for number, (name, sidecars) in enumerate(drawn):
        stem = os.path.splitext(name)[0] if "." in name.rpartition("/")[2] else name
        mine = {f"{stem}.{field}": text for field, text in sidecars.items()}
        over = {str(part) for part in PurePosixPath(name).parents} - {"."}
        clash = name in {*there, *mine} or bool({name, *mine} & above or over & {*there})
        # Of two images, one sidecar may be that of both.
        clash = clash or any(
            file in images or there.get(file, text) != text for file, text in mine.items()
        )
        if clash:
            bad.append(name)
            continue
        images.add(name)
        there |= mine | {name: png(number)}
        above |= over
    given = [Sample(name, png(n), None, sides) for n, (name, sides) in enumerate(drawn)]
    report = pack(samples=given, out=folder / "out.lmdb", workers=1)
    assert [(one.path, one.reason) for one in report.bad] == [(n, "duplicate_key") for n in bad]
    unpacked = unpack(folder / "out.lmdb", folder / "out")
    assert unpacked.bad == []
    files = [file for file in (folder / "out").rglob("*") if file.is_file()]
    assert {str(file.relative_to(folder / "out")): file.read_bytes() for file in files} == there


def test_clashes_are_told_by_number(tmp_path: Path) -> None:
    names = ["../x.png", "a.png", "a.jpg", "a.png/b.png", "a.txt", "a.png"]
    given = [Sample(name, png(n), None, {"txt": b"%d" % n}) for n, name in enumerate(names)]
    report = pack(samples=given, out=tmp_path / "out.lmdb")
    assert [bad.message for bad in report.bad[1:]] == [
        "sample 2: a.txt would be two files, one by sample 1",
        "sample 3: a.png would be a file and a folder, one by sample 1",
        "sample 4: a.txt would be two files, one by sample 1",
        "sample 5 has the path of sample 1",
    ]


def test_wrong_arguments(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {}, {"source": tmp_path}, {"samples": []}, {"source": tmp_path, "samples": [], "out": "x"},
    ]  # fmt: skip
    for arguments in cases:
        with pytest.raises(UsageError, match="pack needs"):
            pack(**arguments)
    with pytest.raises(UsageError, match="their own labels and sidecars"):
        pack(samples=[], out=tmp_path / "x.h5", sidecars=("txt",))


def test_samples_are_forgotten_when_they_are_written(tmp_path: Path) -> None:
    def given() -> Iterator[Sample]:
        for number in range(50):
            gc.collect()
            held = sum(type(thing) is Sample for thing in gc.get_objects())
            assert held <= 2
            yield Sample(f"{number}.png", png(number))

    assert pack(samples=given(), out=tmp_path / "out.tar").samples == 50


KILLED = """
import os, signal, sys
from fastconv.converters import Sample, pack
def given():
    yield Sample("a.png", open(sys.argv[1], "rb").read())
    os.kill(os.getpid(), signal.SIGKILL)
pack(samples=given(), out=sys.argv[2])
"""


def test_a_run_that_was_killed_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    out = tmp_path / "out.tar"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a.png"), str(out)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "out.tar.partial/samples").exists()
    notes: list[str] = []
    pack(samples=[Sample("b.png", png(2))], out=out, notice=notes.append)
    assert len(notes) == 1
    assert "discarded what an unfinished run left" in notes[0]
    assert sorted(os.listdir(tmp_path)) == ["a.png", "out.tar", "out.tar.index.safetensors"]
