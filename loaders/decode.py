"""From the bytes of a field to what a Dataset gives: pixels, or text.

Pillow's `convert("RGB")` is the reference, with one exception: 16-bit grey is scaled (v >> 8),
where Pillow would clip everything above 255.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from fastconv.loaders.errors import SampleError, UsageError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Mode", "decode_pil", "to_text"]

Mode = Literal["RGB", "L", "unchanged"]

_TEXT_FIELDS = frozenset(
    ("txt", "text", "caption", "json", "jsonl", "csv", "tsv", "xml", "html", "htm", "md",
     "markdown", "yaml", "yml", "svg", "srt", "vtt")
)  # fmt: skip


def decode_pil(
    data: memoryview | bytes, mode: Mode = "RGB", exif_transpose: bool = False
) -> Image.Image:
    """Returns the first picture of an image file, loaded, as a `PIL.Image.Image`.

    Alpha is dropped as Pillow's `convert` drops it. No warning is raised and no setting of Pillow's
    or of Python's is changed, also not for a moment, so that threads can decode side by side;
    `fastconv.loaders.pillow` says how.

    Args:
        data: The file.
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

    limit = Image.MAX_IMAGE_PIXELS
    image = pillow.load_image(data, max_pixels=None if limit is None else 2 * limit)
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
    import numpy as np
    from PIL import Image

    if image.mode == "F":
        raise SampleError("float image: open with mode='unchanged'", "unsupported_format")
    values = np.asarray(image)
    if image.mode == "I" and (values.min() < 0 or values.max() > 0xFFFF):
        raise SampleError("32-bit integer image: open with mode='unchanged'", "unsupported_format")
    return Image.fromarray((values >> 8).astype(np.uint8))
