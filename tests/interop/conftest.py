"""A small tree, packed in each format with what the README says of each layout as the only
knowledge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from fastconv.converters import Sharding, pack


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


@pytest.fixture
def packed(samples: tuple[Path, list[Sample]], tmp_path: Path) -> Callable[..., Path]:
    """Returns what packs the folder under a name."""

    def make(name: str, format: str | None = None, shard_samples: int | None = None) -> Path:
        sharding = Sharding(samples=shard_samples) if shard_samples else None
        report = pack(
            samples[0], tmp_path / name, format=format, sidecars=("txt",), sharding=sharding
        )
        assert report.status == "done"
        return tmp_path / name

    return make
