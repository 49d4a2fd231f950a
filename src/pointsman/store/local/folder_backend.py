"""A workspace in a folder: which datasets are in it, and its records as files."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from filelock import FileLock, Timeout

from pointsman.store.backend import NEW, SURROGATE, Backend, DatasetRecord, Record, bm25_of, check_record, check_version
from pointsman.store.local import files_and_locks
from pointsman.store.local.manifest import TRUTH, drop_collection, read_manifest, write_manifest
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, InputError, LockedError
from pointsman.tools.system.locations import with_home
from pointsman.tools.system.replaced_files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.store.local.local_store import LocalStore

FORMAT: Final = 1

_MANIFEST: Final = "workspace.json"
_DATASETS: Final = "datasets"
_OF_DATASET: Final = "manifest.json"
_REMEMBERED_MANIFESTS: Final = 10_000  # manifests that are read again only when they change
_PATIENCE: Final = 10.0  # seconds; changing a record takes milliseconds


class LocalBackend(Backend):
    """A workspace in a folder, which is created on the first write.

    ``workspace.json`` marks the folder as one. Each dataset has a folder in ``datasets``. A record named ``""`` is the
    file ``<kind>.json``, any other ``<kind>/<name>.json``; only their owner may read them.

    Args:
        path: the folder.

    Raises:
        FormatVersionError: a newer Pointsman wrote it.
        InputError: the path holds something other than a workspace.
    """

    has_views = True
    is_remote = False
    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = with_home(path)
        self._datasets = f"{self.path}/{_DATASETS}"
        self._abouts: dict[str, tuple[object, DatasetRecord | None]] = {}  # with the stamp of the manifest, by name
        self._check()

    @property
    def url(self) -> str:
        """See `Backend`."""
        return str(self.path)

    @contextmanager
    def scratch(self) -> Iterator[LocalBackend]:
        """See `Backend`."""
        with temporary_backend() as backend:
            yield backend

    def make(self) -> None:
        """See `Backend`."""
        if not (self.path / _MANIFEST).exists():
            files_and_locks.make_directory(self.path)
            with files_and_locks.translated(self.path), replacing(self.path / _MANIFEST) as file:
                file.write(json.dumps({"format": FORMAT}).encode())

    def folder(self, name: str) -> Path:
        """Return the folder of a dataset."""
        return self.path / _DATASETS / name

    def datasets(self) -> list[DatasetRecord]:
        """See `Backend`."""
        records = (self.about(name) for name in self.names())
        return [record for record in records if record is not None]

    def create(self, name: str, about: Mapping[str, Any]) -> LocalStore:
        """See `Backend`."""
        from pointsman.store.local.local_store import LocalStore

        self.make()
        settings = {"name": name, "description": "", "indexing_technique": "hybrid", **about}
        return LocalStore(self.folder(name), settings, **bm25_of(settings))

    def open(self, name: str, bm25: Mapping[str, float] | None = None) -> LocalStore | None:
        """See `Backend`."""
        from pointsman.store.local.local_store import LocalStore

        record = self.about(name)
        if record is None:
            return None
        return LocalStore(self.folder(name), {}, **{**bm25_of(record.settings), **(bm25 or {})})

    def describe(self, name: str, description: str) -> None:
        """See `Backend`."""
        if self.about(name) is None:
            raise self.unknown_dataset(name)
        folder = self.folder(name)
        with files_and_locks.translated(folder), files_and_locks.steady(folder, alone=True) as exists:
            manifest = read_manifest(folder) if exists else None  # one that came meanwhile may go again: it is not held
            if manifest is None:  # another process has just deleted it
                raise self.unknown_dataset(name)
            write_manifest(folder, {**manifest, "description": description})

    def drop(self, name: str) -> None:
        """See `Backend`; deletes everything under the name, even a damaged dataset."""
        if not drop_collection(self.folder(name)):
            raise self.unknown_dataset(name)

    def bytes_by_part(self, name: str) -> dict[str, int]:
        """See `Backend`."""
        return bytes_by_part(self.folder(name))

    def record(self, kind: str, name: str = "") -> Record | None:
        """See `Backend`."""
        return self._read(self._file(kind, name))

    def records(self, kind: str) -> dict[str, Record]:
        """See `Backend`."""
        paths = (self.path / kind / name for name in _list_folder(self.path / kind))
        files = [self._file(kind, ""), *(path for path in paths if path.suffix == ".json")]
        records = ((unquote(path.stem) if path.parent != self.path else "", self._read(path)) for path in files)
        return {name: record for name, record in records if record is not None}

    def latest_records(self, kind: str, limit: int) -> list[tuple[str, Callable[[], str]]]:
        """See `Backend`; only those are read that are asked for."""
        files = (path for path in (self.path / kind).glob("*.json") if path.is_file())  # a pipe never ends
        return [(str(path), partial(path.read_text, "utf-8")) for path in sorted(files, reverse=True)[:limit]]

    def put_record(self, kind: str, name: str, value: str | None, expected_version: str | None = None) -> str:
        """See `Backend`."""
        check_record(kind, name, value)
        path = self._file(kind, name)
        self.make()
        files_and_locks.make_directory(path.parent)
        with changing(self.path / kind):  # one lock file for all records of a kind
            check_version(self._read(path), expected_version, f"{kind} {name}".strip())
            if value is None:
                files_and_locks.remove_file(path)
                return NEW
            with replacing(path) as file:
                Path(file.name).chmod(0o600)  # before anything is written
                file.write(value.encode())
            return _version(value.encode())

    def _file(self, kind: str, name: str) -> Path:
        check_record(kind, name)
        return self.path / kind / f"{quote(name, safe=' ')}.json" if name else self.path / f"{kind}.json"

    def _read(self, path: Path) -> Record | None:
        try:
            data = files_and_locks.read_regular(path)
            return Record(data.decode(), _version(data))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise files_and_locks.store_error(path, error) from error
        except UnicodeDecodeError as error:
            raise CorruptStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error

    def names(self) -> list[str]:
        """See `Backend`."""
        return [
            name
            for name in _list_folder(self._datasets)
            if not name.startswith(".") and _holds_dataset(f"{self._datasets}/{name}")
        ]

    def about(self, name: str) -> DatasetRecord | None:
        """See `Backend`."""
        if name.startswith("."):  # a dataset that is being deleted
            return None
        manifest = f"{self._datasets}/{name}/{_OF_DATASET}"
        stamp = files_and_locks.file_stamp(manifest)
        if stamp == "absent":
            if _has_documents(f"{self._datasets}/{name}") and not _exists(manifest):  # not just created
                raise CorruptStoreError(f"{manifest} is missing; {files_and_locks.WAY_BACK}")
            return None
        cached_stamp, record = self._abouts.get(name, (None, None))
        if stamp != cached_stamp:
            record = self._read_about(name)
            if len(self._abouts) >= _REMEMBERED_MANIFESTS:
                self._abouts.clear()
            self._abouts[name] = stamp, record
        return record

    def _read_about(self, name: str) -> DatasetRecord | None:
        manifest = read_manifest(self.folder(name))
        if manifest is None:
            return None
        settings = {
            key: value
            for key, value in manifest.items()
            if key not in {"format", "identity", "name", "description", "indexing_technique"}
        }
        technique = manifest.get("indexing_technique", "hybrid")
        return DatasetRecord(name, manifest.get("description", ""), technique, manifest.get("identity", ""), settings)

    def _is_foreign(self) -> bool:
        try:
            names = {entry.name for entry in self.path.iterdir()}
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return True
        # Another process may be making the workspace, or was killed doing it: the manifest has a temporary name then.
        return bool(names) and not any(name == _DATASETS or name.startswith(_MANIFEST) for name in names)

    def _check(self) -> None:
        if SURROGATE.search(str(self.path)):
            raise InputError(f"the path {str(self.path)!r} is not UTF-8, which the index needs; name another path")
        manifest = self.path / _MANIFEST
        with files_and_locks.translated(self.path):
            if not manifest.exists():
                if self._is_foreign():
                    raise InputError(f"{self.path} is not a workspace and not an empty folder; name another path")
                return
        try:
            with files_and_locks.translated(manifest):
                version = json.loads(files_and_locks.read_regular(manifest))["format"]
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise CorruptStoreError(
                f"{manifest} cannot be read ({error}); restore it from a backup, or delete it: it only "
                f"records that this is a workspace of format {FORMAT}"
            ) from error
        if version != FORMAT:
            raise FormatVersionError(
                f"{manifest}: the workspace is in format {version!r}, this version of pointsman knows format {FORMAT}; "
                "open it with the version that wrote it"
            )


def holds_workspace(folder: str | os.PathLike[str]) -> bool:
    """Whether there is a workspace in a folder."""
    return (Path(folder) / _DATASETS).is_dir()


def no_workspace(folder: str | os.PathLike[str]) -> str:
    """Return the beginning of a message that there is no workspace, with the nearest name of one beside it."""
    folder = Path(folder)
    with suppress(OSError):
        other_names = [path.name for path in folder.parent.iterdir() if path != folder and holds_workspace(path)]
        for name in get_close_matches(folder.name, other_names, 1, 0.6):
            return f"there is no workspace at '{folder}'; did you mean '{folder.with_name(name)}'? Name that, another,"
    return f"there is no workspace at '{folder}'; name another,"


def _list_folder(folder: str | Path) -> list[str]:
    """Return the names in a folder, sorted; none if it is missing. ``glob`` would hide that a folder is unreadable.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (called by every search)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise files_and_locks.store_error(Path(folder), error) from error


