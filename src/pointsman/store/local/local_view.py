"""The documents of an embedded store that exist in a view, as a `Store` of its own.

Every number that it returns is computed from those documents alone: term counts, mean length, samples, notes. So
nothing above a store has to know of views. One object is the state of a view at one moment: when anything about its
documents changes, there is another one, and what others keep about this one never has to be looked at again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.store.local.index_search import score_both, search_both
from pointsman.store.prepared_documents import direction, position
from pointsman.store.sampling import evenly
from pointsman.store.store_values import WORDS, Lists, Page, Scores, StoreQuery
from pointsman.store.store_views import StoreView, without_access
from pointsman.tools.batching import batched
from pointsman.values.filters import And, Equals, Exists
from pointsman.values.views import ACCESS, permissions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store
    from pointsman.store.local.collection import Collection
    from pointsman.store.local.columns.permissions import VisibleDocuments
    from pointsman.store.local.keyword.keyword_state import IndexSubset
    from pointsman.store.local.keyword.word_query import WordQuery
    from pointsman.store.local.vectors.vector_query import VectorQuery
    from pointsman.store.local.vectors.vector_state import VectorSubset
    from pointsman.values.filters import Filter
    from pointsman.values.types import Document
    from pointsman.values.views import View

_READ_TOGETHER = 1000
_COUNTS = 50_000  # bytes for the frequencies of terms that were asked for


class ViewStore(StoreView):
    """The documents of a store that exist in a view.

    Args:
        store: the store.
        collection: its documents and indexes.
        visible: the documents that exist in the view now.
        notes: measures what `Statistics.notes` says of the documents; called once, when it is first needed.
    """

    def __init__(
        self,
        store: Store,
        collection: Collection,
        visible: VisibleDocuments,
        notes: Callable[[Store], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.measure_by(store, notes)
        self._collection, self._visible = collection, visible
        self._word_subset: IndexSubset | None = None
        self._vector_subset: VectorSubset | None = None
        self._names: frozenset[str] | None = None
        self._visibility: dict[str, bool] = {}

    @property
    def state(self) -> str:
        """See `StoreView`."""
        return self._visible.state

    @property
    def nbytes(self) -> int:
        """See `StoreView`: its keys, and a byte for every document in a mask of either index."""
        return self._visible.nbytes + 2 * len(self._visible.stamp_of) + _COUNTS

    def _document_count(self) -> int:
        return len(self._visible.keys)

    def _vector_count(self) -> int:
        subset = self._vectors()
        return 0 if subset is None else len(subset.keys)

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> ViewStore:
        """See `Store`; those of these documents that are valid on a day."""
        self._check_part(view)
        visible = self._visible.among(self._collection.permissions.visible(view))
        return ViewStore(self._store, self._collection, visible, notes)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        self._collection.refresh()
        lists = [search_both(*self._queries(query), query.depth, query.filters) for query in store_queries]
        missing = len(self._visible.keys) - len(self._words().keys) if WORDS in self._store.info.scales else 0
        if not missing:
            return lists
        late = f"{missing} documents were changed just now, and their words are not indexed yet; ask again"
        return [replace(result, degraded=(late,)) for result in lists]

    def _queries(self, store_query: StoreQuery) -> tuple[WordQuery | None, VectorQuery | None]:
        """Return what a query asks of the two indexes."""
        text, vector, index = store_query.text, store_query.vector, self._collection.vectors
        subset = self._vectors() if vector is not None else None
        return (
            self._collection.keyword.query(text, self._words())
            if text is not None and WORDS in self._store.info.scales
            else None,
            index.query(vector, subset)
            if vector is not None and index is not None and subset is not None and len(subset.keys)
            else None,
        )

    def _words(self) -> IndexSubset:
        """Return the part of the keyword index; without documents whose last change it does not hold yet.

        Otherwise the former words of a document would be found by those who may see it only now.
        """
        keyword = self._collection.keyword
        keyword.applied  # noqa: B018  (opens the index)
        self._word_subset = subset = keyword.subset(self._keys_up_to(keyword.shown), self._word_subset)
        return subset

    def _keys_up_to(self, sequence: int) -> NDArray[np.int64]:
        """Return the keys of the documents that were last changed no later than an index."""
        keys, stamps = self._visible.keys, self._visible.stamps
        return keys if not len(keys) or int(stamps.max()) <= sequence else keys[stamps <= sequence]

    def _vectors(self) -> VectorSubset | None:
        index = self._collection.vectors
        if index is None:
            return None
        self._vector_subset = subset = index.subset(self._keys_up_to(index.applied), self._vector_subset)
        return subset

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        self._collection.refresh()
        own_keys = (list(compress(group, self._has(group))) for group in keys)
        return [score_both(*self._queries(query), group) for query, group in zip(store_queries, own_keys, strict=True)]

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def _has(self, keys: Sequence[Any]) -> NDArray[np.bool_]:
        return np.isin(np.asarray(keys, np.int64), self._visible.keys)

    def _without_access(self, documents: Sequence[Document | None]) -> list[Document | None]:
        """Return the documents without what they say about access; None for those that others have just hidden."""
        visible_documents = without_access(
            [document for document in documents if document is not None and self._is_visible(document)]
        )
        by_id = {document.id: document for document in visible_documents}
        return [None if document is None else by_id.get(document.id) for document in documents]

    def _is_visible(self, document: Document) -> bool:
        """Whether documents that say this about access exist in the view; few things are said, so each is read once."""
        access_text = repr(document.metadata.get(ACCESS))
        if access_text not in self._visibility:
            self._visibility[access_text] = permissions_of(document.metadata) in self._visible.permissions
        return self._visibility[access_text]

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        visible_keys = list(compress(keys, self._has(keys)))
        documents = dict(zip(visible_keys, self._without_access(self._store.fetch(visible_keys)), strict=True))
        return [documents.get(key) for key in keys]

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`; whether hidden or unknown, an id is looked for among the visible keys."""
        keys = self._store.keys(ids)
        is_visible = self._has([keys.get(id_, 0) for id_ in ids])  # keys begin at 1
        return {id_: keys[id_] for id_ in compress(ids, is_visible)}

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        keys = self.keys(ids)
        documents = dict(zip(keys, self.fetch(list(keys.values())), strict=True))
        return [documents.get(id_) for id_ in ids]

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`; the cursor is the number of documents before the page: keys would tell of others between."""
        start = position(after)
        keys = self._matching(filters)
        documents = [document for document in self.fetch(keys[start : start + limit].tolist()) if document is not None]
        return Page(documents, str(start + limit) if len(keys) > start + limit else None)

    def documents(self, filters: Filter | None = None) -> Iterator[Document]:
        """See `Store`."""
        for keys in batched(self._matching(filters).tolist(), _READ_TOGETHER):
            yield from (document for document in self.fetch(keys) if document is not None)

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """See `Store`; no hidden row is read, so that time does not tell of a source that only those name."""
        if source is None:
            return self._collection.truth.ids_of(self._matching(filters).tolist())
        of_source = Equals("source", source)  # also those that list it, which `Store` leaves out
        return super().ids(source=source, filters=of_source if filters is None else of_source & filters)

    def sample(self, count: int) -> list[Document]:
        """See `Store`."""
        return [document for document in self.fetch(evenly(self._visible.keys.tolist(), count)) if document is not None]

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        return len(self._matching(filters))

    def _matching(self, filters: Filter | None) -> NDArray[np.int64]:
        """Return the keys of the documents that match, ascending."""
        keys = self._visible.keys
        if filters is None:
            return keys
        self._collection.refresh()
        return keys[self._collection.columns.mask(filters, keys)]

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """See `Store`."""
        index, subset = self._collection.vectors, self._vectors()
        if index is None or subset is None:
            return np.zeros((0, 0), np.float32)
        if keys is not None:
            return index.of(list(compress(keys, self._has(keys))))
        rows = np.sort(np.random.default_rng(0).permutation(len(subset.keys))[:sample])
        return index.of(subset.keys[rows].tolist())

    def best_cosines(self, questions: NDArray[np.float32]) -> list[float]:
        """See `Store`; what is known of groups of documents is not computed again for another view of them."""
        self._collection.refresh()
        index, subset = self._collection.vectors, self._vectors()
        if index is None or subset is None or not len(subset.keys):
            return [math.nan] * len(questions)
        directions = np.array([direction(question, index.dimensions) for question in questions], np.float32)
        numbers = self._collection.permissions.numbers(subset.keys)
        cosines = self._collection.best_cosines.of(subset, numbers, directions).tolist()
        return [cosine if row.any() else math.nan for cosine, row in zip(cosines, directions, strict=True)]

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        return list(map(self._words().frequency, words))

    def metadata_keys(self) -> frozenset[str]:
        """See `Store`."""
        if self._names is None:
            columns, keys = self._collection.columns, self._visible.keys
            columns.mask(And(()), keys)  # loads them
            names = columns.names() or frozenset()
            self._names = frozenset(name for name in names if columns.mask(Exists(name), keys).any())
        return self._names

    def pinned(self) -> ViewStore:
        """See `Store`."""
        self._collection.refresh()
        return self
