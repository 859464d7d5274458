"""What a loader of fastconv could reach: its kernel, called by threads on bytes in memory.

There is no loader: no batch is put together, nothing is read, and no thread waits for another.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from fastconv.loaders import native
from fastconv.loaders.decoders import Decoder
from fastconv.loaders.draws import draws
from loader_peers.fastconv_loaders import decoder
from loader_peers.shared import SIZE, Options, contents, images

__all__ = ["IMPORTS", "batches"]

IMPORTS = ("fastconv.loaders.decode", "fastconv.loaders.jpeg", "fastconv.loaders.loader")
MOST = 4096
"""Images that are held in memory."""


def batches(options: Options) -> Iterator[tuple[npt.NDArray[np.uint8], list[int]]]:
    """Yields whenever as many images were decoded as a batch has; each thread makes a part of it.

    Raises:
        RuntimeError: The kernel is not installed.
    """
    if native.kernel() is None:
        raise RuntimeError("fastconv_native is not installed")
    wanted = decoder(options.geometry)
    paths = [path for path, _ in images(options.photos)]
    random.Random(0).shuffle(paths)
    stored = [contents(path) for path in paths[:MOST]]
    numbers = draws(0, 0, np.arange(len(stored)), wanted.draws).tolist()
    done: SimpleQueue[None] = SimpleQueue()
    images_ = np.empty((options.batch, SIZE, SIZE, 3), np.uint8)
    for first in range(options.workers):
        mine = slice(first, None, options.workers)
        threading.Thread(
            target=_decode, args=(stored[mine], numbers[mine], wanted, images_[mine], done),
            daemon=True,
        ).start()  # fmt: skip
    while True:
        for _ in range(options.workers):
            done.get()
        yield images_.transpose(0, 3, 1, 2), [0] * options.batch


def _decode(
    files: Sequence[bytes],
    numbers: Sequence[Sequence[float]],
    wanted: Decoder,
    out: npt.NDArray[np.uint8],
    done: SimpleQueue[None],
) -> None:
    """Decodes for ever, and says so after each part of a batch."""
    places = itertools.cycle(range(len(files)))
    while True:
        part = [next(places) for _ in out]
        native.decode([files[n] for n in part], wanted, [numbers[n] for n in part], out)
        done.put(None)
