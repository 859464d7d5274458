"""Facts about the machine: what a process may use of it, where files lie, what is installed.

Every function reads what the system tells when it is called, and none raises: where nothing is told
(most of this is Linux's alone) a fact is None, or "unknown" in texts. `root` is the folder that
holds proc, sys and dev; tests make their own.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import re
import shutil
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from fastconv.loaders.limits import (
    ROOT,
    Cores,
    Mount,
    control_groups,
    file_lines,
    file_number,
    file_text,
    inside,
    mounts,
    usable_cores,
)
from fastconv.loaders.native import kernel, switched_off

__all__ = [
    "Cores",
    "FileSystem",
    "Gpus",
    "Machine",
    "Memory",
    "OpenFiles",
    "Package",
    "Python",
    "Room",
    "cpu_name",
    "environment",
    "file_system",
    "jpeg_libraries",
    "look",
    "memory",
    "memory_available",
    "nvidia_driver",
    "nvml_gpus",
    "open_files",
    "optional_packages",
    "python",
    "shared_memory",
    "torch_gpus",
    "usable_cores",
    "versions",
]

GIB = 1 << 30

PACKAGES = (
    "fastconv", "torch", "torchvision", "numpy", "pillow", "simplejpeg", "h5py", "lmdb",
    "webdataset", "safetensors", "xxhash", "psutil",
)  # fmt: skip
"""The packages whose versions a report names."""

OPTIONAL = {
    "fastconv-native": ("decodes JPEGs sooner", "make native, or pip install ./native"),
    "pillow-heif": ("decodes HEIC", "pip install 'fastconv[heif]'"),
    "pillow-jxl-plugin": ("decodes JPEG XL", "pip install 'fastconv[jxl]'"),
    "nvidia-ml-py": ("tells how busy a GPU is", "pip install 'fastconv[nvml]'"),
    "torchvision": ("decodes JPEGs on a GPU", "pip install 'fastconv[torchvision]'"),
}
"""Packages that fastconv uses where they are installed: what for, and what installs them."""

Place = Literal["local", "network", "overlay", "memory", "unknown"]

PLACES: dict[Place, set[str]] = {
    "network": {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "daos", "fakeowner", "glusterfs",
        "gpfs", "lustre", "mfs", "ncpfs", "nfs", "nfs4", "orangefs", "panfs", "prl_fs", "pvfs2",
        "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
    },
    "overlay": {
        "aufs", "fuse.fuse-overlayfs", "fuse.unionfs", "overlay", "overlayfs", "unionfs",
    },
    "memory": {"devtmpfs", "hugetlbfs", "ramfs", "rootfs", "tmpfs"},
    "local": {  # the rest of FUSE is nearly always a network, or a bucket of objects
        "fuse.bindfs", "fuse.encfs", "fuse.exfat", "fuse.gocryptfs", "fuse.mergerfs", "fuse.ntfs",
        "fuse.ntfs-3g", "fuse.squashfuse", "fuse.zfs-fuse",
    },
}  # fmt: skip
"""Kinds of file systems by where their files are. Those that hosts share with virtual machines
count as networks: each request leaves the machine, and what is replaced is as surprising."""

# Disks that a hypervisor makes. What they say of turning is made up.
_VIRTUAL_NAMES = ("vd", "xvd")
_VIRTUAL_MODELS = re.compile(
    r"persistentdisk|msft|virtual|qemu|vmware|vbox|xen|elastic block", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory, in bytes.

    Attributes:
        total: Of the machine.
        available: What can be used without swapping, with the limit respected.
        limit: Of the control groups, where it is less than the total.
    """

    total: int
    available: int
    limit: int | None = None

    def __str__(self) -> str:
        of = "" if self.limit is None else f"{_gib(self.limit)} of "
        return f"{of}{_gib(self.total)} GiB"


