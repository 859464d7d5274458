"""`fastconv pack`: a folder of images becomes a pack."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastconv.converters.cli import options
from fastconv.converters.cli.encoding import encoding_of
from fastconv.converters.cli.output import Out, counted, reporting
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.selection import chosen
from fastconv.converters.cli.sizes import size_text
from fastconv.converters.cli.source import left_out, source_options
from fastconv.loaders.errors import UsageError, printable

if TYPE_CHECKING:
    from fastconv.converters.report import PackReport
    from fastconv.converters.writer import Sharding

__all__ = ["command"]


def command(
    source: options.SourceArgument,
    output: options.OutputArgument,
    format: options.WriteFormatOption = None,
    option: options.WriterOption = None,
    shard_size: options.ShardSizeOption = None,
    shard_samples: options.ShardSamplesOption = None,
    index_for: options.IndexForOption = None,
    resize: options.ResizeOption = None,
    fit: options.FitOption = None,
    enlarge: options.EnlargeOption = False,
    encode: options.EncodeOption = None,
    quality: options.QualityOption = None,
    subsampling: options.SubsamplingOption = None,
    color: options.ColorOption = None,
    background: options.BackgroundOption = None,
    orientation: options.OrientationOption = None,
    icc: options.IccOption = None,
    no_labels: options.NoLabelsOption = False,
    labels: options.LabelsFileOption = None,
    classes: options.ClassesOption = None,
    class_order: options.ClassOrderOption = "sorted",
    sidecar: options.SidecarOption = None,
    any_extension: options.AnyExtensionOption = False,
    only_classes: options.OnlyClassesOption = None,
    min_size: options.MinSizeOption = None,
    exclude_duplicates: options.ExcludeDuplicatesOption = False,
    shuffle: options.ShuffleOption = False,
    seed: options.HashSeedOption = None,
    limit: options.LimitOption = None,
    split: options.SplitOption = None,
    stratify: options.StratifyOption = False,
    check: options.CheckOption = "fast",
    max_pixels: options.MaxPixelsOption = None,
    strict: options.StrictOption = False,
    workers: options.WorkersOption = None,
    overwrite: options.OverwriteOption = False,
    restart: options.RestartOption = False,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Pack a folder of images into one file or a few shards.

    Classes are the folders right below SRC, numbered as torchvision's
    ImageFolder numbers them. What cannot be a sample is named, and the rest
    is packed (exit code 3). The same command goes on where a run was
    stopped, however that was.

    $ fastconv pack images/ out.lmdb
    $ fastconv pack images/ shards/ --format webdataset --shard-size 256MB
    $ fastconv pack images/ out/ --format lmdb --split train=0.9,val=0.1
    """
    with reporting("pack", json=json, quiet=quiet) as out:
        out.answer |= {"output": output, "format": format}
        sharding = how_to_cut(shard_size, shard_samples)
        encoding = encoding_of(
            resize=resize,
            fit=fit,
            enlarge=enlarge,
            encode=encode,
            quality=quality,
            subsampling=subsampling,
            color=color,
            background=background,
            orientation=orientation,
            icc=icc,
        )
        selection, parts = chosen(
            only_classes=only_classes,
            min_size=min_size,
            exclude_duplicates=exclude_duplicates,
            shuffle=shuffle,
            seed=seed,
            limit=limit,
            split=split,
            stratify=stratify,
        )
        sources = source_options(
            no_labels=no_labels,
            labels=labels,
            classes=classes,
            class_order=class_order,
            sidecar=sidecar,
            any_extension=any_extension,
        )
        from fastconv.converters.check import MAX_PIXELS
        from fastconv.converters.outputs import choose_writer, parse_options
        from fastconv.converters.packing import pack

        with showing(quiet) as progress:
            report = pack(
                source,
                output,
                format=format,
                options=parse_options(choose_writer(output, format), option or []),
                sharding=sharding,
                index_for=options.split_names(index_for),
                encoding=encoding,
                selection=selection,
                split=parts,
                workers=workers,
                check=check,
                max_pixels=max_pixels or MAX_PIXELS,
                strict=strict,
                overwrite=overwrite,
                restart=restart,
                progress=progress,
                notice=out.note,
                **sources,
            )
        out.report(report, f"all in {printable(report.output)}.bad.jsonl")
        summarize(report, out)


def how_to_cut(shard_size: int | None, shard_samples: int | None) -> Sharding | None:
    """Returns what the options for shards mean; None without any.

    Raises:
        UsageError: There are two of them.
    """
    from fastconv.converters.writer import Sharding

    if shard_size is not None and shard_samples is not None:
        raise UsageError("--shard-size and --shard-samples: give one of them")
    if shard_samples is not None:
        return Sharding(samples=shard_samples)
    return None if shard_size is None else Sharding(bytes=shard_size)


def summarize(report: PackReport, out: Out) -> None:
    """Prints what was packed."""
    for one in list(report.splits.values()) or [report]:
        summarize_pack(one, out)
    if what := left_out(report.ignored):
        out.summary(f"left out: {what}")
    if report.bad:
        bad = f"{len(report.bad):,}, listed in {printable(report.output)}.bad.jsonl"
        out.summary(f"bad: {bad}")


def summarize_pack(report: PackReport, out: Out) -> None:
    """Prints what one pack is."""
    from fastconv.converters.indexes.kinds import ALWAYS, index_files
    from fastconv.converters.indexes.pack import IndexedPack
    from fastconv.converters.writer import WRITERS
    from fastconv.loaders.index import index_path

    name, writer = printable(report.output), WRITERS.load(report.format)
    classes = f" in {counted(len(report.classes), 'class')}" if report.classes else ""
    out.summary(
        f"{name}: {counted(report.samples, 'image')}{classes}, "
        f"{size_text(report.size)} ({writer.title}), "
        f"{report.seconds:.1f} s, {report.samples / max(report.seconds, 1e-3):,.0f} images/s"
    )
    if not writer.table_inside and not os.path.isdir(report.output):
        pack = IndexedPack.empty(report.output, writer())
        names = index_files(pack, ALWAYS.get(writer.name, ()))
        tools = f"; other tools read {', '.join(map(printable, names))}" if names else ""
        table = printable(index_path(report.output))
        out.summary(f"its table lies beside it: keep {table} too{tools}")
