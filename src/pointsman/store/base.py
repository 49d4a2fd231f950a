"""The Store protocol: where the documents of one dataset live, and how they are searched (B1).

A store does as much of one search as it can in **one round trip**: `Store.search` takes everything that is looked for
at once (a query and its variants, or fifty questions) and brings both lists of each, with the scores of every
candidate in both where it can. `Store.score` is the second round trip and the last.

A document has a *key* in its store: an id in most servers, an integer in the embedded store, where that was measured
to be faster. A key is opaque outside of its store. Ids are strings everywhere.

Each list states the `Scale` of its scores. Only BM25 in Lucene's form over our own tokens, and cosines, are added up;
everything else is fused by rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from pointsman._twins import in_thread
from pointsman.errors import UnmetNeedError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.filters import Filter
    from pointsman.types import AddResult, Document

Key = Hashable
"""What a store knows a document by; opaque outside of it."""

Ranking = Sequence[tuple[Any, "float | None"]]
"""Keys with their scores, best first; None where the list has no scores."""

WORDS: Final = "bm25"
"""The name of a store's keyword list in provenance and traces."""
NEAR: Final = "vector"
"""The name of a store's vector list."""


SPREAD_NOTE: Final = "cosine_spread"
"""The note with mean and deviation of the cosines, as a list in JSON."""

WORDS_FIRST: Final = "words_first"
"""The note of a dataset whose documents are stored before their vectors: each that is without one is to get it."""


class Scale(StrEnum):
    """What the scores of a list are."""

    BM25 = "bm25"
    """BM25 in Lucene's form, without its factor k1 + 1, over our own tokens."""
    COSINE = "cosine"
    RANK = "rank"
    """Only the order means something."""
    FOREIGN = "foreign"
    """Scores of somebody else's making: comparable within one list only."""


SCALES_OF: Final[Mapping[str, Mapping[str, Scale]]] = {
    "hybrid": {WORDS: Scale.BM25, NEAR: Scale.COSINE},
    "keyword": {WORDS: Scale.BM25},
    "vector": {NEAR: Scale.COSINE},
}
"""The lists of our own stores, by indexing technique."""


