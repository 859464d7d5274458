"""What is measured of one source, in a process of its own: one function a stage.

Each opens the source anew, so that nothing of an earlier measurement is held, and returns measure
-> value. Times are in seconds unless a measure's name says otherwise.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from xxhash import xxh3_64_intdigest

from fastconv.loaders.datasets import PackDataset, open_dataset
from fastconv.loaders.decoders import RandomResizedCrop
from fastconv.loaders.errors import (
    FastconvError,
    MissingDependencyError,
    PackChangedError,
    printable,
)
from fastconv.loaders.loader import FastLoader, make_loader
from fastconv.loaders.measure.cases import Case, Series, Settings, Source, Values
from fastconv.loaders.measure.gpu import Waits, watched
from fastconv.loaders.measure.latency import SlowDataset
from fastconv.loaders.measure.pagecache import evict, files_of, resident, warm
from fastconv.loaders.measure.steps import training_step
from fastconv.loaders.measure.usage import Used, cpu_seconds, memory_used, tree
from fastconv.loaders.open import find_format, open_pack

__all__ = ["PillowCrop", "Repeated", "describe", "measure"]

MOST_OPENED = 0.5
"""Share of a pack that may be in the page cache since it was opened, and be called cold."""

MOST_TOLD = 5
"""Bad files of a source that are named."""

MOST_COLD = 4096
"""Samples that are read at most from a cold page cache: files of a raw folder are made cold one by
one."""

LEAST_BATCHES = 3
"""Batches that are measured at least, however long they take."""

MOST_MEMORY_S = 20.0
"""How long going through an epoch for its memory may take; what is left out is said."""

TICK = 0.01
"""Seconds in which the system counts processor time: less than that cannot be told apart from
none."""

LOOKS = 20
"""How often memory is looked at in an epoch."""


class NotColdError(FastconvError):
    """What is to be read cannot be taken out of the page cache."""


class PillowCrop:
    """A transform as most training code has it: crop, resize and flip a PIL image, as a tensor.

    Args:
        decoder: Says which part, and how large.
    """

    def __init__(self, decoder: RandomResizedCrop) -> None:
        self.decoder = decoder

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """Returns uint8 (3, rows, columns)."""
        draw = torch.rand(self.decoder.draws, dtype=torch.float64).tolist()
        part = self.decoder.geometry(*image.size, draw)
        box = (part.x, part.y, part.x + part.width, part.y + part.height)
        size = (part.columns, part.rows)
        resized = image.crop(box).resize(size, Image.Resampling.BILINEAR)
        if part.flip:
            resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


class Repeated(Iterable[int]):
    """A sampler that never ends: one random order after another, while samples arrive.

    Args:
        samples: How many samples there are.
        seed: Of the orders.
        patience: How many indices are given while nothing arrives; then it ends after all.
    """

    def __init__(self, samples: int, seed: int, patience: int) -> None:
        self.samples = samples
        self.seed = seed
        self.patience = self.left = patience

    def arrived(self) -> None:
        """Says that samples arrived."""
        self.left = self.patience

    def __len__(self) -> int:
        return 1 << 40

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng(self.seed)
        while self.left > 0:
            self.left -= self.samples
            yield from random.permutation(self.samples).tolist()


def describe(path: str, name: str) -> Source:
    """Returns what a folder of images or a pack is; what it needs is imported from now on.

    Raises:
        FastconvError: It cannot be read.
    """
    dataset = open_dataset(path)
    table = dataset.table
    title = find_format(path).title
    if dataset.format == "folder":
        size = sum(path.stat().st_size for path in image_files(dataset, range(len(dataset))))
        files = len(dataset)
    else:
        size = int(np.maximum(table.size[0], 0).sum())
        files = len(dataset.meta.shards)
    reader = open_pack(path)
    told = [f"left out: {printable(bad.path)}: {bad.message}" for bad in reader.bad[:MOST_TOLD]]
    if len(reader.bad) > MOST_TOLD:
        told.append(f"left out: {len(reader.bad) - MOST_TOLD:,} more")
    return Source(
        name, os.path.abspath(path), dataset.format, title, len(dataset), size, files,
        "" if dataset.format == "folder" else dataset.pack_id, (*reader.notices, *told),
        bool(reader.meta.encoding),
    )  # fmt: skip


def measure(
    source: Source, case: Case, settings: Settings, seed: int
) -> tuple[Values, Series, str]:
    """Returns what is found of one case, and why nothing is where it cannot be measured here.

    Args:
        source: What is read.
        case: What is measured.
        settings: How.
        seed: Of everything random; another one in each round.

    Raises:
        FastconvError: It cannot be measured.
    """
    gc.collect()  # maps of what was read before would keep their pages in the page cache
    torch.manual_seed(seed)
    stages: dict[str, Callable[[Source, Case, Settings, int], Values]] = {
        "open": opening, "read": reading, "decode": decoding, "load": loading, "copy": copying,
    }  # fmt: skip
    try:
        if case.stage == "memory":
            return *memory(source, case, settings, seed), ""
        return stages[case.stage](source, case, settings, seed), {}, ""
    except (NotColdError, MissingDependencyError) as error:
        return {}, {}, str(error)


def opened(source: Source, settings: Settings, **options: Any) -> PackDataset:
    """Returns the source's Dataset, waiting where a slow file system is simulated."""
    options = {"on_error": "skip", **options}
    if settings.latency is not None:
        dataset: PackDataset = SlowDataset(source.path, settings.latency, **options)
    else:
        dataset = open_dataset(source.path, **options)
    if len(dataset) != source.samples or (source.id and dataset.pack_id != source.id):
        raise PackChangedError(f"{printable(source.path)}: was replaced while it was measured")
    return dataset


