"""From the bytes of a field to what a Dataset gives: pixels, or text.

Pillow's `convert("RGB")` is the reference, with one exception: 16-bit grey is scaled (v >> 8),
where Pillow would clip everything above 255. Arrays and decoders have JPEGs decoded by simplejpeg,
which gives the same pixels, as both use libjpeg-turbo; what it does not take goes to Pillow. Of raw
samples (`fastconv.loaders.raw`) the pixels are there already; modes and decoders treat them as
those of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import SampleError, UsageError
from fastconv.loaders.raw import Pixels
from fastconv.loaders.scratch import scratch

if TYPE_CHECKING:
    from PIL import Image

    from fastconv.loaders.decoders import Decoder, Geometry
    from fastconv.loaders.jpeg import Header

__all__ = ["Mode", "decode_numpy", "decode_pil", "decode_with", "in_mode", "to_text"]

Stored = memoryview | bytes | Pixels
"""An image as a pack holds it: a file, or the pixels of a raw sample."""

Mode = Literal["RGB", "L", "unchanged"]

_TEXT_FIELDS = frozenset(
    ("txt", "text", "caption", "json", "jsonl", "csv", "tsv", "xml", "html", "htm", "md",
     "markdown", "yaml", "yml", "svg", "srt", "vtt")
)  # fmt: skip


def decode_pil(data: Stored, mode: Mode = "RGB", exif_transpose: bool = False) -> Image.Image:
    """Returns the first picture of an image file, loaded, as a `PIL.Image.Image`.

    Alpha is dropped as Pillow's `convert` drops it. No warning is raised and no setting of Pillow's
    or of Python's is changed, also not for a moment, so that threads can decode side by side;
    `fastconv.loaders.pillow` says how.

    Args:
        data: The file; or pixels, uint8 (rows, columns, 1, 3 or 4).
        mode: "RGB" or "L" converts. "unchanged" gives Pillow's own mode and values: 16-bit grey as
            "I;16", masks as "1" or "P", floats as "F".
        exif_transpose: Turns the picture as its EXIF orientation says. A damaged EXIF block turns
            nothing. (Pillow itself always turns TIFF and HEIC.)

    Raises:
        SampleError: The data are no image, damaged, of an unsupported format, hold more pixels than
            twice `PIL.Image.MAX_IMAGE_PIXELS`, or values that have no 8-bit form (floats, 32-bit
            integers). `reason` has the word, the message the sentence without any place.
        UsageError: Another mode.
    """
    if mode not in get_args(Mode):
        raise UsageError(f"unknown mode {mode!r}: known are {', '.join(get_args(Mode))}")
    from PIL import Image

    from fastconv.loaders import pillow

    if isinstance(data, np.ndarray):
        return Image.fromarray(_plain_grey(in_mode(data, mode)))
    image = pillow.load_image(data, max_pixels=pillow.most_pixels())
    if exif_transpose:
        image = pillow.upright(image)
    if mode in ("unchanged", image.mode):
        return pillow.plain(image)
    if image.mode[0] in "IF":
        image = _grey_8bit(image)
    if isinstance(image.info.get("transparency"), bytes):
        del image.info["transparency"]  # a palette with several: nothing that RGB or L could keep
    if image.mode == "LAB":
        image = image.convert("RGB")  # the only mode that Pillow converts it to
    return pillow.plain(image) if image.mode == mode else image.convert(mode)


def decode_numpy(
    data: Stored, mode: Mode = "RGB", exif_transpose: bool = False
) -> npt.NDArray[Any]:
    """Returns the pixels that `decode_pil` gives, uint8 (rows, columns, 3), RGB; sooner for a JPEG.

    With mode "L" they are uint8 (rows, columns); with "unchanged" what numpy makes of Pillow's
    mode. Arguments and errors are those of `decode_pil`.
    """
    from fastconv.loaders import jpeg

    if isinstance(data, np.ndarray):
        return _plain_grey(in_mode(data, mode))
    view = memoryview(data)
    header = jpeg.read_header(view)
    if header is not None and _may_be_decoded(header):
        pixels = jpeg.decode(view, grey=header.grey and mode != "RGB")
        if pixels is not None:
            if exif_transpose:
                pixels = np.ascontiguousarray(TURNS[_orientation(view)](pixels))
            if mode == "L":
                pixels = _grey(pixels)
            return _plain_grey(pixels)
    return np.array(decode_pil(data, mode, exif_transpose))


def decode_with(
    data: Stored,
    decoder: Decoder,
    draw: Sequence[float],
    out: Pixels | None = None,
    mode: Literal["RGB", "L"] = "RGB",
    exif_transpose: bool = False,
) -> Pixels:
    """Returns what a decoder wants of a picture, uint8 (rows, columns, 3), RGB; 1 with mode "L".

    Several threads can decode at once: the interpreter is free for the others most of the time.

    Args:
        data: The file; or pixels, uint8 (rows, columns, 1, 3 or 4).
        decoder: Says what is wanted.
        draw: As many random numbers as it needs.
        out: Where to put it, C-contiguous, such as one image of a batch; None makes a new array.
        mode: "RGB" or "L".
        exif_transpose: Turns the picture first, as its EXIF orientation says.

    Raises:
        SampleError: As from `decode_pil`.
    """
    from fastconv.loaders import resize

    if isinstance(data, np.ndarray):
        picture = _whole(in_mode(data, mode), decoder, draw)
    else:
        picture = _from_jpeg(data, decoder, draw, mode, exif_transpose) or _whole(
            np.asarray(decode_pil(data, mode, exif_transpose)), decoder, draw
        )
    pixels, geometry, eighths = picture
    if out is None:
        out = np.empty((geometry.out_rows, geometry.out_columns, pixels.shape[2]), np.uint8)
    resize.render(pixels, geometry, out, eighths)
    return out


def in_mode(pixels: Pixels, mode: Mode) -> Pixels:
    """Returns pixels as `decode_pil` gives those of a file, uint8 (..., rows, columns, channels):
    3 channels with "RGB", 1 with "L".

    Args:
        pixels: uint8 (..., rows, columns, 1, 3 or 4); returned themselves where they are so.
        mode: "RGB", "L" or "unchanged".
    """
    channels = pixels.shape[-1]
    if mode == "unchanged" or (mode, channels) in (("RGB", 3), ("L", 1)):
        return pixels
    if mode == "L":
        return _grey(pixels.reshape(-1, *pixels.shape[-2:])).reshape(*pixels.shape[:-1], 1)
    if channels == 1:
        return np.repeat(pixels, 3, axis=-1)
    return np.ascontiguousarray(pixels[..., :3])


def for_gpu(
    data: bytes, decoder: Decoder, draw: Sequence[float], exif_transpose: bool = False
) -> Geometry | None:
    """Returns what becomes of a JPEG that can be decoded on a GPU; None for all others.

    The arguments are those of `decode_with`.
    """
    from fastconv.loaders import jpeg

    view = memoryview(data)
    header = jpeg.read_header(view)
    if header is None or not _may_be_decoded(header):
        return None
    if exif_transpose and _orientation(view) != 1:
        return None
    return decoder.geometry(header.width, header.height, draw)


def to_text(name: str, data: memoryview | bytes) -> str | bytes:
    """Returns a field of a text format as `str` when it is valid UTF-8, any other as `bytes`.

    Args:
        name: The field's name, such as `txt`, `JSON` or `left.md`; its last part counts.
        data: The field.
    """
    raw = bytes(data)
    if name.rpartition(".")[2].lower() in _TEXT_FIELDS:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
    return raw


def _grey_8bit(image: Image.Image) -> Image.Image:
    """Returns 16-bit grey as 8 bits, v >> 8.

    Raises:
        SampleError: The values are floats, or integers that take more than 16 bits.
    """
    from PIL import Image

    if image.mode == "F":
        raise SampleError("float image: open with mode='unchanged'", "unsupported_format")
    values = np.asarray(image)
    if image.mode == "I" and (values.min() < 0 or values.max() > 0xFFFF):
        raise SampleError("32-bit integer image: open with mode='unchanged'", "unsupported_format")
    return Image.fromarray((values >> 8).astype(np.uint8))


def _whole(pixels: Pixels, decoder: Decoder, draw: Sequence[float]) -> tuple[Pixels, Geometry, int]:
    """Returns all pixels of a picture, (rows, columns, channels), as `_from_jpeg` returns those of
    a JPEG."""
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return pixels, decoder.geometry(pixels.shape[1], pixels.shape[0], draw), 8


def _from_jpeg(
    data: memoryview | bytes,
    decoder: Decoder,
    draw: Sequence[float],
    mode: Literal["RGB", "L"],
    exif_transpose: bool,
) -> tuple[Pixels, Geometry, int] | None:
    """Returns as much of a JPEG as a decoder needs, what becomes of it, and its size in eighths.

    None where Pillow has to decode it. The arguments are those of `decode_with`.
    """
    from fastconv.loaders import jpeg, resize

    file = scratch("file", len(data))
    if len(data):  # a copy, as other threads can run while its pages come from the disk
        file[:] = np.frombuffer(data, np.uint8)
    header = jpeg.read_header(file.data)
    if header is None or not _may_be_decoded(header):
        return None
    orientation = _orientation(file.data) if exif_transpose else 1
    size = header.width, header.height
    geometry = decoder.geometry(*(size if orientation < 5 else size[::-1]), draw)
    eighths = resize.smallest_eighths(geometry, jpeg.EIGHTHS)
    rows = resize.last_row(geometry)
    if orientation != 1:
        rows = header.height
        if any(length * eighths % 8 for length in size):
            eighths = 8  # the last pixels would be parts of one, and come first when turned
    pixels = jpeg.decode_top(file, header, rows, eighths, grey=header.grey and mode == "L")
    if pixels is None:
        return None
    pixels = TURNS[orientation](pixels)
    return _grey(pixels) if mode == "L" else pixels, geometry, eighths


def _may_be_decoded(header: Header) -> bool:
    """Returns whether a picture has no more pixels than Pillow decodes without an error."""
    from fastconv.loaders import pillow

    most = pillow.most_pixels()
    return most is None or header.width * header.height <= most


def _orientation(data: memoryview) -> int:
    """Returns the EXIF orientation of a JPEG, 1 to 8."""
    from fastconv.loaders import jpeg, pillow

    found = pillow.orientation(jpeg.read_about(data))
    return found if found in TURNS else 1


def _grey(pixels: Pixels) -> Pixels:
    """Returns the pixels as Pillow makes them grey, (rows, columns, 1)."""
    from PIL import Image

    if pixels.shape[2] == 1:
        return pixels
    return np.array(Image.fromarray(pixels).convert("L"))[..., np.newaxis]


def _plain_grey(pixels: Pixels) -> Pixels:
    """Returns pixels (rows, columns, channels), without the last dimension where they are grey."""
    return pixels if pixels.shape[2] > 1 else pixels[..., 0]


TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}
"""EXIF orientation -> what turns such a picture upright, without copying it."""
