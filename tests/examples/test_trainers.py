"""The examples that train with the trainers of others, where those are installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

SMALL = ("--batch", "8", "--size", "16", "--save-every", "3")

# Runs an example, and writes down the labels of each batch that a loader hands out, or the numbers
# of the samples that a Dataset is asked for.
WATCHED = """
import json, runpy, sys
from fastconv.loaders import FastLoader
from fastconv.loaders.datasets import PackDataset

example, log = sys.argv[1:3]
file = open(log, "a")
batches, samples = FastLoader.__iter__, PackDataset.__getitems__

def watched_batches(self):
    for batch in batches(self):
        print(json.dumps(batch[1].tolist()), file=file, flush=True)
        yield batch

def watched_samples(self, indices):
    if self.decode.draws:  # training
        print(json.dumps(list(indices)), file=file, flush=True)
    return samples(self, indices)

FastLoader.__iter__, PackDataset.__getitems__ = watched_batches, watched_samples
sys.argv = [example, *sys.argv[3:]]
runpy.run_path(example, run_name="__main__")
"""


@pytest.fixture
def watch(root: Path, tmp_path: Path, run: Callable[..., str]) -> Callable[..., list[list[int]]]:
    """Returns what runs an example, and gives the batches it saw, those of earlier runs of the same
    name included."""
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)

    def call(example: str, name: str, *arguments: str | Path) -> list[list[int]]:
        log = tmp_path / f"{name}.log"
        run(script, root / f"examples/{example}.py", log, *arguments, "--out", tmp_path / name)
        return [json.loads(line) for line in log.read_text().splitlines()]

    return call


def test_lightning_goes_on_in_an_epoch_and_at_its_end(
    packed: Path, watch: Callable[..., list[list[int]]], require: Callable[..., None]
) -> None:
    require("lightning")
    whole = watch("train_lightning", "whole", packed, *SMALL, "--steps", "10")
    assert [len(batch) for batch in whole] == [8, 8, 8, 6, 8, 8, 8, 6, 8, 8]
    for start in (0, 4):
        assert sorted(chain(*whole[start : start + 4])) == list(range(30))
    parts: list[list[int]] = []
    for steps in ("3", "4", "10"):
        options = (*SMALL[:-1], "1", "--steps", steps)
        parts = watch("train_lightning", "parts", packed, *options)
    assert parts == whole


def test_the_trainer_of_hugging_face_goes_on(
    packed: Path, tmp_path: Path, watch: Callable[..., list[list[int]]],
    require: Callable[..., None],
) -> None:  # fmt: skip
    require("transformers", "accelerate")
    options = (packed, "--val", packed, *SMALL, "--workers", "0")
    whole = watch("train_hf_trainer", "whole", *options, "--steps", "6")
    assert sorted(chain(*whole[:4])) == list(range(30))
    first = watch("train_hf_trainer", "parts", *options, "--steps", "3")
    both = watch("train_hf_trainer", "parts", *options, "--steps", "6")
    # The Trainer reads one batch ahead, which is read again.
    assert (first[:3], both[len(first) :][:3]) == (whole[:3], whole[3:6])
    assert (tmp_path / "parts/checkpoint-6/model.safetensors").exists()
