"""Finds the settings of a loader by measuring: how many workers, of which kind, how far ahead."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastconv.loaders.errors import FastconvError, printable
from fastconv.loaders.limits import usable_cores
from fastconv.loaders.measure.cases import Case, Row, Settings, Source, Spread, Way
from fastconv.loaders.measure.hosts import Host
from fastconv.loaders.measure.machine import memory_available
from fastconv.loaders.measure.sizes import LEAST_WORKER, MOST_MEMORY, batch_bytes, fitting
from fastconv.loaders.open import require_path

__all__ = ["Tuned", "candidates", "choose", "tune"]

FED = 0.02
"""A step that waits for data for a smaller share of its time than this is fed."""

SAME = 0.95
"""Speeds this near cannot be told apart in the time there is: the cheaper setting is taken."""

WORTH_ANOTHER_LOOK = 0.85
"""Settings slower than this share of the fastest are not measured a second time."""

LEAST_S = 0.3
Progress = Callable[[str, str], None]
"""Called with what was measured last, and what comes next."""


@dataclass(slots=True)
class Tuned:
    """What was found.

    Attributes:
        path: What was loaded, as it was given.
        source: What was found there.
        settings: How it was measured.
        rows: What was found of each setting that was measured.
        chosen: The best of them.
        fed: Whether the training step hardly waits for data with it.
        seconds: What it all took.
        why: How it was chosen and how sure it is, in words.
        left_out: What was not measured, and why.
    """

    path: str
    source: Source
    settings: Settings
    rows: list[Row]
    chosen: Case
    fed: bool
    seconds: float
    why: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The loader, as one writes it in Python."""
        return loader_line(self.path, self.settings, self.chosen)

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON takes it."""
        measured = []
        for row in self.rows:
            entry = {**arguments(row.case, self.settings), "values": row.values}
            if found := row.spread("images_per_s"):
                entry |= {"images_per_s": asdict(found)}
            measured.append(entry)
        return {
            "tune": {
                "source": asdict(self.source),
                "settings": asdict(self.settings),
                "chosen": arguments(self.chosen, self.settings),
                "line": self.line,
                "fed": self.fed,
                "seconds": self.seconds,
                "why": self.why,
                "measured": measured,
                "left_out": self.left_out,
            }
        }


def arguments(case: Case, settings: Settings) -> dict[str, Any]:
    """Returns the arguments of `make_loader` that a case stands for."""
    found: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "kind": "threads" if case.way == "fastloader" else "processes",
        "num_workers": case.workers,
    }
    if case.workers:
        found["prefetch_factor"] = case.prefetch
    if case.pinned is not None:
        found["pin_memory"] = case.pinned
    return found


def loader_line(path: str, settings: Settings, case: Case) -> str:
    """Returns the call of `make_loader` that a case stands for."""
    words = [f"{name}={value!r}" for name, value in arguments(case, settings).items()]
    if settings.device != "cpu" and case.way == "fastloader":
        words.append(f"device={settings.device!r}")
    crop = f"RandomResizedCrop({settings.size}, flip=0.5)"
    return (
        f"loader = make_loader(open_dataset({path!r}, decode={crop}), shuffle=True, "
        f"{', '.join(words)})"
    )


def ladder(cores: int) -> list[int]:
    """Returns numbers of workers worth trying: up to twice the cores, ever fewer of them."""
    steps = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, cores, cores + 1}
    return sorted(step for step in steps if step <= max(cores + 1, min(2 * cores, 64)))


def candidates(cores: int, cuda: bool) -> list[Case]:
    """Returns the settings to try first, those with about as many workers as cores before others.

    Args:
        cores: How many may be used.
        cuda: Whether batches go to a GPU: then they are pinned.
    """
    pinned = True if cuda else None
    ways: tuple[Way, ...] = ("fastloader", "dataloader")
    return [
        *(
            Case("load", way=way, workers=workers, pinned=pinned)
            for workers in sorted(ladder(cores), key=lambda count: (abs(count - cores), count))
            for way in ways
        ),
        Case("load", way="dataloader", pinned=pinned),
    ]


def neighbours(case: Case) -> Iterator[Case]:
    """Yields settings that differ from one in what matters less: how far ahead, and pinning."""
    if case.workers:
        yield replace(case, prefetch=4)
    if case.pinned:
        yield replace(case, pinned=False)


def cost(case: Case) -> tuple[int, int, int]:
    """Returns what a setting takes beside time, to compare: processes cost more than threads."""
    processes = case.workers if case.way == "dataloader" else 0
    return processes, case.workers, case.prefetch


def speed(row: Row) -> float:
    """Returns the median of a setting's images a second, 0 where it was not measured."""
    found = row.spread("images_per_s")
    return found.median if found is not None else 0.0


