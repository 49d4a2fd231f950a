"""Writes to a truth: documents, vectors, deletions and notes, each in one durable transaction.

Whoever writes holds the dataset's writer lock; reading needs none, and is in `pointsman.store.local.truth.truth_rows`.
"""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pointsman.store.history import DAY_SECONDS
from pointsman.store.local.truth import local_history as history
from pointsman.store.local.truth.packing import pack_text
from pointsman.store.local.truth.sealed_rows import DIGEST, NO_VECTOR, row_check, seal_vectors
from pointsman.store.local.truth.tally import Tally, ids_hash, mix_sum
from pointsman.store.local.truth.truth_file import VALUE, close, close_all, with_check
from pointsman.store.local.truth.truth_rows import LAST_KEY, VARIABLES, Truth, marks
from pointsman.tools.batching import batched
from pointsman.tools.system.sqlite_errors import SQLITE_ERRORS, error_code
from pointsman.values.types import AddResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pointsman.store.history import PastRow
    from pointsman.store.local.truth.truth_file import TruthConnection
    from pointsman.store.prepared_documents import Prepared

# A file that was opened for reading only begins a transaction without complaint; the second statement changes nothing,
# and complains.
_BEGIN = "BEGIN IMMEDIATE; DELETE FROM meta WHERE false;"


