"""Small trees, packed in each format with what the documentation says of each layout as the only
knowledge; and other projects' libraries, which `make interop` installs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.converters.indexes.writing import write_indexes

# Hugging Face's libraries ask the network at every turn unless told not to, and TensorFlow talks.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class Sample:
    """What was packed: bytes of the image and of its caption, and its class id."""

    path: str
    image: bytes
    caption: bytes | None
    label: int


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sample]]:
    """Returns a folder of 13 images in two classes, and what is in it, in order."""
    root = tmp_path_factory.mktemp("source") / "tree"
    out = []
    for label, name in enumerate(("cat", "dog")):
        for number in range(6 + label):
            kind = "png" if number % 3 == 2 else "jpg"
            file = root / name / f"{number:02d}.{kind}"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((20 + number, 10), 80).convert("RGB").save(file)
            caption = None if number == 3 else f"{name} número {number}".encode() * (number * 40)
            if caption is not None:
                file.with_suffix(".txt").write_bytes(caption)
            out.append(Sample(f"{name}/{file.name}", file.read_bytes(), caption, label))
    return root, out


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sample]]:
    """Returns a folder of 11 JPEGs of one size in two classes, and what is in it, in order."""
    root = tmp_path_factory.mktemp("source") / "photos"
    out = []
    for label, name in enumerate(("cat", "dog")):
        for number in range(5 + label):
            file = root / name / f"{number:02d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((48, 32), 60).convert("RGB").save(file, quality=95)
            out.append(Sample(f"{name}/{file.name}", file.read_bytes(), None, label))
    return root, out


@pytest.fixture
def packed(samples: tuple[Path, list[Sample]], tmp_path: Path) -> Callable[..., Path]:
    """Returns what packs the first folder, or another one, under a name."""

    def make(
        name: str,
        format: str | None = None,
        shard_samples: int | None = None,
        *,
        source: Path = samples[0],
        sidecars: Sequence[str] = ("txt",),
        options: dict[str, Any] | None = None,
        index_for: Sequence[str] | None = None,
    ) -> Path:
        report = pack(
            source,
            tmp_path / name,
            format=format,
            sidecars=sidecars,
            options=options,
            sharding=Sharding(samples=shard_samples) if shard_samples else None,
        )
        assert report.status == "done"
        if index_for is not None:
            write_indexes(tmp_path / name, index_for)
        return tmp_path / name

    return make


def require(name: str) -> None:
    """Skips a test whose library is missing; where all have to be there, the test fails."""
    if find_spec(name.partition(".")[0]) is None:
        if os.environ.get("FASTCONV_INTEROP") == "1":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"needs {name} (make interop)")


@pytest.fixture
def library() -> Callable[[str], Any]:
    """Returns what imports a module of another project, whatever that module warns of."""

    def load(name: str) -> Any:
        require(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)

    return load


@pytest.fixture
def reader(root: Path) -> Callable[..., Any]:
    """Returns what runs a program of the folder `readers`, for libraries that get on with no other
    in one process; gives what it prints, JSON."""

    def run(name: str, library: str, *arguments: str | Path) -> Any:
        require(library)
        program = root / "tests/interop/readers" / f"{name}.py"
        command = [sys.executable, "-W", "ignore", str(program), *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def tool() -> Callable[..., str]:
    """Returns what runs a command that a library brings, and gives what it prints."""

    def run(name: str, library: str, *arguments: str | Path) -> str:
        require(library)
        command = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    return run
