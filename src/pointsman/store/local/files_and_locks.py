"""Atomically written files, stable directory names, and the lock of the single writer.

Durable means that both the file and the directory that contains its name are synced. Every function that creates,
replaces or removes something here syncs that directory before it returns.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import stat
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Final

from pointsman.tools.errors import LockedError, ReplacedError, StorageFullError, StoreError
from pointsman.tools.system.replaced_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_FOR_US: Final = frozenset({errno.EACCES, errno.EPERM})
_NO_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LEAST_FREE_SPACE: Final = 1 << 20  # bytes; with less free space, an unexplained failure is attributed to a full disk
_HOLD_SECONDS: Final = 10.0  # for a process that is changing a directory, which takes milliseconds
_HEALING_SECONDS: Final = 2.0  # for a reader that is bringing the indexes up to date, which takes milliseconds
WAY_BACK: Final = "restore a backup ('pointsman restore'), or index the documents again into a new dataset"
"""What errors say of documents that are damaged."""
POLL_SECONDS: Final = 0.005
"""Interval at which waiters check a lock, in seconds; a check costs some 20 microseconds."""


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def store_error(path: Path, error: OSError, note: str = "") -> StoreError:
    """Convert an error of the operating system to one of ours: which file, what is wrong, what to do.

    Args:
        path: the file or directory.
        error: the system's error.
        note: what is safe nevertheless, if that is not obvious.
    """
    if error.errno in _FULL:
        return disk_full_error(path, note)
    reason = error.strerror or str(error)
    if error.errno == errno.EROFS:
        return StoreError(f"{path} cannot be written to: {reason}")
    if error.errno in _NOT_FOR_US:
        return StoreError(f"{path} cannot be read or written to: {reason}; check its owner and permissions")
    if error.errno in _NO_HANDLES:
        return StoreError(f"{path}: {reason}; close some files, or raise the limit ('ulimit -n'), and try again")
    note = note or "acknowledged writes are kept"
    return StoreError(f"{path}: {reason}; {note}; check the disk and try again")


def replaced_error(directory: Path) -> ReplacedError:
    """Return the error that the directory under this name is no longer the one that was opened."""
    return ReplacedError(f"{directory} was deleted or recreated by another process; open it again")


def disk_full_error(path: Path, note: str = "") -> StorageFullError:
    """Return the error for a full disk."""
    note = note or "earlier acknowledged writes are kept"
    return StorageFullError(
        f"{path}: the disk (or the quota) is full; {note}; searching continues; free some space and try again", note
    )


def has_free_space(directory: Path) -> bool:
    """Whether there is space for new files."""
    try:
        state = os.statvfs(directory)
    except OSError:
        return True  # unknown; the next operation will show
    return state.f_bavail * state.f_frsize >= _LEAST_FREE_SPACE and (state.f_favail > 0 or not state.f_files)


@contextmanager
def translated(path: Path, note: str = "") -> Iterator[None]:
    """Convert errors of the operating system to ours; see `store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(path, error, note) from error


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading; anything but a regular file is an OSError, for a pipe would be waited for for ever."""
    return open(path, "rb", opener=_regular)


def read_regular(path: Path) -> bytes:
    """Return the content of a file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def _regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


# ── durable changes of a directory ───────────────────────────────────────────────────────────────────────────────────


def remove_file(path: Path) -> None:
    """Delete a file durably; a missing one is no error."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def file_stamp(path: Path | str) -> tuple[int, int, int] | str:
    """Return a value that identifies the state of a file that is only ever replaced; ``"absent"`` if it is missing."""
    try:
        status = os.stat(path)  # noqa: PTH116  (called by every search; the other way takes twice as long)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise store_error(Path(path), error) from error
    return status.st_ino, status.st_mtime_ns, status.st_size


def remove_leftovers(path: Path) -> None:
    """Delete temporary files left by killed writers of this file; only for its sole writer."""
    for leftover in path.parent.glob(f"{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents durably: a synced file is lost if its directory entry is not on disk."""
    if directory.is_dir():
        return
    if directory.parent != directory:
        make_directory(directory.parent)
    try:
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full_error(directory) from error
        raise StoreError(f"{directory} cannot be created: {error.strerror}; name another path") from error


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, whatever the umask."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def keep_private(directory: Path) -> None:
    """Withdraw the rights of others to a directory and what is in it, as far as that is ours to do."""
    with suppress(OSError):  # it belongs to someone else, or the disk is read-only
        for path in (directory, *directory.iterdir()):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & 0o077 and not path.is_symlink():
                path.chmod(mode & 0o700)


# ── exclusion ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def steady(directory: Path, *, alone: bool = False) -> Iterator[bool]:
    """Within the block the directory keeps its name, and its manifest is not replaced.

    SQLite names its log by path when a database is opened and when its last connection is closed. If the directory
    were renamed at that moment, and another one took its name, SQLite would use, or delete, the log of the other one.
    So opening or closing takes a shared lock on the directory, and renaming it or writing its manifest an exclusive
    one.

    Args:
        directory: it need not exist.
        alone: whether the lock is exclusive.

    Yields:
        Whether the directory exists.

    Raises:
        LockedError: others do not release the directory.
        StoreError: it cannot be opened.
    """
    with translated(directory):
        descriptor = _locked_descriptor(directory, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _unlock(descriptor)


def _locked_descriptor(directory: Path, operation: int) -> int | None:
    """Return a descriptor that locks the directory of this name; None if there is none."""
    deadline = monotonic() + _HOLD_SECONDS
    while True:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if _try_lock(descriptor, operation):
                if _is(directory, descriptor):
                    return descriptor
                _unlock(descriptor)  # renamed while we waited
                continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if monotonic() >= deadline:
            raise LockedError(f"{directory} is being created, changed or deleted by another process; try again")
        sleep(POLL_SECONDS)


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    """Release a lock and close its descriptor; if only closed, a process forked meanwhile would keep the lock."""
    with suppress(OSError):  # closing releases it too
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    """Whether the path still refers to the open descriptor."""
    try:
        by_path, by_descriptor = path.stat(), os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (by_path.st_dev, by_path.st_ino) == (by_descriptor.st_dev, by_descriptor.st_ino)


# ── atomic creation and removal ──────────────────────────────────────────────────────────────────────────────────────

# Separate names, so that a long dataset name does not exceed the limit for file names.
_LEFTOVER: Final = re.compile(r"\.pointsman-[0-9a-f]{32}\.(new|removed)|\..+\.\d+\.removed")


@contextmanager
def directory_aside(folder: Path) -> Iterator[Path]:
    """Create a new directory that is either renamed within the block or deleted when the block ends.

    It is locked during the block: unlocked ones were left by processes that died.
    """
    while True:
        directory = folder / f".pointsman-{uuid.uuid4().hex}.new"
        directory.mkdir(0o700)
        try:
            directory.chmod(0o700)  # whatever the umask
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # until it is locked, another process may take it for a leftover
            continue
        if _try_lock(descriptor, fcntl.LOCK_SH) and _is(directory, descriptor):  # shared: it is opened in the block
            break
        os.close(descriptor)
    try:
        yield directory
    finally:
        if directory.exists():
            shutil.rmtree(directory, ignore_errors=True)  # collected later if it cannot be removed now
        _unlock(descriptor)


def replace_directory(directory: Path, aside: Path) -> None:
    """Replace a directory by another, if it exists; for a moment there may be none of that name."""
    old_directory = _doomed_directory(directory)
    with suppress(FileNotFoundError):
        directory.rename(old_directory)
    aside.rename(directory)
    shutil.rmtree(old_directory, ignore_errors=True)  # collected later if it cannot be removed now


def _remove_tree(directory: Path) -> None:
    for _ in range(3):
        with suppress(OSError):  # tantivy recreates its lock if open
            shutil.rmtree(directory)
            return
    shutil.rmtree(directory)


def _doomed_directory(directory: Path) -> Path:
    return directory.with_name(f".pointsman-{uuid.uuid4().hex}.removed")


def remove_directory(directory: Path) -> None:
    """Remove a directory durably and atomically.

    The caller holds it exclusively (`steady`). Files that cannot be removed are renamed away and collected later.
    """
    old_directory = _doomed_directory(directory)
    directory.rename(old_directory)
    sync_directory(directory.parent)
    try:
        _remove_tree(old_directory)
    except OSError as error:
        log.warning(
            "%s was deleted, but not all of its files could be removed from %s: %s", directory, old_directory, error
        )


def collect_leftovers(folder: Path) -> int:
    """Remove directories that dead processes left among a folder's datasets; return their number."""
    try:
        leftovers = [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name)]
    except OSError as error:
        log.debug("%s cannot be checked for leftover files (%s)", folder, error)
        return 0
    count = 0
    for path in leftovers:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            log.debug("%s is not collected (%s)", path, error)
            continue
        try:
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is(path, descriptor):
                _remove_tree(path)
                count += 1
        except OSError as error:
            log.info("%s cannot be removed: %s", path, error)
        finally:
            _unlock(descriptor)
    return count


# ── the writer ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ExclusiveLock:
    """An exclusive lock on a separate file in an existing directory; the kernel frees it when its holder dies.

    It belongs to the object, not to a thread; and to the process that acquired it, not to processes forked from that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._process = 0

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Try to acquire the lock; return whether it is held."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # A lock on a file that was removed, or whose directory was, would exclude no one.
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is(self.path, descriptor):
                self._descriptor, self._process, descriptor = descriptor, os.getpid(), -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return self.held

    @property
    def in_place(self) -> bool:
        """Whether it is held, and the path still refers to the locked file."""
        return self._descriptor is not None and _is(self.path, self._descriptor)

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            (_unlock if self._process == os.getpid() else os.close)(descriptor)

    def __del__(self) -> None:
        self.release()  # in case close is never called


class WriterLock:
    """One writer per dataset for all processes of this machine; the kernel frees it when its holder dies.

    Waiting processes queue at a separate lock, so that a process that writes repeatedly lets others in. A reader holds
    it for a moment to bring the indexes up to date, and says so; writers wait for that.
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
        """Whether the lock's path is a directory, which nobody can lock."""
        with translated(self._directory):
            return self._lock.path.is_dir()

    def acquire(self, *, healing: bool = False) -> None:
        """Become the writer at once, or fail; a reader that is healing the indexes is waited for.

        Args:
            healing: whether a reader asks; it waits for nobody.

        Raises:
            LockedError: another process is the writer; the message names it if known.
            FileNotFoundError: there is no such directory.
            StoreError: the directory is not writable.
        """
        if self.held:
            return
        deadline = monotonic() + _HEALING_SECONDS
        with self._errors_translated():
            while not self._lock.acquire():
                if healing or self._note()[1] == "writing" or monotonic() >= deadline:
                    raise self._locked_error()
                sleep(POLL_SECONDS)
        with suppress(OSError):  # on a full disk, messages to others lack the number
            self._holder.write_text(f"{os.getpid()}{' healing' if healing else ''}")

    @property
    def wanted(self) -> bool:
        """Whether a process is waiting in the queue."""
        queue_lock = ExclusiveLock(self._queue)
        try:
            return not queue_lock.acquire()
        except OSError:
            return False  # if the queue's file cannot be created, no one waits
        finally:
            queue_lock.release()

    @contextmanager
    def turn(self, until: float) -> Iterator[None]:
        """Wait in the queue, at most until a time of ``monotonic``; within the block it is our turn to take the lock.

        Raises:
            LockedError: the time is over.
            FileNotFoundError: there is no such directory.
            StoreError: the directory is not writable.
        """
        queue_lock = ExclusiveLock(self._queue)  # a separate one for each waiter, also within a process
        with self._errors_translated():
            while not queue_lock.acquire():
                if monotonic() >= until:
                    raise self._locked_error()
                sleep(POLL_SECONDS)
        try:
            yield
        finally:
            queue_lock.release()

    def release(self) -> None:
        """Release the lock."""
        self.remove_note()
        self._lock.release()

    def remove_note(self) -> None:
        """Remove the note of the lock's holder, before its directory is renamed."""
        if self._lock.in_place:
            with suppress(OSError):  # a wrong note only affects a message
                self._holder.unlink()

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Convert errors of the operating system to ours, but for a directory that is not there."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(self._directory, error) from error

    def _locked_error(self) -> LockedError:
        return LockedError(
            f"{self._directory} is being written to by {self._holder_name()}; wait until that write has ended and try "
            "again, or let Dataset.writing(wait=30) wait for it; reading goes on meanwhile"
        )

    def _holder_name(self) -> str:
        process, _ = self._note()
        if process is None:
            return "another process"  # the message lacks its number
        return (
            "this same process, which opened it twice"
            if process == os.getpid()
            else f"another process (process {process})"
        )

    def _note(self) -> tuple[int | None, str]:
        """Return the number of the holder's process, and what it does; no number if it has just come or gone."""
        try:
            process, *doing = self._holder.read_text().split()
            return int(process), " ".join(doing) or "writing"
        except (OSError, ValueError):
            return None, ""