def share_of(row: Row, best: Row) -> float:
    """Returns how fast a setting is beside the fastest, 1 is the same.

    Settings that were measured several times took turns: what counts then is the median of the
    ratios within each turn, so that the machine's drift falls on both alike.
    """
    turns = zip(row.values["images_per_s"][1:], best.values["images_per_s"][1:], strict=False)
    ratios = [mine / its for mine, its in turns]
    return statistics.median(ratios) if len(ratios) > 1 else speed(row) / speed(best)


def is_fed(row: Row, settings: Settings) -> bool:
    """Returns whether the training step hardly waits for data."""
    waits = row.spread("wait_share")
    return settings.step.kind != "none" and waits is not None and waits.median < FED


def choose(rows: Sequence[Row], settings: Settings) -> Row:
    """Returns the best of the settings that were measured.

    It is the cheapest one with which the step is fed; where there is none, the fastest, or one
    that is cheaper and as fast as can be told.

    Raises:
        FastconvError: Nothing could be measured.
    """
    measured = [row for row in rows if row.values]
    if not measured:
        reasons = [f"{words(row.case)}: {row.left_out}" for row in rows if row.left_out]
        raise FastconvError(
            f"no setting could be measured: {reasons[0]}"
            if reasons
            else "there was no time to measure anything"
        )
    good = [row for row in measured if is_fed(row, settings)]
    if not good:
        fastest = max(measured, key=speed)
        good = [row for row in measured if row is fastest or share_of(row, fastest) >= SAME]
    return min(good, key=lambda row: (cost(row.case), -speed(row)))


def tune(
    path: str,
    settings: Settings,
    *,
    budget: float = 60.0,
    memory_limit: int | None = None,
    progress: Progress = lambda done, next: None,
) -> Tuned:
    """Returns the best settings of a loader for a folder of images or a pack, on this machine.

    All settings are measured once, and those that are near the fastest again, in turns, until
    the time is spent or they can be told apart. Then their neighbours are tried.

    Args:
        path: The folder or pack.
        settings: How to measure: batch size, size of the images, device and training step.
        budget: Seconds that it may take.
        memory_limit: Bytes that the loader may take; by default four fifths of what is free.

    Raises:
        FastconvError: The source cannot be read, or nothing could be measured in the time.
    """
    require_path(path)
    began = time.monotonic()
    host = Host("fastconv.loaders.measure.stages")
    limit = memory_limit if memory_limit is not None else int(memory_available() * MOST_MEMORY)
    try:
        progress("", f"opening {printable(path)}")
        source: Source = host.call("describe", os.path.abspath(path), printable(path))
        settings = fitting([source], settings)
        cores = usable_cores().usable
        rows = [Row(source.name, case) for case in candidates(cores, settings.device != "cpu")]
        if settings.step.kind != "none":  # the first that feeds it ends the search
            rows.sort(key=lambda row: cost(row.case))
        end = began + budget
        search = _Search(host, source, settings, limit, end, progress)
        search.measure(rows, share=0.45)
        if not any(is_fed(row, settings) for row in rows):
            search.again(rows, until=began + 0.75 * budget)
        best = choose(rows, settings)
        if not is_fed(best, settings):
            more = [Row(source.name, case) for case in neighbours(best.case)]
            search.measure(more, share=0.5)
            rows += more
            search.again(rows, until=end)
        best = choose(rows, settings)
    finally:
        host.close()
    found = Tuned(
        path, source, settings, rows, best.case, is_fed(best, settings), time.monotonic() - began
    )
    found.why += explained(rows, best, settings)
    found.left_out += [f"{words(row.case)}: {row.left_out}" for row in rows if row.left_out]
    return found


