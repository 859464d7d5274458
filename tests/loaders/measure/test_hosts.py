"""Processes that measure: what they answer, how they fail, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from fastconv.loaders.errors import FastconvError
from fastconv.loaders.measure.hosts import Host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    (tmp_path / "measured_module.py").write_text(
        "import os, signal\n"
        "from fastconv.loaders.errors import UsageError\n"
        "def add(a, b): return a + b\n"
        "def pid(): return os.getpid()\n"
        "def refuse(): raise UsageError('no such thing')\n"
        "def fail(): raise ValueError('two\\nlines')\n"
        "def die(): os.kill(os.getpid(), signal.SIGKILL)\n",
        encoding="ascii",
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # spawned processes take over sys.path
    return Host("measured_module")


def test_it_answers_and_ends(host: Host) -> None:
    assert host.call("add", 1, 2) == 3
    pid = host.call("pid")
    assert pid != os.getpid()
    assert host.call("pid") == pid
    host.close()
    assert not psutil.pid_exists(pid)
    host.close()  # nothing more happens


def test_what_it_raises_is_raised_here_in_one_line(host: Host) -> None:
    with pytest.raises(FastconvError, match="no such thing"):
        host.call("refuse")
    with pytest.raises(FastconvError, match=r"^ValueError: two lines$"):
        host.call("fail")
    assert host.call("add", 1, 1) == 2
    host.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_dead_one_is_told_of_and_replaced(host: Host) -> None:
    with pytest.raises(FastconvError, match="SIGKILL: probably out of memory"):
        host.call("die")
    pid = host.call("pid")
    os.kill(pid, signal.SIGINT)  # Ctrl-C is not for it
    assert host.call("add", 2, 2) == 4
    host.close()
