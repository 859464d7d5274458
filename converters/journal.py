"""What a run has finished, kept in OUT.partial so that the same command goes on where it stopped.

OUT.partial/plan   what the run is about: its options, and every file with its size and time
OUT.partial/done   a record for each part, appended when the part's bytes are written
OUT.partial/splits in place of these records, where OUT is to be several packs: those that are made

Nothing waits for the disk: every few seconds a thread brings to it what was written, and a mark in
`done` says up to which record that is so. Parts behind the last mark may have lost bytes in a power
cut, so they are read again and compared with the digest in their record; of those that differ it is
noted that they are not finished, as the next mark would take them for sure. A record that is cut
short or damaged, and all behind it, count as not written.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import xxhash

from fastconv.converters.engines.local import Answer
from fastconv.converters.system import sync_path
from fastconv.loaders.arrays import Array, block_size, dump_arrays, load_arrays
from fastconv.loaders.errors import PackError, printable
from fastconv.loaders.files import map_file
from fastconv.loaders.identity import digest_of
from fastconv.loaders.listing import Listing

__all__ = ["SPLITS", "Journal", "Plan", "Record", "has_records"]

SYNC_S = 5.0
"""Seconds between two looks after the disk: so much work is checked again after a power cut."""
BETWEEN = b"\0"
"""What stands between the names of a sample's files."""
SPLITS = "splits"
"""The folder in OUT.partial with the packs that OUT is to be."""
HEAD = 16
"""Bytes before a record: its size and its xxh3-64, both u64."""


