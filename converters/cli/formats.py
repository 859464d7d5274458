"""`fastconv formats`: the formats that can be read and written."""

from __future__ import annotations

from typing import Any

from fastconv.converters.cli.options import JsonOption, QuietOption
from fastconv.converters.cli.output import aligned, reporting

__all__ = ["command"]


def command(quiet: QuietOption = False, json: JsonOption = False) -> None:
    """List the formats that fastconv reads and writes.

    $ fastconv formats
    """
    with reporting("formats", json=json, quiet=quiet) as out:
        rows = formats()
        out.answer["formats"] = rows
        table = [("name", "format", "endings", "reads", "writes", "installed")]
        for row in rows:
            words = ["yes" if row[key] else "no" for key in ("reads", "writes", "installed")]
            endings = " ".join(row["suffixes"]) or "-"
            table.append((row["name"], row["title"], endings, *words))
        for line in aligned(table):
            out.print(line)
        for row in rows:
            if row["missing"]:
                out.note(row["missing"])


def formats() -> list[dict[str, Any]]:
    """Returns what is known of each format, by name."""
    from fastconv.converters.writer import WRITERS
    from fastconv.loaders.errors import MissingDependencyError
    from fastconv.loaders.reader import READERS

    found: dict[str, dict[str, Any]] = {}
    for registry, side in ((READERS, "reads"), (WRITERS, "writes")):
        for name in registry.names():
            blank = {"name": name, "title": name, "suffixes": [], "reads": False, "writes": False}
            row = found.setdefault(name, blank | {"installed": True, "missing": None})
            row[side] = True
            try:
                kind = registry.load(name)
                row |= {"title": kind.title, "suffixes": list(kind.suffixes)}
            except MissingDependencyError as error:
                row |= {"installed": False, "missing": str(error)}
    return [found[name] for name in sorted(found)]
