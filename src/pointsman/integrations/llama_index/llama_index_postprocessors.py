"""Pointsman's rerankers and refiners as LlamaIndex node postprocessors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from pointsman.integrations.framework_sources import own_reranker
from pointsman.integrations.llama_index.llama_index_nodes import hit_of, nodes_in_order, number_nodes, question_of
from pointsman.values.types import Query, Ranked


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


class PointsmanRefine(BaseNodePostprocessor):
    """Any Pointsman refiner as a node postprocessor: one that refuses, compresses, diversifies, or a user-defined one.

    Attributes:
        refiner: any `BaseRefiner`.
        top_k: the number of nodes of the answer; all by default.
        scale: what the nodes' scores mean; see `pointsman.values.types.Ranked`. Thresholds apply on their own scale
            only.
    """

    refiner: Any = Field(exclude=True)
    top_k: int | None = None
    scale: str = "foreign"

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanRefine"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        return self._nodes_of(nodes, self.refiner.refine(Query(question_of(query_bundle)), *self._ranking_of(nodes)))

    def _ranking_of(self, nodes: list[NodeWithScore]) -> tuple[Ranked, int]:
        hits = [
            replace(hit_of(node, rank), document=document)
            for rank, (node, document) in enumerate(zip(nodes, number_nodes(nodes), strict=True), 1)
        ]
        return Ranked(tuple(hits), self.scale), self.top_k or len(nodes)

    def _nodes_of(self, nodes: list[NodeWithScore], ranking: Ranked) -> list[NodeWithScore]:
        nodes_left = []
        for hit in ranking.hits[: self.top_k]:
            node = nodes[int(hit.id)].node
            if hit.excerpt is not None:
                node = node.model_copy(deep=True)
                node.set_content(hit.excerpt.text)
            nodes_left.append(NodeWithScore(node=node, score=float(hit.score)))
        return nodes_left
