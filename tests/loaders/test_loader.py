"""FastLoader and the recommended DataLoader: the same batches whatever the timing, and nothing left
behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split

from fastconv.converters import pack
from fastconv.loaders import (
    CenterCrop,
    FastLoader,
    PackDataset,
    RandomResizedCrop,
    SampleError,
    UsageError,
    make_loader,
    open_dataset,
)
from fastconv.loaders.batches import BatchMemory
from fastconv.loaders.loader import collate
from fastconv.loaders.sampling import EpochBatch, EpochBatchSampler, epoch_order

CROP = RandomResizedCrop(32, flip=0.5)
COUNT = 70


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "tree"
    for number in range(COUNT):
        file = root / f"class{number % 3}" / f"{number:03d}.{('jpg', 'png', 'jpg')[number % 3]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((40 + number % 9, 50), 90).convert("RGB").save(file)
    return root


@pytest.fixture(scope="module")
def packed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pack") / "out.h5"
    pack(tree, out)
    return out


@pytest.fixture(scope="module")
def damaged(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a pack whose samples 1 and 69 are cut short behind their headers."""
    root = tmp_path_factory.mktemp("damaged") / "tree"
    for file in tree.rglob("*.*"):
        data = file.read_bytes()
        copy = root / file.relative_to(tree)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data[:-400] if file.name in ("003.jpg", "068.jpg") else data)
    pack(root, root.parent / "out.lmdb")
    return root.parent / "out.lmdb"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    gc.collect()
    left = [
        thread.name for thread in threading.enumerate() if thread.name.startswith("fastconv-loader")
    ]
    assert left == []


def batches_of(loader: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels.clone()) for images, labels in loader]


def equal(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in zip(one, other, strict=True)
    )


def test_batches_are_what_the_dataset_gives(packed: Path) -> None:
    dataset = open_dataset(packed, decode=CenterCrop(24, resize=28))
    loader = FastLoader(dataset, 16, num_workers=3)
    batches = batches_of(loader)
    assert [len(labels) for _, labels in batches] == [16, 16, 16, 16, 6]
    assert len(loader) == 5
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert (images.dtype, labels.dtype, images.shape) == (
        torch.uint8,
        torch.int64,
        (COUNT, 3, 24, 24),
    )
    for row in range(COUNT):
        image, label = dataset[row]
        assert torch.equal(images[row], image)
        assert labels[row] == label


def test_images_are_channels_last(packed: Path) -> None:
    images, _ = next(iter(FastLoader(open_dataset(packed, decode=CROP), 8)))
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_pixels_depend_on_seed_epoch_and_index_alone(packed: Path, workers: int) -> None:
    dataset = open_dataset(packed, decode=CROP)
    one = FastLoader(dataset, 16, shuffle=True, seed=5, num_workers=1)
    first, second = batches_of(one), batches_of(one)
    assert not equal(first, second), "two epochs differ"
    other = FastLoader(dataset, 16, shuffle=True, seed=5, num_workers=workers, prefetch_factor=4)
    assert equal(batches_of(other), first), "two runs agree"
    assert equal(batches_of(other), second)
    other.set_epoch(0)
    assert equal(batches_of(other), first)
    assert not equal(
        batches_of(FastLoader(dataset, 16, shuffle=True, seed=6, num_workers=workers)), first
    )


def test_processes_give_the_same_pixels(packed: Path) -> None:
    """With persistent workers the epoch travels with the indices."""
    dataset = open_dataset(packed, decode=CROP)
    threads = FastLoader(dataset, 16, shuffle=True, seed=3, num_workers=2)
    processes = make_loader(dataset, 16, kind="processes", shuffle=True, seed=3, num_workers=2)
    assert isinstance(processes, DataLoader)
    assert processes.persistent_workers
    for _ in range(2):
        assert equal(batches_of(threads), batches_of(processes))


