"""What a run does to the disk, call by call, and what a power cut between two of them may leave.

`strace` writes down the calls. Of what was not brought to the disk by then, a power cut may take
any part: bytes of files in any order, changes of names from the last one backwards, as file systems
with a journal do (ext4, XFS).
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["TRACE", "WAYS", "Disk", "Way", "rebuild", "recorded"]

CALLS = (
    "openat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,"
    "copy_file_range,sendfile,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,"
    "unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat"
)
TRACE = ("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "99999999", "-e", f"trace={CALLS}",
         "-e", "signal=none")  # fmt: skip

Way = Literal["dropped", "halved", "every second dropped", "any dropped", "kept"]
WAYS: tuple[Way, ...] = ("dropped", "halved", "every second dropped", "any dropped", "kept")


class Make(NamedTuple):
    """A new file or folder."""

    path: str
    number: int
    parent: int


class Remove(NamedTuple):
    """A name that goes."""

    path: str
    parent: int


class Move(NamedTuple):
    """Another name; `both`: of two, each gets that of the other one."""

    old: str
    new: str
    both: bool
    parent: int


class Write(NamedTuple):
    """Bytes in a file."""

    number: int
    place: int
    data: bytes


class Cut(NamedTuple):
    """Another size of a file."""

    number: int
    size: int


class Sync(NamedTuple):
    """A file or folder was brought to the disk, as it was after so many steps."""

    number: int
    covers: int


Step = Make | Remove | Move | Write | Cut | Sync


class Disk:
    """What a run did to a folder.

    Attributes:
        folder: The folder.
        first: Bytes of what was there before, by its number; None: a folder.
        names: Numbers of what was there before, by its path.
        now: The same of what is there now.
        steps: What was done since then, by one run or several.
        inodes: By the number of a file that says what changes places with what, the numbers of what
            it is about: by the ending, at OUT and inside.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.names: dict[str, int] = {}
        self.first: dict[int, bytes | None] = {}
        for path in [folder, *sorted(folder.rglob("*"))]:
            self.first[len(self.names)] = None if path.is_dir() else path.read_bytes()
            self.names[str(path)] = len(self.names)
        self.now = dict(self.names)
        self.count = len(self.names)
        self.steps: list[Step] = []
        self.inodes: dict[int, dict[str, tuple[int | None, int | None]]] = {}

    def is_file(self, number: int) -> bool:
        """Returns whether something is a file: new folders have numbers below zero."""
        return number >= 0 and self.first.get(number, b"") is not None


def recorded(disk: Disk, trace: Path, out: Path) -> Disk:
    """Adds what a run did to a folder, from what strace wrote; returns the record.

    Raises:
        ValueError: There is a call that is not understood.
    """
    names, numbers = disk.now, disk.count
    position: dict[int, int | None] = {}  # None: at the end
    files = [number for path, number in names.items() if disk.is_file(number)]
    size = {number: len(content(disk, number, disk.steps, {})) for number in files}

    def inside(path: str) -> bool:
        return path == disk.folder or path.startswith(f"{disk.folder}/")

    def write(number: int, place: int | None, data: bytes) -> int:
        place = size[number] if place is None else place
        disk.steps.append(Write(number, place, data))
        size[number] = max(size[number], place + len(data))
        return place + len(data)

    def at_begin(line: str) -> tuple[int, int | None]:
        found = texts(line.partition("<")[1] + line.partition("<")[2].partition(">")[0] + ">")
        return len(disk.steps), names.get(found[0]) if found else None

    for (began, known), call, words, result in calls(trace, at_begin):
        paths = [text for word in words for text in texts(word)]
        if not any(map(inside, paths)):
            continue
        if result is None:  # its process was killed meanwhile
            if call in ("write", "pwrite64") and (path := paths[0]) in names:
                number, data = names[path], bytes_of(words[1])
                place = int(words[3]) if call == "pwrite64" else position[number]
                write(number, place, data[: there(path, place, data)])
            continue
        if result < 0:
            continue
        if call == "openat":
            path, flags = text_of(words[1]), words[2]
            if path not in names and "O_CREAT" in flags:
                disk.steps.append(Make(path, numbers, names[os.path.dirname(path)]))
                names[path], size[numbers] = numbers, 0
                numbers += 1
            if "O_TRUNC" in flags and size[names[path]]:
                disk.steps.append(Cut(names[path], 0))
                size[names[path]] = 0
            if "O_RDONLY" not in flags:
                position[names[path]] = None if "O_APPEND" in flags else 0
        elif call == "mkdir":
            path = text_of(words[0])
            disk.steps.append(Make(path, -numbers, names[os.path.dirname(path)]))
            names[path] = -numbers
            numbers += 1
        elif call in ("unlink", "rmdir", "unlinkat"):
            path = text_of(words[0]) if call != "unlinkat" else at(words[0], words[1])
            disk.steps.append(Remove(path, names[os.path.dirname(path)]))
            del names[path]
        elif call in ("rename", "renameat2"):
            old, new = (text_of(words[at]) for at in ((0, 1) if call == "rename" else (1, 3)))
            both = call == "renameat2" and words[4] == "RENAME_EXCHANGE"
            disk.steps.append(Move(old, new, both, names[os.path.dirname(new)]))
            rename(names, old, new, both)
            if new == f"{out}.partial/publish":
                disk.inodes[names[new]] = about(disk, names, names[new], out)
        elif call == "lseek":
            number = names[texts(words[0])[0]]
            if position.get(number) is not None:
                position[number] = result
        else:
            # Another thread may have moved or removed the file since the call began.
            number = names[texts(words[0])[0]] if known is None else known
            if call in ("fsync", "fdatasync"):
                disk.steps.append(Sync(number, began))
            elif call == "ftruncate":
                disk.steps.append(Cut(number, int(words[1])))
                size[number] = int(words[1])
            elif call == "write":
                end = write(number, position[number], bytes_of(words[1])[:result])
                position[number] = None if position[number] is None else end
            elif call == "pwrite64":
                write(number, int(words[3]), bytes_of(words[1])[:result])
            else:
                raise ValueError(f"{call} is not understood")
    disk.count = numbers
    return disk


