"""Which samples are packed, and into which of several packs.

    pack("images", "out.lmdb", selection=Selection(min_size=64, shuffle=True, limit=1000))
    pack("images", "out", format="lmdb", split=Split(fractions={"train": 0.9, "val": 0.1}))

What is chosen by chance is chosen by a hash of each sample's path: the same on any machine and with
any version of numpy, and, but for `Split.stratify`, whatever other samples there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.listing import Ints, Listing

__all__ = ["Selection", "Split", "path_hashes"]

ORDER = b"\0order"
"""What is put behind a path for its place in the shuffled order: which split it belongs to must not
follow from that."""
PATHS = 4096
"""Paths that are hashed together."""
NEARLY = 1e-9
"""Fractions whose sum is 1 but for rounding."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_SEEDS = range(2**64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which samples are packed, in which order. What is asked for is done in this order.

    Attributes:
        only_classes: Names of the classes that stay, or integer labels where labels are integers;
            the pack has these classes alone, in their old order. Empty: all.
        min_size: The shorter side of an image, in pixels as stored, has at least so many. Images
            whose header does not tell it stay.
        exclude_duplicates: Of images that are the same, byte for byte, the first stays.
        shuffle: The samples are ordered by xxh3-64 of path + b"\\0order" with the seed.
        seed: Of the order, 0 to 2^64 - 1.
        limit: So many samples at most, the first ones.

    Raises:
        UsageError: One of them is wrong, or nothing is asked for.
    """

    only_classes: Sequence[str] = ()
    min_size: int | None = None
    exclude_duplicates: bool = False
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        names = self.only_classes
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"only_classes is {names!r}: it is a list of names of classes")
        object.__setattr__(self, "only_classes", tuple(dict.fromkeys(names)))
        for name in ("min_size", "limit"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} is {value!r}: it is a number of at least 1")
        check_seed(self.seed)
        if not self.steps():
            raise UsageError(
                "nothing is selected: give classes, a size, a limit, or another of its options"
            )

    def steps(self) -> list[str]:
        """Returns what is asked for, as the options of the command line are written."""
        return [
            text
            for text, wanted in (
                (f"--only-classes {','.join(map(printable, self.only_classes))}",
                 bool(self.only_classes)),
                (f"--min-size {self.min_size}", self.min_size is not None),
                ("--exclude-duplicates", self.exclude_duplicates),
                (f"--shuffle --seed {self.seed}", self.shuffle),
                (f"--limit {self.limit}", self.limit is not None),
            )
            if wanted
        ]  # fmt: skip

    def __str__(self) -> str:
        """Returns it in words, as the options of the command line are written."""
        return " ".join(self.steps())

    def order(self, listing: Listing) -> Ints:
        """Returns the rows of a listing in their new order, int64 (N,)."""
        hashes = path_hashes(listing, self.seed, ORDER)
        return np.argsort(hashes, kind="stable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Into which of several packs each sample goes.

    A sample's place is u = xxh3-64 of its path with the seed, divided by 2^64, between 0 and 1: the
    first pack has what lies below its fraction, the second what lies below the sum of both, and so
    on. So a sample stays where it is whatever samples come or go, and the parts are as large as
    chance makes them. Duplicates have paths of their own, and may go apart.

    Attributes:
        fractions: By the names of the packs, what part of all samples each gets; their sum is at
            most 1, what is over is left out.
        stratify: Each class, its samples ordered by u, is cut into parts of exact size, to within
            one sample; each pack gets at least one sample of a class that has as many as there are
            packs. Then a sample that is added may move others that lie next to a border.
        seed: 0 to 2^64 - 1.

    Raises:
        UsageError: One of them is wrong.
    """

    fractions: Mapping[str, float]
    stratify: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.fractions, Mapping) or not self.fractions:
            raise UsageError(f"a split is by fractions as train=0.9, val=0.1: {self.fractions!r}")
        object.__setattr__(self, "fractions", dict(self.fractions))
        folded: dict[str, str] = {}
        for name, fraction in self.fractions.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise UsageError(
                    f"{printable(str(name))!r} cannot be the name of a split: it becomes that of a "
                    "file, of a to z, digits, _ and -"
                )
            if folded.setdefault(name.casefold(), name) != name:
                raise UsageError(f"the splits {folded[name.casefold()]} and {name} are one file")
            if isinstance(fraction, bool) or not isinstance(fraction, int | float):
                raise UsageError(f"the fraction of {name} is {fraction!r}: it is a number")
            if not 0 < fraction <= 1:
                raise UsageError(f"the fraction of {name} is {fraction}: it is above 0, at most 1")
        total = sum(self.fractions.values())
        if total > 1 + NEARLY:
            raise UsageError(f"the fractions of the splits sum to {total:g}: it is at most 1")
        check_seed(self.seed)

    def __str__(self) -> str:
        """Returns it in words, as the options of the command line are written."""
        parts = ",".join(f"{name}={fraction}" for name, fraction in self.fractions.items())
        return f"--split {parts}{' --stratify' if self.stratify else ''} --seed {self.seed}"

    def rows(self, listing: Listing) -> dict[str, Ints]:
        """Returns which rows of a listing each pack gets, in their order, int64 (n,)."""
        hashes = path_hashes(listing, self.seed)
        sides = self._by_rank(hashes, listing.label) if self.stratify else self._by_place(hashes)
        return {name: np.flatnonzero(sides == side) for side, name in enumerate(self.fractions)}

    def _ends(self) -> npt.NDArray[np.float64]:
        """Returns where each part ends, float64 (packs,)."""
        ends = np.cumsum(np.fromiter(self.fractions.values(), np.float64))
        return np.where(ends > 1 - NEARLY, 1.0, ends)

    def _by_place(self, hashes: npt.NDArray[np.uint64]) -> Ints:
        """Returns the number of each row's pack, that of no pack where it is left out."""
        ends = self._ends()
        # A hash may be rounded up to 1, which still is below the end of all.
        ends[ends == 1.0] = np.inf
        return np.searchsorted(ends, hashes.astype(np.float64) / 2**64, side="right")

    def _by_rank(self, hashes: npt.NDArray[np.uint64], label: Ints) -> Ints:
        """Returns the number of each row's pack, that of no pack where it is left out."""
        order = np.lexsort((hashes, label))
        _, first, count = np.unique(label[order], return_index=True, return_counts=True)
        cuts = shares(count, self._ends())
        # How many of the cuts of its class a row lies behind.
        rank = np.arange(len(order)) - np.repeat(first, count)
        sides = np.empty(len(order), np.int64)
        sides[order] = sum(rank >= np.repeat(cut, count) for cut in cuts.T)
        return sides


