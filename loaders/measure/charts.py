"""Charts of measurements, as SVG to put inside an HTML page: no script, no font, no dependency.

Every chart is one panel of the same width, drawn about as large as it is shown on a phone, so that
its words stay readable there; wider pages put panels side by side. Series differ by the shape of
their marks and by their dashes as well as by colour, and are labelled where they are. Colours are
the page's: `STYLE` names them as CSS variables, `--c0` (what others are compared with) and up.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from fastconv.loaders.measure.cases import Spread
from fastconv.loaders.measure.numbers import figure, range_of

__all__ = [
    "COLOURS",
    "STYLE",
    "Bar",
    "Dot",
    "Line",
    "bars",
    "columns",
    "curves",
    "dots",
    "figure",
    "key",
    "lines",
    "nice_top",
    "range_of",
    "swatch",
]

COLOURS = 6
"""How many colours there are; a later series has an earlier one's colour with another mark, but
never the first one's."""

STYLE = (
    """
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font: 11px/1 var(--sans); fill: var(--ink); font-variant-numeric: tabular-nums;
  paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round }
svg .soft { fill: var(--soft) }
svg .end { text-anchor: end }
svg .mid { text-anchor: middle }
svg .grid { stroke: var(--rule); stroke-width: 1 }
svg .axis { stroke: var(--soft); stroke-width: 1 }
svg .one { stroke: var(--ink); stroke-width: 1.5 }
svg .lead { stroke: var(--soft); stroke-width: .75; fill: none }
svg .line { fill: none; stroke-width: 1.75; stroke-linejoin: round }
svg .whisker { fill: none; stroke-width: 1.25 }
svg .mark { fill: var(--paper); stroke-width: 1.75 }
svg .mark.full, svg .part { stroke-width: 1.25 }
svg .part { fill: none }
svg .error { stroke: var(--ink); stroke-width: 1.25; fill: none }
svg .halo { stroke: var(--paper); stroke-width: 4; fill: none }
svg.swatch { display: inline-block; width: 12px; height: 12px; vertical-align: -1px }
"""
    + "".join(
        f".s{n} {{ stroke: var(--c{n}) }} .s{n}.full {{ fill: var(--c{n}) }}\n"
        for n in range(COLOURS)
    )
).strip()