class Capability(StrEnum):
    """What not every store can do; without it the feature is left out, visibly."""

    WRITE = "write"
    FILTERS = "filters"
    SCORES_OTHERS = "scores_others"
    """`Store.score`, or ``search`` that brings both scores of the whole union."""
    VECTORS = "vectors"
    """`Store.vectors`: stored vectors can be read."""
    TERMS = "terms"
    """`Store.frequencies`: how many documents hold a word."""
    LATER = "later"
    """`Store.bare`, and `Store.write` with ``stored_only``: vectors can follow their documents."""
    CHANGES = "changes"
    """`Store.changes`: what was written since a sequence number."""
    LOCAL = "local"
    """In this process: a further call costs microseconds, so more than two a search may be made."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store says of itself.

    Attributes:
        kind: such as ``"local"`` or ``"postgresql"``.
        identity: differs for every dataset that was ever made, also of one name.
        embedder: the name of the embedder whose vectors are stored; None before the first vector.
        dimensions: of those vectors; None before the first.
        scales: what the scores of each list are, by the list's name; a store has only these lists.
        capabilities: what it can do beyond searching and reading.
    """

    kind: str
    identity: str
    embedder: str | None
    dimensions: int | None
    scales: Mapping[str, Scale]
    capabilities: frozenset[Capability]

    def can(self, capability: Capability) -> bool:
        """Whether the store has a capability."""
        return capability in self.capabilities


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One thing to look for.

    Attributes:
        text: for the keyword list; None: do without it.
        vector: for the vector list, shape ``(dimensions,)``, L2-normalised; None: do without it.
        depth: candidates a list.
        filters: which documents count; they act before the cut (I9).
    """

    text: str | None
    vector: NDArray[np.float32] | None = None
    depth: int = 100
    filters: Filter | None = None


Scores = Mapping[str, Mapping[Any, float]]
"""By list, then by key: raw scores. A document without a word of the query has BM25 0; one without a vector has NaN."""


@dataclass(frozen=True, slots=True)
class Lists:
    """What a store brings for one `Look`.

    Attributes:
        rankings: by list name, at most ``depth`` candidates.
        scores: by the same names, the raw scores of *every* candidate of the union, where the store can tell.
        documents: by key, those that came along in the same round trip; the others are fetched.
        degraded: what did not work as it should, such as shards that did not answer.
        idf: the sum of the idf of the look's words, repeated ones counted again: what BM25 stays below; None where the
            store cannot tell without another round trip.
    """

    rankings: Mapping[str, Ranking]
    scores: Scores = field(default_factory=dict)
    documents: Mapping[Any, Document] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    idf: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Documents in a stable order, and where the next page begins (None at the end)."""

    documents: list[Document]
    next: str | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Facts about a store's contents as a whole; None for those it does not know.

    Attributes:
        sequence: grows with every write, so that what was computed from the store can be dated.
        documents: how many there are.
        notes: small texts that were kept with `Store.annotate`, such as the spread of cosines.
        vectors_due: documents whose vector is still to come; 0 without the note `WORDS_FIRST`. Where it is above 0,
            ``documents`` is known too.
    """

    sequence: int
    documents: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    vectors_due: int = 0


class Store(Protocol):
    """The documents of one dataset. Implementations subclass `BaseStore`, which gives the awaited twins.

    Every method may raise `pointsman.errors.StoreError` or one of its kinds, and nothing foreign.
    """

    @property
    def info(self) -> StoreInfo:
        """Identity, embedder, scales, capabilities."""
        ...

    def search(self, looks: Sequence[Look]) -> list[Lists]:
        """Look for everything at once, in one round trip; one answer each, in their order."""
        ...

    def score(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """Score given documents for each look, in one round trip (``SCORES_OTHERS``)."""
        ...

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """Returns the documents with these keys in order, None for deleted ones."""
        ...

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """The keys of the documents of these ids, of those that exist."""
        ...

    def write(
        self,
        documents: Sequence[Document],
        vectors: NDArray[np.float32] | None = None,
        embedder: str | None = None,
        *,
        stored_only: bool = False,
    ) -> AddResult:
        """Add or update documents of different ids durably; what is stored just so is passed over (``WRITE``).

        A document written without its vector loses the one that it had. With ``stored_only`` nothing but vectors is
        written, and that for documents that are stored just so; others have been changed or deleted meanwhile, and are
        passed over without being counted (``LATER``).

        Raises:
            InputError: a document cannot be stored, or the vectors are of another embedder; nothing is written.
        """
        ...

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """Whether each is stored just so, with all that it needs; those need not be embedded again."""
        ...

    def bare(self, limit: int) -> list[Document]:
        """At most ``limit`` documents that have no vector, those that came first (``LATER``)."""
        ...

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:
        """Delete documents of these ids, that match, or both; how many there were (``WRITE``)."""
        ...

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Returns the documents with these ids in order, None for unknown ids."""
        ...

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """At most ``limit`` documents in a stable order, after what the page before said."""
        ...

    def documents(self) -> Iterator[Document]:
        """All documents, in the order of `page`."""
        ...

    def ids(self, *, source: str | None = None) -> list[str]:
        """All ids, or those of documents whose metadata has this ``source``."""
        ...

    def count(self, filters: Filter | None = None) -> int:
        """How many documents there are, or match."""
        ...

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:
        """Stored vectors: those of these keys that have one, in their order; or an even sample (``VECTORS``)."""
        ...

    def frequencies(self, words: Sequence[str]) -> list[int]:
        """How many documents hold each of these words; of several tokens, the rarest (``TERMS``)."""
        ...

    def statistics(self) -> Statistics:
        """Sequence number, size and notes: as of now, or of the last second where asking is a round trip."""
        ...

    def annotate(self, **notes: str) -> None:
        """Keep small texts with the documents; no write in the sense of ``sequence``."""
        ...

    def drop(self) -> None:
        """Delete the dataset with everything in it."""
        ...

    def pinned(self) -> AbstractContextManager[None]:
        """Let this thread's reads within the block look for what others have written once, where looking costs."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...

    async def asearch(self, looks: Sequence[Look]) -> list[Lists]:
        """`search`, awaited; native where the store is."""
        ...

    async def ascore(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """`score`, awaited."""
        ...

    async def afetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """`fetch`, awaited."""
        ...


class BaseStore(ABC):
    """What implementations share: the awaited twins, and what follows from other methods.

    A subclass implements the abstract methods; what it cannot do stays as it is here, and raises `UnmetNeedError`.
    """

    @property
    @abstractmethod
    def info(self) -> StoreInfo:
        """See `Store`."""

    @abstractmethod
    def search(self, looks: Sequence[Look]) -> list[Lists]:
        """See `Store`."""

    @abstractmethod
    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """See `Store`."""

    @abstractmethod
    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        """See `Store`."""

    @abstractmethod
    def statistics(self) -> Statistics:
        """See `Store`."""

    @abstractmethod
    def close(self) -> None:
        """See `Store`."""

    def pinned(self) -> AbstractContextManager[None]:
        """See `Store`."""
        return nullcontext()

    def fetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`; keys are ids unless a subclass says otherwise."""
        return self.get(keys)

    def keys(self, ids: Sequence[str]) -> dict[str, Any]:
        """See `Store`."""
        return {id_: id_ for id_, document in zip(ids, self.get(ids), strict=True) if document is not None}

    def documents(self) -> Iterator[Document]:
        """All documents, in the order of `page`."""
        after: str | None = None
        while True:
            page = self.page(after, 1000)
            yield from page.documents
            if page.next is None:
                return
            after = page.next

    def ids(self, *, source: str | None = None) -> list[str]:
        """See `Store`."""
        return [
            document.id for document in self.documents() if source is None or document.metadata.get("source") == source
        ]

    def count(self, filters: Filter | None = None) -> int:
        """See `Store`."""
        return sum(filters is None or filters.matches(document.fields) for document in self.documents())

    def score(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:  # noqa: ARG002
        """See `Store`."""
        raise self._cannot(Capability.SCORES_OTHERS)

    def write(
        self,
        documents: Sequence[Document],  # noqa: ARG002
        vectors: NDArray[np.float32] | None = None,  # noqa: ARG002
        embedder: str | None = None,  # noqa: ARG002
        *,
        stored_only: bool = False,  # noqa: ARG002
    ) -> AddResult:
        """See `Store`."""
        raise self._cannot(Capability.WRITE)

    def unchanged(self, documents: Sequence[Document]) -> list[bool]:
        """See `Store`; here whatever is not sure counts as changed."""
        return [False] * len(documents)

    def bare(self, limit: int) -> list[Document]:  # noqa: ARG002
        """See `Store`."""
        raise self._cannot(Capability.LATER)

    def delete(self, ids: Sequence[str] | None = None, filters: Filter | None = None) -> int:  # noqa: ARG002
        """See `Store`."""
        raise self._cannot(Capability.WRITE)

    def vectors(self, keys: Sequence[Any] | None = None, *, sample: int = 0) -> NDArray[np.float32]:  # noqa: ARG002
        """See `Store`."""
        raise self._cannot(Capability.VECTORS)

    def frequencies(self, words: Sequence[str]) -> list[int]:  # noqa: ARG002
        """See `Store`."""
        raise self._cannot(Capability.TERMS)

    def annotate(self, **notes: str) -> None:  # noqa: B027  (a store without a place for notes is a store)
        """See `Store`; forgotten unless a subclass keeps them."""

    def drop(self) -> None:
        """See `Store`."""
        raise self._cannot(Capability.WRITE)

    async def asearch(self, looks: Sequence[Look]) -> list[Lists]:
        """See `Store`."""
        return await in_thread(self.search, looks)

    async def ascore(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:
        """See `Store`."""
        return await in_thread(self.score, looks, keys)

    async def afetch(self, keys: Sequence[Any]) -> list[Document | None]:
        """See `Store`."""
        return await in_thread(self.fetch, keys)

    def _cannot(self, capability: Capability) -> UnmetNeedError:
        return UnmetNeedError(f"a {self.info.kind} store has no {capability.value!r} capability")


class EmptyStore(BaseStore):
    """A store without documents, of a dataset that has not been made.

    Args:
        scales: of the lists that it would have.
    """

    def __init__(self, scales: Mapping[str, Scale]) -> None:
        can = frozenset(Capability) - {Capability.WRITE, Capability.LATER, Capability.CHANGES}
        self._info = StoreInfo("empty", "", None, None, scales, can)

    @property
    def info(self) -> StoreInfo:
        """See `Store`."""
        return self._info

    def search(self, looks: Sequence[Look]) -> list[Lists]:
        """See `Store`."""
        rankings: dict[str, Ranking] = {WORDS: ()} if WORDS in self._info.scales else {}
        return [Lists(rankings, {name: {} for name in rankings}) for _ in looks]

    def score(self, looks: Sequence[Look], keys: Sequence[Sequence[Any]]) -> list[Scores]:  # noqa: ARG002
        """See `Store`."""
        return [{} for _ in looks]

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

    def statistics(self) -> Statistics:
        """See `Store`."""
        return Statistics(0, 0)

    def close(self) -> None:
        """See `Store`."""
