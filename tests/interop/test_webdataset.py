"""Our shards through `webdataset`, `tarfile` and `tar` alone."""

from __future__ import annotations

import gc
import subprocess
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from safetensors.numpy import load_file

from fastconv.converters import Sample, pack
from fastconv.loaders import UsageError, open_dataset

Samples = tuple[Path, list[Any]]


def read_by_webdataset(pipeline: Any) -> list[Any]:
    """Returns all samples. The library leaves its files to the garbage collector: collected here,
    where the warnings about it are known to be its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        samples = list(pipeline)
        del pipeline
        gc.collect()
    return samples


def urls(out: Path) -> list[str]:
    return sorted(str(path) for path in out.glob("*.tar")) if out.is_dir() else [str(out)]


@pytest.fixture(params=["one tar", "shards"])
def out(request: pytest.FixtureRequest, packed: Callable[..., Path]) -> Path:
    return packed("out.tar") if request.param == "one tar" else packed("out", "webdataset", 5)


def test_webdataset_reads_them(samples: Samples, out: Path) -> None:
    got = read_by_webdataset(
        webdataset.WebDataset(urls(out), shardshuffle=False, empty_check=False)
    )
    assert [sample["__key__"] for sample in got] == [f"{number:02d}" for number in range(13)]
    for sample, expected in zip(got, samples[1], strict=True):
        assert sample["cls"] == b"%d" % expected.label
        assert sample[expected.path.rpartition(".")[2]] == expected.image
        assert sample.get("txt") == expected.caption


def test_webdataset_decodes_them(samples: Samples, out: Path) -> None:
    pipeline = webdataset.WebDataset(urls(out), shardshuffle=False, empty_check=False)
    got = read_by_webdataset(pipeline.decode("rgb8").to_tuple("jpg;png", "cls"))
    dataset = open_dataset(out)
    assert len(got) == len(dataset) == 13
    for (pixels, label), (image, own) in zip(got, dataset, strict=True):
        assert label == own
        np.testing.assert_array_equal(pixels, np.asarray(image))


def test_members_are_plain_ustar(out: Path) -> None:
    for url in urls(out):
        data = Path(url).read_bytes()
        assert len(data) % 512 == 0
        assert data[-1024:] == bytes(1024)
        with tarfile.open(url) as tar:
            for member in tar:
                assert (member.type, member.mode, member.mtime, member.uid) == (
                    tarfile.REGTYPE,
                    0o444,
                    0,
                    0,
                )
                assert member.name == member.name.lower()
                assert data[member.offset + 257 :][:8] == b"ustar\x0000"


def test_gnu_tar_lists_them(out: Path) -> None:
    for url in urls(out):
        done = subprocess.run(["tar", "-tvf", url], check=True, capture_output=True, text=True)
        assert done.stderr == ""
        assert done.stdout.count("\n") >= 5


def test_shards_are_equal(packed: Callable[..., Path]) -> None:
    out = packed("many", "webdataset", 3)
    counts = []
    for url in urls(out):
        with tarfile.open(url) as tar:
            counts.append(sum(name.endswith(".cls") for name in tar.getnames()))
    assert sum(counts) == 13
    assert max(counts) <= 3
    assert max(counts) - min(counts) <= 1
    assert [Path(url).name for url in urls(out)] == [
        f"many-{n:06d}.tar" for n in range(len(counts))
    ]


def test_without_the_table(samples: Samples, out: Path) -> None:
    """The headers alone tell the same."""
    with_table = open_dataset(out, decode=None)
    table = (
        out / "index.safetensors" if out.is_dir() else out.with_name("out.tar.index.safetensors")
    )
    table.unlink()
    dataset = open_dataset(out, fields=("image", "txt"), decode=None)
    assert len(dataset) == 13
    for row, sample in enumerate(samples[1]):
        image, caption, label = dataset[row]
        assert (image, label) == (sample.image, sample.label)
        assert caption == sample.caption
        assert dataset[row][0] == with_table[row][0]


def test_tar_made_by_gnu_tar(samples: Samples, tmp_path: Path) -> None:
    tar = tmp_path / "own.tar"
    subprocess.run(["tar", "--sort=name", "-cf", str(tar), "-C", str(samples[0]), "."], check=True)
    dataset = open_dataset(tar, fields=("image", "txt"), decode=None)
    assert [dataset.samples[i][0] for i in range(13)] == [s.path for s in samples[1]]
    assert [dataset[i][0] for i in range(13)] == [s.image for s in samples[1]]


def test_what_webdataset_writes_is_read(samples: Samples, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with webdataset.ShardWriter(f"{tmp_path}/own/x-%06d.tar", maxcount=5, verbose=0) as writer:
        for number, sample in enumerate(samples[1]):
            extension = sample.path.rpartition(".")[2]
            fields = {"__key__": f"{number:04d}", extension: sample.image, "cls": sample.label}
            if sample.caption is not None:
                fields["txt"] = sample.caption.decode()
            writer.write(fields)
    dataset = open_dataset(tmp_path / "own", fields=("image", "txt"), decode=None)
    expected = [(s.image, s.caption, s.label) for s in samples[1]]
    assert [tuple(dataset[row]) for row in range(13)] == expected


def test_table_of_another_tar_is_not_believed(
    packed: Callable[..., Path], samples: Samples, tmp_path: Path
) -> None:
    out = packed("out.tar")
    data = bytearray(out.read_bytes())
    data[297:329] = b"0" * 31 + b"\0"  # the id in the first header
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    out.write_bytes(data)
    dataset = open_dataset(out, decode=None)
    assert dataset.classes == []
    assert [bytes(dataset.read(i)) for i in range(13)] == [s.image for s in samples[1]]


def test_a_folder_of_several_packs_is_none(packed: Callable[..., Path], tmp_path: Path) -> None:
    """Their classes differ, so reading them as one would mix up the labels."""
    packed("one.tar")
    packed("two.tar")
    with pytest.raises(UsageError, match=r"holds packs \(one.tar, two.tar\), and is none itself"):
        open_dataset(tmp_path)


def test_webdataset_reads_raw_samples_by_the_table(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    given = [random.integers(0, 256, (5, 6, 3), np.uint8) for _ in range(4)]
    out = tmp_path / "out.tar"
    pack(samples=(Sample(f"{n}.npy", pixels, n) for n, pixels in enumerate(given)), out=out)
    table = load_file(f"{out}.index.safetensors")
    shape = table["height"][0], table["width"][0], -1
    pipeline = webdataset.WebDataset(str(out), shardshuffle=False, empty_check=False)
    got = read_by_webdataset(pipeline.to_tuple("raw", "cls"))
    assert [label for _, label in got] == [b"0", b"1", b"2", b"3"]
    for (data, _), pixels in zip(got, given, strict=True):
        np.testing.assert_array_equal(np.frombuffer(data, np.uint8).reshape(shape), pixels)
