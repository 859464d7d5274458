"""How long does reading a sample's stored bytes take, beside opening its file?

    python benchmarks/read.py

One process, 10,000 photos as raw files, as packs of fastconv, and as databases made by the scripts
that are copied around (benchmarks/peers.py).

Warm: everything is in the page cache; samples in random order, one at a time. "Handed over" ends
when the program has the bytes: fastconv gives a view of the mapped file and copies nothing, so
nothing of the picture was looked at yet. "Read through" adds a checksum (xxh3) over all bytes, the
same for all; the first time after opening, the system has to enter the mapped pages into the
process's page table.

Cold: the files measured were taken out of the page cache (`posix_fadvise`; what stays in it is
counted with `mincore` and said). Batches of 64 samples, each asked for at once and read through.
File names and inodes stay in the system's caches, which is to the raw files' advantage.

All take their turn in each round.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from common import (
    Measured,
    Report,
    Table,
    arguments,
    command_line,
    environment,
    extremes,
    finish,
    interleaved,
    middle,
    parsed,
    ratios,
    with_photos,
)
from opening import open_seconds
from ways import BATCH, Bytes, Corpus, ReadMany, Way, digest

from fastconv.loaders.measure.pagecache import evict, resident, warm

__all__ = ["main", "measure"]

SEED = 7


def seconds_of(action: Callable[[], object]) -> float:
    """Returns what an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def read_through(contents: Iterable[Bytes]) -> int:
    """Looks at every byte; returns how many samples they were."""
    count = 0
    for content in contents:
        digest(content)
        count += 1
    return count


def cool(way: Way) -> float:
    """Takes what a way reads out of the page cache; returns the bytes that stay in it."""
    gc.collect()  # maps of what was read before would keep their pages
    evict(way.files)
    return float(resident(way.files))


def batch_reader(way: Way) -> ReadMany:
    """Opens the files; returns what reads a batch."""
    if way.many is not None:
        return way.many()
    assert way.one is not None
    read = way.one()
    return lambda numbers: map(read, numbers)


def all_in_order(way: Way, count: int) -> Iterator[Bytes]:
    """Opens the files; yields all samples in order."""
    if way.all is not None:
        yield from way.all()
        return
    many = batch_reader(way)
    for start in range(0, count, BATCH):
        yield from many(range(start, min(start + BATCH, count)))


def random_warm(way: Way, count: int, samples: int, rng: random.Random) -> dict[str, float]:
    """Measures random samples one at a time, in seconds a sample."""
    assert way.one is not None
    numbers = rng.sample(range(count), min(samples, count))
    warm(way.files)
    read = way.one()

    def hand_over() -> None:
        for number in numbers:
            read(number)

    first = seconds_of(lambda: read_through(map(read, numbers)))
    found = {
        "handed over": seconds_of(hand_over),
        "read through": seconds_of(lambda: read_through(map(read, numbers))),
        "read through, first time": first,
    }
    return {what: seconds / len(numbers) for what, seconds in found.items()}


def random_cold(way: Way, count: int, batches: int, rng: random.Random) -> dict[str, float]:
    """Measures random batches out of the page cache, in seconds a sample."""
    numbers = rng.sample(range(count), min(BATCH * batches, count))
    stayed = cool(way)
    many = batch_reader(way)
    began = time.perf_counter()
    for start in range(0, len(numbers), BATCH):
        read_through(many(numbers[start : start + BATCH]))
    return {"cold": (time.perf_counter() - began) / len(numbers), "cold, stayed": stayed}


def in_order(way: Way, count: int) -> dict[str, float]:
    """Measures all samples in order, first out of the page cache; in seconds a sample."""
    stayed = cool(way)
    cold = seconds_of(lambda: read_through(all_in_order(way, count)))
    gc.collect()
    again = seconds_of(lambda: read_through(all_in_order(way, count)))
    return {"order, cold": cold / count, "order, warm": again / count, "order, stayed": stayed}


def opening(pack: Path) -> dict[str, float]:
    """Measures opening a pack in a fresh process."""
    first, second = open_seconds(pack)
    return {"open, with imports": first, "open": second}


def check_same(ways: Mapping[str, Way], count: int) -> None:
    """Raises SystemExit where a way gives other bytes than the first one."""
    expected = [digest(content) for content in all_in_order(next(iter(ways.values())), count)]
    for name, way in ways.items():
        if [digest(content) for content in all_in_order(way, count)] != expected:
            sys.exit(f"{name} gives other bytes than the files: nothing was measured")


