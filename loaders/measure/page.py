"""The findings of a benchmark as one HTML page that needs nothing but itself.

It loads nothing, runs no script, and tells the browser to allow neither: it opens offline, and what
the names of files hold cannot change that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from fastconv.loaders.measure.numbers import figure, range_of
from fastconv.loaders.measure.tables import COLUMNS, Column

__all__ = ["render_page"]

_STYLE = """
:root { color-scheme: light dark;
  --paper: #fffefb; --ink: #21201d; --soft: #62605a; --rule: #e4e1d9; --tint: #f6f4ee;
  --warn: #8a4b00; --badge: #8c2f00;
  --c0: #55534d; --c1: #1f5fa8; --c2: #a8450a; --c3: #1d7145; --c4: #8a3591; --c5: #7d5c00;
  --serif: Charter, "Bitstream Charter", "Iowan Old Style", "Palatino Linotype", Georgia,
    "Times New Roman", "Liberation Serif", serif;
  --sans: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", system-ui, sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace }
@media (prefers-color-scheme: dark) { :root {
  --paper: #191a1c; --ink: #e6e3dc; --soft: #a5a29a; --rule: #35363a; --tint: #212225;
  --warn: #f0b566; --badge: #ffb38a;
  --c0: #b5b2aa; --c1: #7db4f2; --c2: #f29a5f; --c3: #6fc795; --c4: #d598dc; --c5: #d9b64d } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.55 var(--serif);
  font-variant-numeric: lining-nums; overflow-wrap: anywhere; -webkit-text-size-adjust: 100% }
main { max-width: 54rem; margin: 0 auto; padding: 2.5rem 1rem 5rem }
p, ul { max-width: 40rem; margin: .7rem 0 } ul { padding-left: 1.2rem } li { margin: .35rem 0 }
h1, h2, h3 { line-height: 1.2; font-weight: 600; text-wrap: balance }
h1 { font-size: 1.9rem; margin: .2rem 0 .8rem; letter-spacing: -.01em }
h2 { font-size: 1.35rem; margin: 3.2rem 0 .6rem; padding-top: 1rem;
  border-top: 1px solid var(--rule) }
h3 { font-size: 1.08rem; margin: 2.2rem 0 .5rem }
a { color: inherit; text-underline-offset: .2em; text-decoration-color: var(--soft) }
code { font: .86em/1.5 var(--mono) }
.over, nav, .note, figcaption, table, .badge, .asked { font-family: var(--sans) }
.over { margin: 0; color: var(--soft); font-size: .8rem; letter-spacing: .04em }
.asked code { display: block; max-width: none; padding: .6rem .8rem; background: var(--tint);
  border-left: 3px solid var(--rule); white-space: pre-wrap }
.verdict p { font-size: 1.2rem; line-height: 1.45 } .verdict .note { font-size: .95rem }
.verdict p:first-child { font-size: 1.5rem; line-height: 1.35; margin-top: 1.6rem }
nav { margin: 1.8rem 0 0; font-size: .85rem; line-height: 2 } nav a { margin-right: 1rem;
  white-space: nowrap }
.note { color: var(--soft); font-size: .85rem; line-height: 1.5 }
.badge { display: inline-block; padding: 0 .5em; border: 1px solid; border-radius: .2em;
  color: var(--badge); font-size: .72rem; font-weight: 600; line-height: 1.6; letter-spacing: .02em;
  vertical-align: .15em; white-space: nowrap }
.simulated { max-width: none; padding: .7rem .9rem; border: 2px solid var(--badge);
  color: var(--badge); font-family: var(--sans); font-size: .95rem }
.warned { color: var(--warn) }
.panels { display: grid; gap: 2rem 2.2rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20.5rem), 1fr)) }
figure { margin: 0; min-width: 0 }
.flowing { columns: 2 20.5rem; column-gap: 2.2rem; margin: 1.2rem 0 -.6rem }
.flowing figure { break-inside: avoid; padding-bottom: 1.8rem }
figcaption { margin-bottom: .6rem; font-size: .9rem; font-weight: 600; line-height: 1.35 }
.scroll { overflow-x: auto; margin: .8rem 0; outline-offset: 3px;
  background: linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat
    local, linear-gradient(to left, var(--rule), transparent) right / .9rem 100% no-repeat }
table { border-collapse: collapse; min-width: min(100%, 36rem); font-size: .82rem;
  line-height: 1.35; font-variant-numeric: lining-nums tabular-nums; overflow-wrap: normal }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem }
th, td { padding: .34rem 0 .34rem 1.1rem; text-align: right; vertical-align: top;
  white-space: nowrap }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--ink) }
td small, th small { display: block; color: var(--soft); font-size: .92em; font-weight: 400 }
tbody th[scope=row] { position: sticky; left: 0; min-width: 7rem; max-width: 15rem; padding-left: 0;
  background: var(--paper); font-weight: 400; text-align: left; white-space: normal;
  overflow-wrap: anywhere }