@dataclass(frozen=True, slots=True)
class Room:
    """Size and free part of a file system, in bytes."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """How many files a process may have open, and to how many it may raise that; None: no limit."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What a path is on.

    Attributes:
        path: Which path.
        kind: As mount calls it, such as "ext4"; or "unknown".
        place: Where its files are.
        source: What is mounted: a device, or what a server calls it.
        point: Where it is mounted.
        disk: "rotating", "solid state", "virtual"; or "unknown".
        room: Size and free part.
        readable: Whether this process may read what is there; True where nothing is.
        writable: Whether it may make files there; True unless a folder is.
    """

    path: str
    kind: str = "unknown"
    place: Place = "unknown"
    source: str = ""
    point: str = ""
    disk: str = "unknown"
    room: Room | None = None
    readable: bool = True
    writable: bool = True

    def __str__(self) -> str:
        if self.kind == "unknown":
            return self.kind
        disk = "" if self.disk == "unknown" else f", {self.disk}"
        return f"{self.kind} on {Path(self.source).name or self.source}{disk}"


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA GPUs as one library sees them.

    Attributes:
        version: Of CUDA that torch was built with, or of the driver that NVML belongs to; None
            without either.
        devices: Names of the GPUs.
        problem: Why there are none, "" where nothing was said.
    """

    version: str | None = None
    devices: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Python:
    """The interpreter.

    Attributes:
        version: Its version.
        free_threaded: Whether its threads run at once, without the global lock.
        start_method: How `multiprocessing`, and with it a DataLoader, starts processes.
    """

    version: str
    free_threaded: bool
    start_method: str

    def __str__(self) -> str:
        return f"{self.version}, free-threaded" if self.free_threaded else self.version


@dataclass(frozen=True, slots=True)
class Package:
    """A package that may be missing: what it is for, its version if it is there, how to get it."""

    name: str
    purpose: str
    version: str | None
    install: str


@dataclass(frozen=True, slots=True)
class Machine:
    """All facts. The names are those of the functions of this module that find them."""

    system: str
    cpu: str
    cores: Cores
    memory: Memory
    shared_memory: Room | None
    open_files: OpenFiles | None
    file_system: FileSystem
    nvidia_driver: str | None
    torch: Gpus
    nvml: Gpus
    jpeg: dict[str, str]
    python: Python
    versions: dict[str, str]
    optional: tuple[Package, ...]


def look(path: str | os.PathLike[str] = ".") -> Machine:
    """Returns all facts; imports torch and asks it for GPUs.

    Args:
        path: Whose file system is looked at.
    """
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=usable_cores(),
        memory=memory(),
        shared_memory=shared_memory(),
        open_files=open_files(),
        file_system=file_system(path),
        nvidia_driver=nvidia_driver(),
        torch=torch_gpus(),
        nvml=nvml_gpus(),
        jpeg=jpeg_libraries(),
        python=python(),
        versions=versions(),
        optional=optional_packages(),
    )


