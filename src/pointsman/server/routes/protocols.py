"""Foreign protocols on the same search: Dify's external knowledge, and OpenAI's vector stores.

For Dify, a dataset is a knowledge with the same name. For OpenAI's clients it is a vector store, and each document a
file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.responses import Response

from pointsman.errors import FilterError, InputError, StoreError
from pointsman.filters import And, Contains, EndsWith, Equals, Exists, Filter, In, Not, Or, Range, StartsWith
from pointsman.server import schemas
from pointsman.server.answers import Json
from pointsman.server.problems import HttpProblem
from pointsman.server.schemas import NAME
from pointsman.server.searching import prepare
from pointsman.server.state import Reader, Shared, in_thread, problem_responses
from pointsman.server.strict import StrictRoute
from pointsman.types import NEAREST
from pointsman.wire import label_of, public_metadata

if TYPE_CHECKING:
    from pointsman.dataset import Dataset
    from pointsman.server.access import Access
    from pointsman.server.state import State
    from pointsman.types import Document, Hit, RetrievalContext

log = logging.getLogger(__name__)

router = APIRouter(route_class=StrictRoute, tags=["protocols"])

_SEARCHES = problem_responses("not-found", "conflict", "invalid-input", "too-large", "unsupported-media-type")
_READS = problem_responses("not-found", "invalid-input")
_LARGEST: Final = 50  # results of one search in OpenAI's API


def relevance(hit: Hit) -> float:
    """Return the score for both protocols: the probability that the hit is relevant, if known.

    Without calibration it is the hit's own score, which only orders hits.
    """
    return float(hit.score if hit.relevance is None else hit.relevance)


class _Foreign(BaseModel):
    """A request of a foreign client; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


# ── Dify ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class RetrievalSetting(_Foreign):
    """Number and minimum score of records."""

    top_k: Annotated[int | None, Field(ge=1, description="5 if null.")] = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False, description="0 or null: keep all.")] = None


class MetadataRule(_Foreign):
    """One condition on the metadata."""

    name: Annotated[str | list[str], Field(description="A key, or several, one of which must match.")]
    comparison_operator: str
    value: JsonValue = None


class MetadataCondition(_Foreign):
    """Conditions on the metadata."""

    logical_operator: Annotated[Literal["and", "or"] | None, Field(description="`and` if null.")] = None
    conditions: Annotated[list[MetadataRule] | None, Field(max_length=100)] = None


class KnowledgeRequest(_Foreign):
    """A question from Dify."""

    knowledge_id: Annotated[str, Field(description="The dataset's name.")]
    query: Annotated[str, Field(min_length=1)]
    retrieval_setting: RetrievalSetting | None = None
    metadata_condition: MetadataCondition | None = None


class KnowledgeRecord(schemas.Open):
    """A passage."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any]


class KnowledgeRecords(schemas.Open):
    """Passages, best first."""

    records: list[KnowledgeRecord]


@router.post("/retrieval", response_model=KnowledgeRecords, responses=_SEARCHES, operation_id="dify_retrieval")
async def retrieval(state: Shared, access: Reader, body: KnowledgeRequest) -> Response:
    """Search through Dify's external knowledge API; errors have its `error_code` and `error_msg`.

    Dify shows records and passes their texts to the model, and nothing else. So a refusal is a record: one that says
    that there is probably no answer, followed by the nearest passages.
    """
    setting = body.retrieval_setting or RetrievalSetting()
    filters = _of_dify(body.metadata_condition or MetadataCondition())
    (context,) = await _searched(state, access, body.knowledge_id, [body.query], setting.top_k or 5, filters)
    threshold = setting.score_threshold or 0.0
    if context.refused is not None:
        return Json({"records": _refusal_records(context, threshold)})
    records = [
        {
            "content": hit.text,
            "score": relevance(hit),
            "title": label_of(hit.metadata, hit.text),
            "metadata": {**public_metadata(hit.metadata), "document_id": hit.id},
        }
        for hit in context.hits
        if threshold <= 0 or relevance(hit) >= threshold
    ]
    return Json({"records": records})


def _refusal_records(context: RetrievalContext, least: float) -> list[dict[str, Any]]:
    """Return the record that says that an answer was refused; none if even the nearest passage is below the score."""
    refusal = context.refused
    if refusal is None or refusal.nearest is None or (least > 0 and relevance(refusal.nearest) < least):
        return []
    metadata = {"refused": refusal.reason, "document_ids": [hit.id for hit in refusal.near_misses]}
    record = {"content": context.to_prompt(), "score": relevance(refusal.nearest), "title": NEAREST}
    return [{**record, "metadata": metadata}]


def _of_dify(condition: MetadataCondition) -> Filter | None:
    if not condition.conditions:
        return None
    operands = tuple(_rule(rule) for rule in condition.conditions)
    return Or(operands) if condition.logical_operator == "or" else And(operands)


def _rule(rule: MetadataRule) -> Filter:
    """Convert one condition of Dify.

    Raises:
        FilterError: the operator is not supported, or does not accept this value.
    """
    make = _OF_DIFY.get(rule.comparison_operator)
    if make is None:
        raise FilterError(
            f"comparison_operator {rule.comparison_operator!r:.80} is not supported; use one of {', '.join(_OF_DIFY)}"
        )
    names = [rule.name] if isinstance(rule.name, str) else rule.name
    filters = tuple(make(name, rule.value) for name in names)
    return filters[0] if len(filters) == 1 else Or(filters)


def _empty(key: str) -> Filter:
    return Or((Not(Exists(key)), Equals(key, "")))


def _number(value: Any) -> Any:
    """Convert a number, which Dify sends as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError as error:
        raise FilterError(f"expected a number, not {value!r:.80}") from error


