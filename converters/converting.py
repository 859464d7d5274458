"""Makes a pack of another one, or one of several; the bytes of all fields stay as they are."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.encoding import Encoding
from fastconv.converters.outputs import Output, choose_output
from fastconv.converters.packing import check_arguments, pack, packed, planned, translated_errors
from fastconv.converters.part import what_opens
from fastconv.converters.plan import Cut, repeated_paths
from fastconv.converters.report import PackReport, ProgressCallback
from fastconv.converters.run import Notice, Origin, Source, taken_from
from fastconv.converters.selecting import select
from fastconv.converters.selection import Selection, Split
from fastconv.converters.splitting import packed_splits
from fastconv.converters.whole import open_whole, state_of
from fastconv.converters.writer import Rows, Sharding
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.joined import JoinedReader
from fastconv.loaders.kinds import kind_code
from fastconv.loaders.listing import Bytes, Ignored, Listing, Places
from fastconv.loaders.names import several
from fastconv.loaders.reader import NOTHING, MappedReader, Reader, Wanted
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["convert", "merge"]


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sharding: Sharding | None = None,
    index_for: Sequence[str] = (),
    encoding: Encoding | None = None,
    selection: Selection | None = None,
    split: Split | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
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
    files are when a folder is packed. What the format cannot hold, sidecars, is left out with a
    warning. A run that was stopped goes on as one of `pack` does.

    Args:
        source: A pack of any format, or a folder of images.
        out: The pack to make; its ending tells the format.
        image_key, label_key: Of Parquet, TFRecord and tars of others: the column, feature or
            extension (`left.png`) of the images, and that of the labels; by default the likeliest.
        format, options, sharding, index_for, encoding, selection, split, workers, strict,
        overwrite, restart, progress, notice: As for `pack`.

    Raises:
        UsageError: An argument is wrong; nothing was done.
        PackFailedError: Nothing in it is whole, or `strict` and something is damaged.
        FastconvError: Something failed; nothing is left at `out` that was not there before.
    """
    began = time.monotonic()
    check_arguments(workers, "fast", encoding, selection, split, sharding)
    wanted = Wanted((), image_key, label_key)
    reader = open_whole(source, wanted=wanted)
    if reader.root:
        return pack(
            source, out, format=format, options=options, sharding=sharding, workers=workers,
            strict=strict, overwrite=overwrite, restart=restart, progress=progress, notice=notice,
            index_for=index_for, encoding=encoding, selection=selection, split=split,
        )  # fmt: skip
    output = output_of(
        [reader], out, format, options, sharding, overwrite, index_for, split is not None
    )
    return made_of(
        [reader], reader.table, listed(reader, output), output, encoding=encoding,
        selection=selection, split=split, workers=workers, strict=strict, overwrite=overwrite,
        restart=restart, progress=progress, notice=notice, began=began, wanted=wanted,
    )  # fmt: skip


