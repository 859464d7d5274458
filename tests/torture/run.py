"""Runs `pack` with small parts, and harms itself where that is asked for.

Its one argument is what `tests.torture.support.start` says of it. When everything is imported it
writes a line to stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from fastconv.converters import Sharding, journal, pack, plan, target
from fastconv.converters.run import Run
from fastconv.loaders.errors import FastconvError

STEPS: dict[Any, list[str]] = {
    os: ["mkdir", "rename", "replace", "truncate", "fsync", "unlink", "rmdir"],
    Run: ["lay_out", "make_files", "publish", "finished", "drop"],
    target: ["swap", "rename_new"],
    journal.Journal: ["_append", "add", "end_pass"],
    target.Target: ["discard"],
}
"""What is counted: before each of these calls is a moment between two steps."""


def count_steps(left: int) -> None:
    """Makes all processes of this group end before a step."""

    def counted(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def run(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(0, 9)
            return call(*args, **more)

        setattr(owner, name, run)

    for owner, names in STEPS.items():
        for name in names:
            counted(owner, name)


def fill_disk(path: str, parts: int) -> None:
    """Makes another file take all that is left of the disk, when so many parts are noted."""
    add, left = journal.Journal.add, parts

    def run(*args: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            size = 1 << 16
            while size:
                try:
                    os.write(fd, bytes(size))
                except OSError:
                    size //= 2
            os.close(fd)
        add(*args)

    journal.Journal.add = run  # type: ignore[method-assign, assignment]


def end_after(parts: int) -> None:
    """Ends this process when so many parts are noted; its workers end with it."""
    add, left = journal.Journal.add, parts

    def run(*args: Any) -> None:
        nonlocal left
        add(*args)
        left -= 1
        if left == 0:
            os._exit(0)

    journal.Journal.add = run  # type: ignore[method-assign, assignment]


def with_keywords(arguments: Sequence[str]) -> None:
    """Calls `pack` as the command line does, which it is not worth to import so often."""
    source, out, *options = arguments
    found: dict[str, Any] = {}
    names = iter(options)
    for name in names:
        if name == "--overwrite":
            found["overwrite"] = True
        elif name == "--format":
            found["format"] = next(names)
        elif name == "--shard-samples":
            found["sharding"] = Sharding(samples=int(next(names)))
        elif name == "--option":
            key, _, value = next(names).partition("=")
            found["options"] = {key: value}
        else:
            raise ValueError(name)
    try:
        report = pack(source, out, workers=2, **found)
    except FastconvError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(3 if report.bad else 0)


def main() -> None:
    """Runs what the argument says."""
    about = json.loads(sys.argv[1])
    plan.PART_BYTES = 40_000
    journal.SYNC_S = about["sync"]
    if about["fill"] is not None:
        fill_disk(*about["fill"])
    if about["way"] == "halt":  # leave all as it is before it is published
        Run.publish = lambda *_: os._exit(0)  # type: ignore[method-assign]
    if about["way"] == "half":  # or after some parts
        end_after(12)
    if about["way"] == "cli":
        from fastconv.__main__ import main as command

        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.exit(command([*about["arguments"], "--workers", "2", "--quiet"]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if about["steps"] is not None:
        count_steps(about["steps"])
    with_keywords(about["arguments"][1:])


if __name__ == "__main__":
    main()
