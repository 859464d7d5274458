"""Runs tasks on this machine, in threads: those of `LocalEngine` have a worker process each.

Workers are plain `python -c` processes on pipes, so they work when the caller's script has no
`if __name__ == "__main__"` guard, and nothing of the caller is forked or pickled. A thread serves
each: it starts the process, sends it one task after the other, and starts another one when it dies.
The next task is sent while the answer to the last one is still read by the caller, never while the
worker works, so neither pipe can fill up.

A worker that hangs, on a network file system that does not answer or because somebody stopped it,
is ended when the system has counted no work of it for some minutes (on Linux).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from fastconv.converters.system import ENDING
from fastconv.converters.worker import receive, send
from fastconv.loaders.arrays import Array
from fastconv.loaders.errors import FastconvError

__all__ = ["Answer", "LocalEngine", "Task", "ThreadedEngine"]

READY = 4
"""Workers that are started before there is anything to do; the others follow when there is."""
TRIES = 3
"""How often a task is given to a worker before its death is taken for the task's fault."""

HANG_S = 300.0
"""Seconds in which a worker that has a task did nothing at all: it hangs."""
END_S = 5.0
"""Seconds that a process or thread may take to end: one that waits for a dead disk never ends."""
WATCH_S = 1.0
"""Seconds between two looks at the workers."""

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastconv.converters.worker import main; main()"
)


class Task(NamedTuple):
    """What a worker is to do.

    Attributes:
        number: The caller's own.
        content: JSON object; `run` names the function.
        arrays: Its arrays.
        about: What to call it when its worker dies: the files it is on.
    """

    number: int
    content: Mapping[str, Any]
    arrays: Mapping[str, Array]
    about: Callable[[], str]


class Answer(NamedTuple):
    """What a worker found."""

    number: int
    content: dict[str, Any]
    arrays: dict[str, Array]


class WorkerDied(Exception):
    """The process ended without an answer."""


class Worker:
    """One process.

    Attributes:
        task: What it works on.
        seen: What the system had counted of its work, and when that was first so.
        hangs: It was ended because it did nothing.
    """

    def __init__(self) -> None:
        self.task: Task | None = None
        self.seen: tuple[object, float] = (None, 0.0)
        self.hangs = False
        command = [sys.executable, "-S", "-E", "-c", START, json.dumps(sys.path)]
        # numpy's linear algebra is not used here; starting its threads takes longer than all the
        # rest.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(
        self, content: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns the answer to a task.

        Raises:
            WorkerDied: There is none.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            send(self.process.stdin, content, arrays)  # type: ignore[arg-type]
            message = receive(self.process.stdout)  # type: ignore[arg-type]
        except OSError:
            message = None
        if message is None:
            raise WorkerDied
        return message

    def last_words(self) -> str:
        """Returns how the process ended."""
        code = self.process.wait()
        if self.hangs:
            return f"it did nothing for {HANG_S:.0f} s and was ended"
        if code < 0:
            name = signal.Signals(-code).name
            return f"signal {-code} ({name})" + (
                ", maybe for want of memory" if name == "SIGKILL" else ""
            )
        return f"exit code {code}"

    def watch(self) -> None:
        """Ends the process if it hangs.

        Raises:
            FastconvError: It hangs and cannot be ended.
        """
        task, work, now = self.task, work_of(self.process.pid), time.monotonic()
        if task is None or work is None or self.seen[0] != (task.number, work):
            self.seen = task and (task.number, work), now
            return
        waited = now - self.seen[1]
        if waited > HANG_S:
            self.hangs = True
            self.process.kill()
        if waited > HANG_S + END_S:
            raise FastconvError(
                f"a worker process did nothing for {waited:.0f} s on {task.about()} and cannot be "
                "ended: a disk or network file system does not answer"
            )

    def stop(self) -> None:
        """Ends the process."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        self.process.wait()


def work_of(process: int) -> object:
    """Returns what the system has counted of a process's work: another value whenever it did
    something; None where the system does not tell."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            times = file.read().rpartition(b")")[2].split()[11:13]
        with open(f"/proc/{process}/io", "rb") as file:
            return times, file.read()
    except OSError:
        return None


