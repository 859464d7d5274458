"""Opens encoded images with Pillow, without its warnings and without touching its settings.

`warnings.catch_warnings` and Pillow's own switches (MAX_IMAGE_PIXELS, LOAD_TRUNCATED_IMAGES) belong to the
whole process, so that a thread that changes them disturbs the others. Here each warning is avoided at
its source instead:

- too many pixels: `Image.open` warns, so the formats' own classes are called, and the size is compared
  with the caller's limit before any pixel memory is made (TIFF's second check, of its tiles, is left out);
- EXIF: a JPEG's is not read for its resolution, and the orientation is read by `fastconv.loaders.tiff`;
- MPO: the index of further pictures is not read; the first picture is the JPEG itself;
- animated PNG: the chunks of the animation are left out; the first frame is the PNG itself;
- TIFF: the tags that say nothing of the pixels are left out, a single value with several entries is cut;
- ICO: the picture is taken out of the icon file, whatever size the file promises for it.

What is left are the size checks inside Pillow's rarest readers (GIF frames larger than their screen, ICNS,
DCX, BLP, GIMP brushes): a picture of more than 89 million pixels in one of these may still warn.
"""

from __future__ import annotations

import importlib
import io
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from PIL import (
    IcoImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    TiffTags,
    features,
)

from fastconv.loaders import tiff
from fastconv.loaders.errors import SampleError
from fastconv.loaders.kinds import FORMAT_NAMES

__all__ = ["identify", "load_image", "plain", "upright"]

Data = memoryview | bytes

# Pillow's formats, those without a signature last, and our kind of each. Left out are those that start
# another program (EPS), that only name a file's type (BUFR, GRIB, HDF5, MPEG), that exist on one system
# (WMF), or that Pillow is about to drop and warns of (IM).
_KINDS = {
    "JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif",
    "AVIF": "avif", "HEIF": "heic", "JXL": "jxl", "JPEG2000": "jp2", "PPM": "ppm", "QOI": "qoi",
    "ICO": "ico", "CUR": "cur", "ICNS": "icns", "DDS": "dds", "PSD": "psd", "DCX": "dcx", "PCX": "pcx",
    "SGI": "sgi", "SUN": "ras", "XBM": "xbm", "XPM": "xpm", "FITS": "fits", "MSP": "msp", "BLP": "blp",
    "FTEX": "ftex", "PIXAR": "pxr", "FLI": "fli", "DIB": "bmp", "GBR": "gbr", "MCIDAS": "mcidas",
    "PCD": "pcd", "IMT": "imt", "SPIDER": "spider", "TGA": "tga",
}  # fmt: skip
_FORMATS: dict[str, tuple[str, ...]] = {
    kind: tuple(name for name in _KINDS if _KINDS[name] == kind) for kind in set(_KINDS.values())
} | {"j2k": ("JPEG2000",), "pgm": ("PPM",), "pbm": ("PPM",), "pam": ("PPM",), "pfm": ("PPM",)}

# Formats whose reader is a package of its own: the module to import, the package to install.
_PLUGINS = {
    "AVIF": ("pillow_avif", "pillow-avif-plugin"),
    "HEIF": ("pillow_heif", "pillow-heif"),
    "JXL": ("pillow_jxl", "pillow-jxl-plugin"),
}

_PNG_CHUNK = struct.Struct(">I4s")
_ANIMATION = frozenset((b"acTL", b"fcTL", b"fdAT"))
_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt", b"iCCP"))  # what Pillow unpacks, up to a limit

# The TIFF tags that say how the pixels are stored, turned and coloured.
_PIXEL_TAGS = frozenset(
    (256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 282, 283, 284, 292, 293, 296, 297, 317, 320,
     322, 323, 324, 325, 332, 338, 339, 347, *range(512, 522), 529, 530, 531, 532, 700, 34675, 50674)
)  # fmt: skip
_TIFF_BYTE, _TIFF_ASCII, _TIFF_UNDEFINED = 1, 2, 7

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTED = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")  # info that says how to turn
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


