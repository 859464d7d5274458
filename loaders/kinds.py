"""Image formats: the names that fields have, the extensions people give files, and first bytes.

A kind is the name of an image field in a pack ("jpg", "png", ...). The sample table stores it as
the position in `KINDS`, so the tuple only ever grows at its end.
"""

from __future__ import annotations

import re
from types import MappingProxyType

__all__ = [
    "EXTENSIONS",
    "FORMAT_NAMES",
    "KINDS",
    "START_BYTES",
    "kind_code",
    "kind_code_of_start",
    "kind_of_name",
]

KINDS = (
    "bin",  # not told yet, or unknown
    "jpg", "png", "webp", "gif", "bmp", "tif", "avif", "heic", "jxl", "jp2", "j2k",
    "ppm", "pgm", "pbm", "pam", "pfm", "qoi", "ico", "cur", "icns", "tga", "dds", "psd",
    "pcx", "dcx", "sgi", "ras", "xbm", "xpm", "fits", "im", "msp", "blp", "ftex", "pxr",
    "exr", "hdr", "npy", "fli", "pcd", "gbr", "spider", "imt", "mcidas",
    "raw",  # pixels as they are: see `fastconv.loaders.raw`
)  # fmt: skip
"""Names of image fields, in the order of their codes in the sample table."""

_CODES = {name: code for code, name in enumerate(KINDS)}

START_BYTES = 16
"""First bytes of an image, which tell its kind where that is one of the usual ones."""

_SIGNATURES = tuple(
    (re.compile(pattern, re.DOTALL), _CODES[kind])
    for pattern, kind in (
        (rb"\xff\xd8\xff", "jpg"), (rb"\x89PNG\r\n", "png"), (rb"RIFF....WEBP", "webp"),
        (rb"GIF8[79]a", "gif"), (rb"BM.{4}\0{4}", "bmp"), (rb"II[*+]\0|MM\0[*+]", "tif"),
        (rb"....ftyp(?:avif|avis)", "avif"), (rb"\0\0\0\x0cJXL ", "jxl"),
        (rb"\0\0\0\x0cjP  ", "jp2"), (rb"\x93NUMPY", "npy"),
    )
)  # fmt: skip

# Fields of other uses, and names that mostly stand for something else ("gbr" is a circuit board).
_NO_EXTENSION = ("bin", "npy", "im", "gbr", "spider", "imt", "mcidas", "raw")

EXTENSIONS = MappingProxyType(
    {
        **{name: name for name in KINDS if name not in _NO_EXTENSION},
        "jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "pjpeg": "jpg", "pjp": "jpg", "mpo": "jpg",
        "apng": "png", "dib": "bmp", "tiff": "tif", "avifs": "avif", "heif": "heic", "hif": "heic",
        "jpx": "jp2", "jpf": "jp2", "j2c": "j2k", "jpc": "j2k", "pnm": "ppm", "fit": "fits",
        "bw": "sgi", "rgb": "sgi", "rgba": "sgi", "icb": "tga", "vda": "tga", "vst": "tga",
        "flc": "fli", "ftc": "ftex", "ftu": "ftex",
    }
)  # fmt: skip
"""File extension in lower case, without its dot -> the kind it promises. A file with another
extension is no image unless its contents are looked at (`--any-extension`)."""


FORMAT_NAMES = MappingProxyType(
    {
        **{name: name.upper() for name in KINDS},
        "bin": "unknown", "jpg": "JPEG", "webp": "WebP", "tif": "TIFF", "jxl": "JPEG XL",
        "jp2": "JPEG 2000", "j2k": "JPEG 2000", "ras": "Sun raster", "psd": "Photoshop",
        "exr": "OpenEXR", "hdr": "Radiance HDR", "npy": "NumPy", "pcd": "Photo CD",
        "gbr": "GIMP brush", "pxr": "Pixar", "im": "IFUNC image", "imt": "IM Tools",
        "raw": "raw pixels",
    }
)  # fmt: skip
"""Kind -> the format's name as people write it, for messages."""


def kind_code(name: str) -> int:
    """Returns the code of a kind in the sample table.

    Raises:
        KeyError: The kind is not in `KINDS`.
    """
    return _CODES[name]


def kind_code_of_start(start: bytes | memoryview) -> int:
    """Returns the code of the kind of image that begins so, 0 where none is known to."""
    return next((code for pattern, code in _SIGNATURES if pattern.match(start)), 0)


def kind_of_name(file_name: str) -> str | None:
    """Returns the kind that a file's extension promises, None when it is not that of an image."""
    return EXTENSIONS.get(file_name.rpartition(".")[2].lower()) if "." in file_name else None
