"""Haystack retrievers over a Pointsman document store, or over a service."""

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy
from haystack.utils import Secret

from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
from haystack_integrations.document_stores.pointsman.document_store import documents_of
from pointsman import Client, Dataset, InputError, Query
from pointsman.integrations.framework_sources import hits_by_both, hits_from_score, log_if_empty
from pointsman.retrieval.request import SearchRequest, grouping_of
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.values.filters import Filter
from pointsman.values.retrieval_context import RetrievalContext, Verdict
from pointsman.values.types import Hit

__all__ = [
    "PointsmanEmbeddingRetriever",
    "PointsmanHybridRetriever",
    "PointsmanRetriever",
    "PointsmanServiceRetriever",
]


class _FilteringRetriever:
    """Shared by all retrievers: the settings that say which documents are eligible, and how many are returned."""

    filters: dict[str, Any] | None
    top_k: int
    filter_policy: FilterPolicy
    score_threshold: float | None

    def _set_limits(
        self,
        filters: dict[str, Any] | None,
        top_k: int,
        filter_policy: str | FilterPolicy,
        score_threshold: float | None,
    ) -> None:
        """Check and keep these settings.

        Raises:
            ValueError: one of them is invalid.
        """
        if top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {top_k}")
        if score_threshold is not None and not math.isfinite(score_threshold):
            raise ValueError(f"score_threshold is a number, not {score_threshold}")
        self.filters, self.top_k, self.score_threshold = filters, top_k, score_threshold
        policy = filter_policy if isinstance(filter_policy, FilterPolicy) else FilterPolicy.from_str(filter_policy)
        self.filter_policy = policy

    def _k(self, top_k: int | None) -> int:
        return self.top_k if top_k is None else top_k

    def _parsed_filters(self, filters: dict[str, Any] | None) -> Filter | None:
        applied_filters = apply_filter_policy(self.filter_policy, self.filters, filters)
        return filter_of(applied_filters) if applied_filters else None

    def _above_threshold(self, hits: Sequence[Hit], score_threshold: float | None) -> Sequence[Hit]:
        return hits_from_score(hits, self.score_threshold if score_threshold is None else score_threshold)


