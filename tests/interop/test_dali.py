"""Our packs through NVIDIA DALI, on the CPU, by the index files that we make for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]
Library = Callable[[str], Any]
Tool = Callable[..., str]

pytestmark = pytest.mark.filterwarnings("ignore")


def read(library: Library, count: int, reader: str, **settings: Any) -> list[list[bytes]]:
    """Returns the bytes of all outputs of one of DALI's readers, for each sample."""
    return [
        [part.tobytes() for part in row]
        for row in pipeline(library, count, lambda fn: getattr(fn.readers, reader)(**settings))
    ]


def pipeline(
    library: Library, count: int, make: Callable[[Any], Sequence[Any]]
) -> list[list[np.ndarray[Any, Any]]]:
    """Returns the outputs of a pipeline for so many samples."""
    pipe = library("nvidia.dali").Pipeline(batch_size=count, num_threads=1, device_id=None)
    fn = library("nvidia.dali.fn")
    with pipe:
        pipe.set_outputs(*make(fn))
    pipe.build()
    outputs = pipe.run()
    return [[np.asarray(output.at(row)) for output in outputs] for row in range(count)]


def test_webdataset(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out", "webdataset", 5, index_for=["dali"])
    got = read(
        library, 13, "webdataset",
        paths=sorted(map(str, out.glob("*.tar"))), index_paths=sorted(map(str, out.glob("*.idx"))),
        ext=["jpg;png", "cls", "txt"], missing_component_behavior="empty",
    )  # fmt: skip
    expected = [[s.image, b"%d" % s.label, s.caption or b""] for s in samples[1]]
    assert got == expected


def test_webdataset_in_one_tar(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out.tar", index_for=["dali"])
    index = str(out.with_suffix(".idx"))
    got = read(
        library, 13, "webdataset", paths=[str(out)], index_paths=[index], ext=["jpg;png", "cls"]
    )
    assert got == [[s.image, b"%d" % s.label] for s in samples[1]]


def test_wds2idx_makes_the_same_index(packed: Pack, tool: Tool, tmp_path: Path) -> None:
    out = packed("out", "webdataset", 5, index_for=["dali"])
    for shard in out.glob("*.tar"):
        tool("wds2idx", "nvidia.dali", shard, tmp_path / "own.idx")
        assert (tmp_path / "own.idx").read_bytes() == shard.with_suffix(".idx").read_bytes()


def test_tfrecord(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out", "tfrecord", 5, index_for=["dali"])
    tfrecord = library("nvidia.dali.tfrecord")
    outputs = pipeline(
        library, 13,
        lambda fn: list(fn.readers.tfrecord(
            path=sorted(map(str, out.glob("*.tfrecord"))),
            index_path=sorted(map(str, out.glob("*.idx"))),
            features={
                "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
                "image/filename": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            },
        ).values()),
    )  # fmt: skip
    assert [(i.tobytes(), int(n[0]), p.tobytes()) for i, n, p in outputs] == [
        (s.image, s.label, s.path.encode()) for s in samples[1]
    ]


def test_tfrecord2idx_makes_the_same_index(packed: Pack, tool: Tool, tmp_path: Path) -> None:
    out = packed("out.tfrecord", index_for=["dali"])
    tool("tfrecord2idx", "nvidia.dali", out, tmp_path / "own.idx")
    assert (tmp_path / "own.idx").read_bytes() == Path(f"{out}.idx").read_bytes()


def test_recordio(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out", "recordio", 5, sidecars=(), index_for=["dali"])
    got = read(
        library, 13, "mxnet",
        path=sorted(map(str, out.glob("*.rec"))), index_path=[str(out / "out.idx")],
    )  # fmt: skip
    assert got == [[s.image, np.float32(s.label).tobytes()] for s in samples[1]]


def test_recordio_in_one_file(samples: Samples, packed: Pack, library: Library) -> None:
    out = packed("out.rec", sidecars=(), index_for=["dali"])
    index = [str(out.with_suffix(".idx"))]
    got = read(library, 13, "mxnet", path=[str(out)], index_path=index)
    assert got == [[s.image, np.float32(s.label).tobytes()] for s in samples[1]]


def test_the_same_pixels(photos: Samples, packed: Pack, library: Library) -> None:
    out = packed("out.tar", source=photos[0], sidecars=(), index_for=["dali"])

    def make(fn: Any) -> list[Any]:
        index = [str(out.with_suffix(".idx"))]
        images = fn.readers.webdataset(paths=[str(out)], index_paths=index, ext=["jpg"])
        return [fn.decoders.image(images, device="cpu")]

    dataset = open_dataset(out)
    got = pipeline(library, len(dataset), make)
    for (pixels,), (image, _) in zip(got, dataset, strict=True):
        assert np.abs(pixels.astype(int) - np.asarray(image)).mean() < 2
