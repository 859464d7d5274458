"""What ends a command from outside: Ctrl-C, and the signals of those who manage processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "interruptible", "signal_of"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_S = 0.5
"""How often an interrupt is raised again until it arrives."""


class Interrupted(KeyboardInterrupt):
    """A signal asks the command to end.

    It is no plain KeyboardInterrupt: Python notes when one of these passes through an `exec`, which
    is how classes are made on import, and kills itself by SIGINT at its end whatever the exit code.
    It is one of them nevertheless, because that is what libraries know.

    Args:
        number: Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Lets signals that ask to end the block raise Interrupted in it.

    Code that is interrupted may lose the exception, as imports by C code do, or make another one of
    it. So it is raised again every now and then until the block ends, and by nothing else can a
    block end in which a signal came. While the exception is on its way, clean-up runs, which
    further signals do not stop; after the block they are ignored, as the process is about to end.

    Signals that are ignored, as `nohup` has it, stay so.

    Returns:
        What raises Interrupted if it was lost, for the end of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers: dict[signal.Signals, Any] = {}
    came: list[int] = []  # the signals, the one that counts first
    process, over = os.getpid(), False

    def check() -> None:
        if came:
            raise Interrupted(came[0])

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a worker that was forked
            raise Interrupted(number)
        came.append(number)
        if len(came) == 1 and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
            # By the same signal, so that it waits wherever that has to wait.
            signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(came[0]))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
            handlers[signal.SIGALRM] = signal.SIG_DFL
        if not over and not on_its_way():
            check()

    def settle() -> None:
        nonlocal over
        over = True
        if signal.SIGALRM in handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if came and callable(signal.getsignal(signal.SIGCHLD)):
            # torch's: it raises an error when loaders' workers die, as they do now.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_IGN if came else handler)

    hook = sys.unraisablehook

    def unraised(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, Interrupted):  # which comes again
            hook(lost)

    sys.unraisablehook = unraised
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_IGN, None):  # None: not set by Python, so it cannot be reset
            handlers[number] = handler
            signal.signal(number, interrupt)
    try:
        yield check
    except (Exception, KeyboardInterrupt):
        settle()
        check()
        raise
    finally:
        settle()
        sys.unraisablehook = hook


def on_its_way() -> bool:
    """Returns whether the code that runs cleans up after an Interrupted."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Returns the signal that an interrupt came from."""
    return signal.Signals(error.number) if isinstance(error, Interrupted) else signal.SIGINT
