"""The SQLite file of a truth: its tables, the checksums of ``meta``, and connections with the settings that last.

A connection is made to the file that the caller knows: one that was deleted or made again is told apart by its
``identity``. Errors of SQLite become errors about the file, with what to do about them.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
import uuid
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import xxhash

from pointsman.store.local.files_and_locks import (
    WAY_BACK,
    disk_full_error,
    has_free_space,
    make_private,
    replaced_error,
    steady,
    store_error,
)
from pointsman.store.local.truth.tally import Tally
from pointsman.tools.errors import CorruptStoreError, LockedError, StoreError
from pointsman.tools.system.replaced_files import sync_directory
from pointsman.tools.system.sqlite_errors import SQLITE_ERRORS, damage, error_code

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

# Metadata that SQLite cannot parse as JSON, e.g. nested a thousand levels deep, counts as having no source.
SOURCE = "CASE WHEN json_valid(metadata) THEN json_extract(metadata, '$.source') END"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    key INTEGER PRIMARY KEY AUTOINCREMENT,  -- AUTOINCREMENT: the key of a deleted document is never given again
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    digest BLOB NOT NULL,
    seq INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS documents_seq ON documents (seq);
CREATE TABLE IF NOT EXISTS vectors (key INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tombstones (key INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS tombstones_seq ON tombstones (seq);
CREATE INDEX IF NOT EXISTS documents_source ON documents ({SOURCE});
"""

_VERSION = 5  # SQLite's ``user_version``
_BUSY_SECONDS = 10.0
# Of a larger file, a process would map page after page, and keep them; to read them anew takes no longer.
_SETTINGS = """
PRAGMA synchronous = FULL;
PRAGMA cache_size = -8000;
PRAGMA mmap_size = 134217728;
"""
_EXCLUSIVE = "PRAGMA locking_mode = EXCLUSIVE;"


_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
VALUE: Final = "SELECT value FROM meta WHERE name = ?"
"""Asks for one value of ``meta``."""
_SCHEMA_OF = (
    "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND "
    "(tbl_name IN ('meta', 'documents', 'vectors', 'tombstones') OR type IN ('trigger', 'view'))"
)


class TruthConnection(sqlite3.Connection):
    """A SQLite connection with flags, and what was read of the file's head when it was made."""

    alone = False
    """Whether it locks the file exclusively until it is closed."""
    immutable = False
    """Whether it takes the file for unchangeable, since its directory could not be written to."""
    identity = ""
    """Drawn at random when the file was created."""


def connect(path: Path, *, create: bool = False, identity: str = "") -> TruthConnection:
    """Return a new connection to a file.

    Args:
        path: the file.
        create: create it if it is missing.
        identity: of the file that it must still be; empty: whichever is there.

    Raises:
        ReplacedError: another process has deleted or recreated it.
        CorruptStoreError: it is damaged or missing.
        StoreError: it cannot be opened.
    """
    try:
        with steady(path.parent) as exists:
            if not (path.exists() or (create and exists)):
                if identity:
                    raise replaced_error(path.parent)
                raise CorruptStoreError(f"{path} is missing; {WAY_BACK}")
            mode = _mode(path, create=create)
            if create and not path.exists():
                make_private(path)
            try:
                connection = _connect_with(path, mode, _SETTINGS, create=create)
            except sqlite3.OperationalError as error:
                if error_code(error) not in _NO_ROOM or create:
                    raise
                connection = _connect_alone(path, mode)
    except SQLITE_ERRORS as error:
        raise translated_error(path, error) from error
    except OSError as error:
        raise store_error(path, error) from error
    if identity not in {"", connection.identity}:
        close(connection, path.parent)
        raise replaced_error(path.parent)
    return connection


def _connect_alone(path: Path, mode: str) -> TruthConnection:
    """Return a connection where there is no room for SQLite's shared-memory index of readers: a lock needs none.

    Two that waited for one another's locks would wait forever: each lets go at once, and tries again.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection = _connect_with(path, mode, _EXCLUSIVE + _SETTINGS, create=False, timeout=0)
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.03))  # noqa: S311
        else:
            connection.alone = True
            return connection


def _mode(path: Path, *, create: bool) -> str:
    """Return the URI option to open a file with; in a read-only directory SQLite tracks no readers.

    Raises:
        StoreError: the last writer was interrupted, and its newest writes are in a log that cannot be applied.
    """
    if not path.exists():
        return "mode=rwc" if create else "mode=rw"
    if can_be_written_beside(path):
        return "mode=rw"
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists() and wal.stat().st_size:
        raise StoreError(
            f"{path.parent} cannot be written to, and its last writer left {wal.name}; "
            "open the dataset once where it can be written, or copy it to such a place"
        )
    return "immutable=1"


def can_be_written_beside(path: Path) -> bool:
    """Whether this process may create files in the folder of a file."""
    return os.access(path.parent, os.W_OK, effective_ids=True)


def _connect_with(
    path: Path, mode: str, settings: str, *, create: bool, timeout: float = _BUSY_SECONDS
) -> TruthConnection:
    """Return a connection with these settings that knows the head of its file."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=timeout,
        factory=TruthConnection,
    )
    connection.immutable = mode == "immutable=1"
    try:
        connection.executescript(settings)
        _read_head(path, connection, create=create)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_head(path: Path, connection: TruthConnection, *, create: bool) -> None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tombstones_seq'").fetchone():
        if not create:
            raise damaged_error(path, "it has no tables")
        _create(path, connection)
    _check_head(path, connection)
    row = connection.execute(VALUE, ("identity",)).fetchone()
    if row is None:
        raise damaged_error(path, "it has no identity")
    try:
        connection.identity = value_of("identity", row[0])
    except ValueError as error:
        raise damaged_error(path, str(error)) from error


