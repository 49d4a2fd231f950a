"""Reads what a model answered that was asked to compress, and checks it against the source. Pure, in linear time."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.compress.prompts import NOTHING
from pointsman.selector._loose_json import Object, TooMuchError, find_values
from pointsman.text import DEFAULT_ANALYZER, detect, scripts, sentences
from pointsman.text.unicode import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning|analysis|reflection)>", re.IGNORECASE)
_NUMBERS_ONLY = re.compile(r"[\W_]*\d{1,6}(?:[\s,;，；、.()\[\]-]+\d{1,6})*[\W_]*")
_RANGE = re.compile(r"\W*(\d{1,6})\s*(?:[-–—]|\.\.)\s*(\d{1,6})\W*")
_NUMBER = re.compile(r"\W*(\d{1,6})\W*")
_BULLET = re.compile(r"^[\s>*•–—-]*(?:[(\[]?\d{1,4}[.)\]:]\s*)?[\"'“”«»「」‘’]*|[\s\"'“”«»「」‘’]*$")
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am)\s+(?:sorry|afraid|unable|not able)|sorry\b|i\s+(?:can\s?not|can['’]?t|won['’]?t|will not|"
    r"must decline|apologi[sz]e|do not feel|don['’]t feel)|as an? (?:ai|language model)|unfortunately,? i\b"
    r"|извините|простите|прошу прощения|к сожалению,? я\b|я\s+не\s+(?:могу|буду|в состоянии|имею права)"
    r"|как (?:языковая модель|ии\b|искусственный интеллект)"
    r"|(?:很|非常)?抱歉|对不起|對不起|我(?:无法|無法|不能|不便|拒绝)|作为(?:一个|一名|一種)?\s*(?:ai|人工智能|大?语言模型))",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<=\d)[,. \u00a0\u202f](?=\d{3}(?!\d))")
_LONG_NUMBER = re.compile(r"\d{2,}")

_LEAST_QUOTED = 5
"""Characters of a quotation that is looked for: a shorter one stands in any text."""

_LONGEST = 50_000  # characters of an answer that are read: reading more would hold up an event loop
_MOST_LINES = 200
"""Lines of prose that are taken for quotations."""

_FOUNDED = 1 / 3
"""The share of a summary's vocabulary that has to be in the source or in the query."""


class DefectError(Exception):
    """An answer cannot be used; ``defect`` is a name out of ``CompressionPrompts.problems``."""

    def __init__(self, defect: str, detail: str) -> None:
        super().__init__(f"{defect}: {detail}")
        self.defect = defect


@dataclass(frozen=True, slots=True)
class References:
    """Which sentences an answer names: 0-based, in its order, each once; and how many it named that do not exist."""

    places: tuple[int, ...]
    invented: int = 0


def references(answer: str, texts: Sequence[str], template: str) -> References:
    """The sentences that an answer names by number, from 1, or quotes.

    Args:
        answer: any text at all.
        texts: the sentences, as they were numbered.
        template: the prompt's, to tell an echo.

    Raises:
        DefectError: it cannot be used.

    >>> named('Sure: {"keep": [2, 7, "The cat sat."]}', ["The cat  sat.", "It rained."], "")
    Named(places=(1, 0), invented=1)
    """
    text = _checked(answer, template)
    items, truncated = _items(text)
    if items is None and _NUMBERS_ONLY.fullmatch(text):
        items = re.findall(r"\d+\s*[-–]\s*\d+|\d+", text)
    if items is None:
        if _REFUSAL.match(text):
            raise DefectError("refusal", "the model declines to answer")
        items = [line for line in text.splitlines() if line.strip()][:_MOST_LINES]
        result = _Quotable(texts).quoted(items)
        if not result.places:
            raise DefectError("no_answer", "it names no sentence")
        return References(
            result.places
        )  # the other lines are the model's own talk, and nothing that it claims to quote
    result = _existing(items, texts)
    if not result.places and (items or truncated):
        raise DefectError("no_answer", "its list names no sentence")
    return result


def summary(answer: str, source: str, query: str, template: str, fits: Callable[[str], bool]) -> str:
    """A summary that may be used; empty where the model says that nothing bears on the query.

    Args:
        answer: any text at all.
        source: what was summarised.
        query: what was asked.
        template: the prompt's, to tell an echo.
        fits: whether a text is short enough.

    Raises:
        DefectError: it may not.
    """
    text = _checked(answer, template).strip('`"“”«»「」 \n')
    if not text:
        raise DefectError("empty", "it says nothing")
    if text.strip(" .。!*\n").upper() == NOTHING:
        return ""
    if _REFUSAL.match(text):
        raise DefectError("refusal", "the model declines to answer")
    script = _script(text)
    if script and script != _script(source) and detect(text) != detect(query):
        raise DefectError(
            "language", f"it is in {detect(text)!r}, neither the query's language nor the source's script"
        )
    _check_founded(text, source, query, same_script=script == _script(source))
    return _shortened(text, fits)


def _checked(answer: str, template: str) -> str:
    """The answer without what was thought aloud, if there is any and it is no echo."""
    if len(answer) > _LONGEST:
        raise DefectError("no_answer", f"it has {len(answer)} characters, more than any answer needs")
    text = _THOUGHT.split(answer)[-1].strip()
    if not text:
        raise DefectError("empty", "it says nothing")
    if any(line in text for line in _own_lines(template)):
        raise DefectError("echo", "it repeats the prompt")
    return text


