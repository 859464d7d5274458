"""Processes that measure: what they answer, how they fail, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import util
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
        "def leave():\n"
        "    from multiprocessing.util import get_temp_dir\n"
        "    return get_temp_dir()\n"
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


LOADING = """
import torch, os
from multiprocessing import get_context
from torch.utils.data import DataLoader
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 1 << 40
    def __getitem__(self, index): return torch.zeros(10)
def load_forever():
    queue = get_context("spawn").Queue()  # its semaphores have names
    loader = DataLoader(Numbers(), num_workers=2, batch_size=2, multiprocessing_context="fork")
    for number, batch in enumerate(loader):
        if number == 10:
            print("loading", os.getpid(), flush=True)
"""

PARENT = """
import sys
from fastconv.loaders.measure.hosts import Host
if __name__ == "__main__":
    host = Host("loading_module")
    try:
        host.call("load_forever")
    except KeyboardInterrupt:
        pass
    finally:
        host.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["killed", "Ctrl-C", "host", "all"])
def test_it_ends_silently_while_it_measures(tmp_path: Path, how: str) -> None:
    (tmp_path / "loading_module.py").write_text(LOADING, encoding="ascii")
    (tmp_path / "parent.py").write_text(PARENT, encoding="ascii")
    process = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    assert process.stdout is not None
    word, host = process.stdout.readline().split()
    assert word == "loading"
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 4  # the host, its workers, what keeps track of semaphores
    if how == "killed":
        process.kill()
    elif how == "host":
        os.kill(int(host), signal.SIGTERM)
    else:
        os.killpg(process.pid, signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
    out, err = process.communicate()  # until nobody has stderr open any more
    assert out == ""
    if how == "host":
        assert err.splitlines()[-1].endswith("the process that measures ended with exit code 143")
    else:
        assert err == ""
    assert psutil.wait_procs(started, timeout=30)[1] == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_it_leaves_in_temporary_folders_goes_with_it(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    util.get_temp_dir()  # this process has one of its own
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    folder = Path(host.call("leave"))
    assert folder.is_dir()
    assert (tmp_path / "temporary") in folder.parents
    os.kill(host.call("pid"), number)
    with pytest.raises(FastconvError, match="ended with"):
        host.call("pid")
    host.close()
    assert os.listdir(tmp_path / "temporary") == []
