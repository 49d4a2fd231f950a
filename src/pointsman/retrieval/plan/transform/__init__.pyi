from pointsman.retrieval.plan.transform.base_transformer import (
    BaseTransformer as BaseTransformer,
    QueryTransformer as QueryTransformer,
    Transformed as Transformed,
)
from pointsman.retrieval.run.variant import Variant as Variant
from pointsman.retrieval.plan.transform.question_chains import bridge_entities as bridge_entities
from pointsman.retrieval.plan.transform.decompose_by_rules import (
    Hop as Hop,
    RuleDecomposer as RuleDecomposer,
    chain as chain,
    subquestions as subquestions,
)
from pointsman.retrieval.plan.transform.disambiguate_by_rules import RuleDisambiguator as RuleDisambiguator
from pointsman.retrieval.plan.transform.expand_by_rules import RuleExpander as RuleExpander
from pointsman.retrieval.plan.transform.transform_answers import usable as usable
from pointsman.retrieval.plan.transform.llm_transformers import (
    TRANSFORM as TRANSFORM,
    LLMDecomposer as LLMDecomposer,
    LLMDisambiguator as LLMDisambiguator,
    LLMExpander as LLMExpander,
    TransformPrompts as TransformPrompts,
)

__all__: list[str]
