"""Our HDF5 through `h5py` alone, and through HDF5's own tools where they are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from fastconv.converters import pack
from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]


def test_every_sample_by_its_offsets(samples: Samples, packed: Callable[..., Path]) -> None:
    with h5py.File(packed("out.h5"), "r") as file:
        offsets, texts = file["offsets"][:], file["fields/txt/offsets"][:]
        assert json.loads(file["classes"][()]) == ["cat", "dog"]
        assert file["labels"][:].tolist() == [sample.label for sample in samples[1]]
        for i, sample in enumerate(samples[1]):
            assert file["data"][offsets[i] : offsets[i + 1]].tobytes() == sample.image
            caption = file["fields/txt/data"][texts[i] : texts[i + 1]].tobytes()
            assert caption == (sample.caption or b"")
            assert (file["table/size/txt"][i] < 0) == (sample.caption is None)


def test_no_times_are_stored(packed: Callable[..., Path]) -> None:
    with h5py.File(packed("out.h5"), "r") as file:
        for name in ("data", "offsets", "labels", "fastconv", "fields/txt/data", "table/path"):
            assert h5py.h5g.get_objinfo(file[name].id).mtime == 0


@pytest.mark.skipif(
    shutil.which("h5repack") is None, reason="needs HDF5's tools (Debian: hdf5-tools)"
)
def test_repacked_file_is_read_all_the_same(
    samples: Samples, packed: Callable[..., Path], tmp_path: Path
) -> None:
    """The library tells where the data lies, so a file whose data has moved is read right."""
    out = packed("out.h5")
    moved = tmp_path / "moved.h5"
    subprocess.run(["h5repack", str(out), str(moved)], check=True)
    dataset = open_dataset(moved, decode=None)
    assert [bytes(dataset.read(i)) for i in range(13)] == [s.image for s in samples[1]]
    dump = subprocess.run(
        ["h5dump", "-H", str(out)], check=True, capture_output=True, text=True
    ).stdout
    assert 'DATASET "labels"' in dump


@pytest.mark.skipif(
    shutil.which("h5dump") is None, reason="needs HDF5's tools (Debian: hdf5-tools)"
)
def test_h5dump_shows_labels_and_bytes(samples: Samples, packed: Callable[..., Path]) -> None:
    out = packed("out.h5")

    def numbers(dataset: str) -> list[int]:
        command = ["h5dump", "-y", "-w", "0", "-d", dataset, str(out)]
        dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        data = dump.partition("DATA {")[2].partition("}")[0]
        return [int(number) for number in data.replace(",", " ").split()]

    assert numbers("labels") == [sample.label for sample in samples[1]]
    assert bytes(numbers("data")) == b"".join(sample.image for sample in samples[1])


@pytest.fixture
def vlen(samples: Samples, tmp_path: Path) -> Path:
    out = tmp_path / "vlen.h5"
    report = pack(samples[0], out, sidecars=("txt",), options={"layout": "vlen"}, workers=1)
    assert report.status == "done"
    return out


def test_images_of_variable_length(samples: Samples, vlen: Path, tmp_path: Path) -> None:
    with h5py.File(vlen, "r") as file:
        assert "data" not in file
        assert file["labels"][:].tolist() == [sample.label for sample in samples[1]]
        assert [image.tobytes() for image in file["images"][:]] == [s.image for s in samples[1]]
    dataset = open_dataset(vlen, fields=("image", "txt"), decode=None)
    assert [dataset[i] for i in range(13)] == [(s.image, s.caption, s.label) for s in samples[1]]
    again = tmp_path / "again.h5"
    pack(samples[0], again, sidecars=("txt",), options={"layout": "vlen"}, workers=3)
    assert again.read_bytes() == vlen.read_bytes()


@pytest.mark.skipif(
    shutil.which("h5repack") is None, reason="needs HDF5's tools (Debian: hdf5-tools)"
)
def test_images_of_variable_length_that_have_moved(
    samples: Samples, vlen: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved.h5"
    subprocess.run(
        ["h5repack", "-f", "labels:GZIP=1", "-l", "labels:CHUNK=5", str(vlen), str(moved)],
        check=True,
    )
    subprocess.run(
        ["h5repack", "-f", "labels:NONE", "-l", "labels:CONTI", str(moved), f"{moved}2"], check=True
    )
    dataset = open_dataset(f"{moved}2", decode=None)
    assert [bytes(dataset.read(i)) for i in range(13)] == [s.image for s in samples[1]]


def test_images_of_variable_length_that_are_all_alike(tmp_path: Path) -> None:
    (tmp_path / "tree/cat").mkdir(parents=True)
    for number in range(5):
        (tmp_path / f"tree/cat/{number}.bmp").write_bytes(BMP + bytes([number] * 12))
    pack(tmp_path / "tree", tmp_path / "out.h5", options={"layout": "vlen"})
    dataset = open_dataset(tmp_path / "out.h5", decode=None)
    assert [dataset[i][0] for i in range(5)] == [BMP + bytes([i] * 12) for i in range(5)]


BMP = (
    b"BM"
    + bytes([66, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0])
    + (bytes([1, 0, 24, 0]) + bytes(24))
)
"""The head of a picture of 1 by 3 pixels."""
