"""Batches for training: FastLoader, which decodes in threads, and the DataLoader that practice
recommends.

FastLoader works in one process. Its threads decode straight into the memory of the batch, so
nothing is pickled, copied between processes or collated; the decoders let go of Python's lock while
they work.
"""

from __future__ import annotations

import atexit
import logging
import math
import operator
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Subset, default_collate

from fastconv.loaders.batches import BatchMemory
from fastconv.loaders.datasets import PackDataset
from fastconv.loaders.device import DeviceMover
from fastconv.loaders.errors import SampleError, UsageError
from fastconv.loaders.limits import default_workers
from fastconv.loaders.nvjpeg import EncodedBatch, check_torchvision
from fastconv.loaders.sampling import EpochBatch, EpochBatchSampler

__all__ = ["FastLoader", "collate", "make_loader"]

PART = 16
"""Samples that a thread takes at a time: the parts of a batch end nearly together, and starting one
costs nothing beside decoding it."""
COPIED_PART = 1 << 20
"""Bytes of images that a thread takes at a time where they are copied and not decoded."""

_log = logging.getLogger(__name__)

Batch = Any


def collate(samples: Sequence[Any]) -> Any:
    """Returns a batch of samples as torch's `default_collate` makes it, without skipped ones.

    Images that lie side by side in memory, as a Dataset with a decoder gives them, are not copied.

    Returns:
        None where all samples were skipped: the loop has to leave such a batch out.
    """
    present = [sample for sample in samples if sample is not None]
    if not present:
        return None
    if isinstance(present[0], tuple) and len(present[0]) == 2:
        images = joined([image for image, _ in present])
        if images is not None:
            return [images, default_collate([label for _, label in present])]
    try:
        return default_collate(present)
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            "these samples make no batch: give the dataset a decoder whose results are of one "
            "size, such as decode=RandomResizedCrop(224) or CenterCrop(224, resize=256), or a "
            f"transform that makes tensors of one size, or the loader a collate_fn ({error})"
        ) from error


def joined(parts: Sequence[Any]) -> torch.Tensor | None:
    """Returns tensors that follow each other in one storage as one, None where they do not."""
    first = parts[0]
    if not isinstance(first, torch.Tensor):
        return None
    storage, start, size = first.untyped_storage().data_ptr(), first.storage_offset(), first.numel()
    for number, part in enumerate(parts):
        if (
            not isinstance(part, torch.Tensor)
            or part.shape != first.shape
            or part.stride() != first.stride()
            or part.storage_offset() != start + number * size
            or part.untyped_storage().data_ptr() != storage
        ):
            return None
    return first.as_strided((len(parts), *first.shape), (size, *first.stride()), start)


