"""What other programs read in a pack, where its table does not tell.

Such a library's own structures differ between its versions, so their bytes prove little. What it
gives to any program is compared with the sample table instead: names, types, lengths, texts, how
arrays are stored, and where values of variable length lie. The samples' bytes are compared where
the table says they are. Of a folder of shards other programs read every tar, whoever made it.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from fastconv.converters.verify import DataFile
from fastconv.loaders.errors import printable
from fastconv.loaders.formats.hdf5 import ELEMENT, heap_places, holds, is_vlen, stored
from fastconv.loaders.formats.webdataset import BLOCK, shard_names, stamp_of
from fastconv.loaders.index import index_path
from fastconv.loaders.reader import MappedReader, Reader

if TYPE_CHECKING:
    import h5py

__all__ = ["library_problems", "lost_table", "unknown_files"]

MOST_ROWS = 8
"""Values of variable length that are told of one by one."""
SEEN = 4096
"""Bytes at both ends of an array of samples that are read through the library, too."""
OWN = {"lmdb": ("data.mdb", "lock.mdb"), "webdataset": ("index.safetensors",)}
"""Files of a pack that is a folder, besides its shards."""


def library_problems(reader: MappedReader) -> list[tuple[str, str]]:
    """Returns what other programs would read otherwise than a pack's table says.

    Args:
        reader: The pack, whose table is sound.

    Returns:
        Each problem's file name, and words.
    """
    problems = CHECKS.get(reader.meta.format)
    return [] if problems is None else list(problems(reader))


def unknown_files(reader: Reader) -> list[str]:
    """Returns the names of visible files in a pack's folder that are not the pack's."""
    own = OWN.get(reader.meta.format)
    if own is None or not os.path.isdir(reader.path):
        return []
    known = {*own, *(shard.name for shard in reader.meta.shards)}
    names = sorted(name for name in os.listdir(reader.path) if not name.startswith("."))
    tars = reader.meta.format == "webdataset"  # these are told of as problems
    return [name for name in names if name not in known and not (tars and name.endswith(".tar"))]


def lost_table(reader: Reader) -> list[tuple[str, str]]:
    """Returns what is wrong with shards that fastconv made, and that are there without a table.

    Returns:
        Each problem's file name, and words.
    """
    if reader.meta.format != "webdataset" or not isinstance(reader, MappedReader):
        return []
    stamps = []
    for path in reader.files:
        with DataFile(path) as file:
            stamps.append(stamp_of(file.read(0, min(BLOCK, os.path.getsize(path)))))
    if not any(stamps):
        return []
    index = index_path(reader.path)
    out = [
        (
            os.path.basename(index),
            f"its table {printable(index)} is missing: cannot tell whether shards or samples are "
            "missing: copy the pack again",
        )
    ]
    first = next(filter(None, stamps))
    for path, stamp in zip(reader.files, stamps, strict=True):
        if stamp != first:
            out.append((os.path.basename(path), "not of the same pack as the other shards"))
    return out


def shard_problems(reader: MappedReader) -> Iterator[tuple[str, str]]:
    """Yields which tars in a folder of shards are not the pack's."""
    if not os.path.isdir(reader.path):
        return
    own = {shard.name for shard in reader.meta.shards}
    for name in shard_names(reader.path):
        if name not in own:
            yield (
                name,
                f"{printable(name)} is no shard of this pack, but programs that read every tar in "
                "the folder take it for one: move it away",
            )


def hdf5_problems(reader: MappedReader) -> Iterator[tuple[str, str]]:
    """Yields what is wrong in an HDF5."""
    import h5py

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
    data = {}
    for slot, (field, sizes) in enumerate(zip(table.fields, table.size, strict=True)):
        if slot or not vlen:
            folder = f"fields/{field}/" if slot else ""
            ends = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])
            values[f"{folder}offsets"] = ends
            data[f"{folder}data"] = (table.base[slot], int(ends[-1]))
    lengths = {name: len(array) for name, array in values.items()}
    lengths |= {name: length for name, (_, length) in data.items()}
    if vlen:
        lengths["images"] = len(table)
    names: list[str] = []
    file.visit(names.append)
    for name, length in lengths.items():
        dataset, title = file[name], f"the dataset {printable(name)}"
        if name not in names:
            yield f"{title} is not listed"
        elif dataset.shape != (length,):
            yield f"{title} is {dataset.shape}, not ({length},)"
        elif not holds(dataset, types.get(name, byte), vlen=vlen and name == "images"):
            yield f"{title} is not of plain {types.get(name, byte)}, but of another {dataset.dtype}"
        elif words := storage_problem(dataset):
            yield f"{title} {words}"
        elif name in values:
            if not np.array_equal(dataset[:], values[name]):
                yield f"{title} is not what the sample table says"
        elif name in data:
            with DataFile(reader.files[0]) as raw:
                base, _ = data[name]
                for start in {0, max(length - SEEN, 0)}:
                    stop = min(start + SEEN, length)
                    if dataset[start:stop].tobytes() != raw.read(base + start, base + stop):
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


CHECKS = {"hdf5": hdf5_problems, "webdataset": shard_problems}
