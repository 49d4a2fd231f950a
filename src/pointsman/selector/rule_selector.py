"""`RuleSelector`: selects the choice with the most points from rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    as_choice,
)
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

Rule = Callable[[Query, ToolMetadata], float]
"""Returns the points of a choice for a query; 0 if the rule does not apply."""


class RuleSelector(BaseSelector):
    """Selects the choice with the highest sum over all rules; ties go to the first.

    It is deterministic, takes microseconds, and gives its rules as the reason. If no rule gives any points, nothing is
    decided: the first choice is selected and ``fallback`` says so, or, with ``allow_abstain``, none.

    ``confidence`` is the selected choice's share of all points above zero (two choices with 10 points each: 0.5), and 0
    if there are none. It measures how far the choice stands out, not how often it is right.
    """

    def __init__(self, rules: Sequence[Rule], *, allow_abstain: bool = False) -> None:
        """Set the rules; see `pointsman.selector.predefined_rules` for predefined ones.

        Args:
            rules: functions ``(query, choice) -> float``.
            allow_abstain: select nothing when no rule applies, instead of the first choice.

        Raises:
            InputError: there is no rule, or one is not callable.
        """
        if callable(rules) or not rules:
            raise InputError(f"rules are a list of at least one function (query, choice) -> float, not {rules!r:.80}")
        for rule in rules:
            if not callable(rule):
                raise InputError(f"a rule is a function (query, choice) -> float, not {rule!r:.80}")
        self.rules = tuple(rules)
        self.allow_abstain = allow_abstain

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """Return the sum of all rules for every choice, in the order of the choices (as needed by `HybridSelector`).

        Raises:
            InputError: a rule raised, or did not return a finite number; the message names it.
        """
        query = Query.of(query)
        return [math.fsum(_points(rule, query, choice) for rule in self.rules) for choice in map(as_choice, choices)]

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Select the choice with the most points.

        Raises:
            InputError: choices or query are invalid, or a rule failed; the message names it.
        """
        scores = self.scores(choices, query)
        best = max(range(len(scores)), key=scores.__getitem__)  # ties go to the first
        fallback = None
        if not any(scores):
            if self.allow_abstain:
                return SelectorResult(())
            fallback = Fallback("no rule gives any choice a point", "first")
        points = math.fsum(score for score in scores if score > 0)
        confidence = max(scores[best], 0.0) / points if points else 0.0
        selection = SingleSelection(best, f"Rule score: {scores[best]:.2f}", scores[best])
        return SelectorResult([selection], confidence, fallback)


def _points(rule: Rule, query: Query, choice: ToolMetadata) -> float:
    name = getattr(rule, "__name__", type(rule).__name__)
    try:
        points = float(rule(query, choice))
    except Exception as error:
        raise InputError(f"rule {name!r} failed on choice {choice.name!r}: {type(error).__name__}: {error}") from error
    if not math.isfinite(points):
        raise InputError(f"rule {name!r} gave choice {choice.name!r} {points} points; expected a finite number")
    return points
