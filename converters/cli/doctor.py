"""`fastconv doctor`: what the machine has for loading, and the traps that are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastconv.converters.cli.formats import formats
from fastconv.converters.cli.options import JsonOption
from fastconv.converters.cli.output import aligned, reporting
from fastconv.converters.cli.parameters import argument
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import printable
from fastconv.loaders.limits import MOST_WORKERS

if TYPE_CHECKING:
    from fastconv.loaders.measure.machine import Gpus, Machine, Room

__all__ = ["command", "traps"]

PREFETCHED = 2
"""Batches that each worker of a DataLoader makes ahead by default."""
BATCH = 256 * 3 * 224 * 224 * 4
"""Bytes of a usual batch: 256 float32 pictures of 224 x 224."""
SMALL_SHM = 1_000_000_000
FEW_FILES = 1024
"""What most systems start with; less is an exception."""


def command(
    path: Annotated[str, argument(metavar="PATH", help="Where data lie, or will.")] = ".",
    json: JsonOption = False,
) -> None:
    """Show what this machine has for loading, and warn of each known trap.

    $ fastconv doctor /data
    """
    with reporting("doctor", json=json) as out:
        from fastconv.loaders.measure.machine import look
        from fastconv.loaders.open import require_path

        require_path(path)
        machine = look(path)
        known = formats()
        found = asdict(machine)
        found["cores"]["usable"] = machine.cores.usable
        out.answer["doctor"] = {**found, "formats": known}
        for line in aligned(list(rows(machine, known))):
            out.print(line)
        warnings = list(traps(machine, shards=count_shards(path)))
        for warning in warnings:
            out.warn(warning)
        if not warnings:
            out.print("No known trap.")


def rows(machine: Machine, known: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields what is shown to people: name, value."""
    files, memory, disk = machine.open_files, machine.memory, machine.file_system
    yield "system", machine.system
    yield "Python", f"{machine.python}, starts processes by {machine.python.start_method}"
    yield "CPU", machine.cpu
    yield "cores", f"{machine.cores}{limits_text(machine)}"
    limit = "" if memory.limit is None else f", limited to {size_text(memory.limit)}"
    yield "memory", f"{size_text(memory.total)}{limit}, {size_text(memory.available)} available"
    yield "/dev/shm", room_text(machine.shared_memory)
    if files is None:
        yield "open files", "unknown"
    else:
        yield "open files", f"{count_text(files.soft)}, can be raised to {count_text(files.hard)}"
    yield "path", printable(os.path.abspath(disk.path))
    yield (
        "  is on",
        (
            f"{disk.kind} ({disk.place}), {printable(disk.source)} at {printable(disk.point)}"
            if disk.kind != "unknown"
            else "unknown"
        ),
    )
    yield "  disk", f"{disk.disk}, {room_text(disk.room)}"
    cuda = f"built with CUDA {machine.torch.version}" if machine.torch.version else "without CUDA"
    version = machine.versions.get("torch", "missing")
    yield "torch", f"{version}, {cuda}: {gpus_text(machine.torch)}"
    yield "NVIDIA", f"driver {machine.nvidia_driver or 'none'}; NVML: {gpus_text(machine.nvml)}"
    yield "JPEG", "; ".join(f"{name}: {library}" for name, library in machine.jpeg.items())
    installed = [row["name"] for row in known if row["installed"]]
    yield "formats", ", ".join(installed)
    for row in known:
        if row["missing"]:
            yield "  missing", row["missing"]
    others = {name: text for name, text in machine.versions.items() if name != "torch"}
    yield "packages", ", ".join(f"{name} {text}" for name, text in others.items())
    for package in machine.optional:
        if package.version is None:
            yield "  missing", f"{package.name}, which {package.purpose}: {package.install}"
        else:
            yield "  optional", f"{package.name} {package.version}, {package.purpose}"


def limits_text(machine: Machine) -> str:
    """Returns what keeps this process from using all cores, "" where nothing does."""
    cores = machine.cores
    why = []
    if cores.allowed is not None and cores.allowed != cores.logical:
        why.append(f"affinity {cores.allowed}")
    if cores.quota is not None:
        why.append(f"control groups {cores.quota:g}")
    return f" ({', '.join(why)})" if why else ""


def room_text(room: Room | None) -> str:
    """Returns the size and the free part of a file system."""
    return "unknown" if room is None else f"{size_text(room.total)}, {size_text(room.free)} free"


def count_text(count: int | None) -> str:
    """Returns a limit; None is none."""
    return "unlimited" if count is None else f"{count:,}"


def gpus_text(gpus: Gpus) -> str:
    """Returns the GPUs, or why there are none."""
    return ", ".join(gpus.devices) or gpus.problem or "no GPU"


def count_shards(path: str) -> int:
    """Returns how many tar files are in a folder."""
    try:
        with os.scandir(path) as entries:
            return sum(entry.name.endswith(".tar") for entry in entries)
    except OSError:  # it is a file, or none may look
        return 0


