"""The charts of the report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastconv.loaders.measure import charts
from fastconv.loaders.measure.cases import Spread, spread
from fastconv.loaders.measure.charts import Bar, Dot, Line, figure, range_of

SVG = "{http://www.w3.org/2000/svg}"
NAN = float("nan")

numbers = st.floats(1e-9, 1e12) | st.sampled_from([0.0, math.inf, NAN])
spreads = (
    st.lists(numbers, min_size=3, max_size=3)
    .map(sorted)
    .map(lambda values: Spread(values[1], values[0], values[2]))
)
names = st.text(st.sampled_from("aWi/. <&\"'\u00e9\u5199\u05e9\U0001f4f7"), max_size=80)
series = st.lists(
    st.builds(Line, names, st.integers(0, 20), st.lists(st.tuples(st.just(1.0), spreads))),
    max_size=12,
)
dots = st.builds(Dot, names, st.integers(0, 20), spreads)


def parse(svg: str) -> ElementTree.Element:
    """Returns a chart, which is well-formed XML too."""
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))


def texts(svg: str) -> list[str]:
    """Returns the words of a chart."""
    return [
        (text.text or "") + "".join((part.text or "") + (part.tail or "") for part in text)
        for text in parse(svg).iter(f"{SVG}text")
    ]


def sound(svg: str) -> bool:
    """Returns whether a chart says what it is, and everything of it stands somewhere inside."""
    tree = parse(svg)
    assert tree.get("role") == "img"
    assert [child.tag for child in tree][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert tree[0].text is not None
    height = float((tree.get("viewBox") or "").split()[3])
    for text in tree.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x") or 0) <= 340
        assert 0 <= float(text.get("y") or 0) <= height
    for path in tree.iter(f"{SVG}path"):
        place = path.get("d") or ""
        assert re.fullmatch(r"[-MLHVAZvh0-9. ]+", place)
    return True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1.00"), (9.996, "10.0"), (12.34, "12.3"), (123.4, "123"), (999.6, "1,000"),
        (12345, "12,300"), (0.04567, "0.0457"), (0.000123456, "0.000123"), (1e-9, "1.00e\u221209"),
        (-1.5, "\u22121.50"), (NAN, "\u2013"), (math.inf, "\u2013"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_extremes_are_one_text() -> None:
    assert range_of(Spread(2, 1, 3.14159)) == "1.00 to 3.14"


@given(series)
def test_any_lines_can_be_drawn(drawn: list[Line]) -> None:
    top = charts.nice_top(s.high for line in drawn for _, s in line.points)
    assert sound(charts.lines("t", drawn, x_name="x", y_name="y", top=top, left=0, right=2))
    assert sound(charts.curves("t", drawn, x_name="x", y_name="y", top=top, right=2))


@given(st.lists(st.tuples(names, st.lists(dots, max_size=4)), max_size=5))
def test_any_dots_can_be_drawn(groups: list[tuple[str, list[Dot]]]) -> None:
    assert sound(charts.dots("t", groups, name="n"))
    assert sound(charts.dots("t", groups, name="n", reference=1.0))


@given(st.lists(st.builds(Bar, names, st.integers(0, 9), spreads, st.none() | st.floats(0, 1e12))))
def test_any_bars_can_be_drawn(rows: list[Bar]) -> None:
    assert sound(charts.bars("t", rows, name="n"))


def test_lines_have_axes_whiskers_and_labels() -> None:
    drawn = [
        Line("raw", 0, [(0, Spread(10, 9, 11)), (2, Spread(20, 18, 22))]),
        Line("pack", 1, [(0, Spread(30, 29, 31)), (2, Spread(61, 58, 90))]),
    ]
    svg = charts.lines(
        "Speed", drawn, x_name="workers", y_name="images/s", top=100, left=0, right=2
    )
    assert {"0", "2", "20", "100", "workers", "images/s", "raw", "pack"} <= set(texts(svg))
    assert svg.count('class="whisker') == 4
    assert "pack, 2 workers: 61.0 (58.0 to 90.0) images/s" in svg
    assert parse(svg)[1].text == (
        "images/s against workers. raw: 10.0 with 0 workers, 20.0 with 2 workers; "
        "pack: 30.0 with 0 workers, 61.0 with 2 workers"
    )


def test_no_two_series_look_alike_without_colour() -> None:
    looks = set()
    for style in range(7):
        svg = charts.lines(
            "", [Line("", style, [(0, Spread(1, 1, 1))])],
            x_name="", y_name="", top=1, left=0, right=1,
        )  # fmt: skip
        (mark, *_) = re.findall(r'class="mark[^>]*d="([^"]*)"', svg)
        (dash,) = re.findall(r'class="line [^"]*"( stroke-dasharray="[^"]*")?', svg)
        looks |= {(mark, dash)}
    assert len({mark for mark, _ in looks}) == len({dash for _, dash in looks}) == 7


def test_only_the_first_series_has_its_colour() -> None:
    colours = [re.findall(r"s\d", charts.swatch(style))[-1] for style in range(12)]
    assert colours.count("s0") == 1
    assert set(colours) == {f"s{n}" for n in range(charts.COLOURS)}


def test_labels_of_lines_that_end_together_stand_apart() -> None:
    drawn = [Line(f"pack{n}", n, [(0, Spread(5, 5, 5))]) for n in range(12)]
    svg = charts.lines("", drawn, x_name="", y_name="", top=5, left=0, right=0)
    found = [
        float(text.get("y") or 0)
        for text in parse(svg).iter(f"{SVG}text")
        if (text.text or "").startswith("pack")
    ]
    assert len(found) == 12
    assert all(b - a >= 14.9 for a, b in pairwise(found))


def test_ratios_have_a_line_at_one_and_both_directions_weigh_alike() -> None:
    groups = [("", [Dot("half", 1, Spread(0.5, 0.5, 0.5)), Dot("double", 2, Spread(2, 2, 2))])]
    svg = charts.dots("", groups, name="times", reference=1.0)
    (one,) = re.findall(r'class="one" d="M([\d.]+)', svg)
    half, double = (float(x) for x in re.findall(r"translate\(([\d.]+) ", svg) if float(x) > 10)
    assert float(one) - half == pytest.approx(double - float(one), abs=0.2)
    assert {"0.5", "1", "2"} <= set(texts(svg))


@pytest.mark.parametrize(
    ("low", "high"), [(0.97, 1.03), (0.8, 1.4), (1, 3), (1, 80), (0.01, 4000), (1, 1e7)]
)
def test_axes_of_ratios_have_few_round_ticks(low: float, high: float) -> None:
    groups = [("", [Dot("", 1, Spread(low, low, high))])]
    svg = charts.dots("", groups, name="times", reference=1.0)
    ticks = re.findall(r'class="soft mid"[^>]*>([^<]*)<', svg)
    assert "1" in ticks
    assert 2 <= len(ticks) <= 6
    assert all(len(tick.strip("0.,")) <= 2 or tick[0] != "0" for tick in ticks)


def test_a_bar_shows_its_part_and_never_more_than_itself() -> None:
    rows = [Bar("a", 1, Spread(4, 3, 5), 1.0), Bar("b", 1, Spread(4, 3, 5), 9.0)]
    svg = charts.bars("", rows, name="ms", top=8)
    ends = [float(x) for x in re.findall(r'class="part[^"]*" d="M1 [\d.]+H([\d.]+)', svg)]
    whole, part, same, all_of_it = ends
    assert part == pytest.approx(1 + (whole - 1) / 4, abs=0.1)
    assert same == all_of_it == whole
    assert svg.count('class="error"') == 2


def test_values_that_are_no_numbers_are_not_drawn() -> None:
    svg = charts.dots("", [("group", [Dot("a", 1, Spread(NAN, NAN, NAN))])], name="times")
    assert "group" not in texts(svg)
    svg = charts.bars("", [Bar("a", 1, Spread(math.inf, 1, math.inf))], name="ms")
    assert "a" not in texts(svg)


@pytest.mark.parametrize("draw", [charts.swatch, lambda style: charts.key("<a>", "&b")])
def test_small_pictures_are_hidden_from_screen_readers(draw: Callable[[int], str]) -> None:
    html = draw(1)
    assert html.count("<svg ") == html.count('aria-hidden="true"')
    assert "<a>" not in html


def test_long_names_keep_their_end_and_are_there_in_full() -> None:
    name = "/mnt/" + "deep/" * 40 + "<out>.lmdb"
    svg = charts.dots("", [("", [Dot(name, 1, Spread(1, 1, 1))])], name="n")
    (shown,) = [text for text in texts(svg) if text.endswith("<out>.lmdb")]
    assert shown.startswith(name + "\u2026")
    assert len(shown) < len(name) + 20


def test_no_values_are_no_axis() -> None:
    assert charts.nice_top([]) == charts.nice_top([0.0, NAN]) == 1.0
    assert charts.nice_top([3.0, math.inf]) == pytest.approx(3.12)
    assert spread([]) is None


def test_columns_are_those_from_the_first_full_bin_to_the_last() -> None:
    svg = charts.columns(
        "<sizes>", [0, 3, 0, 6, 0], [0, 1 / 3, 1, 1000, 2e7], x_name="width", y_name="images"
    )
    assert sound(svg)
    tops = [
        float(found[1])
        for path in parse(svg).iter(f"{SVG}path")
        if "part" in (path.get("class") or "")
        and (found := re.search(r"V([0-9.]+)h", path.get("d") or ""))
    ]
    floor = 150.0
    assert [round((floor - top) / (floor - tops[2]), 2) for top in tops] == [0.5, 0, 1]
    description = parse(svg)[1].text or ""
    assert "0.3333 to 1: 3; 1 to 1,000: 0; 1,000 to 20,000,000: 6" in description
    assert "0.3333" in texts(svg)
    last = charts.columns("one", [0, 2], [0, 5], x_name="x", y_name="n")
    assert sound(last)
    assert "5 or more: 2" in (parse(last)[1].text or "")
    assert sound(charts.columns("none", [0, 0], [0, 5], x_name="x", y_name="n"))
