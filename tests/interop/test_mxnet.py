"""Our RecordIO through MXNet, and MXNet's through fastconv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]
Run = Callable[..., Any]

MAGIC = (0xCED7230A).to_bytes(4, "little")


def test_mxnet_reads_it_by_its_index(samples: Samples, packed: Pack, reader: Run) -> None:
    out = packed("out.rec", sidecars=(), index_for=())
    got = reader("mxnet_records", "mxnet", "read", out, out.with_suffix(".idx"))
    assert got == [
        [number, number, [float(sample.label)], sample.image.hex()]
        for number, sample in enumerate(samples[1])
    ]


def test_mxnet_reads_each_shard(samples: Samples, packed: Pack, reader: Run) -> None:
    out = packed("out", "recordio", 5, sidecars=(), index_for=())
    got = []
    for shard in sorted(out.glob("*.rec")):
        got += reader("mxnet_records", "mxnet", "read", shard, shard.with_suffix(".idx"))
    assert [row[0] for row in got] == list(range(13))
    assert [bytes.fromhex(row[3]) for row in got] == [sample.image for sample in samples[1]]


def test_mxnet_reads_images_that_hold_the_magic(tmp_path: Path, reader: Run, packed: Pack) -> None:
    head = b"BM" + bytes(
        [66, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]
    )
    head += bytes([1, 0, 24, 0]) + bytes(26)  # a picture of 1 by 3 pixels; 56 bytes until here
    images = [head + rest for rest in (b"pixels", MAGIC * 3)]
    (tmp_path / "tree/a").mkdir(parents=True)
    for number, image in enumerate(images):
        (tmp_path / f"tree/a/{number}.bmp").write_bytes(image)
    out = packed("out.rec", source=tmp_path / "tree", sidecars=(), index_for=())
    got = reader("mxnet_records", "mxnet", "read", out, out.with_suffix(".idx"))
    assert [bytes.fromhex(row[3]) for row in got] == images
    assert out.stat().st_size == sum(32 + (len(image) + 3) // 4 * 4 for image in images) + 12


def test_mxnet_trains_on_it(photos: Samples, packed: Pack, reader: Run) -> None:
    out = packed("out.rec", source=photos[0], sidecars=(), index_for=())
    got = reader("mxnet_records", "mxnet", "iterate", out, out.with_suffix(".idx"))
    assert [label for label, _ in got] == [float(sample.label) for sample in photos[1]]
    images = [np.asarray(image) for image, _ in open_dataset(out)]
    means = [image.mean(axis=(0, 1)) for image in images]
    np.testing.assert_allclose([mean for _, mean in got], means, atol=1)


def test_im2rec_makes_the_same(samples: Samples, packed: Pack, reader: Run, tmp_path: Path) -> None:
    """All but eight bytes, which no reader looks at: we keep there which pack the file is of."""
    out = packed("out.rec", sidecars=(), index_for=())
    reader("mxnet_records", "mxnet", "im2rec", tmp_path / "own", samples[0])
    for extension in (".idx", ".lst"):
        own = tmp_path / f"own{extension}"
        assert out.with_suffix(extension).read_bytes() == own.read_bytes()
    ours, own_bytes = bytearray(out.read_bytes()), (tmp_path / "own.rec").read_bytes()
    ours[24:32] = bytes(8)
    assert ours == own_bytes
    dataset = open_dataset(tmp_path / "own.rec", decode=None)
    assert [tuple(dataset[i]) for i in range(13)] == [(s.image, s.label) for s in samples[1]]


def test_rec2idx_makes_the_same_index(packed: Pack, reader: Run, tmp_path: Path) -> None:
    out = packed("out.rec", sidecars=(), index_for=())
    reader("mxnet_records", "rec2idx", "index", out, tmp_path / "own.idx")
    assert (tmp_path / "own.idx").read_bytes() == out.with_suffix(".idx").read_bytes()


def test_what_mxnet_writes_is_read(reader: Run, tmp_path: Path) -> None:
    reader("mxnet_records", "mxnet", "write", tmp_path / "own.rec", tmp_path / "own.idx")
    dataset = open_dataset(tmp_path / "own.rec", decode=None)
    middles = [b"", MAGIC, MAGIC * 2, b"x" + MAGIC]
    images = [b"\xff\xd8\xff\xe0" + m + b"image %d" % number for number, m in enumerate(middles)]
    assert [bytes(dataset.read(i)) for i in range(4)] == images
    assert [int(label) for label in dataset.targets[:4]] == [0, 1, 2, 3]
    assert bytes(dataset.read(4)) == b"\xff\xd8\xff\xe0 two labels"


pytestmark = pytest.mark.timeout(300)