class _Jpeg(JpegImagePlugin.JpegImageFile):
    def _read_dpi_from_exif(self) -> None:
        """Leaves the EXIF block alone: Pillow would warn of a damaged one."""


class _Tiff(TiffImagePlugin.TiffImageFile):
    def load_prepare(self) -> None:
        if self._im is None:  # before Pillow's own method, which checks the number of pixels once more
            self.im = Image.core.new(self.mode, self._tile_size)
        super().load_prepare()


_READERS: dict[str, Callable[..., ImageFile.ImageFile]] = {"JPEG": _Jpeg, "TIFF": _Tiff}


def load_image(data: Data, kind: str | None = None, max_pixels: int | None = None) -> Image.Image:
    """Returns the first picture of an image file, decoded, in Pillow's own mode.

    Args:
        data: The file.
        kind: Its kind where that is known; otherwise it is told from the bytes.
        max_pixels: A larger picture is refused before memory is made for it; None sets no limit.

    Raises:
        SampleError: The data cannot be decoded; `reason` is one of the words of `Reason`, and the message
            says why without saying where.
    """
    if not len(data):
        raise SampleError("no bytes", "empty")
    kind = kind or _kind(data)
    try:
        try:
            return _load(data, kind, max_pixels)
        except ValueError:
            # Pillow refuses texts and profiles that unpack to more than a megabyte: do without them.
            if kind != "png":
                raise
            return _load(_without_chunks(data, _ANIMATION | _TEXTS), kind, max_pixels)
    except SampleError:
        raise
    except Exception as error:
        raise _translated(error, data, kind) from error


def identify(data: Data) -> tuple[str, int, int] | None:
    """Returns kind, width and height of an image as Pillow tells them; None when it knows no such format.

    For the formats without a plain signature; nothing is decoded.
    """
    try:
        image = _open(data, None)
    except Exception:
        return None
    return (_KINDS[image.format or ""], *image.size)


def upright(image: Image.Image) -> Image.Image:
    """Returns the image turned as its EXIF orientation says; a missing or damaged one changes nothing.

    The result no longer carries the orientation, so that turning it again changes nothing.
    """
    turn = _TURNS.get(_orientation(image.info))
    if turn is None:
        return image
    turned = image.transpose(turn)
    for name in _ORIENTED:
        turned.info.pop(name, None)
    return turned


def plain(image: Image.Image) -> Image.Image:
    """Returns the decoded image as a `PIL.Image.Image`, without a copy of the pixels and without its file."""
    image.load()
    return image._new(image.im)


def _load(data: Data, kind: str | None, max_pixels: int | None) -> Image.Image:
    image: Image.Image = _open(data, kind)
    _check_size(image, max_pixels)
    if isinstance(image, IcoImagePlugin.IcoImageFile):
        image = image.ico.getimage(image.size)
        _check_size(image, max_pixels)
    image.load()
    return image


def _check_size(image: Image.Image, max_pixels: int | None) -> None:
    width, height = image.size
    if max_pixels is not None and width * height > max_pixels:
        raise SampleError(f"{width}x{height} is more than the limit of {max_pixels} pixels", "too_large")


def _open(data: Data, kind: str | None) -> ImageFile.ImageFile:
    if kind == "png" and _is_animated_png(data):
        data = _without_chunks(data, _ANIMATION)
    elif kind == "tif":
        data = _pixel_tags_only(data)
    prefix = bytes(data[:16]).ljust(16, b"\0")  # some tests of signatures expect as many
    file = io.BytesIO(data)
    refused: Exception | None = None
    for name in _KINDS if kind is None else _FORMATS.get(kind, ()):
        reader, accepts = _reader(name)
        if reader is None or (accepts is not None and accepts(prefix) is not True):
            continue
        file.seek(0)
        try:
            return reader(file, "")
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            refused = refused or error
    if refused is not None:
        raise refused
    raise SampleError(*_unreadable(data, kind))


