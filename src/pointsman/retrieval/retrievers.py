"""Retrievers over any keyword index, vector index and document store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from pointsman.errors import InputError, UnknownNameError
from pointsman.protocols import Key
from pointsman.retrieval.base import BaseRetriever
from pointsman.retrieval.branches import Found, fetching, hits_of
from pointsman.retrieval.pool import DEPTH, LISTS, Ranking, gather
from pointsman.types import Hit, Provenance, Query

if TYPE_CHECKING:
    from pointsman.protocols import DocumentStore, Embedder, KeywordIndex, VectorIndex
    from pointsman.retrieval.calibration import CosineSpread


class KeywordRetriever(BaseRetriever, Generic[Key]):
    """BM25 (S10). A hit's score is the raw BM25 score."""

    def __init__(self, keyword_store: KeywordIndex[Key], doc_store: DocumentStore[Key]) -> None:
        self._index, self._documents = keyword_store, doc_store

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits that share a word with the query, best first."""
        query = Query.of(query)
        ranking = self._index.search(query.text, checked(top_k), query.filters)
        return _hits_of_one("bm25", ranking, self._documents)


class VectorRetriever(BaseRetriever, Generic[Key]):
    """Nearest vectors (S10). A hit's score is the cosine."""

    def __init__(self, vector_store: VectorIndex[Key], doc_store: DocumentStore[Key], embedder: Embedder) -> None:
        self._index, self._documents, self._embedder = vector_store, doc_store, embedder

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        query = Query.of(query)
        vector = self._embedder.embed_queries([query.text])[0]
        ranking = self._index.search(vector, checked(top_k), query.filters)
        return _hits_of_one("vector", ranking, self._documents)


class HybridRetriever(BaseRetriever, Generic[Key]):
    """Keyword and vector search, both scores for every candidate, fused.

    Args:
        keyword_store: BM25.
        vector_store: cosine.
        doc_store: turns their common keys into documents.
        embedder: embeds queries as the documents were.
        fusion: ``"hybrid"``, the calibrated sum, or a name of `pointsman.retrieval.fusion.METHODS`.
        spread: where cosines between queries and random documents lie, or a function that knows it.
        depth: candidates per list.
    """

    def __init__(
        self,
        keyword_store: KeywordIndex[Key],
        vector_store: VectorIndex[Key],
        doc_store: DocumentStore[Key],
        embedder: Embedder,
        *,
        spread: CosineSpread | Callable[[], CosineSpread],
        fusion: str = "hybrid",
        depth: int = DEPTH,
    ) -> None:
        if fusion not in LISTS:
            raise UnknownNameError("fusion", fusion, tuple(LISTS))
        self._keyword, self._vector, self._documents, self._embedder = keyword_store, vector_store, doc_store, embedder
        self._spread = spread if callable(spread) else lambda: spread
        self._fusion, self._depth = fusion, depth

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        query = Query.of(query)
        vector = self._embedder.embed_queries([query.text])[0]
        depth = max(self._depth, checked(top_k))
        pool = gather(query.text, vector, self._keyword, self._vector, filters=query.filters, depth=depth)
        found = Found(pool, *fetching(self._documents.fetch), {})
        return hits_of(found, pool.fused(self._fusion, self._spread()), top_k)


def _hits_of_one(source: str, ranking: Ranking[Key], documents: DocumentStore[Key]) -> list[Hit]:
    """`hits_of` for a single list, without the bookkeeping of several."""
    found = documents.fetch([key for key, _ in ranking])
    return [
        Hit(document, score, None, (Provenance(source, rank, score),))
        for rank, ((_, score), document) in enumerate(zip(ranking, found, strict=True), 1)
        if document is not None
    ]
