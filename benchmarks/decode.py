"""How long does it take to make a training image of the bytes of a photo?

    python benchmarks/decode.py --photos FOLDER

The bytes are in memory; nothing is loaded. fastconv's decoders, and its kernel in C where that is
installed, are compared with Pillow, used as torchvision uses it for an ImageFolder: in one thread,
in two threads of one process, and in two processes. Then each step is measured by itself, with what
else could do it, and how far the pixels lie from those of torchvision.transforms.v2, which resizes
the whole picture with the same operator of torch. Processor time is that of all threads and
processes together.
"""

from __future__ import annotations

import io
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg
import torch
from common import (
    Measured,
    Report,
    Table,
    arguments,
    command_line,
    environment,
    extremes,
    finish,
    interleaved,
    middle,
    number,
    parsed,
    ratios,
    spread,
    with_photos,
    with_samples,
)
from peers import images
from PIL import Image

from fastconv.loaders import CenterCrop, RandomResizedCrop, jpeg, native, resize
from fastconv.loaders.decode import decode_with
from fastconv.loaders.decoders import Decoder, Geometry
from fastconv.loaders.draws import draws

__all__ = ["main"]

Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]

TRAIN = RandomResizedCrop(224, flip=0.5)
DECODERS: dict[str, Decoder] = {
    "RandomResizedCrop(224, flip=0.5)": TRAIN,
    "CenterCrop(224, resize=256)": CenterCrop(224, resize=256),
    "RandomResizedCrop(96, flip=0.5)": RandomResizedCrop(96, flip=0.5),
    "CenterCrop(112, resize=128)": CenterCrop(112, resize=128),
}
MEASURED = tuple(DECODERS)[:2]
"""The others are there for their pixels: for them most photos are reduced while being decoded."""

BATCH = 64
"""Images that the kernel gets at once."""


class Sample(NamedTuple):
    """A photo, and the random numbers for it."""

    data: bytes
    draw: list[float]


class Case(NamedTuple):
    """A photo at each step on its way to `TRAIN`."""

    data: bytes
    file: Pixels
    header: jpeg.Header
    geometry: Geometry
    eighths: int
    pixels: Pixels
    image: Image.Image


def samples(photos: Sequence[bytes], decoder: Decoder) -> list[Sample]:
    """Returns the photos with random numbers for a decoder."""
    numbers = draws(0, 0, np.arange(len(photos)), decoder.draws).tolist()
    return [Sample(data, draw) for data, draw in zip(photos, numbers, strict=True)]


def with_fastconv(decoder: Decoder, todo: Sequence[Sample]) -> None:
    """Makes images in a place that is there already, as in a batch."""
    assert decoder.out_size is not None
    out = np.empty((*decoder.out_size, 3), np.uint8)
    for data, draw in todo:
        decode_with(data, decoder, draw, out)


def with_kernel(decoder: Decoder, todo: Sequence[Sample], threads: int) -> None:
    """Makes images by the kernel, batch by batch; those that it cannot do without it."""
    assert decoder.out_size is not None
    out = np.empty((BATCH, *decoder.out_size, 3), np.uint8)
    for start in range(0, len(todo), BATCH):
        files, numbers = zip(*todo[start : start + BATCH], strict=True)
        done = native.decode(files, decoder, numbers, out[: len(files)], threads=threads)
        for place in np.flatnonzero(~done).tolist():
            decode_with(files[place], decoder, numbers[place], out[place])


def with_pillow(decoder: Decoder, todo: Sequence[Sample]) -> None:
    """Makes images as torchvision makes them of PIL images, tensors in the end."""
    for data, draw in todo:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        g = decoder.geometry(*image.size, draw)
        image = image.crop((g.x, g.y, g.x + g.width, g.y + g.height))
        image = image.resize((g.columns, g.rows), Image.Resampling.BILINEAR)
        image = image.crop((g.left, g.top, g.left + g.out_columns, g.top + g.out_rows))
        if g.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        torch.from_numpy(np.array(image)).permute(2, 0, 1)


