"""Takes the statistics of one part: what its images are, and how often each value is in their
pixels.

Run by worker processes. Whatever is counted is counted in integers, so that it does not matter who
counts what, or in which order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.part import (
    HEAD,
    SOURCES,
    Bad,
    FolderSource,
    PartSource,
    ReaderSource,
    Results,
    read_part,
)
from fastconv.converters.sniff import BadImage, sniff
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.raw import RAW, shape_of
from fastconv.loaders.sample import Reason

__all__ = ["count_levels", "stats_part"]

STRIP = 1 << 20
"""Pixels that are counted at once: a very large picture is not copied as a whole."""


def stats_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Looks at the images of a part; returns what was found.

    Args:
        task: `source` and what goes with it, `first_row`, `fields` and `samples`, as
            `fastconv.converters.part.pack_part` takes them; `pixels` (False: no more of each image
            is read than tells what it is).
        arrays: The columns of the part and of its source.

    Returns:
        `bad`: (row, slot, reason, message). The arrays are `kind`, `width` and `height` of each
        image, and with `pixels` their `checksum`, and `levels`, int64 (768,): how many pixels of
        all images that are not bad have each value in each channel, red first.
    """
    part = read_part(arrays, task)
    results = Results(part)
    levels = np.zeros((3, 256), np.int64)
    known = arrays.get("known/image")
    source = SOURCES[task["source"]](task, arrays, part)
    try:
        sizes = part.size[0].tolist()
        buffer = memoryview(bytearray(max(sizes, default=0)))
        for row, size in enumerate(sizes):
            try:
                if not task["pixels"]:
                    look_at_head(row, size, source, buffer, results)
                    continue
                source.fill(row, 0, buffer[:size])
                checksum = results.checksum[0][row] = xxhash.xxh3_64_intdigest(buffer[:size])
                if known is not None and int(known[row]) not in (0, checksum):  # 0 is unknown
                    raise Bad("corrupt", "the checksum differs: the bytes are damaged")
                look_at_pixels(row, buffer[:size], results, levels)
            except (Bad, BadImage) as error:
                results.bad.append((row, 0, error.reason, error.message))
        source.judge(results)
    finally:
        source.close()
    found: dict[str, Array] = {name: getattr(results, name) for name in ("kind", "width", "height")}
    if task["pixels"]:
        found |= {"checksum": results.checksum[0], "levels": levels.reshape(-1)}
    return {"bad": results.bad}, found


def look_at_pixels(
    row: int, data: memoryview, results: Results, levels: npt.NDArray[np.int64]
) -> None:
    """Notes what an image is, and counts the values of its pixels.

    Raises:
        BadImage: It cannot be decoded.
    """
    from fastconv.loaders.decode import decode_numpy

    note(row, data, len(data), results)
    try:
        if results.kind[row] == RAW:
            shape = shape_of(int(results.width[row]), int(results.height[row]), len(data))
            pixels = decode_numpy(np.frombuffer(data, np.uint8).reshape(shape))
        else:
            pixels = decode_numpy(data)
    except SampleError as error:
        raise BadImage(cast(Reason, error.reason), str(error)) from error
    if not results.width[row]:  # its header does not tell
        results.height[row], results.width[row] = pixels.shape[:2]
    count_levels(pixels, levels)


def look_at_head(
    row: int, size: int, source: PartSource, buffer: memoryview, results: Results
) -> None:
    """Notes what an image is: a little of it is read, and where that does not tell, all.

    Raises:
        Bad, BadImage: It cannot be read, or is none.
    """
    for part in sorted({min(size, HEAD), size}):
        view = buffer[:part]
        if isinstance(source, FolderSource):
            view = source.head(row, 0, size, view)
        elif part == size or not isinstance(source, ReaderSource):  # a reader gives all or nothing
            source.fill(row, 0, view)
        else:
            continue
        try:
            note(row, view, size, results)
        except BadImage:
            if part == size:
                raise
            continue
        if results.width[row]:
            return


def note(row: int, data: memoryview, size: int, results: Results) -> None:
    """Notes what an image is, as its bytes tell; `data` may be only the beginning of it.

    Raises:
        BadImage: It is none.
    """
    if results.kind[row] == RAW:  # which has no header
        return
    kind, results.width[row], results.height[row] = sniff(data, size)
    results.kind[row] = kind_code(kind)


def count_levels(pixels: npt.NDArray[np.uint8], levels: npt.NDArray[np.int64]) -> None:
    """Counts how many pixels have each value in each channel.

    Args:
        pixels: uint8 (rows, columns, 3).
        levels: Where that is added, int64 (3, 256).
    """
    from PIL import Image

    rows = max(1, STRIP // pixels.shape[1])
    for top in range(0, pixels.shape[0], rows):
        # The fastest way to count that was found: half the time of numpy's `bincount`.
        strip = Image.fromarray(pixels[top : top + rows])
        levels += np.reshape(strip.histogram(), (3, 256))
