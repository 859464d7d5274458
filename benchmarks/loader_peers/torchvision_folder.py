"""torchvision's ImageFolder, opened by Pillow as it does by itself, or decoded to tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loader_peers.shared import Options, repeated, transforms

__all__ = ["IMPORTS", "batches"]

IMPORTS = (
    "torch.utils.data",
    "torchvision.datasets",
    "torchvision.io",
    "torchvision.transforms.v2",
)


def tensor(path: str) -> Any:
    """Returns a file decoded by torchvision."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def batches(options: Options) -> Iterator[Any]:
    """Yields batches; the ways are "pillow" and "tensors"."""
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    made = transforms(options.geometry)
    if options.way == "pillow":
        dataset = ImageFolder(options.photos, v2.Compose([made, v2.PILToTensor()]))
    else:
        dataset = ImageFolder(options.photos, made, loader=tensor)
    loader = DataLoader(
        dataset, options.batch, shuffle=True, drop_last=True, num_workers=options.workers
    )
    return repeated(loader)