def _own_lines(template: str) -> Iterator[str]:
    """Lines of a prompt that are ours and say something."""
    for line in template.splitlines():
        if len(line) >= 12 and not Template(line).get_identifiers():
            yield line


def _items(text: str) -> tuple[list[Any] | None, bool]:
    """What the last JSON list in a text holds, None where there is none; and whether the text ends inside of it."""
    try:
        values = find_values(text)
    except TooMuchError:
        return None, False
    for value in reversed(values):
        items = _listed(value.value)
        if items is not None:
            return items, value.cut
    return None, False


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, Object):
        return None
    lists = [inner for _, item in value.pairs if (inner := _listed(item)) is not None]
    if lists:
        return lists[-1]
    plain = [item for _, item in value.pairs if isinstance(item, int | str) and not isinstance(item, bool)]
    return plain or None


def _existing(items: Sequence[Any], texts: Sequence[str]) -> References:
    """Numbers that are in range and quotations that stand in the source, in the order given."""
    source, places, invented = _Quotable(texts), dict[int, None](), 0
    for item in _flat(items):
        numbers = _numbers(item, len(texts))
        if numbers is None:
            quoted = source.quoted([str(item)])
            places.update(dict.fromkeys(quoted.places))
            invented += quoted.invented
            continue
        if 0 in numbers:
            raise DefectError("invented", "it counts from 0, so no number can be trusted")
        valid = [number for number in numbers if number <= len(texts)]
        places.update((number - 1, None) for number in valid)
        invented += not valid
    if invented and not places:
        raise DefectError("invented", f"none of what it names stands in the text ({invented} named)")
    return References(tuple(places), invented)


def _flat(items: Sequence[Any]) -> Iterator[int | str]:
    """Numbers and texts, also those of objects in the list; what was cut off or is something else is left out."""
    for item in items:
        if isinstance(item, Object):
            values = sorted((value for _, value in item.pairs), key=lambda value: not isinstance(value, int))
            yield from _flat(values[:1])  # its number, else what it has first
        elif isinstance(item, list):
            yield from (part for part in item if isinstance(part, int | str) and not isinstance(part, bool))
        elif isinstance(item, int | str) and not isinstance(item, bool):
            yield item


def _numbers(item: int | str, most: int) -> list[int] | None:
    """What an item counts: one number, or a range of them; None for a text."""
    if isinstance(item, int):
        return [max(item, 0)]
    if match := _RANGE.fullmatch(item):
        first, last = int(match[1]), int(match[2])
        return list(range(first, min(last, most) + 1)) or [most + 1]
    match = _NUMBER.fullmatch(item)
    return [int(match[1])] if match else None


class _Quotable:
    """The sentences as one text under normalisation of width and white space, in which quotations are looked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.starts: list[int] = []
        parts, length = [], 0
        for text in texts:
            self.starts.append(length)
            parts.append(_normal(text))
            length += len(parts[-1]) + 1
        self.text = " ".join(parts)

    def quoted(self, quotations: Sequence[str]) -> References:
        """The sentences in which quotations stand word for word."""
        places, invented = dict[int, None](), 0
        for quotation in quotations:
            quote = _normal(_BULLET.sub("", quotation))
            start = self.text.find(quote) if len(quote) >= _LEAST_QUOTED else -1
            if start < 0:
                invented += 1
                continue
            first = bisect_right(self.starts, start) - 1
            last = bisect_right(self.starts, start + len(quote) - 1) - 1
            places.update((place, None) for place in range(first, last + 1))
        return References(tuple(places), invented)


def _normal(text: str) -> str:
    return " ".join(normalize(text).split())


def _script(text: str) -> str:
    """The script that most letters are of; empty where there are none."""
    shares = scripts(text)
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] else ""


def _check_founded(text: str, source: str, query: str, *, same_script: bool) -> None:
    """Whether what a summary says can come from the source.

    Raises:
        DefectError: it has a number of its own, or a vocabulary of its own.
    """
    numbers = set(_LONG_NUMBER.findall(_THOUSANDS.sub("", f"{source}\n{query}")))
    foreign = [number for number in _LONG_NUMBER.findall(_THOUSANDS.sub("", text)) if number not in numbers]
    if foreign:
        raise DefectError("unfounded", f"the number {foreign[0]:.20} is not in the source")
    tokens = set(DEFAULT_ANALYZER.query_tokens(text))
    shared = tokens & {*DEFAULT_ANALYZER.tokens(source), *DEFAULT_ANALYZER.tokens(query)}
    if same_script and len(shared) < _FOUNDED * len(tokens):
        raise DefectError("unfounded", f"only {len(shared)} of its {len(tokens)} words are in the source")


def _shortened(text: str, fits: Callable[[str], bool]) -> str:
    """The text, or as many of its first sentences as fit.

    Raises:
        DefectError: not even the first one does.
    """
    if fits(text):
        return text
    for _, end in reversed(sentences(text[:20_000])):
        if fits(text[:end]):
            return text[:end]
    raise DefectError("too_long", "not even its first sentence fits")
