"""The command line: `fastconv pack`, `unpack`, `verify` and the others, one module each.

Nothing heavy is imported before a command runs, so that `--help` and completion are quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from fastconv import __version__
from fastconv.converters.cli.output import (
    Out,
    ReaderGoneError,
    forget_stdout,
    lost,
    prepare_streams,
)

__all__ = ["COMMANDS", "command_line", "main"]

PACKING, READING, MEASURING = "Make a pack, and go back", "Look", "Measure"
COMMANDS = {
    "pack": PACKING,
    "convert": PACKING,
    "merge": PACKING,
    "unpack": PACKING,
    "verify": PACKING,
    "repair": PACKING,
    "index": PACKING,
    "info": READING,
    "ls": READING,
    "scan": READING,
    "stats": READING,
    "formats": READING,
    "doctor": READING,
    "bench": MEASURING,
    "tune": MEASURING,
}
"""The commands in the order of `--help`, each with its panel; each is its module's `command`."""


def print_version(wanted: bool) -> None:
    """Prints the version and ends the command line."""
    if wanted:
        print(f"fastconv {__version__}")
        raise typer.Exit


def fastconv(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Pack folders of images into LMDB, WebDataset, HDF5, Parquet, TFRecord or RecordIO.

    $ fastconv pack images/ out.lmdb
    """


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Returns the command line, with these commands alone: the others take long to load."""
    app = typer.Typer(
        name="fastconv",
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(fastconv)
    for name in names:
        command = import_module(f"{__name__}.{name}").command
        app.command(name, rich_help_panel=COMMANDS[name])(command)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code of one command line.

    Args:
        argv: The arguments after the command's name; those of this process by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    # numpy's linear algebra is not used here, and starting its threads takes a third of a short
    # run.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    command = next((word for word in arguments if not word.startswith("-")), "")
    out = Out(command, json="--json" in arguments)
    try:
        try:
            names = [command] if command in COMMANDS and command == arguments[0] else COMMANDS
            code = get_command(command_line(names)).main(
                arguments or ["--help"], prog_name="fastconv", standalone_mode=False
            )
            out.code = code if isinstance(code, int) else 0
            out.finish(with_answer=False)
        except ReaderGoneError:
            raise
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):  # who reads the help went away
                raise ReaderGoneError from error
            out.code = error.code if isinstance(error.code, int) else 1  # completion ends like this
        except (Exception, KeyboardInterrupt) as error:
            # Commands tell of what they cannot write; here it is the help, which is no file.
            if isinstance(error, OSError) and error.errno and error.filename is None:
                unwritten = lost(error)
                if isinstance(unwritten, ReaderGoneError):
                    raise unwritten from error
                out.fail(unwritten)
            else:
                out.fail(error)
    except ReaderGoneError:
        forget_stdout()
    return out.code
