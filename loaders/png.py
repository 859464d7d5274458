"""The chunks of a PNG file: length (4 bytes), name (4), contents, checksum (4)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["ANIMATION", "SIGNATURE", "TEXTS", "chunks", "is_animated", "without"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ANIMATION = frozenset((b"acTL", b"fcTL", b"fdAT"))
TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt", b"iCCP"))  # what decoders unpack beside the pixels

_HEADER = struct.Struct(">I4s")


def chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yields name, start and end of each chunk; the end of the last may lie outside the data."""
    place = len(SIGNATURE)
    while place + _HEADER.size <= len(data):
        length, name = _HEADER.unpack_from(data, place)
        end = place + _HEADER.size + length + 4
        yield name, place, end
        place = end


def is_animated(data: memoryview) -> bool:
    """Tells whether the file has more frames than the picture that every decoder shows."""
    for name, _, _ in chunks(data):
        if name in (b"acTL", b"IDAT"):
            return name == b"acTL"
    return False


def without(data: memoryview, names: frozenset[bytes]) -> bytes:
    """Returns a copy of the file without the chunks of these names."""
    kept = (data[start:end] for name, start, end in chunks(data) if name not in names)
    return b"".join((data[: len(SIGNATURE)], *kept))
