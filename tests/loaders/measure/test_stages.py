"""Each stage measures what it says, of every format."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from fastconv.loaders import RandomResizedCrop
from fastconv.loaders.errors import FastconvError, PackChangedError
from fastconv.loaders.measure import stages
from fastconv.loaders.measure.cases import Case, Latency, Settings, Source, plan_cases
from fastconv.loaders.measure.pagecache import evict, files_of, resident, warm

SETTINGS = Settings(batch_size=4, workers=(0, 1), size=32, seconds=0.02, rounds=1)


@pytest.fixture
def source(packed: Path) -> Source:
    return stages.describe(str(packed), packed.name)


def test_a_source_is_described(photos: Path, packed: Path) -> None:
    raw, pack = stages.describe(str(photos), "raw"), stages.describe(str(packed), "pack")
    assert raw.is_raw
    assert not pack.is_raw
    assert raw.samples == pack.samples == raw.files == 24
    assert raw.bytes == pack.bytes == sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    assert len(pack.id) == 32
    assert raw.id == ""


WARM = [case for case in plan_cases(SETTINGS) if case.cache == "warm"]


@pytest.mark.parametrize("case", WARM, ids=str)
def test_every_warm_case_gives_positive_numbers(case: Case, source: Source) -> None:
    before = set(psutil.Process().children(recursive=True))
    values, series, _ = stages.measure(source, case, SETTINGS, 0)
    for measure in ("seconds", "us_per_sample", "images_per_s", "mb_per_s"):
        assert values.get(measure, 1.0) > 0
    if case.stage == "load":
        assert 0 < values["wait_share"] <= 1
        assert values["first_batch_s"] > 0
        assert values["pss_workers"] > 0 or not case.workers or case.way == "fastloader"
    if case.stage == "memory":
        assert values["epoch_share"] == 1
        assert 0 < values["pickled_bytes"] < 1000
        assert len(series["main"]) == len(series["workers"]) > 2
    gc.collect()
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not [thread for thread in threading.enumerate() if "fastconv" in thread.name]


def test_the_raw_folder_is_measured_the_same_way(photos: Path) -> None:
    raw = stages.describe(str(photos), "raw")
    for case in (Case("open"), Case("read"), Case("decode", way="pillow")):
        values, _, _ = stages.measure(raw, case, SETTINGS, 0)
        assert values


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs posix_fadvise")
def test_a_cold_read_is_cold_or_refused(source: Source, photos: Path) -> None:
    for one in (source, stages.describe(str(photos), "raw")):
        values, _, why = stages.measure(one, Case("read", cache="cold"), SETTINGS, 0)
        if why:  # a file system without a disk, such as tmpfs
            assert one.path in why
            assert values == {}
        else:
            assert values["stayed_share"] <= (0.05 if one.is_raw else stages.MOST_OPENED)
            assert values["us_per_sample"] > 0


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs posix_fadvise")
def test_what_stays_in_the_cache_is_seen(source: Source) -> None:
    files = files_of(Path(source.path))
    warm(files)
    assert resident(files) > 0
    evict(files)
    try:
        values = stages.cool(source, [0])
    except stages.NotColdError:
        assert resident(files) > 0
    else:
        assert values["stayed_share"] == resident(files) == 0


def test_an_image_that_cannot_be_decoded_is_left_out(tmp_path: Path, photos: Path) -> None:
    folder = tmp_path / "broken" / "a"
    folder.mkdir(parents=True)
    whole = next(photos.rglob("*.jpg")).read_bytes()
    (folder / "whole.jpg").write_bytes(whole)
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 4])
    raw = stages.describe(str(folder.parent), "broken")
    values, _, _ = stages.measure(raw, Case("decode", way="pillow"), SETTINGS, 0)
    assert values["images_per_s"] > 0
    assert values["skipped"] > 0
    (folder / "whole.jpg").unlink()
    raw = stages.describe(str(folder.parent), "broken")
    for case in WARM:
        if case.stage in ("decode", "load"):
            with pytest.raises(FastconvError, match="none of its images can be decoded"):
                stages.measure(raw, case, SETTINGS, 0)


def test_pillow_and_the_fused_decoder_give_the_same_picture(photos: Path) -> None:
    """The random numbers are the same, so the crops are; only the decoding differs."""
    crop = RandomResizedCrop(32, flip=0.5)
    raw = stages.describe(str(photos), "raw")
    pillow = stages.opened(raw, SETTINGS, transform=stages.PillowCrop(crop))
    fused = stages.opened(raw, SETTINGS, decode=crop)
    for row in range(8):
        torch.manual_seed(row)
        one = pillow[row][0]
        torch.manual_seed(row)
        other = fused[row][0]
        assert one.shape == other.shape == (3, 32, 32)
        assert (one.float() - other.float()).abs().mean() < 2


def test_a_slow_file_system_is_simulated(source: Source, photos: Path) -> None:
    slow = replace(SETTINGS, latency=Latency(open=0.002, read=0.003))
    raw = stages.describe(str(photos), "raw")
    values, _, _ = stages.measure(raw, Case("read"), slow, 0)
    assert values["us_per_sample"] >= 5000  # each file is opened and read
    values, _, _ = stages.measure(source, Case("read"), slow, 0)
    assert 3000 / SETTINGS.batch_size <= values["us_per_sample"]  # once a batch
    values, _, _ = stages.measure(source, Case("open"), slow, 0)
    assert values["seconds"] >= 0.002 + 0.003


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_file_system_is_simulated_in_workers(source: Source, workers: int) -> None:
    slow = replace(SETTINGS, latency=Latency(read=0.05))
    case = Case("load", way="dataloader", workers=workers)
    values, _, _ = stages.measure(source, case, slow, 0)
    assert values["first_batch_s"] >= 0.05  # it cannot sleep less


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("way", ["dataloader", "fastloader"])
def test_a_gpu_is_watched(source: Source, way: str) -> None:
    settings = replace(SETTINGS, device="cuda", seconds=1.0)
    values, _, _ = stages.measure(source, Case("load", way=way, workers=1), settings, 0)  # type: ignore[arg-type]
    assert 0 <= values["gpu_wait_share"] <= 1
    for pinned in (False, True):
        values, _, _ = stages.measure(source, Case("copy", pinned=pinned), settings, 0)
        assert values["mb_per_s"] > 0


def test_a_pack_that_was_replaced_is_not_measured(source: Source, photos: Path) -> None:
    if source.is_raw:
        pytest.skip("has no id")
    another = replace(source, id="0" * 32)
    for case in (Case("read"), Case("decode", way="pillow"), Case("open")):
        with pytest.raises(PackChangedError, match="was replaced while it was measured"):
            stages.measure(another, case, SETTINGS, 0)


def test_a_cold_loader_is_measured_from_its_start(source: Source) -> None:
    """However few samples there are, what it made before the first batch came counts."""
    settings = replace(SETTINGS, batch_size=source.samples, seconds=0.01)
    values, _, why = stages.measure(
        source, Case("load", cache="cold", way="fastloader", workers=1), settings, 0
    )
    if not why:
        assert values["images_per_s"] <= source.samples / values["first_batch_s"]
        assert "own_workers" not in values
