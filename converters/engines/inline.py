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

from fastconv.converters.engines.local import Answer, Task, raise_error
from fastconv.converters.system import ENDING
from fastconv.converters.worker import answer

__all__ = ["InlineEngine"]

MOST_THREADS = 2


class InlineEngine:
    """A few threads, which are there while tasks run.

    Args:
        cores: Processors that may be used.
    """

    lock: str | None = None

    def __init__(self, cores: int = MOST_THREADS) -> None:
        self.threads = min(cores, MOST_THREADS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """Yields the answers as they come. A few tasks are taken ahead, no more.

        Raises:
            FastconvError: Something that is to be told in its own words.
            OSError: The system refused something.
        """
        given: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        ended = threading.Event()

        def serve() -> None:
            # Else the system might wake this thread by a Ctrl-C, and not the one that waits.
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                while (task := given.get()) is not None and not ended.is_set():
                    answers.put(Answer(task.number, *answer(task.content, task.arrays)))
            except BaseException as error:
                answers.put(error)

        threads: list[threading.Thread] = []
        waiting, source = 0, iter(tasks)
        try:
            while True:
                while waiting < 2 * self.threads and (task := next(source, None)) is not None:
                    if len(threads) < min(self.threads, waiting + 1):
                        threads.append(threading.Thread(target=serve, daemon=True))
                        threads[-1].start()
                    given.put(task)
                    waiting += 1
                if not waiting:
                    return
                found = answers.get()
                waiting -= 1
                if isinstance(found, BaseException):
                    raise found
                raise_error(found.content)
                yield found
        finally:
            ended.set()
            for _ in threads:
                given.put(None)
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """Does nothing: the threads end with their tasks."""