def _reader(name: str) -> tuple[Callable[..., ImageFile.ImageFile] | None, Callable[[bytes], Any] | None]:
    """Returns the class that reads a format of Pillow's, and the test of its signature; None without one."""
    if name not in Image.OPEN:
        Image.preinit()
    if name not in Image.OPEN:
        Image.init()
    if name in _PLUGINS and (name not in Image.OPEN or (name == "AVIF" and not features.check("avif"))):
        try:
            module = importlib.import_module(_PLUGINS[name][0])
        except ImportError:
            return None, None
        if name == "HEIF":
            module.register_heif_opener()
    reader, accepts = Image.OPEN.get(name, (None, None))
    return _READERS.get(name, reader), accepts


def _unreadable(data: Data, kind: str | None) -> tuple[str, str]:
    """Returns message and reason for data that no reader takes."""
    if kind is None:
        return f"not an image that Pillow knows (starts with {bytes(data[:8]).hex(' ')})", "not_an_image"
    for name in _FORMATS.get(kind, ()):
        if name in _PLUGINS and _reader(name)[0] is None:
            return f"{FORMAT_NAMES[kind]} needs a package: pip install {_PLUGINS[name][1]}", "unsupported_format"
    return f"{FORMAT_NAMES[kind]} cannot be decoded by Pillow", "unsupported_format"


def _kind(data: Data) -> str | None:
    """Returns the kind of the formats that need care, or that Pillow needs a package for; else None."""
    head = bytes(data[:12])
    if head[:3] == b"\xff\xd8\xff":
        return "jpg"
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "tif"
    if head[:2] == b"\xff\x0a" or head == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "jxl"
    if head[4:8] == b"ftyp" and head[8:12] not in (b"avif", b"avis"):
        return "avif" if head[8:12] in (b"mif1", b"msf1") and b"avif" in bytes(data[:64]) else "heic"
    if head[:4] == b"v/1\x01":
        return "exr"
    return "hdr" if head[:6] in (b"#?RADI", b"#?RGBE") else None


def _accepting_kind(data: Data) -> str | None:
    """Returns the kind of the format whose signature Pillow sees in the data."""
    prefix = bytes(data[:16]).ljust(16, b"\0")  # some tests of signatures expect as many
    for name, kind in _KINDS.items():
        accepts = _reader(name)[1]
        if accepts is not None and accepts(prefix):
            return "j2k" if name == "JPEG2000" and prefix[:1] == b"\xff" else kind
    return None


def _png_chunks(data: Data) -> Iterator[tuple[bytes, int, int]]:
    """Yields name, start and end of each chunk; the end of the last may lie outside the data."""
    place = 8
    while place + 8 <= len(data):
        length, name = _PNG_CHUNK.unpack_from(data, place)
        yield name, place, place + 12 + length
        place += 12 + length


def _is_animated_png(data: Data) -> bool:
    for name, _, _ in _png_chunks(data):
        if name == b"IDAT":
            return False
        if name == b"acTL":
            return True
    return False


def _without_chunks(data: Data, names: frozenset[bytes]) -> bytes:
    view = memoryview(data)
    kept = (view[start:end] for name, start, end in _png_chunks(data) if name not in names)
    return b"".join((view[:8], *kept))


def _pixel_tags_only(data: Data) -> bytes:
    directory = tiff.read_directory(memoryview(data))
    tags = {}
    for tag, entry in directory.entries.items():
        if tag in _PIXEL_TAGS and directory.is_inside(entry):
            single = TiffTags.lookup(tag).length == 1
            if single and entry.type not in (_TIFF_BYTE, _TIFF_ASCII, _TIFF_UNDEFINED):
                entry = entry._replace(count=1)
            tags[tag] = entry
    return tiff.with_tags(directory, tags)


def _orientation(info: dict[Any, Any]) -> int:
    """Returns the EXIF orientation, 1 to 8, in the places where Pillow looks for it; 1 without one."""
    try:
        exif = info.get("exif")
        if exif is None and "Raw profile type exif" in info:
            exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
        if exif:
            exif = exif.removeprefix(b"Exif\0\0")
            found = tiff.read_directory(memoryview(exif)).first(tiff.ORIENTATION)
            if found:
                return found
    except (ValueError, struct.error):
        pass  # a damaged block says nothing
    xmp = info.get("XML:com.adobe.xmp") or info.get("xmp") or b""
    match = _XMP_ORIENTATION.search(xmp.encode() if isinstance(xmp, str) else xmp)
    return int(match[1]) if match else 1


