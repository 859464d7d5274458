"""Worker processes that die, and those whose parent does."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from PIL import Image

from fastconv.converters import pack
from fastconv.converters.engines import local
from fastconv.converters.engines.choice import engine_for
from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.engines.local import LocalEngine, Task
from fastconv.converters.system import ENDING
from fastconv.converters.worker import send
from fastconv.loaders.errors import FastconvError


def task(number: int, **content: object) -> Task:
    return Task(number, content, {}, lambda: f"file {number}")


def workers_of(process: int) -> list[psutil.Process]:
    """Returns the workers of a process, which may have other children, those of multiprocessing."""
    found = []
    for child in psutil.Process(process).children(recursive=True):
        try:
            if any("fastconv.converters.worker" in word for word in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_mistake_in_a_worker_is_the_callers_to_see() -> None:
    with LocalEngine(1) as engine, pytest.raises(RuntimeError, match="KeyError"):
        list(engine.run([task(0, run="no such thing")]))


@contextmanager
def every_worker(number: int) -> Iterator[None]:
    """Sends a signal to every worker as soon as it is there."""
    ended = threading.Event()

    def send_all() -> None:
        while not ended.wait(0.001):
            for process in workers_of(os.getpid()):
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    pass

    thread = threading.Thread(target=send_all)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HANG_S": 0.6, "WATCH_S": 0.1, "END_S": 0.5}.items():
        monkeypatch.setattr(local, name, value)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, r"signal 9 \(SIGKILL\)"), (signal.SIGSTOP, "it did nothing for 1 s")],
)
def test_worker_that_dies_or_hangs_at_every_try(number: int, words: str) -> None:
    """That is noticed, the task is tried again, then the run ends and says what was up."""
    told = pytest.raises(FastconvError, match=rf"died 3 times \({words}.*file 0")
    with LocalEngine(2) as engine, every_worker(number), told:
        list(engine.run([task(0, run="no such thing")]))
    assert workers_of(os.getpid()) == []


@pytest.mark.usefixtures("impatient")
def test_worker_that_hangs_once_is_replaced() -> None:
    with LocalEngine(1) as engine:
        with pytest.raises(RuntimeError):  # it is up, and has answered
            list(engine.run([task(0, run="nothing")]))
        (worker,) = workers_of(os.getpid())
        worker.suspend()
        with pytest.raises(RuntimeError):  # the next one has answered
            list(engine.run([task(1, run="nothing")]))
        assert not worker.is_running()


@pytest.mark.usefixtures("impatient")
def test_worker_that_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a dead disk: the run ends nevertheless."""
    with LocalEngine(1) as engine:
        with pytest.raises(RuntimeError):
            list(engine.run([task(0, run="nothing")]))
        (worker,) = workers_of(os.getpid())
        worker.suspend()
        monkeypatch.setattr(subprocess.Popen, "kill", lambda self: None)
        with pytest.raises(FastconvError, match=r"did nothing for . s on file 1 and cannot be"):
            list(engine.run([task(1, run="nothing")]))
        engine.close()  # does not wait for ever
        monkeypatch.undo()
        worker.kill()


def test_worker_that_dies_once_is_replaced() -> None:
    with LocalEngine(1) as engine:
        with pytest.raises(RuntimeError):  # it is up, and has answered
            list(engine.run([task(0, run="nothing")]))
        (worker,) = workers_of(os.getpid())
        worker.kill()
        worker.wait()
        with pytest.raises(RuntimeError):  # so is the next one
            list(engine.run([task(1, run="nothing")]))


PACK = """
import sys
from fastconv.converters import pack
from fastconv.converters import run
publish = run.Run.publish
def wait(*args):
    print("ready", flush=True)
    sys.stdin.read()
    publish(*args)
run.Run.publish = wait
try:
    pack(sys.argv[1], sys.argv[2], workers=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def running(tmp_path: Path) -> subprocess.Popen[str]:
    """Returns a process that has packed and is about to publish."""
    for number in range(4):
        (tmp_path / "tree/cat").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20 + number)).save(tmp_path / f"tree/cat/{number}.png")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", PACK, str(tmp_path / "tree"), str(tmp_path / "out.h5")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_workers_end_with_a_parent_that_was_killed(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    workers = workers_of(running.pid)
    assert len(workers) == 2
    running.kill()
    running.communicate()
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert not (tmp_path / "out.h5").exists()
    lines: list[str] = []
    report = pack(tmp_path / "tree", tmp_path / "out.h5", notice=lines.append)
    assert report.samples == 4
    assert lines == ["going on with an unfinished run: 1 of 1 parts are done"]
    assert sorted(os.listdir(tmp_path)) == ["out.h5", "tree"]


def test_an_interrupt_leaves_what_is_finished(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    workers = workers_of(running.pid)
    running.send_signal(signal.SIGINT)
    running.communicate()
    assert running.returncode == 130
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert sorted(os.listdir(tmp_path)) == ["out.h5.partial", "tree"]
    assert pack(tmp_path / "tree", tmp_path / "out.h5").samples == 4
    assert sorted(os.listdir(tmp_path)) == ["out.h5", "tree"]


def test_few_files_are_packed_here_and_many_by_workers() -> None:
    for arguments, here in [
        ((None, 100, 10**6, False), True),
        ((None, 100, 10**6, True), False),
        ((1, 100, 10**6, False), False),
        ((None, 10**6, 10**8, False), False),
        ((None, 100, 10**10, False), False),
    ]:
        with engine_for(*arguments) as engine:
            assert isinstance(engine, InlineEngine) == here


def test_a_mistake_is_told_the_same_way_here() -> None:
    with InlineEngine() as engine, pytest.raises(RuntimeError, match="KeyError"):
        list(engine.run([task(0, run="no such thing")]))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells the mask")
def test_a_worker_is_never_interrupted_not_even_while_it_starts() -> None:
    with LocalEngine(1) as engine:
        with pytest.raises(RuntimeError):  # it is up, and has answered
            list(engine.run([task(0, run="nothing")]))
        (worker,) = workers_of(os.getpid())
        for number in ENDING:
            worker.send_signal(number)
        with pytest.raises(RuntimeError):
            list(engine.run([task(1, run="nothing")]))
        assert workers_of(os.getpid()) == [worker]
        # Python unblocks no signal by itself, so they were blocked from the first instruction.
        lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
        (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
        assert all(mask >> (number - 1) & 1 for number in ENDING)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(ENDING)


@pytest.mark.parametrize("run", ["hold", "nothing"])
def test_a_worker_whose_parent_is_gone_ends_without_a_word(tmp_path: Path, run: str) -> None:
    (tmp_path / "lock").touch()
    message = io.BytesIO()
    send(message, {"run": run, "lock": str(tmp_path / "lock")}, {})
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from fastconv.converters.worker import main; main()"],
            input=message.getvalue(), stdout=writing, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.stderr == b""


def test_a_lock_that_cannot_be_held_is_told(tmp_path: Path) -> None:
    with LocalEngine(1) as engine:
        engine.lock = str(tmp_path / "none")
        with pytest.raises(FileNotFoundError):
            list(engine.run([task(0, run="nothing")]))
