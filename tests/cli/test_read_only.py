"""Packs on media that one may only read, or not even that: nothing is written beside them, also not
by root's rights, which are given up first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters.writer import WRITERS

RUN = """
import ctypes, os, sys

if os.geteuid() == 0:  # without CAP_DAC_OVERRIDE and all the others, modes count for root too
    for right in range(64):  # nor do workers get them back
        ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
if sys.argv[1] == "read":
    from fastconv.loaders import open_dataset
    images = [image.size for image, _ in open_dataset(sys.argv[2], verify=True)]
    assert images == [(8, 9)] * 6, images
else:
    from fastconv.__main__ import main
    sys.exit(main(sys.argv[1:]))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gives up rights as Linux has them")


def run(*arguments: object) -> tuple[int, str]:
    """Runs a command without root's rights; returns the exit code and what went to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(6):
        file = tmp_path / f"tree/{'ab'[number % 2]}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 9), (number, 0, 0)).save(file)
    return tmp_path / "tree"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yields a folder that can be removed again, whatever its modes are then."""
    folder = tmp_path / "media"
    folder.mkdir()
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def found(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): ((status := path.stat()).st_ino, status.st_size, status.st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.parametrize("out", OUTS)
def test_packs_are_read_where_nothing_may_be_written(
    tree: Path, tmp_path: Path, folder: Path, out: str
) -> None:
    source = folder / out
    assert run("pack", tree, source, "--quiet") == (0, "")
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = found(folder)
    for arguments in (
        ("read", source),
        ("info", source),
        ("verify", source, "--quiet"),
        ("unpack", source, tmp_path / "files", "--quiet"),
        ("convert", source, tmp_path / "other.tar", "--quiet"),
    ):
        assert run(*arguments) == (0, ""), arguments
    assert found(folder) == before
    assert sum(path.is_file() for path in (tmp_path / "files").rglob("*")) == 6


def test_packing_there_is_refused_in_one_line(tree: Path, folder: Path) -> None:
    folder.chmod(0o555)
    code, words = run("pack", tree, folder / "out.h5")
    assert code == 1
    assert words.count("\n") == 1
    assert "no permission to write there: choose another place; nothing was made" in words
    assert list(folder.iterdir()) == []


def test_packing_what_may_not_be_read_is_refused_in_one_line(tmp_path: Path, folder: Path) -> None:
    folder.chmod(0)
    for command in (("pack", folder, tmp_path / "out.h5"), ("scan", folder)):
        code, words = run(*command)
        assert code == 2
        assert words.startswith(f"error: {folder}: ")
        assert words.endswith("Permission denied; make it readable (chmod u+rx), as its owner\n")


@pytest.mark.parametrize(
    ("mode", "words"), [(0o555, "may not be written to"), (0, "may not be read")]
)
def test_doctor_sees_what_is_refused(folder: Path, mode: int, words: str) -> None:
    assert f"{folder} may not" not in run("doctor", folder)[1]
    folder.chmod(mode)
    code, told = run("doctor", folder)
    assert code == 0
    assert f"warning: {folder} {words}" in told
    assert f"{folder} may not" not in run("doctor", Path(__file__))[1]


SHARDED = [name for name in WRITERS.names() if WRITERS.load(name).sharded]


@pytest.mark.parametrize("format", SHARDED)
def test_a_shard_that_may_not_be_read_is_named(
    tree: Path, tmp_path: Path, folder: Path, format: str
) -> None:
    out = folder / "out"
    assert run("pack", tree, out, "--format", format, "--shard-samples", 2, "-q") == (0, "")
    first, second, _ = sorted(out.glob(f"*{WRITERS.load(format).suffixes[0]}"))
    second.chmod(0)
    refused = f"{second}: cannot be read: Permission denied"
    for arguments in (
        ("convert", out, tmp_path / "other.tar"),
        ("stats", out, "--quiet"),
        ("unpack", out, tmp_path / "files", "--quiet"),
        ("repair", out, "--from", tree, "--quiet"),
    ):
        assert run(*arguments) == (1, f"error: {refused}\n"), arguments
    for sample in ((), ("--sample", "6")):
        whole = (3, f"bad: {second.name}: unreadable: {refused}\n")
        assert run("verify", out, "--quiet", *sample) == whole
    data = first.read_bytes()
    first.write_bytes(data.replace(b"\x89PNG", b"\x89PMG"))
    code, words = run("verify", out)
    assert code == 3
    assert words.count("corrupt: ") == 2
    assert refused in words
    assert sorted(os.listdir(folder)) == ["out"]


@pytest.mark.parametrize("out", ["out.rec", "out.tfrecord"])
def test_an_index_that_may_not_be_read_is_named(tree: Path, folder: Path, out: str) -> None:
    assert run("pack", tree, folder / out, "-q") == (0, "")
    (index,) = folder.glob("*.idx")
    index.chmod(0)
    refused = f"{index}: cannot be read: Permission denied"
    assert run("verify", folder / out) == (3, f"bad: {index.name}: unreadable: {refused}\n")
    for arguments in (
        ("pack", tree, folder / out, "--overwrite"),
        ("index", folder / out, "--overwrite"),
        ("repair", folder / out, "--from", tree),
    ):
        assert run(*arguments, "--quiet") == (1, f"error: {refused}\n"), arguments
