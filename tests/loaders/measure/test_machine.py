"""Facts about the machine, from this one and from what others say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest

from fastconv.loaders.measure import machine

GIB = 1 << 30

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,discard
30 27 0:40 / /data rw shared:1 master:2 - nfs4 server:/export/data rw,vers=4.2
31 30 0:41 / /data/with\040space rw - lustre mds@tcp:/fs rw
32 27 0:42 / /data/hidden/deep rw - xfs /dev/sdb1 rw
33 27 259:3 / /fast rw - xfs /dev/nvme0n1p3 rw
34 33 0:43 / /fast rw - tmpfs  rw,size=4k
35 27 0:44 /sub /btrfs rw - btrfs /dev/sdb1 rw,subvol=/sub
36 27 0:45 / /layers rw - overlay overlay rw,lowerdir=/a:/b
37 27 0:46 / /bucket rw - fuse.s3fs s3fs rw
38 27 0:47 / /stick rw - fuse.ntfs-3g /dev/sdc1 rw
39 27 253:0 / /lvm rw - ext4 /dev/mapper/group-data rw
40 27 8:48 / /cloud rw - ext4 /dev/sdd rw
a line that says nothing
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Writes files below a folder, and returns it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Returns the root of a machine with many kinds of file systems and disks."""
    blocks = "sys/devices"
    write(
        tmp_path,
        {
            "proc/self/mountinfo": MOUNTS,
            f"{blocks}/sda/queue/rotational": "1\n",
            f"{blocks}/sda/sda1/partition": "1\n",
            f"{blocks}/sdb/queue/rotational": "0\n",
            f"{blocks}/sdb/sdb1/partition": "1\n",
            f"{blocks}/sdd/queue/rotational": "1\n",
            f"{blocks}/sdd/device/vendor": "Google  \n",
            f"{blocks}/sdd/device/model": "PersistentDisk  \n",
            f"{blocks}/nvme0n1/queue/rotational": "0\n",
            f"{blocks}/nvme0n1/nvme0n1p3/partition": "3\n",
            f"{blocks}/dm-0/queue/rotational": "1\n",
            f"{blocks}/vdb/queue/rotational": "1\n",
        },
    )
    links = {
        "dev/block/8:1": "sda/sda1", "dev/block/259:3": "nvme0n1/nvme0n1p3",
        "dev/block/253:0": "dm-0", "dev/block/8:48": "sdd", "class/block/sdb1": "sdb/sdb1",
        "devices/dm-0/slaves/vdb": "vdb",
    }  # fmt: skip
    for link, target in links.items():
        path = tmp_path / "sys" / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(tmp_path / blocks / target)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "kind", "place", "disk"),
    [
        ("/", "ext4", "local", "rotating"),
        ("/database/x", "ext4", "local", "rotating"),
        ("/data", "nfs4", "network", "unknown"),
        ("/data/images/cat.jpg", "nfs4", "network", "unknown"),
        ("/data/with space/x", "lustre", "network", "unknown"),
        ("/data/hidden/deep/x", "nfs4", "network", "unknown"),  # /data was mounted over it
        ("/fast/x", "tmpfs", "memory", "unknown"),  # on top of /dev/nvme0n1p3
        ("/btrfs/x", "btrfs", "local", "solid state"),
        ("/layers", "overlay", "overlay", "unknown"),
        ("/bucket/x", "fuse.s3fs", "network", "unknown"),
        ("/stick/x", "fuse.ntfs-3g", "local", "unknown"),
        ("/lvm", "ext4", "local", "virtual"),
        ("/cloud", "ext4", "local", "virtual"),
    ],
)
def test_the_file_system_of_a_path(
    other: Path, path: str, kind: str, place: str, disk: str
) -> None:
    found = machine.file_system(path, other)
    assert (found.kind, found.place, found.disk) == (kind, place, disk)


def test_file_systems_as_text(other: Path) -> None:
    assert str(machine.file_system("/", other)) == "ext4 on sda1, rotating"
    assert str(machine.file_system("/data", other)) == "nfs4 on data"
    assert str(machine.file_system("/", other / "nothing")) == "unknown"


def test_the_fastest_disks(other: Path) -> None:
    mounts = MOUNTS.replace("34 33 0:43 / /fast rw - tmpfs  rw,size=4k\n", "")
    write(other, {"proc/self/mountinfo": mounts})
    assert str(machine.file_system("/fast", other)) == "xfs on nvme0n1p3, solid state"


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("nfs", "network"), ("cifs", "network"), ("smb3", "network"), ("gpfs", "network"),
        ("beegfs", "network"), ("ceph", "network"), ("fuse.sshfs", "network"), ("9p", "network"),
        ("fuse.gcsfuse", "network"), ("fuse", "network"), ("virtiofs", "network"),
        ("fuse.fuse-overlayfs", "overlay"), ("ramfs", "memory"), ("fuseblk", "local"),
        ("xfs", "local"), ("zfs", "local"), ("squashfs", "local"),
    ],
)  # fmt: skip
def test_places(tmp_path: Path, kind: str, place: str) -> None:
    write(tmp_path, {"proc/self/mountinfo": f"1 1 0:9 / / rw - {kind} source rw\n"})
    assert machine.file_system("/x", tmp_path).place == place


