"""Writes HDF5: plain contiguous arrays that any HDF5 program reads.

| dataset | type, shape | what |
|---|---|---|
| /data | uint8 (B,) | the images' bytes, one after the other |
| /images | uint8 (N, rows, columns, channels) | in place of /data where all are raw, of one shape |
| /offsets | uint64 (N + 1,) | image i is data[offsets[i]:offsets[i + 1]] |
| /labels | int64 (N,) | class ids or integer labels, -1 for none |
| /fields/NAME/data, /fields/NAME/offsets | as above | a sidecar |
| /table/... | | the other columns of the sample table (`fastconv.loaders.table`) |

| /fastconv | string | what the pack says of itself, JSON |
| /classes | string | names of the classes, JSON list |

Attributes of the root: `id` and `settings` (JSON object). All strings are of fixed length: those of
variable length lie in a heap, where damage makes HDF5's library hang. An attribute ends at 64 kB,
so what may be longer is a dataset.

The file is made by HDF5's own library with all space allocated and nothing filled, so the library
tells where each array lies; then it is closed, and the arrays are written by all processes at once.

With `--option layout=vlen` the images are in the shape that tutorials use, written by the library
in the end, by one process: /images, N arrays of uint8 of their own lengths, in place of /data and
/offsets; where each lies in the file is in /table/offset/image.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fastconv.converters.verify import DataFile
from fastconv.converters.writer import Layout, Sharding, Writer, pwrite_all
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.formats.hdf5 import ELEMENT, heap_places, holds, is_vlen, stored
from fastconv.loaders.meta import NO_ID, PackMeta, Shard
from fastconv.loaders.raw import common_shape
from fastconv.loaders.reader import MappedReader, Reader
from fastconv.loaders.table import COLUMNS, FIELD_COLUMNS, SampleTable

if TYPE_CHECKING:
    import h5py

__all__ = ["HDF5Writer"]

MOST_ROWS = 8
"""Values of variable length that are told of one by one."""

SEEN = 4096
"""Bytes at both ends of an array of samples that are read through the library, too."""

Shape = Literal["contiguous", "vlen"]

ROWS = 256
"""Images given to the library at once."""


@dataclass(frozen=True, slots=True)
class HDF5Options:
    """What can be chosen.

    Attributes:
        layout: "contiguous" for one array of all bytes, "vlen" for one array of variable length an
            image.
    """

    layout: Shape = "contiguous"

    def __post_init__(self) -> None:
        if self.layout not in get_args(Shape):
            raise UsageError(
                f"HDF5's layout is one of {', '.join(get_args(Shape))}, not {self.layout!r}"
            )


@contextmanager
def system_errors(path: str) -> Iterator[None]:
    """Turns what HDF5's library says of an error of the system into that error.

    Raises:
        OSError: The system refused something.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        # Some are the errors of what was to be cleaned up after the first one.
        chain: list[BaseException] = [error]
        while (more := chain[-1].__context__) is not None:
            chain.append(more)
        found = [re.search(r"\berrno = (\d+)", str(one)) for one in chain]
        numbers = [getattr(error, "errno", None), *(int(match[1]) for match in found if match)]
        number = next(filter(None, numbers), None)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), path) from error


