"""What holds for every command: help, usage errors, failures, streams."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastconv import __version__
from fastconv.converters import packing
from fastconv.converters.cli import COMMANDS, command_line

COMMON = {
    "command", "status", "output", "format", "samples", "classes", "bad", "ignored", "warnings",
}  # fmt: skip
"""The keys of every JSON object."""

Run = Callable[..., Any]


@pytest.mark.parametrize("name", list(command_line().commands))
def test_every_command_has_help_with_an_example(fastconv: Run, name: str) -> None:
    done = fastconv(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"$ fastconv {name}" in done.out
    assert fastconv(name, "-h").out == done.out


def test_help_lists_the_commands_and_none_is_needed(fastconv: Run) -> None:
    done = fastconv("--help")
    listed = [found[1] for found in re.finditer(r"(?m)^\W{1,3}([a-z]+)\s", done.out)]
    assert [name for name in listed if name in COMMANDS] == list(command_line().commands)
    assert fastconv().out == done.out


def test_version(fastconv: Run, fastconv_process: Run) -> None:
    assert fastconv("--version").out == f"fastconv {__version__}\n"
    assert fastconv_process("--version").out == f"fastconv {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pack"], "Missing argument"),
        (["pack", "a"], "Missing argument"),
        (["pack", "a", "b", "c"], "unexpected extra argument"),
        (["pack", "a", "b.lmdb", "--zz"], "No such option"),
        (["pack", "a", "b", "--check", "slow"], "'slow' is not one of 'fast', 'decode'"),
        (["pack", "a", "b", "--workers", "0"], "--workers"),
        (["pack", "a", "b", "--workers", "many"], "--workers"),
        (["pack", "a", "b", "--shard-size", "12 parsec"], "'12 parsec' is no size"),
        (["pack", "a", "b", "--format", "zip"], "'zip' is not one of 'hdf5', 'lmdb'"),
        (["pack", "a", "b.lmdb", "--labels"], "requires an argument"),
        (["packk"], "No such command 'packk'"),
        (["formats", "\x1b[31m"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line_and_one_object(
    fastconv: Run, arguments: list[str], said: str
) -> None:
    done = fastconv(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert said in done.err
    assert done.err[:-1].isprintable()
    again = fastconv(arguments[0], "--json", *arguments[1:])
    assert (again.code, again.err) == (2, done.err)
    answer = again.answer
    assert answer.keys() >= COMMON
    assert answer["command"] == arguments[0]
    assert answer["status"] == "failed"
    assert answer["error"]["type"] == "UsageError"
    assert f"error: {answer['error']['message']}\n" == done.err


def failing(error: BaseException) -> Callable[..., None]:
    def run(*arguments: object, **more: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            RuntimeError("Traceback (most recent call last):\n  ...\nKeyError: 'a\x1b[0m'\n"),
            1,
            "internal error: RuntimeError: KeyError: 'a\\x1b[0m' (set FASTCONV_DEBUG=1 to",
        ),
        (ZeroDivisionError(), 1, "internal error: ZeroDivisionError: no message (set "),
        (PermissionError(13, "Permission denied", "a\nb"), 1, "a\\nb: Permission denied"),
        (MemoryError(), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_one_line_and_one_object(
    fastconv: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    monkeypatch.delenv("FASTCONV_DEBUG", raising=False)
    monkeypatch.setattr(packing, "pack", failing(error))
    done = fastconv("pack", "a", "b.lmdb", "--json")
    assert done.code == code
    assert done.err.startswith(f"error: {line}")
    assert done.err.count("\n") == 1
    assert done.answer["error"]["type"] == type(error).__name__
    assert done.answer["output"] == "b.lmdb"


def test_debug_shows_where(fastconv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTCONV_DEBUG", "1")
    monkeypatch.setattr(packing, "pack", failing(ZeroDivisionError("x")))
    done = fastconv("pack", "a", "b.lmdb")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "test_main.py" in done.err


def test_what_fails_before_a_command_runs_is_one_line_too(
    fastconv: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTCONV_DEBUG", raising=False)
    monkeypatch.setattr("fastconv.converters.cli.command_line", failing(OSError("odd")))
    done = fastconv("formats", "--json")
    assert (done.code, done.answer["status"]) == (1, "failed")
    assert done.err == "error: internal error: OSError: odd (set FASTCONV_DEBUG=1 to see where)\n"


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "ended by SIGTERM"),
        ("SIGHUP", 129, "ended by SIGHUP"),
    ],
)
def test_an_interrupt_ends_in_one_line_and_leaves_nothing(
    tmp_path: Path, images: Path, name: str, code: int, line: str, again: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    script = (
        "import signal, sys\n"
        "from fastconv.converters import packing, run\n"
        "from fastconv.converters.cli import main\n"
        "run_parts = run.Run.run_parts\n"
        "def interrupted(*arguments, **more):\n"
        "    found = run_parts(*arguments, **more)\n"
        f"    signal.raise_signal(signal.{name})\n"
        "    return found\n"
        "run.Run.run_parts = interrupted\n"
    )
    if again:  # while it cleans up, and while it ends
        script += (
            "discard = packing.Target.discard\n"
            "def discard_interrupted(self):\n"
            f"    signal.raise_signal(signal.{name})\n"
            "    signal.raise_signal(signal.SIGINT)\n"
            "    discard(self)\n"
            "packing.Target.discard = discard_interrupted\n"
            "import atexit\n"
            "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        )
    script += "sys.exit(main(sys.argv[1:]))\n"
    done = subprocess.run(
        [sys.executable, "-c", script, "pack", str(images), str(out / "out.lmdb")],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"error: {line}\n")
    assert os.listdir(out) == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(
    fastconv_process: Run, images: Path, tmp_path: Path, closed: str
) -> None:
    out = tmp_path / "out.lmdb"
    (images / "cat" / "bad.png").write_bytes(b"")
    done = fastconv_process("pack", images, out, "--check", "decode", redirect=closed)
    assert done.code == 3
    assert (done.out == "") == (">&-" in closed.split())
    assert (done.err == "") == ("2>&-" in closed)
    assert fastconv_process("pack", images, tmp_path / "same.lmdb").code == 3
    assert (out / "data.mdb").read_bytes() == (tmp_path / "same.lmdb" / "data.mdb").read_bytes()


def test_signals_that_were_ignored_stay_so(tmp_path: Path, images: Path) -> None:
    script = (
        "import signal, sys\n"
        "from fastconv.converters import run\n"
        "from fastconv.converters.cli import main\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"  # as nohup does
        "run_parts = run.Run.run_parts\n"
        "def hung_up(*arguments, **more):\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "    return run_parts(*arguments, **more)\n"
        "run.Run.run_parts = hung_up\n"
        "code = main(sys.argv[1:])\n"
        "assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGINT) == signal.default_int_handler\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "pack", str(images), str(tmp_path / "out.h5"), "-q"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


EVERYTHING_SAID = [
    ["formats"], ["formats", "--json"], ["--version"], ["--help"], ["pack", "--help"],
]  # fmt: skip


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("arguments", EVERYTHING_SAID)
def test_a_reader_that_went_away_is_not_worth_a_word(
    fastconv_process: Run, arguments: list[str], buffered: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = fastconv_process(*arguments, stdout=writing, env={"PYTHONUNBUFFERED": buffered})
    finally:
        os.close(writing)
    assert (done.code, done.err) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("arguments", EVERYTHING_SAID)
def test_output_that_cannot_be_written_is_an_error(
    fastconv_process: Run, arguments: list[str], buffered: str
) -> None:
    settings = {"PYTHONUNBUFFERED": buffered}
    done = fastconv_process(*arguments, redirect=">/dev/full", env=settings)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.endswith(": No space left on device\n")
    assert done.err.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["pack", "--json"], ["info", "none", "--json"]])
def test_an_error_that_cannot_be_written_as_an_object_is_still_told(
    fastconv_process: Run, arguments: list[str], buffered: str
) -> None:
    settings = {"PYTHONUNBUFFERED": buffered}
    done = fastconv_process(*arguments, redirect=">/dev/full", env=settings)
    assert done.code == 2
    _, unwritten = done.err.splitlines()
    assert unwritten == "error: stdout: cannot be written: No space left on device"


@pytest.mark.parametrize("command", [["--help"], ["scan"], ["scan", "--json"], ["pack"]])
def test_locales_without_utf8(
    fastconv_process: Run, images: Path, tmp_path: Path, command: list[str]
) -> None:
    (images / "dög").mkdir()
    (images / "dog" / "0.jpg").rename(images / "dög" / "é.jpg")
    (images / "dög" / "ü.jpg").write_bytes(b"")
    arguments: list[str | Path] = [*command]
    if command != ["--help"]:
        arguments.append(images)
    if command == ["pack"]:
        arguments.append(tmp_path / "öut.lmdb")
    done = fastconv_process(*arguments, env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert done.code == (0 if command == ["--help"] else 3)
    assert "Traceback" not in done.err
    assert "internal" not in done.err
    assert done.out.isascii()
    assert done.err.isascii()
    if "--json" in command:
        (bad,) = json.loads(done.out)["bad"]
        assert os.fsencode(bad["path"]) == "dög/ü.jpg".encode()


def test_no_control_character_reaches_a_terminal(
    fastconv: Run, images: Path, tmp_path: Path
) -> None:
    name = "\x1b[31mred\r\n\u202e"
    (images / "cat").rename(images / name)
    (images / name / f"{name}.jpg").write_bytes(b"<html>")
    (images / name / f"a.{name}").write_bytes(b"")
    out = tmp_path / f"{name}.lmdb"
    for arguments in (
        ["scan", images],
        ["pack", images, out],
        ["pack", images, out],
        ["pack", out],
    ):
        done = fastconv(*arguments)
        for line in (done.out + done.err).split("\n"):
            assert line.isprintable(), line
        again = fastconv(*arguments, "--json")
        assert again.out[:-1].isprintable()
        assert again.out.isascii()


def test_completion_is_light(fastconv_process: Run) -> None:
    done = fastconv_process(
        env={
            "_FASTCONV_COMPLETE": "bash_complete",
            "COMP_WORDS": "fastconv pack --format ",
            "COMP_CWORD": "3",
            "PYTHONPROFILEIMPORTTIME": "1",
        }
    )
    known = {"hdf5", "lmdb", "parquet", "recordio", "tfrecord", "webdataset"}
    assert known <= {line.partition(",")[2] for line in done.out.splitlines()}
    lines = done.err.splitlines()
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "click" in loaded
    assert not loaded & {"numpy", "torch", "PIL", "h5py", "lmdb", "pyarrow", "tqdm", "webdataset"}


def test_bash_completes_what_its_script_says(fastconv: Run, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fastconv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fastconv "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "complete.sh"
    script.write_text(
        fastconv("--completion", "bash").out
        + "COMP_WORDS=(fastconv pack --over) COMP_CWORD=2\n"
        + "_fastconv_completion fastconv\n"
        + 'echo "${COMPREPLY[@]}"\n'
    )
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script], env={**os.environ, "PATH": path}, capture_output=True, encoding="utf-8"
    )
    assert (done.stdout, done.stderr) == ("--overwrite\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(fastconv: Run, shell: str) -> None:
    done = fastconv("--completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_FASTCONV_COMPLETE" in done.out
