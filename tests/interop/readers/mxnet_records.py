"""Reads or writes RecordIO with MXNet.

Its last release is older than NumPy 2, which lacks names that it looks up when it is imported, and
never uses here: any other thing does in their place.

    mxnet_records.py read FILE INDEX     prints key, id, labels and image of each record
    mxnet_records.py iterate FILE INDEX  prints the label and the mean of the pixels of each image
    mxnet_records.py write FILE INDEX    writes records, one of whose images holds the magic
    mxnet_records.py index FILE INDEX    writes the index anew, by DALI's rec2idx
    mxnet_records.py im2rec PREFIX ROOT  runs MXNet's own im2rec, which leaves the files as they are
"""

from __future__ import annotations

import importlib
import json
import runpy
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

MAGIC = (0xCED7230A).to_bytes(4, "little")


def absent(name: str) -> Any:
    """Returns what stands for a name that NumPy lacks."""
    if name.startswith("__"):
        raise AttributeError(name)
    return float


def read(file: str, index: str) -> None:
    recordio = importlib.import_module("mxnet.recordio")
    records = recordio.MXIndexedRecordIO(index, file, "r")
    rows = []
    for key in records.keys:
        header, image = recordio.unpack(records.read_idx(key))
        rows.append([key, header.id, np.atleast_1d(header.label).tolist(), image.hex()])
    print(json.dumps(rows))


def iterate(file: str, index: str) -> None:
    batches = importlib.import_module("mxnet.io").ImageRecordIter(
        path_imgrec=file, path_imgidx=index, data_shape=(3, 32, 48), batch_size=1,
        preprocess_threads=1, verbose=False,
    )  # fmt: skip
    rows = []
    for batch in batches:
        pixels = batch.data[0].asnumpy()[0]
        rows.append([float(batch.label[0].asnumpy()[0]), [float(c.mean()) for c in pixels]])
    print(json.dumps(rows))


def write(file: str, index: str) -> None:
    recordio = importlib.import_module("mxnet.recordio")
    records = recordio.MXIndexedRecordIO(index, file, "w")
    for number, middle in enumerate([b"", MAGIC, MAGIC * 2, b"x" + MAGIC]):
        image = b"\xff\xd8\xff\xe0" + middle + b"image %d" % number
        header = recordio.IRHeader(0, float(number), 10 + number, 0)
        records.write_idx(10 + number, recordio.pack(header, image))
    # Its own way to pack several labels calls a method that NumPy's arrays have no more.
    head = struct.pack("<IfQQff", 2, 0.0, 99, 0, 1.5, 2.5)
    records.write_idx(99, head + b"\xff\xd8\xff\xe0 two labels")
    records.close()
    print("null")


def index(file: str, place: str) -> None:
    creator = importlib.import_module("rec2idx").IndexCreator(file, place)
    creator.create_index()
    creator.close()
    print("null")


def im2rec(prefix: str, root: str) -> None:
    program = Path(importlib.import_module("mxnet").__path__[0], "tools/im2rec.py")
    sys.modules.setdefault("cv2", ModuleType("cv2"))  # it would make other images of them
    for options in (["--list", "--recursive", "--no-shuffle"], ["--pass-through"]):
        sys.argv = ["im2rec.py", *options, prefix, root]
        runpy.run_path(str(program), run_name="__main__")
    print("null")


np.__getattr__ = absent  # type: ignore[method-assign]
PROGRAMS: dict[str, Callable[..., None]] = {
    "read": read, "iterate": iterate, "write": write, "index": index, "im2rec": im2rec,
}  # fmt: skip
PROGRAMS[sys.argv[1]](*sys.argv[2:])
