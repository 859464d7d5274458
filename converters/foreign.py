"""Names what a file is that is no image: an error page saved as a picture, a pointer, an archive."""

from __future__ import annotations

import re

from fastconv.loaders.errors import printable

__all__ = ["describe"]

_LFS = b"version https://git-lfs.github.com/spec/"

_SIGNATURES = (
    (b"%PDF-", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
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
)  # fmt: skip
_RIFF = {b"AVI ": "an AVI video", b"WAVE": "a WAVE sound", b"ACON": "an animated cursor"}
_MARKUP = re.compile(rb"\s*(?:<!--.*?-->\s*)*<(!doctype html|html|head|body|title|script|p|h1|div)\b", re.I | re.S)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SHOWN = 40  # characters of a text that a message shows


def describe(head: bytes) -> str | None:
    """Returns what the first bytes of a file look like, "an HTML page" for one; None when they look like nothing known.

    Args:
        head: The first bytes, 512 of them where the file has as many.
    """
    if head.startswith(_LFS):
        return "a Git LFS pointer, the picture itself was not downloaded: run `git lfs pull`"
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            return what
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "a RIFF file")
    if head[4:8] == b"ftyp":
        return f"a video or other ISO media file (brand {printable(head[8:12].decode('latin-1'))})"
    if head[128:132] == b"DICM":
        return "a DICOM file"
    if head[257:262] == b"ustar":
        return "a tar archive"
    if not head.strip(b"\0"):
        return "zero bytes (a download that was never filled in?)"
    return _describe_text(head)


def _describe_text(head: bytes) -> str | None:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _MARKUP.match(start):
        return "an HTML page"
    if re.search(rb"<svg\b", start) and start.startswith(b"<"):
        return "an SVG drawing"
    if start.startswith(b"<?xml"):
        return "an XML document"
    text = _decoded(head)
    if text is None:
        return None
    shown = printable(" ".join(text.split()))
    kind = "JSON" if start[:1] in (b"{", b"[") else "text"
    return f"{kind}: {shown[:_SHOWN]}{'...' if len(shown) > _SHOWN else ''}"


def _decoded(head: bytes) -> str | None:
    """Returns the bytes as text, None when they are none."""
    if head[:2] in _UTF16:
        return head[: len(head) // 2 * 2].decode("utf-16", "replace")
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not just a character cut in two
            return None
        text = head[: error.start].decode()
    controls = sum(ord(c) < 32 and c not in "\t\n\r\f\x1b" for c in text)
    return None if controls or not text else text