def image_files(dataset: PackDataset, rows: Iterable[int]) -> Iterator[Path]:
    """Yields the files of some samples of a raw folder."""
    root, table = Path(dataset.path), dataset.table
    return (root / table.path(row) for row in rows)


def drop_inodes() -> bool:
    """Drops the kernel's caches of folders and inodes; returns whether it was allowed to."""
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2")
    except OSError:
        return False
    return True


def cool(source: Source, rows: Sequence[int]) -> Values:
    """Takes what some samples need out of the page cache, and checks that it is gone.

    Returns:
        The share of it that stayed nevertheless, and whether the folders' and inodes' caches were
        dropped too.

    Raises:
        NotColdError: Most of it stayed.
    """
    if source.is_raw:
        dataset = open_dataset(source.path)
        files = list(image_files(dataset, rows))
        del dataset
    else:
        files = files_of(Path(source.path))
    total = sum(file.stat().st_size for file in files)
    evict(files)
    try:
        stayed = min(resident(files) / max(total, 1), 1.0)
    except OSError as error:
        raise NotColdError(
            f"{printable(source.path)}: whether it is in the page cache cannot be told: "
            f"{error.strerror}"
        ) from error
    if stayed > 0.05:
        raise NotColdError(
            f"{printable(source.path)}: {stayed:.0%} of it cannot be taken out of the page cache: "
            "another program uses it, or its file system has no other place for it (tmpfs)"
        )
    return {"stayed_share": stayed, "inodes_dropped": float(drop_inodes())}


def cool_again(source: Source, found: Values) -> None:
    """Takes out of the page cache what opening a pack has brought there beside what it needs; notes
    what stayed.

    Raises:
        NotColdError: Opening it needs most of it.
    """
    if source.is_raw:
        return
    files = files_of(Path(source.path))
    evict(files)
    stayed = min(resident(files) / max(sum(file.stat().st_size for file in files), 1), 1.0)
    found["stayed_share"] = stayed
    if stayed > MOST_OPENED:
        raise NotColdError(
            f"{printable(source.path)}: opening it reads {stayed:.0%} of it: it is too small to be "
            "read cold"
        )


def rows_of(source: Source, case: Case, most: int, seed: int) -> list[int]:
    """Returns numbers of samples to read."""
    random = np.random.default_rng(seed)
    count = min(source.samples, most)
    if case.order == "random":
        return [int(row) for row in random.permutation(source.samples)[:count]]
    first = int(random.integers(0, source.samples - count + 1))
    return list(range(first, first + count))


