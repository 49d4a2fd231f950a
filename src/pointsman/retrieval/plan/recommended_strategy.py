"""Recommends a strategy by the wording of a query, as the heuristic profile of ``auto`` does.

Uses no model and no index, and is deterministic. The first rule that applies decides:

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

from pointsman.text import detect
from pointsman.text.grammar import COMPARISON, asks, count, plain
from pointsman.text.grammar.comparison import comparison
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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


@dataclass(frozen=True, slots=True)
class _Rule:
    """The result of a rule: strategies with confidences, best first, and the reason by language."""

    strategies: tuple[tuple[str, float], ...]
    reasons: Mapping[str, str]


_PLAIN = (("hybrid", 0.75), ("vector", 0.5), ("bm25", 0.45))
"""Strategies that suit any query; the list of every rule ends with these."""

_COMPARES = _Rule(
    (("decomposition", 0.9), ("hybrid", 0.75), ("query2doc", 0.65), *_PLAIN[1:]),
    {
        "en": "“{cue}” compares: each side is searched by its own question",
        "zh": "比较词“{cue}”：适合拆成子问题，分别检索",
        "ru": "«{cue}» — сравнение: каждая сторона ищется отдельным вопросом",
    },
)
_ASKS = _Rule(
    (("hyde", 0.85), ("hybrid", 0.75), ("multi_query", 0.7), *_PLAIN[1:]),
    {
        "en": "a question, as it {cue}: a generated answer finds similar passages",
        "zh": "疑问句（{cue}）：适合用HyDE，以假设答案检索",
        "ru": "вопрос ({cue}): гипотетический ответ находит похожие на него тексты",
    },
)
_IS_SHORT = _Rule(
    (("multi_query", 0.8), ("hybrid", 0.75), ("bm25", 0.6), ("vector", 0.5)),
    {
        "en": "a short query, its words: {cue}; several ways to say it find more",
        "zh": "短查询（约{cue}个词）：多种说法可以找到更多",
        "ru": "короткий запрос, слов: {cue}; несколько формулировок найдут больше",
    },
)
_DEFAULT = _Rule(
    (("hybrid", 0.75), ("query2doc", 0.6), *_PLAIN[1:]),
    {
        "en": "neither a comparison, nor a question, nor short: keyword and vector search together",
        "zh": "既非比较，也非疑问句，也不短：关键词与向量混合检索",
        "ru": "не сравнение, не вопрос и не короткий запрос: поиск по словам и векторам вместе",
    },
)
_CUES: Final = {
    "mark": {"en": "ends in a question mark", "zh": "问号结尾", "ru": "в конце вопросительный знак"},
    "word": {"en": "opens with “{}”", "zh": "疑问词“{}”", "ru": "вопросительное слово «{}»"},
}
_UNMET_TEXTS: Final = {
    "en": "{reason}; but {unmet} cannot be used, so {strategy} is recommended",
    "zh": "{reason}；但{unmet}不可用，因此改用{strategy}",
    "ru": "{reason}; но {unmet} недоступно, поэтому {strategy}",
}


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
    language = detect(text)
    language = language if language in _UNMET_TEXTS else "en"
    rule, cue = _rule_for(text, language)
    reason = rule.reasons[language].format(cue=cue)
    usable = [strategy for strategy in rule.strategies if available is None or strategy[0] in available]
    if not usable:  # only user-defined strategies
        usable = [(min(available or ()), 0.5)]
    strategy, confidence = usable[0]
    passed_over = [name for name, _ in rule.strategies[: _position_of(rule, strategy)]]
    if passed_over:
        unmet = ", ".join(_with_reason(name, why_not or {}) for name in passed_over)
        reason = _UNMET_TEXTS[language].format(reason=reason, unmet=unmet, strategy=strategy)
    return Recommendation(strategy, confidence, reason, tuple(usable[1:]))


def _position_of(rule: _Rule, strategy: str) -> int:
    names = [name for name, _ in rule.strategies]
    return names.index(strategy) if strategy in names else len(names)


def _with_reason(name: str, why_not: Mapping[str, str]) -> str:
    return f"{name} ({why_not[name]})" if name in why_not else name


def _rule_for(text: str, language: str) -> tuple[_Rule, str]:
    """The first rule that applies, and the text that triggered it."""
    full_text, text = text, plain(text)
    if (word := COMPARISON.first(text)) and (compares := comparison(full_text)):
        return _COMPARES, compares.cue or word.text
    if cue := asks(text):
        return _ASKS, _CUES["mark"][language] if cue == "?" else _CUES["word"][language].format(cue)
    words = count(text)
    return (_IS_SHORT, str(words)) if words < SHORT else (_DEFAULT, "")
