"""Pointsman in Haystack, and Haystack's retrievers in Pointsman.

The components are in ``haystack_integrations``, from where Haystack loads pipelines; this module re-exports them.
Needs ``pip install 'pointsman[haystack]'``.
"""

from __future__ import annotations

from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever
from pointsman.tools.errors import MissingDependencyError

try:
    from haystack_integrations.components.embedders.pointsman import PointsmanDocumentEmbedder, PointsmanTextEmbedder
    from haystack_integrations.components.joiners.pointsman import PointsmanJoiner
    from haystack_integrations.components.rankers.pointsman import PointsmanRanker
    from haystack_integrations.components.retrievers.pointsman import (
        PointsmanEmbeddingRetriever,
        PointsmanHybridRetriever,
        PointsmanRetriever,
    )
    from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore, filter_of
except ImportError as error:
    raise MissingDependencyError("haystack-ai", "haystack", "the Haystack adapter") from error


__all__ = [
    "HaystackRetriever",
    "PointsmanDocumentEmbedder",
    "PointsmanDocumentStore",
    "PointsmanEmbeddingRetriever",
    "PointsmanHybridRetriever",
    "PointsmanJoiner",
    "PointsmanRanker",
    "PointsmanRetriever",
    "PointsmanTextEmbedder",
    "filter_of",
]


class HaystackRetriever(ForeignRetriever):
    """Adapter for a Haystack retriever; its scores are comparable within its own list only.

    Args:
        retriever: has ``run(query=…, top_k=…)``, which returns ``documents``; a pipeline does not.
        name: of its list in traces; its class name by default.

    Raises:
        InputError: it has no ``run`` that takes a query alone.
    """
