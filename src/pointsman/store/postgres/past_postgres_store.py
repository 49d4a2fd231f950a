"""A dataset in PostgreSQL as it was: a copy in temporary tables, changed to what was there at a sequence number.

The tables belong to one connection and go with it, also if this program is killed; so a replay needs no right but that
to read the dataset, and to make temporary tables, and others do not see the copy.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.history import History, PastRow, PastStore, T
from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres.bounded_connections import without_limit
from pointsman.store.postgres.postgres_writer import PostgresWriter
from pointsman.store.postgres.statements import Tables, catalogue, escaped
from pointsman.store.prepared_documents import Prepared, metadata_of
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg import Connection, Cursor

    from pointsman.store.base_store import Store
    from pointsman.store.postgres.postgres_rows import DatasetWrite


_TEMPORARY: Final = "pg_temp"
_COLUMNS: Final = {
    "doc": "id, key, length, seq, digest, facts, signature",
    "body": "id, text, metadata",
    "term": "id, term, df",
    "posting": "term, doc, tf, length",
    "signature": "id, digest, signature, documents, tokens, changed",
}
_OF_DATASET: Final = (
    "name, number, identity, description, technique, settings, format, analyzer, k1, b, embedder, dimensions, seq, "
    "documents, tokens, analyzed, kept"
)


class PostgresPastStore(PastStore):
    """The states of a dataset in PostgreSQL.

    Args:
        store: the dataset as it is.
        name: of the dataset, for messages.
        bm25: ``k1`` and ``b``.
    """

    _copy: _Copy

    def __init__(self, store: PostgresWriter, name: str, bm25: Mapping[str, float]) -> None:
        super().__init__(name)
        self._source, self._bm25 = store, dict(bm25)
        self._make_copy()

    def _make_copy(self) -> None:
        self._connections, end_session = self._source.connections.of_one_session()
        self.close = weakref.finalize(self, end_session)
        tables = self._source.tables
        self._tables = Tables(_TEMPORARY, tables.number, tables.vectors)
        sequence, notes = self._connections.run(lambda connection: _copy(connection, tables, self._tables))
        record = replace(self._source.record, k1=self._bm25["k1"], b=self._bm25["b"])
        self._copy = _Copy(self._connections, _TEMPORARY, tables.vectors, record)
        self._copy.statistics()  # what it holds now
        self._note_state(sequence, notes)

    def at(self, sequence: int, notes: str) -> Store:
        """See `PastStore`; if the connection was lost, and the copy with it, there is another one."""
        if not self._connections.is_open:
            self.close()
            self._make_copy()
        return super().at(sequence, notes)

    def _read(self, work: Callable[[History], T]) -> T:
        tables = self._source.tables

        def read(connection: Connection[Any]) -> T:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                _of_one_snapshot(cursor)
                return work(history.PostgresHistory(cursor, tables, self._tables))

        return self._connections.run(read)

    def _become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        self._copy.become(states, notes)


class _Copy(PostgresWriter):
    """A dataset in temporary tables."""

    def become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        """Make some keys have these documents, or none, and these notes only, in one transaction."""
        own_notes = dict(notes)
        embedder, dimensions = own_notes.pop("embedder", None), own_notes.pop("dimensions", None)
        width = None if dimensions is None else int(dimensions)

        def become(transaction: DatasetWrite) -> None:
            if width is not None:
                transaction.fix_embedder(embedder or "", width)
            elif transaction.dimensions is not None:
                transaction.drop_vectors()
            if states:
                _replace(transaction, [key for key, _ in states], [row for _, row in states if row is not None])
            transaction.cursor.execute(f"delete from {self.tables.notes}")
            values = list(own_notes), [escaped(value) for value in own_notes.values()]
            transaction.cursor.execute(self.tables.insert_notes, values)

        self._change(become)
        self._statistics = None
        self.statistics()


def _replace(transaction: DatasetWrite, keys: Sequence[int], rows: Sequence[PastRow]) -> None:
    """Replace the documents of some keys."""
    documents = [Document(row.id, row.text, metadata_of(row.metadata)) for row in rows]
    items = [Prepared(document, row.metadata, row.digest) for document, row in zip(documents, rows, strict=True)]
    new_keys = [row.key for row in rows]
    old_tokens = transaction.tokens_of(keys)
    with transaction.counting(keys, new_keys):
        transaction.write_postings(old_tokens, [])
        transaction.cursor.execute(f"delete from {transaction.tables.doc} where id = any(%s::bigint[])", (list(keys),))
        new_token_count = transaction.write_texts(items, new_keys, ()) if items else 0
    if transaction.dimensions is not None:
        with_vector = [row for row in rows if row.vector is not None]
        flat = np.frombuffer(b"".join(row.vector or b"" for row in with_vector), ">f4").astype(np.float32)
        transaction.write_vectors([row.key for row in with_vector], flat.reshape(-1, transaction.dimensions))
    old_token_count = sum(counter.total() for _, counter in old_tokens)
    transaction.advance(len(rows) - len(old_tokens), new_token_count - old_token_count)


def _of_one_snapshot(cursor: Cursor[Any]) -> None:
    """Make a transaction that begins see the database as of one moment."""
    cursor.execute("set transaction isolation level repeatable read")


def _copy(connection: Connection[Any], source: Tables, target: Tables) -> tuple[int, dict[str, str]]:
    """Copy a dataset into temporary tables; return its sequence number and its notes."""
    with without_limit(connection), connection.transaction(), connection.cursor(binary=True) as cursor:
        _of_one_snapshot(cursor)
        cursor.execute("set local statement_timeout = 0")
        source_history = history.PostgresHistory(cursor, source, target)
        notes = source_history.former_notes()[0]
        for sql in (catalogue(target.schema), target.create, history.create(target)):
            cursor.execute(sql, binary=False)
        cursor.execute(
            f'insert into "{target.schema}".dataset ({_OF_DATASET}) overriding system value '
            f"select {_OF_DATASET} from {source.row}"
        )
        cursor.execute(
            f'insert into "{target.schema}".note select * from "{source.schema}".note where number = {source.number}'
        )
        columns_of = dict(_COLUMNS)
        if "dimensions" in notes:
            cursor.execute(target.create_vectors(int(notes["dimensions"])), binary=False)
            columns_of["vec"] = "id, digest, v"
        for name, columns in columns_of.items():
            rows = f"select {columns} from {getattr(source, name)}"
            cursor.execute(f"insert into {getattr(target, name)} ({columns}) {rows}")
        for table in (target.term, target.signature):
            last = f"select setval(pg_get_serial_sequence(%s, 'id'), coalesce(max(id), 0) + 1, false) from {table}"
            cursor.execute(last, (table,))
        cursor.execute(f"analyze {', '.join(getattr(target, name) for name in columns_of)}")
        return source_history.sequence(), notes
