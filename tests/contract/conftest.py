"""What every format is tested with: a small tree of images, packed once in each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from fastconv.loaders import MissingDependencyError, PackDataset, open_dataset
from fastconv.loaders.reader import READERS

SIZE = (16, 12)


@dataclass(frozen=True)
class Row:
    """One sample as it should come out.

    Attributes:
        path: Relative to the tree.
        label: Its class id.
        kind: Pillow's name of the image format.
        mode: Of the image as stored.
        caption: What its sidecar holds; None where it has none.
    """

    path: str
    label: int
    kind: str
    mode: str = "RGB"
    caption: str | None = None


# In torchvision's order: class, then folder path, then file name, each by code point.
ROWS = [
    Row("cat/10.png", 0, "PNG", caption="ten"),
    Row("cat/9.jpg", 0, "JPEG"),
    Row("cat/Z.JPEG", 0, "JPEG", "L", caption=""),
    Row("cat/two dots.v1.5.webp", 0, "WEBP", caption="two\nlines"),
    Row("cat/ünï cödé.gif", 0, "GIF", "P", caption="schön 写真 🐈"),
    Row("cat/a/z.png", 0, "PNG", "RGBA"),
    Row("cat/a-b/y.png", 0, "PNG", "LA", caption="y"),
    Row("cat/a/z/x.jpg", 0, "JPEG", caption="x" * 5000),
    Row("dög/1.png", 1, "PNG", "1"),
    Row("dög/猫.jpg", 1, "JPEG"),
    Row("dög/deep/er/est/2.jpg", 1, "JPEG", caption="deep"),
]


def write_image(file: Path, row: Row, seed: int) -> None:
    image = Image.linear_gradient("L").resize(SIZE).rotate(30 * seed)
    other = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    image = Image.merge("RGB", (image, other, Image.new("L", SIZE, 20 * seed)))
    if "A" in row.mode:
        image.putalpha(other)
    file.parent.mkdir(parents=True, exist_ok=True)
    image.convert(row.mode).save(file, row.kind)


def pack_tree(tree: Path, folder: Path, format: str) -> Path:
    """Returns a pack of the tree inside the folder; a raw folder is one already."""
    if format == "folder":
        return tree
    from fastconv.converters import pack

    out = folder / "pack"
    pack(tree, out, format=format, sidecars=("txt",) if holds_sidecars(format) else ())
    return out


def holds_sidecars(format: str) -> bool:
    """Returns whether a format holds more than images; a raw folder does."""
    from fastconv.converters.writer import WRITERS

    return format == "folder" or WRITERS.load(format).sidecars


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """Returns the samples in the order that every format has to give them."""
    return ROWS


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of images, written in another order; tests do not change it."""
    root = tmp_path_factory.mktemp("source") / "tree"
    for seed, row in reversed([*enumerate(ROWS)]):
        file = root / row.path
        write_image(file, row, seed)
        if row.caption is not None:
            file.with_suffix(".txt").write_text(row.caption, encoding="utf-8", newline="")
    (root / "cat/readme.md").write_text("no image")
    (root / ".hidden").mkdir()
    return root


@pytest.fixture(scope="session", params=READERS.names())
def format(request: pytest.FixtureRequest) -> str:
    """Returns the name of a format: each whose packages are installed, or each of all."""
    name = str(request.param)
    try:
        READERS.load(name)
    except MissingDependencyError as error:
        if os.environ.get("FASTCONV_ALL_FORMATS") == "1":
            raise
        pytest.skip(str(error))
    return name


@pytest.fixture(scope="session")
def pack_of(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns what gives the packed tree in a format, packed once; tests do not change it."""
    packs: dict[str, Path] = {}

    def pack_in(format: str) -> Path:
        if format not in packs:
            packs[format] = pack_tree(tree, tmp_path_factory.mktemp(format), format)
        return packs[format]

    return pack_in


@pytest.fixture(scope="session")
def pack(format: str, pack_of: Callable[[str], Path]) -> Path:
    """Returns the packed tree; tests do not change it."""
    return pack_of(format)


@pytest.fixture
def fields(format: str) -> tuple[str, ...]:
    """Returns the fields of the packed tree: a format may hold images alone."""
    return ("image", "txt") if holds_sidecars(format) else ("image",)


@pytest.fixture
def captioned(fields: tuple[str, ...]) -> None:
    """Skips where the format holds images alone."""
    if len(fields) == 1:
        pytest.skip("holds no sidecars")


@pytest.fixture
def dataset(pack: Path) -> PackDataset:
    """Returns a Dataset of the packed tree, not read from yet."""
    return open_dataset(pack)


@pytest.fixture(scope="session")
def damaged_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder whose second of three images is cut short, behind its header."""
    root = tmp_path_factory.mktemp("damaged") / "tree"
    for seed, name in enumerate(("cat/a.png", "cat/broken.jpg", "dog/b.png")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64, 64), 99).convert("RGB").rotate(seed).save(root / name)
    broken = root / "cat/broken.jpg"
    broken.write_bytes(broken.read_bytes()[:-500])
    return root


@pytest.fixture(scope="session")
def damaged_pack(format: str, damaged_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack of the damaged tree: what is wrong is seen only when the image is decoded."""
    return pack_tree(damaged_tree, tmp_path_factory.mktemp(f"damaged-{format}"), format)


@pytest.fixture
def replaced(format: str, tree: Path, tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """Returns a pack, and what puts another one, of as many samples, in its place."""
    for name, first in (("old", "cat"), ("new", "ant")):
        copy = tmp_path / name / "tree"
        for seed, row in enumerate(ROWS[:3]):
            write_image(copy / row.path.replace("cat", first), row, seed)
    path = pack_tree(tmp_path / "old/tree", tmp_path / "old", format)
    other = pack_tree(tmp_path / "new/tree", tmp_path / "new", format)

    def replace() -> None:
        for file in [*path.parent.iterdir()]:
            if file.name.startswith(path.name):  # the pack, and a table beside it
                file.rename(tmp_path / f"{file.name}.was")
        for file in [*other.parent.iterdir()]:
            if file.name.startswith(other.name):
                file.rename(path.parent / file.name)

    return path, replace
