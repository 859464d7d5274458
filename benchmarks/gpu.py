"""How busy does a loader keep a GPU?

    python benchmarks/gpu.py
    python benchmarks/gpu.py --photos FOLDER --formats LMDB    # your own photos, fewer contestants
    python benchmarks/gpu.py --device cpu --rounds 1 --batch 4 --seconds 0.1    # to try it

For somebody with a GPU; without one it ends with exit code 2. Batches of photos,
RandomResizedCrop(224) and a flip, come to the GPU and are normalised there: by ImageFolder with a
DataLoader, as most training code has it, and of each format by a DataLoader with fastconv's
decoder, by FastLoader, and by FastLoader with the JPEGs decoded by nvJPEG. Once nothing is done to
them, and once a small convolutional network is trained, in channels_last and with autocast. The
photos are in the page cache. Each measurement is a process of its own; all take their turn in every
round, and ratios are taken within a round.

The report is printed, and written to gpu.md and gpu.json in --work. Torchvision gives ImageFolder
and nvJPEG, nvidia-ml-py how busy the GPU is; the report says what is left out without them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice, pairwise, repeat
from pathlib import Path
from typing import Any, Literal, get_args

import torch
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
from loader_peers.shared import SIZE, transforms
from processes import run
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fastconv.loaders import (
    FastconvError,
    FastLoader,
    ImageFolderDataset,
    MissingDependencyError,
    RandomResizedCrop,
    UsageError,
    make_loader,
    open_dataset,
)
from fastconv.loaders.limits import usable_cores
from fastconv.loaders.measure.cases import Settings
from fastconv.loaders.measure.gpu import chosen_device
from fastconv.loaders.measure.hosts import Host
from fastconv.loaders.measure.pagecache import files_of, warm
from fastconv.loaders.measure.stages import (
    PillowCrop,
    Repeated,
    ahead,
    feeding,
    noted,
    synchronise,
)
from fastconv.loaders.nvjpeg import check_torchvision

__all__ = ["main", "measure_one"]

Way = Literal["DataLoader", "FastLoader", "FastLoader, nvJPEG"]
Step = Literal["none", "network"]

STEPS: dict[Step, str] = {
    "none": "Batches on the device, nothing done to them",
    "network": "A small convolutional network is trained",
}
LIMIT = "the network alone, on a batch that is there"
CROP = RandomResizedCrop(SIZE, flip=0.5)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLUMNS = {
    "GPU busy %": ("gpu_busy_share", 100.0),
    "GPU waits %": ("gpu_wait_share", 100.0),
    "GPU MB": ("gpu_memory", 1e-6),
    "CPU ms an image": ("cpu_ms_per_image", 1.0),
}
"""Title of a column -> measure, and what it is multiplied by."""
WARM_UP = 3
"""Batches, at least, before the time runs: cuDNN has chosen its ways."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """What takes part.

    Attributes:
        way: How it loads; None for the network alone.
        path: What it reads; "" for the network alone.
        step: What is done to its batches.
        device: Where they go.
        batch: Images in one.
        workers: Processes, or threads.
        seconds: How long it is measured.
        raw: Whether it reads the folder of photos as ImageFolder does.
    """

    way: Way | None
    path: str
    step: Step
    device: str
    batch: int
    workers: int
    seconds: float
    raw: bool = False


def network() -> nn.Module:
    """Returns a small convolutional network."""
    layers: list[nn.Module] = []
    widths = (3, 64, 128, 256, 256)
    for before, after in pairwise(widths):
        convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100))


def step_of(contestant: Contestant, device: torch.device) -> Callable[[Tensor], None]:
    """Returns what is done to a batch of images on the device: float32, channels last.

    The labels are made up: nobody looks at what the network learns.
    """
    if contestant.step == "none":
        return lambda images: None
    torch.backends.cudnn.benchmark = True
    model = network().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    labels = torch.arange(contestant.batch, device=device) % 100
    old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    half = torch.float16 if old else torch.bfloat16  # which older GPUs only imitate

    def train(images: Tensor) -> None:
        with torch.autocast(device.type, half):
            loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train


def normalising(step: Callable[[Tensor], None], device: torch.device) -> Callable[[Tensor], None]:
    """Returns a step of uint8 images, of which it makes first what FastLoader gives by itself."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, STD))

    def normalise(images: Tensor) -> None:
        images = images.to(memory_format=torch.channels_last)
        step(images.to(torch.float32).sub_(mean).div_(std))

    return normalise


def folder_of(path: str) -> Any:
    """Returns torchvision's ImageFolder of a folder, or ours where torchvision is missing."""
    if not torchvision_found():
        return ImageFolderDataset(path, PillowCrop(CROP))
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    return ImageFolder(path, v2.Compose([transforms("train"), v2.PILToTensor()]))


