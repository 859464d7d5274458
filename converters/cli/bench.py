"""`fastconv bench`: what packing gains on this machine, and why."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fastconv.converters.cli import options
from fastconv.converters.cli.durations import parse_duration
from fastconv.converters.cli.measuring import (
    default_workers,
    parse_latency,
    parse_step,
    parse_workers,
    showing,
)
from fastconv.converters.cli.output import Out, reporting
from fastconv.converters.cli.rich_tables import print_table
from fastconv.loaders.errors import FastconvError, UsageError, printable

if TYPE_CHECKING:
    from fastconv.loaders.measure.cases import Cache, Findings

__all__ = ["command"]

HOW, WHAT = "How it is measured", "What is measured"


def command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCES...",
            help="Folders of images and packs; the first folder is what packs are compared with.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N,N...",
            help="Numbers of workers to load with.",
            rich_help_panel=WHAT,
            show_default="0 and one a core, at most 8",
        ),
    ] = None,
    batch_size: options.BatchSizeOption = 64,
    size: options.PictureSizeOption = 224,
    device: options.DeviceOption = "auto",
    step: options.StepOption = "none",
    cache: Annotated[
        Literal["warm", "cold", "both"],
        typer.Option(help="State of the page cache.", rich_help_panel=WHAT),
    ] = "both",
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="open=TIME,read=TIME",
            help="Simulate a slow file system: wait for each file opened and each request to read.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    mock: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            parser=parse_duration,
            help="No data: a Dataset that sleeps this long a sample, as 10ms.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="How often everything is measured.", rich_help_panel=HOW
        ),
    ] = 3,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0.01,
            help="How long each measurement takes, without its warm-up.",
            rich_help_panel=HOW,
        ),
    ] = 1.0,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML page with plots there.",
            rich_help_panel=options.OUTPUT,
            show_default=False,
        ),
    ] = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Measure what packing gains over the raw folder, stage by stage, and say what bounds the run.

    $ fastconv bench images/ out.lmdb --report report.html
    $ fastconv bench --mock 10ms
    """
    with reporting("bench", json=json, quiet=quiet) as out:
        if mock is not None:
            if sources:
                raise UsageError("--mock measures without data: leave the sources out")
            show_mock(mock, workers, out)
            return
        from fastconv.loaders.measure.bench import bench
        from fastconv.loaders.measure.cases import Settings
        from fastconv.loaders.measure.gpu import chosen_device

        if report is not None:
            check_writable(report)
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
        show(findings, out)
        if report is not None:
            from fastconv.loaders.measure.page import render_page

            with open(report, "w", encoding="utf-8") as file:
                file.write(render_page(findings, time.strftime("%Y-%m-%d %H:%M")))
            out.answer["output"] = printable(report)
            out.summary(f"report: {printable(report)}")


def check_writable(path: str) -> None:
    """Refuses a report that could not be written, before everything is measured.

    Raises:
        FastconvError: Its folder is not there, or cannot be written to.
    """
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FastconvError(f"{printable(folder)}: no such folder: make it first")
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise FastconvError(f"{printable(path)}: the report cannot be written there")


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
