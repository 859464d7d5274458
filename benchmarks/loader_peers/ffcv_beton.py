"""FFCV: it does not keep the files, but encodes every image anew, as a JPEG of quality 90; smaller
with the way "small", and as pixels with "raw"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loader_peers.shared import RESIZE, SIZE, Options, images, repeated, smaller

__all__ = ["IMPORTS", "batches", "prepare"]

IMPORTS = ("ffcv.fields", "ffcv.fields.decoders", "ffcv.loader", "ffcv.transforms", "torch")


class Photos:
    """The photos, as its writer wants them."""

    def __init__(self, options: Options) -> None:
        self.found, self.way = images(options.photos), options.way

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path, label = self.found[number]
        return smaller(path, self.way), label


def prepare(options: Options) -> None:
    """Writes its file."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    mode = "raw" if options.way == "raw" else "jpg"
    fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(options.data, fields, num_workers=options.workers)
    writer.from_indexed_dataset(Photos(options), chunksize=100)


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import (
        CenterCropRGBImageDecoder,
        RandomResizedCropRGBImageDecoder,
        SimpleRGBImageDecoder,
    )
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    if options.way == "raw":
        steps = [SimpleRGBImageDecoder()]
    elif options.geometry == "train":
        steps = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()]
    else:
        steps = [CenterCropRGBImageDecoder((SIZE, SIZE), ratio=SIZE / RESIZE)]
    pipelines = {
        "image": [*steps, ToTensor(), ToTorchImage()],
        "label": [IntDecoder(), ToTensor(), Squeeze()],
    }
    loader = Loader(
        options.data,
        batch_size=options.batch,
        num_workers=options.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines=pipelines,
    )
    return repeated(loader)