def torchvision_found() -> bool:
    """Returns whether torchvision is there, and made for this torch."""
    try:
        check_torchvision()
    except MissingDependencyError:
        return False
    return True


def loader_of(contestant: Contestant, sampler: Repeated) -> DataLoader[Any] | FastLoader:
    """Returns the loader of a contestant."""
    batch, workers = contestant.batch, contestant.workers
    if contestant.raw:
        pinned = contestant.device.startswith("cuda")
        return DataLoader(
            folder_of(contestant.path), batch, sampler=sampler, num_workers=workers,
            pin_memory=pinned,
        )  # fmt: skip
    dataset = open_dataset(contestant.path, decode=CROP)
    if contestant.way == "DataLoader":
        return make_loader(
            dataset, batch, kind="processes", sampler=sampler, num_workers=workers,
            persistent_workers=False,
        )  # fmt: skip
    return FastLoader(
        dataset, batch, sampler=sampler, num_workers=workers, device=contestant.device,
        decode="cuda" if contestant.way == "FastLoader, nvJPEG" else "cpu", normalize=(MEAN, STD),
    )  # fmt: skip


def measure_one(contestant: Contestant, seed: int) -> dict[str, float]:
    """Returns what is measured of a contestant, in this process: measure -> value.

    Raises:
        FastconvError: It cannot be measured.
    """
    device = torch.device(contestant.device)
    torch.manual_seed(seed)
    step, settings = step_of(contestant, device), Settings(seconds=contestant.seconds)
    if contestant.way is None:
        shape = contestant.batch, 3, SIZE, SIZE
        there = torch.rand(shape, device=device).contiguous(memory_format=torch.channels_last)
        for _ in range(WARM_UP):
            step(there)
        synchronise(device)
        return feeding(repeat((there,)), step, device, settings)
    if contestant.way == "DataLoader":
        step = normalising(step, device)
    samples = len(open_dataset(contestant.path))
    most_ahead = contestant.batch * (contestant.workers + 1) * 4
    sampler = Repeated(samples, seed, 2 * samples + most_ahead)
    loader = loader_of(contestant, sampler)
    with closing(noted(loader, sampler)) as batches:  # type: ignore[type-var]
        # What was made ahead while the first batches were waited for is not this loader's speed.
        for images, _ in islice(batches, max(ahead(loader), WARM_UP)):
            step(images.to(device, non_blocking=True))
        synchronise(device)
        found = feeding(batches, step, device, settings)
    if contestant.way == "FastLoader, nvJPEG":
        assert isinstance(loader, FastLoader)
        found["decoded_on_cpu"] = float(loader.decoded_on_cpu)
    return found


def measured(
    name: str, contestant: Contestant, seeds: Iterator[int], left_out: dict[str, str]
) -> Mapping[str, float]:
    """Returns what a process of its own measures of a contestant, nothing where it fails.

    Args:
        name: Of the contestant.
        contestant: What it does.
        seeds: Gives another one each time.
        left_out: Where to note why it fails.
    """
    host = Host(__name__)
    try:
        found: Mapping[str, float] = host.call("measure_one", contestant, next(seeds))
    except FastconvError as error:
        say(f"{name}: {error}")
        left_out[name] = f"fails: {error}"
        return {}
    finally:
        host.close()
    return found


def packs(
    photos: Path, work: Path, titles: Sequence[str], left_out: dict[str, str]
) -> dict[str, Path]:
    """Returns title -> pack of the photos; notes the formats that cannot be packed here."""
    found = {}
    for title in titles:
        out = work / f"read.{FORMATS[title]}"  # as benchmarks/read.py has it
        try:
            run([*FASTCONV, "pack", photos, out, "--quiet", "--overwrite"])
        except RuntimeError as error:
            left_out[title] = str(error).splitlines()[-1].strip()
            continue
        warm(files_of(out))
        found[title] = out
    return found


def plan(args: argparse.Namespace, left_out: dict[str, str]) -> dict[str, Contestant]:
    """Returns name -> contestant, those of each step together; what they read is made.

    Args:
        args: The options of this program.
        left_out: Where to note what cannot take part, and why.
    """
    make = partial(
        Contestant, step="none", device=args.device, batch=args.batch, workers=args.workers,
        seconds=args.seconds,
    )  # fmt: skip
    warm(files_of(args.photos))
    readers = {base_name(): make("DataLoader", str(args.photos), raw=True)}
    ways: list[Way] = [way for way in get_args(Way) if way in args.ways]
    if "FastLoader, nvJPEG" in ways and not args.device.startswith("cuda"):
        left_out["FastLoader, nvJPEG"] = "needs a GPU"
    elif "FastLoader, nvJPEG" in ways and not torchvision_found():
        left_out["FastLoader, nvJPEG"] = "torchvision is not installed"
    for title, path in packs(args.photos, args.work, args.formats, left_out).items():
        for way in ways:
            if way not in left_out:
                readers[f"{title}, {way}"] = make(way, str(path))
    found = {
        f"{name}, {step}": replace(contestant, step=step)
        for step in STEPS
        for name, contestant in readers.items()
    }
    return found | {f"{LIMIT}, network": make(None, "", step="network")}


