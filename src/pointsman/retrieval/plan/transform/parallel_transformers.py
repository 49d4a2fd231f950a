"""Runs several transformers of one query in parallel, within one budget."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup, Transformed, bound, distinct
from pointsman.retrieval.refine.budget import Budget, spending
from pointsman.tools.parallel_calls import DualCall, Mode, describe, sync_and_async
from pointsman.values.types import Query

if TYPE_CHECKING:
    from pointsman.retrieval.run.variant import Variant

log = logging.getLogger(__name__)

_GRACE: Final = 1.1


class Together(BaseTransformer):
    """Runs independent transformers in parallel; returns the variants of all, in the order of the steps.

    Every step receives the original query, so this is for steps that add variants, not for steps that rewrite the
    query. A step that fails or is late is reported in ``degraded``; the variants of the others count.

    Args:
        steps: at least one.
        budget: what they may spend on a model; if an account is already active, they spend from that.
    """

    def __init__(self, *steps: BaseTransformer, budget: Budget | None = None) -> None:
        self.steps, self.budget = steps, budget or Budget()

    def over(self, lookup: Lookup) -> Together:
        """Return a copy with every step bound to the same sources."""
        return Together(*bound(self.steps, lookup), budget=self.budget)

    async def _transform(self, mode: Mode, query: str | Query) -> Transformed:
        """See `BaseTransformer`."""
        query = Query.of(query)
        with spending(self.budget) as account:
            calls = [DualCall(partial(step.transform, query), partial(step.atransform, query)) for step in self.steps]
            remaining = account.left()  # a model's own limit comes first, and its error names the setting
            outcomes = await mode.all(calls, None if remaining is None else _GRACE * remaining + 0.05)
        variants: list[Variant] = []
        details: dict[str, None] = {}
        degraded: dict[str, None] = {}
        for step, outcome in zip(self.steps, outcomes, strict=True):
            if outcome.answer is None:
                cause = describe(outcome.error or RuntimeError("it gave no answer"))
                message = f"{type(step).__name__} failed and was skipped: {cause}"
                log.warning("%s", message)
                degraded[message] = None
                continue
            variants += outcome.answer.variants
            details |= dict.fromkeys(filter(None, [outcome.answer.detail]))
            degraded |= dict.fromkeys(outcome.answer.degraded)
        return Transformed(query, distinct(variants, query.text), "; ".join(details), tuple(degraded))

    transform, atransform = sync_and_async(_transform)