def _several(value: Any) -> tuple[Any, ...]:
    """Convert a list, or a text with commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(","))
    if isinstance(value, list):
        return tuple(value)
    raise FilterError(f"expected a list, not {value!r:.80}")


_OF_DIFY: Final[dict[str, Callable[[str, Any], Filter]]] = {
    "contains": Contains,
    "not contains": lambda key, value: Not(Contains(key, value)),
    "start with": StartsWith,
    "end with": EndsWith,
    "is": Equals,
    "is not": lambda key, value: Not(Equals(key, value)),
    "in": lambda key, value: In(key, _several(value)),
    "not in": lambda key, value: Not(In(key, _several(value))),
    "empty": lambda key, _: _empty(key),
    "not empty": lambda key, _: Not(_empty(key)),
    "null": lambda key, _: Not(Exists(key)),
    "not null": lambda key, _: Exists(key),
    "=": lambda key, value: Equals(key, _number(value)),
    "≠": lambda key, value: Not(Equals(key, _number(value))),
    ">": lambda key, value: Range(key, gt=_number(value)),
    "<": lambda key, value: Range(key, lt=_number(value)),
    "≥": lambda key, value: Range(key, gte=_number(value)),
    "≤": lambda key, value: Range(key, lte=_number(value)),
    "before": lambda key, value: Range(key, lt=value),
    "after": lambda key, value: Range(key, gt=value),
}


# ── OpenAI ───────────────────────────────────────────────────────────────────────────────────────────────────────────

StoreName = Annotated[str, Path(max_length=64, pattern=NAME, description="The dataset's name.")]
_PRINTABLE: Final = r"^[\w\p{L}\p{N}\p{P}\p{S}\u0300-\u036f\ufe0f \xa0\u2000-\u200a\u202f\u205f\u3000]+$"
FileId = Annotated[str, Path(pattern=_PRINTABLE, description="The document's id.")]


class RankingOptions(_Foreign):
    """Ranking options."""

    ranker: Annotated[str | None, Field(description="`none`: do not rerank; any other: as configured.")] = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None


class StoreSearchRequest(_Foreign):
    """A search in OpenAI's vector store API."""

    query: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=16)]
    filters: Annotated[
        dict[str, JsonValue] | None,
        Field(description='`{"type": "eq", "key": …, "value": …}`, or `{"type": "and", "filters": […]}`.'),
    ] = None
    max_num_results: Annotated[int, Field(ge=1, le=_LARGEST)] = 10
    ranking_options: RankingOptions = RankingOptions()


class StorePage(schemas.Open):
    """A list in OpenAI's format."""

    object: str
    data: list[dict[str, Any]]
    has_more: bool


class StoreObject(schemas.Open):
    """An object in OpenAI's format."""

    id: str
    object: str


Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(description="The id after which the page starts.")]
Order = Annotated[Literal["asc", "desc"], Query(description="Files in the order of arrival; vector stores by name.")]


@router.get("/v1/vector_stores", response_model=StorePage, responses=_READS, operation_id="list_vector_stores")
async def list_stores(
    state: Shared, access: Reader, limit: Limit = 20, after: After = None, order: Order = "asc"
) -> Response:
    """List the datasets that the key allows, as vector stores."""

    def page() -> dict[str, Any]:
        names, has_more = _slice(access.visible(state.workspace.names()), after, limit, order)
        return _page([_store(dataset) for dataset in state.datasets(access, names)], names, more=has_more)

    return Json(await in_thread(page))


@router.get("/v1/vector_stores/{name}", response_model=StoreObject, responses=_READS, operation_id="get_vector_store")
async def get_store(state: Shared, access: Reader, name: StoreName) -> Response:
    """Get a dataset as a vector store."""
    return Json(await in_thread(lambda: _store(state.dataset(access, name))))


