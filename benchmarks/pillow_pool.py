"""What one would write without fastconv to make a folder of images smaller: a pool of processes.

    pillow_pool.py PHOTOS OUT PROCESSES

Each image is opened by Pillow, its shorter side resized to 256 (Lanczos) where it is longer, and
saved as a JPEG of quality 90 under the same path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from PIL import Image

__all__ = ["QUALITY", "SIDE", "main", "shorter"]

SIDE = 256
QUALITY = 90


def shorter(width: int, height: int) -> tuple[int, int]:
    """Returns the size that a picture is resized to, as torchvision rounds it."""
    if min(width, height) <= SIDE:
        return width, height
    other = SIDE * max(width, height) // min(width, height)
    return (other, SIDE) if width >= height else (SIDE, other)


def make(photos: Path, out: Path, name: str) -> None:
    """Makes one image smaller."""
    with Image.open(photos / name) as file:
        image = file.convert("RGB")
    size = shorter(*image.size)
    if size != image.size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    image.save((out / name).with_suffix(".jpg"), "JPEG", quality=QUALITY)


def main(argv: Sequence[str]) -> None:
    """Makes all of them smaller."""
    photos, out, processes = Path(argv[0]), Path(argv[1]), int(argv[2])
    names = [str(path.relative_to(photos)) for path in sorted(photos.rglob("*")) if path.is_file()]
    for folder in sorted({os.path.dirname(name) for name in names}):
        (out / folder).mkdir(parents=True, exist_ok=True)
    with Pool(processes) as pool:
        for _ in pool.imap_unordered(partial(make, photos, out), names, chunksize=32):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
