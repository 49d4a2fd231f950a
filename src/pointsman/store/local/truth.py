"""The truth of one dataset: a SQLite file that every index is derived from.

A write is acknowledged when its transaction is on disk (WAL, ``synchronous=FULL``). Each transaction takes the next
*sequence number* and stamps it on the documents it touches; a deletion leaves a tombstone with that number. The
operation log therefore holds only the last operation on each key, never needs trimming, and answers "everything since
number n" with one indexed lookup. An index that remembers the number it has applied can always catch up.

Everything has a checksum: a document's text and metadata (``digest``); its whole row, with id, key and sequence number;
a vector with its key; each value of ``meta`` with its name. Checksums are verified on read. Rows written by versions
without checksums have none until they are written again. Indexes have none, so a tally says what they have to list
(`pointsman.store.local.tally`).
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import sqlite3
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import xxhash

from pointsman._batched import batched
from pointsman._sqlite import SQLITE_ERRORS, damage, error_code
from pointsman.errors import CorruptStoreError, LockedError, ReplacedError, StoreError
from pointsman.store.local import history
from pointsman.store.local.files import full, make_private, room, steady, store_error, sync_directory
from pointsman.store.local.tally import Tally, TallyName, ids_hash, mix_sum, sum_over
from pointsman.store.prepared import UNREADABLE, document_of, storable
from pointsman.types import AddResult
from pointsman.views import ACCESS, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.store.local.history import PastRow
    from pointsman.store.prepared import Prepared
    from pointsman.types import Document

log = logging.getLogger(__name__)

NO_VECTOR: Final = b""
"""In place of a vector: the document has none, and loses the one that it had."""

# Metadata that SQLite cannot parse as JSON, e.g. nested a thousand levels deep, counts as having no source.
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

_CHECKED, _WITH_TALLY = 2, 5  # SQLite's ``user_version`` of a file whose ``meta`` has checksums, and one with a tally
_DIGEST, _ROW_CHECK, _VECTOR_CHECK = 16, 6, 7  # bytes; lengths that one flipped bit cannot turn into one another
_NUMBER = 4  # bytes per number in a vector
_VARIABLES = 500  # bound parameters per statement; every SQLite allows 999
_PAGE = 2000  # rows read at a time from a whole table or the log
_BUSY_SECONDS = 10.0
_IDLE = 8  # connections kept open for the next caller
_SETTINGS = """
PRAGMA synchronous = FULL;
PRAGMA cache_size = -8000;
PRAGMA mmap_size = 1073741824;
"""
# A file that was opened for reading only begins a transaction without complaint; the second statement changes nothing,
# and complains.
_BEGIN = "BEGIN IMMEDIATE; DELETE FROM meta WHERE false;"
_ALONE = "PRAGMA locking_mode = EXCLUSIVE;"


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The last operation on a key; ``document`` is None for a deletion."""

    key: int
    document: Document | None


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """What a dataset keeps of its former versions.

    Attributes:
        days: for how many days.
        first_sequence: the first sequence number of which everything is kept.
    """

    days: int
    first_sequence: int


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """Keys that no longer have a vector; keys that have one, and those vectors, concatenated."""

    gone: list[int]
    keys: list[int]
    vectors: bytes


def _row_check(key: int, seq: int, id_: str, metadata: str, content: bytes) -> bytes:
    """Return the checksum of a row without its text, which ``content``, the digest, covers."""
    return xxhash.xxh3_64_digest(f"{key}\n{seq}\n{len(id_)}\n{id_}{metadata}".encode() + content)[:_ROW_CHECK]


def _vector_check(key: int, vector: bytes) -> bytes:
    return xxhash.xxh3_64_digest(b"%d\n" % key + vector)[:_VECTOR_CHECK]


def _meta_check(name: str, value: str) -> str:
    return xxhash.xxh3_64_hexdigest(f"{name}\n{value}")


def value_of(name: str, raw: object, *, checked: bool) -> str:
    """Return a value of ``meta`` after verifying its checksum, which may be missing unless ``checked``.

    Raises:
        ValueError: the value differs from what was written.
    """
    if isinstance(raw, str):
        value, _, check = raw.rpartition("\n")
        if check == _meta_check(name, value):
            return value
        if not checked:
            return raw
    raise ValueError(f"the value of {name!r:.40} does not match its checksum")


def document_in(row: Sequence[Any]) -> Document:
    """Return the document in the columns of `ROW` after verifying its checksums.

    Raises:
        ValueError: the row differs from what was written.
    """
    id_, text, metadata, digests, seq, key = row
    try:
        content, check = digests[:_DIGEST], digests[_DIGEST:]
        if check and check != _row_check(key, seq, id_, metadata, content):
            raise ValueError("the row does not match its checksum")
        return document_of(id_, text, metadata, content)
    except UNREADABLE as error:
        raise ValueError(f"document {id_!r:.80}, key {key!r:.20}: {error}") from error


def vector_of(key: int, raw: object) -> bytes:
    """Return the vector in a row after verifying its checksum.

    Raises:
        ValueError: the vector differs from what was written.
    """
    if isinstance(raw, bytes):
        if len(raw) % _NUMBER == 0:  # written by a version without checksums
            return raw
        vector = raw[:-_VECTOR_CHECK]
        if raw[-_VECTOR_CHECK:] == _vector_check(key, vector):
            return vector
    raise ValueError(f"the vector of key {key!r:.20} does not match its checksum")


