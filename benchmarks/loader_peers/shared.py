"""What the scripts share: their options, the photos, and torchvision's transforms."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Options",
    "TorchvisionDecode",
    "contents",
    "environments",
    "images",
    "repeated",
    "smaller",
    "transforms",
]

Geometry = Literal["train", "val"]
"""RandomResizedCrop(224) with a flip, or Resize(256) and CenterCrop(224)."""

SIZE = 224
RESIZE = 256


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be loaded, and how.

    Attributes:
        photos: Class folders with nothing but images.
        data: The file or folder of a form other than that; prepared, or fastconv's pack.
        way: Which of its ways a script is to take.
        geometry: What becomes of an image.
        batch: Images in a batch.
        workers: Processes, or threads.
    """

    photos: str
    data: str = ""
    way: str = ""
    geometry: Geometry = "train"
    batch: int = 64
    workers: int = 2

    def to_json(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Returns what `to_json` wrote."""
        return cls(**json.loads(text))


def images(photos: str) -> list[tuple[str, int]]:
    """Returns (path, label) of each image, in ImageFolder's order; there is nothing else."""
    found = []
    for label, name in enumerate(sorted(os.listdir(photos))):
        for place, _, names in sorted(os.walk(os.path.join(photos, name))):
            found += [(os.path.join(place, file), label) for file in sorted(names)]
    return found


def environments(work: Path) -> Path:
    """Returns where the peers' environments are."""
    return work / "loader-peers"


def contents(path: str) -> bytes:
    """Returns what is in a file."""
    with open(path, "rb") as file:
        return file.read()


def smaller(path: str, way: str) -> Any:
    """Returns what is stored of a photo, as a PIL image.

    Args:
        path: The photo.
        way: "small": its shorter side has 256 pixels; "raw": 224 x 224, what is over is cut off;
            anything else: as it is.
    """
    from PIL import Image, ImageOps

    image = Image.open(path).convert("RGB")
    if way == "raw":
        return ImageOps.fit(image, (SIZE, SIZE), Image.Resampling.LANCZOS)
    if way == "small" and min(image.size) > RESIZE:
        short, long = min(image.size), RESIZE * max(image.size) // min(image.size)
        size = (long, RESIZE) if image.height == short else (RESIZE, long)
        return image.resize(size, Image.Resampling.LANCZOS)
    return image


def repeated(loader: Iterable[Any]) -> Iterator[Any]:
    """Yields the batches of one epoch after the other."""
    while True:
        yield from loader


def transforms(geometry: Geometry) -> Callable[[Any], Any]:
    """Returns torchvision's transforms, for PIL images and uint8 tensors alike."""
    from torchvision.transforms import v2

    if geometry == "train":
        crop = v2.RandomResizedCrop(SIZE, antialias=True)
        found = v2.Compose([crop, v2.RandomHorizontalFlip()])
    else:
        found = v2.Compose([v2.Resize(RESIZE, antialias=True), v2.CenterCrop(SIZE)])
    return found  # type: ignore[no-any-return]


class TorchvisionDecode:
    """Bytes of a JPEG -> uint8 tensor (3, 224, 224), by torchvision's own decoder, the faster way.

    Args:
        geometry: What becomes of an image.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self._transforms: Callable[[Any], Any] | None = None

    def __call__(self, data: bytes) -> Any:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        if self._transforms is None:  # in a worker
            torch.set_num_threads(1)  # a DataLoader's worker does so; those of others do not
            self._transforms = transforms(self.geometry)
        stored = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self._transforms(decode_jpeg(stored, mode=ImageReadMode.RGB))
