"""The demonstration without data: its floor is arithmetic, and no run beats it."""

from __future__ import annotations

import pytest

from fastconv.loaders.measure.mock import explained, floor, run_mock


@pytest.mark.parametrize(
    ("workers", "turns"), [(0, 11), (1, 11), (2, 6), (4, 3), (8, 2), (11, 1), (16, 1)]
)
def test_the_floor_is_that_of_whole_batches(workers: int, turns: int) -> None:
    assert floor(workers, 0.01) == pytest.approx(turns * 0.32)


def test_it_takes_at_least_the_floor() -> None:
    found = run_mock(0.001, (0, 2))
    assert [one.workers for one in found] == [0, 2]
    for one in found:
        assert one.seconds >= one.floor
        assert 0 <= one.startup < one.seconds
    words = " ".join(explained(found, 0.001))
    assert "0.352 s" in words