def _holds_dataset(folder: str) -> bool:
    """Whether a folder holds a dataset; an unreadable one counts as a dataset, and so does one without its manifest."""
    try:
        return _exists(f"{folder}/{_OF_DATASET}") or _has_documents(folder)
    except PermissionError:
        return True


def _has_documents(folder: str | Path) -> bool:
    return _exists(f"{folder}/documents.sqlite")


def _exists(path: str) -> bool:
    """Whether there is such a file; unlike `os.path.exists`, raises PermissionError if that cannot be seen."""
    try:
        os.stat(path)  # noqa: PTH116  (called by every search)
    except PermissionError:
        raise
    except OSError:  # missing, or a link to itself
        return False
    return True


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock a file against changes by others within the block, using the lock file beside it."""
    try:
        with FileLock(path.with_suffix(".lock"), timeout=_PATIENCE, mode=0o600):
            yield
    except Timeout as error:
        raise LockedError(f"{path} is being changed by another process; try again") from error
    except OSError as error:
        raise files_and_locks.store_error(path, error) from error


@contextmanager
def temporary_backend() -> Iterator[LocalBackend]:
    """Yield a workspace in a temporary folder, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="pointsman-scratch-", ignore_cleanup_errors=True) as folder:
        yield LocalBackend(Path(folder) / "work")


def _version(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


_PART_OF_FILE: Final = {
    TRUTH: "documents",
    f"{TRUTH}-wal": "documents",
    f"{TRUTH}-shm": "documents",
    "keyword": "keyword_index",
    "vectors.bin": "vector_index",
    "vectors.codes": "vector_index",
    "columns.bin": "columns",
    "words.bin": "words",
}
_OTHER: Final = "other"
PARTS: Final = (*dict.fromkeys(_PART_OF_FILE.values()), _OTHER)
"""What `bytes_by_part` tells apart: the truth, what is derived from it, and all else, such as locks."""


def bytes_by_part(folder: Path) -> dict[str, int]:
    """Return the bytes of each of `PARTS` of a dataset; files that another process deletes meanwhile count nothing."""
    sizes = dict.fromkeys(PARTS, 0)
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            sizes[_PART_OF_FILE.get(path.relative_to(folder).parts[0], _OTHER)] += _size(path)
    return sizes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # an index file that was just replaced
        return 0
