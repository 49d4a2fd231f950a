"""The additions of the automatic choice that were measured to improve results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.policy import measured
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, QueryTransformer
from pointsman.retrieval.plan.transform.decompose_by_rules import RuleDecomposer
from pointsman.retrieval.plan.transform.question_chains import BridgeFinder
from pointsman.retrieval.plan.transform.spelling_corrector import Corrector

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pointsman.retrieval.plan.policy import EffortLimits, EffortName

PART_WEIGHT: Final = 0.5

BY_EFFORT: Final[Mapping[str, Collection[str]]] = {
    "fast": (),
    "balanced": ("spelling",),
    "thorough": ("spelling", "parts", "bridges"),
}
"""The additions of each effort; names, gains and costs are in ``policy.json``."""


def additions(effort: EffortName | EffortLimits) -> tuple[str, ...]:
    """The additions of ``auto`` at this effort; under `EffortLimits`, those that fit, by gain per millisecond."""
    figures = measured().additions
    if isinstance(effort, str):
        return tuple(name for name in figures if name in BY_EFFORT[effort])
    budget = math.inf if effort.milliseconds is None else effort.milliseconds
    names = []
    for name in sorted(figures, key=lambda addition: figures[addition]["gain"] / figures[addition]["ms"], reverse=True):
        if figures[name]["ms"] <= budget:
            budget -= figures[name]["ms"]
            names.append(name)
    return tuple(names)


def transformer(additions: Collection[str]) -> BaseTransformer | None:
    """The transformer that makes these additions to a query; None if there are none."""
    steps: list[BaseTransformer] = []
    if "spelling" in additions:
        steps.append(Corrector())
    if "parts" in additions:
        steps.append(RuleDecomposer(weight=PART_WEIGHT))
    if "bridges" in additions:
        steps.append(BridgeFinder(weight=PART_WEIGHT))
    if len(steps) == 1:
        return steps[0]
    return QueryTransformer(*steps) if steps else None
