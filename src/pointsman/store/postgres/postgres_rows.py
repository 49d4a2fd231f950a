"""The rows of one dataset in PostgreSQL, as they are written inside a transaction."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.postgres import postgres_history as history
from pointsman.store.postgres.postgres_reader import document_of
from pointsman.store.postgres.signature import signature_of
from pointsman.store.postgres.statements import Tables, escaped, facts_of, unescaped
from pointsman.store.prepared_documents import check_embedder
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import Cursor

    from pointsman.store.prepared_documents import Prepared
    from pointsman.values.types import Document


@dataclass(slots=True)
class DatasetWrite:
    """One write to a dataset: a transaction that has locked the dataset's row in the catalogue.

    Attributes:
        cursor: in the transaction; it returns rows in binary form.
        tables: of the dataset.
        last_seq: the sequence number of the last write.
        embedder: of the dataset's vectors; None before the first.
        dimensions: of these; None before the first.
        retention: what versions are kept; None: none.
    """

    cursor: Cursor[Any]
    tables: Tables
    last_seq: int
    embedder: str | None
    dimensions: int | None
    retention: Mapping[str, Any] | None

    @property
    def seq(self) -> int:
        """The sequence number of this write."""
        return self.last_seq + 1

    def write_metadata(self, items: Sequence[tuple[int, Prepared]]) -> None:
        """Replace the metadata of documents by number; words and vectors stay."""
        if not items:
            return
        ids = [id_ for id_, _ in items]
        self.cursor.execute(
            f"update {self.tables.doc} d set seq = %s, digest = u.digest, facts = u.facts::jsonb, "
            "signature = u.signature from unnest(%s::int[], %s::bytea[], %s::text[], %s::int[]) "
            "u(id, digest, facts, signature) where d.id = u.id",
            (
                self.seq,
                ids,
                [item.digest for _, item in items],
                [facts_of(item.document.metadata) for _, item in items],
                self.signature_numbers([item.document for _, item in items]),
            ),
        )
        self.cursor.execute(
            f"update {self.tables.body} y set metadata = u.metadata "
            "from unnest(%s::int[], %s::text[]) u(id, metadata) where y.id = u.id",
            (ids, [item.metadata for _, item in items]),
        )

    def write_texts(self, items: Sequence[Prepared], ids: Sequence[int], replaced_ids: Sequence[int]) -> int:
        """Write documents and their postings, without vectors; return how many tokens there are more than before."""
        tokens = [Counter(DEFAULT_ANALYZER.tokens(item.document.searchable)) for item in items]
        lengths = [counter.total() for counter in tokens]
        old_tokens = self.tokens_of(replaced_ids)
        self._write_documents(items, ids, lengths, replaced_ids)
        self.write_postings(old_tokens, list(zip(ids, tokens, lengths, strict=True)))
        return sum(lengths) - sum(counter.total() for _, counter in old_tokens)

    def write_vectors(self, ids: Sequence[int], vectors: NDArray[np.float32], digests: Sequence[bytes] = ()) -> None:
        """Write the vectors of documents that have none; their digests are computed unless given."""
        _copy_vectors(self.cursor, self.tables.vec, ids, digests or list(map(vector_digest, vectors)), vectors)

    def advance(self, documents: int, tokens: int) -> None:
        """Count a write, and the documents and tokens that there are more than before."""
        counts = "seq = seq + 1, documents = documents + %s, tokens = tokens + %s"
        self.cursor.execute(self.tables.update(counts), (documents, tokens))
        if self.retention is not None:
            history.note_write(self.cursor, self.tables, self.seq, self.retention)

    def keep(self, ids: Sequence[int], *, with_vectors: bool = True) -> None:
        """Keep documents that are about to be replaced or deleted, if versions are kept; else without their vectors."""
        if self.retention is not None:
            keep = history.keep if with_vectors else history.keep_without_vector
            keep(self.cursor, self.tables, ids, self.seq, self.dimensions)

    def signature_numbers(self, documents: Sequence[Document]) -> list[int]:
        """Return the number of each document's signature; new signatures get one."""
        signatures = [signature_of(document.metadata) for document in documents]
        digests = {text: hashlib.blake2b(text.encode(), digest_size=16).digest() for text in set(signatures)}
        cursor, table = self.cursor, self.tables.signature
        cursor.execute(f"select digest, id from {table} where digest = any(%s)", (list(digests.values()),))
        numbers: dict[bytes, int] = dict(cursor.fetchall())
        missing = sorted((digest, text) for text, digest in digests.items() if digest not in numbers)
        if missing:
            cursor.execute(
                f"insert into {table} (digest, signature) select * from unnest(%s::bytea[], %s::text[]) "
                "returning digest, id",
                ([digest for digest, _ in missing], [text for _, text in missing]),
            )
            numbers.update(cursor.fetchall())
        return [numbers[digests[text]] for text in signatures]

    @contextmanager
    def counting(self, old_ids: Sequence[int], new_ids: Sequence[int]) -> Iterator[None]:
        """Note what a write changes by signature: the number of documents, and of their tokens.

        Args:
            old_ids: the numbers of the documents that it replaces, changes or deletes.
            new_ids: the numbers of those that exist after it.
        """
        changes = {number: [-documents, -tokens] for number, documents, tokens in self._sizes(old_ids)}
        yield
        for number, documents, tokens in self._sizes(new_ids):
            change = changes.setdefault(number, [0, 0])
            change[0] += documents
            change[1] += tokens
        self.cursor.execute(
            f"update {self.tables.signature} s set documents = s.documents + u.documents, "
            "tokens = s.tokens + u.tokens, changed = %s "
            "from unnest(%s::int[], %s::bigint[], %s::bigint[]) u(id, documents, tokens) where s.id = u.id",
            (self.seq, list(changes), *([change[column] for change in changes.values()] for column in (0, 1))),
        )

    def _sizes(self, ids: Sequence[int]) -> list[Any]:
        """Return each signature of these documents, with the number of documents and of their tokens."""
        if not ids:
            return []
        self.cursor.execute(
            f"select signature, count(*)::bigint, sum(length)::bigint from {self.tables.doc} "
            "where id = any(%s::bigint[]) group by signature",
            (list(ids),),
        )
        return self.cursor.fetchall()

    def fix_embedder(self, name: str, dimensions: int) -> None:
        """Set the dataset's embedder with its first vectors.

        Raises:
            InputError: the dataset has vectors of another embedder.
        """
        if self.dimensions is not None:
            check_embedder("this dataset", (self.embedder, self.dimensions), name, dimensions)
            return
        self.cursor.execute(self.tables.create_vectors(dimensions).replace("%", "%%"), binary=False)
        self.cursor.execute(self.tables.update("embedder = %s, dimensions = %s"), (name, dimensions))
        self.embedder, self.dimensions = name, dimensions
        if self.retention is not None:
            former = dict.fromkeys(history.all_notes({}, name, dimensions))
            history.keep_notes(self.cursor, self.tables, self.seq, former)

    def drop_vectors(self) -> None:
        """Drop all vectors, and forget their embedder."""
        self.cursor.execute(f"drop table {self.tables.vec}")
        self.cursor.execute(self.tables.update("embedder = null, dimensions = null"))
        self.embedder = self.dimensions = None

    def tokens_of(self, ids: Sequence[int]) -> list[tuple[int, Counter[str]]]:
        """Return the words currently stored for documents, so that their postings can be removed."""
        if not ids:
            return []
        self.cursor.execute(f"{self.tables.select} where d.id = any(%s::bigint[])", (list(ids),))
        rows = self.cursor.fetchall()
        return [(row[0], Counter(DEFAULT_ANALYZER.tokens(document_of(*row[1:]).searchable))) for row in rows]

    def _write_documents(
        self, items: Sequence[Prepared], ids: Sequence[int], lengths: Sequence[int], replaced_ids: Sequence[int]
    ) -> None:
        cursor, tables = self.cursor, self.tables
        cursor.execute(
            f"""insert into {tables.doc} (id, key, length, seq, digest, facts, signature)
                select id, key, length, %s, digest, facts::jsonb, signature
                from unnest(%s::int[], %s::text[], %s::int[], %s::bytea[], %s::text[], %s::int[])
                  u(id, key, length, digest, facts, signature)
                on conflict (id) do update set length = excluded.length, seq = excluded.seq,
                  digest = excluded.digest, facts = excluded.facts, signature = excluded.signature""",
            (
                self.seq,
                list(ids),
                [escaped(item.document.id) for item in items],
                list(lengths),
                [item.digest for item in items],
                [facts_of(item.document.metadata) for item in items],
                self.signature_numbers([item.document for item in items]),
            ),
        )
        if replaced_ids:
            other_tables = [tables.body] if self.dimensions is None else [tables.body, tables.vec]
            for table in other_tables:
                cursor.execute(f"delete from {table} where id = any(%s::bigint[])", (list(replaced_ids),))
        with cursor.copy(f"copy {tables.body} (id, text, metadata) from stdin") as copy:
            for id_, item in zip(ids, items, strict=True):
                copy.write_row((id_, escaped(item.document.text), item.metadata))

    def write_postings(
        self, old: Sequence[tuple[int, Counter[str]]], new: Sequence[tuple[int, Counter[str], int]]
    ) -> None:
        """Remove the postings of some documents and insert those of others; frequencies are updated."""
        cursor, tables = self.cursor, self.tables
        change = Counter(itertools.chain.from_iterable(counter for _, counter, _ in new))
        change.subtract(itertools.chain.from_iterable(counter for _, counter in old))
        if not change:
            return
        terms = sorted(change)  # sorted, so that neighbouring pages of the index are accessed in sequence
        cursor.execute(f"select term, id from {tables.term} where term = any(%s::text[])", (terms,))
        numbers: dict[str, int] = dict(cursor.fetchall())
        changed_terms = [term for term in terms if term in numbers and change[term]]
        cursor.execute(
            f"update {tables.term} t set df = t.df + u.change "
            "from unnest(%s::int[], %s::int[]) u(id, change) where t.id = u.id",
            ([numbers[term] for term in changed_terms], [change[term] for term in changed_terms]),
        )
        missing = [term for term in terms if term not in numbers]
        if missing:
            cursor.execute(
                f"insert into {tables.term} (term, df) select * from unnest(%s::text[], %s::int[]) returning term, id",
                (missing, [change[term] for term in missing]),
            )
            numbers.update(cursor.fetchall())
        if old:
            pairs = [(numbers[term], id_) for id_, counter in old for term in counter]
            cursor.execute(
                f"delete from {tables.posting} p using unnest(%s::int[], %s::int[]) u(term, doc) "
                "where p.term = u.term and p.doc = u.doc",
                ([term for term, _ in pairs], [doc for _, doc in pairs]),
            )
        rows = np.array(
            [(numbers[term], id_, tf, length) for id_, counter, length in new for term, tf in counter.items()], np.int32
        ).reshape(-1, 4)
        _copy_integers(cursor, f"{tables.posting} (term, doc, tf, length)", rows)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The stored row of a document."""

    id: int
    digest: bytes
    vector: bytes | None


def stored_rows(
    cursor: Cursor[Any], tables: Tables, items: Sequence[Prepared], *, with_vectors: bool
) -> dict[str, StoredRow]:
    """Return the stored rows of these documents, by id."""
    vector = f"(select e.digest from {tables.vec} e where e.id = d.id)" if with_vectors else "null::bytea"
    cursor.execute(
        f"select d.key, d.id, d.digest, {vector} from {tables.doc} d where d.key = any(%s::text[])",
        ([escaped(item.document.id) for item in items],),
    )
    return {unescaped(key): StoredRow(*row) for key, *row in cursor.fetchall()}


def unused_ids(cursor: Cursor[Any], table: str, count: int) -> list[int]:
    """Return ids of a table that nothing has yet, in order."""
    cursor.execute("select nextval(pg_get_serial_sequence(%s, 'id'))::int from generate_series(1, %s)", (table, count))
    return sorted(row[0] for row in cursor.fetchall())


def vector_digest(row: NDArray[np.float32]) -> bytes:
    """Return what tells a stored vector from another."""
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
    with cursor.copy(f"copy {table} from stdin (format binary)") as copy:
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
    with cursor.copy(f"copy {table} (id, digest, v) from stdin (format binary)") as copy:
        copy.write(_COPY_BEGIN + block.tobytes() + _COPY_END)
