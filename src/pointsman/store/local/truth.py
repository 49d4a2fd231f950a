"""The truth of one dataset: a SQLite file that every index is derived from.

A write is acknowledged when its transaction is on disk (WAL, ``synchronous=FULL``). Each transaction takes the next
*sequence number* and stamps it on the documents that it touches; a deletion leaves a tombstone that carries it. So
the operation log is compact by construction (the last operation on each key, nothing else), never needs trimming, and
"everything since number n" is one indexed look-up. An index that remembers the number it has applied can always catch
up.

Everything carries a checksum: a document's text and metadata (``digest``); with it what else is in the row, its id, key
and sequence number; a vector, with its key; each value of ``meta``, with its name. They are compared when something is
read. Rows that were written before there were such checksums are without, until they are written again.
"""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import xxhash

from pointsman._batched import batched
from pointsman._sqlite import SQLITE_ERRORS, damage, error_code
from pointsman.errors import CorruptStoreError, LockedError, ReplacedError, StoreError
from pointsman.store.local.files import full, room, steady, store_error, sync_directory
from pointsman.store.prepared import digest, metadata_of, storable
from pointsman.types import AddResult, Document

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.store.prepared import Prepared

log = logging.getLogger(__name__)

# What SQLite cannot read as JSON, such as metadata nested a thousand deep, has no source and does no harm.
_SOURCE = "CASE WHEN json_valid(metadata) THEN json_extract(metadata, '$.source') END"
_SOURCE_INDEX = f"CREATE INDEX IF NOT EXISTS documents_source ON documents ({_SOURCE});"
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
{_SOURCE_INDEX}
"""

_CHECKED = 2  # SQLite's ``user_version`` of a file whose ``meta`` has checksums
_DIGEST, _ROW_CHECK, _VECTOR_CHECK = 16, 6, 7  # bytes; lengths that a single wrong bit does not turn into one another
_NUMBER = 4  # bytes of a number in a vector
_VARIABLES = 500  # bound parameters per statement; every SQLite allows 999
_PAGE = 2000  # rows read at a time from a whole table or the log
_BUSY_SECONDS = 10.0
_IDLE = 8  # connections kept open for the next caller
_SETTINGS = """
PRAGMA synchronous = FULL;
PRAGMA cache_size = -8000;
PRAGMA mmap_size = 1073741824;
"""
_ALONE = "PRAGMA locking_mode = EXCLUSIVE;"


@dataclass(frozen=True, slots=True)
class Change:
    """The last thing that happened to a key; ``document`` is None for a deletion."""

    key: int
    document: Document | None


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """Keys without a vector any more; keys with one, and those vectors, one after the other."""

    gone: list[int]
    keys: list[int]
    vectors: bytes


def _row_check(key: int, seq: int, id_: str, metadata: str, content: bytes) -> bytes:
    """Of all that is in a row but its text, which the digest of the content is for."""
    return xxhash.xxh3_64_digest(f"{key}\n{seq}\n{len(id_)}\n{id_}{metadata}".encode() + content)[:_ROW_CHECK]


def _vector_check(key: int, vector: bytes) -> bytes:
    return xxhash.xxh3_64_digest(b"%d\n" % key + vector)[:_VECTOR_CHECK]


def _meta_check(name: str, value: str) -> str:
    return xxhash.xxh3_64_hexdigest(f"{name}\n{value}")


def value_of(name: str, raw: object, *, checked: bool) -> str:
    """A value of ``meta``, compared with its checksum; it may be without one unless ``checked``.

    Raises:
        ValueError: it is not as it was written.
    """
    if isinstance(raw, str):
        value, _, check = raw.rpartition("\n")
        if check == _meta_check(name, value):
            return value
        if not checked:
            return raw
    raise ValueError(f"what it says of {name!r:.40} is not as it was written")


def document_of(row: Sequence[Any]) -> Document:
    """A document out of the columns of `ROW`, compared with its checksums.

    Raises:
        ValueError: it is not as it was written.
    """
    id_, text, metadata, digests, seq, key = row
    try:
        content, check = digests[:_DIGEST], digests[_DIGEST:]
        if check and check != _row_check(key, seq, id_, metadata, content):
            raise ValueError("it is not as it was written")
        if text is not None and digest(text, metadata) != content:
            raise ValueError("its content is not as it was written")
        return Document(id_, text or "", metadata_of(metadata))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"document {id_!r:.80}, key {key!r:.20}: {error}") from error


def vector_of(key: int, raw: object) -> bytes:
    """A vector out of its row, compared with its checksum.

    Raises:
        ValueError: it is not as it was written.
    """
    if isinstance(raw, bytes):
        if len(raw) % _NUMBER == 0:  # written before there were checksums
            return raw
        vector = raw[:-_VECTOR_CHECK]
        if raw[-_VECTOR_CHECK:] == _vector_check(key, vector):
            return vector
    raise ValueError(f"the vector of key {key!r:.20} is not as it was written")


class _Connection(sqlite3.Connection):
    """One of SQLite's, with a mark."""

    alone = False
    """Whether it has the file for itself, so that nobody else gets at it before it is closed."""


