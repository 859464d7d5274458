"""A report as one HTML page that needs nothing but itself: what all of them have in common.

It loads nothing, runs no script, and tells the browser to allow neither: it opens offline, and what
the names of files hold cannot change that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from fastconv.loaders.errors import printable
from fastconv.loaders.measure import charts

__all__ = ["Section", "as_list", "document", "named", "panels", "plain", "prose", "scrolled"]

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


class Section(NamedTuple):
    """A part of a page with a heading of its own.

    Attributes:
        id: What links lead to.
        short: Its words in the list of contents.
        title: Its heading, as HTML.
        content: Its HTML; a section with none is left out.
    """

    id: str
    short: str
    title: str
    content: str


def document(
    command: str,
    about: str,
    heading: str,
    *,
    date: str,
    asked: str,
    sections: Iterable[Section],
    banner: str = "",
    verdict: str = "",
) -> str:
    """Returns a page that can be written as UTF-8.

    Args:
        command: Of fastconv, which made it.
        about: What the browser shows after the command.
        heading: The page's, as HTML.
        date: When it was found, as people shall read it.
        asked: The command line.
        sections: What follows.
        banner: HTML below the heading.
        verdict: HTML above the list of contents.
    """
    shown = [section for section in sections if section.content]
    parts = [
        "<header>",
        f'<p class="over">fastconv {command}</p>',
        f"<h1>{heading}</h1>",
        banner,
        f'<div class="asked"><p class="over">{prose(date)}</p>',
        f"<code>{prose(asked)}</code></div>",
        "</header>",
        verdict,
        '<nav aria-label="Contents">',
        *(f'<a href="#{section.id}">{section.short}</a>' for section in shown),
        "</nav>",
        *(
            f'<section aria-labelledby="{section.id}"><h2 id="{section.id}">{section.title}</h2>\n'
            f"{section.content}</section>"
            for section in shown
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Else a browser asks the server, where there is one, for an icon.
        '<link rel="icon" href="data:,">\n'
        f"<title>fastconv {command}{escape(plain(about))}</title>\n"
        f"<style>{_STYLE}{charts.STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def plain(text: str) -> str:
    """Returns text that can be written as UTF-8; names in it are mostly printable already, and what
    is so stays as it is."""
    return "".join(c if c in "\\\n" or c.isprintable() else printable(c) for c in text)


def prose(text: str) -> str:
    """Returns text as HTML."""
    return escape(plain(text))


def named(name: str) -> str:
    """Returns the name of a source as HTML, whose direction of writing stays its own."""
    return f"<bdi>{prose(name)}</bdi>"


def as_list(texts: Iterable[str]) -> str:
    """Returns texts as an HTML list; "" for none."""
    items = "".join(f"<li>{prose(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>\n" if items else ""


def scrolled(table: str, name: str) -> str:
    """Returns a table in a box of its own that scrolls where the page is too narrow."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">'
        f"<table>{table}</table></div>\n"
    )


def panels(drawn: Sequence[tuple[str, str]], note: str, kind: str = "panels") -> str:
    """Returns charts below their titles, beside each other where there is room; "" for none.

    Args:
        drawn: Title, as HTML, and chart of each.
        note: What is said below all of them, as HTML.
        kind: "panels" stand in rows, those that are "flowing" fill columns.
    """
    if not drawn:
        return ""
    figures = "\n".join(
        f"<figure><figcaption>{title}</figcaption>\n{chart}</figure>" for title, chart in drawn
    )
    return f'<div class="{kind}">\n{figures}\n</div>\n<p class="note">{note}</p>\n'
