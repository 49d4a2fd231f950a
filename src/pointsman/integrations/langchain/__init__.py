"""Adapters between Pointsman and LangChain, in both directions.

For LangChain: `PointsmanRetriever`, `PointsmanVectorStore`, `PointsmanDocumentIndex`,
`PointsmanEmbeddings` and `PointsmanReranker`. For Pointsman: `LangChainRetriever`,
`LangChainEmbedder` and `LangChainLLM`.

Needs ``pip install 'pointsman[langchain]'``.
"""

from __future__ import annotations

from pointsman.tools.errors import MissingDependencyError

try:
    import langchain_core  # noqa: F401  (whether it is there)
except ImportError as error:
    raise MissingDependencyError("langchain-core", "langchain", "the LangChain adapter") from error

from pointsman.integrations.langchain.langchain_models import (
    LangChainEmbedder,
    LangChainLLM,
    PointsmanEmbeddings,
    PointsmanReranker,
)
from pointsman.integrations.langchain.langchain_retrievers import (
    LangChainRetriever,
    PointsmanDocumentIndex,
    PointsmanRetriever,
)
from pointsman.integrations.langchain.langchain_vector_store import PointsmanVectorStore

__all__ = [
    "LangChainEmbedder",
    "LangChainLLM",
    "LangChainRetriever",
    "PointsmanDocumentIndex",
    "PointsmanEmbeddings",
    "PointsmanReranker",
    "PointsmanRetriever",
    "PointsmanVectorStore",
]
