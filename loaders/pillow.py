"""Opens encoded images with Pillow, without its warnings and without touching its settings.

`warnings.catch_warnings` and Pillow's own switches (MAX_IMAGE_PIXELS, LOAD_TRUNCATED_IMAGES) belong
to the whole process, so that a thread that changes them disturbs the others. Here each warning is
avoided at its source instead:

- too many pixels: `Image.open` warns, so the formats' own classes are called, and the size is
  compared with the caller's limit before memory is made for the pixels (TIFF's second check is left
  out);
- EXIF: a JPEG's is not read for its resolution, and the orientation is read by `loaders.tiff`;
- AVIF: the EXIF block is hidden; in this format it does not say how to turn the picture;
- MPO: the index of further pictures is not read; the first picture is the JPEG itself;
- animated PNG: the chunks of the animation are left out; the first frame is the PNG itself;
- TIFF: the tags that say nothing of the pixels are left out, and of a single value with several
  entries the first is kept;
- ICO: the picture is taken out of the icon, whatever size the icon promises for it.

What is left are the size checks inside Pillow's rarest readers (GIF frames larger than the screen,
ICNS, DCX, BLP, GIMP brushes): a picture of over 89 million pixels in one of these may still warn.
"""

from __future__ import annotations

import importlib
import io
import re
import struct
from collections.abc import Callable
from typing import Any

from PIL import (
    IcoImagePlugin,
    Image,
    JpegImagePlugin,
    TiffImagePlugin,
    TiffTags,
    features,
)

from fastconv.loaders import png, tiff
from fastconv.loaders.damage import PIXEL_TAGS, sample_error
from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import FORMAT_NAMES

__all__ = ["identify", "load_image", "most_pixels", "orientation", "plain", "upright"]

# Pillow's formats, those without a signature last, and our kind of each. Left out are those that
# start another program (EPS), that only name a file's type (BUFR, GRIB, HDF5, MPEG), that exist on
# one system (WMF), or that Pillow is about to drop and warns of (IM).
_KINDS = {
    "JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif",
    "AVIF": "avif", "HEIF": "heic", "JXL": "jxl", "JPEG2000": "jp2", "PPM": "ppm", "QOI": "qoi",
    "ICO": "ico", "CUR": "cur", "ICNS": "icns", "DDS": "dds", "PSD": "psd", "DCX": "dcx",
    "PCX": "pcx", "SGI": "sgi", "SUN": "ras", "XBM": "xbm", "XPM": "xpm", "FITS": "fits",
    "MSP": "msp", "BLP": "blp", "FTEX": "ftex", "PIXAR": "pxr", "FLI": "fli", "DIB": "bmp",
    "GBR": "gbr", "MCIDAS": "mcidas", "PCD": "pcd", "IMT": "imt", "SPIDER": "spider", "TGA": "tga",
}  # fmt: skip
_FORMATS: dict[str, list[str]] = {
    kind: [name for name in _KINDS if _KINDS[name] == kind] for kind in _KINDS.values()
}
_FORMATS |= {"j2k": ["JPEG2000"], "pgm": ["PPM"], "pbm": ["PPM"], "pam": ["PPM"], "pfm": ["PPM"]}

# Kinds whose reader is a package of its own (AVIF: where Pillow was built without it): the format
# as Pillow calls it, the module to import, the package to install.
_PLUGINS = {
    "avif": ("AVIF", "pillow_avif", "pillow-avif-plugin"),
    "heic": ("HEIF", "pillow_heif", "'fastconv[heif]'"),
    "jxl": ("JXL", "pillow_jxl", "'fastconv[jxl]'"),
}

# AVIF's list of what it holds: `infe`, version (1), flags (3), number (2, or 4), 2 bytes, type (4).
_AVIF_EXIF = re.compile(rb"(infe(?:\x02.{3}.{2}|\x03.{3}.{4}).{2})Exif", re.DOTALL)

_TIFF_NO_NUMBERS = frozenset((1, 2, 7))  # bytes, text, undefined: many entries make one value

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_ORIENTED = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")  # where it may be said


