"""Disks that are full, fill up, are read-only, go away or lose their power: one line says so,
nothing is made, what is finished is kept, and the same command ends with the right bytes."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.torture.disks import ext4_image, mounted, mounts_or_skip, pull_the_plug, unmount
from tests.torture.support import (
    CASES,
    SEED,
    TIMES,
    Bench,
    Case,
    Ledger,
    command,
    contents,
    error_lines,
    images,
    start,
)

SIZES = 3
"""Disks of different sizes, for each case, source and OUT."""
FILLED = 2
PLUGS = 3
GONE = 2

case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
bad = pytest.mark.parametrize("bad", [0, 3], ids=["good", "bad"])
older = pytest.mark.parametrize("older", [False, True], ids=["new", "overwrite"])


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where nothing can be mounted."""
    mounts_or_skip(tmp_path_factory.mktemp("mounts"), ext4=True)


def run(bench: Bench, out: Path, **settings: object) -> tuple[int, str]:
    """Packs with workers; returns the exit code and what was written to stderr."""
    process = start(bench.command(out), way="cli", **settings)  # type: ignore[arg-type]
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def check_failed(bench: Bench, out: Path, code: int, err: str, words: str) -> None:
    """Checks how a run has ended that could not go on: that it says so in a line, and what is at
    OUT."""
    if code == bench.whole.code:
        assert contents(out.parent).items() >= bench.whole.files.items()
        return
    assert code == 1, err
    # Which files are bad is told as well, where the run came so far.
    lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "bad: "))]
    assert words in error_lines("\n".join(lines)), err
    assert "Traceback" not in err
    bench.check_stopped(out)


@case
@bad
@older
def test_disks_that_are_too_small(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case, bad: int, older: bool
) -> None:
    bench = Bench(case, tmp_path, bad, older)
    chance = random.Random(f"{SEED} {case.name} {bad} {older}")
    size = sum(map(len, bench.whole.files.values()))
    there = sum(map(len, bench.older.files.values())) if bench.older is not None else 0
    for _ in range(round(SIZES * TIMES)):
        room = there * 5 // 4 + 4096 * chance.randrange(8, 8 + size * 3 // 4096)
        with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={room}", "tmpfs") as disk:
            bench.lay(disk)
            out = disk / case.out
            with ledger.injected("tmpfs that is too small, or just large enough"):
                check_failed(bench, out, *run(bench, out, sync=0), "no space left")
                if contents(disk) != bench.whole.files:
                    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
                    bench.check_goes_on(out)


@case
@bad
@pytest.mark.parametrize("system", ["tmpfs", "ext4"])
def test_disks_that_fill_up_meanwhile(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case, bad: int, system: str
) -> None:
    bench = Bench(case, tmp_path, bad, older=False)
    chance = random.Random(f"{SEED} {case.name} {bad} {system}")
    for _ in range(round(FILLED * TIMES)):
        what = (
            ["-t", "tmpfs", "-o", "size=16m", "tmpfs"]
            if system == "tmpfs"
            else ["-o", "loop", ext4_image(tmp_path / "image")]
        )
        with mounted(tmp_path / "disk", *what) as disk:
            shutil.rmtree(disk / "lost+found", ignore_errors=True)
            out, parts = disk / case.out, chance.randrange(1, 24)
            with ledger.injected(f"another file fills the {system}"):
                code, err = run(
                    bench, out, fill=(str(disk / "other"), parts), sync=chance.choice([0, 9])
                )
                check_failed(bench, out, code, err, "no space left")
                if code == 1 and parts > 1:
                    assert "keeps what is finished" in err
                (disk / "other").unlink(missing_ok=True)
                if code == 1:
                    bench.check_goes_on(out)


@case
def test_disks_that_are_read_only(tmp_path: Path, mounts: None, ledger: Ledger, case: Case) -> None:
    bench = Bench(case, tmp_path, 0, older=False)
    image = ext4_image(tmp_path / "image")
    disk = tmp_path / "disk"
    with mounted(disk, "-o", "loop", image):
        shutil.rmtree(disk / "lost+found")
        start(bench.command(disk / case.out), steps=40).communicate()  # an unfinished run
        before = contents(disk)
        assert before
    with mounted(disk, "-o", "loop,ro", image), ledger.injected("read-only file system"):
        check_failed(bench, disk / case.out, *run(bench, disk / case.out), "read-only")
        check_failed(bench, disk / "other", *run(bench, disk / case.out), "read-only")
        assert contents(disk) == before
    with mounted(disk, "-o", "loop", image):
        bench.check_goes_on(disk / case.out)


@case
def test_packs_on_a_disk_that_is_read_only(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case
) -> None:
    """All that reads works, and wants to leave nothing there."""
    bench = Bench(case, tmp_path, 0, older=False)
    image, disk = ext4_image(tmp_path / "image"), tmp_path / "disk"
    with mounted(disk, "-o", "loop", image):
        (disk / "here").mkdir()
        assert command(*bench.command(disk / "here" / case.out))[0] == 0
    with mounted(disk, "-o", "loop,ro", image), ledger.injected("finished pack, read-only disk"):
        out = disk / "here" / case.out
        assert command("verify", out, "--against", bench.tree) == (0, "")
        assert command("info", out) == (0, "")
        assert command("ls", out) == (0, "")
        assert command("unpack", out, tmp_path / "restored") == (0, "")
        assert contents(tmp_path / "restored") == contents(bench.tree)
        assert images(out) == bench.whole.images
        assert contents(disk / "here") == bench.whole.files


