"""Recommends the strategy that ``auto`` uses; in its heuristic profile, by the wording of a query.

The wording needs no model and no index, and is deterministic. The first rule that applies decides:

1. a word of comparison (*difference*, *versus*, 区别, плюсы и минусы …) and something compared, which `RuleDecomposer`
   then separates -> ``decomposition``;
2. a question: it ends in a question mark or opens with a question word -> ``hyde``. Chinese leaves the question word
   where the answer would stand (环保设备是什么), so there it counts anywhere;
3. fewer than 5 words -> ``multi_query``; 1.6 Chinese characters count as one;
4. anything else -> ``hybrid``.

Confidences are the seed's: they order the strategies and are not measured probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pointsman.text.grammar import COMPARISON, asks, count, plain
from pointsman.text.grammar.comparison import comparison
from pointsman.tools.errors import InputError
from pointsman.values.reasons import Reason, language_of
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pointsman.retrieval.plan.recipe import Recipe

SHORT: Final = 5
"""The number of words from which a query is no longer short."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A strategy for a query, and why.

    Attributes:
        strategy: its name.
        confidence: 0 to 1; see the module.
        reason: in the language of the query if that is Chinese or Russian, otherwise in English.
        alternatives: other usable strategies with their confidences, best first.
    """

    strategy: str
    confidence: float
    reason: str
    alternatives: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``recommended_strategy``, ``confidence``, ``reason``, ``alternatives``."""
        return {
            "recommended_strategy": self.strategy,
            "confidence": self.confidence,
            "reason": self.reason,
            "alternatives": [{"strategy": name, "confidence": sure} for name, sure in self.alternatives],
        }

    def override(self, query: str | Query, recipe: Recipe) -> Recommendation:
        """Return what a recipe does with the query where its wording doesn't decide; the wording is named beside."""
        plan = recipe.plan(list(recipe.sources))
        strategy = recipe.strategy or plan.strategy
        by_wording = {self.strategy: self.confidence, **dict(self.alternatives)}
        wording = Reason.of("wording", strategy=self.strategy) if strategy != self.strategy else ""
        confidence = by_wording.pop(strategy, 0.5) if plan.confidence is None else plan.confidence
        by_wording.pop(strategy, None)
        reason = Reason.join_all(plan.reason, wording, self.reason).in_language(language_of(Query.of(query).text))
        return Recommendation(strategy, confidence, reason, tuple(by_wording.items()))


_PLAIN = (("hybrid", 0.75), ("vector", 0.5), ("bm25", 0.45))
"""Strategies that suit any query; the list of every rule ends with these."""

_COMPARES = (("decomposition", 0.9), ("hybrid", 0.75), ("query2doc", 0.65), *_PLAIN[1:])
_ASKS = (("hyde", 0.85), ("hybrid", 0.75), ("multi_query", 0.7), *_PLAIN[1:])
_IS_SHORT = (("multi_query", 0.8), ("hybrid", 0.75), ("bm25", 0.6), ("vector", 0.5))
_DEFAULT = (("hybrid", 0.75), ("query2doc", 0.6), *_PLAIN[1:])
"""The results of the rules: strategies with confidences, best first."""


def recommend(
    query: str | Query,
    available: Collection[str] | None = None,
    *,
    why_not: Mapping[str, str] | None = None,
) -> Recommendation:
    """Recommend a strategy by the rules above; linear in the length of the query.

    Args:
        query: the query; an empty one is short.
        available: the usable strategies; all by default. If the rules choose another one, the next best is recommended,
            and the reason says so.
        why_not: by strategy name, what the unusable ones lack; for the reason.

    Raises:
        InputError: no strategy is available, or the query is not text.

    >>> found = recommend("什么是环保设备?")
    >>> found.strategy, found.confidence, found.alternatives[:2]
    ('hyde', 0.85, (('hybrid', 0.75), ('multi_query', 0.7)))
    >>> recommend("What is the difference between RRF and DBSF?", {"hybrid", "bm25"}).strategy
    'hybrid'
    """
    text = Query.of(query).text
    if available is not None and (isinstance(available, str) or not available):
        raise InputError(f"available names the strategies that can be used, at least one; not {available!r:.80}")
    rule, reason = _rule_for(text)
    usable = [strategy for strategy in rule if available is None or strategy[0] in available]
    if not usable:  # only user-defined strategies
        usable = [(min(available or ()), 0.5)]
    strategy, confidence = usable[0]
    names = [name for name, _ in rule]
    if skipped := names[: names.index(strategy)] if strategy in names else names:
        lacks = dict.fromkeys(why_not[name] for name in skipped if why_not and name in why_not)
        unmet = Reason.of("passed_over", names=", ".join(skipped), strategy=strategy)
        reason = Reason.join_all(reason, unmet, *lacks)
    reason = reason.in_language(language_of(text))
    return Recommendation(strategy, confidence, reason, tuple(usable[1:]))


def _rule_for(text: str) -> tuple[Sequence[tuple[str, float]], Reason]:
    """The result of the first rule that applies, and what triggered it."""
    full_text, text = text, plain(text)
    if (word := COMPARISON.first(text)) and (compares := comparison(full_text)):
        return _COMPARES, Reason.of("compares", cue=compares.cue or word.text)
    if cue := asks(text):
        return _ASKS, Reason.of("ends_asking") if cue == "?" else Reason.of("asks", cue=cue)
    words = count(text)
    return (_IS_SHORT, Reason.of("short", cue=words)) if words < SHORT else (_DEFAULT, Reason.of("neither"))
