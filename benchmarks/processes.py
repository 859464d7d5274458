"""Runs commands as whole processes, and tells their time and memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run"]

LOOK_EVERY = 0.05
"""Seconds between looks at the memory. The kernel keeps each process's peak, so that only what one
grew by in the last moment of its life is missed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended well.

    Attributes:
        seconds: From its start to its end.
        cpu: Seconds that it and its child processes kept processors busy, in the kernel too.
        main: Peak resident bytes of its own process.
        workers: Peak resident bytes of all its child processes, added up.
        output: What it printed.
    """

    seconds: float
    cpu: float
    main: int
    workers: int
    output: str


def run(*commands: Sequence[str | os.PathLike[str]]) -> Finished:
    """Runs commands one after the other, and returns what they took together.

    Raises:
        RuntimeError: One failed.
    """
    seconds, cpu, main, workers, output = 0.0, 0.0, 0, 0, ""
    for command in commands:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(command, stdout=out, stderr=errors)
            with Memory(process.pid) as memory:
                _, status, usage = os.wait4(process.pid, 0)
                seconds += time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            errors.seek(0)
            output += out.read().decode()
            if process.returncode:
                words = errors.read().decode(errors="replace").strip()
                line = " ".join(str(word) for word in command)
                raise RuntimeError(f"{line}: exit code {process.returncode}: {words}")
        cpu += usage.ru_utime + usage.ru_stime
        main = max(main, memory.main)
        workers = max(workers, sum(memory.workers.values()))
    return Finished(seconds, cpu, main, workers, output)


class Memory:
    """Looks at a process and its children in the background while a `with` block lasts.

    Args:
        pid: The process.

    Attributes:
        main: Its peak resident bytes, 0 where the system does not tell.
        workers: The same of every child that was seen.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.main = 0
        self.workers: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.main = peak(self.pid) or self.main
            for child in children(self.pid):
                self.workers[child] = peak(child) or self.workers.get(child, 0)
            if self._ended.wait(LOOK_EVERY):
                return


def peak(pid: int) -> int:
    """Returns the peak resident bytes of a process, 0 where it is gone or that is not told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    """Returns the child processes of a process, started by whichever of its threads."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, tasks.read_text(encoding="ascii").split())
        except OSError:  # the thread has ended
            continue
    return found