def shares(count: Ints, ends: npt.NDArray[np.float64]) -> Ints:
    """Returns where each class is cut: behind how many of its samples, int64 (classes, parts).

    Args:
        count: Samples of each class, int64 (classes,).
        ends: Where each part ends, as a fraction of all, float64 (parts,), ascending.
    """
    cuts = np.floor(count[:, np.newaxis] * ends + 0.5).astype(np.int64)
    parts = len(ends)
    enough = count >= parts
    for part in range(parts):
        before = cuts[:, part - 1] if part else np.zeros_like(count)
        cuts[:, part] = np.maximum(cuts[:, part], before + enough)
    for part in range(parts):
        most = count - np.where(enough, parts - 1 - part, 0)
        cuts[:, part] = np.minimum(cuts[:, part], most)
    return cuts


def path_hashes(listing: Listing, seed: int, behind: bytes = b"") -> npt.NDArray[np.uint64]:
    """Returns the xxh3-64 of each sample's path, uint64 (N,).

    Args:
        listing: The samples.
        seed: Of the hash.
        behind: What is hashed behind each path.
    """
    pieces = [
        np.array([xxh3_64_intdigest(path + behind, seed) for path in paths], np.uint64)
        for paths in path_blocks(listing)
    ]
    return np.concatenate([np.zeros(0, np.uint64), *pieces])


def path_blocks(listing: Listing) -> Iterator[list[bytes]]:
    """Yields the paths of all samples' images, some thousand at a time."""
    for start in range(0, len(listing), PATHS):
        places = listing.path_offset[start : start + PATHS + 1].astype(np.int64)
        block = listing.path_bytes[places[0] : places[-1]].tobytes()
        ends = pairwise((places - places[0]).tolist())
        yield [block[begin:end].partition(b"\0")[0] for begin, end in ends]


def check_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
        UsageError: It is none.
    """
    if type(seed) is not int or seed not in _SEEDS:
        raise UsageError(f"seed is {seed!r}: it is an integer from 0 to 2^64 - 1")
