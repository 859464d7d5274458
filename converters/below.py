"""Writes, moves and removes files below a folder, where no name and no link can lead out of it.

Every folder on the way is opened by its own name alone, relative to the one that it lies in, and
links are not followed. So it does not matter what else happens in the file system meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat

from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.sample import Reason

__all__ = ["FolderWriter", "RefusedError", "move_tree", "remove_tree", "safe_parts"]

LONGEST = 4095
"""Bytes of a path: the system takes no longer one from other programs (PATH_MAX)."""
PIECE = 1 << 20
"""Bytes of a file that are compared at once."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""How file systems refuse a name that they cannot store."""


class RefusedError(Exception):
    """A file that is not written.

    Attributes:
        reason: Why, as a word for programs.
        message: Why, as a sentence for people, without the file's name.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason: Reason = reason
        self.message = message


def safe_parts(path: str) -> list[str]:
    """Returns the names that make up a path below some folder.

    Raises:
        RefusedError: It could lead out of the folder, or names no file.
    """
    parts = [part for part in path.split("/") if part != "."]
    if path.startswith("/"):
        problem = "an absolute path"
    elif ".." in parts:
        problem = "leads upwards, out of the folder"
    elif "\0" in path:
        problem = "has a NUL byte"
    elif not parts or "" in parts:
        problem = "has a name without characters"
    elif len(os.fsencode(path)) > LONGEST:
        problem = f"longer than {LONGEST} bytes"
    else:
        return parts
    raise RefusedError("unsafe_path", f"{problem}: not written")


class FolderWriter:
    """Writes new files below a folder, and makes the folders that they lie in.

    Args:
        folder: Is there; nobody else writes into it.
        beside: A folder that the files will be moved into later, where something may be already:
            what could not be moved there is refused at once.
    """

    def __init__(self, folder: str, beside: str | None = None) -> None:
        self.roots = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        if beside is not None:
            self.roots.append(os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._parts: list[str] | None = []
        self._here = os.dup(self.roots[0])
        self._there = os.dup(self.roots[1]) if beside is not None else None

    def close(self) -> None:
        """Closes the folders."""
        for fd in (*self.roots, self._here, self._there):
            if fd is not None:
                os.close(fd)

    def write(self, path: str, data: memoryview) -> bool:
        """Writes a file; returns whether it is new, and not there already with the same bytes.

        Raises:
            RefusedError: It must not be written.
            OSError: The system refused something else.
        """
        try:
            fd = self.create(path)
        except FileExistsError:
            if has_bytes(path.rpartition("/")[2], self._here, data):
                return False
            raise RefusedError(
                "duplicate_key",
                "another file of the pack has this path, and other bytes: not written",
            ) from None
        try:
            while data.nbytes:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        return True

    def create(self, path: str) -> int:
        """Returns a descriptor of a new file.

        Raises:
            RefusedError: It must not be written.
            FileExistsError: It was written before.
            OSError: The system refused something else.
        """
        *folders, name = safe_parts(path)
        try:
            if folders != self._parts:
                self._enter(folders)
            if self._there is not None and is_folder(name, self._there):
                raise RefusedError("not_a_regular_file", "a folder is in its place: not written")
            return os.open(name, NEW_FILE, 0o666, dir_fd=self._here)
        except OSError as error:
            if error.errno in NO_SUCH_NAME:
                words = os.strerror(error.errno or 0)
                raise RefusedError(
                    "unsafe_path", f"the file system takes no such name ({words})"
                ) from error
            raise

    def _enter(self, folders: list[str]) -> None:
        """Goes to another folder; makes it where it is not there."""
        self._parts = None  # nowhere, until it has worked
        os.close(self._here)
        self._here = os.dup(self.roots[0])
        if len(self.roots) > 1:
            if self._there is not None:
                os.close(self._there)
            self._there = os.dup(self.roots[1])
        for number, name in enumerate(folders, 1):
            if self._there is not None:
                self._there = self._step_beside(name, "/".join(folders[:number]))
            self._step(name, "/".join(folders[:number]))
        self._parts = folders

    def _step(self, name: str, path: str) -> None:
        try:
            try:
                fd = os.open(name, FOLDER, dir_fd=self._here)
            except FileNotFoundError:
                os.mkdir(name, dir_fd=self._here)
                fd = os.open(name, FOLDER, dir_fd=self._here)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            message = (
                f"{printable(path)} is a file of the pack, so no folder can be there: not written"
            )
            raise RefusedError("duplicate_key", message) from error
        os.close(self._here)
        self._here = fd

    def _step_beside(self, name: str, path: str) -> int | None:
        """Returns the next folder of those that are there already; None where there is none."""
        last, self._there = self._there, None
        assert last is not None
        try:
            return os.open(name, FOLDER, dir_fd=last)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if stat.S_ISLNK(os.stat(name, dir_fd=last, follow_symlinks=False).st_mode):
                # Nothing has been moved into the folder yet, so all can still be left as it was.
                raise UsageError(
                    f"{printable(path)}: is there already, a link that is not followed: "
                    "remove it, or "
                    "choose another folder"
                ) from error
            message = f"{printable(path)} is there already, and is no folder: not written"
            raise RefusedError("not_a_regular_file", message) from error
        finally:
            os.close(last)


def is_folder(name: str, folder: int) -> bool:
    """Returns whether there is a folder of this name, links not followed."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def has_bytes(name: str, folder: int, data: memoryview) -> bool:
    """Returns whether a regular file of this name has just these bytes."""
    fd = os.open(name, OLD_FILE, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != data.nbytes:
            return False
        for start in range(0, data.nbytes, PIECE):
            piece = bytes(data[start : start + PIECE])
            if os.pread(fd, PIECE, start) != piece:
                return False
        return True
    finally:
        os.close(fd)


def move_tree(source: str, target: str) -> None:
    """Moves all that is in one folder into another one on the same file system.

    Where both have the same folder its contents are moved; a file that is there already is
    replaced.

    Links in the target are not followed: the link itself is replaced, or stands in the way.

    Raises:
        OSError: Something stands in the way.
    """
    waiting: list[list[str]] = [[]]
    while waiting:
        parts = waiting.pop()
        here, there = descend(source, parts), descend(target, parts)
        try:
            with os.scandir(here) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for name, folder in found:
                if folder and is_folder(name, there):
                    waiting.append([*parts, name])
                else:
                    os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
        finally:
            os.close(here)
            os.close(there)


def descend(root: str, parts: list[str]) -> int:
    """Returns a descriptor of a folder below another one, without following links on the way."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in parts:
        try:
            inner = os.open(name, FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def remove_tree(path: str) -> None:
    """Removes a folder and all that is in it, however deep.

    Raises:
        OSError: Something cannot be removed, or a folder was moved away meanwhile.
    """
    above: list[tuple[str, os.stat_result]] = []  # names on the way, and the folders they lie in
    here = os.open(path, FOLDER)
    try:
        while True:
            inner = remove_files(here)
            if inner is not None:
                above.append((inner, os.fstat(here)))
                there = os.open(inner, FOLDER, dir_fd=here)
            elif above:
                there = os.open("..", FOLDER, dir_fd=here)
            else:
                break
            os.close(here)
            here = there
            if inner is None:
                name, status = above.pop()
                if not os.path.samestat(os.fstat(here), status):
                    raise OSError(errno.ESTALE, "a folder was moved while it was removed", path)
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(path)


def remove_files(folder: int) -> str | None:
    """Removes what is in a folder up to the first folder there, and returns the name of that."""
    removed = True
    while removed:  # what is removed while a folder is listed may hide other names from the list
        removed = False
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    return entry.name
                os.unlink(entry.name, dir_fd=folder)
                removed = True
    return None
