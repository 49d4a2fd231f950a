"""Writing one dataset in PostgreSQL, its statistics and its views."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from pointsman.store.backend import check_format
from pointsman.store.bm25 import rarest
from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres import statements
from pointsman.store.postgres.bounded_connections import without_limit
from pointsman.store.postgres.postgres_history import RETENTION
from pointsman.store.postgres.postgres_reader import DatasetRow, PostgresReader, document_of
from pointsman.store.postgres.postgres_rows import DatasetWrite, stored_rows, unused_ids, vector_digest
from pointsman.store.postgres.postgres_view import AdmittedSignatures, PostgresViewStore, Signatures
from pointsman.store.prepared_documents import (
    Batch,
    MetadataChange,
    directions,
    metadata_of,
    storable,
)
from pointsman.store.store_values import WORDS_FIRST, Capability, MetadataResult, Statistics, StoreInfo
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import StoreError
from pointsman.values.types import AddResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import Connection

    from pointsman.store.base_store import Store
    from pointsman.store.postgres.postgres_connections import Connections
    from pointsman.values.filters import Filter
    from pointsman.values.views import View

log = logging.getLogger(__name__)

T = TypeVar("T")

_CAPABILITIES: Final = frozenset(Capability) - {Capability.LOCAL, Capability.CHANGES}
_FRESH_SECONDS: Final = 1.0  # age up to which statistics are reused
BATCH_DOCUMENTS: Final = 5_000
"""Documents deleted, or given new postings, in one transaction."""
_GROWTH: Final = 2  # growth of the tables since they were last analysed


class PostgresWriter(PostgresReader):
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
            "postgresql", self.record.identity, self._embedder, self._dimensions, self._scales, _CAPABILITIES
        )

    @property
    def dimensions(self) -> int | None:
        """See `PostgresReader`."""
        return self._dimensions

    @property
    def _statements(self) -> statements.DatasetTables:
        repeatable = self._retention is not None
        counts_few = self._documents >= statements.EXACT_ROWS and not repeatable
        limit = statements.FEW if counts_few else statements.LARGEST_ID - 1
        return statements.DatasetTables(self.tables, self.record.k1, self.record.b, limit=limit, repeatable=repeatable)

    def _write(self, batch: Batch) -> AddResult:
        self.note_versions(item.document.metadata for item in batch.items)
        batch = batch.directed()
        if not batch.items:
            return AddResult()
        digests = [b"" if row is None else vector_digest(row) for row in batch.rows()]
        write = self._embed if batch.stored_only and batch.vectors is not None else self._upsert
        result = self._change(lambda transaction: write(transaction, batch, digests))
        if result.added or result.updated:
            self._statistics = None
            self._documents += result.added
            if batch.vectors is not None:
                self._embedder, self._dimensions = batch.embedder, batch.vectors.shape[1]
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

    def _change(self, change: Callable[[DatasetWrite], T]) -> T:
        """Call ``change`` within a transaction that has locked the dataset's row, and return its result."""

        def run(connection: Connection[Any]) -> T:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                cursor.execute(f"select seq, embedder, dimensions, {RETENTION} from {self.tables.row} for update")
                return change(DatasetWrite(cursor, self.tables, *self._only_row(cursor.fetchall())))

        return self.connections.run(run)

    def _upsert(self, transaction: DatasetWrite, batch: Batch, digests: Sequence[bytes]) -> AddResult:
        all_items, vectors = batch.items, batch.vectors
        if vectors is not None:
            transaction.fix_embedder(batch.embedder, vectors.shape[1])
        existing = stored_rows(transaction.cursor, self.tables, all_items, with_vectors=vectors is not None)
        fresh = []
        for index, (item, digest) in enumerate(zip(all_items, digests, strict=True)):
            old = existing.get(item.document.id)
            is_same = old is not None and old.digest == item.digest and not (digest and old.vector != digest)
            if not (is_same and batch.skip_identical):
                fresh.append(index)
        count_unchanged = len(all_items) - len(fresh)
        if not fresh:
            return AddResult(unchanged=count_unchanged)
        items = [all_items[index] for index in fresh]
        replaced_ids = [existing[item.document.id].id for item in items if item.document.id in existing]
        new_ids = iter(unused_ids(transaction.cursor, self.tables.doc, len(items) - len(replaced_ids)))
        ids = [existing[i.document.id].id if i.document.id in existing else next(new_ids) for i in items]
        transaction.keep(replaced_ids)
        with transaction.counting(replaced_ids, ids):
            more_tokens = transaction.write_texts(items, ids, replaced_ids)
        if vectors is not None:
            pairs = [(index, id_) for index, id_ in zip(fresh, ids, strict=True) if digests[index]]
            indices = [index for index, _ in pairs]
            vector_digests = [digests[index] for index in indices]
            transaction.write_vectors([id_ for _, id_ in pairs], vectors[indices], vector_digests)
        transaction.advance(len(items) - len(replaced_ids), more_tokens)
        return AddResult(len(items) - len(replaced_ids), len(replaced_ids), count_unchanged)

    def _embed(self, transaction: DatasetWrite, batch: Batch, digests: Sequence[bytes]) -> AddResult:
        """Write only vectors, and only of documents that are stored unchanged."""
        cursor, tables, vectors = transaction.cursor, self.tables, np.asarray(batch.vectors)
        transaction.fix_embedder(batch.embedder, vectors.shape[1])
        existing = stored_rows(cursor, tables, batch.items, with_vectors=True)
        stored_pairs = [
            (index, old)
            for index, item in enumerate(batch.items)
            if (old := existing.get(item.document.id)) is not None and old.digest == item.digest
        ]
        fresh = [(index, old.id) for index, old in stored_pairs if old.vector != digests[index]]
        if fresh:
            indices, ids = [index for index, _ in fresh], [id_ for _, id_ in fresh]
            transaction.keep(ids)
            if transaction.retention is not None:
                stamp = f"update {tables.doc} set seq = %s where id = any(%s::bigint[])"
                cursor.execute(stamp, (transaction.seq, ids))
            with transaction.counting(ids, ids):
                cursor.execute(f"delete from {tables.vec} where id = any(%s::bigint[])", (ids,))
                transaction.write_vectors(ids, vectors[indices], [digests[index] for index in indices])
            transaction.advance(0, 0)
        return AddResult(0, len(fresh), len(stored_pairs) - len(fresh))

    def _change_metadata(self, change: MetadataChange) -> MetadataResult:
        self.note_versions(change.values.values())
        result = self._change(lambda transaction: self._edit(transaction, change))
        if result.counts.updated:
            self._statistics = None
        return result

    def _edit(self, transaction: DatasetWrite, change: MetadataChange) -> MetadataResult:
        cursor, tables, changes = transaction.cursor, self.tables, change.values
        keys = [statements.escaped(id_) for id_ in changes if storable(id_)]
        cursor.execute(f"{tables.select} where d.key = any(%s::text[])", (keys,))
        stored_documents = {document.id: document for document in (document_of(*row[1:]) for row in cursor.fetchall())}
        all_edits = change.edits(list(map(stored_documents.get, changes)))
        items = [edit.prepared for edit in all_edits]
        existing = stored_rows(cursor, tables, items, with_vectors=transaction.dimensions is not None)
        fresh = [edit for edit in all_edits if existing[edit.id].digest != edit.prepared.digest]
        title_edits = [edit for edit in fresh if edit.retitled]
        with_vector = [edit for edit in title_edits if existing[edit.id].vector is not None]
        if texts := change.missing(with_vector):
            return MetadataResult(AddResult(), texts, tuple(changes))
        counts = AddResult(0, len(fresh), len(all_edits) - len(fresh))
        if not fresh:
            return MetadataResult(counts)
        ids = [existing[edit.id].id for edit in title_edits]
        metadata_edits = [(existing[edit.id].id, edit.prepared) for edit in fresh if not edit.retitled]
        transaction.keep(ids)
        transaction.keep(sorted(id_ for id_, _ in metadata_edits), with_vectors=False)
        old_ids = [existing[edit.id].id for edit in fresh]
        more_tokens = 0
        with transaction.counting(old_ids, old_ids):
            transaction.write_metadata(metadata_edits)
            if ids:
                more_tokens = transaction.write_texts([edit.prepared for edit in title_edits], ids, ids)
        if with_vector:
            matrix = np.array([change.vectors[edit.searchable] for edit in with_vector], np.float32)
            matrix = directions(matrix, [edit.prepared for edit in with_vector])
            transaction.fix_embedder(change.embedder, matrix.shape[1])
            transaction.write_vectors([existing[edit.id].id for edit in with_vector], matrix)
        transaction.advance(0, more_tokens)
        return MetadataResult(counts)

    def rebuild(self) -> None:
        """Recompute words and facts from the documents, in one transaction; nothing is embedded again."""
        tables = self.tables

        def rebuild(transaction: DatasetWrite) -> None:
            cursor = transaction.cursor
            cursor.execute(f"truncate {tables.term}, {tables.posting}, {tables.signature}")
            total, last = 0, 0
            while True:
                cursor.execute(f"{tables.select} where d.id > %s order by d.id limit {BATCH_DOCUMENTS}", (last,))
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
                transaction.write_postings([], lengths)
                cursor.execute(
                    f"update {tables.doc} d set length = u.length, facts = u.facts::jsonb, "
                    "signature = u.signature from unnest(%s::int[], %s::int[], %s::text[], %s::int[]) "
                    "u(id, length, facts, signature) where d.id = u.id",
                    (
                        [id_ for id_, _, _ in lengths],
                        [length for _, _, length in lengths],
                        [statements.facts_of(document.metadata) for document in documents],
                        transaction.signature_numbers(documents),
                    ),
                )
                total += sum(length for _, _, length in lengths)
            cursor.execute(tables.update("seq = seq + 1, tokens = %s, analyzer = %s"), (total, statements.DERIVED))
            if transaction.retention is not None:
                history.note_write(cursor, tables, transaction.seq, transaction.retention)
            cursor.execute(
                f"update {tables.signature} s set documents = d.documents, tokens = d.tokens, "
                f"changed = (select seq from {tables.row}) from (select signature, count(*) as documents, "
                f"sum(length) as tokens from {tables.doc} group by signature) d where d.signature = s.id"
            )

        self._change(rebuild)
        self._statistics = None

    def _tend(self) -> None:
        """Update the planner's statistics after a write; from 50,000 vectors on, create an index concurrently."""
        tables = self.tables

        def tend(connection: Connection[Any]) -> None:
            row = connection.execute(f"select documents, analyzed, dimensions from {tables.row}").fetchone()
            if row is None:
                return
            documents, count_analyzed, dimensions = row
            if documents > _GROWTH * count_analyzed + 500:
                names = [tables.doc, tables.term, tables.posting, tables.body] + [tables.vec] * (dimensions is not None)
                connection.execute(f"analyze {', '.join(names)}")
                connection.execute(tables.update("analyzed = %s"), (documents,))
            if (
                dimensions is not None
                and documents >= statements.EXACT_ROWS
                and dimensions <= 2000
                and not self._retention
            ):
                # more dimensions are beyond pgvector, and what keeps versions is searched without an index
                self._index(connection)

        try:
            self.connections.run(tend)
        except StoreError as error:  # the written data is stored; the next write tries again
            log.warning("%s: maintenance after writing failed and will be retried: %s", self.connections.label, error)

    def _index(self, connection: Connection[Any]) -> None:
        tables, name = self.tables, f"d{self.tables.number}_vec_hnsw"
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
        sql = f"select id from {self.tables.vec} order by hashint4(id) limit %(n)s"
        return [id_ for (id_,) in self._rows(sql, n=sample)]

    def statistics(self) -> Statistics:
        """See `Store`; statistics are reused for a second, unless receipts are to name the state by them."""
        cached = self._statistics
        if cached is not None and self._retention is None and time.monotonic() - cached[0] < _FRESH_SECONDS:
            return cached[1]
        time_now = time.monotonic()
        notes_as_json = f"(select json_object_agg(name, value)::text from {self.tables.notes})"
        sql = f"select seq, documents, embedder, dimensions, {RETENTION}, {notes_as_json} from {self.tables.row}"
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
        return int(self._rows(f"select count(*) from {self.tables.vec}")[0][0])

    def _admit(self, view: View) -> AdmittedSignatures:
        return self._signatures.admit(view, self.statistics().sequence)

    def _signature_rows(self, sequence: int) -> list[Any]:
        """Return number, signature, documents and last change of the signatures changed after a sequence number."""
        sql = f"select id, signature, documents, changed from {self.tables.signature} where changed > %(sequence)s"
        return self._rows(sql, sequence=sequence)

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is None:
            rows = self._rows(f"select documents from {self.tables.row}")
            return int(self._only_row(rows)[0])
        return super().count(filters)

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        sql = f"select term, df from {self.tables.term} where term = any(%(terms)s::text[])"
        return rarest(words, lambda terms: dict(self._rows(sql, terms=terms)))

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        tables, names = self.tables, list(notes)
        replace = " on conflict (number, name) do update set value = excluded.value"
        values = [names, [statements.escaped(value) for value in notes.values()]]

        def annotate(transaction: DatasetWrite) -> None:
            cursor = transaction.cursor
            if transaction.retention is not None:
                cursor.execute(f"select name, value from {tables.notes} and name = any(%s::text[])", (names,))
                former = {name: statements.unescaped(value) for name, value in cursor.fetchall()}
                history.keep_notes(cursor, tables, transaction.last_seq, {name: former.get(name) for name in names})
            cursor.execute(tables.insert_notes + replace, values)

        def annotate_unless_kept(connection: Connection[Any]) -> int:
            unless_kept = f" where (select {RETENTION} from {tables.row}) is null"
            return connection.execute(tables.insert_notes + unless_kept + replace, values).rowcount

        # without versions, no note waits for a write that takes long
        if notes and (self._retention is not None or not self.connections.run(annotate_unless_kept)):
            self._change(annotate)
        self._statistics = None

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> PostgresViewStore:
        """See `Store`; as of the last second."""
        return PostgresViewStore(self, self._admit(view), self._admit, notes)
