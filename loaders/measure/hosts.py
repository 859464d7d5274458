"""Processes that measure, one for each source, so that none holds what another one opened.

A host imports what it needs once, measures what it is asked to, one thing at a time, and ends with
the process that started it, whatever becomes of that.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from importlib import import_module
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import SemLock
from types import FrameType
from typing import Any

import psutil

from fastconv.loaders.errors import FastconvError, printable
from fastconv.loaders.measure.usage import tree

__all__ = ["Host"]

PATIENCE_S = 5.0
"""How long a process may take to end by itself, which leaves nothing behind."""

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that may go to all processes of a command. What they mean is for the first one to say."""


class Host:
    """A process that calls functions for this one.

    Args:
        module: Name of the module whose functions it calls.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: Any = None
        self._connection: Connection | None = None
        self._folder = ""

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
        resource_tracker.ensure_running()  # would let signals through when it is started below
        connection, theirs = context.Pipe()
        self._folder = tempfile.mkdtemp(prefix="fastconv-")
        process = context.Process(
            target=serve,
            args=(theirs, self._module, multiprocessing.get_start_method(), self._folder),
        )
        with held():  # it inherits this: a signal must not meet a Python that starts
            process.start()
            self._process, self._connection = process, connection
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
            kill([*tree(self._process.pid)[1:], self._process])
            self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def held() -> Iterator[None]:
    """Lets signals that ask to end wait until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill(processes: list[psutil.Process]) -> None:
    """Kills processes, some of which may have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def serve(connection: Connection, module: str, start_method: str, folder: str) -> None:
    """Calls functions for the process at the other end, until that closes it.

    Args:
        connection: To the other end.
        module: Where the functions are.
        start_method: How a DataLoader's workers are started where nobody says how.
        folder: For what it and those that it starts put into a temporary folder.
    """
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    # Else it would be the folder of whoever started this process, if that has made one.
    vars(multiprocessing.current_process())["_config"].pop("tempdir", None)
    multiprocessing.set_start_method(start_method, force=True)  # or it would be this process's own
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    threading.Thread(target=end_with_parent, args=(threading.get_ident(),), daemon=True).start()
    # What cannot be decoded is counted, not told one by one.
    logging.getLogger("fastconv.loaders").setLevel(logging.ERROR)
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
            text = str(error).strip()
            if "Traceback (most" in text:  # torch's, of an error in a worker
                text = text.splitlines()[-1]
            words = " ".join(text.split()) or "no message"
            answer = False, printable(f"{type(error).__name__}: {words}")
        try:
            connection.send(answer)
        except OSError:  # nobody waits for it any more
            break


def end(number: int, frame: FrameType | None) -> None:
    """Ends this process and all that it has started, silently, whatever it is doing."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's would tell that workers are killed
    with suppress(Exception):
        workers = tree()[1:]
        kill(workers)
        # What is left of a process: names of semaphores, of which else another one complains,
        # temporary folders, and memory that torch shares under the process's number.
        for finalizer in list(vars(util)["_finalizer_registry"].values()):
            if finalizer._callback is vars(SemLock)["_cleanup"].__func__:
                finalizer()
        shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
        for process in workers:
            for name in glob(f"/dev/shm/torch_{process.pid}_*"):
                os.unlink(name)
    os._exit(128 + number)


def end_with_parent(main: int) -> None:
    """Ends this process when the one that started it has ended.

    Args:
        main: Which thread is the main one.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(PATIENCE_S)  # the main thread may be deep in a library
    kill(tree()[1:])
    os._exit(1)
