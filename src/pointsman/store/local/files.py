"""Files that are there whole or not at all, and the lock that makes one process the writer."""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import get_ident
from time import monotonic
from typing import IO, TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from pointsman.errors import LockedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write aside, sync, and rename into place; after a crash either the old one or the new one is there."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}.tmp")  # another thread may be at it too
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def file_stamp(path: Path) -> tuple[int, int, int] | str:
    """Tells one state of a file that is only ever replaced from another; ``"absent"`` when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return "absent"
    return found.st_ino, found.st_mtime_ns, found.st_size


def remove_leftovers(path: Path) -> None:
    """Delete what writers of this file who were killed have left beside it; only for whoever alone may write it."""
    for aside in path.parent.glob(f"{path.name}.*.tmp"):
        aside.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, durably: a synced file is lost if the entry of its directory is not on disk."""
    if directory.is_dir():
        return
    if directory.parent != directory:
        make_directory(directory.parent)
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{directory} cannot be made: {error.strerror}; name another path") from error
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make renames inside a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


POLL_SECONDS: Final = 0.005
"""How often who waits for the lock looks whether it is free; a look costs some 20 microseconds."""


class WriterLock:
    """One writer per dataset over all processes of this machine; the kernel frees it when its holder dies.

    Who is ready to wait lines up at a lock of its own, so that a process that writes again and again lets others in.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "writer.lock"
        self._queue = directory / "writer.queue"
        self._holder = directory / "writer.pid"
        # It belongs to the object, whichever thread asks; the library's default is one lock for each thread.
        self._lock = FileLock(self._path, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Become the writer, at once or not at all.

        Raises:
            LockedError: someone else is; the message says who, as far as is known.
            StoreError: nothing can be written there.
        """
        if self.held:
            return
        try:
            self._lock.acquire(timeout=0)
            self._holder.write_text(str(os.getpid()))
        except Timeout as error:
            raise self._locked() from error
        except OSError as error:
            self._lock.release()
            raise StoreError(f"{self._path.parent} cannot be written to: {error.strerror or error}") from error

    @property
    def wanted(self) -> bool:
        """Whether somebody waits in line."""
        try:
            with FileLock(self._queue, timeout=0):
                return False
        except Timeout:
            return True

    @contextmanager
    def line(self, until: float) -> Iterator[None]:
        """Wait in line, until a moment of ``monotonic`` at most; within the block it is one's turn to take the lock.

        Raises:
            LockedError: the time is over.
        """
        place = FileLock(self._queue, thread_local=False)  # its own for each who waits, also of one process
        try:
            place.acquire(timeout=max(0.0, until - monotonic()), poll_interval=POLL_SECONDS)
        except Timeout as error:
            raise self._locked() from error
        except OSError as error:
            raise StoreError(f"{self._path.parent} cannot be written to: {error.strerror or error}") from error
        try:
            yield
        finally:
            place.release()

    def release(self) -> None:
        """Let others write."""
        if self.held:
            self._holder.unlink(missing_ok=True)
            self._lock.release()

    def _locked(self) -> LockedError:
        return LockedError(
            f"{self._path.parent} is being written to by {self._who()}; "
            "readers may go on, a second writer has to wait until that one closes the dataset"
        )

    def _who(self) -> str:
        try:
            process = int(self._holder.read_text())
        except (OSError, ValueError):
            return "another process"  # it has just come or just gone: the message does without its number
        return "this very process, opened twice" if process == os.getpid() else f"another process (process {process})"
