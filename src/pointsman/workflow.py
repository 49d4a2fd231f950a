"""`RetrievalWorkflow`: a search over any sources, with stages of one's own (R7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from pointsman.engine import Engine, Stages
from pointsman.errors import InputError
from pointsman.request import SearchOptions, SearchRequest
from pointsman.types import Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.types import RetrievalContext


@dataclass(frozen=True, slots=True)
class RetrievalWorkflow(Stages):
    """Answers questions from datasets and retrievers; every stage can be replaced, or left out by None (R7).

    A stage that fails is passed over and the answer says so in ``degraded``; only if nothing could be searched there
    is an error. The deadline covers the whole search: what has not answered by then is left out, also visibly. Answers
    in which nothing is relevant are refused, unless ``refuse=False`` is asked for.

    The arguments are those of `pointsman.engine.Stages`.
    """

    _engine: Engine = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super(RetrievalWorkflow, self).__post_init__()
        object.__setattr__(self, "_engine", Engine(stages=self))  # it remembers how searches are put together

    def retrieve(
        self,
        query: str | Query | Sequence[str | Query],
        datasets: Sequence[Any],
        top_k: int = 5,
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Answer a question, or several; one context each, in their order.

        Args:
            query: one, or a sequence of them.
            datasets: what may be searched: datasets, and retrievers of any kind.
            top_k: hits in each answer.
            options: see `pointsman.request.SearchOptions`.
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
        """The same, awaited."""
        if isinstance(query, (str, Query)):
            return [await self.asearch(query, datasets, top_k, **options)]
        return await self.asearch_many(query, datasets, top_k, **options)

    def search(
        self, query: str | Query, datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Answer one question; see `retrieve`.

        Raises:
            InputError: the query, a number or a name cannot be used, or two datasets have one name.
            RetrievalError: nothing could be searched; it carries every cause.
        """
        return self._engine.search(SearchRequest.of(query, top_k, options), list(datasets))

    async def asearch(
        self, query: str | Query, datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """The same, awaited; cancelling it cancels everything it waits for."""
        return await self._engine.asearch(SearchRequest.of(query, top_k, options), list(datasets))

    def search_many(
        self, queries: Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """Answer many questions, with embedding, look-ups and reranking in common batches; see `retrieve`.

        A question for which nothing could be searched gets an empty answer that says so in ``degraded``. The times in
        a trace include waiting for the other questions.

        Raises:
            InputError: see `search`.
            RetrievalError: nothing could be searched for any of them.
        """
        return self._engine.search_many(several(queries, top_k, options), list(datasets))

    async def asearch_many(
        self, queries: Sequence[str | Query], datasets: Sequence[Any], top_k: int = 5, **options: Unpack[SearchOptions]
    ) -> list[RetrievalContext]:
        """The same, awaited."""
        return await self._engine.asearch_many(several(queries, top_k, options), list(datasets))


def several(queries: Sequence[str | Query], k: int, options: Mapping[str, Any]) -> SearchRequest:
    """A request of many questions.

    Raises:
        InputError: it is one question.
    """
    if isinstance(queries, (str, Query)):
        raise InputError("search_many takes a sequence of questions; search takes one")
    return SearchRequest.of(queries, k, options)
