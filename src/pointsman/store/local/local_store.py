"""The embedded store: a folder with SQLite, tantivy and vectors, as a `Store`."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.base_store import Store
from pointsman.store.history import PastStore, digest_of
from pointsman.store.local.collection import Collection
from pointsman.store.local.index_search import score_both, search_both
from pointsman.store.local.keyword.words_file import are_words_due, words_file
from pointsman.store.local.local_view import ViewStore
from pointsman.store.local.truth.local_history import KEPT_DAYS, KEPT_FROM, RECEIPT_KEY, UNNOTED
from pointsman.store.prepared_documents import UNREADABLE, Batch, MetadataChange, position, prepare
from pointsman.store.sampled_texts import texts
from pointsman.store.sampling import evenly
from pointsman.store.store_values import (
    NEAR,
    SCALES_OF,
    WORDS,
    WORDS_FIRST,
    Capability,
    Lists,
    MetadataResult,
    Page,
    RecordedState,
    Scores,
    Statistics,
    StoreInfo,
    StoreQuery,
    Verification,
)
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, StoreError
from pointsman.values.types import AddResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.base_store import PastStates
    from pointsman.store.history import History, PastRow, T
    from pointsman.store.local.arrays_file import ArraysFile
    from pointsman.store.local.keyword.word_query import WordQuery
    from pointsman.store.local.truth.document_changes import DocumentChange
    from pointsman.store.local.vectors.vector_query import VectorQuery
    from pointsman.text.spelling import HasFrequencies, Speller
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document
    from pointsman.values.views import View

log = logging.getLogger(__name__)

_INTERNAL: Final = frozenset({"seq", "tally", "identity", "embedder", "dimensions", KEPT_DAYS, KEPT_FROM, RECEIPT_KEY})
_DELETED_TOGETHER: Final = 10_000
_READ_TOGETHER: Final = 1000
_LONG_WRITE: Final = 2000  # documents; of fewer it is not even asked whether words are due


def _as_it_is() -> None:
    """What a pinned store does before it reads."""


class LocalStore(Store):
    """A dataset in its own folder; keys are integers.

    Args:
        directory: created if missing.
        about: stored in the manifest of a new dataset: name, description, indexing_technique.
        k1: BM25 term frequency saturation.
        b: BM25 length normalisation.

    Raises:
        FormatVersionError, CorruptStoreError: the existing files cannot be used.
    """

    maintains_itself = False
    folder: Path

    def __init__(self, directory: Path, about: Mapping[str, Any], *, k1: float = 1.2, b: float = 0.75) -> None:
        self.collection = Collection(directory, about=dict(about), k1=k1, b=b)
        technique = self.collection.manifest.get("indexing_technique", about.get("indexing_technique", "hybrid"))
        self._scales = SCALES_OF[technique]
        self.folder = directory
        self._info: StoreInfo | None = None
        self._written_count = 0  # documents
        self._due: dict[int, int] = {}  # by the last sequence number, how many documents lack their vector
        self._refresh: Callable[[], None] = self.collection.refresh
        self._metas: Mapping[str, str] | None = None  # of a pinned store
        self._unpinned_store: LocalStore | None = None  # of a pinned store, which holds it as every use does

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        collection, info = self.collection, self._info
        if info is None or info.embedder is None:  # once there are vectors, nothing changes
            vectors = collection.vectors
            dimensions = None if vectors is None else vectors.dimensions
            info = self._info = StoreInfo(
                "local", collection.truth.identity, collection.embedder, dimensions, self._scales, frozenset(Capability)
            )
        return info

    @property
    def indexed(self) -> int:
        """See `Store`."""
        return self.collection.indexed

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        self._refresh()
        lists = [search_both(*self._queries(query), query.depth, query.filters) for query in store_queries]
        lag = self.collection.lagging(words=WORDS in self._scales) if self.collection.may_lag else None
        return lists if lag is None else [replace(result, degraded=(lag,)) for result in lists]

    def _queries(self, store_query: StoreQuery) -> tuple[WordQuery | None, VectorQuery | None]:
        """Return what a query asks of the two indexes."""
        repeatable = KEPT_DAYS in self._values()  # the answer must not depend on how the indexes came about
        vectors = self.collection.vectors if store_query.vector is not None else None
        return (
            self.collection.keyword.query(store_query.text, repeatable=repeatable)
            if store_query.text is not None and WORDS in self._scales
            else None,
            vectors.query(store_query.vector, repeatable=repeatable)
            if store_query.vector is not None and vectors is not None
            else None,
        )

    def _values(self) -> Mapping[str, str]:
        """Return all values that are stored beside the documents."""
        return self.collection.truth.metas() if self._metas is None else self._metas

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        self._refresh()
        return [score_both(*self._queries(query), group) for query, group in zip(store_queries, keys, strict=True)]

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        return self.collection.truth.fetch(keys)

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`."""
        return dict(self.collection.truth.keys(ids))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        return self.collection.truth.get(ids)

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""
        last = position(after)
        if filters is None:
            documents, following = self.collection.truth.page(last, limit)
            return Page(documents, None if following is None else str(following))
        matching_keys = self._allowed_keys(filters)
        matching_keys = matching_keys[matching_keys > last][: limit + 1]
        page_documents = [document for document in self.fetch(matching_keys[:limit].tolist()) if document is not None]
        return Page(page_documents, str(matching_keys[limit - 1]) if len(matching_keys) > limit else None)

    def documents(self, filters: Filter | None = None) -> Iterator[Document]:
        """See `Store`; the filter is evaluated once, when the first document is taken."""
        if filters is None:
            yield from self.collection.truth.documents()
            return
        for keys in batched(self._allowed_keys(filters).tolist(), _READ_TOGETHER):
            yield from (document for document in self.fetch(keys) if document is not None)

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`; only the ids of matching documents are read."""
        truth = self.collection.truth
        if filters is None:
            return truth.ids(source=source)
        ids = truth.ids_of(self._allowed_keys(filters).tolist())
        of_source = None if source is None else set(truth.ids(source=source))
        return ids if of_source is None else [id_ for id_ in ids if id_ in of_source]

    def sample(self, count: int) -> list[Document]:
        """See `Store`; of the other documents, only the keys are read."""
        keys = evenly(self.collection.truth.all_keys(), count)
        return [document for document in self.fetch(keys) if document is not None]

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        return len(self.collection.truth) if filters is None else len(self._allowed_keys(filters))

    def _allowed_keys(self, filters: Filter) -> NDArray[np.int64]:
        """Return the sorted keys of the documents that match."""
        self._refresh()
        return np.sort(self.collection.columns.allowed(filters))

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, batch: Batch) -> AddResult:
        with self.collection.writer():
            self.note_versions(item.document.metadata for item in batch.items)
            if batch.stored_only and batch.vectors is not None:
                is_stored = self.collection.truth.unchanged(batch.items)
                items = list(compress(batch.items, is_stored))
                batch = replace(batch, items=items, vectors=batch.vectors[is_stored])
            self._written_count += len(batch.items)
            return self.collection.write(batch)

    def _change_metadata(self, change: MetadataChange) -> MetadataResult:
        with self.collection.writer():
            self.note_versions(change.values.values())
            truth, ids = self.collection.truth, list(change.values)
            all_edits = change.edits(truth.get(ids))
            ids_with_vector = truth.embedded(ids)
            title_edits = [edit for edit in all_edits if edit.retitled and edit.id in ids_with_vector]
            if texts := change.missing(title_edits):
                return MetadataResult(AddResult(), texts, tuple(ids))
            new = {edit.id: change.vectors[edit.searchable] for edit in title_edits}
            return MetadataResult(self.collection.edit([edit.prepared for edit in all_edits], new, change.embedder))

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`."""
        items = [prepare(document) for document in documents]
        return self.collection.truth.unchanged(items, with_vectors=NEAR in self._scales)

    def bare(self, limit: int) -> list[Document]:
        """See `Store`."""
        self._refresh()
        keys, vectors = np.array(self.collection.truth.all_keys(), np.int64), self.collection.vectors
        if vectors is not None:
            keys = np.setdiff1d(keys, vectors.keys(), assume_unique=True)
        return [document for document in self.fetch(keys[:limit].tolist()) if document is not None]

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """See `Store`."""
        if filters is None:
            return sum(self.collection.delete(batch) for batch in batched(ids or (), _DELETED_TOGETHER))
        id_set = None if ids is None else set(ids)
        with self.collection.writer():  # what matches must still match when it is deleted
            matching = [id_ for id_ in self.ids(filters=filters) if id_set is None or id_ in id_set]
            return sum(self.collection.delete(batch) for batch in batched(matching, _DELETED_TOGETHER))

    @contextmanager
    def writer(self) -> Iterator[None]:
        """See `Store`; the indexes follow at the end. See `Collection.writer`."""
        written_before = self._written_count
        with self.collection.writer():
            yield
            if self._written_count >= written_before + _LONG_WRITE and not self.collection.is_in_block:
                self._write_due_words()

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:
        """See `Store`, and `Collection.writing`."""
        with self.collection.writing(wait):
            yield
            self._write_due_words()

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────

    def pinned(self) -> LocalStore:
        """See `Store`."""
        metas = self.collection.truth.metas()
        self.collection.refresh(int(metas.get("seq", 0)))
        snapshot = object.__new__(LocalStore)
        snapshot.__dict__.update(self.__dict__, _info=self.info, _metas=metas, _refresh=_as_it_is, _unpinned_store=self)
        return snapshot

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`."""
        self._refresh()
        index = self.collection.vectors
        if index is None:
            return np.zeros((0, 0), np.float32)
        return index.vectors(sample) if keys is None else index.of(keys)

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        self._refresh()
        return self.collection.keyword.frequencies(words)

    def metadata_keys(self) -> frozenset[str] | None:
        """See `Store`; known once a filter has been used."""
        return self.collection.columns.names()

    def changes(self, sequence: int) -> Iterator[list[DocumentChange]]:
        """Yield the last operation per key after a sequence number, in batches, deletions first."""
        return self.collection.truth.changes(sequence)

    def changed_since(self, sequence: int, limit: int) -> int:
        """See `Store`."""
        return self.collection.truth.changed_since(sequence, limit)

    def statistics(self) -> Statistics:
        """See `Store`; `count` counts the documents, unless vectors are still due."""
        values = self._values()
        notes = {name: value for name, value in values.items() if name not in _INTERNAL}
        sequence = int(values.get("seq", 0))
        due = self._vectors_due(sequence) if WORDS_FIRST in notes else 0
        recorded_state = None if KEPT_DAYS not in values else _recorded_state(values, sequence)
        return Statistics(sequence, self.count() if due else None, notes, due, recorded_state)

    def _vectors_due(self, sequence: int) -> int:
        """Return the number of documents without a vector; counted once per sequence number."""
        due = self._due.get(sequence)
        if due is None:
            self._refresh()
            vectors = self.collection.vectors
            due = max(0, self.count() - (0 if vectors is None else len(vectors)))
            if vectors is None or vectors.applied == sequence:  # else another thread is updating it
                self._due.clear()
                self._due[sequence] = due
        return due

    def annotate(self, **notes: str) -> None:
        """See `Store`."""
        if clashes := _INTERNAL & notes.keys():
            raise InputError(f"{', '.join(sorted(clashes))}: reserved for the store; choose another name")
        self.collection.truth.set_meta(**notes)

    def keep_versions(self, days: int) -> None:
        """See `Store`."""
        with self.collection.writer():
            self.collection.truth.keep_versions(days)

    def past_store(self, name: str, bm25: Mapping[str, float]) -> PastStates:
        """See `Store`."""
        return LocalPastStore(self, name, bm25)

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> ViewStore:
        """See `Store`."""
        return ViewStore(self, self.collection, self.collection.permissions.visible(view), notes)

    # ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stored_words(self, lexicon: HasFrequencies) -> tuple[Speller, int] | None:
        """See `Store`."""
        from pointsman.text.spelling import Speller

        file = self._words_file()
        try:
            header, arrays = file.read()
            speller, sequence = Speller.from_arrays(arrays, lexicon=lexicon), int(header["seq"])
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE, KeyError) as error:
            log.warning("%s cannot be used (%s); words are read from the documents", file.path, error)
            return None
        return (speller, sequence) if sequence <= self.collection.truth.sequence() else None

    def keep_words(self, speller: Speller, sequence: int) -> None:
        """See `Store`; not while another process is writing."""
        if self._words_are_due(sequence):
            try:
                with self.collection.healing() as is_writer:
                    if is_writer:
                        self._write_words(speller, sequence)
            except StoreError as error:
                log.debug("the words of %s are not stored now: %s", self.info.identity, error)

    def _write_due_words(self) -> None:
        """As the writer, at the end of a long write, store its words, so that searches need not wait for them."""
        try:
            sequence = self.collection.truth.sequence()
            if self._words_are_due(sequence):
                from pointsman.text.spelling import Speller

                self._write_words(Speller.from_texts(texts(self)), sequence)
        except StoreError as error:  # such as of a dataset that was deleted within the block
            log.debug("the words of a dataset are not stored now: %s", error)

    def _words_are_due(self, sequence: int) -> bool:
        return are_words_due(self._words_file(), sequence, self.count, self.changed_since)

    def _words_file(self) -> ArraysFile:
        return words_file(self.folder, self.info.identity)

    def _write_words(self, speller: Speller, sequence: int) -> None:
        file = self._words_file()
        try:
            file.write(sequence, speller.to_arrays())
        except OSError as error:
            log.warning("%s cannot be written now (%s); words are read from the documents", file.path, error)

    # ── keeping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> Verification:
        """See `Store`."""
        return self.collection.verify()

    def rebuild(self) -> None:
        """See `Store`."""
        self.collection.rebuild()

    def describe(self, description: str) -> None:
        """See `Store`."""
        self.collection.describe(description=description)

    def save(self, folder: Path, **about: Any) -> None:
        """See `Store`; its indexes are rebuilt there."""
        self.collection.save(folder, **about)

    def drop(self) -> None:
        """See `Store`."""
        self.collection.remove()

    def close(self) -> None:
        """See `Store`."""
        self.collection.close()


