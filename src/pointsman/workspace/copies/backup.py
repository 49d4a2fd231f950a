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
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.store.local.files_and_locks import (
    collect_leftovers,
    directory_aside,
    make_directory,
    open_regular,
    store_error,
    translated,
)
from pointsman.tools.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    ReplacedError,
    StoreError,
    UnknownNameError,
)
from pointsman.tools.json_forms import form_of, of_form
from pointsman.tools.system.locations import with_home
from pointsman.tools.system.replaced_files import replacing, sync_directory
from pointsman.tools.system.sqlite_errors import SQLITE_ERRORS
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
_DEEPEST: Final = 8
_LARGEST_MANIFEST: Final = 256_000_000  # bytes, enough for more than a million files
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds that was made or restored.

    Attributes:
        folder: where the backup, or the restored workspace, is.
        time: when the backup began; it contains everything acknowledged before.
        datasets: number of documents by dataset.
        files: number of files.
        bytes: total size of all files.
        skipped: datasets that were deleted while the backup ran.
        verified: whether a restore compared documents and indexes.
    """

    folder: Path
    time: datetime
    datasets: Mapping[str, int]
    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    verified: bool = False


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of ``backup.json``, besides its format and checksum."""

    pointsman: str
    time: str
    datasets: Mapping[str, int]
    files: tuple[_File, ...]

    def report(self, folder: Path, **outcome: Any) -> BackupReport:
        """Return a report about a folder with these files."""
        size = sum(file.size for file in self.files)
        return BackupReport(folder, datetime.fromisoformat(self.time), self.datasets, len(self.files), size, **outcome)


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
    folder, start_time = with_home(folder), datetime.now(UTC).isoformat()
    if folder.resolve().is_relative_to(workspace.path.resolve()):
        raise InputError(f"{folder} is inside the workspace {workspace.path}; name a folder outside")
    report = on_progress or (lambda _count, _total, _note: None)
    with _new_directory(folder, 0o700) as partial, _errors_told(partial):
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
            with source.open("rb") as file:
                _copy(file, partial / path, stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        paths = sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file())
        files = tuple(_describe_file(partial, path) for path in paths)
        contents = _Contents(__version__, start_time, datasets, files)
        _write_contents(partial, contents)
        report(len(names), len(names), "")
    return contents.report(folder, skipped=tuple(skipped))


def restore(
    backup: str | Path, folder: str | Path, *, verify: bool = True, on_progress: Progress | None = None
) -> BackupReport:
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
    """
    source, folder = with_home(backup), with_home(folder)
    contents = _read_contents(source)
    report = on_progress or (lambda _count, _total, _note: None)
    steps = len(contents.files) + (len(contents.datasets) if verify else 0)
    with _new_directory(folder) as partial, _errors_told(source):
        for number, file in enumerate(contents.files):
            report(number, steps, file.path)
            _copy_checked(source, file, partial)
        (partial / "datasets").mkdir(exist_ok=True)
        if verify:
            _verify(partial, contents, lambda count, name: report(len(contents.files) + count, steps, name))
        for path in _folders(partial):
            sync_directory(path)
        report(steps, steps, "")
    return contents.report(folder, verified=verify)


# ── temporary folders ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _new_directory(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder, renamed to the requested one if the block succeeds, else removed.

    Args:
        folder: the requested folder.
        mode: its permissions, before the process's umask.

    Raises:
        InputError: the folder is not empty.
    """
    folder = folder.absolute()
    _check_empty(folder)
    make_directory(folder.parent)
    collect_leftovers(folder.parent)
    try:
        with directory_aside(folder.parent) as aside:
            partial = aside / folder.name
            partial.mkdir(mode)
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


def _copy(source: IO[bytes], target: Path, mode: int) -> None:
    """Copy an open file; of one that is replaced meanwhile, the copy is the old one."""
    make_directory(target.parent)
    with target.open("xb") as file:
        target.chmod(mode)
        shutil.copyfileobj(source, file, _BLOCK)