class ThreadedEngine(ABC):
    """Threads that work on tasks, each on one after the other.

    Args:
        most: How many threads at most; they are started when there is something to do.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lock: str | None = None
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._begin, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _begin(self) -> None:
        # Worker processes inherit this: a Ctrl-C goes to them too, and must not meet a Python that
        # starts. Nor may it be given to this thread, when another one waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self._serve()

    @abstractmethod
    def _serve(self) -> None:
        """Works on tasks until there is None; what goes wrong is given as an answer."""

    def _watch(self) -> None:  # noqa: B027 - nothing to look at by default
        """Looks whether work goes on; called now and then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads."""
        self._closing.set()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(END_S)  # one that waits for what cannot be ended is left to its fate

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """Yields the answers as they come. A few tasks are taken ahead, no more.

        Raises:
            FastconvError: A worker died or hung on the same task several times, or the system
                refused something.
            OSError: The system refused something.
        """
        waiting, source = 0, iter(tasks)
        while True:
            while waiting < 2 * self.most and (task := next(source, None)) is not None:
                if len(self._threads) < min(self.most, waiting + 1):
                    self._add_thread()
                self._tasks.put(task)
                waiting += 1
            if not waiting:
                return
            self._watch()
            try:  # a signal that comes just before this waits is seen after it
                answer = self._answers.get(timeout=WATCH_S)
            except queue.Empty:
                continue
            waiting -= 1
            if isinstance(answer, BaseException):
                raise answer
            raise_error(answer.content)
            yield answer


class LocalEngine(ThreadedEngine):
    """A number of worker processes, each with a thread that serves it.

    The first few start at once, so that they are ready when the first task is.

    Args:
        workers: How many at most.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._processes: set[Worker] = set()
        self._guard = threading.Lock()
        self._watched = time.monotonic()
        for _ in range(min(workers, READY)):
            self._add_thread()

    def close(self) -> None:
        """Ends all workers, whatever they are doing."""
        self._closing.set()
        with self._guard:
            for worker in self._processes:
                worker.process.kill()
        super().close()

    def _watch(self) -> None:
        """Looks whether a worker hangs; not more often than is worth it."""
        since = time.monotonic() - self._watched
        if since < WATCH_S:
            return
        self._watched += since
        with self._guard:
            workers = [*self._processes]
        for worker in workers:
            if since > 10 * WATCH_S:  # this process was stopped for a while, and so may they be
                worker.seen = None, self._watched
            worker.watch()

    def _start(self) -> Worker:
        worker = Worker()
        with self._guard:
            self._processes.add(worker)
            if self._closing.is_set():
                worker.process.kill()
        return worker

    def _serve(self) -> None:
        worker: Worker | None = None
        held: str | None = None
        try:
            worker = self._start()
            while (task := self._tasks.get()) is not None:
                for left in range(TRIES - 1, -1, -1):
                    worker.task = task
                    try:
                        if self.lock != held:
                            raise_error(worker.ask({"run": "hold", "lock": self.lock}, {})[0])
                            held = self.lock
                        self._answers.put(
                            Answer(task.number, *worker.ask(task.content, task.arrays))
                        )
                        worker.task = None
                        break
                    except WorkerDied:
                        words = worker.last_words()
                        with self._guard:
                            self._processes.discard(worker)
                        worker.stop()
                        if self._closing.is_set():
                            return
                        if not left:
                            self._answers.put(
                                FastconvError(
                                    f"a worker process died {TRIES} times ({words}) on "
                                    f"{task.about()}"
                                )
                            )
                        worker, held = self._start(), None
        except BaseException as error:
            self._answers.put(error)
        finally:
            if worker is not None:
                with self._guard:
                    self._processes.discard(worker)
                worker.stop()


def raise_error(content: Mapping[str, Any]) -> None:
    """Raises what went wrong in a worker.

    Raises:
        FastconvError: Something that is to be told in its own words.
        OSError: The system refused something.
        RuntimeError: A mistake in the program; the worker's traceback.
    """
    error = content.get("error")
    if error is None:
        return
    if error["type"] == "fastconv":
        raise FastconvError(error["message"])
    if error["type"] == "os":
        raise OSError(error["errno"], error["message"], error["file"])
    raise RuntimeError(error["message"])
