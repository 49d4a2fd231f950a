"""Adapters for retrievers of other libraries: their results become hits, and their errors Pointsman's errors."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pointsman._twins import in_thread, wait_for
from pointsman.errors import InputError, PointsmanError
from pointsman.retrieval.base import BaseRetriever
from pointsman.types import Document, Hit, Provenance, Query, check_top_k


class ForeignRetriever(BaseRetriever):
    """Base class of adapters for retrievers of other frameworks; a subclass defines how to call one.

    Args:
        retriever: the retriever to call.
        name: of its list in traces; its class name by default.
    """

    def __init__(self, retriever: Any, name: str | None = None) -> None:
        self.retriever, self.name = retriever, name or type(retriever).__name__

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first.

        Raises:
            InputError: the query has filters; filter in the retriever itself.
            PointsmanError: the retriever failed.
        """
        query = without_filters(query, top_k, self.name)
        try:
            answer = self._ask(query.text, top_k)
        except Exception as error:
            raise failed(self.retriever, error) from error
        return self._hits(answer, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Async version of `retrieve`."""
        query = without_filters(query, top_k, self.name)
        try:
            answer = await self._aask(query.text, top_k)
        except Exception as error:
            raise failed(self.retriever, error) from error
        return self._hits(answer, top_k)

    def _hits(self, answer: Sequence[Any], top_k: int) -> list[Hit]:
        documents = [self._scored(item) for item in answer]
        scored = all(score is not None for _, score in documents)  # otherwise ignore all: they would be on two scales
        hits = []
        for rank, (document, own) in enumerate(documents[:top_k], 1):
            score = own if scored else None
            hits.append(
                Hit(document, 1 / rank if score is None else score, None, (Provenance(self.name, rank, score),))
            )
        return hits

    @abstractmethod
    def _ask(self, text: str, top_k: int) -> Sequence[Any]:
        """Return the retriever's answer to a text."""

    @abstractmethod
    async def _aask(self, text: str, top_k: int) -> Sequence[Any]:
        """Async version of `_ask`."""

    @abstractmethod
    def _scored(self, item: Any) -> tuple[Document, float | None]:
        """Return an item of the answer as a document, and its score if it has one."""


class SimilarityRetriever(ForeignRetriever):
    """Adapter for a vector store with ``similarity_search(text, k)``, synchronous or async (seed 004).

    Its answer is a list of documents with ``page_content``, and optionally ``metadata`` and ``id``; a document without
    an id gets one derived from its text. Such answers carry no scores, so a hit's score is 1 / rank.

    Args:
        store: the vector store.
        name: of its list in traces; its class name by default.

    Raises:
        InputError: the store has no ``similarity_search``.
    """

    def __init__(self, store: Any, name: str | None = None) -> None:
        if not callable(getattr(store, "similarity_search", None)):
            raise InputError(f"{store!r:.80} has no similarity_search")
        super().__init__(store, name)

    def _ask(self, text: str, top_k: int) -> Sequence[Any]:
        if inspect.iscoroutinefunction(self.retriever.similarity_search):
            return wait_for(self._aask, text, top_k)
        answer: Sequence[Any] = self.retriever.similarity_search(text, top_k)
        return answer

    async def _aask(self, text: str, top_k: int) -> Sequence[Any]:
        answer: Sequence[Any]
        if inspect.iscoroutinefunction(self.retriever.similarity_search):
            answer = await self.retriever.similarity_search(text, top_k)
        else:
            answer = await in_thread(self.retriever.similarity_search, text, top_k)
        return answer

    def _scored(self, item: Any) -> tuple[Document, None]:
        text, id_ = item.page_content, getattr(item, "id", None)
        return Document(str(id_) if id_ else id_for(text), text, getattr(item, "metadata", None) or {}), None


def without_filters(query: str | Query, top_k: int, name: str) -> Query:
    """Return the query for a retriever of another framework.

    Raises:
        InputError: it has filters, which such retrievers do not support, or ``top_k`` is invalid.
    """
    query = Query.of(query)
    check_top_k(top_k)
    if query.filters is not None:
        raise InputError(f"{name} takes no filters; filter in the retriever itself")
    return query


def id_for(text: str) -> str:
    """Return an id for a document that has none; the same text always gets the same id.

    >>> id_for("a red signal")
    '9a6ca5212d2abc4b51fce0c06f2acf03'
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def failed(source: object, error: Exception) -> PointsmanError:
    """Converts an error of another framework to a Pointsman error."""
    return PointsmanError(f"{type(source).__name__} failed: {type(error).__name__}: {error}")
