"""Shows what fastconv does, in half a minute: makes images, packs them, reads them back.

    python examples/demo.py [--out FOLDER] [--images 400]

Makes a folder of JPEG images in eight classes, packs it into all six formats with the command
line, and reads each pack at random beside the folder itself: the stored bytes, and the
decoded pictures in the batches that training gets. All of it stays in FOLDER, to be looked at.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor, from_numpy
from torch.utils.data import DataLoader

from fastconv.loaders import FastLoader, RandomResizedCrop, open_dataset

__all__ = ["main"]

CLASSES = ("amber", "brick", "cobalt", "fern", "ivory", "moss", "plum", "slate")
PACKS = {
    "LMDB": ["demo.lmdb"],
    "WebDataset": ["demo-shards", "--format", "webdataset", "--shard-size", "8MB"],
    "HDF5": ["demo.h5"],
    "Parquet": ["demo.parquet"],
    "TFRecord": ["demo.tfrecord"],
    "RecordIO": ["demo.rec"],
}
"""Title -> what follows `fastconv pack images`."""
MARK = ".fastconv-demo"
"""A file that tells a folder of an earlier run, which may be deleted, from any other."""


def texture(seed: int) -> Image.Image:
    """Returns a picture that is about as hard to compress as a photograph: noise of many sizes."""
    rng = np.random.default_rng(seed)
    width, height = 1200, 900
    picture = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((3, 90), (12, 45), (60, 22), (300, 11)):
        noise = rng.integers(0, 256, (cells * 3 // 4, cells, 3), np.uint8)
        large = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        picture += (np.asarray(large, np.float32) / 128 - 1) * weight
    picture += rng.normal(0, 5, (height, width, 1))
    tint = rng.integers(70, 190, 3)
    return Image.fromarray(np.clip(picture + tint, 0, 255).astype(np.uint8))


def make_images(folder: Path, count: int) -> None:
    """Makes a folder of JPEG images, as torchvision's ImageFolder reads it; the same every time."""
    rng = random.Random(0)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        source = texture(label)
        for number in range(label, count, len(CLASSES)):
            left, top = rng.randrange(1200 - 500), rng.randrange(900 - 375)
            piece = source.crop((left, top, left + 500, top + 375))
            piece.save(folder / name / f"{number:04d}.jpg", quality=rng.choice((85, 90, 95)))


def pack(folder: Path, arguments: Sequence[str]) -> None:
    """Packs the images with the command line, in a folder, and shows the command."""
    words = ["pack", "images", *arguments]
    print("    fastconv", *words, end="", flush=True)
    began = time.perf_counter()
    command = [sys.executable, "-m", "fastconv", *words, "--quiet"]
    subprocess.run(command, cwd=folder, check=True)
    print(f"   # {time.perf_counter() - began:.1f} s")


