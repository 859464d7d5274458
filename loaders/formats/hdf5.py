"""Reads HDF5 packs: the library tells where each array lies, the file is read through our own map.

The layout stands in `fastconv.converters.formats.hdf5` and in the documentation.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.errors import (
    CorruptPackError,
    NotAPackError,
    PackChangedError,
    PackError,
    printable,
)
from fastconv.loaders.files import first_bytes, map_file
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.reader import MappedReader
from fastconv.loaders.table import COLUMNS, FIELD_COLUMNS, SampleTable

if TYPE_CHECKING:
    import h5py

__all__ = ["HDF5Reader"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"

ELEMENT = np.dtype("<u4, <u8, <u4")
"""An element of variable length: number of values, address of its collection, number in it."""

Places = npt.NDArray[np.uint64]


class HDF5Reader(MappedReader):
    """Reads one file."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5")
    requires = ("h5py",)
    dataset = "HDF5Dataset"

    @classmethod
    def recognises(cls, path: str) -> bool:
        return first_bytes(path, 8) == SIGNATURE

    @classmethod
    def open(cls, path: str) -> Self:
        block = map_file(path)
        try:
            with opened(path) as file:
                if "fastconv" not in file:
                    raise NotAPackError(
                        f"{printable(path)}: an HDF5 file, but not one that fastconv made: "
                        "it lacks the dataset 'fastconv': read it with h5py and give its images to "
                        "fastconv.converters.pack(samples=...)"
                    )
                meta = PackMeta.from_json(text_of(file["fastconv"], block.view))
                arrays, base = read_columns(file, meta, block.view)
            status = os.stat(path)
            if (status.st_dev, status.st_ino) != block.inode:  # the library had opened another one
                raise PackChangedError(
                    f"{printable(path)}: was replaced while it was opened: open it again"
                )
            arrays["shard_row"] = np.array([0, meta.samples], np.int64)
            table = SampleTable.from_arrays(meta.fields, arrays, base)
        except PackError:
            raise
        except (OSError, RuntimeError) as error:
            raise CorruptPackError(f"{printable(path)}: {library_words(error)}") from error
        except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            words = " ".join(str(error).split())
            raise CorruptPackError(f"{printable(path)}: not a whole pack: {words}") from error
        shard = Shard(os.path.basename(path), block.view.nbytes)
        return cls(path, meta.with_shards((shard,)), table, [path], block)


def opened(path: str) -> h5py.File:
    """Returns the opened file, not locked: file systems of clusters may not be able to."""
    import h5py

    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        # It is open in this process already, as h5py opens files by default.
        return h5py.File(path, "r")


def text_of(dataset: h5py.Dataset, block: memoryview) -> bytes:
    """Returns the text in a dataset of one string of fixed length.

    Those of variable length lie in the library's heap, where damage makes it hang.

    Raises:
        ValueError: It is another dataset.
    """
    if dataset.dtype.kind != "S" or dataset.shape != () or dataset.nbytes > block.nbytes:
        raise ValueError(f"the dataset {dataset.name} is no string of fixed length")
    return bytes(dataset[()])


def read_columns(
    file: h5py.File, meta: PackMeta, block: memoryview
) -> tuple[dict[str, np.ndarray[Any, Any]], list[int]]:
    """Returns the columns of the table, mapped, and where each field's data starts.

    Args:
        file: The pack.
        meta: What it says of itself.
        block: The whole file.

    Raises:
        KeyError: A dataset is missing.
        ValueError: One is of another type, or damaged.
    """
    arrays = {
        name: mapped(file[dataset], dtype, block) for name, (dataset, dtype) in stored(meta).items()
    }
    base = []
    for slot, field in enumerate(meta.fields):
        if slot == 0 and is_vlen(meta):
            elements = int(file["images"].id.get_offset() or 0)
            arrays["offset/image"] = checked_places(arrays["offset/image"], block, elements)
            if not holds(file["images"], np.dtype(np.uint8), vlen=True):
                raise ValueError("the dataset images is not of arrays of uint8")
            base.append(0)
        else:
            arrays[f"offset/{field}"] = arrays[f"offset/{field}"][:-1]
            data = file[f"fields/{field}/data" if slot else images_name(file)]
            mapped(data, np.dtype(np.uint8), block, flat=slot > 0)
            base.append(int(data.id.get_offset() or 0))
    return arrays, base


def stored(meta: PackMeta) -> dict[str, tuple[str, np.dtype[Any]]]:
    """Returns for each column of the table the dataset that holds it, and its type."""
    out = {name: (f"table/{name}", dtype) for name, dtype in COLUMNS.items() if name != "shard_row"}
    out["label"] = ("labels", COLUMNS["label"])
    for column, dtype in FIELD_COLUMNS.items():
        for slot, field in enumerate(meta.fields):
            where = f"table/{column}/{field}"
            if column == "offset" and (slot or not is_vlen(meta)):
                where = f"fields/{field}/offsets" if slot else "offsets"
            out[f"{column}/{field}"] = (where, dtype)
    return out


