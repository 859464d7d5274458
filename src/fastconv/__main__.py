"""The command `fastconv`, and `python -m fastconv`."""

from __future__ import annotations

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
        print(f"fastconv {__version__}")
        return 0
    try:
        from fastconv.converters.cli import main as run

        return run(arguments)
    except KeyboardInterrupt:  # before the command line could say it better
        return 130


if __name__ == "__main__":
    sys.exit(main())
