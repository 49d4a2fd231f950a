"""Searching datasets as OpenAI's vector stores: each dataset is a store, and each document a file.

Unknown parameters are errors; none is ignored. Whatever else OpenAI's client asks for is refused with the remedy.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Path
from pydantic import Field, JsonValue
from starlette.responses import Response

from pointsman.service.server import schemas
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.routes.dify import degraded_in, relevance, search_dataset
from pointsman.service.server.schemas import NAME, StrictRequest
from pointsman.service.server.state import Reader, Shared, problem_responses
from pointsman.tools.errors import FilterError
from pointsman.values.filters import And, Equals, Filter, In, Not, Or, Range
from pointsman.values.wire import notes_of, public_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.values.types import Document, Hit

log = logging.getLogger(__name__)


router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["protocols"])


_SEARCHES = problem_responses("not-found", "conflict", "too-large", "unsupported-media-type")


SERVED_ELSEWHERE: Final = (
    "OpenAI's client searches vector stores here, and nothing else: GET /api/datasets lists them, GET "
    "/api/datasets/NAME/documents reads what they hold; index files with `pointsman index`, or send their text to POST "
    "/api/datasets/NAME/documents (POST and DELETE /api/datasets make and delete datasets)"
)
"""The answer to what OpenAI has, and this service not."""

OF_OPENAI: Final = re.compile(r"/v1/(?:vector_stores|files|uploads)(?:/.*)?", re.DOTALL)
"""The paths of OpenAI's vector stores and files."""


StoreName = Annotated[str, Path(max_length=64, pattern=NAME, description="The dataset's name.")]


class RankingOptions(StrictRequest):
    """Ranking options.

    Attributes:
        ranker: `none`: do not rerank; any other: as configured.
    """

    ranker: str | None = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None


class StoreSearchRequest(StrictRequest):
    """A search in OpenAI's vector store API.

    Attributes:
        filters: `{"type": "eq", "key": …, "value": …}`, or `{"type": "and", "filters": […]}`.
        rewrite_query: Whether each query is also searched in other words, made by rules.
    """

    query: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=16)]
    filters: dict[str, JsonValue] | None = None
    max_num_results: Annotated[int, Field(ge=1, le=50)] = 10  # as in OpenAI's API
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool | None = None


class StorePage(schemas.Open):
    """A list in OpenAI's format."""

    object: str
    data: list[dict[str, Any]]
    has_more: bool


@router.post(
    "/vector_stores/{name}/search", response_model=StorePage, responses=_SEARCHES, operation_id="search_vector_store"
)
async def search_store(state: Shared, access: Reader, name: StoreName, body: StoreSearchRequest) -> Response:
    """Search a dataset; with several queries, each hit has its best score."""
    texts = [body.query] if isinstance(body.query, str) else body.query
    filters = None if body.filters is None else filter_of_openai(body.filters, 1)
    strategy = "multi_query" if body.rewrite_query else "auto"
    rerank = False if body.ranking_options.ranker == "none" else None
    contexts = await search_dataset(state, access, name, texts, body.max_num_results, filters, rerank, strategy)
    best: dict[str, Hit] = {}
    for hit in (hit for context in contexts for hit in context.hits):
        if hit.id not in best or relevance(hit) > relevance(best[hit.id]):
            best[hit.id] = hit
    hits = sorted(best.values(), key=relevance, reverse=True) if len(contexts) > 1 else list(best.values())
    threshold = body.ranking_options.score_threshold or 0.0
    data = [
        {
            "file_id": hit.id,
            "filename": _filename(hit.document),
            "score": relevance(hit),
            "attributes": {**_attributes(hit.document), **notes_of(hit)},
            "content": [{"type": "text", "text": hit.text}],
        }
        for hit in hits[: body.max_num_results]
        if threshold <= 0 or relevance(hit) >= threshold
    ]
    page = {"object": "vector_store.search_results.page", "search_query": texts, "data": data}
    notices = {
        "verdicts": [context.verdict for context in contexts],
        "refused": [context.refused.reason for context in contexts if context.refused is not None],
        "degraded": degraded_in(state, contexts),
    }
    return Json({**page, "has_more": False, "next_page": None, **notices})


def _filename(document: Document) -> str:
    source = document.metadata.get("source")
    return source if isinstance(source, str) and source else document.title or document.id


def _attributes(document: Document) -> dict[str, Any]:
    """Return metadata in OpenAI's form: texts, numbers and booleans."""
    return {
        name: value
        for name, value in public_metadata(document.metadata).items()
        if isinstance(value, (str, int, float))
    }


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
