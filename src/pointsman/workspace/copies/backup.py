"""Backs up a whole workspace while it is searched and written to, verifies backups and restores them.

A backup is a folder that holds every dataset's documents with their vectors (by SQLite's online backup, one consistent
moment of each), the fitted policy, the keys' hashes, whether access is on and whose tokens are trusted, saved
evaluations, where attached collections are, and ``backup.json`` with the size and SHA-256 of each file. Indexes are not
part of it; they are derived from the documents when it is restored. Attached collections themselves are not part of it
either.

Both directions write to a temporary folder and rename it at the end, so the requested folder is complete or absent.
What a killed process leaves has no ``backup.json`` and cannot be restored. A backup is untrusted until it is checked:
only file names that a workspace can have are copied, and only regular files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.store.local.files_and_locks import (
    ExclusiveLock,
    make_directory,
    replacing,
    store_error,
    sync_directory,
    translated,
)
from pointsman.tools.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    LockedError,
    ReplacedError,
    StoreError,
    UnknownNameError,
)
from pointsman.tools.sqlite import SQLITE_ERRORS
from pointsman.tools.system.locations import with_home
from pointsman.tools.version import __version__
from pointsman.workspace.dataset import check_name

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace

log = logging.getLogger(__name__)

FORMAT: Final = 1
MANIFEST: Final = "backup.json"

Progress = Callable[[int, int, str], None]
"""Called with the amount done, the total, and what comes next."""

_SECRET: Final = ("keys.json", "audit.json")
_SINGLE: Final = ("workspace.json", "policy.json", "calibration.json", "access.json", "tokens.json", *_SECRET)
_FOLDERS: Final = ("evaluations", "attached", "former_calibrations")
_OF_DATASET: Final = ("documents.sqlite", "manifest.json")
_PATH_SEGMENT: Final = re.compile(r"(?!\.)[\w.\-+ %]{1,255}", re.UNICODE)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DEEPEST: Final = 8
_LARGEST_MANIFEST: Final = 256_000_000  # bytes, enough for more than a million files
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup.

    Attributes:
        folder: where the backup is.
        time: when it began; it contains everything acknowledged before.
        datasets: number of documents by dataset.
        files: number of files.
        bytes: total size of all files.
        skipped: datasets that were deleted while the backup ran.
    """

    folder: Path
    time: datetime
    datasets: Mapping[str, int]
    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The result of a restore.

    Attributes:
        folder: the workspace.
        time: when the backup began.
        datasets: number of documents by dataset.
        files: number of files.
        bytes: total size of all files.
        verified: whether documents and indexes were compared.
    """

    folder: Path
    time: datetime
    datasets: Mapping[str, int]
    files: int
    bytes: int
    verified: bool


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of ``backup.json``."""

    time: datetime
    files: tuple[_File, ...]
    datasets: Mapping[str, int]


def backup(
    workspace: Workspace | str | Path, folder: str | Path, *, on_progress: Progress | None = None
) -> BackupReport:
    """Copy a workspace into a new folder, even while others search it and write to it.

    Each dataset is copied as of one moment after the call began; the moments of different datasets differ.

    Args:
        workspace: the workspace, or its folder.
        folder: the target, created if it does not exist; else it must be empty.
        on_progress: called before each dataset and at the end.

    Raises:
        InputError: there is no workspace, or the folder is not empty.
        LockedError: another backup into this folder is running.
        StoreError: something cannot be read or written.
    """
    from pointsman.workspace.workspace_search import Workspace

    if not isinstance(workspace, Workspace):
        root = Path(workspace)
        with translated(root):
            if not (root / "workspace.json").is_file() and not (root / "datasets").is_dir():
                raise InputError(f"there is no workspace at {str(root)!r}; name the folder of one")
            opened_workspace = Workspace(root)
        with opened_workspace:
            return backup(opened_workspace, folder, on_progress=on_progress)
    folder, start_time = with_home(folder), datetime.now(UTC)
    if folder.resolve().is_relative_to(workspace.path.resolve()):
        raise InputError(f"{folder} is inside the workspace {workspace.path}; name a folder outside")
    report = on_progress or (lambda _count, _total, _note: None)
    with _directory_beside(folder, 0o700) as partial, _errors_told(partial):
        datasets: dict[str, int] = {}
        skipped: list[str] = []
        names = workspace.own_names()
        for number, name in enumerate(names):
            report(number, len(names), name)
            count = _copy_dataset(workspace, name, partial / "datasets" / name)
            if count is None:
                skipped.append(name)
            else:
                datasets[name] = count
        for source, path in _other_files(workspace.path):
            _copy(source, partial / path)
        files = [_describe_file(partial, path) for path in sorted(_files(partial))]
        _write_contents(partial, _Contents(start_time, tuple(files), datasets))
        report(len(names), len(names), "")
    return BackupReport(folder, start_time, datasets, len(files), sum(file.size for file in files), tuple(skipped))


