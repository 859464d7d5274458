"""What images become when they are packed anew: smaller, of another format, or raw pixels.

    pack("images", "small.lmdb", encoding=Encoding(resize="short=256", encode="jpeg"))

Only who asks for it gets it. An image that has the wanted size, stands upright and is sRGB stays as
it is, byte for byte, unless a format was asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from fastconv.loaders.errors import UsageError

__all__ = ["COLORS", "FITS", "TARGETS", "Encoding", "Fitted"]

Fit = Literal["cover", "contain", "stretch"]
Target = Literal["jpeg", "png", "webp", "raw"]
Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]
Color = Literal["keep", "rgb", "grey"]
FITS: tuple[str, ...] = get_args(Fit)
TARGETS: tuple[str, ...] = get_args(Target)
COLORS: tuple[str, ...] = get_args(Color)

_SIDE = re.compile(r"(short|long)=([1-9]\d{0,8})")
_BOX = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})")


class Fitted(NamedTuple):
    """What a picture is resized to.

    Attributes:
        x, y, width, height: The part of it that is kept, in pixels.
        columns, rows: Size of the result.
    """

    x: int
    y: int
    width: int
    height: int
    columns: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What images become.

    Attributes:
        resize: "short=256" and "long=256" set that side, "64x48" is width times height; None: the
            size stays.
        fit: For width times height: "cover" fills it and cuts off what is over, evenly; "contain"
            is the largest that fits in; "stretch" changes the shape.
        enlarge: Makes small images larger, too.
        encode: The format of all images; None: those that change stay JPEG, PNG or WebP, and
            become PNG if they were something else.
        quality: Of JPEG and WebP, 1 to 100, as libjpeg and libwebp count.
        subsampling: How many of a JPEG's colours are stored.
        color: "rgb" or "grey" for all. "keep": grey images stay grey where the format has that;
            raw pixels are RGB then.
        background: What is behind transparent pixels where the format has none (JPEG, raw): a
            colour as CSS names it.
        orientation: "apply" turns pixels upright, as EXIF says, "keep" stores that again.
        icc: "srgb" turns the colours of other profiles into sRGB, "keep" stores the profile again.

    Raises:
        UsageError: One of them is wrong, or they do not go together.
    """

    resize: str | None = None
    fit: Fit = "cover"
    enlarge: bool = False
    encode: Target | None = None
    quality: int = 90
    subsampling: Subsampling = "4:2:0"
    color: Color = "keep"
    background: str = "white"
    orientation: Literal["apply", "keep"] = "apply"
    icc: Literal["srgb", "keep"] = "srgb"

    def __post_init__(self) -> None:
        if self.resize is None and self.encode is None:
            raise UsageError("nothing changes: give a size to resize to, or a format to encode in")
        if self.resize is not None and not (_SIDE.fullmatch(self.resize) or self.box):
            raise UsageError(
                f"resize is {self.resize!r}: it is short=256, long=256, or WIDTHxHEIGHT as 64x48"
            )
        for name, known in (
            ("fit", FITS), ("encode", (*TARGETS, None)), ("subsampling", get_args(Subsampling)),
            ("color", COLORS), ("orientation", ("apply", "keep")), ("icc", ("srgb", "keep")),
        ):  # fmt: skip
            if (value := getattr(self, name)) not in known:
                names = ", ".join(str(one) for one in known if one is not None)
                raise UsageError(f"{name} is {value!r}: it can be {names}")
        if not isinstance(self.quality, int) or not 1 <= self.quality <= 100:
            raise UsageError(f"quality is {self.quality!r}: it is 1 to 100")
        if self.encode == "raw" and "keep" in (self.orientation, self.icc):
            raise UsageError(
                "raw pixels have no room for an orientation or a colour profile: let them be "
                "applied"
            )
        self.background_rgb()

    @property
    def box(self) -> tuple[int, int] | None:
        """Width and height that are wanted, None where `resize` is no such pair."""
        found = _BOX.fullmatch(self.resize or "")
        return (int(found[1]), int(found[2])) if found else None

    def background_rgb(self) -> tuple[int, int, int]:
        """Returns the background.

        Raises:
            UsageError: It is no colour.
        """
        from PIL import ImageColor

        try:
            found = ImageColor.getrgb(self.background)
        except ValueError:
            raise UsageError(
                f"background is {self.background!r}: it is a colour as white, #ff8800 or "
                "rgb(255, 136, 0)"
            ) from None
        return found[0], found[1], found[2]

    def fitted(self, width: int, height: int) -> Fitted | None:
        """Returns what a picture is resized to; None where its size stays.

        Args:
            width, height: Of the picture, upright, in pixels.
        """
        if self.resize is None:
            return None
        if self.box is None:
            columns, rows = self._by_side(width, height)
            part = (0, 0, width, height)
        else:
            columns, rows, part = self._by_box(width, height, *self.box)
        if (columns, rows) == (width, height):
            return None
        return Fitted(*part, columns, rows)

    def _by_side(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of the result; the other side is rounded down, as torchvision's
        Resize does, so that its Resize of the same size finds nothing to do."""
        found = _SIDE.fullmatch(self.resize or "")
        assert found is not None
        wanted = int(found[2])
        short, long = sorted((width, height))
        side, other = (short, long) if found[1] == "short" else (long, short)
        if side == wanted or (side < wanted and not self.enlarge):
            return width, height
        other = max(wanted * other // side, 1)
        wide = (width >= height) == (found[1] == "short")
        return (other, wanted) if wide else (wanted, other)

    def _by_box(
        self, width: int, height: int, columns: int, rows: int
    ) -> tuple[int, int, tuple[int, int, int, int]]:
        """Returns width and height of the result, and the part of the picture that it shows."""
        if self.fit == "stretch":
            if not self.enlarge:
                columns, rows = min(columns, width), min(rows, height)
            return columns, rows, (0, 0, width, height)
        if self.fit == "contain":
            if columns >= width and rows >= height and not self.enlarge:
                return width, height, (0, 0, width, height)
            if width * rows >= height * columns:
                rows = max((2 * height * columns + width) // (2 * width), 1)
            else:
                columns = max((2 * width * rows + height) // (2 * height), 1)
            return columns, rows, (0, 0, width, height)
        scale = max(columns / width, rows / height)
        if scale > 1 and not self.enlarge:
            scale, columns, rows = 1.0, min(columns, width), min(rows, height)
        across, down = min(round(columns / scale), width), min(round(rows / scale), height)
        across, down = max(across, 1), max(down, 1)
        return columns, rows, ((width - across) // 2, (height - down) // 2, across, down)

    def to_json(self) -> dict[str, Any]:
        """Returns what it says, but for what says nothing: what is the default."""
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default
        }

    def __str__(self) -> str:
        """Returns it in words, as the options of the command line are written."""
        return " ".join(
            f"--{name}" if value is True else f"--{name} {value}"
            for name, value in self.to_json().items()
        )
