from .base import (
    BaseTransformer as BaseTransformer,
    QueryTransformer as QueryTransformer,
    Transformed as Transformed,
    Variant as Variant,
)
from .question_chains import bridge_entities as bridge_entities
from .decompose_by_rules import (
    Hop as Hop,
    RuleDecomposer as RuleDecomposer,
    chain as chain,
    subquestions as subquestions,
)
from .disambiguate_by_rules import RuleDisambiguator as RuleDisambiguator
from .expand_by_rules import RuleExpander as RuleExpander
from .model_answers import usable as usable
from .llm import LLMDecomposer as LLMDecomposer, LLMDisambiguator as LLMDisambiguator, LLMExpander as LLMExpander
from .prompts import TRANSFORM as TRANSFORM, TransformPrompts as TransformPrompts

__all__: list[str]