def there(path: str, place: int | None, data: bytes) -> int:
    """Returns how many first bytes of what a killed process wrote have come to the file."""
    found = Path(path).read_bytes() if os.path.isfile(path) else b""
    found = found[-len(data) :] if place is None else found[place : place + len(data)]
    same = (at for at in range(len(found), 0, -1) if data.startswith(found[:at]))
    return next(same, 0)


def calls(
    trace: Path, at_begin: Callable[[str], tuple[int, int | None]]
) -> Iterator[tuple[tuple[int, int | None], str, list[str], int | None]]:
    """Yields the calls as they end: what `at_begin` gave for it when it began, its name, its words
    and its result; None where the process was killed before."""
    begun: dict[str, tuple[tuple[int, int | None], str]] = {}
    for line in trace.read_text("ascii").splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.lstrip()
        began = at_begin(rest)
        if rest.endswith(" <unfinished ...>"):
            begun[process] = began, rest.removesuffix(" <unfinished ...>")
            continue
        if rest.startswith("<... "):
            began, head = begun.pop(process)
            rest = head + rest.partition(" resumed>")[2]
        elif rest.startswith("+++ ") and process in begun:
            began, head = begun.pop(process)
            rest = f"{head}) = ?"
        found = re.fullmatch(r"(\w+)\((.*)\)\s+= (-?\d+|\?).*", rest, re.DOTALL)
        if found is None:  # a process has ended
            continue
        call, words, result = found.groups()
        words = words.removesuffix(" <unfinished ...>")
        yield began, call, words.split(", "), None if result == "?" else int(result)


def bytes_of(word: str) -> bytes:
    """Returns the bytes of a text as strace writes it."""
    assert (word[0], word[-1]) == ('"', '"'), word[-100:]
    return bytes.fromhex(word[1:-1].replace("\\x", ""))


def text_of(word: str) -> str:
    """Returns a path as strace writes it."""
    return os.fsdecode(bytes_of(word))


def texts(word: str) -> list[str]:
    """Returns the paths that a word has: of a descriptor, or its own."""
    found = re.findall(r'["<]((?:\\x[0-9a-f]{2})+)[">]', word[:20_000])
    return [os.fsdecode(bytes.fromhex(text.replace("\\x", ""))) for text in found]


def at(folder: str, name: str) -> str:
    """Returns the path of a name in a folder that is open."""
    return os.path.join(*(texts(folder)[:1]), text_of(name))


def rename(names: dict[str, int], old: str, new: str, both: bool) -> None:
    """Gives something another name, with all that is in it."""

    def taken(top: str) -> dict[str, int]:
        paths = [path for path in names if path == top or path.startswith(f"{top}/")]
        return {path[len(top) :]: names.pop(path) for path in paths}

    one = taken(old)
    other = taken(new)
    names.update({new + rest: number for rest, number in one.items()})
    if both:
        names.update({old + rest: number for rest, number in other.items()})


