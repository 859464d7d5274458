"""The findings of a benchmark as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fastconv.loaders.errors import printable
from fastconv.loaders.measure import charts
from fastconv.loaders.measure.cases import (
    STAGES,
    WAYS,
    Case,
    Findings,
    Row,
    Source,
    Spread,
    Stage,
    spread,
)
from fastconv.loaders.measure.charts import Bar, Dot, Line, nice_top
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
from fastconv.loaders.measure.numbers import figure, range_of
from fastconv.loaders.measure.tables import COLUMNS, Column

__all__ = ["render_page"]


def render_page(findings: Findings, date: str) -> str:
    """Returns the findings as an HTML page that can be written as UTF-8.

    Args:
        findings: What was found.
        date: When it was found, as people shall read it.
    """
    badge = _badge(findings)
    measured = [
        Section(id, short, f"{title}{badge}", content)
        for id, short, title, content in (
            (
                "throughput", "Throughput", "Throughput against the number of workers",
                _throughput(findings),
            ),
            ("image", "Time for an image", "Time for an image", _image_times(findings)),
            ("memory", "Memory", "Memory while loading", _memory(findings)),
            ("speedup", "Speedup", f"Speedup against {_baseline(findings)}", _speedups(findings)),
            (
                "tables", "All figures", "All figures",
                "".join(_table(findings, stage) for stage in STAGES),
            ),
        )
    ]  # fmt: skip
    names = ", ".join(source.name for source in findings.sources)
    return document(
        "bench",
        f"{' (simulated)' if badge else ''}: {names}",
        f"What loading costs, and what packing gains{badge}",
        date=date,
        asked=findings.command,
        banner=_banner(findings),
        verdict=_verdict(findings),
        sections=[
            Section("sources", "Sources", "What was measured", _sources(findings)),
            *measured,
            Section("notes", "Notes", "Notes", _notes(findings)),
            Section(
                "how", "Machine and settings", "How and where it was measured", _settings(findings)
            ),
        ],
    )


def _baseline(findings: Findings) -> str:
    """Returns what the others are compared with, as HTML."""
    name = f"<code>{named(findings.baseline.name)}</code>"
    return f"the raw folder {name}" if findings.baseline.is_raw else name


def _badge(findings: Findings) -> str:
    """Returns what every title has where a file system was simulated, "" where none was."""
    return "" if findings.settings.latency is None else ' <span class="badge">simulated</span>'


def _banner(findings: Findings) -> str:
    latency = findings.settings.latency
    if latency is None:
        return ""
    return (
        '<p class="simulated"><strong>Simulated file system.</strong> '
        f"Every file that is opened waits {latency.open * 1e3:g} ms and every request to "
        f"read {latency.read * 1e3:g} ms. Nothing on this page was measured on a real "
        "network file system or object store.</p>"
    )


def _verdict(findings: Findings) -> str:
    said = "".join(f"<p>{prose(text)}</p>" for text in findings.verdict)
    if count := len(findings.warnings):
        words = "one warning" if count == 1 else f"{count} warnings"
        said += f'<p class="note warned">Read the <a href="#warnings">{words}</a> first.</p>'
    return f'<section class="verdict" aria-label="Verdict">{said}</section>' if said else ""


def _style_of(findings: Findings) -> dict[str, int]:
    """Returns name of a source -> how charts draw it; 0: what the others are compared with."""
    names = [source.name for source in findings.sources if source != findings.baseline]
    return {findings.baseline.name: 0, **{name: n for n, name in enumerate(names, 1)}}


def _rows(findings: Findings, stage: Stage) -> dict[Case, list[Row]]:
    """Returns case -> its rows, in the order of the sources."""
    places = {source.name: n for n, source in enumerate(findings.sources)}
    found: dict[Case, list[Row]] = {}
    for row in findings.rows:
        if row.case.stage == stage:
            found.setdefault(row.case, []).append(row)
    return {
        case: sorted(rows, key=lambda row: places.get(row.source, len(places)))
        for case, rows in found.items()
    }


def _words(case: Case, *, way: bool = True) -> str:
    """Returns what tells a case from the others of its stage."""
    words = []
    if case.stage == "read":
        words.append(f"{case.order} order")
    if way and case.way_words:
        words.append(case.way_words)
    if case.stage in ("load", "memory"):
        words.append(case.workers_words)
    if case.stage == "copy":
        words.append("pinned memory" if case.pinned else "pageable memory")
    if case.stage in ("open", "read", "load"):
        words.append(f"{case.cache} cache")
    return ", ".join(words)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _panels(
    findings: Findings, drawn: Sequence[tuple[str, str]], note: str, kind: str = "panels"
) -> str:
    """Returns charts below their titles, which say where a file system was simulated."""
    return panels([(f"{title}{_badge(findings)}", chart) for title, chart in drawn], note, kind)


def _throughput(findings: Findings) -> str:
    """Returns a panel for each way to load and state of the page cache."""
    styles = _style_of(findings)
    ways: dict[tuple[str, str], dict[str, list[tuple[Case, Spread]]]] = {}
    for case, rows in _rows(findings, "load").items():
        for row in rows:
            if found := row.spread("images_per_s"):
                sources = ways.setdefault((case.way, case.cache), {})
                sources.setdefault(row.source, []).append((case, found))
    every = [at for sources in ways.values() for points in sources.values() for at in points]
    top = nice_top(found.high for _, found in every)
    workers = [case.workers for case, _ in every]
    drawn = []
    for sources in ways.values():
        case = next(iter(sources.values()))[0][0]
        title = f"{WAYS[case.way] if case.way else 'Loading'}, {case.cache} cache"
        if len({case.workers for points in sources.values() for case, _ in points}) > 1:
            series = [
                Line(
                    plain(name),
                    styles[name],
                    sorted(((c.workers, found) for c, found in points), key=lambda at: at[0]),
                )
                for name, points in sources.items()
            ]
            chart = charts.lines(
                title,
                series,
                x_name="threads" if case.threads else "workers",
                y_name="images/s",
                top=top,
                left=min(workers),
                right=max(workers),
            )
        else:
            title = _words(case)
            only = [
                Dot(plain(name), styles[name], points[0][1]) for name, points in sources.items()
            ]
            chart = charts.dots(title, [("", only)], name="images/s")
        drawn.append((escape(title), chart))
    step = {
        "none": "no training step",
        "sleep": f"a step that sleeps {findings.settings.step.seconds * 1e3:g} ms a batch",
        "conv": "a small convolutional network as training step",
    }[findings.settings.step.kind]
    note = (
        f"Random order, {step}. Marks are medians, whiskers reach from the slowest "
        "round to the fastest. Lines share their axes."
    )
    return _panels(findings, drawn, note)


def _image_times(findings: Findings) -> str:
    """Returns a panel for each decoder, and one for reading from a cold page cache."""
    styles = _style_of(findings)
    decoders: list[tuple[str, list[Bar]]] = []
    for case, rows in _rows(findings, "decode").items():
        bars = []
        for row in rows:
            times = spread([1e3 / rate for rate in row.values.get("images_per_s", ()) if rate])
            reading = findings.row(row.source, Case("read", case.order, case.cache))
            read = reading.spread("us_per_sample") if reading else None
            if times:
                part = read.median / 1e3 if read else None
                bars.append(Bar(plain(row.source), styles[row.source], times, part))
        if bars:
            decoders.append((_capital(_words(case)), bars))
    top = nice_top(bar.value.high for _, bars in decoders for bar in bars)
    drawn = [
        (escape(title), charts.bars(title, bars, name="ms an image", top=top))
        for title, bars in decoders
    ]
    for case, rows in _rows(findings, "read").items():
        # Of a warm cache it is the full part of the bars above.
        if case.order == "random" and (case.cache == "cold" or not decoders):
            bars = []
            for row in rows:
                if read := spread([us / 1e3 for us in row.values.get("us_per_sample", ())]):
                    bars.append(Bar(plain(row.source), styles[row.source], read, read.median))
            title = f"Reading alone, {_words(case)}"
            if bars:
                drawn.append((escape(title), charts.bars(title, bars, name="ms an image")))
    note = (
        f"{charts.key('reading the bytes', 'decoding them')}. One thread. A whole "
        "bar is the time to read and decode one image, and its whisker reaches from the fastest "
        "round to the slowest; its full part is what reading alone took."
    )
    return _panels(findings, drawn, note)


def _memory(findings: Findings) -> str:
    """Returns a panel for each source."""
    drawn = []
    for case, rows in _rows(findings, "memory").items():
        for row in rows:
            series = [
                Line(
                    name,
                    style,
                    [(at, Spread(*[value * 1e-6] * 3)) for at, value in row.series[name]],
                )
                for name, style in (("main", 0), ("workers", 4))
                if row.series.get(name)
            ]
            if series:
                drawn.append((f"{plain(row.source)}: {_words(case)}", series))
    points = [point for _, series in drawn for line in series for point in line.points]
    charted = [
        (
            escape(title),
            charts.curves(
                title,
                series,
                x_name="seconds",
                y_name="MB",
                top=nice_top(s.high for _, s in points),
                right=max(at for at, _ in points),
            ),
        )
        for title, series in drawn
    ]
    note = (
        "Proportional set size (PSS) without pages of files, which the system takes back when it "
        "needs memory: what processes share counts once, in equal parts. All workers together. "
        "Panels share their axes. Last round."
    )
    return _panels(findings, charted, note)


def _speedups(findings: Findings) -> str:
    """Returns a panel for each stage, and for each way to load."""
    styles = _style_of(findings)
    stages: dict[str, list[tuple[str, list[Dot]]]] = {}
    for stage in ("open", "read", "decode", "load"):
        for case, rows in _rows(findings, stage).items():
            dots = [
                Dot(plain(row.source), styles[row.source], found)
                for row in rows
                if row.source != findings.baseline.name and (found := _ratio(findings, row))
            ]
            title = _capital(STAGES[stage])
            if stage == "load" and case.way:
                title = f"{title}: {WAYS[case.way]}"
            if dots:
                heading = _words(case, way=stage != "load")
                stages.setdefault(title, []).append((heading, dots))
    base = _baseline(findings)
    drawn = [
        (title, charts.dots(f"{title}, times as fast", groups, name="times", reference=1.0))
        for title, groups in stages.items()
    ]
    note = (
        f"How many times as fast as {base} in the same case; at the line 1 both are "
        "as fast. Whiskers reach from the lowest ratio of a round to the highest. Each step along "
        "an axis multiplies."
    )
    return _panels(findings, drawn, note, "flowing")


def _ratio(findings: Findings, row: Row) -> Spread | None:
    """Returns how many times better than the baseline a row is in what its stage is compared by."""
    for column in COLUMNS[row.case.stage]:
        if column.ratio:
            return findings.ratio(row, column.measure, less_is_more=column.ratio == "less")
    return None


def _sources(findings: Findings) -> str:
    styles = _style_of(findings)
    rows = "".join(
        f'<tr><th scope="row">{charts.swatch(styles[source.name])}{named(source.name)}'
        f"{_where(source)}</th>"
        f'<td class="text">{prose(source.title)}</td><td>{source.samples:,}</td>'
        f"<td>{source.files:,}</td><td>{figure(source.bytes / 1e6)}</td></tr>"
        for source in findings.sources
    )
    head = "".join(
        f'<th scope="col"{kind}>{name}</th>'
        for name, kind in (
            ("source", ""),
            ("format", ' class="text"'),
            ("samples", ""),
            ("files", ""),
            ("images<small>MB</small>", ""),
        )
    )
    note = f'<p class="note">The others are compared with {_baseline(findings)}.</p>'
    return scrolled(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", "Sources") + (
        note if len(findings.sources) > 1 else ""
    )


def _where(source: Source) -> str:
    path = printable(source.path)
    return "" if path == source.name else f'<small class="path">{named(path)}</small>'


def _table(findings: Findings, stage: Stage) -> str:
    """Returns all figures of a stage, "" where it was not measured."""
    cases = _rows(findings, stage)
    found = {name for rows in cases.values() for row in rows for name in row.values}
    columns = [column for column in COLUMNS[stage] if column.measure in found]
    if not cases:
        return ""
    head = ['<th scope="col">source</th>']
    for column in columns:
        head.append(f'<th scope="col">{escape(column.title)}</th>')
        if column.ratio and len(findings.sources) > 1:
            head.append('<th scope="col">times baseline<small>more is better</small></th>')
    body = "".join(
        f'<tbody><tr><th scope="rowgroup" colspan="{len(head)}">'
        f"<span>{escape(_capital(_words(case)))}</span></th></tr>\n"
        + "\n".join(_table_row(findings, row, columns, len(head) - 1) for row in rows)
        + "</tbody>\n"
        for case, rows in cases.items()
    )
    title = _capital(STAGES[stage])
    caption = "<caption>Median of the rounds, and lowest to highest.</caption>"
    return f"<h3>{title}{_badge(findings)}</h3>\n" + scrolled(
        f"{caption}<thead><tr>{''.join(head)}</tr></thead>\n{body}", title
    )


def _table_row(findings: Findings, row: Row, columns: Sequence[Column], width: int) -> str:
    swatch = charts.swatch(_style_of(findings)[row.source])
    rounds = max(map(len, row.values.values()), default=0)
    few = f"<small>{rounds} of {findings.settings.rounds} rounds</small>"
    few = few if 0 < rounds < findings.settings.rounds else ""
    head = f'<tr><th scope="row">{swatch}{named(row.source)}{few}</th>'
    if not rounds:
        why = f"left out: {prose(row.left_out)}" if row.left_out else "not measured"
        return f'{head}<td class="text" colspan="{max(width, 1)}">{why}</td></tr>'
    cells = []
    for column in columns:
        cells.append(_cell(row.spread(column.measure), column.scale))
        if column.ratio and len(findings.sources) > 1:
            is_base = row.source == findings.baseline.name
            cells.append("<td>1</td>" if is_base else _cell(_ratio(findings, row)))
    return f"{head}{''.join(cells)}</tr>"


def _cell(found: Spread | None, scale: float = 1.0) -> str:
    if found is None:
        return "<td>\u2013</td>"
    found = Spread(found.median * scale, found.low * scale, found.high * scale)
    return f"<td>{figure(found.median)}<small>{range_of(found)}</small></td>"


def _notes(findings: Findings) -> str:
    parts = [as_list(findings.notes)]
    if findings.left_out:
        parts.append(f"<h3>What was left out</h3>\n{as_list(findings.left_out)}")
    if findings.warnings:
        parts.append(f'<h3 id="warnings">Warnings</h3>\n{as_list(findings.warnings)}')
    return "".join(parts)


def _settings(findings: Findings) -> str:
    settings = findings.settings
    step = settings.step
    how = {
        "batch size": f"{settings.batch_size}",
        "workers": ", ".join(map(str, settings.workers)),
        "picture": f"RandomResizedCrop({settings.size}) and a flip",
        "device": settings.device,
        "training step": f"sleeps {step.seconds * 1e3:g} ms" if step.kind == "sleep" else step.kind,
        "page cache": ", ".join(settings.caches),
        "file system": "as it is" if settings.latency is None else "simulated",
        "rounds": f"{settings.rounds}, of at least {settings.seconds:g} s each measurement",
    }
    return "".join(
        scrolled(
            f"<caption>{name}</caption><tbody>"
            + "".join(
                f'<tr><th scope="row">{prose(key)}</th><td class="text">{prose(value)}</td></tr>'
                for key, value in table.items()
            )
            + "</tbody>",
            name,
        )
        for name, table in (("Settings", how), ("Environment", findings.environment))
        if table
    )
