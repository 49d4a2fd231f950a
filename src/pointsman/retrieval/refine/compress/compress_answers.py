"""Parses a model's answers to compression prompts and checks them against the source. Pure, in linear time."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any

from pointsman.llm.loose_json import Object, find_values
from pointsman.llm.model_answers import DefectError, finished_answer
from pointsman.retrieval.refine.compress.compress_prompts import NOTHING
from pointsman.text import DEFAULT_ANALYZER, detect, scripts, sentences
from pointsman.text.unicode import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
"""The shortest quotation, in characters, that is looked up; shorter ones occur in any text."""

_LONGEST = 50_000  # characters of an answer that are read: reading more would block an event loop
_MOST_LINES = 200
"""Lines of prose that are taken for quotations."""

_FOUNDED_SHARE = 1 / 3
"""The share of a summary's vocabulary that must occur in the source or in the query."""


@dataclass(frozen=True, slots=True)
class References:
    """The sentences that an answer names: 0-based, in its order, without repeats; and the number of unknown ones."""

    places: tuple[int, ...]
    invented: int = 0


def references(answer: str, texts: Sequence[str], template: str) -> References:
    """The sentences that an answer names by number, from 1, or quotes.

    Args:
        answer: any text.
        texts: the sentences, in the order of their numbers.
        template: of the prompt, to detect echoes.

    Raises:
        DefectError: the answer is unusable.

    >>> references('Sure: {"keep": [2, 7, "The cat sat."]}', ["The cat  sat.", "It rained."], "")
    References(places=(1, 0), invented=1)
    """
    text = _check_answer(answer, template)
    items, is_truncated = _items(text)
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
        )  # other lines are the model's comments, which it does not present as quotations
    result = _existing(items, texts)
    if not result.places and (items or is_truncated):
        raise DefectError("no_answer", "its list names no sentence")
    return result


def summary(answer: str, source: str, query: str, template: str, fits: Callable[[str], bool]) -> str:
    """Return a valid summary; empty if the model says that nothing is relevant to the query.

    Args:
        answer: any text.
        source: the text that was summarised.
        query: the query.
        template: of the prompt, to detect echoes.
        fits: whether a text is short enough.

    Raises:
        DefectError: the summary is not valid.
    """
    text = _check_answer(answer, template).strip('`"“”«»「」 \n')
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
    return _shorten(text, fits)


def _check_answer(answer: str, template: str) -> str:
    """The answer without the model's thinking; raises if nothing is left or if it echoes the prompt."""
    if len(answer) > _LONGEST:
        raise DefectError("no_answer", f"it has {len(answer)} characters, more than any answer needs")
    text = finished_answer(answer).strip()
    if not text:
        raise DefectError("empty", "it says nothing")
    if any(line in text for line in _own_lines(template)):
        raise DefectError("echo", "it repeats the prompt")
    return text


def _own_lines(template: str) -> Iterator[str]:
    """Yields the lines of a prompt without placeholders that are long enough to be distinctive."""
    for line in template.splitlines():
        if len(line) >= 12 and not Template(line).get_identifiers():
            yield line


def _items(text: str) -> tuple[list[Any] | None, bool]:
    """The items of the last JSON list in a text, None if there is none; and whether the text ends inside the list."""
    try:
        values = find_values(text)
    except DefectError:
        return None, False
    for value in reversed(values):
        items = _list_in(value.value)
        if items is not None:
            return items, value.cut
    return None, False


def _list_in(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, Object):
        return None
    lists = [inner for _, item in value.pairs if (inner := _list_in(item)) is not None]
    if lists:
        return lists[-1]
    plain = [item for _, item in value.pairs if isinstance(item, int | str) and not isinstance(item, bool)]
    return plain or None


