"""OUT while it is made: everything happens in OUT.partial, and OUT appears whole, in one step.

OUT.partial/lock      held by the process that packs (flock); says which one
OUT.partial/workers   held by its workers, so that a new run waits for those of a dead one
OUT.partial/pack/     what will be published
OUT.partial/new*      what changes places with OUT and the files beside it
OUT.partial/publish   the list of these: a run that finds it finishes what another one began
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fastconv.converters.below import remove_tree
from fastconv.converters.system import held_signals, rename_new, swap
from fastconv.loaders.errors import FastconvError, UsageError, printable

__all__ = ["Target", "exists_already", "left_by_killed_run"]

PATIENCE_S = 10.0
"""How long the workers of a run that was killed may take to end; the system kills them at once."""


class Step(NamedTuple):
    """One change of places: the inodes of what was at a path before, and of what is to be there.

    Inodes tell whether it has happened; None stands for nothing.
    """

    old: int | None
    new: int | None


class Target:
    """Holds OUT.partial.

    Args:
        out: Where the pack is to be.
        notice: Called with each line that a user should see at once.

    Attributes:
        recovered: OUT was made by a run that was killed before it could say so: it may be replaced.

    Raises:
        UsageError: There is something else at OUT.partial.
        FastconvError: Another process holds it.
        OSError: The system refuses to make it.
    """

    def __init__(self, out: str, notice: Callable[[str], None]) -> None:
        self.out = out.rstrip("/") or out
        self.partial = f"{self.out}.partial"
        self._notice = notice
        self._made = self._half_published = False
        self._lock: int | None = None
        self._refuse_others()
        try:
            self._lock = self._take_lock()
            self._wait_for_workers()
            finished = self._finish_publishing()
            self.recovered = left_by_killed_run(self.out)
            discarded = self._clear(keep={"lock", "workers", "publish"})
        except BaseException:
            self._give_up()
            raise
        if finished:
            notice(f"{printable(self.out)}: published what a killed run had begun to publish")
        elif discarded:
            notice(f"discarded what an unfinished run left in {printable(self.partial)}")

    def path(self, *names: str) -> str:
        """Returns a path inside OUT.partial."""
        return os.path.join(self.partial, *names)

    def _refuse_others(self) -> None:
        try:
            folder = stat.S_ISDIR(os.lstat(self.partial).st_mode)
        except FileNotFoundError:
            return
        if not folder or (not os.path.lexists(self.path("lock")) and os.listdir(self.partial)):
            raise UsageError(
                f"{printable(self.partial)}: exists and was not made by fastconv: move it away"
            )

    def _take_lock(self) -> int:
        while True:
            try:
                os.mkdir(self.partial)
                self._made = True
            except FileExistsError:
                self._made = False
            try:
                fd = os.open(
                    self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
                )
            except FileNotFoundError:  # the folder was removed by the run that held it
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise FastconvError(
                    f"{printable(self.out)}: process {holder or '(unknown)'} is packing into "
                    "it: wait for it or stop it"
                ) from error
            try:
                if os.path.samestat(os.stat(self.path("lock")), os.fstat(fd)):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)

    def _give_up(self) -> None:
        """Takes back what was made so far; it needs no descriptor, there may be none left."""
        try:
            if self._made and self._lock is not None:
                for name in ("workers", "lock"):
                    if os.path.lexists(self.path(name)):
                        os.unlink(self.path(name))
            if self._made:
                os.rmdir(self.partial)
        except OSError:
            pass  # what made it fail is told; the next run takes what is left
        self.keep()

    def _wait_for_workers(self) -> None:
        fd = os.open(
            self.path("workers"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        try:
            end = time.monotonic() + PATIENCE_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise FastconvError(
                            f"{printable(self.out)}: workers of an earlier run are still "
                            "writing: stop them"
                        ) from None
                    time.sleep(0.05)
        finally:
            os.close(fd)

    def _clear(self, keep: Iterable[str]) -> bool:
        """Removes all but some names from OUT.partial; returns whether there were any."""
        names = set(os.listdir(self.partial)).difference(keep)
        for name in names:
            path = self.path(name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                remove_tree(path)
            else:
                os.unlink(path)
        return bool(names)

    def _places(self, ending: str) -> tuple[str, str]:
        """Returns the two paths that change places, inside and outside of OUT.partial."""
        return self.path(f"new{ending}"), f"{self.out}{ending}"

    def publish(self, files: Mapping[str, str | None], overwrite: bool) -> None:
        """Moves files or folders to OUT and beside it, and removes OUT.partial.

        Their bytes are on the disk before any is moved, and the moves before this returns. Either
        all are moved or none is; what is stopped in between is finished by the next run.

        Args:
            files: By what their final paths have behind OUT, which is the last; None: what is there
                goes.
            overwrite: Replaces what is at OUT.

        Raises:
            UsageError: Something is at OUT that was not there when the run began.
        """
        overwrite = overwrite or self.recovered
        for source in files.values():
            if source is not None:
                sync_tree(source)
        if not overwrite and os.path.lexists(self.out):
            raise exists_already(self.out)
        for ending, source in files.items():
            if source is not None:
                os.rename(source, self.path(f"new{ending}"))
        with held_signals() as waiting:
            self._write_journal(files)
            self._move(files, overwrite)
            self.discard()
            if waiting:
                self._notice(f"{printable(self.out)}: was published before the run was interrupted")

    def _write_journal(self, endings: Iterable[str]) -> None:
        steps = {}
        for ending in endings:
            inside, final = self._places(ending)
            steps[ending] = Step(inode(final), inode(inside))
        with open(self.path("publish.new"), "w", encoding="ascii") as file:
            json.dump(steps, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path("publish.new"), self.path("publish"))
        sync_folder(self.partial)

    def _move(self, endings: Iterable[str], overwrite: bool) -> None:
        """Does all steps, or undoes those that it did."""
        self._half_published = True
        done: list[str] = []
        try:
            for ending in endings:
                (swap if ending or overwrite else rename_new)(*self._places(ending))
                done.append(ending)
            sync_folder(os.path.dirname(self.out) or ".")
        except OSError as error:
            try:
                for ending in reversed(done):
                    swap(*self._places(ending))
                os.unlink(self.path("publish"))
            except OSError:
                raise FastconvError(
                    f"{printable(self.out)}: was published in part ({error.strerror}): "
                    "run the same command again, which finishes it"
                ) from error
            self._half_published = False
            if isinstance(error, FileExistsError):
                raise exists_already(self.out) from error
            raise
        self._half_published = False

    def _finish_publishing(self) -> bool:
        """Does the steps that a killed run has not done; returns whether there were any."""
        found = False
        for ending, step in read_journal(self.partial).items():
            inside, final = self._places(ending)
            # A change of places that takes three renames may have left nothing at the final path.
            if inode(inside) == step.new != inode(final) and inode(final) in (step.old, None):
                swap(inside, final)
                found = True
        if found:
            sync_folder(os.path.dirname(self.out) or ".")
        return found

    def discard(self) -> None:
        """Removes OUT.partial and gives the lock back. What cannot be removed is told, no more: it
        changes nothing in what was made or was not."""
        if self._lock is None or self._half_published:
            self.keep()
            return
        with held_signals():
            try:
                self._clear(keep={"lock", "publish"})
                for name in ("publish", "lock"):  # the marks go last, so that a next run has them
                    if os.path.lexists(self.path(name)):
                        os.unlink(self.path(name))
                os.rmdir(self.partial)
            except OSError as error:
                if os.path.lexists(self.partial):
                    self._notice(
                        f"{printable(self.partial)}: cannot be removed "
                        f"({error.strerror}): remove it yourself"
                    )
            self.keep()

    def keep(self) -> None:
        """Gives the lock back and leaves OUT.partial where it is."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def exists_already(out: str) -> UsageError:
    """Returns what to raise where something is at OUT that is not to be replaced."""
    return UsageError(
        f"{printable(out)}: exists already: choose another OUT, or --overwrite "
        "(in Python overwrite=True)"
    )


def inode(path: str) -> int | None:
    """Returns the number of what is at a path, links not followed; None where nothing is."""
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return None


def read_journal(partial: str) -> dict[str, Step]:
    """Returns the steps of a run that began to publish; none where none did.

    One that cannot be read was not finished before its run was killed: no step was done.
    """
    try:
        with open(os.path.join(partial, "publish"), encoding="ascii") as file:
            steps = {ending: Step(*step) for ending, step in json.load(file).items()}
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, AttributeError):
        return {}
    return {} if any("/" in ending for ending in steps) else steps


def left_by_killed_run(out: str) -> bool:
    """Returns whether what is at OUT was published by a run that was killed before it could say
    so."""
    try:
        step = read_journal(f"{out}.partial").get("")
        return step is not None and step.new is not None and inode(out) == step.new
    except OSError:
        return False


def sync_folder(path: str) -> None:
    """Brings a folder's entries to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(path: str) -> None:
    """Brings a file, or all files of a folder, to the disk."""
    if not os.path.isdir(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return
    for name in os.listdir(path):
        sync_tree(os.path.join(path, name))
    sync_folder(path)
