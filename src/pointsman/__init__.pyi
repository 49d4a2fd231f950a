from pointsman.tools.version import __version__ as __version__
from pointsman.selector.agent import ReActAgent as ReActAgent, Tool as Tool
from pointsman.service.client import Client as Client, RemoteDataset as RemoteDataset
from pointsman.workspace.dataset import Dataset as Dataset
from pointsman.tools.errors import (
    CorruptStoreError as CorruptStoreError,
    FilterError as FilterError,
    FormatVersionError as FormatVersionError,
    InputError as InputError,
    LockedError as LockedError,
    MissingDependencyError as MissingDependencyError,
    ModelError as ModelError,
    PointsmanError as PointsmanError,
    RetrievalError as RetrievalError,
    ServiceError as ServiceError,
    StoreError as StoreError,
    UnknownNameError as UnknownNameError,
    UnmetNeedError as UnmetNeedError,
)
from pointsman.values.filters import Filter as Filter, parse_filter as parse_filter
from pointsman.llm.base_llm import BaseLLM as BaseLLM, Completion as Completion
from pointsman.embedders import (
    CachedEmbedder as CachedEmbedder,
    ClipEmbedder as ClipEmbedder,
    default_embedder as default_embedder,
    load_embedder as load_embedder,
)
from pointsman.llm import DashScopeLLM as DashScopeLLM, OpenAILLM as OpenAILLM, ScriptedLLM as ScriptedLLM
from pointsman.service.opening import open as open
from pointsman.service.server.protocol.problems import add_exception_handlers as add_exception_handlers
from pointsman.retrieval.request import (
    RegisteredStrategy as RegisteredStrategy,
    SearchOptions as SearchOptions,
    SearchRequest as SearchRequest,
    WorkspaceOptions as WorkspaceOptions,
)
from pointsman.retrieval.refine.compress import (
    BaseCompressor as BaseCompressor,
    ExtractiveCompressor as ExtractiveCompressor,
    LLMCompressor as LLMCompressor,
    ParentExpander as ParentExpander,
    WindowExpander as WindowExpander,
)
from pointsman.retrieval.refine.diversity import Diversifier as Diversifier, mmr as mmr
from pointsman.retrieval.fusion import fuse as fuse
from pointsman.retrieval.plan.policy import EffortLimits as EffortLimits, Policy as Policy
from pointsman.retrieval.refine.base_refiner import BaseRefiner as BaseRefiner
from pointsman.retrieval.refine.refuse import Refuser as Refuser, Threshold as Threshold
from pointsman.retrieval.refine.rerank import (
    BaseReranker as BaseReranker,
    CalibratedReranker as CalibratedReranker,
    CrossEncoderReranker as CrossEncoderReranker,
    HTTPReranker as HTTPReranker,
    LLMReranker as LLMReranker,
)
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever as BaseRetriever
from pointsman.retrieval.retrievers.hybrid_retriever import SimpleHybridRetriever as SimpleHybridRetriever
from pointsman.retrieval.plan.router_retriever import (
    MultiIndexQueryEngine as MultiIndexQueryEngine,
    MultiModalRetriever as MultiModalRetriever,
    RouterRetriever as RouterRetriever,
)
from pointsman.retrieval.retrievers.single_list import (
    KeywordRetriever as KeywordRetriever,
    VectorRetriever as VectorRetriever,
)
from pointsman.retrieval.plan.recommended_strategy import recommend as recommend
from pointsman.retrieval.plan.routers import (
    BaseRouter as BaseRouter,
    ContentRouter as ContentRouter,
    ImageRouter as ImageRouter,
    LLMRouter as LLMRouter,
    RouteDecision as RouteDecision,
    SelectorRouter as SelectorRouter,
)
from pointsman.retrieval.plan.transform import (
    BaseTransformer as BaseTransformer,
    LLMDecomposer as LLMDecomposer,
    LLMDisambiguator as LLMDisambiguator,
    LLMExpander as LLMExpander,
    QueryTransformer as QueryTransformer,
    RuleDecomposer as RuleDecomposer,
    RuleDisambiguator as RuleDisambiguator,
    RuleExpander as RuleExpander,
)
from pointsman.selector.base_selector import (
    BaseSelector as BaseSelector,
    SelectorResult as SelectorResult,
    SingleSelection as SingleSelection,
    ToolMetadata as ToolMetadata,
)
from pointsman.selector.combined_selectors import (
    EnsembleSelector as EnsembleSelector,
    HybridSelector as HybridSelector,
    RandomSelector as RandomSelector,
)
from pointsman.selector.description_selector import DescriptionSelector as DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector as EmbeddingSelector
from pointsman.selector.heuristic_route import router_select as router_select
from pointsman.selector.llm_selector import LLMSelector as LLMSelector
from pointsman.selector.rule_selector import RuleSelector as RuleSelector
from pointsman.selector.predefined_rules import (
    keyword_match_rule as keyword_match_rule,
    query_length_rule as query_length_rule,
    semantic_query_rule as semantic_query_rule,
)
from pointsman.workspace.enhanced_retrieval_service import EnhancedRetrievalService as EnhancedRetrievalService
from pointsman.values.settings import Settings as Settings
from pointsman.store.external.bm25_index_manager import BM25IndexManager as BM25IndexManager
from pointsman.retrieval.strategies import (
    BaseRetrievalStrategy as BaseRetrievalStrategy,
    BM25Strategy as BM25Strategy,
    Budget as Budget,
    ContextualCompressionStrategy as ContextualCompressionStrategy,
    DecompositionStrategy as DecompositionStrategy,
    HybridStrategy as HybridStrategy,
    HyDEStrategy as HyDEStrategy,
    MultiQueryStrategy as MultiQueryStrategy,
    ParentChildStrategy as ParentChildStrategy,
    Query2DocStrategy as Query2DocStrategy,
    SparseStrategy as SparseStrategy,
    VectorStrategy as VectorStrategy,
    register_strategy as register_strategy,
)
from pointsman.text.spelling import Speller as Speller
from pointsman.values.types import (
    Decision as Decision,
    Document as Document,
    Excerpt as Excerpt,
    Explanation as Explanation,
    Hit as Hit,
    Message as Message,
    Plan as Plan,
    Query as Query,
    Ranked as Ranked,
    Trace as Trace,
)
from pointsman.values.types import Refusal as Refusal
from pointsman.values.retrieval_context import (
    Hits as Hits,
    RetrievalContext as RetrievalContext,
)
from pointsman.retrieval.workflow import RetrievalWorkflow as RetrievalWorkflow
from pointsman.workspace.workspace_search import Workspace as Workspace

__all__: list[str]
