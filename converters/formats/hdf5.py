"""Writes HDF5: plain contiguous arrays that any HDF5 program reads.

| dataset | type, shape | what |
|---|---|---|
| /data | uint8 (B,) | the images' bytes, one after the other |
| /offsets | uint64 (N + 1,) | image i is data[offsets[i]:offsets[i + 1]] |
| /labels | int64 (N,) | class ids or integer labels, -1 for none |
| /fields/NAME/data, /fields/NAME/offsets | as above | a sidecar |
| /table/... | | the other columns of the sample table (`fastconv.loaders.table`) |

Attributes of the root, all strings: `fastconv` (JSON, what the pack says of itself), `id`, `classes`
(JSON list of names) and `settings` (JSON object).

The file is made by HDF5's own library with all space allocated and nothing filled, so the library tells
where each array lies; then it is closed, and the arrays are written by all processes at once.
"""

from __future__ import annotations

import json
import os
from typing import Any

import h5py
import numpy as np

from fastconv.converters.writer import Layout, Sharding, Writer, pwrite_all
from fastconv.loaders.meta import NO_ID, PackMeta, Shard
from fastconv.loaders.table import COLUMNS, FIELD_COLUMNS, SampleTable

__all__ = ["HDF5Writer"]


def allocate(file: h5py.File, name: str, count: int, dtype: np.dtype[Any]) -> int:
    """Makes a contiguous array whose bytes exist but are not written.

    Returns:
        Where they start in the file; 0 where there are none.
    """
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_layout(h5py.h5d.CONTIGUOUS)
    plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plan.set_obj_track_times(False)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple((count,))
    kind = h5py.h5t.py_create(dtype, logical=True)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, plan, lcpl=links)
    return int(dataset.get_offset() or 0)


def types_of(column: str) -> np.dtype[Any]:
    """Returns the type of a stored column of the table."""
    return (COLUMNS | FIELD_COLUMNS)[column.partition("/")[0]]


def column_names(table: SampleTable) -> dict[str, str]:
    """Returns for each stored column of the table the dataset that holds it."""
    special = {"label": "labels"}
    for slot, name in enumerate(table.fields):
        special[f"offset/{name}"] = f"fields/{name}/offsets" if slot else "offsets"
    return {name: special.get(name, f"table/{name}") for name in table.column_sizes() if name != "shard_row"}


class HDF5Writer(Writer):
    """Writes one file."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5")
    table_inside = True

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        path = os.path.join(folder, "data")
        offset, base = [], []
        places: dict[str, int] = {}
        with h5py.File(path, "w", libver="earliest", locking=False) as file:
            file.attrs["fastconv"] = meta.to_json()
            file.attrs.create("id", np.bytes_(NO_ID))
            file.attrs["classes"] = json.dumps(meta.classes)
            file.attrs["settings"] = json.dumps(dict(meta.settings))
            for slot, (name, size) in enumerate(zip(table.fields, table.size, strict=True)):
                bounds = np.concatenate([[0], np.cumsum(np.maximum(size, 0))]).astype(np.uint64)
                where = f"fields/{name}/data" if slot else "data"
                base.append(allocate(file, where, int(bounds[-1]), np.dtype("u1")))
                offset.append(bounds)
            # Wide types first, bytes last: each array then starts at a multiple of its item size.
            names = sorted(column_names(table).items(), key=lambda item: -types_of(item[0]).itemsize)
            for name, dataset in names:
                column, _, of_field = name.partition("/")
                if column == "offset":
                    bounds = offset[table.fields.index(of_field)]
                    places[name] = allocate(file, dataset, bounds.shape[0], np.dtype("<u8"))
                else:
                    count = table.column_sizes()[name] // types_of(name).itemsize
                    places[name] = allocate(file, dataset, count, types_of(name))
        shard = Shard("data", os.stat(path).st_size)
        own = {"places": places, "bounds": offset}
        rows = np.array([0, len(table)], np.int64)
        return Layout((shard,), rows, tuple(bounds[:-1] for bounds in offset), tuple(base), own)

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        path = os.path.join(folder, "data")
        columns = table.arrays()
        columns |= {f"offset/{name}": b for name, b in zip(table.fields, layout.own["bounds"], strict=True)}
        fd = os.open(path, os.O_WRONLY)
        try:
            for name, place in layout.own["places"].items():
                pwrite_all(fd, memoryview(np.ascontiguousarray(columns[name]).view(np.uint8)), place)
        finally:
            os.close(fd)
        with h5py.File(path, "r+", locking=False) as file:
            file.attrs.modify("id", np.bytes_(meta.id))
