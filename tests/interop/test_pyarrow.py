"""Our Parquet through `pyarrow`, and pyarrow's through fastconv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastconv.loaders import open_dataset

Samples = tuple[Path, list[Any]]
Pack = Callable[..., Path]


@pytest.fixture
def pq(library: Callable[[str], Any]) -> Any:
    return library("pyarrow.parquet")


def test_it_reads_ours(pq: Any, samples: Samples, packed: Pack) -> None:
    out = packed("out.parquet")
    table = pq.read_table(out).to_pydict()
    assert table["image"] == [{"bytes": s.image, "path": s.path} for s in samples[1]]
    assert table["label"] == [sample.label for sample in samples[1]]
    assert table["txt"] == [sample.caption for sample in samples[1]]


def test_it_reads_shards_as_one(pq: Any, samples: Samples, packed: Pack) -> None:
    out = packed("out", "parquet", 5)
    table = pq.read_table([str(file) for file in sorted(out.glob("*.parquet"))])
    assert table.column("label").to_pylist() == [sample.label for sample in samples[1]]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_what_it_writes_is_read(
    pq: Any,
    library: Callable[[str], Any],
    samples: Samples,
    tmp_path: Path,
    compression: str,
    dictionary: bool,
) -> None:
    pa = library("pyarrow")
    table = pa.table(
        {
            "image": [{"bytes": s.image, "path": s.path} for s in samples[1]],
            "label": [s.label for s in samples[1]],
        }
    )
    pq.write_table(
        table, tmp_path / "own.parquet", compression=compression, use_dictionary=dictionary,
        row_group_size=5, data_page_size=2000,
    )  # fmt: skip
    dataset = open_dataset(tmp_path / "own.parquet", decode=None)
    assert [tuple(dataset[i]) for i in range(13)] == [(s.image, s.label) for s in samples[1]]
