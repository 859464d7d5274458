"""The command line: `fastconv pack`, `unpack`, `verify` and the others, one module each.

Nothing heavy is imported before a command runs, so that `--help` and completion are quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

import click
from click.exceptions import Exit

from fastconv import __version__
from fastconv.converters.cli.output import (
    Out,
    ReaderGoneError,
    forget_stdout,
    lost,
    prepare_streams,
)
from fastconv.converters.cli.parameters import Group, Option, command_of

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


COMPLETE = "_FASTCONV_COMPLETE"
"""The environment variable with which a shell asks what may come next."""

HELP = """Pack folders of images into LMDB, WebDataset, HDF5, Parquet, TFRecord or RecordIO.

$ fastconv pack images/ out.lmdb
"""


def print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Prints the version and ends the command line."""
    if wanted:
        click.echo(f"fastconv {__version__}")
        ctx.exit()


def print_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    """Prints what lets a shell complete commands and options, and ends the command line."""
    if shell is not None:
        from click.shell_completion import get_completion_class

        kind = get_completion_class(shell)
        assert kind is not None, shell
        click.echo(kind(ctx.command, {}, "fastconv", COMPLETE).source())
        ctx.exit()


def command_line(names: Iterable[str] = COMMANDS) -> Group:
    """Returns the command line, with these commands alone: the others take long to load."""
    version = Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=print_version,
        help="Print the version and exit.",
    )
    completion = Option(
        ["--completion"],
        type=click.Choice(["bash", "zsh", "fish"]),
        is_eager=True,
        expose_value=False,
        callback=print_completion,
        help="Print what lets this shell complete commands and options, and exit.",
    )
    line = Group(
        "fastconv",
        help=HELP,
        params=[version, completion],
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for name in names:
        function = import_module(f"{__name__}.{name}").command
        line.add_command(command_of(name, function, COMMANDS[name]))
    return line


def run(arguments: list[str]) -> int:
    """Runs a command line, and returns its exit code.

    Raises:
        click.ClickException: It is wrong.
    """
    first = arguments[0]
    line = command_line([first] if first in COMMANDS else COMMANDS)
    if COMPLETE in os.environ:
        line.main(arguments, "fastconv")
    try:
        with line.make_context("fastconv", arguments) as ctx:
            line.invoke(ctx)
    except Exit as ended:
        return ended.exit_code
    return 0


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
            out.code = run(arguments or ["--help"])
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