def images_name(file: h5py.File) -> str:
    """Returns the name of the dataset with the bytes of all images: raw ones of one shape are an
    array of that shape."""
    return "images" if "images" in file else "data"


def is_vlen(meta: PackMeta) -> bool:
    """Returns whether the images are arrays of variable length."""
    return meta.settings.get("layout") == "vlen"


def checked_places(places: Places, block: memoryview, elements: int) -> Places:
    """Returns where the images of variable length lie: as stored, or found anew where they have
    moved (a file that `h5repack` wrote)."""
    count = places.shape[0]
    for row in {0, count // 2, count - 1} if count else ():
        if heap_places(block, elements + row * ELEMENT.itemsize, 1)[0] != places[row]:
            return heap_places(block, elements, count)
    return places


def heap_places(block: memoryview, elements: int, count: int) -> Places:
    """Returns where the values of variable length of a dataset start in the file, uint64 (count,).

    An element of such a dataset names a collection of the global heap and an object in it. A
    collection is "GCOL", version and 3 bytes, u64 size; then objects: u16 number, u16 references,
    u32 0, u64 size, the bytes, filled up to a multiple of 8 (HDF5 File Format Specification 3.0,
    III.E).

    Args:
        block: The whole file.
        elements: Where the dataset's elements start.
        count: How many.

    Raises:
        ValueError: There is no such collection or object.
    """
    given = np.frombuffer(block, ELEMENT, count, elements)
    places = np.zeros(count, np.uint64)
    objects: dict[int, int] = {}
    collection = -1
    for row, (size, address, number) in enumerate(given.tolist()):
        if not size:
            continue
        if address != collection:
            collection, objects = address, {}
            if bytes(block[address : address + 4]) != b"GCOL":
                raise ValueError(f"there is no collection of values at {address}")
            place, stop = (
                address + 16,
                address + int.from_bytes(block[address + 8 : address + 16], "little"),
            )
            while place + 16 <= stop:
                key, length = (
                    int.from_bytes(block[place : place + 2], "little"),
                    int.from_bytes(block[place + 8 : place + 16], "little"),
                )
                if not key:  # the free space at its end
                    break
                objects[key] = place + 16
                place += 16 + (length + 7) // 8 * 8
        if number not in objects:
            raise ValueError(f"the collection at {address} has no value {number}")
        places[row] = objects[number]
    return places


def holds(dataset: h5py.Dataset, dtype: np.dtype[Any], *, vlen: bool = False) -> bool:
    """Returns whether values are stored as plain ones of a type.

    The library's own types are compared: NumPy's do not tell values of fewer bits, or whose bits
    lie elsewhere in their bytes, which the library gives as other numbers.

    Args:
        dataset: Where they are.
        dtype: The type.
        vlen: They are arrays of it, of variable length.
    """
    from h5py import h5t

    kind = dataset.id.get_type()
    if vlen:
        if not isinstance(kind, h5t.TypeVlenID):
            return False
        kind = kind.get_super()
    plain = {
        "|u1": (h5t.STD_U8LE, h5t.STD_U8BE),  # of one byte: in either order
        "<u4": (h5t.STD_U32LE,),
        "<u8": (h5t.STD_U64LE,),
        "<i8": (h5t.STD_I64LE,),
    }
    return any(kind.equal(each) for each in plain[dtype.str])


def mapped(
    dataset: h5py.Dataset, dtype: np.dtype[Any], block: memoryview, *, flat: bool = True
) -> np.ndarray[Any, Any]:
    """Returns a dataset as an array on the mapped file, (n,).

    Args:
        dataset: It.
        dtype: The type of its values.
        block: The whole file.
        flat: Whether it has to have one dimension.

    Raises:
        ValueError: It is of another type, or not one contiguous block that lies inside the file.
    """
    shape = dataset.shape
    if len(shape) < 1 or (flat and len(shape) > 1) or not holds(dataset, dtype):
        raise ValueError(
            f"the dataset {dataset.name} is {dataset.dtype} {shape}, not plain {dtype} (n,)"
        )
    count = math.prod(shape)
    if not count:
        return np.zeros(0, dtype)
    place = dataset.id.get_offset()
    if place is None or place + count * dtype.itemsize > block.nbytes:
        raise ValueError(f"the dataset {dataset.name} is not one block inside the file")
    return np.frombuffer(block, dtype, count, place)


def library_words(error: Exception) -> str:
    """Returns one line of what HDF5 says; a file cut short is called so."""
    text = " ".join(str(error).split())
    if "truncated file" in text:
        numbers = [
            int(word.strip(",)"))
            for word in text.replace("=", " ").split()
            if word.strip(",)").isdigit()
        ]
        if len(numbers) >= 3:
            return f"truncated: has {numbers[0]} bytes, needs {numbers[-1]}: copy the pack again"
        return "truncated: copy the pack again"
    return f"damaged: {text}"
