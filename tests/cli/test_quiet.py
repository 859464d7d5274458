"""`-q` is taken by commands that look at something, too: it leaves out notes, not the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastconv.converters import pack


@pytest.mark.parametrize("command", ["info", "ls", "scan", "formats"])
def test_quiet_leaves_the_answer(fastconv: Any, images: Path, tmp_path: Path, command: str) -> None:
    pack(images, tmp_path / "p.tar")
    where = {"scan": [images], "formats": []}.get(command, [tmp_path / "p.tar"])
    done = fastconv(command, *where, "-q")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) > 3


def test_quiet_leaves_out_notes(fastconv: Any, images: Path, tmp_path: Path) -> None:
    pack(images, tmp_path / "p.tar")
    index = tmp_path / "p.tar.index.safetensors"
    index.write_bytes(index.read_bytes()[:-100])
    for command in ("info", "ls"):
        assert "note: the sample table is ignored" in fastconv(command, tmp_path / "p.tar").err
        assert fastconv(command, tmp_path / "p.tar", "--quiet").err == ""
