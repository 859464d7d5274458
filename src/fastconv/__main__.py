"""The command `fastconv`, and `python -m fastconv`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from fastconv import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code of one command line.

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
    try:
        from fastconv.converters.cli import main as run

        code = run(arguments)
        # All is done and said: what comes while Python ends changes nothing.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:  # before the command line could say it better
        return 130


if __name__ == "__main__":
    sys.exit(main())
