"""`router_select`: keyword search, vector search or both, decided by how a query looks (H1-H5).

No model, no index, no dependency: three regular expressions, word lists for English, Chinese and Russian, a few
microseconds, and the same answer every time. The rules, the first that applies:

1. a filter such as ``channel:`` or ``после:`` -> hybrid, ``filters_or_mixed_signals``;
2. a number, date or entity together with a conversational word -> hybrid, ``filters_or_mixed_signals``;
3. very short (under 16 characters) without a function word, or short (up to 40) with a number, date or entity -> bm25,
   ``short_or_entity_numeric``;
4. a conversational word, or longer than 120 characters -> dense, ``conversational_or_long``;
5. a number, date or entity -> hybrid, ``mixed_signals``;
6. anything else -> dense, ``default_dense``.

Chinese writes no spaces, and a character says as much as several letters, so length is counted in words there: some
1.6 characters make a word, and a word counts as the 6 characters that one takes up in English with its space. That
makes 16, 40 and 120 characters 4, 10 and 32 Chinese ones.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypedDict

from pointsman.errors import InputError
from pointsman.text._stopwords import ENGLISH, RUSSIAN

Route = Literal["bm25", "dense", "hybrid"]


class RouteChoice(TypedDict):
    """The route, and why."""

    route: Route
    reasons: list[str]


ROUTER_SELECT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "router_select",
        "description": (
            "Choose how to search before searching: bm25 for exact terms, numbers and names, dense for questions and "
            "descriptions in natural language, hybrid for both. Answers with the route and the reasons for it."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The user's query as it was written, in any language."}
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    },
}
"""`router_select` as a tool for agents: what OpenAI-compatible servers take in ``tools`` (H5)."""

_VERY_SHORT, _SHORT, _LONG = 16, 40, 120
_BEGINNING = 1000
_LETTERS_PER_HAN = 6 / 1.6

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

# Whether there is a match is all that is asked, and so each of the seed patterns may stop where that is certain:
#   numbers   \b\d+[\d\-:\./]*\b              has a match just where a whole run of digits stands between boundaries
#   dates     \b(\d{4}[\-/]\d{1,2}…)\b        begin with such a run: a date is a number too
#   entities  [@#][\w_]+|https?://\S+         one character of either is enough
# As they are they take quadratic time on "111…1a", where every split of the run is tried. They begin with a character
# that is not looked for at a boundary, but looked back from: so the search skips to it instead of trying every place.
_NUMBER = re.compile(r"\d(?<!\w.)\d*+(?!\w)", re.DOTALL)
_ENTITY = re.compile(r"[@#＠＃h](?:(?<=[@#＠＃])\w|ttps?://\S)")
_FILTERS = (
    "channel date after before since until канал дата после до перед 频道 頻道 日期 之后 之後 以后 以後 之前 以前"
)
# Looked for in the text read backwards: colons are rare, and what stands before one is then a plain choice of words.
_FILTER = re.compile(f"[:：](?:{'|'.join(name[::-1] for name in _FILTERS.split())})(?![^\\W{_HAN}])")
_WORD = re.compile(r"\w+")
_HAN_RUN = re.compile(f"[{_HAN}]+")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")

_CUES = """
    what why how who whom whose which when where explain describe tell please

    что чего чему чем кто кого кому кем почему отчего зачем как какой какая какое какие какого каких каким какую каков
    какова каково каковы где куда откуда когда сколько чей чья чье чьё чьи ли объясни объясните поясни поясните опиши
    опишите расскажи расскажите подскажи подскажите скажи скажите пожалуйста
    """
_CONVERSATIONAL = frozenset(_CUES.split())
# There are no spaces to find Chinese words by, so what only looks like a cue is named: 解释器 is an interpreter.
_CONVERSATIONAL_HAN = re.compile(
    "什么|什麼|甚麼|为啥|為啥|有啥|怎|如何|为何|為何|何时|何時|何地|何处|何處|何种|何種|何谓|何謂|谁|誰|哪(?!吒)|多少|请问|請問"
    "|几(?:个|种|次|年|时|点|天|位)|幾(?:個|種|次|年|時|點|天|位)|是否|能否|可否|能不能|是不是|有没有|有沒有"
    "|吗(?![啡丁])|嗎(?![啡丁])|呢(?![绒喃絨])|(?<!司法)(?<!立法)(?:解释|解釋)(?![器型学學权權变變])|请说明|請說明|说明一下|說明一下"
    "|告诉我|告訴我|介绍一下|介紹一下|描述一下|讲一下|讲讲|講講|谈谈|談談"
)
_FUNCTION = (ENGLISH | RUSSIAN | _CONVERSATIONAL) - {"один", "раз"}
_FUNCTION_HAN = re.compile("[的了和与與及或是在从從把被让讓给給]")
_NO_FUNCTION_HAN = re.compile(  # words that such a character is a part of
    "目的|标的|標的|的士|的确|的確"
    "|了解|了结|和[平谐諧解服睦声聲弦牌]|[共温溫柔缓緩饱飽总總调調]和|与会|與會|参与|參與|给予|及[时時格]|普及|涉及|以及|或[者许許]|是非|但是|于是"
    "|在线|在線|在职|在職|存在|现在|現在|内在|內在|外在|潜在|潛在|从[业業事]|從[業事]|把[握手]|被[子告动動]|[转轉]让|给付|供给|供給"
)


def router_select(query: str) -> RouteChoice:
    """Choose between bm25, dense and hybrid search by the look of a query (H1-H4).

    Linear in the length of the query; the empty one is very short.

    Returns:
        ``{"route": "bm25" | "dense" | "hybrid", "reasons": [...]}``.

    Raises:
        InputError: the query is no string.

    >>> router_select("дата создания")
    {'route': 'bm25', 'reasons': ['short_or_entity_numeric']}
    >>> router_select("为什么天空是蓝色的")
    {'route': 'dense', 'reasons': ['conversational_or_long']}
    """
    if not isinstance(query, str):
        raise InputError(f"a query is a str, not {type(query).__name__}: {query!r:.80}")
    text = query.lower()
    # Chinese characters are letters to a regular expression, but in 2024年计划 and 用python写 the words stand alone.
    plain = text if text.isascii() else _HAN_RUN.sub(" ", text)
    has_han = plain != text
    if (":" in text or "：" in text) and _FILTER.search(text[::-1]):
        return {"route": "hybrid", "reasons": ["filters_or_mixed_signals"]}
    exact = _NUMBER.search(plain) is not None or _ENTITY.search(text) is not None
    length = _length(text, has_han=has_han)
    if length > _LONG and not exact:  # decided, and the words of a book need not be looked at
        return {"route": "dense", "reasons": ["conversational_or_long"]}
    words = _WORD.findall(plain)
    conversational = not _CONVERSATIONAL.isdisjoint(words) or (has_han and _CONVERSATIONAL_HAN.search(text) is not None)
    if exact and conversational:
        return {"route": "hybrid", "reasons": ["filters_or_mixed_signals"]}
    if (exact and length <= _SHORT) or (length < _VERY_SHORT and not conversational and not _is_phrase(text, words)):
        return {"route": "bm25", "reasons": ["short_or_entity_numeric"]}
    if conversational or length > _LONG:
        return {"route": "dense", "reasons": ["conversational_or_long"]}
    return (
        {"route": "hybrid", "reasons": ["mixed_signals"]} if exact else {"route": "dense", "reasons": ["default_dense"]}
    )


def _length(text: str, *, has_han: bool) -> float:
    """Characters that can be seen, runs of white space as one, Chinese ones by the words that they make."""
    if len(text) > _BEGINNING:
        beginning = _length(text[:_BEGINNING], has_han=has_han)
        if beginning > _LONG:  # how much longer changes nothing
            return beginning
    if not text.isprintable():
        text = _UNSEEN.sub(" ", text)
    text = " ".join(text.split())
    han = sum(map(len, _HAN_RUN.findall(text))) if has_han else 0
    return len(text) + han * (_LETTERS_PER_HAN - 1)


def _is_phrase(text: str, words: list[str]) -> bool:
    """Whether a function word joins the others: *кот в шляпе*, *猫的历史*."""
    if not _FUNCTION.isdisjoint(words):
        return True
    return not text.isascii() and _FUNCTION_HAN.search(_NO_FUNCTION_HAN.sub(" ", text)) is not None
