"""OUT while it is made: everything happens in OUT.partial, and OUT appears whole, in one step.

OUT.partial/lock      held by the process that packs (flock); says which one
OUT.partial/workers   held by its workers, so that a new run waits for those of a dead one
OUT.partial/pack/     what will be published
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Sequence

from fastconv.converters.system import exchange, rename_new
from fastconv.loaders.errors import FastconvError, UsageError, printable

__all__ = ["Target"]

PATIENCE_S = 10.0
"""How long the workers of a run that was killed may take to end; the system kills them at once."""


class Target:
    """Holds OUT.partial.

    Args:
        out: Where the pack is to be.

    Raises:
        FastconvError: Another process holds it, or the system refuses to make it.
    """

    def __init__(self, out: str, notice: Callable[[str], None]) -> None:
        self.out = out.rstrip("/") or out
        self.partial = f"{self.out}.partial"
        if (
            os.path.isdir(self.partial)
            and not os.path.exists(self.path("lock"))
            and os.listdir(self.partial)
        ):
            raise UsageError(
                f"{printable(self.partial)}: exists and was not made by fastconv: move it away"
            )
        self._lock = self._take_lock()
        try:
            self._wait_for_workers()
            stale = sorted(set(os.listdir(self.partial)) - {"lock", "workers"})
            if stale:
                self._clear(stale)
                notice(f"discarded what an unfinished run left in {printable(self.partial)}")
        except BaseException:
            os.close(self._lock)
            raise

    def path(self, *names: str) -> str:
        """Returns a path inside OUT.partial."""
        return os.path.join(self.partial, *names)

    def _take_lock(self) -> int:
        while True:
            os.makedirs(self.partial, exist_ok=True)
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

    def _clear(self, names: Sequence[str]) -> None:
        for name in names:
            path = self.path(name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def publish(self, files: Sequence[tuple[str, str]], overwrite: bool) -> None:
        """Moves files or folders to their final paths, the last of them OUT itself.

        Their bytes are on the disk before any is moved, and the moves before this returns.

        Raises:
            UsageError: Something is at OUT that was not there when the run began.
        """
        for source, _ in files:
            sync_tree(source)
        if not overwrite and os.path.lexists(self.out):  # before anything beside it is moved
            raise UsageError(
                f"{printable(self.out)}: exists already: choose another OUT or --overwrite"
            )
        for source, final in files:
            try:
                rename_new(source, final)
            except FileExistsError as error:
                if not overwrite and final == self.out:
                    raise UsageError(
                        f"{printable(final)}: exists already: choose another OUT or --overwrite"
                    ) from error
                exchange(source, final)
        sync_folder(os.path.dirname(self.out) or ".")

    def discard(self) -> None:
        """Removes OUT.partial and gives the lock back."""
        names = os.listdir(self.partial)
        self._clear([name for name in names if name != "lock"])
        os.unlink(self.path("lock"))
        os.rmdir(self.partial)
        os.close(self._lock)

    def keep(self) -> None:
        """Gives the lock back and leaves OUT.partial where it is."""
        os.close(self._lock)


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
