"""What `--help` shows: what a command does, and its parameters in panels."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fastconv.converters.cli.parameters import ARGUMENTS, OPTIONS

__all__ = ["page"]


def page(command: click.Command, ctx: click.Context) -> str:
    """Returns the help of a command, as wide as the terminal, and in colour where it has some."""
    usage = Text.assemble(("Usage: ", "yellow"), (ctx.command_path, "bold"))
    usage.append(" ".join(["", *command.collect_usage_pieces(ctx)]))
    tables: dict[str, Table] = {}
    for panel, name, words in sorted(rows(command, ctx), key=order):
        table = tables.setdefault(panel, Table.grid(padding=(0, 2, 0, 0)))
        table.add_row(Text(name, "cyan", overflow="fold"), Text(words))
    console = Console()
    with console.capture() as captured:
        console.print(
            Padding(usage, 1), Padding(Text((command.help or "").rstrip()), (0, 1, 1, 1)), sep="\n"
        )
        for panel, table in tables.items():
            console.print(Panel(table, title=panel, title_align="left", border_style="dim"))
    return captured.get()


def order(row: tuple[str, str, str]) -> int:
    """Arguments come first, then what belongs nowhere else; the others stay as they are."""
    return [ARGUMENTS, OPTIONS, row[0]].index(row[0])


def rows(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str, str]]:
    """Yields the panel, the name and the help of each parameter and each command below."""
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            yield getattr(parameter, "panel", OPTIONS), *record
    for name, below in getattr(command, "commands", {}).items():
        yield below.panel, name, " ".join((below.help or "").partition("\n\n")[0].split())