class _Connection(sqlite3.Connection):
    """A SQLite connection with flags."""

    alone = False
    """Whether it locks the file exclusively until it is closed."""
    immutable = False
    """Whether it takes the file for unchangeable, since its directory could not be written to."""


class Truth:
    """The SQLite file of one dataset. Any thread and process may read; one may write at a time.

    Args:
        path: the file.
        create: create the file if it is missing; otherwise a missing file is an error.

    Attributes:
        identity: drawn at random when the file is created; derived indexes carry it, so a foreign one is recognised.

    Raises:
        CorruptStoreError: the file is damaged or missing.
        StoreError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._process = os.getpid()
        self._idle: list[_Connection] = []
        # for callers that never call close
        weakref.finalize(self, _close_all, self._idle, path.parent, os.getpid()).atexit = False
        self.identity = ""
        self._checked = True  # whether the values of ``meta`` have checksums
        self._has_tally = True  # whether there is a tally
        self._sound_indexes: set[TallyName] = set()  # indexes that listed in this process what they should
        self._metas: tuple[list[Any], Mapping[str, str]] = [], {}  # rows of ``meta`` as last read, and their values
        self._take_back(self._connect(create=create))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self._row("SELECT count(*) FROM documents")[0])

    def sequence(self) -> int:
        """Return the number of the last committed transaction; 0 before the first."""
        return int(self.meta("seq") or 0)

    def changed_since(self, seq: int, most: int) -> int:
        """Return the number of documents written or deleted after transaction ``seq``, counting at most ``most``."""
        changes = "SELECT 1 FROM documents WHERE seq > ? UNION ALL SELECT 1 FROM tombstones WHERE seq > ?"
        return int(self._row(f"SELECT count(*) FROM ({changes} LIMIT ?)", seq, seq, most)[0])

    def meta(self, name: str) -> str | None:
        """Return a value stored beside the documents, or None."""
        row = self._row(_META, name)
        return self.metas().get(name) if row is None else self._value(name, row[0])

    def metas(self) -> Mapping[str, str]:
        """Return all values stored beside the documents, including the sequence number (``seq``)."""
        rows, last = self._rows("SELECT name, value FROM meta"), self._metas
        if rows != last[0]:  # else they have been verified
            values = {name: self._value(name, value) for name, value in rows}
            if self._has_tally and ("tally" not in values or Tally.of(values["tally"]).notes != len(values)):
                raise self._damaged("values of its table 'meta' are missing")
            last = self._metas = rows, values
        return last[1]

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Return documents by key in the given order, None for deleted ones."""
        documents: dict[int, Document] = {}
        for start in range(0, len(keys), _VARIABLES):
            batch = keys[start : start + _VARIABLES]
            sql = f"SELECT {ROW} FROM documents WHERE key IN ({_marks(batch)})"
            documents.update([(row[-1], self._document(row)) for row in self._rows(sql, *batch)])
        if missing := [key for key in keys if key not in documents]:
            self._check_gone(missing)
        return list(map(documents.get, keys))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return documents by id in the given order, None for unknown ids."""
        documents: dict[str, Document] = {}
        for batch in batched(filter(storable, ids), _VARIABLES):
            sql = f"SELECT {ROW} FROM documents WHERE id IN ({_marks(batch)})"
            documents.update((row[0], self._document(row)) for row in self._rows(sql, *batch))
        if any(id_ not in documents for id_ in ids):
            self._trust("ids")
        return [documents.get(id_) for id_ in ids]

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the keys of the ids that exist."""
        return {id_: key for id_, (key, _, _) in self._stored(ids).items()}

    def all_keys(self) -> list[int]:
        """Return the keys of all documents, ascending."""
        return [key for (key,) in self._rows("SELECT key FROM documents ORDER BY key")]

    def is_empty(self) -> bool:
        """Whether there are no documents."""
        return self._row("SELECT 1 FROM documents LIMIT 1") is None

    def documents(self) -> Iterator[Document]:
        """Yield every document in the order of first arrival; concurrent writes may or may not be included."""
        return map(self._document, self._pages(f"SELECT {ROW} FROM documents"))

    def page(self, after: int, limit: int) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents with keys above ``after`` and the key to continue after, None at the end."""
        sql = f"SELECT {ROW} FROM documents WHERE key > ? ORDER BY key LIMIT ?"
        rows = self._rows(sql, after, limit)
        return list(map(self._document, rows)), rows[-1][-1] if len(rows) == limit else None

    def metadata(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield every key with its metadata."""
        rows = self._pages(f"SELECT {_ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).metadata) for row in rows)

    def fields(self, *, texts: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield every key with the fields that filters see; without ``texts`` the text is empty."""
        rows = self._pages(f"SELECT {ROW if texts else _ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).fields) for row in rows)

    def alive(self) -> Iterator[tuple[int, bool]]:
        """Yield every key and whether it has a vector."""
        sql = "SELECT EXISTS (SELECT 1 FROM vectors v WHERE v.key = documents.key), key FROM documents"
        return ((key, bool(has_vector)) for has_vector, key in self._pages(sql))

    def ids(self, *, source: str | None = None) -> list[str]:
        """Return every id, or those whose metadata names this ``source``."""
        if source is None:
            return [self._id(row) for row in self._rows(f"SELECT {_ROW_WITHOUT_TEXT} FROM documents ORDER BY key")]
        if not storable(source):
            return []
        # SQLite ends a text of JSON at a NUL, and writes a list as text, so what it lists is compared again here.
        sql = f"SELECT {_ROW_WITHOUT_TEXT} FROM documents WHERE {_SOURCE} = ? ORDER BY key"  # exactly as in the index
        ids = []
        for row in self._rows(sql, source.partition("\0")[0]):
            id_, stored_source = self._id(row), self._document(row).metadata.get("source")
            if stored_source == source:
                ids.append(id_)
            elif isinstance(stored_source, str) and "\0" not in stored_source + source:
                # the index has no checksums: a damaged entry leads to another row
                raise self._damaged(f"the index of sources lists document {id_!r:.80} for {source!r:.80}")
        return ids

    def ids_of(self, keys: Sequence[int]) -> list[str]:
        """Return the ids of the keys that exist, in the order of ``keys``."""
        ids: dict[int, str] = {}
        for batch in batched(keys, _VARIABLES):
            sql = f"SELECT {_ROW_WITHOUT_TEXT} FROM documents WHERE key IN ({_marks(batch)})"
            ids.update((row[-1], self._id(row)) for row in self._rows(sql, *batch))
        return [ids[key] for key in keys if key in ids]

    def changes(self, since: int, *, texts: bool = True) -> Iterator[list[DocumentChange]]:
        """Yield the last operation per key after transaction ``since``, in batches, deletions first.

        Texts are read only if ``texts`` is set. Each batch reads its own snapshot, so a writer is never blocked; what
        it changes meanwhile has a higher number and is returned next time.
        """
        for deleted, rows in self._log(since, ROW if texts else _ROW_WITHOUT_TEXT, "documents d"):
            yield [DocumentChange(key, None) for key in deleted] or [
                DocumentChange(row[-1], self._document(row)) for row in rows
            ]

    def permission_rows(self, since: int) -> Iterator[tuple[list[int], list[tuple[int, int, Mapping[str, Any]]]]]:
        """Yield the keys deleted after transaction ``since``, then key, transaction and metadata of what was written.

        Metadata that says nothing of access and validity is not decoded, and left empty.
        """
        for deleted, rows in self._log(since, _ROW_WITHOUT_TEXT, "documents d"):
            yield deleted, [(row[-1], row[-2], self._metadata_for_views(row)) for row in rows]

    def _metadata_for_views(self, row: Sequence[Any]) -> Mapping[str, Any]:
        if isinstance(row[2], str) and not any(key in row[2] for key in _FOR_VIEWS):
            self._id(row)  # verifies the row
            return {}
        return self._document(row).metadata

    def vector_changes(self, since: int) -> Iterator[VectorChanges]:
        """Yield the changes of vectors after transaction ``since`` in the same way."""
        for deleted, rows in self._log(since, "v.vector, d.seq, d.key", _VECTORS_OF):
            live = [row for row in rows if row[0] is not None]
            removals = deleted or [row[-1] for row in rows if row[0] is None]
            vectors = b"".join([self._vector(row[-1], row[0]) for row in live])
            yield VectorChanges(removals, [row[-1] for row in live], vectors)

    def _log(self, since: int, columns: str, tables: str) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield pages of the keys deleted after transaction ``since``, then pages of the rows written since.

        ``columns`` must end with the document's sequence number and key.
        """
        upto = self.sequence()
        if since < upto:
            self._trust("writes")
            self._trust("deletions")
        deleted = self._rows("SELECT key FROM tombstones WHERE seq > ? AND seq <= ?", since, upto) if since else []
        for batch in batched(deleted, _PAGE):
            yield [key for (key,) in batch], []
        # The unary + keeps SQLite from scanning the whole table in key order to find a few changes.
        sql = f"""SELECT {columns} FROM {tables}
            WHERE d.seq >= ? AND d.seq <= ? AND (d.seq > ? OR +d.key > ?) ORDER BY d.seq, d.key LIMIT {_PAGE}"""
        seq, key = since + 1, 0
        while rows := self._rows(sql, seq, upto, seq, key):
            yield [], rows
            seq, key = rows[-1][-2:]

    def check(self) -> list[str]:
        """Run SQLite's integrity check and verify every checksum; return up to 10 complaints, none if all is well."""
        complaints = [row[0] for row in self._rows("PRAGMA integrity_check(10)") if row[0] != "ok"]
        if complaints:
            return complaints
        for name, value in self._rows("SELECT name, value FROM meta"):
            complaints += _complaint(self._value, name, value)
        for row in self._pages(f"SELECT {ROW} FROM documents"):
            complaints += _complaint(self._document, row)
        for vector, key in self._pages("SELECT vector, key FROM vectors"):
            complaints += _complaint(self._vector, key, vector)
        for index_name in ("ids", "writes", "deletions"):
            self._sound_indexes.discard(index_name)
            complaints += _complaint(self._trust, index_name)
        last = self.sequence()
        complaints += self._check_history(last)
        for table in ("documents", "tombstones"):
            if (self._row(f"SELECT max(seq) FROM {table}")[0] or 0) > last:
                complaints.append(f"{table} have sequence numbers beyond the last")
        documents, tombstones = self._row("SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM tombstones)")
        if missing := self._row(_LAST_KEY)[0] - documents - tombstones:  # keys are assigned consecutively
            complaints.append(f"{missing} documents are not there, and were not deleted")
        return complaints[:10]

    # ── what it was before (see `pointsman.store.local.history`) ─────────────────────────────────────────────────

    def kept_versions(self) -> KeptVersions | None:
        """Return what is kept of former versions; None in a dataset that keeps none."""
        values = self.metas()
        if history.KEPT_DAYS not in values:
            return None
        return KeptVersions(int(values[history.KEPT_DAYS]), int(values[history.KEPT_FROM]))

    def moment(self, seq: int) -> float | None:
        """Return when a transaction was committed, in seconds since 1970; None if that is not known."""
        with self._connection() as connection:
            return history.moment_of(connection, seq)

    def states(self, first: int, second: int) -> list[tuple[int, PastRow | None]]:
        """Return, by key, the documents at the second of two sequence numbers of which the states may differ.

        Their rows and vectors are verified; None for a key without a document at that time.
        """
        with self._connection() as connection:
            connection.execute("BEGIN")  # one state of all tables
            try:
                keys = history.changed_keys(connection, first, second)
                rows = {row.key: row for row in history.state_at(connection, keys, second)}
            finally:
                connection.execute("ROLLBACK")
        for row in rows.values():
            self._document((row.id, row.text, row.metadata, row.digest, row.seq, row.key))
        vectors = {key: row.vector and self._vector(key, row.vector) for key, row in rows.items()}
        return [(key, rows[key]._replace(vector=vectors[key]) if key in rows else None) for key in keys]

    def former_notes(self) -> list[dict[str, str]]:
        """Return the notes as they are, then as they were before each change of one, latest first."""
        with self._connection() as connection:
            return list(history.former_notes(connection, self.metas()))

    def _check_history(self, last: int) -> list[str]:
        retention = self.kept_versions()
        if retention is None:
            return []
        complaints = []
        columns = "id, text, metadata, digest, seq, vector, key, rowid"
        sql = f"SELECT {columns} FROM history WHERE rowid > ? ORDER BY rowid LIMIT {_PAGE}"
        rowid = 0
        while rows := self._rows(sql, rowid):
            for *row, vector, key, _ in rows:
                complaints += _complaint(self._document, (*row, key))
                complaints += _complaint(self._vector, key, vector) if vector else []
            rowid = rows[-1][-1]
        with self._connection() as connection:
            complaints += history.complaints(connection, retention.first_sequence, last)
        return complaints

    # ── writing (the caller holds the writer lock) ───────────────────────────────────────────────────────────────

    def upgrade(self) -> None:
        """Add what a file of an earlier version lacks: the index of sources and the checksums of ``meta``."""
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
        """Return whether each document is already stored unchanged and, if ``with_vectors``, has a vector."""
        existing = self._stored([item.document.id for item in prepared])
        is_same = self._same(existing, prepared, None)
        if not with_vectors:
            return is_same
        ids_with_vector = self._embedded(existing)
        return [equal and item.document.id in ids_with_vector for equal, item in zip(is_same, prepared, strict=True)]

    def embedded(self, ids: Sequence[str]) -> set[str]:
        """Return the ids of documents that have a vector."""
        return self._embedded(self._stored(ids))

    def _embedded(self, existing: Mapping[str, tuple[int, bytes, int]]) -> set[str]:
        """Return those of `_stored` that have a vector."""
        keys: set[int] = set()
        for batch in batched((key for key, _, _ in existing.values()), _VARIABLES):
            keys.update(key for (key,) in self._rows(f"SELECT key FROM vectors WHERE key IN ({_marks(batch)})", *batch))
        return {id_ for id_, (key, _, _) in existing.items() if key in keys}

    def upsert(self, prepared: Sequence[Prepared], vectors: Sequence[bytes | None] | None = None) -> AddResult:
        """Write documents, and vectors if given, in one durable transaction; skip documents stored unchanged.

        Ids must be unique within a call. Without ``vectors``, documents lose the ones they had; one for which
        ``vectors`` has None keeps it, and one for which it has `NO_VECTOR` loses it.
        """
        existing = self._stored([item.document.id for item in prepared])
        fresh = [number for number, is_same in enumerate(self._same(existing, prepared, vectors)) if not is_same]
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
            old_seqs = {existing[row[4]][0]: existing[row[4]][2] for row in old}
            keys_with_vector = {
                key for key, number in zip(keys, fresh, strict=True) if vectors is None or vectors[number] is not None
            }
            self._keep(connection, list(old_seqs), seq, keys_with_vector)
            connection.executemany("UPDATE documents SET text=?, metadata=?, digest=?, seq=?, id=? WHERE key=?", old)
            insert = "INSERT INTO documents (text, metadata, digest, seq, id, key) VALUES (?,?,?,?,?,?)"
            new = [row for row in rows if row[4] not in existing]
            connection.executemany(insert, new)
            blobs = list(
                zip(keys, (NO_VECTOR if vectors is None else vectors[number] for number in fresh), strict=True)
            )
            vector_keys = [(key,) for key, vector in blobs if vector is not None and key in old_seqs]
            removal_count = (
                connection.executemany("DELETE FROM vectors WHERE key=?", vector_keys).rowcount if vector_keys else 0
            )
            sealed_blobs = [(key, vector + _vector_check(key, vector)) for key, vector in blobs if vector]
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", sealed_blobs)
            self._add_up(
                connection,
                ids=ids_hash((row[5], row[4]) for row in new),
                writes=mix_sum((key, seq) for key in keys) - mix_sum(old_seqs.items()),
                vectors=len(sealed_blobs) - removal_count,
            )
        return result + AddResult(added=len(rows) - len(old), updated=len(old))

    def delete(self, ids: Sequence[str]) -> int:
        """Delete by id in one durable transaction; ignore unknown ids. Return the number of deleted documents."""
        existing = self._stored(ids)
        if existing:
            keys = [(key,) for key, _, _ in existing.values()]
            with self.transaction() as (connection, seq):
                self._keep(connection, [key for (key,) in keys], seq, {key for (key,) in keys})
                connection.executemany("DELETE FROM documents WHERE key=?", keys)
                removal_count = connection.executemany("DELETE FROM vectors WHERE key=?", keys).rowcount
                connection.executemany("INSERT INTO tombstones VALUES (?,?)", ((key, seq) for (key,) in keys))
                self._add_up(
                    connection,
                    ids=-ids_hash((key, id_) for id_, (key, _, _) in existing.items()),
                    writes=-mix_sum((key, old_seq) for key, _, old_seq in existing.values()),
                    deletions=mix_sum((key, seq) for (key,) in keys),
                    vectors=-removal_count,
                )
        return len(existing)

    def _add_up(
        self,
        connection: _Connection,
        *,
        ids: int = 0,
        writes: int = 0,
        deletions: int = 0,
        vectors: int = 0,
        notes: int = 0,
    ) -> None:
        """Add what a transaction changes to the tally, inside it."""
        change = Tally(ids, writes, deletions, vectors, notes)
        if self._has_tally and change != Tally():
            tally = self._tally(connection) + change
            connection.execute("UPDATE meta SET value=? WHERE name='tally'", (_with_check("tally", str(tally)),))

    def _tally(self, connection: _Connection) -> Tally:
        row = connection.execute(_META, ("tally",)).fetchone()
        if row is None:
            raise self._damaged("it has no tally")
        return Tally.of(self._value("tally", row[0]))

    def check_vectors(self, seq: int, count: int) -> None:
        """Check the number of vectors that were read as of a sequence number; not if that is no longer the last one.

        Raises:
            CorruptStoreError: others were written.
        """
        values = self.metas()
        if self._has_tally and int(values.get("seq", 0)) == seq and Tally.of(values["tally"]).vectors != count:
            raise self._damaged(f"{count} vectors can be read, and {Tally.of(values['tally']).vectors} were written")

    def _trust(self, index_name: TallyName) -> None:
        """Check, once in each process, that an index lists what was written.

        Raises:
            CorruptStoreError: it hides something, or lists something else.
        """
        if not self._has_tally or index_name in self._sound_indexes:
            return
        with self._connection() as connection:
            connection.execute("BEGIN")  # one state of both
            try:
                is_right = sum_over(connection, index_name) == getattr(self._tally(connection), index_name)
            finally:
                connection.execute("ROLLBACK")
        if not is_right:
            raise self._damaged(f"the index of its {index_name} does not list what was written")
        self._sound_indexes.add(index_name)

    def set_meta(self, **values: str) -> None:
        """Store values beside the documents, durably."""
        with self.transaction(advance=False) as (connection, seq):
            if self._kept_days(connection):
                history.note_former(connection, seq, {name: self._meta_in(connection, name) for name in values})
            self._put_meta(connection, values)

    def _put_meta(self, connection: _Connection, values: Mapping[str, str]) -> None:
        """Store values beside the documents, inside a transaction."""
        names = f"SELECT count(*) FROM meta WHERE name IN ({_marks(list(values))})"
        self._add_up(connection, notes=len(values) - connection.execute(names, tuple(values)).fetchone()[0])
        rows = [(name, _with_check(name, value)) for name, value in values.items()]
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", rows)

    def _remove_meta(self, connection: _Connection, names: Sequence[str]) -> None:
        """Remove values stored beside the documents, inside a transaction."""
        for name in names:
            self._add_up(connection, notes=-connection.execute("DELETE FROM meta WHERE name=?", (name,)).rowcount)

    def _meta_in(self, connection: _Connection, name: str) -> str | None:
        """Return a value stored beside the documents, inside a transaction."""
        row = connection.execute(_META, (name,)).fetchone()
        return None if row is None else self._value(name, row[0])

    def keep_versions(self, days: int) -> None:
        """Keep what is replaced and deleted from now on for so many days; 0: keep nothing, and delete what was kept."""
        with self.transaction(advance=False) as (connection, seq):
            if not days:
                self._remove_meta(connection, [history.KEPT_DAYS, history.KEPT_FROM, history.RECEIPT_KEY])
                statements, values = history.NO_TABLES, {}
            else:
                statements, values = history.TABLES, {history.KEPT_DAYS: str(days)}
                if self._kept_days(connection) is None:
                    values |= {history.KEPT_FROM: str(seq), history.RECEIPT_KEY: secrets.token_hex(16)}
            for statement in statements.split(";"):
                connection.execute(statement)
            if values:
                self._put_meta(connection, values)
            if history.KEPT_FROM in values:
                history.note_moment(connection, seq, time.time())

    def become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        """Make some keys have these documents, or none, and these notes only, in one durable transaction.

        For a copy of a dataset that keeps versions; it forgets what was before.
        """
        keys = [key for key, _ in states]
        rows = [row for _, row in states if row is not None]
        absent_keys = [key for key, row in states if row is None]
        with self.transaction() as (connection, seq):
            old_rows, old_tombstones, old_vectors = [], [], 0
            for batch in batched(keys, _VARIABLES):
                condition = f"WHERE key IN ({_marks(batch)})"
                old_rows += connection.execute(f"SELECT key, id, seq FROM documents {condition}", batch).fetchall()
                old_tombstones += connection.execute(f"SELECT key, seq FROM tombstones {condition}", batch).fetchall()
                old_vectors += connection.execute(f"DELETE FROM vectors {condition}", batch).rowcount
                for table in ("documents", "tombstones"):
                    connection.execute(f"DELETE FROM {table} {condition}", batch)
            connection.executemany(
                "INSERT INTO documents (text, metadata, digest, seq, id, key) VALUES (?,?,?,?,?,?)",
                [(row.text, row.metadata, _reseal(row, seq), seq, row.id, row.key) for row in rows],
            )
            blobs = [(row.key, row.vector + _vector_check(row.key, row.vector)) for row in rows if row.vector]
            connection.executemany("INSERT INTO vectors VALUES (?,?)", blobs)
            connection.executemany("INSERT INTO tombstones VALUES (?,?)", [(key, seq) for key in absent_keys])
            self._add_up(
                connection,
                ids=ids_hash((row.key, row.id) for row in rows) - ids_hash((key, id_) for key, id_, _ in old_rows),
                writes=mix_sum((row.key, seq) for row in rows) - mix_sum((key, old) for key, _, old in old_rows),
                deletions=mix_sum((key, seq) for key in absent_keys) - mix_sum(old_tombstones),
                vectors=len(blobs) - old_vectors,
            )
            names = [name for (name,) in connection.execute("SELECT name FROM meta")]
            self._remove_meta(connection, [name for name in names if name not in {*notes, *history.UNNOTED}])
            self._put_meta(connection, {**notes, history.KEPT_FROM: str(seq)})
            history.forget(connection)

    def _kept_days(self, connection: _Connection) -> int | None:
        days = self._meta_in(connection, history.KEPT_DAYS)
        return None if days is None else int(days)

    def _keep(self, connection: _Connection, keys: Sequence[int], seq: int, with_vector: set[int]) -> None:
        """Keep rows that a transaction is about to replace or delete, in a dataset that keeps versions."""
        if keys and self._kept_days(connection) is not None:
            history.keep(connection, keys, seq, with_vector)

    def _note_moment(self, connection: _Connection, seq: int) -> None:
        """Note the time of a transaction, and delete what has expired, in a dataset that keeps versions."""
        days = self._kept_days(connection)
        if days is None:
            return
        now = time.time()
        history.note_moment(connection, seq, now)
        since = int(self._meta_in(connection, history.KEPT_FROM) or 0)
        oldest = history.current_at(connection, now - days * history.DAY_SECONDS)
        if oldest > since:
            self._put_meta(connection, {history.KEPT_FROM: str(oldest)})
        history.purge(connection, max(oldest, since))

    @contextmanager
    def transaction(self, *, advance: bool = True) -> Iterator[tuple[_Connection, int]]:
        """Open a durable transaction; yield its connection and sequence number."""
        connection = self._begin()
        try:
            row = connection.execute(_META, ("seq",)).fetchone()
            seq = (int(self._value("seq", row[0])) if row else 0) + advance
            if advance:
                self._add_up(connection, notes=row is None)
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (_with_check("seq", str(seq)),))
                self._note_moment(connection, seq)
            yield connection, seq
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:  # some errors have already rolled it back
                connection.execute("ROLLBACK")
            if isinstance(error, SQLITE_ERRORS):
                raise self._translated_error(error) from error
            raise
        finally:
            self._take_back(connection)

    def _begin(self) -> _Connection:
        """Return a connection within a transaction.

        If SQLite could not write to the file when it opened it, that connection only ever reads: it is opened again.
        """
        connection = self._lend()
        try:
            connection.executescript(_BEGIN)
        except SQLITE_ERRORS as error:
            _close(connection, self._path.parent)
            if error_code(error) != sqlite3.SQLITE_READONLY:
                raise self._translated_error(error) from error
        else:
            return connection
        _close_all(self._idle, self._path.parent, self._process)
        connection = self._connect()
        try:
            connection.executescript(_BEGIN)
        except SQLITE_ERRORS as error:
            _close(connection, self._path.parent)
            raise self._translated_error(error) from error
        return connection

    def copy(self, path: Path) -> None:
        """Write a consistent copy to a new file, even while others read and write."""
        make_private(path)
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
        """Create the tables; several processes may do so at once, and the first one's identity is kept."""
        identity = _with_check("identity", uuid.uuid4().hex)
        tally = _with_check("tally", str(Tally(notes=2)))  # itself and the identity
        birth = (
            f"INSERT OR IGNORE INTO meta VALUES ('identity', '{identity}'), ('tally', '{tally}'); "
            f"PRAGMA user_version = {_WITH_TALLY};"
        )
        # An 8 KB page holds five vectors of 384 numbers with little waste; the page size can only be set on a new file.
        settings = "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;"
        connection.executescript(f"{settings} BEGIN IMMEDIATE; {_SCHEMA} {birth} COMMIT;")
        sync_directory(self._path.parent)

    def _how(self, *, create: bool) -> str:
        """Return the URI option to open the file with; in a read-only directory SQLite tracks no readers.

        Raises:
            StoreError: the last writer was interrupted, and its newest writes are in a log that cannot be applied.
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
        self,
        existing: Mapping[str, tuple[int, bytes, int]],
        prepared: Sequence[Prepared],
        vectors: Sequence[bytes | None] | None,
    ) -> list[bool]:
        """Return whether each document, and its vector if one is given, equals the stored one."""
        is_same = [existing.get(item.document.id, (0, b"", 0))[1][:_DIGEST] == item.digest for item in prepared]
        if vectors is None or not any(is_same):
            return is_same
        old_vectors: dict[int, bytes] = {}
        for batch in batched((key for key, _, _ in existing.values()), _VARIABLES):
            rows = self._rows(f"SELECT key, vector FROM vectors WHERE key IN ({_marks(batch)})", *batch)
            old_vectors.update((key, self._vector(key, vector)) for key, vector in rows)
        return [
            equal and (not vector or old_vectors.get(existing[item.document.id][0]) == vector)
            for equal, item, vector in zip(is_same, prepared, vectors, strict=True)
        ]

    def _stored(self, ids: Sequence[str]) -> dict[str, tuple[int, bytes, int]]:
        """Return key, digest and sequence number of the ids that exist."""
        self._trust("ids")
        existing: dict[str, tuple[int, bytes, int]] = {}
        for batch in batched(filter(storable, ids), _VARIABLES):
            sql = f"SELECT id, key, digest, seq FROM documents WHERE id IN ({_marks(batch)})"
            existing.update((id_, tuple(stored)) for id_, *stored in self._rows(sql, *batch))
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
        """Yield the rows of a large table by ``key``, their last column; no read stays open between pages."""
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
        """Return an idle or new connection for any thread (appending to a list and popping from it are atomic)."""
        if self._process != os.getpid():
            raise StoreError(
                f"{self._path} was opened by process {self._process} and this is its fork, {os.getpid()}; "
                "open datasets after forking, or start processes with the method 'spawn'"
            )
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._connect()
        if connection.immutable and os.access(self._path.parent, os.W_OK, effective_ids=True):  # others may write now
            _close(connection, self._path.parent)
            return self._lend()
        return connection

    def _take_back(self, connection: _Connection) -> None:
        if len(self._idle) < _IDLE and not connection.alone:
            self._idle.append(connection)
        else:
            _close(connection, self._path.parent)

    def _connect(self, *, create: bool = False) -> _Connection:
        """Return a new connection to the same database as the existing ones.

        Raises:
            ReplacedError: another process has deleted or recreated it.
            CorruptStoreError: it is damaged or missing.
        """
        try:
            with steady(self._path.parent) as exists:
                if not (self._path.exists() or (create and exists)):
                    if self.identity:
                        raise self._replaced()
                    raise CorruptStoreError(f"{self._path} is missing; {_REMEDY}")
                uri = self._how(create=create)
                if create and not self._path.exists():
                    make_private(self._path)
                try:
                    connection, identity = self._connect_so(uri, _SETTINGS, create=create)
                except sqlite3.OperationalError as error:
                    if error_code(error) not in _NO_ROOM or create:
                        raise
                    # There is no room for SQLite's shared-memory index of readers. An exclusive lock needs none.
                    connection, identity = self._connect_so(uri, _ALONE + _SETTINGS, create=False)
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
        """Return a connection with these settings, and the identity of its database."""
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?{how}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_SECONDS,
            factory=_Connection,
        )
        connection.immutable = how == "immutable=1"
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
        """Check the file's header and tables, so that any wrong bit in its first page is found."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        encoding = connection.execute("PRAGMA encoding").fetchone()[0]
        vacuum = connection.execute("PRAGMA auto_vacuum").fetchone()[0]
        if version not in {0, _CHECKED, _WITH_TALLY} or encoding != "UTF-8" or vacuum:
            raise self._damaged("its header is damaged")
        self._checked, self._has_tally = version != 0, version == _WITH_TALLY
        is_changed = (
            schema_rows() != _schema_of(connection) if self._checked else connection.execute(_ACTING).fetchone()
        )
        if is_changed:
            raise self._damaged("its tables were changed")

    def _damaged(self, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self._path} is damaged ({what}); {_REMEDY}")

    def _value(self, name: str, raw: object) -> str:
        """Return a value of ``meta`` after verifying its checksum."""
        try:
            return value_of(name, raw, checked=self._checked)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _document(self, row: Sequence[Any]) -> Document:
        """Return the document in the columns of `ROW` after verifying its checksums."""
        try:
            return document_in(row)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _id(self, row: Sequence[Any]) -> str:
        """Return the id in the columns of `_ROW_WITHOUT_TEXT` after verifying its checksum; decode nothing else."""
        id_, _, metadata, digests, seq, key = row
        try:
            if len(digests) in {_DIGEST, _DIGEST + _ROW_CHECK} and (
                len(digests) == _DIGEST or digests[_DIGEST:] == _row_check(key, seq, id_, metadata, digests[:_DIGEST])
            ):
                return str(id_)
        except (TypeError, AttributeError) as error:
            raise self._damaged(f"document {id_!r:.80}, key {key!r:.20}: {error}") from error
        raise self._damaged(f"document {id_!r:.80}, key {key!r:.20}: the row does not match its checksum")

    def _vector(self, key: int, raw: object) -> bytes:
        """Return the vector in a row after verifying its checksum."""
        try:
            return vector_of(key, raw)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _check_gone(self, keys: Sequence[int]) -> None:
        """Check that missing documents have been deleted and not lost.

        Raises:
            CorruptStoreError: the row of a document is lost.
        """
        last = self._row(_LAST_KEY)[0]
        candidates = {key for key in keys if 0 < key <= last}
        for batch in batched(candidates, _VARIABLES):
            candidates.difference_update(
                key for (key,) in self._rows(f"SELECT key FROM tombstones WHERE key IN ({_marks(batch)})", *batch)
            )
        for batch in batched(candidates, _VARIABLES):  # one that was just written is there by now
            candidates.difference_update(
                key for (key,) in self._rows(f"SELECT key FROM documents WHERE key IN ({_marks(batch)})", *batch)
            )
        if candidates:
            raise self._damaged(f"the document of key {min(candidates)} is not there, and was not deleted")

    def _replaced(self) -> ReplacedError:
        return ReplacedError(f"{self._path.parent} was deleted or recreated by another process; open it again")

    def _translated_error(self, error: Exception) -> StoreError:
        """Translate an error of SQLite into one about the file."""
        if (problem := damage(error)) is not None:
            return self._damaged(problem)
        code = error_code(error)
        if code == sqlite3.SQLITE_FULL or (code in _NO_ROOM and not room(self._path.parent)):
            return full(self._path, "nothing of this batch was written; earlier acknowledged writes are kept")
        if code == sqlite3.SQLITE_BUSY:
            return LockedError(f"{self._path} has been in use by another process for more than {_BUSY_SECONDS:.0f} s")
        if code in _NO_ROOM:
            return StoreError(f"{self._path}: {error}; acknowledged writes are kept; check the disk and try again")
        return StoreError(f"{self._path}: {error}")


_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def _close_all(connections: list[_Connection], directory: Path, opened_by: int) -> None:
    while connections and os.getpid() == opened_by:  # after a fork they belong to the parent
        _close(connections.pop(), directory)


def _close(connection: _Connection, directory: Path) -> None:
    try:
        with steady(directory):  # closing the last connection deletes the log by name
            connection.close()
    except StoreError as error:
        log.debug("a connection is closed all the same: %s", error)
        connection.close()


def _sealed(item: Prepared, key: int, seq: int) -> bytes:
    """Return the digest of the content followed by the checksum of the row."""
    return _sealed_row(item.digest, item.document.id, item.metadata, key, seq)


def _sealed_row(content: bytes, id_: str, metadata: str, key: int, seq: int) -> bytes:
    return content + _row_check(key, seq, id_, metadata, content)


def _reseal(row: PastRow, seq: int) -> bytes:
    return _sealed_row(row.digest[:_DIGEST], row.id, row.metadata, row.key, seq)


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
    """Return the tables and indexes as SQLite records them, without the index of sources, which may be added later."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema_of(connection)


def _schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return our tables with all that acts on them, such as triggers, which a foreign backup may have."""
    return frozenset(row for row in connection.execute(_SCHEMA_OF) if row[0] != "documents_source")


_REMEDY = (
    "'pointsman verify --repair' recovers the intact documents; or restore it from a backup, or delete the dataset and "
    "index it again"
)


_FOR_VIEWS = tuple(f'"{key}"' for key in (ACCESS, VALID_FROM, VALID_TO))
_META = "SELECT value FROM meta WHERE name = ?"
ROW = "id, text, metadata, digest, seq, key"
_ROW_WITHOUT_TEXT = "id, NULL, metadata, digest, seq, key"
_VECTORS_OF = "documents d LEFT JOIN vectors v ON v.key = d.key"
_ACTING = "SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')"
_SCHEMA_OF = (
    "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND "
    "(tbl_name IN ('meta', 'documents', 'vectors', 'tombstones') OR type IN ('trigger', 'view'))"
)
_LAST_KEY = "SELECT max(ifnull((SELECT max(key) FROM documents), 0), ifnull((SELECT max(key) FROM tombstones), 0))"


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
