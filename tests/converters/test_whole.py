"""Where all of a pack is taken over, nothing that it has lost goes on unnoticed."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import OUTS

from fastconv.converters import PackFailedError, Sharding, convert, merge, pack
from fastconv.converters import plan as plan_module
from fastconv.converters.run import Run
from fastconv.converters.unpacking import unpack
from fastconv.converters.writer import WRITERS
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import CorruptPackError, FastconvError, UsageError
from fastconv.loaders.index import index_path
from fastconv.loaders.open import open_pack

BESIDE = [name for name in WRITERS.names() if WRITERS.load(name).sharded]
"""Formats whose sample table lies beside the data."""


def png(seed: int) -> bytes:
    file = io.BytesIO()
    noise = random.Random(seed).randbytes(20 * 20 * 3)
    Image.frombytes("RGB", (20, 20), noise).save(file, "PNG")
    return file.getvalue()


def make(root: Path, names: list[str], seed: int = 0) -> Path:
    """Makes a folder of images of these paths, all of the same size."""
    for number, name in enumerate(names):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(seed + number))
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make(tmp_path / "tree", [f"{'abc'[n % 3]}/{n:02}.png" for n in range(30)])


def change_label(path: Path) -> None:
    """Gives the last sample of a pack another of its labels."""
    labels = open_pack(path).table.label.tobytes()
    inside = path / "data.mdb" if path.is_dir() else path
    file = beside if (beside := Path(index_path(str(path)))).exists() else inside
    at = file.read_bytes().index(labels)
    with open(file, "r+b") as out:
        out.seek(at + len(labels) - 8)
        out.write(bytes([labels[-8] ^ 1]))


@pytest.mark.parametrize("out", OUTS)
def test_an_altered_table_is_not_taken_over(tree: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / out
    pack(tree, source)
    change_label(source)
    make(tmp_path / "more", ["d/1.png"])
    pack(tmp_path / "more", tmp_path / "more.h5")
    runs: list[Callable[[], Any]] = [
        lambda: convert(source, tmp_path / "made.h5"),
        lambda: merge([tmp_path / "more.h5", source], tmp_path / "made.h5"),
        lambda: unpack(source, tmp_path / "made.h5"),
    ]
    for run in runs:
        with pytest.raises(CorruptPackError, match="its sample table is damaged"):
            run()
        assert not list(tmp_path.glob("made*"))


@pytest.mark.parametrize("format", BESIDE)
@pytest.mark.parametrize("shards", [False, True])
def test_a_lost_table_is_told(tree: Path, tmp_path: Path, format: str, shards: bool) -> None:
    """Also when a shard is gone with it: nothing else could tell."""
    source = tmp_path / ("in" if shards else f"in{WRITERS.load(format).suffixes[0]}")
    pack(tree, source, format=format, sharding=Sharding(samples=7) if shards else None)
    os.unlink(index_path(str(source)))
    if shards:
        shards_there = sorted(p for p in source.iterdir() if not p.name.endswith((".idx", ".lst")))
        shards_there[2].unlink()
    with pytest.raises(PackFailedError, match="--strict"):
        convert(source, tmp_path / "out.h5", strict=True)
    report = convert(source, tmp_path / "out.h5", restart=True)
    assert report.status == "partial"
    assert (report.samples, report.bad[0].reason) == (24 if shards else 30, "lost_table")
    assert "cannot tell whether shards, samples or classes are missing" in report.bad[0].message
    unpacked = unpack(source, tmp_path / "files")
    assert (unpacked.status, unpacked.bad[0].reason) == ("partial", "lost_table")


def test_another_source_is_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack of others has no id: what its files are is remembered."""
    monkeypatch.setattr(plan_module, "PART_BYTES", 20_000)

    def write(seed: int) -> None:
        with tarfile.open(tmp_path / "in.tar", "w") as tar:
            for number in range(30):
                info = tarfile.TarInfo(f"{number:02}.png")
                data = png(seed + number).ljust(2000, b"\0")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    write(0)

    def stop(progress: Any) -> None:
        if progress.samples > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "in.tar", tmp_path / "out.lmdb", workers=2, progress=stop)
    write(100)
    with pytest.raises(UsageError, match="the state of the source was"):
        convert(tmp_path / "in.tar", tmp_path / "out.lmdb", workers=2)
    convert(tmp_path / "in.tar", tmp_path / "out.lmdb", workers=2, restart=True)
    found = [bytes(data) for data, _ in open_dataset(tmp_path / "out.lmdb", decode=None)]
    assert found == [png(100 + number).ljust(2000, b"\0") for number in range(30)]


@pytest.mark.parametrize("out", OUTS)
def test_a_source_that_is_cut_meanwhile(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """Wherever it is cut: no signal kills the run, and no part of it is published."""
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / out
    pack(tree, source)
    shutil.copytree(tmp_path / "in", tmp_path / "kept")
    files = sorted(p for p in (tmp_path / "in").rglob("*") if p.is_file())
    lay_out = Run.lay_out
    for file in files:
        for kept in (0.6, 0.0):

            def cut(*args: Any, file: Path = file, kept: float = kept) -> Any:
                os.truncate(file, int(file.stat().st_size * kept))
                return lay_out(*args)

            monkeypatch.setattr(Run, "lay_out", cut)
            if file in (source, source / "data.mdb"):  # the data are still to be read
                with pytest.raises(FastconvError, match="while it was read"):
                    convert(source, tmp_path / "made.h5")
            else:  # the table is in memory
                assert convert(source, tmp_path / "made.h5").samples == 30
                os.unlink(tmp_path / "made.h5")
            assert not (tmp_path / "made.h5").exists()
            monkeypatch.setattr(Run, "lay_out", lay_out)
            shutil.rmtree(tmp_path / "in")
            shutil.copytree(tmp_path / "kept", tmp_path / "in")
