"""Statistics: those that plain numpy and Pillow give, whatever holds the images and who counts."""

from __future__ import annotations

import io
import json
import math
import os
import tarfile
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from fastconv.converters import Sample, Sharding, pack, plan, stats
from fastconv.converters import statistics as module
from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.run import taken_from
from fastconv.converters.statistics import (
    EDGES,
    PixelStatistics,
    StatisticsFailedError,
    StatisticsReport,
    statistics,
)
from fastconv.converters.verifying import chosen_rows
from fastconv.converters.writer import WRITERS
from fastconv.loaders.errors import CorruptPackError, FastconvError, UsageError

MAGIC = bytes.fromhex("0a23d7ce")
"""Where these bytes lie in an image, a RecordIO has to escape them."""


@pytest.fixture(autouse=True)
def same_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "processes" not in request.fixturenames:
        monkeypatch.setattr(module, "engine_for", lambda *_: InlineEngine())


@pytest.fixture
def processes() -> None:
    """Lets a test use real worker processes."""


def noise(seed: int, *shape: int, kind: type[np.unsignedinteger[Any]] = np.uint8) -> Any:
    top = np.iinfo(kind).max
    return np.random.default_rng(seed).integers(0, top, shape, kind, endpoint=True)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def png(seed: int, rows: int = 5, columns: int = 7) -> bytes:
    return saved(Image.fromarray(noise(seed, rows, columns, 3)), "PNG")