def allocate(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Makes a contiguous array whose bytes exist but are not written.

    Returns:
        Where they start in the file; 0 where there are none.
    """
    import h5py

    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_layout(h5py.h5d.CONTIGUOUS)
    plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plan.set_obj_track_times(False)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple(shape)
    kind = h5py.h5t.py_create(dtype, logical=True)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, plan, lcpl=links)
    return int(dataset.get_offset() or 0)


def types_of(column: str) -> np.dtype[Any]:
    """Returns the type of a stored column of the table."""
    return (COLUMNS | FIELD_COLUMNS)[column.partition("/")[0]]


def data_of(table: SampleTable, slot: int, *, vlen: bool) -> tuple[str, tuple[int, ...]]:
    """Returns the name and the shape of the dataset with the bytes of a field of all samples.

    Args:
        table: The pack's rows.
        slot: Of the field.
        vlen: Whether the images become arrays of variable length in the end.
    """
    flat = (int(np.maximum(table.size[slot], 0).sum()),)
    if slot:
        return f"fields/{table.fields[slot]}/data", flat
    shape = None if vlen else common_shape(table)
    return ("data", flat) if shape is None else ("images", (len(table), *shape))


def column_names(table: SampleTable) -> dict[str, str]:
    """Returns for each stored column of the table the dataset that holds it."""
    special = {"label": "labels"}
    for slot, name in enumerate(table.fields):
        special[f"offset/{name}"] = f"fields/{name}/offsets" if slot else "offsets"
    return {
        name: special.get(name, f"table/{name}")
        for name in table.column_sizes()
        if name != "shard_row"
    }


class HDF5Writer(Writer):
    """Writes one file."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5")
    requires = ("h5py",)
    Options = HDF5Options
    table_inside = True

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        import h5py

        path = os.path.join(folder, "data")
        offset, base = [], []
        places: dict[str, int] = {}
        with (
            system_errors(path),
            h5py.File(path, "w", libver="earliest", locking=False) as file,
        ):
            file.attrs["id"] = np.bytes_(NO_ID)
            file.attrs["settings"] = np.bytes_(json.dumps(dict(meta.settings)))
            texts = {"fastconv": meta.to_json(), "classes": json.dumps(meta.class_texts())}
            for name, text in texts.items():
                allocate(file, name, (), np.dtype(f"S{len(text)}"))
                file[name][()] = np.bytes_(text)
            for slot, size in enumerate(table.size):
                bounds = np.concatenate([[0], np.cumsum(np.maximum(size, 0))]).astype(np.uint64)
                where, shape = data_of(table, slot, vlen=self.options.layout == "vlen")
                base.append(allocate(file, where, shape, np.dtype("u1")))
                offset.append(bounds)
            # Wide types first, bytes last: each array then starts at a multiple of its item size.
            names = sorted(
                column_names(table).items(), key=lambda item: -types_of(item[0]).itemsize
            )
            for name, dataset in names:
                column, _, of_field = name.partition("/")
                if column == "offset":
                    bounds = offset[table.fields.index(of_field)]
                    places[name] = allocate(file, dataset, bounds.shape, np.dtype("<u8"))
                else:
                    count = table.column_sizes()[name] // types_of(name).itemsize
                    places[name] = allocate(file, dataset, (count,), types_of(name))
        shard = Shard("data", os.stat(path).st_size)
        own = {"places": places, "bounds": offset}
        rows = np.array([0, len(table)], np.int64)
        return Layout((shard,), rows, tuple(bounds[:-1] for bounds in offset), tuple(base), own)

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        import h5py

        path = os.path.join(folder, "data")
        columns = table.arrays()
        columns |= {
            f"offset/{name}": b for name, b in zip(table.fields, layout.own["bounds"], strict=True)
        }
        fd = os.open(path, os.O_WRONLY)
        try:
            for name, place in layout.own["places"].items():
                pwrite_all(fd, np.ascontiguousarray(columns[name]).view(np.uint8).data, place)
        finally:
            os.close(fd)
        with system_errors(path), h5py.File(path, "r+", locking=False) as file:
            file.attrs.modify("id", np.bytes_(meta.id))
            file["fastconv"][()] = np.bytes_(meta.with_shards(()).to_json())
        if self.options.layout == "vlen":
            shape_as_vlen(path, os.path.join(folder, self.finished("data")), layout)

    def finished(self, name: str) -> str:
        return f"{name}.vlen" if self.options.layout == "vlen" else name

    @classmethod
    def problems(cls, reader: Reader) -> Iterator[tuple[str, str]]:
        import h5py

        if not isinstance(reader, MappedReader) or not reader.meta.id:
            return
        (path,) = reader.files
        name = os.path.basename(reader.path)
        with DataFile(path) as raw:
            head = raw.read(0, 64)
        place = {0: 40, 1: 44}.get(head[8], 28)  # by the version of the superblock
        size, end = reader.meta.shards[0].size, int.from_bytes(head[place : place + 8], "little")
        if size != end:
            yield name, f"has {size} bytes, but ends after {end} by its own superblock"
        try:
            with h5py.File(path, "r", locking=False) as file:
                for words in (*text_problems(reader, file), *array_problems(reader, file)):
                    yield name, words
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            yield name, f"HDF5's library cannot read all of it: {' '.join(str(error).split())}"


