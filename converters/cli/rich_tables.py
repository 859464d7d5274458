"""Tables on the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

from fastconv.converters.cli.output import Out, one_line

__all__ = ["print_table"]

LOG_WIDTH = 160
"""Columns of a table that goes to a file or another program."""


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], out: Out
) -> None:
    """Prints a table; the first column names the rows, the others are numbers."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(one_line(title), style="bold"), title_justify="left", box=SIMPLE)
    for number, name in enumerate(columns):
        # A cell that does not fit is continued below, never cut off.
        table.add_column(
            Text(one_line(name)), justify="right" if number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    text = io.StringIO()
    terminal = sys.stdout.isatty()
    console = Console(file=text, force_terminal=terminal, width=None if terminal else LOG_WIDTH)
    console.print(table)
    out.write(text.getvalue())
