"""The Datasets, on a raw folder; what every format has to do is tested in tests/contract."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastconv.loaders
from fastconv.loaders import (
    ImageFolderDataset,
    LMDBDataset,
    MissingDependencyError,
    PackChangedError,
    PackDataset,
    PackError,
    SampleError,
    UsageError,
    open_dataset,
    open_pack,
)
from fastconv.loaders.reader import READERS

NAMES = ["cat/0.png", "cat/1.png", "cat/in/2.png", "dog/3.png", "dog/4.png"]
LABELS = [0, 0, 0, 1, 1]
BROKEN = 3


def save_image(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4), (shade, 0, 255 - shade)).save(path)


def shade_of(image: Image.Image) -> int:
    pixel = image.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return int(pixel[0])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for shade, name in enumerate(NAMES):
        save_image(root / name, shade)
    (root / "cat/0.txt").write_text("zero ø", encoding="utf-8")
    (root / "cat/1.txt").write_bytes(b"\xff\xfe\xfd")
    (root / "dog/3.txt").write_bytes(b"")
    return root


@pytest.fixture
def damaged(tree: Path) -> Path:
    data = (tree / NAMES[BROKEN]).read_bytes()
    (tree / NAMES[BROKEN]).write_bytes(data[: len(data) // 2])
    return tree


def shades(samples: Any) -> list[int]:
    return [shade_of(sample[0]) for sample in samples]


# ------------------------------------------------------------------------------------- samples


def test_a_sample_is_an_image_and_a_label(tree: Path) -> None:
    dataset = open_dataset(tree)
    assert len(dataset) == len(NAMES)
    for row, label in enumerate(LABELS):
        image, got = dataset[row]
        assert (image.mode, image.size, shade_of(image)) == ("RGB", (6, 4), row)
        assert got == label
        assert type(got) is int


def test_without_classes_the_label_is_minus_one(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png", 1)
    dataset = open_dataset(tmp_path)
    assert dataset[0][1] == -1
    assert dataset.classes == []
    assert dataset.class_to_idx == {}
    assert dataset.targets.tolist() == [-1]
    assert list(dataset.samples) == [(str(tmp_path / "a.png"), -1)]


def test_transforms(tree: Path) -> None:
    named = ImageFolderDataset(tree, shade_of, lambda label: f"class {label}")
    assert named[4] == (4, "class 1")
    dataset = open_dataset(tree, transform=shade_of, target_transform=str, fields=("txt", "image"))
    assert dataset[0] == ("zero ø", 0, "0")
    dataset = open_dataset(tree, transform=len, decode=None)
    assert dataset[0] == ((tree / NAMES[0]).stat().st_size, 0)


def test_fields(tree: Path) -> None:
    dataset = open_dataset(tree, fields=("image", "txt"))
    assert [sample[1:] for sample in dataset] == [
        ("zero ø", 0),
        (b"\xff\xfe\xfd", 0),
        (None, 0),
        ("", 1),
        (None, 1),
    ]
    assert shades(dataset) == [0, 1, 2, 3, 4]
    assert open_dataset(tree, fields=["txt"])[0] == ("zero ø", 0)


def test_stored_bytes(tree: Path) -> None:
    dataset = open_dataset(tree, fields=("image", "txt"), decode=None)
    image, text, label = dataset[0]
    assert (type(image), image) == (bytes, (tree / NAMES[0]).read_bytes())
    assert (text, label) == ("zero ø".encode(), 0)
    assert dataset[2][1] is None
    assert dataset[3][1] == b""


def test_reading_fields(tree: Path) -> None:
    dataset = open_dataset(tree, fields=("txt",))
    view = dataset.read(-1)
    assert view.readonly
    assert view == (tree / NAMES[-1]).read_bytes()
    text = dataset.read(0, "txt")
    assert text is not None
    assert bytes(text) == "zero ø".encode()
    assert dataset.read(2, "txt") is None
    assert [bytes(view) for view in dataset.read_many([4, 0, 4])] == [
        (tree / NAMES[row]).read_bytes() for row in (4, 0, 4)
    ]
    assert [view if view is None else bytes(view) for view in dataset.read_many((2, 3), "txt")] == [
        None,
        b"",
    ]
    assert dataset.read_many([]) == []
    with pytest.raises(UsageError, match=r"has no field 'json': its fields are image, txt"):
        dataset.read(0, "json")
    with pytest.raises(UsageError, match=r"has no field 'png'"):
        dataset.read_many([0], "png")


@pytest.mark.parametrize("index", [-1, 4, np.int8(-1), np.uint64(4), torch.tensor(4), True + 3])
def test_indices(tree: Path, index: Any) -> None:
    dataset = open_dataset(tree)
    assert shade_of(dataset[index][0]) == 4
    assert shades(dataset.__getitems__([index, index])) == [4, 4]
    assert bytes(dataset.read(index)) == (tree / NAMES[4]).read_bytes()


@pytest.mark.parametrize("index", [5, -6, 2**63, -(10**30), np.int64(5)])
def test_indices_past_either_end(tree: Path, index: int) -> None:
    dataset = open_dataset(tree)
    for get in (dataset.__getitem__, dataset.read, lambda i: dataset.__getitems__([0, i])):
        with pytest.raises(IndexError, match="outside the dataset of 5 samples") as caught:
            get(index)
        assert caught.type is IndexError


@pytest.mark.parametrize(
    "index", ["0", b"0", None, 0.0, np.float32(1), (1,), [1], slice(2), torch.tensor(1.0)]
)
def test_what_is_no_index(tree: Path, index: Any) -> None:
    dataset = open_dataset(tree)
    for get in (dataset.__getitem__, dataset.read, lambda i: dataset.__getitems__([0, i])):
        with pytest.raises(TypeError, match=r"use torch\.utils\.data\.Subset"):
            get(index)


def test_batches_keep_order_and_repeats(tree: Path) -> None:
    dataset = open_dataset(tree)
    assert shades(dataset.__getitems__([3, 3, -5])) == [3, 3, 0]
    assert dataset.__getitems__([]) == []
    assert shades(dataset.__getitems__(np.array([4, 1]))) == [4, 1]  # type: ignore[arg-type]


def test_iteration_ends_and_hides_no_error(tree: Path) -> None:
    dataset = open_dataset(tree)
    assert shades(dataset) == [0, 1, 2, 3, 4]
    assert shades(dataset) == [0, 1, 2, 3, 4]
    assert shades(reversed(dataset)) == [4, 3, 2, 1, 0]

    def fail(image: Image.Image) -> None:
        raise IndexError("of the transform")

    with pytest.raises(IndexError, match="of the transform"):
        list(open_dataset(tree, transform=fail))


# ---------------------------------------------------------------------------- what is known of it


def test_attributes_of_image_folder(tree: Path) -> None:
    dataset = open_dataset(tree)
    assert dataset.classes == ["cat", "dog"]
    assert dataset.class_to_idx == {"cat": 0, "dog": 1}
    assert dataset.targets.dtype == np.int64
    assert dataset.targets.tolist() == LABELS
    with pytest.raises(ValueError, match="read-only"):
        dataset.targets[0] = 7
    expected = [(f"{tree}/{name}", label) for name, label in zip(NAMES, LABELS, strict=True)]
    assert list(dataset.samples) == expected
    assert list(dataset.imgs) == expected


def test_samples_are_a_sequence(tree: Path) -> None:
    samples = open_dataset(tree).samples
    expected = [(f"{tree}/{name}", label) for name, label in zip(NAMES, LABELS, strict=True)]
    assert len(samples) == 5
    assert samples[-1] == expected[-1]
    assert samples[np.int64(1)] == expected[1]  # type: ignore[call-overload]
    assert samples[1:4] == expected[1:4]
    assert samples[::-2] == expected[::-2]
    assert expected[2] in samples
    assert samples.index(expected[2]) == 2
    assert list(reversed(samples)) == expected[::-1]
    assert type(samples[0][1]) is int
    with pytest.raises(IndexError):
        samples[5]
    with pytest.raises(TypeError):
        samples["0"]  # type: ignore[call-overload]
    assert repr(samples) == "<5 samples as (path, label)>"


def test_what_the_pack_says(tree: Path) -> None:
    dataset = open_dataset(tree)
    assert dataset.format == "folder"
    assert dataset.meta.samples == 5
    assert dataset.pack_id == dataset.meta.id
    assert dataset.table.path(4) == NAMES[4]


def test_repr(tree: Path) -> None:
    assert repr(open_dataset(tree)) == "\n".join(
        ["Dataset ImageFolderDataset", "    Number of datapoints: 5", f"    Root location: {tree}"]
    )
    dataset = open_dataset(
        tree,
        fields=("image", "txt"),
        transform=torch.nn.Sequential(torch.nn.ReLU()),
        target_transform=abs,
    )
    assert repr(dataset).splitlines()[3:] == [
        "    Fields: image, txt",
        "    Transform: Sequential(",
        "                 (0): ReLU()",
        "               )",
        "    Target transform: <built-in function abs>",
    ]


# --------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "cv2"}, "decode is 'cv2': it can be 'pil', 'tensor', 'numpy', None or"),
        ({"on_error": "ignore"}, "on_error is 'ignore': it can be 'raise', 'skip'"),
        ({"mode": "BGR"}, "mode is 'BGR': it can be 'RGB', 'L', 'unchanged'"),
        ({"fields": "txt"}, r"fields is 'txt': give a list of them, as \['txt'\]"),
        ({"fields": ()}, "fields names no field"),
        ({"fields": ("image", "json")}, "has no field 'json'"),
        ({"format": "zip"}, "unknown format 'zip': known are folder, hdf5"),
        (
            {"format": "hdf5"},
            "its format is folder, not hdf5: use open_dataset or ImageFolderDataset",
        ),
    ],
)
def test_wrong_options(tree: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_dataset(tree, **options)


def test_exif_and_mode(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (6, 4), 9).save(tmp_path / "a.jpg", exif=exif)
    assert open_dataset(tmp_path)[0][0].size == (6, 4)
    assert open_dataset(tmp_path, exif_transpose=True)[0][0].size == (4, 6)
    assert open_dataset(tmp_path, mode="unchanged")[0][0].mode == "L"


def test_a_dataset_of_another_format(tree: Path) -> None:
    with pytest.raises(
        UsageError, match="its format is folder, not lmdb: use open_dataset or Image"
    ):
        LMDBDataset(tree)


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="nowhere: no such file or folder"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(PackError, match="nowhere: no such file or folder"):
        ImageFolderDataset(tmp_path / "nowhere")
    with pytest.raises(PackError, match="no images found in it, and not a pack that fastconv can"):
        open_dataset(tmp_path)
    (tmp_path / "text").touch()
    with pytest.raises(PackError, match="text: not a pack that fastconv can read"):
        open_dataset(tmp_path / "text")
    (tmp_path / "x.lmdb.partial/pack0").mkdir(parents=True)
    for name in ("x.lmdb", "x.lmdb.partial"):
        with pytest.raises(PackError, match=r"x\.lmdb\.partial:? holds an unfinished run"):
            open_dataset(tmp_path / name)
    with pytest.raises(PackError, match="holds no images"):
        ImageFolderDataset(tmp_path)


def test_a_relative_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent)
    dataset = pickle.loads(pickle.dumps(open_dataset("tree")))
    monkeypatch.chdir("/")
    assert shades(dataset) == [0, 1, 2, 3, 4]
    assert dataset.path == str(tree)


def test_what_was_noticed_while_opening_is_logged(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tree / "dog/empty.png").write_bytes(b"")
    (tree / "emu").mkdir()
    dataset = open_dataset(tree)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.messages[0].startswith(f"{tree}: 1 class ")
    assert "left out as unreadable: 1, the first: dog/empty.png: " in caplog.messages[1]
    caplog.clear()
    pickle.loads(pickle.dumps(dataset))[0]
    assert caplog.messages == []


# ------------------------------------------------------------------------------------ bad samples


def test_a_bad_sample_is_raised(damaged: Path) -> None:
    dataset = open_dataset(damaged)
    for get in (lambda: dataset[BROKEN], lambda: dataset.__getitems__([0, BROKEN])):
        with pytest.raises(SampleError) as caught:
            get()
        start = f"{damaged}: sample 3, key 3, path dog/3.png: "
        assert str(caught.value).startswith(start)
        assert len(str(caught.value)) > len(start)
        assert caught.value.reason in ("truncated", "corrupt")
    assert dataset[BROKEN - 1][1] == 0
    assert dataset.skipped == 0


def test_a_bad_sample_is_skipped(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_dataset(damaged, on_error="skip")
    assert dataset[BROKEN] is None
    assert dataset.skipped == 1
    assert shades(dataset.__getitems__([4, BROKEN, 0])) == [4, 0]
    assert dataset.__getitems__([BROKEN]) == []
    assert [sample is None for sample in dataset] == [False, False, False, True, False]
    assert dataset.skipped == 4
    assert caplog.messages[0].startswith(f"skipped {damaged}: sample 3, key 3, path dog/3.png: ")


def test_a_transform_that_fails_is_not_skipped(tree: Path) -> None:
    def fail(image: Image.Image) -> None:
        raise ValueError("of the transform")

    with pytest.raises(ValueError, match="of the transform"):
        open_dataset(tree, transform=fail, on_error="skip")[0]


# ------------------------------------------------------------------------------ copies and threads


@pytest.mark.parametrize("opened", [False, True])
def test_copies(tree: Path, opened: bool) -> None:
    dataset = open_dataset(tree, transform=shade_of, fields=("txt", "image"), on_error="skip")
    if opened:
        dataset[0], dataset.classes, dataset.class_to_idx
    text = pickle.dumps(dataset)
    assert len(text) < 4096
    for other in (pickle.loads(text), copy.copy(dataset), copy.deepcopy(dataset)):
        assert type(other) is ImageFolderDataset
        assert len(other) == 5
        assert repr(other) == repr(dataset)
        assert list(other) == list(dataset)
        assert other.classes == dataset.classes


def test_the_length_is_known_before_anything_is_opened(tree: Path) -> None:
    text = pickle.dumps(open_dataset(tree))
    tree.rename(tree.parent / "elsewhere")
    dataset = pickle.loads(text)
    assert len(dataset) == 5
    with pytest.raises(PackError, match="no such file or folder"):
        dataset[0]


def test_a_folder_with_other_files_is_another_pack(tree: Path) -> None:
    dataset = open_dataset(tree)
    text = pickle.dumps(dataset)
    (tree / NAMES[1]).rename(tree / "cat/renamed.png")
    with pytest.raises(PackChangedError, match="tree: was replaced since this dataset was made"):
        pickle.loads(text)[0]
    assert shade_of(dataset[0][0]) == 0


def test_threads(tree: Path) -> None:
    dataset = pickle.loads(pickle.dumps(open_dataset(tree)))  # not opened yet
    with ThreadPoolExecutor(8) as pool:
        got = shades(pool.map(dataset.__getitem__, [row % 5 for row in range(400)]))
    assert got == [row % 5 for row in range(400)]


# ----------------------------------------------------------------------------------- the package


def test_names() -> None:
    assert {*fastconv.loaders.__all__} <= {*dir(fastconv.loaders)}
    for name in fastconv.loaders.__all__:
        assert getattr(fastconv.loaders, name) is not None
    assert fastconv.loaders.__all__ == sorted(fastconv.loaders.__all__)
    for name in ("Nothing", "NoSuchDataset", "_Dataset"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(fastconv.loaders, name)


@pytest.mark.parametrize("name", READERS.names())
def test_every_format_has_a_dataset_of_its_name(name: str) -> None:
    try:
        reader = READERS.load(name)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    found = getattr(fastconv.loaders, reader.dataset)
    assert issubclass(found, PackDataset)
    assert (found.__name__, found.format) == (reader.dataset, name)
    assert found is getattr(fastconv.loaders, reader.dataset)
    assert reader.dataset in fastconv.loaders.__all__


def run(code: str, *paths: Path) -> str:
    """Returns what a fresh Python prints for the code; `paths` can be imported from."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dataset_imports_no_other_format() -> None:
    code = """
        import sys
        import fastconv.loaders
        assert not {"torch", "PIL", "numpy"} & sys.modules.keys()
        fastconv.loaders.ImageFolderDataset
        print(sorted(m for m in sys.modules if m.startswith("fastconv.loaders.formats.")))
    """
    assert run(code) == "['fastconv.loaders.formats.folder']\n"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Returns a folder to import from, with another's format: a file whose bytes are samples."""
    place = tmp_path / "plugin"
    about = place / "blob-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: blob\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fastconv.readers]\nblob = blob:Blob\n")
    (place / "blob.py").write_text(
        textwrap.dedent("""
            import os
            import numpy as np
            from fastconv.loaders.meta import PackMeta, Shard
            from fastconv.loaders.reader import MappedReader
            from fastconv.loaders.table import SampleTable

            class Blob(MappedReader):
                name, title, dataset = "blob", "Blob", "BlobDataset"
                calls = []

                @classmethod
                def recognises(cls, path):
                    return path.endswith(".blob")

                @classmethod
                def open(cls, path):
                    size = os.path.getsize(path)
                    shard = Shard(os.path.basename(path), size)
                    meta = PackMeta(
                        format="blob", id="", samples=size, fields=("image",), shards=(shard,)
                    )
                    table = SampleTable(
                        fields=("image",), label=np.full(size, -1), kind=np.zeros(size, np.uint8),
                        width=np.zeros(size, np.uint32), height=np.zeros(size, np.uint32),
                        path_bytes=np.zeros(0, np.uint8), path_offset=np.zeros(size + 1, np.uint64),
                        shard_row=np.array([0, size]), offset=(np.arange(size, dtype=np.uint64),),
                        size=(np.ones(size, np.int64),),
                    )
                    return cls(path, meta, table, [path])

                def check(self, rows):
                    self.calls.append("check")
                    super().check(rows)

                def hint(self, rows, slots=(0,)):
                    self.calls.append(("hint", rows.tolist(), tuple(slots)))
                    super().hint(rows, slots)

                def load(self, row, slot=0):
                    self.calls.append(row)
                    return super().load(row, slot)

                def read(self, row, slot=0):
                    self.calls.append(row)
                    return super().read(row, slot)
            """)
    )
    return place


