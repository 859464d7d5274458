"""litdata: chunks of 64 MB, shuffled and decoded by torchvision; of images that were made smaller
first with the way "small", and of pixels with "raw"."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import Any

from loader_peers.shared import (
    SIZE,
    Options,
    TorchvisionDecode,
    contents,
    images,
    repeated,
    smaller,
)

__all__ = ["IMPORTS", "batches", "prepare"]

IMPORTS = ("litdata", "torch", "torchvision.io", "torchvision.transforms.v2")


def sample(way: str, found: tuple[str, int]) -> dict[str, Any]:
    """Returns what is stored of an image."""
    path, label = found
    if way == "raw":
        data = smaller(path, way).tobytes()
    elif way == "small":
        file = io.BytesIO()
        smaller(path, way).save(file, "JPEG", quality=90)
        data = file.getvalue()
    else:
        data = contents(path)
    return {"image": data, "label": label}


def prepare(options: Options) -> None:
    """Writes chunks."""
    import litdata

    litdata.optimize(
        fn=partial(sample, options.way),
        inputs=images(options.photos),
        output_dir=options.data,
        chunk_bytes="64MB",
        num_workers=options.workers,
        verbose=False,
        start_method="fork",
    )


class Decoded:
    """A stored image, decoded."""

    def __init__(self, decode: TorchvisionDecode, raw: bool) -> None:
        self.decode = decode
        self.raw = raw

    def __call__(self, stored: dict[str, Any]) -> tuple[Any, int]:
        data, label = stored["image"], stored["label"]
        if not self.raw:
            return self.decode(data), label
        import torch

        pixels = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return pixels.reshape(SIZE, SIZE, 3).permute(2, 0, 1), label


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    import litdata

    made = Decoded(TorchvisionDecode(options.geometry), options.way == "raw")
    dataset = litdata.StreamingDataset(options.data, shuffle=True, drop_last=True, transform=made)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=options.batch, num_workers=options.workers, drop_last=True
    )
    return repeated(loader)
