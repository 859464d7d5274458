"""What is tracked makes sense on any machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PRIVATE = re.compile(rb"(?<![\w.~-])/(?:work|root|farm|home|Users)/[\w.-]+")
"""A path of the machine on which a line was written."""


def tracked(root: Path) -> list[Path]:
    """Returns the files that are tracked, or would be."""
    if not shutil.which("git") or not (root / ".git").exists():
        pytest.skip("no git checkout")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return [root / name for name in done.stdout.split("\0") if name]


def test_no_file_names_a_path_of_the_machine_it_was_written_on(root: Path) -> None:
    found = [
        f"{path.relative_to(root)}: {match[0].decode()}"
        for path in tracked(root)
        if path.is_file()
        for match in PRIVATE.finditer(path.read_bytes())
    ]
    assert found == []


def test_sources_are_text_that_every_tool_reads(root: Path) -> None:
    for path in tracked(root):
        if path.suffix in {".py", ".toml", ".md", ".txt"} and path.is_file():
            data = path.read_bytes()
            data.decode("utf-8")
            assert b"\r" not in data, path
            assert not data or data.endswith(b"\n"), path
