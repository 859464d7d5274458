"""`fastconv convert`: a pack of another format."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.encoding import encoding_of
from fastconv.converters.cli.output import reporting
from fastconv.converters.cli.pack import how_to_cut, summarize
from fastconv.converters.cli.parameters import argument
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.selection import chosen
from fastconv.loaders.errors import printable

__all__ = ["command"]


def command(
    source: Annotated[
        str,
        argument(metavar="IN", help="A pack, or a folder of images."),
    ],
    output: options.OutputArgument,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
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
    only_classes: options.OnlyClassesOption = None,
    min_size: options.MinSizeOption = None,
    exclude_duplicates: options.ExcludeDuplicatesOption = False,
    shuffle: options.ShuffleOption = False,
    seed: options.HashSeedOption = None,
    limit: options.LimitOption = None,
    split: options.SplitOption = None,
    stratify: options.StratifyOption = False,
    strict: options.StrictOption = False,
    workers: options.WorkersOption = None,
    overwrite: options.OverwriteOption = False,
    restart: options.RestartOption = False,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Make a pack of another format of a pack; the bytes of all samples stay.

    The result is the pack that the folder itself would have given. What is
    damaged is named and left out (exit code 3).

    $ fastconv convert out.lmdb shards/ --format webdataset --shard-size 256MB
    $ fastconv convert out.lmdb small.lmdb --shuffle --limit 1000
    """
    with reporting("convert", json=json, quiet=quiet) as out:
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
        from fastconv.converters.converting import convert
        from fastconv.converters.outputs import choose_writer, parse_options

        with showing(quiet) as progress:
            report = convert(
                source,
                output,
                image_key=image_key,
                label_key=label_key,
                format=format,
                options=parse_options(choose_writer(output, format), option or []),
                sharding=sharding,
                index_for=options.split_names(index_for),
                encoding=encoding,
                selection=selection,
                split=parts,
                workers=workers,
                strict=strict,
                overwrite=overwrite,
                restart=restart,
                progress=progress,
                notice=out.note,
            )
        out.report(report, f"all in {printable(report.output)}.bad.jsonl")
        summarize(report, out)
