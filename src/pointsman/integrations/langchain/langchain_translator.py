"""Structured queries of LangChain as filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.structured_query import Comparator, Operator, Visitor

from pointsman.tools.errors import FilterError
from pointsman.values.filters import And, Contains, EndsWith, Filter, Not, Or, Range, StartsWith, equal_to, one_of

if TYPE_CHECKING:
    from langchain_core.structured_query import Comparison, Operation, StructuredQuery


class PointsmanTranslator(Visitor):
    """Converts structured queries, such as those of LangChain's self-query retriever, to Pointsman filters.

    ``contain`` matches a member of a list, ``like`` a part of a text, case-sensitively: ``%part%`` or ``part``
    anywhere, ``part%`` at its beginning. Patterns with other wildcards raise.
    """

    allowed_comparators = tuple(Comparator)
    allowed_operators = tuple(Operator)

    def visit_operation(self, operation: Operation) -> Filter:
        """Convert several conditions.

        Raises:
            FilterError: ``not`` has more than one condition.
        """
        operands = tuple(argument.accept(self) for argument in operation.arguments)
        if operation.operator is Operator.NOT:
            if len(operands) != 1:
                raise FilterError(f"not takes one condition, not {len(operands)}")
            return Not(operands[0])
        return And(operands) if operation.operator is Operator.AND else Or(operands)

    def visit_comparison(self, comparison: Comparison) -> Filter:
        """Convert one condition.

        Raises:
            FilterError: the comparator is not supported, or the value cannot be compared.
        """
        key, value, name = comparison.attribute, comparison.value, comparison.comparator
        if isinstance(value, Mapping):  # the form in which the query constructor writes dates
            mapping, value = value, value.get("datetime", value.get("date"))
            if value is None:
                raise FilterError(f"{key!r}: a mapping here has a date or a datetime, not {mapping!r:.80}")
        if name in {Comparator.EQ, Comparator.CONTAIN}:
            return equal_to(key, value)
        if name is Comparator.NE:
            return Not(equal_to(key, value))
        if name is Comparator.IN:
            return one_of(key, value)
        if name is Comparator.NIN:
            return Not(one_of(key, value))
        if name is Comparator.LIKE:
            return _like(key, value)
        return Range(key, **{name.value: value})

    def visit_structured_query(self, structured_query: StructuredQuery) -> tuple[str, dict[str, Any]]:
        """Return the text to search for, and arguments of ``similarity_search``."""
        arguments: dict[str, Any] = {}
        if structured_query.filter is not None:
            arguments["filter"] = structured_query.filter.accept(self)
        if structured_query.limit is not None:
            arguments["k"] = structured_query.limit
        return structured_query.query, arguments


def _like(key: str, pattern: object) -> Filter:
    """Convert an SQL pattern.

    Raises:
        FilterError: it has wildcards that filters do not support.
    """
    text = pattern if isinstance(pattern, str) else ""
    substring = text.removesuffix("%").removeprefix("%")
    if not substring or "%" in substring or "_" in substring:
        raise FilterError(f"{key!r}: like takes part, %part%, part% or %part, not {pattern!r:.80}")
    if text.startswith("%") == text.endswith("%"):
        return Contains(key, substring)
    return (EndsWith if text.startswith("%") else StartsWith)(key, substring)
