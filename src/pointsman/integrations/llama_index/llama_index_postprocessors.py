"""Pointsman's rerankers as LlamaIndex node postprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from pointsman.integrations.framework_sources import own_reranker
from pointsman.integrations.llama_index.llama_index_nodes import nodes_in_order, number_nodes, question_of

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore, QueryBundle


class PointsmanRerank(BaseNodePostprocessor):
    """A Pointsman reranker as a node postprocessor; nodes stay unchanged, their scores are the reranker's.

    Attributes:
        reranker: any `BaseReranker`, or its name; by default the offline one over the default embedder.
        top_n: the number of nodes to keep.
    """

    reranker: Any = Field(default=None, exclude=True)
    top_n: int = 4

    def model_post_init(self, context: Any, /) -> None:
        """Open the reranker that is named, or the default one."""
        super().model_post_init(context)
        self.reranker = own_reranker(self.reranker)

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return nodes_in_order(nodes, self.reranker.rerank(question_of(query_bundle), number_nodes(nodes), self.top_n))
