"""One dataset in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres.past_postgres_store import PostgresPastStore
from pointsman.store.postgres.postgres_reader import document_of
from pointsman.store.postgres.postgres_writer import BATCH_DOCUMENTS, PostgresWriter
from pointsman.store.postgres.statements import escaped
from pointsman.store.prepared_documents import prepare, storable
from pointsman.store.store_values import NEAR
from pointsman.tools.batching import batched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

    from pointsman.store.base_store import PastStates
    from pointsman.store.postgres.postgres_rows import StoredRow
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document


class PostgresStore(PostgresWriter):
    """A dataset in PostgreSQL; keys are integers. `PostgresBackend` opens it.

    A search is one statement. Writers take turns by locking the dataset's row; they wait for each other and are not
    refused within 30 seconds. Word scores are always exact BM25. Vectors are compared one by one below 50,000, and if a
    filter allows fewer than 5,000; otherwise an HNSW index is used.

    Args:
        connections: connections to the database.
        schema: schema of the workspace.
        vectors: the schema that contains pgvector.
        row: the catalogue's entry.

    Raises:
        FormatVersionError: the dataset was written by a newer Pointsman.
    """

    def __repr__(self) -> str:
        return (
            f"PostgresStore({self._connections.label!r}, schema={self._tables.schema!r}, number={self._record.number})"
        )

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        with_vectors = NEAR in self._scales
        if with_vectors and self.latest_dimensions() is None:
            return [False] * len(items)

        def read_rows(connection: Connection[Any]) -> dict[str, StoredRow]:
            with connection.cursor(binary=True) as cursor:
                return self._existing(cursor, items, with_vectors=with_vectors)

        existing = self._connections.run(read_rows) if items else {}
        return [
            (old := existing.get(item.document.id)) is not None
            and old.digest == item.digest
            and (not with_vectors or old.vector is not None)
            for item in items
        ]

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        has_vector = f"exists (select from {self._tables.vec} e where e.id = d.id)"
        condition = "true" if self.latest_dimensions() is None else f"not {has_vector}"
        rows = self._rows(f"{self._select} where {condition} order by d.id limit %(limit)s", limit=limit)
        return [document_of(*row[1:]) for row in rows]

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """See `Store`."""
        if ids is None and filters is None:
            return 0
        condition = self._condition(filters)
        total = 0
        if ids is None:
            while number := self._delete(f"{condition.sql} limit {BATCH_DOCUMENTS}", condition.parameters):
                total += number
            return total
        keys = [escaped(id_) for id_ in ids if storable(id_)]
        for batch in batched(keys, BATCH_DOCUMENTS):
            sql = f"{condition.sql} and d.key = any(%(ids)s::text[])"
            total += self._delete(sql, {**condition.parameters, "ids": list(batch)})
        return total

    def _delete(self, condition: str, parameters: Mapping[str, Any]) -> int:
        tables = self._tables

        def delete(connection: Connection[Any]) -> int:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                cursor.execute(f"select d.id from {tables.doc} d where {condition}", parameters)
                numbers = [row[0] for row in cursor.fetchall()]
                if numbers:
                    if state.retention is not None:
                        history.keep(cursor, tables, numbers, state.seq + 1, state.dimensions)
                    old_tokens = self._tokens_of(cursor, numbers)
                    self._write_postings(cursor, old_tokens, [])
                    with self._counting(cursor, state.seq + 1, numbers, ()):
                        cursor.execute(f"delete from {tables.doc} where id = any(%s::bigint[])", (numbers,))
                    self._advance(cursor, state, -len(numbers), -sum(counter.total() for _, counter in old_tokens))
            return len(numbers)

        number = self._connections.run(delete)
        if number:
            self._statistics = None
        return number

    def keep_versions(self, days: int) -> None:
        """See `Store`."""
        self._connections.run(lambda connection: history.switch(connection, self._tables, days))
        self._statistics = None
        self.statistics()

    def past_store(self, name: str, bm25: Mapping[str, float]) -> PastStates:
        """See `Store`; the copy is in temporary tables of one connection."""
        return PostgresPastStore(self, name, bm25)

    def drop(self) -> None:
        """See `Store`."""
        schema, number = self._tables.schema, self._tables.number

        def drop(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(f"select from {self._tables.row} for update")
                cursor.execute(self._tables.drop)
                cursor.execute(f'delete from "{schema}".dataset where number = {number}')

        self._connections.run(drop)
        self._statistics = None
