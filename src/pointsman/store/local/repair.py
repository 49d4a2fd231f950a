"""Recovery of the intact parts of a damaged dataset, recognised by the checksum of every row, vector and note."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.store.local.collection import Collection
from pointsman.store.local.files_and_locks import WriterLock, directory_aside, read_regular, steady, translated
from pointsman.store.local.manifest import FORMAT, MANIFEST, TRUTH, read_manifest, write_manifest
from pointsman.store.local.truth.local_history import KEPT_DAYS, UNNOTED
from pointsman.store.local.truth.sealed_rows import ROW, document_in, vectors_in
from pointsman.store.local.truth.truth_file import schema_rows, value_of
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.store.prepared_documents import Prepared
from pointsman.store.store_values import Repair
from pointsman.tools.batching import batched
from pointsman.tools.errors import CorruptStoreError, UnknownNameError
from pointsman.tools.sqlite import SQLITE_ERRORS
from pointsman.tools.system.replaced_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

_PAGE: Final = 2000
_HEAD: Final = 8192  # bytes of SQLite's first page in our files: the header and the list of tables
_BATCH_ROWS: Final = 1000


@dataclass(slots=True)
class _Salvage:
    keys: int = 0
    without_vector: int = 0
    last: int = 0
    deleted: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of keys with neither a document nor a tombstone; keys are assigned consecutively."""
        return max(0, self.last - self.keys - self.deleted)


def repair_collection(directory: Path) -> Repair:
    """Repair a dataset by keeping its intact parts.

    Raises:
        UnknownNameError: there is no such dataset.
        CorruptStoreError: the file with the documents is missing.
        LockedError: another process is writing to it.
        StoreError: it cannot be read or written.
    """
    with translated(directory):
        if not directory.exists():
            raise UnknownNameError("dataset", directory.name)
        if not (directory / TRUTH).exists():
            raise CorruptStoreError(
                f"{directory / TRUTH} is missing, and nothing can be recovered without it; restore it from a backup, "
                "or delete the dataset and index it again"
            )
    losses = () if (directory / MANIFEST).exists() else (f"{MANIFEST} was missing; describe the dataset again",)
    problems = _problems(directory)
    if not problems:
        with closing(Collection(directory)) as collection:
            return Repair(len(collection.truth), 0, 0, losses, None)
    lock = WriterLock(directory)
    lock.acquire()
    try:
        with translated(directory), steady(directory, alone=True):
            salvage, damaged_directory = _replace(directory)
    finally:
        lock.release()
    with closing(Collection(directory)) as collection:
        collection.rebuild()
        return Repair(
            len(collection.truth),
            salvage.lost,
            salvage.without_vector,
            (*losses, *problems, *salvage.complaints),
            damaged_directory,
        )


def _problems(directory: Path) -> list[str]:
    """Return the problems of the documents or the manifest; damaged indexes are rebuilt along the way."""
    try:
        with closing(Collection(directory, about={"name": directory.name})) as collection:
            problems = list(collection.verify().problems)
            if not problems or collection.truth.check():
                return problems
            collection.rebuild()
            return list(collection.verify().problems)
    except CorruptStoreError as error:
        return [str(error)]


def _replace(directory: Path) -> tuple[_Salvage, Path]:
    """Replace the damaged directory by a new one with its intact parts; keep the damaged one beside it."""
    with directory_aside(directory.parent) as folder:
        truth = WritableTruth(folder / TRUTH)
        try:
            salvage = _save(directory / TRUTH, truth, folder / "damaged")
        finally:
            truth.close()
        shutil.rmtree(folder / "damaged")
        write_manifest(folder, {**_manifest(directory), "format": FORMAT, "identity": truth.identity})
        backup = directory.with_name(f".{directory.name}.damaged-{time.time_ns()}")
        directory.rename(backup)
        folder.rename(directory)
        sync_directory(directory.parent)
    return salvage, backup


