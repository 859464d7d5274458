"""What processes use: processor time and memory, over all that a process has started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Used", "cpu_seconds", "memory_used", "tree"]


@dataclass(frozen=True, slots=True)
class Used:
    """Memory of some processes, in bytes.

    Attributes:
        pss: Their proportional set size: what several share counts once.
        files: Of it, pages of files: they are in the page cache anyway, and the system takes them
            back when it needs memory.
    """

    pss: int = 0
    files: int = 0

    @property
    def own(self) -> int:
        """What is not in files."""
        return self.pss - self.files

    def __add__(self, other: Used) -> Used:
        return Used(self.pss + other.pss, self.files + other.files)


def tree(pid: int | None = None) -> list[psutil.Process]:
    """Returns a process, by default this one, and all that come of it; it is the first."""
    me = psutil.Process(pid)
    return [me, *me.children(recursive=True)]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Returns the processor time that processes have used, and their children that have ended."""
    seconds = 0.0
    for process in processes:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += used.user + used.system + used.children_user + used.children_system
    return seconds


def memory_used(processes: list[psutil.Process]) -> Used:
    """Returns what memory processes use.

    Where the system does not tell what is shared (it is Linux that does), what each has of its own
    is counted, and files are not told apart.
    """
    return sum(map(_memory_used, processes), Used())


def _memory_used(process: psutil.Process) -> Used:
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        try:
            return Used(process.memory_full_info().uss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return Used()
    sizes = {words[0]: int(words[1]) * 1024 for line in lines[1:] if (words := line.split())}
    return Used(sizes.get("Pss:", 0), sizes.get("Pss_File:", 0))
