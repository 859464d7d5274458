"""What other programs read in a pack, for formats whose files a library lays out.

Such a library's own structures differ between its versions, so their bytes prove little. What it
gives to any program is compared with the sample table instead: names, types, lengths, texts, and
where values of variable length lie. The samples' bytes are compared where the table says they are.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from itertools import islice

import numpy as np

from fastconv.converters.verify import DataFile
from fastconv.loaders.errors import printable
from fastconv.loaders.formats.hdf5 import ELEMENT, heap_places, is_vlen, stored
from fastconv.loaders.reader import MappedReader

__all__ = ["library_problems"]

MOST_ROWS = 8
"""Values of variable length that are told of one by one."""


def library_problems(reader: MappedReader) -> list[str]:
    """Returns what other programs would read otherwise than a pack's table says, in words.

    Args:
        reader: The pack, whose table is sound.
    """
    problems = CHECKS.get(reader.meta.format)
    return [] if problems is None else list(problems(reader))


def hdf5_problems(reader: MappedReader) -> Iterator[str]:
    """Yields what is wrong in an HDF5."""
    import h5py

    table, meta, (path,) = reader.table, reader.meta, reader.files
    vlen = is_vlen(meta)
    with DataFile(path) as raw:
        head = raw.read(0, 64)
    place = {0: 40, 1: 44}.get(head[8], 28)  # by the version of the superblock
    size, end = meta.shards[0].size, int.from_bytes(head[place : place + 8], "little")
    if size != end:
        yield f"has {size} bytes, but ends after {end} by its own superblock"
    texts = {
        "fastconv": meta.with_shards(()).to_json(),
        "classes": json.dumps(meta.class_texts()),
        "id": meta.id,
        "settings": json.dumps(dict(meta.settings)),
    }
    lengths = {name: len(table) for name, _ in stored(meta).values()}
    lengths |= {"table/path": table.path_bytes.shape[0], "table/path_offset": len(table) + 1}
    bounds, contents = {}, {}
    for slot, (field, sizes) in enumerate(zip(table.fields, table.size, strict=True)):
        folder = f"fields/{field}/" if slot else ""
        if slot or not vlen:
            ends = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])
            bounds[f"{folder}offsets"] = ends
            contents[f"{folder}data"] = int(ends[-1])
            lengths[f"{folder}offsets"] = len(ends)
    lengths |= contents
    if vlen:
        lengths["images"] = len(table)
    try:
        with h5py.File(path, "r", locking=False) as file:
            for name, text in texts.items():
                if text.encode() != (file[name][()] if name in file else file.attrs[name]):
                    yield f"its {name} is not what the sample table says"
            names: list[str] = []
            file.visit(names.append)
            for name, length in lengths.items():
                dataset = file[name]
                if name not in names:
                    yield f"the dataset {printable(name)} is not listed"
                elif dataset.shape != (length,):
                    yield f"the dataset {printable(name)} is {dataset.shape}, not ({length},)"
                elif name in contents and dataset.dtype != np.uint8:
                    yield f"the dataset {printable(name)} is {dataset.dtype}, not uint8"
                elif name in bounds and not np.array_equal(dataset[:], bounds[name]):
                    yield f"the dataset {printable(name)} is not what the sizes of samples give"
            if vlen:
                images = file["images"]
                if h5py.check_vlen_dtype(images.dtype) != np.uint8:
                    yield f"the dataset images is {images.dtype}, not uint8 of variable length"
                yield from vlen_problems(reader, int(images.id.get_offset() or 0))
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        yield f"HDF5's library cannot read all of it: {' '.join(str(error).split())}"


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
    length = np.frombuffer(view, ELEMENT, len(size), elements)["f0"]
    place = heap_places(view, elements, len(size))
    # In the collection, the bytes of a value stand before it, too.
    held = [int.from_bytes(view[at - 8 : at], "little") if at else 0 for at in place.tolist()]
    wrong = np.flatnonzero((length != size) | (held != size) | (place != offset))
    for row in islice(wrong.tolist(), MOST_ROWS):
        yield f"element {row} of the dataset images is not the image of sample {row}"
    if len(wrong) > MOST_ROWS:
        yield f"{len(wrong)} elements of the dataset images are not the images of their samples"


CHECKS = {"hdf5": hdf5_problems}
