"""What a file's name says: hidden, clutter, an image; and what its first bytes say."""

from __future__ import annotations

import os
import re
import stat
import sys
from typing import Final

from fastconv.loaders.files import first_bytes
from fastconv.loaders.kinds import EXTENSIONS, kind_code

__all__ = [
    "OTHER_EXTENSIONS",
    "extension_of",
    "is_clutter",
    "is_hidden",
    "kind_code_of_name",
    "looks_like_image",
    "sort_key",
]

CLUTTER: Final = frozenset(
    {
        "thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "#recycle", "lost+found",
        "$recycle.bin",
    }
)  # fmt: skip
"""Names, in lower case, that systems leave in people's folders."""

OTHER_EXTENSIONS: Final = frozenset(
    {
        # texts and tables
        "txt", "md", "rst", "rtf", "tex", "log", "csv", "tsv", "json", "jsonl", "ndjson", "xml",
        "yaml", "yml", "toml", "ini", "cfg", "conf", "html", "htm", "css", "srt", "vtt", "lst",
        # programs
        "py", "pyc", "ipynb", "js", "ts", "sh", "bat", "ps1", "c", "h", "cc", "cpp", "hpp", "java",
        "rs", "go", "rb", "r", "m", "lua", "sql", "exe", "dll", "so", "dylib", "a", "o",
        # documents and drawings
        "svg", "ai", "eps", "ps", "pdf", "doc", "docx", "odt", "xls", "xlsx", "ods", "ppt", "pptx",
        "ttf", "otf", "woff", "woff2", "obj", "ply", "stl", "glb",
        # sound and film
        "mp3", "ogg", "oga", "opus", "wav", "flac", "m4a", "aac", "mid", "mp4", "m4v", "mkv", "mov",
        "avi", "webm", "mpg", "mpeg", "wmv", "flv",
        # archives and data
        "zip", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "tar", "iso", "deb", "rpm", "db",
        "sqlite", "sqlite3", "mdb", "lmdb", "h5", "hdf5", "parquet", "arrow", "feather", "mat",
        "npz", "pkl", "pickle", "pt", "pth", "onnx", "safetensors", "tfrecord", "tfrecords", "rec",
        "idx", "bin", "dat", "dcm", "nii", "mhd", "raw",
        # what tools leave
        "lock", "tmp", "bak", "old", "swp", "url", "lnk", "torrent", "md5", "sha1", "sha256", "sig",
    }
)  # fmt: skip
"""Extensions that say what else a file is: it is not opened to see if it looks like an image."""

_UTF8 = sys.getfilesystemencoding() == "utf-8"

_KIND_CODES = {extension: kind_code(kind) for extension, kind in EXTENSIONS.items()}

_IMAGE_START = re.compile(
    rb"\xff\xd8\xff"  # JPEG
    rb"|\x89PNG\r\n|GIF8[79]a|qoif|8BPS"
    rb"|RIFF....WEBP"
    rb"|BM.{4}\0{4}.{4}[\x0c-\x7c]\0\0\0"  # BMP: two reserved words, then the size of its header
    rb"|II[*+]\0|MM\0[*+]"  # TIFF and BigTIFF, either byte order
    rb"|....ftyp(?:avi[fs]|hei[cxms]|mif1|msf1)"  # AVIF, HEIC
    rb"|\0\0\0\x0c(?:JXL |jP  )"  # JPEG XL and JPEG 2000 in their containers
    rb"|P[1-6][ \t\r\n]+[0-9#]",  # PBM, PGM, PPM
    re.DOTALL,
)


def sort_key(name: str) -> str:
    """Returns what names and paths are sorted by: their bytes as UTF-8, the same in any locale.

    Where file names are UTF-8 anyway, as nearly everywhere, that is the name as torchvision sorts
    it.
    """
    return name if _UTF8 else os.fsencode(name).decode("utf-8", "surrogateescape")


def is_hidden(name: str) -> bool:
    """Returns whether a file or folder of this name is hidden."""
    return name.startswith(".")


def is_clutter(name: str) -> bool:
    """Returns whether a file or folder of this name is what systems leave behind."""
    return name.lower() in CLUTTER


def extension_of(name: str) -> str:
    """Returns a file name's extension in lower case with its dot, "" for none."""
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    return extension and "." + extension


def kind_code_of_name(name: str) -> int:
    """Returns the code of the kind that a file's extension promises, 0 when none."""
    return _KIND_CODES.get(name.rpartition(".")[2].lower(), 0) if "." in name else 0


def looks_like_image(path: str) -> bool:
    """Returns whether a regular file begins like the usual image formats; opens nothing else."""
    try:
        # Asked first, because opening a device may do something.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        return _IMAGE_START.match(first_bytes(path, 32)) is not None
    except OSError:
        return False
