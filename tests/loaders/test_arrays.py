"""Blocks of arrays come back as they were; damaged ones are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fastconv.loaders.arrays import Array, dump_arrays, load_arrays


def test_arrays_come_back() -> None:
    given: dict[str, Array] = {"a": np.arange(3, dtype=np.uint8), "b": np.ones((2, 0))}
    arrays, metadata = load_arrays(b"".join(dump_arrays(given, {"k": "v"})))
    assert metadata == {"k": "v"}
    assert {name: (array.dtype, array.tolist()) for name, array in arrays.items()} == {
        name: (array.dtype, array.tolist()) for name, array in given.items()
    }


def block(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


def entry(**changes: object) -> dict[str, object]:
    return {"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16], **changes}}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff" * 8, b"\xff" * 80, block([]), block(b"[" * 100_000), block(b"9" * 10_000),
        block(b"\xff"), block({"__metadata__": None}), block({"__metadata__": "fastconv"}),
        block({"__metadata__": {"k": 5}}), block({"a": None}), block({"a": "x"}), block({"a": []}),
        block(entry(dtype=[])), block(entry(dtype="U9")), block(entry(shape="x")),
        block(entry(shape=[2.0])), block(entry(shape=[True, 2])), block(entry(shape=[-1, -2])),
        block(entry(shape=[10**30])), block(entry(shape=[0, 10**30], data_offsets=[0, 0])),
        block(entry(shape=[3])), block(entry(data_offsets=[0])), block(entry(data_offsets=5)),
        block(entry(data_offsets=[-16, 0])), block(entry(data_offsets=[16, 0])),
        block(entry(data_offsets=["0", "16"])), block(entry(data_offsets=[1, 17])),
        block(entry(data_offsets=[2**64, 2**64 + 16])),
    ],
)  # fmt: skip
def test_damaged_blocks_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(cut short|not a|Exceeds|'utf-8')"):
        load_arrays(data)


def test_the_block_that_the_damaged_ones_differ_from() -> None:
    assert load_arrays(block(entry()))[0]["a"].tolist() == [0, 0]
