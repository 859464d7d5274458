"""Walks a folder of images and says in columns what is in it: torchvision's order and labels.

A folder is read once, one folder's names at a time, and of a sample only its row is kept: path,
label, kind, sizes and a stamp, about 33 bytes beside its path. Every file ends in exactly one of
four places: it is a row, a row's sidecar, in `bad`, or counted in `ignored`. Contents are not
looked at, except to say that files without an image extension look like images.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from fastconv.loaders.classes import (
    ClassOrder,
    empty_classes_warning,
    numbers_notice,
    some_of,
    sort_classes,
    splits_warning,
)
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import (
    OTHER_EXTENSIONS,
    extension_of,
    is_clutter,
    is_hidden,
    kind_code_of_name,
    looks_like_image,
    sort_key,
)
from fastconv.loaders.files import inode_at
from fastconv.loaders.listing import Ignored, Listing, WalkOptions
from fastconv.loaders.meta import LabelKind
from fastconv.loaders.sample import IMAGE, BadFile, Reason

__all__ = ["ClassOrder", "Ignored", "Listing", "WalkOptions", "holds_image", "walk_folder"]

MOST_LOOKS: Final = 1000
"""Files opened in one walk to see whether they look like images: about 20 ms on a warm disk."""

MOST_EXTENSIONS: Final = 1000
"""Extensions counted apart. Names like `scan.000001` would make one for each file."""


_DEFAULTS: Final = WalkOptions()


def walk_folder(root: str, options: WalkOptions = _DEFAULTS) -> Listing:
    """Returns what is below a folder, in torchvision's order: class, folder path, file name.

    Without any class folder that holds an image, labels are -1 and there are no classes.

    Raises:
        UsageError: The folder cannot be read, or a class folder is not among the given classes.
    """
    walker = _Walker(os.fspath(root), options)
    try:
        files, folders = walker.read_folder("")
    except OSError as error:
        hint = "give the folder that holds the images"
        if isinstance(error, PermissionError):
            hint = "make it readable (chmod u+rx), as its owner"
        raise UsageError(f"{printable(walker.root)}: {error.strerror}; {hint}") from error
    if not options.labels:
        walker.add_files("", files)
        walker.walk(folders)
        return walker.listing([(-1, len(walker))], (), "none")

    present = set(folders)
    if options.classes is not None:
        for name in sorted(present.difference(options.classes)):
            walker.walk([name])
            if walker.candidates:
                raise UsageError(
                    f"class folder {printable(name)!r} is not among the {len(options.classes)} "
                    f"given classes ({some_of(options.classes)}); rename it, or give classes that "
                    "have it"
                )
        classes = options.classes
    else:
        classes = sort_classes(folders, options.class_order)
    runs = []
    for label, name in enumerate(classes):
        before = len(walker)
        if name in present:
            walker.walk([name])
        runs.append((label, len(walker) - before))
    if not walker.candidates:
        walker.add_files("", files)
        if len(walker):
            walker.notices.append(
                f"no class folders in {printable(walker.root)}: all samples have the label -1"
            )
        return walker.listing([(-1, len(walker))], (), "none")
    walker.add_files("", files, outside=True)
    walker.warnings += empty_classes_warning(classes, [rows for _, rows in runs])
    if options.classes is None:
        walker.warnings += splits_warning(classes)
        walker.notices += numbers_notice(classes, options.class_order)
    return walker.listing(runs, classes, "class")


class _Walker:
    """The columns of a listing while they grow, and what is counted beside them."""

    def __init__(self, root: str, options: WalkOptions) -> None:
        self.root = root
        self.any_extension = options.any_extension
        self.fields = (IMAGE, *options.sidecars)
        self.dotted = tuple("." + suffix for suffix in options.sidecars)
        self.kind = bytearray()
        self.path_bytes = bytearray()
        self.path_offset = array("Q", [0])
        self.size = tuple(array("q") for _ in self.fields)
        self.stamp = array("q")
        self.bad: list[BadFile] = []
        self.ignored = Ignored()
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self.candidates = 0  # files that are rows, or would be if they were not bad
        self.loops: list[str] = []
        self.orphans = 0
        self.first_orphan = ""
        self.hidden_images = 0
        self.looks = 0
        self.look_like_images = 0

    def __len__(self) -> int:
        return len(self.kind)

    def walk(self, folders: Iterable[str]) -> None:
        """Adds all files below these folders, in the order of whole folder paths.

        A folder's path is always after that of the folder it lies in, so the smallest of those that
        are known is also before every one that is not known yet.
        """
        heap = [(sort_key(folder), folder) for folder in folders]
        heapq.heapify(heap)
        while heap:
            _, folder = heapq.heappop(heap)
            try:
                files, inner = self.read_folder(folder)
            except OSError as error:
                self.add_bad(folder, "unreadable", f"the folder cannot be read: {error.strerror}")
                continue
            for name in inner:
                path = f"{folder}/{name}"
                heapq.heappush(heap, (sort_key(path), path))
            self.add_files(folder, files)

    def read_folder(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of a folder's files, sorted, and of the folders in it to be entered."""
        files: list[str] = []
        folders: list[str] = []
        with os.scandir(os.path.join(self.root, folder) if folder else self.root) as entries:
            for entry in entries:
                name = entry.name
                if is_hidden(name):
                    self.ignored.hidden += 1
                    # "._x.jpg" is what macOS writes beside x.jpg: no image that anyone would miss.
                    if kind_code_of_name(name) and not (
                        name.startswith("._") or entry.is_dir(follow_symlinks=False)
                    ):
                        self.hidden_images += 1
                elif is_clutter(name):
                    self.ignored.clutter += 1
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_symlink():
                    self.sort_link(folder, name, files, folders)
                else:
                    files.append(name)
        files.sort(key=sort_key)
        return files, folders

    def sort_link(self, folder: str, name: str, files: list[str], folders: list[str]) -> None:
        """Puts a link among the folders to be entered, the files, or the links that lead back."""
        path = os.path.join(self.root, folder, name)
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            # A link to itself that is called like an image is a bad file, any other only a loop.
            if error.errno == errno.ELOOP and not kind_code_of_name(name):
                self.loops.append(_join(folder, name))
            else:
                files.append(name)
            return
        if not is_folder:
            files.append(name)
        elif _leads_back(self.root, folder, path):
            self.loops.append(_join(folder, name))
        else:
            folders.append(name)

    def add_files(self, folder: str, names: list[str], *, outside: bool = False) -> None:
        """Adds the files of one folder; `outside`: they lie in no class, so all images are bad."""
        place = os.path.join(self.root, folder, "")
        prefix = _join(folder, "")
        given = _Sidecars(names, self.dotted)
        for name in names:
            if name in given.claimed:
                continue
            code = kind_code_of_name(name)
            if not code and (
                not self.any_extension or (outside and not looks_like_image(place + name))
            ):
                self.leave_out(place, name)
                continue
            if outside:
                message = "in no class folder; move it into one, or use --no-labels"
                self.add_bad(prefix + name, "no_class", message)
                given.claim(name)
                continue
            size, time, problem = _status_of(place + name)
            if problem is None and size == 0:
                problem = "empty", "the file has no bytes"
            if problem is None:
                self.candidates += 1
                self.add_row(place, prefix, name, code, (size, time), given)
            elif code or problem[0] == "unreadable":
                self.candidates += 1
                self.add_bad(prefix + name, *problem)
                given.claim(name)
            else:
                self.count_extension(name)
        for name in given.unclaimed():
            self.orphans += 1
            self.first_orphan = self.first_orphan or prefix + name
            self.count_extension(name)

    def add_row(
        self, place: str, prefix: str, name: str, code: int, status: tuple[int, int],
        given: _Sidecars,
    ) -> None:  # fmt: skip
        size, stamp = status
        self.kind.append(code)
        self.size[0].append(size)
        self.path_bytes += os.fsencode(prefix + name)
        if self.dotted:
            own = []
            stem = os.path.splitext(name)[0]
            for end, column, side in zip(
                self.dotted, self.size[1:], given.claim(name), strict=True
            ):
                size, time = self.status_of_sidecar(place, prefix, side, given)
                column.append(size)
                stamp = hash((stamp, time))
                own.append(side if side != stem + end else "")
            if any(own):
                self.path_bytes += b"\0" + b"\0".join(map(os.fsencode, own))
        self.stamp.append(stamp)
        self.path_offset.append(len(self.path_bytes))

    def status_of_sidecar(
        self, place: str, prefix: str, name: str, given: _Sidecars
    ) -> tuple[int, int]:
        if not name:
            return -1, 0
        if name not in given.known:
            size, time, problem = _status_of(place + name)
            if problem is not None:
                self.add_bad(prefix + name, *problem)
            given.known[name] = size, time
        return given.known[name]

    def add_bad(self, path: str, reason: Reason, message: str) -> None:
        self.bad.append(BadFile(path, reason, message))

    def leave_out(self, place: str, name: str) -> None:
        """Counts a file by its extension; looks at the first ones that have no known one."""
        self.count_extension(name)
        unknown = extension_of(name)[1:] not in OTHER_EXTENSIONS
        if unknown and self.looks < MOST_LOOKS and not self.any_extension:
            self.looks += 1
            self.look_like_images += looks_like_image(place + name)

    def count_extension(self, name: str) -> None:
        extension = extension_of(name)
        counts = self.ignored.extension
        counts[extension if extension in counts or len(counts) < MOST_EXTENSIONS else ""] += 1

    def listing(
        self, runs: Sequence[tuple[int, int]], classes: tuple[str, ...], labels: LabelKind
    ) -> Listing:
        """Returns the columns, with a label for each run of (label, rows)."""
        values, counts = np.array(runs, np.int64).reshape(-1, 2).T
        return Listing(
            root=self.root,
            fields=self.fields,
            label=np.repeat(values, counts),
            kind=np.frombuffer(self.kind, np.uint8),
            path_bytes=np.frombuffer(self.path_bytes, np.uint8),
            path_offset=np.frombuffer(self.path_offset, np.uint64),
            size=tuple(np.frombuffer(column, np.int64) for column in self.size),
            stamp=np.frombuffer(self.stamp, np.int64),
            classes=classes,
            labels=labels,
            bad=self.bad,
            ignored=self.ignored,
            warnings=[*self.warnings, *self.own_warnings()],
            notices=self.notices,
        )

    def own_warnings(self) -> Iterable[str]:
        if self.loops:
            yield (
                "links not followed, because they lead back to where they lie: "
                f"{some_of(sorted(self.loops))}"
            )
        if self.hidden_images:
            yield (
                f"{_count(self.hidden_images, 'hidden file')} left out, though named like images; "
                "rename them without the leading dot to keep them"
            )
        if self.look_like_images:
            least = "at least " if self.looks == MOST_LOOKS else ""
            files = _count(self.look_like_images, "file")
            like = "looks like an image" if self.look_like_images == 1 else "look like images"
            yield f"{least}{files} without an image extension {like}; use --any-extension"
        if self.orphans:
            yield (
                f"{_count(self.orphans, 'sidecar')} left out for lack of an image of the same "
                f"name, the first: {printable(self.first_orphan)}"
            )


