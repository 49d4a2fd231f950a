"""One dataset in PostgreSQL."""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.embedders.base_embedder import mixed_embedders
from pointsman.store.base_store import NEAR, WORDS_FIRST, Capability, MetadataResult, Statistics, StoreInfo
from pointsman.store.bm25 import query_terms
from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres.postgres_history import RETENTION, RETENTION_TEXT
from pointsman.store.postgres.postgres_reader import DatasetRow, PostgresReader, as_sql, document_of
from pointsman.store.postgres.postgres_view import AdmittedSignatures, PostgresViewStore, Signatures
from pointsman.store.postgres.statements import (
    DERIVED,
    EXACT_ROWS,
    FEW,
    FORMAT,
    LARGEST_ID,
    Condition,
    Tables,
    escaped,
    facts_of,
    unescaped,
)
from pointsman.store.prepared_documents import Prepared, directions, edits, metadata_of, prepare, storable
from pointsman.store.signature import signature_of
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.batching import batched
from pointsman.tools.errors import FormatVersionError, InputError, StoreError
from pointsman.values.types import AddResult, Document, Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import Connection, Cursor

    from pointsman.store.base_store import Store
    from pointsman.store.history import PastStore
    from pointsman.store.postgres.postgres_connections import Connections
    from pointsman.values.filters import Filter
    from pointsman.values.views import View

log = logging.getLogger(__name__)

_CAPABILITIES: Final = frozenset(Capability) - {Capability.LOCAL, Capability.CHANGES}
_FRESH_SECONDS: Final = 1.0  # age up to which statistics are reused
_BATCH_DOCUMENTS: Final = 5_000  # documents deleted, or given new postings, in one transaction
_GROWTH: Final = 2  # growth of the tables since they were last analysed


