"""Reading one dataset in PostgreSQL: all of its documents, or those that exist in a view."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.store.base_store import Store
from pointsman.store.bm25 import query_terms
from pointsman.store.postgres.statements import LARGEST_ID, Condition, Tables, escaped, unescaped
from pointsman.store.prepared_documents import UNREADABLE, direction, metadata_of, position, storable, unreadable
from pointsman.store.store_values import MATCHED, NEAR, SCALES_OF, WORDS, Lists, Page, Scores, StoreQuery
from pointsman.tools.errors import ReplacedError
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import AsyncConnection, Connection

    from pointsman.store.postgres.postgres_connections import Connections
    from pointsman.store.postgres.statements import DatasetTables, ViewTables
    from pointsman.values.filters import Filter


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """The catalogue's entry for a dataset when it is opened."""

    number: int
    identity: str
    technique: str
    analyzer: str
    format: int
    k1: float
    b: float
    embedder: str | None
    dimensions: int | None
    documents: int
    retention: Mapping[str, Any] | None


class PostgresReader(Store):
    """What is read of a dataset in PostgreSQL; keys are integers.

    A search is one statement. Word scores are always exact BM25.

    Args:
        connections: connections to the database.
        tables: of the dataset.
        record: the catalogue's entry.
    """

    cosines_of_signatures: dict[tuple[bytes, int, int], NDArray[np.float64]]
    """The best cosines that views have computed, of each signature once."""
    last_vector_keys: tuple[str, list[int]] | None = None
    """The state of the view that was read last, and the keys of its documents with a vector."""

    def __init__(self, connections: Connections, tables: Tables, record: DatasetRow) -> None:
        self.connections, self.tables, self.record = connections, tables, record
        self._scales = SCALES_OF[record.technique]

    # ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def dimensions(self) -> int | None:
        """Dimensions of the vectors, as far as this process knows; None if there are none."""

    @abstractmethod
    def latest_dimensions(self) -> int | None:
        """Return the dimensions of the vectors; another process may just have stored the first ones."""

    @property
    @abstractmethod
    def _statements(self) -> DatasetTables | ViewTables:
        """Return what makes the statements."""

    def _condition(self, filters: Filter | None) -> Condition:
        """Return a condition for the documents ``d`` that exist and match."""
        return Condition(filters, f"(select y.text from {self.tables.body} y where y.id = d.id)")

    def _document(self, key: str, text: str, metadata: str) -> Document:
        """Return the document in a row, as it is shown."""
        return document_of(key, text, metadata)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        lookups = self._lookups(store_queries)
        return self._answers(lookups, self._look_up(lookups))

    @property
    def _awaits(self) -> bool:
        """Whether async calls have their own connections."""
        return self.connections.session is None and _on_asyncio()

    async def asearch(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        if not self._awaits:
            return await super().asearch(store_queries)
        lookups = (
            await asyncio.to_thread(self._lookups, store_queries)
            if self._vectors_unknown(store_queries)
            else self._lookups(store_queries)
        )
        return self._answers(lookups, await self._alook_up(lookups))

    def _look_up(self, lookups: Sequence[_Lookup]) -> list[list[Any]]:
        """Return the rows of those lookups that have a statement."""
        full = [lookup for lookup in lookups if lookup]
        return self.connections.run(lambda connection: _rows_of(connection, full)) if full else []

    async def _alook_up(self, lookups: Sequence[_Lookup]) -> list[list[Any]]:
        """Async version of `_look_up`."""
        full = [lookup for lookup in lookups if lookup]
        return await self.connections.arun(lambda connection: _arows_of(connection, full)) if full else []

    def _answers(self, lookups: Sequence[_Lookup], rows: Iterable[list[Any]]) -> list[Lists]:
        answers = iter(rows)
        return [self._lists(lookup, next(answers) if lookup else ()) for lookup in lookups]

    def _vectors_unknown(self, store_queries: Sequence[StoreQuery]) -> bool:
        return (
            self.dimensions is None
            and NEAR in self._scales
            and any(query.vector is not None for query in store_queries)
        )

    def _lookups(self, store_queries: Sequence[StoreQuery]) -> list[_Lookup]:
        """Return the statement for each query.

        Raises:
            InputError: a vector is invalid.
        """
        if self._vectors_unknown(store_queries):
            self.latest_dimensions()  # another process may have written the first vectors
        return [self._lookup(query) for query in store_queries]

    def _lookup(self, store_query: StoreQuery) -> _Lookup:
        has_words, has_vector, parameters = self._parameters(store_query)
        statement = ""
        if store_query.depth >= 1 and (has_words or has_vector):
            condition = self._condition(store_query.filters)
            parameters |= {"k": min(store_query.depth, LARGEST_ID), **condition.parameters}
            statement = self._statements.search(
                None if store_query.filters is None else condition, has_words=has_words, has_vector=has_vector
            )
        return _Lookup(_lists_for(store_query), statement, parameters)

    def _parameters(self, store_query: StoreQuery) -> tuple[bool, bool, dict[str, Any]]:
        """Return whether there are words and a vector to search by, and the parameters for them."""
        parameters: dict[str, Any] = {}
        if store_query.text is not None and WORDS in self._scales and (terms := query_terms(store_query.text)):
            parameters |= {"terms": list(terms), "counts": [float(count) for count in terms.values()]}
        if store_query.vector is not None and self.dimensions is not None and NEAR in self._scales:
            vector = direction(store_query.vector, self.dimensions)
            if vector.any():
                parameters["v"] = str(vector.tolist())  # a list would take three times as long
        return "terms" in parameters, "v" in parameters, parameters

    def _lists(self, lookup: _Lookup, rows: Sequence[Any]) -> Lists:
        """Convert the rows of a search, whose order is the plan's, to rankings, scores and documents."""
        rows = sorted(rows, key=itemgetter(0))
        rankings: dict[str, list[tuple[Any, float | None]]] = {}
        scores: dict[str, dict[Any, float]] = {}
        for name, rank_column, score_column in ((WORDS, 1, 2), (NEAR, 3, 4)):
            if name not in self._scales or name not in lookup.lists or (name == NEAR and self.dimensions is None):
                continue
            pairs = [(-row[rank_column], row[0]) for row in rows if row[rank_column] is not None]
            rankings[name] = [(key, -score) for score, key in sorted(pairs)]
            scores[name] = {row[0]: _score(name, row[score_column]) for row in rows}
        if WORDS in scores:
            scores[MATCHED] = {row[0]: row[9] or 0.0 for row in rows}
        documents = {row[0]: self._document(row[5], row[6], row[7]) for row in rows}
        if not rows or WORDS not in rankings:
            return Lists(rankings, scores, documents)
        return Lists(rankings, scores, documents, idf=rows[0][8] or 0.0)

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        lookups = self._to_score(store_queries, keys)
        return list(map(self._scores, lookups, self._look_up(lookups)))

    async def ascore(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        if not self._awaits:
            return await super().ascore(store_queries, keys)
        lookups = self._to_score(store_queries, keys)
        return list(map(self._scores, lookups, await self._alook_up(lookups)))

    def _to_score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[_Lookup]:
        lookups = []
        if self._vectors_unknown(store_queries):
            self.latest_dimensions()
        for query, candidates in zip(store_queries, keys, strict=True):
            has_words, has_vector, parameters = self._parameters(query)
            statement = self._statements.score(has_words=has_words, has_vector=has_vector)
            parameters |= {**self._condition(None).parameters, "ids": list(candidates)}
            lookups.append(_Lookup(_lists_for(query), statement, parameters))
        return lookups

    def _scores(self, lookup: _Lookup, rows: Sequence[Any]) -> Scores:
        return {
            name: {row[0]: _score(name, row[column]) for row in sorted(rows, key=itemgetter(0))}
            for name, column, source in ((WORDS, 1, WORDS), (NEAR, 2, NEAR), (MATCHED, 3, WORDS))
            if source in self._scales and source in lookup.lists
        }

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def _reads(self, keys: Sequence[Any]) -> _Lookup:
        condition = self._condition(None)
        statement = f"{self.tables.select} where d.id = any(%(ids)s::bigint[]) and {condition.sql}"
        return _Lookup((), statement, {**condition.parameters, "ids": list(keys)})

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        return self._in_order(keys, self._look_up([self._reads(keys)])[0]) if keys else []

    async def afetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        if not keys or not self._awaits:
            return await super().afetch(keys)
        return self._in_order(keys, (await self._alook_up([self._reads(keys)]))[0])

    def _in_order(self, keys: Sequence[Any], rows: Iterable[Any]) -> list[Document | None]:
        documents = {row[0]: self._document(*row[1:]) for row in rows}
        return [documents.get(key) for key in keys]

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        keys = [escaped(id_) for id_ in ids if storable(id_)]
        if not keys:
            return [None] * len(ids)
        condition = self._condition(None)
        sql = f"{self.tables.select} where d.key = any(%(ids)s::text[]) and {condition.sql}"
        rows = self._rows(sql, ids=keys, **condition.parameters)
        documents = {document.id: document for document in (self._document(*row[1:]) for row in rows)}
        return [documents.get(id_) for id_ in ids]

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`."""
        keys, condition = [escaped(id_) for id_ in ids if storable(id_)], self._condition(None)
        sql = f"select d.key, d.id from {self.tables.doc} d where d.key = any(%(ids)s::text[]) and {condition.sql}"
        rows = self._rows(sql, ids=keys, **condition.parameters) if keys else ()
        numbers = {unescaped(key): number for key, number in rows}
        return {id_: numbers[id_] for id_ in ids if id_ in numbers}

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        last = position(after)
        condition = self._condition(filters)
        sql = f"{self.tables.select} where d.id > %(last)s and {condition.sql} order by d.id limit %(limit)s"
        rows = self._rows(sql, last=last, limit=limit + 1, **condition.parameters)
        documents = [self._document(*row[1:]) for row in rows[:limit]]
        return Page(documents, str(rows[limit - 1][0]) if len(rows) > limit else None)

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`."""
        if source is None:
            condition = self._condition(filters)
            sql = f"select d.key from {self.tables.doc} d where {condition.sql} order by d.id"
            return [unescaped(key) for (key,) in self._rows(sql, **condition.parameters)]
        from pointsman.values.filters import Equals

        of_source = Equals("source", source)
        condition = self._condition(of_source if filters is None else of_source & filters)
        rows = self._rows(f"{self.tables.select} where {condition.sql} order by d.id", **condition.parameters)
        documents = (self._document(*row[1:]) for row in rows)  # lists that contain the source pass the filter too
        return [document.id for document in documents if document.metadata.get("source") == source]

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        condition = self._condition(filters)
        rows = self._rows(f"select count(*) from {self.tables.doc} d where {condition.sql}", **condition.parameters)
        return int(rows[0][0])

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`."""
        dimensions = self.latest_dimensions()
        if dimensions is None or (keys is not None and not keys):
            return np.zeros((0, dimensions or 0), np.float32)
        condition, tables = self._condition(None), self.tables
        sql = (
            f"select e.v from {tables.vec} e join {tables.doc} d on d.id = e.id "
            f"join unnest(%(ids)s::bigint[]) with ordinality u(id, n) on u.id = e.id where {condition.sql} order by u.n"
        )
        chosen_keys = list(self._sample_keys(sample) if keys is None else keys)
        rows = [row[0] for row in self._rows(sql, ids=chosen_keys, **condition.parameters)]
        flat = np.frombuffer(b"".join(row[4:] for row in rows), ">f4")
        return flat.astype(np.float32).reshape(-1, dimensions)

    @abstractmethod
    def _sample_keys(self, sample: int) -> Sequence[int]:
        """Return the keys of an even sample of the documents with a vector."""

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, sql: str, **parameters: Any) -> list[Any]:
        def rows(connection: Connection[Any]) -> list[Any]:
            with connection.cursor(binary=True) as cursor:
                return cursor.execute(sql, parameters).fetchall()

        return self.connections.run(rows)

    def _only_row(self, rows: Sequence[Any]) -> Any:
        if not rows:
            raise ReplacedError(f"{self.connections.label}: the dataset was deleted or recreated; open it again")
        return rows[0]


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The statement for one query; if it is empty, there is nothing to search and the lists are empty."""

    lists: tuple[str, ...]
    statement: str
    parameters: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.statement)


def _lists_for(store_query: StoreQuery) -> tuple[str, ...]:
    """Return the names of the lists that a query asks for."""
    return tuple(name for name, value in ((WORDS, store_query.text), (NEAR, store_query.vector)) if value is not None)


def _rows_of(connection: Connection[Any], lookups: Sequence[_Lookup]) -> list[list[Any]]:
    """Return the rows of each statement; several are sent together."""
    if len(lookups) == 1:
        with connection.cursor(binary=True) as cursor:
            return [cursor.execute(lookups[0].statement, lookups[0].parameters).fetchall()]
    cursors = [connection.cursor(binary=True) for _ in lookups]
    with connection.pipeline():
        for cursor, lookup in zip(cursors, lookups, strict=True):
            cursor.execute(lookup.statement, lookup.parameters)
    return [cursor.fetchall() for cursor in cursors]


async def _arows_of(connection: AsyncConnection[Any], lookups: Sequence[_Lookup]) -> list[list[Any]]:
    """Async version of `_rows_of`."""
    cursors = [connection.cursor(binary=True) for _ in lookups]
    if len(lookups) == 1:
        await cursors[0].execute(lookups[0].statement, lookups[0].parameters)
    else:
        async with connection.pipeline():
            for cursor, lookup in zip(cursors, lookups, strict=True):
                await cursor.execute(lookup.statement, lookup.parameters)
    return [await cursor.fetchall() for cursor in cursors]


def _on_asyncio() -> bool:
    """Whether this runs on an asyncio event loop, the only kind psycopg supports."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def document_of(key: str, text: str, metadata: str) -> Document:
    """Return the document in a row.

    Raises:
        CorruptStoreError: someone has changed the row to what is none.
    """
    try:
        return Document(unescaped(key), unescaped(text), metadata_of(metadata))
    except UNREADABLE as error:
        raise unreadable(key, error) from error


def _score(name: str, score: float | None) -> float:
    return score or 0.0 if name == WORDS else math.nan if score is None else score
