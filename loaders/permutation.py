"""A permutation that is computed, not stored: the number at any place of it, at once.

A Feistel network over the bits of the place, three rounds each way, mixes a power of two of numbers
among each other; what falls outside of the range goes through it again until it falls inside
("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). The keys are
those of a generator of `fastconv.loaders.draws`, the multipliers its factors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastconv.loaders.draws import numbers

__all__ = ["permuted"]

ROUNDS = 6
FEWEST_BITS = 8
"""Smaller ranges are taken out of so many bits: in a network of few bits, few permutations of a
handful of numbers are possible."""

Places = npt.NDArray[np.int64]
States = npt.NDArray[np.uint64]


def permuted(places: Places, count: int, states: States) -> Places:
    """Returns the numbers at some places of a permutation of 0 to count - 1, int64 (n,).

    Args:
        places: Between 0 and count - 1, int64 (n,).
        count: How many numbers are permuted.
        states: Which permutation it is: one for all, uint64 (1,), or one for each place, (n,).
    """
    bits = max((count - 1).bit_length(), FEWEST_BITS)
    low = bits // 2
    keys = [numbers(states, np.array([turn])) for turn in range(ROUNDS)]
    x = _mixed(places.astype(np.uint64), low, bits - low, keys)
    outside = np.flatnonzero(x >= count)
    while outside.shape[0]:
        mine = [key if key.shape[0] == 1 else key[outside] for key in keys]
        again = _mixed(x[outside], low, bits - low, mine)
        x[outside] = again
        outside = outside[again >= count]
    return x.astype(np.int64)


def _mixed(x: States, low: int, high: int, keys: list[States]) -> States:
    """Returns numbers of low + high bits, mixed among each other."""
    right, left = x & np.uint64((1 << low) - 1), x >> np.uint64(low)
    for turn in range(0, ROUNDS, 2):
        right ^= _function(left, keys[turn]) >> np.uint64(64 - low)
        left ^= _function(right, keys[turn + 1]) >> np.uint64(64 - high)
    return left << np.uint64(low) | right


def _function(half: States, key: States) -> States:
    """Returns a hash of one half of the bits; its upper bits count."""
    bits = (half ^ key) * np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    bits *= np.uint64(0x94D049BB133111EB)
    return bits
