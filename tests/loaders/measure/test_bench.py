"""Running a benchmark: what is left out, what fails, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fastconv.loaders.errors import UsageError
from fastconv.loaders.measure.bench import bench
from fastconv.loaders.measure.cases import Settings
from fastconv.loaders.measure.machine import memory_available
from fastconv.loaders.measure.sizes import fitting
from fastconv.loaders.measure.stages import describe

QUICK = Settings(
    batch_size=4, workers=(0,), size=16, rounds=1, seconds=0.01, caches=("warm",), ways=("pillow",)
)


def test_a_source_of_broken_images_fails_row_by_row(tmp_path: Path, photos: Path) -> None:
    broken = tmp_path / "broken" / "a"
    broken.mkdir(parents=True)
    whole = next(photos.rglob("*.jpg")).read_bytes()
    (broken / "0.jpg").write_bytes(whole[:200])
    found = bench([str(broken.parent)], QUICK)
    failed = [row for row in found.rows if row.failed]
    assert {row.case.stage for row in failed} == {"decode", "load"}
    assert all("none of its images can be decoded" in row.left_out for row in failed)
    assert found.verdict == []


def test_images_that_were_left_out_are_counted(tmp_path: Path, photos: Path) -> None:
    mixed = tmp_path / "mixed" / "a"
    mixed.mkdir(parents=True)
    whole = next(photos.rglob("*.jpg")).read_bytes()
    (mixed / "0.jpg").write_bytes(whole[:200])
    (mixed / "1.jpg").write_bytes(whole)
    found = bench([str(mixed.parent)], QUICK)
    assert not any(row.failed for row in found.rows)
    assert any("cannot be decoded were left out" in line for line in found.warnings)
    assert any("batches of 2 are measured" in line for line in found.warnings)


def test_more_workers_than_fit_are_left_out(photos: Path) -> None:
    many = int(memory_available() / 30e6) + 1
    found = bench([str(photos)], replace(QUICK, workers=(many,)))
    loads = [row for row in found.rows if row.case.stage in ("load", "memory")]
    assert loads
    assert all("are free" in row.left_out and not row.failed for row in loads)
    assert any("are free" in line for line in found.warnings)


def test_batches_that_do_not_fit_are_refused(photos: Path) -> None:
    source = describe(str(photos), "photos")
    assert fitting([source], Settings(batch_size=100)).batch_size == source.samples
    with pytest.raises(UsageError, match="use smaller ones"):
        fitting([source], Settings(size=1_000_000))
