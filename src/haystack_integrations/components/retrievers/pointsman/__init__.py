"""Haystack retrievers over a Pointsman document store."""

from typing import Any

from anyio import to_thread
from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
from pointsman import SearchOptions
from pointsman.filters import Filter

__all__ = ["PointsmanEmbeddingRetriever", "PointsmanRetriever"]


class _Retriever:
    """Shared by both retrievers."""

    document_store: PointsmanDocumentStore
    filters: dict[str, Any] | None
    top_k: int
    filter_policy: FilterPolicy

    def _set(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None,
        top_k: int,
        filter_policy: str | FilterPolicy,
    ) -> None:
        if not isinstance(document_store, PointsmanDocumentStore):
            raise TypeError(f"document_store is a PointsmanDocumentStore, not {type(document_store).__name__}")
        if top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {top_k}")
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        policy = filter_policy if isinstance(filter_policy, FilterPolicy) else FilterPolicy.from_str(filter_policy)
        self.filter_policy = policy

    def _parsed_filters(self, filters: dict[str, Any] | None) -> Filter | None:
        applied_filters = apply_filter_policy(self.filter_policy, self.filters, filters)
        return filter_of(applied_filters) if applied_filters else None

    def _init_parameters(self) -> dict[str, Any]:
        return {
            "document_store": self.document_store.to_dict(),
            "filters": self.filters,
            "top_k": self.top_k,
            "filter_policy": self.filter_policy.value,
        }


def _with_store(data: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(data["init_parameters"])
    if isinstance(parameters["document_store"], dict):
        parameters["document_store"] = PointsmanDocumentStore.from_dict(parameters["document_store"])
    return {**data, "init_parameters": parameters}


@component
class PointsmanRetriever(_Retriever):
    """Searches by a question: by its words, and also by its vector if the store has an embedder.

    Args:
        document_store: the store to search.
        filters: which documents are eligible.
        top_k: the number of documents.
        strategy: how to search, such as ``"hybrid"``; by default ``"auto"`` if the store has an embedder, otherwise by
            words alone.
        rerank: whether to rerank; by default the strategy decides.
        refuse: whether the answer is empty if no document is relevant.
        filter_policy: whether the filters of a run replace these, or are merged with them.
    """

    def __init__(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        strategy: str | None = None,
        rerank: bool | None = None,
        refuse: bool = False,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        self._set(document_store, filters, top_k, filter_policy)
        self.strategy, self.rerank, self.refuse = strategy, rerank, refuse

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        return default_to_dict(
            self, **self._init_parameters(), strategy=self.strategy, rerank=self.rerank, refuse=self.refuse
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PointsmanRetriever":
        """Rebuild the component from the output of `to_dict`."""
        return default_from_dict(cls, _with_store(data))

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the best documents, with their scores."""
        hits = self.document_store.dataset.search(query, self._k(top_k), **self._options(filters)).hits
        return {"documents": self.document_store.hits_to_documents(hits)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Async version of `run`."""
        answer = await self.document_store.dataset.asearch(query, self._k(top_k), **self._options(filters))
        return {"documents": await to_thread.run_sync(self.document_store.hits_to_documents, answer.hits)}

    def _k(self, top_k: int | None) -> int:
        return self.top_k if top_k is None else top_k

    def _options(self, filters: dict[str, Any] | None) -> SearchOptions:
        strategy = self.strategy or ("bm25" if self.document_store.embedder is None else "auto")
        rerank = False if self.document_store.embedder is None and self.rerank is None else self.rerank
        return {
            "strategy": strategy,  # type: ignore[typeddict-item]  # a name, which the request checks
            "filters": self._parsed_filters(filters),
            "rerank": rerank,
            "refuse": self.refuse,
        }


@component
class PointsmanEmbeddingRetriever(_Retriever):
    """Searches by a vector from a Haystack embedder.

    Args:
        document_store: the store to search.
        filters: which documents are eligible.
        top_k: the number of documents.
        filter_policy: whether the filters of a run replace these, or are merged with them.
    """

    def __init__(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        self._set(document_store, filters, top_k, filter_policy)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        return default_to_dict(self, **self._init_parameters())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PointsmanEmbeddingRetriever":
        """Rebuild the component from the output of `to_dict`."""
        return default_from_dict(cls, _with_store(data))

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the nearest documents; their scores are cosines."""
        k = self.top_k if top_k is None else top_k
        hits = self.document_store.dataset.search_vector(query_embedding, k, filters=self._parsed_filters(filters))
        return {"documents": self.document_store.hits_to_documents(hits)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Async version of `run`."""
        return await to_thread.run_sync(self.run, query_embedding, filters, top_k)