def about(
    disk: Disk, names: Mapping[str, int], number: int, out: Path
) -> dict[str, tuple[int | None, int | None]]:
    """Returns what a file is about that says what changes places with what."""
    data = content(disk, number, [*disk.steps], {})
    steps = json.loads(data)["steps"]
    # Those that begin with "/" are the names of index files beside OUT.
    final = {each: f"{out.parent}{each}" if each[:1] == "/" else f"{out}{each}" for each in steps}
    return {
        ending: (names.get(final[ending]), names.get(f"{out}.partial/{inside}"))
        for ending, (inside, _, _) in steps.items()
    }


def content(
    disk: Disk, number: int, steps: Sequence[Step], written: Mapping[int, bytes | None]
) -> bytes:
    """Returns the bytes of a file.

    Args:
        disk: The record.
        number: The file's.
        steps: What was done.
        written: Of some steps, what of them came to the disk; None: nothing.
    """
    data = bytearray(disk.first.get(number) or b"")
    for index, step in enumerate(steps):
        if isinstance(step, Write) and step.number == number:
            piece = written.get(index, step.data)
            if piece is None:
                continue
            data.extend(bytes(max(step.place + len(piece) - len(data), 0)))
            data[step.place : step.place + len(piece)] = piece
        elif isinstance(step, Cut) and step.number == number and index not in written:
            del data[step.size :]
            data.extend(bytes(step.size - len(data)))
    return bytes(data)


def rebuild(disk: Disk, count: int, way: Way, target: Path, chance: random.Random) -> None:
    """Makes a folder as a power cut after so many steps may leave it.

    Args:
        disk: The record.
        count: How many steps were done.
        way: What becomes of bytes that were not brought to the disk.
        target: The folder; is made.
        chance: Chooses how many changes of names are lost, and which bytes.
    """
    steps = disk.steps[:count]
    synced: dict[int, int] = {}
    for step in steps:
        if isinstance(step, Sync):
            synced[step.number] = max(synced.get(step.number, 0), step.covers)
    changes = [at for at, step in enumerate(steps) if isinstance(step, Make | Remove | Move)]
    sure = [n for n, at in enumerate(changes, 1) if synced.get(steps[at].parent, 0) > at]  # type: ignore[union-attr]
    least = max(sure, default=0)
    kept = len(changes) if way == "kept" else chance.choice(
        [least, chance.randint(least, len(changes)), len(changes)]
    )  # fmt: skip
    names = dict(disk.names)
    for index in changes[:kept]:
        step = steps[index]
        if isinstance(step, Make):
            names[step.path] = step.number
        elif isinstance(step, Remove):
            del names[step.path]
        elif isinstance(step, Move):
            rename(names, step.old, step.new, step.both)
    written = lost_writes(steps, synced, way, chance)
    made: dict[int, int] = {}
    top = len(disk.folder)
    for path, number in sorted(names.items()):
        place = Path(f"{target}{path[top:]}")
        if disk.is_file(number):
            place.write_bytes(content(disk, number, steps, written))
        else:
            place.mkdir()
        made[number] = place.stat().st_ino
    for path, number in names.items():
        if number in disk.inodes and path.endswith("/publish"):
            renumber(Path(f"{target}{path[top:]}"), disk.inodes[number], made)


def lost_writes(
    steps: Sequence[Step], synced: Mapping[int, int], way: Way, chance: random.Random
) -> dict[int, bytes | None]:
    """Returns what came to the disk of the steps that were not brought there."""
    written: dict[int, bytes | None] = {}
    pending = [
        index
        for index, step in enumerate(steps)
        if isinstance(step, Write | Cut) and synced.get(step.number, 0) <= index
    ]
    for number, index in enumerate(pending):
        step = steps[index]
        if (
            way == "dropped"
            or (way == "every second dropped" and number % 2)
            or (way == "any dropped" and chance.random() < 0.5)
        ):
            written[index] = None
        elif way == "halved" and isinstance(step, Write):
            written[index] = step.data[: len(step.data) // 2]
    return written


def renumber(
    path: Path, inodes: Mapping[str, tuple[int | None, int | None]], made: Mapping[int, int]
) -> None:
    """Lets a file that names inodes name those of the folder that was made anew."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:  # it was not written as a whole
        return
    for ending, numbers in inodes.items():
        for place, number in enumerate(numbers, 1):
            assert (number is None) == (found["steps"][ending][place] is None)
            # What is gone has a number that nothing has.
            found["steps"][ending][place] = None if number is None else made.get(number, -number)
    path.write_text(json.dumps(found), "ascii")
