"""Random numbers that depend on (seed, epoch, row) alone, whoever draws them, and in whatever
order.

A splitmix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
2014) does no more than count and mix the count, so that its k-th number can be had at once, and
many of them in one step:

    number(state, k) = mix(state + (k + 1) * GAMMA)

The seed's generator gives each epoch the state of its own generator, that one gives each row the
state of the row's, and that one gives the numbers drawn for the sample.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["draws", "numbers"]

GAMMA = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, made odd: the step of the count."""

_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)


def draws(
    seed: int, epoch: int, rows: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Returns random numbers, uniform in [0, 1), float64 (n, count).

    Args:
        seed: Of the run. Its lower 64 bits count.
        epoch: Number of the pass over the data.
        rows: Numbers of the samples, int64 (n,).
        count: How many numbers each of them needs. The first ones are the same for any count.
    """
    seeds = np.array([seed % (1 << 64)], np.uint64)
    states = numbers(numbers(seeds, np.array([epoch])), rows)
    bits = numbers(states[:, np.newaxis], np.arange(count)) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53  # a float64 holds 53 bits


def numbers(
    states: npt.NDArray[np.uint64], places: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Returns the numbers at these places of the generators that have these states."""
    bits = states + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    mixed: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(_SHIFTS[-1]))
    return mixed
