"""Converts Haystack filters to Pointsman filters."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from haystack.errors import FilterError

from pointsman.tools.errors import FilterError as OurFilterError
from pointsman.values.filters import And, Filter, Not, Or, Range, equal_to, one_of
from pointsman.values.metadata import ID, TEXT

_FIELDS: Final = frozenset({"blob", "score", "embedding", "sparse_embedding"})
_OWN_KEYS: Final = {"id": ID, "content": TEXT}
_BOUNDS: Final = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_NO_MATCH: Final = Or(())


def filter_of(filters: Mapping[str, Any]) -> Filter:
    """Convert a Haystack filter to a Pointsman filter.

    Dates with a time zone are compared as instants; those without one as texts, so write all of them in one form of
    ISO 8601. A boolean is not a number, and a list stands for its members.

    Raises:
        FilterError: (Haystack's) it is malformed, or on something else than metadata, the id and the content.
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
    if not isinstance(filters["conditions"], list | tuple):
        raise FilterError(f"conditions are a list of filters, not {filters['conditions']!r:.80}")
    operands = tuple(filter_of(condition) for condition in filters["conditions"])
    match filters["operator"]:
        case "AND":
            return And(operands)
        case "OR":
            return Or(operands)
        case "NOT":  # in Haystack: not all of them
            return Not(And(operands))
    raise FilterError(f"unknown operator {filters['operator']!r:.80}; there are AND, OR and NOT")


def _comparison(condition: Mapping[str, Any]) -> Filter:
    for key in ("operator", "value"):
        if key not in condition:
            raise FilterError(f"{key!r} is missing in {condition!r:.200}")
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if not isinstance(field, str) or field in _FIELDS:
        raise FilterError(f"metadata, the id and the content can be filtered on, not {field!r:.80}")
    make = _OPERATORS.get(operator) if isinstance(operator, str) else None
    if make is None:
        raise FilterError(f"unknown operator {operator!r:.80}; there are {', '.join(_OPERATORS)}")
    if field == "content" and operator in _BOUNDS:
        raise FilterError(f"the content has no order; it can be compared by ==, !=, in and not in, not {operator!r}")
    return make(_OWN_KEYS.get(field) or field.removeprefix("meta."), value)


def _one_of(key: str, values: Any) -> Filter:
    if not isinstance(values, list):
        raise FilterError(f"{key!r}: in and not in take a list, not {values!r:.80}")
    return one_of(key, values)


def _bound(operator: str) -> Callable[[str, Any], Filter]:
    def bound(key: str, value: Any) -> Filter:
        if value is None:
            return _NO_MATCH
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
    "==": equal_to,
    "!=": lambda key, value: Not(equal_to(key, value)),
    "in": _one_of,
    "not in": lambda key, values: Not(_one_of(key, values)),
    **{operator: _bound(operator) for operator in _BOUNDS},
}
