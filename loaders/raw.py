"""Raw samples: images that are stored as their pixels, which nothing has to decode.

The bytes are uint8 (rows, columns, channels) in C order, without any header: rows and columns are
the height and width of the sample table, and their number tells the channels: 1 (grey), 3 (RGB) or
4 (RGBA).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.table import SampleTable

__all__ = ["CHANNELS", "RAW", "Pixels", "Shape", "common_shape", "is_shape", "shape_of"]

Pixels = npt.NDArray[np.uint8]

Shape = tuple[int, int, int]
"""Rows, columns and channels."""

RAW: Final = kind_code("raw")
"""The code of raw samples in the sample table."""

CHANNELS: Final = (1, 3, 4)
"""How many a raw sample may have."""


def shape_of(width: int, height: int, size: int) -> Shape:
    """Returns the shape of a raw sample.

    Args:
        width, height: In pixels, as the table says.
        size: In bytes.

    Raises:
        SampleError: The bytes are not those of such a picture.
    """
    if not is_shape(width, height, size):
        raise SampleError(
            f"its {size} bytes are no raw pixels of {width}x{height} in 1, 3 or 4 channels: the "
            "pack was made or changed wrongly, make it again",
            "bad_record",
        )
    return height, width, size // (width * height)


def is_shape(width: int, height: int, size: int) -> bool:
    """Returns whether so many bytes are the pixels of a raw sample."""
    return width * height > 0 and size in (width * height * channels for channels in CHANNELS)


def common_shape(table: SampleTable) -> Shape | None:
    """Returns the shape of all images of a table; None where they are not all raw and of one."""
    columns = table.kind, table.width, table.height, table.size[0]
    if not len(table) or columns[0][0] != RAW:
        return None
    if any(bool((column != column[0]).any()) for column in columns):
        return None
    width, height, size = (int(column[0]) for column in columns[1:])
    return shape_of(width, height, size) if is_shape(width, height, size) else None
