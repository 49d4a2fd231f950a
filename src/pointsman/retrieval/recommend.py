"""Which strategy a query asks for, by how it looks (I5): the heuristic profile of ``auto``, and what I8 answers.

No model and no index, and the same answer every time. The rules, the first that applies:

1. a word of comparison (*difference*, *versus*, 区别, плюсы и минусы …) -> ``decomposition``;
2. a question: it ends in a question mark or opens with a question word -> ``hyde``. Chinese leaves the question word
   where the answer would stand (环保设备是什么), so there it counts anywhere;
3. fewer than 5 words -> ``multi_query``; Chinese words are counted as `pointsman.selector.heuristic` does, some 1.6
   characters to a word;
4. anything else -> ``hybrid``.

Confidences are the seed's: an order among strategies, not measured probabilities.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import InputError
from pointsman.text import detect, fold
from pointsman.types import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SHORT: Final = 5
"""Words from which on a query is not short."""

_HAN_PER_WORD = 1.6
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN_RUN = re.compile(f"[{_HAN}]+")
_WORD = re.compile(r"\w+(?:['’\-]\w+)*+")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

# All of these are searched in folded text: lower case, ё as е, simplified characters, half-width punctuation.

_COMPARISON = re.compile(
    r"\b(?:compar(?:e[ds]?|ing|isons?)|differ(?:s|ed|ing|ences?)?|different (?:from|to|than)|distinctions? between"
    r"|distinguish(?:es)?|versus|vs|pros (?:and|&) cons|(?:dis)?advantages and (?:dis)?advantages"
    r"|strengths and weaknesses|(?:which|what) (?:one )?is better|better than"
    r"|сравн(?:и|им|ить|ите|ивать|ивая|ивает|ивают|ение|ения|ению|ением|ении|ительн\w{2,4})"
    r"|(?:в )?отличи(?:е|я|и|ем|ю|ях|й|ями)|отлича(?:ется|ются|ть|ться|лся|лась|лось|лись|ют|ет)"
    r"|разниц(?:а|у|ы|е|ей)|различи(?:е|я|и|ем|ю|ях|й|ями)|различа(?:ется|ются|ть|ться|ют|ет)"
    r"|плюсы и минусы|минусы и плюсы|плюсов и минусов|плюсах и минусах|за и против"
    r"|(?:преимуществ|достоинств)(?:а|ах)? и недостат(?:ки|ков|ках)|(?:что|кто|какой|какая|какое|какие) лучше"
    r"|лучше чем)\b"
)
# 比较好 is merely "rather good" and 比较器 a comparator, unless 哪个 asks which one is.
_COMPARISON_HAN = re.compile(
    "(?:哪[个种款家台部门者一]|谁)(?:更|比较|最)"
    "|比较(?![器级法好大小多少高低快慢强弱贵难新老]|文学|便宜|容易|简单|适合|常见|重要|复杂|有名|明显)"
    "|差异(?!化)|差别|区别|优缺点|优劣|优点和缺点|利弊|对比(?!度)|异同|不同点|不同之处|有[何什]么?不同|相比"
)

_ENDS_ASKING = re.compile(r"[?؟][\s!.…\"'”’»)\]}」』】）]*\Z")
_OPENING = re.compile(
    r"[\W_]*+(?:(?:and|but|so|or|well|а|и|но|ну|вот)\b[\W_]*+)?"
    r"(?:"
    r"(?:(?:in|on|at|to|for|from|with|by|of|under|about) )?(?:what|who|whom|whose|which|when|where|why|how)\b"
    r"|(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have|had|am|may|must)(?:n[’']t)? "
    r"(?:i|you|he|she|it|we|they|there|this|that|these|those|the|an?|my|your|our|their|his|her|its|one"
    r"|any(?:one|body|thing)?|some(?:one|body|thing)?|people)\b"
    r"|(?:(?:в|во|на|о|об|с|со|к|ко|по|из|от|до|для|у|за|под|над|при|про|через|без) )?"
    r"(?:что(?! касается)|чего|чему|чем|кто|кого|кому|кем|ком|почему|отчего|зачем|как|какой|какая|какое|какие|какого"
    r"|какую|каком|каким|каких|какими|какова?|каковы|где|куда|откуда|когда|сколько|скольким|чей|чья|чье|чьи|чьего"
    r"|неужели|разве|который|которая|которое|которые)\b"
    r"|\w+ ли\b"
    r")"
)
_ASKING_HAN = re.compile(
    "为什么|为甚么|什么|甚么|为啥|有啥|怎[么样]|(?<!无论)(?<!不论)如何|为何|何时|何地|何处|何种|何谓|谁|哪(?![吒咤怕])|多少|多[久长大远高](?![期度])|请问"
    "|几(?:个|种|次|年|时|点|天|位)|是否|能否|可否|能不能|可不可以|是不是|有没有|会不会|[吗么呢]\\W*\\Z"
)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A strategy for a query, and why.

    Attributes:
        strategy: its name.
        confidence: from 0 to 1; see the module.
        reason: in the language of the query, English unless that is Chinese or Russian.
        alternatives: other strategies that can be used, with their confidences, best first.
    """

    strategy: str
    confidence: float
    reason: str
    alternatives: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As I8 answers: ``recommended_strategy``, ``confidence``, ``reason``, ``alternatives``."""
        return {
            "recommended_strategy": self.strategy,
            "confidence": self.confidence,
            "reason": self.reason,
            "alternatives": [{"strategy": name, "confidence": sure} for name, sure in self.alternatives],
        }


@dataclass(frozen=True, slots=True)
class _Rule:
    """What follows where a rule applies: strategies with confidences, best first, and the reason by language."""

    strategies: tuple[tuple[str, float], ...]
    reasons: Mapping[str, str]


_PLAIN = (("hybrid", 0.75), ("vector", 0.5), ("bm25", 0.45))
"""What answers any query; every rule ends in these."""

_COMPARES = _Rule(
    (("decomposition", 0.9), ("hybrid", 0.75), ("query2doc", 0.65), *_PLAIN[1:]),
    {
        "en": "“{cue}” compares: each side is looked up by a question of its own",
        "zh": "比较词“{cue}”：适合拆成子问题，分别检索",
        "ru": "«{cue}» — сравнение: каждая сторона ищется отдельным вопросом",
    },
)
_ASKS = _Rule(
    (("hyde", 0.85), ("hybrid", 0.75), ("multi_query", 0.7), *_PLAIN[1:]),
    {
        "en": "a question, as it {cue}: an answer written for it finds the passages that answer alike",
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
_INSTEAD: Final = {
    "en": "{reason}; but {unmet} cannot be used, so it is {strategy}",
    "zh": "{reason}；但{unmet}不可用，因此改用{strategy}",
    "ru": "{reason}; но {unmet} недоступно, поэтому {strategy}",
}


def recommend(
    query: str | Query,
    available: Collection[str] | None = None,
    *,
    why_not: Mapping[str, str] | None = None,
) -> Recommendation:
    """The strategy for a query by the rules above; linear in its length.

    Args:
        query: what is asked; an empty one is short.
        available: the strategies that can be used; all unless given. Where the one that the rules name is not among
            them, the next best is recommended, and the reason says so.
        why_not: what the others lack, by name, for the reason.

    Raises:
        InputError: nothing is available, or the query is no text.

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
    language = language if language in _INSTEAD else "en"
    rule, cue = _rule_for(text, language)
    reason = rule.reasons[language].format(cue=cue)
    usable = [one for one in rule.strategies if available is None or one[0] in available]
    if not usable:  # strategies of the user's own alone
        usable = [(min(available or ()), 0.5)]
    strategy, confidence = usable[0]
    passed_over = [name for name, _ in rule.strategies[: _place(rule, strategy)]]
    if passed_over:
        unmet = ", ".join(_told(name, why_not or {}) for name in passed_over)
        reason = _INSTEAD[language].format(reason=reason, unmet=unmet, strategy=strategy)
    return Recommendation(strategy, confidence, reason, tuple(usable[1:]))


