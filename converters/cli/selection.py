"""What the options mean that say which samples are packed, and into which of several packs: of
`pack` and `convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastconv.converters.cli.options import split_names
from fastconv.loaders.errors import UsageError, printable

if TYPE_CHECKING:
    from fastconv.converters.selection import Selection, Split

__all__ = ["chosen"]


def chosen(
    *,
    only_classes: list[str] | None,
    min_size: int | None,
    exclude_duplicates: bool,
    shuffle: bool,
    seed: int | None,
    limit: int | None,
    split: list[str] | None,
    stratify: bool,
) -> tuple[Selection | None, Split | None]:
    """Returns which samples are packed, None for all of them, and how they are split, None for one
    pack, as the options of these names say.

    Raises:
        UsageError: One is wrong, or means nothing without another.
    """
    from fastconv.converters.selection import Selection, Split

    if stratify and not split:
        raise UsageError("--stratify: needs --split")
    if seed is not None and not (shuffle or split):
        raise UsageError("--seed: needs --shuffle or --split: nothing else goes by chance")
    selection = None
    if only_classes or shuffle or exclude_duplicates or min_size is not None or limit is not None:
        selection = Selection(
            only_classes=split_names(only_classes),
            min_size=min_size,
            exclude_duplicates=exclude_duplicates,
            shuffle=shuffle,
            seed=(seed or 0) if shuffle else 0,
            limit=limit,
        )
    if not split:
        return selection, None
    return selection, Split(fractions=fractions_of(split), stratify=stratify, seed=seed or 0)


def fractions_of(given: list[str]) -> dict[str, float]:
    """Returns the fractions by their names, of what was given as NAME=FRACTION.

    Raises:
        UsageError: It is of another form, or has a name twice.
    """
    fractions: dict[str, float] = {}
    for text in split_names(given):
        name, _, number = text.partition("=")
        try:
            fraction = float(number)
        except ValueError:
            raise UsageError(f"--split {printable(text)}: write it as train=0.9,val=0.1") from None
        if name in fractions:
            raise UsageError(f"--split: {printable(name)} is there twice")
        fractions[name] = fraction
    return fractions
