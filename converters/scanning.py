"""Looks at a folder of images and says what packing it would do; writes nothing."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.engines.choice import engine_for
from fastconv.converters.outputs import Output
from fastconv.converters.packing import check_arguments, source_folder
from fastconv.converters.plan import new_table, placed, without
from fastconv.converters.report import ProgressCallback, Report
from fastconv.converters.run import Check, Run, described, index_block, with_data_files
from fastconv.converters.sources import folder
from fastconv.converters.writer import WRITERS, Layout, Sharding, Writer
from fastconv.loaders.arrays import block_size
from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import UsageError
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.listing import Ignored, Listing
from fastconv.loaders.sample import Reason
from fastconv.loaders.table import SampleTable

__all__ = ["ScanReport", "look", "packed_size", "scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport(Report):
    """What packing a folder would do.

    Attributes:
        source: The folder.
        class_counts: Class -> how many samples it has.
        formats: Format of images, by their contents -> how many there are; the most frequent first.
        sizes: Format of packs -> bytes of a pack in a single file or database on the disk, with its
            sample table; index files do not count.
        ignored: What would be left out because it is no image.
    """

    source: str
    class_counts: Mapping[str, int]
    formats: Mapping[str, int]
    sizes: Mapping[str, int]
    ignored: Ignored = field(default_factory=Ignored)

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of the inputs would be packed."""
        if not self.samples:
            return "failed"
        return "partial" if self.bad else "done"


def scan(
    source: str | os.PathLike[str],
    *,
    workers: int | None = None,
    check: Check = "fast",
    max_pixels: int = MAX_PIXELS,
    labels: bool | str | os.PathLike[str] = True,
    classes: Sequence[str] | None = None,
    class_order: ClassOrder = "sorted",
    sidecars: Sequence[str] = (),
    any_extension: bool = False,
    progress: ProgressCallback | None = None,
) -> ScanReport:
    """Returns what packing a folder would do.

    The arguments are those of `fastconv.converters.pack`. With the fast check no more of each file
    is read than tells what it is.

    Raises:
        UsageError: An argument is wrong.
        FastconvError: Something failed.
    """
    began = time.monotonic()
    root = source_folder(source)
    check_arguments(workers, check)
    listing = folder.scan(
        root,
        labels=labels,
        classes=classes,
        class_order=class_order,
        sidecars=sidecars,
        any_extension=any_extension,
    )
    with engine_for(workers, len(listing), listing.bytes, check == "decode") as engine:
        writers = [kind() for kind in WRITERS.installed()]
        # Which writer does not matter to a run that writes nothing.
        output = Output(root, writers[0], None, Sharding())
        run = Run(root, listing, output, engine, check, max_pixels, progress, lambda line: None)
        table = new_table(listing)
        if found := look(run, table):
            table = without(table, run.drop(table, found))
    warnings, sizes = list(listing.warnings), {}
    for writer in writers:
        try:
            sizes[writer.name] = packed_size(listing, writer, table) if len(table) else 0
        except (UsageError, OSError) as error:
            warnings.append(f"no size of a pack in {writer.title}: {error}")
    kinds = np.bincount(table.kind, minlength=len(KINDS))
    counts = np.bincount(table.label[table.label >= 0], minlength=len(listing.classes)).tolist()
    return ScanReport(
        source=root,
        samples=len(table),
        classes=listing.classes,
        class_counts=dict(zip(listing.classes, counts, strict=False)),
        formats={
            KINDS[code]: int(kinds[code])
            for code in np.argsort(-kinds, kind="stable")
            if kinds[code]
        },
        fields=listing.fields,
        bytes=table.bytes,
        sizes=sizes,
        bad=run.bad,
        ignored=listing.ignored,
        warnings=warnings,
        notices=listing.notices,
        seconds=time.monotonic() - began,
    )


def look(run: Run, table: SampleTable) -> list[tuple[int, int, Reason, str]]:
    """Looks at all samples of a run, and fills its table; returns (row, slot, reason, message) of
    each field that cannot be packed."""
    nowhere = tuple(np.zeros(len(table), np.uint64) for _ in table.fields)
    layout = Layout((), np.array([0, len(table)], np.int64), nowhere, (0,) * len(nowhere))
    return run.run_parts(0, table, layout, None, run.origin)


def packed_size(listing: Listing, writer: Writer, table: SampleTable) -> int:
    """Returns the bytes of a pack in a single file or database, with its sample table.

    Raises:
        UsageError: The format cannot hold something of this.
    """
    meta = described(listing, writer, table)
    with tempfile.TemporaryDirectory(prefix="fastconv-") as place:
        layout = writer.lay_out(place, None, Sharding(), meta, table)
    size = sum(shard.size for shard in layout.shards)
    if not writer.table_inside:
        meta = with_data_files(meta, writer, layout, None)
        size += block_size(index_block(placed(table, layout), meta))
    return size
