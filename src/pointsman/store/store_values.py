"""What goes into a store and comes out of it: queries, lists with their scales, statistics, capabilities."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.filters import Filter
    from pointsman.values.types import AddResult, Document

Key = Hashable
"""A store's key of a document; opaque outside the store."""

Ranking = Sequence[tuple[Any, "float | None"]]
"""Keys with their scores, best first; the score is None in a list without scores."""

WORDS: Final = "bm25"
"""The name of a store's keyword list in provenance and traces."""
NEAR: Final = "vector"
"""The name of a store's vector list."""
MATCHED: Final = "matched"
"""The name under which a store's scores also say how much of the query's words each document has; see `Scores`."""


SPREAD_NOTE: Final = "cosine_spread"
"""The note that holds the mean and deviation of the cosines, as a JSON list."""

WORDS_FIRST: Final = "words_first"
"""The note of a dataset that stores documents before their vectors: every document without one is due to get it."""

VERSIONS: Final = "versions"
"""The note of a dataset with documents that say when they are valid, or what they are a new version of."""


class Scale(StrEnum):
    """What the scores of a list mean."""

    BM25 = "bm25"
    """BM25 in Lucene's form, without its factor k1 + 1, over Pointsman's tokens."""
    COSINE = "cosine"
    RANK = "rank"
    """Only the order has a meaning."""
    FOREIGN = "foreign"
    """Scores of a foreign engine: comparable within one list only."""


SCALES_OF: Final[Mapping[str, Mapping[str, Scale]]] = {
    "hybrid": {WORDS: Scale.BM25, NEAR: Scale.COSINE},
    "keyword": {WORDS: Scale.BM25},
    "vector": {NEAR: Scale.COSINE},
}
"""The lists of the built-in stores, by indexing technique."""


class Capability(StrEnum):
    """An optional ability of a store; without it the feature that needs it is left out, and reported."""

    WRITE = "write"
    FILTERS = "filters"
    SCORES_OTHERS = "scores_others"
    """`Store.score`, or a ``search`` that returns both scores for the whole union."""
    VECTORS = "vectors"
    """`Store.vectors`: stored vectors can be read."""
    TERMS = "terms"
    """`Store.frequencies`: how many documents contain a word."""
    LATER = "later"
    """`Store.bare`, and `Store.write` with ``stored_only``: vectors can be added after their documents."""
    CHANGES = "changes"
    """`Store.changes`: what was written since a sequence number."""
    VIEWS = "views"
    """`Store.in_view`: part of the documents, as if there were no others."""
    DAYS = "days"
    """`Store.in_view` of a day: the documents that are valid on it, as if there were no others."""
    RECORDS = "records"
    """`Store.keep_versions`: what is replaced or deleted can be kept for some days, for `pointsman replay`."""
    LOCAL = "local"
    """Runs in this process: a further call costs microseconds, so a search may make more than two."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store's description of itself.

    Attributes:
        kind: such as ``"local"`` or ``"postgresql"``.
        identity: unique for every dataset ever created, even under the same name.
        embedder: the name of the embedder whose vectors are stored; None before the first vector.
        dimensions: of those vectors; None before the first vector.
        scales: what the scores of each list mean, by list name; a store has only these lists.
        capabilities: what it can do besides searching and reading.
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
class StoreQuery:
    """One query to a store.

    Attributes:
        text: for the keyword list; None skips that list.
        vector: for the vector list, shape ``(dimensions,)``, L2-normalised; None skips that list.
        depth: candidates per list.
        filters: which documents are eligible; applied before the cut.
    """

    text: str | None
    vector: NDArray[np.float32] | None = None
    depth: int = 100
    filters: Filter | None = None


Scores = Mapping[str, Mapping[Any, float]]
"""Raw scores by list, then by key. A document without any query word has BM25 0; one without a vector has NaN. Beside
BM25, `MATCHED` has the sum of the idf of the words that a document has, counting words that the query repeats."""


@dataclass(frozen=True, slots=True)
class Lists:
    """A store's result for one `StoreQuery`.

    Attributes:
        rankings: by list name, at most ``depth`` candidates each.
        scores: by list name, the raw scores of *every* candidate of the union, if the store can compute them.
        documents: by key, those returned in the same round trip; the others are fetched.
        degraded: what went wrong, such as shards that did not answer.
        idf: the sum of the idf of the query's words, counting repeats: an upper bound of BM25, 0 without words. With
            it, and with `MATCHED` among the scores, hits are judged by their words. None if the store needs another
            round trip to compute it.
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
class RecordedState:
    """The state of a dataset that keeps versions, as a receipt names it.

    Attributes:
        sequence: the number of its last write.
        notes: a digest of its notes.
        days: for how many days it keeps what is replaced or deleted.
        key: what its receipts are sealed with.
    """

    sequence: int
    notes: str
    days: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Facts about a store's contents as a whole; None for unknown ones.

    Attributes:
        sequence: grows with every write, so that values computed from the store can be dated.
        documents: their number.
        notes: small texts saved with `Store.annotate`, such as the spread of cosines.
        vectors_due: number of documents that still lack their vector; 0 without the note `WORDS_FIRST`. If it is above
            0, ``documents`` is known too.
        recorded_state: the state, also that of which a view is, if the dataset keeps versions; otherwise None.
    """

    sequence: int
    documents: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    vectors_due: int = 0
    recorded_state: RecordedState | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing the three stores; ``problems`` is empty if they agree."""

    documents: int
    in_keyword_index: int
    in_vector_index: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """What `Store.set_metadata` has done.

    Attributes:
        counts: of the changed documents.
        texts: the new searchable texts of documents with a vector, for which no vector was given.
        remaining: ids of the documents that were not changed, because ``texts`` are to be embedded first.
    """

    counts: AddResult
    texts: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