_WIDTH = 340
_DASHES = ("5 3", "", "8 3", "2 3", "8 3 2 3", "12 3", "1.5 2")
# Around (0, 0), as large as each other to the eye.
_MARKS = (
    "M-3.4 0A3.4 3.4 0 1 1 3.4 0A3.4 3.4 0 1 1 -3.4 0Z",
    "M-3.1-3.1H3.1V3.1H-3.1Z",
    "M0-4.1L4 3H-4Z",
    "M0-4.4L4.4 0L0 4.4L-4.4 0Z",
    "M0 4.1L4-3H-4Z",
    "M-3.2-3.2L3.2 3.2M3.2-3.2L-3.2 3.2",
    "M-4 0H4M0-4V4",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A series of a line chart.

    Attributes:
        name: Its label.
        style: Which colour, mark and dashes; 0: what the others are compared with.
        points: Place on the horizontal axis -> value, ascending.
    """

    name: str
    style: int
    points: Sequence[tuple[float, Spread]]


@dataclass(frozen=True, slots=True)
class Dot:
    """One value with its extremes.

    Attributes:
        name: Its label.
        style: Which colour and mark.
        value: Where it stands.
    """

    name: str
    style: int
    value: Spread


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        name: Its label.
        style: Which colour.
        value: Its length.
        part: How much of it is drawn full; None: it has no parts.
    """

    name: str
    style: int
    value: Spread
    part: float | None = None


def nice_top(values: Iterable[float]) -> float:
    """Returns where an axis from 0 that holds all values may end, 1.0 where there are none."""
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    return top * 1.04 if top > 0 else 1.0


def swatch(style: int) -> str:
    """Returns the mark of a series, for text beside it."""
    return (
        f'<svg class="swatch" viewBox="-6 -6 12 12" aria-hidden="true">{_mark(style, 0, 0)}</svg>'
    )


def key(full: str, empty: str) -> str:
    """Returns what the two parts of bars mean, as HTML."""
    box = (
        '<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true"><path class="{}" d="{}"/></svg>'
    )
    square = "M1 1H11V11H1Z"
    return (
        f"{box.format('part s0 full', square)} {escape(full)} &nbsp; "
        f"{box.format('part s0', square)} {escape(empty)}"
    )


def lines(
    title: str,
    series: Sequence[Line],
    *,
    x_name: str,
    y_name: str,
    top: float,
    left: float,
    right: float,
) -> str:
    """Returns a line chart with a mark and a whisker from low to high at each value.

    Args:
        title: What it shows, for who does not see it.
        series: What is drawn; values that are no finite numbers are not.
        x_name: What the horizontal axis counts.
        y_name: What the vertical axis counts.
        top: Where the vertical axis ends, which begins at 0.
        left: Where the horizontal axis begins.
        right: Where the horizontal axis ends.
    """
    series = _finite(series)
    places = sorted({x for line in series for x, _ in line.points})
    plot = _Plot(len(series), (left, right), top)
    body = [plot.axes(_apart(places, plot.x, 16), x_name, y_name)]
    for number, line in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * min(3.0, 12 / len(series))
        at = [(plot.x(x) + shift, s) for x, s in line.points]
        path = "M" + "L".join(f"{x:.1f} {plot.y(s.median):.1f}" for x, s in at)
        body.append(_path("line", line.style, path, dashes=True))
        for (x, s), (place, _) in zip(at, line.points, strict=True):
            words = f"{line.name}, {place:g} {x_name}: {figure(s.median)} ({range_of(s)}) {y_name}"
            body.append(
                f"<g><title>{escape(words)}</title>"
                + _whisker(line.style, x, plot.y(s.low), plot.y(s.high))
                + _mark(line.style, x, plot.y(s.median))
                + "</g>"
            )
    body.append(plot.labels([(line, line.points[-1]) for line in series], marks=True))
    told = "; ".join(
        f"{line.name}: "
        + ", ".join(f"{figure(s.median)} with {x:g} {x_name}" for x, s in line.points)
        for line in series
    )
    return _svg(plot.height, title, f"{y_name} against {x_name}. {told}", body)


def curves(
    title: str,
    series: Sequence[Line],
    *,
    x_name: str,
    y_name: str,
    top: float,
    right: float,
) -> str:
    """Returns a chart of things that change with time, from 0: lines without marks.

    Args:
        title: What it shows, for who does not see it.
        series: What is drawn; values that are no finite numbers are not.
        x_name: What the horizontal axis counts.
        y_name: What the vertical axis counts.
        top: Where the vertical axis ends, which begins at 0.
        right: Where the horizontal axis ends.
    """
    series = _finite(series)
    plot = _Plot(len(series), (0.0, right), top)
    body = [plot.axes(_ticks(0.0, right, 4), x_name, y_name)]
    for line in series:
        at = [(plot.x(x), plot.y(s.median)) for x, s in line.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        body.append(_path("line", line.style, path, dashes=True))
    body.append(plot.labels([(line, line.points[-1]) for line in series], marks=False))
    told = "; ".join(
        f"{line.name}: from {figure(line.points[0][1].median)} to "
        f"{figure(line.points[-1][1].median)}, at most "
        f"{figure(max(s.median for _, s in line.points))}"
        for line in series
    )
    return _svg(plot.height, title, f"{y_name} against {x_name}. {told}", body)


def dots(
    title: str,
    groups: Sequence[tuple[str, Sequence[Dot]]],
    *,
    name: str,
    reference: float | None = None,
) -> str:
    """Returns a chart with a row for each value: its mark, a whisker from low to high, its figure.

    Args:
        title: What it shows, for who does not see it.
        groups: Heading, "" for none, and what is drawn under it.
        name: What is counted.
        reference: A value to compare with: it gets a line, and the axis shows ratios, each step as
            many times the one before. None: the axis begins at 0.
    """
    found = [d.value for _, row in groups for d in row if _is_finite(d.value)]
    if reference is not None:
        found = [s for s in found if s.low > 0]
    first, last = 112.0, _WIDTH - 12 - max((_width(_value_of(s)) for s in found), default=0.0)
    place, ticks = _scale(found, reference, first, last)
    body, told, y = [], [], 6.0
    marks: list[str] = []
    for heading, row in groups:
        shown = [dot for dot in row if dot.value in found]
        if not shown:
            continue
        if heading:
            marks.append(f'<text class="soft" y="{y + 9:.1f}">{_cut(heading, _WIDTH)}</text>')
            y += 13
        for dot in shown:
            y += 8
            s = dot.value
            words = f"{dot.name}: {figure(s.median)} ({range_of(s)})"
            told.append(f"{heading}, {words}" if heading else words)
            marks.append(
                f"<g><title>{escape(words)}</title>{_mark(dot.style, 6, y)}"
                f'<text x="16" y="{y + 4:.1f}">{_cut(dot.name, first - 26)}</text>'
                + _whisker(dot.style, y, place(s.low), place(s.high), across=True)
                + _mark(dot.style, place(s.median), y)
                + f"{_value(s, y + 4)}</g>"
            )
            y += 8
        y += 10
    y -= 4
    for tick in ticks:
        kind = "one" if tick == reference else "grid"
        body.append(_rule(kind, place(tick), 0, place(tick), y))
        body.append(
            f'<text class="soft mid" x="{place(tick):.1f}" y="{y + 12:.1f}">{_tick(tick)}</text>'
        )
    body += marks
    body.append(f'<text class="soft" y="{y + 12:.1f}">{_cut(name, first - 14)}</text>')
    return _svg(y + 16, title, f"{name}. " + "; ".join(told), body)


def bars(title: str, rows: Sequence[Bar], *, name: str, top: float | None = None) -> str:
    """Returns horizontal bars with a whisker from low to high at their ends.

    Args:
        title: What it shows, for who does not see it.
        rows: What is drawn; values that are no finite numbers are not.
        name: What is counted.
        top: Where the axis ends; None: as the values need.
    """
    rows = [row for row in rows if _is_finite(row.value)]
    top = top or nice_top(row.value.high for row in rows)
    last = _WIDTH - 12 - max((_width(_value_of(row.value)) for row in rows), default=0.0)

    def place(value: float) -> float:
        return 1 + min(value / top, 1.0) * (last - 1)

    body, told, y = [], [], 0.0
    height = 38 * len(rows)
    for tick in _ticks(0.0, top, 4):
        body.append(_rule("grid", place(tick), 0, place(tick), height))
        anchor = "soft mid" if tick else "soft"
        x = place(tick) if tick else 0
        body.append(f'<text class="{anchor}" x="{x:.1f}" y="{height + 12}">{_tick(tick)}</text>')
    body.append(f'<text class="soft end" x="{_WIDTH}" y="{height + 12}">{_cut(name, 100)}</text>')
    for row in rows:
        value, tall = row.value, f"V{y + 30:.1f}"
        words = f"{row.name}: {figure(value.median)} ({range_of(value)}) {name}"
        if row.part is not None:
            words += f", of it {figure(row.part)} for the full part"
        told.append(words)
        body.append(
            f"<g><title>{escape(words)}</title>"
            f'<text y="{y + 11:.1f}">{_cut(row.name, _WIDTH)}</text>'
        )
        body.append(_path("part", row.style, f"M1 {y + 16:.1f}H{place(value.median):.1f}{tall}H1Z"))
        if row.part:
            begin = place(min(row.part, value.median))
            body.append(_path("part full", row.style, f"M1 {y + 16:.1f}H{begin:.1f}{tall}H1Z"))
        error = _across(y + 23, place(value.low), place(value.high))
        body.append(
            f'<path class="halo" d="{error}"/><path class="error" d="{error}"/>'
            f"{_value(value, y + 27)}</g>"
        )
        y += 38
    return _svg(height + 16, title, "; ".join(told), body)


def columns(
    title: str, counts: Sequence[float], edges: Sequence[float], *, x_name: str, y_name: str
) -> str:
    """Returns a histogram: a column for each bin, all of one width.

    Args:
        title: What it shows, for who does not see it.
        counts: The height of each column.
        edges: Where each bin begins; the last one has no end.
        x_name: What lies in the bins.
        y_name: What is counted.
    """
    full = [number for number, count in enumerate(counts) if count]
    first, stop = (full[0], full[-1] + 1) if full else (0, len(counts))
    top, floor, height, left = nice_top(counts), 150.0, 182.0, 44.0
    wide = (_WIDTH - left - 14) / (stop - first)

    def rise(value: float) -> float:
        return floor - value / top * (floor - 24)

    body = [f'<text class="soft" y="10">{_cut(y_name, _WIDTH)}</text>']
    for tick in _ticks(0.0, top, 4):
        y = rise(tick)
        body.append(_rule("grid" if tick else "axis", left, y, _WIDTH, y))
        body.append(f'<text class="soft end" x="{left - 6}" y="{y + 4:.1f}">{_tick(tick)}</text>')
    names = [_tick(float(f"{edge:.4g}")) for edge in edges]
    told, free = [], 0.0
    for number in range(first, stop):
        x, count = left + (number - first) * wide, counts[number]
        end = f" to {names[number + 1]}" if number + 1 < len(names) else " or more"
        words = f"{names[number]}{end}: {count:,}"
        told.append(words)
        shape = f"M{x + 1:.1f} {floor}V{rise(count):.1f}h{wide - 2:.1f}V{floor}Z"
        body.append(f"<g><title>{escape(words)}</title>{_path('part full', 1, shape)}</g>")
        half = _width(names[number]) / 2
        if x - half >= free:
            free = x + half + 6
            body.append(
                f'<text class="soft mid" x="{x:.1f}" y="{floor + 14}">{names[number]}</text>'
            )
            body.append(_rule("axis", x, floor, x, floor + 4))
    body.append(f'<text class="soft end" x="{_WIDTH}" y="{height - 3}">{_cut(x_name, 200)}</text>')
    return _svg(height, title, f"{y_name} against {x_name}. {'; '.join(told)}", body)


class _Plot:
    """Where things stand in a chart with two axes and labels at its right."""

    def __init__(self, series: int, across: tuple[float, float], top: float) -> None:
        self.across, self.top = across, top
        self.height = max(200, 15 * series + 70)
        self.first, self.last = 44.0, 238.0
        self.ceiling, self.floor = 24.0, self.height - 32.0

    def x(self, value: float) -> float:
        """Returns where a value of the horizontal axis stands."""
        low, high = self.across
        if high <= low:
            return (self.first + self.last) / 2
        return self.first + 10 + (value - low) / (high - low) * (self.last - self.first - 20)

    def y(self, value: float) -> float:
        """Returns where a value of the vertical axis stands."""
        return self.floor - min(max(value / self.top, 0.0), 1.0) * (self.floor - self.ceiling)

    def axes(self, places: Sequence[float], x_name: str, y_name: str) -> str:
        """Returns both axes with their words."""
        body = [f'<text class="soft" y="10">{_cut(y_name, _WIDTH)}</text>']
        for tick in _ticks(0.0, self.top, 5):
            y = self.y(tick)
            body.append(_rule("grid" if tick else "axis", self.first, y, self.last, y))
            body.append(
                f'<text class="soft end" x="{self.first - 6}" y="{y + 4:.1f}">{_tick(tick)}</text>'
            )
        for place in places:
            x = self.x(place)
            body.append(_rule("axis", x, self.floor, x, self.floor + 4))
            body.append(
                f'<text class="soft mid" x="{x:.1f}" y="{self.floor + 16:.1f}">{place:g}</text>'
            )
        middle = (self.first + self.last) / 2
        body.append(
            f'<text class="soft mid" x="{middle:.1f}" y="{self.height - 3}">'
            f"{_cut(x_name, 190)}</text>"
        )
        return "".join(body)

    def labels(self, ends: Sequence[tuple[Line, tuple[float, Spread]]], *, marks: bool) -> str:
        """Returns the names of series beside their ends, moved apart where they would touch."""
        at = sorted(
            ((self.y(s.median), self.x(x), line) for line, (x, s) in ends), key=lambda e: e[0]
        )
        heights = _move_apart([y for y, _, _ in at], 15, self.ceiling - 6, self.floor + 6)
        body = []
        for height, (y, x, line) in zip(heights, at, strict=True):
            if abs(height - y) > 3:
                path = f"M{x + 9:.1f} {y:.1f}L{self.last + 4:.1f} {height:.1f}"
                body.append(f'<path class="lead" d="{path}"/>')
            if marks:
                body.append(_mark(line.style, self.last + 12, height))
            begin = self.last + (20 if marks else 8)
            body.append(
                f'<text x="{begin:.1f}" y="{height + 4:.1f}">'
                f"{_cut(line.name, _WIDTH - begin)}</text>"
            )
        return "".join(body)


def _svg(height: float, title: str, description: str, body: Iterable[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {_WIDTH} {height:.0f}"><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{''.join(body)}</svg>"
    )


def _colour(style: int) -> int:
    return 1 + (style - 1) % (COLOURS - 1) if style else 0


def _mark(style: int, x: float, y: float) -> str:
    full = "" if style == 0 else " full"  # what others are compared with is empty
    return (
        f'<path class="mark s{_colour(style)}{full}" transform="translate({x:.1f} {y:.1f})" '
        f'd="{_MARKS[style % len(_MARKS)]}"/>'
    )


def _path(kind: str, style: int, path: str, *, dashes: bool = False) -> str:
    dash = _DASHES[style % len(_DASHES)] if dashes else ""
    drawn = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path class="{kind} s{_colour(style)}"{drawn} d="{path}"/>'


def _whisker(style: int, at: float, low: float, high: float, *, across: bool = False) -> str:
    if across:
        path = _across(at, low, high)
    else:
        path = f"M{at:.1f} {low:.1f}V{high:.1f}M{at - 3:.1f} {low:.1f}h6M{at - 3:.1f} {high:.1f}h6"
    return _path("whisker", style, path)


def _across(y: float, low: float, high: float) -> str:
    return f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6"


def _value_of(spread: Spread) -> str:
    return f"{figure(spread.median)} ({figure(spread.low)}\u2013{figure(spread.high)})"


def _value(spread: Spread, y: float) -> str:
    """Returns a value with its extremes, at the right."""
    return (
        f'<text x="{_WIDTH}" y="{y:.1f}" class="end">{figure(spread.median)} <tspan class="soft">'
        f"({figure(spread.low)}\u2013{figure(spread.high)})</tspan></text>"
    )


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _is_finite(spread: Spread) -> bool:
    return all(map(math.isfinite, (spread.median, spread.low, spread.high)))


def _finite(series: Sequence[Line]) -> list[Line]:
    kept = [
        Line(line.name, line.style, [(x, s) for x, s in line.points if _is_finite(s)])
        for line in series
    ]
    return [line for line in kept if line.points]


def _tick(value: float) -> str:
    text = f"{value:,.10g}" if abs(value) < 1e9 else f"{value:.3g}"
    return text.replace("-", "\u2212")


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Returns round numbers from low to high, about so many."""
    rough = (high - low) / about
    if rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    # Rounded, because 3 * 0.1 is not 0.3.
    begin = math.ceil(low / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(begin, math.floor(high / step + 1e-9) + 1)]


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Returns round numbers on a scale of ratios: 0.5, 1, 2, 5, 10, or closer where it is short."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        every = [float(f"{m * 10.0**p:.10g}") for p in powers for m in steps]
        ticks = [tick for tick in every if low <= tick <= high]
        if 3 <= len(ticks) <= 5:
            return ticks
    return ticks[:: -(-len(ticks) // 5)] if len(ticks) > 5 else _ticks(low, high, 4)


def _scale(
    found: Sequence[Spread], reference: float | None, first: float, last: float
) -> tuple[Callable[[float], float], list[float]]:
    """Returns where values stand between first and last, and the ticks of the axis."""
    if reference is None:
        top = nice_top(s.high for s in found)
        return lambda value: first + max(value, 0.0) / top * (last - first), _ticks(0.0, top, 3)
    low = min([reference / 1.12, *(s.low / 1.04 for s in found)])
    high = max([reference * 1.12, *(s.high * 1.04 for s in found)])

    def place(value: float) -> float:
        return first + math.log(value / low) / math.log(high / low) * (last - first)

    ticks = sorted({*_ratio_ticks(low, high), reference})
    near = [t for t in ticks if t == reference or abs(place(t) - place(reference)) > 22]
    return place, _apart(near, place, 22)


def _apart(values: Sequence[float], place: Callable[[float], float], gap: float) -> list[float]:
    """Returns the values without those that would stand too near to one before."""
    kept: list[float] = []
    for value in values:
        if not kept or place(value) - place(kept[-1]) >= gap:
            kept.append(value)
    return kept


def _move_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Returns ascending places moved so that none is nearer than gap to the next."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap if moved else low))
    limit = high
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], limit)
        limit = moved[number] - gap
    return moved


def _cut(text: str, width: float) -> str:
    """Returns text as SVG takes it, its front cut off where it would be wider than that."""
    if _width(text) <= width:
        return escape(text)
    kept = text
    while kept and _width("\u2026" + kept) > width:
        kept = kept[1:]
    return f"<title>{escape(text)}</title>\u2026{escape(kept)}"


def _width(text: str) -> float:
    """Returns how wide text is at most, about: nothing here knows the reader's font."""
    return sum(
        11.5
        if unicodedata.east_asian_width(c) in "WF"
        else 3.6
        if c in "ijl.,:;|'/ ()1tfI"
        else 6.9
        for c in text
    )
