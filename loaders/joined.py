"""Several packs as one: the samples of the first, then those of the second, and so on.

Nothing is copied but the labels: classes are joined by name, so labels may be others than in the
packs. Columns of the sample table that somebody asks for as a whole are put together then.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fastconv.loaders.classes import sort_classes
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.identity import digest_of
from fastconv.loaders.meta import LabelKind, PackMeta
from fastconv.loaders.open import open_pack
from fastconv.loaders.raw import Pixels, Shape
from fastconv.loaders.reader import NOTHING, Reader, Wanted
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["JoinedReader", "JoinedTable", "fingerprint", "open_packs"]

Rows = npt.NDArray[np.int64]


def fingerprint(reader: Reader) -> str:
    """Returns the id of a pack; of one without an id, a hash of what is known of it."""
    if reader.meta.id:
        return reader.meta.id
    return digest_of(reader.meta.to_json(), reader.table.arrays())


def join_classes(metas: Sequence[PackMeta]) -> tuple[str, ...]:
    """Returns the classes of several packs, each name once.

    Packs of the same classes keep them. Where they differ, they are sorted as those of one folder
    would be, unless those of a pack are not: then what a pack adds follows the ones before it.
    """
    lists = [meta.classes for meta in metas if meta.classes]
    names = tuple(dict.fromkeys(name for classes in lists for name in classes))
    if all(sort_classes(classes, "sorted") == classes for classes in lists):
        return sort_classes(names, "sorted")
    return names


def join_labels(readers: Sequence[Reader]) -> tuple[LabelKind, tuple[str, ...], Rows]:
    """Returns what the labels of several packs are, the classes, and all labels, int64 (N,).

    Raises:
        UsageError: Those of one are class ids, those of another are not.
    """
    kinds = {reader.meta.labels: reader for reader in readers if reader.meta.labels != "none"}
    if len(kinds) > 1:
        raise UsageError(
            f"{printable(kinds['class'].path)}: has classes, {printable(kinds['int'].path)} has "
            "integers as labels: they cannot be one"
        )
    classes = join_classes([reader.meta for reader in readers])
    number = {name: label for label, name in enumerate(classes)}
    labels = []
    for reader in readers:
        label, known = reader.table.label, reader.meta.classes
        if known and known != classes[: len(known)]:
            # The last one is for -1, no label.
            new = np.array([*(number[name] for name in known), -1], np.int64)
            label = new[np.where((label >= 0) & (label < len(known)), label, -1)]
        labels.append(label)
    kind: LabelKind = next(iter(kinds), "none")
    return kind, classes, np.concatenate(labels)


class JoinedTable(SampleTable):
    """The sample tables of several packs, one after the other.

    Args:
        tables: They.
        roots: Of each, what its paths start from.
        fields: Names of all fields, the image first.
        label: int64 (N,), those of all samples.

    Attributes:
        first_rows: The first row of each table, and the number of all rows.
    """

    def __init__(
        self, tables: Sequence[SampleTable], roots: Sequence[str], fields: tuple[str, ...],
        label: Rows,
    ) -> None:  # fmt: skip
        # The columns are properties here, so that none is put together before it is needed.
        for name, value in {
            "_tables": tables, "_roots": roots, "_label": label, "_fields": fields,
            "first_rows": [0, *np.cumsum([len(table) for table in tables]).tolist()],
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)

    _tables: Sequence[SampleTable]
    _roots: Sequence[str]
    _fields: tuple[str, ...]
    _label: Rows
    first_rows: list[int]

    @property
    def fields(self) -> tuple[str, ...]:
        return self._fields

    @property
    def label(self) -> Rows:
        return self._label

    def _joined(self, column: Callable[[SampleTable], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([column(table) for table in self._tables])

    def _of_fields(
        self, column: Callable[[SampleTable, int], npt.NDArray[Any]], dtype: Any, missing: int
    ) -> tuple[npt.NDArray[Any], ...]:
        """Returns a column for each field, `missing` in packs that lack the field."""

        def one(table: SampleTable, name: str) -> npt.NDArray[Any]:
            if name in table.fields:
                return column(table, table.fields.index(name))
            return np.full(len(table), missing, dtype)

        return tuple(
            np.concatenate([one(table, name) for table in self._tables]) for name in self.fields
        )

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        return self._joined(lambda table: table.kind)

    @cached_property
    def width(self) -> npt.NDArray[np.uint32]:
        return self._joined(lambda table: table.width)

    @cached_property
    def height(self) -> npt.NDArray[np.uint32]:
        return self._joined(lambda table: table.height)

    @cached_property
    def _paths(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        arenas = [table.paths_for(self.fields) for table in self._tables]
        lengths = np.concatenate([np.diff(offset) for _, offset in arenas])
        ends = np.cumsum(lengths, dtype=np.uint64)
        block = np.concatenate([block for block, _ in arenas])
        return block, np.concatenate([np.zeros(1, np.uint64), ends])

    @property
    def path_bytes(self) -> npt.NDArray[np.uint8]:
        return self._paths[0]

    @property
    def path_offset(self) -> npt.NDArray[np.uint64]:
        return self._paths[1]

    @cached_property
    def shard_row(self) -> Rows:
        pairs = zip(self._tables, self.first_rows, strict=False)
        return np.concatenate(
            [*(table.shard_row[:-1] + first for table, first in pairs), self.first_rows[-1:]]
        )

    @cached_property
    def size(self) -> tuple[Rows, ...]:
        return self._of_fields(lambda table, slot: table.size[slot], np.int64, -1)

    @cached_property
    def offset(self) -> tuple[npt.NDArray[np.uint64], ...]:
        return self._of_fields(
            lambda table, slot: table.offset[slot] + np.uint64(table.base[slot]), np.uint64, 0
        )

    @property
    def base(self) -> tuple[int, ...]:
        return (0,) * len(self.fields)

    @property
    def extra(self) -> npt.NDArray[np.uint32] | None:
        if all(table.extra is None for table in self._tables):
            return None
        return self._joined(lambda table: table.extra_bytes(slice(None)))

    @cached_property
    def checksum(self) -> tuple[npt.NDArray[np.uint64], ...]:
        """Those of packs that have none are 0; empty where none has any."""
        if not any(table.checksum for table in self._tables):
            return ()

        def column(table: SampleTable, slot: int) -> npt.NDArray[np.uint64]:
            return table.checksum[slot] if table.checksum else np.zeros(len(table), np.uint64)

        return self._of_fields(column, np.uint64, 0)

    def place(self, row: int) -> tuple[int, int]:
        """Returns which pack holds a sample, and its number there."""
        number = bisect_right(self.first_rows, row) - 1
        return number, row - self.first_rows[number]

    def names(self, row: int) -> list[str]:
        number, row = self.place(row)
        table = self._tables[number]
        given = dict(zip(table.fields, table.names(row), strict=True))
        return [given.get(name, "") for name in self.fields]

    def path(self, row: int) -> str:
        number, row = self.place(row)
        return os.path.join(self._roots[number], self._tables[number].path(row))

    def paths(self, start: int, stop: int) -> list[str]:
        out = []
        for number, (first, last) in enumerate(pairwise(self.first_rows)):
            begin, end = max(start, first) - first, min(stop, last) - first
            if begin < end:
                paths = self._tables[number].paths(begin, end)
                out += [os.path.join(self._roots[number], path) for path in paths]
        return out


class JoinedReader(Reader):
    """Reads several packs as one.

    Args:
        readers: They, opened.

    Raises:
        UsageError: There are none, or their labels do not go together.
    """

    name = "joined"
    title = "several packs"
    dataset = "JoinedDataset"

    def __init__(self, readers: Sequence[Reader]) -> None:
        if not readers:
            raise UsageError("several packs as one: give at least one")
        labels, classes, label = join_labels(readers)
        sidecars = {name for reader in readers for name in reader.table.fields[1:]}
        fields = (IMAGE, *sorted(sidecars))
        # What is generated in one pack and files in another is taken for files.
        generated = {
            name
            for name in sidecars
            if all(name in r.meta.generated for r in readers if name in r.table.fields)
        }
        meta = PackMeta(
            format=self.name,
            id=digest_of("\0".join(map(fingerprint, readers)), {}),
            samples=len(label),
            fields=fields,
            generated=tuple(sorted(generated)),
            labels=labels,
            classes=classes,
            encoding=next((r.meta.encoding for r in readers if r.meta.encoding), {}),
        )
        tables, roots = [r.table for r in readers], [r.root for r in readers]
        super().__init__(
            ", ".join(reader.path for reader in readers), meta,
            JoinedTable(tables, roots, fields, label),
        )  # fmt: skip
        self.readers = tuple(readers)
        self._place = self.table.place
        self._slots: list[list[int]] = []
        for reader in readers:
            known = reader.table.fields
            self._slots.append([known.index(n) if n in known else -1 for n in fields])
            self.notices += [f"{printable(reader.path)}: {words}" for words in reader.notices]
            self.bad += reader.bad

    table: JoinedTable

    @classmethod
    def recognises(cls, path: str) -> bool:
        return False  # no path is several packs

    @classmethod
    def open(cls, path: str) -> Self:
        return cls([open_pack(path)])

    def require_checksums(self) -> None:
        for reader in self.readers:
            reader.require_checksums()

    def check_table(self) -> None:
        for reader in self.readers:
            reader.check_table()

    def _of(self, row: int, slot: int) -> tuple[Reader, int, int]:
        """Returns which pack holds a field, and the field's place there; -1 where it has none."""
        number, row = self._place(row)
        return self.readers[number], row, self._slots[number][slot]

    def read(self, row: int, slot: int = 0) -> memoryview | None:
        reader, row, slot = self._of(row, slot)
        return None if slot < 0 else reader.read(row, slot)

    def load(self, row: int, slot: int = 0) -> bytes | None:
        reader, row, slot = self._of(row, slot)
        return None if slot < 0 else reader.load(row, slot)

    def verified(self, row: int, slot: int = 0) -> bytes | None:
        reader, row, slot = self._of(row, slot)
        return None if slot < 0 else reader.verified(row, slot)

    def compare(self, row: int, slot: int, data: bytes | Pixels | None) -> None:
        reader, row, slot = self._of(row, slot)
        if slot >= 0:
            reader.compare(row, slot, data)

    def raw_shape(self, row: int) -> Shape | None:
        reader, row, _ = self._of(row, 0)
        return reader.raw_shape(row)

    @cached_property
    def common_shape(self) -> Shape | None:
        shapes = {reader.common_shape for reader in self.readers}
        return shapes.pop() if len(shapes) == 1 else None

    def fill(self, rows: Rows, places: Sequence[Pixels]) -> None:
        for pack, mine, numbers in self._groups(rows):
            self.readers[pack].fill(mine, [places[number] for number in numbers.tolist()])

    def _groups(self, rows: Sequence[int] | Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """Yields the number of each pack that holds some rows, their numbers there, and which of
        the rows they are."""
        numbers = np.asarray(rows, np.int64)
        first = self.table.first_rows
        packs = np.searchsorted(first, numbers, side="right") - 1
        for pack in np.unique(packs).tolist():
            mine = np.flatnonzero(packs == pack)
            yield pack, numbers[mine] - first[pack], mine

    def hint(self, rows: Rows, slots: Sequence[int] = (0,)) -> None:
        for pack, mine, _ in self._groups(rows):
            known = [found for slot in slots if (found := self._slots[pack][slot]) >= 0]
            self.readers[pack].hint(mine, known)

    def check(self, rows: Sequence[int]) -> None:
        for pack, mine, _ in self._groups(rows):
            self.readers[pack].check(mine.tolist())

    def guard(self, row: int) -> None:
        reader, row, _ = self._of(row, 0)
        reader.guard(row)

    def key(self, row: int) -> str:
        reader, row, _ = self._of(row, 0)
        return reader.key(row)

    def where(self, row: int) -> str:
        reader, row, _ = self._of(row, 0)
        return reader.where(row)

    def place(self, row: int, slot: int = 0) -> str:
        reader, row, slot = self._of(row, slot)
        return "" if slot < 0 else reader.place(row, slot)


def open_packs(paths: Sequence[str | os.PathLike[str]], wanted: Wanted = NOTHING) -> JoinedReader:
    """Returns several packs, or folders of images, as one.

    Args:
        paths: They.
        wanted: What is asked of packs that do not say what is what in them.

    Raises:
        UsageError: There are none, or their labels do not go together.
        PackError: One cannot be read.
    """
    return JoinedReader([open_pack(path, wanted=wanted) for path in paths])
