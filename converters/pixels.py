"""Decodes an image, resizes its pixels and encodes them, as an `Encoding` says.

A JPEG is decoded by simplejpeg, at a half, a quarter or an eighth of its size where at least four
times as many pixels are left as are wanted (see `GAP`), and everything else by Pillow. The resizing
is Lanczos with antialiasing, by torch's operator where there is one (torch 2.13 has it; on 8 bits
it takes a quarter of Pillow's time and differs by rounding) and by Pillow otherwise.
"""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, ImageCms

from fastconv.converters.encoding import Encoding, Fitted
from fastconv.converters.sniff import BadImage, Sniffed
from fastconv.loaders import jpeg, pillow, tiff
from fastconv.loaders.decode import TURNS
from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import FORMAT_NAMES
from fastconv.loaders.raw import shape_of
from fastconv.loaders.sample import Reason

__all__ = ["Encoder"]

Pixels = npt.NDArray[Any]
"""uint8 (rows, columns, channels), of 1, 3 or 4 channels; or uint16 (rows, columns, 1)."""

GAP = 4
"""How many times as many pixels as are wanted, in each direction, a JPEG that is decoded at a part
of its size must still have. Of 26 photographs of 3 to 24 million pixels that are made JPEGs of 64
to 512 pixels (quality 90), that takes 0.00 to 0.04 dB from the mean PSNR to the exact result, 0.02
from that at 256 (37.07 of 37.09), and from the worst one at most 0.07; with 2 it is 0.04 to 0.16.
Of PNGs, whose own 58.4 dB are a matter of rounding, 53.7 to 58.2 are left."""

_NAMED = re.compile(b"eXIf|EXIF|ICC|iCC|XMP|Raw prof")
PLAIN = ("png", "webp", "gif", "bmp", "ppm", "pgm", "pbm", "qoi")
"""Formats that say by a name in plain text whether they have an orientation or a profile."""

LONGEST = {"jpg": 65500, "webp": 16383}
"""Pixels in a row or column that a format can hold."""


class Encoded(NamedTuple):
    """An image anew.

    Attributes:
        data: Its bytes.
        kind: Its format.
        width, height: In pixels.
    """

    data: bytes | memoryview
    kind: str
    width: int
    height: int


