"""`fastconv merge`: one pack of several."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import reporting
from fastconv.converters.cli.pack import how_to_cut, summarize
from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.progress import showing
from fastconv.loaders.errors import UsageError, printable

__all__ = ["command"]


def command(
    packs: Annotated[
        list[str],
        argument(metavar="IN... OUT", help="The packs, and last the one to make."),
    ],
    format: options.WriteFormatOption = None,
    option: options.WriterOption = None,
    shard_size: options.ShardSizeOption = None,
    shard_samples: options.ShardSamplesOption = None,
    index_for: options.IndexForOption = None,
    prefix: Annotated[
        bool,
        option(
            "--prefix",
            help="Put each pack's name before its paths, where two have the same.",
            panel=options.RUNNING,
        ),
    ] = False,
    strict: options.StrictOption = False,
    workers: options.WorkersOption = None,
    overwrite: options.OverwriteOption = False,
    restart: options.RestartOption = False,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Make one pack of several, of one format or of different ones.

    The samples of the first come first. Classes are joined by name. What is
    damaged is named and left out (exit code 3).

    $ fastconv merge monday.lmdb tuesday.h5 week.lmdb
    """
    *sources, output = packs
    with reporting("merge", json=json, quiet=quiet) as out:
        out.answer |= {"output": output, "format": format}
        if len(sources) < 2:
            raise UsageError("name at least two packs, and then the one to make of them")
        sharding = how_to_cut(shard_size, shard_samples)
        from fastconv.converters.converting import merge
        from fastconv.converters.outputs import choose_writer, parse_options

        with showing(quiet) as progress:
            report = merge(
                sources,
                output,
                format=format,
                options=parse_options(choose_writer(output, format), option or []),
                sharding=sharding,
                prefix=prefix,
                index_for=options.split_names(index_for),
                workers=workers,
                strict=strict,
                overwrite=overwrite,
                restart=restart,
                progress=progress,
                notice=out.note,
            )
        out.report(report, f"all in {printable(report.output)}.bad.jsonl")
        summarize(report, out)
