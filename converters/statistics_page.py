"""Statistics as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fastconv.converters.statistics import PixelStatistics, SameBytes, StatisticsReport
from fastconv.loaders.errors import printable
from fastconv.loaders.kinds import FORMAT_NAMES
from fastconv.loaders.measure import charts
from fastconv.loaders.measure.cases import Spread
from fastconv.loaders.measure.charts import Line
from fastconv.loaders.measure.document import (
    Section,
    as_list,
    document,
    named,
    panels,
    plain,
    prose,
    scrolled,
)
from fastconv.loaders.measure.numbers import figure

__all__ = [
    "CHANNELS",
    "MEASURES",
    "group_text",
    "most_different",
    "normalize_line",
    "number_text",
    "render_page",
]

CHANNELS = {"red": 2, "green": 3, "blue": 1}
"""Channel -> how charts draw it."""
MEASURES = {
    "width": "width, pixels",
    "height": "height, pixels",
    "short_side": "short side, pixels",
    "aspect_ratio": "width / height",
    "megapixels": "megapixels",
    "bytes": "bytes, as stored",
}
"""What is told of sizes -> its words."""
MOST = 100
"""Groups of duplicates, and bad images, that a page names."""
MOST_CLASSES = 20
"""Classes that a page names: half of them large, half of them small."""


def render_page(report: StatisticsReport, *, date: str, command: str) -> str:
    """Returns statistics as an HTML page that can be written as UTF-8.

    Args:
        report: They.
        date: When they were taken, as people shall read it.
        command: The command line.
    """
    name = printable(report.pack)
    return document(
        "stats",
        f": {name}",
        f"What is in {named(name)}",
        date=date,
        asked=command,
        verdict=verdict(report),
        sections=[
            Section("pixels", "Pixels", "Values of the pixels", pixels(report.pixels)),
            Section("sizes", "Sizes", "Sizes of the images", sizes(report)),
            Section("classes", "Classes", "Balance of the classes", classes(report)),
            Section("duplicates", "Duplicates", "The same image twice", duplicates(report)),
            Section(
                "bad",
                "Bad images",
                "Images that are bad",
                first_of(
                    f"{printable(bad.path)}: {bad.reason}: {bad.message}" for bad in report.bad
                ),
            ),
            Section("notes", "Notes", "Notes", as_list([*report.warnings, *report.notices])),
        ],
    )


def normalize_line(pixels: PixelStatistics) -> str:
    """Returns what normalises the images, as a line of code."""
    mean, std = (", ".join(f"{v:.4g}" for v in values) for values in (pixels.mean, pixels.std))
    return f"Normalize(mean=[{mean}], std=[{std}])"


def number_text(value: float) -> str:
    """Returns a number as people read it: whole ones with all their digits."""
    return f"{value:,}" if isinstance(value, int) else figure(value)


def most_different(counts: Sequence[int], most: int) -> list[int]:
    """Returns the positions of the largest and the smallest counts, the largest first; all of them
    where they are no more than `most`."""
    order = sorted(range(len(counts)), key=lambda place: -counts[place])
    return order if len(order) <= most else [*order[: most - most // 2], *order[-(most // 2) :]]


def verdict(report: StatisticsReport) -> str:
    """Returns the lines that people look for, as HTML."""
    kinds = ", ".join(f"{count:,} {FORMAT_NAMES[kind]}" for kind, count in report.formats.items())
    lines = [f"{report.samples:,} images{f': {kinds}' if kinds else ''}."]
    html = [f"<p>{prose(line)}</p>" for line in lines]
    if report.pixels is not None:
        html.append(f"<p><code>{prose(normalize_line(report.pixels))}</code></p>")
    if report.bad:
        html.append(f'<p class="note warned"><a href="#bad">{len(report.bad):,} bad</a></p>')
    return f'<section class="verdict" aria-label="Verdict">{"".join(html)}</section>'


def pixels(found: PixelStatistics | None) -> str:
    """Returns how the values of pixels are distributed, as HTML; "" where that is not known."""
    if found is None:
        return ""
    share = found.levels * (100 / found.pixels)
    series = [
        Line(name, style, [(v, Spread(*[float(percent)] * 3)) for v, percent in enumerate(row)])
        for (name, style), row in zip(CHANNELS.items(), share, strict=True)
    ]
    chart = charts.curves(
        "Values of pixels", series, x_name="value", y_name="percent of the pixels",
        top=charts.nice_top(share.max(axis=1).tolist()), right=255,
    )  # fmt: skip
    rows = [
        (prose(name), f"{mean:.6f}", f"{std:.6f}")
        for name, mean, std in zip(CHANNELS, found.mean, found.std, strict=True)
    ]
    note = (
        f"{found.pixels:,} pixels of {found.images:,} images, decoded as RGB. Each pixel counts "
        "the same, in large images and in small ones; the standard deviation is that of all of "
        "them (n, not n - 1)."
    )
    return table("Channels", ("channel", "mean", "std"), rows) + panels(
        [("Values of pixels", chart)], note
    )


def sizes(report: StatisticsReport) -> str:
    """Returns how sizes are distributed, as HTML; "" where nothing is known of them."""
    if not report.sizes:
        return ""
    rows = [
        (MEASURES[name], *map(number_text, (one.min, one.median, one.max)))
        for name, one in report.sizes.items()
    ]
    drawn = [
        (
            escape(MEASURES[name]),
            charts.columns(
                MEASURES[name], one.counts, one.edges, x_name=MEASURES[name], y_name="images"
            ),
        )
        for name, one in report.sizes.items()
    ]
    note = "Bins are not of one width: each begins at the number below its left edge."
    return table("Sizes", ("", "smallest", "median", "largest"), rows) + panels(drawn, note)


def classes(report: StatisticsReport) -> str:
    """Returns how large classes are, as HTML; "" where there are none."""
    names, counts = [*report.class_counts], [*report.class_counts.values()]
    if not names:
        return ""
    ranked = sorted(counts, reverse=True)
    line = Line("images", 1, [(at, Spread(*[float(n)] * 3)) for at, n in enumerate(ranked, 1)])
    chart = charts.curves(
        "Images of each class", [line], x_name="classes, the largest first", y_name="images",
        top=charts.nice_top(ranked), right=len(ranked),
    )  # fmt: skip
    chosen = most_different(counts, MOST_CLASSES)
    note = f"{len(names):,} classes, {len(report.empty_classes):,} of them empty."
    if report.imbalance is not None:
        note += (
            f" The largest has {report.imbalance:,.3g} times as many images as the smallest that "
            "has any."
        )
    rows = [(named(plain(printable(names[at]))), f"{counts[at]:,}") for at in chosen]
    title = "Classes" if len(chosen) == len(names) else "The largest and the smallest classes"
    return panels([("Images of each class", chart)], note) + table(title, ("class", "images"), rows)


def duplicates(report: StatisticsReport) -> str:
    """Returns which images are the same, as HTML; "" where that is not known."""
    found = report.duplicates
    if found is None:
        return ""
    parts = [
        f"<p>{found.compared:,} images were compared by their bytes: {found.copies:,} of them are "
        "copies of another one.</p>"
    ]
    if found.across_classes:
        parts.append("<h3>With different labels</h3>")
        parts.append(first_of(map(group_text, found.across_classes)))
    if others := [group for group in found.groups if not group.across]:
        parts.append("<h3>With one label, or none</h3>")
        parts.append(first_of(map(group_text, others)))
    return "".join(parts)


def group_text(group: SameBytes) -> str:
    """Returns which images are the same, and their labels where these differ."""
    if not group.across:
        return " = ".join(map(printable, group.paths))
    return " = ".join(
        f"{printable(path)} ({'no label' if label is None else printable(label)})"
        for path, label in zip(group.paths, group.classes, strict=True)
    )


def first_of(lines: Iterable[str]) -> str:
    """Returns the first lines as an HTML list, and how many more there are."""
    texts = [*lines]
    more = [f"... and {len(texts) - MOST:,} more, all with --json"] if len(texts) > MOST else []
    return as_list([*texts[:MOST], *more])


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table as HTML; the first column names the rows, and may be HTML."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}'
        "</tr>"
        for first, *rest in rows
    )
    return scrolled(
        f"<caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>",
        title,
    )
