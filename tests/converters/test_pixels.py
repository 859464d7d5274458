"""What an image becomes, compared with what Pillow makes of it."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.encoding import Encoding
from fastconv.converters.pixels import Encoded, Encoder
from fastconv.converters.sniff import BadImage, Sniffed, sniff
from fastconv.loaders import resize

LANCZOS = Image.Resampling.LANCZOS


def picture(width: int = 60, height: int = 40, mode: str = "RGB", seed: int = 3) -> Image.Image:
    """Returns a smooth picture with an edge, none of whose corners are alike."""
    rows, columns = np.mgrid[0:height, 0:width]
    random = np.random.default_rng(seed)
    planes = [
        127 + 90 * np.sin(columns / (7 + n) + n) * np.cos(rows / (5 + n)) + (columns > rows) * 30
        for n in range(4)
    ]
    pixels = np.clip(np.stack(planes, -1) + random.normal(0, 2, (height, width, 4)), 0, 255)
    image = Image.fromarray(pixels.astype(np.uint8)[..., : 4 if mode == "RGBA" else 3])
    return image if mode in ("RGB", "RGBA") else image.convert(mode)


def file(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def run(data: bytes, max_pixels: int = MAX_PIXELS, **options: Any) -> Encoded | None:
    view = memoryview(data)
    return Encoder(Encoding(**options), max_pixels)(view, sniff(view, len(view)))


def opened(encoded: Encoded | None) -> Image.Image:
    assert encoded is not None
    image = Image.open(io.BytesIO(encoded.data))
    assert image.size == (encoded.width, encoded.height)
    return image


def difference(image: Image.Image, expected: Image.Image) -> int:
    assert (image.mode, image.size) == (expected.mode, expected.size)
    return int(np.abs(np.asarray(image, np.int32) - np.asarray(expected, np.int32)).max())


def psnr(image: Image.Image, expected: Image.Image) -> float:
    error = np.asarray(image, np.float64) - np.asarray(expected, np.float64)
    return float(10 * np.log10(255**2 / np.mean(error**2)))


@pytest.fixture(params=[True, False])
def operator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's operator, and Pillow where this torch has none."""
    if request.param:
        assert resize._lanczos is not None
    else:
        monkeypatch.setattr(resize, "_lanczos", None)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize(("options", "box", "size"), [
    ({"resize": "short=20"}, None, (30, 20)),
    ({"resize": "16x16"}, (10, 0, 50, 40), (16, 16)),
    ({"resize": "16x16", "fit": "stretch"}, None, (16, 16)),
    ({"resize": "short=50", "enlarge": True}, None, (75, 50)),
])  # fmt: skip
def test_it_is_resized_by_lanczos(
    operator: None, mode: str, options: dict[str, Any], box: Any, size: tuple[int, int]
) -> None:
    image = picture(mode=mode)
    made = opened(run(file(image), **options))
    assert made.format == "PNG"
    assert difference(made, image.crop(box or (0, 0, 60, 40)).resize(size, LANCZOS)) <= 1


