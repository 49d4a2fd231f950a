"""Filters of OpenAI's vector stores as filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pointsman.tools.errors import FilterError
from pointsman.values.filters import And, Equals, Filter, In, Not, Or, Range


def filter_of_openai(filters: Any, depth: int) -> Filter:
    """Convert a filter of OpenAI.

    Raises:
        FilterError: it is malformed.
    """
    if not isinstance(filters, dict) or depth > _DEEPEST:
        raise FilterError(f"a filter is an object with type, nested at most {_DEEPEST} deep, not {filters!r:.80}")
    kind = filters.get("type")
    if kind in ("and", "or"):  # no set, as it may be of any type
        inner = filters.get("filters")
        if not isinstance(inner, list):
            raise FilterError(f"a filter of type {kind!r} has a list of filters, not {inner!r:.80}")
        operands = tuple(filter_of_openai(operand, depth + 1) for operand in inner)
        return And(operands) if kind == "and" else Or(operands)
    key, value = filters.get("key"), filters.get("value")
    if not isinstance(key, str) or not isinstance(kind, str) or kind not in _OF_OPENAI:
        raise FilterError(f"a filter has a key and a type of {', '.join(_OF_OPENAI)}, and, or; not {filters!r:.200}")
    return _OF_OPENAI[kind](key, value)


def _list(key: str, value: Any) -> In:
    if not isinstance(value, list):
        raise FilterError(f"{key!r}: in and nin take a list, not {value!r:.80}")
    return In(key, tuple(value))


_DEEPEST: Final = 20


_OF_OPENAI: Final[dict[str, Callable[[str, Any], Filter]]] = {
    "eq": Equals,
    "ne": lambda key, value: Not(Equals(key, value)),
    "gt": lambda key, value: Range(key, gt=value),
    "gte": lambda key, value: Range(key, gte=value),
    "lt": lambda key, value: Range(key, lt=value),
    "lte": lambda key, value: Range(key, lte=value),
    "in": _list,
    "nin": lambda key, value: Not(_list(key, value)),
}