def environment(path: str | os.PathLike[str], root: Path = ROOT) -> dict[str, str]:
    """Returns what a report says of the machine and what is installed: name -> value.

    torch is not imported, and no GPU is touched.

    Args:
        path: A file or folder on the disk that is measured.
    """
    found = {
        "CPU": cpu_name(root),
        "cores": str(usable_cores(root)),
        "memory": str(memory(root)),
        "disk": str(file_system(path, root)),
    }
    driver = nvidia_driver(root)
    if driver is not None:
        gpus = Counter(nvml_gpus().devices or _listed_gpus(root))
        names = [name if count == 1 else f"{count} x {name}" for name, count in gpus.items()]
        found["GPU"] = ", ".join([*names, f"driver {driver}"])
    return found | {
        platform.system() or "system": platform.release() or "unknown",
        "Python": str(python()),
        "with": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def cpu_name(root: Path = ROOT) -> str:
    """Returns the processor's name."""
    lines = file_lines(root / "proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or "unknown"


def memory(root: Path = ROOT) -> Memory:
    """Returns the machine's memory, and what control groups leave of it."""
    whole = psutil.virtual_memory()
    limit, available = whole.total, whole.available
    for group in control_groups("memory", root):
        limits = [
            file_number(group / name)
            for name in ("memory.max", "memory.high", "memory.limit_in_bytes")
        ]
        own = min([number for number in limits if number is not None], default=whole.total)
        if own < whole.total:
            limit = min(limit, own)
            available = min(available, max(0, own - _used(group)))
    return Memory(whole.total, available, limit if limit < whole.total else None)


def _used(group: Path) -> int:
    """Returns the bytes that a group uses and cannot give back: without the pages of files."""
    used = (
        file_number(group / "memory.current") or file_number(group / "memory.usage_in_bytes") or 0
    )
    split = (line.split() for line in file_lines(group / "memory.stat"))
    stat = {words[0]: int(words[1]) for words in split if len(words) == 2 and words[1].isdecimal()}
    total = "total_" if "total_inactive_file" in stat else ""  # version 1: with groups inside
    return used - stat.get(f"{total}inactive_file", 0) - stat.get(f"{total}active_file", 0)


def memory_available() -> int:
    """Returns how many bytes this process and its workers can use now, without swapping."""
    return memory().available


def shared_memory(root: Path = ROOT) -> Room | None:
    """Returns the size of /dev/shm, through which DataLoader workers hand over their batches."""
    return _room(root / "dev/shm")


def open_files() -> OpenFiles | None:
    """Returns how many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (None if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return OpenFiles(soft, hard)


def file_system(path: str | os.PathLike[str], root: Path = ROOT) -> FileSystem:
    """Returns what a path is on; it may be one that is not there yet."""
    name = os.path.realpath(os.fsdecode(path))
    mount = _mount_of(name, mounts(root))
    room = _room(Path(name))
    folder = os.X_OK if os.path.isdir(name) else 0
    readable = not os.path.exists(name) or os.access(name, os.R_OK | folder)
    writable = not folder or os.access(name, os.W_OK | folder)
    if mount is None:
        return FileSystem(os.fsdecode(path), room=room, readable=readable, writable=writable)
    return FileSystem(
        os.fsdecode(path), mount.kind, _place(mount.kind), mount.source, mount.point,
        _disk(mount, root), room, readable, writable,
    )  # fmt: skip


def _place(kind: str) -> Place:
    for place, kinds in PLACES.items():
        if kind in kinds:
            return place
    return "network" if kind == "fuse" or kind.startswith("fuse.") else "local"


def _mount_of(path: str, given: Iterable[Mount]) -> Mount | None:
    """Returns the mount that a path without links is on, found as the kernel does.

    The order of the lines says nothing: of the mounts on one mount, the first on the way to the
    path hides those further down, and is itself hidden by what is mounted on it.
    """
    over = [mount for mount in given if inside(path, mount.point) is not None]
    ids = {mount.id for mount in over}
    nearest = [mount for mount in over if mount.parent not in ids or mount.parent == mount.id]
    found: Mount | None = None
    while nearest:
        found = min(nearest, key=lambda mount: len(mount.point))
        nearest = [mount for mount in over if mount.parent == found.id != mount.id]
    return found


def _disk(mount: Mount, root: Path) -> str:
    links = [root / "sys/dev/block" / mount.device]
    if mount.source.startswith("/dev/"):  # btrfs has devices of its own that are no disks
        links.append(root / "sys/class/block" / Path(mount.source).name)
    blocks = [link.resolve() for link in links if link.exists()]
    if not blocks:
        return "unknown"
    block = blocks[0]
    while below := sorted(_listed(block / "slaves")):  # what LVM, RAID and encryption are made of
        block = below[0].resolve()
    if (block / "partition").exists():
        block = block.parent
    model = file_text(block / "device/vendor") + file_text(block / "device/model")
    if block.name.startswith(_VIRTUAL_NAMES) or _VIRTUAL_MODELS.search(model):
        return "virtual"
    turns = file_text(block / "queue/rotational").strip()
    return {"0": "solid state", "1": "rotating"}.get(turns, "unknown")


def nvidia_driver(root: Path = ROOT) -> str | None:
    """Returns the version of the NVIDIA driver that the kernel has, None without one."""
    text = file_text(root / "proc/driver/nvidia/version")
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)\s", text)
    return found[1] if found else ("unknown" if text else None)


def _listed_gpus(root: Path) -> list[str]:
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    lines = (line.partition(":") for file in files for line in file_lines(file))
    return [value.strip() for name, _, value in lines if name == "Model"]


def torch_gpus() -> Gpus:
    """Returns the CUDA GPUs that torch can use; imports it, and readies CUDA in this process."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Gpus(problem=_one_line(error))
    with warnings.catch_warnings(record=True) as said:  # why there are none
        warnings.simplefilter("always")
        try:
            ready = torch.cuda.is_available()
            count = torch.cuda.device_count() if ready else 0
            names = tuple(torch.cuda.get_device_name(number) for number in range(count))
        except RuntimeError as error:
            return Gpus(torch.version.cuda, problem=_one_line(error))
    problem = _one_line(said[0].message) if said and not names else ""
    return Gpus(torch.version.cuda, names, problem)


def nvml_gpus() -> Gpus:
    """Returns the GPUs that NVML, NVIDIA's library for watching them, tells of."""
    try:
        import pynvml
    except ImportError:
        return Gpus(problem="the package nvidia-ml-py is missing")
    try:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            names = tuple(pynvml.nvmlDeviceGetName(handle) for handle in handles)
            return Gpus(pynvml.nvmlSystemGetDriverVersion(), names)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Gpus(problem=_one_line(error))


def jpeg_libraries() -> dict[str, str]:
    """Returns what decodes JPEG: "fastconv-native", where it is installed, "Pillow" and
    "simplejpeg" -> the library's name and version."""
    found = {}
    version = _version("fastconv-native")
    if kernel() is not None:
        import fastconv_native

        found["fastconv-native"] = f"{version or 'unknown'} ({fastconv_native.about()})"
    elif version is not None:
        off = "switched off by FASTCONV_NATIVE"
        why = off if switched_off() else "cannot be used: build it anew"
        found["fastconv-native"] = f"{version}, {why}"
    try:
        from PIL import features

        turbo = features.version_feature("libjpeg_turbo")
        version = features.version_codec("jpg")
        if features.check_feature("libjpeg_turbo"):
            found["Pillow"] = f"libjpeg-turbo {turbo}"
        else:
            found["Pillow"] = f"libjpeg {version}" if version else "none"
    except ImportError:
        found["Pillow"] = "missing"
    version = _version("simplejpeg")
    found["simplejpeg"] = "missing" if version is None else f"its own libjpeg-turbo ({version})"
    return found


def python() -> Python:
    """Returns what the interpreter is."""
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()  # an extension may bring it back
    # Asking for the method in use, where none was chosen, would choose the default for good.
    method = multiprocessing.get_start_method(allow_none=True)
    return Python(
        platform.python_version(),
        free and not enabled,
        method or multiprocessing.get_all_start_methods()[0],
    )


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Returns the versions of the packages that are installed; imports none of them."""
    found = ((name, _version(name)) for name in packages)
    return {name: version for name, version in found if version is not None}


def optional_packages() -> tuple[Package, ...]:
    """Returns what fastconv uses where it is installed."""
    return tuple(
        Package(name, purpose, _version(name), install)
        for name, (purpose, install) in OPTIONAL.items()
    )


def _version(package: str) -> str | None:
    if package == "fastconv":  # a checkout on PYTHONPATH has no metadata
        from fastconv import __version__

        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _room(path: Path) -> Room | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return Room(usage.total, usage.free)


def _gib(size: int) -> str:
    value = size / GIB
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _one_line(said: object) -> str:
    text = str(said).strip() or type(said).__name__
    return " ".join(text.partition("\n")[0].split())


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
