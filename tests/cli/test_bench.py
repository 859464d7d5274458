"""`fastconv bench`: a whole run on real images, its JSON and page, and what it refuses."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import click
import pytest

from fastconv.converters.cli.durations import parse_duration
from fastconv.converters.cli.measuring import parse_latency, parse_step, parse_workers
from fastconv.converters.cli.reports import write_report
from fastconv.loaders.errors import FastconvError, UsageError
from fastconv.loaders.measure.cases import Latency, Step

QUICK = ("--rounds", "2", "--seconds", "0.02", "--size", "16", "--batch-size", "2")


@pytest.fixture
def sources(fastconv: Any, images: Path) -> tuple[Path, Path]:
    out = images.parent / "out.lmdb"
    assert fastconv("pack", images, out, "--quiet").code == 0
    return images, out


def test_a_run_from_sources_to_verdict(
    fastconv: Any, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    done = fastconv(
        "bench", *sources, *QUICK, "--workers", "0,1", "--step", "1ms", "--cache", "warm",
        "--report", report, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = done.answer["bench"]
    assert [source["format"] for source in found["sources"]] == ["folder", "lmdb"]
    assert found["baseline"] == str(sources[0])
    by_stage = {row["stage"] for row in found["rows"] if row["measures"]}
    assert by_stage == {"open", "read", "decode", "load", "memory"}
    for row in found["rows"]:
        assert row["measures"] or row["left_out"]
        for measure in row["measures"].values():
            assert len(measure["values"]) == 2
            assert measure["low"] <= measure["median"] <= measure["high"]
    assert any("no CUDA device" in line for line in found["left_out"]) or found["settings"][
        "device"
    ].startswith("cuda")
    assert found["verdict"]
    page = report.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert done.answer["output"] == str(report)


def test_people_get_tables_notes_and_the_verdict_last(
    fastconv: Any, sources: tuple[Path, Path]
) -> None:
    done = fastconv(
        "bench", *sources, *QUICK, "--workers", "1", "--cache", "warm", "--latency",
        "open=1ms,read=1ms", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "reading the bytes, random order" in done.out
    assert "SIMULATED" in done.out
    assert "acking" in done.out.strip().splitlines()[-1]


def test_the_demonstration_without_data(fastconv: Any) -> None:
    done = fastconv("bench", "--mock", "1ms", "--workers", "0,2", "--json")
    assert done.code == 0
    assert [one["workers"] for one in done.answer["mock"]] == [0, 2]
    assert all(one["seconds"] >= one["floor"] for one in done.answer["mock"])
    done = fastconv("bench", "--mock", "1ms", "--workers", "0")
    assert "A Dataset that sleeps 1 ms a sample" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to measure"),
        (("SRC", "SRC"), "named twice"),
        (("SRC", "--workers", "two"), "numbers with commas"),
        (("SRC", "--step", "fast"), "error: --step: 'fast' is no time: write 20ms"),
        (("SRC", "--latency", "open=2"), "error: --latency: '2' is no time: write 20ms"),
        (("SRC", "--latency", "close=2ms"), "open=2ms,read=0.5ms"),
        (("SRC", "--device", "nonsense"), "--device nonsense"),
        (("SRC", "--mock", "1ms"), "leave sources"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    fastconv: Any, images: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = fastconv("bench", *(str(images) if one == "SRC" else one for one in arguments))
    assert done.code == 2, done.err
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_source_that_is_not_there_and_a_report_that_cannot_be_written(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    done = fastconv("bench", tmp_path / "absent.lmdb", *QUICK, "-q")
    assert done.code == 2
    assert "absent.lmdb: no such file" in done.err
    done = fastconv("bench", images, "--report", tmp_path / "absent" / "report.html")
    assert done.code == 1
    assert "no such folder" in done.err


REPORT = "<!DOCTYPE html>\n<title>fastconv bench: images</title>\n"


def is_refused(fastconv: Any, report: Path, words: str, *sources: Path) -> None:
    """Asserts that a report is refused, by a run that would measure for days."""
    done = fastconv("bench", *sources, "--report", report, "--seconds", "86400", "--cache", "warm")
    assert done.code == 2, done.err
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_a_report_never_takes_the_place_of_what_is_measured(
    fastconv: Any, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, pack = sources
    picture = folder / "cat" / "0.png"
    before = picture.read_bytes()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "linked.html").symlink_to(picture)
    for report in (
        folder, pack, folder / "new.html", pack / "data.mdb", picture, tmp_path / "link/cat/0.png",
        tmp_path / "linked.html", folder / ".." / "images" / "new.html",
    ):  # fmt: skip
        is_refused(fastconv, report, "is in the source", *sources)
    (folder / "old.html").write_text(REPORT)
    is_refused(fastconv, tmp_path / "link" / "old.html", "is in the source", *sources)
    assert picture.read_bytes() == before


def test_a_report_never_takes_the_place_of_another_file(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    report = tmp_path / "x.html"
    for content in (b"", b"mine", b"<!DOCTYPE html>\n<title>mine</title>", b"\xff" * 9999):
        report.write_bytes(content)
        is_refused(fastconv, report, "is no report of fastconv bench", images)
        assert report.read_bytes() == content
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path / "fifo", Path(os.devnull), tmp_path):
        is_refused(fastconv, odd, "is no regular file", images)


def test_a_report_takes_the_place_of_an_earlier_one(
    fastconv: Any, images: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.html").write_text(REPORT)
    (tmp_path / "link.html").symlink_to("x.html")
    done = fastconv(
        "bench", images, *QUICK, "--rounds", "1", "--workers", "0", "--cache", "warm", "-q",
        "--report", tmp_path / "link.html",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "link.html").is_symlink()
    assert len((tmp_path / "x.html").read_text(encoding="utf-8")) > 2 * len(REPORT)
    assert sorted(os.listdir(tmp_path)) == ["images", "link.html", "x.html"]


def test_a_report_that_does_not_fit_leaves_the_earlier_one(tmp_path: Path) -> None:
    report = tmp_path / "x.html"
    write_report(str(report), REPORT)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(FastconvError, match=r"x.html: the report cannot be written: File too"):
            write_report(str(report), REPORT * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert report.read_text() == REPORT
    assert os.listdir(tmp_path) == ["x.html"]


def test_settings_are_parsed() -> None:
    assert parse_workers("8, 0,2,2") == (0, 2, 8)
    assert parse_step("none") == Step()
    assert parse_step("conv") == Step("conv")
    assert parse_step("20ms") == Step("sleep", pytest.approx(0.02))  # type: ignore[arg-type]
    assert parse_latency("open=2ms,read=0.5ms") == Latency(
        pytest.approx(0.002),  # type: ignore[arg-type]
        pytest.approx(0.0005),  # type: ignore[arg-type]
    )
    with pytest.raises(UsageError):
        parse_latency("open=1ms,open=1ms")


@pytest.mark.parametrize(
    ("text", "seconds"), [("20ms", 0.02), ("1.5s", 1.5), ("500us", 5e-4), ("2 s", 2.0)]
)
def test_a_time_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "ms", "-1s", "1e3s", "20 minutes", "\u0661s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_duration(text)


def test_a_source_that_cannot_be_decoded_is_bad(fastconv: Any, images: Path) -> None:
    broken = images.parent / "broken" / "a"
    broken.mkdir(parents=True)
    (broken / "0.png").write_bytes((images / "cat" / "0.png").read_bytes()[:40])
    done = fastconv("bench", broken.parent, *QUICK, "--workers", "0", "--cache", "warm", "--json")
    assert done.code == 3
    assert done.answer["status"] == "partial"
    assert "none of its images can be decoded" in done.answer["bad"][0]["message"]
    done = fastconv("tune", broken.parent, "--budget", "1", "-q")
    assert done.code == 1
    assert "none of its images can be decoded" in done.err
