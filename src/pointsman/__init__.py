"""Pointsman: the retrieval layer between a language model and its data.

Public names are loaded when first used, so importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pointsman._version import __version__

if TYPE_CHECKING:
    from pointsman.dataset import Dataset
    from pointsman.errors import (
        CorruptStoreError,
        FilterError,
        FormatVersionError,
        InputError,
        LockedError,
        MissingDependencyError,
        ModelError,
        PointsmanError,
        StoreError,
        UnknownNameError,
    )
    from pointsman.filters import Filter, parse_filter
    from pointsman.models import CachedEmbedder, default_embedder, load_embedder
    from pointsman.retrieval.base import BaseRetriever
    from pointsman.retrieval.fusion import fuse
    from pointsman.retrieval.retrievers import HybridRetriever, KeywordRetriever, VectorRetriever
    from pointsman.store.bm25 import BM25IndexManager
    from pointsman.types import Document, Hit, Plan, Query, RetrievalContext, Trace
    from pointsman.workspace import Workspace
    from pointsman.workspace import open_workspace as open  # noqa: A004  (pointsman.open reads well)

_HOMES = {
    "pointsman.dataset": ["Dataset"],
    "pointsman.errors": [
        "CorruptStoreError",
        "FilterError",
        "FormatVersionError",
        "InputError",
        "LockedError",
        "MissingDependencyError",
        "ModelError",
        "PointsmanError",
        "StoreError",
        "UnknownNameError",
    ],
    "pointsman.filters": ["Filter", "parse_filter"],
    "pointsman.models": ["CachedEmbedder", "default_embedder", "load_embedder"],
    "pointsman.retrieval.base": ["BaseRetriever"],
    "pointsman.retrieval.fusion": ["fuse"],
    "pointsman.retrieval.retrievers": ["HybridRetriever", "KeywordRetriever", "VectorRetriever"],
    "pointsman.store.bm25": ["BM25IndexManager"],
    "pointsman.types": ["Document", "Hit", "Plan", "Query", "RetrievalContext", "Trace"],
    "pointsman.workspace": ["Workspace"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BM25IndexManager",
    "BaseRetriever",
    "CachedEmbedder",
    "CorruptStoreError",
    "Dataset",
    "Document",
    "Filter",
    "FilterError",
    "FormatVersionError",
    "Hit",
    "HybridRetriever",
    "InputError",
    "KeywordRetriever",
    "LockedError",
    "MissingDependencyError",
    "ModelError",
    "Plan",
    "PointsmanError",
    "Query",
    "RetrievalContext",
    "StoreError",
    "Trace",
    "UnknownNameError",
    "VectorRetriever",
    "Workspace",
    "__version__",
    "default_embedder",
    "fuse",
    "load_embedder",
    "open",
    "parse_filter",
]


def __getattr__(name: str) -> Any:
    if name == "open":
        return import_module("pointsman.workspace").open_workspace
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'pointsman' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
