"""The report as a page."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from fastconv.loaders.measure.cases import (
    Case,
    Findings,
    Latency,
    Row,
    Settings,
    Source,
    Step,
)
from fastconv.loaders.measure.page import render_page

VOID = {"meta", "link", "br"}
HOSTILE = "\udce9\x00\n\u202e<script src=//a.invalid/x>alert(1)</script>\"'&amp;\\.lmdb"


def found() -> Findings:
    """Returns findings of a folder and two packs, small enough to know by heart."""
    sources = [
        Source("raw", "/data/raw", "folder", "folder of images", 1200, 150_000_000, 1200),
        Source("out.lmdb", "/data/out.lmdb", "lmdb", "LMDB", 1200, 150_000_000, 1),
        Source("out.h5", "/data/out.h5", "hdf5", "HDF5", 1200, 150_000_000, 1),
    ]
    settings = Settings(rounds=3, workers=(2, 0), ways=("pillow",))
    findings = Findings(
        "fastconv bench raw out.lmdb out.h5",
        {"processor": "Made-up 3000"},
        settings,
        sources,
        notes=["warm: read before"],
        left_out=["the device: none is here"],
        warnings=["2 workers are more than the 1 core"],
        verdict=["Decoding bounds this run.", "Packing gives 1.03 times (1.01 to 1.05)."],
    )
    for n, source in enumerate(sources):
        rates = [100.0 * (n + 1), 110.0 * (n + 1), 90.0 * (n + 1)]
        load = {"images_per_s": rates, "cpu_ms_per_image": [8.0, 8.123, 9.0]}
        series = {"main": [(0.1, 1e8), (1.0, 2e8)], "workers": [(0.1, 3e8), (1.0, 4e8)]}
        memory = Case("memory", way="dataloader", workers=2)
        findings.rows += [
            Row(source.name, Case("open"), {"seconds": [0.5, 0.4, 0.6]}),
            Row(source.name, Case("open", cache="cold"), left_out="only root may do so"),
            Row(source.name, Case("read"), {"us_per_sample": [40.0, 50.0, 60.0]}),
            Row(source.name, Case("read", cache="cold"), {"us_per_sample": [140.0, 150.0]}),
            Row(source.name, Case("decode", way="pillow"), {"images_per_s": rates}),
            Row(source.name, Case("load", way="pillow", workers=2), load),
            Row(source.name, Case("load", way="pillow", workers=0), load),
            Row(source.name, Case("load", cache="cold", way="pillow", workers=2), load),
            Row(source.name, memory, {"pss_main": [2e8], "pss_workers": [4e8]}, series),
        ]
    return findings


class Outline(HTMLParser):
    """What a page is made of; fails where an element is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(html: str) -> str:
    """Returns the text of a page."""
    body = html.partition("<body>")[2]
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body)))


def section(page: str, id: str) -> str:
    """Returns the HTML of a section."""
    return page.partition(f'<section aria-labelledby="{id}">')[2].partition("</section>")[0]


def with_latency(findings: Findings) -> Findings:
    """Returns findings of a simulated file system."""
    settings = replace(findings.settings, latency=Latency(0.002, 0.0005))
    return replace(findings, settings=settings)


def test_everything_is_told_in_order() -> None:
    page = render_page(found(), "3 February 2031")
    text = words(re.sub(r"<nav.*?</nav>", "", page, flags=re.DOTALL))
    places = [
        text.index(part)
        for part in (
            "3 February 2031", "fastconv bench raw out.lmdb out.h5", "Decoding bounds this run.",
            "Packing gives 1.03 times", "What was measured", "Throughput against", "Time for an",
            "Memory while loading", "Speedup against the raw folder", "All figures",
            "Median of the rounds", "warm: read before", "the device: none is here",
            "2 workers are more than", "Made-up 3000",
        )
    ]  # fmt: skip
    assert places == sorted(places)


def test_the_page_is_one_file_for_every_reader() -> None:
    page = render_page(found(), "today")
    tags = Outline(page).tags
    assert page.startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in tags
    assert "<title>fastconv bench: raw, out.lmdb, out.h5</title>" in page
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
    assert "prefers-color-scheme: dark" in page
    headings = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    ids = [given["id"] for _, given in tags if "id" in given]
    assert len(ids) == len(set(ids))
    assert {given["href"] for tag, given in tags if tag == "a"} <= {f"#{id}" for id in ids}
    for tag, given in tags:
        if tag == "th":
            assert given["scope"] in ("col", "row", "rowgroup")
        if tag == "svg":
            assert given.get("role") == "img" or given.get("aria-hidden") == "true"


def test_nothing_is_loaded_or_run() -> None:
    page = render_page(found(), "today")
    tags = Outline(page).tags
    assert not {tag for tag, _ in tags} & {"script", "img", "iframe", "object", "form", "base"}
    assert not [given for _, given in tags if any(name.startswith("on") for name in given)]
    assert not [given for _, given in tags if "src" in given or "srcset" in given]
    assert [given["href"] for tag, given in tags if tag == "link"] == ["data:,"]
    assert "url(" not in page
    assert "@import" not in page
    assert "http:" not in page
    assert "https:" not in page
    (policy,) = [given["content"] for _, given in tags if "http-equiv" in given]
    assert (policy or "").startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")


