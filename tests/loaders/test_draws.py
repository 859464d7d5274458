"""Random numbers from (seed, epoch, row)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from fastconv.loaders.draws import draws, numbers

ROWS = np.arange(20_000)


def correlation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def test_the_generator_is_splitmix64() -> None:
    # The first outputs of its authors' C code for the seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert numbers(np.array([1234567], np.uint64), np.arange(3)).tolist() == known


def testnumbers_never_change() -> None:
    # A run that is resumed with a newer fastconv has to see the same crops.
    assert draws(7, 3, np.array([0, 5]), 2).tolist() == [
        [0.49829836287224416, 0.13480091357960666],
        [0.9218600385654763, 0.8712878298296248],
    ]


def testnumbers_do_not_depend_on_the_batch() -> None:
    together = draws(1, 2, ROWS, 5)
    assert together.shape == (len(ROWS), 5)
    assert together.dtype == np.float64
    shuffled = np.random.default_rng(0).permutation(len(ROWS))
    assert np.array_equal(draws(1, 2, ROWS[shuffled], 5), together[shuffled])
    assert np.array_equal(draws(1, 2, np.array([77]), 5)[0], together[77])
    assert np.array_equal(draws(1, 2, ROWS, 3), together[:, :3])
    assert draws(1, 2, ROWS[:0], 5).shape == (0, 5)


@pytest.mark.parametrize("seed", [0, 1, -1, (1 << 64) - 1, 123456789])
def testnumbers_are_uniform(seed: int) -> None:
    numbers = draws(seed, 0, ROWS, 10)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        counts = np.histogram(column, 100, (0, 1))[0]
        chi_squared = ((counts - len(ROWS) / 100) ** 2 / (len(ROWS) / 100)).sum()
        assert 99 - 5 * 14.1 < chi_squared < 99 + 5 * 14.1  # its mean and deviation: 99, 14.1
    assert len(np.unique(numbers)) == numbers.size


def test_neighbours_epochs_and_seeds_have_nothing_in_common() -> None:
    numbers = draws(0, 0, ROWS, 8)
    limit = 5 / np.sqrt(numbers.size)  # five standard deviations
    assert abs(correlation(numbers[:-1], numbers[1:])) < limit
    assert abs(correlation(numbers[:, :-1], numbers[:, 1:])) < limit
    assert abs(correlation(numbers[:-1, 1:], numbers[1:, :-1])) < limit
    for seed, epoch in ((0, 1), (0, 2), (0, 1 << 40), (1, 0), (1 << 63, 0), (1, 1)):
        other = draws(seed, epoch, ROWS, 8)
        assert abs(correlation(numbers, other)) < limit
        assert not (numbers == other).any()


def test_every_bit_of_the_row_counts() -> None:
    rows = np.concatenate([[0], 1 << np.arange(63)])
    numbers = draws(0, 0, rows, 4)
    assert len(np.unique(numbers)) == numbers.size