def restore(
    backup: str | Path, folder: str | Path, *, verify: bool = True, on_progress: Progress | None = None
) -> RestoreReport:
    """Restore a workspace from a backup.

    Args:
        backup: a folder written by `backup`.
        folder: the target, created if it does not exist; else it must be empty.
        verify: open every dataset, build its indexes and compare them with the documents; if False, indexes are built
            on first use. Checksums are always compared.
        on_progress: called before each file, then before each dataset, and at the end.

    Raises:
        InputError: there is no backup, it has file names that no workspace has, or the folder is not empty.
        CorruptStoreError: the backup is damaged; the message names the file.
        FormatVersionError: a newer Pointsman wrote it.
        LockedError: another restore into this folder is running.
    """
    source, folder = with_home(backup), with_home(folder)
    contents = _read_contents(source)
    report = on_progress or (lambda _count, _total, _note: None)
    steps = len(contents.files) + (len(contents.datasets) if verify else 0)
    with _directory_beside(folder) as partial, _errors_told(source):
        for number, file in enumerate(contents.files):
            report(number, steps, file.path)
            _copy_checked(source, file, partial)
        (partial / "datasets").mkdir(exist_ok=True)
        if verify:
            _verify(partial, contents, lambda count, name: report(len(contents.files) + count, steps, name))
        for path in _folders(partial):
            sync_directory(path)
        report(steps, steps, "")
    size = sum(file.size for file in contents.files)
    return RestoreReport(folder, contents.time, contents.datasets, len(contents.files), size, verify)


# ── temporary folders ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _directory_beside(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder, renamed to the requested one if the block succeeds, else removed.

    Args:
        folder: the requested folder.
        mode: its permissions, before the process's umask.

    Raises:
        InputError: the folder is not empty.
        LockedError: another process is writing a folder of this name.
    """
    folder = folder.absolute()
    _check_empty(folder)
    make_directory(folder.parent)
    lock = ExclusiveLock(folder.with_name(f".{folder.name}.lock"))
    with translated(folder):
        if not lock.acquire():
            raise LockedError(f"another process is writing {folder}; wait for it, or name another folder")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        if partial.exists():
            log.info("%s was left by an interrupted process; removing it", partial)
            shutil.rmtree(partial)
        partial.mkdir(mode=mode)
        yield partial
        sync_directory(partial)
        _check_empty(folder)
        partial.rename(folder)  # replaces an empty folder at once: others never see that there is none
        sync_directory(folder.parent)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:  # somebody started to use it in the meantime
            raise _not_empty(folder) from error
        path = Path(error.filename or folder)
        raise store_error(path, error, "removing the incomplete copy") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):  # it may stay: only the lock on it counts
            lock.path.unlink()
        lock.release()


def _check_empty(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise _not_empty(folder)


def _not_empty(folder: Path) -> InputError:
    return InputError(f"{folder} is not a new or empty folder; name another one")


@contextmanager
def _errors_told(path: Path) -> Iterator[None]:
    try:
        yield
    except SQLITE_ERRORS as error:
        raise StoreError(f"{path}: {error}") from error


# ── backing up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _copy_dataset(workspace: Workspace, name: str, target: Path) -> int | None:
    """Copy a dataset and count its documents; None if it was deleted in the meantime."""
    try:
        try:
            workspace.dataset(name, create=False).save(target)
        except ReplacedError:
            shutil.rmtree(target, ignore_errors=True)
            workspace.dataset(name, create=False).save(target)  # the recreated dataset
    except (UnknownNameError, StoreError) as error:
        if name in workspace.own_names():
            raise
        log.info("dataset %r was deleted during the backup (%s) and is not included", name, error)
        shutil.rmtree(target, ignore_errors=True)
        return None
    return _count(target / "documents.sqlite")


def _count(path: Path) -> int:
    """Count the documents of a copy without writing next to it."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])


