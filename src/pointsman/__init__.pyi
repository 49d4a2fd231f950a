from ._version import __version__ as __version__
from .agent import ReActAgent as ReActAgent, Tool as Tool
from .client import Client as Client, RemoteDataset as RemoteDataset
from .dataset import Dataset as Dataset
from .errors import (
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
from .filters import Filter as Filter, parse_filter as parse_filter
from .llm import BaseLLM as BaseLLM, Completion as Completion
from .models import (
    CachedEmbedder as CachedEmbedder,
    ClipEmbedder as ClipEmbedder,
    DashScopeLLM as DashScopeLLM,
    HTTPMultimodalEmbedder as HTTPMultimodalEmbedder,
    OpenAILLM as OpenAILLM,
    ScriptedLLM as ScriptedLLM,
    default_embedder as default_embedder,
    load_embedder as load_embedder,
)
from .opening import open as open
from .request import (
    RegisteredStrategy as RegisteredStrategy,
    SearchOptions as SearchOptions,
    SearchRequest as SearchRequest,
    WorkspaceOptions as WorkspaceOptions,
)
from .retrieval.compress import (
    BaseCompressor as BaseCompressor,
    ExtractiveCompressor as ExtractiveCompressor,
    LLMCompressor as LLMCompressor,
    LostInTheMiddle as LostInTheMiddle,
    ParentExpander as ParentExpander,
    WindowExpander as WindowExpander,
    lost_in_the_middle as lost_in_the_middle,
)
from .retrieval.diversity import Diversifier as Diversifier, mmr as mmr
from .retrieval.fusion import fuse as fuse
from .retrieval.policy import EffortLimits as EffortLimits, Policy as Policy
from .retrieval.refine import BaseRefiner as BaseRefiner
from .retrieval.refuse import Refuser as Refuser, Threshold as Threshold
from .retrieval.rerank import (
    BaseReranker as BaseReranker,
    CalibratedReranker as CalibratedReranker,
    CrossEncoderReranker as CrossEncoderReranker,
    HTTPReranker as HTTPReranker,
    LLMReranker as LLMReranker,
)
from .retrieval.retrievers.base import BaseRetriever as BaseRetriever
from .retrieval.retrievers.hybrid import SimpleHybridRetriever as SimpleHybridRetriever
from .retrieval.retrievers.router import (
    MultiIndexQueryEngine as MultiIndexQueryEngine,
    MultiModalRetriever as MultiModalRetriever,
    RouterRetriever as RouterRetriever,
)
from .retrieval.retrievers.single import KeywordRetriever as KeywordRetriever, VectorRetriever as VectorRetriever
from .retrieval.recommended_strategy import recommend as recommend
from .retrieval.routing.router import (
    BaseRouter as BaseRouter,
    ContentRouter as ContentRouter,
    ImageRouter as ImageRouter,
    LLMRouter as LLMRouter,
    RouteDecision as RouteDecision,
    SelectorRouter as SelectorRouter,
)
from .retrieval.transform import (
    BaseTransformer as BaseTransformer,
    LLMDecomposer as LLMDecomposer,
    LLMDisambiguator as LLMDisambiguator,
    LLMExpander as LLMExpander,
    QueryTransformer as QueryTransformer,
    RuleDecomposer as RuleDecomposer,
    RuleDisambiguator as RuleDisambiguator,
    RuleExpander as RuleExpander,
)
from .selector.base import (
    BaseSelector as BaseSelector,
    SelectorResult as SelectorResult,
    SingleSelection as SingleSelection,
    ToolMetadata as ToolMetadata,
)
from .selector.combined import (
    EnsembleSelector as EnsembleSelector,
    HybridSelector as HybridSelector,
    RandomSelector as RandomSelector,
)
from .selector.description import DescriptionSelector as DescriptionSelector
from .selector.embedding import EmbeddingSelector as EmbeddingSelector
from .selector.heuristic import router_select as router_select
from .selector.llm import LLMSelector as LLMSelector
from .selector.rule_selector import RuleSelector as RuleSelector
from .selector.predefined_rules import (
    keyword_match_rule as keyword_match_rule,
    query_length_rule as query_length_rule,
    semantic_query_rule as semantic_query_rule,
)
from .service import EnhancedRetrievalService as EnhancedRetrievalService
from .settings import Settings as Settings
from .store.local.bm25_index_manager import BM25IndexManager as BM25IndexManager
from .strategies import (
    BaseRetrievalStrategy as BaseRetrievalStrategy,
    BM25Strategy as BM25Strategy,
    Budget as Budget,
    ContextualCompressionStrategy as ContextualCompressionStrategy,
    DecompositionStrategy as DecompositionStrategy,
    HybridStrategy as HybridStrategy,
    HyDEStrategy as HyDEStrategy,
    MultiQueryStrategy as MultiQueryStrategy,
    ParentChildStrategy as ParentChildStrategy,
    PRFStrategy as PRFStrategy,
    Query2DocStrategy as Query2DocStrategy,
    SparseStrategy as SparseStrategy,
    VectorStrategy as VectorStrategy,
    register_strategy as register_strategy,
)
from .text.spelling import Speller as Speller
from .types import (
    Decision as Decision,
    Document as Document,
    Excerpt as Excerpt,
    Explanation as Explanation,
    Hit as Hit,
    Hits as Hits,
    Message as Message,
    Plan as Plan,
    Query as Query,
    Ranked as Ranked,
    Refusal as Refusal,
    RetrievalContext as RetrievalContext,
    Trace as Trace,
)
from .workflow import RetrievalWorkflow as RetrievalWorkflow
from .workspace import Workspace as Workspace

__all__: list[str]
