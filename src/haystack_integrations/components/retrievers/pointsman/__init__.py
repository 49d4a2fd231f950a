"""Haystack retrievers over a Pointsman document store."""

import math
from collections.abc import Sequence
from typing import Any, Final

from haystack import Document, component
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
from haystack_integrations.document_stores.pointsman.saved_component import SavedComponent
from pointsman import InputError, Query
from pointsman.integrations.framework_sources import hits_by_both, hits_from_score, log_if_empty
from pointsman.retrieval.request import SearchRequest, grouping_of
from pointsman.tools.sync_and_async import async_twin
from pointsman.values.filters import Filter
from pointsman.values.retrieval_context import Verdict
from pointsman.values.types import Hit

__all__ = ["PointsmanEmbeddingRetriever", "PointsmanHybridRetriever", "PointsmanRetriever"]


class _Retriever(SavedComponent):
    """Shared by the retrievers: the store, which documents are eligible, and what is returned of them."""

    def __init__(
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
        if top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {top_k}")
        if score_threshold is not None and not math.isfinite(score_threshold):
            raise ValueError(f"score_threshold is a number, not {score_threshold}")
        self.document_store, self.return_embedding = document_store, return_embedding
        self.filters, self.top_k, self.score_threshold = filters, top_k, score_threshold
        policy = filter_policy if isinstance(filter_policy, FilterPolicy) else FilterPolicy.from_str(filter_policy)
        self.filter_policy = policy

    def _k(self, top_k: int | None) -> int:
        return self.top_k if top_k is None else top_k

    def _parsed_filters(self, filters: dict[str, Any] | None) -> Filter | None:
        applied_filters = apply_filter_policy(self.filter_policy, self.filters, filters)
        return filter_of(applied_filters) if applied_filters else None

    def _documents(
        self,
        hits: Sequence[Hit],
        score_threshold: float | None,
        degraded: Sequence[str] = (),
        verdict: Verdict | None = None,
    ) -> dict[str, list[Document]]:
        hits = hits_from_score(hits, self.score_threshold if score_threshold is None else score_threshold)
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
        super().__init__(document_store, filters, top_k, filter_policy, return_embedding, score_threshold)
        self.group_by, self.group_size = group_by, group_size
        try:
            grouping_of(**self._groups(None, None))
        except InputError as error:
            raise ValueError(str(error)) from error

    def _groups(self, group_by: str | None, group_size: int | None) -> Any:
        """Return the options of groups of one run."""
        size = self.group_size if group_size is None else group_size
        return {
            "group_by": self.group_by if group_by is None else group_by,
            "group_size": 1 if size is None else size,
        }


_ARGUMENTS: Final = frozenset({"strategy", "filters", "rerank", "refuse"})
"""The options of a search that are arguments of `PointsmanRetriever`."""


def _check_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """Return the options of a search, which have no argument of their own here.

    Raises:
        ValueError: an option is none, has an invalid value, or is an argument of the component.
    """
    options = dict(options or {})
    if repeated_names := options.keys() & _ARGUMENTS:
        raise ValueError(f"options: {min(repeated_names)!r} is an argument of the component; give it there")
    try:
        SearchRequest.of("check", options=options)
    except InputError as error:
        raise ValueError(f"options: {error}") from error
    return options


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
        return_embedding: whether documents have their embeddings.
        score_threshold: documents with a lower score are left out.
        options: other options of the search, such as ``{"as_of": "2026-03-01", "principals": ["user:anna"]}``; see
            `pointsman.SearchOptions`. Those of a run override them.
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
        return_embedding: bool = False,
        score_threshold: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        # The decorator makes another class of this one, which super() would not know.
        _Retriever.__init__(self, document_store, filters, top_k, filter_policy, return_embedding, score_threshold)
        self.strategy, self.rerank, self.refuse = strategy, rerank, refuse
        self.options = _check_options(options)

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
        embeds = self.document_store.embeds
        search_options: Any = {
            "strategy": self.strategy or ("auto" if embeds else "bm25"),
            "filters": self._parsed_filters(filters),
            "rerank": False if self.rerank is None and not embeds else self.rerank,
            "refuse": self.refuse,
            **self.options,
            **_check_options(options),
        }
        answer = self.document_store.dataset.search(query, self._k(top_k), **search_options)
        log_if_empty(answer, answer.hits)
        return self._documents(answer.hits, score_threshold, answer.degraded, answer.verdict)

    run_async = async_twin(run, "{}_async")


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
