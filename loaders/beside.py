"""Opens packs whose sample table lies beside their data: one file, or a folder of shards.

The table (`fastconv.loaders.index`) is believed when it fits its data: every data file is as long
as it says, and bears the pack's stamp, which is the first digits of its id. Data without a table,
or with one that does not fit, are gone through once, and so are those of other tools.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

from fastconv.loaders.classes import some_of
from fastconv.loaders.errors import (
    CorruptPackError,
    MissingDependencyError,
    NotAPackError,
    PackChangedError,
    UsageError,
    printable,
)
from fastconv.loaders.filenames import is_hidden, sort_key
from fastconv.loaders.files import inode_at, map_file, unreadable
from fastconv.loaders.index import index_path, is_being_published, load_index
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.reader import READERS, MappedReader, Reader

__all__ = [
    "STAMP_DIGITS",
    "BesideReader",
    "being_replaced",
    "called_like_packs",
    "holds_packs",
    "missing_shards",
    "names_in",
    "open_beside",
    "shard_files",
]

STAMP_DIGITS: Final = 31
"""Those of an id that every text in a data file has room for; a tar's header has no more."""


class BesideReader(MappedReader):
    """Reads packs whose sample table lies beside their data.

    Attributes:
        stamped: The bytes of a data file that its stamp is among.
        read_instead: What is read where there is no table.
        unknown: What only the table tells.
    """

    stamped: ClassVar[slice]
    read_instead: ClassVar[str] = "records"
    unknown: ClassVar[str]

    @staticmethod
    @abstractmethod
    def stamp_in(data: bytes) -> bytes:
        """Returns the stamp that is among these bytes of a data file; none where none is."""

    @staticmethod
    def stamp(pack_id: str) -> bytes:
        """Returns the stamp of a pack."""
        return pack_id[:STAMP_DIGITS].encode()

    @classmethod
    def is_shard(cls, name: str) -> bool:
        """Returns whether a file in a folder is a data file, by its name."""
        return name.endswith(cls.suffixes)

    @classmethod
    def shard_names(cls, folder: str) -> list[str]:
        """Returns the names of the data files in a folder, in order.

        Raises:
            PackError: The system does not let us read it.
        """
        names = (name for name in names_in(folder) if cls.is_shard(name) and not is_hidden(name))
        return sorted(names, key=sort_key)

    def check_belongs(self) -> None:
        """Checks that the first data file is the table's, and that all have the lengths that it
        says.

        Raises:
            PackChangedError: One is another pack's.
            CorruptPackError: The table does not fit them.
        """
        for file, shard, found in zip(self.files, self.meta.shards, self.found, strict=True):
            if found.size != shard.size:
                raise PackChangedError(
                    f"{printable(file)}: has {found.size} bytes, "
                    f"{printable(index_path(self.path))} says {shard.size}"
                )
        if len(self):
            self._mapped(0)

    def check_scanned(self, inodes: Sequence[tuple[int, int]]) -> None:
        """Checks that the data files are those that were gone through before.

        Raises:
            PackChangedError: One was replaced meanwhile.
        """
        if [found.inode for found in self.found] != inodes:
            raise being_replaced(self.path)

    def _check_view(self, shard: int, view: memoryview) -> None:
        known = self.meta.id
        if known and self.stamp_in(bytes(view[self.stamped])) != self.stamp(known):
            raise PackChangedError(
                f"{printable(self.files[shard])}: belongs to another pack than "
                f"{printable(index_path(self.path))}"
            )


NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})((?:-of-[0-9]{1,9})?[^0-9]*)")
"""The name of a shard that has a number: what comes before and behind it."""
COUNT: Final = re.compile(r"-of-([0-9]+)")
"""How many shards there are, behind the number of one."""
MOST_SHARDS: Final = 100_000
"""A set of more says nothing of itself that is believed."""

B = TypeVar("B", bound=BesideReader)
R = TypeVar("R", bound=Reader)


