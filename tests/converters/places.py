"""Places of every kind in data files, for damage."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from fastconv.loaders.open import open_pack

__all__ = ["PLACES", "data_file", "payload"]


def data_file(path: Path) -> Path:
    """Returns a data file of a pack: the second one, where it has several."""
    if not path.is_dir():
        return path
    endings = (".mdb", ".tar", ".parquet", ".tfrecord", ".rec")
    files = sorted(file for file in path.iterdir() if file.suffix in endings)
    return files[min(len(files) - 1, 1)]


def payload(path: Path, row: int, slot: int = 0) -> int:
    table = open_pack(path).table
    return table.base[slot] + int(table.offset[slot][row])


def tar_places(path: Path) -> dict[str, int]:
    """Returns places in a tar of every kind, by what they are."""
    row = open_pack(path).table.shard_row.tolist()[1] if path.is_dir() else 0
    at = payload(path, row + 1) - 512  # the header of the second sample of the file
    return {
        "name": at + 1, "mode": at + 101, "size": at + 130, "checksum": at + 150, "magic": at + 258,
        "zeros": at + 505, "padding": payload(path, row + 2) - 512 - 2 * 512 - 1,
        "id": payload(path, row) - 512 + 300, "first checksum": payload(path, row) - 512 + 150,
        "end": os.path.getsize(data_file(path)) - 700,
    }  # fmt: skip


def tfrecord_places(path: Path) -> dict[str, int]:
    """Returns places in a TFRecord file of every kind, by what they are."""
    data = data_file(path).read_bytes()
    first = second = 0
    while second < len(data) // 3:
        first, second = second, second + 16 + int.from_bytes(data[second : second + 8], "little")
    names = [b"image/format", b"image/height", b"image/width", b"image/class/label",
             b"image/class/text", b"image/filename", b"image/encoded", b"txt"]  # fmt: skip
    return {
        "length": first + 1, "CRC of the length": first + 9, "data's own length": first + 13,
        "CRC": second - 2, "next length": second,
        **{f"name {name.decode()}": data.index(name, first) + 1 for name in names},
        **{f"value {name.decode()}": data.index(name, first) + len(name) + 7 for name in names[:6]},
        "first CRC": 16 + int.from_bytes(data[:8], "little") - 1,
        "id": data.index(b"fastconv/pack") + 13 + 20,
        "what makes up for the id": data.index(b"fastconv/pack") + 13 + 7 + 33,
    }  # fmt: skip


def recordio_places(path: Path) -> dict[str, int]:
    """Returns places in a RecordIO file of every kind, by what they are."""
    table = open_pack(path).table
    first = table.shard_row.tolist()[1] if path.is_dir() else 0
    row = next(n for n in range(first + 1, first + 9) if int(table.size[0][n]) % 4)
    at = payload(path, row)
    words = ["magic", "lrec", "flag", "label", "number", "upper half of the number", "id2"]
    return {
        **{word: at - 32 + 4 * number + 1 for number, word in enumerate(words)},
        "part of lrec": at - 32 + 7, "padding": at + int(table.size[0][row]),
        "first magic": 0, "first lrec": 4, "first number": 16, "stamp": 24, "mark of the stamp": 27,
    }  # fmt: skip


def parquet_places(path: Path) -> dict[str, int]:
    """Returns places in a Parquet file of every kind, by what they are."""
    table, data = open_pack(path).table, data_file(path).read_bytes()
    row = table.shard_row.tolist()[1] + 3 if path.is_dir() else 3
    column = data.index(table.path(row).encode())
    labels = data.index(struct.pack("<4q", *table.label[row : row + 4].tolist()), column)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    words = [b"schema", b"image", b"bytes", b"label", b"huggingface", b"ClassLabel", b"bee",
             b"fastconv version"]  # fmt: skip
    return {
        "magic": 1, "head of the first page": 6, "size of an image": payload(path, row) - 4,
        "path": column + 2, "size of a path": column - 4, "label": labels + 8,
        "size of a caption": payload(path, row, 1) - 4, "footer": footer,
        "levels of captions": payload(path, row - 3 + (row - 3) % 4, 1) - 6,
        **{f"{word.decode()} in the footer": data.index(word, footer) + 1 for word in words},
        "id": data.rindex(open_pack(path).meta.id[:31].encode()) + 9,
        "size of the footer": len(data) - 7, "last magic": len(data) - 1,
    }  # fmt: skip


PLACES = {
    ".tar": tar_places,
    ".tfrecord": tfrecord_places,
    ".rec": recordio_places,
    ".parquet": parquet_places,
}
"""Ending of a data file -> what gives its places."""
