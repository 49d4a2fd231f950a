"""Haystack's filters as filters of Pointsman."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from haystack.errors import FilterError

from pointsman.errors import FilterError as OurFilterError
from pointsman.filters import And, Equals, Exists, Filter, In, Not, Or, Range

_FIELDS: Final = frozenset({"id", "content", "blob", "score", "embedding", "sparse_embedding"})
_BOUNDS: Final = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_NOTHING: Final = Or(())


def filter_of(filters: Mapping[str, Any]) -> Filter:
    """One of Haystack's filters as one of ours.

    Dates are compared as texts, so write all of them in one form of ISO 8601; a boolean is no number.

    Raises:
        FilterError: Haystack's; it is malformed, or cannot be expressed: only metadata can be filtered on.
    """
    if not isinstance(filters, Mapping):
        raise FilterError(f"a filter is a mapping, not {type(filters).__name__}")
    try:
        return _comparison(filters) if "field" in filters else _logic(filters)
    except OurFilterError as error:
        raise FilterError(str(error)) from error


def _logic(filters: Mapping[str, Any]) -> Filter:
    for key in ("operator", "conditions"):
        if key not in filters:
            raise FilterError(f"{key!r} is missing in {filters!r:.200}")
    parts = tuple(filter_of(part) for part in filters["conditions"])
    match filters["operator"]:
        case "AND":
            return And(parts)
        case "OR":
            return Or(parts)
        case "NOT":  # as Haystack means it: not all of them
            return Not(And(parts))
    raise FilterError(f"unknown operator {filters['operator']!r:.80}; there are AND, OR and NOT")


def _comparison(condition: Mapping[str, Any]) -> Filter:
    for key in ("operator", "value"):
        if key not in condition:
            raise FilterError(f"{key!r} is missing in {condition!r:.200}")
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if not isinstance(field, str) or field in _FIELDS:
        raise FilterError(f"only metadata can be filtered on, not {field!r:.80}")
    make = _OPERATORS.get(operator)
    if make is None:
        raise FilterError(f"unknown operator {operator!r:.80}; there are {', '.join(_OPERATORS)}")
    return make(field.removeprefix("meta."), value)


def _equal(key: str, value: Any) -> Filter:
    return Not(Exists(key)) if value is None else Equals(key, value)


def _in(key: str, values: Any) -> Filter:
    if not isinstance(values, list):
        raise FilterError(f"{key!r}: in and not in take a list, not {values!r:.80}")
    rest = In(key, tuple(value for value in values if value is not None))
    return Or((Not(Exists(key)), rest)) if None in values else rest


def _bound(operator: str) -> Callable[[str, Any], Filter]:
    def bound(key: str, value: Any) -> Filter:
        if value is None:
            return _NOTHING
        if isinstance(value, str):
            _check_date(key, value)
        return Range(key, **{_BOUNDS[operator]: value})

    return bound


def _check_date(key: str, value: str) -> None:
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise FilterError(f"{key!r}: texts have an order where they are ISO dates only, not {value!r:.80}") from error


_OPERATORS: Final[dict[str, Callable[[str, Any], Filter]]] = {
    "==": _equal,
    "!=": lambda key, value: Not(_equal(key, value)),
    "in": _in,
    "not in": lambda key, values: Not(_in(key, values)),
    **{operator: _bound(operator) for operator in _BOUNDS},
}
