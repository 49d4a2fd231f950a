from pointsman.selector.base_selector import (
    BaseSelector as BaseSelector,
    Fallback as Fallback,
    ForeignSelector as ForeignSelector,
    SelectorResult as SelectorResult,
    SingleSelection as SingleSelection,
    ToolMetadata as ToolMetadata,
    as_selector as as_selector,
)
from pointsman.selector.combined_selectors import (
    EnsembleSelector as EnsembleSelector,
    HybridSelector as HybridSelector,
    RandomSelector as RandomSelector,
)
from pointsman.selector.description_selector import DescriptionSelector as DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector as EmbeddingSelector
from pointsman.selector.heuristic_route import ROUTER_SELECT_TOOL as ROUTER_SELECT_TOOL, router_select as router_select
from pointsman.selector.llm_selector import LLMSelector as LLMSelector
from pointsman.selector.rule_selector import RuleSelector as RuleSelector
from pointsman.selector.predefined_rules import (
    keyword_match_rule as keyword_match_rule,
    query_length_rule as query_length_rule,
    semantic_query_rule as semantic_query_rule,
)

__all__: list[str]