def _recorded_state(values: Mapping[str, str], sequence: int) -> RecordedState:
    notes = {name: value for name, value in values.items() if name not in UNNOTED}
    return RecordedState(sequence, digest_of(notes), int(values[KEPT_DAYS]), bytes.fromhex(values[RECEIPT_KEY]))


class LocalPastStore(PastStore):
    """The states of a dataset in a folder; the indexes of the copy follow its documents.

    Args:
        store: the dataset as it is.
        name: of the dataset, for messages.
        bm25: ``k1`` and ``b``.
    """

    _copy: LocalStore

    def __init__(self, store: LocalStore, name: str, bm25: Mapping[str, float]) -> None:
        super().__init__(name)
        self._source, self._bm25 = store, dict(bm25)
        folder = tempfile.mkdtemp(prefix="pointsman-past-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = Path(folder) / "dataset"
        store.collection.save(self._folder)
        self._copy = self._open_copy()
        truth = self._copy.collection.truth
        self._note_state(truth.sequence(), truth.former_notes()[0])

    def _open_copy(self) -> LocalStore:
        return LocalStore(self._folder, {}, **self._bm25)

    def _read(self, work: Callable[[History], T]) -> T:
        return work(self._source.collection.truth)

    def _become(self, states: Sequence[tuple[int, PastRow | None]], notes: Mapping[str, str]) -> None:
        truth = self._copy.collection.truth
        embedder = truth.meta("embedder")
        with self._copy.collection.writer():
            truth.become(states, notes)
        if notes.get("embedder") != embedder:  # an open store takes it for fixed
            self._copy.close()
            self._copy = self._open_copy()
