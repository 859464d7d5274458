"""Runs tasks in threads of this process: for work that is done before a worker process would have
started.

Packing spends most of its time in calls of the system and in hashing, which let go of Python's
lock, so two threads take about four fifths of the time of one.
"""

from __future__ import annotations

from fastconv.converters.engines.local import Answer, ThreadedEngine
from fastconv.converters.worker import answer

__all__ = ["InlineEngine"]

MOST_THREADS = 2


class InlineEngine(ThreadedEngine):
    """A few threads, which work themselves.

    Args:
        cores: Processors that may be used.
    """

    def __init__(self, cores: int = MOST_THREADS) -> None:
        super().__init__(min(cores, MOST_THREADS))

    def _serve(self) -> None:
        try:
            while (task := self._tasks.get()) is not None and not self._closing.is_set():
                self._answers.put(Answer(task.number, *answer(task.content, task.arrays)))
        except BaseException as error:
            self._answers.put(error)