def _place(rule: _Rule, strategy: str) -> int:
    names = [name for name, _ in rule.strategies]
    return names.index(strategy) if strategy in names else len(names)


def _told(name: str, why_not: Mapping[str, str]) -> str:
    return f"{name} ({why_not[name]})" if name in why_not else name


def _rule_for(text: str, language: str) -> tuple[_Rule, str]:
    """The first rule that applies, and what made it apply."""
    folded = fold(_UNSEEN.sub(" ", text))
    # Chinese writes no spaces, and in 苹果vs香蕉 the word stands alone.
    apart = folded if folded.isascii() else _HAN_RUN.sub(" ", folded)
    found = _COMPARISON.search(apart) or (None if apart is folded else _COMPARISON_HAN.search(folded))
    if found:
        return _COMPARES, found[0]
    if _ENDS_ASKING.search(folded[-100:]):
        return _ASKS, _CUES["mark"][language]
    asked = _OPENING.match(apart)
    if asked and not (apart is not folded and _HAN_RUN.match(folded.lstrip())):
        return _ASKS, _CUES["word"][language].format(" ".join(_WORD.findall(asked[0])))
    if apart is not folded and (han := _ASKING_HAN.search(folded)):
        return _ASKS, _CUES["word"][language].format(" ".join(_WORD.findall(han[0])))
    words = _count(apart, folded)
    return (_IS_SHORT, str(words)) if words < SHORT else (_DEFAULT, "")


def _count(apart: str, folded: str) -> int:
    """Words, those of Chinese by their usual length."""
    han = 0 if apart is folded else sum(map(len, _HAN_RUN.findall(folded)))
    return len(_WORD.findall(apart)) + math.ceil(han / _HAN_PER_WORD)
