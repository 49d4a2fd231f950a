"""Pointsman's search objects as LlamaIndex retrievers, and LlamaIndex's retrievers for Pointsman."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever as TheirRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from pointsman.integrations.framework_sources import ahits_of, check_source, hits_of
from pointsman.integrations.llama_index.llama_index_nodes import hit_of, noted_node
from pointsman.integrations.llama_index.llama_index_queries import filter_of
from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever
from pointsman.values.argument_checks import check_top_k

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore, QueryBundle

    from pointsman.values.filters import Filter
    from pointsman.values.types import Document


class PointsmanRetriever(TheirRetriever):
    """Any of Pointsman's search objects as a LlamaIndex retriever.

    Where it applies, the metadata of nodes has ``not_in_force``, such as "superseded by amendment.md, valid from
    2026-03-01", and, in the first node, ``degraded``: what did not work as asked, and what was done instead.

    Args:
        source: a workspace, a dataset, a client, a workflow or a retriever.
        similarity_top_k: the number of nodes.
        filters: which documents are eligible: LlamaIndex filters, or a Pointsman filter.
        options: of the search, such as ``strategy="hybrid"``.

    Raises:
        InputError: the source cannot be searched, or the number is invalid.
    """

    def __init__(
        self, source: Any, similarity_top_k: int = 5, *, filters: MetadataFilters | Filter | None = None, **options: Any
    ) -> None:
        check_source(source)
        self.source, self.similarity_top_k, self.options = source, check_top_k(similarity_top_k), options
        self.filters = filter_of(filters) if isinstance(filters, MetadataFilters) else filters
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = hits_of(self.source, query_bundle.query_str, self.similarity_top_k, self.filters, self.options)
        return [noted_node(*hit) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = await ahits_of(self.source, query_bundle.query_str, self.similarity_top_k, self.filters, self.options)
        return [noted_node(*hit) for hit in hits]


class LlamaIndexRetriever(ForeignRetriever):
    """Adapter for a LlamaIndex retriever; its scores are comparable within its own list only.

    Args:
        retriever: any LlamaIndex retriever.
        name: of its list in traces; its class name by default.
    """

    retriever: TheirRetriever

    def _document_and_score(self, item: NodeWithScore) -> tuple[Document, float | None]:
        return hit_of(item).document, item.score
