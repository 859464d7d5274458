"""`fastconv index`: what other tools want beside a pack's data files."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import counted, reporting
from fastconv.converters.cli.parameters import option
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import printable

__all__ = ["command"]


def command(
    pack: options.PackArgument,
    tools: Annotated[
        list[str] | None,
        option(
            "--for",
            metavar="TOOL[,TOOL]",
            help="dali, energon, timm, wids (WebDataset); dali, tfrecord (TFRecord); dali, mxnet "
            "(RecordIO).",
            panel=options.FORMAT,
            show_default="what the format has anyway",
        ),
    ] = None,
    format: options.ReadFormatOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Write the index files that other tools want beside a pack.

    They follow from the sample table; the samples are not read. What is
    there and right is left alone.

    $ fastconv index shards/ --for dali,energon
    """
    with reporting("index", json=json, quiet=quiet) as out:
        out.answer |= {"output": pack}
        from fastconv.converters.indexes.writing import write_indexes

        report = write_indexes(
            pack, options.split_names(tools), format=format, overwrite=overwrite, notice=out.note
        )
        out.report(report)
        for name in report.written:
            out.print(printable(name))
        out.summary(
            f"{printable(pack)}: {counted(len(report.files), 'index file')} for "
            f"{', '.join(report.tools)}, {size_text(report.size)}"
            f"{'' if report.written else ', all there already'}"
        )
