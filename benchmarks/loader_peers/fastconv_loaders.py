"""fastconv's FastLoader, and PyTorch's DataLoader with a Dataset of fastconv."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

from fastconv.loaders import CenterCrop, RandomResizedCrop, make_loader, open_dataset
from fastconv.loaders.decoders import Decoder
from loader_peers.shared import RESIZE, SIZE, Geometry, Options, repeated

__all__ = ["IMPORTS", "batches", "decoder"]

IMPORTS = ("fastconv.loaders.decode", "fastconv.loaders.jpeg", "fastconv.loaders.loader")


def decoder(geometry: Geometry) -> Decoder:
    """Returns what makes of an image what the others make of it."""
    if geometry == "train":
        return RandomResizedCrop(SIZE, flip=0.5)
    return CenterCrop(SIZE, resize=RESIZE)


def batches(options: Options) -> Iterator[Any]:
    """Yields batches; the ways are "threads" and "processes", "python": threads without the kernel,
    and "stored": threads, with images that have the size already."""
    if options.way == "python":
        os.environ["FASTCONV_NATIVE"] = "0"
    kind: Literal["threads", "processes"] = "processes" if options.way == "processes" else "threads"
    decode = CenterCrop(SIZE) if options.way == "stored" else decoder(options.geometry)
    loader = make_loader(
        open_dataset(options.data or options.photos, decode=decode),
        options.batch,
        kind=kind,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
    )
    return repeated(loader)
