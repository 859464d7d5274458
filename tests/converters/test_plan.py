"""Samples whose files are in each other's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fastconv.converters.plan import Clash, clashing_rows
from fastconv.loaders.table import SampleTable, path_entry

FIELDS = ("image", "b.txt", "txt")


def table_of(samples: Sequence[tuple[str, Mapping[str, str]]]) -> SampleTable:
    """Returns a table of images with sidecars, field -> file name."""
    count = len(samples)
    entries = [path_entry(path, names, FIELDS) for path, names in samples]
    there = [[1 if field in names else -1 for _, names in samples] for field in FIELDS[1:]]
    return SampleTable(
        fields=FIELDS,
        label=np.zeros(count, np.int64),
        kind=np.zeros(count, np.uint8),
        width=np.zeros(count, np.uint32),
        height=np.zeros(count, np.uint32),
        path_bytes=np.frombuffer(b"".join(entries), np.uint8),
        path_offset=np.cumsum([0, *map(len, entries)], dtype=np.uint64),
        shard_row=np.array([0, count], np.int64),
        offset=(),
        size=(np.ones(count, np.int64), *(np.array(column, np.int64) for column in there)),
    )


def test_files_that_are_called_otherwise_than_their_images() -> None:
    samples: list[tuple[str, dict[str, str]]] = [
        ("d/A.png", {"txt": "a.TXT"}),
        ("d/a.TXT", {}),
        ("d/b.png", {"txt": "a.TXT"}),
        ("d/c.png", {"txt": "c.txt", "b.txt": "c.B.txt"}),
        ("d/c.B.jpg", {"txt": "c.B.txt"}),
        ("d/e.png", {"txt": "e.txt"}),
    ]
    asked = []

    def same(one: tuple[int, int], other: tuple[int, int]) -> bool:
        asked.append((one, other))
        return one[0] == 0

    assert clashing_rows(table_of(samples), same) == [
        Clash(1, 0, "d/a.TXT", False, False),
        Clash(4, 3, "d/c.B.txt", False, False),
    ]
    assert asked == [((0, 2), (2, 2)), ((3, 1), (4, 2))]


def test_what_is_in_nobodys_way_any_more_stays() -> None:
    """Each is in the way of the one before it, but for what is left out already."""
    samples: list[tuple[str, dict[str, str]]] = [
        ("a", {}), ("a/b", {}), ("a/b/c", {}), ("x/y", {}), ("x/y/z", {}), ("x", {}), ("x/y", {})
    ]  # fmt: skip
    assert clashing_rows(table_of(samples), lambda one, other: True) == [
        Clash(1, 0, "a", False, True),
        Clash(2, 0, "a", False, True),
        Clash(4, 3, "x/y", False, True),
        Clash(5, 3, "x", False, True),
        Clash(6, 3, "x/y", True, False),
    ]


def test_nothing_is_in_the_way_of_many() -> None:
    samples = [(f"{n % 7}/{n}.png", {"txt": f"{n}.txt"}) for n in range(10_000)]
    samples.append(("3/3.png", {}))
    (clash,) = clashing_rows(table_of(samples), lambda one, other: False)
    assert clash == Clash(10_000, 3, "3/3.png", True, False)
