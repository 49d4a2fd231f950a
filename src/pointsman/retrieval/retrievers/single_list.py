"""Retrievers over any keyword index, vector index and document store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from pointsman.embedders.named_embedders import as_embedder
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.source import Source
from pointsman.store.base_store import Store
from pointsman.store.store_values import StoreQuery
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.protocols import Key
from pointsman.values.types import Hit, Provenance, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.run.candidates import Ranking
    from pointsman.values.protocols import DocumentStore, Embedder, KeywordIndex, VectorIndex
    from pointsman.values.types import Document


class KeywordRetriever(BaseRetriever, Generic[Key]):
    """A keyword list alone. A hit's score is that of the list, such as raw BM25.

    Args:
        keyword_store: a keyword index; any `pointsman.store.base_store.Store` that has a keyword list is one.
        doc_store: returns the documents; any `Store`, whose documents are looked up by id, or an object with ``fetch``
            that takes the keys of the index (ids, if the index is a `Store`).

    Raises:
        InputError: a store cannot be used.
    """

    lists = (True, False)

    def __init__(self, keyword_store: KeywordIndex[Key] | Store, doc_store: DocumentStore[Key]) -> None:
        _check_parts(keyword_store, doc_store)
        self._index, self._documents = keyword_store, doc_store

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits that share a word with the query, best first."""
        query = Query.of(query)
        if isinstance(self._index, Store):
            return _hits_of_store(
                self._index, StoreQuery(query.text, None, check_top_k(top_k), query.filters), self._documents
            )
        ranking = self._index.search(query.text, check_top_k(top_k), query.filters)
        return _hits_of_one("bm25", ranking, self._index, self._documents)


class VectorRetriever(BaseRetriever, Generic[Key]):
    """Nearest vectors alone. A hit's score is the cosine, or the store's equivalent.

    Args:
        vector_store: a vector index; any `pointsman.store.base_store.Store` that has a vector list is one.
        doc_store: returns the documents; any `Store`, whose documents are looked up by id, or an object with ``fetch``
            that takes the keys of the index (ids, if the index is a `Store`).
        embedder: the embedder of the stored vectors.

    Raises:
        InputError: a store cannot be used.
    """

    lists = (False, True)

    def __init__(
        self, vector_store: VectorIndex[Key] | Store, doc_store: DocumentStore[Key], embedder: Embedder | str
    ) -> None:
        _check_parts(vector_store, doc_store)
        self._index, self._documents, self._embedder = vector_store, doc_store, as_embedder(embedder)

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first."""
        query = Query.of(query)
        vector = self._embedder.embed_queries([query.text])[0]
        if isinstance(self._index, Store):
            return _hits_of_store(
                self._index, StoreQuery(None, vector, check_top_k(top_k), query.filters), self._documents
            )
        ranking = self._index.search(vector, check_top_k(top_k), query.filters)
        return _hits_of_one("vector", ranking, self._index, self._documents)


def _check_parts(index: object, documents: object) -> None:
    """Check that an index and a document store have what a search calls.

    Raises:
        InputError: one has not, such as a dataset, which is not a store itself.
    """
    for subject, method in ((index, "search"), (documents, "fetch")):
        if isinstance(subject, Source):
            raise InputError(
                f"{subject.name!r} is a dataset, not a store; give its .store, or use .retriever('bm25' or 'vector')"
            )
        if not callable(getattr(subject, method, None)):
            raise InputError(f"{subject!r:.80} cannot be used here: it has no {method}(…)")


def _hits_of_store(store: Store, store_query: StoreQuery, documents: DocumentStore[Any]) -> list[Hit]:
    """The hits of the only list that a store returns for a look.

    Raises:
        UnmetNeedError: the store has no such list.
    """
    rankings = store.search([store_query])[0].rankings
    if not rankings:
        kind = "words" if store_query.text is not None else "vectors"
        raise UnmetNeedError(f"a {store.info.kind} store has no list by {kind}; take one that has")
    ((name, ranking),) = rankings.items()
    return _hits_of_one(name, [(key, 0.0 if score is None else score) for key, score in ranking], store, documents)


def _hits_of_one(
    source: str, ranking: Ranking[Key], index: KeywordIndex[Key] | VectorIndex[Key] | Store, documents: Any
) -> list[Hit]:
    """`hits_of` for a single list, without the bookkeeping of several."""
    versions = _documents_with(index, documents, [key for key, _ in ranking])
    return [
        Hit(document, score, None, (Provenance(source, rank, score),))
        for rank, ((_, score), document) in enumerate(zip(ranking, versions, strict=True), 1)
        if document is not None
    ]


def _documents_with(index: Any, documents: DocumentStore[Any], keys: Sequence[Any]) -> list[Document | None]:
    """Return the documents of an index's keys from any document store; of another store, by their ids.

    Raises:
        InputError: the keys mean nothing to that store.
    """
    if index is documents or not (isinstance(index, Store) or isinstance(documents, Store)):
        return documents.fetch(keys)
    if isinstance(index, Store):
        ids = [None if document is None else document.id for document in index.fetch(keys)]
    else:
        ids = list(map(_id_of_key, keys))
    existing = [id_ for id_ in ids if id_ is not None]
    stored_documents = documents.get(existing) if isinstance(documents, Store) else documents.fetch(existing)
    by_id = dict(zip(existing, stored_documents, strict=True))
    return [None if id_ is None else by_id[id_] for id_ in ids]


def _id_of_key(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(
            f"the key {key!r:.80} of an index is not the id of a document, so it cannot be looked up in a store; give "
            "the index its own document store, or return ids"
        )
    return key