def compared(
    title: str, first: str, measured: Sequence[tuple[str, Measured]], notes: Sequence[str]
) -> Table:
    """Returns a table of what was measured, microseconds a sample and times faster than the first.

    Args:
        title: The table's.
        first: The contestant with which the others are compared.
        measured: Title -> what was measured in seconds.
        notes: The table's.
    """
    columns, rows = [""], [[name] for name in measured[0][1]]
    for what, values in measured:
        columns += [f"{what}, µs", "times faster", "min to max"]
        for row in rows:
            mine = values[row[0]]
            faster = ratios(values[first], mine)
            row += [middle(mine, 1e6), middle(faster), extremes(faster)]
    return Table(title, columns, rows, notes)


def left_in_cache(measured: Measured) -> list[str]:
    """Returns a note for each way whose files could not be taken out of the page cache."""
    return [
        f"{name}: up to {most / 1e6:.1f} MB could not be taken out of the page cache"
        for name, values in measured.items()
        if (most := max(value or 0 for value in values))
    ] or ["checked before each: nothing of what is read was in the page cache"]


def measure(
    photos: Path, work: Path, rounds: int, samples: int, batches: int, command: str
) -> Report:
    """Returns what reading takes.

    Args:
        photos: A folder of images.
        work: Where to make packs of it.
        rounds: How many.
        samples: How many to read a round, warm.
        batches: How many to read a round, cold.
        command: What was run.
    """
    corpus = Corpus(photos, work)
    count, ways = len(corpus.paths), corpus.ways()
    raw = next(iter(ways))
    check_same(ways, count)

    def turns(
        one: Callable[..., dict[str, float]], chosen: Iterable[str], *more: int
    ) -> dict[str, Callable[[], dict[str, float]]]:
        # Each has its own generator of the same seed: all are asked for the same samples.
        return {
            name: partial(one, ways[name], count, *more, random.Random(SEED)) for name in chosen
        }

    singles = [name for name, way in ways.items() if way.one]
    batched = [name for name, way in ways.items() if way.one or way.many]
    found = interleaved(turns(random_warm, singles, samples), rounds)
    found |= interleaved(turns(random_cold, batched, batches), rounds)
    sweeps = {name: partial(in_order, way, count) for name, way in ways.items()}
    openings = {
        f"fastconv, {title}": partial(opening, pack) for title, pack in corpus.packs.items()
    }
    found |= interleaved(sweeps, rounds)
    found |= interleaved(openings, rounds)
    size = sum(corpus.sizes)
    per_round = f"medians of {rounds} rounds; ratios are to {raw} in the same round"
    vlen = ratios(found["handed over"]["h5py, vlen"], found["handed over"]["fastconv, HDF5"])
    kinds = ("handed over", "read through", "read through, first time")
    tables = [
        compared(
            f"Random samples, warm: {count:,} files of {size / count / 1e3:.0f} kB",
            raw,
            [(kind, found[kind]) for kind in kinds],
            [
                per_round,
                f"{min(samples, count):,} samples a round, one at a time",
                "handed over, fastconv's HDF5 is "
                f"{middle(vlen)} times ({extremes(vlen)}) faster than h5py with a vlen dataset",
            ],
        ),
        compared(
            f"Random batches of {BATCH}, cold, read through",
            raw,
            [("each", found["cold"])],
            [per_round, f"{batches} batches a round", *left_in_cache(found["cold, stayed"])],
        ),
        compared(
            "All samples in order, read through, opening counted",
            raw,
            [("cold", found["order, cold"]), ("warm", found["order, warm"])],
            [per_round, *left_in_cache(found["order, stayed"])],
        ),
        Table(
            "Opening, and reading one sample",
            ["", "ms", "min to max", "with imports, ms", "min to max"],
            [
                [
                    name,
                    middle(values, 1e3),
                    extremes(values, 1e3),
                    middle(found["open, with imports"][name], 1e3),
                    extremes(found["open, with imports"][name], 1e3),
                ]
                for name, values in found["open"].items()
            ],
            [
                f"medians of {rounds} fresh processes, warm",
                "the imports are what the format needs; fastconv and PyTorch were imported before",
            ],
        ),
    ]
    return Report("How long does reading take?", command, environment(work), tables, found)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints the report."""
    parser = with_photos(arguments(__doc__, rounds=7))
    parser.add_argument("--samples", type=int, default=4000, help="a round, warm (%(default)s)")
    parser.add_argument("--batches", type=int, default=30, help="a round, cold (%(default)s)")
    args = parsed(parser, argv)
    command = command_line(sys.argv)
    report = measure(args.photos, args.work, args.rounds, args.samples, args.batches, command)
    finish(report, args)


if __name__ == "__main__":
    main()
