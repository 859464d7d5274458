"""What does it cost to make images smaller while packing, what is lost, and what does it give?

    python benchmarks/encode.py

Making: `fastconv pack --resize short=256 --encode jpeg --quality 90` beside a pool of processes in
which Pillow does the same and writes files (benchmarks/pillow_pool.py), whole processes, on as many
cores.

What is lost: of some photos, the result of both is compared with the exact one, which Pillow
computes with floats, as PSNR and SSIM (Wang et al. 2004, windows of 8 x 8, on the luma).

What it gives: one loader, FastLoader, on packs of the photos as they are, of 256 pixels and quality
90, and of raw pixels of 224 x 224; beside ImageFolder with a DataLoader and Pillow on the photos,
and, where they are installed (loaders.py --install), FFCV and LitData on their own forms of them.
All give 224 x 224: Resize(256) and CenterCrop(224), of raw pixels nothing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import (
    FASTCONV,
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
    parsed,
    ratios,
    with_photos,
)
from loader_peers.shared import Options, environments, images
from pack import remove
from PIL import Image
from pillow_pool import QUALITY, SIDE, shorter
from processes import run

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main", "measure"]

HERE = Path(__file__).parent
SMALLER = ["--resize", f"short={SIDE}", "--encode", "jpeg", "--quality", str(QUALITY)]
PACKS = {
    "as they are": [],
    f"{SIDE} pixels, quality {QUALITY}": SMALLER,
    "raw, 224 x 224": ["--resize", "224x224", "--enlarge", "--encode", "raw"],
}
"""What is loaded -> the options of `fastconv pack` that make it."""
PEERS = {"FFCV": ("ffcv_beton", ".beton"), "LitData": ("litdata_chunks", "")}
"""Others that are fed with smaller images -> the script, and what its data's name ends in."""
PEER_WAYS = {"small": f"{SIDE} pixels, quality {QUALITY}", "raw": "raw, 224 x 224"}
POOL = "Pillow in a pool of processes"
OURS = "fastconv pack"
FOLDER = "ImageFolder, DataLoader, Pillow"

Found = Mapping[str, Measured]
Floats = npt.NDArray[np.float64]


def python_of(script: str, work: Path) -> str:
    """Returns what runs a script of loader_peers/."""
    needs = {"ffcv_beton": "ffcv", "litdata_chunks": "litdata"}.get(script)
    return sys.executable if needs is None else str(environments(work) / needs / "bin/python")


def luma(pixels: Floats) -> Floats:
    """Returns Y of ITU-R BT.601, (rows, columns)."""
    red, green, blue = np.moveaxis(pixels, -1, 0)
    found: Floats = 0.299 * red + 0.587 * green + 0.114 * blue
    return found


