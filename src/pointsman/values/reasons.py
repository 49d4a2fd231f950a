"""Reasons as statements with a code, put into words where they are read: in English, Chinese or Russian.

A `Reason` is a text, so whatever takes a reason in words takes one; its statements tell programs, and interfaces in
another language, what it says. The language of an answer is that of its question; the console has a language of its
own, and the same codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import chain
from typing import Any, Final, NamedTuple, Self

from pointsman.text.language import detect

TEXT: Final = ""
"""The code of a statement in words of its own, such as those of a language model: its value ``text``."""

_LANGUAGES: Final = ("en", "zh", "ru")


@cache
def messages() -> Mapping[str, tuple[str, str, str]]:
    """Return the words of each code in English, Chinese and Russian, from ``messages.json``; the console has the same.

    >>> messages()["odds_strong"]
    ('strong match', '匹配度高', 'явное совпадение')
    """
    catalogue = json.loads(resources.files("pointsman.values").joinpath("messages.json").read_text("utf-8"))
    return {code: tuple(words[language] for language in _LANGUAGES) for code, words in catalogue.items()}


_VALUES: Final = {
    "error": r"[A-Z]\w+(?:: (?:(?!; ).)+)?",
    "stage": r"\w+",
    "of": "[^:;]+",
    "part": r"(?:(?!; )[^\n])+",
    "quoted": "'[^;]*'",
    "position": r"\d+",
    "count": r"[\d,]+",
}
"""Patterns of values that are not of any words up to the next statement; an error begins with its type."""


_MOST_CHARACTERS: Final = 500
_MOST_DEPTH: Final = 3
"""A longer text, and one of more parts in parts, quotes somebody else, whose words could be made to take long."""


@cache
def _pattern(code: str) -> re.Pattern[str]:
    """The pattern of a text, which is made when its words are first found in one: of most they never are."""
    words = re.escape(messages()[code][0])
    words = re.sub(r"\\{(\w+)\\}", lambda name: f"(?P<{name[1]}>{_VALUES.get(name[1], '(?:(?!; ).)+')})", words)
    return re.compile(f"(?s:{words})(?:; |$)")


@cache
def _codes_by_words() -> list[tuple[str, str]]:
    """The codes with the longest words between their values, those that say most first."""
    texts = {code: re.sub(r"\{\w+\}", "", english) for code, (english, *_) in messages().items()}
    return [
        (code, max(re.split(r"\{\w+\}", messages()[code][0]), key=len))
        for code in sorted(texts, key=lambda code: -len(texts[code]))
    ]


def language_of(question: str) -> str:
    """Return the language in which the asker reads: that of the question if there are words for it, else English.

    >>> language_of("что едят пингвины?"), language_of("企鹅吃什么"), language_of("was fressen Pinguine")
    ('ru', 'zh', 'en')
    """
    language = "en" if question.isascii() else detect(question)
    return language if language in _LANGUAGES else "en"


class Statement(NamedTuple):
    """One statement.

    Attributes:
        code: what it says; `TEXT` if its words are its own.
        values: what it names, by the names in its words.
    """

    code: str
    values: Mapping[str, Any] = {}

    def in_words(self, language: str = "en") -> str:
        """Return the statement in a language; in its own words if its code is not known."""
        words = messages().get(self.code)
        if words is None:
            return str(self.values.get("text", self.code))
        values = self.values
        for name in ("part", "cause"):
            if name in values:
                values = {**values, name: in_language(values[name], language)}
        return words[_LANGUAGES.index(language)].format_map(values)


class Reason(str):
    """A reason in words, and the statements that it is made of.

    >>> reason = Reason.join_all(Reason.of("weight", weight="0.80", span="2.1"), Reason.of("holders"))
    >>> reason.in_language("zh"), reason.statements[1].code
    ('向量权重 0.80：最佳余弦高出随机文档均值 2.1 σ；含有该词的排在前面', 'holders')
    """

    statements: tuple[Statement, ...]

    def __new__(cls, text: str, statements: Iterable[Statement] | None = None) -> Self:
        """Return a reason with these words.

        Args:
            text: the words.
            statements: what they say; None: one statement with these words, or those of a text that is a reason.
        """
        reason = super().__new__(cls, text)
        if statements is None:
            statements = (
                text.statements if isinstance(text, Reason) else (Statement(TEXT, {"text": text}),) if text else ()
            )
        reason.statements = tuple(statements)
        return reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.statements)

    @classmethod
    def of(cls, code: str, **values: Any) -> Self:
        """Return a reason of one statement, in English."""
        statement = Statement(code, values)
        return cls(statement.in_words(), (statement,))

    @classmethod
    def join_all(cls, *reasons: str) -> Self:
        """Return one reason that says all of these, in English; empty ones say nothing."""
        return cls._in_words(tuple(statement for reason in reasons for statement in Reason(reason).statements), "en")

    def in_language(self, language: str) -> Self:
        """Return the reason in ``"en"``, ``"zh"`` or ``"ru"``; in English if a statement has other words."""
        if language == "en":
            return self._in_words(self.statements, "en")
        statements = tuple(chain.from_iterable(map(_with_codes, self.statements)))
        foreign_texts = [
            str(statement.values.get("text", "")) for statement in statements if statement.code not in messages()
        ]
        is_foreign = any(language_of(text) != language for text in foreign_texts)
        return self._in_words(self.statements, "en") if is_foreign else self._in_words(statements, language)

    @classmethod
    def _in_words(cls, statements: tuple[Statement, ...], language: str) -> Self:
        mark = "；" if language == "zh" else "; "
        return cls(mark.join(statement.in_words(language) for statement in statements), statements)


def _with_codes(statement: Statement) -> tuple[Statement, ...]:
    """What a statement in words of its own says by codes; the statement itself if these are not known.

    Most that a search says is written as text, where it happens; its words in other languages are known by these.
    """
    text = str(statement.values.get("text", "")) if statement.code == TEXT else ""
    return _known_statements(text) or (statement,)


@lru_cache(maxsize=256)  # a service says the same again and again
def _known_statements(text: str, depth: int = _MOST_DEPTH) -> tuple[Statement, ...]:
    """The statements that a text makes by its English words, also the value ``part`` of one; none if any is unknown."""
    for code, words in _codes_by_words() if 0 < len(text) <= _MOST_CHARACTERS and depth else []:
        match = _pattern(code).match(text) if words in text else None  # most are told apart by their words
        if match and ("part" not in match.groupdict() or _known_statements(match["part"], depth - 1)):
            statements = (Statement(code, match.groupdict()), *_known_statements(text[match.end() :], depth))
            return statements if match.end() == len(text) or len(statements) > 1 else ()
    return ()


def reason_of(form: Mapping[str, Any]) -> Reason:
    """Return the reason of an answer or a refusal as ``to_dict`` writes it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the value is invalid.
    """
    if not isinstance(form["reason"], str):
        raise TypeError(f"reason is {form['reason']!r:.80}")
    statements = [Statement(statement["code"], dict(statement["values"])) for statement in form["reasons"]]
    return Reason(form["reason"], statements)


def in_language(text: str, language: str) -> str:
    """Return a text in a language if it is a reason or has its English words; as it is if not."""
    return Reason(text).in_language(language)
