"""What a command says: lines for people, one JSON object for programs, and how it ends.

    with reporting("info", json=json, quiet=quiet) as out:
        out.answer |= {"samples": 3}  # of the object that --json prints
        out.print("3 samples")        # on stdout, but not with --json
        out.warn("...")               # on stderr

An exception inside becomes one line on stderr, the object's `error`, and the exit code: 0 done,
1 failed, 2 wrong usage, 3 done but something was bad, 128 + N ended by signal N (130: Ctrl-C).
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import dumps
from signal import SIGINT
from typing import IO, Any, Protocol

from click.exceptions import ClickException, Exit

from fastconv.converters.cli.interrupts import interruptible, signal_of
from fastconv.loaders.errors import FastconvError, UsageError, printable
from fastconv.loaders.sample import BadFile

__all__ = [
    "DEBUG",
    "Out",
    "ReaderGoneError",
    "aligned",
    "counted",
    "forget_stdout",
    "lost",
    "one_line",
    "prepare_streams",
    "reporting",
]

DEBUG = "FASTCONV_DEBUG"
"""The environment variable that shows where an error comes from."""

MOST_BAD = 20
"""Bad files named on stderr before the rest is only counted."""


def one_line(text: str) -> str:
    """Returns a text as one line that any terminal can show: everything else in it is escaped."""
    text = re.sub(r"\s*[\r\n\t]\s*", " ", text.rstrip())
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(count: int, what: str) -> str:
    """Returns a number of things in words: `1 class`, `2 classes`."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what}{'es' if what.endswith('s') else 's'}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the rows of a table as lines, their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


class Report(Protocol):
    """What running a command found, for `Out.report`."""

    @property
    def bad(self) -> Sequence[BadFile]: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def notices(self) -> Sequence[str]: ...
    def to_json(self) -> dict[str, Any]: ...


class ReaderGoneError(Exception):
    """Whoever read our stdout has closed it, as `head` does: nobody is left to be told anything."""


class Out:
    """What one command says.

    Attributes:
        command: Its name.
        json: Whether one JSON object is all that goes to stdout.
        quiet: Whether notes, progress and summaries are left out.
        answer: The object. It has the keys that all commands' objects have; add to it.
        code: What the command line ends with.
    """

    def __init__(self, command: str, *, json: bool = False, quiet: bool = False) -> None:
        self.command = command
        self.json = json
        self.quiet = quiet
        self.answer: dict[str, Any] = {
            "status": "done",
            "output": None,
            "format": None,
            "samples": 0,
            "classes": [],
            "bad": [],
            "ignored": {"hidden": 0, "clutter": 0, "extension": {}},
            "warnings": [],
        }
        self.code = 0

    def print(self, line: str = "") -> None:
        """Prints a line for people on stdout; nothing with --json."""
        if not self.json:
            self.write(f"{one_line(line)}\n")

    def summary(self, line: str) -> None:
        """Prints a line as `print` does, but nothing with --quiet."""
        if not self.quiet:
            self.print(line)

    def record(self, entry: Mapping[str, Any]) -> None:
        """Prints a JSON object as a line on stdout, for commands whose output is JSON Lines."""
        self.write(dumps(entry) + "\n")

    def note(self, line: str) -> None:
        """Prints a line on stderr about what is good to know; nothing with --quiet."""
        if not self.quiet:
            say(f"note: {line}")

    def warn(self, line: str) -> None:
        """Prints a line on stderr about what is probably not meant so; keeps it for --json."""
        say(f"warning: {line}")
        if line not in self.answer["warnings"]:
            self.answer["warnings"] = [*self.answer["warnings"], line]

    def bad(self, files: Sequence[BadFile], rest: str = "all with --json") -> None:
        """Names bad inputs on stderr; keeps them for --json; the command ends with 3.

        Args:
            files: The bad files, or records of a pack.
            rest: Where those are that are not named here, as the end of "... and 5 more, ".
        """
        for file in files[:MOST_BAD]:
            say(f"bad: {printable(file.path)}: {file.reason}: {file.message}")
        if len(files) > MOST_BAD:
            say(f"bad: ... and {len(files) - MOST_BAD:,} more, {rest}")
        if files:
            self.answer["bad"] = [file.to_json() for file in files]
            self.answer["status"] = "partial"
            self.code = 3

    def report(self, report: Report, rest: str = "all with --json") -> None:
        """Says what a run reports beside its result: warnings, notices, bad inputs.

        Args:
            report: What `to_json` gives goes into the object.
            rest: As for `bad`.
        """
        self.answer |= report.to_json()
        for line in report.warnings:
            self.warn(line)
        for line in report.notices:
            self.note(line)
        self.bad(report.bad, rest)

    def write(self, text: str) -> None:
        """Writes to stdout.

        Raises:
            ReaderGoneError: Nobody reads it any more.
            FastconvError: It cannot be written.
        """
        try:
            sys.stdout.write(text)
        except OSError as error:
            raise lost(error) from error

    def fail(self, error: BaseException) -> None:
        """Says that the command failed, in one line, and ends what goes to stdout.

        Raises:
            ReaderGoneError: Nobody reads it any more.
        """
        if os.environ.get(DEBUG):
            say_lines(traceback.format_exception(error))
        report: Report | None = getattr(error, "report", None)
        if report is not None:
            self.report(report)
        kind, message, self.code = described(error)
        say(f"error: {message}")
        for note in notes_of(error):
            say(f"note: {note}")
        self.answer |= {"status": "failed", "error": {"type": kind, "message": one_line(message)}}
        try:
            self.finish()
        except FastconvError as unwritten:
            say(f"error: {unwritten}")

    def finish(self, with_answer: bool = True) -> None:
        """Prints the object with --json, and sees to it that all of stdout was written."""
        if self.json and with_answer:
            self.write(dumps({"command": self.command, **self.answer}) + "\n")
        try:
            sys.stdout.flush()
        except OSError as error:
            raise lost(error) from error


