"""`fastconv scan`: what packing a folder would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastconv.converters.cli import options
from fastconv.converters.cli.output import Out, aligned, counted, reporting
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.sizes import size_text
from fastconv.converters.cli.source import left_out, source_options
from fastconv.loaders.errors import FastconvError, printable

if TYPE_CHECKING:
    from fastconv.converters.scanning import ScanReport

__all__ = ["command"]

MOST_CLASSES = 20
"""Classes shown to people; --json has them all."""


def command(
    source: options.SourceArgument,
    no_labels: options.NoLabelsOption = False,
    labels: options.LabelsFileOption = None,
    classes: options.ClassesOption = None,
    class_order: options.ClassOrderOption = "sorted",
    sidecar: options.SidecarOption = None,
    any_extension: options.AnyExtensionOption = False,
    check: options.CheckOption = "fast",
    max_pixels: options.MaxPixelsOption = None,
    workers: options.WorkersOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Show what packing a folder would do, without writing anything.

    Samples, classes, image formats, what is left out, what is bad, and
    how large the pack would be in each format with its sample table, to
    the byte where nothing is bad; index files for other tools (.idx, .lst)
    come on top. The exit code is that of pack.

    $ fastconv scan images/
    """
    with reporting("scan", json=json, quiet=quiet) as out:
        sources = source_options(
            no_labels=no_labels,
            labels=labels,
            classes=classes,
            class_order=class_order,
            sidecar=sidecar,
            any_extension=any_extension,
        )
        from fastconv.converters.check import MAX_PIXELS
        from fastconv.converters.run import nothing_found
        from fastconv.converters.scanning import scan

        with showing(quiet) as progress:
            report = scan(
                source,
                workers=workers,
                check=check,
                max_pixels=max_pixels or MAX_PIXELS,
                progress=progress,
                **sources,
            )
        out.report(report)
        if not report.samples:
            raise FastconvError(nothing_found(report.source, report.bad))
        show(report, out)


def show(report: ScanReport, out: Out) -> None:
    """Prints what was found, for people."""
    from fastconv.converters.writer import WRITERS
    from fastconv.loaders.kinds import FORMAT_NAMES

    kinds = [f"{count:,} {FORMAT_NAMES[kind]}" for kind, count in report.formats.items()]
    images = counted(report.samples, "image")
    out.print(f"{printable(report.source)}: {images}, {size_text(report.bytes)}")
    out.print(f"formats: {', '.join(kinds)}")
    if what := left_out(report.ignored):
        out.print(f"left out: {what}")
    if report.bad:
        out.print(f"bad: {len(report.bad):,}")
    if report.classes:
        out.print(f"classes: {len(report.classes):,}")
        counts = list(report.class_counts.items())
        rows = [(f"  {printable(name)}", f"{count:,}") for name, count in counts[:MOST_CLASSES]]
        for line in aligned(rows):
            out.print(line)
        if more := len(counts) - len(rows):
            out.print(f"  ... and {more:,} more, all with --json")
    out.print("size of the pack:")
    sizes = []
    for name, size in report.sizes.items():
        writer = WRITERS.load(name)
        title = f"{writer.title} (one {writer.suffixes[0]})" if writer.sharded else writer.title
        sizes.append((f"  {title}", size_text(size), f"{size:,} bytes"))
    for line in aligned(sizes):
        out.print(line)
