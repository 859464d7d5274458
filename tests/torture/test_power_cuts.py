"""Power cuts: whatever was not brought to the disk may be lost."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.torture.recording import TRACE, WAYS, Disk, rebuild, recorded
from tests.torture.support import CASES, SEED, TIMES, Bench, Case, Ledger, contents, start

CUTS = 12
"""For each case, source and OUT, and twice as many in runs that go on."""
SYNC = (0, 0.02, 0.05)
"""Seconds between two looks after the disk: marks in all places, after many parts or few."""


@pytest.fixture(scope="module", autouse=True)
def strace(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where the system's calls cannot be seen."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path_factory.mktemp("strace") / "trace"
    done = subprocess.run(
        [*TRACE, "-o", str(trace), "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"strace cannot be used: {done.stderr.strip()}")


def record(
    disk: Disk, bench: Bench, out: Path, trace: Path, sync: float, way: str = "pack"
) -> None:
    """Packs, and adds what that does to the disk to its record."""
    process = start(bench.command(out), sync=sync, prefix=(*TRACE, "-o", str(trace)), way=way)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (bench.whole.code if way == "pack" else 0), err
    recorded(disk, trace, out)
    check_record(disk, out.parent)


def check_record(disk: Disk, folder: Path) -> None:
    """Checks that nothing was missed: all that was recorded gives what is there."""
    again = folder.with_name(f"{folder.name}-again")
    rebuild(disk, len(disk.steps), "kept", again, random.Random(0))
    assert contents(again) == contents(folder)
    assert sorted(p.name for p in again.rglob("*")) == sorted(p.name for p in folder.rglob("*"))
    shutil.rmtree(again)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_record_has_all_that_is_removed_later(tmp_path: Path, case: Case) -> None:
    bench = Bench(case, tmp_path, 3, older=True)
    out = bench.place()
    record(Disk(out.parent), bench, out, tmp_path / "trace", 0, "halt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("bad", [0, 3], ids=["good", "bad"])
@pytest.mark.parametrize("older", [False, True], ids=["new", "overwrite"])
def test_power_cuts(tmp_path: Path, ledger: Ledger, case: Case, bad: int, older: bool) -> None:
    bench = Bench(case, tmp_path, bad, older)
    chance = random.Random(f"{SEED} {case.name} {bad} {older}")
    trace = tmp_path / "trace"
    out = bench.place()
    disk = Disk(out.parent)
    record(disk, bench, out, trace, chance.choice(SYNC))
    cut_power(bench, disk, chance, ledger, "")

    # A run that goes on with what a power cut has left.
    out = bench.place()
    shutil.rmtree(out.parent)
    rebuild(disk, len(disk.steps) * 2 // 3, "any dropped", out.parent, chance)
    assert not Path(f"{out}.partial/publish").exists()
    disk = Disk(out.parent)
    record(disk, bench, out, trace, chance.choice(SYNC))
    cut_power(bench, disk, chance, ledger, " in a run that goes on after one")

    # A run that goes on with what a killed one has left: not all of that is on the disk.
    out = bench.place()
    disk = Disk(out.parent)
    record(disk, bench, out, trace, chance.choice(SYNC), "half")
    begun = len(disk.steps)
    record(disk, bench, out, trace, 0)
    cut_power(bench, disk, chance, ledger, " in a run that goes on after a kill", begun)


def cut_power(
    bench: Bench, disk: Disk, chance: random.Random, ledger: Ledger, where: str, begun: int = 0
) -> None:
    """Goes on from what power cuts at many moments, after `begun` steps, may leave."""
    count = len(disk.steps)
    moments = {*range(count - 15, count + 1)}  # those of publishing and cleaning up
    moments |= {chance.randrange(begun, count) for _ in range(round(CUTS * TIMES))}
    for moment in sorted(moments):
        way = chance.choice(WAYS[:4])
        out = bench.place()
        shutil.rmtree(out.parent)
        rebuild(disk, moment, way, out.parent, chance)
        with ledger.injected(f"power cut{where}, bytes not on the disk {way}"):
            bench.check_stopped(out)
            bench.check_goes_on(out)
