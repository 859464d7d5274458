"""The sample table: one row a sample, flat arrays, nothing held per sample in Python.

| column | type, shape | what |
|---|---|---|
| offset/FIELD | uint64 (N,) | where the field's bytes start in its shard |
| size/FIELD | int64 (N,) | how many they are; -1 where the sample lacks the field |
| checksum/FIELD | uint64 (N,) | xxh3-64 of them; 0 where the sample lacks the field |
| label | int64 (N,) | class id or integer label, -1 for none |
| kind | uint8 (N,) | format of the image, a position in `fastconv.loaders.kinds.KINDS` |
| width, height | uint32 (N,) | of the image in pixels as stored, 0 where unknown |
| extra | uint32 (N,) | bytes between the image's own, where its format escapes some; rarely there |
| path | uint8 (B,) | the paths, one after the other (see `SampleTable.path`) |
| path_offset | uint64 (N + 1,) | where each path starts, and where the last one ends |
| shard_row | int64 (S + 1,) | the first row of each shard, and N |

Rows of one shard follow each other. FIELD is "image" or a sidecar's name. All numbers are
little-endian.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.loaders.kinds import KINDS

__all__ = ["COLUMNS", "FIELD_COLUMNS", "SampleTable", "path_entry"]

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Entry = bytes  # inside the class, `bytes` is a property

COLUMNS: dict[str, np.dtype[Any]] = {
    "label": np.dtype("<i8"), "kind": np.dtype("u1"), "width": np.dtype("<u4"),
    "height": np.dtype("<u4"), "path": np.dtype("u1"), "path_offset": np.dtype("<u8"),
    "shard_row": np.dtype("<i8"),
}  # fmt: skip
"""Column -> its type."""

FIELD_COLUMNS: dict[str, np.dtype[Any]] = {
    "offset": np.dtype("<u8"), "size": np.dtype("<i8"), "checksum": np.dtype("<u8"),
}  # fmt: skip
"""Column that every field has one of -> its type."""

EXTRA: np.dtype[Any] = np.dtype("<u4")
"""Type of the column that only tables have of which a row needs it."""


@dataclass(frozen=True, slots=True)
class SampleTable:
    """Where everything lies, and what is known of it; the columns are described above.

    Attributes:
        fields: Names of the fields, the image first, then sidecars by name.
        offset, size, checksum: One array for each field. `checksum` is empty where none are known.
        base: Added to `offset` of each field: where the field's data starts in the file.
        extra: None where no row has any.
    """

    fields: tuple[str, ...]
    label: Ints
    kind: Bytes
    width: npt.NDArray[np.uint32]
    height: npt.NDArray[np.uint32]
    path_bytes: Bytes
    path_offset: Places
    shard_row: Ints
    offset: tuple[Places, ...]
    size: tuple[Ints, ...]
    checksum: tuple[Places, ...] = ()
    base: tuple[int, ...] = field(default=())
    extra: npt.NDArray[np.uint32] | None = None

    def __post_init__(self) -> None:
        if not self.base:
            object.__setattr__(self, "base", (0,) * len(self.fields))

    def __len__(self) -> int:
        return len(self.label)

    @property
    def bytes(self) -> int:
        """Of all fields together."""
        return sum(int(np.maximum(size, 0).sum()) for size in self.size)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the columns under the names they are stored by."""
        out: dict[str, npt.NDArray[Any]] = {}
        for column in FIELD_COLUMNS:
            for name, array in zip(self.fields, getattr(self, column), strict=False):
                out[f"{column}/{name}"] = array
        out |= {"label": self.label, "kind": self.kind, "width": self.width, "height": self.height}
        out |= {
            "path": self.path_bytes,
            "path_offset": self.path_offset,
            "shard_row": self.shard_row,
        }
        if self.extra is not None:
            out["extra"] = self.extra
        return out

    def in_memory(self) -> SampleTable:
        """Returns the table with columns of its own, none of which lies in a mapped file."""
        columns = ("label", "kind", "width", "height", "path_bytes", "path_offset", "shard_row")
        copies: dict[str, Any] = {name: getattr(self, name).copy() for name in columns}
        for name in FIELD_COLUMNS:
            copies[name] = tuple(column.copy() for column in getattr(self, name))
        return replace(self, extra=None if self.extra is None else self.extra.copy(), **copies)

    def paths_for(self, fields: Sequence[str]) -> tuple[Bytes, Places]:
        """Returns the path arena and its offsets as a table of the same rows and other fields has
        them: names of sidecars (see `names`) are in the order of its fields, and those of fields
        that it lacks are gone.

        Args:
            fields: Names of its fields, the image first.
        """
        named = np.flatnonzero(self.path_bytes == 0)
        if tuple(fields) == self.fields or not len(named):
            return self.path_bytes, self.path_offset
        rows = np.unique(np.searchsorted(self.path_offset, named.astype(np.uint64), "right") - 1)
        return self._paths_with({row: self._entry(row, fields) for row in rows.tolist()})

    def with_paths(self, paths: Mapping[int, str]) -> SampleTable:
        """Returns the table with other paths of some rows; files of sidecars keep their names.

        Args:
            paths: Number of a row -> its image's path.
        """
        entries = {row: self._entry(row, self.fields, path) for row, path in paths.items()}
        block, offset = self._paths_with(entries)
        return replace(self, path_bytes=block, path_offset=offset)

    def _entry(self, row: int, fields: Sequence[str], path: str = "") -> Entry:
        """Returns the entry in the path arena of a table of these fields, with another path where
        one is given."""
        own, *names = self.names(row)
        files = {
            field: name.rpartition("/")[2]
            for field, name in zip(self.fields[1:], names, strict=True)
            if name and field in fields
        }
        return path_entry(path or own, files, fields)

    def _paths_with(self, entries: Mapping[int, Entry]) -> tuple[Bytes, Places]:
        """Returns the path arena and its offsets with other entries for some rows."""
        lengths, pieces, done = np.diff(self.path_offset), [], 0
        for row, entry in sorted(entries.items()):
            start, stop = int(self.path_offset[row]), int(self.path_offset[row + 1])
            pieces += [self.path_bytes[done:start], np.frombuffer(entry, np.uint8)]
            lengths[row], done = len(entry), stop
        pieces.append(self.path_bytes[done:])
        ends = np.cumsum(lengths, dtype=np.uint64)
        return np.concatenate(pieces), np.concatenate([np.zeros(1, np.uint64), ends])

    def extra_bytes(self, rows: slice) -> npt.NDArray[np.uint32]:
        """Returns the column `extra` of a range of rows, also where there is none, uint32 (n,)."""
        if self.extra is not None:
            return self.extra[rows]
        return np.zeros(len(self.label[rows]), EXTRA)

    def column_sizes(self) -> dict[str, int]:
        """Returns the bytes of each stored column, also while `offset` is not known yet."""
        rows = {name: len(self) * dtype.itemsize for name, dtype in COLUMNS.items()}
        rows["path"] = self.path_bytes.nbytes
        rows["path_offset"] += COLUMNS["path_offset"].itemsize
        rows["shard_row"] = self.shard_row.nbytes
        for column, dtype in FIELD_COLUMNS.items():
            rows |= {f"{column}/{name}": len(self) * dtype.itemsize for name in self.fields}
        if self.extra is not None:
            rows["extra"] = self.extra.nbytes
        return rows

    @classmethod
    def from_arrays(
        cls,
        fields: Sequence[str],
        arrays: Mapping[str, npt.NDArray[Any]],
        base: Sequence[int] = (),
    ) -> SampleTable:
        """Returns the table that such columns make, without copying them.

        Raises:
            ValueError: A column is missing, or has another type or length than the others ask for.
        """

        def column(name: str, dtype: np.dtype[Any], length: int | None) -> npt.NDArray[Any]:
            if name not in arrays:
                raise ValueError(f"the sample table lacks its column {name!r}")
            array = arrays[name]
            if array.dtype != dtype or array.ndim != 1 or length not in (None, array.shape[0]):
                raise ValueError(
                    f"column {name!r} of the sample table is {array.dtype} {array.shape}, "
                    f"not {dtype} ({'' if length is None else length},)"
                )
            return array

        count = arrays["label"].shape[0] if "label" in arrays else 0
        lengths = {"path": None, "path_offset": count + 1, "shard_row": None}
        got = {
            name: column(name, dtype, lengths.get(name, count)) for name, dtype in COLUMNS.items()
        }
        by_field = {
            name: tuple(column(f"{name}/{field}", dtype, count) for field in fields)
            for name, dtype in FIELD_COLUMNS.items()
            if name != "checksum" or f"checksum/{fields[0]}" in arrays
        }
        extra = column("extra", EXTRA, count) if "extra" in arrays else None
        if int(got["path_offset"][-1]) != got["path"].shape[0]:
            raise ValueError("the paths of the sample table are cut short")
        rows = got["shard_row"].tolist()
        if rows[:1] != [0] or rows[-1] != count or rows != sorted(rows):
            raise ValueError("the shards of the sample table do not hold its rows")
        if got["kind"].max(initial=0) >= len(KINDS):
            raise ValueError("the sample table names an image format that does not exist")
        got["path_bytes"] = got.pop("path")
        return cls(fields=tuple(fields), base=tuple(base), extra=extra, **got, **by_field)  # type: ignore[arg-type]

    def names(self, row: int) -> list[str]:
        """Returns the path of each field of a sample, "" where it lacks the field.

        The arena holds for each sample its image's path. Where a sidecar is called otherwise than
        the image with another extension (`A.TXT` beside `A.jpg`), NUL and the sidecar's file name
        follow for every sidecar, empty where the usual name is right.
        """
        start, stop = int(self.path_offset[row]), int(self.path_offset[row + 1])
        path, *given = os.fsdecode(self.path_bytes[start:stop].tobytes()).split("\0")
        names = [path]
        if len(self.fields) > 1:
            folder, slash, file_name = path.rpartition("/")
            stem = os.path.splitext(file_name)[0]
            for slot, name in enumerate(self.fields[1:], 1):
                own = given[slot - 1] if slot <= len(given) else ""
                there = self.size[slot][row] >= 0
                names.append(folder + slash + (own or f"{stem}.{name}") if there else "")
        return names

    def path(self, row: int) -> str:
        """Returns a sample's path, relative to the source, as `os.fsdecode` text."""
        start, stop = int(self.path_offset[row]), int(self.path_offset[row + 1])
        return os.fsdecode(self.path_bytes[start:stop].tobytes().partition(b"\0")[0])

    def paths(self, start: int, stop: int) -> list[str]:
        """Returns the paths of a range of samples."""
        places = self.path_offset[start : stop + 1].tolist()
        if len(places) < 2:
            return []
        base = places[0]
        block = self.path_bytes[base : places[-1]].tobytes()
        ends = pairwise(places)
        return [os.fsdecode(block[a - base : b - base].partition(b"\0")[0]) for a, b in ends]


def path_entry(path: str, names: Mapping[str, str], fields: Sequence[str]) -> bytes:
    """Returns a sample's entry in the path arena (see `SampleTable.names`).

    Args:
        path: The image's path.
        names: Field -> file name of each sidecar that is there.
        fields: Names of all fields, the image first.
    """
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    usual = all(name == f"{stem}.{field}" for field, name in names.items())
    parts = [path] if usual else [path, *(names.get(field, "") for field in fields[1:])]
    return os.fsencode("\0".join(parts))
