"""Trains on several GPUs, or several processes without one, and goes on after a kill.

    fastconv pack IMAGES train.lmdb
    torchrun --nproc-per-node 2 examples/train_ddp.py train.lmdb --val val.lmdb --epochs 3

Kill it whenever you like, and start it again, with another number of processes if need be: it goes
on after the last checkpoint with the next images of the same order. The ranks together see each
image once an epoch, and the accuracy counts each image once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fastconv.loaders import (
    CenterCrop,
    ExactDistributedSampler,
    FastLoader,
    PackDataset,
    RandomResizedCrop,
    open_dataset,
)

__all__ = ["accuracy", "main", "network"]

NORMALIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def network(classes: int) -> nn.Module:
    """Returns a small convolutional network, for images of any size."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, dataset: PackDataset, batch: int, device: torch.device) -> float:
    """Returns the share of the images that are told right, each counted once, over all ranks."""
    sampler = ExactDistributedSampler(dataset, shuffle=False, tail="exact")
    loader = FastLoader(dataset, batch, sampler=sampler, device=device, normalize=NORMALIZE)
    counts = torch.from_numpy(sampler.mask).to(device)  # False for what another rank counts
    right = torch.zeros((), dtype=torch.int64, device=device)
    for (images, labels), count in zip(loader, torch.split(counts, batch), strict=True):
        right += ((model(images).argmax(1) == labels) & count).sum()
    dist.all_reduce(right)
    return right.item() / len(dataset)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains; every rank runs this."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path, help="what to train on")
    parser.add_argument("--val", type=Path, required=True, help="what to measure accuracy on")
    parser.add_argument("--checkpoint", type=Path, default=Path("ddp.pt"), help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=1, help="in all (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images a rank (%(default)s)")
    parser.add_argument("--size", type=int, default=224, help="of a crop (%(default)s)")
    parser.add_argument("--save-every", type=int, default=50, help="steps (%(default)s)")
    args = parser.parse_args(argv)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    train = open_dataset(args.pack, decode=RandomResizedCrop(args.size, flip=0.5))
    val = open_dataset(args.val, decode=CenterCrop(args.size, resize=args.size * 8 // 7))
    sampler = ExactDistributedSampler(train)  # this rank's part of the order
    loader = FastLoader(train, args.batch, sampler=sampler, device=device, normalize=NORMALIZE)
    model = DistributedDataParallel(network(len(train.classes)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    if args.checkpoint.exists():  # one for all ranks: the loader's state has the place of them all
        state = torch.load(args.checkpoint, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])

    def save() -> None:
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"loader": loader.state_dict()}, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)  # all of it or nothing

    for _ in range(loader.epoch, args.epochs):
        for step, (images, labels) in enumerate(loader, 1):
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args.save_every == 0:
                save()
        save()
    share = accuracy(model.module, val, args.batch, device)
    if dist.get_rank() == 0:
        print(f"accuracy {share:.4f}")
    dist.barrier()  # no rank goes while another one still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
