"""`fastconv stats`: statistics of the images of a pack or folder."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import Out, aligned, counted, reporting
from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.reports import check_report, write_report
from fastconv.converters.cli.rich_tables import print_table
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import printable

if TYPE_CHECKING:
    from fastconv.converters.statistics import StatisticsReport

__all__ = ["command"]

MOST_CLASSES = 6
"""Classes named to people: half of them large, half of them small."""
MOST_GROUPS = 5
"""Groups of duplicates of each kind that are named to people."""
BLOCKS = " ▁▂▃▄▅▆▇█"


def command(
    pack: Annotated[
        str,
        argument(
            metavar="PACK_OR_FOLDER",
            help="A pack of any format, or a folder of images.",
        ),
    ],
    no_pixels: Annotated[
        bool,
        option(
            "--no-pixels",
            help="Decode nothing: only what the sample table or the images' headers tell.",
            panel=options.RUNNING,
        ),
    ] = False,
    sample: options.SampleOption = None,
    seed: options.SeedOption = 0,
    format: options.ReadFormatOption = None,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
    workers: options.WorkersOption = None,
    report: options.ReportOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Show statistics of all images: pixels, sizes, formats, balance of classes, duplicates.

    Mean and standard deviation of each channel are those of all pixels
    of all images (population; large images count for more), decoded as
    RGB, in [0, 1], as torchvision's Normalize wants them. Duplicates are
    the same byte for byte. Images that are bad are named, and count
    nowhere; the exit code is 3 then.

    $ fastconv stats out.lmdb --report page.html

    $ fastconv stats images/ --sample 10%
    """
    with reporting("stats", json=json, quiet=quiet) as out:
        if report is not None:
            check_report(report, "stats", [pack])
        from fastconv.converters.statistics import statistics

        with showing(quiet) as progress:
            found = statistics(
                pack,
                format=format,
                image_key=image_key,
                label_key=label_key,
                pixels=not no_pixels,
                sample=sample,
                seed=seed,
                workers=workers,
                progress=progress,
            )
        out.report(found)
        show(found, out)
        if report is not None:
            from fastconv.converters.statistics_page import render_page

            asked = shlex.join(["fastconv", *map(printable, sys.argv[1:])])
            date = time.strftime("%Y-%m-%d %H:%M")
            write_report(report, render_page(found, date=date, command=asked))
            out.answer["output"] = printable(report)
            out.summary(f"report: {printable(report)}")


def show(report: StatisticsReport, out: Out) -> None:
    """Prints statistics for people."""
    from fastconv.converters.statistics_page import (
        CHANNELS,
        MEASURES,
        normalize_line,
        number_text,
    )
    from fastconv.loaders.kinds import FORMAT_NAMES
    from fastconv.loaders.reader import READERS

    if out.json:
        return
    rows = [
        ("pack", printable(report.pack)),
        ("format", READERS.load(report.format).title),
        ("images", f"{report.samples:,}"),
    ]
    if report.seed is not None:
        rows.append(("read", f"{report.looked_at:,} of them, by chance (seed {report.seed})"))
    if report.bad:
        rows.append(("bad", f"{len(report.bad):,}"))
    kinds = ", ".join(f"{FORMAT_NAMES[kind]} {count:,}" for kind, count in report.formats.items())
    rows.append(("formats", kinds or "none"))
    rows.append(("bytes", f"{size_text(report.bytes)} ({report.bytes:,})"))
    rows += class_rows(report) + duplicate_rows(report)
    for line in aligned(rows):
        out.print(line)
    if report.sizes:
        cells = [
            (MEASURES[name], *map(number_text, (one.min, one.median, one.max)), skyline(one.counts))
            for name, one in report.sizes.items()
        ]
        columns = ("", "smallest", "median", "largest", "histogram")
        print_table("Sizes", columns, cells, out)
    if report.pixels is not None:
        values = zip(CHANNELS, report.pixels.mean, report.pixels.std, strict=True)
        channels = [(name, f"{mean:.6f}", f"{std:.6f}") for name, mean, std in values]
        title = f"{report.pixels.pixels:,} pixels of {counted(report.pixels.images, 'image')}"
        print_table(title, ("", "mean", "std"), channels, out)
        out.print(normalize_line(report.pixels))


def class_rows(report: StatisticsReport) -> list[tuple[str, str]]:
    """Returns what is said of classes."""
    from fastconv.converters.statistics_page import most_different

    names, counts = [*report.class_counts], [*report.class_counts.values()]
    rows = []
    if names:
        chosen = most_different(counts, MOST_CLASSES)
        words = [f"{printable(names[at])} ({counts[at]:,})" for at in chosen]
        if len(chosen) < len(names):
            words.insert(MOST_CLASSES - MOST_CLASSES // 2, "...")
        rows.append(("classes", f"{len(names):,}: {', '.join(words)}"))
    if report.imbalance is not None:
        rows.append(("imbalance", f"{report.imbalance:,.3g}, the largest by the smallest class"))
    if empty := report.empty_classes:
        more = f" and {len(empty) - MOST_CLASSES:,} more" if len(empty) > MOST_CLASSES else ""
        first = ", ".join(map(printable, empty[:MOST_CLASSES]))
        rows.append(("empty", f"{counted(len(empty), 'class')}: {first}{more}"))
    if report.unlabelled and report.labels != "none":
        rows.append(("no label", counted(report.unlabelled, "image")))
    return rows


def duplicate_rows(report: StatisticsReport) -> list[tuple[str, str]]:
    """Returns what is said of images that are the same."""
    from fastconv.converters.statistics_page import group_text

    found = report.duplicates
    if found is None:
        return []
    rows = [("duplicates", f"copies of other images: {found.copies:,} of {found.compared:,}")]
    across = found.across_classes
    others = [group for group in found.groups if not group.across]
    for name, groups in (("label error", across), ("same", others)):
        rows += [(name, group_text(group)) for group in groups[:MOST_GROUPS]]
        if len(groups) > MOST_GROUPS:
            more = len(groups) - MOST_GROUPS
            rows.append((name, f"... and {more:,} more groups, all with --json"))
    return rows


def skyline(counts: Sequence[int]) -> str:
    """Returns a histogram as one word, from the first bin that holds something to the last."""
    full = [number for number, count in enumerate(counts) if count]
    top = max(counts)
    shown = counts[full[0] : full[-1] + 1]
    # What is there at all is to be seen.
    return "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // top)] for count in shown)
