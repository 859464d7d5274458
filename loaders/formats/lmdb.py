"""Reads LMDB packs through our own map of the database file; no lock, no transaction, no map size.

What is read of LMDB's data format stands in `fastconv.converters.formats.lmdb`. A pack that liblmdb
has written to since it was made is read by its keys instead of its table, whose places are stale
then.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.arrays import load_object
from fastconv.loaders.errors import CorruptPackError, NotAPackError, printable
from fastconv.loaders.files import first_bytes, map_file
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.raw import RAW
from fastconv.loaders.reader import MappedReader
from fastconv.loaders.table import COLUMNS, FIELD_COLUMNS, SampleTable, path_entry

__all__ = ["LMDBReader"]

HEAD = 16
BRANCH, LEAF = 1, 2
BIG, SUB = 1, 6
"""Flags of a leaf node: the value is in overflow pages; it is a database or a list of its own."""
NONE = 2**64 - 1
KNOWN = ("label", "kind", "width", "height", "path", "path_offset")
"""Columns of the sample table that are right for a key whatever was changed since."""
MAGIC = 0xBEEFC0DE
PAGE_SIZES = [1 << power for power in range(8, 17)]
"""What a database can have; ours has 4096."""


class LMDBReader(MappedReader):
    """Reads a folder with a `data.mdb`, or the database file itself."""

    name = "lmdb"
    title = "LMDB"
    suffixes = (".lmdb",)
    dataset = "LMDBDataset"

    @classmethod
    def recognises(cls, path: str) -> bool:
        return first_bytes(data_file(path), 20)[16:] == MAGIC.to_bytes(4, "little")

    @classmethod
    def open(cls, path: str) -> Self:
        file = data_file(path)
        mapped = map_file(file)
        database = Database(file, mapped.view)
        try:
            found = database.get(b"__meta__")
            if found is None:
                raise NotAPackError(
                    f"{printable(path)}: an LMDB database, but not one that fastconv made: it "
                    "lacks the key __meta__: read it with lmdb and give its images to "
                    "fastconv.converters.pack(samples=...)"
                )
            content = bytes(database.view[found.place : found.place + found.size])
            meta = PackMeta.from_json(content)
            table = read_table(database, meta, load_object(content).get("table"))
            if table is None:
                table = table_by_keys(database, meta)
                meta = PackMeta(
                    format=cls.name, id="", samples=len(table), fields=table.fields,
                    labels=meta.labels, classes=meta.classes, settings=meta.settings,
                )  # fmt: skip
        except (ValueError, IndexError, struct.error) as error:
            raise CorruptPackError(f"{printable(file)}: damaged: {error}") from error
        shards = (Shard("data.mdb", database.size),)
        reader = cls(path, meta.with_shards(shards), table, [file], mapped)
        if not table.checksum:
            reader.notices.append(
                "written to since it was packed: read by its keys, without checksums"
            )
            reader.lost_table = "it was written to since it was packed: pack it again"
        return reader


def data_file(path: str) -> str:
    """Returns where the database's bytes are: `data.mdb` in a folder."""
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


def read_table(database: Database, meta: PackMeta, places: object) -> SampleTable | None:
    """Returns the sample table; None when something was moved since it was written.

    Args:
        database: The database.
        meta: What the pack says of itself.
        places: Column -> where it was written, in hexadecimal digits.
    """
    if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
        raise ValueError("the places of its table are missing")
    if database.transaction != 1:
        return None
    arrays = {}
    columns = {
        f"{column}/{field}": dtype
        for column, dtype in FIELD_COLUMNS.items()
        for field in meta.fields
    }
    for name, dtype in (COLUMNS | columns).items():
        found = database.get(f"__table__/{name}".encode())
        if found is None or found.place != int(places.get(name, "-1"), 16):
            return None
        arrays[name] = np.frombuffer(database.view[found.place : found.place + found.size], dtype)
    return SampleTable.from_arrays(meta.fields, arrays)


def table_by_keys(database: Database, meta: PackMeta) -> SampleTable:
    """Returns a table of what the keys name: KEY is an image, KEY.FIELD one of its sidecars.

    Labels, kinds and paths are those that the pack's own table has for the number KEY.
    """
    known = {}
    for name in KNOWN:
        found = database.get(f"__table__/{name}".encode())
        if found is not None:
            known[name] = np.frombuffer(
                database.view[found.place : found.place + found.size], COLUMNS[name]
            )
    rows: list[dict[str, Entry]] = []
    keys: list[str] = []
    for key, entry in database.entries():
        name, _, field = key.decode("ascii", "replace").partition(".")
        if name.startswith("__") or (field and (not keys or keys[-1] != name)):
            continue
        if not field:
            keys.append(name)
            rows.append({})
        rows[-1][field or "image"] = entry
    fields = ("image", *sorted({field for row in rows for field in row} - {"image"}))
    labels, kinds, pixels, entries = [], [], [], []
    for name in keys:
        number = int(name) if name.isdigit() else -1
        old = len(known) == len(KNOWN) and 0 <= number < len(known["label"])
        labels.append(int(known["label"][number]) if old else -1)
        kinds.append(int(known["kind"][number]) if old else 0)
        raw = old and kinds[-1] == RAW  # else the file says it
        pixels.append([int(known[side][number]) if raw else 0 for side in ("width", "height")])
        if old:
            start, stop = known["path_offset"][number : number + 2].tolist()
            entries.append(known["path"][start:stop].tobytes())
        else:
            entries.append(path_entry(name, {}, fields))
    none = Entry(0, -1)
    columns: dict[str, npt.NDArray[Any]] = {
        "label": np.array(labels, np.int64),
        "kind": np.array(kinds, np.uint8),
        "width": np.array(pixels, np.uint32).reshape(-1, 2)[:, 0],
        "height": np.array(pixels, np.uint32).reshape(-1, 2)[:, 1],
        "path": np.frombuffer(b"".join(entries), np.uint8),
        "path_offset": np.cumsum([0, *map(len, entries)], dtype=np.uint64),
        "shard_row": np.array([0, len(rows)], np.int64),
    }
    for name in fields:
        found_in = [row.get(name, none) for row in rows]
        columns[f"offset/{name}"] = np.array([entry.place for entry in found_in], np.uint64)
        columns[f"size/{name}"] = np.array([entry.size for entry in found_in], np.int64)
    return SampleTable.from_arrays(fields, columns)


