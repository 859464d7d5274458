"""`fastconv repair`: mends a pack with what the folder of images still has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import Out, counted, reporting
from fastconv.converters.cli.parameters import option
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.sizes import size_text
from fastconv.converters.cli.source import class_names
from fastconv.loaders.errors import printable

if TYPE_CHECKING:
    from fastconv.converters.findings import RepairReport
    from fastconv.loaders.sample import BadFile

__all__ = ["command"]

MOST_MENDED = 10
"""What was mended is named up to so many; --json has all."""


def command(
    pack: options.PackArgument,
    source: Annotated[
        str,
        option(
            "--from",
            metavar="SRC",
            help="The folder of images that was packed, or what is left of it.",
            panel=options.RUNNING,
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None,
        option(
            "--out",
            "-o",
            metavar="OUT",
            help="Make the mended pack there, and leave PACK as it is.",
            panel=options.RUNNING,
            show_default="in place of PACK",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        option(
            "--classes",
            metavar="PACK_OR_FILE",
            help="The names that PACK was packed with, where its table is lost.",
            panel=options.RUNNING,
            show_default=False,
        ),
    ] = None,
    format: options.ReadFormatOption = None,
    workers: options.WorkersOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Mend a damaged pack with what the folder of images still has.

    Finds the damage as verify does, and makes a copy with the very bytes
    that were packed: samples from SRC where they have the checksums that
    the pack knows, all else as it is written. The copy is verified; only
    then it takes the place of PACK, in one step. It needs as much space
    as PACK.

    The exit code is 0 where all is mended, or there was nothing to mend;
    3 where SRC lacks some of what is damaged: each is named, and stays as
    it is in the mended pack; 1 where nothing can be mended, and PACK is
    left alone.

    $ fastconv repair out.lmdb --from images/
    """
    with reporting("repair", json=json, quiet=quiet) as said:
        from fastconv.converters.repairing import repair

        with showing(quiet) as progress:
            report = repair(
                pack,
                source,
                out=out,
                classes=class_names(classes) if classes else None,
                format=format,
                workers=workers,
                progress=progress,
                notice=said.note,
            )
        said.report(report)
        show(report, said)


def show(report: RepairReport, out: Out) -> None:
    """Prints what was mended."""
    if report.output is None:
        out.summary(
            f"{printable(report.pack)}: nothing to mend: {counted(report.samples, 'sample')}, "
            f"{size_text(report.bytes)}, {report.seconds:.1f} s"
        )
        return
    name_mended(report.mended, out)
    fields = f"{report.from_source:,} from {printable(report.source)}"
    lost = f", {len(report.bad):,} could not be" if report.bad else ""
    out.summary(
        f"{printable(report.output)}: {len(report.mended):,} mended ({fields}){lost}: "
        f"{counted(report.samples, 'sample')}, {size_text(report.bytes)}, {report.seconds:.1f} s"
    )


def name_mended(mended: Sequence[BadFile], out: Out) -> None:
    """Prints the first of what was mended."""
    for file in mended[:MOST_MENDED]:
        out.summary(f"mended: {printable(file.path)}: {file.reason}")
    if len(mended) > MOST_MENDED:
        out.summary(f"mended: ... and {len(mended) - MOST_MENDED:,} more, all with --json")