def in_two_threads(make: Callable[[Sequence[Sample]], None], todo: Sequence[Sample]) -> None:
    """Makes half of the images in each of two threads."""
    threads = [threading.Thread(target=make, args=(todo[first::2],)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_two_processes(make: Callable[[Sequence[Sample]], None], todo: Sequence[Sample]) -> None:
    """Makes half of the images in each of two processes.

    Raises:
        RuntimeError: One failed.
    """
    children = []
    for first in range(2):
        child = os.fork()
        if not child:
            try:
                make(todo[first::2])
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise RuntimeError("a process failed")


def timed(work: Callable[[], object], count: int) -> Mapping[str, float]:
    """Returns what some work does in a second, and its processor milliseconds an image."""
    cpu, began = cpu_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"images/s": count / seconds, "CPU ms": (cpu_seconds() - cpu) / count * 1000}


def cpu_seconds() -> float:
    """Returns the processor time of this process, and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_images(
    photos: Sequence[bytes], name: str, rounds: int
) -> tuple[Table, dict[str, Measured]]:
    """Returns how long whole images take.

    Args:
        photos: The files.
        name: Of one of `DECODERS`.
        rounds: How many.
    """
    decoder = DECODERS[name]
    todo = samples(photos, decoder)

    def ours(part: Sequence[Sample]) -> None:
        with_fastconv(decoder, part)

    def theirs(part: Sequence[Sample]) -> None:
        with_pillow(decoder, part)

    ways: dict[str, Callable[[], object]] = {
        "Pillow": lambda: theirs(todo),
        "Pillow, 2 processes": lambda: in_two_processes(theirs, todo),
        "fastconv": lambda: ours(todo),
        "fastconv, 2 threads": lambda: in_two_threads(ours, todo),
        "fastconv, 2 processes": lambda: in_two_processes(ours, todo),
    }
    if native.kernel() is not None:
        ways["the kernel"] = partial(with_kernel, decoder, todo, 1)
        ways["the kernel, 2 threads"] = partial(with_kernel, decoder, todo, 2)
    contestants = {way: partial(timed, work, len(todo)) for way, work in ways.items()}
    found = interleaved(contestants, rounds)
    table = Table(
        name,
        ["", "images/s", "range", "CPU ms an image", "range", "CPU of Pillow over its own"],
        [
            [
                way,
                middle(found["images/s"][way]),
                extremes(found["images/s"][way]),
                middle(found["CPU ms"][way]),
                extremes(found["CPU ms"][way]),
                middle(ratios(found["CPU ms"]["Pillow"], found["CPU ms"][way])),
            ]
            for way in ways
        ],
    )
    return table, {f"{name}, {measure}": values for measure, values in found.items()}


def cases_of(photos: Sequence[bytes]) -> list[Case]:
    """Returns the JPEGs among the photos at each step."""
    found = []
    for data, draw in samples(photos, TRAIN):
        header = jpeg.read_header(memoryview(data))
        if header is None:
            continue
        geometry = TRAIN.geometry(header.width, header.height, draw)
        eighths = resize.smallest_eighths(geometry, jpeg.EIGHTHS)
        pixels = simplejpeg.decode_jpeg(data)
        file = np.frombuffer(data, np.uint8).copy()
        image = Image.fromarray(pixels)
        found.append(Case(data, file, header, geometry, eighths, pixels, image))
    return found


def needed(case: Case) -> None:
    """Decodes what `TRAIN` needs."""
    jpeg.decode_top(case.file, case.header, resize.last_row(case.geometry), case.eighths)


def at_eighths(eighths: int) -> Callable[[Case], object]:
    """Returns what decodes at a size."""

    def decode(case: Case) -> None:
        rows, columns = (-(-n * eighths // 8) for n in (case.header.height, case.header.width))
        simplejpeg.decode_jpeg(case.data, min_height=rows, min_width=columns)

    return decode


def ways_to_decode() -> dict[str, Callable[[Case], object]]:
    """Returns what can decode a picture."""
    return {
        "whole": lambda case: simplejpeg.decode_jpeg(case.data),
        "what RandomResizedCrop(224) needs": needed,
        "its header": lambda case: jpeg.read_header(memoryview(case.data)),
        **{f"{eighths}/8 of its size": at_eighths(eighths) for eighths in range(1, 8)},
        "fast DCT": lambda case: simplejpeg.decode_jpeg(case.data, fastdct=True),
        "fast upsampling": lambda case: simplejpeg.decode_jpeg(case.data, fastupsample=True),
        "Pillow": lambda case: Image.open(io.BytesIO(case.data)).load(),
    }


def part_of(case: Case) -> Pixels:
    """Returns the part that is resized."""
    x, y, width, height = case.geometry[:4]
    return case.pixels[y : y + height, x : x + width]


def interpolated(pixels: Pixels, size: Size, planes: bool) -> torch.Tensor:
    """Returns pixels as torch resizes them, from pixels or from planes."""
    image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).unsqueeze(0)
    image = image.contiguous() if planes else image
    return torch.nn.functional.interpolate(image, size, mode="bilinear", antialias=True)


def ways_to_resize() -> dict[str, Callable[[Case], object]]:
    """Returns what can resize a part of a picture; OpenCV where it is installed."""
    size = TRAIN.out_size
    out = np.empty((*size, 3), np.uint8)
    bilinear = Image.Resampling.BILINEAR

    def ours(case: Case) -> None:
        resize.render(case.pixels, case.geometry._replace(flip=False), out)

    def pillow(case: Case, gap: float | None = None) -> None:
        x, y, width, height = case.geometry[:4]
        box = (x, y, x + width, y + height)
        np.asarray(case.image.resize(size, bilinear, box=box, reducing_gap=gap))

    found: dict[str, Callable[[Case], object]] = {
        "fastconv: torch's operator, in place": ours,
        "torch interpolate, channels last": lambda case: interpolated(part_of(case), size, False),
        "torch interpolate, planes": lambda case: interpolated(part_of(case), size, True),
        "Pillow resize(box=)": pillow,
        "Pillow resize(box=, reducing_gap=2)": lambda case: pillow(case, 2.0),
    }
    try:
        cv2 = import_module("cv2")
    except ImportError:
        return found
    cv2.setNumThreads(1)

    def opencv(case: Case, kind: int) -> None:
        cv2.resize(part_of(case), size, dst=out, interpolation=kind)

    found["OpenCV INTER_AREA"] = partial(opencv, kind=cv2.INTER_AREA)
    found["OpenCV INTER_LINEAR, not antialiased"] = partial(opencv, kind=cv2.INTER_LINEAR)
    return found


def measure_steps(photos: Sequence[bytes], rounds: int) -> tuple[list[Table], dict[str, Measured]]:
    """Returns how long each step takes, and what else could do it."""
    cases = cases_of(photos)

    def for_all(way: Callable[[Case], object]) -> None:
        for case in cases:
            way(case)

    reports: list[Table] = []
    measured: dict[str, Measured] = {}
    for title, ways in (
        ("Decoding a JPEG", ways_to_decode()),
        ("Resizing a part to 224 x 224", ways_to_resize()),
    ):
        contestants = {
            name: partial(timed, partial(for_all, way), len(cases)) for name, way in ways.items()
        }
        found = interleaved(contestants, rounds)["CPU ms"]
        first = next(iter(found))
        rows = [
            [name, middle(values), extremes(values), middle(ratios(values, found[first]))]
            for name, values in found.items()
        ]
        reports.append(Table(title, ["", "CPU ms", "range", "of the first"], rows))
        measured[title] = found
    return reports, measured


def reference(data: bytes, decoder: Decoder, draw: Sequence[float]) -> Pixels:
    """Returns what torchvision.transforms.v2 makes of the whole picture, decoded by Pillow."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    g = decoder.geometry(pixels.shape[1], pixels.shape[0], draw)
    part = pixels[g.y : g.y + g.height, g.x : g.x + g.width]
    found = interpolated(part, (g.rows, g.columns), False)[0].permute(1, 2, 0).numpy()
    found = found[g.top : g.top + g.out_rows, g.left : g.left + g.out_columns]
    return found[:, ::-1] if g.flip else found


def compare_pixels(photos: Sequence[bytes]) -> Table:
    """Returns how far pixels lie from those of torchvision.transforms.v2."""
    rows = []
    for name, decoder in DECODERS.items():
        found = []
        for data, draw in samples(photos, decoder):
            expected = reference(data, decoder, draw).astype(int)
            found.append(np.abs(decode_with(data, decoder, draw) - expected).mean())
        other = [value for value in found if value]
        rows.append(
            [
                name,
                f"{100 * (1 - len(other) / len(found)):.1f} %",
                number(float(np.mean(other))) if other else "",
                number(float(np.percentile(other, 95))) if other else "",
                number(max(other)) if other else "",
            ]
        )
    return Table(
        "Pixels beside those of torchvision.transforms.v2",
        ["", "the same", "mean difference of the others", "95 % of them", "the worst of them"],
        rows,
        ["difference: mean absolute difference of an image's values, of 255"],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    assert __doc__ is not None
    args = parsed(with_samples(with_photos(arguments(__doc__, rounds=7)), 1000), argv)
    torch.set_num_threads(1)  # what a loader's workers do
    photos = []
    for path, _ in spread(images(args.photos), args.samples):
        with open(path, "rb") as file:
            photos.append(file.read())
    tables: list[Table] = []
    measured: dict[str, Measured] = {}
    for name in MEASURED:
        table, found = measure_images(photos, name, args.rounds)
        tables.append(table)
        measured |= found
    steps, found = measure_steps(photos, args.rounds)
    tables += [*steps, compare_pixels(photos)]
    report = Report(
        "How long does it take to make a training image of the bytes of a photo?",
        command_line(sys.argv if argv is None else ["decode.py", *argv]),
        environment(args.work),
        tables,
        measured | found,
    )
    finish(report, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
