"""What the system lets this process use: cores, and what control groups and mounts say of it.

Nothing here raises: where nothing is told (most of this is Linux's alone) a fact is None. `root` is
the folder that holds proc and sys; tests make their own.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MOST_WORKERS",
    "ROOT",
    "Cores",
    "Mount",
    "control_groups",
    "default_workers",
    "file_lines",
    "file_number",
    "file_text",
    "inside",
    "mounts",
    "usable_cores",
]

ROOT = Path("/")

MOST_WORKERS = 8
"""More workers than this seldom help one GPU, and each costs memory."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Processor cores.

    Attributes:
        logical: Of the machine: what `os.cpu_count` says.
        allowed: Those that this process may be put on (its affinity).
        quota: How many it may keep busy, by control groups; None sets no limit.
    """

    logical: int | None
    allowed: int | None
    quota: float | None = None

    @property
    def usable(self) -> int:
        """How many can be kept busy, at least 1."""
        known = [self.logical, self.allowed, self.quota and math.ceil(self.quota)]
        return max(1, min([count for count in known if count], default=1))

    def __str__(self) -> str:
        if self.logical is None or self.usable == self.logical:
            return str(self.usable)
        return f"{self.usable} of {self.logical}"


def default_workers() -> int:
    """Returns how many workers a loader has when nothing is said: one a core, at most eight."""
    return min(usable_cores().usable, MOST_WORKERS)


def usable_cores(root: Path = ROOT) -> Cores:
    """Returns the cores of the machine, and what affinity and control groups leave of them."""
    logical = os.cpu_count()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    quotas = [_quota(group) for group in control_groups("cpu", root)]
    return Cores(logical, allowed, min([q for q in quotas if q is not None], default=None))


def _quota(group: Path) -> float | None:
    words = file_text(group / "cpu.max").split()  # version 2: "400000 100000", or "max 100000"
    if not words:  # version 1
        words = [file_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Yields the folders of the control groups that this process is in, of both versions.

    A limit of any of them holds. In a container the outermost may be all that can be seen.
    """
    paths: dict[str, str] = {}
    for line in file_lines(root / "proc/self/cgroup"):  # 4:cpu,cpuacct:/a/b, or 0::/a/b
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator:
            paths |= dict.fromkeys(controllers.split(","), path)
    for mount in mounts(root):
        if mount.kind == "cgroup2":
            path = paths.get("", "")
        elif mount.kind == "cgroup" and controller in mount.options.split(","):
            path = paths.get(controller, "")
        else:
            continue
        rest = inside(path, mount.root) or ""
        parts = [] if not rest or ".." in rest.split("/") else rest.split("/")
        point = root / mount.point.strip("/")
        for depth in range(len(parts), -1, -1):
            yield point.joinpath(*parts[:depth])


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. `root` is the folder of the file system that is seen at `point`."""

    id: str
    parent: str
    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mounts(root: Path = ROOT) -> Iterator[Mount]:
    """Yields what is mounted where."""
    # 36 35 98:0 /folder /point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
    for line in file_lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        place, about = before.split(" ")[:5], after.split(" ")
        if len(place) == 5 and len(about) == 3:
            yield Mount(*map(_unescaped, (*place, *about)))


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def inside(path: str, folder: str) -> str | None:
    """Returns the rest of a path that is a folder or lies in it, else None."""
    folder = folder.rstrip("/")
    if path == folder or path.startswith(f"{folder}/"):
        return path[len(folder) :].strip("/")
    return None


def file_text(path: Path) -> str:
    """Returns what a small file holds, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def file_lines(path: Path) -> list[str]:
    """Returns the lines of a small file, without line feeds."""
    return file_text(path).split("\n")  # splitlines would split at more than that


def file_number(path: Path) -> int | None:
    """Returns the number that a small file holds, None where it holds none."""
    text = file_text(path).strip()
    return int(text) if text.isdecimal() else None
