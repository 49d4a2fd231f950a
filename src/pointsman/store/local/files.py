"""Files that are there whole or not at all, names that nobody changes meanwhile, and the lock of the one writer.

Durable means: the file is synced, and so is the directory that has its name. Whoever makes, replaces or removes
something here syncs that directory before it says that it is done.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Final

from pointsman.errors import LockedError, StorageFullError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_FOR_US: Final = frozenset({errno.EACCES, errno.EPERM})
_NO_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LEAST_ROOM: Final = 1 << 20  # bytes; with less, what fails for no reason that is told fails for this one
_HOLD_SECONDS: Final = 10.0  # for whoever has a directory under its hands; that takes milliseconds
POLL_SECONDS: Final = 0.005
"""How often who waits for a lock looks whether it is free; a look costs some 20 microseconds."""


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def store_error(place: Path, error: OSError, note: str = "") -> StoreError:
    """The operating system's error as one of ours: which file, what is the matter, what to do.

    Args:
        place: the file or directory.
        error: what the system says.
        note: what is safe all the same, where that is not plain.
    """
    if error.errno in _FULL:
        return full(place, note)
    reason = error.strerror or str(error)
    if error.errno == errno.EROFS:
        return StoreError(f"{place} cannot be written to: {reason}")
    if error.errno in _NOT_FOR_US:
        return StoreError(f"{place} cannot be read or written to: {reason}; check its owner and permissions")
    if error.errno in _NO_HANDLES:
        return StoreError(f"{place}: {reason}; close what is open, or raise the limit ('ulimit -n'), and try again")
    note = note or "what was acknowledged is kept"
    return StoreError(f"{place}: {reason}; {note}; check the disk and try again")


def full(place: Path, note: str = "") -> StorageFullError:
    """No room is left for this file."""
    note = note or "what was acknowledged before is kept"
    return StorageFullError(
        f"{place}: the disk (or the quota) is full; {note}; searching continues; free some space and try again",
        note,
    )


def room(directory: Path) -> bool:
    """Whether there is any for new files."""
    try:
        state = os.statvfs(directory)
    except OSError:
        return True  # nobody knows; what is tried next will tell
    return state.f_bavail * state.f_frsize >= _LEAST_ROOM and (state.f_favail > 0 or not state.f_files)


@contextmanager
def translated(place: Path, note: str = "") -> Iterator[None]:
    """Turn the operating system's errors into ours; see `store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(place, error, note) from error


# ── durable changes of a directory ───────────────────────────────────────────────────────────────────────────────────


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


def remove_file(path: Path) -> None:
    """Delete a file for good; one that is not there is fine."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def file_stamp(path: Path | str) -> tuple[int, int, int] | str:
    """Tells one state of a file that is only ever replaced from another; ``"absent"`` when there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  # every search asks; the other way takes twice as long
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise store_error(Path(path), error) from error
    return status.st_ino, status.st_mtime_ns, status.st_size


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
        sync_directory(directory.parent)
    except OSError as error:
        if error.errno in _FULL:
            raise full(directory) from error
        raise StoreError(f"{directory} cannot be created: {error.strerror}; name another path") from error


