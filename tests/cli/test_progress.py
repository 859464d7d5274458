"""Progress on stderr: lines in a log, a bar on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator

import pytest

from fastconv.converters.cli.progress import LogLines, showing
from fastconv.converters.report import Progress


def steps(count: int) -> Iterator[Progress]:
    for number in range(1, count + 1):
        yield Progress(100 * number, 100 * count, 10**6 * number, 10**6 * count)


def test_a_log_gets_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.0, 9.9, 12.0, 21.9, 22.0])
    show = LogLines(clock=lambda: next(times))
    for progress in steps(5):
        show(progress)
    assert capsys.readouterr().err.splitlines() == [
        "300 of 500 files, 3.00 MB of 5.00 MB, 25 files/s, 250 kB/s, 8 s left",
        "500 of 500 files, 5.00 MB of 5.00 MB, 23 files/s, 227 kB/s, 0 s left",
    ]


def test_where_stderr_is_no_terminal_a_quick_run_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with showing(quiet=False) as show:
        assert show is not None
        for progress in steps(3):
            show(progress)
    with showing(quiet=True) as show:
        assert show is None
    assert capsys.readouterr() == ("", "")


def all_of(terminal: int) -> str:
    """Returns what was written to a terminal whose other end is closed: it may come in pieces."""
    pieces = []
    try:
        while piece := os.read(terminal, 1 << 16):
            pieces.append(piece)
    except OSError:  # Linux says so at the end
        pass
    os.close(terminal)
    return b"".join(pieces).decode()


@pytest.mark.parametrize("columns", [100, 0])
def test_a_terminal_gets_a_bar_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(
        theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0)
    )
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with showing(quiet=False) as show:
            assert show is not None
            for progress in steps(3):
                show(progress)
            show(Progress(10, 290, 10, 290))  # a second pass, without what was bad
    written = all_of(ours)
    assert "0 of 300 files" in written
    assert "files/s" in written
    assert "/s, " in written
    assert " left" in written
    assert "of 290 files" in written
    assert written.endswith("\r")
    assert written.split("\r")[-2].strip() == ""
    assert "\x1b[3" not in written  # no colour
