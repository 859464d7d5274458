"""Refuses compressed files: a sample is read where it lies, and in them none lies as it is."""

from __future__ import annotations

from typing import Final

from fastconv.loaders.errors import NotAPackError, printable

__all__ = ["COMPRESSED", "compressed_with", "refuse_compressed"]

COMPRESSED: Final = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\x04\x22\x4d\x18", "LZ4"),
)
"""How files begin, and what they are compressed with."""

_TOOLS: Final = {"Zstandard": "zstd -dc", "LZ4": "lz4 -dc", "zlib": "zlib-flate -uncompress"}


def compressed_with(file: str, name: str) -> NotAPackError:
    """Returns what to raise of a file.

    Args:
        file: Where it lies.
        name: What it is compressed with.
    """
    tool = _TOOLS.get(name, f"{name} -dc")
    return NotAPackError(
        f"{printable(file)}: {name}-compressed, so that no sample can be read by itself: "
        f"decompress it first ({tool} < FILE > OTHER)"
    )


def refuse_compressed(file: str, start: bytes | memoryview) -> None:
    """Refuses a file that is compressed; call it for one that does not begin as it should.

    Args:
        file: Where it lies.
        start: Its first bytes.

    Raises:
        NotAPackError: It is.
    """
    for signature, name in COMPRESSED:
        if start[: len(signature)] == signature:
            raise compressed_with(file, name)
