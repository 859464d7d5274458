"""The findings of a benchmark as tables of text, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastconv.loaders.measure.cases import STAGES, Case, Findings, Row, Spread, Stage
from fastconv.loaders.measure.numbers import figure, range_of

__all__ = ["Table", "tables"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        title: What it shows.
        columns: Titles, with units; the first column names the sources.
        rows: Cells; "" where nothing was measured.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """How one measure is shown.

    Attributes:
        title: With the unit.
        measure: Its name.
        scale: What values are multiplied by.
        spread: Whether the smallest and the largest are shown too.
        ratio: Whether it is compared with the baseline; "less": small values are the good ones.
    """

    title: str
    measure: str
    scale: float = 1.0
    spread: bool = True
    ratio: str = ""


COLUMNS: dict[Stage, tuple[Column, ...]] = {
    "open": (Column("ms", "seconds", 1e3, ratio="less"),),
    "read": (
        Column("µs a sample", "us_per_sample", ratio="less"),
        Column("MB/s", "mb_per_s", spread=False),
        Column("CPU ms a sample", "cpu_ms_per_image", spread=False),
    ),
    "decode": (
        Column("images/s", "images_per_s", ratio="more"),
        Column("CPU ms an image", "cpu_ms_per_image"),
    ),
    "load": (
        Column("images/s", "images_per_s", ratio="more"),
        Column("CPU ms an image", "cpu_ms_per_image"),
        Column("first batch s", "first_batch_s", spread=False),
        Column("waits for data %", "wait_share", 100, spread=False),
        Column("GPU waits %", "gpu_wait_share", 100, spread=False),
        Column("GPU busy %", "gpu_busy_share", 100, spread=False),
        Column("GPU memory MB", "gpu_memory", 1e-6, spread=False),
        Column("main MB", "pss_main", 1e-6, spread=False),
        Column("workers MB", "pss_workers", 1e-6, spread=False),
    ),
    "memory": (
        Column("main MB", "pss_main", 1e-6, spread=False),
        Column("workers MB", "pss_workers", 1e-6, spread=False),
        Column("of these pages of files MB", "files", 1e-6, spread=False),
        Column("the rest grew by MB", "growth", 1e-6),
        Column("pickled to each worker, bytes", "pickled_bytes", spread=False),
    ),
    "copy": (Column("MB/s", "mb_per_s"),),
}
"""What is shown of each stage. A column without any value is left out."""


def tables(findings: Findings) -> Iterator[Table]:
    """Yields a table for every stage, way to load and state of the page cache."""
    grouped: dict[str, list[Case]] = {}
    for case in findings.cases():
        grouped.setdefault(title_of(case, findings), []).append(case)
    for title, cases in grouped.items():
        rows = [row for case in cases for row in findings.rows if row.case == case and row.values]
        if rows:
            yield table_of(title, cases, rows, findings)


def title_of(case: Case, findings: Findings) -> str:
    """Returns the title of the table that a case is in."""
    words = [STAGES[case.stage], *filter(None, [case.way_words])]
    if case.stage == "read":
        words.append(f"{case.order} order")
    if case.stage in ("open", "read", "load"):
        words.append(f"{case.cache} page cache")
    if findings.settings.latency is not None and case.stage != "copy":
        words.append("SIMULATED file system")
    return ", ".join(words)


def table_of(title: str, cases: list[Case], rows: list[Row], findings: Findings) -> Table:
    """Returns one table."""
    named: list[tuple[str, Callable[[Row], str]]] = [("", lambda row: row.source)]
    if cases[0].stage in ("load", "memory"):
        named.append(("workers", lambda row: str(row.case.workers)))
    if cases[0].stage == "copy":
        named.append(("pinned", lambda row: "yes" if row.case.pinned else "no"))
    for column in COLUMNS[cases[0].stage]:
        if any(column.measure in row.values for row in rows):
            named += cells_of(column, findings)
    return Table(
        title,
        tuple(name for name, _ in named),
        [tuple(cell(row) for _, cell in named) for row in rows],
    )


def cells_of(column: Column, findings: Findings) -> Iterator[tuple[str, Callable[[Row], str]]]:
    """Yields the titles of a measure's columns, and what gives their cells."""
    wide = column.spread

    def value(row: Row) -> str:
        return text(row.spread(column.measure), column.scale, wide)

    def ratio(row: Row) -> str:
        if row.source == findings.baseline.name:
            return "1"
        less = column.ratio == "less"
        return text(findings.ratio(row, column.measure, less_is_more=less), 1.0, wide)

    yield column.title, value
    if column.ratio and len(findings.sources) > 1:
        yield f"x {findings.baseline.name}", ratio


def text(found: Spread | None, scale: float, wide: bool) -> str:
    """Returns the median, with the smallest and the largest where they are wanted and differ."""
    if found is None:
        return ""
    found = Spread(found.median * scale, found.low * scale, found.high * scale)
    middle, ends = figure(found.median), range_of(found)
    alone = not wide or figure(found.low) == figure(found.high)
    return middle if alone else f"{middle} ({ends})"