def _existing(items: Sequence[Any], texts: Sequence[str]) -> References:
    """Numbers that are in range and quotations that occur in the source, in the order given."""
    source, positions, count_invented = _Quotable(texts), dict[int, None](), 0
    for item in _flat(items):
        numbers = _numbers(item, len(texts))
        if numbers is None:
            quotes = source.quoted([str(item)])
            positions.update(dict.fromkeys(quotes.places))
            count_invented += quotes.invented
            continue
        if 0 in numbers:
            raise DefectError("invented", "it counts from 0, so no number can be trusted")
        valid = [number for number in numbers if number <= len(texts)]
        positions.update((number - 1, None) for number in valid)
        count_invented += not valid
    if count_invented and not positions:
        raise DefectError("invented", f"nothing it names is in the text ({count_invented} named)")
    return References(tuple(positions), count_invented)


def _flat(items: Sequence[Any]) -> Iterator[int | str]:
    """Yields numbers and texts, also from objects in the list; truncated and other items are left out."""
    for item in items:
        if isinstance(item, Object):
            values = sorted((value for _, value in item.pairs), key=lambda value: not isinstance(value, int))
            yield from _flat(values[:1])  # its number, otherwise its first value
        elif isinstance(item, list):
            yield from (element for element in item if isinstance(element, int | str) and not isinstance(element, bool))
        elif isinstance(item, int | str) and not isinstance(item, bool):
            yield item


def _numbers(item: int | str, limit: int) -> list[int] | None:
    """The numbers that an item stands for: one number, or a range; None for a text."""
    if isinstance(item, int):
        return [max(item, 0)]
    if match := _RANGE.fullmatch(item):
        first, last = int(match[1]), int(match[2])
        return list(range(first, min(last, limit) + 1)) or [limit + 1]
    match = _NUMBER.fullmatch(item)
    return [int(match[1])] if match else None


class _Quotable:
    """The sentences as one text with normalised width and white space, in which quotations are looked up."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.starts: list[int] = []
        normal_texts, length = [], 0
        for text in texts:
            self.starts.append(length)
            normal_texts.append(_normal(text))
            length += len(normal_texts[-1]) + 1
        self.text = " ".join(normal_texts)

    def quoted(self, quotations: Sequence[str]) -> References:
        """The sentences that contain the quotations word for word."""
        positions, count_invented = dict[int, None](), 0
        for quotation in quotations:
            quote = _normal(_BULLET.sub("", quotation))
            start = self.text.find(quote) if len(quote) >= _LEAST_QUOTED else -1
            if start < 0:
                count_invented += 1
                continue
            first = bisect_right(self.starts, start) - 1
            last = bisect_right(self.starts, start + len(quote) - 1) - 1
            positions.update((position, None) for position in range(first, last + 1))
        return References(tuple(positions), count_invented)


def _normal(text: str) -> str:
    return " ".join(normalize(text).split())


def _script(text: str) -> str:
    """The script of most letters; empty if there are none."""
    shares = scripts(text)
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] else ""


def _check_founded(text: str, source: str, query: str, *, same_script: bool) -> None:
    """Check that the contents of a summary can come from the source.

    Raises:
        DefectError: it contains a number or vocabulary of its own.
    """
    numbers = set(_LONG_NUMBER.findall(_THOUSANDS.sub("", f"{source}\n{query}")))
    foreign = [number for number in _LONG_NUMBER.findall(_THOUSANDS.sub("", text)) if number not in numbers]
    if foreign:
        raise DefectError("unfounded", f"the number {foreign[0]:.20} is not in the source")
    tokens = set(DEFAULT_ANALYZER.query_tokens(text))
    common_tokens = tokens & {*DEFAULT_ANALYZER.tokens(source), *DEFAULT_ANALYZER.tokens(query)}
    if same_script and len(common_tokens) < _FOUNDED_SHARE * len(tokens):
        raise DefectError("unfounded", f"only {len(common_tokens)} of its {len(tokens)} words are in the source")


def _shorten(text: str, fits: Callable[[str], bool]) -> str:
    """The text, or as many of its first sentences as fit.

    Raises:
        DefectError: not even the first sentence fits.
    """
    if fits(text):
        return text
    for _, end in reversed(sentences(text[:20_000])):
        if fits(text[:end]):
            return text[:end]
    raise DefectError("too_long", "not even its first sentence fits")
