"""Retrievers over any keyword index, vector index and document store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from pointsman.models.base import as_embedder
from pointsman.protocols import Key
from pointsman.retrieval.base import BaseRetriever, checked
from pointsman.types import Hit, Provenance, Query

if TYPE_CHECKING:
    from pointsman.protocols import DocumentStore, Embedder, KeywordIndex, VectorIndex
    from pointsman.retrieval.pool import Ranking


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
        self._index, self._documents, self._embedder = vector_store, doc_store, as_embedder(embedder)

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first."""
        query = Query.of(query)
        vector = self._embedder.embed_queries([query.text])[0]
        ranking = self._index.search(vector, checked(top_k), query.filters)
        return _hits_of_one("vector", ranking, self._documents)


def _hits_of_one(source: str, ranking: Ranking[Key], documents: DocumentStore[Key]) -> list[Hit]:
    """`hits_of` for a single list, without the bookkeeping of several."""
    found = documents.fetch([key for key, _ in ranking])
    return [
        Hit(document, score, None, (Provenance(source, rank, score),))
        for rank, ((_, score), document) in enumerate(zip(ranking, found, strict=True), 1)
        if document is not None
    ]