def _manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest if it can be read, else one made of what can be recovered."""
    with suppress(CorruptStoreError):
        return read_manifest(directory) or {}
    try:
        content = json.loads(read_regular(directory / MANIFEST))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        content = {}
    manifest = {"description": str(content.get("description", "")), "indexing_technique": "hybrid"}
    if content.get("indexing_technique") in {"vector", "keyword"}:
        manifest["indexing_technique"] = content["indexing_technique"]
    return {**manifest, "name": directory.name}


def _save(path: Path, truth: WritableTruth, work: Path) -> _Salvage:
    """Write the intact contents of a damaged file into a new one."""
    work.mkdir()
    copy = work / TRUTH
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    with closing(_open_copy(copy, work)) as connection:
        notes = _notes(connection)
        dimensions = int(notes["dimensions"]) if {"embedder", "dimensions"} <= notes.keys() else 0
        salvage = _Salvage(last=_last(connection), deleted=_deleted(connection))
        rows = _sound_rows(connection, salvage, 4 * dimensions)
        for batch in batched(rows, _BATCH_ROWS):
            # A row whose entry in the index of ids is damaged may exist twice; the later row is the newer one.
            latest = {item.document.id: (item, vector) for item, vector in batch}
            with_vector = [(item, vector) for item, vector in latest.values() if vector is not None]
            items_without_vector = [item for item, vector in latest.values() if vector is None]
            truth.upsert([item for item, _ in with_vector], [vector for _, vector in with_vector])
            truth.upsert(items_without_vector)
        truth.set_meta(**{name: value for name, value in notes.items() if name not in UNNOTED})
        if days := notes.get(KEPT_DAYS, ""):
            salvage.complaints.append("lost: the versions that were kept; receipts of before cannot be replayed")
            truth.keep_versions(int(days))
    return salvage


def _open_copy(copy: Path, work: Path) -> sqlite3.Connection:
    """Return a connection to a copy of a damaged file, with a new first page if that one is damaged."""
    if not _has_tables(copy):
        fresh = WritableTruth(work / "fresh.sqlite")
        fresh.close()
        head = bytearray((work / "fresh.sqlite").read_bytes()[:_HEAD])
        content = bytearray(copy.read_bytes())
        head[28:32] = (len(content) // _HEAD).to_bytes(4, "big")  # the number of pages
        content[:_HEAD] = head
        copy.write_bytes(content)
    return _connect(copy)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None)


def _has_tables(path: Path) -> bool:
    """Whether the tables are listed."""
    try:
        with closing(_connect(path)) as connection:
            return schema_rows() <= set(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    except SQLITE_ERRORS as error:
        log.info("the head of %s is damaged: %s", path, error)
        return False


def _notes(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the intact values of ``meta``."""
    notes: dict[str, str] = {}
    for (name,) in _readable_rows(connection, "SELECT name FROM meta"):
        for (raw,) in _readable_rows(connection, "SELECT value FROM meta WHERE name = ?", name):
            with suppress(ValueError):
                notes[str(name)] = value_of(str(name), raw)
    return notes


def _last(connection: sqlite3.Connection) -> int:
    """Return the greatest key ever assigned."""
    statements = (
        "SELECT max(key) FROM documents",
        "SELECT max(key) FROM tombstones",
        "SELECT seq FROM sqlite_sequence WHERE name = 'documents'",
    )
    return max(int(_first(connection, statement) or 0) for statement in statements)


def _deleted(connection: sqlite3.Connection) -> int:
    return int(_first(connection, "SELECT count(*) FROM tombstones") or 0)


def _sound_rows(
    connection: sqlite3.Connection, salvage: _Salvage, size: int
) -> Iterator[tuple[Prepared, bytes | None]]:
    """Yield documents with correct checksums, and their vectors of ``size`` bytes or None."""
    for start in range(1, salvage.last + 1, _PAGE):
        end = min(start + _PAGE - 1, salvage.last)
        vectors: Mapping[int, object] = dict(
            _rows_between(
                connection, "SELECT key, vector FROM vectors WHERE key BETWEEN ? AND ? ORDER BY key", start, end
            )
        )
        sql = f"SELECT {ROW} FROM documents WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  (ours)
        for row in _rows_between(connection, sql, start, end):
            try:
                document = document_in(row)
            except ValueError as error:
                salvage.complaints.append(f"lost: {error}")
                continue
            salvage.keys += 1
            vector = None
            if size:
                with suppress(ValueError):
                    [vector] = vectors_in([(row[-1], vectors.get(row[-1]))])
                if vector is None or len(vector) != size:
                    salvage.without_vector += 1
                    vector = None
            yield Prepared(document, row[2], row[3][:16]), vector


def _rows_between(connection: sqlite3.Connection, sql: str, first: int, last: int) -> list[Any]:
    """Return the readable rows of a range of keys."""
    try:
        return connection.execute(sql, (first, last)).fetchall()
    except SQLITE_ERRORS as error:
        if first == last:
            log.debug("key %d cannot be read: %s", first, error)
            return []
    middle = (first + last) // 2
    return [*_rows_between(connection, sql, first, middle), *_rows_between(connection, sql, middle + 1, last)]


def _readable_rows(connection: sqlite3.Connection, sql: str, *values: object) -> list[Any]:
    try:
        return connection.execute(sql, values).fetchall()
    except SQLITE_ERRORS as error:
        log.warning("%s: %s", sql, error)
        return []


def _first(connection: sqlite3.Connection, sql: str) -> Any:
    rows = _readable_rows(connection, sql)
    return rows[0][0] if rows else None
