"""Orders in which samples come as often as their weights say, and classes equally often."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Subset

from fastconv.converters import Sample, pack
from fastconv.loaders import (
    FastLoader,
    PackDataset,
    RandomResizedCrop,
    UsageError,
    make_loader,
    open_dataset,
)
from fastconv.loaders.sampling import ExactDistributedSampler
from fastconv.loaders.weights import (
    WeightedSampler,
    class_balanced_sampler,
    class_balanced_weights,
)

SIZES = {"common": 30, "rare": 3, "seldom": 7}


def png(number: int) -> bytes:
    data = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (20, 16, 3), np.uint8)
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack of three classes of other sizes."""
    folder = tmp_path_factory.mktemp("weights")
    for name, size in SIZES.items():
        (folder / "tree" / name).mkdir(parents=True)
        for number in range(size):
            (folder / "tree" / name / f"{number:02}.png").write_bytes(png(number))
    pack(folder / "tree", folder / "out.lmdb")
    return folder / "out.lmdb"


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack whose labels are integers in no order, some of them missing."""
    out = tmp_path_factory.mktemp("listed") / "out.h5"
    labels = [7, None, 10**15, 7, -5, 7, None, 10**15]
    pack(samples=[Sample(f"{n}.png", png(n), label) for n, label in enumerate(labels)], out=out)
    return out


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=60).filter(any),
    st.integers(1, 300),
    st.integers(0, 5),
)
def test_each_comes_as_often_as_its_weight_says(
    weights: list[float], count: int, epoch: int
) -> None:
    sampler = WeightedSampler(weights, count, 1, 0, seed=3)
    sampler.set_epoch(epoch)
    found = np.bincount(list(sampler), minlength=len(weights))
    expected = count * np.array(weights) / sum(weights)
    assert found.sum() == count
    assert (np.abs(found - expected) < 1 + 1e-9).all()
    assert not found[np.array(weights) == 0].any()


def test_equal_weights_give_each_once_in_an_order_by_chance() -> None:
    sampler = WeightedSampler(np.full(500, 0.1), None, 1, 0)
    first = list(sampler)
    assert sorted(first) == list(range(500)) != first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(WeightedSampler(np.full(500, 0.1), None, 1, 0, seed=1)) != first
    assert abs(np.corrcoef(first, np.arange(500))[0, 1]) < 0.15


def test_what_is_rounded_is_another_one_in_each_epoch() -> None:
    sampler = WeightedSampler(np.ones(40), 10, 1, 0)
    found: Counter[int] = Counter()
    for epoch in range(400):
        sampler.set_epoch(epoch)
        found.update(sampler)
    # Each is expected 100 times; the standard deviation is at most 8.7.
    assert len(found) == 40
    assert all(60 < count < 140 for count in found.values())


@given(st.integers(1, 200), st.integers(1, 7), st.integers(0, 250))
def test_ranks_share_one_order_from_any_place(count: int, world: int, begin: int) -> None:
    weights = np.arange(1, 31)
    alone = list(WeightedSampler(weights, count, 1, 0, seed=8))
    samplers = [WeightedSampler(weights, count, world, rank, seed=8) for rank in range(world)]
    parts = [[int(i) for rows in s.rows(0, begin) for i in rows] for s in samplers]
    assert {len(part) for part in parts} == {-(-max(count - begin, 0) // world)}
    together = [index for part in zip(*parts, strict=True) for index in part]
    left = alone[begin:]
    assert together[: len(left)] == left
    again = len(together) - len(left)
    assert together[len(left) :] == [alone[n % count] for n in range(count, count + again)]


def test_a_place_of_many_costs_little() -> None:
    sampler = WeightedSampler(np.ones(1 << 20), 1 << 40, 4, 3)
    tracemalloc.start()
    first = next(sampler.rows(2, 1 << 39))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert first.dtype == np.int64
    assert peak < 10e6


def test_classes_come_equally_often(packed: Path) -> None:
    dataset = open_dataset(packed)
    weights = class_balanced_weights(dataset)
    assert weights.dtype == np.float64
    assert np.allclose(np.bincount(dataset.targets, weights), 1)
    sampler = class_balanced_sampler(dataset, num_replicas=1, rank=0)
    assert len(sampler) == 40
    for epoch in range(5):
        sampler.set_epoch(epoch)
        rows = np.array(list(sampler))
        counts = np.bincount(dataset.targets[rows], minlength=3)
        assert sorted(counts.tolist()) == [13, 13, 14]
        rare = np.bincount(rows, minlength=40)[dataset.targets == 1]
        assert {*rare.tolist()} <= {4, 5}


def test_a_subset_in_any_order(packed: Path) -> None:
    dataset = open_dataset(packed)
    rows = np.random.default_rng(0).permutation(40)[:36].tolist()
    part = Subset(Subset(dataset, list(range(39, -1, -1))), rows)
    labels = dataset.targets[[39 - row for row in rows]]
    sampler = class_balanced_sampler(part, 90, 1, 0)
    counts = np.bincount(labels[list(sampler)], minlength=3)
    assert counts.tolist() == [30, 30, 30], "though the classes do not lie together"


def test_samples_without_a_label_never_come(listed: Path) -> None:
    dataset = open_dataset(listed)
    weights = class_balanced_weights(dataset)
    assert np.allclose(weights, [1 / 3, 0, 1 / 2, 1 / 3, 1, 1 / 3, 0, 1 / 2])
    rows = list(class_balanced_sampler(dataset, 30, 1, 0))
    assert Counter(dataset.targets[rows].tolist()) == {7: 10, -5: 10, 10**15: 10}


def test_a_power_of_the_weights_lies_between(packed: Path) -> None:
    dataset = open_dataset(packed)
    sampler = WeightedSampler(class_balanced_weights(dataset) ** 0.5, 10_000, 1, 0)
    counts = np.bincount(dataset.targets[list(sampler)])
    assert np.allclose(counts / counts.sum(), np.sqrt([30, 3, 7]) / np.sqrt([30, 3, 7]).sum(), 1e-3)


# -- loaders


def loader_of(dataset: PackDataset | Subset[Any], world: int, rank: int, batch: int) -> FastLoader:
    sampler = class_balanced_sampler(dataset, 70, world, rank, seed=5)
    return FastLoader(dataset, batch, sampler=sampler, num_workers=1, seed=1)


def images(loader: FastLoader, most: int | None = None) -> list[bytes]:
    found = []
    for number, (batch, _) in enumerate(loader, 1):
        found += [image.numpy().tobytes() for image in batch]
        if number == most:
            break
    return found


def test_a_pass_goes_on_with_another_number_of_ranks(packed: Path) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(8))
    whole = images(loader_of(dataset, 1, 0, 7))
    two = [loader_of(dataset, 2, rank, 4) for rank in range(2)]
    for loader in two:
        images(loader, most=3)
    states = [json.loads(json.dumps(loader.state_dict())) for loader in two]
    assert states[0] == states[1]
    assert states[0]["begin"] == 24
    parts = []
    for rank in range(3):
        loader = loader_of(dataset, 3, rank, 5)
        loader.load_state_dict(states[0])
        parts.append(images(loader))
    together = [image for part in zip(*parts, strict=True) for image in part]
    assert together[:46] == whole[24:]
    assert len(together) == 48


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_sample_that_comes_again_is_cropped_otherwise(packed: Path, kind: Any) -> None:
    dataset = Subset(open_dataset(packed, decode=RandomResizedCrop(8)), [3, 4])
    sampler = WeightedSampler([1, 1], 40, 1, 0)
    loader = make_loader(dataset, 20, kind=kind, sampler=sampler, num_workers=1, seed=1)
    found = [image.numpy().tobytes() for batch, _ in loader for image in batch]
    assert len({*found}) == 40
    alone = FastLoader(dataset, 7, sampler=WeightedSampler([1, 1], 40, 1, 0), seed=1)
    assert images(alone) == found, "whatever the batches and whoever makes them"


def test_the_epoch_may_be_told_after_a_state(packed: Path) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(8))
    loader = loader_of(dataset, 1, 0, 7)
    whole = images(loader), images(loader)
    state = loader_of(dataset, 1, 0, 7).state_dict() | {"epoch": 1, "begin": 14}
    for told, expected in ((1, whole[1][14:]), (0, whole[0])):
        loader = loader_of(dataset, 1, 0, 7)
        loader.load_state_dict(state)
        loader.set_epoch(told)  # as trainers do at the begin of each epoch
        assert images(loader) == expected


@pytest.mark.parametrize("drop_last", [False, True])
def test_after_the_last_batch_comes_the_next_epoch(packed: Path, drop_last: bool) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(8))
    for sampler in (ExactDistributedSampler(dataset, 2, 1, seed=5), list(range(20))):
        loader = FastLoader(dataset, 6, sampler=sampler, drop_last=drop_last, num_workers=1)
        places = []
        for _ in loader:
            state = loader.state_dict()
            places.append((state["epoch"], state["begin"]))
        step = 12 if isinstance(sampler, ExactDistributedSampler) else 6
        expected = [(0, step), (0, 2 * step), (0, 3 * step)]
        assert places == [*expected[: len(loader) - 1], (1, 0)]


def test_a_state_is_of_its_weights(packed: Path) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(8))
    state = loader_of(dataset, 1, 0, 4).state_dict()
    weights = class_balanced_weights(dataset)
    for sampler, words in (
        (WeightedSampler(weights, 70, 1, 0, seed=4), "num_samples, weights"),
        (WeightedSampler(weights, 71, 1, 0, seed=5), "num_samples, weights"),
        (WeightedSampler(weights + 1, 70, 1, 0, seed=5), "num_samples, weights"),
        (ExactDistributedSampler(dataset, 1, 0, seed=5), "shuffle, block"),
    ):
        loader = FastLoader(dataset, 4, sampler=sampler, seed=1)
        with pytest.raises(UsageError, match=rf"order \(seed, {words}\) is \[5, 70, "):
            loader.load_state_dict(state)
    same = FastLoader(dataset, 4, sampler=WeightedSampler(weights, 70, 1, 0, seed=5), seed=1)
    same.load_state_dict(state)


def test_wrong_arguments(packed: Path, listed: Path) -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "nothing to take"),
        ([0.0, 0.0], {}, "nothing to take"),
        ([1.0, -1.0], {}, "that of sample 1 is -1.0"),
        ([float("nan")], {}, "that of sample 0 is nan"),
        ([float("inf")], {}, "that of sample 0 is inf"),
        ([[1.0]], {}, "array of shape"),
        (["many"], {}, "weights are numbers"),
        ([1.0], {"num_samples": 0}, "num_samples is 0"),
        ([1.0], {"num_replicas": 2, "rank": 2}, "the rank is between"),
        ([1.0], {"seed": -1}, "the seed is between"),
        ([1.0], {"groups": [1, 2]}, "one number for each sample"),
    ]
    for weights, options, words in wrong:
        with pytest.raises(UsageError, match=words):
            WeightedSampler(weights, **options)
    with pytest.raises(UsageError, match="not of list"):
        class_balanced_weights([1, 2])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no sample has a label"):
        class_balanced_sampler(Subset(open_dataset(listed), [1, 6]))
    with pytest.raises(UsageError, match="no sample has a label"):
        class_balanced_sampler(Subset(open_dataset(packed), []))