def test_it_stays_where_nothing_changes() -> None:
    for data in (file(picture()), file(picture(), "JPEG"), file(picture(), "WEBP"),
                 file(picture(mode="P"), "GIF"), file(picture(mode="CMYK"), "TIFF")):  # fmt: skip
        assert run(data, resize="short=40") is None
        assert run(data, resize="long=100") is None
        assert run(data, resize="100x100", fit="contain") is None
        assert run(data, encode="png") is not None


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_stands_upright(format: str, orientation: int) -> None:
    image = picture()
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"quality": 98, "subsampling": 0} if format == "JPEG" else {}
    if format == "WEBP":
        options = {"lossless": True}
    data = file(image, format, exif=exif, **options)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    made = opened(run(data, encode="png"))
    assert difference(made, upright) <= (3 if format == "JPEG" else 0)
    assert made.getexif().get(0x0112, 1) == 1
    # The sides that are wanted are those of the upright picture.
    size = (24, 30)
    made = opened(run(data, resize="24x30", fit="stretch", encode="png"))
    assert psnr(made, upright.resize(size, LANCZOS)) > 40
    made = opened(run(data, resize="24x30", encode="png"))
    left, top = (upright.width - round(upright.height * 0.8)) // 2, 0
    box: Any = (left, top, left + round(upright.height * 0.8), upright.height)
    if upright.width < upright.height * 0.8:
        across = round(upright.width / 0.8)
        box = (0, (upright.height - across) // 2, upright.width, (upright.height + across) // 2)
    assert psnr(made, upright.resize(size, LANCZOS, box=box)) > 30
    if format in ("JPEG", "PNG") and orientation > 1:
        assert run(data, resize="short=40") is not None  # it is turned, though not resized
        kept = opened(run(data, resize="short=20", orientation="keep"))
        assert kept.getexif()[0x0112] == orientation
        assert kept.size == (30, 20)


@lru_cache(maxsize=1)  # it has the time at which it was made
def swapped_profile() -> bytes:
    """Returns a profile in which red is blue: that of sRGB with two tags called otherwise."""
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = data.replace(b"rXYZ", b"?XYZ").replace(b"bXYZ", b"rXYZ").replace(b"?XYZ", b"bXYZ")
    return data.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_colours_are_srgb(format: str) -> None:
    image = picture(mode="RGB")
    own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    options: dict[str, Any] = {"lossless": True} if format == "WEBP" else {}
    data = file(image, format, icc_profile=swapped_profile(), **options)
    red, green, blue = Image.open(io.BytesIO(data)).convert("RGB").split()
    expected = Image.merge("RGB", (blue, green, red))
    made = opened(run(data, encode="png"))
    assert difference(made, expected) <= 4
    assert "icc_profile" not in made.info
    assert psnr(opened(run(data, resize="short=20", encode="png")),
                expected.resize((30, 20), LANCZOS)) > 36  # fmt: skip
    assert run(data, resize="short=40") is not None  # nothing is resized, but colours change
    assert run(data, resize="short=40", icc="keep") is None
    kept = opened(run(data, resize="short=20", icc="keep"))
    assert kept.info["icc_profile"] == swapped_profile()
    assert run(file(image, format, icc_profile=own), resize="short=40") is None
    assert run(file(image, format, icc_profile=b"no profile"), resize="short=40") is None


def test_inks_become_rgb() -> None:
    image = picture(mode="CMYK")
    for data in (file(image, "JPEG", quality=98, subsampling=0), file(image, "TIFF")):
        made = opened(run(data, encode="png"))
        expected = Image.open(io.BytesIO(data)).convert("RGB")
        assert difference(made, expected) == 0


@pytest.mark.parametrize("encode", ["jpeg", "raw"])
def test_what_is_transparent_lies_over_the_background(encode: str) -> None:
    image = picture(mode="RGBA")
    data = file(image)
    for background in ("white", "#204060"):
        behind = Image.new("RGBA", image.size, background)
        expected = Image.alpha_composite(behind, image).convert("RGB")
        made = run(data, encode=encode, background=background, quality=100, subsampling="4:4:4")
        assert made is not None
        if encode == "raw":
            pixels = np.frombuffer(made.data, np.uint8).reshape(40, 60, 3)
            assert difference(Image.fromarray(pixels), expected) <= 1
        else:
            assert psnr(opened(made), expected) > 42


def test_palettes() -> None:
    """With and without transparency, of one colour and of each."""
    image = picture(mode="P")
    assert opened(run(file(image), encode="png")).mode == "RGB"
    one = opened(run(file(image, transparency=3), encode="png"))
    assert one.mode == "RGBA"
    assert difference(one, Image.open(io.BytesIO(file(image, transparency=3))).convert("RGBA")) == 0
    many = file(image, transparency=bytes(range(256)))
    expected = Image.open(io.BytesIO(many)).convert("RGBA")
    assert difference(opened(run(many, encode="png")), expected) == 0


def test_grey_stays_grey_where_the_format_has_it() -> None:
    data = file(picture(mode="L"))
    for encode, mode in (("png", "L"), ("jpeg", "L"), ("webp", "RGB")):
        assert opened(run(data, encode=encode)).mode == mode
    raw, grey = run(data, encode="raw"), run(data, encode="raw", color="grey")
    assert raw is not None
    assert grey is not None
    assert bytes(grey.data) == picture(mode="L").tobytes()
    assert bytes(raw.data) == picture(mode="L").convert("RGB").tobytes()
    assert opened(run(data, encode="png", color="rgb")).mode == "RGB"
    colours = file(picture())
    made = opened(run(colours, encode="png", color="grey"))
    assert difference(made, picture().convert("L")) == 0
    assert opened(run(file(picture(mode="1")), encode="png")).mode == "L"
    assert opened(run(file(picture(mode="LA")), encode="png")).mode == "RGBA"


def test_16_bits_stay_where_the_format_has_them() -> None:
    values = (np.arange(2400, dtype=np.uint16) * 27).reshape(40, 60)
    data = file(Image.fromarray(values))
    made = opened(run(data, encode="png"))
    assert (np.asarray(made) == values).all()
    floats = Image.fromarray(values.astype(np.float32)).resize((30, 20), LANCZOS)
    made = opened(run(data, resize="short=20"))
    assert made.mode == "I;16"
    difference = np.asarray(made, np.float64) - np.clip(np.asarray(floats), 0, 65535)
    assert np.abs(difference).max() <= 1
    jpeg = opened(run(data, encode="jpeg", quality=100))
    assert psnr(jpeg, Image.fromarray((values >> 8).astype(np.uint8))) > 45


def test_jpegs_are_decoded_at_a_part_of_their_size() -> None:
    """Where that makes no difference that one sees; an edge like this one is the worst case."""
    image = picture(1600, 1200).resize((1600, 1200))
    data = file(image, "JPEG", quality=95)
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    for side in (600, 300, 200, 100, 75, 40):
        made = opened(run(data, resize=f"short={side}", encode="png"))
        assert psnr(made, whole.resize((side * 4 // 3, side), LANCZOS)) > 42


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (file(picture(), "JPEG")[:400], "truncated"),
        (file(picture())[:1500], "truncated"),
        (file(picture(mode="RGB").convert("F"), "TIFF"), "unsupported_format"),
    ],
)
def test_what_cannot_be_decoded_is_bad(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        run(data, resize="short=20", encode="png")
    assert caught.value.reason == reason


def test_what_is_too_large_is_bad() -> None:
    with pytest.raises(BadImage, match="60x40 is more than the limit of 2399 pixels"):
        run(file(picture()), encode="png", max_pixels=2399)
    with pytest.raises(BadImage, match="17000x2 is more than the 16383 that WebP holds"):
        run(file(Image.new("RGB", (17000, 2))), encode="webp")


def test_corpus_of_odd_files(tmp_path: Path) -> None:
    """Others than JPEG, PNG and WebP become PNG when they change."""
    for format, mode in (("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"), ("PPM", "RGB")):
        made = run(file(picture(mode=mode), format), resize="short=20")
        assert made is not None
        assert (made.kind, opened(made).format) == ("png", "PNG")


def test_other_channels_are_a_change() -> None:
    """Also where the size is right already."""
    for format in ("JPEG", "PNG", "WEBP", "GIF"):
        colours = file(picture(), format)
        assert opened(run(colours, resize="long=100", color="grey")).convert("RGB").size == (60, 40)
        grey = file(picture(mode="L"), format)
        assert run(grey, resize="long=100", color="grey") is None or format in ("WEBP", "GIF")
        if format in ("JPEG", "PNG"):
            assert opened(run(colours, resize="long=100", color="grey")).mode == "L"
            assert opened(run(grey, resize="long=100", color="rgb")).mode == "RGB"
            assert run(colours, resize="long=100", color="rgb") is None


@pytest.mark.parametrize("format", ["TIFF", "AVIF"])
def test_profiles_of_formats_that_name_them_otherwise(format: str) -> None:
    options: dict[str, Any] = {"quality": 95, "subsampling": "4:4:4"} if format == "AVIF" else {}
    data = file(picture(), format, icc_profile=swapped_profile(), **options)
    red, green, blue = Image.open(io.BytesIO(data)).convert("RGB").split()
    made = opened(run(data, resize="long=100"))
    assert difference(made, Image.merge("RGB", (blue, green, red))) <= 4
    assert run(data, resize="long=100", icc="keep") is None
    assert run(file(picture(), format, **options), resize="long=100") is None


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_that_lies_is_turned(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file(picture(), "TIFF", exif=exif)
    made = run(data, resize="long=100")
    assert (made is None) == (orientation == 1)
    if made is not None:
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        assert difference(opened(made), upright.convert("RGB")) == 0


def test_raw_pixels_are_encoded_too() -> None:
    for mode in ("L", "RGB", "RGBA"):
        image = picture(mode=mode)
        found = Sniffed("raw", 60, 40)
        encoder = Encoder(Encoding(encode="png"), MAX_PIXELS)
        assert difference(opened(encoder(memoryview(image.tobytes()), found)), image) == 0
        small = Encoder(Encoding(resize="short=20"), MAX_PIXELS)
        made = small(memoryview(image.tobytes()), found)
        assert made is not None
        assert (made.kind, made.width, made.height) == ("raw", 30, 20)


def test_what_would_become_too_large_is_bad() -> None:
    """Before any memory is asked for."""
    data = file(Image.new("RGB", (65500, 1)))
    choices: list[dict[str, Any]] = [{"encode": "raw"}, {"encode": "png"}, {}]
    for options in choices:
        with pytest.raises(BadImage, match="33536000x512 is more than the limit"):
            run(data, resize="short=512", enlarge=True, **options)
    with pytest.raises(BadImage, match="131000x2 is more than the 65500 that JPEG holds"):
        run(file(Image.new("RGB", (65500, 1)), "JPEG"), resize="short=2", enlarge=True)


def test_a_profile_goes_with_its_colours() -> None:
    own = swapped_profile()
    data = file(picture(), icc_profile=own)
    for encode in ("png", "jpeg"):
        kept = opened(run(data, encode=encode, icc="keep"))
        assert kept.info["icc_profile"] == own
        grey = opened(run(data, encode=encode, icc="keep", color="grey"))
        assert grey.mode == "L"
        assert "icc_profile" not in grey.info