def _other_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a workspace that do not belong to a dataset."""
    for name in _SINGLE:
        if (root / name).is_file():
            yield root / name, name
    for folder in _FOLDERS:
        for path in _files_below(root / folder):
            relative = path.relative_to(root).as_posix()
            if not stat.S_ISREG(path.lstat().st_mode):
                if not path.is_dir():
                    log.warning("%s is not a regular file and is not backed up", path)
            elif _is_allowed(relative):
                yield path, relative
            elif not path.name.startswith("."):
                log.warning("%s is not a workspace file and is not backed up", path)


def _files_below(folder: Path) -> list[Path]:
    """Everything in a folder, sorted; ``rglob`` would pass over what must not be read."""

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    return sorted(
        Path(directory, name) for directory, *names in os.walk(folder, onerror=fail) for name in chain(*names)
    )


def _copy(source: Path, target: Path) -> None:
    """Copy one file with its permissions; of a file replaced meanwhile, the copy is the old or the new one."""
    make_directory(target.parent)
    with source.open("rb") as reader, target.open("xb") as write:
        target.chmod(stat.S_IMODE(os.fstat(reader.fileno()).st_mode))
        shutil.copyfileobj(reader, write, _BLOCK)


def _files(root: Path) -> Iterator[str]:
    return (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def _folders(root: Path) -> Iterator[Path]:
    yield from (path for path in root.rglob("*") if path.is_dir())
    yield root


def _describe_file(root: Path, path: str) -> _File:
    """Flush a file to disk and return its size and checksum."""
    digest, size = hashlib.sha256(), 0
    with (root / path).open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
        os.fsync(file.fileno())
    return _File(path, size, digest.hexdigest())


def _write_contents(root: Path, contents: _Contents) -> None:
    for path in _folders(root):
        sync_directory(path)
    value = {
        "format": FORMAT,
        "pointsman": __version__,
        "time": contents.time.isoformat(),
        "datasets": dict(contents.datasets),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in contents.files],
    }
    value["checksum"] = _checksum(value)
    with replacing(root / MANIFEST) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1).encode())


def _checksum(value: Mapping[str, Any]) -> str:
    """Checksum of ``backup.json``, so that damage to it is not mistaken for damage to the files."""
    content = {name: field for name, field in value.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


# ── restoring ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_contents(source: Path) -> _Contents:
    """Read the contents of a backup and check every name."""
    path = source / MANIFEST
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_MANIFEST + 1)
    except OSError as error:
        raise InputError(
            f"{source} is not a backup: {MANIFEST} cannot be read ({error.strerror}); "
            "name a folder that 'pointsman backup' has finished"
        ) from error
    try:
        value = json.loads(raw[:_LARGEST_MANIFEST])
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{path} is damaged: it is not JSON; use another backup") from error
    if not isinstance(value, dict) or "format" not in value:
        raise CorruptStoreError(f"{path} is damaged, or not of a backup; use another backup")
    if value["format"] != FORMAT:
        raise FormatVersionError(
            f"{source} is a backup in format {value['format']!r:.40}, this version of pointsman knows format {FORMAT}; "
            "restore it with the version that wrote it"
        )
    try:
        if value["checksum"] != _checksum(value):
            raise CorruptStoreError(f"{path} is damaged: its checksum is wrong; use another backup")
        contents = _Contents(
            datetime.fromisoformat(value["time"]),
            tuple(_file_of(entry) for entry in value["files"]),
            {_dataset_name(name): _number(count) for name, count in value["datasets"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise CorruptStoreError(
            f"{path} is damaged, or not of a backup ({type(error).__name__}); use another backup"
        ) from error
    _check_complete(source, contents)
    return contents


def _file_of(value: Mapping[str, Any]) -> _File:
    path, digest = value["path"], value["sha256"]
    if not isinstance(path, str) or not _is_allowed(path):
        raise InputError(f"the backup lists {path!r:.100}, which is not a workspace file; it is not restored")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise ValueError("sha256")
    return _File(path, _number(value["size"]), digest)


def _dataset_name(name: str) -> str:
    return check_name(name)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number")
    return value


def _is_allowed(path: str) -> bool:
    """Whether a workspace file may have this path; such a path cannot leave the folder."""
    steps = path.split("/")
    if path in _SINGLE:
        return True
    if steps[0] == "datasets" and len(steps) == 3 and steps[2] in _OF_DATASET:
        try:
            check_name(steps[1])
        except InputError:
            return False
        return True
    return steps[0] in _FOLDERS and 1 < len(steps) <= _DEEPEST and all(map(_PATH_SEGMENT.fullmatch, steps[1:]))


def _check_complete(source: Path, contents: _Contents) -> None:
    """Check that files and datasets match and that no file is listed twice."""
    paths = [file.path for file in contents.files]
    if len(set(paths)) < len(paths):
        raise InputError(f"{source} lists a file twice; it is not restored")
    names = {PurePosixPath(path).parts[1] for path in paths if path.startswith("datasets/")}
    required_paths = {f"datasets/{name}/{kind}" for name in contents.datasets for kind in _OF_DATASET}
    if names != set(contents.datasets) or not required_paths <= set(paths):
        raise CorruptStoreError(f"{source / MANIFEST} lists datasets that do not match its files; use another backup")


def _copy_checked(source: Path, file: _File, target: Path) -> None:
    """Copy one file and compare the copy with its checksum."""
    origin, copy = source / file.path, target / file.path
    complaint = f"{origin} is damaged"
    try:
        if origin.resolve(strict=True) != source.resolve(strict=True) / file.path:
            raise InputError(f"{origin} is a symbolic link or inside one; it is not restored")
        if not stat.S_ISREG(origin.stat().st_mode):
            raise CorruptStoreError(f"{complaint}: it is not a regular file; use another backup")
        reader = origin.open("rb")
    except FileNotFoundError as error:
        raise CorruptStoreError(f"{origin} is missing; use another backup") from error
    make_directory(copy.parent)
    digest, size = hashlib.sha256(), 0
    with reader, copy.open("xb") as write:
        own_mode = stat.S_IMODE(os.fstat(reader.fileno()).st_mode) & 0o666 | 0o600
        mode = 0o600 if file.path in _SECRET else own_mode
        copy.chmod(mode)
        while (block := reader.read(_BLOCK)) and size <= file.size:
            digest.update(block)
            size += len(block)
            write.write(block)
        write.flush()
        os.fsync(write.fileno())
    if size != file.size or digest.hexdigest() != file.sha256:
        raise CorruptStoreError(f"{complaint}: its checksum is wrong; use another backup")


def _verify(folder: Path, contents: _Contents, report: Callable[[int, str], None]) -> None:
    """Open every dataset, which builds its indexes, and compare them with the documents.

    Raises:
        CorruptStoreError: they differ.
    """
    from pointsman.workspace.workspace_search import Workspace

    with Workspace(folder) as workspace:
        for number, (name, documents) in enumerate(contents.datasets.items()):
            report(number, name)
            dataset = workspace.dataset(name, create=False)
            try:
                verification = dataset.verify()
            except CorruptStoreError as error:
                raise CorruptStoreError(
                    f"dataset {name!r} of the backup is damaged: {error}; use another backup"
                ) from error
            finally:
                dataset.release()
            problems = list(verification.problems)
            if verification.documents != documents:
                problems.append(f"{verification.documents} documents instead of {documents}")
            if problems:
                raise CorruptStoreError(
                    f"dataset {name!r} of the backup is damaged: {'; '.join(problems[:5])}; use another backup"
                )
