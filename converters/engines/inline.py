"""Runs tasks in threads of this process: for work that is done before a worker process would have
started.

Packing spends most of its time in calls of the system and in hashing, which let go of Python's
lock, so two threads take about four fifths of the time of one.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Self

from fastconv.converters.engines.local import END_S, WATCH_S, Answer, Task, raise_error
from fastconv.converters.system import ENDING
from fastconv.converters.worker import answer

__all__ = ["InlineEngine"]

MOST_THREADS = 2


class InlineEngine:
    """A few threads, which are started when there is something to do.

    Args:
        cores: Processors that may be used.
    """

    lock: str | None = None

    def __init__(self, cores: int = MOST_THREADS) -> None:
        self.most = min(cores, MOST_THREADS)
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads, after what they are doing."""
        self._closing.set()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(END_S)  # one that waits for a dead disk is left to its fate

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """Yields the answers as they come. A few tasks are taken ahead, no more.

        Raises:
            FastconvError: Something that is to be told in its own words.
            OSError: The system refused something.
        """
        waiting, source = 0, iter(tasks)
        while True:
            while waiting < 2 * self.most and (task := next(source, None)) is not None:
                if len(self._threads) < min(self.most, waiting + 1):
                    thread = threading.Thread(target=self._serve, daemon=True)
                    thread.start()
                    self._threads.append(thread)
                self._tasks.put(task)
                waiting += 1
            if not waiting:
                return
            try:  # a signal that comes just before this waits is seen after it
                found = self._answers.get(timeout=WATCH_S)
            except queue.Empty:
                continue
            waiting -= 1
            if isinstance(found, BaseException):
                raise found
            raise_error(found.content)
            yield found

    def _serve(self) -> None:
        # Else the system may give a Ctrl-C to this thread, and the one that waits goes on waiting.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            while (task := self._tasks.get()) is not None and not self._closing.is_set():
                self._answers.put(Answer(task.number, *answer(task.content, task.arrays)))
        except BaseException as error:
            self._answers.put(error)