def make_images() -> dict[str, bytes]:
    """Returns path -> file: every mode that is decoded in a way of its own, in several sizes."""
    photo = Image.fromarray(noise(1, 48, 64, 3) // 4 + 90)
    palette = photo.quantize(9)
    return {
        "ant/cmyk.jpg": saved(photo.convert("CMYK"), "JPEG"),
        "ant/escaped.ppm": saved(Image.frombytes("RGB", (8, 3), MAGIC * 18), "PPM"),
        "ant/grey.jpg": saved(photo.convert("L"), "JPEG", quality=90),
        "ant/grey.png": saved(Image.fromarray(noise(2, 9, 4)), "PNG"),
        "ant/photo.jpg": saved(photo, "JPEG", quality=80),
        "bee/bits.png": saved(photo.convert("1"), "PNG"),
        "bee/deep.png": saved(Image.fromarray(noise(3, 20, 10, kind=np.uint16)), "PNG"),
        "bee/palette.png": saved(palette, "PNG", transparency=3),
        "bee/progressive.jpg": saved(photo.resize((31, 77)), "JPEG", progressive=True),
        "bee/turned.jpg": saved(photo, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0"
                                b"\x01\0\0\0\x06\0\0\0\0\0\0\0"),
        "cow/alpha.png": saved(Image.fromarray(noise(4, 33, 12, 4)), "PNG"),
        "cow/colours.tif": saved(Image.fromarray(noise(5, 6, 90, 3)), "TIFF"),
        "cow/grey-alpha.png": saved(Image.fromarray(noise(6, 5, 5, 2)), "PNG"),
        "cow/lossless.webp": saved(Image.fromarray(noise(7, 14, 13, 3)), "WEBP", lossless=True),
    }  # fmt: skip


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write(tmp_path_factory.mktemp("source") / "tree", make_images())
    (root / "empty").mkdir()
    return root


def decoded(file: Path) -> npt.NDArray[np.uint8]:
    """Returns the pixels of an image as Pillow gives them, uint8 (rows, columns, 3)."""
    image = Image.open(file)
    if image.mode.startswith("I"):  # where 16 bits are more than Pillow converts
        return np.stack([(np.asarray(image) >> 8).astype(np.uint8)] * 3, axis=-1)
    return np.asarray(image.convert("RGB"))


def check_pixels(found: PixelStatistics | None, files: Iterable[Path]) -> None:
    """Compares what was found with what numpy says of all pixels together."""
    assert found is not None
    images = [decoded(file).reshape(-1, 3) for file in files]
    values = np.concatenate(images) / 255
    assert (found.images, found.pixels) == (len(images), len(values))
    assert found.mean == pytest.approx(values.mean(axis=0), rel=0, abs=1e-9)
    assert found.std == pytest.approx(values.std(axis=0), rel=0, abs=1e-9)


def without_place(report: StatisticsReport) -> dict[str, Any]:
    """Returns what a report says of the images alone."""
    place = ("pack", "format", "id", "notices")
    return {name: value for name, value in report.to_json().items() if name not in place}


def files_of(tree: Path) -> list[Path]:
    return sorted(tree.glob("*/*.*"))


def test_a_folder_is_as_numpy_and_pillow_say(tree: Path) -> None:
    report = statistics(tree)
    files = files_of(tree)
    assert (report.status, report.samples, report.looked_at) == ("done", 14, 14)
    check_pixels(report.pixels, files)
    assert report.formats == {"png": 6, "jpg": 5, "ppm": 1, "tif": 1, "webp": 1}
    assert report.bytes == sum(file.stat().st_size for file in files)
    shapes = [decoded(file).shape for file in files]
    values = {
        "width": [shape[1] for shape in shapes],
        "height": [shape[0] for shape in shapes],
        "short_side": [min(shape[:2]) for shape in shapes],
        "aspect_ratio": [shape[1] / shape[0] for shape in shapes],
        "megapixels": [shape[0] * shape[1] / 1e6 for shape in shapes],
        "bytes": [file.stat().st_size for file in files],
    }
    assert [*report.sizes] == [*values] == [*EDGES]
    for name, of in values.items():
        one = report.sizes[name]
        assert (one.min, one.max) == (min(of), max(of))
        assert one.median == pytest.approx(np.median(of), abs=0.5 if one.median > 1 else 1e-12)
        ends = [*EDGES[name][1:], math.inf]
        assert one.counts == [
            sum(start <= value < end for value in of)
            for start, end in zip(EDGES[name], ends, strict=True)
        ]
    assert report.class_counts == {"ant": 5, "bee": 5, "cow": 4, "empty": 0}
    assert (report.imbalance, report.empty_classes) == (1.25, ["empty"])
    assert report.duplicates is not None
    assert (report.duplicates.compared, report.duplicates.groups) == (14, [])


SOURCES = ["folder", *WRITERS.names(), "shards", "vlen"]


@pytest.mark.parametrize("source", SOURCES)
def test_workers_and_formats_change_nothing(
    source: str, tree: Path, tmp_path: Path, processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tree
    if source == "shards":
        path = tmp_path / "shards"
        pack(tree, path, format="webdataset", sharding=Sharding(samples=4))
    elif source == "vlen":
        path = tmp_path / "pack.h5"
        pack(tree, path, options={"layout": "vlen"})
    elif source != "folder":
        path = tmp_path / "pack"
        pack(tree, path, format=source)
    one = statistics(path, workers=1)
    monkeypatch.setattr(plan, "PART_BYTES", 20_000)
    two = statistics(path, workers=2)
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())
    check_pixels(one.pixels, files_of(tree))
    monkeypatch.setattr(module, "engine_for", lambda *_: InlineEngine())
    assert without_place(one) == without_place(statistics(tree))


def make_tar(path: Path, files: dict[str, bytes]) -> Path:
    """Makes a tar as other tools make them: no table, labels in files of their own."""
    with tarfile.open(path, "w") as tar:
        for number, (name, data) in enumerate(files.items()):
            parts = ((os.path.splitext(name)[1], data), (".cls", str(number % 2).encode()))
            for ending, content in parts:
                info = tarfile.TarInfo(f"{number:03d}{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def test_packs_of_others_have_all_told_by_their_bytes(tree: Path, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "others.tar", make_images())
    report, folder = statistics(path), statistics(tree)
    check_pixels(report.pixels, files_of(tree))
    assert (report.sizes, report.formats) == (folder.sizes, folder.formats)
    assert (report.labels, report.class_counts) == ("int", {"0": 7, "1": 7})
    quick = statistics(path, pixels=False)
    assert (quick.sizes, quick.formats) == (folder.sizes, folder.formats)
    assert (quick.pixels, quick.duplicates) == (None, None)


def test_compressed_columns_of_others(tree: Path, tmp_path: Path, processes: None) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    images = [file.read_bytes() for file in files_of(tree)]
    table = pa.table({"photo": images, "thumb": images[::-1]})
    pq.write_table(table, tmp_path / "in.parquet", compression="gzip")
    report = statistics(tmp_path / "in.parquet", image_key="photo", workers=2)
    check_pixels(report.pixels, files_of(tree))
    quick = statistics(tmp_path / "in.parquet", image_key="photo", pixels=False, workers=1)
    assert (quick.sizes, quick.formats) == (report.sizes, report.formats)


@pytest.mark.parametrize("name", ["folder", "pack.lmdb"])
def test_no_pixels_reads_no_more_than_it_must(
    name: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = statistics(tree)
    path = tree
    if name != "folder":
        path = tmp_path / name
        pack(tree, path)
        monkeypatch.setattr(module, "engine_for", None)  # nothing is to be read
    report = statistics(path, pixels=False)
    assert report.pixels is None
    assert (report.sizes, report.formats) == (whole.sizes, whole.formats)
    assert report.class_counts == whole.class_counts
    assert report.looked_at == (14 if name == "folder" else 0)
    assert (report.duplicates is None) == (name == "folder")


def test_frames_far_behind_are_found_in_headers(tmp_path: Path) -> None:
    photo = Image.fromarray(noise(1, 20, 30, 3))
    far = saved(photo, "JPEG")
    comment = b"\xff\xfe\xff\xff" + bytes(65533)
    root = write(tmp_path / "in", {"a/far.jpg": far[:2] + 3 * comment + far[2:]})
    report = statistics(root, pixels=False)
    assert (report.sizes["width"].max, report.sizes["height"].max) == (30, 20)


COPIES = {
    "ant/1.png": png(1),
    "ant/2.png": png(2),
    "ant/3.png": png(1),
    "bee/1.png": png(3),
    "bee/2.png": png(2),
    "bee/3.png": png(1),
    "cow/1.png": png(9),
    "cow/2.png": png(9),
    "cow/3.png": png(8),
}


@pytest.mark.parametrize("name", ["folder", "pack.lmdb", "pack.tar"])
@pytest.mark.parametrize("pixels", [True, False])
def test_duplicates(name: str, pixels: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "folder", COPIES)
    if name != "folder":
        path = tmp_path / name
        pack(tmp_path / "folder", path)
    report = statistics(path, pixels=pixels)
    if name == "folder" and not pixels:
        assert report.duplicates is None
        assert any("duplicates were not looked for" in line for line in report.notices)
        return
    assert report.duplicates is not None
    groups = [(group.paths, group.classes) for group in report.duplicates.groups]
    assert groups == [
        (["ant/1.png", "ant/3.png", "bee/3.png"], ["ant", "ant", "bee"]),
        (["ant/2.png", "bee/2.png"], ["ant", "bee"]),
        (["cow/1.png", "cow/2.png"], ["cow", "cow"]),
    ]
    assert [group.across for group in report.duplicates.groups] == [True, True, False]
    assert (report.duplicates.compared, report.duplicates.copies) == (9, 4)
    answer = report.to_json()["duplicates"]
    assert answer["across_classes"] == answer["groups"][:2]
    assert any(line.startswith("2 images have copies") for line in report.warnings)


def test_equal_checksums_of_other_sizes_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "in", {"a/1.png": png(1), "a/2.png": png(2, 30), "a/3.png": png(1)})
    monkeypatch.setattr("xxhash.xxh3_64_intdigest", lambda data: 7)
    found = statistics(root).duplicates
    assert found is not None
    assert [group.paths for group in found.groups] == [["a/1.png", "a/3.png"]]


def test_a_copy_without_a_label_is_no_wrong_label(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{n}.png": png(1) for n in "abc"})
    (tmp_path / "labels.csv").write_text("file_name,label\na.png,5\nb.png,5\nc.png,-1\n")
    pack(root, tmp_path / "p.lmdb", labels=tmp_path / "labels.csv")
    report = statistics(tmp_path / "p.lmdb")
    assert report.duplicates is not None
    assert [group.classes for group in report.duplicates.groups] == [[None, "5", "5"]]
    assert (report.duplicates.across_classes, report.unlabelled) == ([], 1)
    assert report.class_counts == {"5": 2}


def test_bad_images_are_listed_and_count_nowhere(tree: Path, tmp_path: Path) -> None:
    good = make_images()
    cut = good["ant/photo.jpg"][:-200]
    floats = saved(Image.fromarray(np.ones((3, 3), np.float32)), "TIFF")
    bad = {"ant/a.jpg": cut, "bee/b.png": b"<html>no image</html>", "cow/c.tif": floats}
    root = write(tmp_path / "in", {**good, **bad, "cow/d.png": b""})
    report = statistics(root)
    assert report.status == "partial"
    named = [("cow/d.png", "empty"), ("ant/a.jpg", "truncated"), ("bee/b.png", "not_an_image")]
    named.append(("cow/c.tif", "unsupported_format"))
    assert sorted((file.path, file.reason) for file in report.bad) == sorted(named)
    check_pixels(report.pixels, files_of(tree))
    whole = statistics(tree)
    assert (report.sizes, report.formats) == (whole.sizes, whole.formats)
    assert report.class_counts == {"ant": 5, "bee": 5, "cow": 4}
    assert report.duplicates is not None
    assert report.duplicates.compared == 14


@pytest.mark.parametrize("name", ["pack.tar", "pack.rec"])
def test_damaged_bytes_that_can_be_decoded_are_bad_all_the_same(name: str, tmp_path: Path) -> None:
    plain = {f"a/{n}.bmp": saved(Image.fromarray(noise(n, 8, 8, 3)), "BMP") for n in range(4)}
    if name.endswith(".rec"):  # has its images from a reader, as their bytes do not lie together
        plain["a/4.bmp"] = saved(Image.frombytes("RGB", (8, 3), MAGIC * 18), "BMP")
    root = write(tmp_path / "in", plain)
    pack(root, tmp_path / name)
    data = bytearray((tmp_path / name).read_bytes())
    at = data.index(plain["a/2.bmp"]) + 80
    data[at] ^= 255
    (tmp_path / name).write_bytes(data)
    report = statistics(tmp_path / name)
    assert [(file.path, file.reason) for file in report.bad] == [("a/2.bmp", "corrupt")]
    assert str(tmp_path / name) in report.bad[0].message
    check_pixels(report.pixels, [file for file in files_of(root) if file.stem != "2"])


def test_nothing_whole_is_a_failure(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {"a/1.png": b"text", "a/2.png": png(1)[:50]})
    with pytest.raises(StatisticsFailedError, match=r"no whole image among the 2 .* a/1.png: not"):
        statistics(root)


def test_a_sample_is_the_same_for_the_same_seed(tree: Path, tmp_path: Path) -> None:
    files = files_of(tree)
    report = statistics(tree, sample=0.4, seed=3)
    rows = chosen_rows(0.4, 3, 14)
    assert (report.looked_at, report.seed, report.samples) == (6, 3, 14)
    check_pixels(report.pixels, [files[row] for row in rows])
    assert sum(report.sizes["width"].counts) == 6
    assert sum(report.class_counts.values()) == 14
    pack(tree, tmp_path / "p.rec")  # of which single images are read by their numbers
    known = statistics(tmp_path / "p.rec", sample=6, seed=3)
    assert known.pixels is not None
    assert report.pixels is not None
    assert known.pixels.to_json() == report.pixels.to_json()
    assert known.sizes == statistics(tree).sizes
    other = statistics(tree, sample=6, seed=4).pixels
    assert other is not None
    assert other.mean != report.pixels.mean
    assert statistics(tree, sample=1.0).seed is None
    for wrong in (0, 0.0, 1.5, -1):
        with pytest.raises(UsageError):
            statistics(tree, sample=wrong)


def test_a_pack_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.tar").write_bytes(bytes(10240))
    for pixels in (True, False):
        report = statistics(tmp_path / "p.tar", pixels=pixels)
        assert (report.status, report.samples, report.sizes) == ("done", 0, {})
        assert (report.pixels, report.duplicates, report.imbalance) == (None, None, None)
        assert report.warnings == ["the pack holds no samples (0 records)"]
        json.dumps(report.to_json())


def test_one_colour_has_no_deviation(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {"a/1.png": saved(Image.new("RGB", (3, 3), (0, 7, 255)), "PNG")})
    report = statistics(root)
    assert report.pixels is not None
    assert (report.pixels.mean, report.pixels.std) == ((0, 7 / 255, 1), (0, 0, 0))
    assert "Normalize cannot divide" in report.warnings[0]


def test_numbers_are_exact_however_many_there_are() -> None:
    levels = np.zeros((3, 256), np.int64)
    levels[:, 255] = [1, 10**9, 10**17]
    levels[:, 254] = 2 * 10**17 - levels[:, 255]  # squares beyond what 64 bits hold
    found = PixelStatistics.of(levels, 1)
    for channel, mean, std in zip(levels.tolist(), found.mean, found.std, strict=True):
        n = sum(channel)
        exact = Fraction(sum(v * times for v, times in enumerate(channel)), n)
        variance = sum(times * (v - exact) ** 2 for v, times in enumerate(channel)) / n
        assert mean == float(exact / 255)
        assert std == pytest.approx(math.sqrt(variance) / 255, rel=1e-15)


def test_strips_of_a_picture_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "STRIP", 100)
    for shape in ((1, 1), (37, 23), (5, 300), (300, 5)):
        pixels = noise(0, *shape, 3)
        levels = np.ones((3, 256), np.int64)
        stats.count_levels(pixels, levels)
        for channel in range(3):
            counts = np.bincount(pixels[..., channel].reshape(-1), minlength=256)
            assert (levels[channel] == counts + 1).all()


def test_a_damaged_table_or_another_pack_ends_the_run(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.tar"
    pack(tree, path)
    index = Path(f"{path}.index.safetensors")
    whole = index.read_bytes()
    index.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with pytest.raises(CorruptPackError):
        statistics(path)
    index.write_bytes(whole)

    def replaced(*arguments: Any) -> Any:
        os.utime(path, ns=(1, 1))
        return taken_from(*arguments)

    monkeypatch.setattr(module, "taken_from", replaced)
    with pytest.raises(FastconvError, match=r"p\.tar: was changed or replaced while it was read"):
        statistics(path)


def test_raw_pixels(tmp_path: Path) -> None:
    """They are those of the images that they were made of, alpha dropped."""
    images = np.random.default_rng(5).integers(0, 256, (6, 8, 9, 3), np.uint8)
    grey = images[0, ..., 0]
    samples = [Sample(f"{n}.npy", image) for n, image in enumerate([*images, grey])]
    pack(samples=samples, out=tmp_path / "raw.lmdb")
    report = statistics(tmp_path / "raw.lmdb")
    pixels = np.concatenate([*images.reshape(6, -1, 3), np.repeat(grey.reshape(-1, 1), 3, 1)])
    assert (report.bad, report.formats) == ([], {"raw": 7})
    assert report.pixels is not None
    assert report.pixels.mean == pytest.approx(pixels.mean(0) / 255, abs=1e-9)
    assert report.pixels.std == pytest.approx(pixels.std(0) / 255, abs=1e-9)
    assert statistics(tmp_path / "raw.lmdb", pixels=False).bad == []