def test_drop_last_and_samplers(packed: Path) -> None:
    dataset = open_dataset(packed, decode=CenterCrop(8))
    loader = FastLoader(dataset, 16, drop_last=True)
    assert [len(labels) for _, labels in loader] == [16] * 4
    assert len(loader) == 4
    ranks = []
    for rank in range(2):
        sampler: DistributedSampler[Any] = DistributedSampler(
            dataset, num_replicas=2, rank=rank, shuffle=False
        )
        loader = FastLoader(dataset, 10, sampler=sampler)
        assert len(loader) == 4
        ranks.append(torch.cat([labels for _, labels in loader]))
    assert torch.equal(torch.stack(ranks, 1).flatten(), torch.from_numpy(dataset.targets.copy()))
    with pytest.raises(UsageError, match="own order"):
        FastLoader(dataset, 4, sampler=[0], shuffle=True)


def step_that_raises(loader: FastLoader, error: BaseException) -> None:
    for _ in loader:
        raise error


def test_leaving_early_and_errors_in_the_loop_leave_no_thread(packed: Path) -> None:
    loader = FastLoader(open_dataset(packed, decode=CROP), 4, num_workers=3)
    for _ in loader:
        break
    with pytest.raises(RuntimeError, match="in the step"):
        step_that_raises(loader, RuntimeError("in the step"))
    iterator = iter(loader)
    next(iterator)
    del iterator


