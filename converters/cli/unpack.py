"""`fastconv unpack`: the files of a pack come back."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import counted, reporting
from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import printable

__all__ = ["command"]


def command(
    pack: options.PackArgument,
    folder: Annotated[
        str,
        argument(metavar="DIR", help="The folder to make, or an empty one."),
    ],
    overwrite: Annotated[
        bool,
        option(
            "--overwrite",
            help="DIR may have something in it: files of the same path are replaced, others stay.",
            panel=options.RUNNING,
        ),
    ] = False,
    format: options.ReadFormatOption = None,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Write every packed file under its path into a folder, byte for byte.

    Labels that are not those of the folders, and columns of a file of labels,
    are written to DIR/metadata.jsonl, from which pack takes them again
    (--labels). No file is written outside DIR.

    $ fastconv unpack out.lmdb restored/
    """
    with reporting("unpack", json=json, quiet=quiet) as out:
        out.answer |= {"output": folder}
        from fastconv.converters.unpacking import unpack

        with showing(quiet) as progress:
            report = unpack(
                pack,
                folder,
                format=format,
                image_key=image_key,
                label_key=label_key,
                overwrite=overwrite,
                progress=progress,
                notice=out.note,
            )
        out.report(report)
        rate = report.files / max(report.seconds, 1e-6)
        out.summary(
            f"{printable(report.output)}: {counted(report.files, 'file')}, "
            f"{size_text(report.bytes)}, {report.seconds:.1f} s, {rate:,.0f} files/s"
        )
        if report.bad:
            out.summary(f"bad: {len(report.bad):,}, not written")
