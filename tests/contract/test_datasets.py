"""What the Dataset of every format has to do, compared with the files that were packed."""

from __future__ import annotations

import copy
import gc
import operator
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    Subset,
    WeightedRandomSampler,
    random_split,
)

import fastconv.loaders
from fastconv.loaders import (
    CorruptPackError,
    MissingDependencyError,
    PackChangedError,
    PackDataset,
    PackError,
    SampleError,
    UsageError,
    open_dataset,
)
from fastconv.loaders.reader import READERS, MappedReader

Pixels = tuple[str, tuple[int, int], bytes, int]


class Row(Protocol):
    """One sample as it should come out: see conftest."""

    path: str
    label: int
    caption: str | None


def pixels(sample: tuple[Any, ...]) -> Pixels:
    """Returns what can be compared: the image's mode, size and pixels, and the label."""
    image, *_, label = sample
    return image.mode, image.size, image.tobytes(), label


@pytest.fixture(scope="session")
def expected(tree: Path, rows: list[Row]) -> list[Pixels]:
    """Returns every sample as Pillow alone reads it from the files."""
    out = []
    for row in rows:
        with Image.open(tree / row.path) as image:
            out.append(pixels((image.convert("RGB"), row.label)))
    return out


@pytest.fixture(scope="session")
def files(tree: Path, rows: list[Row]) -> list[bytes]:
    return [(tree / row.path).read_bytes() for row in rows]


# -------------------------------------------------------------------------------- what it gives


def test_order_and_labels(dataset: PackDataset, rows: list[Row], format: str, tree: Path) -> None:
    assert len(dataset) == len(rows)
    assert dataset.table.paths(0, len(dataset)) == [row.path for row in rows]
    root = f"{tree}/" if format == "folder" else ""
    assert list(dataset.samples) == [(root + row.path, row.label) for row in rows]
    assert dataset.samples[-1] == list(dataset.imgs)[-1] == (root + rows[-1].path, rows[-1].label)
    assert dataset.targets.dtype == np.int64
    assert dataset.targets.tolist() == [row.label for row in rows]
    assert dataset.classes == ["cat", "dög"]
    assert dataset.class_to_idx == {"cat": 0, "dög": 1}


def test_stored_bytes_are_those_of_the_files(
    dataset: PackDataset, pack: Path, files: list[bytes], rows: list[Row]
) -> None:
    views = [dataset.read(row) for row in range(len(files))]
    assert [bytes(view) for view in views] == files
    assert all(view.readonly for view in views)
    order = [3, 0, 10, 3]
    assert [bytes(view) for view in dataset.read_many(order)] == [files[row] for row in order]
    stored = open_dataset(pack, decode=None)
    assert list(stored) == [(data, row.label) for data, row in zip(files, rows, strict=True)]
    assert type(stored[0][0]) is bytes


def test_pixels_are_those_of_pillow(dataset: PackDataset, expected: list[Pixels]) -> None:
    assert [pixels(sample) for sample in dataset] == expected
    assert [pixels(dataset[row]) for row in range(len(dataset))] == expected
    assert type(dataset[0][1]) is int


@pytest.mark.usefixtures("captioned")
def test_fields(
    pack: Path, fields: tuple[str, ...], rows: list[Row], expected: list[Pixels]
) -> None:
    dataset = open_dataset(pack, fields=fields)
    assert [pixels(sample) for sample in dataset] == expected
    assert [text for _, text, _ in dataset] == [row.caption for row in rows]
    assert open_dataset(pack, fields=("txt",))[0] == (rows[0].caption, rows[0].label)


@pytest.mark.usefixtures("captioned")
def test_a_missing_field_is_not_an_empty_one(
    pack: Path, fields: tuple[str, ...], rows: list[Row]
) -> None:
    dataset = open_dataset(pack, fields=fields, decode=None)
    stored = [row.caption if row.caption is None else row.caption.encode() for row in rows]
    assert None in stored
    assert b"" in stored
    assert [text for _, text, _ in dataset] == stored
    views = [dataset.read(row, "txt") for row in range(len(rows))]
    assert [view if view is None else bytes(view) for view in views] == stored


