"""Strategies: named ways to search.

Importing this package registers all of them in `pointsman.registry.STRATEGIES`.
"""

from __future__ import annotations

from pointsman.registry import STRATEGIES
from pointsman.retrieval.budget import Budget, spending
from pointsman.strategies.base import BaseRetrievalStrategy, register_strategy
from pointsman.strategies.context import ContextualCompressionStrategy, ParentChildStrategy
from pointsman.strategies.decomposition import DecompositionStrategy
from pointsman.strategies.feedback import PRFStrategy
from pointsman.strategies.generated import HyDEStrategy, Query2DocStrategy
from pointsman.strategies.multi_query import MultiQueryStrategy
from pointsman.strategies.plain import BM25Strategy, HybridStrategy, VectorStrategy
from pointsman.strategies.sparse import SparseEmbedder, SparseStrategy

__all__ = [
    "STRATEGIES",
    "BM25Strategy",
    "BaseRetrievalStrategy",
    "Budget",
    "ContextualCompressionStrategy",
    "DecompositionStrategy",
    "HyDEStrategy",
    "HybridStrategy",
    "MultiQueryStrategy",
    "PRFStrategy",
    "ParentChildStrategy",
    "Query2DocStrategy",
    "SparseEmbedder",
    "SparseStrategy",
    "VectorStrategy",
    "register_strategy",
    "spending",
]

for _strategy in (
    VectorStrategy,
    BM25Strategy,
    HybridStrategy,
    ParentChildStrategy,
    SparseStrategy,
    HyDEStrategy,
    Query2DocStrategy,
    DecompositionStrategy,
    MultiQueryStrategy,
    ContextualCompressionStrategy,
    PRFStrategy,
):
    register_strategy(_strategy)