class PostgresStore(PostgresReader):
    """A dataset in PostgreSQL; keys are integers. `PostgresBackend` opens it.

    A search is one statement. Writers take turns by locking the dataset's row; they wait for each other and are not
    refused within 30 seconds. Word scores are always exact BM25. Vectors are compared one by one below 50,000, and if a
    filter allows fewer than 5,000; otherwise an HNSW index is used.

    Args:
        connections: connections to the database.
        schema: schema of the workspace.
        vectors: the schema that contains pgvector.
        about: the catalogue's entry.

    Raises:
        FormatVersionError: the dataset was written by a newer Pointsman.
    """

    def __init__(self, connections: Connections, schema: str, vectors: str, about: DatasetRow) -> None:
        if about.format != FORMAT:
            raise FormatVersionError(
                f"{connections.label}: the dataset is in format {about.format}, this version of pointsman knows format "
                f"{FORMAT}; open it with the version that wrote it"
            )
        super().__init__(connections, Tables(schema, about.number, vectors), about)
        self._embedder, self._dimensions = about.embedder, about.dimensions
        self._retention = about.retention  # what versions are kept, as far as this process knows
        self._documents = about.documents  # the last known number, which only affects speed
        self._statistics: tuple[float, Statistics] | None = None
        self._due = -1, 0  # sequence number of the count, and the count
        self._signatures = Signatures(self._signature_rows)
        self.cosines_of_signatures: dict[tuple[bytes, int, int], NDArray[np.float64]] = {}
        """By a digest of questions, a signature and its last change: the best cosine of each question, for views."""
        self._bulk = threading.local()
        if about.analyzer != DERIVED:
            log.warning("%s: the index data was made by another version; rebuilding it", connections.label)
            self.rebuild()

    def __repr__(self) -> str:
        return (
            f"PostgresStore({self._connections.label!r}, schema={self._tables.schema!r}, number={self._record.number})"
        )

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        return StoreInfo(
            "postgresql", self._record.identity, self._embedder, self._dimensions, self._scales, _CAPABILITIES
        )

    @property
    def connections(self) -> Connections:
        """The connections to the database."""
        return self._connections

    @property
    def tables(self) -> Tables:
        """The tables of the dataset."""
        return self._tables

    @property
    def record(self) -> DatasetRow:
        """The catalogue's entry, as it was when the dataset was opened."""
        return self._record

    @property
    def dimensions(self) -> int | None:
        """See `PostgresReader`."""
        return self._dimensions

    def _search_statement(self, condition: Condition | None, *, words: bool, near: bool) -> str:
        row_limit = FEW if self._documents >= EXACT_ROWS else LARGEST_ID - 1
        return self._tables.search(
            condition,
            words=words,
            near=near,
            limit=row_limit,
            k1=self._record.k1,
            b=self._record.b,
            repeatable=self._retention is not None,
        )

    def _score_statement(self, *, words: bool, near: bool) -> str:
        return self._tables.score(
            words=words, near=near, k1=self._record.k1, b=self._record.b, repeatable=self._retention is not None
        )

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is None:
            rows = self._rows(f"select documents from {self._tables.row}")
            return int(self._only_row(rows)[0])
        return super().count(filters)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        documents: Sequence[Document],
        vectors: NDArray[np.float32] | None = None,
        embedder: str | None = None,
        *,
        stored_only: bool = False,
        has_vector: NDArray[np.bool_] | None = None,
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
                else self._write(connection, items, rows, name, has_vector)
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
    ) -> AddResult:
        tables = self._tables
        digests = [b""] * len(prepared) if vectors is None else [_vector_digest(row) for row in vectors]
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
                if old is None or old.digest != item.digest or (digest and old.vector != digest):
                    fresh.append(index)
            count_unchanged = len(prepared) - len(fresh)
            if not fresh:
                return AddResult(unchanged=count_unchanged)
            items = [prepared[index] for index in fresh]
            replaced_ids = [existing[item.document.id].id for item in items if item.document.id in existing]
            new_ids = iter(_new_ids(cursor, tables.doc, len(items) - len(replaced_ids)))
            ids = [existing[i.document.id].id if i.document.id in existing else next(new_ids) for i in items]
            if state.retention is not None:
                history.keep(cursor, tables, replaced_ids, state.seq + 1, state.dimensions)
            with self._counting(cursor, state.seq + 1, replaced_ids, ids):
                more_tokens = self._write_texts(cursor, items, ids, state.seq + 1, replaced_ids)
            if vectors is not None:
                pairs = [(index, id_) for index, id_ in zip(fresh, ids, strict=True) if digests[index]]
                indices = [index for index, _ in pairs]
                pair_ids, pair_digests = [id_ for _, id_ in pairs], [digests[index] for index in indices]
                _copy_vectors(cursor, tables.vec, pair_ids, pair_digests, vectors[indices])
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
                as_sql(f"{self._select} where d.key = any(%s::text[])"),
                ([escaped(id_) for id_ in changes if storable(id_)],),
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

    def _write_metadata(self, cursor: Cursor[Any], items: Sequence[tuple[int, Prepared]], seq: int) -> None:
        """Replace the metadata of documents by number; words and vectors stay."""
        if not items:
            return
        ids = [id_ for id_, _ in items]
        cursor.execute(
            as_sql(
                f"update {self._tables.doc} d set seq = %s, digest = u.digest, facts = u.facts::jsonb, "
                "signature = u.signature from unnest(%s::int[], %s::bytea[], %s::text[], %s::int[]) "
                "u(id, digest, facts, signature) where d.id = u.id"
            ),
            (
                seq,
                ids,
                [item.digest for _, item in items],
                [facts_of(item.document.metadata) for _, item in items],
                self._signature_numbers(cursor, [item.document for _, item in items]),
            ),
        )
        cursor.execute(
            as_sql(
                f"update {self._tables.body} y set metadata = u.metadata "
                "from unnest(%s::int[], %s::text[]) u(id, metadata) where y.id = u.id"
            ),
            (ids, [item.metadata for _, item in items]),
        )

    def _write_texts(
        self, cursor: Cursor[Any], items: Sequence[Prepared], ids: Sequence[int], seq: int, replaced_keys: Sequence[int]
    ) -> int:
        """Write documents and their postings, without vectors; return how many tokens there are more than before."""
        tokens = [Counter(DEFAULT_ANALYZER.tokens(item.document.searchable)) for item in items]
        lengths = [counter.total() for counter in tokens]
        old_tokens = self._tokens_of(cursor, replaced_keys)
        self._write_documents(cursor, items, ids, lengths, seq, replaced_keys)
        self._write_postings(cursor, old_tokens, list(zip(ids, tokens, lengths, strict=True)))
        return sum(lengths) - sum(counter.total() for _, counter in old_tokens)

    def _write_vectors(self, cursor: Cursor[Any], ids: Sequence[int], vectors: NDArray[np.float32]) -> None:
        _copy_vectors(cursor, self._tables.vec, ids, [_vector_digest(row) for row in vectors], vectors)

    def _embed(
        self, connection: Connection[Any], items: Sequence[Prepared], vectors: NDArray[np.float32], name: str
    ) -> AddResult:
        """Write only vectors, and only of documents that are stored unchanged."""
        digests = [_vector_digest(row) for row in vectors]
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            state = self._lock_state(cursor)
            self._fix_embedder(cursor, state, name, vectors.shape[1])
            existing = self._existing(cursor, items, with_vectors=True)
            stored_rows = [
                (index, old)
                for index, item in enumerate(items)
                if (old := existing.get(item.document.id)) is not None and old.digest == item.digest
            ]
            fresh = [(index, old.id) for index, old in stored_rows if old.vector != digests[index]]
            if fresh:
                indices, ids = [index for index, _ in fresh], [id_ for _, id_ in fresh]
                if state.retention is not None:
                    history.keep(cursor, self._tables, ids, state.seq + 1, vectors.shape[1])
                    stamp = f"update {self._tables.doc} set seq = %s where id = any(%s::bigint[])"
                    cursor.execute(as_sql(stamp), (state.seq + 1, ids))
                with self._counting(cursor, state.seq + 1, ids, ids):
                    cursor.execute(as_sql(f"delete from {self._tables.vec} where id = any(%s::bigint[])"), (ids,))
                    _copy_vectors(cursor, self._tables.vec, ids, [digests[n] for n in indices], vectors[indices])
                self._advance(cursor, state, 0, 0)
        return AddResult(0, len(fresh), len(stored_rows) - len(fresh))

    def _lock_state(self, cursor: Cursor[Any]) -> _State:
        """Lock the dataset's row until the transaction ends, and return it."""
        cursor.execute(as_sql(f"select seq, embedder, dimensions, {RETENTION} from {self._tables.row} for update"))
        return _State(*self._only_row(cursor.fetchall()))

    def _advance(self, cursor: Cursor[Any], state: _State, documents: int, tokens: int) -> None:
        """Count a write, and the documents and tokens that there are more than before."""
        schema, number = self._tables.schema, self._tables.number
        cursor.execute(
            as_sql(
                f'update "{schema}".dataset set seq = seq + 1, documents = documents + %s, tokens = tokens + %s '
                f"where number = {number}"
            ),
            (documents, tokens),
        )
        if state.retention is not None:
            history.note_write(cursor, self._tables, state.seq + 1, state.retention)

    def _signature_numbers(self, cursor: Cursor[Any], documents: Sequence[Document]) -> list[int]:
        """Return the number of each document's signature; new signatures get one."""
        signatures = [signature_of(document.metadata) for document in documents]
        digests = {text: hashlib.blake2b(text.encode(), digest_size=16).digest() for text in set(signatures)}
        table = self._tables.signature
        cursor.execute(as_sql(f"select digest, id from {table} where digest = any(%s)"), (list(digests.values()),))
        numbers: dict[bytes, int] = dict(cursor.fetchall())
        missing = sorted((digest, text) for text, digest in digests.items() if digest not in numbers)
        if missing:
            cursor.execute(
                as_sql(
                    f"insert into {table} (digest, signature) select * from unnest(%s::bytea[], %s::text[]) "
                    "returning digest, id"
                ),
                ([digest for digest, _ in missing], [text for _, text in missing]),
            )
            numbers.update(cursor.fetchall())
        return [numbers[digests[text]] for text in signatures]

    @contextmanager
    def _counting(
        self, cursor: Cursor[Any], seq: int, old_ids: Sequence[int], new_ids: Sequence[int]
    ) -> Iterator[None]:
        """Note what a write changes by signature: the number of documents, and of their tokens.

        Args:
            cursor: in the transaction of the write.
            seq: the sequence number of the write.
            old_ids: the numbers of the documents that it replaces, changes or deletes.
            new_ids: the numbers of those that exist after it.
        """
        changes = {number: [-documents, -tokens] for number, documents, tokens in self._sizes(cursor, old_ids)}
        yield
        for number, documents, tokens in self._sizes(cursor, new_ids):
            change = changes.setdefault(number, [0, 0])
            change[0] += documents
            change[1] += tokens
        cursor.execute(
            as_sql(
                f"update {self._tables.signature} s set documents = s.documents + u.documents, "
                "tokens = s.tokens + u.tokens, changed = %s "
                "from unnest(%s::int[], %s::bigint[], %s::bigint[]) u(id, documents, tokens) where s.id = u.id"
            ),
            (seq, list(changes), *([change[column] for change in changes.values()] for column in (0, 1))),
        )

    def _sizes(self, cursor: Cursor[Any], ids: Sequence[int]) -> list[Any]:
        """Return each signature of these documents, with the number of documents and of their tokens."""
        if not ids:
            return []
        cursor.execute(
            as_sql(
                f"select signature, count(*)::bigint, sum(length)::bigint from {self._tables.doc} "
                "where id = any(%s::bigint[]) group by signature"
            ),
            (list(ids),),
        )
        return cursor.fetchall()

    def _fix_embedder(self, cursor: Cursor[Any], state: _State, name: str, dimensions: int) -> None:
        if state.dimensions is None:
            cursor.execute(as_sql(self._tables.create_vectors(dimensions)).replace(b"%", b"%%"), binary=False)
            schema, number = self._tables.schema, self._tables.number
            cursor.execute(
                as_sql(f'update "{schema}".dataset set embedder = %s, dimensions = %s where number = {number}'),
                (name, dimensions),
            )
            if state.retention is not None:
                former = dict.fromkeys(history.all_notes({}, name, dimensions))
                history.keep_notes(cursor, self._tables, state.seq + 1, former)
            return
        if state.embedder != name:
            raise mixed_embedders("this dataset", state.embedder, name)
        if state.dimensions != dimensions:
            raise InputError(
                f"this dataset holds vectors of {state.dimensions} dimensions, not of {dimensions}; "
                "open it with the embedder that made them, or index the documents into a new dataset"
            )

    def _existing(self, cursor: Cursor[Any], items: Sequence[Prepared], *, with_vectors: bool) -> dict[str, _Row]:
        """Return the stored rows of these documents, by id."""
        tables = self._tables
        vector = f"(select e.digest from {tables.vec} e where e.id = d.id)" if with_vectors else "null::bytea"
        cursor.execute(
            as_sql(f"select d.key, d.id, d.digest, {vector} from {tables.doc} d where d.key = any(%s::text[])"),
            ([escaped(item.document.id) for item in items],),
        )
        return {unescaped(key): _Row(*row) for key, *row in cursor.fetchall()}

    def _tokens_of(self, cursor: Cursor[Any], ids: Sequence[int]) -> list[tuple[int, Counter[str]]]:
        """Return the words currently stored for documents, so that their postings can be removed."""
        if not ids:
            return []
        cursor.execute(as_sql(f"{self._select} where d.id = any(%s::bigint[])"), (list(ids),))
        rows = cursor.fetchall()
        return [(row[0], Counter(DEFAULT_ANALYZER.tokens(document_of(*row[1:]).searchable))) for row in rows]

    def _write_documents(
        self,
        cursor: Cursor[Any],
        items: Sequence[Prepared],
        ids: Sequence[int],
        lengths: Sequence[int],
        seq: int,
        replaced_keys: Sequence[int],
    ) -> None:
        tables = self._tables
        cursor.execute(
            as_sql(
                f"""insert into {tables.doc} (id, key, length, seq, digest, facts, signature)
                select id, key, length, %s, digest, facts::jsonb, signature
                from unnest(%s::int[], %s::text[], %s::int[], %s::bytea[], %s::text[], %s::int[])
                  u(id, key, length, digest, facts, signature)
                on conflict (id) do update set length = excluded.length, seq = excluded.seq,
                  digest = excluded.digest, facts = excluded.facts, signature = excluded.signature"""
            ),
            (
                seq,
                list(ids),
                [escaped(item.document.id) for item in items],
                list(lengths),
                [item.digest for item in items],
                [facts_of(item.document.metadata) for item in items],
                self._signature_numbers(cursor, [item.document for item in items]),
            ),
        )
        if replaced_keys:
            other_tables = [tables.body] if self._known_dimensions(cursor) is None else [tables.body, tables.vec]
            for table in other_tables:
                cursor.execute(as_sql(f"delete from {table} where id = any(%s::bigint[])"), (list(replaced_keys),))
        with cursor.copy(as_sql(f"copy {tables.body} (id, text, metadata) from stdin")) as copy:
            for id_, item in zip(ids, items, strict=True):
                copy.write_row((id_, escaped(item.document.text), item.metadata))

    def _known_dimensions(self, cursor: Cursor[Any]) -> int | None:
        cursor.execute(as_sql(f"select dimensions from {self._tables.row}"))
        dimensions: int | None = self._only_row(cursor.fetchall())[0]
        return dimensions

    def _write_postings(
        self,
        cursor: Cursor[Any],
        old: Sequence[tuple[int, Counter[str]]],
        new: Sequence[tuple[int, Counter[str], int]],
    ) -> None:
        """Remove the postings of some documents and insert those of others; frequencies are updated."""
        tables = self._tables
        change = Counter(itertools.chain.from_iterable(counter for _, counter, _ in new))
        change.subtract(itertools.chain.from_iterable(counter for _, counter in old))
        if not change:
            return
        terms = sorted(change)  # sorted, so that neighbouring pages of the index are accessed in sequence
        cursor.execute(as_sql(f"select term, id from {tables.term} where term = any(%s::text[])"), (terms,))
        numbers: dict[str, int] = dict(cursor.fetchall())
        changed_terms = [term for term in terms if term in numbers and change[term]]
        cursor.execute(
            as_sql(
                f"update {tables.term} t set df = t.df + u.change "
                "from unnest(%s::int[], %s::int[]) u(id, change) where t.id = u.id"
            ),
            ([numbers[term] for term in changed_terms], [change[term] for term in changed_terms]),
        )
        missing = [term for term in terms if term not in numbers]
        if missing:
            cursor.execute(
                as_sql(
                    f"insert into {tables.term} (term, df) "
                    "select * from unnest(%s::text[], %s::int[]) returning term, id"
                ),
                (missing, [change[term] for term in missing]),
            )
            numbers.update(cursor.fetchall())
        if old:
            pairs = [(numbers[term], id_) for id_, counter in old for term in counter]
            cursor.execute(
                as_sql(
                    f"delete from {tables.posting} p using unnest(%s::int[], %s::int[]) u(term, doc) "
                    "where p.term = u.term and p.doc = u.doc"
                ),
                ([term for term, _ in pairs], [doc for _, doc in pairs]),
            )
        rows = np.array(
            [(numbers[term], id_, tf, length) for id_, counter, length in new for term, tf in counter.items()], np.int32
        ).reshape(-1, 4)
        _copy_integers(cursor, f"{tables.posting} (term, doc, tf, length)", rows)

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        with_vectors = NEAR in self._scales
        if with_vectors and self.latest_dimensions() is None:
            return [False] * len(items)

        def read_rows(connection: Connection[Any]) -> dict[str, _Row]:
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
            while number := self._delete(f"{condition.sql} limit {_BATCH_DOCUMENTS}", condition.parameters):
                total += number
            return total
        keys = [escaped(id_) for id_ in ids if storable(id_)]
        for batch in batched(keys, _BATCH_DOCUMENTS):
            sql = f"{condition.sql} and d.key = any(%(ids)s::text[])"
            total += self._delete(sql, {**condition.parameters, "ids": list(batch)})
        return total

    def _delete(self, condition: str, parameters: Mapping[str, Any]) -> int:
        tables = self._tables

        def delete(connection: Connection[Any]) -> int:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                cursor.execute(as_sql(f"select d.id from {tables.doc} d where {condition}"), parameters)
                numbers = [row[0] for row in cursor.fetchall()]
                if numbers:
                    if state.retention is not None:
                        history.keep(cursor, tables, numbers, state.seq + 1, state.dimensions)
                    old_tokens = self._tokens_of(cursor, numbers)
                    self._write_postings(cursor, old_tokens, [])
                    with self._counting(cursor, state.seq + 1, numbers, ()):
                        cursor.execute(as_sql(f"delete from {tables.doc} where id = any(%s::bigint[])"), (numbers,))
                    self._advance(cursor, state, -len(numbers), -sum(counter.total() for _, counter in old_tokens))
            return len(numbers)

        number = self._connections.run(delete)
        if number:
            self._statistics = None
        return number

    def rebuild(self) -> None:
        """Recompute words and facts from the documents, in one transaction; nothing is embedded again."""
        tables, schema = self._tables, self._tables.schema

        def rebuild(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                cursor.execute(as_sql(tables.create_signatures), binary=False)
                cursor.execute(as_sql(f"truncate {tables.term}, {tables.posting}, {tables.signature}"))
                total, last = 0, 0
                while True:
                    cursor.execute(
                        as_sql(f"{self._select} where d.id > %s order by d.id limit {_BATCH_DOCUMENTS}"), (last,)
                    )
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
                        as_sql(
                            f"update {tables.doc} d set length = u.length, facts = u.facts::jsonb, "
                            "signature = u.signature from unnest(%s::int[], %s::int[], %s::text[], %s::int[]) "
                            "u(id, length, facts, signature) where d.id = u.id"
                        ),
                        (
                            [id_ for id_, _, _ in lengths],
                            [length for _, _, length in lengths],
                            [facts_of(document.metadata) for document in documents],
                            self._signature_numbers(cursor, documents),
                        ),
                    )
                    total += sum(length for _, _, length in lengths)
                cursor.execute(
                    as_sql(
                        f'update "{schema}".dataset set seq = seq + 1, tokens = %s, analyzer = %s '
                        f"where number = {tables.number}"
                    ),
                    (total, DERIVED),
                )
                if state.retention is not None:
                    history.note_write(cursor, tables, state.seq + 1, state.retention)
                cursor.execute(
                    as_sql(
                        f"update {tables.signature} s set documents = d.documents, tokens = d.tokens, "
                        f"changed = (select seq from {tables.row}) from (select signature, count(*) as documents, "
                        f"sum(length) as tokens from {tables.doc} group by signature) d where d.signature = s.id"
                    )
                )

        self._connections.run(rebuild)
        self._statistics = None

    def _tend(self) -> None:
        """Update the planner's statistics after a write; from 50,000 vectors on, create an index concurrently."""
        tables, schema = self._tables, self._tables.schema

        def tend(connection: Connection[Any]) -> None:
            row = connection.execute(as_sql(f"select documents, analyzed, dimensions from {tables.row}")).fetchone()
            if row is None:
                return
            documents, count_analyzed, dimensions = row
            if documents > _GROWTH * count_analyzed + 500:
                names = [tables.doc, tables.term, tables.posting, tables.body] + [tables.vec] * (dimensions is not None)
                connection.execute(as_sql(f"analyze {', '.join(names)}"))
                connection.execute(
                    as_sql(f'update "{schema}".dataset set analyzed = %s where number = {tables.number}'), (documents,)
                )
            if dimensions is not None and documents >= EXACT_ROWS and dimensions <= 2000 and not self._retention:
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
        row = connection.execute(as_sql(valid), (qualified_name,)).fetchone()
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
            connection.execute(as_sql(f"drop index if exists {qualified_name}"))
            connection.execute(
                as_sql(
                    f"create index concurrently {name} on {tables.vec} using hnsw "
                    f'(v "{tables.vectors}".vector_ip_ops) with (m = 16, ef_construction = 64)'
                )
            )
        finally:
            connection.execute("reset statement_timeout")
            connection.execute("reset maintenance_work_mem")
            connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", (lock,))

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────

    def _sample_keys(self, sample: int) -> list[int]:
        sql = f"select id from {self._tables.vec} order by hashint4(id) limit %(n)s"
        return [id_ for (id_,) in self._rows(sql, n=sample)]

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        tokens = [list(query_terms(word)) for word in words]
        terms = sorted({token for word_tokens in tokens for token in word_tokens})
        rows = (
            self._rows(f"select term, df from {self._tables.term} where term = any(%(terms)s::text[])", terms=terms)
            if terms
            else []
        )
        frequencies = dict(rows)
        return [min((frequencies.get(token, 0) for token in word_tokens), default=0) for word_tokens in tokens]

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
        values = {name: unescaped(value) for name, value in metadata_of(notes or "{}").items()}
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

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        tables, names = self._tables, list(notes)
        insert = f'insert into "{tables.schema}".note (number, name, value) select {tables.number}, * from '
        insert += "unnest(%s::text[], %s::text[])"
        replace = " on conflict (number, name) do update set value = excluded.value"
        values = [names, [escaped(value) for value in notes.values()]]

        def annotate(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                state = self._lock_state(cursor)
                if state.retention is not None:
                    select = f'select name, value from "{tables.schema}".note where number = {tables.number}'
                    cursor.execute(as_sql(f"{select} and name = any(%s::text[])"), (names,))
                    former = {name: unescaped(value) for name, value in cursor.fetchall()}
                    history.keep_notes(cursor, tables, state.seq, {name: former.get(name) for name in names})
                cursor.execute(as_sql(insert + replace), values)

        def annotate_unless_kept(connection: Connection[Any]) -> int:
            unless_kept = f" where (select {RETENTION_TEXT} from {tables.row}) is null"
            return connection.execute(as_sql(insert + unless_kept + replace), values).rowcount

        # without versions, no note waits for a write that takes long
        if notes and (self._retention is not None or not self._connections.run(annotate_unless_kept)):
            self._connections.run(annotate)
        self._statistics = None

    def keep_versions(self, days: int) -> None:
        """See `Store`."""
        self._connections.run(lambda connection: history.switch(connection, self._tables, days))
        self._statistics = None
        self.statistics()

    def past_store(self, name: str, bm25: Mapping[str, float]) -> PastStore:
        """See `Store`; the copy is in temporary tables of one connection."""
        from pointsman.store.postgres.past_postgres_store import PostgresPastStore

        return PostgresPastStore(self, name, bm25)

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> PostgresViewStore:
        """See `Store`; as of the last second."""
        signatures = self._admit(view)
        return PostgresViewStore(self._connections, self._tables, self._record, self, signatures, self._admit, notes)

    def _admit(self, view: View) -> AdmittedSignatures:
        return self._signatures.admit(view, self.statistics().sequence)

    def _signature_rows(self, sequence: int) -> list[Any]:
        """Return number, signature, documents and last change of the signatures changed after a sequence number."""
        sql = f"select id, signature, documents, changed from {self._tables.signature} where changed > %(sequence)s"
        return self._rows(sql, sequence=sequence)

    # ── lifecycle ────────────────────────────────────────────────────────────────────────────────────────────────

    def drop(self) -> None:
        """See `Store`."""
        schema, number = self._tables.schema, self._tables.number

        def drop(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(as_sql(f"select from {self._tables.row} for update"))
                cursor.execute(as_sql(self._tables.drop))
                cursor.execute(as_sql(f'delete from "{schema}".dataset where number = {number}'))

        self._connections.run(drop)
        self._statistics = None

    def close(self) -> None:
        """See `Store`; the connections belong to the backend, which closes them."""


@dataclass(frozen=True, slots=True)
class _State:
    """The dataset's row, as read by the writer."""

    seq: int
    embedder: str | None
    dimensions: int | None
    retention: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Row:
    """The stored row of a document."""

    id: int
    digest: bytes
    vector: bytes | None


def _new_ids(cursor: Cursor[Any], table: str, count: int) -> list[int]:
    cursor.execute("select nextval(pg_get_serial_sequence(%s, 'id'))::int from generate_series(1, %s)", (table, count))
    return sorted(row[0] for row in cursor.fetchall())


def _vector_digest(row: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(row.astype("<f4").tobytes(), digest_size=8).digest()


_COPY_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END: Final = b"\xff\xff"


def _copy_integers(cursor: Cursor[Any], table: str, rows: NDArray[np.int32]) -> None:
    """Copy rows of four-byte integers, in PostgreSQL's binary format."""
    fields = [("count", ">i2")]
    for column in range(rows.shape[1]):
        fields += [(f"size{column}", ">i4"), (f"value{column}", ">i4")]
    block = np.zeros(len(rows), fields)
    block["count"] = rows.shape[1]
    for column in range(rows.shape[1]):
        block[f"size{column}"], block[f"value{column}"] = 4, rows[:, column]
    with cursor.copy(as_sql(f"copy {table} from stdin (format binary)")) as copy:
        copy.write(_COPY_BEGIN + block.tobytes() + _COPY_END)


def _copy_vectors(
    cursor: Cursor[Any], table: str, ids: Sequence[int], digests: Sequence[bytes], vectors: NDArray[np.float32]
) -> None:
    """Copy rows of id, digest and vector, in PostgreSQL's binary format."""
    dimensions = vectors.shape[1]
    block = np.zeros(
        len(ids),
        [
            *(("count", ">i2"), ("size0", ">i4"), ("id", ">i4"), ("size1", ">i4"), ("digest", "V8"), ("size2", ">i4")),
            *(("dimensions", ">i2"), ("unused", ">i2"), ("vector", ">f4", (dimensions,))),
        ],
    )
    block["count"], block["size0"], block["size1"], block["size2"] = 3, 4, 8, 4 + 4 * dimensions
    block["id"], block["digest"], block["dimensions"] = ids, np.array(digests, "V8"), dimensions
    block["vector"] = vectors
    with cursor.copy(as_sql(f"copy {table} (id, digest, v) from stdin (format binary)")) as copy:
        copy.write(_COPY_BEGIN + block.tobytes() + _COPY_END)