def test_unknown_fields(pack: Path) -> None:
    for name in ("json", "png", ""):
        with pytest.raises(UsageError, match="field"):
            open_dataset(pack, fields=("image", name))


def test_batches_for_training(pack: Path, expected: list[Pixels], rows: list[Row]) -> None:
    dataset = open_dataset(pack, transform=np.array, target_transform=operator.neg)
    images, labels = next(iter(DataLoader(dataset, batch_size=len(rows))))
    assert images.shape == (len(rows), 12, 16, 3)
    assert images.dtype == torch.uint8
    assert [image.numpy().tobytes() for image in images] == [data for _, _, data, _ in expected]
    assert labels.tolist() == [-row.label for row in rows]


def test_views_outlive_the_dataset(pack: Path, files: list[bytes]) -> None:
    dataset = open_dataset(pack)
    views = dataset.read_many(range(len(files)))
    del dataset
    gc.collect()
    assert [bytes(view) for view in views] == files


# -------------------------------------------------------------------------------------- indices


def test_indices(dataset: PackDataset, expected: list[Pixels]) -> None:
    for row in (0, 4, 10):
        for index in (row, row - 11, np.int16(row - 11), np.uint64(row), torch.tensor(row)):
            assert pixels(dataset[index]) == expected[row]
            assert pixels(dataset.__getitems__([index])[0]) == expected[row]


@pytest.mark.parametrize("index", [11, -12, 10**12, -(10**12), 2**63, np.int64(11)])
def test_indices_past_either_end(dataset: PackDataset, index: int) -> None:
    with pytest.raises(IndexError) as caught:
        dataset[index]
    assert caught.type is IndexError


@pytest.mark.parametrize("index", ["0", b"0", None, 0.5, (1,), slice(2, 5), slice(None, None, -1)])
def test_what_is_no_index(dataset: PackDataset, index: Any) -> None:
    with pytest.raises(TypeError, match="Subset"):
        dataset[index]


def test_batches(dataset: PackDataset, expected: list[Pixels]) -> None:
    order = [3, 3, 0, -1]
    batch = dataset.__getitems__(order)
    assert [pixels(sample) for sample in batch] == [expected[i] for i in order]
    assert dataset.__getitems__([]) == []


# --------------------------------------------------------------------------- with torch's samplers


def test_subsets(dataset: PackDataset, expected: list[Pixels]) -> None:
    order = [9, 0, 0, 3]
    subset = Subset(dataset, order)
    assert [pixels(subset[i]) for i in range(len(subset))] == [expected[i] for i in order]
    (batch,) = DataLoader(subset, batch_size=4, collate_fn=list)
    assert [pixels(sample) for sample in batch] == [expected[i] for i in order]
    parts = random_split(dataset, [7, 4])
    halves = [pixels(part[i]) for part in parts for i in range(len(part))]
    assert sorted(halves) == sorted(expected)
    both: ConcatDataset[Any] = ConcatDataset([dataset, subset])
    assert [pixels(both[i]) for i in range(len(both))] == expected + [expected[i] for i in order]


def test_samplers(dataset: PackDataset, expected: list[Pixels]) -> None:
    weights = (dataset.targets == 1).astype(float)
    loader = DataLoader(
        dataset, 4, sampler=WeightedRandomSampler(weights.tolist(), 20), collate_fn=list
    )
    got = [pixels(sample) for batch in loader for sample in batch]
    assert len(got) == 20
    assert {*got} <= {*expected[8:]}

    ranks = [
        DataLoader(dataset, 3, sampler=DistributedSampler(dataset, 2, rank, False), collate_fn=list)
        for rank in (0, 1)
    ]
    shares = [[pixels(sample) for batch in loader for sample in batch] for loader in ranks]
    assert shares == [expected[0::2], [*expected[1::2], expected[0]]]


# ------------------------------------------------------------------------- copies, threads, workers


def test_copies(pack: Path, fields: tuple[str, ...], expected: list[Pixels]) -> None:
    dataset = open_dataset(pack, fields=fields)
    for text in (pickle.dumps(dataset), (dataset[0], pickle.dumps(dataset))[1]):
        assert len(text) < 4096
        other = pickle.loads(text)
        assert type(other) is type(dataset)
        assert len(other) == len(dataset)
        assert repr(other) == repr(dataset)
        assert [pixels(sample) for sample in other] == expected
    assert [pixels(sample) for sample in copy.deepcopy(dataset)] == expected


