"""What the tests of several folders and files share: packs of every format, with captions where it
holds them, and a JPEG."""

from __future__ import annotations

import base64
import sys

import pytest

from fastconv.converters.outputs import choose_writer
from fastconv.converters.writer import WRITERS

__all__ = ["ARITHMETIC", "OUTS", "captions", "measures_on_linux", "needs_captions"]

measures_on_linux = pytest.mark.skipif(
    sys.platform != "linux",
    reason="benchmarks read /proc and empty the page cache",
)

OUTS = [f"out{WRITERS.load(name).suffixes[0]}" for name in WRITERS.names()]
"""A name for a pack of each format that tells it: one file, or the folder of a database."""

ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAKBueIx4ZKCMgoy0qqC+8P//8Nzc8P//////////////////////////"
    "////////////////////////////////yQALCAAoADABAREA/8wABgAQEAX/2gAIAQEAAD8A+73LLrRajPLmuyDm"
    "8WgROZPrlv8AzoFNqGOrL6h6ZN5wihZven2g6PUd5RYOKK5rQfcbVqZ0lpEd6Maw4J45BzVS+7F2C5UtpbVgszp6"
    "9pSJJjLkqQBNhXhnzDv948/gWMUTRdCeuCKHlsyLRIkhEZbWlhYb/f5mDT+nUmknCFp1Z3fJkFT/2Q=="
)
"""A grey JPEG with arithmetic coding, which Pillow does not write."""


def captions(out: str = "", format: str | None = None) -> tuple[str, ...]:
    """Returns the sidecars that a pack is given: "txt", or none where its format holds images
    alone.

    Args:
        out: Name of the pack, whose ending tells the format.
        format: Name of the format, where it does not.
    """
    return ("txt",) if choose_writer(out, format).sidecars else ()


def needs_captions(out: str = "", format: str | None = None) -> None:
    """Skips a test whose subject are sidecars, where a pack's format holds images alone."""
    if not captions(out, format):
        pytest.skip("holds no sidecars")