def window_means(values: Floats) -> Floats:
    """Returns the mean of each window of 8 x 8."""
    sums = np.pad(values, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    means: Floats = (sums[8:, 8:] - sums[:-8, 8:] - sums[8:, :-8] + sums[:-8, :-8]) / 64
    return means


def ssim(one: Floats, other: Floats) -> float:
    """Returns the mean structural similarity of two pictures, (rows, columns), 0 to 255."""
    a, b = window_means(one), window_means(other)
    aa, bb, ab = (window_means(x) for x in (one * one, other * other, one * other))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    top = (2 * a * b + c1) * (2 * (ab - a * b) + c2)
    return float(np.mean(top / ((a * a + b * b + c1) * (aa - a * a + bb - b * b + c2))))


def psnr(one: Floats, other: Floats) -> float:
    """Returns the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / np.mean((one - other) ** 2)))


def exact(path: str) -> Floats:
    """Returns the photo resized by Lanczos, computed with floats, neither rounded nor encoded."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    size = shorter(*image.size)
    planes = [
        np.asarray(plane.convert("F").resize(size, Image.Resampling.LANCZOS), np.float64)
        for plane in image.split()
    ]
    return np.clip(np.stack(planes, -1), 0, 255)


def decoded(data: bytes) -> Floats:
    """Returns the pixels of an image file."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float64)


def making(photos: Path, work: Path, rounds: int) -> tuple[Table, Found]:
    """Returns what it takes to make the photos smaller."""
    count = len(images(str(photos)))
    cores = len(os.sched_getaffinity(0))
    files, pack = work / "encode-pool", work / "encode-pack.lmdb"

    def pool() -> dict[str, float]:
        shutil.rmtree(files, ignore_errors=True)
        os.sync()
        done = run([sys.executable, str(HERE / "pillow_pool.py"), photos, files, str(cores)])
        return {"seconds": done.seconds}

    def ours() -> dict[str, float]:
        remove(pack)
        os.sync()
        done = run([*FASTCONV, "pack", photos, pack, *SMALLER, "--quiet"])
        return {"seconds": done.seconds}

    warm(files_of(photos))
    found = interleaved({POOL: pool, OURS: ours}, rounds, {})["seconds"]
    rows = []
    for name, seconds in found.items():
        speed = [None if s is None else count / s for s in seconds]
        base = [None if s is None else count / s for s in found[POOL]]
        of_base = ratios(speed, base)
        rows.append([name, middle(speed), extremes(speed), middle(of_base), extremes(of_base)])
    columns = ("", "images/s", "min to max", "times the pool", "min to max")
    notes = [f"medians of {rounds} rounds of {count:,} photos, {cores} processes each"]
    table = Table(f"Resize short={SIDE}, JPEG of quality {QUALITY}", columns, rows, notes)
    return table, {"seconds": found}


def quality(photos: Path, work: Path, count: int) -> Table:
    """Returns what is lost; the files and the pack are those of `making`."""
    from fastconv.loaders import open_dataset

    dataset = open_dataset(work / "encode-pack.lmdb", decode=None)
    names = [path for path, _ in images(str(photos))]
    step = max(len(names) // count, 1)
    scores: dict[str, list[tuple[float, float, int]]] = {POOL: [], OURS: []}
    for number in range(0, len(names), step):
        wanted = exact(names[number])
        path = Path(names[number]).relative_to(photos)
        file = (work / "encode-pool" / path).with_suffix(".jpg")
        for name, data in ((POOL, file.read_bytes()), (OURS, bytes(dataset[number][0]))):
            made = decoded(data)
            similar = ssim(luma(made), luma(wanted))
            scores[name].append((psnr(made, wanted), similar, len(data)))
    rows = []
    for name, values in scores.items():
        db, likeness, size = (np.array(column) for column in zip(*values, strict=True))
        numbers = (db.mean(), db.min(), likeness.mean(), likeness.min(), size.mean() / 1e3)
        digits = (2, 2, 4, 4, 1)
        rows.append([name, *(f"{n:.{d}f}" for n, d in zip(numbers, digits, strict=True))])
    columns = ("", "PSNR, dB", "worst", "SSIM", "worst", "kB an image")
    note = f"means over {len(scores[POOL])} photos, against Lanczos computed with floats"
    return Table("What is lost", columns, rows, [note])


def loading(photos: Path, work: Path, rounds: int, batches: int, batch: int) -> tuple[Table, Found]:
    """Returns what loaders give of the photos and of what was made of them."""
    options = Options(
        str(photos), geometry="val", batch=batch, workers=len(os.sched_getaffinity(0))
    )
    size = {FOLDER: sum(os.stat(file).st_size for file in files_of(photos))}
    takers = {FOLDER: ("pillow_folder", options)}
    for number, (name, made) in enumerate(PACKS.items()):
        pack = work / f"encode-{number}.lmdb"
        remove(pack)
        run([*FASTCONV, "pack", photos, pack, *made, "--quiet"])
        way = "stored" if "raw" in made else "threads"
        chosen = replace(options, data=str(pack), way=way)
        takers[f"FastLoader, {name}"] = ("fastconv_loaders", chosen)
        size[f"FastLoader, {name}"] = sum(os.stat(file).st_size for file in files_of(pack))
    left_out = []
    for peer, (script, ending) in PEERS.items():
        for way, name in PEER_WAYS.items():
            data = work / f"encode-{peer}-{way}{ending}"
            chosen = replace(options, data=str(data), way=way)
            command = [python_of(script, work), str(HERE / "loading.py"), script, chosen.to_json()]
            if not Path(command[0]).exists():
                left_out.append(f"left out: {peer}: is not installed")
                break
            try:
                remove(data)
                run([*command, "prepare"])
            except RuntimeError as error:
                left_out.append(f"left out: {peer}, {name}: {str(error).splitlines()[-1].strip()}")
                continue
            takers[f"{peer}, {name}"] = (script, chosen)
            size[f"{peer}, {name}"] = sum(os.stat(file).st_size for file in files_of(data))

    def turn(script: str, chosen: Options) -> dict[str, float]:
        warm(files_of(Path(chosen.data or chosen.photos)))
        command = [python_of(script, work), str(HERE / "loading.py"), script, chosen.to_json()]
        printed = run([*command, str(batches)]).output
        found: dict[str, float] = json.loads(printed.splitlines()[-1])
        return {"images/s": found["images/s"], "CPU": found["CPU"]}

    found = interleaved({name: partial(turn, *taker) for name, taker in takers.items()}, rounds)
    speed, cpu = found["images/s"], found["CPU"]
    whole = "FastLoader, as they are"
    rows = []
    for name in takers:
        of_folder, of_whole = ratios(speed[name], speed[FOLDER]), ratios(speed[name], speed[whole])
        rows.append(
            [
                name,
                f"{size[name] / 1e6:.0f}",
                middle(speed[name]),
                extremes(speed[name]),
                middle(of_folder),
                extremes(of_folder),
                middle(of_whole),
                extremes(of_whole),
                middle(cpu[name], 1e3),
            ]
        )
    columns = (
        "", "MB", "images/s", "min to max", "times ImageFolder", "min to max",
        "times the originals", "min to max", "CPU ms an image",
    )  # fmt: skip
    notes = [f"medians of {rounds} rounds, {batches} batches of {options.batch} in each", *left_out]
    return Table("Loading 224 x 224", columns, rows, notes), found


def measure(args: argparse.Namespace, command: str) -> Report:
    """Returns all of it."""
    made, first = making(args.photos, args.work, args.rounds)
    lost = quality(args.photos, args.work, args.compared)
    loaded, second = loading(args.photos, args.work, args.rounds, args.batches, args.batch)
    question = "What does it cost to make images smaller while packing, and what does it give?"
    values = {**first, **second}
    return Report(question, command, environment(args.work), [made, lost, loaded], values)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=3))
    parser.add_argument("--batches", type=int, default=60, help="a round (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--compared", type=int, default=300, help="photos (%(default)s)")
    args = parsed(parser, argv)
    finish(measure(args, command_line(sys.argv)), args)


if __name__ == "__main__":
    main()