def opening(source: Source, case: Case, settings: Settings, seed: int) -> Values:
    """Returns how long it takes until the first sample's bytes can be read, imports excluded."""
    found: Values = {}
    if case.cache == "cold":
        found = cool(source, [source.samples // 2])
        if source.is_raw and not found["inodes_dropped"]:
            raise NotColdError(
                "the caches of folders and inodes cannot be dropped: only root may do so"
            )
    began = time.perf_counter()
    dataset = opened(source, settings)
    dataset.read(source.samples // 2)
    return found | {"seconds": time.perf_counter() - began}


def reading(source: Source, case: Case, settings: Settings, seed: int) -> Values:
    """Returns what it takes to have a sample's bytes and to go through them once.

    They are read batch by batch, and a checksum (xxh3) goes through them.
    """
    cold = case.cache == "cold"
    rows = rows_of(source, case, MOST_COLD if cold else source.samples, seed)
    found = cool(source, rows) if cold else {}
    dataset = opened(source, settings)
    if cold:
        cool_again(source, found)
    else:
        rows = warmed(source, dataset, rows)
    size = samples = 0
    cpu, began = time.process_time(), time.perf_counter()
    end = began + settings.seconds
    while time.perf_counter() < end:  # again from the first one, unless it is cold
        for start in range(0, len(rows), settings.batch_size):
            for data in dataset.read_many(rows[start : start + settings.batch_size]):
                xxh3_64_intdigest(data)
                size += data.nbytes
            samples += len(rows[start : start + settings.batch_size])
            if time.perf_counter() >= end:
                break
        if cold:
            break
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return found | {
        "us_per_sample": seconds / samples * 1e6,
        "mb_per_s": size / seconds / 1e6,
        "cpu_ms_per_image": used / samples * 1e3,
    }


def warmed(source: Source, dataset: PackDataset, rows: list[int]) -> list[int]:
    """Brings what is read into the page cache; returns as many of the rows as that was in time."""
    if not source.is_raw:
        warm(files_of(Path(source.path)))
        return rows
    end = time.perf_counter() + MOST_MEMORY_S
    for number, file in enumerate(image_files(dataset, rows)):
        warm([file])
        if time.perf_counter() > end:
            return rows[: number + 1]
    return rows


def decoding(source: Source, case: Case, settings: Settings, seed: int) -> Values:
    """Returns what one thread decodes, crops and resizes, the bytes in the page cache."""
    crop = RandomResizedCrop(settings.size, flip=0.5)
    decode = crop if case.way == "fastloader" else "pil"
    transform = None if case.way == "fastloader" else PillowCrop(crop)
    dataset = opened(source, settings, decode=decode, transform=transform)
    rows = rows_of(source, case, source.samples, seed)
    dataset.__getitems__(rows[:8])  # imports, and memory that is used again
    images = 0
    cpu, began = time.process_time(), time.perf_counter()
    end = began + settings.seconds
    place = 8 % len(rows)
    while time.perf_counter() < end:
        batch = rows[place : place + 8]  # so few that the time is met
        images += len(dataset.__getitems__(batch))
        place = (place + 8) % len(rows) if place + 8 < len(rows) else 0
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    if not images:
        raise none_decoded(source)
    return {
        "images_per_s": images / seconds,
        "cpu_ms_per_image": used / images * 1e3,
        "skipped": float(dataset.skipped),
    }


def none_decoded(source: Source) -> FastconvError:
    """Returns what to raise where nothing can be loaded."""
    return FastconvError(f"{printable(source.path)}: none of its images can be decoded")


def loader_of(source: Source, case: Case, settings: Settings, sampler: Iterable[int]) -> Any:
    """Returns the loader that a case speaks of."""
    crop = RandomResizedCrop(settings.size, flip=0.5)
    options: dict[str, Any] = {"decode": crop}
    if case.way == "pillow":
        options = {"transform": PillowCrop(crop)}
    more: dict[str, Any] = {}
    if case.threads:
        more = {"device": settings.device, "decode": "cuda" if case.way == "nvjpeg" else "cpu"}
    elif case.workers:
        more = {"persistent_workers": False}
    return make_loader(
        opened(source, settings, **options),
        settings.batch_size,
        kind="threads" if case.threads else "processes",
        sampler=sampler,
        num_workers=case.workers,
        prefetch_factor=case.prefetch,
        pin_memory=case.pinned,
        **more,
    )


def loading(source: Source, case: Case, settings: Settings, seed: int) -> Values:
    """Returns how a loader feeds a training loop.

    Of a warm page cache the first batches are not measured, until as many are made ahead as ever
    are; of a cold one all is, from the loader's start until the samples are used up: what it makes
    ahead meanwhile is part of it.
    """
    cold = case.cache == "cold"
    patience = 2 * source.samples + settings.batch_size * (case.workers + 1) * (case.prefetch + 2)
    repeated = Repeated(source.samples, seed, patience)
    sampler: Iterable[int] = repeated
    found: Values = {}
    if cold:
        sampler = rows = rows_of(source, case, MOST_COLD, seed)
        found = cool(source, rows)
    device = torch.device(settings.device)
    train = training_step(settings.step, device)
    cpu, began = cpu_seconds(tree()), time.perf_counter()
    loader = loader_of(source, case, settings, sampler)
    with closing(iter(loader)) as made:
        batches = noted(made, repeated)
        images, _ = next(batches, (None, None))
        if images is None:
            raise none_decoded(source)
        found["first_batch_s"] = time.perf_counter() - began
        shape = tuple(images.shape[1:])
        if shape != (3, settings.size, settings.size):
            raise FastconvError(f"a batch has images of {shape}")
        train(images.to(device))
        if not cold:
            for images, _ in islice(batches, ahead(loader)):
                train(images.to(device, non_blocking=True))
        synchronise(device)
        since = (began, cpu, images.shape[0]) if cold else None
        return found | feeding(batches, train, device, settings, since)


def noted(batches: Iterable[Any], sampler: Repeated) -> Iterator[Any]:
    """Yields batches, and tells the sampler of each."""
    for batch in batches:
        sampler.arrived()
        yield batch


def ahead(loader: Any) -> int:
    """Returns how many batches a loader makes ahead."""
    if isinstance(loader, FastLoader):
        return loader.prefetch_factor
    return loader.num_workers * (loader.prefetch_factor or 0) if loader.num_workers else 0


def synchronise(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def feeding(
    batches: Iterator[Any],
    train: Callable[[torch.Tensor], None],
    device: torch.device,
    settings: Settings,
    since: tuple[float, float, int] | None = None,
) -> Values:
    """Returns what a training loop gets of a loader that runs already.

    Args:
        batches: Of the loader.
        train: The training step.
        device: Where it computes.
        settings: How long to go on.
        since: When the loader was started, the processor time used until then, and the images that
            it has given since; None: what it did before does not count.
    """
    waited, count, made = 0.0, 0, 0
    waits = Waits(device)
    with watched(device) as gpu:
        processes = tree()
        cpu, began = cpu_seconds(processes), time.perf_counter()
        end = began + settings.seconds
        while count < LEAST_BATCHES or time.perf_counter() < end:
            asked = time.perf_counter()
            waits.begin()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            images = batch[0].to(device, non_blocking=True)
            waits.end()
            train(images)
            count += 1
            made += images.shape[0]
        synchronise(device)
        seconds = time.perf_counter() - began
        used = max(cpu_seconds(processes) - cpu, TICK)
        main, workers = memory_used(processes[:1]), memory_used(processes[1:])
    memory = memory_values(main, workers)
    wait_share = waited / seconds
    if since is not None:
        began, cpu, given = since
        made, seconds = made + given, time.perf_counter() - began
        used = max(cpu_seconds(processes) - cpu, TICK)
        memory = {}  # the workers may have ended with their last samples
    if not made:
        raise FastconvError("there are not enough samples for a second batch: use a smaller batch")
    return {
        "images_per_s": made / seconds,
        "cpu_ms_per_image": used / made * 1e3,
        "wait_share": wait_share,
        **memory,
        **waits.values(seconds),
        **gpu,
    }


def memory_values(main: Used, workers: Used) -> Values:
    """Returns the measures of what the main process and the workers use, in bytes."""
    return {
        "pss_main": float(main.pss),
        "pss_workers": float(workers.pss),
        "own_workers": float(workers.own),
        "files": float(main.files + workers.files),
    }


def memory(source: Source, case: Case, settings: Settings, seed: int) -> tuple[Values, Series]:
    """Returns what memory the main process and the workers take while they go through an epoch.

    The workers read the bytes of every sample and decode nothing. The series are without pages of
    files.
    """
    dataset = opened(source, settings, decode=None)
    pickled = len(ForkingPickler.dumps(dataset))
    more: dict[str, Any] = {"persistent_workers": False} if case.workers else {}
    loader = make_loader(
        dataset,
        settings.batch_size,
        kind="processes",
        shuffle=True,
        num_workers=case.workers,
        collate_fn=len,
        seed=seed,
        **more,
    )
    every = max(len(loader) // LOOKS, 1)
    began = time.perf_counter()
    series: Series = {"main": [], "workers": []}
    batches: Any = iter(loader)
    seen = 0
    main = workers = Used()
    with closing(batches):
        for number, count in enumerate(batches):
            seen += count
            if number % every == 0 or number == len(loader) - 1:
                at = time.perf_counter() - began
                processes = tree()
                main, workers = memory_used(processes[:1]), memory_used(processes[1:])
                series["main"].append((at, float(main.own)))
                series["workers"].append((at, float(workers.own)))
                if at > MOST_MEMORY_S:
                    break
    first, last = (sum(series[name][place][1] for name in series) for place in (0, -1))
    return {
        **memory_values(main, workers),
        "growth": last - first,
        "pickled_bytes": float(pickled),
        "epoch_share": seen / source.samples,
    }, series


def copying(source: Source, case: Case, settings: Settings, seed: int) -> Values:
    """Returns how fast a batch of decoded images is copied to the device."""
    device = torch.device(settings.device)
    shape = (settings.batch_size, 3, settings.size, settings.size)
    batch = torch.zeros(shape, dtype=torch.uint8, pin_memory=bool(case.pinned))
    batch.to(device)
    synchronise(device)
    copies, began = 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < settings.seconds / 4:
        batch.to(device, non_blocking=True)
        synchronise(device)
        copies += 1
    return {"seconds": seconds / copies, "mb_per_s": batch.nbytes * copies / seconds / 1e6}
