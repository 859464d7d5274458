"""The JPEG kernel of fastconv: decodes the part of a picture that a crop needs, resized, right into
a batch."""

from fastconv_native._kernel import (
    DAMAGED,
    DONE,
    INTERFACE,
    NO_MEMORY,
    UNABLE,
    about,
    decode,
    headers,
)

__all__ = ["DAMAGED", "DONE", "INTERFACE", "NO_MEMORY", "UNABLE", "about", "decode", "headers"]
