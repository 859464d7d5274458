"""The report as a real browser shows it: Chromium, where it is installed."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pytest

from fastconv.loaders.errors import printable
from fastconv.loaders.measure.cases import (
    Findings,
    Latency,
    Row,
    Settings,
    Source,
    Step,
    plan_cases,
)
from fastconv.loaders.measure.page import render_page

WIDTHS = (390, 820, 1280)
FILES = (10_000, 1, 8, 1, 1, 1, 1)

PROBE = """
<!DOCTYPE html>
<html style="color-scheme: light dark"><meta charset="utf-8"><title></title>
<script>
"use strict";
const luminance = (rgb) => {{
  const [r, g, b] = rgb.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}};
const colour = (text) => text.match(/[\\d.]+/g).map(Number);
const contrast = (a, b) => {{
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + .05) / (low + .05);
}};
function look(page) {{
  const root = page.documentElement, wide = [], faint = [], cut = [], touching = [];
  const style = (e) => page.defaultView.getComputedStyle(e);
  const clear = (e) => style(e).backgroundColor === "rgba(0, 0, 0, 0)";
  const ends = (e) => e.getBoundingClientRect().right;
  for (const e of page.body.querySelectorAll("*:not(svg *)"))
    if (!e.parentElement.closest(".scroll") && ends(e) > root.clientWidth + .5)
      wide.push(e.outerHTML.slice(0, 200));
  for (const e of page.body.querySelectorAll("*")) {{
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (["title", "desc", "STYLE"].includes(e.tagName)) continue;
    let behind = e;
    while (clear(behind)) behind = behind.parentElement;
    const front = e.closest("svg") ? style(e).fill : style(e).color;
    const found = contrast(colour(front).slice(0, 3), colour(style(behind).backgroundColor));
    if (found < 4.5) faint.push(found.toFixed(2) + " " + e.outerHTML.slice(0, 200));
  }}
  for (const svg of page.body.querySelectorAll("svg[role=img]")) {{
    const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBBox()]);
    for (const [i, [text, a]] of texts.entries()) {{
      if (a.x < -1 || a.y < -1 || a.x + a.width > w + 1 || a.y + a.height > h + 1) cut.push(text);
      for (const [other, b] of texts.slice(i + 1))
        if (a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1 &&
            a.y < b.y + b.height - 2 && b.y < a.y + a.height - 2) touching.push([text, other]);
    }}
  }}
  return {{width: root.scrollWidth, seen: root.clientWidth, wide, faint, cut, touching,
           dark: luminance(colour(style(page.body).backgroundColor)) < .2}};
}}
addEventListener("load", () => {{
  const frames = [...document.querySelectorAll("iframe")];
  document.title = JSON.stringify(frames.map(frame => look(frame.contentDocument)));
}});
</script>
{frames}
"""


@pytest.fixture(scope="module")
def chromium() -> str:
    """Returns the browser's program."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("FASTCONV_ALL_FORMATS") == "1":
        pytest.fail("no Chromium is installed")
    pytest.skip("no Chromium is installed")


def browse(chromium: str, folder: Path, file: Path, *options: str) -> str:
    """Returns the page as the browser has it once it is loaded."""
    done = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-extensions", "--disable-default-apps",
            "--no-default-browser-check", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}", *options, "--dump-dom", file.as_uri(),
        ],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"),
             "XDG_CACHE_HOME": str(folder / "cache")},
    )  # fmt: skip
    return done.stdout.decode()


def requests_of(chromium: str, folder: Path, file: Path) -> set[str]:
    """Returns what a page asks of the network; what the browser asks for on its own is not."""
    log = folder / "net.json"
    browse(chromium, folder, file, f"--log-net-log={log}")
    found = set()
    for event in json.loads(log.read_text())["events"]:
        asked = event.get("params", {})
        if "url" in asked and asked.get("initiator", "not an origin") != "not an origin":
            found.add(asked["url"])
    return found


