"""The order of samples: pure functions of (seed, epoch), and the batches that carry both with them.

With persistent DataLoader workers neither the Dataset nor a worker's seed changes between epochs.
So the epoch travels with the indices: a batch is a list that knows its seed and epoch, and what is
drawn for a sample depends on (seed, epoch, index) alone, whoever draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from fastconv.loaders.errors import UsageError

__all__ = ["EpochBatch", "EpochBatchSampler", "epoch_order"]


class EpochBatch(list[int]):
    """Indices of one batch, which know where they come from.

    Attributes:
        seed: Of the run.
        epoch: Number of the pass over the data, from 0.
    """

    __slots__ = ("epoch", "seed")

    def __init__(self, indices: Iterable[int], seed: int, epoch: int) -> None:
        super().__init__(indices)
        self.seed = seed
        self.epoch = epoch

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochBatch, (list(self), self.seed, self.epoch)

    def part(self, start: int, stop: int) -> EpochBatch:
        """Returns some of the indices."""
        return EpochBatch(self[start:stop], self.seed, self.epoch)


def epoch_order(samples: int, seed: int, epoch: int, shuffle: bool) -> npt.NDArray[np.int64]:
    """Returns the order of an epoch, int64 (samples,): the same for any number of workers and
    ranks."""
    if not shuffle:
        return np.arange(samples, dtype=np.int64)
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(samples)


class EpochBatchSampler(Sampler[list[int]]):
    """Gives the batches of one epoch after the other, for a DataLoader's `batch_sampler`.

    Each pass is the next epoch; `set_epoch` says which one comes next, as with DistributedSampler.

    Args:
        samples: How many samples the Dataset has; None: as many as `sampler` gives.
        batch_size: Samples of a batch.
        shuffle: Whether their order is another one in each epoch.
        sampler: Gives the indices instead. An epoch that it was told (`set_epoch`) counts here too.
        drop_last: Whether to leave out the last batch when it is shorter.
        seed: Of the order, and of what is drawn for each sample.
        rows: Of a part of a Dataset: which of its samples they are, int64 (samples,).

    Raises:
        UsageError: An argument is wrong.
    """

    def __init__(
        self,
        samples: int | None,
        batch_size: int,
        *,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"a batch has at least one sample, not {batch_size}")
        if sampler is not None and shuffle:
            raise UsageError("a sampler has its own order: leave shuffle out")
        if not 0 <= seed < 1 << 64:
            raise UsageError(f"the seed is between 0 and 2**64 - 1, not {seed}")
        self.samples = samples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.sampler = sampler
        self.drop_last = drop_last
        self.seed = seed
        self.rows = rows
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is."""
        self.epoch = epoch

    def __len__(self) -> int:
        count = self.samples if self.sampler is None else len(self.sampler)  # type: ignore[arg-type]
        assert count is not None
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        # Who forgets the sampler's set_epoch gets its order again, as with torch, but other crops.
        epoch = max(self.epoch, getattr(self.sampler, "epoch", 0))
        self.epoch = epoch + 1
        for batch in self._batches(epoch):
            if len(batch) == self.batch_size or not self.drop_last:
                yield EpochBatch(
                    batch if self.rows is None else self.rows[batch].tolist(), self.seed, epoch
                )

    def _batches(self, epoch: int) -> Iterator[list[int]]:
        if self.sampler is None:
            assert self.samples is not None
            order = epoch_order(self.samples, self.seed, epoch, self.shuffle)
            for start in range(0, len(order), self.batch_size):
                yield order[start : start + self.batch_size].tolist()
            return
        indices = map(int, self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            yield batch
