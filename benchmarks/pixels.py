"""Makes images as one library makes them, in this process: what benchmarks/quality.py compares.

    pixels.py WAY CASES OUT

CASES is a JSON file: of each image what fastconv's Geometry says, and its `path`. OUT is made,
.npy: uint8, images x rows x columns x RGB. Runs in any environment that has what the way imports;
fastconv need not be there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Case
from typing import Any

import numpy as np

__all__ = ["WAYS", "main"]


def is_cut(case: Case) -> bool:
    """Returns whether less is wanted than was resized: what Resize and CenterCrop make."""
    return (case.rows, case.columns) != (case.out_rows, case.out_columns)


def window(case: Case, resized: Any) -> Any:
    """Returns the window of what was resized."""
    top, left = case.top, case.left
    return resized[top : top + case.out_rows, left : left + case.out_columns]


def torchvision(cases: Sequence[Case]) -> Any:
    """Yields what torchvision makes of tensors. The window it finds by itself."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms.v2 import functional

    for case in cases:
        image = decode_jpeg(read_file(case.path), mode=ImageReadMode.RGB)
        out_size = [case.out_rows, case.out_columns]
        if is_cut(case):
            image = functional.resize(image, [min(case.rows, case.columns)], antialias=True)
            image = functional.center_crop(image, out_size)
        else:
            box = (case.y, case.x, case.height, case.width)
            image = functional.resized_crop(image, *box, out_size, antialias=True)
        yield image.permute(1, 2, 0).numpy()


def pillow(cases: Sequence[Case], draft: bool = False) -> Any:
    """Yields what Pillow makes.

    Args:
        cases: What is wanted.
        draft: To decode pictures at an eighth, a quarter or a half, where that leaves enough.
    """
    from PIL import Image

    for case in cases:
        size, kind = (case.columns, case.rows), Image.Resampling.BILINEAR
        box = case.x, case.y, case.x + case.width, case.y + case.height
        with Image.open(case.path) as image:
            if draft:
                width, height = image.size
                least = (
                    -(-width * case.columns // case.width),
                    -(-height * case.rows // case.height),
                )
                drafted = image.draft("RGB", least)
                scale = drafted[1][2] / width if drafted else 1.0  # Pillow's thumbnail does so
                left, top, right, bottom = (scale * length for length in box)
                picture = image.convert("RGB").resize(size, kind, box=(left, top, right, bottom))
            else:  # torchvision does so
                picture = image.convert("RGB").crop(box).resize(size, kind)
        yield window(case, np.asarray(picture))


def opencv(cases: Sequence[Case], kind: str) -> Any:
    """Yields what OpenCV makes.

    Args:
        cases: What is wanted.
        kind: The name of its interpolation.
    """
    cv2 = import_module("cv2")
    for case in cases:
        # Like the others it is to leave the EXIF orientation alone.
        image = cv2.imread(case.path, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        part = image[case.y : case.y + case.height, case.x : case.x + case.width]
        part = cv2.resize(part, (case.columns, case.rows), interpolation=getattr(cv2, kind))
        yield window(case, cv2.cvtColor(part, cv2.COLOR_BGR2RGB))


def ffcv(cases: Sequence[Case]) -> Any:
    """Yields what FFCV makes by its own calls, of the files as they are. It only cuts and then
    resizes: where a window is wanted of what was resized, by the part that its decoder cuts out."""
    from ffcv.fields.rgb_image import get_center_crop
    from ffcv.libffcv import imdecode, resize_crop
    from PIL import Image

    for case in cases:
        with Image.open(case.path) as image:
            width, height = image.size
        pixels = np.empty((height, width, 3), np.uint8)
        stored = np.fromfile(case.path, np.uint8)
        imdecode(stored, pixels, height, width, height, width, 0, 0, 1, 1, False, False)
        y, x, rows, columns = case.y, case.x, case.height, case.width
        if is_cut(case):
            ratio = case.out_rows / min(case.rows, case.columns)
            y, x, rows, columns = get_center_crop(height, width, None, ratio)
        out = np.empty((case.out_rows, case.out_columns, 3), np.uint8)
        resize_crop(pixels, y, y + rows, x, x + columns, out)
        yield out


def dali(cases: Sequence[Case]) -> Any:
    """Yields what DALI makes on the CPU: it decodes the part, and resizes it with antialiasing."""
    from nvidia.dali import fn, pipeline_def, types

    def given(take: Callable[[Case], Any]) -> Any:
        return fn.external_source(source=([take(case)] for case in cases))

    def pair(first: str, second: str) -> Any:
        return given(lambda case: np.array([getattr(case, first), getattr(case, second)], np.int32))

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def graph() -> Any:
        image = fn.decoders.image_slice(
            given(lambda case: np.fromfile(case.path, np.uint8)),
            start=pair("y", "x"),
            shape=pair("height", "width"),
            axis_names="HW",
            output_type=types.RGB,
        )
        size = fn.cast(pair("rows", "columns"), dtype=types.FLOAT)
        image = fn.resize(image, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.slice(
            image,
            start=pair("top", "left"),
            shape=pair("out_rows", "out_columns"),
            axis_names="HW",
        )

    pipeline = graph()
    pipeline.build()
    for _ in cases:
        yield pipeline.run()[0].as_array()[0]


WAYS: dict[str, Callable[[Sequence[Case]], Any]] = {
    "torchvision": torchvision,
    "pillow": pillow,
    "pillow-draft": lambda cases: pillow(cases, draft=True),
    "opencv-area": lambda cases: opencv(cases, "INTER_AREA"),
    "opencv-linear": lambda cases: opencv(cases, "INTER_LINEAR"),
    "ffcv": ffcv,
    "dali": dali,
}


def main(argv: Sequence[str]) -> None:
    """Makes images."""
    way, given, out = argv
    cases = [Case(**case) for case in json.loads(Path(given).read_text(encoding="utf-8"))]
    np.save(out, np.stack(list(WAYS[way](cases))))


if __name__ == "__main__":
    main(sys.argv[1:])
