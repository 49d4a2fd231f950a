"""Reads JSON as models write it: in prose, with single or typographic quotes, Python literals, truncated, and so on.

It takes one pass over the text without backtracking, in linear time and bounded depth.

The package ``json-repair`` (0.64.6) cannot replace it. It repairs what it should report: of two consecutive objects and
of a repeated key it keeps the last, and it completes a truncated answer, so that 8 of 216 answers in the tests' tables
come out wrong. And it takes 88 s for 32,000 characters of ``{"``, where this module takes 2 s for a megabyte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pointsman.llm.model_answers import DefectError
from pointsman.text import repair

_DEEPEST = 24
"""Maximum nesting; real answers are not deeper, and hostile text is thousands deep."""

_LONGEST_NUMBER = 18
"""Maximum digits: longer numbers are out of any range, and Python refuses to parse very long ones."""

_MOST_CONTAINERS = 5_000
"""Maximum brackets examined; a text with more is not an answer, and examining each takes microseconds."""

_OPENERS = re.compile(r"[{\[｛［【]")
_OBJECT_END, _LIST_END = "}｝", "]］】"
_COMMAS, _COLONS = ",，、;；", ":：="
_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "“": '”“"',
    "”": '”"',
    "„": '“”"',
    "‘": "’‘'",
    "’": "’'",
    "「": "」",
    "『": "』",
    "«": "»",
    "＂": '＂"',
}
_STOPS = {quote: re.compile(rf"[{re.escape(closers)}\\]") for quote, closers in _QUOTES.items()}
_AFTER_STRING = frozenset(_OBJECT_END + _LIST_END + _COMMAS + _COLONS) | _QUOTES.keys()
_SPACE = re.compile(r"\s*(?://[^\n]*\s*)*")
_BARE_KEY = re.compile(r"[\w .-]{1,64}")
_BARE_VALUE = re.compile(r"[^,，、;；{}｛｝\[\]［］【】\n\"“”„«»「」『』]*")
_INTEGER = re.compile(r"[+-]?\d+(?:\.0*)?")
_FLOAT = re.compile(r"[+-]?(?:\d{1,30}\.\d{0,30}|\.\d{1,30}|\d{1,30})(?:e[+-]?\d{1,3})?")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "nil": None, "undefined": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object as pairs: models repeat keys, and a repeated key with two values is ambiguous."""

    pairs: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A scalar at the end of the text, which may be incomplete."""

    raw: str


@dataclass(frozen=True, slots=True)
class JsonPiece:
    """A container and its position, ``text[start:end]``; ``cut`` if the text ends inside it."""

    value: Object | list[Any]
    start: int
    end: int
    cut: bool = False


class _NonsenseError(Exception):
    """The text is not JSON in any reading."""


class _TooDeepError(Exception):
    """The text is nested deeper than any answer."""


def find_values(text: str) -> list[JsonPiece]:
    """Return every outermost object or list in a text, in order.

    Raises:
        DefectError: there are thousands, or the text is crafted to be read repeatedly.

    >>> [found.value for found in find_values("Sure: {choice: 2, 'why': “best”,} or [1]")]
    [Object(pairs=(('choice', 2), ('why', 'best'))), [1]]
    """
    values: list[JsonPiece] = []
    position, budget = 0, 8 * len(text)
    for _ in range(_MOST_CONTAINERS):
        opener = _OPENERS.search(text, position)
        if opener is None:
            return values
        reader = _JsonReader(text, opener.start())
        try:
            value = reader.container(_DEEPEST)
        except _NonsenseError:
            position = opener.end()
            budget -= reader.position - position
            if budget < 0:
                break
        except _TooDeepError:
            position = reader.position  # the inside is as deep: examining it again would take quadratic time
        else:
            values.append(JsonPiece(value, opener.start(), reader.position, reader.cut))
            position = reader.position
    raise DefectError("ambiguous", "it holds more brackets than an answer can have")


class _JsonReader:
    def __init__(self, text: str, position: int) -> None:
        self.text, self.position, self.cut = text, position, False

    def container(self, depth: int) -> Object | list[Any]:
        if not depth:
            raise _TooDeepError
        opener = self.text[self.position]
        self.position += 1
        return self.object(depth) if opener in "{｛" else self.list(depth)

    def object(self, depth: int) -> Object:
        pairs: list[tuple[str, Any]] = []
        while True:
            character = self.skip(_COMMAS)
            if not character:
                self.cut = True
                break
            if character in _OBJECT_END:
                self.position += 1
                break
            key = self.key(character)
            character = self.skip()
            if not character:
                self.cut = True
                break
            if key is None or character not in _COLONS:
                # Probably an unescaped quote inside a string: keep what was read before it.
                if pairs:
                    break
                raise _NonsenseError
            self.position += 1
            if not self.skip():
                self.cut = True
                break
            pairs.append((key, self.value(depth)))
        return Object(tuple(pairs))

    def list(self, depth: int) -> list[Any]:
        values: list[Any] = []
        while True:
            character = self.skip(_COMMAS)
            if not character:
                self.cut = True
                return values
            if character in _LIST_END:
                self.position += 1
                return values
            start = self.position
            values.append(self.value(depth))
            if self.position == start:
                raise _NonsenseError

    def key(self, character: str) -> str | None:
        if character in _QUOTES:
            key = self.string(character)
            return key if isinstance(key, str) else None
        match = _BARE_KEY.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0].strip()

    def value(self, depth: int) -> Any:
        character = self.text[self.position]
        if _OPENERS.match(character):
            return self.container(depth - 1)
        if character in _QUOTES:
            return self.string(character)
        return self.bare()

    def bare(self) -> Any:
        match = _BARE_VALUE.match(self.text, self.position)
        assert match is not None  # it matches the empty string
        raw = match[0].split("//", 1)[0].strip()
        if not raw:
            raise _NonsenseError
        self.position = match.end()
        if self.position == len(self.text):
            self.cut = True
            return Cut(raw)
        return literal(raw)

    def string(self, quote: str) -> str | Cut:
        """Read a string; a quote that no JSON syntax follows is part of it."""
        stops, closers = _STOPS[quote], _QUOTES[quote]
        texts: list[str] = []
        start = self.position + 1
        while stop := stops.search(self.text, start):
            texts.append(self.text[start : stop.start()])
            start = stop.end()
            if stop[0] in closers:
                self.position = start
                character = self.skip()
                if not character or character in _AFTER_STRING:
                    return repair("".join(texts))  # escapes may form surrogate pairs
                texts.append(stop[0])
                continue
            text, start = self.escape(start)
            texts.append(text)
        texts.append(self.text[start:])
        self.position, self.cut = len(self.text), True
        return Cut("".join(texts))

    def escape(self, start: int) -> tuple[str, int]:
        character = self.text[start : start + 1]
        if character == "u" and (code := _HEX.match(self.text, start + 1)):
            return chr(int(code[0], 16)), code.end()
        return _ESCAPES.get(character, character), start + 1

    def skip(self, also_skip: str = "") -> str:
        """Skip white space, comments and the characters in ``also_skip``; return the next one, empty at the end."""
        while True:
            match = _SPACE.match(self.text, self.position)
            assert match is not None  # it matches the empty string
            self.position = match.end()
            character = self.text[self.position : self.position + 1]
            if not character or character not in also_skip:
                return character
            self.position += 1


def literal(raw: str) -> Any:
    """Return the value of a bare word: a number, a boolean, None, or the word itself.

    >>> literal("2.0"), literal("True"), literal("option 2"), literal("9" * 5000) > 10**17
    (2, True, 'option 2', True)
    """
    lower = raw.lower()
    if lower in _LITERALS:
        return _LITERALS[lower]
    if _INTEGER.fullmatch(raw):
        digits = raw.split(".", 1)[0]
        if len(digits) > _LONGEST_NUMBER:
            digits = ("-" if raw[0] == "-" else "") + "9" * _LONGEST_NUMBER
        return int(digits)
    return float(raw) if _FLOAT.fullmatch(lower) else raw