class WritableTruth(Truth):
    """A truth that is written to as well, by one process at a time: the caller holds the writer lock."""

    def unchanged(self, items: Sequence[Prepared], *, with_vectors: bool = False) -> list[bool]:
        """Return whether each document is already stored unchanged and, if ``with_vectors``, has a vector."""
        existing = self._stored([item.document.id for item in items])
        is_same = self._equal_to_stored(existing, items, None)
        if not with_vectors:
            return is_same
        ids_with_vector = self._embedded(existing)
        return [equal and item.document.id in ids_with_vector for equal, item in zip(is_same, items, strict=True)]

    def upsert(
        self,
        items: Sequence[Prepared],
        vectors: Sequence[bytes | None] | None = None,
        *,
        skip_identical: bool = True,
    ) -> AddResult:
        """Write documents, and vectors if given, in one durable transaction; skip documents stored unchanged.

        Ids must be unique within a call. Without ``vectors``, documents lose the ones they had; one for which
        ``vectors`` has None keeps it, and one for which it has `NO_VECTOR` loses it.
        """
        existing = self._stored([item.document.id for item in items])
        is_same = self._equal_to_stored(existing, items, vectors)
        fresh = [number for number, same in enumerate(is_same) if not (same and skip_identical)]
        result = AddResult(unchanged=len(items) - len(fresh))
        if not fresh:
            return result
        items = [items[number] for number in fresh]
        with self.transaction() as (connection, seq):
            new_keys = itertools.count(connection.execute(LAST_KEY).fetchone()[0] + 1)
            keys = [existing[item.document.id][0] if item.document.id in existing else next(new_keys) for item in items]
            rows = [
                _stored_row(key, seq, item.document.id, item.document.text, item.metadata, item.digest)
                for item, key in zip(items, keys, strict=True)
            ]
            old = [row for row in rows if row[4] in existing]
            old_seqs = {existing[row[4]][0]: existing[row[4]][2] for row in old}
            keys_with_vector = {
                key for key, number in zip(keys, fresh, strict=True) if vectors is None or vectors[number] is not None
            }
            self._keep(connection, list(old_seqs), seq, keys_with_vector)
            connection.executemany("UPDATE documents SET text=?, metadata=?, digest=?, seq=?, id=? WHERE key=?", old)
            new = [row for row in rows if row[4] not in existing]
            connection.executemany(_INSERT, new)
            blobs = list(
                zip(keys, (NO_VECTOR if vectors is None else vectors[number] for number in fresh), strict=True)
            )
            vector_keys = [(key,) for key, vector in blobs if vector is not None and key in old_seqs]
            removal_count = (
                connection.executemany("DELETE FROM vectors WHERE key=?", vector_keys).rowcount if vector_keys else 0
            )
            sealed_blobs = seal_vectors([(key, vector) for key, vector in blobs if vector])
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

    def _add_up(self, connection: TruthConnection, **change: int) -> None:
        """Add what a transaction changes to the tally, inside it."""
        if any(change.values()):
            tally = self._tally(connection) + Tally(**change)
            connection.execute("UPDATE meta SET value=? WHERE name='tally'", (with_check("tally", str(tally)),))

    def set_meta(self, **values: str) -> None:
        """Store values beside the documents, durably."""
        with self.transaction(advance=False) as (connection, seq):
            if self._kept_days(connection):
                history.note_former(connection, seq, {name: self._meta_in(connection, name) for name in values})
            self._put_meta(connection, values)

    def _put_meta(self, connection: TruthConnection, values: Mapping[str, str]) -> None:
        """Store values beside the documents, inside a transaction."""
        names = f"SELECT count(*) FROM meta WHERE name IN ({marks(list(values))})"
        self._add_up(connection, notes=len(values) - connection.execute(names, tuple(values)).fetchone()[0])
        rows = [(name, with_check(name, value)) for name, value in values.items()]
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", rows)

    def _remove_meta(self, connection: TruthConnection, names: Sequence[str]) -> None:
        """Remove values stored beside the documents, inside a transaction."""
        for name in names:
            self._add_up(connection, notes=-connection.execute("DELETE FROM meta WHERE name=?", (name,)).rowcount)

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
            for batch in batched(keys, VARIABLES):
                condition = f"WHERE key IN ({marks(batch)})"
                old_rows += connection.execute(f"SELECT key, id, seq FROM documents {condition}", batch).fetchall()
                old_tombstones += connection.execute(f"SELECT key, seq FROM tombstones {condition}", batch).fetchall()
                old_vectors += connection.execute(f"DELETE FROM vectors {condition}", batch).rowcount
                for table in ("documents", "tombstones"):
                    connection.execute(f"DELETE FROM {table} {condition}", batch)
            stored_rows = [
                _stored_row(row.key, seq, row.id, row.text, row.metadata, row.digest[:DIGEST]) for row in rows
            ]
            connection.executemany(_INSERT, stored_rows)
            blobs = seal_vectors([(row.key, row.vector) for row in rows if row.vector])
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

    def _kept_days(self, connection: TruthConnection) -> int | None:
        days = self._meta_in(connection, history.KEPT_DAYS)
        return None if days is None else int(days)

    def _keep(self, connection: TruthConnection, keys: Sequence[int], seq: int, with_vector: set[int]) -> None:
        """Keep rows that a transaction is about to replace or delete, in a dataset that keeps versions."""
        if keys and self._kept_days(connection) is not None:
            history.keep(connection, keys, seq, with_vector)

    def _note_moment(self, connection: TruthConnection, seq: int) -> None:
        """Note the time of a transaction, and delete what has expired, in a dataset that keeps versions."""
        days = self._kept_days(connection)
        if days is None:
            return
        time_now = time.time()
        self._of_history(connection, history.note_moment, connection, seq, time_now)
        kept_from = int(self._meta_in(connection, history.KEPT_FROM) or 0)
        oldest = history.current_at(connection, time_now - days * DAY_SECONDS)
        if oldest > kept_from:
            self._put_meta(connection, {history.KEPT_FROM: str(oldest)})
        history.purge(connection, max(oldest, kept_from))

    @contextmanager
    def transaction(self, *, advance: bool = True) -> Iterator[tuple[TruthConnection, int]]:
        """Open a durable transaction; yield its connection and sequence number."""
        connection = self._begin()
        try:
            row = connection.execute(VALUE, ("seq",)).fetchone()
            seq = (int(self._value("seq", row[0])) if row else 0) + advance
            if advance:
                self._add_up(connection, notes=row is None)
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (with_check("seq", str(seq)),))
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

    def _begin(self) -> TruthConnection:
        """Return a connection within a transaction.

        If SQLite could not write to the file when it opened it, that connection only ever reads: it is opened again.
        """
        connection, is_new = self._lend(), False
        while True:
            try:
                connection.executescript(_BEGIN)
            except SQLITE_ERRORS as error:
                close(connection, self._path.parent)
                if is_new or error_code(error) != sqlite3.SQLITE_READONLY:
                    raise self._translated_error(error) from error
            else:
                return connection
            close_all(self._idle, self._path.parent, self._process)
            connection, is_new = self._connect(), True

    def _equal_to_stored(
        self,
        existing: Mapping[str, tuple[int, bytes, int]],
        items: Sequence[Prepared],
        vectors: Sequence[bytes | None] | None,
    ) -> list[bool]:
        """Return whether each document, and its vector if one is given, equals the stored one."""
        is_same = [existing.get(item.document.id, (0, b"", 0))[1][:DIGEST] == item.digest for item in items]
        if vectors is None or not any(is_same):
            return is_same
        old_vectors: dict[int, bytes] = {}
        for batch in batched((key for key, _, _ in existing.values()), VARIABLES):
            rows = self._rows(f"SELECT key, vector FROM vectors WHERE key IN ({marks(batch)})", *batch)
            old_vectors.update(zip((key for key, _ in rows), self._vectors(rows), strict=True))
        return [
            equal and (not vector or old_vectors.get(existing[item.document.id][0]) == vector)
            for equal, item, vector in zip(is_same, items, vectors, strict=True)
        ]


_INSERT = "INSERT INTO documents (text, metadata, digest, seq, id, key) VALUES (?,?,?,?,?,?)"


def _stored_row(key: int, seq: int, id_: str, text: str, metadata: str, content: bytes) -> tuple[Any, ...]:
    """Return the values of `_INSERT`; ``digest`` is that of the content followed by the checksum of the row."""
    return pack_text(text), metadata, content + row_check(key, seq, id_, metadata, content), seq, id_, key