def test_another_pack_in_its_place(replaced: tuple[Path, Callable[[], None]]) -> None:
    path, replace = replaced
    dataset = open_dataset(path)
    before = [pixels(sample) for sample in dataset]
    text = pickle.dumps(dataset)
    assert [pixels(sample) for sample in pickle.loads(text)] == before
    replace()
    other = pickle.loads(text)
    assert len(other) == 3
    with pytest.raises(PackChangedError, match=f"{path}: was replaced"):
        other[0]
    with pytest.raises(PackChangedError):
        other.read(0)
    assert open_dataset(path).classes == ["ant"]


def test_threads(pack: Path, expected: list[Pixels]) -> None:
    dataset = pickle.loads(pickle.dumps(open_dataset(pack)))  # not opened yet
    order = [row % len(expected) for row in range(200)]
    with ThreadPoolExecutor(4) as pool:
        got = [pixels(sample) for sample in pool.map(dataset.__getitem__, order)]
    assert got == [expected[row] for row in order]


def two_epochs(datasets: dict[str, PackDataset], start: str) -> dict[str, list[list[Pixels]]]:
    """Returns two epochs of each dataset, out of workers started in one way, and one of the parent.

    One DataLoader serves them all, because starting a worker takes seconds.
    """
    for dataset in datasets.values():
        dataset[0]  # opened before the workers start
    loader: DataLoader[Any] = DataLoader(
        ConcatDataset(datasets.values()),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=start,
        persistent_workers=True,
        collate_fn=list,
        timeout=90,
    )
    out: dict[str, list[list[Pixels]]] = {name: [] for name in datasets}
    for _ in range(2):
        samples = (pixels(sample) for batch in loader for sample in batch)
        for name, dataset in datasets.items():
            out[name].append([*islice(samples, len(dataset))])
        assert next(samples, None) is None
    for name, dataset in datasets.items():
        out[name].append([pixels(sample) for sample in dataset])
    return out


@pytest.fixture(scope="session")
def epochs(pack_of: Callable[[str], Path]) -> Callable[[str], dict[str, list[list[Pixels]]]]:
    """Returns what gives the epochs of all formats for a start method, run once."""
    found: dict[str, dict[str, list[list[Pixels]]]] = {}

    def epochs_for(start: str) -> dict[str, list[list[Pixels]]]:
        if start not in found:
            datasets = {}
            for name in READERS.names():
                try:
                    datasets[name] = open_dataset(pack_of(name))
                except Exception:  # fails, or is skipped, in the format's own tests
                    continue
            found[start] = two_epochs(datasets, start)
        return found[start]

    return epochs_for


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers(
    epochs: Callable[[str], dict[str, list[list[Pixels]]]],
    pack: Path,
    format: str,
    start: str,
    expected: list[Pixels],
) -> None:
    assert len(open_dataset(pack)) == len(expected)
    assert epochs(start)[format] == [expected] * 3


def test_batches_of_forked_workers(dataset: PackDataset, expected: list[Pixels]) -> None:
    dataset[0]  # opened before the fork
    loader = DataLoader(
        dataset, 3, num_workers=2, collate_fn=list, multiprocessing_context="fork", timeout=90
    )
    for _ in range(3):
        batches = [*loader]
        assert [len(batch) for batch in batches] == [3, 3, 3, 2]
        assert [pixels(sample) for batch in batches for sample in batch] == expected
    assert [pixels(sample) for sample in dataset] == expected


# ------------------------------------------------------------------------------------ bad samples


