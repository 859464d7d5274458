"""Names that come from elsewhere, from a program or from packs of other tools: which of them can be
those of fields, classes and samples here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from fastconv.loaders.classes import some_of
from fastconv.loaders.errors import UsageError
from fastconv.loaders.kinds import EXTENSIONS
from fastconv.loaders.sample import IMAGE

__all__ = [
    "class_names",
    "fields_left_out",
    "is_name",
    "problem_of_field",
    "several",
    "unique_names",
]

T = TypeVar("T")

_FIELD = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def is_name(text: object) -> bool:
    """Returns whether something is a text that a class or file can be called by: it has characters,
    none of them NUL, and can be written as bytes (half of a surrogate pair cannot)."""
    if not isinstance(text, str) or not text or "\0" in text:
        return False
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def several(what: str, given: Iterable[T]) -> tuple[T, ...]:
    """Returns all of what an argument was given.

    Raises:
        UsageError: It is one text or path: each of its letters would be one.
    """
    if isinstance(given, str | bytes | os.PathLike):
        raise UsageError(f"{what} is {given!r:.60}: give a list of them, as [{given!r:.60}]")
    return tuple(given)


def problem_of_field(name: str) -> str | None:
    """Returns what keeps a name from being that of a field besides the image, as `--sidecar` takes
    it; None where nothing does."""
    if not name:
        return "the suffix is empty; give one like txt"
    if name.startswith("."):
        return f"give it without the first dot: {name.lstrip('.')}"
    if name in EXTENSIONS:
        return "is an image extension, so such files are samples; give one like mask.png"
    if name in ("cls", IMAGE) or name.startswith("__"):
        return "is the name of something else inside packs; name these files otherwise"
    if name != name.lower():
        return f"give it in lower case: {name.lower()} (it matches names in any case)"
    if not _FIELD.fullmatch(name) or len(name) > 64:
        return "may only have a-z, 0-9, _, - and single dots between them, and 64 characters"
    return None


def fields_left_out(names: Iterable[str]) -> list[str]:
    """Returns one line that says which fields were left out for their names, or none."""
    found = sorted(names)
    return [f"fields left out, no sidecar can have their names: {some_of(found)}"] if found else []


def class_names(names: Sequence[object]) -> tuple[str, ...]:
    """Returns the classes that a list of names makes, the label is the position; none where one of
    them is no name, or is there twice."""
    good = [name for name in names if isinstance(name, str) and is_name(name)]
    return tuple(good) if len(good) == len(names) == len({*good}) else ()


def unique_names(
    names: Sequence[bytes | None], numbers: Sequence[int], word: str = "sample"
) -> list[bytes]:
    """Returns a name of its own for each sample: by its number where it has none, or where another
    sample before it has the same.

    Args:
        names: They.
        numbers: The samples' numbers in their file or pack.
        word: What is numbered.
    """
    out: list[bytes] = []
    seen: set[bytes] = set()
    for name, number in zip(names, numbers, strict=True):
        number_of = f"{word} {number}".encode()
        if not name or b"\0" in name:
            name = number_of
        while name in seen:
            stem, extension = os.path.splitext(name)
            name = b"%b (%b)%b" % (stem, number_of, extension)
        seen.add(name)
        out.append(name)
    return out
