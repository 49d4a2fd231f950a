"""Adapters between Pointsman and LlamaIndex, in both directions.

For LlamaIndex: `PointsmanRetriever`, `PointsmanSelector`, `PointsmanRerank`, `PointsmanEmbedding`
and `PointsmanVectorStore`. For Pointsman: `LlamaIndexRetriever` and `LlamaIndexEmbedder`; LlamaIndex's language models
need no adapter. `query_of`, `hit_of` and `node_of` convert single values.

Needs ``pip install 'pointsman[llama-index]'``.
"""

from __future__ import annotations

from pointsman.tools.errors import MissingDependencyError

try:
    import llama_index.core  # noqa: F401  (whether it is there)
except ImportError as error:
    raise MissingDependencyError("llama-index-core", "llama-index", "the LlamaIndex adapter") from error

from pointsman.integrations.llama_index.llama_index_embedding import LlamaIndexEmbedder, PointsmanEmbedding
from pointsman.integrations.llama_index.llama_index_nodes import hit_of, node_of, query_of
from pointsman.integrations.llama_index.llama_index_postprocessors import PointsmanRerank
from pointsman.integrations.llama_index.llama_index_retrievers import LlamaIndexRetriever, PointsmanRetriever
from pointsman.integrations.llama_index.llama_index_selector import PointsmanSelector
from pointsman.integrations.llama_index.llama_index_vector_store import PointsmanVectorStore

__all__ = [
    "LlamaIndexEmbedder",
    "LlamaIndexRetriever",
    "PointsmanEmbedding",
    "PointsmanRerank",
    "PointsmanRetriever",
    "PointsmanSelector",
    "PointsmanVectorStore",
    "hit_of",
    "node_of",
    "query_of",
]
