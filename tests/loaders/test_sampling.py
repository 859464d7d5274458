"""Orders that are computed, ranks that have exactly their parts, and passes that go on."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DistributedSampler, Subset

from fastconv.converters import pack
from fastconv.loaders import (
    ExactDistributedSampler,
    FastLoader,
    RandomResizedCrop,
    UsageError,
    make_loader,
    open_dataset,
)
from fastconv.loaders.permutation import permuted
from fastconv.loaders.sampling import EpochBatchSampler, Tail

COUNT = 70


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack of images, each of another colour."""
    folder = tmp_path_factory.mktemp("sampling")
    for number in range(COUNT):
        file = folder / f"tree/{number % 7}/{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 255, (24, 20, 3), np.uint8)
        Image.fromarray(pixels).save(data, "PNG")
        file.write_bytes(data.getvalue())
    pack(folder / "tree", folder / "out.lmdb")
    return folder / "out.lmdb"


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_permutation_has_each_number_once(count: int, state: int) -> None:
    found = permuted(np.arange(count), count, np.array([state], np.uint64))
    assert np.array_equal(np.sort(found), np.arange(count))
    some = np.array([count - 1, 0, count // 2])
    assert np.array_equal(permuted(some, count, np.array([state], np.uint64)), found[some])


def test_permutations_are_by_chance() -> None:
    orders = [
        tuple(permuted(np.arange(4), 4, np.array([n], np.uint64)).tolist()) for n in range(960)
    ]
    counts = [orders.count(order) for order in itertools.permutations(range(4))]
    # 24 orders, 40 of each expected: chi-square has 23 degrees of freedom, 49.7 is its 0.1 %.
    assert sum((count - 40) ** 2 / 40 for count in counts) < 49.7
    order = permuted(np.arange(1 << 16), 1 << 16, np.array([7], np.uint64)).astype(float)
    for shift in (1, 2, 256):
        assert abs(np.corrcoef(order[:-shift], order[shift:])[0, 1]) < 0.02
    assert abs(np.corrcoef(order, np.arange(1 << 16))[0, 1]) < 0.02


def ranks(count: int, world: int, **options: Any) -> list[ExactDistributedSampler]:
    return [ExactDistributedSampler(range(count), world, rank, **options) for rank in range(world)]


@given(
    st.integers(0, 300), st.integers(1, 9), st.sampled_from(["pad", "drop", "exact"]),
    st.sampled_from([None, 1, 3, 16, 1000]), st.booleans(),
)  # fmt: skip
def test_every_rank_has_as_many_and_together_all(
    count: int, world: int, tail: Tail, block: int | None, shuffle: bool
) -> None:
    samplers = ranks(count, world, tail=tail, block=block, shuffle=shuffle, seed=5)
    parts = [list(sampler) for sampler in samplers]
    assert {len(part) for part in parts} == {len(samplers[0])}
    together = [index for part in zip(*parts, strict=True) for index in part]
    alone = list(ExactDistributedSampler(range(count), 1, 0, shuffle, 5, block=block))
    assert together[:count] == alone[: len(together)], "the order is that of one rank"
    if tail == "drop":
        assert len(together) == count // world * world
    else:
        assert set(together) == set(range(count))
        assert together[count:] == [together[n % count] for n in range(count, len(together))]
    marks = [
        zip(part, sampler.mask, strict=True) for part, sampler in zip(parts, samplers, strict=True)
    ]
    if tail == "exact":
        counted = [index for part in marks for index, counts in part if counts]
        assert sorted(counted) == list(range(count))


def test_epochs_and_seeds_have_other_orders() -> None:
    sampler = ExactDistributedSampler(range(100), 1, 0, seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(ExactDistributedSampler(range(100), 1, 0, seed=2)) != first
    assert list(ExactDistributedSampler(range(100), 1, 0, shuffle=False)) == list(range(100))


@pytest.mark.parametrize("count", [1000, 1024])
def test_blocks_stay_together(count: int) -> None:
    sampler = ExactDistributedSampler(range(count), 1, 0, block=64)
    order = np.array(list(sampler))
    for start in range(0, count // 64 * 64, 64):
        block = order[start : start + 64]
        first = np.sort((block - block.min()) % count)
        # A block is a run of the Dataset, which may go over its end.
        assert (first == np.arange(64)).all() or np.isin([0, count - 1], block).all()
        assert (np.diff(block) != 1).any()
    if short := count % 64:  # a shorter block has other samples in each epoch
        sampler.set_epoch(1)
        assert set(list(sampler)[-short:]) != set(order[-short:].tolist())


def test_a_place_of_a_hundred_millions_costs_nothing() -> None:
    class Synthetic:
        def __len__(self) -> int:
            return 100_000_000

    tracemalloc.start()
    sampler = ExactDistributedSampler(Synthetic(), 4, 3)
    batches = EpochBatchSampler(len(Synthetic()), 256, sampler=sampler)
    batches.go_on(batches.state(3, 10_000_000, 0))
    first = next(iter(batches))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = permuted(np.array([10_000_003]), 100_000_000, _state(3))
    assert first[0] == int(rows[0])
    assert peak < 20e6


def _state(epoch: int) -> Any:
    from fastconv.loaders.draws import numbers

    return numbers(np.zeros(1, np.uint64), np.array([epoch]))


def test_wrong_arguments() -> None:
    for options, words in (
        ({"num_replicas": 2, "rank": 2}, "the rank is between"),
        ({"num_replicas": 0, "rank": 0}, "the rank is between"),
        ({"tail": "keep"}, "tail is 'keep'"),
        ({"block": 0}, "at least one sample"),
        ({"seed": -1}, "the seed is between"),
    ):
        with pytest.raises(UsageError, match=words):
            ExactDistributedSampler(range(3), **options)


# -- loaders


def seen(batches: Sequence[Any]) -> list[tuple[bytes, list[int]]]:
    return [(images.numpy().tobytes(), labels.tolist()) for images, labels in batches]


def loader_of(packed: Path, kind: Any, **options: Any) -> Any:
    dataset = open_dataset(packed, decode=RandomResizedCrop(16, flip=0.5))
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "seed": 9} | options
    return make_loader(dataset, kind=kind, **options)


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_a_pass_goes_on_where_it_was(packed: Path, kind: Any, after: int) -> None:
    expected = loader_of(packed, "threads")
    epochs = [seen([*expected]) for _ in range(3)]
    loader = loader_of(packed, kind)
    assert len([*loader]) == 9
    state = loader.state_dict()
    for number, _ in enumerate(loader, 1):
        if number > after:
            break
        state = loader.state_dict()
    if after == 9:
        state = loader.state_dict()
    again = loader_of(packed, "processes" if kind == "threads" else "threads", num_workers=1)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert seen([*again]) == (epochs[1][after:] if after < 9 else epochs[2])
    assert seen([*again]) == epochs[2] or after == 9


def test_what_is_made_ahead_does_not_count(packed: Path) -> None:
    loader = loader_of(packed, "threads", prefetch_factor=4)
    passing = iter(loader)
    next(passing)
    assert loader.state_dict()["begin"] == 8
    passing.close()
    assert loader.state_dict()["begin"] == 8, "a pass that was left goes on, too"


def test_with_another_number_of_ranks(packed: Path) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(16))

    def loaders(world: int, batch: int) -> list[FastLoader]:
        return [
            FastLoader(
                dataset, batch, sampler=ExactDistributedSampler(dataset, world, rank), seed=3
            )
            for rank in range(world)
        ]

    def images(loader: Any) -> list[bytes]:
        return [image.numpy().tobytes() for batch, _ in loader for image in batch]

    whole = images(loaders(1, 10)[0])
    two = loaders(2, 10)
    states = []
    for loader in two:
        for _ in zip(range(2), loader, strict=False):
            pass
        states.append(loader.state_dict())
    assert states[0] == states[1]
    assert states[0]["begin"] == 40
    three = loaders(3, 5)
    parts = []
    for loader in three:
        loader.load_state_dict(states[0])
        parts.append(images(loader))
    assert [len(part) for part in parts] == [10, 10, 10]
    together = [image for part in zip(*parts, strict=True) for image in part]
    assert together == whole[40:]


def test_samplers_of_others(packed: Path) -> None:
    dataset = open_dataset(packed, decode=RandomResizedCrop(16))

    def loader(world: int) -> FastLoader:
        sampler: Any = DistributedSampler(dataset, world, 1, seed=4)
        return FastLoader(dataset, 4, sampler=sampler)

    expected = seen([*loader(2)])
    one, other = loader(2), loader(2)
    for _ in zip(range(3), one, strict=False):
        pass
    other.load_state_dict(one.state_dict())
    assert seen([*other]) == expected[3:]
    with pytest.raises(UsageError, match="ranks is 2: here it is 3"):
        loader(3).load_state_dict(one.state_dict())


def test_states_of_something_else(packed: Path) -> None:
    loader = loader_of(packed, "threads")
    state = loader.state_dict()
    for change, words in (
        ({"seed": 1}, "seed is 1"),
        ({"samples": 3}, "samples is 3"),
        ({"order": [9, False, None]}, "order .* is .9, False"),
    ):
        with pytest.raises(UsageError, match=words):
            loader.load_state_dict(state | change)
    for wrong in ({}, None, {"epoch": 1}):
        with pytest.raises(UsageError, match="not the state"):
            loader.load_state_dict(wrong)


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("sampler", [None, "placed", "another's", "of any length"])
def test_places_that_are_none(packed: Path, kind: Any, sampler: str | None) -> None:
    samplers: dict[str | None, Any] = {
        "placed": ExactDistributedSampler(range(COUNT), 1, 0),
        "another's": DistributedSampler(range(COUNT), 1, 0),  # type: ignore[arg-type]
        "of any length": iter(range(COUNT)),
    }
    loader = loader_of(packed, kind, shuffle=False, sampler=samplers.get(sampler))
    state = loader.state_dict()
    wrong = [-5, -1, 1.0, 8.5, "8", None, [8], True, float("nan"), 10**30]
    for name, values in (("begin", wrong), ("epoch", wrong)):
        for value in values if sampler == "of any length" else [*values, COUNT, COUNT + 1]:
            if name == "epoch" and value in (COUNT, COUNT + 1):
                continue
            with pytest.raises(UsageError, match=rf"state's {name} is .*whole number between 0"):
                loader.load_state_dict(state | {name: value})
    assert loader.state_dict() == state, "a state that is refused changes nothing"
    loader.load_state_dict(state | {"begin": np.int64(COUNT - 1), "epoch": 7})
    assert (loader.state_dict()["begin"], loader.state_dict()["epoch"]) == (COUNT - 1, 7)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_state_is_of_its_dataset(packed: Path, tmp_path: Path, kind: Any) -> None:
    """Of its samples, that is: those of the same pack made again, of another tree of as many."""

    def loader(dataset: Any) -> Any:
        return make_loader(dataset, 8, kind=kind, num_workers=1, collate_fn=list)

    tree = packed.parent / "tree"
    pack(tree, tmp_path / "again.lmdb", workers=1)
    shutil.copytree(tree, tmp_path / "tree")
    (tmp_path / "tree/0/000.png").write_bytes((tree / "1/001.png").read_bytes())
    pack(tmp_path / "tree", tmp_path / "other.lmdb")
    decode = RandomResizedCrop(16)
    ours, again, other = (
        open_dataset(path, decode=decode)
        for path in (packed, tmp_path / "again.lmdb", tmp_path / "other.lmdb")
    )
    state = loader(ours).state_dict()
    loader(again).load_state_dict(state)
    two = loader(open_dataset([packed, tmp_path / "other.lmdb"], decode=decode)).state_dict()
    loader(open_dataset([tmp_path / "again.lmdb", tmp_path / "other.lmdb"], decode=decode)
           ).load_state_dict(two)  # fmt: skip
    with pytest.raises(UsageError, match=r"dataset is .*: here it is"):
        loader(other).load_state_dict(state)
    part = loader(Subset(ours, [*range(40)])).state_dict()
    loader(Subset(again, [*range(40)])).load_state_dict(part)
    for wrong in (Subset(ours, [*range(1, 41)]), Subset(other, [*range(40)])):
        with pytest.raises(UsageError, match=r"dataset is .*: here it is"):
            loader(wrong).load_state_dict(part)


# -- real processes


SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch.distributed as dist
from fastconv.loaders import ExactDistributedSampler, FastLoader, RandomResizedCrop, open_dataset

pack, folder, stop, tail = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
dataset = open_dataset(pack, decode=RandomResizedCrop(8))
sampler = ExactDistributedSampler(dataset, tail=tail, seed=2)
loader = FastLoader(dataset, 3, sampler=sampler, num_workers=1)
saved = folder / "state.json"
if saved.exists():
    loader.load_state_dict(json.loads(saved.read_text()))
with open(folder / f"seen-{rank}-of-{world}-{os.getpid()}", "w") as log:
    for number, (images, labels) in enumerate(loader, 1):
        for image in images:
            print(image.numpy().tobytes().hex(), file=log)
        log.flush()
        dist.barrier()
        if rank == 0:
            saved.with_suffix(".new").write_text(json.dumps(loader.state_dict()))
            os.replace(saved.with_suffix(".new"), saved)
        dist.barrier()
        if number == stop:
            os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""


def torchrun(script: Path, world: int, *words: str) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1",
               f"--nproc-per-node={world}", str(script), *words]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, env=environment, check=False).returncode


@pytest.mark.parametrize("tail", ["pad", "drop", "exact"])
def test_ranks_that_are_killed_go_on(packed: Path, tmp_path: Path, tail: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "runs").mkdir()
    words = (str(packed), str(tmp_path / "runs"))
    assert torchrun(script, 4, *words, "2", tail) != 0
    assert torchrun(script, 2, *words, "-1", tail) == 0
    logs = sorted((tmp_path / "runs").glob("seen-*"))
    found = [line for log in logs for line in log.read_text().split()]
    dataset = open_dataset(packed, decode=RandomResizedCrop(8))
    whole = FastLoader(dataset, 1, sampler=ExactDistributedSampler(dataset, 1, 0, seed=2))
    expected = [images.numpy().tobytes().hex() for images, _ in whole]
    # 70 samples: 24 by four ranks, 46 by two.
    assert sorted(found) == sorted(expected)
