"""Named flat arrays in one block of bytes: the safetensors layout, written and mapped without a
copy.

    u64 size of the header | header: JSON {"name": {"dtype", "shape", "data_offsets"},
    "__metadata__"} | data

The header is padded with spaces so that the data starts at a multiple of 64; each array starts at a
multiple of 8. The format is https://github.com/huggingface/safetensors (README, "Format"); its
library reads these blocks. It holds the sample table beside packs that cannot hold arrays, and the
messages between the packing process and its workers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["block_size", "dump_arrays", "dump_header", "load_arrays", "load_object"]

Array = npt.NDArray[Any]

_NAMES = {
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float32": "F32", "float64": "F64", "bool": "BOOL",
}  # fmt: skip
_TYPES = {short: np.dtype(long).newbyteorder("<") for long, short in _NAMES.items()}


def dump_header(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Returns the size word and the header of a block that holds these arrays in this order."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for name, array in arrays.items():
        stop = place + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [place, stop],
        }
        place = stop
    # The format allows no gaps between arrays, so only the order keeps them aligned: wide types
    # first.
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def ordered(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the arrays, contiguous, wide types first: each then lies at a multiple of its item
    size."""
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    return {name: np.ascontiguousarray(arrays[name]) for name in names}


def dump_arrays(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> list[memoryview]:
    """Returns a block as buffers to be written one after the other; the arrays are not copied."""
    arrays = ordered(arrays)
    parts = [memoryview(dump_header(arrays, metadata or {}))]
    parts += [array.reshape(-1).view(np.uint8).data for array in arrays.values() if array.nbytes]
    return parts


def block_size(parts: Iterable[memoryview]) -> int:
    """Returns the number of bytes of a block."""
    return sum(part.nbytes for part in parts)


def load_arrays(block: memoryview | bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the arrays (views on the block, read-only if it is) and the metadata of a block.

    Raises:
        ValueError: The bytes are not such a block, or it is cut short.
    """
    view = memoryview(block)
    if view.nbytes < 8:
        raise ValueError("cut short: no header")
    start = 8 + int.from_bytes(view[:8], "little")
    if start > view.nbytes:
        raise ValueError(f"cut short: has {view.nbytes} bytes, its header alone needs {start}")
    header = load_object(bytes(view[8:start]))
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("not a safetensors block: its metadata are no texts")
    return {name: _array(view[start:], entry) for name, entry in header.items()}, metadata


def _array(data: memoryview, entry: Any) -> Array:
    """Returns one array of a block, as the header describes it."""
    try:
        dtype, (first, last), shape = _TYPES[entry["dtype"]], entry["data_offsets"], entry["shape"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a safetensors block: no array is {entry!r:.99}") from error
    whole = isinstance(shape, list) and all(
        type(number) is int and 0 <= number < 1 << 63 for number in (first, last, *shape)
    )
    if not whole or dtype.itemsize * math.prod(shape) != last - first:
        raise ValueError(f"not a safetensors block: no array is {entry!r:.99}")
    if last > data.nbytes:
        raise ValueError(f"cut short: has {data.nbytes} bytes of arrays, needs {last}")
    return np.frombuffer(data[first:last], dtype).reshape(shape)


def load_object(text: str | bytes) -> dict[str, Any]:
    """Returns a JSON object.

    Raises:
        ValueError: It is none.
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("not a JSON object: nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
