"""Pointsman: the retrieval layer between a language model and its data.

Public names are loaded when first used, so importing the package is cheap.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.orig_argv[-len(sys.argv)] in ("pointsman", "-mpointsman"):
    # "python -m pointsman" is looking for us. It has put the current folder first on the module path, and this may be
    # the folder to index: its files are documents, not modules, so nothing may be imported before this line but sys.
    del sys.path[0]

from typing import TYPE_CHECKING

from pointsman._lazy import lazily
from pointsman._version import __version__

if TYPE_CHECKING:
    from pointsman.agent import ReActAgent, Tool
    from pointsman.client import Client, RemoteDataset
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
        RetrievalError,
        ServiceError,
        StoreError,
        UnknownNameError,
        UnmetNeedError,
    )
    from pointsman.filters import Filter, parse_filter
    from pointsman.llm import BaseLLM, Completion
    from pointsman.models import CachedEmbedder, DashScopeLLM, OpenAILLM, ScriptedLLM, default_embedder, load_embedder
    from pointsman.opening import open as open  # noqa: A004  (pointsman.open reads well)
    from pointsman.request import RegisteredStrategy, SearchOptions, SearchRequest, WorkspaceOptions
    from pointsman.retrieval.compress import (
        BaseCompressor,
        ExtractiveCompressor,
        LLMCompressor,
        LostInTheMiddle,
        ParentExpander,
        WindowExpander,
        lost_in_the_middle,
    )
    from pointsman.retrieval.diversity import Diversifier, mmr
    from pointsman.retrieval.fusion import fuse
    from pointsman.retrieval.policy import EffortLimits, Policy
    from pointsman.retrieval.refine import BaseRefiner
    from pointsman.retrieval.refuse import Refuser, Threshold
    from pointsman.retrieval.rerank import (
        BaseReranker,
        CalibratedReranker,
        CrossEncoderReranker,
        HTTPReranker,
        LLMReranker,
    )
    from pointsman.retrieval.retrievers.base import BaseRetriever
    from pointsman.retrieval.retrievers.hybrid import SimpleHybridRetriever
    from pointsman.retrieval.retrievers.router import MultiIndexQueryEngine, MultiModalRetriever, RouterRetriever
    from pointsman.retrieval.retrievers.single import KeywordRetriever, VectorRetriever
    from pointsman.retrieval.routing.recommend import recommend
    from pointsman.retrieval.routing.router import BaseRouter, ContentRouter, LLMRouter, RouteDecision, SelectorRouter
    from pointsman.retrieval.transform import (
        BaseTransformer,
        LLMDecomposer,
        LLMDisambiguator,
        LLMExpander,
        QueryTransformer,
        RuleDecomposer,
        RuleDisambiguator,
        RuleExpander,
    )
    from pointsman.selector.base import BaseSelector, SelectorResult, SingleSelection, ToolMetadata
    from pointsman.selector.combined import EnsembleSelector, HybridSelector, RandomSelector
    from pointsman.selector.description import DescriptionSelector
    from pointsman.selector.embedding import EmbeddingSelector
    from pointsman.selector.heuristic import router_select
    from pointsman.selector.llm import LLMSelector
    from pointsman.selector.rule import RuleSelector
    from pointsman.selector.rules import keyword_match_rule, query_length_rule, semantic_query_rule
    from pointsman.service import EnhancedRetrievalService
    from pointsman.settings import Settings
    from pointsman.store.local.index_manager import BM25IndexManager
    from pointsman.strategies import (
        BaseRetrievalStrategy,
        BM25Strategy,
        Budget,
        ContextualCompressionStrategy,
        DecompositionStrategy,
        HybridStrategy,
        HyDEStrategy,
        MultiQueryStrategy,
        ParentChildStrategy,
        PRFStrategy,
        Query2DocStrategy,
        SparseStrategy,
        VectorStrategy,
        register_strategy,
    )
    from pointsman.text.spelling import Speller
    from pointsman.types import (
        Decision,
        Document,
        Excerpt,
        Explanation,
        Hit,
        Hits,
        Message,
        Plan,
        Query,
        Ranked,
        Refusal,
        RetrievalContext,
        Trace,
    )
    from pointsman.workflow import RetrievalWorkflow
    from pointsman.workspace import Workspace

_HOMES = {
    "pointsman.agent": ["ReActAgent", "Tool"],
    "pointsman.client": ["Client", "RemoteDataset"],
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
        "RetrievalError",
        "ServiceError",
        "StoreError",
        "UnknownNameError",
        "UnmetNeedError",
    ],
    "pointsman.filters": ["Filter", "parse_filter"],
    "pointsman.llm": ["BaseLLM", "Completion"],
    "pointsman.models": [
        "CachedEmbedder",
        "DashScopeLLM",
        "OpenAILLM",
        "ScriptedLLM",
        "default_embedder",
        "load_embedder",
    ],
    "pointsman.retrieval.retrievers.base": ["BaseRetriever"],
    "pointsman.retrieval.compress": [
        "BaseCompressor",
        "ExtractiveCompressor",
        "LLMCompressor",
        "LostInTheMiddle",
        "ParentExpander",
        "WindowExpander",
        "lost_in_the_middle",
    ],
    "pointsman.retrieval.diversity": ["Diversifier", "mmr"],
    "pointsman.retrieval.fusion": ["fuse"],
    "pointsman.retrieval.retrievers.hybrid": ["SimpleHybridRetriever"],
    "pointsman.retrieval.policy": ["EffortLimits", "Policy"],
    "pointsman.retrieval.routing.recommend": ["recommend"],
    "pointsman.retrieval.refine": ["BaseRefiner"],
    "pointsman.retrieval.refuse": ["Refuser", "Threshold"],
    "pointsman.retrieval.rerank": [
        "BaseReranker",
        "CalibratedReranker",
        "CrossEncoderReranker",
        "HTTPReranker",
        "LLMReranker",
    ],
    "pointsman.retrieval.retrievers.single": ["KeywordRetriever", "VectorRetriever"],
    "pointsman.retrieval.routing.router": [
        "BaseRouter",
        "ContentRouter",
        "LLMRouter",
        "RouteDecision",
        "SelectorRouter",
    ],
    "pointsman.retrieval.retrievers.router": ["MultiIndexQueryEngine", "MultiModalRetriever", "RouterRetriever"],
    "pointsman.strategies": [
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
        "SparseStrategy",
        "VectorStrategy",
        "register_strategy",
    ],
    "pointsman.request": ["RegisteredStrategy", "SearchOptions", "SearchRequest", "WorkspaceOptions"],
    "pointsman.retrieval.transform": [
        "BaseTransformer",
        "LLMDecomposer",
        "LLMDisambiguator",
        "LLMExpander",
        "QueryTransformer",
        "RuleDecomposer",
        "RuleDisambiguator",
        "RuleExpander",
    ],
    "pointsman.workflow": ["RetrievalWorkflow"],
    "pointsman.selector.base": ["BaseSelector", "SelectorResult", "SingleSelection", "ToolMetadata"],
    "pointsman.selector.combined": ["EnsembleSelector", "HybridSelector", "RandomSelector"],
    "pointsman.selector.description": ["DescriptionSelector"],
    "pointsman.selector.embedding": ["EmbeddingSelector"],
    "pointsman.selector.heuristic": ["router_select"],
    "pointsman.selector.llm": ["LLMSelector"],
    "pointsman.selector.rule": ["RuleSelector"],
    "pointsman.selector.rules": ["keyword_match_rule", "query_length_rule", "semantic_query_rule"],
    "pointsman.service": ["EnhancedRetrievalService"],
    "pointsman.settings": ["Settings"],
    "pointsman.store.local.index_manager": ["BM25IndexManager"],
    "pointsman.text.spelling": ["Speller"],
    "pointsman.types": [
        "Decision",
        "Document",
        "Excerpt",
        "Explanation",
        "Hit",
        "Hits",
        "Message",
        "Plan",
        "Query",
        "Ranked",
        "Refusal",
        "RetrievalContext",
        "Trace",
    ],
    "pointsman.workspace": ["Workspace"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_HOME["open"] = "pointsman.opening:open_workspace"

__all__ = [
    "BM25IndexManager",
    "BM25Strategy",
    "BaseCompressor",
    "BaseLLM",
    "BaseRefiner",
    "BaseReranker",
    "BaseRetrievalStrategy",
    "BaseRetriever",
    "BaseRouter",
    "BaseSelector",
    "BaseTransformer",
    "Budget",
    "CachedEmbedder",
    "CalibratedReranker",
    "Client",
    "Completion",
    "ContentRouter",
    "ContextualCompressionStrategy",
    "CorruptStoreError",
    "CrossEncoderReranker",
    "DashScopeLLM",
    "Dataset",
    "Decision",
    "DecompositionStrategy",
    "DescriptionSelector",
    "Diversifier",
    "Document",
    "EffortLimits",
    "EmbeddingSelector",
    "EnhancedRetrievalService",
    "EnsembleSelector",
    "Excerpt",
    "Explanation",
    "ExtractiveCompressor",
    "Filter",
    "FilterError",
    "FormatVersionError",
    "HTTPReranker",
    "Hit",
    "Hits",
    "HyDEStrategy",
    "HybridSelector",
    "HybridStrategy",
    "InputError",
    "KeywordRetriever",
    "LLMCompressor",
    "LLMDecomposer",
    "LLMDisambiguator",
    "LLMExpander",
    "LLMReranker",
    "LLMRouter",
    "LLMSelector",
    "LockedError",
    "LostInTheMiddle",
    "Message",
    "MissingDependencyError",
    "ModelError",
    "MultiIndexQueryEngine",
    "MultiModalRetriever",
    "MultiQueryStrategy",
    "OpenAILLM",
    "PRFStrategy",
    "ParentChildStrategy",
    "ParentExpander",
    "Plan",
    "PointsmanError",
    "Policy",
    "Query",
    "Query2DocStrategy",
    "QueryTransformer",
    "RandomSelector",
    "Ranked",
    "ReActAgent",
    "Refusal",
    "Refuser",
    "RegisteredStrategy",
    "RemoteDataset",
    "RetrievalContext",
    "RetrievalError",
    "RetrievalWorkflow",
    "RouteDecision",
    "RouterRetriever",
    "RuleDecomposer",
    "RuleDisambiguator",
    "RuleExpander",
    "RuleSelector",
    "ScriptedLLM",
    "SearchOptions",
    "SearchRequest",
    "SelectorResult",
    "SelectorRouter",
    "ServiceError",
    "Settings",
    "SimpleHybridRetriever",
    "SingleSelection",
    "SparseStrategy",
    "Speller",
    "StoreError",
    "Threshold",
    "Tool",
    "ToolMetadata",
    "Trace",
    "UnknownNameError",
    "UnmetNeedError",
    "VectorRetriever",
    "VectorStrategy",
    "WindowExpander",
    "Workspace",
    "WorkspaceOptions",
    "__version__",
    "default_embedder",
    "fuse",
    "keyword_match_rule",
    "load_embedder",
    "lost_in_the_middle",
    "mmr",
    "parse_filter",
    "query_length_rule",
    "recommend",
    "register_strategy",
    "router_select",
    "semantic_query_rule",
]


__getattr__, _ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
