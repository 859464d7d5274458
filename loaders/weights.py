"""Orders in which some samples come more often than others: by weight, or so that all classes do
equally often.

Labels come from the sample table, so nothing is read or decoded. The weights lie one after the
other on a line, as long as an epoch has places; a comb of that many teeth, all one apart, is laid
on it at a place left to chance, and every tooth takes the sample that it hits. ("Systematic
sampling": Madow and Madow, "On the theory of systematic sampling", 1944.) So a sample comes as
often as its weight says, to within one, in every epoch, which drawing each by itself does not give:
there a sample that should come once is left out of more than every third epoch, and classes differ
by chance. The order of the teeth is a permutation that is computed, as that of all other orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset
from xxhash import xxh3_64_hexdigest

from fastconv.loaders.datasets import PackDataset
from fastconv.loaders.draws import draws, numbers
from fastconv.loaders.errors import UsageError
from fastconv.loaders.loader import whole_of
from fastconv.loaders.permutation import permuted
from fastconv.loaders.sampling import PlacedSampler, Rows

__all__ = ["WeightedSampler", "class_balanced_sampler", "class_balanced_weights"]


class WeightedSampler(PlacedSampler):
    """Gives each rank its part of an order in which samples come as often as their weights say.

    Of `num_samples` places, a sample has num_samples * weight / sum of weights, rounded up or down:
    which of the two is left to chance, another one in each epoch. With equal weights, and as many
    places as samples, each comes once. What torch's WeightedRandomSampler draws is right on the
    average alone.

    It goes into a loader as `sampler`. The loader's `state_dict` then has the place in this order;
    a pass goes on from any place at once, with another number of ranks too. A decoder's random
    numbers depend on seed, epoch and place: a sample that comes several times in an epoch is
    cropped otherwise each time.

    Args:
        weights: One for each sample, at least 0, in any unit. A sample of weight 0 never comes.
        num_samples: Places of an epoch, of all ranks together; by default as many as weights.
        num_replicas: How many ranks there are; by default as torch.distributed says, 1 without it.
        rank: Which one this is.
        seed: Of the order; the same on all ranks.
        groups: A number for each sample, such as its label: samples of one number come, together,
            as often as their weights say, too.

    Raises:
        UsageError: An argument is wrong.
    """

    repeats = True

    def __init__(
        self,
        weights: npt.ArrayLike,
        num_samples: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        groups: npt.ArrayLike | None = None,
    ) -> None:
        line = _checked(weights)
        places = line.shape[0] if num_samples is None else num_samples
        if places < 1:
            raise UsageError(f"an epoch has at least one sample: num_samples is {places}")
        super().__init__(places, num_replicas, rank, seed)
        self._line: Rows | None = None
        if groups is not None:
            group = np.asarray(groups)
            if group.shape != line.shape:
                raise UsageError(
                    f"groups have one number for each sample: {group.shape} is not {line.shape}"
                )
            if (group[1:] < group[:-1]).any():  # in most packs they lie together anyway
                self._line = np.argsort(group, kind="stable")
                line = line[self._line]
        self._digest = xxh3_64_hexdigest(np.ascontiguousarray(line).data)
        self._ends = np.cumsum(line / line.max())
        self._ends *= places / self._ends[-1]

    def at(self, places: Rows, epoch: int) -> Rows:
        """Returns which samples are at some places of the order of an epoch, int64 (n,)."""
        # The seed's complement: other numbers than those that a sample's crop is drawn from.
        seed = ~self.seed % (1 << 64)
        state = numbers(np.array([seed], np.uint64), np.array([epoch]))
        offset = draws(seed, epoch, np.zeros(1, np.int64), 1).item()
        teeth = permuted(places, self.samples, state) + offset
        # What was rounded must not lie behind the last sample.
        np.minimum(teeth, np.nextafter(self._ends[-1], 0), out=teeth)
        sorting = np.argsort(teeth)  # looking from left to right takes a third of the time
        found = np.empty(teeth.shape[0], np.int64)
        found[sorting] = np.searchsorted(self._ends, teeth[sorting], side="right")
        return found if self._line is None else self._line[found]

    @property
    def order(self) -> Mapping[str, Any]:
        """What the order depends on beside the epoch."""
        return {"seed": self.seed, "num_samples": self.samples, "weights": self._digest}


def _checked(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"weights are numbers, one for each sample: {error}") from error
    if found.ndim != 1:
        raise UsageError(f"weights are one for each sample: not an array of shape {found.shape}")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if wrong.shape[0]:
        row = int(wrong[0])
        raise UsageError(f"weights are finite and at least 0: that of sample {row} is {found[row]}")
    if not found.any():
        raise UsageError("no sample has a weight above 0: there is nothing to take")
    return found


def class_balanced_weights(dataset: PackDataset | Subset[Any]) -> npt.NDArray[np.float64]:
    """Returns a weight for each sample, float64 (N,), such that those of each class are 1 together.

    Samples without a label (-1) have the weight 0, so they never come; classes without samples
    count for nothing. Labels are those of the sample table, before any `target_transform`. A power
    of the weights lies between: `class_balanced_weights(dataset) ** 0.5` lets a class come as often
    as the square root of its size says.

    Args:
        dataset: A Dataset of fastconv, or torch's `Subset` of one.

    Raises:
        UsageError: It is of another kind, or no sample has a label.
    """
    labels, labelled = _labels(dataset)
    return _balanced(labels, labelled)


def _balanced(labels: Rows, labelled: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    known = labels[labelled]
    if not known.shape[0]:
        raise UsageError("no sample has a label: there are no classes to balance")
    weights = np.zeros(labels.shape[0])
    weights[labelled] = 1 / np.bincount(known)[known]
    return weights


def _labels(dataset: PackDataset | Subset[Any]) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Returns a small number for the label of each sample, int64 (N,), and which have one."""
    whole, rows = whole_of(dataset)
    if not isinstance(whole, PackDataset):
        raise UsageError(
            "labels come from the sample table of a Dataset of fastconv, or of a Subset of one, "
            f"not of {type(dataset).__name__}: make one with open_dataset, or give WeightedSampler "
            "weights of your own"
        )
    labels = whole.targets if rows is None else whole.targets[rows]
    if whole.meta.labels == "class":
        return labels, (labels >= 0) & (labels < len(whole.classes))
    small = np.unique(labels, return_inverse=True)[1]  # the labels are integers of any size
    return small.astype(np.int64, copy=False), labels != -1


def class_balanced_sampler(
    dataset: PackDataset | Subset[Any],
    num_samples: int | None = None,
    num_replicas: int | None = None,
    rank: int | None = None,
    seed: int = 0,
) -> WeightedSampler:
    """Returns a sampler of which every class gets as many samples as every other, to within one.

    Within a class every sample comes as often as every other, to within one. Samples without a
    label (-1) never come.

    Args:
        dataset: A Dataset of fastconv, or torch's `Subset` of one.
        num_samples: Samples of an epoch, of all ranks together; by default as many as it has.
        num_replicas, rank, seed: As for `WeightedSampler`.

    Raises:
        UsageError: An argument is wrong, or no sample has a label.
    """
    labels, labelled = _labels(dataset)
    weights = _balanced(labels, labelled)
    return WeightedSampler(weights, num_samples, num_replicas, rank, seed, groups=labels)
