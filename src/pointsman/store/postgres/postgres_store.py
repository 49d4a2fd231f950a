"""One dataset in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres.past_postgres_store import PostgresPastStore
from pointsman.store.postgres.postgres_reader import document_of
from pointsman.store.postgres.postgres_rows import stored_rows
from pointsman.store.postgres.postgres_writer import BATCH_DOCUMENTS, PostgresWriter
from pointsman.store.postgres.statements import escaped
from pointsman.store.prepared_documents import prepare, storable
from pointsman.store.store_values import NEAR
from pointsman.tools.batching import batched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

    from pointsman.store.base_store import PastStates
    from pointsman.store.postgres.postgres_rows import DatasetWrite, StoredRow
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
        return f"PostgresStore({self.connections.label!r}, schema={self.tables.schema!r}, number={self.record.number})"

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        with_vectors = NEAR in self._scales
        if with_vectors and self.latest_dimensions() is None:
            return [False] * len(items)

        def read_rows(connection: Connection[Any]) -> dict[str, StoredRow]:
            with connection.cursor(binary=True) as cursor:
                return stored_rows(cursor, self.tables, items, with_vectors=with_vectors)

        existing = self.connections.run(read_rows) if items else {}
        return [
            (old := existing.get(item.document.id)) is not None
            and old.digest == item.digest
            and (not with_vectors or old.vector is not None)
            for item in items
        ]

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        has_vector = f"exists (select from {self.tables.vec} e where e.id = d.id)"
        condition = "true" if self.latest_dimensions() is None else f"not {has_vector}"
        rows = self._rows(f"{self.tables.select} where {condition} order by d.id limit %(limit)s", limit=limit)
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
        def delete(transaction: DatasetWrite) -> int:
            cursor, doc = transaction.cursor, self.tables.doc
            cursor.execute(f"select d.id from {doc} d where {condition}", parameters)
            numbers = [row[0] for row in cursor.fetchall()]
            if numbers:
                transaction.keep(numbers)
                old_tokens = transaction.tokens_of(numbers)
                transaction.write_postings(old_tokens, [])
                with transaction.counting(numbers, ()):
                    cursor.execute(f"delete from {doc} where id = any(%s::bigint[])", (numbers,))
                transaction.advance(-len(numbers), -sum(counter.total() for _, counter in old_tokens))
            return len(numbers)

        number = self._change(delete)
        if number:
            self._statistics = None
        return number

    def keep_versions(self, days: int) -> None:
        """See `Store`."""
        self.connections.run(lambda connection: history.switch(connection, self.tables, days))
        self._statistics = None
        self.statistics()

    def past_store(self, name: str, bm25: Mapping[str, float]) -> PastStates:
        """See `Store`; the copy is in temporary tables of one connection."""
        return PostgresPastStore(self, name, bm25)

    def drop(self) -> None:
        """See `Store`."""
        tables = self.tables

        def drop(connection: Connection[Any]) -> None:
            with connection.transaction():
                connection.execute(f"select from {tables.row} for update")
                connection.execute(tables.drop)
                connection.execute(f"delete from {tables.row}")

        self.connections.run(drop)
        self._statistics = None
