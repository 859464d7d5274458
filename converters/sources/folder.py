"""A folder of images as the source of a pack."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastconv.converters.sources.labels import apply_labels
from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.listing import Listing, WalkOptions
from fastconv.loaders.names import several
from fastconv.loaders.walk import walk_folder

__all__ = ["scan"]


def scan(
    root: str,
    *,
    labels: bool | str | os.PathLike[str] = True,
    classes: Sequence[str] | None = None,
    class_order: ClassOrder = "sorted",
    sidecars: Sequence[str] = (),
    any_extension: bool = False,
) -> Listing:
    """Returns the samples of a folder, in their order.

    The arguments are those of `fastconv.converters.pack`.

    Raises:
        UsageError: An argument is wrong, or a class is unknown.
    """
    options = WalkOptions(
        sidecars=several("sidecars", sidecars),
        class_order=class_order,
        classes=None if classes is None else several("classes", classes),
        labels=labels is True,
        any_extension=any_extension,
    )
    listing = walk_folder(root, options)
    if isinstance(labels, bool):
        return listing
    file = os.fsdecode(labels)
    if not os.path.isfile(file):
        raise UsageError(f"{printable(file)}: no such file of labels")
    return apply_labels(listing, file, options)
