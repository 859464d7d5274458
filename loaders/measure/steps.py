"""What stands in for the training step while a loader is measured."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from fastconv.loaders.measure.cases import Step

__all__ = ["training_step"]


def training_step(step: Step, device: torch.device) -> Callable[[torch.Tensor], None]:
    """Returns a function of a batch of images, uint8 (n, 3, rows, columns), on the device.

    A step on a GPU is only begun, as in training: whoever needs it done has to synchronise.
    """
    if step.kind == "none":
        return lambda images: None
    if step.kind == "sleep":
        return lambda images: time.sleep(step.seconds)
    return _convolutional(device)


def _convolutional(device: torch.device) -> Callable[[torch.Tensor], None]:
    """Returns a step that trains a small convolutional network."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, stride=4, padding=3), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()

    def train(images: torch.Tensor) -> None:
        labels = torch.zeros(images.shape[0], dtype=torch.long, device=device)
        loss = loss_of(model(images.to(torch.float32).div_(255)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train
