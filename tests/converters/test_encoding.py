"""What images become, from options to sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastconv.converters import Encoding
from fastconv.converters.encoding import FITS
from fastconv.loaders.decoders import Resize
from fastconv.loaders.errors import UsageError

SIDES = st.integers(1, 3000)


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({"resize": "short=256"}, (500, 375), (0, 0, 500, 375, 341, 256)),
        ({"resize": "short=256"}, (375, 500), (0, 0, 375, 500, 256, 341)),
        ({"resize": "short=256"}, (256, 900), None),
        ({"resize": "short=256"}, (200, 900), None),
        ({"resize": "short=256", "enlarge": True}, (200, 900), (0, 0, 200, 900, 256, 1152)),
        ({"resize": "long=100"}, (500, 375), (0, 0, 500, 375, 100, 75)),
        ({"resize": "long=100"}, (375, 500), (0, 0, 375, 500, 75, 100)),
        ({"resize": "long=100"}, (100, 1), None),
        ({"resize": "long=10"}, (5000, 1), (0, 0, 5000, 1, 10, 1)),
        ({"resize": "64x48"}, (640, 640), (0, 80, 640, 480, 64, 48)),
        ({"resize": "64x64"}, (500, 375), (62, 0, 375, 375, 64, 64)),
        ({"resize": "64x64"}, (64, 64), None),
        ({"resize": "64x64"}, (100, 50), (18, 0, 64, 50, 64, 50)),
        ({"resize": "64x64", "enlarge": True}, (100, 50), (25, 0, 50, 50, 64, 64)),
        ({"resize": "64x64", "fit": "contain"}, (500, 375), (0, 0, 500, 375, 64, 48)),
        ({"resize": "64x64", "fit": "contain"}, (64, 10), None),
        ({"resize": "64x64", "fit": "contain", "enlarge": True}, (32, 8), (0, 0, 32, 8, 64, 16)),
        ({"resize": "64x64", "fit": "stretch"}, (500, 40), (0, 0, 500, 40, 64, 40)),
        ({"resize": "8x9", "fit": "stretch", "enlarge": True}, (5, 4), (0, 0, 5, 4, 8, 9)),
        ({"encode": "png"}, (500, 375), None),
    ],
)
def test_sizes(
    options: dict[str, Any], size: tuple[int, int], expected: tuple[int, ...] | None
) -> None:
    assert Encoding(**options).fitted(*size) == expected


@given(width=SIDES, height=SIDES, side=SIDES)
def test_the_loader_finds_nothing_to_resize(width: int, height: int, side: int) -> None:
    """Packed with short=N, Resize(N) of the loader, torchvision's, is done already."""
    fitted = Encoding(resize=f"short={side}", enlarge=True).fitted(width, height)
    columns, rows = (width, height) if fitted is None else (fitted.columns, fitted.rows)
    expected = Resize(side).geometry(width, height, ())
    assert (columns, rows) == (expected.columns, expected.rows)
    after = Resize(side).geometry(columns, rows, ())
    if side <= min(width, height) and max(width, height) / min(width, height) < 1000:
        assert min(after.rows, after.columns) == min(rows, columns)


@given(
    width=SIDES, height=SIDES, columns=SIDES, rows=SIDES, fit=st.sampled_from(FITS),
    enlarge=st.booleans(),
)  # fmt: skip
def test_boxes(width: int, height: int, columns: int, rows: int, fit: Any, enlarge: bool) -> None:
    encoding = Encoding(resize=f"{columns}x{rows}", fit=fit, enlarge=enlarge)
    fitted = encoding.fitted(width, height)
    if fitted is None:
        if not enlarge:
            return
        assert width == columns or height == rows
        return
    x, y, across, down, out_columns, out_rows = fitted
    assert 0 <= x <= x + across <= width
    assert 0 <= y <= y + down <= height
    assert 1 <= out_columns <= columns
    assert 1 <= out_rows <= rows
    if fit != "cover":
        assert (across, down) == (width, height)
    if fit == "contain":
        assert out_columns == columns or out_rows == rows
    elif enlarge:
        assert (out_columns, out_rows) == (columns, rows)
    if not enlarge:
        assert (out_columns, out_rows) <= (width, height) or fit == "contain"
        assert out_columns <= across or out_columns == 1
        assert out_rows <= down or out_rows == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing changes"),
        ({"resize": "256"}, "resize is '256': it is short=256, long=256, or WIDTHxHEIGHT"),
        ({"resize": "short=0"}, "resize is"),
        ({"resize": "64x0"}, "resize is"),
        ({"resize": "64X64"}, "resize is"),
        ({"resize": "64x64", "fit": "fill"}, "fit is 'fill': it can be cover, contain, stretch"),
        ({"encode": "gif"}, "encode is 'gif': it can be jpeg, png, webp, raw"),
        ({"encode": "jpeg", "quality": 0}, "quality is 0: it is 1 to 100"),
        ({"encode": "jpeg", "quality": 90.5}, "quality is 90.5"),
        ({"encode": "jpeg", "subsampling": "420"}, "subsampling is '420'"),
        ({"encode": "jpeg", "background": "whitish"}, "background is 'whitish': it is a colour"),
        ({"encode": "raw", "icc": "keep"}, "raw pixels have no room"),
        ({"encode": "raw", "orientation": "keep"}, "raw pixels have no room"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Encoding(**options)


def test_in_words() -> None:
    encoding = Encoding(resize="short=256", encode="jpeg", quality=80, enlarge=True)
    assert str(encoding) == "--resize short=256 --enlarge --encode jpeg --quality 80"
    assert Encoding(**encoding.to_json()) == encoding
