"""Our LMDB through `lmdb` alone, and through LMDB's own command line tools where they are
installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]


def test_every_sample_by_its_key(samples: Samples, packed: Callable[..., Path]) -> None:
    out = packed("out.lmdb")
    with lmdb.open(str(out), readonly=True, lock=False) as env, env.begin() as txn:
        count = int(txn.get(b"__len__", b""))
        meta = json.loads(txn.get(b"__meta__", b""))
        labels = np.frombuffer(txn.get(b"__table__/label", b""), "<i8")
        width = len(str(count - 1))
        assert count == len(samples[1]) == meta["samples"]
        assert meta["classes"] == ["cat", "dog"]
        for number, sample in enumerate(samples[1]):
            key = f"{number:0{width}d}".encode()
            assert txn.get(key) == sample.image
            assert txn.get(key + b".txt") == sample.caption
            assert labels[number] == sample.label


def test_opening_it_with_a_lock_and_writing(packed: Callable[..., Path]) -> None:
    """A database that others changed is read by its keys: nothing stale, and a notice says so."""
    out = packed("out.lmdb")
    with lmdb.open(str(out), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"03", b"\x89PNG\r\n\x1a\n-another image")
        txn.delete(b"05")
        txn.delete(b"05.txt")
    dataset = open_dataset(out, decode=None)
    assert len(dataset) == 12
    assert bytes(dataset.read(3)) == b"\x89PNG\r\n\x1a\n-another image"
    assert [int(label) for label in dataset.targets] == [0] * 5 + [1] * 7
    assert dataset.samples[5][0] == "dog/00.jpg"


def test_compacting_copy_keeps_the_table(
    samples: Samples, packed: Callable[..., Path], tmp_path: Path
) -> None:
    out = packed("out.lmdb")
    (tmp_path / "copy").mkdir()
    with lmdb.open(str(out), readonly=True, lock=False) as env:
        env.copy(str(tmp_path / "copy"), compact=True)
    dataset = open_dataset(tmp_path / "copy", decode=None)
    assert dataset.classes == ["cat", "dog"]
    assert [bytes(dataset.read(i)) for i in range(len(dataset))] == [s.image for s in samples[1]]


@pytest.mark.skipif(
    shutil.which("mdb_stat") is None, reason="needs LMDB's tools (Debian: lmdb-utils)"
)
def test_command_line_tools(packed: Callable[..., Path], tmp_path: Path) -> None:
    out = packed("out.lmdb")
    stat = subprocess.run(
        ["mdb_stat", "-e", "-a", str(out)], check=True, capture_output=True, text=True
    ).stdout
    assert "Last transaction ID: 1\n" in stat
    dump = subprocess.run(["mdb_dump", str(out)], check=True, capture_output=True, text=True).stdout
    entries = int(stat.rpartition("Entries:")[2])
    assert dump.count("\n ") == 2 * entries
    (tmp_path / "copy").mkdir()
    subprocess.run(["mdb_copy", "-c", str(out), str(tmp_path / "copy")], check=True)
    assert (tmp_path / "copy/data.mdb").stat().st_size == (out / "data.mdb").stat().st_size
