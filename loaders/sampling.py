"""The order of samples: pure functions of (seed, epoch, place), and batches that know both.

With persistent DataLoader workers neither the Dataset nor a worker's seed changes between epochs.
So the epoch travels with the indices: a batch is a list that knows its seed and epoch, and what is
drawn for a sample depends on (seed, epoch, index) alone, whoever draws it. Where a sample may come
several times in an epoch it is (seed, epoch, place in the order), so that it is cropped otherwise.

The order of an epoch is computed, not stored, so a pass can begin at any place of it at once; it is
the same for any number of ranks and workers.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from fastconv.loaders.draws import numbers
from fastconv.loaders.errors import UsageError
from fastconv.loaders.identity import digest_of
from fastconv.loaders.permutation import permuted

__all__ = [
    "EpochBatch",
    "EpochBatchSampler",
    "ExactDistributedSampler",
    "PlacedSampler",
    "Tail",
    "epoch_order",
]

Rows = npt.NDArray[np.int64]
Tail = Literal["pad", "drop", "exact"]

CHUNK = 1 << 14
"""Places whose samples are computed at once: enough that each costs little, few enough that the
first batch does not wait."""


class EpochBatch(list[int]):
    """Indices of one batch, which know where they come from.

    Attributes:
        seed: Of the run.
        epoch: Number of the pass over the data, from 0.
        places: Where they are in the order of the epoch; None where each is there once.
    """

    __slots__ = ("epoch", "places", "seed")

    def __init__(
        self, indices: Iterable[int], seed: int, epoch: int, places: range | None = None
    ) -> None:
        super().__init__(indices)
        self.seed = seed
        self.epoch = epoch
        self.places = places

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochBatch, (list(self), self.seed, self.epoch, self.places)

    def part(self, start: int, stop: int) -> EpochBatch:
        """Returns some of the indices."""
        places = None if self.places is None else self.places[start:stop]
        return EpochBatch(self[start:stop], self.seed, self.epoch, places)


def epoch_order(
    places: Rows, samples: int, seed: int, epoch: int, shuffle: bool, block: int | None = None
) -> Rows:
    """Returns which samples are at some places of the order of an epoch, int64 (n,).

    Args:
        places: Between 0 and samples - 1, int64 (n,).
        samples: How many there are.
        seed, epoch: The order is another one for each.
        shuffle: Whether it is one by chance; else it is that of the Dataset.
        block: Samples that follow each other in the Dataset and stay together: blocks are in an
            order by chance, and so are the samples in each of them.
    """
    if not shuffle:
        return places
    state = numbers(np.array([seed % (1 << 64)], np.uint64), np.array([epoch]))
    if block is None or block >= samples:
        return permuted(places, samples, state)
    # Where the first block begins is left to chance, too: the last one is shorter than the others,
    # and its samples would always be the last.
    blocks, turn = samples // block, int(numbers(state, np.array([1]))[0]) % samples
    whole = places < blocks * block
    number, inside = np.divmod(places, block)
    number = np.where(whole, permuted(np.where(whole, number, 0), blocks, state), number)
    states = numbers(np.broadcast_to(numbers(state, np.array([2])), number.shape), number)
    # The short block is permuted by itself.
    inside[whole] = permuted(inside[whole], block, states[whole])
    inside[~whole] = permuted(inside[~whole], max(samples - blocks * block, 1), states[~whole])
    return (number * block + inside + turn) % samples


class PlacedSampler(Sampler[int], ABC):
    """Gives each rank its part of an order that tells at once what is at any of its places.

    Rank r of w has the places r, r + w, r + 2w and so on of one order, that of the epoch, which
    depends on neither r nor w: a batch of all ranks together is the same for any number of them. A
    last round that has not a place for every rank takes some again, from the beginning.

    Args:
        samples: How many places an epoch has, of all ranks together.
        num_replicas: How many ranks there are; by default as torch.distributed says, 1 without it.
        rank: Which one this is.
        seed: Of the order; the same on all ranks.

    Attributes:
        repeats: Whether a sample may be at several places of an epoch.

    Raises:
        UsageError: An argument is wrong.
    """

    repeats = False

    def __init__(self, samples: int, num_replicas: int | None, rank: int | None, seed: int) -> None:
        self.samples = samples
        self.num_replicas = _world(num_replicas, "num_replicas", 1)
        self.rank = _world(rank, "rank", 0)
        if self.num_replicas < 1 or not 0 <= self.rank < self.num_replicas:
            raise UsageError(
                f"the rank is between 0 and num_replicas - 1, not {self.rank} of "
                f"{self.num_replicas}"
            )
        self.seed = checked_seed(seed)
        self.epoch = 0

    @abstractmethod
    def at(self, places: Rows, epoch: int) -> Rows:
        """Returns which samples are at some places of the order of an epoch, int64 (n,)."""

    @property
    @abstractmethod
    def order(self) -> Mapping[str, Any]:
        """What the order depends on beside the epoch: name -> value, as JSON has it."""

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is."""
        self.epoch = epoch

    def count(self, begin: int = 0) -> int:
        """Returns how many samples each rank has from a place of the order on."""
        return -(-max(self.samples - begin, 0) // self.num_replicas)

    def __len__(self) -> int:
        return self.count()

    def rows(self, epoch: int, begin: int = 0) -> Iterator[Rows]:
        """Yields this rank's samples of an epoch, many at a time, int64 (n,).

        Args:
            epoch: Number of the pass.
            begin: The place of the order at which all ranks begin.
        """
        count = self.count(begin)
        for start in range(0, count, CHUNK):
            steps = np.arange(start, min(start + CHUNK, count), dtype=np.int64)
            places = begin + self.rank + steps * self.num_replicas
            yield self.at(places % max(self.samples, 1), epoch)

    def __iter__(self) -> Iterator[int]:
        for rows in self.rows(self.epoch):
            yield from rows.tolist()


class ExactDistributedSampler(PlacedSampler):
    """Gives each rank its part of the samples of an epoch: as many as every other rank.

    Rank r of w has the places r, r + w, r + 2w and so on of one order, that of the epoch, which
    depends on neither r nor w: a batch of all ranks together is the same for any number of them.

    Args:
        dataset: Anything with a length.
        num_replicas: How many ranks there are; by default as torch.distributed says, 1 without it.
        rank: Which one this is.
        shuffle: Whether the order is another one in each epoch.
        seed: Of the order; the same on all ranks.
        tail: What becomes of a last round that has not a sample for every rank: "pad" takes some
            again, from the beginning of the order, as torch does; "drop" leaves the round out;
            "exact" takes some again and tells so: `mask` is False for them, so that in evaluation
            each sample counts once.
        block: Samples that lie together in the pack and stay together in the order, for disks and
            networks to which jumping is dear. Each batch then has samples of few blocks: they are
            less independent of each other, by as much as neighbours in the pack are alike, and
            packs are sorted by class. With `block` times ten in each batch nobody notices; with a
            batch of one block it has one class.

    Raises:
        UsageError: An argument is wrong.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        tail: Tail = "pad",
        block: int | None = None,
    ) -> None:
        super().__init__(len(dataset), num_replicas, rank, seed)
        if tail not in get_args(Tail):
            raise UsageError(f"tail is {tail!r}: it can be 'pad', 'drop' or 'exact'")
        if block is not None and block < 1:
            raise UsageError(f"a block has at least one sample, not {block}")
        self.shuffle = shuffle
        self.tail: Tail = tail
        self.block = block

    def at(self, places: Rows, epoch: int) -> Rows:
        """Returns which samples are at some places of the order of an epoch, int64 (n,)."""
        return epoch_order(places, self.samples, self.seed, epoch, self.shuffle, self.block)

    @property
    def order(self) -> Mapping[str, Any]:
        """What the order depends on beside the epoch."""
        return {"seed": self.seed, "shuffle": self.shuffle, "block": self.block}

    def count(self, begin: int = 0) -> int:
        """Returns how many samples each rank has from a place of the order on."""
        if self.tail == "drop":
            return max(self.samples - begin, 0) // self.num_replicas
        return super().count(begin)

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Which of the samples of a pass count, bool (len(self),): all but those that were taken
        again."""
        mask = np.ones(len(self), np.bool_)
        if len(mask):
            mask[-1] = self.rank + (len(mask) - 1) * self.num_replicas < self.samples
        return mask


def _world(given: int | None, name: str, alone: int) -> int:
    """Returns a number of the world of ranks."""
    if given is not None:
        return given
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return alone
    return dist.get_world_size() if name == "num_replicas" else dist.get_rank()


def checked_seed(seed: int) -> int:
    """Returns a seed.

    Raises:
        UsageError: It is none.
    """
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"the seed is between 0 and 2**64 - 1, not {seed}")
    return seed


