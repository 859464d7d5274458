"""Numbers as people read them: three digits that count."""

from __future__ import annotations

import math

from fastconv.loaders.measure.cases import Spread

__all__ = ["figure", "range_of"]


def figure(value: float) -> str:
    """Returns a number with three significant digits, "\u2013" for what is no number."""
    if not math.isfinite(value):
        return "\u2013"
    if value == 0:
        return "0"
    value = float(f"{value:.3g}")
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}" if places <= 6 else f"{value:.2e}"
    return text.replace("-", "\u2212")


def range_of(spread: Spread) -> str:
    """Returns the extremes of a value, as one text."""
    return f"{figure(spread.low)} to {figure(spread.high)}"
