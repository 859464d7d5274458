"""webdataset: shards of 64 MB by ShardWriter, read with a buffer that shuffles 1,000 samples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from loader_peers.shared import Options, TorchvisionDecode, contents, images, repeated

__all__ = ["IMPORTS", "batches", "prepare"]

IMPORTS = ("torch", "torchvision.io", "torchvision.transforms.v2", "webdataset")


def prepare(options: Options) -> None:
    """Writes shards."""
    import webdataset

    os.mkdir(options.data)
    pattern = os.path.join(options.data, "%04d.tar")
    with webdataset.ShardWriter(pattern, maxsize=64e6, verbose=0) as sink:
        for number, (path, label) in enumerate(images(options.photos)):
            sink.write({"__key__": f"{number:08d}", "jpg": contents(path), "cls": label})


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    import webdataset

    shards = sorted(os.path.join(options.data, name) for name in os.listdir(options.data))
    dataset = (
        webdataset.WebDataset(shards, shardshuffle=100)
        .shuffle(1000)
        .to_tuple("jpg", "cls")
        .map_tuple(TorchvisionDecode(options.geometry), int)
        .batched(options.batch, partial=False)
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=options.workers)
    return repeated(loader)
