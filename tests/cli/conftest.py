"""What the tests of the command line share: running it, and a folder of small images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters.cli import main


@dataclass(frozen=True)
class Done:
    """How a command line ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """Returns the one JSON object on stdout."""
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


Run = Callable[..., Done]


@pytest.fixture
def fastconv(capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns what runs a command line in this process."""

    def run(*arguments: str | Path) -> Done:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def fastconv_process() -> Run:
    """Returns what runs a command line in a process of its own, with bytes for its streams."""

    def run(*arguments: str | Path, redirect: str = "", **settings: Any) -> Done:
        command = [sys.executable, "-m", "fastconv", *map(str, arguments)]
        if redirect:  # the shell closes or redirects streams, and becomes the command
            command = ["sh", "-c", f'exec "$0" "$@" {redirect}', *command]
        environment = {**os.environ, **settings.pop("env", {})}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
        done = subprocess.run(
            command, env=environment, check=False, errors="surrogateescape", text=True, **streams
        )
        return Done(done.returncode, done.stdout or "", done.stderr or "")

    return run


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Returns a folder of two classes: cat with three PNGs, dog with two JPEGs."""
    root = tmp_path / "images"
    for name, count, ending in (("cat", 3, "png"), ("dog", 2, "jpg")):
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture = Image.new("RGB", (8 + number, 6), (40 * number, 90, 30))
            picture.save(root / name / f"{number}.{ending}")
    return root
