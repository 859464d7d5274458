"""Two sources of the same images: a folder, and a pack of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastconv.converters import pack

COUNT = 24


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of two classes of small JPEGs."""
    root = tmp_path_factory.mktemp("measured") / "photos"
    random = np.random.default_rng(0)
    for number in range(COUNT):
        folder = root / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.jpg", quality=90)
    return root


@pytest.fixture(scope="session")
def one_pack(photos: Path) -> Path:
    """Returns a pack of them."""
    out = photos.parent / "one.lmdb"
    pack(photos, out, workers=1)
    return out


@pytest.fixture(scope="session", params=["lmdb", "h5", "tar"])
def packed(request: pytest.FixtureRequest, photos: Path) -> Path:
    """Returns a pack of them, in each format."""
    out = photos.parent / f"photos.{request.param}"
    pack(photos, out, workers=1)
    return out