def open_beside(
    kind: type[B], path: str, scan: Callable[[str, list[str]], R], *, ask: bool = True
) -> B | R:
    """Returns a pack: as its table tells it where there is one that fits, else as its data do.

    Args:
        kind: What reads packs of its format that have a table.
        path: The pack.
        scan: Opens it without one, from its path and its data files.
        ask: Whether a table is looked for.

    Raises:
        UsageError: It is a folder of packs.
        PackError: What `Reader.open` raises, or `scan`.
    """
    lies_there = inode_at(path)
    problem = None
    try:
        found = load_index(path) if ask else None
        if found is not None:
            meta, table, file = found
            reader = kind(path, meta, table, shard_files(path, meta), file)
            reader.check_belongs()
            return reader
    except (CorruptPackError, PackChangedError) as error:
        problem = error
    # A table that is missing or does not fit may be one that is just changing places.
    if is_being_published(path) or inode_at(path) != lies_there:
        raise being_replaced(path) from problem
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in kind.shard_names(path)]
        if problem is None:
            refuse_several(path, files)
            if not files:
                raise NotAPackError(
                    f"{printable(path)}: not a pack in {kind.title}: holds no files called "
                    f"{' or '.join(f'*{ending}' for ending in kind.suffixes)}"
                )
    try:
        scanned = scan(path, files)
    except (CorruptPackError, MissingDependencyError) as error:
        if problem is None:
            raise
        raise type(error)(f"{error} (its sample table is ignored: {problem})") from error
    if inode_at(path) != lies_there:
        raise being_replaced(path)
    if os.path.isdir(path):
        scanned.notices += missing_shards([os.path.basename(file) for file in files])
    if problem is not None:
        scanned.notices.append(
            f"the sample table is ignored, the {kind.read_instead} are read instead: {problem}"
        )
        scanned.lost_table = f"its table does not fit it ({problem}): copy the pack again"
    elif ask and len(scanned) and kind.stamp_in(bytes(map_file(files[0]).view[kind.stamped])):
        place, folder = "in" if os.path.isdir(path) else "beside", os.path.dirname(path) or "."
        lost = f"its table {printable(os.path.basename(index_path(path)))} is not {place} it"
        remedy, why = "copy it along", "without it"
        if place == "beside" and os.path.exists(index_path(folder)):
            lost = f"it is a shard of the pack {printable(folder)}"
            remedy, why = "name that folder", "read alone"
        scanned.notices.append(f"{lost}: {why} {kind.unknown}: {remedy}")
        scanned.lost_table = f"{lost}: {remedy}"
    return scanned


def refuse_several(folder: str, files: Sequence[str]) -> None:
    """Refuses a folder whose data files have tables of their own: each of these is a pack, with its
    own classes, together they are none.

    Raises:
        UsageError: One has.
    """
    alone = next((file for file in files if os.path.exists(index_path(file))), None)
    if alone is not None:
        raise UsageError(holds_packs(folder, called_like_packs(folder), os.path.basename(alone)))


def holds_packs(folder: str, packs: Sequence[str], first: str) -> str:
    """Returns what is said of a folder of packs, whose names these are; `first` is one of them."""
    names = f"packs ({some_of(packs)})" if len(packs) > 1 else "a pack"
    one = "name one, such as" if len(packs) > 1 else "name"
    path = printable(os.path.join(folder, first))
    return f"{printable(folder)}: holds {names}, and is none itself: {one} {path}"


def called_like_packs(folder: str) -> list[str]:
    """Returns what in a folder is called like a pack of any format, in order; nothing where a path
    is not a folder."""
    endings = tuple(ending for reader in READERS.installed() for ending in reader.suffixes)
    names = (name for name in names_in(folder) if name.lower().endswith(endings))
    return sorted((name for name in names if not is_hidden(name)), key=sort_key)


def missing_shards(names: Sequence[str]) -> list[str]:
    """Returns a line for each numbered set of data files that lacks some, which names these.

    A set is as large as its names say (`NAME-00000-of-00012.tfrecord`). Else it goes from its least
    number to its greatest, if most of what is between them is there: other numbers are names.

    Args:
        names: What all data files in a folder are called.
    """
    sets: dict[tuple[str, str, int], set[int]] = {}
    for name in names:
        if found := NUMBERED.fullmatch(name):
            start, digits, end = found.groups()
            sets.setdefault((start, end, len(digits)), set()).add(int(digits))
    lines = []
    for (start, end, width), there in sets.items():
        known = COUNT.match(end)
        all_ = range(int(known[1])) if known else range(min(there), max(there) + 1)
        if len(all_) > (MOST_SHARDS if known else 2 * len(there) - 1):
            continue
        if lost := [f"{start}{number:0{width}d}{end}" for number in all_ if number not in there]:
            lines.append(f"{len(lost):,} of {len(all_):,} shards are missing: {some_of(lost)}")
    return lines


def being_replaced(path: str) -> PackChangedError:
    """Returns what to raise where parts of a pack may be those of another."""
    return PackChangedError(
        f"{printable(path)}: is being replaced: open it again; if no process packs into it, one "
        "was killed: run the same fastconv pack again, which finishes it"
    )


def shard_files(path: str, meta: PackMeta) -> list[str]:
    """Returns the data files that a pack names."""
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, shard.name) for shard in meta.shards]


def names_in(folder: str) -> list[str]:
    """Returns the names in a folder; none where a path is not one.

    Raises:
        PackError: The system does not let us read it.
    """
    try:
        return os.listdir(folder)
    except NotADirectoryError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
