"""`BM25IndexManager`: a separate keyword index beside any vector store."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman.store.bm25 import check_constants
from pointsman.store.external.listing import Listing, listing_of
from pointsman.store.local.files_and_locks import WriterLock, make_directory
from pointsman.store.local.keyword.keyword_index import KeywordIndex
from pointsman.store.local.local_store import LocalStore
from pointsman.store.prepared_documents import prepare
from pointsman.store.store_values import WORDS, StoreQuery
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, LockedError
from pointsman.tools.sync_and_async import async_twin
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import parse_optional
from pointsman.values.types import Document, Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.values.filters import Filter

log = logging.getLogger(__name__)

LISTED_EVERY: Final = 60.0
"""Seconds between two automatic listings of a store that does not tell what has changed, while its number is equal."""
_BATCH_ROWS: Final = 1000
"""Documents compared and committed together."""
_AT_LEAST: Final = 40
"""Matches looked for at first if a filter is applied afterwards."""


class _Awaitable(Coroutine[Any, Any, Any]):
    """A result that may also be awaited, as in ``await manager.search(…)``, or run by ``asyncio.run``."""

    def __await__(self) -> Generator[Any, None, Self]:
        """Return the result itself without waiting."""
        return self
        yield

    def send(self, value: Any) -> Any:  # noqa: ARG002  (a coroutine's method)
        """End at once with the result."""
        raise StopIteration(self)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:  # noqa: ARG002  (see above)
        """Raise what was thrown into it."""
        raise kind if value is None else value

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


class Ranking(_Awaitable, list[Hit]):
    """Hits that may also be awaited.

    Attributes:
        degraded: why the index may not be current; empty if it is.
    """

    degraded: tuple[str, ...] = ()


class SequenceNumber(_Awaitable, int):
    """A sequence number that may also be awaited."""


class BM25IndexManager:
    """Keeps a BM25 index on disk in step with a vector store.

    A dataset in a folder, and any other store with a log of changes, is followed at the cost of what has changed. Any
    other store is listed: new and changed documents are indexed and deleted ones removed, at the cost of reading its
    documents once. A search lists it when the number of its documents has changed, and otherwise at most once a minute;
    `sync_incremental` always does.

    Args:
        index_path: the directory of the index.
        vector_store: its source: a dataset, any `pointsman.store.local.keyword.keyword_index.DocumentSource`, a vector
            store, index
            or document store of another library that can list its documents (see
            `pointsman.store.external.listing.listing_of`), or an iterable of documents.
        documents: for a store that cannot: an iterable of its documents with the same ids, or a function that returns
            one.
        bm25_k1: term frequency saturation, applied exactly.
        bm25_b: length normalisation, applied exactly.
        bm25_auto_sync: update the index before every search; if another process maintains it, read what that process
            has written.

    Raises:
        UnmetNeedError: the documents of ``vector_store`` cannot be read.
        InputError: ``documents`` are none, or a constant is out of range.
    """

    def __init__(
        self,
        index_path: str | Path,
        vector_store: Any,
        *,
        documents: Any = None,
        bm25_k1: float = 1.2,
        bm25_b: float = 0.75,
        bm25_auto_sync: bool = True,
    ) -> None:
        self.index_path, self.auto_sync = Path(index_path), bm25_auto_sync
        self.vector_store = vector_store = _with_log(vector_store)
        constants = {"k1": bm25_k1, "b": bm25_b}
        self._index: _LogIndex | _ListIndex
        if documents is None and all(hasattr(vector_store, name) for name in _LOG):
            self._index = _LogIndex(self.index_path, vector_store, constants)
        else:
            self._index = _ListIndex(self.index_path, listing_of(vector_store, documents), constants)

    def build_from_vector_store(self) -> SequenceNumber:
        """Rebuild the index; return the sequence number reached, which may also be awaited.

        Raises:
            LockedError: another process is writing to this index.
        """
        return SequenceNumber(self._index.follow(anew=True))

    def sync_incremental(self) -> SequenceNumber:
        """Apply adds, updates and deletes since the last sync; see the class for the cost.

        Returns:
            The sequence number reached, which may also be awaited.

        Raises:
            LockedError: another process is writing to this index.
        """
        return SequenceNumber(self._index.follow(anew=False))

    def search(self, query: str, k: int = 5, *, filters: str | Mapping[str, Any] | Filter | None = None) -> Ranking:
        """Return up to ``k`` hits with raw BM25 scores, best first; the result may also be awaited."""
        check_top_k(k)
        note = self._index.refresh() if self.auto_sync else None
        hits = Ranking(self._index.search(query, k, parse_optional(filters)))
        hits.degraded = () if note is None else (note,)
        return hits

    abuild_from_vector_store = async_twin(build_from_vector_store)

    async_incremental = async_twin(sync_incremental)

    asearch = async_twin(search)

    def close(self) -> None:
        """Close the files."""
        self._index.close()

    aclose = async_twin(close)


_LOG: Final = ("identity", "sequence", "changes", "fetch")
"""What a `pointsman.store.local.keyword.keyword_index.DocumentSource` has."""


def _with_log(vector_store: Any) -> Any:
    """Return the log of a dataset in a folder; anything else unchanged."""
    store = getattr(vector_store, "store", vector_store)
    return getattr(getattr(store, "collection", None), "truth", vector_store)


class _LogIndex:
    """An index of a store with a log of changes, by the store's own integer keys."""

    def __init__(self, directory: Path, source: Any, constants: Mapping[str, float]) -> None:
        make_directory(directory)
        self._source = source
        self._index = KeywordIndex(directory / "index", source, k1=constants["k1"], b=constants["b"])
        self._lock = WriterLock(directory)
        self._guard = threading.Lock()

    def follow(self, *, anew: bool) -> int:
        """Apply what has changed, or everything if ``anew``; return the sequence number reached."""
        if not anew and self._index.applied == self._source.sequence():
            return self._index.applied
        with self._guard:
            self._lock.acquire()
            if anew:
                self._index.clear()
            self._index.catch_up()
            return self._index.applied

    def refresh(self) -> str | None:
        """Apply what has changed since, as far as that can be told cheaply; return what prevented it."""
        try:
            self.follow(anew=False)
        except LockedError as error:
            log.debug("not synchronised here: %s", error)
            self._index.reload()
        return None

    def search(self, query: str, k: int, filters: Filter | None) -> list[Hit]:
        """Return at most ``k`` hits, best first; the filter is applied to the ranking, read as deep as needed."""
        depth = k if filters is None else max(k, _AT_LEAST)
        while True:
            ranking = self._index.search(query, depth)
            documents = self._source.fetch([key for key, _ in ranking])
            hits = [
                Hit(document, score)
                for document, (_, score) in zip(documents, ranking, strict=True)
                if document is not None and (filters is None or filters.matches(document.fields))
            ]
            if filters is None or len(hits) >= k or len(ranking) < depth:
                return hits[:k]
            depth *= 4

    def close(self) -> None:
        """Close the files."""
        self._index.close()
        self._lock.release()


