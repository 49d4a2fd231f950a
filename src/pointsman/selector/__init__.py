"""Selectors choose among described choices for a query, with a reason and a confidence. They never run the choice.

Every name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._lazy import lazily

if TYPE_CHECKING:
    from pointsman.selector.base import BaseSelector, Fallback, SelectorResult, SingleSelection, ToolMetadata
    from pointsman.selector.combined import EnsembleSelector, HybridSelector, RandomSelector
    from pointsman.selector.description import DescriptionSelector
    from pointsman.selector.embedding import EmbeddingSelector
    from pointsman.selector.heuristic import ROUTER_SELECT_TOOL, router_select
    from pointsman.selector.llm import LLMSelector
    from pointsman.selector.rule import RuleSelector
    from pointsman.selector.rules import keyword_match_rule, query_length_rule, semantic_query_rule

__all__ = [
    "ROUTER_SELECT_TOOL",
    "BaseSelector",
    "DescriptionSelector",
    "EmbeddingSelector",
    "EnsembleSelector",
    "Fallback",
    "HybridSelector",
    "LLMSelector",
    "RandomSelector",
    "RuleSelector",
    "SelectorResult",
    "SingleSelection",
    "ToolMetadata",
    "keyword_match_rule",
    "query_length_rule",
    "router_select",
    "semantic_query_rule",
]

_MODULES = {
    "ROUTER_SELECT_TOOL": ".heuristic",
    "BaseSelector": ".base",
    "DescriptionSelector": ".description",
    "EmbeddingSelector": ".embedding",
    "EnsembleSelector": ".combined",
    "Fallback": ".base",
    "HybridSelector": ".combined",
    "LLMSelector": ".llm",
    "RandomSelector": ".combined",
    "RuleSelector": ".rule",
    "SelectorResult": ".base",
    "SingleSelection": ".base",
    "ToolMetadata": ".base",
    "keyword_match_rule": ".rules",
    "query_length_rule": ".rules",
    "router_select": ".heuristic",
    "semantic_query_rule": ".rules",
}

__getattr__, __dir__ = lazily(__name__, _MODULES)
