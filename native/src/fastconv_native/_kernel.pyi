"""Decodes JPEGs, no more of each than is asked for, resized, into a batch.

The pixels are those of `fastconv.loaders.decode`: libjpeg-turbo's of the whole picture, resized as
torch's antialiased bilinear interpolation of uint8 does it, bit by bit.
"""

from collections.abc import Sequence
from typing import Final

from typing_extensions import Buffer

INTERFACE: Final = 1  # another one whenever what `headers` and `decode` take or give changes
DONE: Final = 0
UNABLE: Final = 1
DAMAGED: Final = 2
NO_MEMORY: Final = 3

def about() -> str:
    """Returns what decodes and resizes, such as "libjpeg-turbo 2.1.5, AVX2": the version that the
    kernel was built for, and which inner loops this processor gets ("AVX2" or "plain C")."""

def use_plain_loops(plain: bool, /) -> None:
    """Says whether to resize without AVX2 from now on, in all threads: for tests, which compare."""

def headers(files: Sequence[Buffer], out: Buffer, /) -> None:
    """Writes what each file says of itself: width, height, components, orientation.

    Args:
        files: The encoded files.
        out: int32 (n, 4), C-contiguous. The width is 0 where a file is none that `decode` can do.
            The orientation is that of EXIF, 1 to 8; 0 where more than a plain EXIF block has a say.

    Raises:
        TypeError: Something is no contiguous buffer, or `out` cannot be written to.
        ValueError: `out` has another size.
    """

def decode(
    files: Sequence[Buffer],
    jobs: Buffer,
    out: Buffer,
    status: Buffer,
    max_pixels: int,
    threads: int,
    /,
) -> None:
    """Decodes a batch. Other Python threads run meanwhile.

    Args:
        files: The encoded files. They must not change, nor files that they are maps of be cut
            short.
        jobs: int32 (n, 12), C-contiguous: x, y, width, height (the part of the upright picture that
            is resized), rows, columns (to what), top, left (where the window begins in that),
            out_rows, out_columns (its size), flip, orientation (1 to 8). Where the window lies
            outside, it is black.
        out: uint8 (n, out_rows, out_columns, channels), of any strides; 3 channels (RGB) or 1.
        status: uint8 (n,): DONE; UNABLE for what is no JPEG of a kind that can be done, has too
            many pixels, or a job that makes no sense; DAMAGED where libjpeg-turbo has a complaint;
            or NO_MEMORY. In the place of an image that is not DONE anything may be.
        max_pixels: Of a stored picture; 0 sets no limit.
        threads: How many to use, 1 for this one alone.

    Raises:
        TypeError: Something is no buffer, not contiguous (`out` need not be), or cannot be written
            to.
        ValueError: One of the sizes does not fit the others.
    """
