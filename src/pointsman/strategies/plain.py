"""Strategies that add nothing: one list, the other, or both (I2)."""

from __future__ import annotations

from typing import ClassVar

from pointsman.strategies.base import BaseRetrievalStrategy


class VectorStrategy(BaseRetrievalStrategy):
    """By meaning alone: the cosine of the embeddings."""

    name: ClassVar[str] = "vector"
    method: ClassVar[str] = "vector"


class BM25Strategy(BaseRetrievalStrategy):
    """By words alone."""

    name: ClassVar[str] = "bm25"
    method: ClassVar[str] = "bm25"


class HybridStrategy(BaseRetrievalStrategy):
    """By words and meaning together, weighed by the policy, wherever a dataset keeps both indexes.

    `Workspace.search` with ``strategy="hybrid"`` does the same without the policy: the plain calibrated sum.
    """

    name: ClassVar[str] = "hybrid"
