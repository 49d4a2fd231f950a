"""Decomposing a complex question, and following chains of questions."""

from __future__ import annotations

from typing import Any, ClassVar

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, QueryTransformer
from pointsman.retrieval.plan.transform.decompose_by_rules import RuleDecomposer
from pointsman.retrieval.plan.transform.llm_transformers import LLMDecomposer
from pointsman.retrieval.plan.transform.parallel_transformers import Together
from pointsman.retrieval.plan.transform.question_chains import MOST_NAMES, WEIGHT, BridgeFinder
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy
from pointsman.values.argument_checks import check_count


class DecompositionStrategy(BaseRetrievalStrategy):
    """Searches sub-questions along with the question; ranks documents by the question and the best part.

    With a model, the model decomposes questions. Without one, rules do (en, zh, ru), and `BridgeFinder` follows chains
    of questions. A simple question is searched unchanged.
    """

    name: ClassVar[str] = "decomposition"

    def __init__(
        self,
        *sources: Any,
        llm: Any = None,
        max_subqueries: int = 5,
        bridges: bool = True,
        weight: float = WEIGHT,
        **options: Any,
    ) -> None:
        """Choose sources; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched.
            llm: decomposes questions; by default rules do.
            max_subqueries: the maximum number of sub-questions.
            bridges: follow chains without a model; costs one more search for a question that is one.
            weight: of the best part; the whole question has 1.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: an option is invalid.
        """
        self.max_subqueries = check_count(max_subqueries, "max_subqueries")
        self.bridges, self.weight = bridges, weight
        super().__init__(*sources, llm=llm, **options)

    def transformer(self) -> BaseTransformer:
        """The model alone, or rules and bridges."""
        if self.llm is not None:
            model = LLMDecomposer(self.llm, self.max_subqueries, weight=self.weight, timeout=None)
            return Together(model, budget=self.budget)
        rules = RuleDecomposer(self.max_subqueries, weight=self.weight)
        if not self.bridges:
            return rules
        finder = BridgeFinder(weight=self.weight, budget=self.budget)
        return QueryTransformer(rules, finder, max_variants=self.max_subqueries + MOST_NAMES)
