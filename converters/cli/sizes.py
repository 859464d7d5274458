"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re

import click

__all__ = ["parse_size", "size_text"]

_UNITS: dict[str, int] = {"": 1, "B": 1} | {
    f"{letter}{i}B": base**power
    for power, letter in enumerate("KMGT", 1)
    for i, base in (("", 1000), ("I", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Returns the bytes that a size stands for: `256MB` (millions), `1GiB` (2**30), `4096`.

    Raises:
        click.BadParameter: It is no size, or no whole number of bytes.
    """
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise click.BadParameter(f"{text!r} is no size: write 256MB, 1GiB or a number of bytes")
    whole, _, digits = found[1].partition(".")
    size, rest = divmod(int(whole + digits) * unit, int("1" + "0" * len(digits)))
    if rest:
        raise click.BadParameter(f"{text!r} is no whole number of bytes")
    return size


def size_text(size: int) -> str:
    """Returns a size with three digits or more and its unit: `583 MB`, `1.25 GB`."""
    if size < 1000:
        return f"{size} bytes" if size != 1 else "1 byte"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            break
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
