"""Following chains of questions, without a model."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.errors import PointsmanError
from pointsman.retrieval.budget import Budget, Spending, spending
from pointsman.retrieval.dispatch import describe
from pointsman.retrieval.transform.base import BaseTransformer, Lookup, Transformed, Variant, distinct
from pointsman.retrieval.transform.decompose import Hop, bridge_entities, chain
from pointsman.types import Query, RetrievalContext

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

WEIGHT: Final = 0.5
"""Of the best part, beside the whole question's 1; benchmarks/multihop.py shows what it gives."""

MOST_NAMES: Final = 3
_PASSAGES: Final = 3
_HOP_SECONDS: Final = 5.0
_LONGEST_NAME: Final = 100  # characters of a name that may be put into a question; longer ones are no names


class BridgeFinder(BaseTransformer):
    """Follows the first step of a chain of questions without a model.

    «Who directed the film that won the Palme d'Or in 1994?» asks for the film first. That is searched for; the names
    that the best passages offer are put into the next question, each a variant of kind ``"bridge"``. What the
    passages say becomes search text, nothing else.

    Args:
        weight: of the variants.
        budget: its seconds limit the search for the first step, which gets 5 at most.
        lookup: what is searched for the first step; a search gives its own. Without it no chain is followed.
    """

    def __init__(self, *, weight: float = WEIGHT, budget: Budget | None = None, lookup: Lookup | None = None) -> None:
        self.weight, self.budget, self.lookup = weight, budget or Budget(), lookup

    def over(self, lookup: Lookup) -> BridgeFinder:
        """Searches the sources that will be searched for the whole question."""
        return BridgeFinder(weight=self.weight, budget=self.budget, lookup=lookup)

    def transform(self, query: str | Query) -> Transformed:
        """The query with what was found for the first step filled in; as it is where it is no chain."""
        query = Query.of(query)
        hops = chain(query.text)
        if len(hops) < 2 or self.lookup is None:
            return Transformed(query)
        with spending(self.budget) as account:
            try:
                seconds = _seconds(account)
                context = self.lookup.search(_first(query, hops), _PASSAGES, seconds)
            except (PointsmanError, TimeoutError) as error:
                return _failed(query, error)
        return self._filled(query, hops, context)

    async def atransform(self, query: str | Query) -> Transformed:
        """The same, awaited."""
        query = Query.of(query)
        hops = chain(query.text)
        if len(hops) < 2 or self.lookup is None:
            return Transformed(query)
        with spending(self.budget) as account:
            try:
                seconds = _seconds(account)
                context = await self.lookup.asearch(_first(query, hops), _PASSAGES, seconds)
            except (PointsmanError, TimeoutError) as error:
                return _failed(query, error)
        return self._filled(query, hops, context)

    def _filled(self, query: Query, hops: Sequence[Hop], context: RetrievalContext) -> Transformed:
        passages = [hit.document.searchable for hit in context]
        names = [name for name in bridge_entities(query.text, passages, MOST_NAMES) if len(name) <= _LONGEST_NAME]
        variants = (Variant(hops[1].filled(name), "bridge", self.weight) for name in names)
        detail = f"{hops[0].text!r:.200} may be {', '.join(names)}" if names else "no name found for the first step"
        degraded = tuple(f"the search for the first step: {cause}" for cause in context.degraded)
        return Transformed(query, distinct(variants, query.text), detail, degraded)


def _first(query: Query, hops: Sequence[Hop]) -> Query:
    return replace(query, text=hops[0].text, history=())


def _seconds(account: Spending) -> float:
    seconds = account.left(_HOP_SECONDS)
    if seconds <= 0:
        raise TimeoutError("no time was left")
    return seconds


def _failed(query: Query, error: Exception) -> Transformed:
    message = f"the search for the first step failed, the chain is not followed: {describe(error)}"
    log.warning("%s", message)
    return Transformed(query, degraded=(message,))
