"""Decodes JPEGs, whole and in batches, by the kernel in C, `fastconv_native`, where there is one.

It makes the same pixels as `fastconv.loaders.decode.decode_with`, bit by bit, sooner, and lets go
of Python's lock once for a whole batch. What it cannot do (other formats, damaged files, too many
pixels, an orientation that more than a plain EXIF block has a say in) is left to Python, which has
the error messages too. So nothing but the speed depends on whether it is there.

`FASTCONV_NATIVE=0` in the environment switches it off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import SampleError
from fastconv.loaders.raw import Pixels

if TYPE_CHECKING:
    from fastconv.loaders.decoders import Decoder

__all__ = ["Kernel", "decode", "decode_whole", "kernel", "switched_off"]

_SWITCH = "FASTCONV_NATIVE"
_INTERFACE = 1  # of the kernel: what its functions take and give

_log = logging.getLogger(__name__)

Files = Sequence[bytes | memoryview]


class Kernel(Protocol):
    """What is used of `fastconv_native`; its `_kernel.pyi` says what it all means."""

    DONE: int

    def headers(self, files: Files, out: npt.NDArray[np.int32], /) -> None: ...
    def decode(
        self,
        files: Files,
        jobs: npt.NDArray[np.int32],
        out: Pixels,
        status: npt.NDArray[np.uint8],
        max_pixels: int,
        threads: int,
        /,
    ) -> None: ...


def switched_off() -> bool:
    """Returns whether the environment says that the kernel is not to be used."""
    return os.environ.get(_SWITCH, "").lower() in ("0", "false", "no", "off")


@cache
def kernel() -> Kernel | None:
    """Returns the kernel; None where it is not installed, cannot be used, or is switched off."""
    if switched_off():
        return None
    try:
        found = import_module("fastconv_native")
    except ModuleNotFoundError:
        return None
    except Exception as error:  # made for another machine or Python
        _log.info("fastconv_native is not used: it cannot be imported: %s", error)
        return None
    if getattr(found, "INTERFACE", None) != _INTERFACE:
        _log.info("fastconv_native is not used: it is of another version")
        return None
    return cast(Kernel, found)


def decode(
    files: Sequence[bytes | memoryview | None],
    decoder: Decoder,
    draws: Sequence[Sequence[float]],
    out: Pixels,
    exif_transpose: bool = False,
    threads: int = 1,
) -> npt.NDArray[np.bool_]:
    """Makes what a decoder wants of each JPEG of a batch; returns which are done, bool (n,).

    In the places of the others anything may be: they are for `decode_with`.

    Args:
        files: The JPEGs; None for what is none.
        decoder: Says what is wanted, as for `decode_with`.
        draws: For each as many random numbers as the decoder needs.
        out: Where to put them, uint8 (n, rows, columns, channels): 3 channels for RGB, 1 for grey.
        exif_transpose: Turns the pictures first, as their EXIF orientation says.
        threads: How many to use.
    """
    native = kernel()
    if native is None:
        return np.zeros(len(files), np.bool_)
    given = [b"" if file is None else file for file in files]
    about = np.empty((len(given), 4), np.int32)
    native.headers(given, about)
    jobs = np.zeros((len(given), 12), np.int64)  # of nothing, which is never done
    jobs[:, 8:10] = out.shape[1:3]
    for job, (width, height, _, orientation), draw in zip(jobs, about.tolist(), draws, strict=True):
        turn = orientation if exif_transpose else 1
        if not width or not turn:
            continue
        size = (width, height) if turn < 5 else (height, width)
        try:
            geometry = decoder.geometry(*size, draw)
        except SampleError:
            continue
        if (geometry.out_rows, geometry.out_columns) == out.shape[1:3]:
            job[:] = *geometry, turn
    most = np.iinfo(np.int32)
    status = np.empty(len(given), np.uint8)
    native.decode(
        given, jobs.clip(most.min, most.max).astype(np.int32), out, status, _max_pixels(), threads
    )
    done: npt.NDArray[np.bool_] = status == native.DONE
    return done


def decode_whole(data: bytes | memoryview, grey: bool = False) -> Pixels | None:
    """Returns all pixels of a JPEG, uint8 (rows, columns, 3), RGB; None where the kernel is not
    there, or does not do it.

    Args:
        data: The file.
        grey: Gives (rows, columns, 1) instead.
    """
    native = kernel()
    if native is None:
        return None
    about = np.empty((1, 4), np.int32)
    native.headers([data], about)
    width, height = about[0, :2].tolist()
    if not width:
        return None
    out = np.empty((1, height, width, 1 if grey else 3), np.uint8)
    job = (0, 0, width, height, height, width, 0, 0, height, width, 0, 1)
    status = np.empty(1, np.uint8)
    native.decode([data], np.array([job], np.int32), out, status, 0, 1)
    return out[0] if status[0] == native.DONE else None


def _max_pixels() -> int:
    """Returns how many pixels Pillow decodes without an error, 0 where that has no limit."""
    from fastconv.loaders import pillow

    most = pillow.most_pixels()
    return 0 if most is None else max(int(min(most, 1 << 62)), 1)