def test_the_dataset_of_a_plug_in(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "a.blob").write_bytes(b"abcdef")
    (tmp_path / "empty.blob").write_bytes(b"")
    code = f"""
        import os, pickle, warnings
        from fastconv.loaders import BlobDataset, CorruptPackError, PackChangedError, UsageError
        from fastconv.loaders import open_dataset
        from blob import Blob

        path = {str(tmp_path / "a.blob")!r}
        dataset = open_dataset(path, decode=None)
        assert type(dataset) is BlobDataset and dataset.pack_id == ""
        assert pickle.loads(pickle.dumps(dataset))[1] == (b"b", -1)

        Blob.calls.clear()
        assert [image for image, _ in dataset.__getitems__([4, 0, 4])] == [b"e", b"a", b"e"]
        assert Blob.calls == ["check", ("hint", [4, 0, 4], (0,)), 4, 0, 4], Blob.calls

        Blob.calls.clear()
        assert dataset.read_many([-1, 2]) == [b"f", b"c"]
        assert Blob.calls == ["check", ("hint", [5, 2], (0,)), 5, 2], Blob.calls

        try:
            open_dataset({str(tmp_path / "empty.blob")!r})
        except UsageError as error:
            print(str(error).endswith("empty.blob: holds no samples"))

        text = pickle.dumps(dataset)
        os.truncate(path, 3)  # reading past the end of the map would kill the process
        for get in (dataset.__getitem__, dataset.__getitems__, dataset.read_many):
            try:
                get(0 if get == dataset.__getitem__ else [0])
            except CorruptPackError as error:
                print("truncated since it was opened" in str(error))
        try:
            pickle.loads(text)[0]
        except PackChangedError as error:
            print("was replaced" in str(error))
    """
    assert run(code, plugin) == "True\n" * 5


@pytest.mark.parametrize(
    "path", [5, None, ["a.lmdb", 5], [None], "a\0", ["\ud800"], b"a\0", "", 1.5]
)
def test_what_is_no_path_is_told(path: Any) -> None:
    with pytest.raises(UsageError, match=r"^the path of a pack"):
        open_dataset(path)
    if not isinstance(path, list):
        with pytest.raises(UsageError, match="the path of a pack"):
            open_pack(path)
