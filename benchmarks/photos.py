"""Makes real images to measure with, from Debian packages of photographs and drawings.

    photos.py photos OUT [--count 10000] [--classes 100] [--seed 7]
        As ImageNet's training folder: OUT/n00000000/n00000000_0.JPEG and so on, about 60 kB and
        500 x 375 pixels each: random crops of photographs, JPEG quality 88 to 97, 4:2:0 and 4:4:4.
        The same arguments, packages and Pillow give the same files, whatever --jobs is.

    photos.py stamps OUT
        A folder as people have it: 796 PNG drawings and photographs with transparency, in folders
        several levels deep, a caption in many languages (UTF-8) beside each in .txt, some with
        .dat, and thousands of .ogg sounds that are no images.

Needs Debian or Ubuntu (apt-get and dpkg, as any user) and Pillow. Downloads 75 MB for the photos
and 160 MB for the stamps, once; they stay in --cache.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from PIL import Image

__all__ = ["main", "make_photos", "make_stamps"]

PHOTOGRAPHS = {
    "lomiri-wallpapers-16.04": "",
    "lomiri-wallpapers-20.04": "",
    "mate-backgrounds": "usr/share/backgrounds/mate/nature",
}
"""Package -> the folder in it that holds photographs."""
SMALLEST_FILE = 250_000
"""Bytes; smaller JPEG files in these packages are drawings and previews."""
LONGEST_SIDE = 1800
"""Pixels to which a photograph is reduced first, so that a crop shows more than a leaf."""
SHORTEST_SIDE = 600
"""Pixels that a photograph must have after that."""

STAMPS = "tuxpaint-stamps-default"
STAMPS_FOLDER = "usr/share/tuxpaint/stamps"

EXPECTED = "a990533f"
"""What `fingerprint` gives for the photos that the figures in README.md were measured with."""


class NoPackageError(Exception):
    """A package cannot be had."""


def unpacked(package: str, cache: Path) -> Path:
    """Returns the folder with a package's files, downloaded and unpacked at most once.

    Args:
        package: Its name.
        cache: Where downloads are kept.

    Raises:
        NoPackageError: It cannot be downloaded or unpacked.
    """
    folder = cache / package
    if folder.exists():
        return folder
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoPackageError(f"{package}: needs apt-get and dpkg-deb, of Debian or Ubuntu")
    archive = downloaded(package, cache / "debs")
    partial_folder = cache / f"{package}.part"
    shutil.rmtree(partial_folder, ignore_errors=True)
    done = subprocess.run(
        ["dpkg-deb", "-x", archive, partial_folder], capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        raise NoPackageError(f"{archive}: cannot be unpacked: {done.stderr.strip()}")
    partial_folder.rename(folder)
    return folder


def downloaded(package: str, folder: Path) -> Path:
    """Returns the package's file, downloaded unless it is there.

    Raises:
        NoPackageError: It cannot be downloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(folder.glob(f"{package}_*.deb"))):
        print(f"downloading {package}", file=sys.stderr)
        download = ["apt-get", "download", "-qq", package]
        done = subprocess.run(download, cwd=folder, capture_output=True, encoding="utf-8")
        if done.returncode and os.geteuid() == 0:  # maybe the lists of packages were never fetched
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
            done = subprocess.run(download, cwd=folder, capture_output=True, encoding="utf-8")
        found = sorted(folder.glob(f"{package}_*.deb"))
        if done.returncode or not found:
            why = (done.stderr.strip().splitlines() or ["apt-get gave nothing"])[-1]
            raise NoPackageError(
                f"{package}: cannot be downloaded: {why}: "
                "try `sudo apt-get update`; Debian 12 has it"
            )
    return found[-1]


def photographs(cache: Path) -> list[Image.Image]:
    """Returns the photographs to cut pieces from, RGB, in a fixed order.

    Raises:
        NoPackageError: A package cannot be had.
    """
    folders = [unpacked(package, cache) / below for package, below in PHOTOGRAPHS.items()]
    paths = sorted(path for folder in folders for path in folder.rglob("*.jpg"))
    found = []
    for path in paths:
        if path.stat().st_size <= SMALLEST_FILE:
            continue
        image = Image.open(path).convert("RGB")
        scale = min(1.0, LONGEST_SIDE / max(image.size))
        size = int(image.width * scale), int(image.height * scale)
        image = image.resize(size, Image.Resampling.LANCZOS)
        if min(image.size) >= SHORTEST_SIDE:
            found.append(image)
    return found