def _translated(error: Exception, data: Data, kind: str | None) -> SampleError:
    """Returns what an error of Pillow's means."""
    kind = kind or _accepting_kind(data)
    name = FORMAT_NAMES[kind] if kind else "image"
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, MemoryError | Image.DecompressionBombError):
        return SampleError(f"too many pixels for Pillow: {text}", "too_large")
    if _ends_early(error, text, data, kind):
        return SampleError(f"{name} data end early: {text}", "truncated")
    if _is_unsupported(error, text, data, kind):
        return SampleError(f"{name} of a variant that Pillow cannot decode: {text}", "unsupported_format")
    return SampleError(f"{name} data are damaged: {text}", "corrupt")


def _is_unsupported(error: Exception, text: str, data: Data, kind: str | None) -> bool:
    if isinstance(error, NotImplementedError) or isinstance(error.__cause__, KeyError):
        return True
    if kind == "jpg" and _jpeg_frame(data) not in (None, 0xC0, 0xC1, 0xC2, 0xC9, 0xCA):
        return True  # lossless, hierarchical or otherwise rare: not damaged, but not for libjpeg either
    if kind == "png" and data[12:16] == b"CgBI":
        return True  # Apple's variant, made for iPhones
    return re.search("unsupported|unimplemented|not (yet )?supported|cannot handle|unknown pixel mode|unknown data "
                     "organization|not available", text, re.IGNORECASE) is not None  # fmt: skip


def _jpeg_frame(data: Data) -> int | None:
    """Returns the second byte of a JPEG's frame header marker, which names its process."""
    place = 2
    while place + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, place)
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            return int(marker & 0xFF)
        place += 2 + length
    return None


def _ends_early(error: Exception, text: str, data: Data, kind: str | None) -> bool:
    if re.search("truncated|incomplete|not enough|end of file|buffer is not large enough", text, re.IGNORECASE):
        return True
    if isinstance(error, EOFError | IndexError | struct.error) or isinstance(
        error.__cause__, EOFError | IndexError | struct.error
    ):
        return True
    return _promised_bytes(data, kind) > len(data)


def _promised_bytes(data: Data, kind: str | None) -> int:
    """Returns how long the file should be by its own account; 0 where it does not say."""
    try:
        match kind:
            case "png":
                return max((end for name, _, end in _png_chunks(data)), default=8)
            case "tif":
                return _promised_by_tags(tiff.read_directory(memoryview(data)))
            case "jpg" | "j2k":
                return 0 if b"\xff\xd9" in bytes(data[-4096:]) else len(data) + 1
            case _:
                return _promised_by_boxes(data)
    except (ValueError, struct.error):
        return len(data) + 1


def _promised_by_tags(directory: tiff.Directory) -> int:
    values = (e.offset + e.nbytes for tag, e in directory.entries.items() if tag in _PIXEL_TAGS)
    return max(directory.end_of_pixels(), *values, 0)


def _promised_by_boxes(data: Data) -> int:
    head = bytes(data[:12])
    if head[:4] == b"RIFF":
        return int.from_bytes(head[4:8], "little") + 8
    if head[:4] == b"icns":
        return int.from_bytes(head[4:8], "big")
    if head[:4] in (b"\0\0\1\0", b"\0\0\2\0"):
        entries = (struct.unpack_from("<II", data, 6 + 16 * i + 8) for i in range(struct.unpack_from("<H", data, 4)[0]))
        return max((size + offset for size, offset in entries), default=0)
    if head[4:8] in (b"ftyp", b"jP  ", b"JXL "):
        place = 0
        while place + 8 <= len(data):
            length = int.from_bytes(data[place : place + 4], "big")
            if length == 1:
                (length,) = struct.unpack_from(">Q", data, place + 8)
            if length < 8:  # 0: up to the end of the file
                return place
            place += length
        return place
    return 0
