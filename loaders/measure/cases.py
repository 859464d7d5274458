"""What a benchmark measures, as plain data: the sources, the cases, and what was found of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

__all__ = [
    "STAGES",
    "WAYS",
    "Cache",
    "Case",
    "Findings",
    "Latency",
    "Order",
    "Row",
    "Series",
    "Settings",
    "Source",
    "Spread",
    "Stage",
    "Step",
    "Values",
    "Way",
    "plan_cases",
    "spread",
]

Stage = Literal["open", "read", "decode", "load", "memory", "copy"]
Order = Literal["sequential", "random"]
Cache = Literal["warm", "cold"]
Way = Literal["pillow", "dataloader", "fastloader", "nvjpeg"]

STAGES: dict[Stage, str] = {
    "open": "listing and opening",
    "read": "reading the bytes",
    "decode": "reading and decoding, one thread",
    "load": "loading batches",
    "memory": "memory while a whole epoch's bytes are loaded",
    "copy": "copying a batch to the device",
}
"""Every stage that is measured, with what it is called for people."""

WAYS: dict[Way, str] = {
    "pillow": "DataLoader, Pillow",
    "dataloader": "DataLoader, fused decoder",
    "fastloader": "FastLoader",
    "nvjpeg": "FastLoader, decoded on the GPU",
}
"""Every way to load, with what it is called for people."""


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a simulated file system waits.

    Attributes:
        open: Seconds for each file that is opened.
        read: Seconds for each request to read; requests made together wait together.
    """

    open: float = 0.0
    read: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """What stands in for the training step.

    Attributes:
        kind: "none"; "sleep", which keeps no core busy, as a step on a GPU; or "conv", a small
            convolutional network on the device.
        seconds: How long "sleep" takes.
    """

    kind: Literal["none", "sleep", "conv"] = "none"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How everything is measured.

    Attributes:
        batch_size: Samples of a batch.
        workers: Numbers of workers to load with.
        size: Rows and columns of a decoded picture: RandomResizedCrop(size) and a flip.
        device: Where batches go, as torch names it.
        step: What stands in for the training step.
        rounds: How often everything is measured.
        seconds: How long each measurement takes at least, without warm-up.
        caches: States of the page cache to measure.
        latency: Of a simulated file system; None: the real one.
        ways: How to load.
        orders: Of the samples, when their bytes are read.
    """

    batch_size: int = 64
    workers: tuple[int, ...] = (0, 2)
    size: int = 224
    device: str = "cpu"
    step: Step = Step()
    rounds: int = 3
    seconds: float = 1.0
    caches: tuple[Cache, ...] = ("warm", "cold")
    latency: Latency | None = None
    ways: tuple[Way, ...] = get_args(Way)
    orders: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of images, or a pack.

    Attributes:
        name: What it is called in tables: its path as it was given.
        path: Where it lies, absolute.
        format: Name of its format; "folder" for a folder of images.
        title: The format as people write it.
        samples: How many it has.
        bytes: Of its images.
        files: How many files they are in.
        id: The pack's id, "" for a folder.
        warnings: What was found when it was opened.
        encoded: Whether its images were encoded anew: it has other ones than the folder.
    """

    name: str
    path: str
    format: str
    title: str
    samples: int
    bytes: int
    files: int
    id: str = ""
    warnings: tuple[str, ...] = ()
    encoded: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether it is a folder of image files: what packs are compared with."""
        return self.format == "folder"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured of every source.

    Attributes:
        stage: What is measured.
        order: Of the samples.
        cache: State of the page cache at its begin.
        way: How to load, or to decode; "" where there is but one.
        workers: Processes or threads; 0: the training loop's own.
        pinned: Whether batches are in pinned memory; None: as `make_loader` recommends.
        prefetch: Batches that are made ahead, by each worker process.
    """

    stage: Stage
    order: Order = "random"
    cache: Cache = "warm"
    way: Way | Literal[""] = ""
    workers: int = 0
    pinned: bool | None = None
    prefetch: int = 2

    @property
    def threads(self) -> bool:
        """Whether threads of one process load, and not worker processes."""
        return self.way in ("fastloader", "nvjpeg")

    @property
    def way_words(self) -> str:
        """How it loads or decodes, "" where there is but one way."""
        if self.stage == "load":
            return WAYS[self.way or "pillow"]
        if self.stage == "decode":
            return "Pillow" if self.way == "pillow" else "fused decoder"
        return ""

    @property
    def workers_words(self) -> str:
        """How many work, and as what."""
        unit = "thread" if self.threads else "worker"
        return f"{self.workers} {unit}{'' if self.workers == 1 else 's'}"

    def __str__(self) -> str:
        words = [STAGES[self.stage], *filter(None, [self.way_words])]
        if self.stage in ("load", "memory"):
            words.append(self.workers_words)
        if self.stage == "read":
            words.append(self.order)
        if self.stage == "copy":
            words.append("pinned" if self.pinned else "not pinned")
        return ", ".join([*words, f"{self.cache} cache"])


Values = dict[str, float]
"""Measure -> value, of one case in one round."""

Series = dict[str, list[tuple[float, float]]]
"""Measure -> (seconds, value), of one case in one round."""


