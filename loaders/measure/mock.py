"""The classic demonstration of what workers of a DataLoader do: a Dataset that sleeps.

A sample takes as long as it would to read and decode it, but keeps no core busy. The published run:
500 samples, batches of 32, the first 11 of them, 10 ms a sample, took 3.520 s without workers and
1.280 s with them, 2.75 times as fast.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

__all__ = [
    "BATCH",
    "BATCHES",
    "MOCK_WORKERS",
    "SAMPLES",
    "Mocked",
    "explained",
    "floor",
    "run_mock",
]

SAMPLES, BATCH, BATCHES = 500, 32, 11
MOCK_WORKERS = (0, 1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Mocked:
    """What was found with one number of workers, in seconds.

    Attributes:
        workers: How many; 0: the main process itself.
        seconds: From making the loader's iterator to the last batch.
        startup: The part of it until the workers were started.
        floor: What the sleeping alone takes.
    """

    workers: int
    seconds: float
    startup: float
    floor: float


class Sleeping(Dataset[torch.Tensor]):
    """A Dataset whose samples take a while and keep nothing busy.

    Args:
        seconds: What a sample takes.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(3, 8, 8)


def floor(workers: int, seconds: float) -> float:
    """Returns what the sleeping alone takes: batches are whole, each is made by one worker, and
    the workers take turns."""
    turns = -(-BATCHES // max(workers, 1))
    return turns * BATCH * seconds


def run_mock(seconds: float, workers: Sequence[int] = MOCK_WORKERS) -> list[Mocked]:
    """Returns what the demonstration gives with each number of workers, started by fork.

    Args:
        seconds: What a sample takes.
        workers: Numbers of workers.
    """
    with warnings.catch_warnings():
        # torch's own, of more workers than cores. That they help nevertheless is what is shown.
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        return [_mocked(seconds, number) for number in workers]


def _mocked(seconds: float, workers: int) -> Mocked:
    context: Any = "fork" if workers else None
    loader = DataLoader(
        Sleeping(seconds), batch_size=BATCH, shuffle=True, num_workers=workers,
        multiprocessing_context=context,
    )  # fmt: skip
    began = time.perf_counter()
    batches = iter(loader)
    startup = time.perf_counter() - began
    for _ in range(BATCHES):
        next(batches)
    took = time.perf_counter() - began
    del batches
    return Mocked(workers, took, startup, floor(workers, seconds))


def explained(found: Sequence[Mocked], seconds: float) -> list[str]:
    """Returns what the numbers mean, in words."""
    alone = found[0]
    best = min(found, key=lambda one: one.seconds)
    slowest_start = max(found, key=lambda one: one.startup)
    return [
        f"A sample sleeps {seconds * 1e3:g} ms, so {BATCHES} batches of {BATCH} sleep "
        f"{alone.floor:.3f} s when one process makes them all. A worker makes whole batches, so W "
        f"workers need ceil({BATCHES} / W) turns of {BATCH * seconds:.2f} s: that is the floor.",
        f"The best here is {best.workers} workers: {best.seconds:.3f} s, "
        f"{alone.seconds / best.seconds:.2f} times as fast as none. What lies above the floor is "
        "starting the processes, and handing the batches over; starting took up to "
        f"{slowest_start.startup:.3f} s ({slowest_start.workers} workers).",
        "Sleeping keeps no core busy, so here workers help beyond the number of cores. Decoding "
        "does: with real images they help up to the number of cores and no further, which is why "
        "this says nothing about how fast images can be loaded.",
    ]
