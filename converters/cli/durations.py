"""Times, as people write them."""

from __future__ import annotations

import re

import click

__all__ = ["parse_duration"]

MOST_S = 86_400.0

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Returns the seconds that a time stands for: `20ms`, `1.5s`, `500us`.

    Raises:
        click.BadParameter: It is no time.
    """
    found = _DURATION.fullmatch(text)
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        raise click.BadParameter(f"{text!r} is no time: write 20ms, 1.5s or 500us")
    seconds = float(found[1]) * unit
    if seconds > MOST_S:
        raise click.BadParameter(f"{text[:20]!r} is more than a day")
    return seconds
