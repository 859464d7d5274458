"""Runs tasks in this process: for work that is done before a worker process would have started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from fastconv.converters.engines.local import Answer, Task, raise_error
from fastconv.converters.worker import answer

__all__ = ["InlineEngine"]


class InlineEngine:
    """Does each task when its answer is asked for."""

    lock: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """Yields the answers in the order of the tasks.

        Raises:
            FastconvError: Something that is to be told in its own words.
            OSError: The system refused something.
        """
        for task in tasks:
            content, arrays = answer(task.content, task.arrays)
            raise_error(content)
            yield Answer(task.number, content, arrays)

    def close(self) -> None:
        """Does nothing: there are no processes."""