VERSION_2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
VERSION_1 = (
    "31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/jobs/mine"
    limit = GIB // 2
    write(
        tmp_path,
        {
            "proc/self/mountinfo": VERSION_2,
            "proc/self/cgroup": "0::/jobs/mine\n",
            "sys/fs/cgroup/jobs/cpu.max": "150000 100000\n",
            f"{group}/cpu.max": "max 100000\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.high": f"{limit}\n",
            f"{group}/memory.current": "50000000\n",
            f"{group}/memory.stat": "anon 1\ninactive_file 30000000\nactive_file 10000000\n",
        },
    )
    cores = machine.usable_cores(tmp_path)
    assert cores.quota == 1.5
    assert cores.usable == min(2, cores.allowed or 2)
    memory = machine.memory(tmp_path)
    assert memory.limit == limit
    assert memory.available == min(limit - 10_000_000, psutil.virtual_memory().available)
    assert str(memory) == f"0.5 of {memory.total / GIB:.0f} GiB"


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": VERSION_1 + VERSION_2,
            "proc/self/cgroup": "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": f"{GIB // 2}\n",
            "sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": "30000000\n",
            "sys/fs/cgroup/memory/docker/1/memory.stat": (
                "inactive_file 1\nactive_file 1\n"
                "total_inactive_file 10000000\ntotal_active_file 5000000\n"
            ),
        },
    )
    cores = machine.usable_cores(tmp_path)
    assert (cores.quota, cores.usable) == (0.5, 1)
    memory = machine.memory(tmp_path)
    assert memory.limit == GIB // 2
    assert memory.available <= GIB // 2 - 15_000_000


@pytest.mark.parametrize("path", ["/docker/1", "/", "/../../elsewhere", "/another/view"])
def test_a_container_sees_its_own_group_as_the_outermost(tmp_path: Path, path: str) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": VERSION_2.replace("0:26 /", "0:26 /docker/1"),
            "proc/self/cgroup": f"0::{path}\n",
            "sys/fs/cgroup/cpu.max": "300000 100000\n",
            "elsewhere/cpu.max": "100000 100000\n",
        },
    )
    assert machine.usable_cores(tmp_path).quota == 3.0


def test_cores_as_text() -> None:
    assert str(machine.Cores(64, 64, 3.5)) == "4 of 64"
    assert str(machine.Cores(64, 8, None)) == "8 of 64"
    assert str(machine.Cores(8, 8, 16.0)) == "8"
    assert str(machine.Cores(None, None)) == "1"


def test_where_nothing_is_told_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.setitem(sys.modules, "resource", None)
    for name in ("system", "release", "processor", "machine"):
        monkeypatch.setattr(f"platform.{name}", lambda: "")
    assert machine.shared_memory(tmp_path) is None
    assert machine.open_files() is None
    assert machine.nvidia_driver(tmp_path) is None
    assert machine.memory(tmp_path).limit is None
    found = machine.environment(tmp_path, tmp_path)
    assert (found["CPU"], found["cores"], found["disk"]) == ("unknown", "1", "unknown")
    assert found["system"] == "unknown"
    assert "GPU" not in found


def test_files_that_are_damaged_say_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": f"{VERSION_2}1 2\n- - -\n",
            "proc/self/cgroup": "0\n::\n:\n",
            "sys/fs/cgroup/cpu.max": "a b c",
            "sys/fs/cgroup/memory.max": "some",
            "sys/fs/cgroup/memory.stat": "a b\nc\n",
            "proc/driver/nvidia/version": "anything",
        },
    )
    assert machine.usable_cores(tmp_path).quota is None
    assert machine.memory(tmp_path).limit is None
    assert machine.nvidia_driver(tmp_path) == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 16 2025\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
    ],
)
def test_the_driver_and_its_gpus_in_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(machine, "nvml_gpus", machine.Gpus)
    gpu = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 27\n"
    folder = "proc/driver/nvidia"
    write(tmp_path, {f"{folder}/version": line, f"{folder}/gpus/0000:01:00.0/information": gpu})
    assert machine.nvidia_driver(tmp_path) == "570.86.15"
    assert machine.environment("/", tmp_path)["GPU"] == "NVIDIA H200, driver 570.86.15"
    write(tmp_path, {f"{folder}/gpus/0000:02:00.0/information": gpu})
    assert machine.environment("/", tmp_path)["GPU"] == "2 x NVIDIA H200, driver 570.86.15"


