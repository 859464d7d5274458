"""Decodes JPEGs on the GPU: batches of files, by nvJPEG through `torchvision.io.decode_jpeg`.

Threads read the files and choose what becomes of each picture; the GPU decodes them whole, then
crops and resizes. What nvJPEG cannot do (other formats, CMYK, arithmetic coding, ...) is decoded on
the CPU and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastconv.loaders.decode import decode_numpy
from fastconv.loaders.decoders import Geometry
from fastconv.loaders.errors import MissingDependencyError, SampleError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Encoded", "EncodedBatch", "check_torchvision", "render"]


class Encoded(NamedTuple):
    """A picture that waits for the GPU.

    Attributes:
        data: The JPEG.
        geometry: What becomes of it.
    """

    data: bytes
    geometry: Geometry


class EncodedBatch:
    """A batch whose pictures are decoded when it is moved to a device.

    Args:
        pictures: For the GPU, or decoded already: uint8 (rows, columns, 3) as they are in a batch.
        labels: int64 (n,).
        size: Rows and columns of the images.
        fell_back: Called for each picture that the GPU could not decode.
        failed: Called with a position and the error of a picture that neither the GPU nor the CPU
            can decode; raises it, or has it left out.
    """

    def __init__(
        self,
        pictures: Sequence[Encoded | npt.NDArray[np.uint8]],
        labels: npt.NDArray[np.int64],
        size: tuple[int, int],
        fell_back: Callable[[], None],
        failed: Callable[[int, SampleError], None],
    ) -> None:
        self.pictures = pictures
        self.labels = labels
        self.size = size
        self.fell_back = fell_back
        self.failed = failed

    def to(self, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """Returns images, uint8 (n, 3, rows, columns), channels last, and labels, int64 (n,), on
        the device; None where nothing is left."""
        images = torch.empty((len(self.pictures), *self.size, 3), dtype=torch.uint8, device=device)
        images = images.permute(0, 3, 1, 2)
        kept = np.ones(len(self.pictures), np.bool_)
        files = [picture.data for picture in self.pictures if isinstance(picture, Encoded)]
        decoded = iter(decode_all(files, device))
        for number, picture in enumerate(self.pictures):
            if not isinstance(picture, Encoded):
                self.fell_back()
                images[number].copy_(torch.from_numpy(picture).permute(2, 0, 1))
                continue
            whole = next(decoded)
            if whole is None:
                self.fell_back()
                try:
                    array = decode_numpy(picture.data)
                except SampleError as error:
                    self.failed(number, error)
                    kept[number] = False
                    continue
                whole = torch.from_numpy(array).permute(2, 0, 1).to(device)
            render(whole, picture.geometry, images[number])
        labels = torch.from_numpy(self.labels)
        if not kept.all():
            images, labels = images[torch.from_numpy(kept).to(device)], labels[kept]
        return (images, labels.to(device, non_blocking=True)) if len(labels) else None


def check_torchvision() -> None:
    """Checks that the package is there that gives nvJPEG.

    Raises:
        MissingDependencyError: It is not.
    """
    try:
        import torchvision.io  # noqa: F401
    except (ImportError, RuntimeError) as error:  # the latter: made for another torch
        raise MissingDependencyError(
            "decoding on the GPU needs torchvision, made for this torch: pip install "
            f"'fastconv[torchvision]' ({error})"
        ) from error


def decode_all(files: Sequence[bytes], device: torch.device) -> list[Tensor | None]:
    """Returns JPEGs decoded, uint8 (3, rows, columns), RGB, on the device; None for those that
    cannot be decoded there."""
    if not files:
        return []
    data = [torch.from_numpy(np.frombuffer(bytearray(file), np.uint8)) for file in files]
    try:
        return _decode(data, device)
    except RuntimeError:  # of one of them, which is not told
        return [_decode_one(each, device) for each in data]


def _decode_one(data: Tensor, device: torch.device) -> Tensor | None:
    try:
        return _decode([data], device)[0]
    except RuntimeError:
        return None


def _decode(data: list[Tensor], device: torch.device) -> list[Tensor | None]:
    from torchvision.io import ImageReadMode, decode_jpeg

    images: list[Tensor | None] = decode_jpeg(data, mode=ImageReadMode.RGB, device=device)
    return images


def render(pixels: Tensor, geometry: Geometry, out: Tensor) -> None:
    """Writes what becomes of a picture, as `fastconv.loaders.resize.render` does on the CPU.

    Args:
        pixels: The picture, uint8 (3, rows, columns).
        geometry: What becomes of it.
        out: The result, uint8 (3, out_rows, out_columns), on the same device.
    """
    x, y, width, height, rows, columns, top, left, out_rows, out_columns, flip = geometry
    part = pixels[:, y : y + height, x : x + width]
    if (rows, columns) != (height, width):
        resized = torch.nn.functional.interpolate(
            part.unsqueeze(0).float(), (rows, columns), mode="bilinear", antialias=True
        )
        part = resized.squeeze(0).round_().clamp_(0, 255).to(torch.uint8)
    window = part[:, max(top, 0) : top + out_rows, max(left, 0) : left + out_columns]
    first_row, first_column = max(-top, 0), max(-left, 0)
    inner = out[
        :,
        first_row : first_row + window.shape[1],
        first_column : first_column + window.shape[2],
    ]
    if inner.shape != out.shape:
        out.zero_()
    inner.copy_(window)
    if flip:
        out.copy_(out.flip(2))