class _Sidecars:
    """The sidecars among one folder's names, by the stem they share with their images."""

    def __init__(self, names: Sequence[str], dotted: tuple[str, ...]) -> None:
        self.by_stem: tuple[dict[str, str], ...] = tuple({} for _ in dotted)
        self.claimed: dict[str, bool] = {}
        self.known: dict[str, tuple[int, int]] = {}
        for name in names if dotted else ():
            for end, by_stem in zip(dotted, self.by_stem, strict=True):
                if name[-len(end) :].lower() == end and len(name) > len(end):
                    stem = name[: -len(end)]
                    # Of a.TXT and a.txt the usual spelling wins, then the first in order.
                    if name == stem + end or stem not in by_stem:
                        by_stem[stem] = name
                    self.claimed[name] = False

    def claim(self, image: str) -> list[str]:
        """Returns the names of an image's sidecars, "" for none; from now on they have an image."""
        stem = os.path.splitext(image)[0]
        names = [by_stem.get(stem, "") for by_stem in self.by_stem]
        self.claimed.update((name, True) for name in names if name)
        return names

    def unclaimed(self) -> list[str]:
        """Returns the names of those that no image claimed."""
        return [name for name, claimed in self.claimed.items() if not claimed]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _leads_back(root: str, folder: str, link: str) -> bool:
    """Returns whether a link's target holds one of the folders that the walk went through to it.

    Those are the folders of the path as walked; each may itself have been reached through a link,
    so what counts is where they really lie.
    """
    target = os.path.join(os.path.realpath(link), "")
    place = root
    for part in ("", *folder.split("/")):
        place = os.path.join(place, part)
        if os.path.join(os.path.realpath(place), "").startswith(target):
            return True
    return False