@contextmanager
def reporting(
    command: str, *, json: bool = False, quiet: bool = False, lines: bool = False
) -> Iterator[Out]:
    """Gives a command its `Out`, and ends the command line as it went.

    Args:
        command: Its name.
        json: Whether --json was given.
        quiet: Whether --quiet was given.
        lines: With --json it prints JSON Lines (`Out.record`), and no object when all is well.

    Raises:
        Exit: With the exit code, unless it is 0.
    """
    out = Out(command, json=json, quiet=quiet)
    try:
        try:
            with interruptible() as check_interrupts:
                yield out
                check_interrupts()
                out.finish(with_answer=not lines)
        except (ReaderGoneError, Exit):
            raise
        except (Exception, KeyboardInterrupt) as error:
            out.fail(error)
    except ReaderGoneError:
        forget_stdout()
    if out.code:
        raise Exit(out.code)


def notes_of(error: BaseException) -> list[str]:
    """Returns what was noted on an error and on those that it comes from."""
    notes: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        notes += getattr(cause, "__notes__", ())
        cause = cause.__cause__ or cause.__context__
    return notes


def described(error: BaseException) -> tuple[str, str, int]:
    """Returns an error's type and message for people and programs, and the exit code it means."""
    kind, message = type(error).__name__, str(error)
    if isinstance(error, ClickException):
        return "UsageError", error.format_message(), 2
    if isinstance(error, FastconvError):
        return kind, message, 2 if isinstance(error, UsageError) else 1
    if isinstance(error, KeyboardInterrupt):
        number = signal_of(error)
        words = "interrupted" if number == SIGINT else f"ended by {number.name}"
        return KeyboardInterrupt.__name__, words, 128 + number
    if isinstance(error, MemoryError):
        return kind, "out of memory: use fewer --workers, or a machine with more", 1
    if isinstance(error, OSError) and error.strerror:
        place = f"{printable(os.fsdecode(error.filename))}: " if error.filename else ""
        return kind, f"{place}{error.strerror}", 1
    last = message.strip().rpartition("\n")[2] or "no message"
    return kind, f"internal error: {kind}: {last} (set {DEBUG}=1 to see where)", 1


def say(line: str) -> None:
    """Prints a line on stderr; where that cannot be written, there is nobody to tell."""
    say_lines([f"{one_line(line)}\n"])


def say_lines(lines: Sequence[str]) -> None:
    """Prints lines on stderr as they are."""
    try:
        sys.stderr.writelines(lines)
        sys.stderr.flush()
    except OSError:
        pass


def lost(error: OSError) -> Exception:
    """Returns what it means that stdout could not be written."""
    if isinstance(error, BrokenPipeError):
        return ReaderGoneError()
    forget_stdout()
    return FastconvError(f"stdout: cannot be written: {error.strerror}")


def forget_stdout() -> None:
    """Lets what is still to be written to stdout go nowhere: Python writes it when it ends."""
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, place)
    os.close(nowhere)


def prepare_streams() -> None:
    """Makes stdin, stdout and stderr safe to use.

    Where one is closed, the next file to be opened would take its number, and a pack's data file
    would get what some library prints. In locales without UTF-8, what cannot be shown is escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It takes the lowest free number, this one, and workers need it as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        stream: IO[str] | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