def fastest(action: Callable[[], object], runs: int) -> float:
    """Returns the seconds of the fastest of several runs: the one least disturbed by others."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def raw_bytes(images: Path, order: Sequence[int]) -> float:
    """Returns the seconds to read all files of the folder in this order."""
    paths = [Path(path) for path, _ in open_dataset(images).samples]

    def read_all() -> None:
        for number in order:
            paths[number].read_bytes()

    return fastest(read_all, runs=5)


def packed_bytes(path: Path, order: Sequence[int]) -> float:
    """Returns the seconds to read the stored bytes of all samples in this order."""
    dataset = open_dataset(path)

    def read_all() -> None:
        for number in order:
            dataset.read(number)  # a view of the mapped file: nothing is copied

    return fastest(read_all, runs=5)


CROP = RandomResizedCrop(224, flip=0.5)


def cropped(image: Image.Image) -> Tensor:
    """Returns a random part of an image as uint8, (3, 224, 224), RGB, as torchvision takes it."""
    part = CROP.geometry(*image.size, [random.random() for _ in range(CROP.draws)])
    box = (part.x, part.y, part.x + part.width, part.y + part.height)
    image = image.resize((224, 224), Image.Resampling.BILINEAR, box)
    if part.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return from_numpy(np.array(image)).permute(2, 0, 1)


def fastest_epoch(loader: Iterable[Sequence[Tensor]]) -> float:
    """Returns the seconds of one epoch: what training would wait for."""

    def epoch() -> None:
        for _images, _labels in loader:  # uint8, (32, 3, 224, 224), and int64, (32,)
            pass

    epoch()  # starts the workers
    return fastest(epoch, runs=3)


def usual_batches(images: Path) -> float:
    """Returns the seconds of an epoch over the folder, with Pillow and a DataLoader."""
    dataset = open_dataset(images, transform=cropped)
    return fastest_epoch(
        DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    )


def fast_batches(path: Path) -> float:
    """Returns the seconds of an epoch over a pack, with a decoder and FastLoader."""
    dataset = open_dataset(path, decode=CROP)
    return fastest_epoch(FastLoader(dataset, batch_size=32, shuffle=True, num_workers=2))


def check_same(images: Path, packs: Sequence[Path]) -> None:
    """Raises SystemExit unless every pack gives each image's very bytes, and its label."""
    for path in packs:
        dataset = open_dataset(path)
        for number, (name, label) in enumerate(dataset.samples):
            if dataset.read(number) != (images / name).read_bytes():
                sys.exit(f"{path}: {name} is not what it is in the folder")
            if dataset.classes[label] != Path(name).parent.name:
                sys.exit(f"{path}: {name} has the wrong label")


def print_table(title: str, unit: str, figures: Sequence[tuple[str, float, float]]) -> None:
    """Prints name, figure, and how many times faster than the first each is."""
    print(f"\n{title}")
    for name, figure, faster in figures:
        print(f"    {name:<12}{figure:>10,.1f} {unit}{faster:>10.1f} x")


def new_folder(out: Path | None) -> Path:
    """Returns an empty folder for this run."""
    checkout = Path(__file__).resolve().parent.parent
    if out is None and (checkout / "pyproject.toml").exists():
        out = checkout / "demo"
    if out is None:
        return Path(tempfile.mkdtemp(prefix="fastconv-demo-"))
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).exists():
            sys.exit(f"{out}: is not empty, and not of an earlier run: choose another with --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Shows what fastconv does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="(default: demo/ in the checkout)")
    parser.add_argument("--images", type=int, default=400, help="how many (%(default)s)")
    args = parser.parse_args(argv)
    if args.images < len(CLASSES):
        parser.error(f"--images is at least {len(CLASSES)}, one a class")
    out = new_folder(args.out)
    (out / MARK).touch()

    images = out / "images"
    print(f"Making {args.images} JPEG images in {images}")
    make_images(images, args.images)
    size = sum(path.stat().st_size for path in images.rglob("*.jpg"))
    print(f"    {len(CLASSES)} classes, {size / args.images / 1e3:.0f} kB each")

    print(f"\nPacking them, in {out}")
    for arguments in PACKS.values():
        pack(out, arguments)
    packs = {title: out / arguments[0] for title, arguments in PACKS.items()}
    check_same(images, list(packs.values()))
    print("    All of them hold the folder's images and labels, byte for byte.")

    order = random.Random(1).sample(range(args.images), args.images)
    raw = raw_bytes(images, order)
    rows = [("raw files", raw)]
    rows += [(title, packed_bytes(path, order)) for title, path in packs.items()]
    print_table(
        "Stored bytes of a sample, at random (files in memory already)",
        "µs",
        [(name, seconds / args.images * 1e6, raw / seconds) for name, seconds in rows],
    )

    folder = usual_batches(images)
    rows = [("raw files", folder)]
    rows += [(title, fast_batches(path)) for title, path in packs.items()]
    print_table(
        "Random crops of 224 pixels in batches of 32: raw files by Pillow and a DataLoader with\n"
        "two worker processes, packs by FastLoader with two threads",
        "images/s",
        [(name, args.images / seconds, folder / seconds) for name, seconds in rows],
    )

    print(f"\nEverything is in {out}: look at it, or delete it.")


if __name__ == "__main__":
    main()
