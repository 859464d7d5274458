"""Tasks in threads of this process: all are done, and nothing stays behind however it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastconv.converters import worker
from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.engines.local import Task
from fastconv.converters.system import ENDING

Run = Callable[[Any, Any], tuple[dict[str, Any], dict[str, Any]]]


def tasks(count: int, run: str = "do") -> Iterator[Task]:
    for number in range(count):
        yield Task(number, {"run": run, "number": number}, {}, lambda: "a task")


@pytest.fixture
def do(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Run], None]]:
    """Gives what says how a task is done; sees to it that all threads end."""
    before = threading.active_count()
    yield lambda run: monkeypatch.setitem(worker.TASKS, "do", run)
    assert threading.active_count() == before


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_each_task_is_done_once(do: Callable[[Run], None], cores: int) -> None:
    threads = set()

    def run(content: Any, arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        threads.add(threading.get_ident())
        return {"twice": 2 * content["number"]}, {}

    do(run)
    with InlineEngine(cores) as engine:
        found = {one.number: one.content["twice"] for one in engine.run(tasks(100))}
        assert [*engine.run(tasks(0))] == []
    assert found == {number: 2 * number for number in range(100)}
    assert threading.get_ident() not in threads
    assert len(threads) <= min(cores, 2)


def test_two_are_done_at_once(do: Callable[[Run], None]) -> None:
    met = threading.Barrier(2, timeout=60)

    def run(content: Any, arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        met.wait()
        return {}, {}

    do(run)
    with InlineEngine() as engine:
        assert len([*engine.run(tasks(20))]) == 20


def test_few_are_taken_ahead(do: Callable[[Run], None]) -> None:
    do(lambda content, arrays: ({}, {}))
    given: list[int] = []

    def watched() -> Iterator[Task]:
        for one in tasks(100):
            given.append(one.number)
            yield one

    with InlineEngine() as engine:
        for number, _ in enumerate(engine.run(watched()), 1):
            assert len(given) <= number + 4


def test_what_is_wrong_with_one_ends_it(do: Callable[[Run], None]) -> None:
    def run(content: Any, arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if content["number"] == 30:
            raise OSError(28, "No space left on device", "/somewhere")
        return {}, {}

    do(run)
    with pytest.raises(OSError, match="No space left") as caught, InlineEngine() as engine:
        list(engine.run(tasks(1000)))
    assert caught.value.filename == "/somewhere"


def test_whoever_has_enough_ends_it(do: Callable[[Run], None]) -> None:
    done = []

    def run(content: Any, arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        done.append(content["number"])
        return {}, {}

    do(run)
    with InlineEngine() as engine:
        next(iter(engine.run(tasks(10**9))))
    assert len(done) <= 6


def test_an_interrupt_meets_who_waits(do: Callable[[Run], None]) -> None:
    release = threading.Event()
    masks = []

    def run(content: Any, arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if content["number"] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        release.wait(20)
        return {}, {}

    def end(*_: object) -> None:
        release.set()
        raise KeyboardInterrupt

    do(run)
    before = signal.signal(signal.SIGINT, end)
    try:
        with pytest.raises(KeyboardInterrupt), InlineEngine(1) as engine:
            list(engine.run(tasks(10)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(mask >= {*ENDING} for mask in masks)