def base_name() -> str:
    """Returns what all are compared with."""
    whose = "torchvision's" if torchvision_found() else "fastconv's"
    return f"{whose} ImageFolder, DataLoader, Pillow"


def table(step: Step, found: Mapping[str, Measured], notes: Sequence[str]) -> Table:
    """Returns the table of one step.

    Args:
        step: Which one.
        found: What was measured.
        notes: What one must know to read it.
    """
    ending = f", {step}"
    its: dict[str, Measured] = {
        measure: {
            name.removesuffix(ending): values
            for name, values in all_values.items()
            if name.endswith(ending)
        }
        for measure, all_values in found.items()
    }
    speed = its["images_per_s"]
    base, limit = speed[base_name()], speed.get(LIMIT)
    rows = []
    for name, values in speed.items():
        if not any(values):
            continue
        gain = ratios(values, base)
        cells = [middle(values), extremes(values), middle(gain), extremes(gain)]
        if limit is not None:
            cells.append(middle(ratios(values, limit)))
        for measure, scale in COLUMNS.values():
            cells.append(middle(its.get(measure, {}).get(name, ()), scale))
        rows.append([name, *cells])
    columns = ["", "images/s", "min to max", "times the first", "min to max"]
    if limit is not None:
        columns.append("of the network alone")
    return Table(STEPS[step], [*columns, *COLUMNS], rows, notes)


def measure(args: argparse.Namespace, command: str) -> Report:
    """Returns how the loaders compare.

    Args:
        args: The options of this program.
        command: What was run.
    """
    left_out: dict[str, str] = {}
    contestants = plan(args, left_out)
    seeds = count()
    found = interleaved(
        {
            name: partial(measured, name, contestant, seeds, left_out)
            for name, contestant in contestants.items()
        },
        args.rounds,
    )
    if why := left_out.get(f"{base_name()}, none"):
        raise SystemExit(f"gpu.py: {base_name()}, which all are compared with, {why}")
    notes = [
        f"medians of {args.rounds} rounds of {args.seconds:g} s; ratios are taken within a round",
        f"batches of {args.batch}, {args.workers} workers: processes of a DataLoader, threads of a "
        "FastLoader",
        "GPU busy: as NVML counts it, the share of the time in which anything ran on it; GPU "
        "waits: the share between the end of a step and its next data, by the GPU's clock",
    ]
    if not found.get("gpu_busy_share"):
        notes.append("NVML told nothing: without a GPU, or nvidia-ml-py is not installed")
    for name, values in found.get("decoded_on_cpu", {}).items():
        if most := max((value for value in values if value), default=0):
            notes.append(f"{name}: up to {most:.0f} images a measurement were decoded on the CPU")
    notes += [f"left out: {name}: {why}" for name, why in left_out.items()]
    where = {"device": device_name(args.device), **environment(args.work)}
    tables = [table(step, found, notes) for step in STEPS]
    return Report("How busy does a loader keep a GPU?", command, where, tables, found)


def device_name(device: str) -> str:
    """Returns what a device is."""
    if not device.startswith("cuda"):
        return f"{device}: no GPU, so this shows no more than that the program runs"
    return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints and writes the report; returns the exit code."""
    assert __doc__ is not None
    parser = with_photos(arguments(__doc__, rounds=3))
    parser.add_argument("--device", default="cuda", help="as torch names it (%(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="images in one (%(default)s)")
    parser.add_argument(
        "--workers", type=int, default=usable_cores().usable, help="processes, or threads "
        "(%(default)s)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=4.0, help="a measurement (%(default)s)")
    parser.add_argument(
        "--formats", nargs="*", choices=FORMATS, default=list(FORMATS), metavar="NAME",
        help=f"which of: {', '.join(FORMATS)} (all)",
    )  # fmt: skip
    parser.add_argument(
        "--ways", nargs="+", choices=get_args(Way), default=list(get_args(Way)), metavar="WAY",
        help=f"which of: {'; '.join(get_args(Way))} (all)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    try:
        chosen_device(args.device)
    except UsageError as error:
        say(f"gpu.py: no GPU to measure: {error}; --device cpu tries the program without one")
        return 2
    args = parsed(parser, argv)
    report = measure(args, command_line(sys.argv))
    (args.work / "gpu.md").write_text(f"{report.to_markdown()}\n", encoding="utf-8")
    (args.work / "gpu.json").write_text(report.to_json(), encoding="utf-8")
    finish(report, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
