"""`fastconv info`: what is in a pack."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from fastconv.converters.cli import options
from fastconv.converters.cli.output import Out, aligned, counted, reporting
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import printable

if TYPE_CHECKING:
    from fastconv.converters.summary import PackSummary

__all__ = ["command"]

MOST_CLASSES = 8
"""Classes named to people; --json has them all."""


def command(
    pack: options.PackArgument,
    format: options.ReadFormatOption = None,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Show what is in a pack: format, id, samples, classes, fields, bytes, image sizes, settings.

    $ fastconv info out.lmdb
    """
    with reporting("info", json=json, quiet=quiet) as out:
        from fastconv.converters.summary import summarize_pack
        from fastconv.loaders.open import open_pack
        from fastconv.loaders.reader import Wanted

        reader = open_pack(pack, format, Wanted((), image_key, label_key))
        summary = summarize_pack(reader)
        out.report(summary)
        show(summary, type(reader).title, out)


def show(summary: PackSummary, title: str, out: Out) -> None:
    """Prints a summary for people."""
    from fastconv.loaders.kinds import FORMAT_NAMES

    rows = [("pack", printable(summary.pack)), ("format", title)]
    if summary.id:
        rows.append(("id", summary.id))
    rows.append(("samples", f"{summary.samples:,}"))
    rows.append(("labels", labels_text(summary)))
    if summary.classes:
        first = [
            f"{printable(name)} ({summary.class_counts.get(name, 0):,})"
            for name in summary.classes[:MOST_CLASSES]
        ]
        more = len(summary.classes) - len(first)
        rest = f", ... and {more:,} more" if more else ""
        rows.append(("classes", f"{len(summary.classes):,}: {', '.join(first)}{rest}"))
    for name, one in summary.fields.items():
        rows.append(
            (
                f"field {printable(name)}",
                f"{counted(one.samples, 'sample')}, {size_text(one.bytes)}",
            )
        )
    kinds = [f"{FORMAT_NAMES[kind]} {count:,}" for kind, count in summary.formats.items()]
    rows.append(("images", ", ".join(kinds) or "none"))
    for name, numbers in (("width", summary.width), ("height", summary.height)):
        if numbers is not None:
            rows.append(
                (name, f"{numbers.min:,} to {numbers.max:,}, median {numbers.median:,} pixels")
            )
    rows.append(("bytes", f"{size_text(summary.bytes)} ({summary.bytes:,})"))
    rows.append(("on disk", f"{size_text(summary.size)} ({summary.size:,})"))
    if len(summary.shards) > 1:
        sizes = [shard.size for shard in summary.shards]
        counts = [shard.samples for shard in summary.shards]
        rows.append(
            (
                "shards",
                f"{len(sizes):,} of {size_text(min(sizes))} to {size_text(max(sizes))}, "
                f"{min(counts):,} to {max(counts):,} samples",
            )
        )
    for name, about in (("settings", summary.settings), ("encoded anew", summary.encoding)):
        if about:
            rows.append((name, json_module.dumps(about)))
    for line in aligned(rows):
        out.print(line)


def labels_text(summary: PackSummary) -> str:
    """Returns what the labels are."""
    words = {"class": "class ids", "int": "integers", "none": "none"}[summary.labels]
    if summary.unlabelled and summary.labels != "none":
        words += f", {counted(summary.unlabelled, 'sample')} without one"
    return words
