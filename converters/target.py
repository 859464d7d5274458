"""OUT while it is made: everything happens in OUT.partial, and OUT appears whole, in one step.

OUT.partial/lock      held by the process that packs (flock); says which one
OUT.partial/workers   held by its workers, so that a new run waits for those of a dead one
OUT.partial/publish   what changes places with OUT and the files beside it, and what it is: a run
                      that finds it finishes what another one began
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from fastconv.converters.below import remove_tree
from fastconv.converters.system import (
    held_signals,
    is_empty_folder,
    rename_new,
    swap,
    sync_path,
    sync_tree,
)
from fastconv.loaders.errors import FastconvError, UsageError, printable

__all__ = ["Target", "exists_already", "left_by_killed_run"]

PATIENCE_S = 10.0
"""How long the workers of a run that was killed may take to end; the system kills them at once."""


class Step(NamedTuple):
    """One change of places, of something in OUT.partial and something at OUT or beside it.

    Attributes:
        inside: The path in OUT.partial.
        old, new: Inodes of what was at OUT before, and of what is to be there: they tell whether it
            has happened. None stands for nothing.
    """

    inside: str
    old: int | None
    new: int | None


class Publication(NamedTuple):
    """What a run has published, or was about to.

    Attributes:
        steps: By what the final paths have behind OUT, or by "/" and their name in its folder.
        about: What the run says of it, JSON.
    """

    steps: dict[str, Step]
    about: dict[str, Any]


class Target:
    """Holds OUT.partial.

    Args:
        out: Where the pack is to be.
        notice: Called with each line that a user should see at once.

    Attributes:
        published: What OUT is, where it was made by a run that was killed before it could say so.

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
            self.published = self._finish_publishing()
        except BaseException:
            self._give_up()
            raise

    def path(self, *names: str) -> str:
        """Returns a path inside OUT.partial."""
        return os.path.join(self.partial, *names)

    def final(self, ending: str) -> str:
        """Returns where something is published (see `publish`)."""
        if ending.startswith("/"):
            return os.path.join(os.path.dirname(self.out), ending[1:])
        return self.out + ending

    def _refuse_others(self) -> None:
        try:
            folder = stat.S_ISDIR(os.lstat(self.partial).st_mode)
        except FileNotFoundError:
            return
        ours = folder and {"lock", "publish"}.intersection(os.listdir(self.partial))
        if not folder or (not ours and os.listdir(self.partial)):
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
                    f"{printable(self.out)}: process {holder or '(unknown)'} is making "
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

    def clear(self, keep: Collection[str] = ("lock", "workers")) -> bool:
        """Removes all but some names from OUT.partial; returns whether there were any."""
        names = set(os.listdir(self.partial)).difference(keep)
        for name in names:
            self.remove(self.path(name))
        return bool(names)

    def start_over(self, *keep: str) -> None:
        """Removes what an unfinished run has left, but for some names."""
        if self.clear(("lock", "workers", *keep)):
            self._notice(f"discarded what an unfinished run left in {printable(self.partial)}")

    def remove(self, path: str) -> None:
        """Removes a file or folder of OUT.partial, if it is there."""
        if not os.path.lexists(path):
            return
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(path)
        else:
            os.unlink(path)

    def publish(
        self,
        files: Mapping[str, str | None],
        overwrite: bool,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Moves files or folders to OUT and beside it, and removes OUT.partial.

        Their bytes are on the disk before any is moved, and the moves before this returns. Either
        all are moved or none is; what is stopped in between is finished by the next run.

        Args:
            files: By what their final paths have behind OUT, which is the last, or by "/" and their
                name in its folder: where they are in OUT.partial. None: what is there goes.
            overwrite: Replaces what is at OUT.
            about: What the next run is told if this one is killed before it can tell itself; JSON.

        Raises:
            UsageError: Something is at OUT that was not there when the run began. A folder may take
                the place of an empty one.
        """
        for source in files.values():
            if source is not None:
                sync_tree(source)
        if not overwrite and os.path.lexists(self.out) and not is_empty_folder(self.out):
            raise exists_already(self.out)
        with held_signals() as waiting:
            steps = self._write_journal(files, about or {})
            self._move(steps, overwrite)
            self.discard()
            if waiting:
                self._notice(f"{printable(self.out)}: was published before the run was interrupted")

    def _write_journal(
        self, files: Mapping[str, str | None], about: Mapping[str, Any]
    ) -> dict[str, Step]:
        steps = {}
        for ending, source in files.items():
            gone = f"gone{ending.replace('/', '.')}"
            inside = gone if source is None else os.path.relpath(source, self.partial)
            steps[ending] = Step(inside, inode(self.final(ending)), inode(self.path(inside)))
        with open(self.path("publish.new"), "w", encoding="ascii") as file:
            json.dump({"steps": steps, "about": about}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path("publish.new"), self.path("publish"))
        sync_path(self.partial)
        return steps

    def _move(self, steps: Mapping[str, Step], overwrite: bool) -> None:
        """Does all steps, or undoes those that it did."""
        self._half_published = True
        done: list[tuple[str, str]] = []
        try:
            for ending, step in steps.items():
                places = self.path(step.inside), self.final(ending)
                (swap if ending or overwrite else rename_new)(*places)
                done.append(places)
            sync_path(os.path.dirname(self.out) or ".")
        except OSError as error:
            try:
                for places in reversed(done):
                    swap(*places)
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

    def _finish_publishing(self) -> Publication | None:
        """Does the steps that a killed run has not done; returns what OUT is then, if it is its."""
        found = read_publication(self.partial)
        moved = False
        for ending, step in found.steps.items():
            inside, final = self.path(step.inside), self.final(ending)
            # A change of places that takes three renames may have left nothing at the final path.
            if inode(inside) == step.new != inode(final) and inode(final) in (step.old, None):
                swap(inside, final)
                moved = True
        if moved:
            sync_path(os.path.dirname(self.out) or ".")
            self._notice(f"{printable(self.out)}: published what a killed run had begun to publish")
        return found if left_by_killed_run(self.out) else None

    def discard(self) -> None:
        """Removes OUT.partial and gives the lock back. What cannot be removed is told, no more: it
        changes nothing in what was made or was not."""
        if self._lock is None or self._half_published:
            self.keep()
            return
        with held_signals():
            try:
                self.clear(keep=("lock", "publish"))
                for name in ("lock", "publish"):  # what says that OUT is made goes last
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


def read_publication(partial: str) -> Publication:
    """Returns what a run had begun to publish; without steps where none had.

    One that cannot be read was not finished before its run was killed: no step was done.
    """
    try:
        with open(os.path.join(partial, "publish"), encoding="ascii") as file:
            found = json.load(file)
        steps = {ending: Step(*step) for ending, step in found["steps"].items()}
        paths = [part for step in steps.values() for part in step.inside.split("/")]
        if ".." in paths or "" in paths or any("/" in ending[1:] for ending in steps):
            raise ValueError("leads out of the folder")
        return Publication(steps, dict(found["about"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, AttributeError, KeyError):
        return Publication({}, {})


def left_by_killed_run(out: str) -> bool:
    """Returns whether what is at OUT was published by a run that was killed before it could say
    so."""
    try:
        step = read_publication(f"{out}.partial").steps.get("")
        return step is not None and step.new is not None and inode(out) == step.new
    except OSError:
        return False
