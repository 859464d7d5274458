"""Hugging Face datasets: an Arrow file with the files' bytes, decoded by torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loader_peers.shared import Options, TorchvisionDecode, contents, images, repeated

__all__ = ["IMPORTS", "batches", "prepare"]

IMPORTS = ("datasets", "torch.utils.data", "torchvision.io", "torchvision.transforms.v2")


def prepare(options: Options) -> None:
    """Writes a dataset that holds the bytes."""
    import datasets

    def rows() -> Iterator[dict[str, Any]]:
        for path, label in images(options.photos):
            yield {"image": {"bytes": contents(path), "path": path}, "label": label}

    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    cache = f"{options.data}.cache"
    made = datasets.Dataset.from_generator(rows, features=features, cache_dir=cache)
    made.save_to_disk(options.data)


class Decoded:
    """A batch of rows, with the images decoded."""

    def __init__(self, decode: TorchvisionDecode) -> None:
        self.decode = decode

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made = [self.decode(image["bytes"]) for image in rows["image"]]
        return {"image": made, "label": rows["label"]}


def collated(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Returns rows as a batch."""
    import torch

    return torch.stack([row["image"] for row in rows]), torch.tensor([row["label"] for row in rows])


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    import datasets
    from torch.utils.data import DataLoader

    stored = datasets.load_from_disk(options.data)
    stored = stored.cast_column("image", datasets.Image(decode=False))
    loader = DataLoader(
        stored.with_transform(Decoded(TorchvisionDecode(options.geometry))),
        options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        collate_fn=collated,
    )
    return repeated(loader)
