"""`fastconv formats`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import MissingDependencyError
from fastconv.loaders.reader import READERS

Run = Callable[..., Any]


def test_every_format_is_listed(fastconv: Run) -> None:
    done = fastconv("formats", "--json")
    assert (done.code, done.err) == (0, "")
    rows = {row["name"]: row for row in done.answer["formats"]}
    assert list(rows) == sorted({*READERS.names(), *WRITERS.names()})
    assert rows["lmdb"] == {
        "name": "lmdb",
        "title": "LMDB",
        "suffixes": [".lmdb"],
        "reads": True,
        "writes": True,
        "installed": True,
        "missing": None,
    }
    assert not rows["folder"]["writes"]


def test_the_table_is_aligned(fastconv: Run) -> None:
    head, *lines = fastconv("formats").out.splitlines()
    assert head.split() == ["name", "format", "endings", "reads", "writes", "installed"]
    (line,) = [line for line in lines if line.startswith("hdf5")]
    assert line.index(".h5") == head.index("endings")
    assert line.rindex("yes") == head.index("installed")


def test_a_format_that_lacks_its_package(fastconv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    load = WRITERS.load

    def without_h5py(name: str) -> Any:
        if name == "hdf5":
            raise MissingDependencyError("the format hdf5 needs the package h5py: pip install ...")
        return load(name)

    monkeypatch.setattr(WRITERS, "load", without_h5py)
    done = fastconv("formats")
    (line,) = [line for line in done.out.splitlines() if line.startswith("hdf5")]
    assert line.split()[-3:] == ["yes", "yes", "no"]
    assert done.err == "note: the format hdf5 needs the package h5py: pip install ...\n"