def sync_directory(directory: Path) -> None:
    """Make durable what was made, renamed or removed inside a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ── one at a time ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def steady(directory: Path, *, alone: bool = False) -> Iterator[bool]:
    """Within the block the directory keeps its name, and nobody replaces its manifest.

    SQLite names its log by path when a database is opened and when its last connection is closed. If the directory
    were renamed at that very moment, and another one made of that name, it would take, or delete, the log of the other
    one. So whoever opens or closes shares the directory, and whoever renames it, or writes its manifest, is alone.

    Args:
        directory: it need not be there.
        alone: nobody else may be inside.

    Yields:
        Whether the directory is there.

    Raises:
        LockedError: others do not come out.
        StoreError: it cannot be opened.
    """
    with translated(directory):
        descriptor = _locked_descriptor(directory, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked_descriptor(directory: Path, operation: int) -> int | None:
    """A descriptor that locks the directory of this name; None when there is none."""
    until = monotonic() + _HOLD_SECONDS
    while True:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if _try_lock(descriptor, operation):
                if _is(directory, descriptor):
                    return descriptor
                os.close(descriptor)  # it was renamed while we waited
                continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if monotonic() >= until:
            raise LockedError(f"{directory} is being created, changed or deleted by another process; try again")
        sleep(POLL_SECONDS)


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(path: Path, descriptor: int) -> bool:
    """Whether that is what the path names, by now."""
    try:
        by_path, by_descriptor = path.stat(), os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (by_path.st_dev, by_path.st_ino) == (by_descriptor.st_dev, by_descriptor.st_ino)


# ── made and removed as a whole ──────────────────────────────────────────────────────────────────────────────────────

# Names of their own, so that a long name of a dataset does not grow too long for a file.
_LEFTOVER: Final = re.compile(r"\.pointsman-[0-9a-f]{32}\.(new|removed)|\..+\.\d+\.removed")


@contextmanager
def directory_aside(folder: Path) -> Iterator[Path]:
    """A new directory that is renamed within the block, or else goes when the block ends.

    While the block lasts it is locked: what nobody holds is what a process that died has left.
    """
    while True:
        aside = folder / f".pointsman-{uuid.uuid4().hex}.new"
        aside.mkdir()
        try:
            descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # somebody who collects leftovers was quicker
            continue
        if _try_lock(descriptor, fcntl.LOCK_SH) and _is(aside, descriptor):  # shared: it is opened in the block
            break
        os.close(descriptor)
    try:
        yield aside
    finally:
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)  # what cannot be removed now is collected later
        os.close(descriptor)


def replace_directory(directory: Path, aside: Path) -> None:
    """Let another directory take the place of one, if there is one; for a moment there may be none of that name."""
    doomed = _doomed(directory)
    with suppress(FileNotFoundError):
        directory.rename(doomed)
    aside.rename(directory)
    shutil.rmtree(doomed, ignore_errors=True)  # what cannot be removed now is collected later


def _remove_tree(directory: Path) -> None:
    for _ in range(3):
        with suppress(OSError):  # tantivy, where it is open, makes its lock again
            shutil.rmtree(directory)
            return
    shutil.rmtree(directory)


def _doomed(directory: Path) -> Path:
    return directory.with_name(f".pointsman-{uuid.uuid4().hex}.removed")


def remove_directory(directory: Path) -> None:
    """Remove a directory durably and at once: whatever happens, it is there whole or not at all.

    The caller is alone with it (`steady`). What cannot be removed is out of the way, and collected later.
    """
    doomed = _doomed(directory)
    directory.rename(doomed)
    sync_directory(directory.parent)
    try:
        _remove_tree(doomed)
    except OSError as error:
        log.warning("%s was deleted, but not all of its files could be removed from %s: %s", directory, doomed, error)


def collect_leftovers(folder: Path) -> int:
    """Remove what processes that died have left among the datasets of a folder. Returns how many directories."""
    try:
        leftovers = [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name)]
    except OSError as error:
        log.debug("%s cannot be checked for leftover files (%s)", folder, error)
        return 0
    removed = 0
    for path in leftovers:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            log.debug("%s is not collected (%s)", path, error)
            continue
        try:
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is(path, descriptor):
                _remove_tree(path)
                removed += 1
        except OSError as error:
            log.info("%s cannot be removed: %s", path, error)
        finally:
            os.close(descriptor)
    return removed


# ── the writer ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ExclusiveLock:
    """An exclusive lock on a file of its own, in a directory that is there; the kernel frees it when its holder dies.

    It belongs to the object, whichever thread asks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Whether the lock is ours now."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # A lock on a file that has been removed, or that went with its directory, would lock nobody out.
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is(self.path, descriptor):
                self._descriptor, descriptor = descriptor, -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return self.held

    @property
    def in_place(self) -> bool:
        """Whether it is held, and the path still names what is locked."""
        return self._descriptor is not None and _is(self.path, self._descriptor)

    def release(self) -> None:
        """Let others have it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()  # for those who never call close


class WriterLock:
    """One writer per dataset over all processes of this machine; the kernel frees it when its holder dies.

    Who is ready to wait lines up at a lock of its own, so that a process that writes again and again lets others in.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._queue = directory / "writer.queue"
        self._holder = directory / "writer.pid"
        self._lock = ExclusiveLock(directory / "writer.lock")

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.held

    @property
    def is_noise(self) -> bool:
        """Whether what has the lock's name is nothing that anybody could hold."""
        with translated(self._directory):
            return self._lock.path.is_dir()

    def acquire(self) -> None:
        """Become the writer, at once or not at all.

        Raises:
            LockedError: someone else is; the message says who, as far as is known.
            FileNotFoundError: there is no such directory.
            StoreError: nothing can be written there.
        """
        if self.held:
            return
        try:
            acquired = self._lock.acquire()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(self._directory, error) from error
        if not acquired:
            raise self._locked()
        with suppress(OSError):  # on a full disk the message to others does without the number
            self._holder.write_text(str(os.getpid()))

    @property
    def wanted(self) -> bool:
        """Whether somebody waits in line."""
        place = ExclusiveLock(self._queue)
        try:
            return not place.acquire()
        except OSError:
            return False  # where no line can be made, nobody stands in it
        finally:
            place.release()

    @contextmanager
    def line(self, until: float) -> Iterator[None]:
        """Wait in line, until a moment of ``monotonic`` at most; within the block it is one's turn to take the lock.

        Raises:
            LockedError: the time is over.
            FileNotFoundError: there is no such directory.
            StoreError: nothing can be written there.
        """
        place = ExclusiveLock(self._queue)  # its own for each who waits, also of one process
        try:
            while not place.acquire():
                if monotonic() >= until:
                    raise self._locked()
                sleep(POLL_SECONDS)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(self._directory, error) from error
        try:
            yield
        finally:
            place.release()

    def release(self) -> None:
        """Let others write."""
        self.unsign()
        self._lock.release()

    def unsign(self) -> None:
        """Take away the note that says who holds the lock, before its directory gets another name."""
        if self._lock.in_place:
            with suppress(OSError):  # where it says something false, only a message is wrong
                self._holder.unlink()

    def _locked(self) -> LockedError:
        return LockedError(
            f"{self._directory} is being written to by {self._who()}; "
            "readers may continue, a second writer must wait until the first closes the dataset"
        )

    def _who(self) -> str:
        try:
            process = int(self._holder.read_text())
        except (OSError, ValueError):
            return "another process"  # it has just come or just gone: the message does without its number
        return (
            "this same process, which opened it twice"
            if process == os.getpid()
            else f"another process (process {process})"
        )