def merge(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sharding: Sharding | None = None,
    index_for: Sequence[str] = (),
    encoding: Encoding | None = None,
    prefix: bool = False,
    workers: int | None = None,
    strict: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> PackReport:
    """Makes one pack of several and returns what was done.

    The samples of the first come first, then those of the second. Classes are joined by name: packs
    of the same classes keep them, others get those of all, sorted as those of one folder would be.

    Args:
        sources: Packs, of one format or several.
        out: The pack to make; its ending tells the format.
        prefix: Each path gets the name of its pack before it: where two samples have one path.
        format, options, sharding, index_for, encoding, workers, strict, overwrite, restart,
        progress, notice: As for `pack`.

    Raises:
        UsageError: An argument is wrong, two samples have the same path, or the labels do not go
            together; nothing was done.
        PackFailedError: Nothing in them is whole, or `strict` and something is damaged.
        FastconvError: Something failed; nothing is left at `out` that was not there before.
    """
    began = time.monotonic()
    check_arguments(workers, "fast", encoding, sharding=sharding)
    reader = JoinedReader([open_whole(path) for path in several("sources", sources)])
    for one in reader.readers:
        if one.root:
            raise UsageError(f"{printable(one.path)}: a folder of images: pack it first")
    if not prefix:
        refuse_same_paths(reader)
    output = output_of(reader.readers, out, format, options, sharding, overwrite, index_for)
    listing = listed(reader, output)
    mixed = {name for one in reader.readers for name in one.meta.generated} & {*listing.fields}
    listing.notices += [
        f"{name} is the columns of a file of labels in one pack and files in another: here all are "
        "files"
        for name in sorted(mixed.difference(listing.generated))
    ]
    if prefix:
        listing.path_bytes, listing.path_offset = prefixed_paths(reader, listing.fields)
    return made_of(
        reader.readers, reader.table, listing, output, encoding=encoding, workers=workers,
        strict=strict, overwrite=overwrite, restart=restart, progress=progress, notice=notice,
        began=began,
    )  # fmt: skip


def output_of(
    readers: Sequence[Reader],
    out: str | os.PathLike[str],
    format: str | None,
    options: Mapping[str, Any] | None,
    sharding: Sharding | None,
    overwrite: bool,
    index_for: Sequence[str],
    splits: bool = False,
) -> Output:
    """Returns what OUT is to be.

    Raises:
        UsageError: It cannot be made there.
    """
    final = os.fsdecode(out)
    for reader in readers:
        if os.path.realpath(reader.path) == os.path.realpath(final):
            raise UsageError(f"{printable(final)}: is a pack that is read: name another OUT")
    with translated_errors(final):
        output = choose_output(final, format, options, sharding, overwrite, index_for, splits)
    for reader in readers:
        if os.path.isdir(reader.path):
            output.refuse_inside(reader.path)
    return output


def refuse_same_paths(reader: JoinedReader) -> None:
    """Refuses packs of which two have a sample of the same path.

    Raises:
        UsageError: They have.
    """
    same = repeated_paths(reader.table)
    if same:
        first, second = same[0]
        many = "1 path is" if len(same) == 1 else f"{len(same):,} paths are"
        raise UsageError(
            f"{many} in the packs twice, such as {reader.where(first)}, and "
            f"{reader.where(second)}: leave out one of the packs, or put each pack's name before "
            "its paths (--prefix)"
        )


def prefixed_paths(reader: JoinedReader, fields: Sequence[str]) -> tuple[Bytes, Places]:
    """Returns the paths of several packs with each pack's name before them, as a listing of these
    fields has them.

    Raises:
        UsageError: Two packs have the same name.
    """
    names = [os.path.splitext(os.path.basename(one.path.rstrip("/")))[0] for one in reader.readers]
    if len({*names}) < len(names):
        raise UsageError(
            f"two of the packs are called {printable(max(names, key=names.count))}, so that the "
            "name before their paths would be the same: give one of them another name"
        )
    blocks, lengths = [], []
    for name, one in zip(names, reader.readers, strict=True):
        paths, offset = one.table.paths_for(fields)
        prefix = np.frombuffer(os.fsencode(f"{name}/"), np.uint8)
        size = np.diff(offset.astype(np.int64))
        ends = np.cumsum(size + len(prefix))
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        heads = (ends - size - len(prefix))[:, np.newaxis] + np.arange(len(prefix))
        own = np.ones(len(out), np.bool_)
        own[heads] = False
        out[heads] = prefix
        out[own] = paths
        blocks.append(out)
        lengths.append(size + len(prefix))
    ends = np.cumsum(np.concatenate(lengths))
    return np.concatenate(blocks), np.concatenate([[0], ends]).astype(np.uint64)


def made_of(
    readers: Sequence[Reader],
    table: SampleTable,
    listing: Listing,
    output: Output,
    *,
    encoding: Encoding | None,
    workers: int | None,
    strict: bool,
    overwrite: bool,
    restart: bool,
    progress: ProgressCallback | None,
    notice: Notice | None,
    began: float,
    wanted: Wanted = NOTHING,
    selection: Selection | None = None,
    split: Split | None = None,
) -> PackReport:
    """Makes a pack of opened ones, and returns what was done.

    Args:
        readers: They.
        table: Their sample tables, one after the other.
        listing: What of them is to be packed.
        output: What is to be made.
        encoding, workers, strict, overwrite, restart, progress, notice: As for `pack`.
        began: When the run began, as `time.monotonic` counts.
        wanted: What was asked of the packs.
        selection, split: As for `pack`.
    """
    origin: Origin = partial(origin_of, readers, table, wanted)
    rows = np.arange(len(listing), dtype=np.int64)
    if selection is not None:
        listing, rows = select(
            listing, selection, output, workers=workers, progress=progress, table=table,
            origin=origin,
        )  # fmt: skip
    plan = planned(listing.root, listing, output, "fast", MAX_PIXELS, encoding, selection, split)
    about = {
        "the source": ", ".join(os.path.realpath(reader.path) for reader in readers),
        "the state of the source": ", ".join(state_of(reader) for reader in readers),
    }
    plan = replace(plan, options={**plan.options, **about})
    how: dict[str, Any] = {
        "encoding": encoding, "workers": workers, "check": "fast", "max_pixels": MAX_PIXELS,
        "strict": strict, "overwrite": overwrite, "restart": restart, "progress": progress,
        "notice": notice or (lambda line: None), "began": began,
    }  # fmt: skip
    if split is None:
        return packed(listing.root, listing, output, plan, origin=origin(rows), **how)
    return packed_splits(
        listing.root, listing, output, plan, split, lambda part: origin(rows[part]), **how
    )


def origin_of(readers: Sequence[Reader], table: SampleTable, wanted: Wanted, rows: Rows) -> Source:
    """Returns what says where the bytes of a part of some packs are.

    Args:
        readers: The packs.
        table: Their sample tables, one after the other.
        wanted: What was asked of them.
        rows: Which of the tables' rows are packed, in their order, int64 (n,).
    """
    mapped = [reader for reader in readers if isinstance(reader, MappedReader)]
    if table.extra is None and len(mapped) == len(readers):
        files = [file for reader in mapped for file in reader.files]
        found = [one for reader in mapped for one in reader.found]
        return taken_from("pack", table, files, rows, found)
    bounds = np.cumsum([0, *(len(reader) for reader in readers)])
    packs = [what_opens(reader, wanted) for reader in readers]

    def source(table: SampleTable, cut: Cut) -> tuple[dict[str, Any], dict[str, Array]]:
        mine = rows[cut.start : cut.stop]
        number = np.searchsorted(bounds, mine, side="right") - 1
        needed, pack = np.unique(number, return_inverse=True)
        content = {"source": "reader", "packs": [packs[one] for one in needed.tolist()]}
        return content, {"pack": pack.astype(np.int64), "row": mine - bounds[number]}

    return source


def listed(reader: Reader, output: Output) -> Listing:
    """Returns the samples of a pack as if a folder had been listed.

    Columns that a run corrects are copied: those of the pack are its mapped file.

    Args:
        reader: The pack.
        output: What is to be made of it; fields that it cannot hold are left out.
    """
    table, meta = reader.table, reader.meta
    nothing = np.zeros(0, np.uint8), np.zeros(0, np.uint64)
    stamp = table.checksum[0].view(np.int64) if table.checksum else np.zeros(len(table), np.int64)
    fields, warnings = table.fields, []
    if not output.writer.sidecars and len(fields) > 1:
        fields = (IMAGE,)
        warnings.append(
            f"{output.writer.title} holds images and labels alone: left out are the sidecars "
            f"{', '.join(table.fields[1:])}"
        )
    path_bytes, path_offset = table.paths_for(fields)
    return Listing(
        root=reader.path,
        fields=fields,
        label=table.label,
        # What does not say of which format it is, is told by its bytes.
        kind=np.where(table.kind == 0, np.uint8(kind_code("jpg")), table.kind),
        path_bytes=path_bytes,
        path_offset=path_offset,
        size=tuple(column.copy() for column in table.size[: len(fields)]),
        stamp=stamp,
        classes=meta.classes,
        labels=meta.labels,
        bad=list(reader.bad),
        ignored=Ignored(),
        warnings=warnings,
        notices=list(reader.notices),
        encoding=dict(meta.encoding),
        # Their bytes are fields like others.
        generated={name: nothing for name in meta.generated if name in fields},
        width=table.width,
        height=table.height,
    )
