"""The command `fastconv`, and `python -m fastconv`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from fastconv import __version__

__all__ = ["main"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(number: int, frame: FrameType | None) -> None:
    """Ends the process by a signal at once. Nothing has begun yet that would need cleaning up."""
    name = signal.Signals(number).name
    words = "interrupted" if number == signal.SIGINT else f"ended by {name}"
    try:
        os.write(2, f"error: {words}\n".encode())
    finally:
        os._exit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code of one command line; a command that a signal ended ends the process.

    Args:
        argv: The arguments after the command's name; those of this process by default.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["--version"]:
        # Answered here, because scripts ask often and the command line takes much longer to load.
        try:
            os.write(1, f"fastconv {__version__}\n".encode())
            return 0
        except OSError:  # the command line says it as it does for all commands
            pass
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, end)
    from fastconv.converters.cli import main as run

    code = run(arguments)
    # All is done and said: what comes while Python ends changes nothing.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    if code > 128:
        # At once, as libraries that were interrupted anywhere may not end well by themselves. What
        # goes to stdout and stderr has been written.
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
