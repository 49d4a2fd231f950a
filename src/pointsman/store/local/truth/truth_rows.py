"""The truth of one dataset: a SQLite file that every index is derived from.

A write is acknowledged when its transaction is on disk (WAL, ``synchronous=FULL``). Each transaction takes the next
*sequence number* and stamps it on the documents it touches; a deletion leaves a tombstone with that number. The
operation log therefore holds only the last operation on each key, never needs trimming, and answers "everything since
number n" with one indexed lookup. An index that remembers the number it has applied can always catch up.

Everything has a checksum: a document's text and metadata (``digest``); its whole row, with id, key and sequence number;
a vector with its key; each value of ``meta`` with its name. Checksums are verified on read. Indexes have none, so a
tally says what they have to list (`pointsman.store.local.truth.tally`).
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman.store.history import KeptVersions
from pointsman.store.local.files_and_locks import make_private
from pointsman.store.local.truth import local_history as history
from pointsman.store.local.truth import sealed_rows as sealed
from pointsman.store.local.truth import truth_file
from pointsman.store.local.truth.document_changes import DocumentChange, VectorChanges
from pointsman.store.local.truth.tally import Tally, TallyName, sum_over
from pointsman.store.prepared_documents import storable
from pointsman.tools.batching import batched
from pointsman.tools.errors import CorruptStoreError, StoreError
from pointsman.tools.system.sqlite_errors import SQLITE_ERRORS
from pointsman.values.views import ACCESS, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pointsman.store.history import PastRow
    from pointsman.values.types import Document


T = TypeVar("T")
VARIABLES = 500  # bound parameters per statement; every SQLite allows 999
_PAGE = 2000  # rows read at a time from a whole table or the log
_IDLE = 8  # connections kept open for the next caller


class Truth:
    """The SQLite file of one dataset, as any thread and process may read it.

    `pointsman.store.local.truth.writable_truth.WritableTruth` writes.

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
        self._idle: list[truth_file.TruthConnection] = []
        # for callers that never call close
        weakref.finalize(self, truth_file.close_all, self._idle, path.parent, os.getpid()).atexit = False
        self.identity = ""
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

    def changed_since(self, seq: int, limit: int) -> int:
        """Return the number of documents written or deleted after transaction ``seq``, counting at most ``limit``."""
        changes = "SELECT 1 FROM documents WHERE seq > ? UNION ALL SELECT 1 FROM tombstones WHERE seq > ?"
        return int(self._row(f"SELECT count(*) FROM ({changes} LIMIT ?)", seq, seq, limit)[0])

    def meta(self, name: str) -> str | None:
        """Return a value stored beside the documents, or None."""
        row = self._row(truth_file.VALUE, name)
        return self.metas().get(name) if row is None else self._value(name, row[0])

    def metas(self) -> Mapping[str, str]:
        """Return all values stored beside the documents, including the sequence number (``seq``)."""
        rows, last = self._rows("SELECT name, value FROM meta"), self._metas
        if rows != last[0]:  # else they have been verified
            values = {name: self._value(name, value) for name, value in rows}
            if "tally" not in values or Tally.of(values["tally"]).notes != len(values):
                raise self._damaged("values of its table 'meta' are missing")
            last = self._metas = rows, values
        return last[1]

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        """Return documents by key in the given order, None for deleted ones."""
        documents: dict[int, Document] = {}
        for start in range(0, len(keys), VARIABLES):
            batch = keys[start : start + VARIABLES]
            rows = self._rows(f"SELECT {sealed.ROW} FROM documents WHERE key IN ({marks(batch)})", *batch)
            documents.update(zip([row[-1] for row in rows], self._documents(rows), strict=True))
        if missing := set(keys) - documents.keys():
            self._check_gone(sorted(missing))
        return list(map(documents.get, keys))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return documents by id in the given order, None for unknown ids."""
        documents: dict[str, Document] = {}
        for batch in batched(filter(storable, ids), VARIABLES):
            sql = f"SELECT {sealed.ROW} FROM documents WHERE id IN ({marks(batch)})"
            documents.update((document.id, document) for document in self._documents(self._rows(sql, *batch)))
        if any(id_ not in documents for id_ in ids):
            self._trust("ids")
        return [documents.get(id_) for id_ in ids]

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the keys of the ids that exist; a row is read for each id, so that time does not tell which do."""
        self._trust("ids")
        keys: dict[str, int] = {}
        for batch in batched(filter(storable, ids), VARIABLES):
            asked_ids = f"(VALUES {','.join(['(?)'] * len(batch))})"
            rows = self._rows(f"SELECT column1, key FROM {asked_ids} LEFT JOIN documents ON id = column1", *batch)
            keys.update((id_, key) for id_, key in rows if key is not None)
        return keys

    def all_keys(self) -> list[int]:
        """Return the keys of all documents, ascending."""
        return [key for (key,) in self._rows("SELECT key FROM documents ORDER BY key")]

    def documents(self) -> Iterator[Document]:
        """Yield every document in the order of first arrival; concurrent writes may or may not be included."""
        return map(self._document, self._pages(f"SELECT {sealed.ROW} FROM documents"))

    def page(self, after: int, limit: int) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents with keys above ``after`` and the key to continue after, None at the end."""
        sql = f"SELECT {sealed.ROW} FROM documents WHERE key > ? ORDER BY key LIMIT ?"
        rows = self._rows(sql, after, limit)
        return self._documents(rows), rows[-1][-1] if len(rows) == limit else None

    def metadata(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield every key with its metadata."""
        rows = self._pages(f"SELECT {sealed.ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).metadata) for row in rows)

    def fields(self, *, texts: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield every key with the fields that filters see; without ``texts`` the text is empty."""
        rows = self._pages(f"SELECT {sealed.ROW if texts else sealed.ROW_WITHOUT_TEXT} FROM documents")
        return ((row[-1], self._document(row).fields) for row in rows)

    def alive(self) -> Iterator[tuple[int, bool]]:
        """Yield every key and whether it has a vector."""
        sql = "SELECT EXISTS (SELECT 1 FROM vectors v WHERE v.key = documents.key), key FROM documents"
        return ((key, bool(has_vector)) for has_vector, key in self._pages(sql))

    def ids(self, *, source: str | None = None) -> list[str]:
        """Return every id, or those whose metadata names this ``source``."""
        if source is None:
            return [
                self._id(row) for row in self._rows(f"SELECT {sealed.ROW_WITHOUT_TEXT} FROM documents ORDER BY key")
            ]
        if not storable(source):
            return []
        # SQLite ends a text of JSON at a NUL, and writes a list as text, so what it lists is compared again here.
        # As in the index.
        sql = f"SELECT {sealed.ROW_WITHOUT_TEXT} FROM documents WHERE {truth_file.SOURCE} = ? ORDER BY key"
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
        for batch in batched(keys, VARIABLES):
            sql = f"SELECT {sealed.ROW_WITHOUT_TEXT} FROM documents WHERE key IN ({marks(batch)})"
            ids.update((row[-1], self._id(row)) for row in self._rows(sql, *batch))
        return [ids[key] for key in keys if key in ids]

    def changes(self, sequence: int, *, texts: bool = True) -> Iterator[list[DocumentChange]]:
        """Yield the last operation per key after transaction ``sequence``, in batches, deletions first.

        Texts are read only if ``texts`` is set. Each batch reads its own snapshot, so a writer is never blocked; what
        it changes meanwhile has a higher number and is returned next time.
        """
        for deleted, rows in self._log(sequence, sealed.ROW if texts else sealed.ROW_WITHOUT_TEXT, "documents d"):
            yield [DocumentChange(key, None) for key in deleted] or [
                DocumentChange(row[-1], document) for row, document in zip(rows, self._documents(rows), strict=True)
            ]

    def permission_rows(self, sequence: int) -> Iterator[tuple[list[int], list[tuple[int, int, Mapping[str, Any]]]]]:
        """Yield the keys deleted after a transaction, then key, transaction and metadata of what was written.

        Metadata that says nothing of access and validity is not decoded, and left empty.
        """
        for deleted, rows in self._log(sequence, sealed.ROW_WITHOUT_TEXT, "documents d"):
            yield deleted, [(row[-1], row[-2], self._metadata_for_views(row)) for row in rows]

    def _metadata_for_views(self, row: Sequence[Any]) -> Mapping[str, Any]:
        if isinstance(row[2], str) and not any(key in row[2] for key in _FOR_VIEWS):
            self._id(row)  # verifies the row
            return {}
        return self._document(row).metadata

    def vector_changes(self, sequence: int) -> Iterator[VectorChanges]:
        """Yield the changes of vectors after transaction ``sequence`` in the same way."""
        for deleted, rows in self._log(sequence, "v.vector, d.seq, d.key", _VECTORS_OF):
            live = [row for row in rows if row[0] is not None]
            removals = deleted or [row[-1] for row in rows if row[0] is None]
            vectors = b"".join(self._vectors([(row[-1], row[0]) for row in live]))
            yield VectorChanges(removals, [row[-1] for row in live], vectors)

    def vectors_of(self, keys: Sequence[int], seq: int) -> tuple[list[int], bytes]:
        """Return those of the keys that have a vector, ascending, and their vectors, concatenated.

        Args:
            keys: of documents that had a vector after transaction ``seq``.
            seq: the number of a transaction.

        Raises:
            CorruptStoreError: a vector is damaged, or is not there although no transaction since has removed it.
        """
        read_keys: list[int] = []
        vectors: list[bytes] = []
        for batch in batched(sorted(keys), _PAGE):
            rows = self._vector_rows(batch)
            read_keys += [key for key, _ in rows]
            vectors += self._vectors(rows)
        if len(read_keys) < len(keys):
            self._check_without_vector(set(keys).difference(read_keys), seq)
        return read_keys, b"".join(vectors)

    def _vector_rows(self, keys: Sequence[int]) -> list[tuple[int, Any]]:
        """Return the rows of some vectors, by key.

        Python lets go of its lock for every row of an answer, and where other threads are busy waits to get it back. So
        all rows are read as one, and divided by their lengths.
        """
        json_keys = json.dumps(list(keys))
        condition = "WHERE key IN (SELECT value FROM json_each(?))"
        columns = "group_concat(key), group_concat(length(vector)), CAST(group_concat(vector, '') AS BLOB)"
        key_list, lengths, content = self._row(f"SELECT {columns} FROM vectors {condition}", json_keys)
        if not key_list:
            return []
        ends = list(itertools.accumulate(map(int, lengths.split(","))))
        return [
            (int(key), content[start:end])
            for key, start, end in zip(key_list.split(","), [0, *ends], ends, strict=False)
        ]

    def _check_without_vector(self, keys: set[int], seq: int) -> None:
        """Check that documents which had a vector after a transaction have been changed or deleted since.

        Raises:
            CorruptStoreError: a vector, or the row of a document, is lost.
        """
        changed_keys: set[int] = set()
        for batch in batched(keys, VARIABLES):
            for key, last_seq in self._rows(f"SELECT key, seq FROM documents WHERE key IN ({marks(batch)})", *batch):
                if last_seq <= seq:
                    raise self._damaged(f"the vector of key {key} is not there, and was not removed")
                changed_keys.add(key)
        self._check_gone(list(keys - changed_keys))

    def _log(self, sequence: int, columns: str, tables: str) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield pages of the keys deleted after transaction ``sequence``, then pages of the rows written since.

        ``columns`` must end with the document's sequence number and key.
        """
        upto = self.sequence()
        if sequence < upto:
            self._trust("writes")
            self._trust("deletions")
        deleted = (
            self._rows("SELECT key FROM tombstones WHERE seq > ? AND seq <= ?", sequence, upto) if sequence else []
        )
        for batch in batched(deleted, _PAGE):
            yield [key for (key,) in batch], []
        # The unary + keeps SQLite from scanning the whole table in key order to find a few changes.
        sql = f"""SELECT {columns} FROM {tables}
            WHERE d.seq >= ? AND d.seq <= ? AND (d.seq > ? OR +d.key > ?) ORDER BY d.seq, d.key LIMIT {_PAGE}"""
        seq, key = sequence + 1, 0
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
        for row in self._pages(f"SELECT {sealed.ROW} FROM documents"):
            complaints += _complaint(self._document, row)
        for batch in batched(self._pages("SELECT vector, key FROM vectors"), VARIABLES):
            rows = [(key, raw) for raw, key in batch]
            if _complaint(self._vectors, rows):
                complaints += itertools.chain.from_iterable(_complaint(self._vectors, [row]) for row in rows)
        for index_name in ("ids", "writes", "deletions"):
            self._sound_indexes.discard(index_name)
            complaints += _complaint(self._trust, index_name)
        last = self.sequence()
        complaints += self._check_history(last)
        for table in ("documents", "tombstones"):
            if self._row(f"SELECT 1 FROM {table} WHERE seq > ? LIMIT 1", last):  # and so is a text or a blob
                complaints.append(f"{table} have sequence numbers beyond the last")
        documents, tombstones = self._row("SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM tombstones)")
        if missing := self._row(LAST_KEY)[0] - documents - tombstones:  # keys are assigned consecutively
            complaints.append(f"{missing} documents are not there, and were not deleted")
        return complaints[:10]

    # ── what it was before: see `pointsman.store.local.truth.local_history` ───────────────────────────────────────

    def kept_versions(self) -> KeptVersions | None:
        """Return what is kept of former versions; None in a dataset that keeps none."""
        values = self.metas()
        if history.KEPT_DAYS not in values:
            return None
        return KeptVersions(int(values[history.KEPT_DAYS]), int(values[history.KEPT_FROM]))

    def moment(self, seq: int) -> float | None:
        """Return when a transaction was committed, in seconds since 1970; None if that is not known."""
        with self._connection() as connection:
            return self._of_history(connection, history.moment_of, connection, seq)

    def states(self, first: int, second: int) -> list[tuple[int, PastRow | None]]:
        """Return, by key, the documents at the second of two sequence numbers of which the states may differ.

        Their rows and vectors are verified; None for a key without a document at that time.
        """
        with self._snapshot() as connection:
            keys = self._of_history(connection, history.changed_keys, connection, first, second)
            rows = {row.key: row for row in history.state_at(connection, keys, second)}
        for key, row in rows.items():
            document = self._document((row.id, row.text, row.metadata, row.digest, row.seq, row.key))
            vector = row.vector and self._vectors([(key, row.vector)])[0]
            rows[key] = row._replace(text=document.text, vector=vector)
        return [(key, rows.get(key)) for key in keys]

    def former_notes(self) -> list[dict[str, str]]:
        """Return the notes as they are, then as they were before each change of one, latest first."""
        with self._connection() as connection:
            return self._of_history(connection, history.former_notes, connection, self.metas())

    def _of_history(self, connection: truth_file.TruthConnection, read: Callable[..., T], *values: object) -> T:
        """Return what is read of kept versions; if that fails, name the row that somebody has changed."""
        try:
            return read(*values)
        except (TypeError, ValueError) as error:
            raise self._damaged(history.changed_row(connection) or str(error)) from error

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
                complaints += _complaint(self._vectors, [(key, vector)]) if vector else []
            rowid = rows[-1][-1]
        with self._connection() as connection:
            complaints += history.complaints(connection, retention.first_sequence, last)
        return complaints

    def embedded(self, ids: Sequence[str]) -> set[str]:
        """Return the ids of documents that have a vector."""
        return self._embedded(self._stored(ids))

    def _embedded(self, existing: Mapping[str, tuple[int, bytes, int]]) -> set[str]:
        """Return those of `_stored` that have a vector."""
        keys: set[int] = set()
        for batch in batched((key for key, _, _ in existing.values()), VARIABLES):
            keys.update(key for (key,) in self._rows(f"SELECT key FROM vectors WHERE key IN ({marks(batch)})", *batch))
        return {id_ for id_, (key, _, _) in existing.items() if key in keys}

    def _tally(self, connection: truth_file.TruthConnection) -> Tally:
        tally = self._meta_in(connection, "tally")
        if tally is None:
            raise self._damaged("it has no tally")
        return Tally.of(tally)

    def check_vectors(self, seq: int, count: int) -> None:
        """Check the number of vectors that were read as of a sequence number; not if that is no longer the last one.

        Raises:
            CorruptStoreError: others were written.
        """
        values = self.metas()
        if int(values.get("seq", 0)) == seq and Tally.of(values["tally"]).vectors != count:
            raise self._damaged(f"{count} vectors can be read, and {Tally.of(values['tally']).vectors} were written")

    def _trust(self, index_name: TallyName) -> None:
        """Check, once in each process, that an index lists what was written.

        Raises:
            CorruptStoreError: it hides something, or lists something else.
        """
        if index_name in self._sound_indexes:
            return
        with self._snapshot() as connection:
            is_right = sum_over(connection, index_name) == getattr(self._tally(connection), index_name)
        if not is_right:
            self._check_rows()
            raise self._damaged(f"the index of its {index_name} does not list what was written")
        self._sound_indexes.add(index_name)

    def _check_rows(self) -> None:
        """Check the rows of documents, but for texts, and of tombstones; the error names a changed one."""
        for row in self._pages(f"SELECT {sealed.ROW_WITHOUT_TEXT} FROM documents"):
            self._id(row)
        if row := self._row(_CHANGED_TOMBSTONE, self.sequence()):
            raise self._damaged(f"the deletion of key {row[0]!r:.20} has the sequence number {row[1]!r:.20}")

    def _meta_in(self, connection: truth_file.TruthConnection, name: str) -> str | None:
        """Return a value stored beside the documents, inside a transaction."""
        row = connection.execute(truth_file.VALUE, (name,)).fetchone()
        return None if row is None else self._value(name, row[0])

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
        truth_file.close_all(self._idle, self._path.parent, self._process)

    def _stored(self, ids: Sequence[str]) -> dict[str, tuple[int, bytes, int]]:
        """Return key, digest and sequence number of the ids that exist."""
        self._trust("ids")
        existing: dict[str, tuple[int, bytes, int]] = {}
        for batch in batched(filter(storable, ids), VARIABLES):
            sql = f"SELECT id, key, digest, seq FROM documents WHERE id IN ({marks(batch)})"
            existing.update((id_, tuple(stored)) for id_, *stored in self._rows(sql, *batch))
        return existing

    def _row(self, sql: str, *values: object) -> Any:
        with self._connection() as connection:
            return connection.execute(sql, values).fetchone()

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(sql, values).fetchall()

    def _pages(self, select: str) -> Iterator[Any]:
        """Yield the rows of a large table by ``key``, their last column; no read stays open between pages."""
        key = -(2**63)  # none is below 1, unless somebody has changed it
        while page := self._rows(f"{select} WHERE key > ? ORDER BY key LIMIT {_PAGE}", key):
            yield from page
            key = page[-1][-1]

    @contextmanager
    def _connection(self) -> Iterator[truth_file.TruthConnection]:
        connection = self._lend()
        try:
            yield connection
        except SQLITE_ERRORS as error:
            raise self._translated_error(error) from error
        finally:
            self._take_back(connection)

    @contextmanager
    def _snapshot(self) -> Iterator[truth_file.TruthConnection]:
        """Within the block, all tables are read as of one moment."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def _lend(self) -> truth_file.TruthConnection:
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
        if connection.immutable and truth_file.can_be_written_beside(self._path):  # others may write now
            truth_file.close(connection, self._path.parent)
            return self._lend()
        return connection

    def _take_back(self, connection: truth_file.TruthConnection) -> None:
        if len(self._idle) < _IDLE and not connection.alone:
            self._idle.append(connection)
        else:
            truth_file.close(connection, self._path.parent)

    def _connect(self, *, create: bool = False) -> truth_file.TruthConnection:
        """Return a new connection to the same database as the existing ones."""
        connection = truth_file.connect(self._path, create=create, identity=self.identity)
        self.identity = connection.identity
        return connection

    def _damaged(self, reason: str) -> CorruptStoreError:
        return truth_file.damaged_error(self._path, reason)

    def _translated_error(self, error: Exception) -> StoreError:
        return truth_file.translated_error(self._path, error)

    def _verified(self, read: Callable[..., T], *values: Any) -> T:
        """Return what is in a row after verifying its checksums."""
        try:
            return read(*values)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _value(self, name: str, raw: object) -> str:
        return self._verified(truth_file.value_of, name, raw)

    def _document(self, row: Sequence[Any]) -> Document:
        return self._verified(sealed.document_in, row)

    def _documents(self, rows: Sequence[Sequence[Any]]) -> list[Document]:
        return self._verified(sealed.documents_in, rows)

    def _id(self, row: Sequence[Any]) -> str:
        return self._verified(sealed.id_in, row)

    def _vectors(self, rows: Sequence[tuple[int, object]]) -> list[bytes]:
        return self._verified(partial(sealed.vectors_in, size=sealed.NUMBER * int(self.meta("dimensions") or 0)), rows)

    def _check_gone(self, keys: Sequence[int]) -> None:
        """Check that missing documents have been deleted and not lost.

        Raises:
            CorruptStoreError: the row of a document is lost.
        """
        last = self._row(LAST_KEY)[0]
        candidates = {key for key in keys if 0 < key <= last}
        candidates.difference_update(key for (key,) in self._rows(_KNOWN_KEYS, json.dumps(list(candidates))))
        if candidates:
            raise self._damaged(f"the document of key {min(candidates)} is not there, and was not deleted")


def _complaint(reader: Callable[..., object], *values: object) -> list[str]:
    try:
        reader(*values)
    except CorruptStoreError as error:
        return [str(error)]
    return []


_KNOWN_KEYS = """SELECT key FROM tombstones WHERE key IN (SELECT value FROM json_each(?1))
    UNION ALL SELECT key FROM documents WHERE key IN (SELECT value FROM json_each(?1))"""
_CHANGED_TOMBSTONE = "SELECT key, seq FROM tombstones WHERE typeof(seq) <> 'integer' OR seq < 1 OR seq > ? OR key < 1"
_FOR_VIEWS = tuple(f'"{key}"' for key in (ACCESS, VALID_FROM, VALID_TO))
_VECTORS_OF = "documents d LEFT JOIN vectors v ON v.key = d.key"
LAST_KEY = "SELECT max(ifnull((SELECT max(key) FROM documents), 0), ifnull((SELECT max(key) FROM tombstones), 0))"


def marks(values: Sequence[object]) -> str:
    """Return a place for each of the values in a statement."""
    return ",".join("?" * len(values))