class FastLoader(Iterable[Batch]):
    """Gives the batches of a Dataset, decoded by threads of this process.

    Arguments mean what they mean for `torch.utils.data.DataLoader`, where it has them. With a
    decoder whose results are all of one size (`decode=RandomResizedCrop(224)`), or raw samples of
    one shape and decode="tensor", and neither `fields` nor a `transform`, a batch is `(images,
    labels)`: uint8 (n, 3, height, width), its channels side by side in memory (torch's
    `channels_last`), and int64 (n,). Raw samples with decode="numpy" are (n, height, width, 3).
    Else it is what `collate_fn` makes of the samples.

    Each pass over the loader is the next epoch. Order and random crops depend on (seed, epoch,
    index) alone; where a sampler gives a sample several times, on the place in its order instead of
    the index. A batch belongs to whoever took it: its memory is used again only when nobody
    refers to it.

    Args:
        dataset: A Dataset of fastconv, or torch's `Subset` of one, as `random_split` gives.
        batch_size: Samples of a batch.
        shuffle: Whether the order is another one in each epoch.
        sampler: Gives the indices instead, such as a DistributedSampler.
        drop_last: Whether to leave out the last batch when it is shorter.
        num_workers: Threads, by default one a core and at most eight.
        prefetch_factor: Batches that are made ahead.
        pin_memory: Whether batches are in pinned memory; by default they are when `device` is a
            GPU.
        device: Where batches go, one ahead and beside the computing when it is a GPU.
        decode: Where JPEGs are decoded: "cpu", or "cuda": by nvJPEG on `device`, through
            torchvision. The pixels differ a little from those of the CPU. What nvJPEG cannot do is
            decoded on the CPU and counted.
        normalize: (mean, std) of each channel, in 0 to 1, as torchvision's Normalize takes them:
            images are then floating point.
        dtype: Floating-point type of the images; without `normalize` they are divided by 255.
        collate_fn: Makes a batch of a list of samples, where they have no common size.
        seed: Of the order, and of what is drawn for each sample.

    Attributes:
        epoch: Number of the pass that comes next.
        skipped: Messages about the samples that were left out in the last pass (`on_error="skip"`).
        decoded_on_cpu: Images of the last pass that a GPU should have decoded, and could not.

    Raises:
        UsageError: An argument is wrong.
        MissingDependencyError: decode="cuda" needs torchvision.
    """

    def __init__(
        self,
        dataset: PackDataset | Subset[Any],
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        drop_last: bool = False,
        num_workers: int | None = None,
        prefetch_factor: int = 2,
        pin_memory: bool | None = None,
        device: str | torch.device | None = None,
        decode: Literal["cpu", "cuda"] = "cpu",
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        collate_fn: Callable[[list[Any]], Any] = collate,
        seed: int = 0,
    ) -> None:
        whole, rows = whole_of(dataset)
        if not isinstance(whole, PackDataset):
            raise UsageError(
                "FastLoader reads Datasets of fastconv, and Subsets of them, not "
                f"{type(dataset).__name__}: make one with open_dataset, or use make_loader"
            )
        self.num_workers = (
            default_workers() if num_workers is None else _whole("num_workers", num_workers)
        )
        self.prefetch_factor = _whole("prefetch_factor", prefetch_factor)
        if self.num_workers < 1 or self.prefetch_factor < 1:
            raise UsageError("FastLoader needs at least one thread, and one batch made ahead")
        self.dataset = whole
        self.batch_size = _whole("batch_size", batch_size)
        self.collate_fn = collate_fn
        self.batch_sampler = EpochBatchSampler(
            len(dataset),
            self.batch_size,
            shuffle=shuffle,
            sampler=sampler,
            drop_last=drop_last,
            seed=seed,
            rows=rows,
            dataset=whole._fingerprint,
        )
        self.device = None if device is None else torch.device(device)
        on_gpu = self.device is not None and self.device.type == "cuda"
        self.pin_memory = on_gpu if pin_memory is None else pin_memory
        self._memory: BatchMemory | None = None
        size = whole.batch_shape
        self._part = PART
        if size is not None and whole.copies_images:
            self._part = max(PART, COPIED_PART // math.prod(size))
        self.decode = decode
        self.decoded_on_cpu = 0
        if decode not in ("cpu", "cuda"):
            raise UsageError(f"decode is {decode!r}: images are decoded on 'cpu' or 'cuda'")
        if decode == "cuda":
            if not on_gpu:
                raise UsageError(f"decode='cuda' needs a GPU as the device, not {device}")
            if size is None or size[2] != 3 or isinstance(whole.decode, str):
                raise UsageError(
                    "decode='cuda' needs a Dataset with a decoder whose results are of one size, "
                    "such as decode=RandomResizedCrop(224), and with colours"
                )
            check_torchvision()
        elif size is not None:
            # Those made ahead, the one in use, and the one before it.
            kept = self.prefetch_factor + 2
            most = len(dataset) if sampler is None else self.batch_size
            self._memory = BatchMemory((min(self.batch_size, most), *size), kept, self.pin_memory)
        converts = normalize is not None or dtype is not None
        if converts and (size is None or whole.decode == "numpy"):
            raise UsageError(
                "normalize and dtype need images of one size as tensors: a decoder that makes "
                "them so, or decode='tensor' of raw samples of one shape"
            )
        if size is not None and size[2] == 4 and normalize is not None:
            raise UsageError("normalize is for 1 or 3 channels, not 4: use mode='RGB'")
        self._move = DeviceMover(self.device, normalize, dtype)
        self._place = Place(self.batch_sampler)
        self.skipped: list[str] = []

    @property
    def epoch(self) -> int:
        """Number of the pass that comes next."""
        return self.batch_sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is."""
        self.batch_sampler.set_epoch(epoch)

    def __repr__(self) -> str:
        settings = f"batch_size={self.batch_size}, num_workers={self.num_workers}"
        return f"FastLoader({self.dataset!r}, {settings})"

    def __len__(self) -> int:
        """Returns how many batches a pass gives."""
        return len(self.batch_sampler)

    def state_dict(self) -> dict[str, Any]:
        """Returns the place after the last batch that was handed out, whatever is made ahead; JSON.

        A loader of the same samples and seed that loads it goes on there, also one with another
        number of workers, another batch size, or, with an `ExactDistributedSampler`, on another
        number of ranks. A pack is known by its id: one that was made again has the same.
        """
        return self._place.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next pass go on from the place of a state, at once; those after it are whole.

        Raises:
            UsageError: It is of another Dataset, seed or order, or names no place of an epoch.
        """
        self._place.load_state_dict(state)

    def __iter__(self) -> Iterator[Batch]:
        self._place.start()
        epoch = _Epoch(self)
        try:
            for number, batch in self._move(epoch):
                self._place.batches = number
                yield batch
                del batch  # whose memory is used again when nobody has it
            self._place.end()
        finally:
            epoch.close()
            self.skipped = epoch.skipped
            self.decoded_on_cpu = epoch.on_cpu
            if epoch.skipped:
                _log.warning(
                    "samples skipped: %d, the first: %s", len(epoch.skipped), epoch.skipped[0]
                )


class Place:
    """How far the passes of a loader are, in batches that were handed out.

    Args:
        sampler: Gives the indices of the batches.

    Attributes:
        batches: How many of a pass were handed out.
    """

    def __init__(self, sampler: EpochBatchSampler) -> None:
        self._sampler = sampler
        self._under_way: tuple[int, int] | None = None
        self.batches = 0

    def start(self) -> None:
        """Notes that a pass begins."""
        self._under_way = self._sampler.next_epoch(), self._sampler.begin
        self.batches = 0

    def end(self) -> None:
        """Notes that a pass is over."""
        self._under_way = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the place: in the pass under way, or at the beginning of the next one."""
        if self._under_way is None:
            return self._sampler.state(self._sampler.next_epoch(), self._sampler.begin, 0)
        return self._sampler.state(*self._under_way, self.batches)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next pass begin at a place."""
        self._sampler.go_on(state)
        self._under_way = None


def whole_of(dataset: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Returns the Dataset of fastconv that a `Subset` is of, and which of its samples, int64 (n,).

    So the batches' indices keep the epoch, which a Subset would drop. Any other Dataset is returned
    as it is, and None.
    """
    whole, rows = dataset, None
    while type(whole) is Subset:  # what is derived from it may do something of its own
        indices = np.asarray(whole.indices, np.int64)
        rows = indices if rows is None else indices[rows]
        whole = whole.dataset
    return (whole, rows) if isinstance(whole, PackDataset) else (dataset, None)


def _whole(name: str, value: object) -> int:
    """Returns a whole number; raises UsageError where it is none."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name} is {value!r}: it is a whole number") from None


class _Pending:
    """A batch that is being made.

    Attributes:
        indices: Of its samples.
        memory: Where its images go, None where they have no common size.
        labels: int64 (n,).
        part: Samples of a part.
        parts: The samples of each part, where they have no common size.
        keep: Which images were not skipped, bool (n,).
        left: Parts that are not done.
        error: What went wrong, in the earliest part in which something did.
        done: Set when nothing is left.
    """

    def __init__(
        self, indices: EpochBatch, memory: npt.NDArray[np.uint8] | None, part: int
    ) -> None:
        self.indices = indices
        self.memory = memory
        self.part = part
        self.labels = np.empty(len(indices), np.int64)
        self.keep = np.ones(len(indices), bool)
        self.parts: dict[int, list[Any]] = {}
        self.left = -(-len(indices) // part)
        self.error: tuple[int, BaseException] | None = None
        self.done = threading.Event()
        self.guard = threading.Lock()

    def end_part(self, start: int, error: BaseException | None) -> None:
        """Notes that a part is done."""
        with self.guard:
            if error is not None and (self.error is None or start < self.error[0]):
                self.error = (start, error)
            self.left -= 1
            if not self.left:
                self.done.set()


class _Epoch(Iterator[tuple[int, Batch]]):
    """One pass: its threads, and the batches that they are making, each with its number from 1."""

    def __init__(self, loader: FastLoader) -> None:
        self.loader = loader
        self.dataset = loader.dataset
        self.source = iter(loader.batch_sampler)
        self.skipped: list[str] = []
        self.on_cpu = 0
        self.pending: deque[_Pending] = deque()
        self.number = 0
        self.parts: queue.SimpleQueue[tuple[_Pending, int] | None] = queue.SimpleQueue()
        self.closed = False
        self.threads = [
            threading.Thread(target=self.work, name=f"fastconv-loader-{n}", daemon=True)
            for n in range(loader.num_workers)
        ]
        for thread in self.threads:
            thread.start()
        # A program may end in the middle of a pass. A thread that is in torch's code when Python is
        # taken down ends the process by SIGABRT.
        atexit.register(self.close)

    def work(self) -> None:
        """Makes parts of batches until there are no more."""
        while (item := self.parts.get()) is not None:
            pending, start = item
            error: BaseException | None = None
            if not self.closed:
                try:
                    self.make(pending, start)
                except BaseException as problem:
                    error = problem
            pending.end_part(start, error)
            del item, pending  # a thread that waits must not hold on to a batch

    def make(self, pending: _Pending, start: int) -> None:
        """Makes one part of a batch."""
        stop = min(start + pending.part, len(pending.indices))
        indices = pending.indices.part(start, stop)
        if self.loader.decode == "cuda":
            pending.parts[start] = [self.dataset.encoded_batch(indices, self.skipped)]
            return
        if pending.memory is None:
            pending.parts[start] = self.dataset.__getitems__(indices)
            return
        _, labels, kept = self.dataset.decode_batch(
            indices, pending.memory[start:stop], self.skipped
        )
        pending.labels[start:stop] = labels
        pending.keep[start:stop] = kept

    def fill(self) -> None:
        """Sees to it that enough batches are being made."""
        while len(self.pending) <= self.loader.prefetch_factor:
            indices = next(self.source, None)
            if indices is None:
                return
            batch = cast(EpochBatch, indices)
            self.dataset.hint(batch)
            memory, part = self.loader._memory, self.loader._part
            pending = _Pending(batch, None if memory is None else memory.take()[: len(batch)], part)
            self.pending.append(pending)
            for start in range(0, len(batch), part):
                self.parts.put((pending, start))

    def __next__(self) -> tuple[int, Batch]:
        while True:
            self.fill()
            if not self.pending:
                raise StopIteration
            pending = self.pending.popleft()
            pending.done.wait()
            if pending.error is not None:
                raise pending.error[1]
            self.number += 1
            batch = self.collated(pending)
            if batch is not None:
                return self.number, batch

    def collated(self, pending: _Pending) -> Batch | None:
        """Returns a finished batch, None where all of its samples were skipped."""
        if pending.memory is None:
            samples = [sample for start in sorted(pending.parts) for sample in pending.parts[start]]
            if self.loader.decode == "cuda":
                return self.encoded(samples)
            return self.loader.collate_fn(samples) if samples else None
        images, labels = pending.memory, pending.labels
        if not pending.keep.all():
            images, labels = images[pending.keep], labels[pending.keep]
        if not labels.shape[0]:
            return None
        given = torch.from_numpy(images)
        if self.dataset.decode == "numpy":
            given = given.squeeze(3) if given.shape[3] == 1 else given
        else:
            given = given.permute(0, 3, 1, 2)
        return given, torch.from_numpy(labels)

    def encoded(self, parts: list[Any]) -> EncodedBatch | None:
        """Returns a batch that is still to be decoded, None where all samples were skipped."""
        pictures = [picture for part, _ in parts for picture in part]
        rows = np.concatenate([rows for _, rows in parts])
        if not pictures:
            return None
        size = self.dataset.batch_shape
        assert size is not None

        def fell_back() -> None:
            self.on_cpu += 1

        def failed(position: int, error: SampleError) -> None:
            self.dataset.cannot_decode(int(rows[position]), error, self.skipped)

        labels = self.dataset.table.label[rows]
        return EncodedBatch(pictures, labels, size[:2], fell_back, failed)

    def close(self) -> None:
        """Ends the threads; what they are at is the last that they do."""
        self.closed = True
        for _ in self.threads:
            self.parts.put(None)
        for thread in self.threads:
            thread.join()
        self.pending.clear()
        atexit.unregister(self.close)


class _ProcessLoader(DataLoader[Any]):
    """A DataLoader that leaves out batches of which nothing is left, and knows how far it is."""

    batch_sampler: EpochBatchSampler

    def __init__(self, dataset: Any, batch_sampler: EpochBatchSampler, **options: Any) -> None:
        super().__init__(dataset, batch_sampler=batch_sampler, **options)
        self._place = Place(batch_sampler)

    def state_dict(self) -> dict[str, Any]:
        """Returns what `FastLoader.state_dict` does: either goes on from the other's."""
        return self._place.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next pass go on from the place of a state, as `FastLoader.load_state_dict`
        does."""
        self._place.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._place.start()
        for number, batch in enumerate(super().__iter__(), 1):
            self._place.batches = number
            if batch is not None:
                yield batch
        self._place.end()


def make_loader(
    dataset: Any,
    batch_size: int,
    *,
    kind: Literal["auto", "threads", "processes"] = "auto",
    shuffle: bool = False,
    sampler: Iterable[int] | None = None,
    drop_last: bool = False,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    pin_memory: bool | None = None,
    persistent_workers: bool | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    seed: int = 0,
    **more: Any,
) -> FastLoader | DataLoader[Any]:
    """Returns a loader with the settings that practice recommends; each can be given.

    Args:
        dataset: A Dataset of fastconv; for "processes" any map-style Dataset.
        batch_size: Samples of a batch.
        kind: "threads" gives a FastLoader, "processes" a `torch.utils.data.DataLoader`; "auto" a
            FastLoader where the Dataset has a decoder whose results are of one size and no
            `transform`, whose Python code would keep threads from running side by side.
        shuffle: Whether the order is another one in each epoch.
        sampler: Gives the indices instead.
        drop_last: Whether to leave out the last batch when it is shorter.
        num_workers: By default one a core, at most eight.
        prefetch_factor: Batches made ahead; of a DataLoader by each worker. By default 2.
        pin_memory: By default where CUDA is there.
        persistent_workers: Whether a DataLoader keeps its workers between epochs; by default it
            does.
        collate_fn: Makes a batch of samples; by default `collate`, which leaves skipped ones out.
        seed: Of the order, and of what is drawn for each sample.
        more: Other arguments of the loader, such as `device` or `worker_init_fn`.

    Raises:
        UsageError: An argument is wrong.
    """
    workers = default_workers() if num_workers is None else _whole("num_workers", num_workers)
    whole, rows = whole_of(dataset)
    fast = isinstance(whole, PackDataset) and whole.batch_shape is not None
    if kind == "threads" or (kind == "auto" and fast and workers > 0):
        if persistent_workers is not None:
            raise UsageError("persistent_workers is for processes: threads start in no time")
        if collate_fn is not None:
            more["collate_fn"] = collate_fn
        return FastLoader(
            dataset, batch_size, shuffle=shuffle, sampler=sampler, drop_last=drop_last,
            num_workers=workers,
            prefetch_factor=prefetch_factor or 2, pin_memory=pin_memory, seed=seed, **more,
        )  # fmt: skip
    if kind not in ("auto", "processes"):
        raise UsageError(f"kind is {kind!r}: it can be 'auto', 'threads' or 'processes'")
    batches = EpochBatchSampler(
        len(dataset), batch_size, shuffle=shuffle, sampler=sampler, drop_last=drop_last, seed=seed,
        rows=rows, dataset=whole._fingerprint if isinstance(whole, PackDataset) else "",
    )  # fmt: skip
    if workers:
        more.setdefault("prefetch_factor", prefetch_factor or 2)
        more.setdefault(
            "persistent_workers", True if persistent_workers is None else persistent_workers
        )
    return _ProcessLoader(
        whole,
        batch_sampler=batches,
        num_workers=workers,
        pin_memory=torch.cuda.is_available() if pin_memory is None else pin_memory,
        collate_fn=collate_fn or collate,
        **more,
    )
