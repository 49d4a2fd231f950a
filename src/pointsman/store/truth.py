"""The truth of one dataset: a SQLite file that every index is derived from.

A write is acknowledged when its transaction is on disk (WAL, ``synchronous=FULL``). Each transaction takes the next
*sequence number* and stamps it on the documents that it touches; a deletion leaves a tombstone that carries it. So the
operation log is compact by construction (the last operation on each key, nothing else), never needs trimming, and
"everything since number n" is one indexed look-up. An index that remembers the number it has applied can always catch up.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman._batched import batched
from pointsman.errors import CorruptStoreError, InputError, StoreError
from pointsman.text import repair
from pointsman.types import AddResult, Document

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = """
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
"""

_VARIABLES = 500  # bound parameters per statement; every SQLite allows 999
_ID_BYTES = 1024
_BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """The last thing that happened to a key; ``document`` is None for a deletion."""

    key: int
    document: Document | None
    vector: bytes | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document checked and serialised, ready to be written."""

    document: Document
    metadata: str
    digest: bytes


def prepare(document: Document) -> Prepared:
    """Check a document and make it storable.

    Lone surrogates, which no UTF-8 store can hold, become U+FFFD in text and metadata; in an id they are refused,
    since an id must come back as it was given.

    Raises:
        InputError: the id is too long or not encodable, or the metadata is not JSON.
    """
    try:
        if len(document.id.encode()) > _ID_BYTES:
            raise InputError(f"document id of {len(document.id)} characters: at most {_ID_BYTES} bytes, {document.id!r:.60}…")
    except UnicodeEncodeError as error:
        raise InputError(f"document id {document.id!r} has a lone surrogate; ids must be valid Unicode") from error
    text = repair(document.text)
    try:
        metadata = repair(json.dumps(dict(document.metadata), ensure_ascii=False, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"document {document.id!r}: metadata is not JSON: {error}") from error
    digest = hashlib.blake2b(f"{len(text)}\n{text}{metadata}".encode(), digest_size=16).digest()
    if text is not document.text:
        document = Document(document.id, text, json.loads(metadata))
    return Prepared(document, metadata, digest)


class Truth:
    """The SQLite file of one dataset. Reads from any thread and process; one writer at a time.

    Attributes:
        identity: drawn when the file was made; derived indexes carry it, so one of another dataset is recognised.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        with self._connection() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tombstones_seq'").fetchone():
                birth = f"INSERT OR IGNORE INTO meta VALUES ('identity', '{uuid.uuid4().hex}');"
                connection.executescript(f"PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; {_SCHEMA} {birth} COMMIT;")
        self.identity = self.meta("identity") or ""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._row("SELECT count(*) FROM documents")[0])

    def sequence(self) -> int:
        """The number of the last committed transaction; 0 before the first."""
        row = self._row("SELECT value FROM meta WHERE name = 'seq'")
        return int(row[0]) if row else 0

    def meta(self, name: str) -> str | None:
        """A value kept beside the documents."""
        row = self._row("SELECT value FROM meta WHERE name = ?", name)
        return str(row[0]) if row else None

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Documents by key, in the order asked; None where one is gone."""
        found: dict[int, Document] = {}
        for part in batched(keys, _VARIABLES):
            sql = f"SELECT key, id, text, metadata FROM documents WHERE key IN ({_marks(part)})"
            found.update((row[0], _document(row[1:])) for row in self._rows(sql, *part))
        return [found.get(key) for key in keys]

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Documents by id, in the order asked; None where there is none."""
        found: dict[str, Document] = {}
        for part in batched(ids, _VARIABLES):
            sql = f"SELECT id, text, metadata FROM documents WHERE id IN ({_marks(part)})"
            found.update((row[0], _document(row)) for row in self._rows(sql, *part))
        return [found.get(id_) for id_ in ids]

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """The keys of the ids that exist."""
        return {id_: key for id_, (key, _) in self._digests(ids).items()}

    def documents(self) -> Iterator[Document]:
        """Every document, in the order of first arrival; what is written meanwhile may or may not be among them."""
        return (_document(row[1:]) for row in self._pages("SELECT key, id, text, metadata FROM documents"))

    def metadata(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Every key with its metadata."""
        return ((key, json.loads(text)) for key, text in self._pages("SELECT key, metadata FROM documents"))

    def alive(self) -> Iterator[tuple[int, bool]]:
        """Every key, and whether it has a vector."""
        sql = "SELECT key, EXISTS (SELECT 1 FROM vectors v WHERE v.key = documents.key) FROM documents"
        return ((key, bool(has_vector)) for key, has_vector in self._pages(sql))

    def ids(self, *, source: str | None = None) -> list[str]:
        """Every id, or those whose metadata names this ``source``."""
        if source is None:
            return [row[0] for row in self._rows("SELECT id FROM documents ORDER BY key")]
        sql = "SELECT id FROM documents WHERE json_extract(metadata, '$.source') = ? ORDER BY key"
        return [row[0] for row in self._rows(sql, source)]

    def changes(self, since: int, *, texts: bool = True, vectors: bool = True) -> Iterator[list[Change]]:
        """What happened after transaction ``since``, the last operation per key, in batches; deletions first.

        Texts and vectors are read only when asked for. Each batch is read in a snapshot of its own, so a writer is never
        blocked; what it adds meanwhile has a higher number and is simply seen again next time.
        """
        for part in batched(self._rows("SELECT key FROM tombstones WHERE seq > ?", since), 5000):
            yield [Change(key, None, None) for (key,) in part]
        columns = "d.id, d.text, d.metadata" if texts else "d.id, '', '{}'"
        sql = f"""SELECT d.key, {columns}, {"v.vector" if vectors else "NULL"}
            FROM documents d {"LEFT JOIN vectors v ON v.key = d.key" if vectors else ""}
            WHERE d.key IN (%s) ORDER BY d.key"""
        keys = (row[0] for row in self._rows("SELECT key FROM documents WHERE seq > ? ORDER BY key", since))
        for part in batched(keys, _VARIABLES):
            yield [Change(row[0], _document(row[1:4]), row[4]) for row in self._rows(sql % _marks(part), *part)]

    def check(self) -> list[str]:
        """SQLite's own integrity check: a list of complaints, empty when sound."""
        return [row[0] for row in self._rows("PRAGMA quick_check") if row[0] != "ok"]

    # ── writing (the caller holds the writer lock) ───────────────────────────────────────────────────────────────

    def unchanged(self, prepared: Sequence[Prepared]) -> list[bool]:
        """Whether each document is stored just so already."""
        stored = self._digests([item.document.id for item in prepared])
        return [stored.get(item.document.id, (0, b""))[1] == item.digest for item in prepared]

    def upsert(self, prepared: Sequence[Prepared], vectors: Sequence[bytes] | None = None) -> AddResult:
        """Write documents, and their vectors where given, in one durable transaction.

        The ids of one call must differ. A document written without its vector loses the one that it had.
        """
        known = self._digests([item.document.id for item in prepared])
        insert = "INSERT INTO documents (text, metadata, digest, seq, id) VALUES (?,?,?,?,?)"
        update = "UPDATE documents SET text=?, metadata=?, digest=?, seq=? WHERE id=?"
        with self.transaction() as (connection, seq):
            keys = []
            for item in prepared:
                row = (item.document.text, item.metadata, item.digest, seq, item.document.id)
                stored = known.get(item.document.id)
                cursor = connection.execute(update if stored else insert, row)
                keys.append(stored[0] if stored else cursor.lastrowid)
            if vectors is None:
                connection.executemany("DELETE FROM vectors WHERE key=?", ((key,) for key, _ in known.values()))
            else:
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", zip(keys, vectors, strict=True))
        return AddResult(added=len(prepared) - len(known), updated=len(known))

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
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", values.items())

    @contextmanager
    def transaction(self, *, advance: bool = True) -> Iterator[tuple[sqlite3.Connection, int]]:
        """One durable transaction and its sequence number."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                seq = self.sequence() + advance
                if advance:
                    connection.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (str(seq),))
                yield connection, seq
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the idle connections of this process."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _digests(self, ids: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        found: dict[str, tuple[int, bytes]] = {}
        for part in batched(ids, _VARIABLES):
            sql = f"SELECT id, key, digest FROM documents WHERE id IN ({_marks(part)})"
            found.update((row[0], (row[1], row[2])) for row in self._rows(sql, *part))
        return found

    def _row(self, sql: str, *values: object) -> Any:
        with self._connection() as connection:
            return connection.execute(sql, values).fetchone()

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(sql, values).fetchall()

    def _pages(self, select: str, size: int = 2000) -> Iterator[Any]:
        """Rows of a large table in the order of ``key``, their first column, without holding a read open between pages."""
        key = 0
        while page := self._rows(f"{select} WHERE key > ? ORDER BY key LIMIT {size}", key):
            yield from page
            key = page[-1][0]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; any thread may have it next. Errors of SQLite are told in terms of the file."""
        try:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            connection = connection or self._connect()
            try:
                yield connection
            finally:
                with self._guard:
                    self._idle.append(connection)
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptStoreError(
                f"{self._path} is damaged ({error}); restore it from a backup, or delete the dataset and index it again"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _document(row: tuple[str, str, str]) -> Document:
    return Document(row[0], row[1], json.loads(row[2]))