def test_a_bad_sample_is_raised(damaged_pack: Path) -> None:
    dataset = open_dataset(damaged_pack)
    assert [dataset[row][1] for row in (0, 2)] == [0, 1]
    with pytest.raises(SampleError) as caught:
        dataset[1]
    assert str(caught.value).startswith(f"{damaged_pack}: sample 1, key 1, path cat/broken.jpg: ")
    assert caught.value.reason == "truncated"
    loader = DataLoader(
        dataset, 1, num_workers=1, collate_fn=list, multiprocessing_context="fork", timeout=90
    )
    batches = iter(loader)
    assert [label for _, label in next(batches)] == [0]
    with pytest.raises(SampleError, match=r"sample 1, key 1, path cat/broken\.jpg: "):
        next(batches)
    assert [label for _, label in next(batches)] == [1]
    assert next(batches, None) is None


def test_a_bad_sample_is_skipped(damaged_pack: Path) -> None:
    dataset = open_dataset(damaged_pack, on_error="skip")
    assert [sample is None for sample in dataset] == [False, True, False]
    assert dataset.skipped == 1
    (loaded,) = DataLoader(
        dataset, 3, num_workers=1, collate_fn=list, multiprocessing_context="fork", timeout=90
    )
    assert [pixels(sample) for sample in loaded] == [pixels(dataset[0]), pixels(dataset[2])]
    assert len(dataset.read(1)) > 0


# ----------------------------------------------------------------------------------- on the disk


def test_a_pack_that_is_cut_short_while_it_is_open(
    replaced: tuple[Path, Callable[[], None]], format: str
) -> None:
    if not issubclass(READERS.load(format), MappedReader):
        pytest.skip("nothing of it is mapped")
    path, _ = replaced
    dataset = open_dataset(path)
    dataset[0]
    text = pickle.dumps(dataset)
    inside = [file for file in path.rglob("*") if file.is_file()] or [path]
    largest = max(inside, key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    # Touching the missing part would kill the process.
    for get in (
        lambda: dataset[0],
        lambda: dataset.__getitems__([0, 1]),
        lambda: dataset.read_many([0, 1]),
    ):
        with pytest.raises(CorruptPackError, match="truncated since it was opened"):
            get()
    with pytest.raises(PackError):
        pickle.loads(text)[0]


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns for everything below a folder what changes when somebody writes to it."""
    out: dict[str, tuple[int, ...]] = {}
    for top, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            status = os.stat(os.path.join(top, name))
            values = status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns
            out[os.path.join(top, name)] = values
    return out


@pytest.fixture
def read_only(pack: Path) -> Iterator[Path]:
    """Returns the pack, which lies in a folder that nobody but root may write to."""
    before = state(pack.parent)
    for name, (mode, *_) in before.items():
        os.chmod(name, mode & ~0o222)
    yield pack
    for name, (mode, *_) in before.items():
        os.chmod(name, mode)


def test_reading_writes_nothing(
    read_only: Path, fields: tuple[str, ...], expected: list[Pixels]
) -> None:
    before = state(read_only.parent)
    dataset = open_dataset(read_only, fields=fields)
    assert [pixels(sample) for sample in dataset] == expected
    loader = DataLoader(
        dataset, 6, num_workers=1, collate_fn=list, multiprocessing_context="fork", timeout=90
    )
    assert [pixels(sample) for batch in loader for sample in batch] == expected
    assert state(read_only.parent) == before


# --------------------------------------------------------------------------------------- classes


def test_the_class_of_the_format(pack: Path, format: str, expected: list[Pixels]) -> None:
    found = getattr(fastconv.loaders, READERS.load(format).dataset)
    assert type(open_dataset(pack)) is type(open_dataset(pack, format=format)) is found
    dataset = found(pack)
    assert dataset.format == format
    assert dataset.pack_id == open_dataset(pack).pack_id
    assert len(bytes.fromhex(dataset.pack_id)) == 16
    assert repr(dataset).splitlines() == [
        f"Dataset {found.__name__}",
        "    Number of datapoints: 11",
        f"    Root location: {pack}",
    ]


def test_the_classes_of_other_formats_refuse_it(pack: Path, format: str) -> None:
    right = READERS.load(format)
    for name in READERS.names():
        if name != format:
            try:
                other = READERS.load(name)
            except MissingDependencyError:
                continue
            message = f"its format is {format}, not {name}: use open_dataset or {right.dataset}"
            with pytest.raises(UsageError, match=message):
                getattr(fastconv.loaders, other.dataset)(pack)
