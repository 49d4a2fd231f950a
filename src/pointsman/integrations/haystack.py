"""Pointsman in Haystack, and Haystack's retrievers in Pointsman (X1).

The components live under ``haystack_integrations``, as Haystack loads pipelines from there; this is the short way to
them. Needs ``pip install 'pointsman[haystack]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError, MissingDependencyError
from pointsman.integrations._shared import failed, without_filters
from pointsman.retrieval.base import BaseRetriever
from pointsman.types import Document, Hit, Provenance

try:
    from haystack_integrations.components.embedders.pointsman import PointsmanDocumentEmbedder, PointsmanTextEmbedder
    from haystack_integrations.components.joiners.pointsman import PointsmanJoiner
    from haystack_integrations.components.rankers.pointsman import PointsmanRanker
    from haystack_integrations.components.retrievers.pointsman import PointsmanEmbeddingRetriever, PointsmanRetriever
    from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
except ImportError as error:
    raise MissingDependencyError("haystack-ai", "haystack", "the Haystack adapter") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haystack import Document as TheirDocument

    from pointsman.types import Query

__all__ = [
    "HaystackRetriever",
    "PointsmanDocumentEmbedder",
    "PointsmanDocumentStore",
    "PointsmanEmbeddingRetriever",
    "PointsmanJoiner",
    "PointsmanRanker",
    "PointsmanRetriever",
    "PointsmanTextEmbedder",
    "filter_of",
]


class HaystackRetriever(BaseRetriever):
    """A retriever of Haystack as one of Pointsman; its scores count within its own list only.

    Args:
        component: has ``run(query=…, top_k=…)``, which gives ``documents``; a pipeline does not.
        name: what the list is called in traces; its class's name unless given.

    Raises:
        InputError: it has no ``run``.
    """

    def __init__(self, component: Any, name: str | None = None) -> None:
        if not callable(getattr(component, "run", None)):
            raise InputError(f"a retriever of Haystack has run(query=…, top_k=…); {type(component).__name__} has not")
        self.component, self.name = component, name or type(component).__name__

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """At most ``top_k`` hits, best first.

        Raises:
            InputError: the query has filters; filter in the component itself.
            PointsmanError: the component failed.
        """
        query = without_filters(query, top_k, self.name)
        try:
            documents = self.component.run(query=query.text, top_k=top_k)["documents"]
        except Exception as error:
            raise failed(self.component, error) from error
        return self._hits(documents, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """The same, awaited."""
        if not callable(getattr(self.component, "run_async", None)):
            return await super().aretrieve(query, top_k)
        query = without_filters(query, top_k, self.name)
        try:
            documents = (await self.component.run_async(query=query.text, top_k=top_k))["documents"]
        except Exception as error:
            raise failed(self.component, error) from error
        return self._hits(documents, top_k)

    def _hits(self, documents: Sequence[TheirDocument], top_k: int) -> list[Hit]:
        scored = all(one.score is not None for one in documents)
        hits = []
        for rank, one in enumerate(documents[:top_k], 1):
            score = one.score if scored else None
            document = Document(one.id, one.content or "", one.meta)
            hits.append(
                Hit(document, 1 / rank if score is None else score, None, (Provenance(self.name, rank, score),))
            )
        return hits
