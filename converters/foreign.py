"""Names what a file is that is no image: an error page saved as a picture, an archive."""

from __future__ import annotations

import re

from fastconv.loaders.compressed import COMPRESSED
from fastconv.loaders.errors import printable

__all__ = ["describe"]

_SIGNATURES = (
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, the picture itself was not downloaded: run `git lfs pull`",
    ),
    (b"%PDF-", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    *((start, f"{name} data") for start, name in COMPRESSED),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"OggS", "an Ogg video or sound"),
    (b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
    (b"\0\0\x01\xba", "an MPEG video"),
    (b"\0\0\x01\xb3", "an MPEG video"),
    (b"ID3", "an MP3 sound"),
    (b"fLaC", "a FLAC sound"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ\x90\0", "a Windows program"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Microsoft Office document"),
    (b"\0\x05\x16\x07", "an AppleDouble file (what macOS keeps beside a file)"),
)
_RIFF = {b"AVI ": "an AVI video", b"WAVE": "a WAVE sound", b"ACON": "an animated cursor"}
_HTML = re.compile(
    rb"(?:<!--.*?-->\s*)*<(?:!doctype html|html|head|body|title|script|p|h1|div)\b", re.I | re.S
)
_SHOWN = 40  # characters of a text that a message shows


def describe(head: bytes) -> str | None:
    """Returns what a file looks like, such as "an HTML page"; None when like nothing known.

    Args:
        head: The first 512 bytes of the file, or all it has.
    """
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            return what
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "a RIFF file")
    if head[4:8] == b"ftyp":
        brand = printable(head[8:12].decode("latin-1"))
        return f"a video or other ISO media file (brand {brand})"
    if head[128:132] == b"DICM":
        return "a DICOM file"
    if head[257:262] == b"ustar":
        return "a tar archive"
    if not head.strip(b"\0"):
        return "zero bytes (a download that was never filled in?)"
    return _describe_text(head)


def _describe_text(head: bytes) -> str | None:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _HTML.match(start):
        return "an HTML page"
    if start.startswith(b"<") and re.search(rb"<svg\b", start):
        return "an SVG drawing"
    if start.startswith(b"<?xml"):
        return "an XML document"
    text = _decoded(head)
    if text is None:
        return None
    shown = printable(" ".join(text.split()))
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "..."
    return f"{'JSON' if start[:1] in (b'{', b'[') else 'text'}: {shown}"


def _decoded(head: bytes) -> str | None:
    """Returns the bytes as text, None when they are none."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return head[: len(head) // 2 * 2].decode("utf-16", "replace")
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # more than the last character, cut in two
            return None
        text = head[: error.start].decode()
    if not text or any(c < " " and c not in "\t\n\r\f\x1b" for c in text):
        return None
    return text
