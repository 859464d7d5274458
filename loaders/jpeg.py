"""Decodes JPEG with libjpeg-turbo, through simplejpeg, and no more of it than is needed. (Whole
pictures are for the kernel, `fastconv.loaders.native`, where it is there.)

Most of the time goes into undoing the entropy coding, which is only possible from the first row on.
Two things can be left out: the rows below the last one that is wanted, and detail, where the
picture is going to be made smaller anyway.

None as a result means: let Pillow decide. That is so for whatever simplejpeg does not decode (CMYK,
YCCK, arithmetic coding, lossless, 12 bits), and for everything that libjpeg-turbo has a complaint
about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg

from fastconv.loaders import native
from fastconv.loaders.scratch import scratch

__all__ = ["EIGHTHS", "Header", "decode", "decode_top", "read_about", "read_header"]

EIGHTHS = (1, 2, 4)
"""Sizes at which a JPEG may be decoded, in eighths. libjpeg-turbo knows all from 1 to 8, but has
vector code for these and the whole size alone. On photographs of 500 x 375 pixels they take 0.58,
0.70 and 0.77 of the time of the whole size; 3/8 takes 0.85, and 5/8 to 7/8 take 1.2 to 1.45."""

_START, _SCAN = 0xD8, 0xDA
_RESTART_INTERVAL = 0xDD
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_OTHER_FRAMES = frozenset((0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF))
_ABOUT = 0xE1
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"

_ROWS_LEFT = "extraneous bytes before marker 0xd9"
"""How libjpeg's complaint ends about rows beyond the last one that the header speaks of. Of several
complaints one hears the first, so there was none about the rows above; and 0xd9 is the end of the
file: one that is cut short is complained of as such."""


class Header(NamedTuple):
    """What a JPEG says of itself.

    Attributes:
        width, height: In pixels.
        grey: It has no colours.
        step: How many rows are coded together; 0 where none can be left out.
        height_at: Where the file has its height.
    """

    width: int
    height: int
    grey: bool
    step: int
    height_at: int


def read_header(data: memoryview) -> Header | None:
    """Returns the header of a JPEG; None where it is none, or one that simplejpeg does not
    decode."""
    try:
        return _read_header(data)
    except IndexError:  # it is cut short
        return None


def _read_header(data: memoryview) -> Header | None:
    if data[0] != 0xFF or data[1] != _START:
        return None
    place = 2
    frame = 0
    divisible = True
    while True:
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
            continue
        if marker == _SCAN:
            break
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE):
            frame = place + 4
            divisible &= marker != _PROGRESSIVE  # where each row is coded several times over
        elif marker in _OTHER_FRAMES:
            return None
        elif marker == _RESTART_INTERVAL:
            divisible = False  # complaints would be ambiguous
        place += 2 + (data[place + 2] << 8 | data[place + 3])
    precision, components = data[frame], data[frame + 5]
    height = data[frame + 1] << 8 | data[frame + 2]
    width = data[frame + 3] << 8 | data[frame + 4]
    if not frame or precision != 8 or components not in (1, 3) or not width or not height:
        return None
    divisible &= data[place + 4] == components  # else the colours come after all of the grey
    step = 8 * max(data[frame + 7 + 3 * number] & 15 for number in range(components))
    return Header(width, height, components == 1, step if divisible else 0, frame + 1)


def read_about(data: memoryview) -> dict[str, bytes]:
    """Returns the EXIF block and the XMP text of a JPEG, by the names that Pillow has for them.

    Args:
        data: The file; `read_header` has taken it.
    """
    about: dict[str, bytes] = {}
    place = 2
    while (marker := data[place + 1]) != _SCAN:
        if marker == 0xFF:
            place += 1
            continue
        stop = place + 2 + (data[place + 2] << 8 | data[place + 3])
        if marker == _ABOUT:
            block = bytes(data[place + 4 : stop])
            if block.startswith(_EXIF):
                about["exif"] = about["exif"] + block[len(_EXIF) :] if "exif" in about else block
            elif block.startswith(_XMP):
                about["xmp"] = block[len(_XMP) :]
        place = stop
    return about


def decode(data: memoryview, grey: bool = False) -> npt.NDArray[np.uint8] | None:
    """Returns the whole picture, uint8 (rows, columns, 3), RGB; None where Pillow has to decide.

    Args:
        data: The file; `read_header` has taken it.
        grey: Gives (rows, columns, 1) instead, of a picture that is grey.
    """
    pixels = native.decode_whole(data, grey)
    if pixels is not None:
        return pixels
    try:
        found: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB")
    except ValueError:
        return None
    return found


def decode_top(
    data: npt.NDArray[np.uint8], header: Header, rows: int, eighths: int = 8, grey: bool = False
) -> npt.NDArray[np.uint8] | None:
    """Returns a picture down to some row, in this thread's scratch memory; None as `decode` does.

    Args:
        data: The file, uint8 (bytes,). Where it has its height, another one may be written.
        header: Its header.
        rows: How many rows are needed at least, of the whole size.
        eighths: The size to decode at: one of `EIGHTHS`, or 8.
        grey: As for `decode`.
    """
    height = header.height
    if header.step:
        # Colours that are stored at half the size are smoothed with the row that follows: two of
        # the size that is made.
        height = min(-(-(rows + 16 // eighths) // header.step) * header.step, height)
    place = slice(header.height_at, header.height_at + 2)
    data[place] = divmod(height, 256)
    shape = -(-height * eighths // 8), -(-header.width * eighths // 8), 1 if grey else 3
    buffer = scratch("pixels", shape[0] * shape[1] * shape[2])
    smallest = {} if eighths == 8 else {"min_height": shape[0], "min_width": shape[1]}
    try:
        simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB", buffer=buffer, **smallest)
    except ValueError as error:
        if height == header.height:
            return None
        if not str(error).endswith(_ROWS_LEFT):
            return decode_top(data, header._replace(step=0), rows, eighths, grey)
    return buffer.reshape(shape)
