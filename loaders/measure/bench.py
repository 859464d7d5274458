"""Runs a benchmark: every case of every source, round by round."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from fastconv.loaders.errors import FastconvError, UsageError, printable
from fastconv.loaders.limits import usable_cores
from fastconv.loaders.measure.cases import Case, Findings, Row, Settings, Source, plan_cases
from fastconv.loaders.measure.hosts import Host
from fastconv.loaders.measure.machine import environment, memory_available
from fastconv.loaders.measure.sizes import LEAST_WORKER, MOST_MEMORY, fitting
from fastconv.loaders.measure.verdict import verdict
from fastconv.loaders.open import require_path

__all__ = ["Progress", "bench"]

STAGES_MODULE = "fastconv.loaders.measure.stages"

Progress = Callable[[int, int, str], None]
"""Called with how many measurements are done, how many there are, and what comes next."""


def bench(
    paths: Sequence[str],
    settings: Settings,
    *,
    command: str = "",
    progress: Progress = lambda done, total, what: None,
) -> Findings:
    """Returns how folders of images and packs compare as sources of training data.

    All sources take their turn in every case of every round, beginning with another one in each
    round: when the machine is slow for a while, it is so for all of them, and ratios within a round
    stay fair. Each source is measured in a process of its own.

    Args:
        paths: The folders and packs.
        settings: How to measure.
        command: What was run, for the record.
        progress: Is told how far it is.

    Raises:
        UsageError: There is nothing to measure.
        FastconvError: A source cannot be read.
    """
    if not paths:
        raise UsageError("nothing to measure: name a folder of images or a pack")
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise UsageError("a source is named twice: name each one once")
    asked = settings
    for path in paths:
        require_path(path)
    cases = plan_cases(settings)
    total = settings.rounds * len(cases) * len(paths)
    hosts = [Host(STAGES_MODULE) for _ in paths]
    try:
        sources = []
        for host, path in zip(hosts, paths, strict=True):
            progress(0, total, f"opening {printable(path)}")
            sources.append(host.call("describe", os.path.abspath(path), printable(path)))
        settings = fitting(sources, settings)
        findings = Findings(command, environment(paths[0]), settings, sources, memory_available())
        findings.rows = [Row(source.name, case) for case in cases for source in sources]
        findings.warnings += warnings(sources, settings, asked)
        rows = {(row.source, row.case): row for row in findings.rows}
        turns = list(zip(sources, hosts, strict=True))
        done = 0
        for this in range(settings.rounds):
            for case in cases:
                for source, host in turns[this % len(turns) :] + turns[: this % len(turns)]:
                    progress(done, total, f"{source.name}: {case}")
                    row = rows[source.name, case]
                    if not row.left_out:
                        row.left_out = too_large(findings, row)
                    if not row.left_out:
                        add(row, host, source, settings, this)
                    done += 1
        progress(done, total, "")
    finally:
        for host in hosts:
            host.close()
    findings.warnings += skipped(findings)
    findings.notes += notes(findings)
    findings.left_out += left_out(findings)
    findings.verdict += verdict(findings)
    return findings


def add(row: Row, host: Host, source: Source, settings: Settings, this: int) -> None:
    """Measures a case once more, and adds what was found; from what fails nothing is kept."""
    try:
        values, row.series, row.left_out = host.call("measure", source, row.case, settings, this)
    except FastconvError as error:
        row.left_out = str(error)
        row.failed = True
    if row.left_out:
        row.values, row.series = {}, {}
        return
    for measure, value in values.items():
        row.values.setdefault(measure, []).append(value)


def too_large(findings: Findings, row: Row) -> str:
    """Returns why a case's workers would not fit into memory, "" where they do as far as is known.

    What one takes is known from the cases with fewer workers.
    """
    if row.case.threads or not row.case.workers:
        return ""
    takes = [
        max(found.values["own_workers"]) / found.case.workers
        for found in findings.rows
        if found.source == row.source and found.case.workers and not found.case.threads
        if "own_workers" in found.values
    ]
    need, free = max(takes, default=LEAST_WORKER) * row.case.workers, memory_available()
    if need <= free * MOST_MEMORY:
        return ""
    words = (
        f"{row.case.workers} workers would take about {need / 1e9:.1f} GB, and "
        f"{free / 1e9:.1f} GB are free"
    )
    if words not in findings.warnings:
        findings.warnings.append(words)
    return words


def warnings(sources: Sequence[Source], settings: Settings, asked: Settings) -> Iterator[str]:
    """Yields what is probably not meant so."""
    first = sources[0]
    for source in sources:
        yield from (f"{source.name}: {line}" for line in source.warnings)
    if settings.batch_size != asked.batch_size:
        yield (
            f"a batch of {asked.batch_size:,} samples is more than there are: batches of "
            f"{settings.batch_size:,} are measured"
        )
    for source in sources[1:]:
        if source.samples != first.samples:
            yield (
                f"{source.name} has {source.samples:,} samples, {first.name} {first.samples:,}: "
                "they are compared nevertheless"
            )
    cores = usable_cores().usable
    if max(settings.workers) > cores:
        yield f"{max(settings.workers)} workers are more than the {cores} cores that may be used"


def skipped(findings: Findings) -> Iterator[str]:
    """Yields which sources have images that cannot be decoded."""
    for source in findings.sources:
        row = findings.row(source.name, Case("decode", way="pillow"))
        count = max(row.values.get("skipped", [0.0])) if row is not None else 0
        if count:
            yield f"{source.name}: images that cannot be decoded were left out: {count:,.0f} times"


def notes(findings: Findings) -> Iterator[str]:
    """Yields what one must know to read the findings."""
    settings = findings.settings
    yield (
        f"medians of {settings.rounds} rounds, with the smallest and the largest; what is compared "
        f"is compared with {findings.baseline.name} within the same round"
    )
    yield (
        "warm: what is read was in the page cache already; "
        "opening and the first batch are counted without imports"
    )
    cold = [row for row in findings.rows if row.case.cache == "cold" and row.values]
    if cold:
        stayed = max(max(row.values["stayed_share"]) for row in cold)
        inodes = all(min(row.values["inodes_dropped"]) for row in cold)
        yield (
            "cold: the files were taken out of the page cache before (posix_fadvise; by mincore "
            f"{stayed:.1%} of them stayed at most), and the caches of folders and inodes were "
            f"{'dropped too' if inodes else 'not dropped: only root may do so'}"
        )
    if settings.latency is not None:
        yield (
            "SIMULATED file system: each file opened waits "
            f"{settings.latency.open * 1e3:g} ms, each request to read "
            f"{settings.latency.read * 1e3:g} ms, those of one batch of a pack together; bandwidth "
            "is that of the real one"
        )
    short = [
        row for row in findings.rows if min(row.values.get("epoch_share", [1.0]), default=1.0) < 1
    ]
    for row in short:
        share = min(row.values["epoch_share"])
        yield f"{row.source}: memory was looked at for {share:.0%} of an epoch: the rest takes long"
    yield (
        f"Pillow decodes the whole picture, then crops and resizes it to {settings.size} x "
        f"{settings.size} (RandomResizedCrop and a flip), as transforms do; the fused decoder "
        "decodes what the crop needs"
    )
    step = settings.step
    if step.kind == "sleep":
        yield f"the training step sleeps {step.seconds * 1e3:g} ms and keeps no core busy"
    elif step.kind == "conv":
        yield f"the training step trains a small convolutional network on {settings.device}"


def left_out(findings: Findings) -> Iterator[str]:
    """Yields what could not be measured, and why."""
    for row in findings.rows:
        if row.left_out:
            yield f"{row.source}: {row.case}: {row.left_out}"
    if not findings.settings.device.startswith("cuda"):
        yield (
            "copies to the device, decoding on a GPU, and how busy it is: there is no CUDA device "
            "here"
        )
