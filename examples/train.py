"""Trains a small network on a folder of images, and goes on where it was stopped.

    python examples/train.py FOLDER --steps 200
    python examples/train.py FOLDER --steps 500   # goes on after step 200

FOLDER has a folder of images for each class, as torchvision's ImageFolder reads it; it is packed
the first time. A checkpoint has the loader's place among the data, so a run that goes on sees the
very images, and the very crops of them, that an undisturbed one would have seen.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastconv.converters import pack
from fastconv.loaders import FastLoader, RandomResizedCrop, open_dataset

__all__ = ["main", "network"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def network(classes: int) -> nn.Module:
    """Returns a small convolutional network, for images of any size."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def save(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint; whoever is killed meanwhile leaves the one before it."""
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main(argv: Sequence[str] | None = None) -> None:
    """Packs, trains, and writes checkpoints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder of images for each class")
    parser.add_argument("--out", type=Path, default=Path("run"), help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="in all (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images in one (%(default)s)")
    parser.add_argument("--size", type=int, default=224, help="of a crop (%(default)s)")
    parser.add_argument("--save-every", type=int, default=50, help="steps (%(default)s)")
    args = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    packed, checkpoint = args.out / "train.lmdb", args.out / "checkpoint.pt"
    if not packed.exists():
        args.out.mkdir(parents=True, exist_ok=True)
        pack(args.folder, packed)
    dataset = open_dataset(packed, decode=RandomResizedCrop(args.size, flip=0.5))
    loader = FastLoader(  # decodes in threads; on a GPU it copies beside the computing
        dataset, args.batch, shuffle=True, device=device, normalize=(MEAN, STD)
    )
    torch.manual_seed(0)
    model, loss_of = network(len(dataset.classes)).to(device), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])  # at once: nothing is read again
        step = state["step"]
        print(f"going on after step {step}")
    while step < args.steps:
        for images, labels in loader:  # each pass is the next epoch
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0 or step == args.steps:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save(state | {"loader": loader.state_dict(), "step": step}, checkpoint)
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
