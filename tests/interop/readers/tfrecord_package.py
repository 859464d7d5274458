"""Reads or writes a TFRecord file with the package `tfrecord`, whose messages have the same names
as TensorFlow's.

    tfrecord_package.py read FILE INDEX   prints label, class and image of each record
    tfrecord_package.py write FILE        writes three records
    tfrecord_package.py index FILE INDEX  writes its own index
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable


def read(file: str, index: str) -> None:
    load = importlib.import_module("tfrecord.reader").tfrecord_loader
    features = {"image/encoded": "byte", "image/class/label": "int", "image/class/text": "byte"}
    # In two parts, as two workers have them: all of it begins anywhere.
    records = [row for part in range(2) for row in load(file, index, features, (part, 2))]
    rows = [
        [
            int(record["image/class/label"][0]),
            bytes(record["image/class/text"]).decode(),
            bytes(record["image/encoded"]).hex(),
        ]
        for record in records
    ]
    print(json.dumps(rows))


def write(file: str) -> None:
    writer = importlib.import_module("tfrecord.writer").TFRecordWriter(file)
    for number in range(3):
        image = b"\xff\xd8\xff\xe0 image %d" % number
        writer.write({"image/encoded": (image, "byte"), "image/class/label": (number, "int")})
    writer.close()
    print("null")


def index(file: str, place: str) -> None:
    importlib.import_module("tfrecord.tools.tfrecord2idx").create_index(file, place)
    print("null")


PROGRAMS: dict[str, Callable[..., None]] = {"read": read, "write": write, "index": index}
PROGRAMS[sys.argv[1]](*sys.argv[2:])