def shape_as_vlen(path: str, new: str, layout: Layout) -> None:
    """Makes a file of the contiguous layout into another one, whose images are arrays of variable
    length."""
    import h5py

    bounds = layout.own["bounds"][0]
    with (
        system_errors(new),
        h5py.File(path, "r", locking=False) as old,
        h5py.File(new, "w", libver="earliest", locking=False) as file,
    ):
        for name, value in old.attrs.items():
            file.attrs[name] = value
        for name in ("fastconv", "classes", "fields", "labels", "table"):
            if name in old:
                old.copy(name, file)
        count = bounds.shape[0] - 1
        images = file.create_dataset(
            "images", (count,), h5py.vlen_dtype(np.uint8), track_times=False
        )
        for start in range(0, count, ROWS):
            stop = min(start + ROWS, count)
            block = old["data"][int(bounds[start]) : int(bounds[stop])]
            ends = (bounds[start + 1 : stop] - bounds[start]).astype(np.int64)
            rows = np.empty(stop - start, object)
            for row, image in enumerate(np.split(block, ends)):
                rows[row] = image
            if np.unique(np.diff(bounds[start : stop + 1])).shape[0] > 1:
                images[start:stop] = rows
            else:  # h5py takes rows of one length for an array of two dimensions
                for row, image in enumerate(rows, start):
                    images[row] = image
        allocate(file, "table/offset/image", (count,), np.dtype("<u8"))
        elements = int(images.id.get_offset())
        places = int(file["table/offset/image"].id.get_offset())
    with (
        open(new, "r+b") as raw,
        mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as block_of_file,
    ):
        with memoryview(block_of_file) as view:
            found = heap_places(view, elements, count)
        pwrite_all(raw.fileno(), found.view(np.uint8).data, places)


def text_problems(reader: MappedReader, file: h5py.File) -> Iterator[str]:
    """Yields which texts of an HDF5 are not what the pack's table says."""
    from h5py import h5t

    meta = reader.meta
    texts = {
        "fastconv": meta.with_shards(()).to_json(),
        "classes": json.dumps(meta.class_texts()),
        "id": meta.id,
        "settings": json.dumps(dict(meta.settings)),
    }
    for name, text in texts.items():
        if name in file:
            value, kind = file[name][()], file[name].id.get_type()
        else:
            value, kind = file.attrs[name], file.attrs.get_id(name).get_type()
        if text.encode() != value:
            yield f"its {name} is not what the sample table says"
        elif not kind.equal(h5t.py_create(np.dtype(f"S{len(text)}"))):
            yield f"its {name} is no plain text of {len(text)} bytes"


