"""NVIDIA DALI on the CPU: the raw files, decoded and resized by threads; the crop is fused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loader_peers.shared import RESIZE, SIZE, Options

__all__ = ["IMPORTS", "batches"]

IMPORTS = ("nvidia.dali", "torch")


def batches(options: Options) -> Iterator[Any]:
    """Yields batches."""
    import torch
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=options.batch,
        num_threads=options.workers,
        device_id=None,
        prefetch_queue_depth=2,
        seed=0,
    )
    def graph() -> tuple[Any, Any]:
        stored, labels = fn.readers.file(
            file_root=options.photos, random_shuffle=True, initial_fill=1024
        )
        if options.geometry == "train":
            images = fn.decoders.image_random_crop(
                stored,
                device="cpu",
                output_type=types.RGB,
                random_aspect_ratio=[3 / 4, 4 / 3],
                random_area=[0.08, 1.0],
            )
            images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR)
            mirror = fn.random.coin_flip()
        else:
            images = fn.decoders.image(stored, device="cpu", output_type=types.RGB)
            images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_LINEAR)
            mirror = 0
        images = fn.crop_mirror_normalize(
            images,
            crop=(SIZE, SIZE),
            mirror=mirror,
            dtype=types.UINT8,
            output_layout="CHW",
            mean=[0.0],
            std=[1.0],
        )
        return images, labels

    pipeline = graph()
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield torch.from_numpy(images.as_array()), torch.from_numpy(labels.as_array())