def photo_path(number: int, classes: int) -> str:
    """Returns a photo's path, named as ImageNet's are."""
    name = f"n{number % classes:08d}"
    return f"{name}/{name}_{number}.JPEG"


def write_photo(number: int, seed: int, sources: Sequence[Image.Image], path: Path) -> None:
    """Writes one photo: a random piece of a photograph, resized, maybe mirrored.

    Every draw comes from one generator in this order: the order is what makes files the same.
    """
    rng = random.Random(seed * 1_000_003 + number)
    source = sources[rng.randrange(len(sources))]
    shape = rng.random()
    if shape < 0.55:
        width, height = 500, 375
    elif shape < 0.75:
        width, height = 375, 500
    else:
        width, height = rng.randint(200, 800), rng.randint(200, 800)
    zoom = min(rng.uniform(1.0, 2.0), source.width / width, source.height / height)
    wide, high = int(width * zoom), int(height * zoom)
    left, top = rng.randint(0, source.width - wide), rng.randint(0, source.height - high)
    piece = source.crop((left, top, left + wide, top + high))
    piece = piece.resize((width, height), Image.Resampling.LANCZOS)
    if rng.random() < 0.5:
        piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    quality, subsampling = rng.choice([88, 92, 95, 96, 97]), rng.choice([0, 2, 2, 2])
    path.parent.mkdir(parents=True, exist_ok=True)
    piece.save(path, quality=quality, subsampling=subsampling)


def write_photos(numbers: range, out: Path, classes: int, seed: int, cache: Path) -> None:
    """Writes some of the photos: what one process does."""
    sources = photographs(cache)
    for number in numbers:
        write_photo(number, seed, sources, out / photo_path(number, classes))


def make_photos(out: Path, count: int, classes: int, seed: int, cache: Path, jobs: int) -> None:
    """Makes a folder of photos.

    Args:
        out: The folder.
        count: How many photos.
        classes: In how many folders.
        seed: Another one gives other photos.
        cache: Where downloads are kept.
        jobs: How many processes.

    Raises:
        NoPackageError: A package cannot be had.
    """
    for package in PHOTOGRAPHS:  # once, before the processes want it all at the same time
        unpacked(package, cache)
    shares = [range(first, count, jobs) for first in range(jobs)]
    write = partial(write_photos, out=out, classes=classes, seed=seed, cache=cache)
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(write, shares))


def fingerprint(out: Path, classes: int) -> str:
    """Returns a hash of the first ten photos, 8 hexadecimal digits."""
    digest = hashlib.sha256()
    for number in range(10):
        path = out / photo_path(number, classes)
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:8]


def make_stamps(out: Path, cache: Path) -> int:
    """Copies the stamps to a folder; returns how many PNG files they are.

    Raises:
        NoPackageError: The package cannot be had.
    """
    source = unpacked(STAMPS, cache) / STAMPS_FOLDER
    shutil.copytree(source, out, symlinks=True, dirs_exist_ok=True)
    return sum(1 for _ in out.rglob("*.png"))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["photos", "stamps"])
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to make")
    parser.add_argument("--count", type=int, default=10_000, help="photos to make (%(default)s)")
    parser.add_argument("--classes", type=int, default=100, help="folders of them (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="another gives others (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "fastconv-corpus",
        help="where downloads are kept (%(default)s)",
    )
    args = parser.parse_args(argv)
    if min(args.count, args.classes, args.jobs) < 1:
        parser.error("--count, --classes and --jobs are at least 1")
    try:
        if args.kind == "stamps":
            print(f"{make_stamps(args.out, args.cache)} PNG files in {args.out}")
            return 0
        make_photos(args.out, args.count, args.classes, args.seed, args.cache, args.jobs)
    except NoPackageError as error:
        print(f"photos.py: {error}", file=sys.stderr)
        return 1
    print(f"{args.count} JPEG files in {args.out}")
    if args.seed == 7 and args.classes == 100 and args.count >= 10:
        same = fingerprint(args.out, args.classes) == EXPECTED
        print(
            "they are those that README.md's figures were measured with"
            if same
            else "they are not byte for byte those that README.md's figures were measured with: "
            "another Pillow or other versions of the packages"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
