"""Writing one dataset in PostgreSQL, its statistics and its views."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.backend import check_format
from pointsman.store.bm25 import rarest
from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres import statements
from pointsman.store.postgres.bounded_connections import without_limit
from pointsman.store.postgres.postgres_history import RETENTION
from pointsman.store.postgres.postgres_reader import DatasetRow, document_of
from pointsman.store.postgres.postgres_rows import PostgresRows, copy_vectors, unused_ids, vector_digest
from pointsman.store.postgres.postgres_view import AdmittedSignatures, PostgresViewStore, Signatures
from pointsman.store.prepared_documents import Prepared, directions, edits, metadata_of, prepare, storable
from pointsman.store.store_values import WORDS_FIRST, Capability, MetadataResult, Statistics, StoreInfo
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import StoreError
from pointsman.values.types import AddResult, Document, Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import Connection

    from pointsman.store.base_store import Store
    from pointsman.store.postgres.postgres_connections import Connections
    from pointsman.values.filters import Filter
    from pointsman.values.views import View

log = logging.getLogger(__name__)

_CAPABILITIES: Final = frozenset(Capability) - {Capability.LOCAL, Capability.CHANGES}
_FRESH_SECONDS: Final = 1.0  # age up to which statistics are reused
BATCH_DOCUMENTS: Final = 5_000
"""Documents deleted, or given new postings, in one transaction."""
_GROWTH: Final = 2  # growth of the tables since they were last analysed


class PostgresWriter(PostgresRows):
    """Writing one dataset in PostgreSQL, and what is counted of it.

    Args:
        connections: connections to the database.
        schema: schema of the workspace.
        vectors: the schema that contains pgvector.
        row: the catalogue's entry.

    Raises:
        FormatVersionError: the dataset was written by a newer Pointsman.
    """

    def __init__(self, connections: Connections, schema: str, vectors: str, row: DatasetRow) -> None:
        check_format(connections.label, row.format, statements.FORMAT)
        super().__init__(connections, statements.Tables(schema, row.number, vectors), row)
        self._embedder, self._dimensions = row.embedder, row.dimensions
        self._retention = row.retention  # what versions are kept, as far as this process knows
        self._documents = row.documents  # the last known number, which only affects speed
        self._statistics: tuple[float, Statistics] | None = None
        self._due = -1, 0  # sequence number of the count, and the count
        self._signatures = Signatures(self._signature_rows)
        self.cosines_of_signatures: dict[tuple[bytes, int, int], NDArray[np.float64]] = {}
        """By a digest of questions, a signature and its last change: the best cosine of each question, for views."""
        self._bulk = threading.local()
        if row.analyzer != statements.DERIVED:
            log.warning("%s: the index data was made by another version; rebuilding it", connections.label)
            self.rebuild()

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        return StoreInfo(
            "postgresql", self._record.identity, self._embedder, self._dimensions, self._scales, _CAPABILITIES
        )

    @property
    def dimensions(self) -> int | None:
        """See `PostgresReader`."""
        return self._dimensions

    def _search_statement(self, condition: statements.Condition | None, *, has_words: bool, has_vector: bool) -> str:
        row_limit = statements.FEW if self._documents >= statements.EXACT_ROWS else statements.LARGEST_ID - 1
        return self._tables.search(
            condition,
            has_words=has_words,
            has_vector=has_vector,
            limit=row_limit,
            k1=self._record.k1,
            b=self._record.b,
            repeatable=self._retention is not None,
        )

    def _score_statement(self, *, has_words: bool, has_vector: bool) -> str:
        return self._tables.score(
            has_words=has_words,
            has_vector=has_vector,
            k1=self._record.k1,
            b=self._record.b,
            repeatable=self._retention is not None,
        )

    def write(
        self,
        documents: Sequence[Document],
        vectors: NDArray[np.float32] | None = None,
        embedder: str | None = None,
        *,
        stored_only: bool = False,
        has_vector: NDArray[np.bool_] | None = None,
        skip_identical: bool = True,
    ) -> AddResult:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        self.note_versions(item.document.metadata for item in items)
        rows = None if vectors is None else directions(vectors, items, has_vector)
        if not items:
            return AddResult()
        name = embedder or ""
        result = self._connections.run(
            lambda connection: (
                self._embed(connection, items, rows, name)
                if stored_only and rows is not None
                else self._write(connection, items, rows, name, has_vector, skip_identical=skip_identical)
            )
        )
        if result.added or result.updated:
            self._statistics = None
            self._documents += result.added
            if rows is not None:
                self._embedder, self._dimensions = embedder or "", rows.shape[1]
            if not getattr(self._bulk, "depth", 0):
                self._tend()
        return result

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Group several writes; an index that has become worthwhile is created at their end."""
        self._bulk.depth = getattr(self._bulk, "depth", 0) + 1
        try:
            yield
        finally:
            self._bulk.depth -= 1
            if not self._bulk.depth:
                self._tend()

    def _write(
        self,
        connection: Connection[Any],
        prepared: Sequence[Prepared],
        vectors: NDArray[np.float32] | None,
        name: str,
        has_vector: NDArray[np.bool_] | None,
        *,
        skip_identical: bool,
    ) -> AddResult:
        tables = self._tables
        digests = [b""] * len(prepared) if vectors is None else [vector_digest(row) for row in vectors]
        if has_vector is not None:
            digests = [
                digest if has_own_vector else b"" for digest, has_own_vector in zip(digests, has_vector, strict=True)
            ]
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            state = self._lock_state(cursor)
            if vectors is not None:
                self._fix_embedder(cursor, state, name, vectors.shape[1])
            existing = self._existing(cursor, prepared, with_vectors=vectors is not None)
            fresh = []
            for index, (item, digest) in enumerate(zip(prepared, digests, strict=True)):
                old = existing.get(item.document.id)
                is_same = old is not None and old.digest == item.digest and not (digest and old.vector != digest)
                if not (is_same and skip_identical):
                    fresh.append(index)
            count_unchanged = len(prepared) - len(fresh)
            if not fresh:
                return AddResult(unchanged=count_unchanged)
            items = [prepared[index] for index in fresh]
            replaced_ids = [existing[item.document.id].id for item in items if item.document.id in existing]
            new_ids = iter(unused_ids(cursor, tables.doc, len(items) - len(replaced_ids)))
            ids = [existing[i.document.id].id if i.document.id in existing else next(new_ids) for i in items]
            if state.retention is not None:
                history.keep(cursor, tables, replaced_ids, state.seq + 1, state.dimensions)
            with self._counting(cursor, state.seq + 1, replaced_ids, ids):
                more_tokens = self._write_texts(cursor, items, ids, state.seq + 1, replaced_ids)
            if vectors is not None:
                pairs = [(index, id_) for index, id_ in zip(fresh, ids, strict=True) if digests[index]]
                indices = [index for index, _ in pairs]
                pair_ids, pair_digests = [id_ for _, id_ in pairs], [digests[index] for index in indices]
                copy_vectors(cursor, tables.vec, pair_ids, pair_digests, vectors[indices])
            self._advance(cursor, state, len(items) - len(replaced_ids), more_tokens)
        return AddResult(len(items) - len(replaced_ids), len(replaced_ids), count_unchanged)

    def set_metadata(
        self,
        changes: Mapping[str, Metadata],
        vectors: Mapping[str, NDArray[np.float32]] | None = None,
        embedder: str | None = None,
        *,
        replace: bool = False,
    ) -> MetadataResult:
        """See `Store`; one transaction, which locks the dataset's row as every writer does."""
        if not changes:
            return MetadataResult(AddResult())
        self.note_versions(changes.values())
        result = self._connections.run(
            lambda connection: self._edit(connection, changes, vectors or {}, embedder or "", replace=replace)
        )
        if result.counts.updated:
            self._statistics = None
        return result

    def _edit(
        self,
        connection: Connection[Any],
        changes: Mapping[str, Metadata],
        vectors: Mapping[str, NDArray[np.float32]],
        name: str,
        *,
        replace: bool,
    ) -> MetadataResult:
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            state = self._lock_state(cursor)
            cursor.execute(
                f"{self._select} where d.key = any(%s::text[])",
                ([statements.escaped(id_) for id_ in changes if storable(id_)],),
            )
            rows = cursor.fetchall()
            stored_documents = {document.id: document for document in (document_of(*row[1:]) for row in rows)}
            edits_of_documents = edits(changes, list(map(stored_documents.get, changes)), replace=replace)
            existing = self._existing(
                cursor, [edit.prepared for edit in edits_of_documents], with_vectors=state.dimensions is not None
            )
            fresh = [edit for edit in edits_of_documents if existing[edit.id].digest != edit.prepared.digest]
            title_edits_with_vector = [edit for edit in fresh if edit.retitled and existing[edit.id].vector is not None]
            texts = tuple(
                dict.fromkeys(edit.searchable for edit in title_edits_with_vector if edit.searchable not in vectors)
            )
            if texts:
                return MetadataResult(AddResult(), texts, tuple(changes))
            counts = AddResult(0, len(fresh), len(edits_of_documents) - len(fresh))
            if not fresh:
                return MetadataResult(counts)
            title_edits = [edit for edit in fresh if edit.retitled]
            ids = [existing[edit.id].id for edit in title_edits]
            old_ids = [existing[edit.id].id for edit in fresh]
            if state.retention is not None:
                numbers = {existing[edit.id].id for edit in fresh if not edit.retitled}
                history.keep(cursor, self._tables, ids, state.seq + 1, state.dimensions)
                history.keep_without_vector(cursor, self._tables, sorted(numbers), state.seq + 1, state.dimensions)
            with self._counting(cursor, state.seq + 1, old_ids, old_ids):
                self._write_metadata(
                    cursor,
                    [(existing[edit.id].id, edit.prepared) for edit in fresh if not edit.retitled],
                    state.seq + 1,
                )
                more_tokens = (
                    self._write_texts(cursor, [edit.prepared for edit in title_edits], ids, state.seq + 1, ids)
                    if ids
                    else 0
                )
            if title_edits_with_vector:
                matrix = np.array([vectors[edit.searchable] for edit in title_edits_with_vector], np.float32)
                matrix = directions(matrix, [edit.prepared for edit in title_edits_with_vector])
                self._fix_embedder(cursor, state, name, matrix.shape[1])
                ids = [existing[edit.id].id for edit in title_edits_with_vector]
                self._write_vectors(cursor, ids, matrix)
            self._advance(cursor, state, 0, more_tokens)
        return MetadataResult(counts)

    def rebuild(self) -> None:
        """Recompute words and facts from the documents, in one transaction; nothing is embedded again."""
        tables, schema = self._tables, self._tables.schema

        def rebuild(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                cursor.execute(f"truncate {tables.term}, {tables.posting}, {tables.signature}")
                total, last = 0, 0
                while True:
                    cursor.execute(f"{self._select} where d.id > %s order by d.id limit {BATCH_DOCUMENTS}", (last,))
                    rows = cursor.fetchall()
                    if not rows:
                        break
                    last = rows[-1][0]
                    documents = [document_of(*row[1:]) for row in rows]
                    counters = [
                        (row[0], Counter(DEFAULT_ANALYZER.tokens(document.searchable)))
                        for row, document in zip(rows, documents, strict=True)
                    ]
                    lengths = [(id_, counter, counter.total()) for id_, counter in counters]
                    self._write_postings(cursor, [], lengths)
                    cursor.execute(
                        f"update {tables.doc} d set length = u.length, facts = u.facts::jsonb, "
                        "signature = u.signature from unnest(%s::int[], %s::int[], %s::text[], %s::int[]) "
                        "u(id, length, facts, signature) where d.id = u.id",
                        (
                            [id_ for id_, _, _ in lengths],
                            [length for _, _, length in lengths],
                            [statements.facts_of(document.metadata) for document in documents],
                            self._signature_numbers(cursor, documents),
                        ),
                    )
                    total += sum(length for _, _, length in lengths)
                cursor.execute(
                    f'update "{schema}".dataset set seq = seq + 1, tokens = %s, analyzer = %s '
                    f"where number = {tables.number}",
                    (total, statements.DERIVED),
                )
                if state.retention is not None:
                    history.note_write(cursor, tables, state.seq + 1, state.retention)
                cursor.execute(
                    f"update {tables.signature} s set documents = d.documents, tokens = d.tokens, "
                    f"changed = (select seq from {tables.row}) from (select signature, count(*) as documents, "
                    f"sum(length) as tokens from {tables.doc} group by signature) d where d.signature = s.id"
                )

        self._connections.run(rebuild)
        self._statistics = None

    def _tend(self) -> None:
        """Update the planner's statistics after a write; from 50,000 vectors on, create an index concurrently."""
        tables, schema = self._tables, self._tables.schema

        def tend(connection: Connection[Any]) -> None:
            row = connection.execute(f"select documents, analyzed, dimensions from {tables.row}").fetchone()
            if row is None:
                return
            documents, count_analyzed, dimensions = row
            if documents > _GROWTH * count_analyzed + 500:
                names = [tables.doc, tables.term, tables.posting, tables.body] + [tables.vec] * (dimensions is not None)
                connection.execute(f"analyze {', '.join(names)}")
                connection.execute(
                    f'update "{schema}".dataset set analyzed = %s where number = {tables.number}', (documents,)
                )
            if (
                dimensions is not None
                and documents >= statements.EXACT_ROWS
                and dimensions <= 2000
                and not self._retention
            ):
                # more dimensions are beyond pgvector, and what keeps versions is searched without an index
                self._index(connection)

        try:
            self._connections.run(tend)
        except StoreError as error:  # the written data is stored; the next write tries again
            log.warning("%s: maintenance after writing failed and will be retried: %s", self._connections.label, error)

    def _index(self, connection: Connection[Any]) -> None:
        tables, name = self._tables, self._tables.index_name
        valid = "select x.indisvalid from pg_index x where x.indexrelid = to_regclass(%s)"
        qualified_name = f'"{tables.schema}".{name}'
        row = connection.execute(valid, (qualified_name,)).fetchone()
        if row is not None and row[0]:
            return
        lock = f"{tables.schema}.{name}"
        lock_row = connection.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", (lock,)).fetchone()
        if lock_row is None or not lock_row[0]:
            return  # another process is creating it
        try:
            connection.execute("set statement_timeout = 0")
            connection.execute("set maintenance_work_mem = '512MB'")
            # An interrupted attempt may have left one over.
            connection.execute(f"drop index if exists {qualified_name}")
            with without_limit(connection):
                connection.execute(
                    f"create index concurrently {name} on {tables.vec} using hnsw "
                    f'(v "{tables.vectors}".vector_ip_ops) with (m = 16, ef_construction = 64)'
                )
        finally:
            connection.execute("reset statement_timeout")
            connection.execute("reset maintenance_work_mem")
            connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", (lock,))

    def _sample_keys(self, sample: int) -> list[int]:
        sql = f"select id from {self._tables.vec} order by hashint4(id) limit %(n)s"
        return [id_ for (id_,) in self._rows(sql, n=sample)]

    def statistics(self) -> Statistics:
        """See `Store`; statistics are reused for a second, unless receipts are to name the state by them."""
        cached = self._statistics
        if cached is not None and self._retention is None and time.monotonic() - cached[0] < _FRESH_SECONDS:
            return cached[1]
        schema, number = self._tables.schema, self._tables.number
        time_now = time.monotonic()
        sql = (
            f"select seq, documents, embedder, dimensions, {RETENTION}, "
            f'(select json_object_agg(name, value)::text from "{schema}".note where number = {number}) '
            f"from {self._tables.row}"
        )
        seq, documents, self._embedder, self._dimensions, self._retention, notes = self._only_row(self._rows(sql))
        values = {name: statements.unescaped(value) for name, value in metadata_of(notes or "{}").items()}
        if WORDS_FIRST in values and self._due[0] != seq:
            self._due = seq, documents - self._vector_count()
        due = max(0, self._due[1]) if WORDS_FIRST in values else 0
        all_notes = history.all_notes(values, self._embedder, self._dimensions)
        recorded_state = None if self._retention is None else history.recorded_state(seq, all_notes, self._retention)
        self._documents, statistics = documents, Statistics(seq, documents, values, due, recorded_state)
        self._statistics = time_now, statistics
        return statistics

    def latest_dimensions(self) -> int | None:
        """Return the dimensions of the vectors, None if there are none; another process may just have stored them."""
        if self._dimensions is None:
            self._statistics = None  # they may be a second old
            self.statistics()
        return self._dimensions

    def _vector_count(self) -> int:
        if self._dimensions is None:
            return 0
        return int(self._rows(f"select count(*) from {self._tables.vec}")[0][0])

    def _admit(self, view: View) -> AdmittedSignatures:
        return self._signatures.admit(view, self.statistics().sequence)

    def _signature_rows(self, sequence: int) -> list[Any]:
        """Return number, signature, documents and last change of the signatures changed after a sequence number."""
        sql = f"select id, signature, documents, changed from {self._tables.signature} where changed > %(sequence)s"
        return self._rows(sql, sequence=sequence)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is None:
            rows = self._rows(f"select documents from {self._tables.row}")
            return int(self._only_row(rows)[0])
        return super().count(filters)

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        sql = f"select term, df from {self._tables.term} where term = any(%(terms)s::text[])"
        return rarest(words, lambda terms: dict(self._rows(sql, terms=terms)))

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        tables, names = self._tables, list(notes)
        insert = f'insert into "{tables.schema}".note (number, name, value) select {tables.number}, * from '
        insert += "unnest(%s::text[], %s::text[])"
        replace = " on conflict (number, name) do update set value = excluded.value"
        values = [names, [statements.escaped(value) for value in notes.values()]]

        def annotate(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                if state.retention is not None:
                    select = f'select name, value from "{tables.schema}".note where number = {tables.number}'
                    cursor.execute(f"{select} and name = any(%s::text[])", (names,))
                    former = {name: statements.unescaped(value) for name, value in cursor.fetchall()}
                    history.keep_notes(cursor, tables, state.seq, {name: former.get(name) for name in names})
                cursor.execute(insert + replace, values)

        def annotate_unless_kept(connection: Connection[Any]) -> int:
            unless_kept = f" where (select {RETENTION} from {tables.row}) is null"
            return connection.execute(insert + unless_kept + replace, values).rowcount

        # without versions, no note waits for a write that takes long
        if notes and (self._retention is not None or not self._connections.run(annotate_unless_kept)):
            self._connections.run(annotate)
        self._statistics = None

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> PostgresViewStore:
        """See `Store`; as of the last second."""
        signatures = self._admit(view)
        return PostgresViewStore(self._connections, self._tables, self._record, self, signatures, self._admit, notes)