def test_what_comes_from_outside_is_only_text() -> None:
    findings = found()
    source = replace(findings.sources[1], name=HOSTILE, path=HOSTILE, title=HOSTILE)
    findings.sources = [findings.sources[0], source, findings.sources[2]]
    findings.rows = [
        replace(row, source=HOSTILE, left_out=row.left_out and HOSTILE)
        if row.source == "out.lmdb"
        else row
        for row in findings.rows
    ]
    findings.environment = {HOSTILE: HOSTILE}
    findings.command = HOSTILE
    for texts in (findings.notes, findings.left_out, findings.warnings, findings.verdict):
        texts[:] = [HOSTILE]
    page = render_page(with_latency(findings), HOSTILE)
    page.encode("utf-8")
    assert "\x00" not in page
    assert "\u202e" not in page
    assert [tag for tag, _ in Outline(page).tags].count("script") == 0
    assert "<script src=//a.invalid/x>alert(1)</script>\"'&amp;\\.lmdb" in words(page)


def test_names_that_are_printable_already_stay_as_they_are() -> None:
    findings = found()
    findings.verdict = ["caf\\xe9.lmdb is fast"]
    assert "caf\\xe9.lmdb is fast" in words(render_page(findings, "today"))


def test_figures_have_their_spread_and_ratios_too() -> None:
    table = section(render_page(found(), "today"), "tables")
    row = "<td>200<small>180 to 220</small></td><td>2.00<small>2.00 to 2.00</small></td>"
    assert row in table
    # CPU milliseconds stand beside images/s.
    assert row + "<td>8.12<small>8.00 to 9.00</small></td>" in table
    assert "<td>500<small>400 to 600</small></td><td>1</td>" in table  # the baseline, in ms
    assert table.index("2 workers, warm cache") < table.index("2 workers, cold cache")


def test_what_is_missing_is_said() -> None:
    page = render_page(found(), "today")
    assert words(page).count("left out: only root may do so") == 3
    assert words(page).count("2 of 3 rounds") == 3  # reading from a cold cache
    findings = found()
    findings.rows.append(Row("raw", Case("copy")))
    assert "not measured" in words(render_page(findings, "today"))


@pytest.mark.parametrize("simulated", [False, True])
def test_simulated_is_said_at_every_title(simulated: bool) -> None:
    findings = with_latency(found()) if simulated else found()
    page = render_page(findings, "today")
    titles = re.findall(r"<(?:h1|figcaption)>(.*?)</(?:h1|figcaption)>", page)
    titles += re.findall(r"<h3>(.*?)</h3>", section(page, "tables"))
    titles += [
        re.findall(r"<h2[^>]*>(.*?)</h2>", section(page, id))[0]
        for id in ("throughput", "image", "memory", "speedup", "tables")
    ]
    assert len(titles) > 15
    assert {"simulated" in title for title in titles} == {simulated}
    assert ("2 ms and every request to read 0.5 ms" in words(page)) == simulated
    assert ("(simulated)" in page.partition("</title>")[0]) == simulated


def test_lines_need_two_numbers_of_workers() -> None:
    charts = section(render_page(found(), "today"), "throughput")
    assert charts.count("<figure>") == 2
    assert "DataLoader, Pillow, warm cache" in charts
    assert "DataLoader, Pillow, 2 workers, cold cache" in charts
    # In ascending order, whatever that of the measurements.
    assert "raw: 100 with 0 workers, 100 with 2 workers" in charts


def test_the_time_for_an_image_is_that_of_reading_and_decoding() -> None:
    charts = section(render_page(found(), "today"), "image")
    assert "raw: 10.0 (9.09 to 11.1) ms an image, of it 0.0500 for the full part" in charts
    assert "raw: 0.145 (0.140 to 0.150) ms an image" in charts  # of a cold cache, reading alone


def test_memory_is_in_megabytes() -> None:
    charts = section(render_page(found(), "today"), "memory")
    assert charts.count("<figure>") == 3
    assert "main: from 100 to 200, at most 200; workers: from 300 to 400, at most 400" in charts


def test_speedups_leave_the_baseline_out() -> None:
    charts = section(render_page(found(), "today"), "speedup")
    assert "out.lmdb: 2.00 (2.00 to 2.00)" in charts
    assert "raw: " not in charts


def test_one_source_is_compared_with_nothing() -> None:
    findings = found()
    findings.sources = findings.sources[:1]
    findings.rows = [row for row in findings.rows if row.source == "raw"]
    page = render_page(findings, "today")
    Outline(page)
    assert "baseline" not in words(page)
    assert 'id="speedup"' not in page


def test_without_a_raw_folder_the_first_pack_is_the_baseline() -> None:
    findings = found()
    findings.sources = findings.sources[1:]
    findings.rows = [row for row in findings.rows if row.source != "raw"]
    text = words(render_page(findings, "today"))
    assert "Speedup against out.lmdb" in text
    assert "raw folder" not in text


def test_a_run_that_found_nothing_is_a_page() -> None:
    findings = found()
    findings.rows, findings.verdict, findings.warnings, findings.notes = [], [], [], []
    findings.left_out = []
    page = render_page(findings, "today")
    Outline(page)
    for id in ("throughput", "image", "memory", "speedup", "tables", "notes", "warnings"):
        assert f'id="{id}"' not in page
        assert f'"#{id}"' not in page


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step(), "no training step"),
        (Step("sleep", 0.02), "a step that sleeps 20 ms a batch"),
        (Step("conv"), "a small convolutional network as training step"),
    ],
)
def test_the_training_step_is_named(step: Step, text: str) -> None:
    findings = found()
    findings.settings = replace(findings.settings, step=step)
    assert text in words(render_page(findings, "today"))