class Entry(NamedTuple):
    """Where a value's bytes lie in the file."""

    place: int
    size: int


class Database:
    """A database file, read page by page.

    Args:
        file: Its path, for messages.
        view: Its bytes.

    Raises:
        NotAPackError: It is no LMDB database of data format 1.
        CorruptPackError: It is cut short.
    """

    def __init__(self, file: str, view: memoryview) -> None:
        if view.nbytes < 8192 or int.from_bytes(view[16:20], "little") != MAGIC:
            words = (
                f"truncated: has {view.nbytes} bytes"
                if view.nbytes < 8192
                else "not an LMDB database"
            )
            raise CorruptPackError(f"{printable(file)}: {words}: copy the pack again")
        if int.from_bytes(view[20:24], "little") != 1:
            raise NotAPackError(f"{printable(file)}: an LMDB database of an unknown data format")
        self.view = view
        self.page_size = int.from_bytes(view[40:44], "little")
        if self.page_size not in PAGE_SIZES:
            raise CorruptPackError(f"{printable(file)}: damaged: pages of {self.page_size} bytes")
        metas = []
        for start in (0, self.page_size):
            if view.nbytes >= start + 152:
                root, last, transaction = struct.unpack_from("<QQQ", view, start + 128)
                metas.append((transaction, root, last))
        self.transaction, self.root, last = max(metas)
        self.size = (last + 1) * self.page_size
        if view.nbytes < self.size:
            raise CorruptPackError(
                f"{printable(file)}: truncated: has {view.nbytes} bytes, needs {self.size}: "
                "copy the pack again"
            )

    def page(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Returns a tree page's flags and the places of its nodes in the file."""
        start = number * self.page_size
        if start >= self.size:
            raise ValueError(f"page {number} lies outside the file")
        flags, lower = struct.unpack_from("<HH", self.view, start + 10)
        if not flags & (BRANCH | LEAF) or not HEAD <= lower <= self.page_size:
            raise ValueError(f"page {number} is no page of a tree")
        count = (lower - HEAD) // 2
        return flags, tuple(
            start + p for p in struct.unpack_from(f"<{count}H", self.view, start + HEAD)
        )

    def key(self, node: int) -> bytes:
        """Returns the key of the node at a place."""
        size = struct.unpack_from("<H", self.view, node + 6)[0]
        return bytes(self.view[node + 8 : node + 8 + size])

    def child(self, node: int) -> int:
        """Returns the page number in a branch's node."""
        low, middle, high = struct.unpack_from("<HHH", self.view, node)
        return int(low | middle << 16 | high << 32)

    def entry(self, node: int) -> Entry | None:
        """Returns where the value of a leaf's node lies; None when it is a database of its own."""
        low, high, flags, key = struct.unpack_from("<HHHH", self.view, node)
        if flags & SUB:
            return None
        start = node + 8 + key
        if flags & BIG:
            start = struct.unpack_from("<Q", self.view, start)[0] * self.page_size + HEAD
        if start + (low | high << 16) > self.size:
            raise ValueError(f"a value lies outside the file, at {start}")
        return Entry(start, low | high << 16)

    def get(self, key: bytes) -> Entry | None:
        """Returns where the value of a key lies; None when there is none."""
        if self.root == NONE:
            return None
        number = self.root
        for _ in range(64):  # a damaged tree may lead in circles
            flags, nodes = self.page(number)
            low, high = (0, len(nodes)) if flags & LEAF else (1, len(nodes))
            while low < high:  # the first node whose key is greater
                middle = (low + high) // 2
                if self.key(nodes[middle]) <= key:
                    low = middle + 1
                else:
                    high = middle
            if flags & LEAF:
                found = low and self.key(nodes[low - 1]) == key
                return self.entry(nodes[low - 1]) if found else None
            number = self.child(nodes[low - 1])
        raise ValueError("the tree has no leaves")

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """Yields every key in order, with the place of its value."""
        stack = [self.root] if self.root != NONE else []
        most = self.size // self.page_size
        while stack:
            most -= 1
            if most < 0 or len(stack) > self.size // self.page_size:
                raise ValueError("the tree leads in circles")
            flags, nodes = self.page(stack.pop())
            if flags & BRANCH:
                stack += [self.child(node) for node in reversed(nodes)]
                continue
            for node in nodes:
                entry = self.entry(node)
                if entry is not None:
                    yield self.key(node), entry
