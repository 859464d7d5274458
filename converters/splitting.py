"""Packs the samples of a source into several packs at once: those for training, for validation ...

Each is made as any other, in a folder of OUT.partial, where it is published when it is whole; the
folder becomes OUT in one step when all are. A run that was stopped goes on with the pack that was
under way: those before it are made.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastconv.converters.journal import SPLITS, Plan, has_records
from fastconv.converters.outputs import Output, split_output
from fastconv.converters.packing import packed, translated_errors
from fastconv.converters.report import PackFailedError, PackReport, Progress, ProgressCallback
from fastconv.converters.run import Notice, Origin, kept_note, nothing_found, take_up
from fastconv.converters.selecting import class_counts, taken
from fastconv.converters.selection import Split
from fastconv.converters.summary import size_on_disk
from fastconv.converters.system import held_signals
from fastconv.converters.target import Target, exists_already
from fastconv.loaders.classes import empty_classes_warning
from fastconv.loaders.errors import UsageError
from fastconv.loaders.listing import Ints, Listing
from fastconv.loaders.meta import VERSION
from fastconv.loaders.open import PACKS_FILE, open_pack
from fastconv.loaders.sample import BadFile

__all__ = ["packed_splits"]


def packed_splits(
    root: str,
    listing: Listing,
    output: Output,
    plan: Plan,
    split: Split,
    origin: Origin | None,
    *,
    strict: bool,
    overwrite: bool,
    restart: bool,
    progress: ProgressCallback | None,
    notice: Notice,
    began: float,
    **how: Any,
) -> PackReport:
    """Packs what was listed into several packs, and returns what was done.

    Args:
        root, listing, output, plan: As for `fastconv.converters.packing.packed`.
        split: Which sample goes into which pack.
        origin: Says where the bytes of some rows come from; by default from the files of a folder.
        strict, overwrite, restart, progress, notice, began, how: As for `packed`.

    Raises:
        UsageError, PackFailedError, FastconvError: As from `packed`; a pack would have no samples.
    """
    rows = split.rows(listing)
    parts = {name: part_of(listing, mine) for name, mine in rows.items()}
    warnings, notices = told(listing, parts)
    reports: dict[str, PackReport] = {}

    def report() -> PackReport:
        ones = reports.values()
        return PackReport(
            output=output.out,
            format=output.writer.name,
            samples=sum(one.samples for one in ones),
            classes=listing.classes,
            fields=listing.fields,
            bytes=sum(one.bytes for one in ones),
            size=sum(one.size for one in ones),
            bad=[*listing.bad, *(bad for one in ones for bad in one.bad)],
            ignored=listing.ignored,
            warnings=[*listing.warnings, *warnings],
            notices=[
                *listing.notices,
                *notices,
                *(f"{name}: {line}" for name, one in reports.items() for line in one.notices),
            ],
            splits=reports,
            seconds=time.monotonic() - began,
        )

    if not len(listing):
        raise PackFailedError(nothing_found(root, listing.bad), report())
    if strict and listing.bad:
        raise PackFailedError(
            f"{len(listing.bad)} bad file{'' if len(listing.bad) == 1 else 's'}, and --strict "
            "allows none: nothing was published: mend or remove what is bad",
            report(),
        )
    for name, part in parts.items():
        if not len(part):
            raise UsageError(
                f"the split {name} gets none of {len(listing):,} images: give it a larger fraction"
            )
    with translated_errors(output.out):
        target = Target(output.out, notice)
        if target.published is not None:
            about = target.published.about
            target.discard()
            if about.get("plan") == plan.digest and not restart:
                reports |= {name: made_before(output, output.out, name) for name in parts}
                return report()
            if not overwrite:
                raise exists_already(output.out)
            target = Target(output.out, notice)
        try:
            folder = target.path(SPLITS)
            let_workers_end(folder, notice)
            take_up(target, plan, restart)
            os.makedirs(folder, exist_ok=True)
            shown = Shown(progress, listing)
            for name, part in parts.items():
                one = split_output(output, folder, name)
                if os.path.lexists(one.out):
                    # A run may have been killed before it had moved all that belongs to it.
                    Target(one.out, notice).discard()
                    made = made_before(output, folder, name)
                else:
                    source = None if origin is None else origin(rows[name])
                    made = packed(
                        root, part, one, replace(plan, listing=part), origin=source, strict=strict,
                        overwrite=False, restart=False, progress=progress and shown,
                        notice=notice, began=time.monotonic(), **how,
                    )  # fmt: skip
                shown.add(part)
                reports[name] = replace(made, output=split_output(output, output.out, name).out)
            publish(target, output, plan, split, report(), overwrite, notice)
        except BaseException as error:
            with held_signals():
                give_up(target, error)
            if isinstance(error, PackFailedError) and error.report is not None:
                reports[name] = error.report
                error.report = report()
            raise
    return report()


def give_up(target: Target, error: BaseException) -> None:
    """Keeps what is finished, for the same command to go on with; where nothing is, OUT.partial
    goes."""
    if not has_records(target.partial):
        target.discard()
        return
    target.keep()
    if not isinstance(error, PackFailedError | UsageError) and not hasattr(error, "__notes__"):
        error.add_note(kept_note(target))


def part_of(listing: Listing, rows: Ints) -> Listing:
    """Returns what one of the packs is made of: what is to be said of all is not its own."""
    return replace(taken(listing, rows), bad=[], warnings=[], notices=[])


def told(listing: Listing, parts: Mapping[str, Listing]) -> tuple[list[str], list[str]]:
    """Returns warnings and notices about how the samples are split."""
    counts = class_counts(listing, listing.classes)
    there = [number for number, count in enumerate(counts) if count]
    warnings = []
    for name, part in parts.items():
        mine = class_counts(part, listing.classes)
        lines = empty_classes_warning(
            [listing.classes[number] for number in there], [mine[number] for number in there]
        )
        warnings += [f"{name}: {line}" for line in lines]
    left = len(listing) - sum(map(len, parts.values()))
    notices = [f"left out {left:,} of {len(listing):,} images that are in no split"] if left else []
    return warnings, notices


def let_workers_end(folder: str, notice: Notice) -> None:
    """Waits until no worker of a dead run writes into a folder of packs any more.

    Raises:
        FastconvError: They do not end.
    """
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.endswith(".partial"):
            Target(os.path.join(folder, name.removesuffix(".partial")), notice).keep()


def made_before(output: Output, folder: str, name: str) -> PackReport:
    """Returns what was done for a pack that an earlier run has made.

    Args:
        output: What OUT is to be.
        folder: Where the pack lies.
        name: Of the split.
    """
    path = split_output(output, folder, name).out
    reader = open_pack(path, output.writer.name)
    bad = []
    if os.path.exists(f"{path}.bad.jsonl"):
        with open(f"{path}.bad.jsonl", encoding="ascii") as lines:
            bad = [BadFile(**json.loads(line)) for line in lines]
    return PackReport(
        output=path,
        format=output.writer.name,
        id=reader.meta.id,
        samples=len(reader),
        classes=reader.meta.classes,
        fields=reader.meta.fields,
        bytes=reader.table.bytes,
        size=size_on_disk(reader),
        bad=bad,
    )


def publish(
    target: Target,
    output: Output,
    plan: Plan,
    split: Split,
    report: PackReport,
    overwrite: bool,
    notice: Notice,
) -> None:
    """Publishes the folder of all packs, and the list of all that is bad."""
    packs = [os.path.basename(one.output) for one in report.splits.values()]
    with open(target.path(SPLITS, PACKS_FILE), "w", encoding="ascii") as text:
        json.dump({"fastconv": VERSION, "packs": packs, "split": str(split)}, text)
    bad = target.path("bad.jsonl")
    if report.bad:
        with open(bad, "w", encoding="ascii") as text:
            text.writelines(json.dumps(one.to_json()) + "\n" for one in report.bad)
    files = {".bad.jsonl": bad if report.bad else None, "": target.path(SPLITS)}
    target.publish(files, overwrite, {"plan": plan.digest})
    for line in output.notes:
        notice(line)


class Shown:
    """Shows how far a run of several packs is: what each shows is added to those before it.

    Args:
        progress: Is called with it.
        listing: The samples of all.
    """

    def __init__(self, progress: ProgressCallback | None, listing: Listing) -> None:
        self.progress = progress
        self.samples_total, self.bytes_total = len(listing), listing.bytes
        self.samples = self.bytes = 0

    def add(self, part: Listing) -> None:
        """Notes that a pack is made."""
        self.samples += len(part)
        self.bytes += part.bytes

    def __call__(self, one: Progress) -> None:
        if self.progress is not None:
            samples, size = self.samples + one.samples, self.bytes + one.bytes
            self.progress(Progress(samples, self.samples_total, size, self.bytes_total))
