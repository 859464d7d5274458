"""Trains with PyTorch Lightning, which saves the loader's place in its checkpoints by itself.

    pip install lightning
    fastconv pack IMAGES train.lmdb
    python examples/train_lightning.py train.lmdb --steps 200
    python examples/train_lightning.py train.lmdb --steps 500   # goes on after step 200

Lightning takes a FastLoader as it is: it is an iterable with a length, `state_dict` and
`load_state_dict`. A run that goes on in the middle of an epoch begins with the next batch of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from fastconv.loaders import (
    ExactDistributedSampler,
    FastLoader,
    PackDataset,
    RandomResizedCrop,
    open_dataset,
)

__all__ = ["Classifier", "main"]

NORMALIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Classifier(LightningModule):
    """A small convolutional network, and what it is trained on."""

    def __init__(self, dataset: PackDataset, batch: int) -> None:
        super().__init__()
        self.dataset, self.batch = dataset, batch
        self.network = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(dataset.classes)),
        )  # fmt: skip

    def train_dataloader(self) -> FastLoader:
        """Returns the loader; on several GPUs each rank has its part of one order."""
        sampler = ExactDistributedSampler(self.dataset)
        return FastLoader(
            self.dataset, self.batch, sampler=sampler, device=self.device, normalize=NORMALIZE
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Returns the loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns what changes the weights."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path, help="what to train on")
    parser.add_argument("--out", type=Path, default=Path("run"), help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="in all (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--size", type=int, default=224, help="of a crop (%(default)s)")
    parser.add_argument("--save-every", type=int, default=50, help="steps (%(default)s)")
    args = parser.parse_args(argv)
    dataset = open_dataset(args.pack, decode=RandomResizedCrop(args.size, flip=0.5))
    checkpoints = ModelCheckpoint(
        args.out, save_last=True, save_top_k=0, every_n_train_steps=args.save_every
    )
    trainer = Trainer(
        max_steps=args.steps, callbacks=[checkpoints], logger=False, log_every_n_steps=1,
        use_distributed_sampler=False,
    )  # fmt: skip
    last = args.out / "last.ckpt"
    trainer.fit(Classifier(dataset, args.batch), ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
