"""What a GPU does while a loader is measured: how busy it is, and how long it waits for data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastconv.loaders.errors import UsageError
from fastconv.loaders.measure.cases import Values

__all__ = ["Waits", "chosen_device", "watched"]

LOOK_EVERY = 0.1
"""Seconds between looks at the GPU's counters; NVML itself averages over a sixth to a whole
second."""


class Waits:
    """The time that a GPU stands idle between two training steps, measured by its own clock.

    An event at the end of each step, and one when the next step's data are there, are in the same
    stream: between them there is nothing to do. Where the loader is ahead both pass at once.

    Args:
        device: The device; nothing is measured of one that is no CUDA GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._on = device.type == "cuda"
        self._begun: torch.cuda.Event | None = None
        self._waits: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Says that a step was given to the GPU, and data for the next one are asked for."""
        if self._on:
            self._begun = _event()

    def end(self) -> None:
        """Says that the data are there."""
        if self._begun is not None:
            self._waits.append((self._begun, _event()))

    def values(self, seconds: float) -> Values:
        """Returns the share of the time that the GPU waited, once it has done all it was given.

        Args:
            seconds: How long it was measured.
        """
        if not self._on:
            return {}
        idle = sum(begun.elapsed_time(done) for begun, done in self._waits)
        return {"gpu_wait_share": idle / 1e3 / seconds}


def _event() -> torch.cuda.Event:
    """Returns an event that the GPU passes once it has done what it was given so far."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def chosen_device(name: str) -> str:
    """Returns the device's name as torch has it; "auto" is a GPU where there is one.

    Raises:
        UsageError: There is no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda", "mps"):
        raise UsageError(f"--device {name}: is none: write auto, cpu, cuda, cuda:1 or mps")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        why = (str(error) or "not available").splitlines()[0]
        raise UsageError(f"--device {name}: {why}") from error
    return name


@contextmanager
def watched(device: torch.device) -> Iterator[Values]:
    """Gives measures of a GPU that are filled in when the `with` block ends, by NVML.

    Without a GPU or the package nvidia-ml-py there are none.
    """
    found: Values = {}
    if device.type != "cuda":
        yield found
        return
    try:
        import pynvml
    except ImportError:
        yield found
        return
    try:
        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        yield found
        return
    busy: list[float] = []
    used: list[float] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY):
            busy.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            used.append(float(pynvml.nvmlDeviceGetMemoryInfo(handle).used))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
        if busy:
            found["gpu_busy_share"] = sum(busy) / len(busy)
            found["gpu_memory"] = max(used)
