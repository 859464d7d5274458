"""HTML reports of commands, in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from fastconv.loaders.errors import FastconvError, UsageError, printable

__all__ = ["check_report", "write_report"]

REPORT_HEAD = 4096
"""Bytes of a report that have its title in them."""


def check_report(path: str, command: str, sources: Sequence[str]) -> None:
    """Refuses, before anything is measured, a report that would harm something or cannot be
    written.

    Args:
        path: Of the report.
        command: Which makes it, and may replace an earlier one of its own.
        sources: What it is about.

    Raises:
        UsageError: It belongs to a source, or is a file that is no earlier report.
        FastconvError: Its folder is not there, or cannot be written to.
    """
    name, real = printable(path), os.path.realpath(path)
    for source in sources:
        if Path(real).is_relative_to(os.path.realpath(source)):
            raise UsageError(
                f"--report {name}: is in the source {printable(source)}: choose another file"
            )
    folder = os.path.dirname(real)
    if not os.path.isdir(folder):
        raise FastconvError(f"{printable(folder)}: no such folder: make it first")
    if os.path.exists(real):
        if not os.path.isfile(real):
            raise UsageError(f"--report {name}: is no regular file: choose another one")
        with open(real, "rb") as file:
            head = file.read(REPORT_HEAD)
        if (
            not head.startswith(b"<!DOCTYPE html>")
            or f"<title>fastconv {command}".encode() not in head
        ):
            raise UsageError(
                f"--report {name}: exists, and is no report of fastconv {command}: choose another "
                "file"
            )
    if not all(os.access(place, os.W_OK) for place in (folder, real) if os.path.exists(place)):
        raise FastconvError(f"{name}: the report cannot be written there")


def write_report(path: str, page: str) -> None:
    """Writes a report, or leaves what was there.

    Raises:
        FastconvError: It cannot be written.
    """
    real = os.path.realpath(path)
    made = os.path.join(os.path.dirname(real), f".fastconv-{token_hex(8)}.html")
    try:
        try:
            with open(made, "x", encoding="utf-8") as file:
                file.write(page)
            os.replace(made, real)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(made)
            raise
    except OSError as error:
        raise FastconvError(
            f"{printable(path)}: the report cannot be written: {error.strerror}"
        ) from error
