"""Our TFRecords through the package `tfrecord`, for PyTorch, and its through fastconv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]
Run = Callable[..., Any]


def test_it_reads_ours_by_the_index(samples: Samples, packed: Pack, reader: Run) -> None:
    out = packed("out", "tfrecord", 5, index_for=())
    got = []
    for shard in sorted(out.glob("*.tfrecord")):
        got += reader("tfrecord_package", "tfrecord", "read", shard, f"{shard}.idx")
    assert got == [[s.label, ("cat", "dog")[s.label], s.image.hex()] for s in samples[1]]


def test_it_makes_the_same_index(packed: Pack, reader: Run, tmp_path: Path) -> None:
    out = packed("out.tfrecord", index_for=())
    reader("tfrecord_package", "tfrecord", "index", out, tmp_path / "own.idx")
    assert (tmp_path / "own.idx").read_bytes() == Path(f"{out}.idx").read_bytes()


def test_what_it_writes_is_read(reader: Run, tmp_path: Path) -> None:
    reader("tfrecord_package", "tfrecord", "write", tmp_path / "own.tfrecord")
    dataset = open_dataset(tmp_path / "own.tfrecord", decode=None)
    assert [tuple(dataset[i]) for i in range(3)] == [
        (b"\xff\xd8\xff\xe0 image %d" % number, number) for number in range(3)
    ]
