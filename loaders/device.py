"""Brings batches to where they are used: beside the computing, one ahead, and normalised there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from fastconv.loaders.errors import UsageError
from fastconv.loaders.nvjpeg import EncodedBatch

__all__ = ["DeviceMover"]


class DeviceMover:
    """Moves batches to a device, and casts and normalises their images there.

    Args:
        device: Where to; None leaves batches where they are.
        normalize: (mean, std) of each channel, of values from 0 to 1.
        dtype: Floating-point type of the images.

    Raises:
        UsageError: The device is not there, or an argument is wrong.
    """

    def __init__(
        self,
        device: torch.device | None,
        normalize: tuple[Sequence[float], Sequence[float]] | None,
        dtype: torch.dtype | None,
    ) -> None:
        if device is not None and device.type == "cuda" and not torch.cuda.is_available():
            raise UsageError(f"device is {device}: torch finds no CUDA here")
        if dtype is not None and not dtype.is_floating_point:
            raise UsageError(
                f"dtype is {dtype}: images are uint8, or floating point when asked for"
            )
        self.device = device
        self.dtype = dtype or (torch.float32 if normalize is not None else None)
        self.mean_std: tuple[torch.Tensor, torch.Tensor] | None = None
        if normalize is not None:
            try:
                mean, std = (torch.tensor(values, dtype=torch.float64) for values in normalize)
                right = mean.shape == std.shape == (3,) and bool((std > 0).all())
            except (TypeError, ValueError, RuntimeError):
                right = False
            if not right:
                raise UsageError(
                    "normalize is (mean, std): three numbers each, those of std above 0"
                )
            if bool((mean.abs() > 1).any()):
                raise UsageError(
                    f"normalize has a mean of {mean.tolist()}: of values from 0 to 1: divide mean "
                    "and std by 255"
                )
            # x / 255 is in 0 to 1; both steps become one multiplication and one subtraction.
            scale = (1 / (255 * std)).to(self.dtype).view(3, 1, 1).to(device)
            shift = (mean / std).to(self.dtype).view(3, 1, 1).to(device)
            self.mean_std = scale, shift

    def __call__(self, batches: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yields the batches, moved, each with its number."""
        if self.device is not None and self.device.type == "cuda":
            yield from self._beside(batches)
            return
        for number, batch in batches:
            moved = self._moved(batch, False)
            if moved is not None:
                yield number, self._converted(moved)

    def _moved(self, batch: Any, beside: bool) -> Any:
        if self.device is None:
            return batch
        if isinstance(batch, EncodedBatch):
            return batch.to(self.device)
        if isinstance(batch, torch.Tensor):
            return batch.to(self.device, non_blocking=beside)
        if isinstance(batch, tuple | list):
            return type(batch)(self._moved(part, beside) for part in batch)
        if isinstance(batch, dict):
            return {name: self._moved(part, beside) for name, part in batch.items()}
        return batch

    def _converted(self, batch: Any) -> Any:
        if self.dtype is None:
            return batch
        images, *labels = batch
        if self.mean_std is None:
            return images.to(self.dtype).div_(255), *labels
        scale, shift = self.mean_std
        return images.to(self.dtype).mul_(scale).sub_(shift), *labels

    def _beside(self, batches: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yields batches on the GPU: each is copied on a stream of its own while the one before is
        used.

        The pinned memory that is copied from stays referred to until the copy is done, and the
        GPU's memory is known to both streams, so neither is given to somebody else too early.
        """
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        copied: deque[tuple[int, Any, torch.cuda.Event]] = deque()
        sources: deque[tuple[Any, torch.cuda.Event]] = deque()
        for number, batch in batches:
            with torch.cuda.stream(stream):
                moved = self._moved(batch, True)
                if moved is None:  # all that was left of it could not be decoded
                    continue
                moved = self._converted(moved)
                event = stream.record_event()
            copied.append((number, moved, event))
            sources.append((batch, event))
            del batch, moved
            while sources and sources[0][1].query():  # type: ignore[no-untyped-call]
                sources.popleft()
            if len(copied) > 1:
                yield self._ready(*copied.popleft())
        while copied:
            yield self._ready(*copied.popleft())
        stream.synchronize()  # for what is still copied from

    def _ready(self, number: int, moved: Any, event: torch.cuda.Event) -> tuple[int, Any]:
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for part in moved if isinstance(moved, tuple | list) else (moved,):
            if isinstance(part, torch.Tensor):
                part.record_stream(current)
        return number, moved