class _Retriever(_FilteringRetriever):
    """Shared by the retrievers over a document store."""

    document_store: PointsmanDocumentStore
    return_embedding: bool

    def _set(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None,
        top_k: int,
        filter_policy: str | FilterPolicy,
        return_embedding: bool,
        score_threshold: float | None,
    ) -> None:
        if not isinstance(document_store, PointsmanDocumentStore):
            raise TypeError(f"document_store is a PointsmanDocumentStore, not {type(document_store).__name__}")
        self._set_limits(filters, top_k, filter_policy, score_threshold)
        self.document_store, self.return_embedding = document_store, return_embedding

    def _init_parameters(self) -> dict[str, Any]:
        return {
            "document_store": self.document_store.to_dict(),
            "filters": self.filters,
            "top_k": self.top_k,
            "filter_policy": self.filter_policy.value,
            "return_embedding": self.return_embedding,
            "score_threshold": self.score_threshold,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the component from the output of `to_dict`."""
        parameters = dict(data["init_parameters"])
        if isinstance(parameters["document_store"], dict):
            parameters["document_store"] = PointsmanDocumentStore.from_dict(parameters["document_store"])
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    def _documents(
        self,
        hits: Sequence[Hit],
        score_threshold: float | None,
        degraded: Sequence[str] = (),
        verdict: Verdict | None = None,
    ) -> dict[str, list[Document]]:
        hits = self._above_threshold(hits, score_threshold)
        documents = self.document_store.hits_to_documents(
            hits, return_embedding=self.return_embedding, degraded=degraded, verdict=verdict
        )
        return {"documents": documents}


class _GivenVectorRetriever(_Retriever):
    """Shared by the retrievers that are given a vector: they have the same settings."""

    def __init__(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        return_embedding: bool = False,
        score_threshold: float | None = None,
        group_by: str | None = None,
        group_size: int | None = None,
    ) -> None:
        self._set(document_store, filters, top_k, filter_policy, return_embedding, score_threshold)
        self.group_by, self.group_size = group_by, group_size
        try:
            grouping_of(**self._groups(None, None))
        except InputError as error:
            raise ValueError(str(error)) from error

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        return default_to_dict(self, **self._init_parameters(), group_by=self.group_by, group_size=self.group_size)

    def _groups(self, group_by: str | None, group_size: int | None) -> Any:
        """Return the options of groups of one run."""
        size = self.group_size if group_size is None else group_size
        return {
            "group_by": self.group_by if group_by is None else group_by,
            "group_size": 1 if size is None else size,
        }


def _check_options(options: dict[str, Any] | None, own_names: Collection[str]) -> dict[str, Any]:
    """Return the options of a search, which have no argument of their own here.

    Raises:
        ValueError: an option is none, has an invalid value, or is an argument of the component.
    """
    options = dict(options or {})
    if repeated_names := options.keys() & own_names:
        raise ValueError(f"options: {min(repeated_names)!r} is an argument of the component; give it there")
    try:
        SearchRequest.of("check", options=options)
    except InputError as error:
        raise ValueError(f"options: {error}") from error
    return options


class _QuestionRetriever(_FilteringRetriever):
    """Shared by the retrievers that are given a question alone: a dataset or a service answers it."""

    @property
    def _source(self) -> Dataset | Client:
        """Return what answers the question."""
        raise NotImplementedError

    def _options(self, filters: dict[str, Any] | None, options: dict[str, Any] | None) -> Any:
        """Return the options of the search of one run."""
        raise NotImplementedError

    def _documents(
        self,
        hits: Sequence[Hit],
        score_threshold: float | None,
        degraded: Sequence[str] = (),
        verdict: Verdict | None = None,
    ) -> dict[str, list[Document]]:
        """Return the output of one run."""
        raise NotImplementedError

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        score_threshold: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Returns the best documents, with their scores."""
        answer = self._source.search(query, self._k(top_k), **self._options(filters, options))
        return self._to_documents(answer, score_threshold)

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        score_threshold: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Async version of `run`."""
        answer = await self._source.asearch(query, self._k(top_k), **self._options(filters, options))
        return await in_thread(self._to_documents, answer, score_threshold)  # embeddings may have to be read

    def _to_documents(self, answer: RetrievalContext, score_threshold: float | None) -> dict[str, list[Document]]:
        log_if_empty(answer, answer.hits)
        return self._documents(answer.hits, score_threshold, answer.degraded, answer.verdict)


@component
class PointsmanRetriever(_Retriever, _QuestionRetriever):
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
        return_embedding: whether documents have their embeddings.
        score_threshold: documents with a lower score are left out.
        options: other options of the search, such as ``{"as_of": "2026-03-01", "principals": ["user:anna"]}``; see
            `pointsman.SearchOptions`. Those of a run override them.
    """

    _ARGUMENTS = frozenset({"strategy", "filters", "rerank", "refuse"})

    def __init__(
        self,
        document_store: PointsmanDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        strategy: str | None = None,
        rerank: bool | None = None,
        refuse: bool = False,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        return_embedding: bool = False,
        score_threshold: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._set(document_store, filters, top_k, filter_policy, return_embedding, score_threshold)
        self.strategy, self.rerank, self.refuse = strategy, rerank, refuse
        self.options = _check_options(options, self._ARGUMENTS)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        return default_to_dict(
            self,
            **self._init_parameters(),
            strategy=self.strategy,
            rerank=self.rerank,
            refuse=self.refuse,
            options=self.options,
        )

    @property
    def _source(self) -> Dataset:
        return self.document_store.dataset

    def _options(self, filters: dict[str, Any] | None, options: dict[str, Any] | None) -> Any:
        strategy = self.strategy or ("bm25" if self.document_store.embedder is None else "auto")
        rerank = False if self.document_store.embedder is None and self.rerank is None else self.rerank
        return {
            "strategy": strategy,
            "filters": self._parsed_filters(filters),
            "rerank": rerank,
            "refuse": self.refuse,
            **self.options,
            **_check_options(options, self._ARGUMENTS),
        }


@component
class PointsmanEmbeddingRetriever(_GivenVectorRetriever):
    """Searches by a vector from a Haystack embedder.

    Args:
        document_store: the store to search.
        filters: which documents are eligible.
        top_k: the number of documents.
        filter_policy: whether the filters of a run replace these, or are merged with them.
        return_embedding: whether documents have their embeddings.
        score_threshold: documents with a lower score are left out.
        group_by: a metadata key such as ``"source"``: at most ``group_size`` documents have one value of it.
        group_size: how many documents of one group there are; 1 by default. ``top_k`` counts documents, not groups.
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        score_threshold: float | None = None,
        group_by: str | None = None,
        group_size: int | None = None,
    ) -> dict[str, list[Document]]:
        """Returns the nearest documents; their scores are cosines."""
        k = self._k(top_k)
        hits = self.document_store.dataset.search_vector(
            query_embedding, k, filters=self._parsed_filters(filters), **self._groups(group_by, group_size)
        )
        return self._documents(hits, score_threshold)

    run_async = async_twin(run, "{}_async")


@component
class PointsmanHybridRetriever(_GivenVectorRetriever):
    """Searches by a question's words and by its vector, which comes from a Haystack embedder.

    Both scores are added up (the calibrated sum) if the store has an embedder, whose vectors are then meant; otherwise
    both lists are fused by rank.

    Args:
        document_store: the store to search.
        filters: which documents are eligible.
        top_k: the number of documents.
        filter_policy: whether the filters of a run replace these, or are merged with them.
        return_embedding: whether documents have their embeddings.
        score_threshold: documents with a lower score are left out.
        group_by: a metadata key such as ``"source"``: at most ``group_size`` documents have one value of it.
        group_size: how many documents of one group there are; 1 by default. ``top_k`` counts documents, not groups.
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        score_threshold: float | None = None,
        group_by: str | None = None,
        group_size: int | None = None,
    ) -> dict[str, list[Document]]:
        """Returns the best documents, with their scores."""
        question, k = Query(query, self._parsed_filters(filters)), self._k(top_k)
        groups = self._groups(group_by, group_size)
        hits = hits_by_both(self.document_store.dataset, question, query_embedding, k, **groups)
        return self._documents(hits, score_threshold)

    run_async = async_twin(run, "{}_async")


@component
class PointsmanServiceRetriever(_QuestionRetriever):
    """Searches the datasets of a Pointsman service, which embeds, ranks and refuses by its own settings.

    Args:
        url: the address of the service.
        api_key: its key, if it needs one.
        datasets: the names of the datasets to search; by default all that the key allows.
        filters: which documents are eligible.
        top_k: the number of documents.
        strategy: how to search; by default the service decides.
        refuse: whether the answer is empty if no document is relevant.
        filter_policy: whether the filters of a run replace these, or are merged with them.
        score_threshold: documents with a lower score are left out.
        options: other options of the search, such as ``{"as_of": "2026-03-01", "rerank": False}``; see
            `pointsman.SearchOptions`. Those of a run override them.
    """

    _ARGUMENTS = frozenset({"strategy", "datasets", "filters", "refuse"})

    def __init__(
        self,
        url: str,
        api_key: Secret | None = None,
        datasets: list[str] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        strategy: str = "auto",
        refuse: bool = True,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        score_threshold: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._set_limits(filters, top_k, filter_policy, score_threshold)
        self.options = _check_options(options, self._ARGUMENTS)
        self.url, self.api_key, self.datasets = url, api_key, datasets
        self.strategy, self.refuse = strategy, refuse

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it; the key is not among them."""
        return default_to_dict(
            self,
            url=self.url,
            api_key=None if self.api_key is None else self.api_key.to_dict(),
            datasets=self.datasets,
            filters=self.filters,
            top_k=self.top_k,
            strategy=self.strategy,
            refuse=self.refuse,
            filter_policy=self.filter_policy.value,
            score_threshold=self.score_threshold,
            options=self.options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PointsmanServiceRetriever":
        """Rebuild the component from the output of `to_dict`."""
        parameters = dict(data["init_parameters"])
        if isinstance(parameters.get("api_key"), dict):
            parameters["api_key"] = Secret.from_dict(parameters["api_key"])
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    @cached_property
    def _source(self) -> Client:
        return Client(self.url, None if self.api_key is None else self.api_key.resolve_value())

    def close(self) -> None:
        """Close the connections; the next run opens them again."""
        client = self.__dict__.pop("_source", None)
        if client is not None:
            client.close()

    def _documents(
        self,
        hits: Sequence[Hit],
        score_threshold: float | None,
        degraded: Sequence[str] = (),
        verdict: Verdict | None = None,
    ) -> dict[str, list[Document]]:
        return {"documents": documents_of(self._above_threshold(hits, score_threshold), degraded, verdict)}

    def _options(self, filters: dict[str, Any] | None, options: dict[str, Any] | None) -> Any:
        return {
            "datasets": self.datasets,
            "strategy": self.strategy,
            "filters": self._parsed_filters(filters),
            "refuse": None if self.refuse else False,
            **self.options,
            **_check_options(options, self._ARGUMENTS),
        }