@case
@bad
def test_targets_that_go_away(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case, bad: int
) -> None:
    bench = Bench(case, tmp_path, bad, older=False)
    chance = random.Random(f"{SEED} {case.name} {bad}")
    disk = tmp_path / "disk"
    for _ in range(round(GONE * TIMES)):
        image = ext4_image(tmp_path / "image")
        with ledger.injected("target unmounted in the middle"):
            with mounted(disk, "-o", "loop", image):
                shutil.rmtree(disk / "lost+found")
                (disk / "here").mkdir()
                out = disk / "here" / case.out
                code, err = at_a_moment(bench, out, chance, disk)
            assert os.listdir(disk) == []
            with mounted(disk, "-o", "loop", image):
                if code == 2:  # it was unmounted before the run looked
                    assert "no such folder: make it first" in error_lines(err)
                else:
                    check_failed(bench, out, code, err, "nothing was made")
                if code != bench.whole.code:
                    bench.check_goes_on(out)


@case
@bad
def test_sources_that_go_away(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case, bad: int
) -> None:
    """Their files are not bad because of that."""
    bench = Bench(case, tmp_path, bad, older=False)
    chance = random.Random(f"{SEED} {case.name} {bad}")
    kept = tmp_path / "kept"
    bench.tree.rename(kept)
    for _ in range(round(GONE * TIMES)):
        image, out = ext4_image(tmp_path / "image"), bench.place()
        with mounted(bench.tree, "-o", "loop", image):
            shutil.rmtree(bench.tree / "lost+found")
            shutil.copytree(kept, bench.tree, dirs_exist_ok=True)
        with ledger.injected("source unmounted in the middle"):
            with mounted(bench.tree, "-o", "loop", image):
                code, err = at_a_moment(bench, out, chance, bench.tree)
            check_failed(bench, out, code, err, str(bench.tree))
            with mounted(bench.tree, "-o", "loop", image):
                if code == 1:
                    bench.check_goes_on(out)


def at_a_moment(bench: Bench, out: Path, chance: random.Random, disk: Path) -> tuple[int, str]:
    """Packs, and unmounts a disk meanwhile; returns as `run` does."""
    process = start(bench.command(out), way="cli", sync=chance.choice([0, 9]))
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(chance.uniform(0.05, 0.5))
    except subprocess.TimeoutExpired:
        pass
    unmount(disk, lazily=True)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@case
@older
@pytest.mark.parametrize("order", ["ordered", "writeback"])
def test_power_cuts_of_a_real_disk(
    tmp_path: Path, mounts: None, ledger: Ledger, case: Case, older: bool, order: str
) -> None:
    """An ext4 that takes nothing more at a random moment, and finds its way back by its journal."""
    bench = Bench(case, tmp_path, 3, older)
    chance = random.Random(f"{SEED} {case.name} {older} {order}")
    disk = tmp_path / "disk"
    for _ in range(round(PLUGS * TIMES)):
        image = ext4_image(tmp_path / "image")
        out = disk / "here" / case.out
        with mounted(disk, "-o", f"loop,data={order}", image):
            bench.lay(disk / "here")
            os.sync()
            process = start(bench.command(out), way="cli", sync=chance.choice([0, 0.02, 9]))
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(chance.uniform(0, 0.4))
            except subprocess.TimeoutExpired:
                pass
            pull_the_plug(disk)
            _, err = process.communicate(timeout=60)
        with ledger.injected(f"power cut of an ext4, data={order}"):
            if case.out.endswith(".h5"):
                # HDF5's library writes a file once more when the process ends, and does not bear
                # that this fails again.
                assert process.returncode in (1, bench.whole.code, -signal.SIGSEGV), err
            else:
                assert process.returncode in (1, bench.whole.code), err
                assert "Traceback" not in err
            with mounted(disk, "-o", f"loop,data={order}", image):
                bench.check_stopped(out)
                bench.check_goes_on(out)


@case
@bad
def test_limits_of_a_process(tmp_path: Path, ledger: Ledger, case: Case, bad: int) -> None:
    bench = Bench(case, tmp_path, bad, older=True)
    chance = random.Random(f"{SEED} {case.name} {bad}")
    size = max(map(len, bench.whole.files.values()))
    limits = [
        (resource.RLIMIT_FSIZE, chance.randrange(4096, size * 5 // 4), "file size", "no space left")
        for _ in range(round(SIZES * TIMES))
    ]
    limits += [
        (resource.RLIMIT_NOFILE, limit, "open files", "too many open files")
        for limit in chance.sample(range(6, 30), round(SIZES * TIMES))
    ]
    for kind, limit, name, words in limits:
        out = bench.place()
        with ExitStack() as stack:
            stack.enter_context(ledger.injected(f"limit of {name}"))
            settings = {"preexec_fn": partial(resource.setrlimit, kind, (limit, limit))}
            code, err = run(bench, out, **settings)
            check_failed(bench, out, code, err.replace("Too many", "too many"), words)
            bench.check_goes_on(out)
