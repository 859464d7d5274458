"""`fastconv tune`: the settings of a loader, found by measuring."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.measuring import parse_step
from fastconv.converters.cli.output import reporting, say
from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.sizes import parse_size

__all__ = ["command"]

IMPORTS = "from fastconv.loaders import RandomResizedCrop, make_loader, open_dataset"
"""What the line needs that is printed."""


def command(
    source: Annotated[
        str,
        argument(metavar="SOURCE", help="The pack, or the folder of images."),
    ],
    batch_size: options.BatchSizeOption = 64,
    size: options.PictureSizeOption = 224,
    device: options.DeviceOption = "auto",
    step: options.StepOption = "none",
    budget: Annotated[
        float,
        option(
            metavar="S",
            min=1.0,
            max=86_400.0,
            help="Seconds that it may take.",
            panel=options.RUNNING,
        ),
    ] = 60.0,
    memory: Annotated[
        int | None,
        option(
            metavar="SIZE",
            parser=parse_size,
            help="Memory that the loader may take, as 4GB.",
            panel=options.RUNNING,
            show_default="four fifths of what is free",
        ),
    ] = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Find the loader's settings that feed the training step, by measuring, and print them.

    Tries threads and processes, how many of them, how far ahead they
    work, and pinned memory; stops as soon as the step is fed.

    $ fastconv tune out.lmdb --batch-size 256 --step 20ms
    """
    with reporting("tune", json=json, quiet=quiet) as out:
        from fastconv.loaders.measure.cases import Settings
        from fastconv.loaders.measure.gpu import chosen_device
        from fastconv.loaders.measure.tune import tune

        settings = Settings(
            batch_size=batch_size, size=size, device=chosen_device(device), step=parse_step(step)
        )

        def progress(done: str, next: str) -> None:
            if not quiet and done:
                say(done)

        found = tune(source, settings, budget=budget, memory_limit=memory, progress=progress)
        out.answer |= found.to_json()
        for line in found.left_out:
            out.note(f"left out: {line}")
        out.print(IMPORTS)
        out.print(found.line)
        for line in found.why:
            out.summary(line)
