"""Our TFRecords through TensorFlow, and TensorFlow's through fastconv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture
def tf(library: Callable[[str], Any]) -> Any:
    return library("tensorflow")


def files(out: Path) -> list[str]:
    return sorted(map(str, out.glob("*.tfrecord"))) if out.is_dir() else [str(out)]


@pytest.fixture(params=["one file", "shards"])
def out(request: pytest.FixtureRequest, packed: Pack) -> Path:
    if request.param == "one file":
        return packed("out.tfrecord")
    return packed("out", "tfrecord", 5)


def test_every_feature(tf: Any, samples: Samples, out: Path) -> None:
    text, integer = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.int64)
    features = {
        "image/encoded": text, "image/format": text, "image/filename": text,
        "image/class/text": text, "image/class/label": integer, "image/height": integer,
        "image/width": integer, "txt": tf.io.FixedLenFeature([], tf.string, "none"),
    }  # fmt: skip
    records = tf.data.TFRecordDataset(files(out))
    got = list(records.map(lambda one: tf.io.parse_single_example(one, features)))
    assert len(got) == len(samples[1])
    for example, sample in zip(got, samples[1], strict=True):
        values = {name: value.numpy() for name, value in example.items()}
        pixels = tf.io.decode_image(values["image/encoded"]).numpy()
        assert values["image/encoded"] == sample.image
        assert values["image/format"] == {"jpg": b"JPEG", "png": b"PNG"}[sample.path[-3:]]
        assert values["image/filename"] == sample.path.encode()
        assert values["image/class/text"] == [b"cat", b"dog"][sample.label]
        assert values["image/class/label"] == sample.label
        assert (values["image/height"], values["image/width"]) == pixels.shape[:2]
        assert values["txt"] == (b"none" if sample.caption is None else sample.caption)


def test_labels_from_one(tf: Any, samples: Samples, packed: Pack) -> None:
    out = packed("out.tfrecord", options={"label_base": 1})
    label = {"image/class/label": tf.io.FixedLenFeature([], tf.int64)}
    got = [
        int(tf.io.parse_single_example(one, label)["image/class/label"])
        for one in tf.data.TFRecordDataset(files(out))
    ]
    assert got == [sample.label + 1 for sample in samples[1]]
    assert [int(target) for target in open_dataset(out).targets] == [s.label for s in samples[1]]


def test_the_same_pixels(tf: Any, photos: Samples, packed: Pack) -> None:
    out = packed("out.tfrecord", source=photos[0], sidecars=())
    image = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
    records = tf.data.TFRecordDataset(files(out))
    for one, (picture, _) in zip(records, open_dataset(out), strict=True):
        encoded = tf.io.parse_single_example(one, image)["image/encoded"]
        pixels = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE").numpy()
        assert np.abs(pixels.astype(int) - np.asarray(picture)).mean() < 2


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_writes_is_read(
    tf: Any, samples: Samples, tmp_path: Path, compression: str
) -> None:
    def listed(kind: str, values: list[Any]) -> Any:
        if kind == "int":
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if kind == "float":
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    with tf.io.TFRecordWriter(str(tmp_path / "own.tfrecord"), compression) as writer:
        for sample in samples[1]:
            feature = {
                "image/encoded": listed("bytes", [sample.image]),
                "image/class/label": listed("int", [sample.label]),
                "image/filename": listed("bytes", [sample.path.encode()]),
                "image/object/bbox/xmin": listed("float", [0.25, 0.5]),
                "image/object/class/label": listed("int", []),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    if compression:
        with pytest.raises(Exception, match="compressed"):
            open_dataset(tmp_path / "own.tfrecord")
        return
    dataset = open_dataset(tmp_path / "own.tfrecord", decode=None)
    assert [tuple(dataset[i]) for i in range(13)] == [(s.image, s.label) for s in samples[1]]
    assert [path for path, _ in dataset.samples] == [sample.path for sample in samples[1]]