thead th:first-child { padding-left: 0; text-align: left } thead th.text { text-align: left }
.path { display: block; color: var(--soft); font-size: .85em }
tbody tr + tr > * { border-top: 1px solid var(--rule) }
th[scope=rowgroup] { padding: 1rem 0 .3rem; color: var(--soft); font-weight: 600; text-align: left }
th[scope=rowgroup] span { position: sticky; left: 0 }
td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 6rem }
.swatch { margin-right: .35em }
@media (max-width: 30rem) { body { font-size: 16px } h1 { font-size: 1.55rem }
  .verdict p:first-child { font-size: 1.3rem } .verdict p { font-size: 1.08rem }
  tbody th[scope=row] { max-width: 8.5rem } main { padding-top: 1.5rem } }
@media print { main { max-width: none } figure, tr { break-inside: avoid }
  .scroll { overflow: visible } }
"""


def render_page(findings: Findings, date: str) -> str:
    """Returns the findings as an HTML page that can be written as UTF-8.

    Args:
        findings: What was found.
        date: When it was found, as people shall read it.
    """
    badge = _badge(findings)
    measured = [
        ("throughput", "Throughput against the number of workers", _throughput(findings)),
        ("image", "Time for an image", _image_times(findings)),
        ("memory", "Memory while loading", _memory(findings)),
        ("speedup", f"Speedup against {_baseline(findings)}", _speedups(findings)),
        ("tables", "All figures", "".join(_table(findings, stage) for stage in STAGES)),
    ]
    sections = [
        ("sources", "What was measured", _sources(findings)),
        *((id, f"{title}{badge}", content) for id, title, content in measured),
        ("notes", "Notes", _notes(findings)),
        ("how", "How and where it was measured", _settings(findings)),
    ]
    sections = [section for section in sections if section[2]]
    short = {
        "sources": "Sources",
        "throughput": "Throughput",
        "image": "Time for an image",
        "memory": "Memory",
        "speedup": "Speedup",
        "tables": "All figures",
        "notes": "Notes",
        "how": "Machine and settings",
    }
    names = ", ".join(_plain(source.name) for source in findings.sources)
    simulated = " (simulated)" if badge else ""
    parts = [
        "<header>",
        '<p class="over">fastconv bench</p>',
        f"<h1>What loading costs, and what packing gains{badge}</h1>",
        _banner(findings),
        f'<div class="asked"><p class="over">{_prose(date)}</p>',
        f"<code>{_prose(findings.command)}</code></div>",
        "</header>",
        _verdict(findings),
        '<nav aria-label="Contents">',
        *(f'<a href="#{id}">{short[id]}</a>' for id, _, _ in sections),
        "</nav>",
        *(
            f'<section aria-labelledby="{id}"><h2 id="{id}">{title}</h2>\n{content}</section>'
            for id, title, content in sections
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Else a browser asks the server, where there is one, for an icon.
        '<link rel="icon" href="data:,">\n'
        f"<title>fastconv bench{simulated}: {escape(names)}</title>\n"
        f"<style>{_STYLE}{charts.STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _plain(text: str) -> str:
    """Returns text that can be written as UTF-8; names in it are mostly printable already, and what
    is so stays as it is."""
    return "".join(c if c in "\\\n" or c.isprintable() else printable(c) for c in text)


def _prose(text: str) -> str:
    """Returns text as HTML."""
    return escape(_plain(text))


def _name(name: str) -> str:
    """Returns the name of a source as HTML, whose direction of writing stays its own."""
    return f"<bdi>{_prose(name)}</bdi>"


def _baseline(findings: Findings) -> str:
    """Returns what the others are compared with, as HTML."""
    name = f"<code>{_name(findings.baseline.name)}</code>"
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
    said = "".join(f"<p>{_prose(text)}</p>" for text in findings.verdict)
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
    findings: Findings, panels: Sequence[tuple[str, str]], note: str, kind: str = "panels"
) -> str:
    """Returns charts below their titles, beside each other where there is room; "" for none."""
    if not panels:
        return ""
    drawn = "\n".join(
        f"<figure><figcaption>{title}{_badge(findings)}</figcaption>\n{chart}</figure>"
        for title, chart in panels
    )
    return f'<div class="{kind}">\n{drawn}\n</div>\n<p class="note">{note}</p>\n'


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
    panels = []
    for sources in ways.values():
        case = next(iter(sources.values()))[0][0]
        title = f"{WAYS[case.way] if case.way else 'Loading'}, {case.cache} cache"
        if len({case.workers for points in sources.values() for case, _ in points}) > 1:
            series = [
                Line(
                    _plain(name),
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
                Dot(_plain(name), styles[name], points[0][1]) for name, points in sources.items()
            ]
            chart = charts.dots(title, [("", only)], name="images/s")
        panels.append((escape(title), chart))
    step = {
        "none": "no training step",
        "sleep": f"a step that sleeps {findings.settings.step.seconds * 1e3:g} ms a batch",
        "conv": "a small convolutional network as training step",
    }[findings.settings.step.kind]
    note = (
        f"Random order, {step}. Marks are medians, whiskers reach from the slowest "
        "round to the fastest. Lines share their axes."
    )
    return _panels(findings, panels, note)


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
                bars.append(Bar(_plain(row.source), styles[row.source], times, part))
        if bars:
            decoders.append((_capital(_words(case)), bars))
    top = nice_top(bar.value.high for _, bars in decoders for bar in bars)
    panels = [
        (escape(title), charts.bars(title, bars, name="ms an image", top=top))
        for title, bars in decoders
    ]
    for case, rows in _rows(findings, "read").items():
        # Of a warm cache it is the full part of the bars above.
        if case.order == "random" and (case.cache == "cold" or not decoders):
            bars = []
            for row in rows:
                if read := spread([us / 1e3 for us in row.values.get("us_per_sample", ())]):
                    bars.append(Bar(_plain(row.source), styles[row.source], read, read.median))
            title = f"Reading alone, {_words(case)}"
            if bars:
                panels.append((escape(title), charts.bars(title, bars, name="ms an image")))
    note = (
        f"{charts.key('reading the bytes', 'decoding them')}. One thread. A whole "
        "bar is the time to read and decode one image, and its whisker reaches from the fastest "
        "round to the slowest; its full part is what reading alone took."
    )
    return _panels(findings, panels, note)


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
                drawn.append((f"{_plain(row.source)}: {_words(case)}", series))
    points = [point for _, series in drawn for line in series for point in line.points]
    panels = [
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
    return _panels(findings, panels, note)


def _speedups(findings: Findings) -> str:
    """Returns a panel for each stage, and for each way to load."""
    styles = _style_of(findings)
    stages: dict[str, list[tuple[str, list[Dot]]]] = {}
    for stage in ("open", "read", "decode", "load"):
        for case, rows in _rows(findings, stage).items():
            dots = [
                Dot(_plain(row.source), styles[row.source], found)
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
    panels = [
        (title, charts.dots(f"{title}, times as fast", groups, name="times", reference=1.0))
        for title, groups in stages.items()
    ]
    note = (
        f"How many times as fast as {base} in the same case; at the line 1 both are "
        "as fast. Whiskers reach from the lowest ratio of a round to the highest. Each step along "
        "an axis multiplies."
    )
    return _panels(findings, panels, note, "flowing")


def _ratio(findings: Findings, row: Row) -> Spread | None:
    """Returns how many times better than the baseline a row is in what its stage is compared by."""
    for column in COLUMNS[row.case.stage]:
        if column.ratio:
            return findings.ratio(row, column.measure, less_is_more=column.ratio == "less")
    return None


def _scrolled(table: str, name: str) -> str:
    """Returns a table in a box of its own that scrolls where the page is too narrow."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">'
        f"<table>{table}</table></div>\n"
    )


