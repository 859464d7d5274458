"""What findings mean in words: the stage that bounds, what helps, and when packing is not worth
it."""

from __future__ import annotations

from dataclasses import replace

from fastconv.loaders.measure.bench import too_large
from fastconv.loaders.measure.cases import Case, Findings, Row, Settings, Source, Step, Way
from fastconv.loaders.measure.verdict import verdict

RAW = Source("images/", "/images", "folder", "raw folder", 1000, 50_000_000, 1000)
PACK = Source("out.lmdb", "/out.lmdb", "lmdb", "LMDB", 1000, 50_000_000, 1, "0" * 32)


def findings(
    *,
    read: tuple[float, float] = (40.0, 2.0),
    cold: tuple[float, float] = (300.0, 150.0),
    decode_ms: float = 4.0,
    rates: dict[Way, tuple[float, float]] | None = None,
    wait: float = 0.99,
    settings: Settings | None = None,
    memory: int = 1 << 40,
) -> Findings:
    """Returns what a benchmark of RAW and PACK could find: pairs are (raw, packed)."""
    rates = rates or {"pillow": (400.0, 404.0), "fastloader": (1000.0, 1050.0)}
    rows = []
    for place, source in enumerate((RAW, PACK)):
        rows += [
            Row(source.name, Case("open"), {"seconds": [(0.1, 0.001)[place]] * 3}),
            Row(source.name, Case("read"), {"us_per_sample": [read[place]] * 3}),
            Row(source.name, Case("read", cache="cold"), {"us_per_sample": [cold[place]] * 3}),
        ]
        for way, ms in (("pillow", decode_ms), ("fastloader", decode_ms / 3)):
            rate = 1e3 / (ms + read[place] / 1e3)
            rows.append(Row(source.name, Case("decode", way=way), {"images_per_s": [rate] * 3}))  # type: ignore[arg-type]
        for way, pair in rates.items():
            for workers, share in ((1, 0.5), (2, 1.0)):
                values = {
                    "images_per_s": [pair[place] * share] * 3,
                    "wait_share": [wait] * 3,
                    "cpu_ms_per_image": [2e3 / pair[place]] * 3,
                }
                rows.append(Row(source.name, Case("load", way=way, workers=workers), values))
    return Findings("", {}, settings or Settings(), [RAW, PACK], memory=memory, rows=rows)


def test_decoding_bounds_and_the_loader_helps() -> None:
    lines = verdict(findings())
    assert lines[0].startswith("Decoding bounds this run")
    assert "99% is decoding and 1% reading" in lines[0]
    assert "400 images/s" in lines[0]  # with the best number of workers
    assert "1.01x (1.01 to 1.01)" in lines[1]
    assert "even reading that cost nothing would give 1.01x" in lines[1]
    assert any("FastLoader with out.lmdb, 2 threads" in line and "2.62x" in line for line in lines)
    assert "packing is not what makes this run faster" in lines[-1]
    assert "Where they do not fit, it is worth it" in lines[-1]


def test_reading_bounds_and_packing_helps() -> None:
    found = findings(read=(8000.0, 50.0), rates={"pillow": (100.0, 240.0)})
    lines = verdict(found)
    assert lines[0].startswith("Reading bounds this run")
    assert "2.40x" in lines[1]
    assert lines[-1].startswith("Packing is worth it here")


def test_a_gain_that_reading_cannot_explain_is_called_chance() -> None:
    lines = verdict(findings(rates={"pillow": (100.0, 190.0)}))
    assert "disturbed" in lines[1]
    assert "packing is not what makes this run faster" in lines[-1]


def test_the_training_step_bounds() -> None:
    step = replace(Settings(), step=Step("sleep", 0.2))
    lines = verdict(findings(wait=0.01, settings=step))
    assert lines[0].startswith("The training step bounds this run")
    assert lines[-1].startswith("Packing is not worth it for the speed of this run")


def test_data_larger_than_memory_are_judged_cold() -> None:
    found = findings(cold=(9000.0, 4000.0), memory=1_000_000)
    for row in list(found.rows):
        if row.case.stage == "load":
            found.rows.append(replace(row, case=replace(row.case, cache="cold")))
    lines = verdict(found)
    assert lines[0].startswith("Reading bounds this run")
    assert "cold page cache" in lines[0]


def test_a_folder_alone_has_a_verdict() -> None:
    found = findings()
    found.sources = [RAW]
    found.rows = [row for row in found.rows if row.source == RAW.name]
    lines = verdict(found)
    assert lines[0].startswith("Decoding bounds this run")
    assert not any("acking" in line for line in lines)
    assert any(line.startswith("FastLoader with images/") for line in lines)


def test_nothing_measured_is_nothing_said() -> None:
    assert verdict(Findings("", {}, Settings(), [RAW])) == []


def test_processor_time_too_short_to_be_counted_is_left_out() -> None:
    found = findings()
    for row in found.rows:
        if "cpu_ms_per_image" in row.values:
            row.values["cpu_ms_per_image"] = [0.0] * 3
    lines = verdict(found)
    assert any(line.startswith("FastLoader with") for line in lines)
    assert not any("processor time" in line for line in lines)


def test_what_packing_loses_is_said_too() -> None:
    found = findings(cold=(100.0, 300.0))
    assert any("Random batches" in line and "0.33x" in line for line in verdict(found))


def test_without_a_raw_folder_nothing_is_said_of_packing() -> None:
    found = findings()
    found.sources = [replace(RAW, format="tar", id="1" * 32), PACK]
    lines = verdict(found)
    assert lines
    assert not [line for line in lines if "acking" in line]


def test_threads_do_not_tell_what_processes_need() -> None:
    found = findings()
    for row in found.rows:
        if row.case.way == "fastloader":
            row.values["own_workers"] = [0.0]
    many = Row(RAW.name, Case("load", way="pillow", workers=1_000_000))
    assert "1000000 workers would take about" in too_large(found, many)


def test_images_that_were_encoded_anew_are_no_gain_of_packing() -> None:
    found = findings(rates={"pillow": (400.0, 900.0)})
    anew = replace(PACK, encoded=True)
    found = replace(found, sources=[anew if one == PACK else one for one in found.sources])
    said = " ".join(verdict(found))
    assert "The images of out.lmdb were encoded anew, which has its share in the 2.25x" in said
    assert "Packing alone" not in said
