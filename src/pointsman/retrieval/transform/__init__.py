"""Transforming a query before searching: taking it apart, filling it in, adding other ways to say it (R8).

Every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "TRANSFORM": "prompts",
    "BaseTransformer": "base",
    "Hop": "decompose",
    "LLMDecomposer": "llm",
    "LLMDisambiguator": "llm",
    "LLMExpander": "llm",
    "QueryTransformer": "base",
    "RuleDecomposer": "decompose",
    "RuleDisambiguator": "disambiguate",
    "RuleExpander": "expand",
    "TransformPrompts": "prompts",
    "Transformed": "base",
    "Variant": "base",
    "bridge_entities": "decompose",
    "chain": "decompose",
    "subquestions": "decompose",
    "usable": "generation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
