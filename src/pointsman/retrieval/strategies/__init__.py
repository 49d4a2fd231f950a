"""Strategies: named ways to search.

Importing this package registers all of them in `pointsman.values.registry.STRATEGIES`.
"""

from __future__ import annotations

from pointsman.retrieval.refine.budget import Budget, spending
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy, register_strategy
from pointsman.retrieval.strategies.context_strategies import ContextualCompressionStrategy, ParentChildStrategy
from pointsman.retrieval.strategies.decomposition_strategy import DecompositionStrategy
from pointsman.retrieval.strategies.generated_texts import HyDEStrategy, Query2DocStrategy
from pointsman.retrieval.strategies.multi_query import MultiQueryStrategy
from pointsman.retrieval.strategies.plain_strategies import BM25Strategy, HybridStrategy, VectorStrategy
from pointsman.retrieval.strategies.sparse_vectors import SparseEmbedder, SparseStrategy
from pointsman.values.registry import STRATEGIES

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
):
    register_strategy(_strategy)