class Picture(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: As stored, not turned.
        orientation: As EXIF says it, 1 where it stands upright.
        profile: Its colour profile; b"" where it is sRGB or none is known.
        full: Width and height of the whole size, where `pixels` may be fewer.
        turned: Whether it stands upright here, and does not in its file.
    """

    pixels: Pixels
    orientation: int
    profile: bytes
    full: tuple[int, int]
    turned: bool = False


class Encoder:
    """Makes images anew.

    Args:
        encoding: What they become.
        max_pixels: Larger images are bad.
    """

    def __init__(self, encoding: Encoding, max_pixels: int) -> None:
        self.encoding = encoding
        self.max_pixels = max_pixels
        self.background = encoding.background_rgb()

    def __call__(self, data: memoryview, found: Sniffed) -> Encoded | None:
        """Returns an image anew; None where it stays as it is.

        Args:
            data: The image.
            found: What its header says.

        Raises:
            BadImage: It cannot be decoded, or the result cannot be held by its format.
        """
        if found.width * found.height > self.max_pixels:
            limit = f"{found.width}x{found.height} is more than the limit of {self.max_pixels}"
            raise BadImage("too_large", f"{limit} pixels")
        try:
            picture = self.decoded(data, found)
        except SampleError as error:
            raise BadImage(cast(Reason, error.reason), str(error)) from error
        if picture is None:
            return None
        upright = self.encoding.orientation == "apply"
        turned = picture.orientation if upright else 1
        fitted = self.fitted(picture.full, turned)
        same = fitted is None and turned == 1 and not picture.turned
        same = same and not self.converts(picture.profile)
        same = same and not self.recolors(grey=picture.pixels.shape[2] == 1)
        if same and self.encoding.encode is None:
            return None
        kind = self.kind(found.kind)
        if fitted is not None:
            self.check_size(kind, fitted.columns, fitted.rows)
        pixels = picture.pixels if fitted is None else resized(picture, fitted)
        pixels = TURNS[turned](pixels)
        if self.converts(picture.profile):
            pixels = in_srgb(pixels, picture.profile)
        pixels = self.colored(pixels, kind)
        self.check_size(kind, pixels.shape[1], pixels.shape[0])
        kept = b"" if self.encoding.icc == "srgb" else picture.profile
        if kept[16:20] != (b"GRAY" if pixels.shape[2] == 1 else b"RGB "):
            kept = b""  # it is of other colours than are left
        orientation = 1 if upright else picture.orientation
        made = encode(pixels, kind, self.encoding, kept, orientation)
        return Encoded(made, kind, pixels.shape[1], pixels.shape[0])

    def fitted(self, size: tuple[int, int], orientation: int) -> Fitted | None:
        """Returns what a picture is resized to, in its own pixels as they are stored."""
        if orientation < 5:
            return self.encoding.fitted(*size)
        fitted = self.encoding.fitted(*size[::-1])
        if fitted is None:
            return None
        x, y, width, height, columns, rows = fitted
        return Fitted(y, x, height, width, rows, columns)

    def kind(self, own: str) -> str:
        """Returns the format that an image of a format becomes."""
        if self.encoding.encode is None:
            return own if own in ("jpg", "png", "webp", "raw") else "png"
        return "jpg" if self.encoding.encode == "jpeg" else self.encoding.encode

    def decoded(self, data: memoryview, found: Sniffed) -> Picture | None:
        """Returns a picture; None where its header tells that it stays as it is.

        Raises:
            SampleError: It cannot be decoded.
        """
        if found.kind == "raw":
            shape = shape_of(found.width, found.height, len(data))
            return Picture(np.frombuffer(data, np.uint8).reshape(shape), 1, b"", shape[1::-1])
        header = jpeg.read_header(data) if found.kind == "jpg" else None
        if header is not None:
            about = jpeg.read_about(data)
            turned = pillow.orientation(about)
            orientation = turned if turned in TURNS else 1
            size = header.width, header.height
            profile = foreign_profile(jpeg_profile(data))
            applied = orientation if self.encoding.orientation == "apply" else 1
            fitted = self.fitted(size, applied)
            stays = fitted is None and applied == 1 and not self.converts(profile)
            if stays and self.encoding.encode is None and not self.recolors(grey=header.grey):
                return None
            pixels = decoded_jpeg(data, header, fitted)
            if pixels is not None:
                return Picture(pixels, orientation, profile, size)
        elif (
            self.encoding.encode is None
            and self.encoding.color == "keep"
            and found.width
            and not may_say_more(data, found.kind)
        ):
            sizes = (found.width, found.height), (found.height, found.width)
            if all(self.encoding.fitted(*size) is None for size in sizes):
                return None
        image = pillow.load_image(data, found.kind, self.max_pixels)
        turned = pillow.orientation(image.info)
        profile = foreign_profile(image.info.get("icc_profile") or b"")
        if image.mode == "CMYK":
            image = cmyk_in_rgb(image, profile)
            profile = b""
        orientation = turned if turned in TURNS else 1
        upright = found.kind == "tif" and tiff_orientation(data) != 1  # Pillow has turned it
        return Picture(pixels_of(image), orientation, profile, image.size, upright)

    def converts(self, profile: bytes) -> bool:
        """Returns whether colours of a profile are turned into others."""
        return bool(profile) and self.encoding.icc == "srgb"

    def recolors(self, *, grey: bool) -> bool:
        """Returns whether an image gets other channels than it has."""
        return self.encoding.color == ("rgb" if grey else "grey")

    def check_size(self, kind: str, columns: int, rows: int) -> None:
        """Checks that a result can be made.

        Raises:
            BadImage: It has more pixels than the limit, or in a row or column than the format can
                hold.
        """
        if columns * rows > self.max_pixels:
            limit = f"{columns}x{rows} is more than the limit of {self.max_pixels} pixels"
            raise BadImage("too_large", f"would become too large: {limit}")
        longest = LONGEST.get(kind)
        if longest is not None and max(columns, rows) > longest:
            limit = f"{columns}x{rows} is more than the {longest} that {FORMAT_NAMES[kind]} holds"
            raise BadImage("too_large", limit)

    def colored(self, pixels: Pixels, kind: str) -> Pixels:
        """Returns pixels of the channels and depth that are wanted and that a format has."""
        if pixels.dtype == np.uint16 and (kind != "png" or self.encoding.color == "rgb"):
            pixels = (pixels >> 8).astype(np.uint8)
        if pixels.shape[2] == 4 and (kind in ("jpg", "raw") or self.encoding.color != "keep"):
            pixels = flattened(pixels, self.background)
        color = self.encoding.color
        if color == "keep" and kind in ("raw", "webp"):
            color = "rgb"
        if color == "rgb" and pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
        if color == "grey" and pixels.shape[2] == 3:
            pixels = np.asarray(Image.fromarray(pixels).convert("L"))[..., np.newaxis]
        return pixels


def jpeg_profile(data: memoryview) -> bytes:
    """Returns the colour profile of a JPEG, b"" where it has none: of APP2 segments that begin with
    ICC_PROFILE, NUL, number and count (ICC.1:2022, B.4)."""
    pieces: dict[int, bytes] = {}
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF and data[place + 1] != 0xDA:
        if data[place + 1] == 0xFF:
            place += 1
            continue
        stop = place + 2 + (data[place + 2] << 8 | data[place + 3])
        if data[place + 1] == 0xE2 and bytes(data[place + 4 : place + 16]) == b"ICC_PROFILE\0":
            pieces[data[place + 16]] = bytes(data[place + 18 : stop])
        place = stop
    return b"".join(pieces[number] for number in sorted(pieces))


def may_say_more(data: memoryview, kind: str) -> bool:
    """Returns whether an image may have an orientation or a colour profile; not of a JPEG."""
    if kind not in PLAIN:
        return True
    return _NAMED.search(data) is not None


def tiff_orientation(data: memoryview) -> int:
    """Returns the orientation of a TIFF, 1 to 8."""
    found = tiff.read_directory(data).first(tiff.ORIENTATION)
    return found if found in TURNS else 1


@lru_cache(maxsize=64)
def foreign_profile(profile: bytes) -> bytes:
    """Returns a colour profile; b"" where it is sRGB's, or damaged, as viewers take that."""
    if not profile:
        return b""
    try:
        name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    except (ImageCms.PyCMSError, OSError):
        return b""
    return b"" if "srgb" in name.lower() else profile


@lru_cache(maxsize=16)
def transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Returns what turns colours of a profile into sRGB; None where they are not of this mode."""
    try:
        return ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB"), mode,
            "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC,
            ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )  # fmt: skip
    except (ImageCms.PyCMSError, OSError):
        return None


def in_srgb(pixels: Pixels, profile: bytes) -> Pixels:
    """Returns pixels with their colours in sRGB; 16-bit grey stays as it is."""
    if pixels.dtype == np.uint16:
        return pixels
    channels = min(pixels.shape[2], 3)
    found = transform(profile, "L" if channels == 1 else "RGB")
    if found is None:
        return pixels
    colors = np.ascontiguousarray(pixels[..., :channels])
    made = np.asarray(found.apply(Image.fromarray(colors if channels == 3 else colors[..., 0])))
    if channels == 1:
        return made[..., :1]
    return made if pixels.shape[2] == 3 else np.concatenate([made, pixels[..., 3:]], axis=2)


def cmyk_in_rgb(image: Image.Image, profile: bytes) -> Image.Image:
    """Returns a picture of four inks in RGB: by its profile where it has one, else as Pillow
    converts it."""
    found = transform(profile, "CMYK") if profile else None
    return image.convert("RGB") if found is None else found.apply(image)


def pixels_of(image: Image.Image) -> Pixels:
    """Returns a picture's pixels.

    Raises:
        SampleError: They have no form here: floats, and integers of more than 16 bits.
    """
    if image.mode == "F":
        raise SampleError("float image: it cannot be encoded anew", "unsupported_format")
    if image.mode[0] == "I":
        values = np.asarray(image)
        if image.mode == "I" and (values.min() < 0 or values.max() > 0xFFFF):
            raise SampleError("32-bit integers cannot be encoded anew", "unsupported_format")
        return values.astype(np.uint16)[..., np.newaxis]
    if "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBa"):
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGB")
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def decoded_jpeg(data: memoryview, header: jpeg.Header, fitted: Fitted | None) -> Pixels | None:
    """Returns a JPEG's pixels, at a part of its size where that is enough; None where Pillow has to
    decide."""
    eighths = 8
    if fitted is not None:
        across, down = fitted.width / fitted.columns, fitted.height / fitted.rows
        most = min(across, down) / GAP
        eighths = next((size for size in jpeg.EIGHTHS if size * most >= 8), 8)
    if eighths == 8:
        return jpeg.decode(data, grey=header.grey)
    file = np.frombuffer(data, np.uint8).copy()
    return jpeg.decode_top(file, header, header.height, eighths, grey=header.grey)


def resized(picture: Picture, fitted: Fitted) -> Pixels:
    """Returns a part of a picture, resized: by Lanczos' kernel of three lobes, antialiased."""
    pixels = picture.pixels
    rows, columns = pixels.shape[0] / picture.full[1], pixels.shape[1] / picture.full[0]
    x, y, width, height = fitted[:4]
    left, top = round(x * columns), round(y * rows)
    right = min(max(round((x + width) * columns), left + 1), pixels.shape[1])
    bottom = min(max(round((y + height) * rows), top + 1), pixels.shape[0])
    part = pixels[top:bottom, left:right]
    if part.shape[:2] == (fitted.rows, fitted.columns):
        return part
    if pixels.dtype == np.uint8 and pixels.shape[2] != 4:
        from fastconv.loaders import resize  # imports torch

        made = resize.lanczos(part, fitted.rows, fitted.columns)
        if made is not None:
            return made
    size = fitted.columns, fitted.rows
    if pixels.dtype == np.uint16:
        image = Image.fromarray(np.ascontiguousarray(part[..., 0]).astype(np.float32))
        floats = np.rint(np.asarray(image.resize(size, Image.Resampling.LANCZOS)))
        deep: Pixels = np.clip(floats, 0, 65535).astype(np.uint16)[..., np.newaxis]
        return deep
    image = image_of(part)  # Pillow weighs the colours of RGBA by their alpha
    anew = np.asarray(image.resize(size, Image.Resampling.LANCZOS))
    return anew.reshape(fitted.rows, fitted.columns, -1)


def flattened(pixels: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Returns RGBA over a background, uint8 (rows, columns, 3)."""
    alpha = pixels[..., 3:].astype(np.uint32)
    behind = np.array(background, np.uint32) * (255 - alpha)
    return ((pixels[..., :3] * alpha + behind + 127) // 255).astype(np.uint8)


def image_of(pixels: Pixels) -> Image.Image:
    """Returns pixels as Pillow's image."""
    pixels = np.ascontiguousarray(pixels)
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def encode(
    pixels: Pixels, kind: str, encoding: Encoding, profile: bytes, orientation: int
) -> bytes | memoryview:
    """Returns the bytes of an image.

    Args:
        pixels: It.
        kind: Its format.
        encoding: How.
        profile: A colour profile to store; b"" for none.
        orientation: To store; 1 for none.
    """
    channels = pixels.shape[2]
    if kind == "raw":
        return np.ascontiguousarray(pixels).tobytes()
    about: dict[str, Any] = {"icc_profile": profile} if profile else {}
    if orientation != 1:
        exif = Image.Exif()
        exif[0x0112] = orientation
        about["exif"] = exif.tobytes()
    if kind == "jpg" and not about:
        return cast(bytes, simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), encoding.quality,
            "GRAY" if channels == 1 else "RGB", encoding.subsampling.replace(":", ""), False,
        ))  # fmt: skip
    file = io.BytesIO()
    if kind == "jpg":
        about |= {"quality": encoding.quality, "subsampling": encoding.subsampling}
        image_of(pixels).save(file, "JPEG", **about)
    elif kind == "webp":
        image_of(pixels).save(file, "WEBP", quality=encoding.quality, **about)
    else:
        image_of(pixels).save(file, "PNG", **about)
    return file.getbuffer()
