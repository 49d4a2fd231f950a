"""Metadata values: how they are stored, how filters compare them, and which are equal except for case.

Every store keeps and compares the values from this module, so that a filter means the same everywhere.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal
from uuid import UUID

from pointsman.text.unicode import compose, repair

Kind = Literal["string", "number", "boolean"]

Typed = tuple[Kind, Any]
"""A value with its kind: a ``str``, a ``float`` (a boolean is 0.0 or 1.0), or an ``int`` that no double equals."""

ID: Final = "_id"
"""The key under which filters see a document's id."""
TEXT: Final = "_text"
"""The key under which filters see a document's text."""

TEXTS: Final = "a list of texts"
NUMBER: Final = "a whole number from 0 to 2**53 - 1"
RESERVED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("source", "title", "kind", "member", "parent", "root", "sha256"), "a text"),
    **dict.fromkeys(("end", "last_line", "line", "page", "page_break", "page_end", "position", "start"), NUMBER),
    "headings": TEXTS,
}
"""The metadata that Pointsman reads itself, with its type: what a document is called, and its place in its source.

Without a ``source`` all but the title are the user's own, and may have any type.
"""

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII)
_CODE_POINTS_WITH_CASE: Final = 0x1E944  # no code point beyond it has another case


def plain(value: object) -> Any:
    """Return a scalar in JSON form: dates in ISO 8601, UUIDs as text, decimals and numpy scalars as numbers.

    >>> plain(date(2024, 5, 1)), plain(Decimal("1.5")), plain(Decimal(3))
    ('2024-05-01', 1.5, 3)

    Raises:
        TypeError: the value is not a supported scalar.
    """
    if isinstance(value, date):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    numpy = sys.modules.get("numpy")  # a caller with such a scalar has imported it
    if numpy is not None and isinstance(value, numpy.generic):
        item = value.item()
        return item if item is None or isinstance(item, str | int | float) else plain(item)
    raise TypeError(f"a {type(value).__name__} is not a JSON value, date, UUID, Decimal or numpy scalar")


def typed(value: object) -> Typed | None:
    """Return the value as filters compare it; None if it cannot be filtered on.

    A date and time with a time zone is normalised to UTC; lone surrogates are stored as U+FFFD; a text is in NFC.

    >>> typed(2), typed(True), typed("2"), typed(None), typed(2**53 + 1)
    (('number', 2.0), ('boolean', 1.0), ('string', '2'), None, ('number', 9007199254740993))
    >>> typed("2024-05-01T02:00:00+03:00")
    ('string', '2024-04-30T23:00:00+00:00')
    """
    if isinstance(value, str):
        value = value if value.isascii() else compose(repair(value))
        return "string", _instant(value) if 16 < len(value) < 33 and value[4] == "-" else value
    if isinstance(value, bool):
        return "boolean", float(value)
    if isinstance(value, int | float):
        return ("number", _number(value)) if value == value else None  # noqa: PLR0124  (all but NaN)
    try:
        return None if value is None else typed(plain(value))
    except TypeError:
        return None


def _number(value: float) -> float:
    """Return a double, or an integer that no double equals; values beyond the doubles become infinity."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return number if number == value else int(value)


def _instant(text: str) -> str:
    """Normalise a date and time with a time zone to UTC, so that text order is time order."""
    if _INSTANT.fullmatch(text):
        try:
            return datetime.fromisoformat(text).astimezone(UTC).isoformat()
        except (ValueError, OverflowError):  # 30 February, or before year 1
            return text
    return text


def typed_values(value: object) -> list[Typed]:
    """Return the values of a metadata entry: those of a list, or the single value.

    >>> typed_values(["a", None, 1])
    [('string', 'a'), ('number', 1.0)]
    """
    if isinstance(value, list | tuple):
        return [entry for item in value if (entry := typed(item)) is not None]
    entry = typed(value)
    return [] if entry is None else [entry]


def _inner_mappings(name: str, value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in a metadata entry that filters can see."""
    if name.startswith("_"):
        return
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, Mapping):
            yield item


def facts(fields: Mapping[str, Any], prefix: str = "") -> dict[str, list[Typed]]:
    """Return everything that filters can see, by key; keys of nested values are joined with dots.

    >>> facts({"author": {"name": "Li"}, "parts": [{"no": 1}, {"no": 2}], "_rest": {"x": 1}})
    {'author.name': [('string', 'Li')], 'parts.no': [('number', 1.0), ('number', 2.0)]}
    """
    result: dict[str, list[Typed]] = {}
    for name, value in fields.items():
        key = compose(prefix + name)
        values = _raw(value) if key in (ID, TEXT) else typed_values(value)
        if values:
            result.setdefault(key, []).extend(values)
        for inner in () if isinstance(value, str) else _inner_mappings(name, value):
            for path, inner_facts in facts(inner, f"{key}.").items():
                result.setdefault(path, []).extend(inner_facts)
    return result


def values_of(fields: Mapping[str, Any], key: str) -> list[Typed]:
    """Return the values that `facts` has for one key.

    >>> values_of({"a": {"b": 1}, "a.b": 2}, "a.b")
    [('number', 2.0), ('number', 1.0)]
    """
    return _raw(fields.get(key)) if key in (ID, TEXT) else _path_values(fields, key)


def _raw(value: object) -> list[Typed]:
    """Type an id or a text without reading it as a date."""
    return [("string", value)] if isinstance(value, str) else []


def _path_values(fields: Mapping[str, Any], key: str) -> list[Typed]:
    if not key.isascii():
        fields = {compose(name): value for name, value in fields.items()}
    values = typed_values(fields.get(key))
    dot = key.find(".")
    while dot >= 0:
        for inner in _inner_mappings(key[:dot], fields.get(key[:dot])):
            values += _path_values(inner, key[dot + 1 :])
        dot = key.find(".", dot + 1)
    return values


@cache
def _folding() -> dict[int, str]:
    """Return the case folding of each letter, one letter for one, so that offsets do not change."""
    table = {}
    for code in range(_CODE_POINTS_WITH_CASE):
        letter = chr(code)
        variant = letter.casefold()
        if len(variant) != 1:
            variant = letter.lower()
        if variant != letter and len(variant) == 1:
            table[code] = variant
    return table


def folded(text: str) -> str:
    """Fold the case of a text letter by letter: ``ß`` equals ``ẞ``, not ``ss``.

    >>> folded("ÄÖ straße ЯНВАРЬ")
    'äö straße январь'
    """
    return text.lower() if text.isascii() else text.translate(_folding())


@cache
def _cases() -> dict[str, str]:
    letters: dict[str, str] = {}
    for code, letter in _folding().items():
        letters[letter] = letters.get(letter, letter) + chr(code)
    return letters


def cases(letter: str) -> str:
    r"""Return all letters that equal this one except for case.

    >>> sorted(cases("K")) == ["K", "k", "\u212a"]
    True
    """
    plain_letter = folded(letter)
    return _cases().get(plain_letter, plain_letter)