def _status_of(path: str) -> tuple[int, int, tuple[Reason, str] | None]:
    """Returns a file's size in bytes, links followed, or -1, a hash of the time of its last change
    (file systems have times of any size), and what is wrong with it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            return -1, 0, ("dangling_symlink", "a link whose target is missing")
        return -1, 0, ("vanished", "it went away while the folder was read")
    except OSError as error:
        if error.errno == errno.ELOOP:
            return -1, 0, ("dangling_symlink", "a link that leads to itself")
        return -1, 0, ("unreadable", f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return -1, 0, ("not_a_regular_file", "a pipe, socket, device or folder, not a file")
    return status.st_size, hash(status.st_mtime_ns), None


def holds_image(folder: str) -> bool:
    """Returns whether a folder, or one below it, holds a file that is called like an image: many
    keep Parquet files and the like beside their images, and other things beside their packs."""
    pending, seen = [folder], set()
    while pending:
        place = pending.pop()
        if (inode := inode_at(place)) in seen:  # a link leads back
            continue
        seen.add(inode)
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if is_hidden(entry.name) or is_clutter(entry.name):
                        continue
                    if kind_code_of_name(entry.name):
                        return True
                    if os.path.isdir(entry.path):
                        pending.append(entry.path)
        except OSError:
            continue  # who opens the folder is told
    return False
