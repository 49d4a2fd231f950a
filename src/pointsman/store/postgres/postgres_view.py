"""The documents of a PostgreSQL store that exist in a view, as a `Store` of its own.

Which signatures a view admits is looked up once, when the view is taken. Every statement then chooses the documents
with these signatures, and counts within them; so a document whose access has just changed is gone at once, and one that
has just been allowed is there with the next view.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.bm25 import rarest
from pointsman.store.postgres.postgres_reader import PostgresReader
from pointsman.store.postgres.signature import admits
from pointsman.store.postgres.statements import SOURCE_PREFIX, ViewTables, facts_of
from pointsman.store.prepared_documents import direction, position, storable
from pointsman.store.sampling import evenly
from pointsman.store.store_values import Page
from pointsman.store.store_views import StoreView, without_access
from pointsman.tools.byte_cache import ByteCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.store.postgres.statements import Condition
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document
    from pointsman.values.views import View

_SIGNATURE, _PRINCIPAL = 80, 150  # bytes of a signature's two numbers, and of a principal's name, in a view
_SIGNATURES: Final = 50_000
"""Signatures whose best cosines are kept: for 120 questions, fifty megabytes."""


@dataclass(frozen=True)
class AdmittedSignatures:
    """The signatures that exist in a view.

    Attributes:
        numbers: of those that documents have, ascending.
        changes: of each, the sequence number of the last write to a document that has, or had, it.
    """

    numbers: tuple[int, ...]
    changes: tuple[int, ...]

    @cached_property
    def state(self) -> str:
        """Equal for two views, or two moments, only if the documents are the same."""
        pairs = " ".join(map("{}:{}".format, self.numbers, self.changes))
        return hashlib.blake2b(pairs.encode(), digest_size=16).hexdigest()

    def among(self, others: AdmittedSignatures) -> AdmittedSignatures:
        """Return the signatures that are also among others, which were read later."""
        changes = dict(zip(others.numbers, others.changes, strict=True))
        numbers = tuple(number for number in self.numbers if number in changes)
        return AdmittedSignatures(numbers, tuple(changes[number] for number in numbers))


class Signatures:
    """The signatures of a dataset's documents, as of the last write that is known.

    Args:
        read: returns number, signature, documents and last change of those changed after a sequence number.
    """

    def __init__(self, read: Callable[[int], Sequence[Any]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._sequence = self._last_change = -1
        self._rows: dict[int, tuple[str, int, int]] = {}
        self._views: ByteCache[View, tuple[int, AdmittedSignatures, int]] = ByteCache(
            lambda entry: len(entry[1].numbers) * _SIGNATURE + entry[2] * _PRINCIPAL
        )

    def admit(self, view: View, sequence: int) -> AdmittedSignatures:
        """Return the signatures that a view admits.

        Args:
            view: the view.
            sequence: the number of the last write; what was read at it is not read again.
        """
        with self._lock:
            if sequence != self._sequence:
                for number, signature, documents, change in self._read(self._last_change):
                    self._rows[number] = signature, documents, change
                    self._last_change = max(self._last_change, change)
                self._sequence = sequence
            entry = self._views.get(view)
            if entry is None or entry[0] != self._last_change:
                entry = self._last_change, self._choose(view), len(view.principals or ())
                self._views[view] = entry
            return entry[1]

    def _choose(self, view: View) -> AdmittedSignatures:
        numbers = tuple(
            number
            for number, (signature, documents, _) in sorted(self._rows.items())
            if documents and admits(view, signature)
        )
        return AdmittedSignatures(numbers, tuple(self._rows[number][2] for number in numbers))


class PostgresViewStore(StoreView, PostgresReader):
    """The documents of a store that exist in a view.

    Args:
        store: the store with all documents.
        signatures: the signatures of the documents that exist.
        admit: returns the signatures that a view admits now.
        notes: measures what `Statistics.notes` says of the documents; called once, when it is first needed.
    """

    _store: PostgresReader

    def __init__(
        self,
        store: PostgresReader,
        signatures: AdmittedSignatures,
        admit: Callable[[View], AdmittedSignatures],
        notes: Callable[[Store], Mapping[str, str]] = lambda _: {},
    ) -> None:
        super().__init__(store.connections, store.tables, store.record)
        self.measure_by(store, notes)
        self._signatures, self._admit = signatures, admit

    def __repr__(self) -> str:
        return f"PostgresViewStore({self._store!r}, state={self.state!r})"

    @property
    def state(self) -> str:
        """See `StoreView`."""
        return self._signatures.state

    @property
    def nbytes(self) -> int:
        """See `StoreView`."""
        return len(self._signatures.numbers) * _SIGNATURE

    @cached_property
    def _documents(self) -> int:
        return self.count()

    @cached_property
    def _vectors(self) -> int:
        return len(self._with_vector())

    def _document_count(self) -> int:
        return self._documents

    def _vector_count(self) -> int:
        return 0 if self.dimensions is None else self._vectors

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> PostgresViewStore:
        """See `Store`; those of these documents that are valid on a day."""
        self._check_part(view)
        return PostgresViewStore(self._store, self._signatures.among(self._admit(view)), self._admit, notes)

    # ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def dimensions(self) -> int | None:
        """See `PostgresReader`."""
        return self._store.dimensions

    def latest_dimensions(self) -> int | None:
        """See `PostgresReader`."""
        return self._store.latest_dimensions()

    @property
    def _statements(self) -> ViewTables:
        return ViewTables(self.tables, self.record.k1, self.record.b)

    def _condition(self, filters: Filter | None) -> Condition:
        condition = super()._condition(filters)
        condition.sql = f"({ViewTables.VISIBLE} and {condition.sql})"
        condition.parameters["signatures"] = list(self._signatures.numbers)
        return condition

    def _document(self, key: str, text: str, metadata: str) -> Document:
        return without_access([super()._document(key, text, metadata)])[0]

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`; the cursor is the number of documents before the page: keys would tell of others between."""
        start, condition = position(after), self._condition(filters)
        sql = f"{self.tables.select} where {condition.sql} order by d.id offset %(start)s limit %(limit)s"
        rows = self._rows(sql, start=start, limit=limit + 1, **condition.parameters)
        documents = [self._document(*row[1:]) for row in rows[:limit]]
        return Page(documents, str(start + limit) if len(rows) > limit else None)

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`; no hidden row is read, so that time does not tell of a source that only those name."""
        if source is None or not storable(source):
            return super().ids(source=source, filters=filters)
        condition = self._condition(filters)
        sql = f"{self.tables.select} where {condition.sql} and {SOURCE_PREFIX} = %(source)s order by d.id"
        values = json.dumps(json.loads(facts_of({"source": source}))["source"], ensure_ascii=False)  # as it writes them
        rows = self._rows(sql, source=values[:500], **condition.parameters)
        documents = (self._document(*row[1:]) for row in rows)
        return [document.id for document in documents if document.metadata.get("source") == source]

    def sample(self, count: int) -> list[Document]:
        """See `Store`."""
        condition = self._condition(None)
        sql = f"select d.id from {self.tables.doc} d where {condition.sql} order by d.id"
        keys = [key for (key,) in self._rows(sql, **condition.parameters)]
        return [document for document in self.fetch(evenly(keys, count)) if document is not None]

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────

    def _with_vector(self) -> list[int]:
        """Return the keys of the documents with a vector, ascending.

        Only those of the view that was read last are kept: for a thousand views, they would take hundreds of MB.
        """
        last = self._store.last_vector_keys
        if last is None or last[0] != self.state:
            condition = self._condition(None)
            sql = (
                f"select d.id from {self.tables.doc} d join {self.tables.vec} e on e.id = d.id "
                f"where {condition.sql} order by d.id"
            )
            last = self.state, [key for (key,) in self._rows(sql, **condition.parameters)]
            self._store.last_vector_keys = last
        return last[1]

    def _sample_keys(self, sample: int) -> list[int]:
        keys = self._with_vector()
        return [keys[row] for row in np.sort(np.random.default_rng(0).permutation(len(keys))[:sample]).tolist()]

    def best_cosines(self, questions: NDArray[np.float32]) -> list[float]:
        """See `Store`; what is known of a signature's documents is not computed again for another view of them."""
        if self.dimensions is None:
            return [math.nan] * len(questions)
        directions = np.array([direction(question, self.dimensions) for question in questions], np.float32)
        digest = hashlib.blake2b(directions.tobytes(), digest_size=16).digest()
        signatures = dict(zip(self._signatures.numbers, self._signatures.changes, strict=True))
        cosines = self._store.cosines_of_signatures
        if len(cosines) > _SIGNATURES:
            cosines.clear()
        names = {number: (digest, number, change) for number, change in signatures.items()}
        if new_numbers := [number for number, name in names.items() if name not in cosines]:
            new_cosines = {number: np.full(len(directions), np.nan) for number in new_numbers}
            texts = [str(row.tolist()) for row in directions]
            for number, ordinal, cosine in self._rows(
                self._statements.best_cosines(), signatures=new_numbers, questions=texts
            ):
                new_cosines[number][ordinal - 1] = cosine
            cosines.update({names[number]: row for number, row in new_cosines.items()})
        best = np.full(len(directions), np.nan)
        for name in names.values():
            best = np.fmax(best, cosines[name])
        return [float(cosine) if row.any() else math.nan for cosine, row in zip(best, directions, strict=True)]

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        sql, parameters = self._statements.frequencies(), self._condition(None).parameters
        return rarest(words, lambda terms: dict(self._rows(sql, terms=terms, **parameters)))