def _sources(findings: Findings) -> str:
    styles = _style_of(findings)
    rows = "".join(
        f'<tr><th scope="row">{charts.swatch(styles[source.name])}{_name(source.name)}'
        f"{_where(source)}</th>"
        f'<td class="text">{_prose(source.title)}</td><td>{source.samples:,}</td>'
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
    return _scrolled(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", "Sources") + (
        note if len(findings.sources) > 1 else ""
    )


def _where(source: Source) -> str:
    path = printable(source.path)
    return "" if path == source.name else f'<small class="path">{_name(path)}</small>'


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
    return f"<h3>{title}{_badge(findings)}</h3>\n" + _scrolled(
        f"{caption}<thead><tr>{''.join(head)}</tr></thead>\n{body}", title
    )


def _table_row(findings: Findings, row: Row, columns: Sequence[Column], width: int) -> str:
    swatch = charts.swatch(_style_of(findings)[row.source])
    rounds = max(map(len, row.values.values()), default=0)
    few = f"<small>{rounds} of {findings.settings.rounds} rounds</small>"
    few = few if 0 < rounds < findings.settings.rounds else ""
    head = f'<tr><th scope="row">{swatch}{_name(row.source)}{few}</th>'
    if not rounds:
        why = f"left out: {_prose(row.left_out)}" if row.left_out else "not measured"
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


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{_prose(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>\n" if items else ""


def _notes(findings: Findings) -> str:
    parts = [_list(findings.notes)]
    if findings.left_out:
        parts.append(f"<h3>What was left out</h3>\n{_list(findings.left_out)}")
    if findings.warnings:
        parts.append(f'<h3 id="warnings">Warnings</h3>\n{_list(findings.warnings)}')
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
        _scrolled(
            f"<caption>{name}</caption><tbody>"
            + "".join(
                f'<tr><th scope="row">{_prose(key)}</th><td class="text">{_prose(value)}</td></tr>'
                for key, value in table.items()
            )
            + "</tbody>",
            name,
        )
        for name, table in (("Settings", how), ("Environment", findings.environment))
        if table
    )