class _Search:
    """Measures settings until the time is spent."""

    def __init__(
        self, host: Host, source: Source, settings: Settings, limit: int, end: float,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.host = host
        self.source = source
        self.settings = settings
        self.limit = limit
        self.end = end
        self.progress = progress
        self.said = ""
        self.overhead = LEAST_S

    def measure(self, rows: Sequence[Row], share: float) -> None:
        """Measures settings once each, in a share of the time that is left.

        Where a setting feeds the step, those of its kind with more workers are left out.
        """
        left = self.end - time.monotonic()
        seconds = max(left * share / max(len(rows), 1) / 2, LEAST_S)  # half goes into the start
        fed: set[str] = set()
        for row in rows:
            if row.case.way in fed:
                row.left_out = "fewer workers are enough"
            elif why := self.too_large(row, rows):
                row.left_out = why
            elif self.said and self.no_time_for(seconds):
                row.left_out = "there was no time left"
            else:
                self.add(row, seconds)
                if is_fed(row, self.settings):
                    fed.add(row.case.way)

    def again(self, rows: Sequence[Row], until: float) -> None:
        """Measures the settings near the fastest again, in turns, until they can be told apart."""
        while True:
            fastest = max(map(speed, rows))
            near = [
                row for row in rows if row.values and speed(row) >= WORTH_ANOTHER_LOOK * fastest
            ]
            if len(near) < 2 or told_apart(near):
                return
            for row in sorted(near, key=lambda row: len(row.values["images_per_s"])):
                left = until - time.monotonic()
                if left < LEAST_S + self.overhead:
                    return
                self.add(row, max(LEAST_S, left / len(near) / 6))

    def no_time_for(self, seconds: float) -> bool:
        """Returns whether another setting cannot be measured in time; starting it takes a while."""
        return time.monotonic() + seconds + self.overhead > self.end

    def add(self, row: Row, seconds: float) -> None:
        """Measures a setting once more."""
        self.progress(self.said, words(row.case))
        began = time.monotonic()
        settings = replace(self.settings, seconds=seconds)
        turn = len(row.values.get("images_per_s", ()))
        try:
            values, _, _ = self.host.call("measure", self.source, row.case, settings, turn)
        except FastconvError as error:
            row.left_out = str(error)
            row.values = {}
            return
        for measure, value in values.items():
            row.values.setdefault(measure, []).append(value)
        self.overhead = max(time.monotonic() - began - seconds, 0.0)
        self.said = f"{words(row.case)}: {values['images_per_s']:,.0f} images/s"

    def too_large(self, row: Row, rows: Sequence[Row]) -> str:
        """Returns why a setting would take more memory than it may, "" where it does not."""
        processes = row.case.workers if row.case.way == "dataloader" else 0
        each = [
            max(other.values["own_workers"]) / other.case.workers
            for other in rows
            if other.values and other.case.way == "dataloader" and other.case.workers
        ]
        batches = (row.case.prefetch + 2) * max(processes, 1)
        need = max(each, default=LEAST_WORKER) * processes + batches * batch_bytes(self.settings)
        if need <= self.limit:
            return ""
        return f"would take about {need / 1e6:,.3g} MB of memory, more than {self.limit / 1e6:,.3g}"


def told_apart(rows: Sequence[Row]) -> bool:
    """Returns whether the fastest of some settings was faster than all others each time."""
    best = max(rows, key=speed)
    low = _spread(best).low
    counts = [len(row.values["images_per_s"]) for row in rows]
    return min(counts) >= 3 and all(_spread(row).high < low for row in rows if row is not best)


def _spread(row: Row) -> Spread:
    return row.spread("images_per_s") or Spread(0.0, 0.0, 0.0)


def words(case: Case) -> str:
    """Returns a setting in words."""
    kind = "FastLoader" if case.way == "fastloader" else "DataLoader"
    unit = "thread" if case.way == "fastloader" else "worker process"
    unit += "" if case.workers == 1 else "es" if unit.endswith("s") else "s"
    ahead = f", {case.prefetch} batches ahead" if case.workers else ""
    pinned = "" if case.pinned is None else ", pinned" if case.pinned else ", not pinned"
    return f"{kind}, {case.workers} {unit}{ahead}{pinned}"


def explained(rows: Sequence[Row], best: Row, settings: Settings) -> Iterator[str]:
    """Yields why a setting was chosen, how sure that is, and what each argument does."""
    found = _spread(best)
    count = len(best.values["images_per_s"])
    times = "once" if count == 1 else f"{count} times, {found.low:,.0f} to {found.high:,.0f}"
    yield f"{words(best.case)}: {found.median:,.0f} images/s (measured {times})."
    if is_fed(best, settings):
        yield (
            f"With it the step waits for data less than {FED:.0%} of its time, and it is the "
            "cheapest such setting: more workers would change nothing."
        )
    else:
        others = [row for row in rows if row.values and row is not best]
        next_best = max(others, key=speed, default=None)
        if next_best is not None:
            yield compared(best, next_best)
        else:
            yield "Nothing else could be measured in this time: give it more with --budget."
        if settings.step.kind != "none":
            waits = best.spread("wait_share")
            share = waits.median if waits is not None else 0.0
            yield (
                f"The step still waits for data {share:.0%} of its time: no setting feeds it on "
                "this machine. Smaller images, or more cores, would."
            )
    yield from meanings(best.case)


def compared(best: Row, other: Row) -> str:
    """Returns how sure it is that a setting is better than another one."""
    share = speed(other) / speed(best)
    mine, its = _spread(best), _spread(other)
    if share > 1:
        return (
            f"{words(other.case)} was {share - 1:.0%} faster, no more than can be told apart here; "
            "the cheaper one was taken."
        )
    name = words(other.case)
    if min(len(row.values["images_per_s"]) for row in (best, other)) == 1:
        return (
            f"Not sure: the next best, {name}, was slower by {1 - share:.0%}, but was measured "
            "once: give it more time with --budget."
        )
    if its.high < mine.low:
        return f"Sure: the next best, {name}, was slower each time, by {1 - share:.0%}."
    if share >= SAME:
        return f"Not sure: {name} is as fast, as far as can be told in this time."
    return (
        f"Fairly sure: the next best, {name}, was slower by {1 - share:.0%}, though not each time."
    )


def meanings(case: Case) -> Iterator[str]:
    """Yields what each argument does."""
    if case.way == "fastloader":
        yield (
            'kind="threads": threads of this process decode right into the batch; nothing is '
            "copied between processes, and they start at once."
        )
    else:
        yield (
            'kind="processes": a torch DataLoader, whose workers are processes; choose it too '
            "where a transform in Python does much of the work."
        )
    yield f"num_workers={case.workers}: how many images are decoded at the same time."
    if case.workers:
        each = "" if case.way == "fastloader" else ", by each worker"
        yield (
            f"prefetch_factor={case.prefetch}: batches made ahead{each}; more of them even out "
            "batches that take longer, for their memory."
        )
    if case.pinned is not None:
        yield (
            f"pin_memory={case.pinned}: whether batches lie in memory from which a GPU copies "
            "while it computes."
        )