@router.post(
    "/v1/vector_stores/{name}/search",
    response_model=StorePage,
    responses=_SEARCHES,
    operation_id="search_vector_store",
)
async def search_store(state: Shared, access: Reader, name: StoreName, body: StoreSearchRequest) -> Response:
    """Search a dataset; with several queries, each hit has its best score."""
    texts = [body.query] if isinstance(body.query, str) else body.query
    filters = None if body.filters is None else _of_openai(body.filters, 1)
    rerank = False if body.ranking_options.ranker == "none" else None
    contexts = await _searched(state, access, name, texts, body.max_num_results, filters, rerank)
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
            "attributes": _attributes(hit.document),
            "content": [{"type": "text", "text": hit.text}],
        }
        for hit in hits[: body.max_num_results]
        if threshold <= 0 or relevance(hit) >= threshold
    ]
    page = {"object": "vector_store.search_results.page", "search_query": texts, "data": data}
    return Json({**page, "has_more": False, "next_page": None})


@router.get(
    "/v1/vector_stores/{name}/files", response_model=StorePage, responses=_READS, operation_id="list_vector_store_files"
)
async def list_files(
    state: Shared, access: Reader, name: StoreName, limit: Limit = 20, after: After = None, order: Order = "asc"
) -> Response:
    """List the documents of a dataset, as files."""

    def page() -> dict[str, Any]:
        dataset = state.dataset(access, name)
        ids, has_more = _slice(dataset.ids(), after, limit, order)
        documents = [document for document in dataset.get_many(ids) if document is not None]
        return _page([_file(name, document) for document in documents], ids, more=has_more)

    return Json(await in_thread(page))


@router.get(
    "/v1/vector_stores/{name}/files/{file_id:path}",
    response_model=StoreObject,
    responses=_READS,
    operation_id="get_vector_store_file",
)
async def get_file(state: Shared, access: Reader, name: StoreName, file_id: FileId) -> Response:
    """Get a document as a file; its text is under `/content`."""
    content = file_id.endswith("/content")
    dataset = await in_thread(state.dataset, access, name)
    document = await in_thread(dataset.get, file_id)
    if document is None and content:
        document = await in_thread(dataset.get, file_id.removesuffix("/content"))
        if document is not None:
            texts = [{"type": "text", "text": document.text}]
            return Json({"object": "vector_store.file_content.page", "data": texts, "has_more": False})
    if document is None:
        raise HttpProblem("not-found", f"there is no document {file_id!r:.80} in dataset {name!r}", kind="document")
    return Json(_file(name, document))


def _of_openai(filters: Any, depth: int) -> Filter:
    """Convert a filter of OpenAI.

    Raises:
        FilterError: it is malformed.
    """
    if not isinstance(filters, dict) or depth > _DEEPEST:
        raise FilterError(f"a filter is an object with type, nested at most {_DEEPEST} deep, not {filters!r:.80}")
    kind = filters.get("type")
    if kind in {"and", "or"}:
        inner = filters.get("filters")
        if not isinstance(inner, list):
            raise FilterError(f"a filter of type {kind!r} has a list of filters, not {inner!r:.80}")
        operands = tuple(_of_openai(operand, depth + 1) for operand in inner)
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


def _store(dataset: Dataset) -> dict[str, Any]:
    try:
        number, state = len(dataset), "completed"
    except (StoreError, InputError) as error:  # the others are listed all the same
        log.error("dataset %s cannot be opened: %s", dataset.name, error)  # noqa: TRY400  (the message says it all)
        number, state = 0, "in_progress"
    return {
        "id": dataset.name,
        "object": "vector_store",
        "name": dataset.name,
        "description": dataset.description,
        "status": state,
        "created_at": 0,  # not recorded
        "usage_bytes": 0,
        "file_counts": {"in_progress": 0, "completed": number, "failed": 0, "cancelled": 0, "total": number},
        "metadata": {},
    }


def _file(store: str, document: Document) -> dict[str, Any]:
    return {
        "id": document.id,
        "object": "vector_store.file",
        "vector_store_id": store,
        "status": "completed",
        "created_at": 0,
        "usage_bytes": len(document.text.encode("utf-8", "surrogatepass")),
        "last_error": None,
        "attributes": _attributes(document),
    }


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


def _slice(names: Sequence[str], after: str | None, limit: int, order: str) -> tuple[list[str], bool]:
    """Return a page of names, and whether more follow; if ``after`` is gone, the first page."""
    ordered_names = list(names) if order == "asc" else list(reversed(names))
    start = ordered_names.index(after) + 1 if after in ordered_names else 0
    return ordered_names[start : start + limit], len(ordered_names) > start + limit


def _page(data: list[dict[str, Any]], ids: Sequence[str], *, more: bool) -> dict[str, Any]:
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"object": "list", "data": data, **ends, "has_more": more}


async def _searched(
    state: State,
    access: Access,
    name: str,
    texts: list[str],
    k: int,
    condition: Filter | None,
    rerank: bool | None = None,
) -> list[RetrievalContext]:
    """Search a dataset, with the same results as by any other interface."""
    access.choose([name], state.workspace.names())
    filters = None if condition is None else str(condition)
    options = schemas.SearchOptions(k=k, datasets=[name], filters=filters, rerank=rerank)
    async with state.gate:
        contexts = await in_thread(lambda: prepare(state, access, texts, options).run_all())
    for context in contexts:
        state.metrics.record_search(context)
    return contexts
