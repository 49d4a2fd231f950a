from .base import (
    BaseSelector as BaseSelector,
    Fallback as Fallback,
    SelectorResult as SelectorResult,
    SingleSelection as SingleSelection,
    ToolMetadata as ToolMetadata,
)
from .combined import (
    EnsembleSelector as EnsembleSelector,
    HybridSelector as HybridSelector,
    RandomSelector as RandomSelector,
)
from .description import DescriptionSelector as DescriptionSelector
from .embedding import EmbeddingSelector as EmbeddingSelector
from .heuristic import ROUTER_SELECT_TOOL as ROUTER_SELECT_TOOL, router_select as router_select
from .llm import LLMSelector as LLMSelector
from .rule_selector import RuleSelector as RuleSelector
from .predefined_rules import (
    keyword_match_rule as keyword_match_rule,
    query_length_rule as query_length_rule,
    semantic_query_rule as semantic_query_rule,
)

__all__: list[str]
