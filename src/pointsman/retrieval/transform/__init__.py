"""Transforms a query before the search: decomposing it, completing it, adding variants.

Every name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._lazy import lazily

if TYPE_CHECKING:
    from pointsman.retrieval.transform.base import BaseTransformer, QueryTransformer, Transformed, Variant
    from pointsman.retrieval.transform.decompose import Hop, RuleDecomposer, bridge_entities, chain, subquestions
    from pointsman.retrieval.transform.disambiguate import RuleDisambiguator
    from pointsman.retrieval.transform.expand import RuleExpander
    from pointsman.retrieval.transform.generation import usable
    from pointsman.retrieval.transform.llm import LLMDecomposer, LLMDisambiguator, LLMExpander
    from pointsman.retrieval.transform.prompts import TRANSFORM, TransformPrompts

__all__ = [
    "TRANSFORM",
    "BaseTransformer",
    "Hop",
    "LLMDecomposer",
    "LLMDisambiguator",
    "LLMExpander",
    "QueryTransformer",
    "RuleDecomposer",
    "RuleDisambiguator",
    "RuleExpander",
    "TransformPrompts",
    "Transformed",
    "Variant",
    "bridge_entities",
    "chain",
    "subquestions",
    "usable",
]

_MODULES = {
    "TRANSFORM": ".prompts",
    "BaseTransformer": ".base",
    "Hop": ".decompose",
    "LLMDecomposer": ".llm",
    "LLMDisambiguator": ".llm",
    "LLMExpander": ".llm",
    "QueryTransformer": ".base",
    "RuleDecomposer": ".decompose",
    "RuleDisambiguator": ".disambiguate",
    "RuleExpander": ".expand",
    "TransformPrompts": ".prompts",
    "Transformed": ".base",
    "Variant": ".base",
    "bridge_entities": ".decompose",
    "chain": ".decompose",
    "subquestions": ".decompose",
    "usable": ".generation",
}

__getattr__, __dir__ = lazily(__name__, _MODULES)
