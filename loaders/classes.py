"""Class names: their order, and what is worth saying about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from fastconv.loaders.errors import printable
from fastconv.loaders.filenames import sort_key

__all__ = [
    "ClassOrder",
    "empty_classes_warning",
    "numbers_notice",
    "some_of",
    "sort_classes",
    "splits_warning",
]

ClassOrder = Literal["sorted", "natural"]

SPLITS: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})

_DIGITS = re.compile(r"([0-9]+)")


def sort_classes(names: Iterable[str], order: ClassOrder) -> tuple[str, ...]:
    """Returns class names in order: by code point, or with runs of digits compared as numbers."""
    return tuple(sorted(names, key=_natural_key if order == "natural" else sort_key))


def _natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    # Texts and numbers alternate, so each is compared with its like: a number by its length, then
    # by its digits. Names that differ in leading zeros alone are told apart by themselves.
    name = sort_key(name)
    parts = _DIGITS.split(name)
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return [(len(part) if at % 2 else 0, part) for at, part in enumerate(parts)], name


def some_of(names: Sequence[str]) -> str:
    """Returns the first few names, printable, and how many more there are."""
    shown = ", ".join(printable(name) for name in names[:5])
    return shown + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def empty_classes_warning(classes: Sequence[str], rows: Sequence[int]) -> list[str]:
    """Returns one line that names the classes without samples, or none."""
    empty = [name for name, count in zip(classes, rows, strict=True) if not count]
    if not empty:
        return []
    noun = "class has no images and keeps its number"
    if len(empty) > 1:
        noun = "classes have no images and keep their numbers"
    return [f"{len(empty):,} {noun}: {some_of(empty)}"]


def splits_warning(classes: Sequence[str]) -> list[str]:
    """Returns one line where train, val or test became classes, or none."""
    splits = [name for name in classes if name.lower() in SPLITS]
    # One of them among others may well be a class: "train", the vehicle.
    if not splits or (len(splits) == 1 and len(classes) > 1):
        return []
    return [
        f"the top folders {some_of(splits)} look like the splits of a data set, and became "
        "classes; if they are splits, give each folder by itself"
    ]


def numbers_notice(classes: Sequence[str], order: ClassOrder) -> list[str]:
    """Returns one line where classes are numbers, but not in the order of numbers, or none."""
    if order != "sorted" or not all(_DIGITS.fullmatch(name) for name in classes):
        return []
    if sort_classes(classes, "natural") == tuple(classes):
        return []
    return ["class names are numbers but labels follow string order; use --class-order natural"]