def full(*, hostile: bool = False) -> Findings:
    """Returns findings with everything that a run can find, of a machine that does not exist."""
    settings = Settings(
        batch_size=256,
        workers=(0, 2, 4, 8),
        step=Step("sleep", 0.02),
        latency=Latency(0.002, 0.0005) if hostile else None,
    )
    names = ["images", "out.lmdb", "shards", "out.h5"]
    if hostile:
        names = [
            "a" * 200,
            "caf\udce9 <img src=https://example.org/x>\n&quot;'.lmdb",
            "\u5199\u771f\u306e\u30d5\u30a9\u30eb\u30c0/" * 4,
            "/data/x/../../" + "deep/" * 30 + "\u05e9\u05dc\u05d5\u05dd.h5",
            *(f"/mnt/packs/{n:08}.lmdb" for n in range(3)),
        ]
    formats = [("folder", "folder of images"), ("lmdb", "LMDB"), ("webdataset", "WebDataset")]
    formats += [("hdf5", "HDF5"), *[("lmdb", "LMDB")] * 3]
    sources = [
        Source(printable(name), f"/data/{name}", format, title, 10_000, 1_312_004_511, files)
        for (format, title), files, name in zip(formats, FILES, names, strict=False)
    ]
    findings = Findings(
        "fastconv bench images out.lmdb shards out.h5 --workers 0,2,4,8 --report report.html",
        {
            "processor": "Made-up 3000, 16 cores",
            "memory": "64.0 GiB",
            "file system": "ext4 on /dev/nvme0n1p2",
            "versions": "fastconv 1.2.3, Python 3.13.1, torch 2.9.0, Pillow 12.0.0",
        },
        settings,
        sources,
        notes=[
            "medians of 3 rounds, with the smallest and the largest",
            "cold: the files were taken out of the page cache before (posix_fadvise; by mincore "
            "0.0% of them stayed at most)",
        ],
        left_out=["copies to the device, and how busy a GPU is: there is no CUDA device here"],
        warnings=["8 workers are more than the 4 cores that may be used"],
        verdict=[
            "Decoding bounds this run: of the 4.1 ms that one thread takes for an image, 3.9 ms "
            "are decoding. Packing alone gives 1.03 times (1.01 to 1.05) here.",
            "FastLoader on out.lmdb gives 2.71 times (2.60 to 2.84): the fused decoder reads no "
            "more of a JPEG than the crop needs.",
            "Packing is worth it where files are cold, or far away.",
        ],
    )
    draw = random.Random(7)
    for case in plan_cases(settings):
        for number, source in enumerate(sources):
            row = Row(source.name, case)
            findings.rows.append(row)
            if number == 2 and case.stage == "decode" and case.way == "fastloader":
                row.left_out = "the pack was replaced while it was measured"
                continue
            gain = (1.0, 1.31, 1.22, 1.12, 1.3, 1.25, 1.28)[number]
            cold = 0.4 if case.cache == "cold" else 1.0
            rate = {"pillow": 240.0, "dataloader": 610.0, "fastloader": 690.0}.get(case.way, 1.0)
            rate *= cold * (1 + (gain - 1) / 6)
            busy = max(case.workers, 1) ** 0.88
            for this in range(settings.rounds - (number == 3 and case.stage == "read")):
                about = draw.gauss(1, 0.03)
                values = {
                    "open": {"seconds": (0.412 if not number else 0.0061) / cold},
                    "read": {
                        "us_per_sample": 41.2 / gain**4 / cold * (case.order == "random" or 0.6),
                        "mb_per_s": 3180 * gain**4 * cold,
                        "cpu_ms_per_image": 0.031,
                    },
                    "decode": {"images_per_s": rate, "cpu_ms_per_image": 1e3 / rate},
                    "load": {
                        "images_per_s": rate * busy,
                        "cpu_ms_per_image": 1.04e3 / rate * cold,
                        "first_batch_s": 1.9 / gain,
                        "wait_share": 0.83 / busy,
                        "pss_main": 301e6,
                        "pss_workers": 205e6 * case.workers,
                    },
                    "memory": {
                        "pss_main": 310e6,
                        "pss_workers": 1.4e9,
                        "pss_growth": 2e6 * (this - 1),
                        "pickled_bytes": 1830.0,
                    },
                }.get(case.stage, {})
                for name, value in values.items():
                    row.values.setdefault(name, []).append(value * about)
            if case.stage == "memory":
                times = [n * 0.35 for n in range(21)]
                row.series["main"] = [(at, 3.1e8) for at in times]
                row.series["workers"] = [
                    (at, (1.4e9 + 4e7 * number) * (1 - math.exp(-at - 0.3))) for at in times
                ]
    return findings


@pytest.mark.parametrize("hostile", [False, True])
def test_no_request_leaves_the_page(hostile: bool, chromium: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(full(hostile=hostile), "2031-02-03"), encoding="utf-8")
    assert requests_of(chromium, tmp_path, file) == set()


def test_requests_would_be_seen(chromium: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("<img src=http://pictures.invalid/a.png>")
    assert requests_of(chromium, tmp_path, file) == {"http://pictures.invalid/a.png"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(scheme: str, chromium: str, tmp_path: Path) -> None:
    frames = [
        f'<iframe width="{width}" height="900" srcdoc="{escape(render_page(findings, "today"))}">'
        "</iframe>"
        for findings in (full(), full(hostile=True))
        for width in WIDTHS
    ]
    file = tmp_path / "probe.html"
    file.write_text(PROBE.format(frames="\n".join(frames)), encoding="utf-8")
    options = ["--force-dark-mode"] if scheme == "dark" else []
    shown = browse(chromium, tmp_path, file, *options)
    title = shown.partition("<title>")[2].partition("</title>")[0]
    for width, found in zip(WIDTHS * 2, json.loads(unescape(title)), strict=True):
        assert found == {
            "width": found["seen"],
            "seen": width,
            "wide": [],
            "faint": [],
            "cut": [],
            "touching": [],
            "dark": scheme == "dark",
        }