def traps(machine: Machine, shards: int = 0) -> Iterator[str]:
    """Yields a line for each known trap: what, what follows, what to do.

    Args:
        machine: What is known of the machine.
        shards: How many there are where the data lie.
    """
    yield from process_traps(machine, shards)
    yield from place_traps(machine)
    yield from library_traps(machine)


def process_traps(machine: Machine, shards: int) -> Iterator[str]:
    """Yields what is wrong for processes: cores, memory, and how they hand over batches."""
    cores, memory, room = machine.cores, machine.memory, machine.shared_memory
    if cores.logical is not None and cores.usable < cores.logical:
        yield (
            f"os.cpu_count() says {cores.logical} cores, and this process may keep {cores.usable} "
            f"busy{limits_text(machine)}: with more workers than that they wait for each other; "
            f"start with num_workers={cores.usable}"
        )
    if memory.limit is not None and memory.limit < memory.total / 2:
        yield (
            f"control groups allow {size_text(memory.limit)} of {size_text(memory.total)} memory: "
            "workers that need more are killed without a message (signal 9), and less of the data "
            "stays in the page cache; use fewer workers, or raise the limit (docker run --memory)"
        )
    workers = min(MOST_WORKERS, cores.usable)
    needed = workers * PREFETCHED * BATCH
    if room is not None and (room.total < SMALL_SHM or room.free < needed / 2):
        yield (
            f"/dev/shm has {room_text(room)}: DataLoader workers hand over batches through it and "
            f"end with a bus error when it is full ({workers} workers with {PREFETCHED} batches of "
            f"256 float32 pictures each hold {size_text(needed)}); docker run --shm-size=8g or "
            "--ipc=host, or FastLoader, which needs none"
        )
    limit = machine.open_files.soft if machine.open_files else None
    if limit is not None and (limit < FEW_FILES or shards > limit // 4):
        many = f", and there are {shards:,} shards" if shards > limit // 4 else ""
        yield (
            f"a process may have {limit:,} files open{many}: what keeps all shards open, or many "
            "batches of a DataLoader, ends with 'Too many open files'; ulimit -n 65536, or "
            "docker run --ulimit nofile=65536"
        )
    python = machine.python
    if python.start_method == "fork" and version_of(python.version) >= (3, 12):
        yield (
            f"Python {python.version} starts DataLoader workers by fork and warns where threads "
            "run, as they may hang then: multiprocessing_context='forkserver', or FastLoader, "
            "which starts no process"
        )


def place_traps(machine: Machine) -> Iterator[str]:
    """Yields what is wrong with the place of the data."""
    disk = machine.file_system
    path = printable(os.path.abspath(disk.path))
    if not disk.readable:
        yield f"{path} may not be read by this user: make it readable (chmod), as its owner"
    elif not disk.writable:
        yield (
            f"{path} may not be written to by this user: packs there can be read, and none can be "
            "made; pack to another place"
        )
    where = f"{path} is on"
    if disk.place == "network":
        yield (
            f"{where} a network ({disk.kind}): fastconv reads LMDB there without a lock file, but "
            "others need lmdb.open(..., lock=False), and who has mapped a file that is replaced "
            "or cut short ends with a bus error; give new packs new names, or copy them to a "
            "local disk"
        )
    if disk.place == "overlay":
        yield (
            f"{where} the container's own layers ({disk.kind}): slow for many files, and gone with "
            "the container; keep data in a volume (docker run --volume)"
        )
    if disk.place == "memory":
        yield (
            f"{where} memory ({disk.kind}): what lies there counts as used memory, the "
            f"container's too; {size_text(machine.memory.available)} are left for it and all "
            "workers"
        )
    if disk.disk == "rotating":
        yield (
            f"{where} a spinning disk: each picture read at random waits for it, some 10 ms; pack "
            "as webdataset and read in order, or copy the pack to a solid-state disk"
        )


def library_traps(machine: Machine) -> Iterator[str]:
    """Yields what is wrong with what is installed."""
    driver = machine.nvidia_driver or machine.nvml.version
    torch = machine.versions.get("torch")
    if driver and torch and not machine.torch.version:
        yield (
            f"there is an NVIDIA driver ({driver}), and torch {torch} is built without CUDA: "
            "nothing will run on the GPU; install the build that "
            "https://pytorch.org/get-started/locally/ names"
        )
    elif driver and torch and not machine.torch.devices:
        yield (
            f"there is an NVIDIA driver ({driver}), and torch {torch} can use no GPU: "
            f"{machine.torch.problem or 'it finds none'}; look at CUDA_VISIBLE_DEVICES, "
            "docker run --gpus all, and whether the driver is new enough"
        )
    pillow = machine.jpeg.get("Pillow", "")
    if not pillow.startswith("libjpeg-turbo"):
        yield (
            f"Pillow decodes JPEG with {pillow}, without libjpeg-turbo: several times slower; "
            "pip install --force-reinstall --only-binary :all: pillow brings it"
        )


def version_of(text: str) -> tuple[int, int]:
    """Returns the first two numbers of a Python version."""
    first, second = text.split(".")[:2]
    return int(first), int(second)
