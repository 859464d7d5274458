"""How many images a second does a loader give, and what do they cost?

    python benchmarks/loaders.py --install     # the peers first, each in an environment in --work
    python benchmarks/loaders.py
    python benchmarks/loaders.py --million     # what a pack of a million samples takes

Batches of 64 photos, decoded, cropped and resized to 224 x 224, uint8, by two processes or threads
(--workers), once as for training, RandomResizedCrop(224) with a flip, and once as for validation,
Resize(256) and CenterCrop(224). The photos are in the page cache. Each contestant is a process of
its own; all take their turn in every round. Processor time is that of all its processes. It says
more than the images a second do where the machine has something else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import xxhash
from common import (
    FASTCONV,
    FORMATS,
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
    say,
    with_photos,
)
from loader_peers.shared import Geometry, Options, environments, images
from million import measure_million
from processes import run

from fastconv.loaders.measure.pagecache import files_of, warm

__all__ = ["main"]

HERE = Path(__file__).parent
GEOMETRIES: dict[Geometry, str] = {
    "train": "RandomResizedCrop(224), flip",
    "val": "Resize(256), CenterCrop(224)",
}
OURS = "own"
"""The environment that this runs in."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A contestant.

    Attributes:
        script: Its module in loader_peers/.
        way: Which of the script's ways.
        data: What it reads: "" for the photos, the title of one of fastconv's formats, or a name
            for what its script prepares.
        needs: Its environment.
    """

    script: str
    way: str = ""
    data: str = ""
    needs: str = OURS


PILLOW = "ImageFolder, DataLoader, Pillow"
TORCHVISION = "torchvision ImageFolder, DataLoader"
LIMIT = "the kernel alone"
LOADERS = {
    PILLOW: Loader("pillow_folder"),
    LIMIT: Loader("fastconv_limit"),
    **{
        f"FastLoader, {title}": Loader("fastconv_loaders", "threads", title)
        for title in sorted(FORMATS)
    },
    "FastLoader, LMDB, without the kernel": Loader("fastconv_loaders", "python", "LMDB"),
    "FastLoader, raw folder": Loader("fastconv_loaders", "threads"),
    "fastconv Dataset, DataLoader, LMDB": Loader("fastconv_loaders", "processes", "LMDB"),
    TORCHVISION: Loader("torchvision_folder", "pillow", needs="torchvision"),
    f"{TORCHVISION}, tensors": Loader("torchvision_folder", "tensors", needs="torchvision"),
    "webdataset": Loader("webdataset_shards", data="shards", needs="webdataset"),
    "Hugging Face datasets": Loader("huggingface_arrow", data="arrow", needs="datasets"),
    "litdata": Loader("litdata_chunks", data="chunks", needs="litdata"),
    "DALI, CPU": Loader("dali_files", needs="dali"),
    "FFCV, encoded anew": Loader("ffcv_beton", data="beton", needs="ffcv"),
}


class Contest:
    """Those that take part, with what they read.

    Args:
        photos: A folder of images.
        work: Where everything else is.
        options: Batch size and workers.
        count: Batches to measure.

    Attributes:
        left_out: Name of a contestant -> why it does not take part.
    """

    def __init__(self, photos: Path, work: Path, options: Options, count: int) -> None:
        self.photos = photos
        self.work = work
        self.options = options
        self.count = count
        self.left_out: dict[str, str] = {}
        found = images(str(photos))
        sizes = [os.stat(path).st_size for path, _ in found]
        self.stamp = xxhash.xxh3_64_hexdigest(os.fsencode(f"{found} {sizes}"))

    def command(self, loader: Loader, options: Options) -> list[str]:
        """Returns what runs its script in its environment."""
        python = sys.executable
        if loader.needs != OURS:
            python = str(environments(self.work) / loader.needs / "bin" / "python")
        return [python, str(HERE / "loading.py"), loader.script, options.to_json()]

    def take_part(self, names: Iterable[str]) -> dict[str, Options]:
        """Returns those that can take part, with their options; what they read is made."""
        found = {}
        for name in names:
            loader = LOADERS[name]
            installed = (environments(self.work) / f"{loader.needs}.ok").exists()
            if loader.needs != OURS and not installed:
                self.left_out[name] = "is not installed"
                continue
            try:
                data = self.prepared(loader)
            except RuntimeError as error:
                self.fails(name, error)
                continue
            warm([*map(Path, files_of(data))] if data else files_of(self.photos))
            options = replace(self.options, photos=str(self.photos), way=loader.way)
            found[name] = replace(options, data=str(data or ""))
        return found

    def prepared(self, loader: Loader) -> Path | None:
        """Returns what it reads, None for the photos themselves.

        Raises:
            RuntimeError: It could not be made.
        """
        if not loader.data:
            return None
        if loader.data in FORMATS:
            pack = self.work / f"read.{FORMATS[loader.data]}"  # as benchmarks/read.py has it
            run([*FASTCONV, "pack", self.photos, pack, "--quiet", "--overwrite"])
            return pack
        out = self.work / f"loaders-{self.stamp}-{loader.data}"
        if not out.exists():
            say(f"preparing {loader.script}, once")
            making = out.with_name(f"{out.name}.making")
            options = replace(self.options, photos=str(self.photos), data=str(making))
            run([*self.command(loader, options), "prepare"])
            making.rename(out)
        return out

    def measure(self, name: str, options: Options) -> Mapping[str, float]:
        """Returns what was measured of a contestant, nothing where it fails."""
        try:
            printed = run([*self.command(LOADERS[name], options), str(self.count)]).output
        except RuntimeError as error:
            self.fails(name, error)
            return {}
        found: dict[str, float] = json.loads(printed.splitlines()[-1])
        return found

    def fails(self, name: str, error: RuntimeError) -> None:
        """Notes that a contestant fails, and why."""
        say(f"{name}: {error}")
        self.left_out[name] = f"fails: {str(error).splitlines()[-1].strip()}"


def compared(
    title: str, found: Mapping[str, Measured], names: Sequence[str], notes: Sequence[str]
) -> Table:
    """Returns the table of one geometry.

    Args:
        title: Its title.
        found: What was measured.
        names: Who took part.
        notes: What one must know to read it.
    """
    base = next((name for name in (PILLOW, TORCHVISION) if name in names), names[0])
    speed, cpu = found["images/s"], found["CPU"]
    rows = []
    for name in names:
        of_base = ratios(speed[name], speed[base])
        of_limit = ratios(speed[name], speed[LIMIT]) if LIMIT in names else []
        rows.append(
            [
                name,
                middle(speed[name]),
                extremes(speed[name]),
                middle(of_base),
                extremes(of_base),
                middle(of_limit),
                middle(cpu[name], 1e3),
                extremes(cpu[name], 1e3),
                middle(ratios(cpu[base], cpu[name])),
                middle(found["first"][name]),
                middle(found["PSS"][name], 1e-6),
            ]
        )
    columns = (
        "",
        "images/s",
        "min to max",
        "times the first",
        "min to max",
        "of the kernel alone",
        "CPU ms an image",
        "min to max",
        "times less CPU",
        "first batch s",
        "PSS MB",
    )
    return Table(title, columns, rows, [*notes, f"the first is {base}"])


def measure(args: argparse.Namespace, command: str) -> Report:
    """Returns how the loaders compare.

    Args:
        args: The options of this program.
        command: What was run.
    """
    options = Options(str(args.photos), batch=args.batch, workers=args.workers)
    contest = Contest(args.photos, args.work, options, args.batches)
    takers = contest.take_part(args.only)
    contestants = {
        f"{name}, {geometry}": partial(contest.measure, name, replace(chosen, geometry=geometry))
        for geometry in args.geometry
        for name, chosen in takers.items()
    }
    found = interleaved(contestants, args.rounds)
    notes = [
        f"medians of {args.rounds} rounds, {args.batches} batches of {args.batch} in each; ratios "
        "are taken within a round",
        "the first batch counts from making the loader, imports excluded",
        *(f"left out: {name}: {why}" for name, why in contest.left_out.items()),
    ]
    tables = []
    for geometry in args.geometry:
        ending = f", {geometry}"
        its = {
            measure: {
                name: values[name + ending]
                for name in takers
                if values[name + ending] != [None] * args.rounds
            }
            for measure, values in found.items()
        }
        tables.append(compared(GEOMETRIES[geometry], its, list(its["images/s"]), notes))
    where = environment(args.work)
    return Report("How fast do loaders give images?", command, where, tables, found)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=5))
    parser.add_argument("--batches", type=int, default=60, help="a round (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="(%(default)s)")
    parser.add_argument(
        "--geometry", nargs="+", choices=get_args(Geometry), default=list(GEOMETRIES), help="(all)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=LOADERS, default=list(LOADERS), metavar="NAME",
        help=f"which of: {'; '.join(LOADERS)} (all)",
    )  # fmt: skip
    parser.add_argument("--install", action="store_true", help="the peers, nothing else")
    parser.add_argument("--million", action="store_true", help="a large pack instead")
    parser.add_argument("--samples", type=int, default=1_000_000, help="in it (%(default)s)")
    args = parser.parse_args(argv)
    if args.install:
        print(run([HERE / "loader_peers" / "install.sh", environments(args.work)]).output, end="")
        return
    command = command_line(sys.argv)
    if args.million:
        args.work.mkdir(parents=True, exist_ok=True)
        finish(measure_million(args.samples, args.work.absolute(), args.rounds, command), args)
        return
    finish(measure(parsed(parser, argv), command), args)


if __name__ == "__main__":
    main()
