"""Pointsman in Haystack, and Haystack's retrievers in Pointsman.

The components are in ``haystack_integrations``, from where Haystack loads pipelines; this module re-exports them.
Needs ``pip install 'pointsman[haystack]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError, MissingDependencyError
from pointsman.retrieval.base import BaseRetriever
from pointsman.retrieval.foreign import ForeignRetriever
from pointsman.types import Document

try:
    from haystack_integrations.components.embedders.pointsman import PointsmanDocumentEmbedder, PointsmanTextEmbedder
    from haystack_integrations.components.joiners.pointsman import PointsmanJoiner
    from haystack_integrations.components.rankers.pointsman import PointsmanRanker
    from haystack_integrations.components.retrievers.pointsman import PointsmanEmbeddingRetriever, PointsmanRetriever
    from haystack_integrations.components.routers.pointsman import PointsmanRouter
    from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
except ImportError as error:
    raise MissingDependencyError("haystack-ai", "haystack", "the Haystack adapter") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haystack import Document as TheirDocument

    from pointsman.types import Hit, Query

__all__ = [
    "HaystackRetriever",
    "PointsmanDocumentEmbedder",
    "PointsmanDocumentStore",
    "PointsmanEmbeddingRetriever",
    "PointsmanJoiner",
    "PointsmanRanker",
    "PointsmanRetriever",
    "PointsmanRouter",
    "PointsmanTextEmbedder",
    "filter_of",
]


class HaystackRetriever(ForeignRetriever):
    """Adapter for a Haystack retriever; its scores are comparable within its own list only.

    Args:
        component: has ``run(query=…, top_k=…)``, which returns ``documents``; a pipeline does not.
        name: of its list in traces; its class name by default.

    Raises:
        InputError: it has no ``run``.
    """

    def __init__(self, component: Any, name: str | None = None) -> None:
        if not callable(getattr(component, "run", None)):
            raise InputError(f"a retriever of Haystack has run(query=…, top_k=…); {type(component).__name__} has not")
        super().__init__(component, name)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Async version of `retrieve`; a component without ``run_async`` runs in a worker thread."""
        if not callable(getattr(self.retriever, "run_async", None)):
            return await BaseRetriever.aretrieve(self, query, top_k)
        return await super().aretrieve(query, top_k)

    def _ask(self, text: str, top_k: int) -> Sequence[TheirDocument]:
        documents: Sequence[TheirDocument] = self.retriever.run(query=text, top_k=top_k)["documents"]
        return documents

    async def _aask(self, text: str, top_k: int) -> Sequence[TheirDocument]:
        documents: Sequence[TheirDocument] = (await self.retriever.run_async(query=text, top_k=top_k))["documents"]
        return documents

    def _scored(self, item: TheirDocument) -> tuple[Document, float | None]:
        return Document(item.id, item.content or "", item.meta), item.score
