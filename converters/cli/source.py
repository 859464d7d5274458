"""What the options mean that say what is a sample and how it is labelled: of `pack` and `scan`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from fastconv.converters.cli.options import split_names
from fastconv.loaders.errors import NotAPackError, UsageError, printable

if TYPE_CHECKING:
    from fastconv.loaders.listing import Ignored

__all__ = ["class_names", "left_out", "source_options"]

MOST_EXTENSIONS = 8
"""Kinds of files left out that are named in a summary."""


def source_options(
    *,
    no_labels: bool,
    labels: str | None,
    classes: str | None,
    class_order: Literal["sorted", "natural"],
    sidecar: list[str] | None,
    any_extension: bool,
) -> dict[str, Any]:
    """Returns the arguments of `fastconv.converters.pack` that the options of these names mean.

    Raises:
        UsageError: They contradict each other, or there are no classes to be found where they say.
    """
    if no_labels and (labels or classes):
        raise UsageError("--no-labels: leave it out, or --labels and --classes")
    return {
        "labels": labels or not no_labels,
        "classes": class_names(classes) if classes else None,
        "class_order": class_order,
        "sidecars": tuple(split_names(sidecar)),
        "any_extension": any_extension,
    }


def class_names(path: str) -> Sequence[str]:
    """Returns the names of classes, in order, of a pack, of a folder of images, or of a text file.

    Raises:
        UsageError: There are none.
        PackError: It is a pack and cannot be read.
    """
    from fastconv.converters.sources.labels import read_class_names
    from fastconv.loaders.open import open_pack

    if not os.path.isfile(path) and not os.path.isdir(path):  # a pipe would be waited for
        raise UsageError(f"{printable(path)}: no such pack or file of class names")
    try:
        names = open_pack(path).meta.classes
    except NotAPackError:
        return read_class_names(path)
    if not names:
        raise UsageError(
            f"{printable(path)}: is a pack without classes: give another, or a text file"
        )
    return names


def left_out(ignored: Ignored) -> str:
    """Returns what was left out in words, "" for nothing: `3 hidden, 12 .txt`."""
    parts = [f"{ignored.hidden:,} hidden"] if ignored.hidden else []
    if ignored.clutter:
        parts.append(f"{ignored.clutter:,} clutter")
    extensions = ignored.extension.most_common()
    for extension, count in extensions[:MOST_EXTENSIONS]:
        parts.append(f"{count:,} {printable(extension) or 'without extension'}")
    if more := extensions[MOST_EXTENSIONS:]:
        parts.append(f"{sum(count for _, count in more):,} of {len(more):,} more extensions")
    return ", ".join(parts)
