"""What a benchmark's findings mean, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fastconv.loaders.measure.cases import (
    WAYS,
    Cache,
    Case,
    Findings,
    Row,
    Source,
    Spread,
    Way,
    times,
)
from fastconv.loaders.measure.numbers import figure

__all__ = ["verdict"]

FED = 0.05
"""A training loop that waits for data for a smaller share of its time than this is fed."""

DECODED: tuple[Way, Way] = ("pillow", "fastloader")
"""How decoding is measured: by Pillow, and by the fused decoder."""

WORTH = 1.1
"""Gains below this are not worth a conversion."""


def verdict(findings: Findings) -> list[str]:
    """Returns what bounds the run, what would change it and by how much, a sentence or two each."""
    return list(_verdict(findings))


def _verdict(findings: Findings) -> Iterator[str]:
    base = findings.baseline
    packs = [source for source in findings.sources if not source.is_raw]
    today = best(findings, base, _first_way(findings))
    if today is None:
        return
    yield bound(findings, base, today)
    if packs:
        gains = [
            gain for pack in packs if (gain := packing_alone(findings, base, pack)) is not None
        ]
        yield from alone(findings, gains)
    yield from better_ways(findings, base, today)
    if packs:
        yield from elsewhere(findings, packs)
        if base.is_raw:  # else nothing tells what packing gains
            yield worth(findings, packs, today)


def _first_way(findings: Findings) -> Way:
    return findings.settings.ways[0]


def best(findings: Findings, source: Source, way: Way) -> Row | None:
    """Returns the number of workers that loads fastest, None where nothing was measured."""
    cache = state(findings)
    rows = [
        row
        for row in findings.rows
        if row.values and (row.source, row.case.stage) == (source.name, "load")
        if (row.case.way, row.case.cache) == (way, cache)
    ]
    return max(rows, key=lambda row: _median(row, "images_per_s"), default=None)


def state(findings: Findings) -> Cache:
    """Returns the state of the page cache that counts: warm, where the data fit into memory."""
    too_large = findings.memory and findings.baseline.bytes > findings.memory
    caches = findings.settings.caches
    return "cold" if "cold" in caches and (too_large or "warm" not in caches) else "warm"


def _median(row: Row | None, measure: str) -> float:
    found = row.spread(measure) if row is not None else None
    return found.median if found is not None else 0.0


def costs(findings: Findings, source: Source) -> tuple[float, float, float]:
    """Returns the milliseconds that one thread takes for a sample: to read it at random, to decode
    it with Pillow after that, and with the fused decoder; 0 where that was not measured."""

    def found(case: Case, measure: str) -> float:
        return _median(findings.row(source.name, case), measure)

    warm = found(Case("read"), "us_per_sample") / 1e3
    rates = [found(Case("decode", way=way), "images_per_s") for way in DECODED]
    pillow, fused = (max(1e3 / rate - warm, 0.0) if rate else 0.0 for rate in rates)
    return found(Case("read", cache=state(findings)), "us_per_sample") / 1e3, pillow, fused


def bound(findings: Findings, base: Source, today: Row) -> str:
    """Returns which stage bounds the run as it is today."""
    waits = _median(today, "wait_share")
    speed = f"{_median(today, 'images_per_s'):,.0f} images/s"
    how = f"{base.name} with {WAYS[today.case.way or 'pillow']}, {today.case.workers_words}"
    if findings.settings.step.kind != "none" and waits < FED:
        return (
            f"The training step bounds this run: {how}, gives {speed}, and the step waits for data "
            f"{waits:.0%} of its time. A faster loader cannot make it faster, only cheaper."
        )
    read, pillow, fused = costs(findings, base)
    decode = fused if today.case.way != "pillow" else pillow
    if not read or not decode:
        return f"{how}, gives {speed}."
    share = decode / (read + decode)
    what = "Decoding" if share >= 0.5 else "Reading"
    cold = " from a cold page cache" if state(findings) == "cold" else ""
    waiting = f"; the step waits for data {waits:.0%} of its time" if waits < 0.95 else ""
    return (
        f"{what} bounds this run: of the {read + decode:.2f} ms that one thread takes for one "
        f"image, {share:.0%} is decoding and {1 - share:.0%} reading{cold}. {how}, gives "
        f"{speed}{waiting}."
    )


def packing_alone(findings: Findings, base: Source, pack: Source) -> tuple[Source, Spread] | None:
    """Returns what a pack gains where nothing else is changed."""
    way = _first_way(findings)
    before, after = best(findings, base, way), best(findings, pack, way)
    if before is None or after is None:
        return None
    found = times(after, before, "images_per_s")
    return None if found is None else (pack, found)


def alone(findings: Findings, gains: list[tuple[Source, Spread]]) -> Iterator[str]:
    """Yields what packing gains where nothing else is changed, as measured and at most."""
    if not findings.baseline.is_raw:
        return
    for pack, gain in gains:
        if pack.encoded:
            yield (
                f"The images of {pack.name} were encoded anew, which has its share in the "
                f"{ratio(gain)} that it gives with everything else as before."
            )
    gains = [found for found in gains if not found[0].encoded]
    if not gains:
        return
    pack, gain = max(gains, key=lambda found: found[1].median)
    read, pillow, _ = costs(findings, findings.baseline)
    words = f"Packing alone, with everything else as before, gives {ratio(gain)} here ({pack.name})"
    if pillow:
        most = (read + pillow) / pillow
        words += f"; even reading that cost nothing would give {most:.2f}x"
        if gain.median > most * WORTH:
            words += ": the rest is chance, or something disturbed the machine"
    yield f"{words}."


def better_ways(findings: Findings, base: Source, today: Row) -> Iterator[str]:
    """Yields what the other ways to load gain, from the best source of each."""
    for way in findings.settings.ways[1:]:
        rows = [row for source in findings.sources if (row := best(findings, source, way))]
        if not rows:
            continue
        row = max(rows, key=lambda row: _median(row, "images_per_s"))
        gain = times(row, today, "images_per_s")
        cpu = times(row, today, "cpu_ms_per_image", less_is_more=True)
        if gain is None or gain.median < WORTH:
            continue
        words = (
            f"{WAYS[way]} with {row.source}, {row.case.workers_words}, gives "
            f"{_median(row, 'images_per_s'):,.0f} images/s: {ratio(gain)}"
        )
        if cpu is not None and cpu.median:  # it is counted in ticks: of a short run it may be 0
            words += f", for {1 / cpu.median:.2f} of the processor time"
        raw = best(findings, base, way) if row.source != base.name else None
        raw_gain = times(raw, today, "images_per_s") if raw is not None else None
        if raw_gain is not None:
            words += f". {WAYS[way]} with {base.name} gives {ratio(raw_gain)}"
        yield f"{words}."


def elsewhere(findings: Findings, packs: list[Source]) -> Iterator[str]:
    """Yields what packing gains or loses beside the speed of loading: cold reads, and opening."""
    pack_names = {pack.name for pack in packs}
    for case, measure, words in (
        (
            Case("read", "random", "cold"),
            "us_per_sample",
            "Random batches from a cold page cache take",
        ),
        (Case("open", cache="cold"), "seconds", "Opening, with cold caches, takes"),
        (Case("open"), "seconds", "Opening, with warm caches, takes"),
    ):
        rows = [row for row in findings.rows if row.case == case and row.source in pack_names]
        found = [
            (row, gain)
            for row in rows
            if (gain := findings.ratio(row, measure, less_is_more=True)) is not None
        ]
        if not found:
            continue
        row, gain = max(found, key=lambda one: one[1].median)
        base = findings.row(findings.baseline.name, case)
        unit, scale = ("ms", 1e3) if measure == "seconds" else ("ms a sample", 1e-3)
        if not 1 / WORTH < gain.median < WORTH:  # a loss is said as well
            yield (
                f"{words} {figure(_median(row, measure) * scale)} {unit} from {row.source} "
                f"and {figure(_median(base, measure) * scale)} from {findings.baseline.name}: "
                f"{ratio(gain)}."
            )


def worth(findings: Findings, packs: list[Source], today: Row) -> str:
    """Returns whether packing is worth it, and what else would help."""
    step = findings.settings.step
    if step.kind != "none" and _median(today, "wait_share") < FED:
        return (
            "Packing is not worth it for the speed of this run: its data were always there in "
            "time. It still pays where many small files are a burden: on network file systems, "
            "for copies and quotas, and where the data do not fit into memory."
        )
    alone = [packing_alone(findings, findings.baseline, pack) for pack in packs]
    read, pillow, _ = costs(findings, findings.baseline)
    most = (read + pillow) / pillow if pillow else math.inf
    gains = [min(found[1].median, most) for found in alone if found is not None]
    cold = [
        gain.median
        for row in findings.rows
        if row.case == Case("read", "random", "cold") and row.source != findings.baseline.name
        if (gain := findings.ratio(row, "us_per_sample", less_is_more=True))
    ]
    if max(gains, default=0.0) >= WORTH:
        return "Packing is worth it here: it makes the run faster with nothing else changed."
    if max(cold, default=0.0) >= WORTH:
        return (
            "While the data fit into memory, packing is not what makes this run faster: change the "
            "loader, or decode less (smaller images). Where they do not fit, it is worth it."
        )
    return (
        "Packing is not what makes this run faster: change the loader, or decode less (smaller "
        "images)."
    )


def ratio(found: Spread) -> str:
    """Returns how many times, with its spread."""
    return f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"
