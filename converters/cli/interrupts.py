"""What ends a command from outside: Ctrl-C, and the signals of those who manage processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["interruptible", "signal_of"]

USUAL = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""The signals, each with what Python does at it; another handler, as `nohup` sets one, stays."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets these signals end the block by a KeyboardInterrupt that has the signal's number.

    It cleans up then, and further ones are ignored, also afterwards: the process is about to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[signal.Signals, Any] = {}

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in handlers:
            signal.signal(each, signal.SIG_IGN)
        handlers.clear()
        raise KeyboardInterrupt(number)

    for number, handler in USUAL.items():
        if signal.getsignal(number) == handler:
            handlers[number] = handler
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Returns the signal that an interrupt came from."""
    return signal.Signals(error.args[0]) if error.args else signal.SIGINT