class Truth:
    """The SQLite file of one dataset. Reads from any thread and process; one writer at a time.

    Args:
        path: the file.
        create: make it when it is not there; without it, that is an error.

    Attributes:
        identity: drawn when the file was made; derived indexes carry it, so one of another dataset is recognised.

    Raises:
        CorruptStoreError: the file is damaged, or missing.
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._process = os.getpid()
        self._idle: list[_Connection] = []
        # for those who never call close
        weakref.finalize(self, _close_all, self._idle, path.parent, os.getpid()).atexit = False
        self.identity = ""
        self._checked = True  # whether the values of ``meta`` have checksums
        self._take_back(self._connect(create=create))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._row("SELECT count(*) FROM documents")[0])

    def sequence(self) -> int:
        """The number of the last committed transaction; 0 before the first."""
        return int(self.meta("seq") or 0)

    def changed_since(self, seq: int, most: int) -> int:
        """How many documents were written or deleted after transaction ``seq``; counted to ``most``."""
        changed = "SELECT 1 FROM documents WHERE seq > ? UNION ALL SELECT 1 FROM tombstones WHERE seq > ?"
        return int(self._row(f"SELECT count(*) FROM ({changed} LIMIT ?)", seq, seq, most)[0])

    def meta(self, name: str) -> str | None:
        """A value kept beside the documents."""
        row = self._row(_META, name)
        return None if row is None else self._value(name, row[0])

    def metas(self) -> dict[str, str]:
        """All values kept beside the documents, the sequence number (``seq``) among them."""
        return {name: self._value(name, value) for name, value in self._rows("SELECT name, value FROM meta")}

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Returns documents by key in the given order, None for deleted ones."""
        documents: dict[int, Document] = {}
        for part in batched(keys, _VARIABLES):
            sql = f"SELECT {ROW} FROM documents WHERE key IN ({_marks(part)})"
            documents.update([(row[-1], self._document(row)) for row in self._rows(sql, *part)])
        if missing := [key for key in keys if key not in documents]:
            self._check_gone(missing)
        return list(map(documents.get, keys))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Returns documents by id in the given order, None for unknown ids."""
        documents: dict[str, Document] = {}
        for part in batched(filter(storable, ids), _VARIABLES):
            sql = f"SELECT {ROW} FROM documents WHERE id IN ({_marks(part)})"
            documents.update((row[0], self._document(row)) for row in self._rows(sql, *part))
        return [documents.get(id_) for id_ in ids]

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """The keys of the ids that exist."""
        return {id_: key for id_, (key, _) in self._stored(ids).items()}

    def all_keys(self) -> list[int]:
        """The keys of all documents, ascending."""
        return [key for (key,) in self._rows("SELECT key FROM documents ORDER BY key")]

    def is_empty(self) -> bool:
        """Whether there is no document."""
        return self._row("SELECT 1 FROM documents LIMIT 1") is None

    def documents(self) -> Iterator[Document]:
        """Every document, in the order of first arrival; what is written meanwhile may or may not be among them."""
        return map(self._document, self._pages(f"SELECT {ROW} FROM documents"))

    def page(self, after: int, limit: int) -> tuple[list[Document], int | None]:
        """The documents whose keys come next after one, and the key to go on after; None at the end."""
        sql = f"SELECT {ROW} FROM documents WHERE key > ? ORDER BY key LIMIT ?"
        rows = self._rows(sql, after, limit)
        return list(map(self._document, rows)), rows[-1][-1] if len(rows) == limit else None

    def metadata(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Every key with its metadata."""
        rows = self._pages(f"SELECT {_ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).metadata) for row in rows)

    def fields(self, *, texts: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Every key with what filters see of its document; without ``texts`` that is empty."""
        rows = self._pages(f"SELECT {ROW if texts else _ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).fields) for row in rows)

    def alive(self) -> Iterator[tuple[int, bool]]:
        """Every key, and whether it has a vector."""
        sql = "SELECT EXISTS (SELECT 1 FROM vectors v WHERE v.key = documents.key), key FROM documents"
        return ((key, bool(has_vector)) for has_vector, key in self._pages(sql))

    def ids(self, *, source: str | None = None) -> list[str]:
        """Every id, or those whose metadata names this ``source``."""
        if source is None:
            return [self._id(row) for row in self._rows(f"SELECT {_ROW_WITHOUT_TEXT} FROM documents ORDER BY key")]
        if not storable(source):
            return []
        sql = f"SELECT {_ROW_WITHOUT_TEXT} FROM documents WHERE {_SOURCE} = ? ORDER BY key"  # the index's very words
        return [self._id(row) for row in self._rows(sql, source)]

    def ids_of(self, keys: Sequence[int]) -> list[str]:
        """The ids of these keys, of those that exist, in their order."""
        ids: dict[int, str] = {}
        for part in batched(keys, _VARIABLES):
            sql = f"SELECT {_ROW_WITHOUT_TEXT} FROM documents WHERE key IN ({_marks(part)})"
            ids.update((row[-1], self._id(row)) for row in self._rows(sql, *part))
        return [ids[key] for key in keys if key in ids]

    def changes(self, since: int, *, texts: bool = True) -> Iterator[list[Change]]:
        """What happened to documents after transaction ``since``, the last operation per key, deletions first.

        Texts are read only when asked for. Each batch is read in a snapshot of its own, so a writer is never blocked;
        what it changes meanwhile has a higher number and comes next time.
        """
        for deleted, rows in self._log(since, ROW if texts else _ROW_WITHOUT_TEXT, "documents d"):
            yield [Change(key, None) for key in deleted] or [Change(row[-1], self._document(row)) for row in rows]

    def vector_changes(self, since: int) -> Iterator[VectorChanges]:
        """The same for vectors."""
        for deleted, rows in self._log(since, "v.vector, d.seq, d.key", _VECTORS_OF):
            live = [row for row in rows if row[0] is not None]
            removals = deleted or [row[-1] for row in rows if row[0] is None]
            vectors = b"".join([self._vector(row[-1], row[0]) for row in live])
            yield VectorChanges(removals, [row[-1] for row in live], vectors)

    def _log(self, since: int, columns: str, tables: str) -> Iterator[tuple[list[int], list[Any]]]:
        """Keys deleted after transaction ``since``, then rows of what was written; paged.

        The columns are those wanted, and at the end the document's sequence number and key.
        """
        upto = self.sequence()
        deleted = self._rows("SELECT key FROM tombstones WHERE seq > ? AND seq <= ?", since, upto) if since else []
        for part in batched(deleted, _PAGE):
            yield [key for (key,) in part], []
        # The unary + keeps SQLite from reading the whole table in the order of its keys to find a few changes in it.
        sql = f"""SELECT {columns} FROM {tables}
            WHERE d.seq >= ? AND d.seq <= ? AND (d.seq > ? OR +d.key > ?) ORDER BY d.seq, d.key LIMIT {_PAGE}"""
        seq, key = since + 1, 0
        while rows := self._rows(sql, seq, upto, seq, key):
            yield [], rows
            seq, key = rows[-1][-2:]

    def check(self) -> list[str]:
        """SQLite's own integrity check, and everything against its checksum: complaints, none when all is sound."""
        complaints = [row[0] for row in self._rows("PRAGMA integrity_check(10)") if row[0] != "ok"]
        if complaints:
            return complaints
        for name, value in self._rows("SELECT name, value FROM meta"):
            complaints += _complaint(self._value, name, value)
        for row in self._pages(f"SELECT {ROW} FROM documents"):
            complaints += _complaint(self._document, row)
        for vector, key in self._pages("SELECT vector, key FROM vectors"):
            complaints += _complaint(self._vector, key, vector)
        last = self.sequence()
        for table in ("documents", "tombstones"):
            if (self._row(f"SELECT max(seq) FROM {table}")[0] or 0) > last:
                complaints.append(f"{table} have sequence numbers beyond the last")
        documents, tombstones = self._row("SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM tombstones)")
        if missing := self._row(_LAST_KEY)[0] - documents - tombstones:  # keys are given one after the other
            complaints.append(f"{missing} documents are not there, and were not deleted")
        return complaints[:10]

    # ── writing (the caller holds the writer lock) ───────────────────────────────────────────────────────────────

    def upgrade(self) -> None:
        """Give a file of an earlier version what it lacks: the index of sources, checksums of ``meta``."""
        with self._connection() as connection:
            connection.execute(_SOURCE_INDEX)
        if not self._checked:
            with self.transaction(advance=False) as (connection, _):
                for name, raw in connection.execute("SELECT name, value FROM meta").fetchall():
                    value = _with_check(name, self._value(name, raw))
                    connection.execute("UPDATE meta SET value=? WHERE name=?", (value, name))
                connection.execute(f"PRAGMA user_version = {_CHECKED}")
            self._checked = True

    def unchanged(self, prepared: Sequence[Prepared], *, with_vectors: bool = False) -> list[bool]:
        """Whether each document is stored just so already, and has a vector where that is asked for."""
        existing = self._stored([item.document.id for item in prepared])
        same = self._same(existing, prepared, None)
        if not with_vectors:
            return same
        having: set[int] = set()
        for part in batched((key for key, _ in existing.values()), _VARIABLES):
            having.update(key for (key,) in self._rows(f"SELECT key FROM vectors WHERE key IN ({_marks(part)})", *part))
        return [equal and existing[item.document.id][0] in having for equal, item in zip(same, prepared, strict=True)]

    def upsert(self, prepared: Sequence[Prepared], vectors: Sequence[bytes] | None = None) -> AddResult:
        """Write documents, and their vectors where given, in one durable transaction; what is stored just so is not.

        The ids of one call must differ. A document written without its vector loses the one that it had.
        """
        existing = self._stored([item.document.id for item in prepared])
        fresh = [number for number, same in enumerate(self._same(existing, prepared, vectors)) if not same]
        result = AddResult(unchanged=len(prepared) - len(fresh))
        if not fresh:
            return result
        prepared = [prepared[number] for number in fresh]
        with self.transaction() as (connection, seq):
            new_keys = itertools.count(connection.execute(_LAST_KEY).fetchone()[0] + 1)
            keys = [
                existing[item.document.id][0] if item.document.id in existing else next(new_keys) for item in prepared
            ]
            rows = [
                (item.document.text, item.metadata, _sealed(item, key, seq), seq, item.document.id, key)
                for item, key in zip(prepared, keys, strict=True)
            ]
            old = [row for row in rows if row[4] in existing]
            connection.executemany("UPDATE documents SET text=?, metadata=?, digest=?, seq=?, id=? WHERE key=?", old)
            insert = "INSERT INTO documents (text, metadata, digest, seq, id, key) VALUES (?,?,?,?,?,?)"
            connection.executemany(insert, (row for row in rows if row[4] not in existing) if old else rows)
            if vectors is not None:
                blobs = [
                    vectors[number] + _vector_check(key, vectors[number])
                    for number, key in zip(fresh, keys, strict=True)
                ]
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", zip(keys, blobs, strict=True))
            else:
                connection.executemany("DELETE FROM vectors WHERE key=?", [(row[5],) for row in old])
        return result + AddResult(added=len(rows) - len(old), updated=len(old))

    def delete(self, ids: Sequence[str]) -> int:
        """Delete by id in one durable transaction; ids that don't exist are passed over. Returns how many went."""
        keys = list(self.keys(ids).values())
        if keys:
            with self.transaction() as (connection, seq):
                for table in ("documents", "vectors"):
                    connection.executemany(f"DELETE FROM {table} WHERE key=?", ((key,) for key in keys))
                connection.executemany("INSERT INTO tombstones VALUES (?,?)", ((key, seq) for key in keys))
        return len(keys)

    def set_meta(self, **values: str) -> None:
        """Keep values beside the documents, durably."""
        with self.transaction(advance=False) as (connection, _):
            rows = [(name, _with_check(name, value)) for name, value in values.items()]
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", rows)

    @contextmanager
    def transaction(self, *, advance: bool = True) -> Iterator[tuple[_Connection, int]]:
        """One durable transaction and its sequence number."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = connection.execute(_META, ("seq",)).fetchone()
                seq = (int(self._value("seq", row[0])) if row else 0) + advance
                if advance:
                    connection.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (_with_check("seq", str(seq)),))
                yield connection, seq
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # some errors have rolled it back already
                    connection.execute("ROLLBACK")
                raise

    def copy(self, path: Path) -> None:
        """Write a consistent copy to a new file, also while others read and write."""
        with self._connection() as connection:
            target = sqlite3.connect(path)
            try:
                connection.backup(target)
            finally:
                target.close()

    def close(self) -> None:
        """Close the idle connections of this process."""
        _close_all(self._idle, self._path.parent, self._process)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, connection: _Connection) -> None:
        """Make the tables; several processes may do so at once, the first one's identity stays."""
        identity = _with_check("identity", uuid.uuid4().hex)
        birth = f"INSERT OR IGNORE INTO meta VALUES ('identity', '{identity}'); PRAGMA user_version = {_CHECKED};"
        # Eight-kilobyte pages hold five vectors of 384 numbers with little waste; only a new file takes the setting.
        settings = "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;"
        connection.executescript(f"{settings} BEGIN IMMEDIATE; {_SCHEMA} {birth} COMMIT;")
        sync_directory(self._path.parent)

    def _how(self, *, create: bool) -> str:
        """How to open the file; where nothing can be written, without SQLite's bookkeeping of readers.

        Raises:
            StoreError: its last writer was cut short, so the newest writes are in a log that cannot be taken in.
        """
        if not self._path.exists():
            return "mode=rwc" if create else "mode=rw"
        if os.access(self._path.parent, os.W_OK, effective_ids=True):
            return "mode=rw"
        log = self._path.with_name(f"{self._path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{self._path.parent} cannot be written to, and its last writer left {log.name}; "
                "open the dataset once where it can be written, or copy it to such a place"
            )
        return "immutable=1"

    def _same(
        self, existing: Mapping[str, tuple[int, bytes]], prepared: Sequence[Prepared], vectors: Sequence[bytes] | None
    ) -> list[bool]:
        """Whether each document, and its vector where vectors are given, is what is stored."""
        same = [existing.get(item.document.id, (0, b""))[1][:_DIGEST] == item.digest for item in prepared]
        if vectors is None or not any(same):
            return same
        old_vectors: dict[int, bytes] = {}
        for part in batched((key for key, _ in existing.values()), _VARIABLES):
            rows = self._rows(f"SELECT key, vector FROM vectors WHERE key IN ({_marks(part)})", *part)
            old_vectors.update((key, self._vector(key, vector)) for key, vector in rows)
        return [
            equal and old_vectors.get(existing[item.document.id][0]) == vector
            for equal, item, vector in zip(same, prepared, vectors, strict=True)
        ]

    def _stored(self, ids: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """Key and digest of the ids that exist."""
        existing: dict[str, tuple[int, bytes]] = {}
        for part in batched(filter(storable, ids), _VARIABLES):
            sql = f"SELECT id, key, digest FROM documents WHERE id IN ({_marks(part)})"
            existing.update((row[0], (row[1], row[2])) for row in self._rows(sql, *part))
        return existing

    def _row(self, sql: str, *values: object) -> Any:
        connection = self._lend()
        try:
            return connection.execute(sql, values).fetchone()
        except SQLITE_ERRORS as error:
            raise self._translated_error(error) from error
        finally:
            self._take_back(connection)

    def _rows(self, sql: str, *values: object) -> list[Any]:
        connection = self._lend()
        try:
            return connection.execute(sql, values).fetchall()
        except SQLITE_ERRORS as error:
            raise self._translated_error(error) from error
        finally:
            self._take_back(connection)

    def _pages(self, select: str) -> Iterator[Any]:
        """Rows of a large table in the order of ``key``, their last column; no read stays open between pages."""
        key = 0
        while page := self._rows(f"{select} WHERE key > ? ORDER BY key LIMIT {_PAGE}", key):
            yield from page
            key = page[-1][-1]

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        connection = self._lend()
        try:
            yield connection
        except SQLITE_ERRORS as error:
            raise self._translated_error(error) from error
        finally:
            self._take_back(connection)

    def _lend(self) -> _Connection:
        """A connection; any thread may have it next (appending to a list and popping from it are atomic)."""
        if self._process != os.getpid():
            raise StoreError(
                f"{self._path} was opened by process {self._process} and this is its fork, {os.getpid()}; "
                "open datasets after forking, or start processes with the method 'spawn'"
            )
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _take_back(self, connection: _Connection) -> None:
        if len(self._idle) < _IDLE and not connection.alone:
            self._idle.append(connection)
        else:
            _close(connection, self._path.parent)

    def _connect(self, *, create: bool = False) -> _Connection:
        """A new connection, to the very database that the others are connected to.

        Raises:
            ReplacedError: another process has deleted it, or made it anew.
            CorruptStoreError: it is damaged, or missing.
        """
        try:
            with steady(self._path.parent) as there:
                if not (self._path.exists() or (create and there)):
                    if self.identity:
                        raise self._replaced()
                    raise CorruptStoreError(f"{self._path} is missing; {_REMEDY}")
                how = self._how(create=create)
                try:
                    connection, identity = self._connect_so(how, _SETTINGS, create=create)
                except sqlite3.OperationalError as error:
                    if error_code(error) not in _NO_ROOM or create:
                        raise
                    # There is no room for SQLite's table of who reads what. Who has the file alone needs none.
                    connection, identity = self._connect_so(how, _ALONE + _SETTINGS, create=False)
                    connection.alone = True
        except SQLITE_ERRORS as error:
            raise self._translated_error(error) from error
        except OSError as error:
            raise store_error(self._path, error) from error
        if self.identity not in {"", identity}:
            _close(connection, self._path.parent)
            raise self._replaced()
        self.identity = identity
        return connection

    def _connect_so(self, how: str, settings: str, *, create: bool) -> tuple[_Connection, str]:
        """A connection with these settings, and the identity of what it is connected to."""
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?{how}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_SECONDS,
            factory=_Connection,
        )
        try:
            connection.executescript(settings)
            return connection, self._identify(connection, create=create)
        except BaseException:
            connection.close()
            raise

    def _identify(self, connection: _Connection, *, create: bool) -> str:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tombstones_seq'").fetchone():
            if not create:
                raise self._damaged("it has no tables")
            self._create(connection)
        self._check_head(connection)
        row = connection.execute(_META, ("identity",)).fetchone()
        if row is None:
            raise self._damaged("it has no identity")
        return self._value("identity", row[0])

    def _check_head(self, connection: _Connection) -> None:
        """See that the file is what it was made as, whichever bit of its first page is wrong."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        encoding = connection.execute("PRAGMA encoding").fetchone()[0]
        vacuum = connection.execute("PRAGMA auto_vacuum").fetchone()[0]
        if version not in {0, _CHECKED} or encoding != "UTF-8" or vacuum:
            raise self._damaged("its head is not as it was written")
        self._checked = version == _CHECKED
        if self._checked and not schema_rows() <= set(connection.execute(_SCHEMA_OF).fetchall()):
            raise self._damaged("its tables are not as they were made")

    def _damaged(self, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self._path} is damaged ({what}); {_REMEDY}")

    def _value(self, name: str, raw: object) -> str:
        """A value of ``meta``, compared with its checksum."""
        try:
            return value_of(name, raw, checked=self._checked)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _document(self, row: Sequence[Any]) -> Document:
        """A document out of the columns of `ROW`, compared with its checksums."""
        try:
            return document_of(row)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _id(self, row: Sequence[Any]) -> str:
        """The id in the columns of `_ROW_WITHOUT_TEXT`, compared with its checksum; nothing is decoded for that."""
        id_, _, metadata, digests, seq, key = row
        try:
            if len(digests) in {_DIGEST, _DIGEST + _ROW_CHECK} and (
                len(digests) == _DIGEST or digests[_DIGEST:] == _row_check(key, seq, id_, metadata, digests[:_DIGEST])
            ):
                return str(id_)
        except (TypeError, AttributeError) as error:
            raise self._damaged(f"document {id_!r:.80}, key {key!r:.20}: {error}") from error
        raise self._damaged(f"document {id_!r:.80}, key {key!r:.20}: it is not as it was written")

    def _vector(self, key: int, raw: object) -> bytes:
        """A vector out of its row, compared with its checksum."""
        try:
            return vector_of(key, raw)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _check_gone(self, keys: Sequence[int]) -> None:
        """See that documents that cannot be found have been deleted: else their rows are lost.

        Raises:
            CorruptStoreError: one has not.
        """
        last = self._row(_LAST_KEY)[0]
        candidates = {key for key in keys if 0 < key <= last}
        for part in batched(candidates, _VARIABLES):
            candidates.difference_update(
                key for (key,) in self._rows(f"SELECT key FROM tombstones WHERE key IN ({_marks(part)})", *part)
            )
        for part in batched(candidates, _VARIABLES):  # one that was written this moment is there by now
            candidates.difference_update(
                key for (key,) in self._rows(f"SELECT key FROM documents WHERE key IN ({_marks(part)})", *part)
            )
        if candidates:
            raise self._damaged(f"the document of key {min(candidates)} is not there, and was not deleted")

    def _replaced(self) -> ReplacedError:
        return ReplacedError(f"{self._path.parent} was deleted or recreated by another process; open it again")

    def _translated_error(self, error: Exception) -> StoreError:
        """SQLite's error in terms of the file."""
        if (what := damage(error)) is not None:
            return self._damaged(what)
        code = error_code(error)
        if code == sqlite3.SQLITE_FULL or (code in _NO_ROOM and not room(self._path.parent)):
            return full(self._path, "nothing of this batch was written, and what was acknowledged before is kept")
        if code == sqlite3.SQLITE_BUSY:
            return LockedError(f"{self._path} has been in use by another process for more than {_BUSY_SECONDS:.0f} s")
        if code in _NO_ROOM:
            return StoreError(f"{self._path}: {error}; what was acknowledged is kept; check the disk and try again")
        return StoreError(f"{self._path}: {error}")


_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def _close_all(connections: list[_Connection], directory: Path, opened_by: int) -> None:
    while connections and os.getpid() == opened_by:  # after a fork they are the parent's
        _close(connections.pop(), directory)


def _close(connection: _Connection, directory: Path) -> None:
    try:
        with steady(directory):  # the last connection of a file deletes its log, by name
            connection.close()
    except StoreError as error:
        log.debug("a connection is closed all the same: %s", error)
        connection.close()


def _sealed(item: Prepared, key: int, seq: int) -> bytes:
    """The digest of the content and, behind it, the checksum of the row."""
    return item.digest + _row_check(key, seq, item.document.id, item.metadata, item.digest)


def _with_check(name: str, value: str) -> str:
    return f"{value}\n{_meta_check(name, value)}"


def _complaint(reader: Callable[..., object], *values: object) -> list[str]:
    try:
        reader(*values)
    except CorruptStoreError as error:
        return [str(error)]
    return []


@cache
def schema_rows() -> frozenset[tuple[str, str]]:
    """The tables and indexes as SQLite writes them down; that of sources may be missing, or added later."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return frozenset(row for row in connection.execute(_SCHEMA_OF) if row[0] != "documents_source")


_REMEDY = (
    "'pointsman verify --repair' saves what is sound; or restore it from a backup, or delete the dataset and index it "
    "again"
)


_META = "SELECT value FROM meta WHERE name = ?"
ROW = "id, text, metadata, digest, seq, key"
_ROW_WITHOUT_TEXT = "id, NULL, metadata, digest, seq, key"
_VECTORS_OF = "documents d LEFT JOIN vectors v ON v.key = d.key"
_SCHEMA_OF = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
_LAST_KEY = "SELECT max(ifnull((SELECT max(key) FROM documents), 0), ifnull((SELECT max(key) FROM tombstones), 0))"


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