class EpochBatchSampler(Sampler[list[int]]):
    """Gives the batches of one epoch after the other, for a DataLoader's `batch_sampler`.

    Each pass is the next epoch; `set_epoch` says which one comes next, as with DistributedSampler.

    Args:
        samples: How many samples the Dataset has.
        batch_size: Samples of a batch.
        shuffle: Whether their order is another one in each epoch.
        sampler: Gives the indices instead. An epoch that it was told (`set_epoch`) counts here too.
        drop_last: Whether to leave out the last batch when it is shorter.
        seed: Of the order, and of what is drawn for each sample.
        rows: Of a part of a Dataset: which of its samples they are, int64 (samples,).
        dataset: What tells the Dataset from others, such as the id of its pack; "" where nothing
            does.

    Attributes:
        epoch: The pass that comes next.
        begin: The place of its order at which it begins, counted over all ranks; 0 but for a pass
            that goes on.

    Raises:
        UsageError: An argument is wrong.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        *,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rows: Rows | None = None,
        dataset: str = "",
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"a batch has at least one sample, not {batch_size}")
        if sampler is not None and shuffle:
            raise UsageError("a sampler has its own order: leave shuffle out")
        self.samples = samples
        self.batch_size = batch_size
        self.seed = checked_seed(seed)
        self.sampler = (
            ExactDistributedSampler(range(samples), 1, 0, shuffle, seed)
            if sampler is None
            else sampler
        )
        self.drop_last = drop_last
        self.rows = rows
        self.dataset = dataset if rows is None else digest_of(dataset, {"rows": rows})
        self.epoch = 0
        self.begin = 0

    @property
    def ranks(self) -> int:
        """How many ranks share an epoch."""
        return int(getattr(self.sampler, "num_replicas", 1))

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is; one that goes on still does so if it is that one."""
        # Trainers tell the epoch at the begin of each, after they have loaded a state, too.
        self.epoch, self.begin = epoch, self.begin if epoch == self.epoch else 0

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def next_epoch(self) -> int:
        """Returns which epoch the next pass is."""
        # Who forgets the sampler's set_epoch gets its order again, as with torch, but other crops.
        return max(self.epoch, getattr(self.sampler, "epoch", 0))

    def __iter__(self) -> Iterator[list[int]]:
        epoch, begin = self.next_epoch(), self.begin
        self.epoch, self.begin = epoch + 1, 0
        for number, batch in enumerate(self._batches(epoch, begin)):
            if len(batch) == self.batch_size or not self.drop_last:
                indices = batch if self.rows is None else self.rows[batch].tolist()
                places = self._places(begin, number, len(batch))
                yield EpochBatch(indices, self.seed, epoch, places)

    def _batches(self, epoch: int, begin: int) -> Iterator[list[int]]:
        if isinstance(self.sampler, PlacedSampler):
            yield from _cut(self.sampler.rows(epoch, begin), self.batch_size)
            return
        indices = islice(map(int, self.sampler), begin, None)
        while batch := list(islice(indices, self.batch_size)):
            yield batch

    def _places(self, begin: int, number: int, count: int) -> range | None:
        """Returns the places of a batch of a pass that began at a place."""
        if not (isinstance(self.sampler, PlacedSampler) and self.sampler.repeats):
            return None
        first = begin + self.sampler.rank + number * self.batch_size * self.ranks
        return range(first, first + count * self.ranks, self.ranks)

    def state(self, epoch: int, begin: int, batches: int) -> dict[str, Any]:
        """Returns the place after some batches of a pass that began at a place: for `go_on`.

        After the last batch it is the begin of the next pass.
        """
        own = self.sampler if isinstance(self.sampler, PlacedSampler) else None
        place = begin + batches * self.batch_size * (1 if own is None else self.ranks)
        if batches and self._left(place) < (self.batch_size if self.drop_last else 1):
            epoch, place = epoch + 1, 0
        state: dict[str, Any] = {
            "epoch": epoch,
            "begin": place,
            "samples": self.samples,
            "dataset": self.dataset,
            "seed": self.seed,
        }
        if own is not None:
            return state | {"order": list(own.order.values())}
        return state | {"ranks": self.ranks}  # the sampler's own order differs with their number

    def _left(self, place: int) -> int:
        """Returns how many samples each rank has from a place on; a batch where nobody knows."""
        if isinstance(self.sampler, PlacedSampler):
            return self.sampler.count(place)
        return len(self.sampler) - place if isinstance(self.sampler, Sized) else self.batch_size

    def _most(self) -> int:
        """Returns how many places an epoch has; as many as there can be where nobody knows."""
        if isinstance(self.sampler, PlacedSampler):
            return self.sampler.samples
        return len(self.sampler) if isinstance(self.sampler, Sized) else 1 << 63

    def go_on(self, state: dict[str, Any]) -> None:
        """Lets the next pass begin at the place of a state.

        Raises:
            UsageError: It is of something else, or its place is none.
        """
        mine = self.state(0, 0, 0)
        if not isinstance(state, dict) or state.keys() != mine.keys():
            raise UsageError("not the state of a loader of this kind, with such a sampler")
        for name in [*mine][2:]:  # the first two are the place
            if state[name] != mine[name]:
                what = name
                if isinstance(self.sampler, PlacedSampler) and name == "order":
                    what = f"order ({', '.join(self.sampler.order)})"
                raise UsageError(
                    f"the state is of a loader whose {what} is {state[name]!r}: here it is "
                    f"{mine[name]!r}"
                )
        epoch = _below(1 << 63, "epoch", state["epoch"])
        self.epoch, self.begin = epoch, _below(max(self._most(), 1), "begin", state["begin"])


def _below(most: int, name: str, value: object) -> int:
    """Returns a whole number of a state.

    Raises:
        UsageError: It is none, or not between 0 and `most` - 1.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number not in range(most):
        raise UsageError(
            f"the state's {name} is {value!r}: here it is a whole number between 0 and {most - 1}"
        )
    return number


def _cut(chunks: Iterable[Rows], size: int) -> Iterator[list[int]]:
    """Yields rows in lists of a size; the last one may be shorter."""
    left: list[int] = []
    for rows in chunks:
        left += rows.tolist()
        whole = len(left) // size * size
        for start in range(0, whole, size):
            yield left[start : start + size]
        left = left[whole:]
    if left:
        yield left
