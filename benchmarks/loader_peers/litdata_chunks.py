"""litdata: chunks of 64 MB, shuffled and decoded by torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loader_peers.shared import Options, TorchvisionDecode, contents, images, repeated

__all__ = ["IMPORTS", "batches", "prepare"]

IMPORTS = ("litdata", "torch", "torchvision.io", "torchvision.transforms.v2")


def sample(found: tuple[str, int]) -> dict[str, Any]:
    """Returns what is stored of an image."""
    path, label = found
    return {"image": contents(path), "label": label}


def prepare(options: Options) -> None:
    """Writes chunks."""
    import litdata

    litdata.optimize(
        fn=sample,
        inputs=images(options.photos),
        output_dir=options.data,
        chunk_bytes="64MB",
        num_workers=options.workers,
        verbose=False,
        start_method="fork",
    )


class Decoded:
    """A stored image, decoded."""

    def __init__(self, decode: TorchvisionDecode) -> None:
        self.decode = decode

    def __call__(self, stored: dict[str, Any]) -> tuple[Any, int]:
        return self.decode(stored["image"]), stored["label"]


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    import litdata

    made = Decoded(TorchvisionDecode(options.geometry))
    dataset = litdata.StreamingDataset(options.data, shuffle=True, drop_last=True, transform=made)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=options.batch, num_workers=options.workers, drop_last=True
    )
    return repeated(loader)
