"""What torchvision.datasets.ImageFolder with its transforms does, without torchvision.

The images are opened by Pillow, cropped, resized and flipped by Pillow as torchvision's functions
for PIL images call it, with random numbers drawn as torchvision draws them, and made tensors as by
`v2.PILToTensor`. Where torchvision is installed, `torchvision_folder` tells whether it is so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from fastconv.loaders import ImageFolderDataset
from loader_peers.shared import RESIZE, SIZE, Options, repeated

__all__ = ["IMPORTS", "batches"]

IMPORTS = ("fastconv.loaders.datasets", "fastconv.loaders.pillow")
BILINEAR = Image.Resampling.BILINEAR


def train(image: Image.Image) -> torch.Tensor:
    """Returns what RandomResizedCrop and RandomHorizontalFlip make of an image."""
    left, top, width, height = crop(*image.size)
    image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), BILINEAR)
    if torch.rand(1) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return tensor(image)


def crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Returns left, top, width and height, as torchvision draws them."""
    shapes = torch.log(torch.tensor((3 / 4, 4 / 3)))
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = torch.exp(torch.empty(1).uniform_(shapes[0].item(), shapes[1].item())).item()
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(torch.randint(0, height - h + 1, (1,)).item())
            left = int(torch.randint(0, width - w + 1, (1,)).item())
            return left, top, w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width / (3 / 4)))
    return (width - w) // 2, (height - h) // 2, w, h


def val(image: Image.Image) -> torch.Tensor:
    """Returns what Resize and CenterCrop make of an image."""
    width, height = image.size
    short, long = RESIZE, RESIZE * max(width, height) // min(width, height)
    width, height = (short, long) if width <= height else (long, short)
    image = image.resize((width, height), BILINEAR)
    left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
    return tensor(image.crop((left, top, left + SIZE, top + SIZE)))


def tensor(image: Image.Image) -> torch.Tensor:
    """Returns an image as a uint8 tensor, as `v2.PILToTensor` does."""
    return torch.as_tensor(np.array(image, copy=True)).permute(2, 0, 1)


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    loader = DataLoader(
        ImageFolderDataset(options.photos, train if options.geometry == "train" else val),
        options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
    )
    return repeated(loader)