def _check_head(path: Path, connection: TruthConnection) -> None:
    """Check the file's header and tables, so that any wrong bit in its first page is found."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    encoding = connection.execute("PRAGMA encoding").fetchone()[0]
    vacuum = connection.execute("PRAGMA auto_vacuum").fetchone()[0]
    if version != _VERSION or encoding != "UTF-8" or vacuum:
        raise damaged_error(path, "its header is damaged")
    if schema_rows() != _schema_of(connection):
        raise damaged_error(path, "its tables were changed")


def _create(path: Path, connection: TruthConnection) -> None:
    """Create the tables; several processes may do so at once, and the first one's identity is kept."""
    identity = with_check("identity", uuid.uuid4().hex)
    tally = with_check("tally", str(Tally(notes=2)))  # itself and the identity
    birth = (
        f"INSERT OR IGNORE INTO meta VALUES ('identity', '{identity}'), ('tally', '{tally}'); "
        f"PRAGMA user_version = {_VERSION};"
    )
    # An 8 KB page holds five vectors of 384 numbers with little waste; the page size can only be set on a new file.
    settings = "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;"
    connection.executescript(f"{settings} BEGIN IMMEDIATE; {_SCHEMA} {birth} COMMIT;")
    sync_directory(path.parent)


def close_all(connections: list[TruthConnection], directory: Path, opened_by: int) -> None:
    """Close connections to a file in a directory, unless they belong to the process that this one was forked from."""
    while connections and os.getpid() == opened_by:
        close(connections.pop(), directory)


def close(connection: TruthConnection, directory: Path) -> None:
    """Close a connection to a file in a directory."""
    try:
        with steady(directory):  # closing the last connection deletes the log by name
            connection.close()
    except StoreError as error:
        log.debug("a connection is closed all the same: %s", error)
        connection.close()


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def damaged_error(path: Path, reason: str) -> CorruptStoreError:
    """Return the error about a damaged file."""
    return CorruptStoreError(f"{path} is damaged ({reason}); {WAY_BACK}")


def translated_error(path: Path, error: Exception) -> StoreError:
    """Translate an error of SQLite into one about the file."""
    if (problem := damage(error)) is not None:
        return damaged_error(path, problem)
    code = error_code(error)
    if code == sqlite3.SQLITE_FULL or (code in _NO_ROOM and not has_free_space(path.parent)):
        return disk_full_error(path, "nothing of this batch was written; earlier acknowledged writes are kept")
    if code == sqlite3.SQLITE_BUSY:
        return LockedError(f"{path} has been in use by another process for more than {_BUSY_SECONDS:.0f} s")
    if code in _NO_ROOM:
        return StoreError(f"{path}: {error}; acknowledged writes are kept; check the disk and try again")
    return StoreError(f"{path}: {error}")


# ── values of ``meta`` and tables ────────────────────────────────────────────────────────────────────────────────────


def _meta_check(name: str, value: str) -> str:
    return xxhash.xxh3_64_hexdigest(f"{name}\n{value}".encode())


def with_check(name: str, value: str) -> str:
    """Return a value of ``meta`` as it is stored, followed by its checksum."""
    return f"{value}\n{_meta_check(name, value)}"


def value_of(name: str, raw: object) -> str:
    """Return a value of ``meta`` after verifying its checksum.

    Raises:
        ValueError: the value differs from what was written.
    """
    if isinstance(raw, str):
        value, _, check = raw.rpartition("\n")
        if check == _meta_check(name, value):
            return value
    raise ValueError(f"the value of {name!r:.40} does not match its checksum")


@cache
def schema_rows() -> frozenset[tuple[str, str]]:
    """Return the tables and indexes as SQLite records them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema_of(connection)


def _schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return our tables with all that acts on them, such as triggers, which a foreign backup may have."""
    return frozenset(connection.execute(_SCHEMA_OF))
