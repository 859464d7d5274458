"""What is measured, as data: the plan of cases, and ratios within rounds."""

from __future__ import annotations

import json

from fastconv.loaders.measure.cases import (
    Case,
    Findings,
    Row,
    Settings,
    Source,
    Spread,
    plan_cases,
    spread,
)


def source(name: str, format: str = "folder") -> Source:
    return Source(name, f"/{name}", format, format, 100, 5_000_000, 100)


def findings(raw: list[float], packed: list[float], measure: str = "images_per_s") -> Findings:
    case = Case("load", way="pillow", workers=2)
    rows = [Row("packed", case, {measure: packed}), Row("raw", case, {measure: raw})]
    sources = [source("packed", "lmdb"), source("raw")]
    return Findings("fastconv bench", {}, Settings(), sources, rows=rows)


def test_every_case_is_planned_once() -> None:
    cases = plan_cases(Settings(workers=(0, 2, 4)))
    assert len(cases) == len(set(cases))
    loads = [case for case in cases if case.stage == "load" and case.cache == "warm"]
    assert len(loads) == 3 + 3 + 2  # FastLoader has no way without threads
    assert not [case for case in cases if case.stage == "copy"]
    cuda = plan_cases(Settings(device="cuda"))
    assert [case.pinned for case in cuda if case.stage == "copy"] == [False, True]


def test_only_the_cache_that_was_asked_for() -> None:
    for cache in ("warm", "cold"):
        cases = plan_cases(Settings(caches=(cache,)))
        assert {case.cache for case in cases if case.stage in ("open", "read", "load")} == {cache}


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([]) is None


def test_ratios_are_taken_within_a_round() -> None:
    found = findings([100, 200, 400], [110, 400, 400])
    assert found.baseline.name == "raw"
    ratio = found.ratio(found.rows[0], "images_per_s")
    assert ratio == Spread(110 / 100, 1.0, 2.0)


def test_small_times_are_good_ones() -> None:
    found = findings([2.0], [1.0], "seconds")
    assert found.ratio(found.rows[0], "seconds", less_is_more=True) == Spread(2.0, 2.0, 2.0)


def test_json_has_values_spreads_and_ratios() -> None:
    found = json.loads(json.dumps(findings([100, 200], [150, 300]).to_json()))["bench"]
    assert found["baseline"] == "raw"
    row = found["rows"][0]
    assert (row["source"], row["stage"], row["workers"]) == ("packed", "load", 2)
    measure = row["measures"]["images_per_s"]
    assert measure["values"] == [150, 300]
    assert (measure["median"], measure["low"], measure["high"]) == (225, 150, 300)
    assert measure["times_baseline"] == {"median": 1.5, "low": 1.5, "high": 1.5}
