"""Strategies that add nothing: one list, the other, or both."""

from __future__ import annotations

from typing import ClassVar

from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy


class VectorStrategy(BaseRetrievalStrategy):
    """Vectors only: cosine similarity of the embeddings."""

    name: ClassVar[str] = "vector"
    method: ClassVar[str] = "vector"


class BM25Strategy(BaseRetrievalStrategy):
    """Keywords only (BM25)."""

    name: ClassVar[str] = "bm25"
    method: ClassVar[str] = "bm25"


class HybridStrategy(BaseRetrievalStrategy):
    """Keywords and vectors combined, weighted by the policy, in datasets with both indexes.

    `Workspace.search` with ``strategy="hybrid"`` does the same without the policy: the plain calibrated sum.
    """

    name: ClassVar[str] = "hybrid"
