"""Descriptions of what to decode of a picture: the `decode=` argument of Datasets.

    train = open_dataset("train.lmdb", decode=RandomResizedCrop(224, flip=0.5))
    val = open_dataset("val.lmdb", decode=CenterCrop(224, resize=256))

They mean what the transforms of these names mean in torchvision.transforms.v2, with antialiasing,
and give uint8, RGB. A decoder only says which part of a picture is wanted and how large;
`fastconv.loaders.decode` then decodes no more than it needs, and resizes it right into the batch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from fastconv.loaders.errors import UsageError

__all__ = [
    "CenterCrop",
    "Decoder",
    "Geometry",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "is_decoder",
]

Size = int | tuple[int, int]

_TRIES = 10


class Geometry(NamedTuple):
    """What becomes of one picture: a part of it is resized, and a window of that is the result.

    Attributes:
        x, y, width, height: The part, in pixels of the picture.
        rows, columns: What the part is resized to.
        top, left: Where the window begins in that. Where it lies outside, it is black.
        out_rows, out_columns: Size of the window.
        flip: Whether left and right change places in the end.
    """

    x: int
    y: int
    width: int
    height: int
    rows: int
    columns: int
    top: int
    left: int
    out_rows: int
    out_columns: int
    flip: bool = False


@runtime_checkable
class Decoder(Protocol):
    """Says what to decode of a picture. It never changes, can be pickled, and serves many threads.

    Attributes:
        draws: How many random numbers it needs for a picture.
        out_size: Rows and columns of all results; None where they depend on the picture.
    """

    @property
    def draws(self) -> int: ...
    @property
    def out_size(self) -> tuple[int, int] | None: ...

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        """Returns what becomes of a picture.

        Args:
            width: Of the picture, upright, in pixels.
            height: The same.
            draw: Random numbers, uniform in [0, 1), as many as `draws` says.
        """


def is_decoder(value: object) -> TypeGuard[Decoder]:
    """Returns whether a value can be used as a decoder; a decoder's class is none."""
    return isinstance(value, Decoder) and not isinstance(value, type)


@dataclass(frozen=True, slots=True)
class Resize:
    """The whole picture, resized.

    Attributes:
        size: Rows and columns of the result; or, as one number, its shorter side.
        max_size: What its longer side may be at most, where size is one number.

    Raises:
        UsageError: A size is wrong.
    """

    size: Size
    max_size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size("size", self.size))
        if self.max_size is None:
            return
        if not isinstance(self.size, int):
            raise UsageError("max_size needs a size that is one number: the shorter side")
        if self.max_size <= self.size:
            raise UsageError(f"max_size is {self.max_size}: it is larger than size, {self.size}")

    @property
    def draws(self) -> int:
        return 0

    @property
    def out_size(self) -> tuple[int, int] | None:
        return None if isinstance(self.size, int) else self.size

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        rows, columns = _resized(width, height, self.size, self.max_size)
        return Geometry(0, 0, width, height, rows, columns, 0, 0, rows, columns)


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """The middle of the picture, with black around it where the picture is smaller.

    Attributes:
        size: Rows and columns of the result; one number is both.
        resize: What the picture is resized to first, as `Resize` takes it.

    Raises:
        UsageError: A size is wrong.
    """

    size: Size
    resize: Size | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size("size", self.size))
        if self.resize is not None:
            object.__setattr__(self, "resize", _size("resize", self.resize))

    @property
    def draws(self) -> int:
        return 0

    @property
    def out_size(self) -> tuple[int, int]:
        return _both(self.size)

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        rows, columns = height, width
        if self.resize is not None:
            rows, columns = _resized(width, height, self.resize, None)
        out_rows, out_columns = self.out_size
        top, left = _middle(rows, out_rows), _middle(columns, out_columns)
        return Geometry(0, 0, width, height, rows, columns, top, left, out_rows, out_columns)


