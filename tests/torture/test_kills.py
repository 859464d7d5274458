"""Runs that are killed at any moment: OUT is absent or whole, and the same command ends with the
right bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from tests.torture.support import CASES, SEED, TIMES, Bench, Case, Ledger, error_lines, start

KILLS = 14
"""Kills of the whole group, for each case, source, pause between marks, and OUT."""
OTHERS = 3
"""Of each other kind, for each case and source."""

case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
bad = pytest.mark.parametrize("bad", [0, 3], ids=["good", "bad"])


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for a run; returns its exit code and what it wrote to stderr."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def ready(process: subprocess.Popen[str]) -> float:
    """Waits until a run has imported what it needs; returns when that was."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return time.monotonic()


def still_runs(process: subprocess.Popen[str], seconds: float) -> bool:
    """Waits for so long, or until the run has ended; returns whether it has not."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def how_long(bench: Bench) -> float:
    """Returns the seconds of a run that is left alone, from what `ready` waits for."""
    process = start(bench.command(bench.place()))
    began = ready(process)
    code, err = finish(process)
    assert code == bench.whole.code, err
    return time.monotonic() - began


@case
@bad
@pytest.mark.parametrize("sync", [0, 9], ids=["marks", "no-marks"])
@pytest.mark.parametrize("older", [False, True], ids=["new", "overwrite"])
def test_kills_of_the_whole_group(
    tmp_path: Path, ledger: Ledger, case: Case, bad: int, sync: float, older: bool
) -> None:
    bench = Bench(case, tmp_path, bad, older)
    seconds = how_long(bench)
    chance = random.Random(f"{SEED} {case.name} {bad} {sync} {older}")
    kills = 0
    while kills < KILLS * TIMES:
        out = bench.place()
        for _ in range(chance.randrange(1, 5)):
            by_steps = chance.random() < 0.6
            kills += kill_group(bench, out, chance, sync, None if by_steps else seconds, ledger)
        with ledger.injected("the same command after kills"):
            bench.check_goes_on(out, workers=chance.random() < 0.2)


def kill_group(
    bench: Bench, out: Path, chance: random.Random, sync: float, seconds: float | None,
    ledger: Ledger,
) -> bool:  # fmt: skip
    """Starts a run and kills it, after some steps or some time; returns whether it came to that."""
    if seconds is None:
        # 45 to 150 steps make a run, the last of which publish and clean up.
        process = start(bench.command(out), steps=chance.randrange(110), sync=sync)
    else:
        process = start(bench.command(out), sync=sync)
        ready(process)
        if still_runs(process, chance.uniform(0, seconds)):
            os.killpg(process.pid, signal.SIGKILL)
    code, err = finish(process)
    if code != -signal.SIGKILL:
        assert code == bench.whole.code or "exists already" in err, err
        return False
    moment = "between two steps" if seconds is None else "at a random time"
    with ledger.injected(f"SIGKILL of the whole group, {moment}"):
        bench.check_stopped(out)
    return True


@case
@bad
def test_kills_of_the_main_process_alone(
    tmp_path: Path, ledger: Ledger, case: Case, bad: int
) -> None:
    """Its workers end with it, before the next run touches what they wrote."""
    bench = Bench(case, tmp_path, bad, older=False)
    seconds = how_long(bench)
    chance = random.Random(f"{SEED} {case.name} {bad}")
    for _ in range(round(OTHERS * TIMES)):
        out = bench.place()
        process = start(bench.command(out), sync=0)
        ready(process)
        if still_runs(process, chance.uniform(0, seconds)):
            process.kill()
            with ledger.injected("SIGKILL of the main process alone"):
                bench.check_goes_on(out)
        finish(process)


@case
@bad
def test_kills_of_workers(tmp_path: Path, ledger: Ledger, case: Case, bad: int) -> None:
    """One or two of them: the run does not even fail."""
    bench = Bench(case, tmp_path, bad, older=False)
    seconds = how_long(bench)
    chance = random.Random(f"{SEED} {case.name} {bad}")
    for _ in range(round(OTHERS * TIMES)):
        out = bench.place()
        process = start(bench.command(out), sync=chance.choice([0, 9]))
        ready(process)
        killed = 0
        for _ in range(2):
            if still_runs(process, chance.uniform(0, seconds / 2)):
                killed += kill_worker(process.pid, chance)
        code, err = finish(process)
        with ledger.injected("SIGKILL of a worker", killed):
            assert (code, err) == (bench.whole.code, "")
            bench.check_goes_on(out)


def kill_worker(parent: int, chance: random.Random) -> bool:
    """Kills a worker of a run, if there is one; returns whether there was."""
    try:
        chance.choice(psutil.Process(parent).children()).kill()
    except (IndexError, psutil.NoSuchProcess):
        return False
    return True


@case
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_ask_to_end(
    tmp_path: Path, ledger: Ledger, case: Case, number: signal.Signals
) -> None:
    """Once or twice, to the whole group as a terminal sends it: one line, and all is kept."""
    bench = Bench(case, tmp_path, 0, older=True)
    chance = random.Random(f"{SEED} {case.name} {number}")
    seconds = how_long(bench)
    for _ in range(round(OTHERS * TIMES)):
        out = bench.place()
        process = start(bench.command(out), way="cli")
        ready(process)
        sent = 0
        for _ in range(chance.randrange(1, 3)):
            if still_runs(process, chance.uniform(0, seconds)):
                os.killpg(process.pid, number)
                sent += 1
        code, err = finish(process)
        with ledger.injected(f"{number.name} to the whole group", sent):
            assert code in (128 + number, 0), err
            assert "Traceback" not in err
            assert len(err.splitlines()) <= 3
            bench.check_stopped(out)
            bench.check_goes_on(out)


def test_two_at_once(tmp_path: Path, ledger: Ledger) -> None:
    """The second one is refused, and names the first one; stopped, that one leaves no lock."""
    bench = Bench(CASES[0], tmp_path, 0, older=False)
    for _ in range(round(OTHERS * TIMES)):
        out = bench.place()
        first = start(bench.command(out))
        ready(first)
        while not (Path(f"{out}.partial/done")).exists() and first.poll() is None:
            pass
        os.killpg(first.pid, signal.SIGSTOP)
        try:
            code, err = finish(start(bench.command(out), way="cli"))
        finally:
            os.killpg(first.pid, signal.SIGKILL)
        with ledger.injected("a second run into the same OUT"):
            assert code == 1
            assert f"process {first.pid} is making it" in error_lines(err)
        finish(first)
        bench.check_goes_on(out)
