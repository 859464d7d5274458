"""Measures one way to load images, in this process.

    loading.py SCRIPT OPTIONS BATCHES      prints a JSON object: measure -> value
    loading.py SCRIPT OPTIONS prepare      makes the form of the photos that the script reads

SCRIPT is a module of loader_peers/. Runs in any environment that has what the script imports;
fastconv need not be there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from loader_peers.shared import SIZE, Options
from processes import children

__all__ = ["main", "memory", "tree"]

WARM_UP = 5
"""Batches before the time runs: workers have started, and as much is made ahead as ever is."""


def tree(pid: int) -> list[int]:
    """Returns a process and all that come of it."""
    return [pid, *(found for child in children(pid) for found in tree(child))]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the processor time of processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pids: Sequence[int], kind: str = "Pss") -> int:
    """Returns the proportional set size of processes, in bytes: what they share counts once.

    Args:
        pids: The processes.
        kind: "Pss", or a part of it, as Linux calls it, such as "Pss_Anon".
    """
    found = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))
    return found


def measure(script: str, options: Options, count: int) -> dict[str, float]:
    """Returns measure -> value.

    Args:
        script: Name of a module of loader_peers.
        options: What it loads.
        count: Batches to measure.

    Raises:
        RuntimeError: A batch is not what it has to be.
    """
    module = import_module(f"loader_peers.{script}")
    for name in module.IMPORTS:
        import_module(name)
    began = time.perf_counter()
    batches = module.batches(options)
    images, labels = next(batches)
    first = time.perf_counter() - began
    shape = (options.batch, 3, SIZE, SIZE)
    if tuple(images.shape) != shape or str(images.dtype).rpartition(".")[2] != "uint8":
        raise RuntimeError(f"a batch is {tuple(images.shape)}, {images.dtype}: not {shape}, uint8")
    if len(labels) != options.batch:
        raise RuntimeError(f"a batch has {len(labels)} labels")
    for _ in range(WARM_UP):
        images, labels = next(batches)
    cpu, began = cpu_seconds(tree(os.getpid())), time.perf_counter()
    for _ in range(count):
        images, labels = next(batches)
    seconds = time.perf_counter() - began
    used = cpu_seconds(tree(os.getpid())) - cpu
    made = count * options.batch
    return {
        "images/s": made / seconds,
        "CPU": max(used, 1 / os.sysconf("SC_CLK_TCK")) / made,  # it is counted in ticks
        "first": first,
        "PSS": memory(tree(os.getpid())),
    }


def main(argv: Sequence[str]) -> None:
    """Measures or prepares, and ends this process and all that it started."""
    script, options, what = argv
    if what == "prepare":
        import_module(f"loader_peers.{script}").prepare(Options.from_json(options))
        return
    print(json.dumps(measure(script, Options.from_json(options), int(what))), flush=True)
    for pid in tree(os.getpid())[1:]:  # nothing of this one may disturb the next one
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
