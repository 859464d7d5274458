"""`fastconv bench`: what packing gains on this machine, and why."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from fastconv.converters.cli import options
from fastconv.converters.cli.durations import parse_duration
from fastconv.converters.cli.measuring import (
    parse_latency,
    parse_step,
    parse_workers,
    showing,
)
from fastconv.converters.cli.output import Out, reporting
from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.reports import check_report, write_report
from fastconv.converters.cli.rich_tables import print_table
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.sample import BadFile

if TYPE_CHECKING:
    from fastconv.loaders.measure.cases import Cache, Findings

__all__ = ["command"]

HOW, WHAT = "How it is measured", "What is measured"


def command(
    sources: Annotated[
        list[str] | None,
        argument(
            metavar="SOURCES...",
            help="Folders of images and packs; the first folder is what packs are compared with.",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        option(
            metavar="N,N...",
            help="Numbers of workers to load with.",
            panel=WHAT,
            show_default="0 and one a core, at most 8",
        ),
    ] = None,
    batch_size: options.BatchSizeOption = 64,
    size: options.PictureSizeOption = 224,
    device: options.DeviceOption = "auto",
    step: options.StepOption = "none",
    cache: Annotated[
        Literal["warm", "cold", "both"],
        option(help="State of the page cache.", panel=WHAT),
    ] = "both",
    latency: Annotated[
        str | None,
        option(
            metavar="open=TIME,read=TIME",
            help="Simulate a slow file system: wait for each file opened and each request to read.",
            panel=WHAT,
            show_default=False,
        ),
    ] = None,
    mock: Annotated[
        float | None,
        option(
            metavar="TIME",
            parser=parse_duration,
            help="No data: a Dataset that sleeps this long a sample, as 10ms.",
            panel=WHAT,
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int,
        option(metavar="N", min=1, help="How often everything is measured.", panel=HOW),
    ] = 3,
    seconds: Annotated[
        float,
        option(
            metavar="S",
            min=0.01,
            max=86_400.0,
            help="How long each measurement takes, without its warm-up.",
            panel=HOW,
        ),
    ] = 1.0,
    report: options.ReportOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Measure what packing gains over the raw folder, stage by stage, and say what bounds the run.

    $ fastconv bench images/ out.lmdb --report report.html
    $ fastconv bench --mock 10ms
    """
    with reporting("bench", json=json, quiet=quiet) as out:
        if mock is not None:
            if sources or report is not None:
                raise UsageError("--mock measures without data: leave sources and --report out")
            show_mock(mock, workers, out)
            return
        if report is not None:
            check_report(report, "bench", sources or [])
        from fastconv.loaders.limits import default_workers
        from fastconv.loaders.measure.bench import bench
        from fastconv.loaders.measure.cases import Settings
        from fastconv.loaders.measure.gpu import chosen_device

        caches: tuple[Cache, ...] = ("warm", "cold") if cache == "both" else (cache,)
        settings = Settings(
            batch_size=batch_size,
            workers=parse_workers(workers) if workers is not None else (0, default_workers()),
            size=size,
            device=chosen_device(device),
            step=parse_step(step),
            rounds=rounds,
            seconds=seconds,
            caches=caches,
            latency=parse_latency(latency) if latency is not None else None,
        )
        with showing(quiet) as progress:
            findings = bench(
                sources or [],
                settings,
                command=shlex.join(["fastconv", *map(printable, sys.argv[1:])]),
                progress=progress,
            )
        out.answer |= findings.to_json()
        for line in findings.warnings:
            out.warn(line)
        failed = {row.source: row for row in findings.rows if row.failed}
        out.bad([BadFile(name, "unreadable", row.left_out) for name, row in failed.items()])
        show(findings, out)
        if report is not None:
            from fastconv.loaders.measure.page import render_page

            write_report(report, render_page(findings, time.strftime("%Y-%m-%d %H:%M")))
            out.answer["output"] = printable(report)
            out.summary(f"report: {printable(report)}")


def show(findings: Findings, out: Out) -> None:
    """Prints the tables, what they mean and what one must know, for people."""
    from fastconv.loaders.measure.tables import tables

    if out.json:
        return
    for table in tables(findings):
        print_table(table.title, table.columns, table.rows, out)
    for line in findings.notes:
        out.print(f"- {line}")
    for line in findings.left_out:
        out.print(f"- left out: {line}")
    out.print()
    for line in findings.verdict:
        out.print(line)


def show_mock(seconds: float, workers: str | None, out: Out) -> None:
    """Runs the demonstration without data, and prints what it gives and means."""
    from fastconv.loaders.measure.mock import MOCK_WORKERS, explained, run_mock

    found = run_mock(seconds, MOCK_WORKERS if workers is None else parse_workers(workers))
    out.answer["mock"] = [asdict(one) for one in found]
    out.answer["explanation"] = explained(found, seconds)
    first = found[0]
    rows = [
        (
            str(one.workers), f"{one.seconds:.3f}", f"{one.startup:.3f}", f"{one.floor:.3f}",
            f"{first.seconds / one.seconds:.2f}",
        )
        for one in found
    ]  # fmt: skip
    columns = ("workers", "seconds", "of it start-up", "floor", f"x {first.workers} workers")
    title = f"A Dataset that sleeps {seconds * 1e3:g} ms a sample: 11 batches of 32"
    if not out.json:
        print_table(title, columns, rows, out)
    for line in out.answer["explanation"]:
        out.print(line)