class FakeNvml(SimpleNamespace):
    """Stands in for pynvml, on a machine with two GPUs."""

    class NVMLError(Exception):
        """What it raises."""

    ended = 0

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.nvml_gpus() == machine.Gpus(problem="the package nvidia-ml-py is missing")
    fake: Any = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert machine.nvml_gpus() == machine.Gpus("570.86.15", ("GPU 0", "GPU 1"))
    assert fake.ended == 1

    def fail(*_: object) -> None:
        raise FakeNvml.NVMLError("Driver Not Loaded\nand more")

    fake.nvmlDeviceGetCount = fail
    assert machine.nvml_gpus() == machine.Gpus(problem="Driver Not Loaded")
    assert fake.ended == 2
    fake.nvmlInit = fail
    assert machine.nvml_gpus().problem == "Driver Not Loaded"
    assert fake.ended == 2


def test_what_torch_says_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    import torch

    def warn() -> bool:
        warnings.warn("CUDA initialization: the driver is too old\n(more)", stacklevel=1)
        return False

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", warn)
    found = machine.torch_gpus()
    assert found == machine.Gpus("13.0", (), "CUDA initialization: the driver is too old")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    assert machine.torch_gpus() == machine.Gpus("13.0", ("GPU 0",))

    def fail(_: int) -> str:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.cuda, "get_device_name", fail)
    assert machine.torch_gpus() == machine.Gpus("13.0", (), "out of memory")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert machine.torch_gpus().version is None
    assert "torch" in machine.torch_gpus().problem


def test_jpeg_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import features

    monkeypatch.setattr(features, "check_feature", lambda name: False)
    monkeypatch.setattr(features, "version_codec", lambda name: "9.6")
    assert machine.jpeg_libraries()["Pillow"] == "libjpeg 9.6"
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = machine.jpeg_libraries()
    assert found["Pillow"] == "missing"
    assert found["simplejpeg"] == f"its own libjpeg-turbo ({version('simplejpeg')})"


def test_the_kernel_is_named_where_it_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("fastconv_native")
    fake.about = lambda: "libjpeg-turbo 2.1.5, AVX2"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastconv_native", fake)
    monkeypatch.setattr(machine, "kernel", lambda: fake)
    monkeypatch.setattr(machine, "_version", lambda package: "0.1.0")
    assert next(iter(machine.jpeg_libraries().items())) == (
        "fastconv-native",
        "0.1.0 (libjpeg-turbo 2.1.5, AVX2)",
    )
    monkeypatch.setattr(machine, "kernel", lambda: None)
    monkeypatch.setenv("FASTCONV_NATIVE", "1")
    assert "build it anew" in machine.jpeg_libraries()["fastconv-native"]
    monkeypatch.setenv("FASTCONV_NATIVE", "0")
    assert "switched off by FASTCONV_NATIVE" in machine.jpeg_libraries()["fastconv-native"]
    monkeypatch.setattr(machine, "_version", lambda package: None)
    assert "fastconv-native" not in machine.jpeg_libraries()
    assert "fastconv-native" in machine.OPTIONAL  # with what installs it


def test_this_machine(tmp_path: Path) -> None:
    found = machine.look(tmp_path)
    assert found.cpu
    assert 1 <= found.cores.usable <= (os.cpu_count() or 1)
    assert 0 < found.memory.available <= found.memory.total
    assert machine.memory_available() > 0
    assert found.file_system.path == str(tmp_path)
    assert found.file_system.room is not None
    assert found.versions["numpy"] == version("numpy")
    assert found.versions["fastconv"]
    assert {package.name for package in found.optional} == {*machine.OPTIONAL}
    assert found.python.version == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells it")
def test_this_machine_on_linux(tmp_path: Path) -> None:
    found = machine.file_system(tmp_path)
    assert found.kind != "unknown"
    assert tmp_path.resolve().is_relative_to(found.point)
    assert machine.file_system("/proc").kind == "proc"
    assert machine.shared_memory() is not None
    assert machine.open_files() is not None
    names = [*machine.environment(tmp_path)]
    assert names[:4] == ["CPU", "cores", "memory", "disk"]
    assert {"Linux", "Python", "with"} <= {*names}


def test_asking_for_the_start_method_does_not_choose_it() -> None:
    code = (
        "import multiprocessing\n"
        "from fastconv.loaders.measure import machine\n"
        "print(machine.python().start_method == multiprocessing.get_all_start_methods()[0])\n"
        "multiprocessing.set_start_method('spawn')\n"
        "print(machine.python().start_method)\n"
        "machine.environment('.')\n"
        "import sys\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.split() == ["True", "spawn", "False"], done.stderr


def test_what_installs_optional_packages_is_an_extra(root: Path) -> None:
    with open(root / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for name, (_, install) in machine.OPTIONAL.items():
        if name == "fastconv-native":  # which PyPI does not have yet
            assert "make native" in install
            continue
        extra = install.partition("[")[2].partition("]")[0]
        assert [requirement.partition(">=")[0] for requirement in extras[extra]] == [name]