class _Jpeg(JpegImagePlugin.JpegImageFile):
    def _read_dpi_from_exif(self) -> None:
        """Leaves the EXIF block alone: Pillow would warn of a damaged one."""

    def load_prepare(self) -> None:
        self.decodermaxblock = -1  # all at once: arithmetic decoding cannot wait for more
        super().load_prepare()


class _Tiff(TiffImagePlugin.TiffImageFile):
    def load_prepare(self) -> None:
        if self._im is None:  # before Pillow does it, which counts the pixels once more
            self._im = Image.new(self.mode, self._tile_size).im
        super().load_prepare()


def _icon(file: io.BytesIO, _name: str) -> Image.Image:
    """Returns the largest picture of an icon file; Pillow's own class decodes while it opens."""
    icon = IcoImagePlugin.IcoFile(file)
    return icon.getimage(icon.entry[0].dim)


# What Pillow's readers raise, as `Image.open` takes it, for data that may be of another format.
_ANOTHER_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)

_Reader = Callable[..., Image.Image]
_OWN_READERS: dict[str, _Reader] = {"JPEG": _Jpeg, "TIFF": _Tiff, "ICO": _icon}


def load_image(
    data: memoryview | bytes, kind: str | None = None, max_pixels: int | None = None
) -> Image.Image:
    """Returns the first picture of an image file, decoded, in Pillow's own mode.

    Args:
        data: The file.
        kind: Its kind where that is known; otherwise it is told from the bytes.
        max_pixels: A larger picture is refused before memory is made for it; None sets no limit.

    Raises:
        SampleError: The data cannot be decoded; `reason` is one of the words of `Reason`, and the
            message says why without saying where.
    """
    view = memoryview(data)
    if not len(view):
        raise SampleError("no bytes", "empty")
    kind = kind or _kind(view)
    try:
        try:
            return _load(view, kind, max_pixels)
        except ValueError:
            # Pillow refuses texts and profiles that unpack to over a megabyte: do without them.
            if kind != "png":
                raise
            bare = png.without(view, png.ANIMATION | png.TEXTS)
            return _load(memoryview(bare), kind, max_pixels)
    except SampleError:
        raise
    except Exception as error:
        raise sample_error(error, view, kind or _accepting_kind(view)) from error


def most_pixels() -> int | None:
    """Returns how many pixels a picture may have that Pillow decodes without an error; None where
    that has no limit."""
    limit = Image.MAX_IMAGE_PIXELS
    return None if limit is None else 2 * limit


def identify(data: memoryview) -> tuple[str, int, int] | None:
    """Returns kind, width and height as Pillow tells them; None when it knows no such format.

    For formats without a plain signature. Nothing is decoded.
    """
    try:
        name, image = _open(data, None)
    except Exception:  # readers that were offered another format's bytes raise anything
        return None
    return (_KINDS[name], *image.size)


def upright(image: Image.Image) -> Image.Image:
    """Returns the image turned as its EXIF orientation says; a damaged one changes nothing.

    The result no longer carries the orientation, so that turning it again changes nothing.
    """
    turn = _TURNS.get(orientation(image.info))
    if turn is None:
        return image
    turned = image.transpose(turn)
    for name in _ORIENTED:
        turned.info.pop(name, None)
    return turned


def orientation(info: dict[Any, Any]) -> int:
    """Returns the orientation, looked for where Pillow looks for it; 1 without one."""
    try:
        exif = info.get("exif")
        if exif is None and "Raw profile type exif" in info:
            exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
        if exif:
            block = memoryview(exif.removeprefix(b"Exif\0\0"))
            given = tiff.read_directory(block).first(tiff.ORIENTATION)
            if given:
                return given
    except (ValueError, struct.error):
        pass  # a damaged block says nothing
    xmp = info.get("XML:com.adobe.xmp") or info.get("xmp") or b""
    found = _XMP_ORIENTATION.search(xmp.encode() if isinstance(xmp, str) else xmp)
    return int(found[1]) if found else 1


def plain(image: Image.Image) -> Image.Image:
    """Returns the decoded image as a `PIL.Image.Image` without its file; no pixel is copied."""
    return image._new(image.im)


def _load(data: memoryview, kind: str | None, max_pixels: int | None) -> Image.Image:
    _, image = _open(data, kind)
    width, height = image.size
    if max_pixels is not None and width * height > max_pixels:
        text = f"{width}x{height} is more than the limit of {max_pixels} pixels"
        raise SampleError(text, "too_large")
    image.load()
    return image