def array_problems(reader: MappedReader, file: h5py.File) -> Iterator[str]:
    """Yields which arrays of an HDF5 are not what the pack's table says."""
    table, meta = reader.table, reader.meta
    byte, vlen = np.dtype(np.uint8), is_vlen(meta)
    columns = {name: array for name, array in table.arrays().items() if name != "shard_row"}
    values, types = {}, {}
    for column, (name, dtype) in stored(meta).items():
        values[name], types[name] = columns[column], dtype
    if vlen:  # what a copying program has moved was found anew
        values["table/offset/image"] = file["table/offset/image"][:]
    data: dict[str, tuple[int, tuple[int, ...]]] = {}
    for slot, (field, sizes) in enumerate(zip(table.fields, table.size, strict=True)):
        if slot or not vlen:
            folder = f"fields/{field}/" if slot else ""
            ends = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])
            values[f"{folder}offsets"] = ends
            where, shape = data_of(table, slot, vlen=vlen)
            data[where] = (table.base[slot], shape)
    shapes = {name: array.shape for name, array in values.items()}
    shapes |= {name: shape for name, (_, shape) in data.items()}
    if vlen:
        shapes["images"] = (len(table),)
    names: list[str] = []
    file.visit(names.append)
    for name, shape in shapes.items():
        dataset, title = file[name], f"the dataset {printable(name)}"
        if name not in names:
            yield f"{title} is not listed"
        elif dataset.shape != shape:
            yield f"{title} is {dataset.shape}, not {shape}"
        elif not holds(dataset, types.get(name, byte), vlen=vlen and name == "images"):
            yield f"{title} is not of plain {types.get(name, byte)}, but of another {dataset.dtype}"
        elif words := storage_problem(dataset):
            yield f"{title} {words}"
        elif name in values:
            if not np.array_equal(dataset[:], values[name]):
                yield f"{title} is not what the sample table says"
        elif name in data:
            with DataFile(reader.files[0]) as raw:
                base, length = data[name][0], shape[0]
                size = math.prod(shape[1:])  # of what is read at least, in bytes
                some = max(SEEN // size, 1)
                for start in {0, max(length - some, 0)}:
                    stop = min(start + some, length)
                    held = raw.read(base + start * size, base + stop * size)
                    if dataset[start:stop].tobytes() != held:
                        yield f"{title} has other bytes than the samples, from {start} on"
        else:
            yield from vlen_problems(reader, int(dataset.id.get_offset() or 0))


def storage_problem(dataset: h5py.Dataset) -> str:
    """Returns what keeps a dataset from being one block of the file, as it is; "" where nothing."""
    from h5py import h5d

    plan = dataset.id.get_create_plist()
    if plan.get_layout() != h5d.CONTIGUOUS:
        return "is not stored as one block"
    if plan.get_nfilters():
        return "goes through a filter"
    if dataset.maxshape != dataset.shape:
        return f"can grow to {dataset.maxshape}"
    if plan.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and bool(dataset.fillvalue):
        return f"is filled with {dataset.fillvalue} where nothing was written"
    return ""


def vlen_problems(reader: MappedReader, elements: int) -> Iterator[str]:
    """Yields which elements of the images' dataset are not those of the samples.

    Args:
        reader: The pack.
        elements: Where they start in the file.

    Raises:
        ValueError: One leads nowhere.
    """
    with DataFile(reader.files[0]) as file:
        view = memoryview(mmap.mmap(file.fd, 0, access=mmap.ACCESS_READ))
    size, offset = reader.table.size[0], reader.table.offset[0]
    given = np.frombuffer(view, ELEMENT, len(size), elements)
    length = given["f0"]
    place = heap_places(view, elements, len(size))
    # In the collection, the bytes of a value stand before it, too.
    held = [int.from_bytes(view[at - 8 : at], "little") if at else 0 for at in place.tolist()]
    wrong = np.flatnonzero((length != size) | (held != size) | (place != offset))
    for row in islice(wrong.tolist(), MOST_ROWS):
        yield f"element {row} of the dataset images is not the image of sample {row}"
    if len(wrong) > MOST_ROWS:
        yield f"{len(wrong)} elements of the dataset images are not the images of their samples"
    addresses = np.unique(given["f1"][length > 0]).tolist()
    damaged = (address for address in addresses if not is_whole(view, address))
    for address in islice(damaged, MOST_ROWS):
        yield f"the library cannot read the collection of images at {address}"


def is_whole(view: memoryview, address: int) -> bool:
    """Returns whether a collection of values ends where it says, as the library insists on.

    Args:
        view: The whole file.
        address: Where the collection starts; `heap_places` tells what is in it.
    """
    stop = address + int.from_bytes(view[address + 8 : address + 16], "little")
    place = address + 16
    if view[address + 4] != 1 or stop > view.nbytes:
        return False
    while place + 16 <= stop:
        length = int.from_bytes(view[place + 8 : place + 16], "little")
        if not any(view[place : place + 2]):  # the free space at its end
            return place + length == stop
        place += 16 + (length + 7) // 8 * 8
    return place <= stop