def test_a_program_may_end_in_the_middle_of_a_pass(packed: Path) -> None:
    program = f"""
from fastconv.loaders import FastLoader, RandomResizedCrop, open_dataset

dataset = open_dataset({str(packed)!r}, decode=RandomResizedCrop(384))
batches = iter(FastLoader(dataset, 4, num_workers=3, prefetch_factor=16))
next(batches)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, encoding="utf-8"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupt_ends_the_threads(packed: Path) -> None:
    loader = FastLoader(open_dataset(packed, decode=CROP), 4, num_workers=3)
    with pytest.raises(KeyboardInterrupt):
        step_that_raises(loader, KeyboardInterrupt())


def test_slow_consumer_holds_a_bounded_number_of_batches(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(packed, decode=CROP)
    made: set[int] = set()
    decode_batch = PackDataset.decode_batch

    def counted(self: PackDataset, indices: Any, *rest: Any) -> Any:
        made.update(indices)
        return decode_batch(self, indices, *rest)

    monkeypatch.setattr(PackDataset, "decode_batch", counted)
    loader = FastLoader(dataset, 4, num_workers=2, prefetch_factor=3)
    for number, _ in enumerate(loader, 1):
        until(lambda number=number: len(made) >= min(4 * (number + 2), COUNT))  # type: ignore[misc]
        assert len(made) <= 4 * (number + 4)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        threading.Event().wait(0.001)
    assert condition()


def test_memory_is_used_again_only_when_nobody_has_it(packed: Path) -> None:
    loader = FastLoader(open_dataset(packed, decode=CROP), 8, seed=1, num_workers=2)
    kept = [images for images, _ in loader]
    copies = [images.clone() for images in kept]
    places = {images.data_ptr() for images in kept}
    assert len(places) == len(kept)
    batches_of(loader)
    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True)), (
        "kept batches are left alone"
    )
    views = [images[1:2, 0].numpy() for images in kept]
    del kept
    batches_of(loader)
    for view, copy in zip(views, copies, strict=True):
        np.testing.assert_array_equal(view, copy[1:2, 0].numpy())


def test_memory_goes_round() -> None:
    memory = BatchMemory((4, 2), 3)
    one = memory.take()
    place = one.ctypes.data
    tensor = torch.from_numpy(one)
    del one
    assert memory.take().ctypes.data != place
    view = tensor[1:]
    del tensor
    assert memory.take().ctypes.data != place
    del view
    assert memory.take().ctypes.data == place


def test_error_names_the_sample_and_comes_in_order(damaged: Path) -> None:
    dataset = open_dataset(damaged, decode=CROP)
    loader = FastLoader(dataset, 8, num_workers=3)
    with pytest.raises(SampleError, match=r"out\.lmdb: sample 1, key 01, path class0/003\.jpg"):
        list(loader)
    processes = make_loader(dataset, 8, kind="processes", num_workers=1)
    with pytest.raises(SampleError, match=r"path class0/003\.jpg"):
        list(processes)


@pytest.mark.parametrize("decode", [CROP, "tensor"])
def test_skipped_samples_are_left_out_and_listed(damaged: Path, decode: Any) -> None:
    def first(image: torch.Tensor) -> torch.Tensor:
        return image[:, :9, :9]

    transform = first if decode == "tensor" else None
    dataset = open_dataset(damaged, decode=decode, transform=transform, on_error="skip")
    loader = FastLoader(dataset, 8, num_workers=2)
    assert sum(len(labels) for _, labels in loader) == COUNT - 2
    if decode is CROP:
        assert len(loader.skipped) == 2
        assert "class0/003.jpg" in loader.skipped[0]
    processes = make_loader(dataset, 1, kind="processes", num_workers=0)
    assert sum(len(labels) for _, labels in processes) == COUNT - 2, (
        "batches of nothing are left out"
    )


def test_samples_of_any_size_are_collated(packed: Path) -> None:
    loader = FastLoader(open_dataset(packed, decode="numpy"), 4, collate_fn=list, num_workers=2)
    sizes = [image.shape for batch in loader for image, _ in batch]
    assert len(sizes) == COUNT
    assert len(set(sizes)) > 1


def test_normalized_where_it_is_used(packed: Path) -> None:
    dataset = open_dataset(packed, decode=CenterCrop(16))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    (plain, _), (images, _), (scaled, _) = (
        next(iter(FastLoader(dataset, 8, **more)))
        for more in ({}, {"device": "cpu", "normalize": (mean, std)}, {"dtype": torch.float64})
    )
    expected = (plain / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(images, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scaled, plain.to(torch.float64) / 255)


def test_make_loader_chooses(packed: Path) -> None:
    fast = open_dataset(packed, decode=CROP)
    plain = open_dataset(packed)
    assert isinstance(make_loader(fast, 4), FastLoader)
    assert isinstance(make_loader(fast, 4, num_workers=0), DataLoader)
    loader = make_loader(plain, 4, num_workers=2, worker_init_fn=print)
    assert isinstance(loader, DataLoader)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 2, True)
    assert isinstance(make_loader(plain, 4, kind="threads", collate_fn=list), FastLoader)
    for arguments in (
        {"kind": "both"},
        {"persistent_workers": True},
        {"num_workers": -1, "kind": "threads"},
        {"device": "cuda"} if not torch.cuda.is_available() else {"kind": "x"},
        {"dtype": torch.int32},
        {"normalize": ((0, 0, 0), (1, 1, 0))},
        {"normalize": True},
        {"normalize": ("mean", "std")},
        {"normalize": ([0.5] * 3, [0.2] * 3, [0.1] * 3)},
        {"normalize": ([0.5] * 4, [0.2] * 4)},
        {"normalize": ([124, 116, 104], [58, 57, 57])},
        {"seed": -1},
    ):
        with pytest.raises(UsageError):
            make_loader(fast, 4, **arguments)
    with pytest.raises(UsageError, match="at least one sample"):
        FastLoader(fast, 0)
    with pytest.raises(UsageError, match="Datasets of fastconv"):
        FastLoader([1, 2], 4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="of one size"):
        FastLoader(plain, 4, dtype=torch.float32)


def test_collate_does_not_copy_what_lies_together(packed: Path) -> None:
    dataset = open_dataset(packed, decode=CenterCrop(8))
    samples = dataset.__getitems__([3, 1, 2])
    images, labels = collate(samples)
    assert images.data_ptr() == samples[0][0].data_ptr()
    assert torch.equal(images, torch.stack([image for image, _ in samples]))
    assert labels.tolist() == [label for _, label in samples]
    images, _ = collate([samples[2], samples[0]])
    assert torch.equal(images, torch.stack([samples[2][0], samples[0][0]]))
    images, _ = collate([(image.clone(), label) for image, label in samples])
    assert torch.equal(images, torch.stack([image for image, _ in samples]))


def test_collate_leaves_out_what_was_skipped() -> None:
    assert collate([None, (1, 2), None])[0].tolist() == [1]
    assert collate([None]) is None


def test_order_of_an_epoch() -> None:
    places = np.arange(1000)
    order = epoch_order(places, 1000, 1, 2, True)
    assert sorted(order.tolist()) == list(range(1000))
    assert order[:7].tolist() == epoch_order(places[:7], 1000, 1, 2, True).tolist()
    assert order.tolist() != epoch_order(places, 1000, 1, 3, True).tolist()
    assert order.tolist() != epoch_order(places, 1000, 2, 2, True).tolist()
    assert epoch_order(places[:5], 5, 1, 3, False).tolist() == [0, 1, 2, 3, 4]


def test_epoch_of_a_sampler_that_was_told_one() -> None:
    sampler = DistributedSampler(range(4), num_replicas=1, rank=0)  # type: ignore[arg-type, var-annotated]
    batches = EpochBatchSampler(4, 4, sampler=sampler)
    sampler.set_epoch(7)
    (batch,) = batches
    assert isinstance(batch, EpochBatch)
    assert batch.epoch == 7
    (batch,) = batches
    assert isinstance(batch, EpochBatch)
    assert batch.epoch == 8, "another pass has other crops, whoever forgets set_epoch"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_copies_beside_the_computing_are_in_order(packed: Path) -> None:
    dataset = open_dataset(packed, decode=CenterCrop(16))
    loader = FastLoader(dataset, 8, device="cuda", shuffle=True, seed=2)
    on_cpu = FastLoader(dataset, 8, shuffle=True, seed=2)
    for (images, labels), (expected, _) in zip(loader, on_cpu, strict=True):
        assert images.is_cuda
        assert labels.is_cuda
        assert torch.equal(images.cpu(), expected)


def test_a_batch_is_no_larger_than_the_dataset(packed: Path) -> None:
    images, labels = next(iter(FastLoader(open_dataset(packed, decode=CROP), 10**9)))
    assert len(images) == len(labels) == COUNT


@pytest.mark.parametrize(
    "argument", [{"batch_size": 2.5}, {"num_workers": "3"}, {"num_workers": 1.5}]
)
@pytest.mark.parametrize("make", [FastLoader, make_loader])
def test_numbers_are_whole_ones(
    packed: Path, make: Callable[..., Any], argument: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="whole number"):
        make(open_dataset(packed, decode=CROP), **{"batch_size": 4, **argument})


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_part_of_a_dataset_gives_the_pixels_of_the_whole(
    packed: Path, kind: Literal["threads", "processes"]
) -> None:
    """A split of a split, whose random crops are those of the same samples in the whole."""
    whole = open_dataset(packed, decode=CROP)
    split, _ = random_split(whole, [40, COUNT - 40], torch.Generator().manual_seed(1))
    part = Subset(split, range(5, 25))
    indices = [split.indices[place] for place in part.indices]
    expected = torch.cat([images for images, _ in FastLoader(whole, 8, sampler=indices, seed=3)])
    loader = make_loader(part, 8, kind=kind, num_workers=1, seed=3)
    assert len(loader) == 3
    images, labels = zip(*loader, strict=True)
    assert torch.equal(torch.cat(images), expected)
    assert torch.cat(labels).tolist() == whole.targets[indices].tolist()
    sampled = make_loader(part, 4, kind=kind, num_workers=1, seed=3, sampler=[19, 0])
    assert next(iter(sampled))[1].tolist() == whole.targets[[indices[19], indices[0]]].tolist()
