"""Parses text that a language model has written for a search, and checks whether it is usable.

For all uses where a model writes queries or passages: decomposition, expansion, disambiguation, HyDE, Query2Doc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pointsman.llm.loose_json import Object, find_values
from pointsman.llm.model_answers import DefectError, finished_answer
from pointsman.text import DEFAULT_ANALYZER, detect, fold, repair, scripts
from pointsman.tools.late_regex import late

LONGEST = 4_000
"""The longest generation, in characters, that is accepted as an answer."""

_REFUSAL = late(
    r"(?:i['’]?m sorry|(?:i am |we are )?sorry\b|i apologi[sz]e|unfortunately,? i\b"
    r"|i (?:can(?:no|['’])t|can not|cannot|am unable|am not able|won['’]?t|will not|do not have"
    r"|don['’]t have|must decline)"
    r"|i['’]m (?:unable|not able)|as an? (?:ai|artificial|large|language)\b"
    r"|(?:很|非常)?抱歉|对不起|不好意思|作为(?:一个|一名)?(?:人工智能|ai|语言模型|大?语言|大模型)"
    r"|我(?:无法|不能|没有办法|没法)"
    r"|无法(?:回答|提供|完成|处理|生成|满足|协助|确定)"
    r"|извините|простите|прошу прощения|к сожалению,? я\b|(?:я )?не (?:могу|в состоянии|имею возможности)"
    r"|как (?:языковая модель|искусственный интеллект|ии)\b|я (?:лишь|всего лишь|только) (?:языковая )?модель)"
)
_ERROR = late(
    r"(?:[\[({\"'*#]*(?:fatal |internal |api |server |http |runtime |unknown |llm |model )*(?:error|exception)\b[\"']?"
    r"(?: (?:code|type|message|status|occurred)\b)?\s*(?:[:：#=\]]|\d{3}\b|$)"
    r"|[\w.]+(?:error|exception):|traceback \(most recent|http(?:/\d(?:\.\d)?)? [45]\d\d\b"
    r"|(?:error )?[45]\d\d[:\s-]+(?:too many|internal|service|bad (?:request|gateway)|unauthori|forbidden|gateway)"
    r"|(?:错误|出错了|发生错误|请求失败|服务(?:器)?(?:繁忙|异常|不可用|错误))"
    r"|(?:произошла )?(?:внутренняя )?ошибка(?: сервера| запроса)?\s*(?:[:：#]|\d{3}\b|$))"
)
"""How an error message begins."""
_FAILURE = late(
    r"rate[ _-]?limit(?:s|ed)?[ _](?:exceeded|reached|error)|too many requests|internal server error"
    r"|service (?:is )?(?:temporarily )?unavailable|exceeded your (?:current )?quota|overloaded_error"
    r"|(?:quota|context length|token limit) (?:was |is |has been )?exceeded|(?:invalid|incorrect) api[ _]key"
    r"|upstream connect error|connection (?:refused|reset by)|gateway time-?out|(?:request|connection) timed out"
    r"|model (?:is )?(?:currently )?overloaded|请求过于频繁|请求频率|超出(?:配额|限制|限额)"
    r"|превышен (?:лимит|предел)|слишком много запросов|сервис (?:временно )?недоступен"
)
"""What a failing service says; as a passage may say it in passing, only short texts are judged by it."""
_SHORT: Final = 200
_LEAD = late(r"^[\s\W_]*(?:(?:well|oh|hmm|hello|но|увы|您好|你好)[\s,.，。!！]+)?")
_PLACEHOLDER = late(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|\[/?(?:inst|sys)\]|<</?sys>>"
    r"|^#{2,3} ?(?:response|instruction|assistant|system|user|human)\b:?"
    r"|^(?:assistant|system|user|human)\s?:"
    r"|\$\{?[a-z_]{2,20}\}?|\{\{?\s?[a-z_]{2,20}\s?\}?\}"
    r"|<(?!/?(?:a|b|i|p|div|span|br|li|ul|ol|td|tr|th|h[1-6]|em|strong|code|pre|html|body|head|table|form"
    r"|img)\b)[^\W\d][^<>\n]{1,38}>"
    r"|\[(?:insert|your|query|question|topic|entity|вставьте|ваш|вопрос|插入|在此|问题|此处)[^\[\]\n]{0,40}\]",
    re.IGNORECASE | re.MULTILINE,
)
_WORDS = late(r"[^\W_]+")
_HAN = late("[\u3400-\u9fff]")
_ITEM = late(
    r"\s{0,12}(?:[-*+•·▪◦‣–—]\s+|[（(]?(?:\d{1,2}|[a-zа-я一二三四五六七八九十])[)）.、．:：]\s{0,8})(?=\S)",
    re.IGNORECASE,
)
_LABEL = late(
    r"(?:(?:the )?(?:rewritten|standalone|self-contained|sub-?)?\s?-?(?:question|query|answer|rewrite)"
    r"|sub-?questions?|search quer(?:y|ies)"
    r"|(?:改写后的|子)?(?:问题|查询|回答|答案)|(?:самостоятельный |переписанный |под)?(?:вопрос|запрос"
    r"|ответ))\s?(?:\d{1,2})?\s?[:：]\s*",
    re.IGNORECASE,
)
_FENCE = late(r"\s*(?:```|~~~)")
_WRAP = "\"'`“”„‘’«»「」『』*_ \t"
_QUESTION = late(r"[?？]\W*$")


def usable(text: str, query: str, prompt: str = "", *, longest: int = LONGEST) -> str | None:
    """Check whether a model's output for a query can be used for a search.

    Args:
        text: the output.
        query: the query that it was generated for.
        prompt: the prompt, as a template or filled in.
        longest: the maximum number of characters accepted.

    Returns:
        None if it is usable; otherwise the reason, in words.

    Example:
        >>> usable("What is a heat shield?", "heat shields"), usable("I'm sorry, but I can't.", "heat shields")
        (None, 'it refuses')
    """
    if not any(map(str.isalnum, text[: longest + 1])):
        return "it is empty"
    if len(text) > longest:
        return f"it is too long ({len(text)} characters)"
    folded_text, folded_query = fold(text), fold(query)
    refusal = _REFUSAL.match(folded_text, _LEAD.match(folded_text).end())  # type: ignore[union-attr]  # it matches the empty string
    if refusal is not None and refusal[0] not in folded_query:
        return "it refuses"
    if prompt and _echoes(folded_text, folded_query, fold(prompt)):
        return "it echoes the prompt"
    if any(fold(match[0]) not in folded_query for match in _PLACEHOLDER.finditer(text)):
        return "it holds a placeholder"
    return _error(folded_text, folded_query) or _other_language(text, query) or _repetition(folded_text)


def strings(text: str, data: Any = None) -> list[str]:
    r"""The texts listed in an answer: JSON in any shape, fenced or not; numbered or bulleted lines; plain lines.

    Args:
        text: the answer.
        data: the same as data, if the model answered under a schema.

    Example:
        >>> strings('Sure: {"queries": ["one", "two"]}'), strings("Here they are:\n1. one\n2) two")
        (['one', 'two'], ['one', 'two'])
    """
    if data is not None and (texts := list(_texts(data))):
        return _clean(texts)
    text = finished_answer(repair(text))
    try:
        containers = find_values(text)
    except DefectError:
        return []
    for container in containers:
        # «the city [of Paris]» has brackets too: a list of bare words is not one of queries
        if (
            isinstance(container.value, Object)
            or text[container.start + 1 : container.start + 40].lstrip()[:1] in _OPENS
        ):
            return _clean(_texts(container.value)) if _lists_queries(container.value) else []
    return _clean(_lines(text))


def _lists_queries(value: Any) -> bool:
    """Whether a JSON value holds queries: a list, or an object that contains one or has a name that says so."""
    if not isinstance(value, Object):
        return True
    return any(
        isinstance(item, list) or _QUERIES.search(str(key)) or (isinstance(item, Object) and _lists_queries(item))
        for key, item in value.pairs
    )


_QUERIES = re.compile(r"quer|question|search|rewrit|answer|text|вопрос|запрос|问题|查询|^\W*\d+\W*$", re.IGNORECASE)
_OPENS = frozenset("\"'“”„«「『‘{[]")


def one(text: str, data: Any = None) -> str:
    """The single text of an answer; empty if there is none."""
    return next(iter(strings(text, data)), "")


def _texts(value: Any, depth: int = 4) -> Iterator[str]:
    """Yields every string value in a JSON value, keys excluded; of an object in a list, only its first string."""
    if isinstance(value, str):
        yield value
    elif not depth:
        return
    elif isinstance(value, Sequence):
        for item in value:
            if isinstance(item, Object | dict):
                yield from list(_texts(item, depth - 1))[:1]
            else:
                yield from _texts(item, depth - 1)
    elif isinstance(value, Object | dict):
        pairs = value.pairs if isinstance(value, Object) else tuple(value.items())
        lists = [item for _, item in pairs if isinstance(item, list)]
        for item in lists[:1] or [item for _, item in pairs]:
            yield from _texts(item, depth - 1)


def _lines(text: str) -> Iterator[str]:
    lines = [line for line in text.splitlines() if line.strip() and not _FENCE.match(line)]
    items = [line for line in lines if _ITEM.match(line)]
    questions = [line for line in lines if _QUESTION.search(line[-8:])]
    # Prose around a list is not part of it, and neither is a line that introduces it.
    yield from items or questions or [line for line in lines if line.rstrip()[-1] not in ":："]


def _clean(texts: Sequence[str] | Iterator[str]) -> list[str]:
    """The texts without markers, labels, quotes and repeats."""
    unique: dict[str, str] = {}
    for text in texts:
        bare = _ITEM.sub("", text, count=1).strip(_WRAP) if _ITEM.match(text) else text.strip(_WRAP)
        if label := _LABEL.match(bare):
            bare = bare[label.end() :].strip(_WRAP)
        bare = " ".join(bare.split())
        if bare:
            unique.setdefault(fold(bare), bare)
    return list(unique.values())


def _echoes(folded_text: str, folded_query: str, prompt: str) -> bool:
    if "~~~" in folded_text:
        return True
    bare = " ".join(folded_text.split())
    if bare not in folded_query and len(bare) >= _long(bare) and bare in " ".join(prompt.split()):
        return True
    return any(
        line not in folded_query and folded_query not in line and line in folded_text
        for segment in prompt.splitlines()
        if len(line := segment.strip()) >= _long(segment)
    )


def _long(text: str) -> int:
    """The length from which a line does not occur in two texts by chance."""
    return 8 if _HAN.search(text) else 20


def _other_language(text: str, query: str) -> str | None:
    query_scripts, text_scripts = scripts(query), scripts(text)
    if not any(query_scripts.values()) or not any(text_scripts.values()):
        return None
    script = max(text_scripts, key=text_scripts.__getitem__)
    if query_scripts[script] < 0.15 and text_scripts[script] > 0.6:
        return "it is in another script than the query"
    query_language, text_language = detect(query), detect(text)
    if (
        query_language in {"en", "zh", "ru"}
        and text_language != query_language
        and text_language not in {"en", "zh", "ru"}
        and len(text) > 40
    ):
        return "it is in another language than the query"
    return None


def _error(folded_text: str, folded_query: str) -> str | None:
    start = _ERROR.match(folded_text.lstrip())
    if start is not None and start[0].strip() not in folded_query:
        return "it is an error message"
    if len(folded_text) <= _SHORT and _FAILURE.search(folded_text) and not _words_of_both(folded_text, folded_query):
        return "it is an error message"
    return None


def _words_of_both(text: str, query: str) -> set[str]:
    tokens = DEFAULT_ANALYZER.query_tokens
    return {token for token in tokens(text) if len(token) > 1} & set(tokens(query))


def _repetition(folded_text: str) -> str | None:
    words = _WORDS.findall(folded_text)
    if len(words) >= 24 and len(set(words)) < len(words) / 5:
        return "it repeats itself"
    compact = "".join(words)
    if len(compact) >= 60 and len(set(compact)) < 6:
        return "it repeats itself"
    return None
