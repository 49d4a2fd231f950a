"""Taking a complex question apart, and following chains of questions (I3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pointsman.errors import PointsmanError
from pointsman.retrieval.dispatch import describe
from pointsman.retrieval.strategies.base import BaseRetrievalStrategy
from pointsman.retrieval.strategies.budget import Budget, Spending, spending
from pointsman.retrieval.strategies.generated import at_least_one
from pointsman.retrieval.strategies.together import Together
from pointsman.retrieval.transform.base import BaseTransformer, QueryTransformer, Transformed, Variant, distinct
from pointsman.retrieval.transform.decompose import Hop, RuleDecomposer, bridge_entities, chain
from pointsman.retrieval.transform.llm import LLMDecomposer
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.types import Query, RetrievalContext

log = logging.getLogger(__name__)

WEIGHT = 0.5
"""Of the best part, beside the whole question's 1; benchmarks/multihop.py shows what it gives."""

_PASSAGES, _ENTITIES = 3, 3
_HOP_SECONDS = 5.0
_LONGEST_NAME = 100  # characters of a name that may be put into a question; longer ones are no names


class BridgeFinder(BaseTransformer):
    """Follows the first step of a chain of questions without a model.

    «Who directed the film that won the Palme d'Or in 1994?» asks for the film first. That is searched for; the names
    that the best passages offer are put into the next question, each a variant of kind ``"bridge"``. What the
    passages say becomes search text, nothing else.

    Args:
        sources: what is searched for the first step.
        method: how.
        weight: of the variants.
        budget: its seconds limit the search for the first step, which gets 5 at most.
    """

    def __init__(
        self, sources: Sequence[Any], method: str = "auto", *, weight: float = WEIGHT, budget: Budget | None = None
    ) -> None:
        self.sources, self.weight, self.budget = tuple(sources), weight, budget or Budget()
        self._workflow = RetrievalWorkflow(strategy=method)

    def transform(self, query: str | Query) -> Transformed:
        """The query with what was found for the first step filled in; as it is where it is no chain."""
        query = Query.of(query)
        hops = chain(query.text)
        if len(hops) < 2:
            return Transformed(query)
        with spending(self.budget) as account:
            try:
                seconds = _seconds(account)
                found = self._workflow.search(_first(query, hops), self.sources, _PASSAGES, timeout=seconds)
            except (PointsmanError, TimeoutError) as error:
                return _failed(query, error)
        return self._filled(query, hops, found)

    async def atransform(self, query: str | Query) -> Transformed:
        """The same, awaited."""
        query = Query.of(query)
        hops = chain(query.text)
        if len(hops) < 2:
            return Transformed(query)
        with spending(self.budget) as account:
            try:
                seconds = _seconds(account)
                found = await self._workflow.asearch(_first(query, hops), self.sources, _PASSAGES, timeout=seconds)
            except (PointsmanError, TimeoutError) as error:
                return _failed(query, error)
        return self._filled(query, hops, found)

    def _filled(self, query: Query, hops: Sequence[Hop], found: RetrievalContext) -> Transformed:
        passages = [hit.document.searchable for hit in found]
        names = [name for name in bridge_entities(query.text, passages, _ENTITIES) if len(name) <= _LONGEST_NAME]
        made = (Variant(hops[1].filled(name), "bridge", self.weight) for name in names)
        detail = f"{hops[0].text!r:.200} may be {', '.join(names)}" if names else "no name found for the first step"
        degraded = tuple(f"the search for the first step: {cause}" for cause in found.degraded)
        return Transformed(query, distinct(made, query.text), detail, degraded)


def _first(query: Query, hops: Sequence[Hop]) -> Query:
    return replace(query, text=hops[0].text, history=())


def _seconds(account: Spending) -> float:
    seconds = account.left(_HOP_SECONDS)
    if seconds <= 0:
        raise TimeoutError("no time was left")
    return seconds


def _failed(query: Query, error: Exception) -> Transformed:
    told = f"the search for the first step failed, the chain is not followed: {describe(error)}"
    log.warning("%s", told)
    return Transformed(query, degraded=(told,))


class DecompositionStrategy(BaseRetrievalStrategy):
    """Sub-questions are searched beside the question; every document is ranked by the whole and its best part.

    With a model it is the model that takes questions apart, without one rules do (en, zh, ru), and chains of questions
    are followed by `BridgeFinder`. A simple question is searched as it is.
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
            llm: takes questions apart; rules do unless given.
            max_subqueries: sub-questions at most.
            bridges: follow chains, without a model; costs one more search for a question that is one.
            weight: of the best part, where the whole question has 1.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: an option cannot be used.
        """
        self.max_subqueries = at_least_one("max_subqueries", max_subqueries)
        self.bridges, self.weight = bridges, weight
        super().__init__(*sources, llm=llm, **options)

    def transformer(self) -> BaseTransformer:
        """The model alone, or rules and bridges."""
        if self.llm is not None:
            return Together(LLMDecomposer(self.llm, self.max_subqueries, weight=self.weight), budget=self.budget)
        rules = RuleDecomposer(self.max_subqueries, weight=self.weight)
        if not self.bridges:
            return rules
        finder = BridgeFinder(self.searched, self.method, weight=self.weight, budget=self.budget)
        return QueryTransformer(rules, finder, max_variants=self.max_subqueries + _ENTITIES)
