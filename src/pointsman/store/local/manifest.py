"""The directory of a dataset: its manifest, and how it is made and deleted as a whole."""

from __future__ import annotations

import errno
import json
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import xxhash

from pointsman.store.local import files_and_locks
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.store.prepared_documents import UNREADABLE
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, StorageFullError, StoreError
from pointsman.tools.system.replaced_files import replacing, sync_directory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


log = logging.getLogger(__name__)

FORMAT = 3
MANIFEST = "manifest.json"
TRUTH = "documents.sqlite"
_COMPLETING_SECONDS = 10.0


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Read the manifest of a dataset's directory; return None if it contains no dataset.

    Raises:
        FormatVersionError: its format is unknown to this version.
        CorruptStoreError: the manifest cannot be read.
    """
    path = directory / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(files_and_locks.read_regular(path))
        version = int(manifest["format"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (*UNREADABLE, KeyError) as error:
        raise CorruptStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error
    except OSError as error:
        raise files_and_locks.store_error(path, error) from error
    if version != FORMAT:
        raise FormatVersionError(
            f"{directory} is in format {version!r}, this version of pointsman knows format {FORMAT}; "
            "open it with the version that wrote it, or index the documents again into a new dataset"
        )
    check = manifest.pop("checksum", None)
    if check != _checksum(manifest):
        raise CorruptStoreError(f"{path} does not match its checksum; {files_and_locks.WAY_BACK}")
    return manifest


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest as a whole."""
    content = {**manifest, "checksum": _checksum(manifest)}
    with replacing(directory / MANIFEST) as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=2).encode())


def _checksum(manifest: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(manifest, sort_keys=True).encode())


def create_collection(directory: Path, entries: Mapping[str, Any] | None = None) -> bool:
    """Create an empty collection atomically, for all processes.

    Args:
        directory: its path; existing content stays unchanged.
        entries: stored in the manifest (name, description and similar).

    Returns:
        Whether it was created here; False if something already has this name.

    Raises:
        StoreError: it cannot be created.
    """
    files_and_locks.make_directory(directory.parent)
    with files_and_locks.translated(directory):
        if _is_occupied(directory):
            return False
        files_and_locks.collect_leftovers(directory.parent)
        with files_and_locks.directory_aside(directory.parent) as temporary:
            truth = WritableTruth(temporary / TRUTH)
            truth.close()
            write_manifest(temporary, {"format": FORMAT, "identity": truth.identity, **(entries or {})})
            try:
                temporary.rename(directory)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:  # another process was first
                    return False
                raise
        sync_names(directory)
    return True


def open_collection(
    directory: Path, entries: Mapping[str, Any], lock: files_and_locks.WriterLock
) -> tuple[WritableTruth, dict[str, Any], object]:
    """Return the documents of a collection, its manifest, and the stamp of that; create it if there is none.

    Args:
        directory: its path.
        entries: stored in the manifest of a new collection.
        lock: of its writer.

    Raises:
        CorruptStoreError: manifest and documents do not belong together.
        StoreError: the path is no directory, or cannot be used.
    """
    while True:
        create_collection(directory, entries)
        with files_and_locks.steady(directory) as exists:
            stamp = files_and_locks.file_stamp(directory / MANIFEST)
            manifest = read_manifest(directory) if exists else None
            if manifest is not None:
                files_and_locks.keep_private(directory)
                truth = WritableTruth(directory / TRUTH, create=False)
                if manifest.get("identity") != truth.identity:
                    truth.close()
                    raise CorruptStoreError(
                        f"{directory}: {MANIFEST} and {TRUTH} belong to different datasets; "
                        "restore both from one backup"
                    )
                return truth, manifest, stamp
        if exists:
            _complete(directory, entries, lock)
        elif directory.exists() and not directory.is_dir():
            raise StoreError(f"{directory} is not a directory; delete it, or name another path")
        # otherwise another process has just deleted it


def _complete(directory: Path, entries: Mapping[str, Any], lock: files_and_locks.WriterLock) -> None:
    """Turn a directory without a manifest into a collection.

    Raises:
        LockedError: another process is doing so, and does not finish.
    """
    try:
        with lock.turn(monotonic() + _COMPLETING_SECONDS):
            lock.acquire()
            if read_manifest(directory) is None:
                log.warning("%s has no %s; rewriting it", directory, MANIFEST)
                truth = WritableTruth(directory / TRUTH)
                truth.close()
                with files_and_locks.translated(directory):
                    write_manifest(directory, {"format": FORMAT, "identity": truth.identity, **entries})
                    sync_names(directory)
    except (FileNotFoundError, NotADirectoryError):
        log.debug("%s was deleted while it was completed", directory)
    finally:
        lock.release()


def _is_occupied(directory: Path) -> bool:
    """Whether something other than an empty directory has this name."""
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def drop_collection(directory: Path) -> bool:
    """Delete whatever has this name: a collection, a damaged one, or anything else.

    Returns:
        Whether anything existed.

    Raises:
        LockedError: another process is writing to it.
        StoreError: the operating system refuses.
    """
    with files_and_locks.translated(directory):
        is_folder = directory.is_dir() and not directory.is_symlink()
    if not is_folder:
        with files_and_locks.translated(directory):
            try:
                directory.unlink()
            except FileNotFoundError:
                return False
            except IsADirectoryError:  # another process has just created it
                return drop_directory(directory, files_and_locks.WriterLock(directory))
            sync_directory(directory.parent)
            return True
    return drop_directory(directory, files_and_locks.WriterLock(directory))


def drop_directory(directory: Path, lock: files_and_locks.WriterLock, identity: str | None = None) -> bool:
    """Delete the collection of this identity, or any, and release the lock; return False if it is gone.

    Raises:
        ReplacedError: it has been replaced by another one.
        LockedError: another process is writing to it.
    """
    try:
        try:
            lock.acquire()
        except StorageFullError:
            log.info("%s has no lock and no room for one; treating it as free", directory)
        except StoreError:
            if not lock.is_noise:
                raise
        with files_and_locks.translated(directory), files_and_locks.steady(directory, alone=True) as exists:
            if not exists:
                return False
            if identity is not None and (read_manifest(directory) or {}).get("identity") != identity:
                raise files_and_locks.replaced_error(directory)
            lock.remove_note()
            files_and_locks.remove_directory(directory)
    except FileNotFoundError:
        return False
    finally:
        lock.release()
    files_and_locks.collect_leftovers(directory.parent)
    return True


def sync_names(directory: Path) -> None:
    """Make the directory entries of a collection, and of the workspace folders that contain it, durable."""
    parent, *folders = directory.absolute().parents
    sync_directory(parent)
    for folder in folders[:2]:
        with suppress(PermissionError):  # we have not created what we may not even read
            sync_directory(folder)
