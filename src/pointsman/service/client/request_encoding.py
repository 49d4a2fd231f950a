"""How questions, filters and other values are sent to a service."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from pointsman.retrieval.request import OPTIONS, SearchRequest
from pointsman.tools.errors import FilterError, InputError
from pointsman.tools.network.http_addresses import one_line
from pointsman.values.filters import And, Equals, Exists, In, Not, Or, PartOfText, Range, parse_optional
from pointsman.values.filters.conditions import MAX_LENGTH
from pointsman.values.metadata import plain
from pointsman.values.retrieval_context import TRACE_DETAILS
from pointsman.values.types import AddResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pointsman.values.filters import Filter
    from pointsman.values.retrieval_context import TraceDetail
    from pointsman.values.types import Query

_URL_BYTES: Final = 39_000
"""Most bytes of URL parameters: a service accepts addresses of 40,000 bytes."""

_PLAIN_NAME = re.compile(r"[\w\-][\w.\- ]*")
"""Names that cannot be a path; the service decides whether they can name a dataset."""


def as_json(value: Any) -> bytes:
    """Encode a value as JSON.

    Raises:
        InputError: the value cannot be encoded.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"this cannot be sent as JSON: {one_line(str(error))}") from None


def sendable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def time_limit(value: Any) -> float:
    """Check a number of seconds.

    Raises:
        InputError: it is not a positive number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"timeout is a number of seconds above 0, not {value!r:.80}")
    return value


def number_of(value: Any) -> int:
    """Check a count from an external source.

    Raises:
        TypeError: it is not a count.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"expected a whole number of at least 0, not {value!r:.80}")
    return value


def counts_of(answer: Mapping[str, Any]) -> AddResult | None:
    """Return the numbers of written documents; None for a key that is for writing only, which does not learn them.

    Raises:
        KeyError, TypeError: the answer has none.
    """
    counts = [answer[name] for name in ("added", "updated", "unchanged")]
    if counts == [None] * len(counts):
        return None
    return AddResult(*map(number_of, (*counts, answer.get("truncations", 0))))  # earlier services give no truncations


def sent_options(request: SearchRequest, trace: TraceDetail) -> dict[str, Any]:
    """Return the options of a search in the form that is sent.

    Raises:
        InputError: an option cannot be sent.
    """
    options = {name: getattr(request, name) for name in OPTIONS if name != "filters"}  # those go with each query
    for name, value in options.items():
        if value is not None and not isinstance(value, (str, int, float, tuple)):
            raise InputError(
                f"{name} cannot be sent to a service as {type(value).__name__}: objects are not sent; have the "
                "service use it, or open the workspace itself"
            )
    if trace not in TRACE_DETAILS:
        raise InputError(f"trace is one of {', '.join(TRACE_DETAILS)}, not {trace!r:.80}")
    if request.timeout is not None:
        time_limit(request.timeout)
    return {**options, "trace": trace}


def with_history(query: Query) -> dict[str, Any]:
    """Return what a query has besides its text."""
    return {
        "filters": None if query.filters is None else sent_filter(query.filters),
        "history": [{"role": turn.role, "text": sendable(turn.text)} for turn in query.history],
    }


def matching(filters: str | Mapping[str, Any] | Filter | None) -> dict[str, str]:
    """Return the URL parameters of a filter; empty without a filter."""
    condition = parse_optional(filters)
    return {} if condition is None else {"filters": str(condition)}


def encode_parameters(parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """Encode URL parameters.

    Raises:
        InputError: they are longer than a service accepts, because of a filter.
    """
    query = urlencode(parameters)
    if len(query) > _URL_BYTES and "filters" in dict(parameters):
        raise InputError(
            f"a filter of {len(query):,} bytes is too long for an address, which has at most {_URL_BYTES:,}; searches "
            "and deletions take longer filters"
        )
    return query


def sent_filter(filters: Filter) -> str | dict[str, Any]:
    """Return a filter as an expression, or as a mapping if the expression would be too long to parse.

    >>> sent_filter(parse_optional({"year": {"gte": 2020}}))
    'year >= 2020'
    """
    text = str(filters)
    return text if len(text) <= MAX_LENGTH else _mapping(filters)


def _mapping(filters: Filter) -> dict[str, Any]:  # noqa: PLR0911  (one for each kind)
    if isinstance(filters, And | Or):
        return {f"${filters.word}": [_mapping(operand) for operand in filters.parts]}
    if isinstance(filters, Not):
        return {"$not": _mapping(filters.part)}
    if isinstance(filters, Exists):
        return {filters.key: {"exists": True}}
    if isinstance(filters, Equals):
        return {filters.key: {"eq": _sent_value(filters.value)}}
    if isinstance(filters, In):
        return {filters.key: {"in": list(map(_sent_value, filters.values))}}
    if isinstance(filters, Range):
        bounds = {name: getattr(filters, name) for name in ("gt", "gte", "lt", "lte")}
        return {filters.key: {name: _sent_value(bound) for name, bound in bounds.items() if bound is not None}}
    if isinstance(filters, PartOfText):
        return {filters.key: {f"{'i' * filters.ignore_case}{filters.operator}": filters.part}}
    raise FilterError(f"a {type(filters).__name__} cannot be sent as a filter; create one with parse_filter")


def _sent_value(value: object) -> Any:
    return value if isinstance(value, str | int | float) else plain(value)


def batches(max_size: int, *measures: tuple[Sequence[int], int]) -> Iterator[tuple[int, int]]:
    """Yield slices of at most ``max_size`` items that keep within each measure's limit, except single items above it.

    Args:
        max_size: maximum number of items in a slice.
        measures: the size of each item, and the limit of a slice, in bytes, characters …

    >>> list(batches(2, ([5, 5, 5, 30, 5], 12)))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    start, totals = 0, [0] * len(measures)
    for position in range(len(measures[0][0])):
        totals = [total + sizes[position] for total, (sizes, _) in zip(totals, measures, strict=True)]
        full = any(total > room for total, (_, room) in zip(totals, measures, strict=True))
        if position > start and (full or position - start >= max_size):
            yield start, position
            start, totals = position, [sizes[position] for sizes, _ in measures]
    if start < len(measures[0][0]):
        yield start, len(measures[0][0])


def path_of_dataset(name: str) -> str:
    """Return a dataset's name as a part of a path; one that could itself be a path is refused: no dataset has it."""
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        from pointsman.workspace.dataset import check_name

        check_name(name)
    return quote(name, safe="")


def can_be_an_id(text: str) -> bool:
    """Whether a document could have this id."""
    return bool(text) and storable(text)


def storable(text: str) -> bool:
    """Whether a service could store this text unchanged."""
    return text == sendable(text)
