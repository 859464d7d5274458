"""Makes a pack of another format of a pack; the bytes of all fields stay as they are."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.outputs import choose_output
from fastconv.converters.packing import (
    Notice,
    check_arguments,
    pack,
    packed,
    planned,
    taken_from,
    translated_errors,
)
from fastconv.converters.report import PackReport, ProgressCallback
from fastconv.converters.writer import Sharding
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.listing import Ignored, Listing
from fastconv.loaders.open import open_pack
from fastconv.loaders.reader import MappedReader

__all__ = ["convert"]


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sharding: Sharding | None = None,
    workers: int | None = None,
    strict: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> PackReport:
    """Makes a pack of another one and returns what was done.

    The result has the very bytes of a pack of the folder itself. Every field is compared with its
    checksum on the way, where the source has one; what is damaged is left out and listed, as bad
    files are when a folder is packed. A run that was stopped goes on as one of `pack` does.

    Args:
        source: A pack of any format, or a folder of images.
        out: The pack to make; its ending tells the format.
        format, options, sharding, workers, strict, overwrite, restart, progress, notice: As for
            `pack`.

    Raises:
        UsageError: An argument is wrong; nothing was done.
        PackFailedError: Nothing in it is whole, or `strict` and something is damaged.
        FastconvError: Something failed; nothing is left at `out` that was not there before.
    """
    began = time.monotonic()
    check_arguments(workers, "fast")
    reader = open_pack(source)
    if not isinstance(reader, MappedReader):
        return pack(
            source, out, format=format, options=options, sharding=sharding, workers=workers,
            strict=strict, overwrite=overwrite, restart=restart, progress=progress, notice=notice,
        )  # fmt: skip
    final = os.fsdecode(out)
    if os.path.realpath(reader.path) == os.path.realpath(final):
        raise UsageError(f"{printable(final)}: is the pack that is converted: name another OUT")
    with translated_errors(final):
        output = choose_output(final, format, options, sharding, overwrite)
    if os.path.isdir(reader.path):
        output.refuse_inside(reader.path)
    listing = listed(reader)
    plan = planned(reader.path, listing, output, "fast", MAX_PIXELS)
    plan = replace(plan, options={**plan.options, "the source's id": reader.meta.id})
    rows = np.arange(len(listing), dtype=np.int64)
    return packed(
        reader.path, listing, output, plan, workers=workers, check="fast", max_pixels=MAX_PIXELS,
        strict=strict, overwrite=overwrite, restart=restart, progress=progress,
        notice=notice or (lambda line: None), began=began,
        origin=taken_from("pack", reader.table, reader.files, rows),
    )  # fmt: skip


def listed(reader: MappedReader) -> Listing:
    """Returns the samples of a pack as if a folder had been listed.

    Columns that a run corrects are copied: those of the pack are its mapped file.
    """
    table, meta = reader.table, reader.meta
    nothing = np.zeros(0, np.uint8), np.zeros(0, np.uint64)
    stamp = table.checksum[0].view(np.int64) if table.checksum else np.zeros(len(table), np.int64)
    return Listing(
        root=reader.path,
        fields=table.fields,
        label=table.label,
        kind=table.kind.copy(),
        path_bytes=table.path_bytes,
        path_offset=table.path_offset,
        size=tuple(column.copy() for column in table.size),
        stamp=stamp,
        classes=meta.classes,
        labels=meta.labels,
        bad=list(reader.bad),
        ignored=Ignored(),
        warnings=[],
        notices=list(reader.notices),
        generated=dict.fromkeys(meta.generated, nothing),  # their bytes are fields like others
    )
