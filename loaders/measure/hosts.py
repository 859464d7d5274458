"""Processes that measure, one for each source, so that none holds what another one opened.

A host imports what it needs once, measures what it is asked to, one thing at a time, and ends with
the process that started it, whatever becomes of that.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import psutil

from fastconv.loaders.errors import FastconvError, printable
from fastconv.loaders.measure.usage import tree

__all__ = ["Host"]

PATIENCE_S = 5.0
"""How long a process may take to end by itself, which leaves nothing behind."""


class Host:
    """A process that calls functions for this one.

    Args:
        module: Name of the module whose functions it calls.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: Any = None
        self._connection: Connection | None = None

    def call(self, function: str, *arguments: Any) -> Any:
        """Returns what a function of the module returns.

        Raises:
            FastconvError: It failed, or the process has ended.
        """
        if self._connection is None:
            self._start()
        connection = self._connection
        assert connection is not None
        try:
            connection.send((function, arguments))
            went_well, answer = connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            more = ": probably out of memory" if code == -signal.SIGKILL else ""
            raise FastconvError(f"the process that measures ended with {why}{more}") from None
        if not went_well:
            raise FastconvError(answer)
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._module))
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """Ends the process and all that it has started."""
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        self._process.terminate()
        self._process.join(PATIENCE_S)
        if self._process.is_alive():
            for process in (*tree(self._process.pid)[1:], self._process):
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            self._process.join()


def serve(connection: Connection, module: str) -> None:
    """Calls functions for the process at the other end, until that closes it."""
    # Ctrl-C is for the process that shows what is done; that one ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    # torch's own, of more workers than cores: whoever measures says so himself.
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    functions: Any = None
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, OSError):
            break
        try:
            functions = functions or import_module(module)
            function: Callable[..., Any] = getattr(functions, name)
            answer = True, function(*arguments)
        except FastconvError as error:
            answer = False, str(error)
        except Exception as error:
            words = " ".join(str(error).split()) or "no message"
            answer = False, printable(f"{type(error).__name__}: {words}")
        connection.send(answer)
