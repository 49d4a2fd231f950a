"""`RetrievalWorkflow`: a search over any sources, with user-defined stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from pointsman.retrieval.decisions.user_stages import Stages
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.request import SearchOptions, SearchRequest
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.run.source import Source
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.retrieval_context import RetrievalContext


@dataclass(frozen=True, slots=True)
class RetrievalWorkflow(Stages):
    """Answers questions from datasets and retrievers; every stage can be replaced, or disabled with None.

    A failing stage is skipped and ``degraded`` reports it; it is an error only if no source could be searched. The
    deadline covers the whole search: results that are not in by then are dropped and reported too. An answer without
    relevant hits is refused unless ``refuse=False``.

    The arguments are those of `pointsman.retrieval.decisions.user_stages.Stages`.
    """

    _engine: Engine = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super(RetrievalWorkflow, self).__post_init__()
        object.__setattr__(self, "_engine", Engine(stages=self))  # caches the recipes

    def retrieve(
        self,
        query: str | Query | Sequence[str | Query],
        datasets: Sequence[Any],
        top_k: int = 5,
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Answer one or more questions; returns one context per question, in order.

        Args:
            query: one question, or a sequence of questions.
            datasets: the datasets and retrievers to search.
            top_k: the number of hits in each answer.
            options: see `pointsman.retrieval.request.SearchOptions`.
        """
        if isinstance(query, (str, Query)):
            return [self.search(query, datasets, top_k, **options)]
        return self.search_many(query, datasets, top_k, **options)

    async def aretrieve(
        self,
        query: str | Query | Sequence[str | Query],
        datasets: Sequence[Any],
        top_k: int = 5,
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Async version of `retrieve`."""
        if isinstance(query, (str, Query)):
            return [await self.asearch(query, datasets, top_k, **options)]
        return await self.asearch_many(query, datasets, top_k, **options)

    def search(
        self, query: str | Query, datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Answer one question; see `retrieve`.

        Raises:
            InputError: the query, a number or a name is invalid, or two datasets have the same name.
            RetrievalError: no source could be searched; it carries every cause.
        """
        return self._engine.search(SearchRequest.of(query, top_k, options), _list_of(datasets))

    async def asearch(
        self, query: str | Query, datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Async version of `search`; cancelling it cancels all its calls."""
        return await self._engine.asearch(SearchRequest.of(query, top_k, options), _list_of(datasets))

    def search_many(
        self, queries: Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions, batching embedding, look-ups and reranking; see `retrieve`.

        A question for which no source could be searched gets an empty answer that says so in ``degraded``. The times in
        a trace include waiting for the other questions.

        Raises:
            InputError: see `search`.
            RetrievalError: no source could be searched for any of the questions.
        """
        return self._engine.search_many(several(queries, top_k, options), _list_of(datasets))

    async def asearch_many(
        self, queries: Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        return await self._engine.asearch_many(several(queries, top_k, options), _list_of(datasets))


def several(queries: Sequence[str | Query], k: int, options: Mapping[str, Any]) -> SearchRequest:
    """Build a request with several questions.

    Raises:
        InputError: ``queries`` is a single question.
    """
    if isinstance(queries, (str, Query)):
        raise InputError("search_many takes a sequence of questions; search takes one")
    return SearchRequest.of(queries, k, options)


def _list_of(datasets: Sequence[Any]) -> list[Any]:
    """Return the sources of a search as a list.

    Raises:
        InputError: they are not several; iterating over a dataset would read all of its documents.
    """
    if isinstance(datasets, Source | BaseRetriever | Mapping | str) or not isinstance(datasets, Iterable):
        raise InputError(
            f"a workflow searches a list of datasets and retrievers, not {datasets!r:.80}; write [dataset]"
        )
    return list(datasets)
