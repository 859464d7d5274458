"""Packs samples that a program gives one by one.

Where everything goes follows from all sizes, so the samples are written to a file in OUT.partial
first and packed from there, as those of another pack are: nothing but their columns is held in
memory, and the bytes are on the disk twice until the pack is whole.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastconv.converters.encoding import Encoding
from fastconv.converters.journal import has_records
from fastconv.converters.outputs import choose_output
from fastconv.converters.packing import SAMPLES, check_arguments, packed, planned, translated_errors
from fastconv.converters.report import PackReport, ProgressCallback
from fastconv.converters.run import Check, Notice, taken_from
from fastconv.converters.sources.samples import written
from fastconv.converters.system import held_signals
from fastconv.converters.target import Target, exists_already
from fastconv.converters.writer import Sharding
from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import FastconvError, UsageError, printable
from fastconv.loaders.reader import found_at
from fastconv.loaders.sample import Sample

__all__ = ["pack_samples"]


def pack_samples(
    samples: Iterable[Sample],
    out: str | os.PathLike[str],
    *,
    format: str | None,
    options: Mapping[str, Any] | None,
    sharding: Sharding | None,
    index_for: Sequence[str],
    encoding: Encoding | None,
    workers: int | None,
    check: Check,
    max_pixels: int,
    strict: bool,
    overwrite: bool,
    restart: bool,
    classes: Sequence[str] | None,
    class_order: ClassOrder,
    progress: ProgressCallback | None,
    notice: Notice | None,
) -> PackReport:
    """Packs samples in the order in which they come, and returns what was done.

    A run that was stopped begins anew: a program cannot be asked for the same samples again.

    Args:
        samples: They; the iterator is closed when something fails.
        out, format, options, sharding, index_for, encoding, workers, check, max_pixels, strict,
        overwrite, restart, classes, class_order, progress, notice: As for `pack`.

    Raises:
        UsageError, PackFailedError, FastconvError: As from `pack`.
        Exception: What the program raises while it makes samples; nothing is left at `out`.
    """
    began, final = time.monotonic(), os.fsdecode(out)
    notice = notice or (lambda line: None)
    check_arguments(workers, check, encoding, sharding=sharding)
    if not (isinstance(samples, Iterable) or hasattr(samples, "__getitem__")):
        raise UsageError(f"samples are something that gives Sample, not {type(samples).__name__}")
    own: list[OSError] = []
    try:
        with translated_errors(final):
            output = choose_output(final, format, options, sharding, overwrite, index_for)
            target = held(output.out, overwrite, restart, notice)
            try:
                spool = target.path(SAMPLES)
                listing, places, rows = written(
                    watched(samples, own), spool, classes=classes, class_order=class_order
                )
            except BaseException:
                with held_signals():
                    target.discard()
                raise
    except FastconvError:
        if own:
            raise own[0] from None
        raise
    plan = planned(spool, listing, output, check, max_pixels, encoding)
    found = found_at(spool)
    # No other run is about the same samples, as far as anybody knows.
    plan = replace(plan, options={**plan.options, "the samples": uuid.uuid4().hex})
    return packed(
        "the samples given", listing, output, plan, encoding=encoding, workers=workers, check=check,
        max_pixels=max_pixels, strict=strict, overwrite=overwrite, restart=True, progress=progress,
        notice=notice, began=began, origin=taken_from("pack", places, [spool], rows, [found]),
        target=target,
    )  # fmt: skip


def watched(samples: Iterable[Sample], own: list[OSError]) -> Iterator[Sample]:
    """Yields samples; an error of the system that the program has over them, and not we, goes to
    `own`."""
    try:
        yield from samples
    except OSError as error:
        own.append(error)
        raise


def held(out: str, overwrite: bool, restart: bool, notice: Notice) -> Target:
    """Returns OUT.partial, empty.

    Raises:
        UsageError: There is a pack at OUT, or an unfinished run of another kind in OUT.partial.
    """
    target = Target(out, notice)
    try:
        if target.published is not None:  # by a run that was killed before it could say so
            target.discard()
            if not overwrite:
                raise exists_already(out)
            target = Target(out, notice)
        ours = os.path.lexists(target.path(SAMPLES))
        if has_records(target.partial) and not ours and not restart:
            raise UsageError(
                f"{printable(target.partial)}: holds an unfinished run: finish that by its own "
                "command, or give it up with restart=True"
            )
        target.start_over()
    except BaseException:
        target.keep()
        raise
    return target