@dataclass(slots=True)
class Row:
    """What was found of one case of one source.

    Attributes:
        source: Its name.
        case: What was measured.
        values: Measure -> its value in each round that went well.
        series: Measure -> (seconds, value) of things that change while they are measured, of the
            last round.
        left_out: Why there are no values, "" where there are.
        failed: Whether it should have been possible to measure it.
    """

    source: str
    case: Case
    values: dict[str, list[float]] = field(default_factory=dict)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    left_out: str = ""
    failed: bool = False

    def spread(self, measure: str) -> Spread | None:
        """Returns the median and the extremes of a measure, None where there are no values."""
        return spread(self.values.get(measure, ()))


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of some rounds."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """Returns the median and the extremes of some values, None where there are none."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


@dataclass(slots=True)
class Findings:
    """All that one run of the benchmark found.

    Attributes:
        command: What was run.
        environment: Of the machine: name -> value.
        settings: How it was measured.
        sources: What was measured; the first raw folder, or else the first, is what the others are
            compared with.
        memory: Bytes of the machine's memory that may be used, 0 where that is not known.
        rows: What was found.
        notes: What one must know to read it: states of caches, what is simulated.
        left_out: What could not be measured, and why.
        warnings: What is probably not meant so.
        verdict: What it all means, in words.
    """

    command: str
    environment: Mapping[str, str]
    settings: Settings
    sources: Sequence[Source]
    memory: int = 0
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)

    @property
    def baseline(self) -> Source:
        """What the others are compared with."""
        return next((source for source in self.sources if source.is_raw), self.sources[0])

    def row(self, source: str, case: Case) -> Row | None:
        """Returns what was found of a case, None where it was not measured."""
        return next((r for r in self.rows if r.source == source and r.case == case), None)

    def cases(self) -> list[Case]:
        """Returns the cases in the order of their first row."""
        return list(dict.fromkeys(row.case for row in self.rows))

    def ratio(self, row: Row, measure: str, *, less_is_more: bool = False) -> Spread | None:
        """Returns how many times better than the baseline a row is, round by round.

        Args:
            row: What is compared with the same case of the baseline.
            measure: Which of its measures.
            less_is_more: Whether small values are good ones.
        """
        base = self.row(self.baseline.name, row.case)
        return None if base is None else times(row, base, measure, less_is_more=less_is_more)

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON takes it, with medians and ratios."""
        rows = []
        for row in self.rows:
            entry: dict[str, Any] = {"source": row.source, **asdict(row.case)}
            entry["measures"] = {}
            for measure, values in row.values.items():
                found = {"values": values, **asdict(spread(values) or Spread(0, 0, 0))}
                less = measure in LESS_IS_MORE
                if ratio := self.ratio(row, measure, less_is_more=less):
                    found["times_baseline"] = asdict(ratio)
                entry["measures"][measure] = found
            if row.series:
                entry["series"] = row.series
            if row.left_out:
                entry["left_out"] = row.left_out
            rows.append(entry)
        return {
            "bench": {
                "command": self.command,
                "environment": dict(self.environment),
                "settings": asdict(self.settings),
                "baseline": self.baseline.name,
                "sources": [asdict(source) for source in self.sources],
                "rows": rows,
                "notes": self.notes,
                "left_out": self.left_out,
                "verdict": self.verdict,
            }
        }


LESS_IS_MORE = frozenset(
    {"seconds", "us_per_sample", "cpu_ms_per_image", "first_batch_s", "wait_share", "pss_main",
     "pss_workers", "own_workers", "growth", "pickled_bytes", "gpu_wait_share"}
)  # fmt: skip
"""Measures whose small values are the good ones."""


def times(row: Row, base: Row, measure: str, *, less_is_more: bool = False) -> Spread | None:
    """Returns how many times better one row is than another, round by round."""
    pairs = list(zip(row.values.get(measure, ()), base.values.get(measure, ()), strict=False))
    if less_is_more:
        return spread([b / a for a, b in pairs if a])
    return spread([a / b for a, b in pairs if b])


def plan_cases(settings: Settings) -> list[Case]:
    """Returns the cases to measure, those of each stage together."""
    return list(_cases(settings))


def _cases(settings: Settings) -> Iterator[Case]:
    most = max(settings.workers)
    on_gpu = settings.device.startswith("cuda")
    ways = [way for way in settings.ways if way != "nvjpeg" or on_gpu]
    for cache in settings.caches:
        yield Case("open", cache=cache)
    for cache in settings.caches:
        for order in settings.orders:
            yield Case("read", order, cache)
    if "warm" in settings.caches:
        yield Case("decode", way="pillow")
        yield Case("decode", way="fastloader")
        for way in ways:
            for workers in settings.workers:
                case = Case("load", way=way, workers=workers)
                if workers or not case.threads:
                    yield case
    if "cold" in settings.caches:
        for way in ways:
            case = Case("load", cache="cold", way=way, workers=most)
            if most or not case.threads:
                yield case
    yield Case("memory", way="dataloader", workers=most)
    if on_gpu:
        for pinned in (False, True):
            yield Case("copy", pinned=pinned)
