"""The base class of stores: where the documents of one dataset are stored, and how they are searched.

A store does as much of one search as it can in **one round trip**: `Store.search` takes all queries at once (one and
its variants, or fifty questions) and returns both lists for each, with the scores of every candidate in both lists if
it can. `Store.score` is the second and last round trip.

A document has a *key* in its store: an id in most servers, an integer in the embedded store, which was measured to be
faster. A key is opaque outside its store. Ids are always strings.

Each list states the `Scale` of its scores. Only BM25 in Lucene's form over Pointsman's tokens, and cosines, are added
up; everything else is fused by rank.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pointsman.store.prepared_documents import Batch, MetadataChange, prepare
from pointsman.store.sampling import evenly
from pointsman.store.store_values import (
    NEAR,
    VERSIONS,
    WORDS,
    Capability,
    Lists,
    MetadataResult,
    Page,
    Ranking,
    Scale,
    Scores,
    Statistics,
    StoreInfo,
    StoreQuery,
    Verification,
)
from pointsman.tools.errors import UnmetNeedError
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.types import AddResult, Document, Metadata
from pointsman.values.views import VALIDITY_KEYS

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.text.spelling import HasFrequencies, Speller
    from pointsman.values.filters import Filter
    from pointsman.values.views import View


class Store(ABC):
    """The documents of one dataset.

    A subclass implements the abstract methods, and what it is able to do beside them: the other methods derive their
    answer from those, or raise `UnmetNeedError`. Every method may raise `pointsman.tools.errors.StoreError` or a
    subclass of it, and no foreign errors.
    """

    is_attached: ClassVar[bool] = False
    """Whether the documents are those of a collection of others, which is only read."""
    maintains_itself: ClassVar[bool] = True
    """Whether `verify`, `rebuild` and `save` are another program's business."""
    has_answered: bool = True
    """Whether it has answered; until then `info` may take as long as the retries of a server that is away."""
    folder: Path | None = None
    """Where files can be kept beside the documents; None: nowhere."""

    @property
    @abstractmethod
    def info(self) -> StoreInfo:
        """Return identity, embedder, scales and capabilities."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes beside what it is a view of."""
        return 0

    @abstractmethod
    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """Run all queries in one round trip; returns one result per query, in order."""

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:  # noqa: ARG002
        """Score given documents for each query, in one round trip (``SCORES_OTHERS``)."""
        raise self._cannot(Capability.SCORES_OTHERS)

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """Return the documents with these keys in order, None for deleted ones."""
        return self.get(keys)

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return the keys of existing documents by id."""
        return {id_: id_ for id_, document in zip(ids, self.get(ids), strict=True) if document is not None}

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
        """Add or update documents with distinct ids durably; identical stored documents are skipped (``WRITE``).

        With ``skip_identical=False`` those are written too and count as updated, so that no time tells what is stored.
        A document written without a vector loses the one it had. ``has_vector`` says which documents have a row of
        ``vectors``, by default all; the rows of the others mean nothing, and they are written without one, in the same
        step. With ``stored_only`` only vectors are written, and only for documents that are stored identically; those
        changed or deleted meanwhile are skipped and not counted (``LATER``).

        Raises:
            InputError: a document cannot be stored, or the vectors are from another embedder; nothing is written.
        """
        items = [prepare(document) for document in documents]
        return self._write(Batch(items, vectors, embedder or "", has_vector, stored_only, skip_identical))

    def set_metadata(
        self,
        changes: Mapping[str, Metadata],
        vectors: Mapping[str, NDArray[np.float32]] | None = None,
        embedder: str | None = None,
        *,
        replace: bool = False,
    ) -> MetadataResult:
        """Change the metadata of stored documents, reading and writing each as one step that no other write divides.

        Texts stay. So do vectors, unless a new title changes the searchable text: then the document gets the vector
        that ``vectors`` has for its new searchable text, whatever that has become meanwhile. If there is none, the
        document is left as it is and named in ``remaining``: embed ``texts``, and call again for those. Either all
        documents change or none does, except in a store without transactions, where each does by itself (``WRITE``).

        Args:
            changes: by id, the values to set; None removes the key.
            vectors: by searchable text, shape ``(dimensions,)``.
            embedder: the name of the vectors' embedder.
            replace: whether to remove all other metadata of these documents.

        Raises:
            InputError: there is no such document, or the metadata cannot be stored; nothing is changed. In a store
                without transactions, others may have been changed if the document is deleted during the call.
        """
        if not changes:
            return MetadataResult(AddResult())
        return self._change_metadata(MetadataChange(changes, vectors or {}, embedder or "", replace))

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """Return whether each document is stored identically and completely, so that it need not be embedded again."""
        return [False] * len(documents)

    def bare(self, limit: int) -> list[Document]:  # noqa: ARG002
        """Return at most ``limit`` documents without a vector, in order of first arrival (``LATER``)."""
        raise self._cannot(Capability.LATER)

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:  # noqa: ARG002
        """Delete the documents with these ids, those that match, or both; returns how many existed (``WRITE``)."""
        raise self._cannot(Capability.WRITE)

    @abstractmethod
    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids in order, None for unknown ids."""

    @abstractmethod
    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """Return at most ``limit`` documents in a stable order; ``after`` is where the previous page ended."""

    def documents(self, filters: Filter | None = None) -> Iterator[Document]:
        """Yields all documents, or those that match, in the order of `page`."""
        cursor: str | None = None
        while True:
            page = self.page(cursor, 1000, filters)
            yield from page.documents
            if page.next is None:
                return
            cursor = page.next

    def ids(self, *, source: str | None = None, filters: Filter | None = None) -> list[str]:
        """Return all ids in the order of `page`, or those of documents with this ``source``, or that match."""
        return [
            document.id
            for document in self.documents(filters)
            if source is None or document.metadata.get("source") == source
        ]

    def sample(self, count: int) -> list[Document]:
        """Return at most ``count`` documents, evenly spaced in the order of `page`."""
        return [document for document in self.get(evenly(self.ids(), count)) if document is not None]

    def count(self, filters: Filter | None = None) -> int:
        """Return the number of documents, or of those that match."""
        return sum(1 for _ in self.documents(filters))

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:  # noqa: ARG002
        """Return the stored vectors of these keys in order, skipping missing ones, or an even sample (``VECTORS``)."""
        raise self._cannot(Capability.VECTORS)

    def best_cosines(self, questions: NDArray[np.float32]) -> list[float]:
        """Return the score of the nearest document of each question; NaN without a vector.

        Args:
            questions: of length 1, shape ``(questions, dimensions)``.
        """
        lists = self.search([StoreQuery(None, question, 1) for question in questions])
        scores = [next((score for _, score in ranked.rankings.get(NEAR, ())), None) for ranked in lists]
        return [math.nan if score is None else score for score in scores]

    def frequencies(self, words: Sequence[str]) -> list[int]:  # noqa: ARG002
        """Return how many documents contain each word; for a word of several tokens, its rarest (``TERMS``)."""
        raise self._cannot(Capability.TERMS)

    def metadata_keys(self) -> Collection[str] | None:
        """Return the metadata keys that filters can use; None if they are not at hand."""
        return None

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return sequence number, size and notes: current, or up to a second old if asking takes a round trip."""

    def annotate(self, **notes: str) -> None:  # noqa: B027  (a store without a place for notes is valid)
        """Save small texts with the documents; this does not advance ``sequence``."""

    def keep_versions(self, days: int) -> None:
        """Keep what is replaced or deleted from now on for so many days; 0: keep nothing more (``RECORDS``)."""
        if days:
            raise UnmetNeedError(
                f"a {self.info.kind} store keeps no versions (it lacks the capability {Capability.RECORDS.value!r}), "
                "so its answers have no receipts: leave versions out, or index the documents into a workspace in a "
                "folder or in PostgreSQL"
            )

    def past_store(self, name: str, bm25: Mapping[str, float]) -> PastStates:  # noqa: ARG002
        """Return a copy that can be brought to each state that is kept (``RECORDS``).

        Args:
            name: of the dataset, for messages.
            bm25: ``k1`` and ``b`` by which the copy scores.
        """
        raise self._cannot(Capability.RECORDS)

    def drop(self) -> None:
        """Delete the dataset with all its contents."""
        raise self._cannot(Capability.WRITE)

    def pinned(self) -> Store:
        """Return this store for one search: it looks for changes by others now, and not before each of its reads."""
        return self

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> Store:  # noqa: ARG002
        """Return the documents that exist in a view now, as a store to read, with a ``state`` (``VIEWS``).

        ``state`` is a text that differs whenever anything about these documents does.

        Args:
            view: the view.
            notes: measures what `Statistics.notes` says of these documents.
        """
        raise self._cannot(Capability.VIEWS)

    def close(self) -> None:  # noqa: B027  (most have nothing that is not their backend's)
        """Release files and connections."""

    async def asearch(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """Async version of `search`; native if the store's client is."""
        return await in_thread(self.search, store_queries)

    async def ascore(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """Async version of `score`."""
        return await in_thread(self.score, store_queries, keys)

    async def afetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """Async version of `fetch`."""
        return await in_thread(self.fetch, keys)

    # ── the embedded store ───────────────────────────────────────────────────────────────────────────────────────

    def writer(self) -> AbstractContextManager[None]:
        """Hold the writer lock for several calls of `write`, if there can be only one writer at a time."""
        return nullcontext()

    def writing(self, wait: float = 0.0) -> AbstractContextManager[None]:  # noqa: ARG002
        """Hold the writer lock within the block only, after waiting so many seconds for another process."""
        return nullcontext()

    @property
    def indexed(self) -> int:
        """The sequence number of the keyword index; lower than the documents' while the index is behind."""
        return self.statistics().sequence

    def changed_since(self, sequence: int, limit: int) -> int:  # noqa: ARG002
        """Return the number of documents written or deleted after ``sequence``, at most ``limit``; that if unknown."""
        return limit

    def stored_words(self, lexicon: HasFrequencies) -> tuple[Speller, int] | None:  # noqa: ARG002
        """Return a speller that knows the words of the documents, and as of which write; None if none is stored."""
        return None

    def keep_words(self, speller: Speller, sequence: int) -> None:  # noqa: B027
        """Store the words of the documents as of a write, if that is worth it."""

    def verify(self) -> Verification:
        """Compare the indexes with the documents."""
        raise self._self_maintained()

    def rebuild(self) -> None:
        """Rebuild the indexes; nothing is embedded again."""
        raise self._self_maintained()

    def describe(self, description: str) -> None:  # noqa: ARG002
        """Change the description of a dataset that is in no workspace."""
        raise self._self_maintained()

    def save(self, folder: Path, **about: Any) -> None:  # noqa: ARG002
        """Copy the documents into a new folder, with further entries of its manifest.

        Raises:
            InputError: the folder is not empty.
        """
        raise self._self_maintained()

    # ── for subclasses ───────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, batch: Batch) -> AddResult:  # noqa: ARG002
        raise self._cannot(Capability.WRITE)

    def _change_metadata(self, change: MetadataChange) -> MetadataResult:  # noqa: ARG002
        raise self._cannot(Capability.WRITE)

    def note_versions(self, metadata: Iterable[Metadata]) -> None:
        """Note, before documents with this metadata are written, that there are `VERSIONS` among them."""
        has_versions = any(key in values for values in metadata for key in VALIDITY_KEYS)
        if has_versions and VERSIONS not in self.statistics().notes:
            self.annotate(**{VERSIONS: "1"})

    def _self_maintained(self) -> UnmetNeedError:
        return UnmetNeedError(f"a {self.info.kind} store maintains itself")

    def _cannot(self, capability: Capability) -> UnmetNeedError:
        return UnmetNeedError(f"a {self.info.kind} store has no {capability.value!r} capability")


class PastStates(Protocol):
    """A copy of a dataset that can be brought to each state that is kept; see `pointsman.store.history.PastStore`."""

    @property
    def close(self) -> Callable[[], object]:
        """Deletes the copy; so does the end of the program."""
        ...

    def at(self, sequence: int, notes: str) -> Store:
        """Return the dataset as it was after a write, with the notes of a digest; the next call changes it."""
        ...


class EmptyStore(Store):
    """A store without documents, for a dataset that has not been created.

    Args:
        scales: of the lists that the store would have.
    """

    def __init__(self, scales: Mapping[str, Scale]) -> None:
        can = frozenset(Capability) - {Capability.WRITE, Capability.LATER, Capability.CHANGES, Capability.RECORDS}
        self._info = StoreInfo("empty", "", None, None, scales, can)

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        return self._info

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        """See `Store`."""
        rankings: dict[str, Ranking] = {WORDS: ()} if WORDS in self._info.scales else {}
        return [Lists(rankings, {name: {} for name in rankings}) for _ in store_queries]

    def score(self, store_queries: Sequence[StoreQuery], keys: Sequence[Sequence[Any]]) -> list[Scores]:  # noqa: ARG002
        """See `Store`."""
        return [{} for _ in store_queries]

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""
        return [None] * len(ids)

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:  # noqa: ARG002
        """See `Store`."""
        return Page([], None)

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:  # noqa: ARG002
        """See `Store`."""
        import numpy as np

        return np.zeros((0, 0), np.float32)

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """See `Store`."""
        return [0] * len(words)

    def in_view(self, view: View, notes: Callable[[Store], Mapping[str, str]]) -> Store:  # noqa: ARG002
        """See `Store`."""
        return self

    @property
    def state(self) -> str:
        """See `Store.in_view`."""
        return ""

    def metadata_keys(self) -> Collection[str]:
        """See `Store`."""
        return ()

    def statistics(self) -> Statistics:
        """See `Store`."""
        return Statistics(0, 0)
