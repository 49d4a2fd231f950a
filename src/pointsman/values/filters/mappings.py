"""Reads a filter from a mapping, such as ``{"lang": "ru", "year": {"gte": 2020}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pointsman.tools.errors import FilterError
from pointsman.values.filters.conditions import (
    PARTS_OF_TEXT,
    And,
    Exists,
    Filter,
    Not,
    Or,
    Range,
    bounded_depth,
    bounded_leaves,
    check_key,
    equal_to,
    one_of,
    typed_operand,
)

_COMBINING = ("$and", "$or", "$not")
_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists", *PARTS_OF_TEXT)


class MappingReader:
    """Counts conditions while reading, so a mapping that contains itself repeatedly cannot explode."""

    def __init__(self) -> None:
        self._leaves = 0

    def read(self, source: object, depth: int) -> Filter:
        """Return the filter of a mapping at a depth, from 1; raises `FilterError`."""
        bounded_depth(depth)
        if isinstance(source, Filter):
            self._count(source.leaves)
            return source
        if not isinstance(source, Mapping):
            raise FilterError(f"the parts of a filter are mappings, not {source!r:.80}")
        conditions = [condition for key, operand in source.items() for condition in self._entry(key, operand, depth)]
        if not conditions:
            self._count(1)
        return conditions[0] if len(conditions) == 1 else And(tuple(conditions))

    def _entry(self, key: object, operand: object, depth: int) -> list[Filter]:
        check_key(key)
        assert isinstance(key, str)
        if key == "$not":
            return [Not(self.read(operand, depth + 1))]
        if key in _COMBINING:
            if not isinstance(operand, list | tuple):
                raise FilterError(f"{key} takes a list of mappings, not {operand!r:.80}")
            if not operand:
                self._count(1)
            return [(And if key == "$and" else Or)(tuple(self.read(item, depth + 1) for item in operand))]
        # A key may begin with "$" too; but what holds conditions, or nothing, is a misspelt operator.
        if key.startswith("$") and (key[1:] in _OPERATORS or operand in ([], ()) or _holds_conditions(operand)):
            raise FilterError(f"unknown operator {key!r}; known here: {', '.join(_COMBINING)}")
        if f"${key}" in _COMBINING and _holds_conditions(operand):
            raise FilterError(f"{key!r} would be a key of the metadata; conditions are combined by '${key}'")
        if isinstance(operand, Mapping):
            return self._operators(key, operand)
        self._count(1)
        return [one_of(key, operand) if isinstance(operand, list | tuple) else equal_to(key, operand)]

    def _operators(self, key: str, conditions: Mapping[Any, Any]) -> list[Filter]:
        operators: dict[str, Any] = {}
        for operator, value in conditions.items():
            name = str(operator).removeprefix("$")
            if name not in _OPERATORS:
                raise FilterError(f"{key!r}: unknown operator {operator!r:.80}; known: {', '.join(_OPERATORS)}")
            if name in operators:
                raise FilterError(f"{key!r}: {name} is given twice, with and without $")
            operators[name] = value
        if not operators:
            raise FilterError(f"{key!r}: an empty mapping is not a condition; known operators: {', '.join(_OPERATORS)}")
        bounds = {name: operators.pop(name) for name in ("gt", "gte", "lt", "lte") if name in operators}
        for name, bound in bounds.items():
            typed_operand(f"{key} {name}", bound)  # None would look like a missing bound
        filters: list[Filter] = [Range(key, **bounds)] if bounds else []
        filters += [_operator(key, name, value) for name, value in operators.items()]
        self._count(len(filters))
        return filters

    def _count(self, leaves: int) -> None:
        self._leaves = bounded_leaves(self._leaves + leaves)


def _holds_conditions(operand: object) -> bool:
    """Whether an operand is for ``$and``, ``$or`` or ``$not``, and none that a key of the metadata can have."""
    if isinstance(operand, Mapping):
        return any(str(name).removeprefix("$") not in _OPERATORS for name in operand)
    return isinstance(operand, list | tuple) and any(isinstance(item, Mapping) for item in operand)


def _operator(key: str, name: str, value: Any) -> Filter:
    if name == "exists":
        if not isinstance(value, bool):
            raise FilterError(f"{key!r}: exists takes true or false, not {value!r:.80}")
        return Exists(key) if value else Not(Exists(key))
    if name in PARTS_OF_TEXT:
        make, ignore_case = PARTS_OF_TEXT[name]
        return make(key, value, ignore_case)
    condition = equal_to(key, value) if name in {"eq", "ne"} else one_of(key, value)
    return Not(condition) if name in {"ne", "nin"} else condition
