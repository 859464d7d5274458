"""A small folder of images, and what runs an example as one does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from fastconv.converters import pack

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
}
COUNT = 30
"""Images, each of a class of its own: its label says which one it is."""


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of images."""
    folder = tmp_path_factory.mktemp("examples") / "images"
    for number in range(COUNT):
        file = folder / f"class{number:02}" / "a.png"
        file.parent.mkdir(parents=True)
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), np.uint8)
        Image.fromarray(pixels).save(file)
    return folder


@pytest.fixture(scope="session")
def packed(images: Path) -> Path:
    """Returns a pack of it."""
    out = images.with_name("images.lmdb")
    pack(images, out)
    return out


@pytest.fixture
def run(root: Path) -> Callable[..., str]:
    """Returns what runs a Python program, and gives what it prints; `code` is how it has to end.

    Threads of gloo can be at their last work when Python is taken down, which aborts the process
    after all is done (https://github.com/pytorch/pytorch/pull/179291; seen about once in fifty runs
    of a loop of torch alone). A program that such an end befell is run again.
    """

    def once(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(root / "src")},
            check=False,
            capture_output=True,
            encoding="utf-8",
        )

    def call(*command: str | Path, code: int = 0) -> str:
        words = [sys.executable, *map(str, command)]
        done = once(words)
        if done.returncode and "terminate called without an active exception" in done.stderr:
            done = once(words)
        assert done.returncode == code, done.stderr
        return done.stdout

    return call


@pytest.fixture
def example(root: Path) -> Callable[[str], ModuleType]:
    """Returns what gives an example as a module."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, root / "examples" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def require() -> Callable[..., None]:
    """Returns what skips a test whose packages are missing; where all have to be there, the test
    fails."""

    def check(*names: str) -> None:
        missing = [name for name in names if find_spec(name) is None]
        if missing and os.environ.get("FASTCONV_EXAMPLES") == "1":
            pytest.fail(f"not installed: {', '.join(missing)}")
        if missing:
            pytest.skip(f"needs {', '.join(missing)} (the dependency group examples)")

    return check
