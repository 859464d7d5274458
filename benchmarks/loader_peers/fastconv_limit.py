"""What a loader of fastconv could reach: its decoder, called by threads on bytes in memory.

There is no loader: no batch is put together, nothing is read, and no thread waits for another.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from fastconv.loaders.decode import decode_with
from fastconv.loaders.decoders import Decoder
from fastconv.loaders.draws import draws
from loader_peers.fastconv_loaders import decoder
from loader_peers.shared import SIZE, Options, contents, images

__all__ = ["IMPORTS", "batches"]

IMPORTS = ("fastconv.loaders.decode", "fastconv.loaders.jpeg", "fastconv.loaders.loader")
MOST = 4096
"""Images that are held in memory."""

Sample = tuple[bytes, list[float]]


def batches(options: Options) -> Iterator[tuple[npt.NDArray[np.uint8], list[int]]]:
    """Yields whenever as many images were decoded as a batch has; each thread has one place."""
    wanted = decoder(options.geometry)
    paths = [path for path, _ in images(options.photos)]
    random.Random(0).shuffle(paths)
    stored = [contents(path) for path in paths[:MOST]]
    numbers = draws(0, 0, np.arange(len(stored)), wanted.draws).tolist()
    samples = list(zip(stored, numbers, strict=True))
    done: SimpleQueue[None] = SimpleQueue()
    part = options.batch // options.workers
    images_ = np.empty((options.batch, SIZE, SIZE, 3), np.uint8)
    for number in range(options.workers):
        mine = samples[number :: options.workers]
        place = images_[number * part]
        threading.Thread(
            target=_decode, args=(mine, wanted, place, part, done), daemon=True
        ).start()
    while True:
        for _ in range(options.workers):
            done.get()
        yield images_.transpose(0, 3, 1, 2), [0] * options.batch


def _decode(
    samples: Sequence[Sample],
    wanted: Decoder,
    place: npt.NDArray[np.uint8],
    part: int,
    done: SimpleQueue[None],
) -> None:
    """Decodes for ever, and says so after each part of a batch."""
    left = part
    while True:
        for data, draw in samples:
            decode_with(data, wanted, draw, place)
            left -= 1
            if not left:
                done.put(None)
                left = part