@dataclass(frozen=True)
class Plan:
    """What a run is about.

    Attributes:
        options: What else decides the bytes that come out, by the words that a user knows; JSON.
        listing: The source.
    """

    options: Mapping[str, Any]
    listing: Listing

    def arrays(self) -> dict[str, Array]:
        """Returns what is known of the source's files."""
        listing = self.listing
        arrays: dict[str, Array] = {
            "path": listing.path_bytes,
            "path_offset": listing.path_offset,
            "label": listing.label,
            "kind": listing.kind,
            "stamp": listing.stamp,
        }
        for name, size in zip(listing.fields, listing.size, strict=True):
            arrays[f"size/{name}"] = size
        for name, (data, ends) in listing.generated.items():
            arrays |= {f"generated/{name}": data, f"generated_end/{name}": ends}
        return arrays

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits over all of it."""
        return digest_of(json.dumps(dict(self.options)), self.arrays())

    def write(self, path: str) -> None:
        """Writes it into a file."""
        options = json.dumps(dict(self.options))
        with open(path, "wb") as file:
            for block in dump_arrays(self.arrays(), {"options": options, "digest": self.digest}):
                file.write(block)

    def differences(self, path: str) -> list[str] | None:
        """Returns what is not as in a file that was written before, in words; None where there is
        no such file, or not all of it."""
        try:
            arrays, metadata = load_arrays(map_file(path).view)
            options = json.loads(metadata["options"])
            if digest_of(metadata["options"], arrays) != metadata["digest"]:
                return None
        except (PackError, ValueError, KeyError):
            return None
        if metadata["digest"] == self.digest:
            return []
        words = [
            option_change(name, options.get(name), self.options.get(name))
            for name in {**options, **self.options}
            if options.get(name) != self.options.get(name)
        ]
        # Other options may list the files otherwise.
        return words or changed_files(arrays, self.arrays()) or ["labels or their order differ"]


def option_change(name: str, old: Any, new: Any) -> str:
    """Returns how an option differs, in words."""
    if isinstance(old, list) and isinstance(new, list):
        changes = [f"{printable(one)} is new" for one in new if one not in old][:2]
        changes += [f"{printable(one)} is gone" for one in old if one not in new][:2]
        return f"{name} are others ({', '.join(changes) or 'in another order'})"
    old, new = ("not given" if value is None else value for value in (old, new))
    return f"{name} was {old}, is {new}"


def changed_files(old: Mapping[str, Array], new: Mapping[str, Array]) -> list[str]:
    """Returns which files are not as they were, in words."""
    before, now = rows_by_path(old), rows_by_path(new)
    words = {
        "was changed": [path for path in before if path in now and before[path] != now[path]],
        "is new": [path for path in now if path not in before],
        "is gone": [path for path in before if path not in now],
    }
    return [
        f"{printable(os.fsdecode(path.partition(BETWEEN)[0]))} {what}"
        for what, paths in words.items()
        for path in paths
    ]


def rows_by_path(arrays: Mapping[str, Array]) -> dict[bytes, tuple[int, ...]]:
    """Returns what is known of each sample, by its paths."""
    data, ends = arrays["path"].tobytes(), arrays["path_offset"].tolist()
    columns = [
        arrays[name]
        for name in sorted(arrays)
        if name in ("label", "stamp") or name.startswith("size/")
    ]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {data[start:stop]: row for start, stop, row in zip(ends, ends[1:], rows, strict=False)}


class Record(NamedTuple):
    """A part that was finished.

    Attributes:
        answer: What its worker found.
        sure: Its bytes are on the disk.
    """

    answer: Answer
    sure: bool


class Journal:
    """The records of a run; they are added in the order in which parts end.

    Args:
        folder: OUT.partial.

    Attributes:
        records: What was found, by the number of the pass and that of the part.
        complete: Passes all of whose parts are on the disk.
        count: How many parts are finished.

    Raises:
        OSError: The system refuses to read or write it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.records: dict[int, dict[int, Record]] = {}
        self.complete: set[int] = set()
        self._noted = self._read()
        self.count = sum(map(len, self.records.values()))
        self._touched: set[str] = set()
        self._due = time.monotonic() + SYNC_S
        self._thread: threading.Thread | None = None
        self._problem: OSError | None = None

    def _read(self) -> int:
        """Reads what is there, cuts off what is not whole, and returns how often a part was
        noted."""
        path = os.path.join(self._folder, "done")
        self._fd: int | None = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        with open(os.dup(self._fd), "rb") as file:
            data = memoryview(file.read())
        found: list[tuple[int, Answer]] = []
        forgotten: set[int] = set()
        place = sure = 0
        while (block := whole_block(data, place)) is not None:
            arrays, metadata = load_arrays(block)
            content = json.loads(metadata["content"])
            if "sure" in content:
                sure = content["sure"]
                self.complete.update(content["complete"])
            elif "forgotten" in content:
                gone = {(content["pass"], part) for part in content["forgotten"]}
                forgotten.update(
                    number
                    for number, (run, answer) in enumerate(found)
                    if (run, answer.number) in gone
                )
            else:
                found.append((content["pass"], Answer(content["part"], content, arrays)))
            place += HEAD + block.nbytes
        if place < data.nbytes:
            os.ftruncate(self._fd, place)
            os.fsync(self._fd)  # what is cut off must not follow what is written there now
        for number, (run, answer) in enumerate(found):
            if number not in forgotten:
                self.records.setdefault(run, {})[answer.number] = Record(answer, number < sure)
        return len(found)

    def add(self, run: int, answer: Answer, path: str) -> None:
        """Notes a part that is finished.

        Args:
            run: Number of the pass.
            answer: What its worker found.
            path: The file that it was written to.

        Raises:
            OSError: The disk does not take it, or something that was written before.
        """
        self._append({**answer.content, "pass": run, "part": answer.number}, answer.arrays)
        self.count += 1
        self._noted += 1
        self._touched.add(path)
        if self._thread is not None and not self._thread.is_alive():
            self._end_sync()
        if self._thread is None and time.monotonic() >= self._due:
            self._thread = threading.Thread(
                target=self._sync, args=(self._take_touched(),), daemon=True
            )
            self._marked = self._noted
            self._thread.start()

    def keep(self, path: str) -> None:
        """Takes parts of an earlier run for finished that lie in a file: the next mark is about
        them too, so the file is brought to the disk with those that this run writes."""
        self._touched.add(path)

    def forget(self, run: int, parts: Sequence[int]) -> None:
        """Notes that parts are not finished after all; before any that is done anew.

        Raises:
            OSError: The disk does not take it.
        """
        if not parts:
            return
        self._append({"pass": run, "forgotten": [*parts]}, {})
        sync_path(os.path.join(self._folder, "done"))
        self.count -= len(parts)

    def end_pass(self, run: int, paths: Iterable[str]) -> None:
        """Brings all that a pass has written to the disk: from now on its parts are sure.

        Raises:
            OSError: The disk does not take it.
        """
        if run in self.complete:
            return
        if self._thread is not None:
            self._thread.join()
            self._end_sync()
        self._touched.clear()
        self._sync([*paths])
        if self._problem is not None:
            raise self._problem
        self._append({"sure": self._noted, "complete": [run]}, {})
        sync_path(os.path.join(self._folder, "done"))
        self.complete.add(run)

    def _append(self, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        block = dump_arrays(arrays, {"content": json.dumps(content)})
        digest = xxhash.xxh3_64()
        for piece in block:
            digest.update(piece)
        head = block_size(block).to_bytes(8, "little") + digest.intdigest().to_bytes(8, "little")
        left = memoryview(b"".join((head, *block)))
        assert self._fd is not None
        while left.nbytes:
            left = left[os.write(self._fd, left) :]

    def _take_touched(self) -> list[str]:
        touched, self._touched = [*self._touched], set()
        return touched

    def _sync(self, paths: Iterable[str]) -> None:
        """Brings files to the disk, and what leads to them."""
        try:
            folders = {os.path.dirname(path) for path in paths} | {self._folder}
            notes = [os.path.join(self._folder, name) for name in ("plan", "done")]
            for path in (*paths, *notes, *folders, os.path.dirname(self._folder) or "."):
                sync_path(path)
        except OSError as error:
            self._problem = error

    def _end_sync(self) -> None:
        self._thread = None
        if self._problem is not None:
            raise self._problem
        self._append({"sure": self._marked, "complete": []}, {})
        self._due = time.monotonic() + SYNC_S

    def close(self) -> None:
        """Closes the file; a thread that still waits for the disk does no harm."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def has_records(folder: str) -> bool:
    """Returns whether a run has finished anything that OUT.partial still has."""
    try:
        return os.path.getsize(os.path.join(folder, "done")) > 0
    except FileNotFoundError:
        pass
    try:
        return bool(os.listdir(os.path.join(folder, SPLITS)))
    except FileNotFoundError:
        return False


def whole_block(data: memoryview, place: int) -> memoryview | None:
    """Returns the record at a place; None where there is none that is whole."""
    size = int.from_bytes(data[place : place + 8], "little")
    block = data[place + HEAD : place + HEAD + size]
    if not size or block.nbytes < size:
        return None
    digest = int.from_bytes(data[place + 8 : place + HEAD], "little")
    return block if xxhash.xxh3_64_intdigest(block) == digest else None
