"""The search for settings: what is tried, what is chosen, and how sure that is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastconv.loaders import FastLoader, RandomResizedCrop, make_loader, open_dataset
from fastconv.loaders.errors import FastconvError
from fastconv.loaders.measure.cases import Case, Row, Settings, Step, Way
from fastconv.loaders.measure.tune import candidates, choose, explained, ladder, loader_line, tune


def row(way: Way, workers: int, *rates: float, wait: float = 0.9) -> Row:
    values = {"images_per_s": list(rates), "wait_share": [wait] * len(rates)}
    return Row("pack", Case("load", way=way, workers=workers), values if rates else {})


@pytest.mark.parametrize("cores", [1, 2, 4, 7, 64, 128])
def test_the_ladder_has_the_cores_and_ends(cores: int) -> None:
    steps = ladder(cores)
    assert {1, cores, cores + 1} <= set(steps)
    assert steps == sorted(set(steps))
    assert len(steps) < 16
    cases = candidates(cores, cuda=False)
    assert len(cases) == len(set(cases)) == 2 * len(steps) + 1
    assert cases[0].workers == cores
    assert all(case.pinned for case in candidates(cores, cuda=True))


def test_the_fastest_is_chosen_and_the_cheaper_of_two_that_are_as_fast() -> None:
    rows = [row("dataloader", 4, 980), row("fastloader", 2, 990), row("fastloader", 4, 1000)]
    assert choose(rows, Settings()) is rows[1]
    rows[1].values["images_per_s"] = [900]
    assert choose(rows, Settings()) is rows[2]


def test_turns_are_compared_one_by_one() -> None:
    """Both were slow in one turn and fast in the next: in each the cheaper one was as fast."""
    cheap, dear = (
        row("fastloader", 2, 700, 500, 980, 495),
        row("fastloader", 3, 1000, 510, 1000, 500),
    )
    assert choose([cheap, dear], Settings()) is cheap
    dear.values["images_per_s"] = [1000, 600, 1200, 600]
    assert choose([cheap, dear], Settings()) is dear


def test_the_cheapest_that_feeds_the_step_is_chosen() -> None:
    settings = Settings(step=Step("sleep", 0.02))
    rows = [
        row("fastloader", 1, 500, wait=0.3),
        row("fastloader", 2, 990, wait=0.01),
        row("fastloader", 4, 1000, wait=0.0),
    ]
    assert choose(rows, settings) is rows[1]
    assert choose(rows, Settings()) is rows[1]  # as fast as can be told


def test_nothing_measured_is_an_error_that_says_why() -> None:
    failed = row("fastloader", 1)
    failed.left_out = "no such thing"
    with pytest.raises(FastconvError, match="no such thing"):
        choose([failed], Settings())


@pytest.mark.parametrize(
    ("mine", "its", "word"),
    [
        ((1000, 1010), (800, 810), "Sure"),
        ((1000, 1010), (870, 1005), "Fairly sure"),
        ((1000, 1010), (990, 1000), "Not sure"),
        ((1000,), (800,), "measured once"),
    ],
)
def test_it_is_said_how_sure_that_is(
    mine: tuple[float, ...], its: tuple[float, ...], word: str
) -> None:
    rows = [row("fastloader", 2, *mine), row("fastloader", 4, *its)]
    assert any(word in line for line in explained(rows, rows[0], Settings()))


def test_the_line_it_prints_makes_a_loader(one_pack: Path) -> None:
    settings = Settings(batch_size=4, size=32)
    found = tune(str(one_pack), settings, budget=1.0)
    names = {
        "make_loader": make_loader,
        "open_dataset": open_dataset,
        "RandomResizedCrop": RandomResizedCrop,
    }
    exec(found.line, names)
    loader = names["loader"]
    assert len(loader) == 6  # type: ignore[arg-type]
    assert isinstance(loader, FastLoader) == (found.chosen.way == "fastloader")
    content = found.to_json()["tune"]
    assert content["chosen"]["batch_size"] == 4
    assert content["line"] == found.line
    assert any("images_per_s" in one for one in content["measured"])


def test_it_stops_when_the_step_is_fed(one_pack: Path) -> None:
    settings = Settings(batch_size=4, size=32, step=Step("sleep", 0.05))
    found = tune(str(one_pack), settings, budget=10.0)
    if found.fed:  # a busy machine may not feed it
        measured = [one for one in found.rows if one.values]
        assert len(measured) < len(found.rows)
        assert any("fewer workers are enough" in line for line in found.left_out)


def test_a_memory_limit_leaves_workers_out(one_pack: Path) -> None:
    settings = Settings(batch_size=4, size=32)
    found = tune(str(one_pack), settings, budget=3.0, memory_limit=1_000_000)
    assert any("of memory, more than 1" in line for line in found.left_out)
    assert found.chosen.way == "fastloader" or found.chosen.workers == 0
    with pytest.raises(FastconvError, match="of memory, more than"):
        tune(str(one_pack), settings, budget=3.0, memory_limit=1000)


def test_the_line_names_the_path_as_it_is() -> None:
    name = "a\nb'\udcff"
    line = loader_line(name, Settings(), Case("load", way="fastloader", workers=2))
    opened: list[str] = []
    names = {
        "make_loader": lambda *args, **more: None,
        "open_dataset": lambda path, **more: opened.append(path),
        "RandomResizedCrop": lambda *args, **more: None,
    }
    exec(line, names)
    assert opened == [name]
