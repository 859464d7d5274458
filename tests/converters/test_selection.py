"""Which samples are chosen, and into which pack each goes: numbers alone."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from fastconv.converters import Selection, Split
from fastconv.loaders.errors import UsageError
from fastconv.loaders.listing import Ignored, Listing

PATHS = st.lists(st.text("abc/", min_size=1, max_size=6), unique=True, max_size=60)
FRACTIONS = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(
    lambda parts: {f"s{n}": part / max(sum(parts), 100) for n, part in enumerate(parts)}
)


def listing_of(paths: list[str], labels: list[int] | None = None) -> Listing:
    """Returns a listing of images of one byte; behind some paths stands the name of a sidecar."""
    stored = [
        path.encode() + (b"\0x.TXT" if number % 3 == 1 else b"")
        for number, path in enumerate(paths)
    ]
    ends = np.cumsum([0, *map(len, stored)]).astype(np.uint64)
    count = len(paths)
    return Listing(
        root="tree",
        fields=("image", "txt"),
        label=np.array(labels if labels is not None else [-1] * count, np.int64),
        kind=np.ones(count, np.uint8),
        path_bytes=np.frombuffer(b"".join(stored), np.uint8),
        path_offset=ends,
        size=(np.ones(count, np.int64), np.full(count, -1, np.int64)),
        stamp=np.zeros(count, np.int64),
        classes=(),
        labels="none" if labels is None else "int",
        bad=[],
        ignored=Ignored(),
        warnings=[],
        notices=[],
    )


def sides(split: Split, paths: list[str], labels: list[int] | None = None) -> dict[str, str]:
    """Returns the split of each path that has one."""
    rows = split.rows(listing_of(paths, labels))
    return {paths[row]: name for name, mine in rows.items() for row in mine.tolist()}


@given(PATHS, FRACTIONS, st.integers(0, 2**64 - 1))
def test_a_sample_goes_where_the_hash_of_its_path_says(
    paths: list[str], fractions: dict[str, float], seed: int
) -> None:
    found = sides(Split(fractions=fractions, seed=seed), paths)
    for path in paths:
        u, end, expected = Fraction(xxh3_64_intdigest(path.encode(), seed), 2**64), 0.0, None
        for name, fraction in fractions.items():
            end += fraction
            if u < (2 if end > 1 - 1e-9 else end):
                expected = name
                break
        assert found.get(path) == expected


@given(PATHS, FRACTIONS, st.data())
def test_it_stays_there_when_others_come_and_go(
    paths: list[str], fractions: dict[str, float], data: st.DataObject
) -> None:
    split = Split(fractions=fractions, seed=3)
    some = [path for path in paths if data.draw(st.booleans())]
    every = sides(split, paths)
    kept = sides(split, some[::-1])
    assert kept == {path: name for path, name in every.items() if path in some}


@given(PATHS, FRACTIONS, st.data())
def test_stratified_shares_are_exact(
    paths: list[str], fractions: dict[str, float], data: st.DataObject
) -> None:
    labels = [data.draw(st.integers(-1, 2)) for _ in paths]
    split = Split(fractions=fractions, stratify=True)
    found = sides(split, paths, labels)
    total = sum(fractions.values())
    for label, count in Counter(labels).items():
        mine = [path for path, own in zip(paths, labels, strict=True) if own == label]
        shares = [sum(found.get(path) == name for path in mine) for name in fractions]
        if count < len(fractions):
            assert sum(shares) <= count
            continue
        assert min(shares) >= 1
        # Parts that would be empty take their sample from others.
        slack = 1 + sum(count * fraction < 1.5 for fraction in fractions.values())
        for share, fraction in zip(shares, fractions.values(), strict=True):
            assert abs(share - count * fraction) <= slack
        assert abs(sum(shares) - count * total) <= slack
        if total > 1 - 1e-9:
            assert sum(shares) == count
        # They follow each other in the order of the hash.
        ordered = sorted(mine, key=lambda path: xxh3_64_intdigest(path.encode(), 0))
        order = [*fractions].index
        places = [order(found[path]) if path in found else len(shares) for path in ordered]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("count", "fractions", "expected"),
    [
        (1000, {"a": 0.9, "b": 0.1}, [900, 100]),
        (10, {"a": 0.7, "b": 0.2, "c": 0.1}, [7, 2, 1]),
        (3, {"a": 0.9, "b": 0.05, "c": 0.05}, [1, 1, 1]),
        (2, {"a": 0.9, "b": 0.05, "c": 0.05}, [2, 0, 0]),
        (100, {"a": 0.01, "b": 0.5}, [1, 50]),
        (10, {"a": 0.01, "b": 0.01}, [1, 1]),
    ],
)
def test_shares(count: int, fractions: dict[str, float], expected: list[int]) -> None:
    found = sides(Split(fractions=fractions, stratify=True), [f"p{n}" for n in range(count)])
    assert [Counter(found.values())[name] for name in fractions] == expected


def test_the_first_ones_of_a_shuffled_order_go_into_all_splits() -> None:
    paths = [f"p{n}" for n in range(2000)]
    order = Selection(shuffle=True, seed=7).order(listing_of(paths)).tolist()
    hashes = [xxh3_64_intdigest(f"{path}\0order".encode(), 7) for path in paths]
    assert order == sorted(range(2000), key=hashes.__getitem__)
    first = [paths[row] for row in order[:200]]
    found = Counter(sides(Split(fractions={"a": 0.5, "b": 0.5}, seed=7), first).values())
    assert min(found["a"], found["b"]) > 70


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ({}, "a split is by fractions"),
        ({"a": 0.5, "b": 0.6}, r"sum to 1.1: it is at most 1"),
        ({"a": 0.0}, "above 0, at most 1"),
        ({"a": float("nan")}, "above 0, at most 1"),
        ({"a": "1"}, "it is a number"),
        ({"../a": 0.5}, "cannot be the name of a split"),
        ({"a.lmdb": 0.5}, "cannot be the name of a split"),
        ({"": 0.5}, "cannot be the name of a split"),
        ({"a": 0.5, "A": 0.5}, "the splits a and A are one file"),
    ],
)
def test_splits_that_are_none(fractions: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Split(fractions=fractions)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "nothing is selected"),
        ({"seed": 3}, "nothing is selected"),
        ({"only_classes": "cat"}, "a list of names"),
        ({"only_classes": [3]}, "a list of names"),
        ({"min_size": 0}, "min_size is 0"),
        ({"limit": 1.5}, "limit is 1.5"),
        ({"shuffle": True, "seed": -1}, "seed is -1"),
        ({"shuffle": True, "seed": 2**64}, "seed is"),
    ],
)
def test_selections_that_are_none(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Selection(**arguments)


def test_the_sum_may_be_over_one_by_rounding() -> None:
    fractions = {"a": 0.7, "b": 0.2, "c": 0.1}
    assert len(sides(Split(fractions=fractions), [f"p{n}" for n in range(500)])) == 500
