"""`fastconv doctor`: facts in one screen, and a warning for each known trap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastconv.converters.cli import doctor
from fastconv.converters.cli.doctor import traps
from fastconv.loaders.measure import machine
from fastconv.loaders.measure.machine import (
    Cores,
    FileSystem,
    Gpus,
    Machine,
    Memory,
    OpenFiles,
    Package,
    Python,
    Room,
)
from fastconv.loaders.reader import READERS

GB = 1_000_000_000

WELL = Machine(
    system="Linux 6.1",
    cpu="A processor",
    cores=Cores(16, 16),
    memory=Memory(64 * GB, 60 * GB),
    shared_memory=Room(32 * GB, 32 * GB),
    open_files=OpenFiles(1024, None),
    file_system=FileSystem("/data", "ext4", "local", "/dev/sda1", "/", "solid state"),
    nvidia_driver="570.86.15",
    torch=Gpus("12.8", ("NVIDIA H200",)),
    nvml=Gpus("570.86.15", ("NVIDIA H200",)),
    jpeg={"Pillow": "libjpeg-turbo 3.1.0", "simplejpeg": "its own libjpeg-turbo (1.9.0)"},
    python=Python("3.11.7", False, "fork"),
    versions={"fastconv": "0.1.0", "torch": "2.9.0"},
    optional=(Package("pillow-heif", "decodes HEIC", "1.0", "pip install 'fastconv[heif]'"),),
)
"""A machine without traps."""


UNREADABLE = replace(WELL.file_system, readable=False)
UNWRITABLE = replace(WELL.file_system, writable=False)


def on(kind: str, place: Any, disk: str = "unknown") -> FileSystem:
    return FileSystem("/data", kind, place, "source", "/", disk)


def test_a_machine_without_traps() -> None:
    assert [*traps(WELL, shards=256)] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file_system": UNREADABLE}, ["/data may not be read", "make it readable"]),
        ({"file_system": UNWRITABLE}, ["/data may not be written", "another place"]),
        ({"cores": Cores(64, 64, 4.0)}, ["says 64", "keep 4", "control groups 4", "num_workers=4"]),
        ({"cores": Cores(64, 8)}, ["says 64", "keep 8 busy", "affinity 8"]),
        (
            {"memory": Memory(512 * GB, 7 * GB, 8 * GB)},
            ["8.00 GB of 512 GB", "signal 9", "docker run --memory"],
        ),
        (
            {"shared_memory": Room(64 << 20, 64 << 20)},
            ["67.1 MB", "bus error", "--shm-size=8g", "--ipc=host", "FastLoader"],
        ),
        ({"shared_memory": Room(8 * GB, GB)}, ["8.00 GB, 1.00 GB free", "8 workers"]),
        ({"open_files": OpenFiles(256, 4096)}, ["256 files", "Too many open files", "ulimit -n"]),
        ({"python": Python("3.13.2", False, "fork")}, ["3.13.2", "forkserver", "FastLoader"]),
        ({"file_system": on("nfs4", "network")}, ["/data", "nfs4", "LMDB", "lock=False", "bus er"]),
        ({"file_system": on("overlay", "overlay")}, ["/data", "layers", "--volume"]),
        ({"file_system": on("tmpfs", "memory")}, ["/data", "tmpfs", "60.0 GB"]),
        ({"file_system": on("xfs", "local", "rotating")}, ["/data", "spinning", "webdataset"]),
        (
            {"torch": Gpus(), "versions": {"torch": "2.9.0+cpu"}},
            ["570.86.15", "2.9.0+cpu", "without CUDA", "https://pytorch.org"],
        ),
        (
            {"nvidia_driver": None, "torch": Gpus("13.0", (), "the driver is too old")},
            ["570.86.15", "can use no GPU: the driver is too old"],
        ),
        ({"torch": Gpus("13.0")}, ["can use no GPU: it finds none"]),
        ({"jpeg": {"Pillow": "libjpeg 9.6"}}, ["libjpeg 9.6", "libjpeg-turbo", "pip install"]),
    ],
)
def test_each_trap_is_one_line(change: dict[str, Any], words: list[str]) -> None:
    (line,) = traps(replace(WELL, **change))
    assert [word for word in words if word not in line] == []
    assert line.isprintable()


def test_many_shards() -> None:
    (line,) = traps(WELL, shards=257)
    assert "1,024 files open, and there are 257 shards" in line
    assert [*traps(replace(WELL, open_files=OpenFiles(None, None)), shards=9999)] == []


def test_what_is_unknown_is_no_trap() -> None:
    unknown = replace(
        WELL,
        cores=Cores(None, None),
        shared_memory=None,
        open_files=None,
        file_system=FileSystem("/data"),
        nvidia_driver=None,
        torch=Gpus(problem="No module named 'torch'"),
        nvml=Gpus(problem="missing"),
        versions={},
    )
    assert [*traps(unknown)] == []
    shown = dict(doctor.rows(unknown, []))
    assert (shown["/dev/shm"], shown["open files"], shown["  is on"]) == ("unknown",) * 3
    assert shown["torch"] == "missing, without CUDA: No module named 'torch'"


def test_shards_of_a_folder(tmp_path: Path) -> None:
    for name in ("1.tar", "2.tar", "2.tar.index", "tar"):
        (tmp_path / name).touch()
    assert doctor.count_shards(str(tmp_path)) == 2
    assert doctor.count_shards(str(tmp_path / "1.tar")) == 0


def test_for_people(fastconv: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "look", lambda path: WELL)
    done = fastconv("doctor", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) <= 24
    shown = dict(line.split("  ", 1) for line in done.out.splitlines() if line[:1] not in " N")
    shown = {name: value.strip() for name, value in shown.items()}
    assert shown["cores"] == "16"
    assert shown["memory"] == "64.0 GB, 60.0 GB available"
    assert shown["open files"] == "1,024, can be raised to unlimited"
    assert shown["torch"] == "2.9.0, built with CUDA 12.8: NVIDIA H200"
    assert shown["formats"] == ", ".join(READERS.names())
    assert "ext4 (local), /dev/sda1 at /" in done.out
    assert done.out.endswith("\nNo known trap.\n")


def test_what_is_missing_comes_with_what_installs_it(
    fastconv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("pillow-heif", "decodes HEIC", None, "pip install 'fastconv[heif]'")
    monkeypatch.setattr(machine, "look", lambda path: replace(WELL, optional=(package,)))
    row = {"name": "zarr", "installed": False, "missing": "zarr: pip install 'fastconv[zarr]'"}
    monkeypatch.setattr(doctor, "formats", lambda: [row])
    out = fastconv("doctor").out
    assert "pillow-heif, which decodes HEIC: pip install 'fastconv[heif]'" in out
    assert "zarr: pip install 'fastconv[zarr]'" in out


def test_warnings_end_with_0(fastconv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ill = replace(WELL, cores=Cores(64, 64, 4.0), file_system=on("nfs", "network", "rotating"))
    monkeypatch.setattr(machine, "look", lambda path: ill)
    done = fastconv("doctor", "--json")
    assert done.code == 0
    assert done.answer["warnings"] == [*traps(ill)]
    assert done.err.splitlines() == [f"warning: {line}" for line in traps(ill)]


def test_the_object_of_this_machine(fastconv: Any, tmp_path: Path) -> None:
    done = fastconv("doctor", tmp_path, "--json")
    assert done.code == 0
    answer = done.answer
    assert (answer["command"], answer["status"]) == ("doctor", "done")
    facts = answer["doctor"]
    assert facts["cores"]["usable"] >= 1
    assert facts["memory"]["total"] >= facts["memory"]["available"] > 0
    assert facts["file_system"]["path"] == str(tmp_path)
    assert [row["name"] for row in facts["formats"]] == READERS.names()
    assert facts["torch"].keys() == {"version", "devices", "problem"}
    assert len(done.err.splitlines()) == len(answer["warnings"])


def test_a_path_that_is_not_there(fastconv: Any, tmp_path: Path) -> None:
    done = fastconv("doctor", tmp_path / "nowhere")
    assert done.code == 2
    assert done.err == f"error: {tmp_path}/nowhere: no such file or folder\n"
