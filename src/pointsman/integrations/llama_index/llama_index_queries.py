"""LlamaIndex's vector store queries: their modes as searches, their filters as filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from pointsman.integrations.framework_sources import diverse, hits_by_both, hits_by_words
from pointsman.tools.errors import FilterError, InputError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import And, Contains, Equals, Exists, Filter, In, Not, Or, Range, equal_to, one_of
from pointsman.values.metadata import ID
from pointsman.values.types import Hit, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llama_index.core.vector_stores.types import MetadataFilter

    from pointsman.workspace.dataset import Dataset


def _vector_hits(
    dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]
) -> list[Hit]:
    return dataset.search_vector(_embedding(query), query.similarity_top_k, filters=filters, **groups)


def _embedding(query: VectorStoreQuery) -> list[float]:
    if query.query_embedding is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_embedding")
    return query.query_embedding


def _words(dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]) -> list[Hit]:
    if query.query_str is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_str")
    k = query.sparse_top_k or query.similarity_top_k
    return hits_by_words(dataset, Query(query.query_str, filters), k, **groups)


def _hybrid_hits(
    dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]
) -> list[Hit]:
    if query.query_str is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_str")
    k = query.hybrid_top_k or query.similarity_top_k
    depth = query.sparse_top_k or query.similarity_top_k
    question = Query(query.query_str, filters)
    return hits_by_both(dataset, question, _embedding(query), k, alpha=query.alpha, depth=depth, **groups)


def diverse_hits(
    dataset: Dataset,
    query: VectorStoreQuery,
    filters: Filter | None,
    groups: Mapping[str, Any],
    *,
    mmr_threshold: float | None = None,
    mmr_prefetch_factor: float | None = None,
    mmr_prefetch_k: int | None = None,
) -> list[Hit]:
    """Return the nearest documents, each unlike those before it; see `PointsmanVectorStore.query`."""
    weight = query.mmr_threshold if mmr_threshold is None else mmr_threshold
    k = check_top_k(query.similarity_top_k)
    fetch = mmr_prefetch_k
    if fetch is None:
        try:
            fetch = int(k * (4 if mmr_prefetch_factor is None else mmr_prefetch_factor))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"mmr_prefetch_factor is a number from 1 up, not {mmr_prefetch_factor!r:.80}") from error
    hits = dataset.search_vector(_embedding(query), max(check_top_k(fetch), k), filters=filters, **groups)
    return diverse(dataset, hits, k, 0.5 if weight is None else weight)


MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})


MODES: Final[
    dict[VectorStoreQueryMode, Callable[[Dataset, VectorStoreQuery, Filter | None, Mapping[str, Any]], list[Hit]]]
] = {
    VectorStoreQueryMode.DEFAULT: _vector_hits,
    VectorStoreQueryMode.SPARSE: _words,
    VectorStoreQueryMode.TEXT_SEARCH: _words,
    VectorStoreQueryMode.HYBRID: _hybrid_hits,
    VectorStoreQueryMode.SEMANTIC_HYBRID: _hybrid_hits,
}


def filter_of_query(query: VectorStoreQuery) -> Filter | None:
    """Return which documents a query allows; None if all."""
    conditions: list[Filter] = []
    if query.filters is not None and query.filters.filters:
        conditions.append(filter_of(query.filters))
    if query.node_ids:  # an index passes an empty list when it restricts nothing
        conditions.append(In(ID, tuple(query.node_ids)))
    if query.doc_ids is not None:
        conditions.append(In("ref_doc_id", tuple(query.doc_ids)))
    return And(tuple(conditions)) if conditions else None


def filter_of(filters: MetadataFilters) -> Filter:
    """Converts LlamaIndex filters to a Pointsman filter; ``not`` means that none of them matches.

    Raises:
        FilterError: an operator is not supported, or a value cannot be compared.
    """
    operands = tuple(
        filter_of(operand) if isinstance(operand, MetadataFilters) else _condition(operand)
        for operand in filters.filters
    )
    if filters.condition is FilterCondition.NOT:
        return Not(Or(operands))
    return Or(operands) if filters.condition is FilterCondition.OR and operands else And(operands)


def _condition(condition: MetadataFilter) -> Filter:
    key, value, operator = condition.key, cast("Any", condition.value), condition.operator
    make = _OPERATORS.get(operator)
    if make is None:
        raise FilterError(f"{key!r}: there is no filter for {operator.value!r}")
    if operator in _OF_LISTS and not isinstance(value, list):
        raise FilterError(f"{key!r}: {operator.value} takes a list, not {value!r:.80}")
    return make(key, value)


_OF_LISTS: Final = frozenset({FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL})


_OPERATORS: Final[dict[FilterOperator, Callable[[str, Any], Filter]]] = {
    FilterOperator.EQ: equal_to,
    FilterOperator.NE: lambda key, value: Not(equal_to(key, value)),
    FilterOperator.GT: lambda key, value: Range(key, gt=value),
    FilterOperator.GTE: lambda key, value: Range(key, gte=value),
    FilterOperator.LT: lambda key, value: Range(key, lt=value),
    FilterOperator.LTE: lambda key, value: Range(key, lte=value),
    FilterOperator.IN: one_of,
    FilterOperator.NIN: lambda key, value: Not(one_of(key, value)),
    FilterOperator.ANY: lambda key, value: In(key, tuple(value)),
    FilterOperator.ALL: lambda key, value: And(tuple(Equals(key, element) for element in value)),
    FilterOperator.CONTAINS: Equals,
    FilterOperator.TEXT_MATCH: Contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, value: Contains(key, value, ignore_case=True),
    FilterOperator.IS_EMPTY: lambda key, _: Or((Not(Exists(key)), Equals(key, ""))),
}