@dataclass(frozen=True, slots=True)
class RandomResizedCrop:
    """A random part of the picture, resized.

    It is found as torchvision finds it: an area and a shape are drawn up to ten times, until they
    fit into the picture, and then a place. If none fit, it is the largest part of the middle whose
    shape is in range. The place of a part that is at least 2, 4 or 8 times as large as the result
    is a multiple of as many pixels, so that a JPEG can be decoded at a half, a quarter or an eighth
    of its size.

    Attributes:
        size: Rows and columns of the result; one number is both.
        scale: Smallest and largest area of the part, of the picture's.
        ratio: Smallest and largest width of the part, of its height.
        flip: How likely it is that left and right change places.

    Raises:
        UsageError: An argument is wrong.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size("size", self.size))
        object.__setattr__(self, "scale", _range("scale", self.scale))
        object.__setattr__(self, "ratio", _range("ratio", self.ratio))
        _probability("flip", self.flip)

    @property
    def draws(self) -> int:
        return 2 * _TRIES + 3

    @property
    def out_size(self) -> tuple[int, int]:
        return _both(self.size)

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        part_width, part_height = self._part(width, height, draw)
        rows, columns = self.out_size
        if part_width:
            grid = _grid(part_width / columns, part_height / rows)
            x = int(draw[-3] * ((width - part_width) // grid + 1)) * grid
            y = int(draw[-2] * ((height - part_height) // grid + 1)) * grid
        else:
            part_width, part_height = _within(width, height, self.ratio)
            x, y = (width - part_width) // 2, (height - part_height) // 2
        flip = draw[-1] < self.flip
        return Geometry(x, y, part_width, part_height, rows, columns, 0, 0, rows, columns, flip)

    def _part(self, width: int, height: int, draw: Sequence[float]) -> tuple[int, int]:
        """Returns width and height of a part that fits, (0, 0) where none was drawn."""
        smallest, largest = self.scale
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for place in range(0, 2 * _TRIES, 2):
            area = width * height * (smallest + draw[place] * (largest - smallest))
            ratio = math.exp(low + draw[place + 1] * (high - low))
            part_width, part_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < part_width <= width and 0 < part_height <= height:
                return part_width, part_height
        return 0, 0


@dataclass(frozen=True, slots=True)
class RandomHorizontalFlip:
    """The picture, with left and right changing places now and then.

    Attributes:
        p: How likely that is.
        after: What is done before; None: nothing.

    Raises:
        UsageError: An argument is wrong.
    """

    p: float = 0.5
    after: Decoder | None = None

    def __post_init__(self) -> None:
        _probability("p", self.p)
        if self.after is not None and not is_decoder(self.after):
            raise UsageError(f"after is {self.after!r}: it is a decoder, such as CenterCrop(224)")

    @property
    def draws(self) -> int:
        return 1 if self.after is None else self.after.draws + 1

    @property
    def out_size(self) -> tuple[int, int] | None:
        return None if self.after is None else self.after.out_size

    def geometry(self, width: int, height: int, draw: Sequence[float]) -> Geometry:
        if self.after is None:
            before = Geometry(0, 0, width, height, height, width, 0, 0, height, width)
        else:
            before = self.after.geometry(width, height, draw[:-1])
        return before._replace(flip=before.flip != (draw[-1] < self.p))


def _resized(width: int, height: int, size: Size, longest: int | None) -> tuple[int, int]:
    """Returns the rows and columns of a picture after resizing."""
    if not isinstance(size, int):
        return size
    short, long = size, size * max(width, height) // min(width, height)
    if longest is not None and long > longest:
        short, long = max(longest * short // long, 1), longest
    return (short, long) if height <= width else (long, short)


def _within(width: int, height: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Returns width and height of the largest part whose ratio is in range."""
    if width < height * ratio[0]:
        return width, max(round(width / ratio[0]), 1)
    if width > height * ratio[1]:
        return max(round(height * ratio[1]), 1), height
    return width, height


def _grid(*reductions: float) -> int:
    """Returns how many pixels apart a part may begin that is made smaller by this much."""
    return max(step for step in (1, 2, 4, 8) if step == 1 or step <= min(reductions))


def _middle(length: int, wanted: int) -> int:
    """Returns where the middle part begins; below 0 where there are not that many."""
    return -((wanted - length) // 2) if wanted > length else round((length - wanted) / 2)


def _both(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _size(name: str, value: object) -> Size:
    """Returns a size as an int, or as a tuple of rows and columns."""
    parts = value if _is_pair(value) else (value,)
    try:
        numbers = [operator.index(part) for part in parts]  # type: ignore[arg-type]
    except TypeError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UsageError(f"{name} is {value!r}: it is a number of pixels, or (rows, columns)")
    return (numbers[0], numbers[1]) if len(numbers) == 2 else numbers[0]


def _is_pair(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2


def _range(name: str, value: object) -> tuple[float, float]:
    try:
        low, high = map(float, value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not 0 < low <= high < math.inf:
        raise UsageError(f"{name} is {value!r}: it is (smallest, largest), both above 0")
    return low, high


def _probability(name: str, value: object) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"{name} is {value!r}: it is a probability, from 0 to 1")
