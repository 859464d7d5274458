"""Sample tables that are whole but do not fit their pack are told, not believed."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from fastconv.converters import Sharding, pack
from fastconv.loaders.arrays import dump_arrays, load_arrays
from fastconv.loaders.open import open_pack


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(6):
        file = tmp_path / f"tree/{'ab'[number % 2]}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4 + number)).save(file)
    return tmp_path / "tree"


@pytest.mark.parametrize("bounds", [[0, 1, 3, 6], [0, 6], [0, 5, 3, 6], [0, 2, 4, 5, 6]])
def test_table_with_other_shards(tree: Path, tmp_path: Path, bounds: list[int]) -> None:
    out = tmp_path / "out"
    pack(tree, out, format="webdataset", sharding=Sharding(samples=3))
    index = out / "index.safetensors"
    arrays, metadata = load_arrays(index.read_bytes())
    arrays["shard_row"] = np.array(bounds)
    index.write_bytes(b"".join(dump_arrays(arrays, metadata)))
    reader = open_pack(out)
    assert "the sample table is ignored" in reader.notices[0]
    assert [reader.table.label[row] for row in range(6)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("column", ["path", "path_offset", "kind", "label"])
def test_lmdb_that_has_lost_a_column(tree: Path, tmp_path: Path, column: str) -> None:
    pack(tree, tmp_path / "out.lmdb")
    with lmdb.open(str(tmp_path / "out.lmdb"), map_size=1 << 26) as env, env.begin(write=True) as t:
        t.delete(f"__table__/{column}".encode())
    reader = open_pack(tmp_path / "out.lmdb")
    assert "read by its keys" in reader.notices[0]
    assert len(reader) == 6
    assert bytes(reader.read(5) or b"")[:4] == b"\x89PNG"
