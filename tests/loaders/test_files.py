"""Only regular files are opened: nothing blocks, and what is cut short is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fastconv.loaders.errors import CorruptPackError, NotAPackError, PackError, PackNotFoundError
from fastconv.loaders.files import first_bytes, map_file, read_file
from fastconv.loaders.open import find_format, open_pack
from fastconv.loaders.reader import READERS

pytestmark = pytest.mark.timeout(20)  # opening a pipe would wait for its writer for ever


@pytest.fixture(params=["pipe", "socket"])
def special(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the relative name of a file that is no regular one, in the working directory."""
    monkeypatch.chdir(tmp_path)
    if request.param == "pipe":
        os.mkfifo("special")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("special")
    return "special"


def test_special_files_are_not_read(special: str) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_file(special)
    for get in (map_file, lambda path: first_bytes(path, 4), find_format, open_pack):
        with pytest.raises(PackError, match=r"^special: cannot be read: not a regular file$"):
            get(special)
    for name in READERS.names():
        with pytest.raises((PackError, NotAPackError), match=r"^special: "):
            open_pack(special, name)


@pytest.mark.parametrize(
    ("name", "format"),
    [("data.mdb", "lmdb"), ("x.tar", "webdataset"), ("index.safetensors", "webdataset")],
)
def test_special_files_inside_a_pack(special: str, name: str, format: str) -> None:
    os.mkdir("pack")
    os.rename(special, f"pack/{name}")
    if name == "index.safetensors":
        Path("pack/x.tar").write_bytes(bytes(1024))
    message = f"^pack/{name}: cannot be read: not a regular file$"
    for given in (None, format):
        with pytest.raises(PackError, match=message):
            open_pack("pack", given)


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_bytes(b"12345")
    for name in ("nothing", "link", "file/inside"):
        assert first_bytes(str(tmp_path / name), 4) == b""
        with pytest.raises(PackNotFoundError, match="no such file or folder"):
            find_format(tmp_path / name)
    assert first_bytes(str(tmp_path), 4) == b""
    assert first_bytes(str(tmp_path / "file"), 4) == b"1234"
    assert read_file(str(tmp_path / "file")) == b"12345"
    with pytest.raises(IsADirectoryError):
        read_file(str(tmp_path))


def test_a_mapped_file_that_loses_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10000))
    mapped = map_file(str(path))
    os.truncate(path, 20000)
    mapped.check()
    os.truncate(path, 9999)
    with pytest.raises(CorruptPackError, match="has 9999 bytes, needs 10000"):
        mapped.check()


def test_a_file_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mapped = map_file(str(tmp_path / "file"))
    mapped.check()
    mapped.want(0, 1)
    assert bytes(mapped.view) == b""
