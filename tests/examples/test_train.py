"""The example that trains in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SMALL = ("--batch", "8", "--size", "16", "--save-every", "3")


def checkpoint(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(out / "checkpoint.pt", weights_only=True)
    return found


def test_training_goes_on_as_if_it_had_not_stopped(
    root: Path, images: Path, tmp_path: Path, run: Callable[..., str]
) -> None:
    program = root / "examples/train.py"
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    printed = run(program, images, "--out", whole, "--steps", "11", *SMALL)
    assert [line.partition(":")[0] for line in printed.splitlines()] == [
        "step 3", "step 6", "step 9", "step 11",
    ]  # fmt: skip
    for steps in ("5", "11"):  # a pass has four
        printed = run(program, images, "--out", parts, "--steps", steps, *SMALL)
    assert printed.startswith("going on after step 5\nstep 6:")
    expected, found = checkpoint(whole), checkpoint(parts)
    assert found["loader"] == expected["loader"]
    assert (found["loader"]["epoch"], found["loader"]["begin"]) == (2, 24)
    for name, weights in expected["model"].items():
        assert torch.equal(found["model"][name], weights), name