def _open(data: memoryview, kind: str | None) -> tuple[str, Image.Image]:
    """Returns Pillow's name of the format, and the image, opened and not decoded.

    Raises:
        SampleError: No reader takes it.
        Exception: Whatever Pillow raises for damaged data.
    """
    source: memoryview | bytes = data
    if kind == "png" and png.is_animated(data):
        source = png.without(data, png.ANIMATION)
    elif kind == "tif":
        source = _pixel_tags_only(data)
    elif kind == "avif":
        source = _AVIF_EXIF.sub(rb"\1skip", bytes(data))
    if kind in _PLUGINS:
        _import_plugin(*_PLUGINS[kind][:2])
    prefix = _prefix(data)
    file = io.BytesIO(source)
    refused: Exception | None = None
    for name in _KINDS if kind is None else _FORMATS.get(kind, ()):
        reader, accepts = _reader(name)
        if reader is None or (accepts is not None and accepts(prefix) is not True):
            continue
        file.seek(0)
        try:
            return name, reader(file, "")
        except Exception as error:
            if accepts is None and kind is None:
                continue  # a format without a signature was only a try
            if not isinstance(error, _ANOTHER_FORMAT):
                raise
            refused = refused or error
    raise refused or _no_reader(data, kind)


def _no_reader(data: memoryview, kind: str | None) -> SampleError:
    if kind is None:
        start = bytes(data[:8]).hex(" ")
        return SampleError(f"no image that Pillow knows (starts with {start})", "not_an_image")
    hint = "cannot be decoded by Pillow"
    if kind in _PLUGINS:
        hint = f"needs a package: pip install {_PLUGINS[kind][2]}"
    return SampleError(f"{FORMAT_NAMES[kind]} {hint}", "unsupported_format")


def _reader(name: str) -> tuple[_Reader | None, Callable[[bytes], bool | str] | None]:
    """Returns the class that reads a format, and its test of the first bytes; None without one."""
    if name not in Image.OPEN:
        Image.preinit()
    if name not in Image.OPEN:
        Image.init()
    reader, accepts = Image.OPEN.get(name, (None, None))
    return _OWN_READERS.get(name, reader), accepts


def _import_plugin(name: str, module_name: str) -> None:
    """Makes Pillow read a format whose reader is a package of its own, if that is installed."""
    if name in Image.OPEN and (name != "AVIF" or features.check("avif")):
        return
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return
    if name == "HEIF":
        module.register_heif_opener()


def _prefix(data: memoryview) -> bytes:
    return bytes(data[:16]).ljust(16, b"\0")  # some tests of the first bytes expect as many


def _kind(data: memoryview) -> str | None:
    """Returns the kind of the formats that need care or that Pillow may not have; else None."""
    head = bytes(data[:12])
    if head[:3] == b"\xff\xd8\xff":
        return "jpg"
    if head[:8] == png.SIGNATURE:
        return "png"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "tif"
    if head[:2] == b"\xff\x0a" or head == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "jxl"
    if head[4:8] == b"ftyp":
        return "avif" if re.search(b"avi[fs]", data[8:64]) else "heic"
    if head[:4] == b"v/1\x01":
        return "exr"
    return "hdr" if head[:6] in (b"#?RADI", b"#?RGBE") else None


def _accepting_kind(data: memoryview) -> str | None:
    """Returns the kind of the format whose signature Pillow sees in the data."""
    prefix = _prefix(data)
    for name, kind in _KINDS.items():
        accepts = _reader(name)[1]
        if accepts is not None and accepts(prefix):
            return "j2k" if prefix[:2] == b"\xff\x4f" else kind
    return None


def _pixel_tags_only(data: memoryview) -> bytes:
    directory = tiff.read_directory(data)
    tags = {}
    for tag, entry in directory.entries.items():
        if tag in PIXEL_TAGS and entry.end <= len(data):
            if TiffTags.lookup(tag).length == 1 and entry.type not in _TIFF_NO_NUMBERS:
                entry = entry._replace(values=1)
            tags[tag] = entry
    return tiff.with_tags(directory, tags)
