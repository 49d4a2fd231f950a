r"""Metadata filters: an immutable tree, its semantics, and its notations.

>>> wanted = parse_filter('year >= 2020 and (lang = ru or tag in [news, "to read"]) and not exists(draft)')
>>> wanted.matches({"year": 2023, "tag": ["news", "rail"]})
True
>>> print(parse_filter({"category": "环保", "year": {"gte": 2020, "lt": 2024}}))
category == "环保" and 2020 <= year < 2024

The semantics of a filter, here and in every store (all stores are tested against ``matches``):

- Values are strings, numbers and booleans; dates, UUIDs, decimals and numpy scalars are converted to their JSON form.
  ``None`` and NaN are not values. A list matches when one of its members does. A key *exists* when it has at least one
  value, and is ``null`` when it has none.
- Numbers compare exactly, including integers of any size (``2 == 2.0``, ``2**53 != 2**53 + 1``); beyond the range of
  doubles they are infinite. A boolean is not a number (``True`` is not 1). Strings compare by code points, so ISO dates
  sort by time; a date and time with a time zone is converted to UTC before any comparison, including of parts.
- A range considers only values of the same kind as its bounds, and a single value must satisfy both bounds.
- A part of a string may begin and end anywhere. Without case, letters are compared one to one (``ß`` equals ``ẞ``, not
  ``ss``).
- ``Not`` is plain negation: a document without the key matches ``key != 1``.
- ``a.b`` is the key of that name, and also ``b`` in the mapping ``a`` or in the mappings of a list ``a``. Mappings
  under a key that begins with ``_`` are stored but not filtered on.
- ``_id`` is the document's id and ``_text`` its text; metadata of these names cannot be filtered on.
- ``And(())`` matches everything, ``Or(())`` nothing.

Expressions::

    year >= 2020     2020 <= year < 2024     lang = ru     lang != "ru"     tag in [a, 'b c']
    tag not in [a]   exists(draft)           draft exists  draft = null     tag in [a, null]
    title contains "signal"   title startswith "The "      title endswith ".pdf"      title icontains "SIGNAL"
    not …            … and …                 … or …        ( … )

``icontains``, ``istartswith`` and ``iendswith`` ignore case. ``and`` binds tighter than ``or``. A key goes in backticks
if it has other characters than letters, digits, ``_``, ``-`` and ``.``, or does not begin with a letter or ``_``.
Strings go in single or double quotes with JSON escapes; a single word needs no quotes. ``and()`` and ``or()`` write
trees of fewer than two parts. Full-width Chinese punctuation is accepted.

Mappings: ``{"lang": "ru", "tag": ["a", "b"], "year": {"gte": 2020}}`` requires every entry; a list means *in*, and null
*without a value*; the operators are eq ne in nin gt gte lt lte exists contains icontains startswith istartswith
endswith iendswith, with or without a leading ``$``: ``{"title": {"contains": "signal"}}``; ``{"$and": […]}``,
``{"$or": […]}``, ``{"$not": {…}}`` combine conditions (the ``$`` is required, as a key may be named ``and``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pointsman.tools.errors import FilterError
from pointsman.values.filters.conditions import (
    And,
    Contains,
    EndsWith,
    Equals,
    Exists,
    Filter,
    In,
    Interval,
    Not,
    Or,
    PartOfText,
    Range,
    StartsWith,
    equal_to,
    one_of,
)
from pointsman.values.filters.expressions import ExpressionParser
from pointsman.values.filters.mappings import MappingReader
from pointsman.values.metadata import Kind, Typed, facts, typed, typed_values

__all__ = [
    "And",
    "Contains",
    "EndsWith",
    "Equals",
    "Exists",
    "Filter",
    "In",
    "Interval",
    "Kind",
    "Not",
    "Or",
    "PartOfText",
    "Range",
    "StartsWith",
    "Typed",
    "equal_to",
    "facts",
    "one_of",
    "parse_filter",
    "parse_optional",
    "typed",
    "typed_values",
]


def parse_filter(source: str | Mapping[str, Any] | Filter) -> Filter:
    """Read a filter from an expression or a mapping; a `Filter` is returned unchanged.

    Raises:
        FilterError: the filter is invalid; for an expression, with the position and what was expected there.
    """
    if isinstance(source, Filter):
        return source
    if isinstance(source, str):
        return ExpressionParser(source).parse()
    if isinstance(source, Mapping):
        return MappingReader().read(source, 1)
    raise FilterError(f"a filter is an expression or a mapping, not {type(source).__name__}: {source!r:.80}")


def parse_optional(source: str | Mapping[str, Any] | Filter | None) -> Filter | None:
    """Read a filter that may be left out: None, an empty string and an empty mapping are no filter.

    Raises:
        FilterError: the filter is invalid.
    """
    return None if source is None or source in ("", {}) else parse_filter(source)