def _folders(root: Path) -> Iterator[Path]:
    yield from (path for path in root.rglob("*") if path.is_dir())
    yield root


def _describe_file(root: Path, path: str) -> _File:
    """Flush a file to disk and return its size and checksum."""
    with (root / path).open("rb") as file:
        os.fsync(file.fileno())
        return _File(path, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _write_contents(root: Path, contents: _Contents) -> None:
    for path in _folders(root):
        sync_directory(path)
    value = {"format": FORMAT, **form_of(contents)}
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
    value = _read_manifest(path)
    try:
        if value["checksum"] != _checksum(value):
            raise CorruptStoreError(f"{path} is damaged: its checksum is wrong; use another backup")
        for entry in value["files"]:
            if not isinstance(entry["path"], str) or not _is_allowed(entry["path"]):
                raise InputError(
                    f"the backup lists {entry['path']!r:.100}, which is not a workspace file; it is not restored"
                )
        contents = of_form(_Contents, value)
        contents.report(source)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptStoreError(
            f"{path} is damaged, or not of a backup ({type(error).__name__}); use another backup"
        ) from error
    _check_complete(source, contents)
    return contents


def _read_manifest(path: Path) -> dict[str, Any]:
    """Return ``backup.json`` if it is of the format that is known here."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_MANIFEST)
    except OSError as error:
        raise InputError(
            f"{path.parent} is not a backup: {MANIFEST} cannot be read ({error.strerror}); "
            "name a folder that 'pointsman backup' has finished"
        ) from error
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{path} is damaged: it is not JSON; use another backup") from error
    if not isinstance(value, dict) or "format" not in value:
        raise CorruptStoreError(f"{path} is damaged, or not of a backup; use another backup")
    if value["format"] != FORMAT:
        raise FormatVersionError(
            f"{path.parent} is a backup in format {value['format']!r:.40}, this version of pointsman knows format "
            f"{FORMAT}; restore it with the version that wrote it"
        )
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
    """Check that files and datasets match, that no file is listed twice, and that numbers are some."""
    paths = [file.path for file in contents.files]
    if len(set(paths)) < len(paths):
        raise InputError(f"{source} lists a file twice; it is not restored")
    names = {PurePosixPath(path).parts[1] for path in paths if path.startswith("datasets/")}
    required_paths = {f"datasets/{name}/{kind}" for name in contents.datasets for kind in _OF_DATASET}
    numbers = [*contents.datasets.values(), *(file.size for file in contents.files)]
    are_numbers = all(type(number) is int and number >= 0 for number in numbers)  # True is none
    if names != set(contents.datasets) or not required_paths <= set(paths) or not are_numbers:
        raise CorruptStoreError(f"{source / MANIFEST} lists datasets that do not match its files; use another backup")


def _copy_checked(source: Path, file: _File, target: Path) -> None:
    """Copy one file and compare the copy with its checksum."""
    origin = source / file.path
    try:
        if origin.resolve(strict=True) != source.resolve(strict=True) / file.path:
            raise InputError(f"{origin} is a symbolic link or inside one; it is not restored")
        reader = open_regular(origin)
    except FileNotFoundError as error:
        raise CorruptStoreError(f"{origin} is missing; use another backup") from error
    except OSError as error:
        raise CorruptStoreError(f"{origin} is damaged: {error.strerror}; use another backup") from error
    with reader:
        status = os.fstat(reader.fileno())
        mode = 0o600 if file.path in _SECRET else stat.S_IMODE(status.st_mode) & 0o666 | 0o600
        if status.st_size == file.size:
            _copy(reader, target / file.path, mode)
    if status.st_size != file.size or _describe_file(target, file.path) != file:
        raise CorruptStoreError(f"{origin} is damaged: its checksum is wrong; use another backup")


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