class _ListIndex:
    """An index of documents that are listed; a copy of them is stored with it, under their ids."""

    def __init__(self, directory: Path, listing: Listing, constants: Mapping[str, float]) -> None:
        self._directory, self._listing, self._constants = directory, listing, constants
        check_constants(**constants)  # before any file is made
        self._store: LocalStore | None = None
        self._guard = threading.Lock()
        self._state: Any = None
        self._listed_at = -math.inf
        self.clock: Callable[[], float] = time.monotonic

    @property
    def store(self) -> LocalStore:
        """The copy; created on first use."""
        if self._store is None:
            record = {"name": self._listing.name, "description": "", "indexing_technique": "keyword"}
            self._store = LocalStore(self._directory / "documents", record, **self._constants)
        return self._store

    def follow(self, *, anew: bool) -> int:
        """See `_LogIndex`."""
        with self._guard:
            return self._follow(anew=anew)

    def _follow(self, *, anew: bool) -> int:
        state = None if self._listing.state is None else self._listing.state()
        if not anew and self._listing.exact and state == self._state and self._listed_at > -math.inf:
            return self.store.statistics().sequence
        start = self.clock()
        with self.store.writing():
            listed_ids: set[str] = set()
            for batch in batched(self._listing.documents(), _BATCH_ROWS):
                documents = [_storable(document) for document in {document.id: document for document in batch}.values()]
                listed_ids.update(document.id for document in documents)
                self.store.write(documents)
            self.store.delete([id_ for id_ in self.store.ids() if id_ not in listed_ids])
            if anew:
                self.store.rebuild()
        self._state, self._listed_at = state, start
        return self.store.statistics().sequence

    def refresh(self) -> str | None:
        """See `_LogIndex`."""
        with self._guard:
            try:
                if self._is_due():
                    self._follow(anew=False)
            except LockedError as error:
                log.debug("not synchronised here: %s", error)
            except InputError:
                raise
            except Exception as error:
                if not self.store.count():
                    raise
                note = f"the BM25 index of {self._listing.name} is not current: {type(error).__name__}: {error}"
                log.warning("%s", note)
                return note
        return None

    def _is_due(self) -> bool:
        state = None if self._listing.state is None else self._listing.state()
        if self._listed_at == -math.inf or state != self._state:
            return True
        return not self._listing.exact and self.clock() >= self._listed_at + LISTED_EVERY

    def search(self, query: str, k: int, filters: Filter | None) -> list[Hit]:
        """See `_LogIndex`."""
        ranking: Sequence[Any] = self.store.search([StoreQuery(query, None, k, filters)])[0].rankings.get(WORDS, ())
        documents = self.store.fetch([key for key, _ in ranking])
        pairs = zip(documents, ranking, strict=True)
        return [Hit(document, score) for document, (_, score) in pairs if document is not None]

    def close(self) -> None:
        """See `_LogIndex`."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _storable(document: Document) -> Document:
    """Return a document with the metadata that can be stored; that of other libraries may be anything."""
    try:
        prepare(document)
    except InputError as error:
        metadata: dict[str, Any] = {}
        for key, value in document.metadata.items():
            with suppress(InputError):
                metadata |= prepare(Document(document.id, "", {key: value})).document.metadata
        log.warning("metadata left out of the BM25 index: %s", error)
        return Document(document.id, document.text, metadata)
    return document
