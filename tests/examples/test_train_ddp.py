"""The example that trains in several processes, killed in the middle and started again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from tests.examples.conftest import COUNT

from fastconv.converters import Sample, pack
from fastconv.loaders import CenterCrop, FastLoader, open_dataset

# Runs the example and writes down the labels of each batch, and the place after it. One rank kills
# torchrun and all ranks when it has its batch number STOP: every other one has then done its part
# of the step before, and what it wrote before that is there.
WATCHED = """
import json, os, runpy, sys
import psutil
from fastconv.loaders import FastLoader

example, log, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
plain = FastLoader.__iter__

def watched(self):
    with open(f"{log}-{os.environ['RANK']}", "a") as file:
        for number, batch in enumerate(plain(self), 1):
            if self.dataset.decode.draws:  # training
                entry = self.state_dict()["begin"], batch[1].tolist()
                print(json.dumps(entry), file=file, flush=True)
                if number == stop and os.environ["RANK"] == "1":
                    me = psutil.Process()
                    torchrun = me.parent()
                    for process in [torchrun, *torchrun.children(), me]:
                        process.kill()
            yield batch

FastLoader.__iter__ = watched
sys.argv = [example, *sys.argv[4:]]
runpy.run_path(example, run_name="__main__")
"""


def seen(log: Path) -> list[tuple[int, int]]:
    """Returns (place after its batch, label) of each image that the ranks of a run had."""
    found = []
    for file in sorted(log.parent.glob(f"{log.name}-*")):
        for line in file.read_text().splitlines():
            place, labels = json.loads(line)
            found += [(place, label) for label in labels]
    return found


def test_ranks_that_are_killed_go_on_and_each_image_counts_once(
    root: Path,
    packed: Path,
    tmp_path: Path,
    run: Callable[..., str],
    example: Callable[[str], ModuleType],
) -> None:
    script, checkpoint = tmp_path / "watched.py", tmp_path / "ddp.pt"
    script.write_text(WATCHED)

    def train(ranks: int, log: str, val: Path, stop: int = 0, code: int = 0) -> str:
        return run(
            "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
            script, root / "examples/train_ddp.py", tmp_path / log, str(stop),
            packed, "--val", val, "--checkpoint", checkpoint, "--size", "16", "--batch", "3",
            "--save-every", "2", code=code,
        )  # fmt: skip

    # Batches of 2 x 3 images: 24 were begun, and the checkpoint is of the first 12.
    train(2, "first", packed, stop=4, code=-9)
    first = seen(tmp_path / "first")
    kept = [label for place, label in first if place <= 12]
    assert len(kept) == 12
    assert len(first) > 18
    train(3, "second", packed)
    second = [label for _, label in seen(tmp_path / "second")]
    assert sorted(kept + second) == list(range(COUNT))

    # The images that three ranks have twice, the first two, are told right, as are 18 others.
    model = example("train_ddp").network(COUNT)
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    dataset = open_dataset(packed, decode=CenterCrop(16, resize=18))
    normalize = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ((images, _),) = FastLoader(dataset, COUNT, normalize=normalize)
    told = model(images).argmax(1).tolist()
    val = tmp_path / "val.lmdb"
    pack(
        samples=(
            Sample(f"{n}.png", dataset.read(n), told[n] if n < 20 else (told[n] + 1) % COUNT)
            for n in range(28)
        ),
        out=val,
        classes=dataset.classes,
    )
    assert f"accuracy {20 / 28:.4f}" in train(3, "third", val)
    assert not seen(tmp_path / "third"), "all epochs were there"
