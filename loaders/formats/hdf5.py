"""Reads HDF5 packs: the library tells where each array lies, the file is read through our own map.

The layout stands in `fastconv.converters.formats.hdf5` and in the documentation.
"""

from __future__ import annotations

import os
from typing import Any, Self

import h5py
import numpy as np

from fastconv.loaders.errors import CorruptPackError, NotAPackError, PackError, printable
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.reader import MappedReader, map_file
from fastconv.loaders.table import COLUMNS, FIELD_COLUMNS, SampleTable

__all__ = ["HDF5Reader"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"


class HDF5Reader(MappedReader):
    """Reads one file."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5")
    dataset = "HDF5Dataset"

    @classmethod
    def recognises(cls, path: str) -> bool:
        if not os.path.isfile(path):
            return False
        try:
            with open(path, "rb") as file:
                return file.read(8) == SIGNATURE
        except OSError:
            return False

    @classmethod
    def open(cls, path: str) -> Self:
        block = map_file(path)
        if block is None:
            raise CorruptPackError(f"{printable(path)}: has no bytes")
        try:
            with h5py.File(path, "r", locking=False) as file:
                if "fastconv" not in file.attrs:
                    raise NotAPackError(
                        f"{printable(path)}: an HDF5 file, but not one that fastconv made: "
                        f"it lacks the attribute 'fastconv'"
                    )
                meta = PackMeta.from_json(file.attrs["fastconv"]).with_id(file.attrs["id"].decode())
                arrays, base = {}, []
                for name, (dataset, dtype) in stored(meta).items():
                    arrays[name] = mapped(file[dataset], dtype, memoryview(block))
                for slot, field in enumerate(meta.fields):
                    arrays[f"offset/{field}"] = arrays[f"offset/{field}"][:-1]
                    data = file[f"fields/{field}/data" if slot else "data"]
                    base.append(int(data.id.get_offset() or 0))
        except (OSError, RuntimeError) as error:
            if isinstance(error, PackError):
                raise
            raise CorruptPackError(f"{printable(path)}: {library_words(error)}") from error
        except (KeyError, ValueError, AttributeError) as error:
            raise CorruptPackError(f"{printable(path)}: not a whole pack: {error}") from error
        arrays["shard_row"] = np.array([0, meta.samples], np.int64)
        try:
            table = SampleTable.from_arrays(meta.fields, arrays, base)
        except ValueError as error:
            raise CorruptPackError(f"{printable(path)}: {error}") from error
        shard = Shard(os.path.basename(path), len(block))
        return cls(path, meta.with_shards((shard,)), table, [path])


def stored(meta: PackMeta) -> dict[str, tuple[str, np.dtype[Any]]]:
    """Returns for each column of the table the dataset that holds it, and its type."""
    out = {name: (f"table/{name}", dtype) for name, dtype in COLUMNS.items() if name != "shard_row"}
    out["label"] = ("labels", COLUMNS["label"])
    for column, dtype in FIELD_COLUMNS.items():
        for slot, field in enumerate(meta.fields):
            where = f"table/{column}/{field}"
            if column == "offset":
                where = f"fields/{field}/offsets" if slot else "offsets"
            out[f"{column}/{field}"] = (where, dtype)
    return out


def mapped(dataset: h5py.Dataset, dtype: np.dtype[Any], block: memoryview) -> np.ndarray[Any, Any]:
    """Returns a dataset as an array on the mapped file.

    Raises:
        ValueError: It is of another type, or not one contiguous block that lies inside the file.
    """
    if dataset.dtype != dtype or dataset.ndim != 1:
        raise ValueError(f"the dataset {dataset.name} is {dataset.dtype} {dataset.shape}, not {dtype} (n,)")
    if not dataset.shape[0]:
        return np.zeros(0, dtype)
    place = dataset.id.get_offset()
    if place is None or place + dataset.nbytes > block.nbytes:
        raise ValueError(f"the dataset {dataset.name} is not one block inside the file")
    return np.frombuffer(block, dtype, dataset.shape[0], place)


def library_words(error: Exception) -> str:
    """Returns one line of what HDF5 says; a file cut short is called so."""
    text = " ".join(str(error).split())
    if "truncated file" in text:
        numbers = [int(word.strip(",)")) for word in text.replace("=", " ").split() if word.strip(",)").isdigit()]
        if len(numbers) >= 3:
            return f"truncated: has {numbers[0]} bytes, needs {numbers[-1]}: copy the pack again"
        return "truncated: copy the pack again"
    return f"damaged: {text}"
