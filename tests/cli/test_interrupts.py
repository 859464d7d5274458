"""Signals that end a command: they arrive whatever the interrupted code makes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENDS = [
    ("SIGINT", 130, "interrupted"),
    ("SIGTERM", 143, "ended by SIGTERM"),
    ("SIGHUP", 129, "ended by SIGHUP"),
]

PACKING = """
import signal, sys
from fastconv.converters import run
from fastconv.__main__ import main
run_parts = run.Run.run_parts
def interrupted(*arguments, **more):
{body}
    return run_parts(*arguments, **more)
run.Run.run_parts = interrupted
sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, script: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Returns the exit status, stdout and stderr of a script that runs as a module with `-m`, which
    is where Python lets a KeyboardInterrupt of the past decide its exit status."""
    (folder / "the_script.py").write_text(script, encoding="ascii")
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "the_script", *map(str, arguments)],
        capture_output=True, encoding="utf-8", check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def packed(tmp_path: Path, images: Path, body: str) -> tuple[tuple[int, str, str], list[str]]:
    """Returns how packing ended in which this body ran, and what it left."""
    out = tmp_path / "out"
    out.mkdir()
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    done = run(tmp_path, PACKING.format(body=lines), "pack", images, out / "out.h5", "-q")
    return done, os.listdir(out)


@pytest.mark.parametrize(("name", "code", "line"), ENDS)
def test_the_exit_status_is_right_where_classes_are_made(
    tmp_path: Path, images: Path, name: str, code: int, line: str
) -> None:
    done, left = packed(tmp_path, images, f"exec('signal.raise_signal(signal.{name})')")
    assert done == (code, "", f"error: {line}\n")
    assert left == []


@pytest.mark.parametrize(("name", "code", "line"), ENDS)
def test_one_that_is_lost_comes_again(
    tmp_path: Path, images: Path, name: str, code: int, line: str
) -> None:
    body = (
        "try:\n"
        f"    signal.raise_signal(signal.{name})\n"
        "except BaseException:\n"
        "    pass\n"
        "while True:\n"
        "    signal.pause()\n"
    )
    done, left = packed(tmp_path, images, body)
    assert done == (code, "", f"error: {line}\n")
    assert left == []


def test_a_repeated_one_is_raised_again_and_the_first_one_counts(
    tmp_path: Path, images: Path
) -> None:
    body = (
        "try:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "except BaseException:\n"
        "    pass\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "raise AssertionError\n"
    )
    done, left = packed(tmp_path, images, body)
    assert done == (143, "", "error: ended by SIGTERM\n")
    assert left == []


def test_one_that_is_lost_until_the_end_is_told_there(tmp_path: Path, images: Path) -> None:
    body = "try:\n    signal.raise_signal(signal.SIGTERM)\nexcept BaseException:\n    pass\n"
    done, _ = packed(tmp_path, images, body)
    assert done == (143, "", "error: ended by SIGTERM\n")


def test_what_it_becomes_on_its_way_does_not_matter(tmp_path: Path, images: Path) -> None:
    body = (
        "try:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "except BaseException:\n"
        "    raise RuntimeError('numpy is not available') from None\n"
    )
    done, left = packed(tmp_path, images, body)
    assert done == (143, "", "error: ended by SIGTERM\n")
    assert left == []


def test_clean_up_goes_on_whatever_comes(tmp_path: Path, images: Path) -> None:
    body = (
        "try:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "finally:\n"
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):\n"
        "        signal.raise_signal(number)\n"
        "    print('cleaned up')\n"
    )
    done, left = packed(tmp_path, images, body)
    assert done == (130, "cleaned up\n", "error: interrupted\n")
    assert left == []


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(("name", "code", "line"), ENDS)
def test_before_the_command_runs(
    tmp_path: Path, name: str, code: int, line: str, ignored: bool
) -> None:
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, module, path=None, target=None):\n"
        "        if module == 'click':\n"
        f"            exec('signal.raise_signal(signal.{name})')\n"
        "sys.meta_path.insert(0, Finder())\n"
        + (f"signal.signal(signal.{name}, signal.SIG_IGN)\n" if ignored else "")
        + "from fastconv.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    status, out, err = run(tmp_path, script, "formats")
    if ignored:
        assert (status, err) == (0, "")
        assert "lmdb" in out
    else:
        assert (status, out, err) == (code, "", f"error: {line}\n")


def test_nothing_stays_changed_after_a_command_that_was_not_interrupted(tmp_path: Path) -> None:
    script = (
        "import signal, sys\n"
        "from fastconv.converters.cli.interrupts import SIGNALS, interruptible\n"
        "watched = [*SIGNALS, signal.SIGALRM, signal.SIGCHLD]\n"
        "before = [signal.getsignal(number) for number in watched]\n"
        "with interruptible() as check:\n"
        "    check()\n"
        "assert [signal.getsignal(number) for number in watched] == before\n"
        "assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)\n"
    )
    assert run(tmp_path, script) == (0, "", "")


def test_a_signal_from_outside(tmp_path: Path, images: Path) -> None:
    body = "print('ready', flush=True)\nwhile True:\n    signal.pause()\n"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    process = subprocess.Popen(
        [sys.executable, "-c", PACKING.format(body=lines), "pack", images, tmp_path / "out.lmdb"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate() == ("", "error: ended by SIGTERM\n")
    assert process.returncode == 143
