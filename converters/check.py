"""The thorough check of an image: every pixel is decoded.

A picture whose header is fine may still hold damaged pixels, which opening it does not show.
"""

from __future__ import annotations

from typing import cast

from fastconv.converters.sniff import BadImage, sniff
from fastconv.loaders.errors import SampleError
from fastconv.loaders.sample import Reason

__all__ = ["MAX_PIXELS", "check_pixels"]

MAX_PIXELS = 178_956_970
"""The default limit of pixels in one picture, the one at which Pillow refuses to decode."""


def check_pixels(data: memoryview | bytes, kind: str, max_pixels: int = MAX_PIXELS) -> None:
    """Decodes every pixel of the first picture, and forgets them.

    Nothing of Pillow or of the process is changed, and no memory is made for a picture over
    the limit. What the decoder takes without complaint counts as whole: most JPEGs whose pixel data
    were overwritten do.

    Args:
        data: The whole file.
        kind: What `sniff` said it is.
        max_pixels: The most pixels (width times height) that a picture may have.

    Raises:
        BadImage: `truncated`, `corrupt`, `unsupported_format` (the message names the format and
            the package that would bring it), or `too_large` (the message has WIDTHxHEIGHT).
    """
    from fastconv.loaders import pillow

    view = memoryview(data)
    _, width, height = sniff(view, len(view))
    if width * height > max_pixels:  # asked here too, as some decoders make their memory early
        limit = f"{width}x{height} is more than the limit of {max_pixels} pixels"
        raise BadImage("too_large", limit)
    try:
        pillow.load_image(view, kind, max_pixels)
    except SampleError as error:
        raise BadImage(cast(Reason, error.reason), str(error)) from error
