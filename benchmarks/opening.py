"""How long does opening a pack take?

    opening.py PACK

Opens it twice in this fresh process and prints both times in seconds: the first has to import what
the format needs, the second has not. Each time one sample from the middle is read as well. PyTorch
and what fastconv imports at once are not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from os import PathLike, fspath

from processes import run

__all__ = ["main", "open_seconds"]


def open_seconds(pack: str | PathLike[str]) -> tuple[float, float]:
    """Returns the seconds of the first and the second opening, in a process of their own."""
    first, second = json.loads(run([sys.executable, __file__, fspath(pack)]).output)
    return first, second


def main(argv: Sequence[str]) -> None:
    """Opens a pack twice, and prints the seconds."""
    from fastconv.loaders import open_dataset

    (pack,) = argv
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        dataset = open_dataset(pack)
        dataset.read(len(dataset) // 2)
        seconds.append(time.perf_counter() - began)
        del dataset
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
