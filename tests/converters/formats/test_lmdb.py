"""LMDB databases written page by page are what liblmdb itself would call whole."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastconv.converters.formats.lmdb import LMDBWriter, build_tree, meta_json
from fastconv.converters.part import pack_part
from fastconv.converters.plan import placed
from fastconv.converters.writer import Sharding
from fastconv.loaders.formats.lmdb import LMDBReader
from fastconv.loaders.identity import pack_id
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.table import SampleTable

PAGE = 4096
FIELDS = ("image", "json", "mask.png")

Values = list[list[bytes | None]]


def write(
    folder: Path, values: Values, fields: tuple[str, ...], cuts: list[int]
) -> dict[bytes, bytes]:
    """Writes a database of such samples in parts that end at `cuts`, in any order; what must be in
    it."""
    count = len(values)
    blob = folder / "blob"
    blob.write_bytes(b"".join(value or b"" for sample in values for value in sample))
    size = np.array([[-1 if v is None else len(v) for v in sample] for sample in values], np.int64)
    start = np.concatenate([[0], np.cumsum(np.maximum(size, 0).reshape(-1))])[:-1].reshape(
        size.shape
    )
    paths = b"".join(b"%d.png" % row for row in range(count))
    table = SampleTable(
        fields=fields,
        label=np.arange(count),
        kind=np.full(count, 2, np.uint8),
        width=np.ones(count, np.uint32),
        height=np.ones(count, np.uint32),
        path_bytes=np.frombuffer(paths, np.uint8),
        path_offset=np.cumsum(
            [0, *(len(b"%d.png" % row) for row in range(count))], dtype=np.uint64
        ),
        shard_row=np.array([0, count]),
        offset=(),
        size=tuple(np.ascontiguousarray(column) for column in size.T),
        checksum=tuple(np.zeros(count, np.uint64) for _ in fields),
    )
    meta = PackMeta(format="lmdb", samples=count, fields=fields, labels="int")
    writer = LMDBWriter()
    out = folder / "db"
    out.mkdir()
    layout = writer.lay_out(str(out), None, Sharding(), meta, table)
    with open(out / "data.mdb", "wb") as file:
        file.truncate(layout.shards[0].size)
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < count}), count]
    parts = list(pairwise(bounds))
    random.Random(count).shuffle(parts)
    for first, last in parts:
        task: dict[str, Any] = {
            "source": "files", "files": [str(blob)], "out": str(out / "data.mdb"), "writer": "lmdb",
            "options": {}, "check": "fast", "max_pixels": 0, "first_row": first, "fields": fields,
            "samples": count,
        }  # fmt: skip
        arrays: dict[str, Any] = {"label": table.label[first:last], "kind": table.kind[first:last]}
        arrays["from"] = np.zeros(last - first, np.int64)
        for slot, name in enumerate(fields):
            arrays[f"size/{name}"] = table.size[slot][first:last]
            arrays[f"place/{name}"] = layout.offset[slot][first:last].astype(np.int64)
            arrays[f"from/{name}"] = start[first:last, slot]
        arrays |= {f"own/{name}": array for name, array in writer.part(layout, first, last).items()}
        pack_part(task, arrays)
    table = placed(table, layout)
    meta = meta.with_id(pack_id(meta, table))
    writer.finish(str(out), layout, meta, table)
    width = len(str(count - 1))
    expected = {
        (f"{row:0{width}d}" + (f".{name}" if slot else "")).encode(): value
        for row, sample in enumerate(values)
        for slot, (name, value) in enumerate(zip(fields, sample, strict=True))
        if value is not None
    }
    tail = layout.own["tail"]
    places = dict(zip(tail, layout.own["tree"].value[-len(tail) :].tolist(), strict=True))
    expected[b"__len__"] = b"%d" % count
    expected[b"__meta__"] = meta_json(meta, places).encode()
    for name, column in table.arrays().items():
        expected[f"__table__/{name}".encode()] = column.tobytes()
    return expected


def check(folder: Path, expected: dict[bytes, bytes]) -> None:
    """Asks liblmdb about everything, lets it copy and change the database, and reads it
    ourselves."""
    db = folder / "db"
    before = (db / "data.mdb").read_bytes()
    (folder / "copy").mkdir()
    with lmdb.open(str(db), readonly=True, lock=False) as env:
        stat = env.stat()
        assert stat["entries"] == len(expected)
        assert env.info()["last_pgno"] + 1 == len(before) // PAGE
        # All pages but both metas are in the tree: none is lost, none is counted twice.
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        assert pages == len(before) // PAGE - 2
        with env.begin(buffers=True) as txn:
            assert [(bytes(key), bytes(value)) for key, value in txn.cursor()] == sorted(
                expected.items()
            )
            for key in random.Random(1).sample(sorted(expected), min(50, len(expected))):
                found = txn.get(key)
                assert found is not None
                assert bytes(found) == expected[key]
        env.copy(str(folder / "copy"), compact=True)
    after = (folder / "copy" / "data.mdb").read_bytes()
    assert len(after) == len(before)
    for page in range(2, len(before) // PAGE):  # equal but for the gap in the middle of tree pages
        one, other = before[page * PAGE :][:PAGE], after[page * PAGE :][:PAGE]
        if one != other:
            assert one[:16] == other[:16]
            lower, upper = (
                int.from_bytes(one[12:14], "little"),
                int.from_bytes(one[14:16], "little"),
            )
            assert (one[:lower], one[upper:]) == (other[:lower], other[upper:]), page
    reader = LMDBReader.open(str(db))
    assert not reader.notices
    moved = LMDBReader.open(str(folder / "copy"))
    assert not moved.notices, "the compacting copy leaves every value at its place"
    with lmdb.open(str(db), map_size=len(before) + (64 << 20)) as env, env.begin(write=True) as txn:
        keys = sorted(expected)
        assert txn.put(b"zz", b"x" * 9000)
        assert txn.put(keys[0], b"changed")
        assert txn.delete(keys[len(keys) // 2])
    with lmdb.open(str(db), readonly=True, lock=False) as env:
        assert env.stat()["entries"] == len(expected)


@st.composite
def samples(draw: st.DrawFn) -> tuple[Values, list[int]]:
    size = st.one_of(
        st.sampled_from([0, 1, 16, 500, 1020, 1900, 4070, 4080, 4081, 8176, 8177, 12300]),
        st.integers(1990, 2110),
        st.integers(0, 9000),
    )
    count = draw(st.integers(1, 60))
    sizes = draw(st.lists(size, min_size=3 * count, max_size=3 * count))
    missing = draw(st.sets(st.integers(0, 3 * count - 1), max_size=count))
    values: Values = []
    for row in range(count):
        sample: list[bytes | None] = []
        for slot in range(3):
            at = 3 * row + slot
            value = random.Random(at).randbytes(sizes[at])
            sample.append(None if slot and at in missing else value)
        values.append(sample)
    return values, draw(st.lists(st.integers(1, count), max_size=5))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(given_samples=samples())
def test_any_sizes_and_missing_fields(
    tmp_path_factory: pytest.TempPathFactory, given_samples: tuple[Values, list[int]]
) -> None:
    values, cuts = given_samples
    folder = tmp_path_factory.mktemp("lmdb")
    check(folder, write(folder, values, FIELDS, cuts))


def last_pages_with(children: int) -> Iterator[int]:
    """Yields numbers of samples of two a leaf for which the last branch has so many children."""
    for count in range(520, 620):
        tree = build_tree(np.full(count, 3), np.full(count, 1900))
        level_one = [branch for branch in tree.branches if branch[0] != tree.root]
        if level_one and len(level_one[-1][1]) == children:
            yield count


@pytest.mark.parametrize("children", [2, 3])
def test_last_branch_with_few_children(tmp_path: Path, children: int) -> None:
    """A branch with one child makes liblmdb abort later, so it takes one over: two at least, then
    three."""
    counts = list(last_pages_with(children))
    assert counts, "the tail of the tree must not always be alike"
    values: Values = [[random.Random(row).randbytes(1900)] for row in range(counts[0])]
    check(tmp_path, write(tmp_path, values, ("image",), [100, 101, 357]))


def test_no_branch_has_one_child() -> None:
    for count in range(1, 3000):
        tree = build_tree(np.full(count, 4), np.full(count, 1900))
        assert all(len(children) >= 2 for _, children, _ in tree.branches), count


def test_three_levels_of_long_keys(tmp_path: Path) -> None:
    fields = ("image", "a-caption-in-a-language-with-a-very-long-name-indeed-so-long.txt")
    values: Values = [
        [random.Random(row).randbytes(1800 + row % 300), b"t" * (1700 + row % 200)]
        for row in range(3000)
    ]
    expected = write(tmp_path, values, fields, list(range(97, 3000, 97)))
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as env:
        assert env.stat()["depth"] == 3
    check(tmp_path, expected)


def test_every_number_of_samples_up_to_two_leaves(tmp_path: Path) -> None:
    for count in (1, 2, 9, 10, 11, 99, 100, 184, 185, 186, 187):
        folder = tmp_path / str(count)
        folder.mkdir()
        check(
            folder,
            write(folder, [[b"%d" % row * 700] for row in range(count)], ("image",), [count // 2]),
        )


def test_values_up_to_four_gigabytes_have_places() -> None:
    size = np.array([2**31 + 5, 2**32 - 1, 3])
    tree = build_tree(np.full(3, 1), size)
    assert tree.value[0] == 2 * PAGE + 16
    assert tree.value[1] == tree.value[0] + ((16 + size[0] + PAGE - 1) // PAGE) * PAGE


def test_meta_is_as_long_for_any_places() -> None:
    meta = PackMeta(format="lmdb", samples=3, fields=("image",))
    assert len(meta_json(meta, {"__table__/x": 0})) == len(meta_json(meta, {"__table__/x": 2**60}))
    assert json.loads(meta_json(meta, {"__len__": 1, "__table__/x": 7}))["table"] == {
        "x": f"{7:016x}"
    }
