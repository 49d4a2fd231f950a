"""Searching and reading datasets as OpenAI's vector stores: each dataset is a store, and each document a file.

Unknown parameters are errors; none is ignored. What OpenAI's client would write is refused with the remedy.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

from fastapi import APIRouter, Path, Query
from pydantic import Field, JsonValue
from starlette.responses import Response

from pointsman.service.server import schemas
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.routes.dify import degraded_in, relevance, search_dataset
from pointsman.service.server.routes.openai_filters import filter_of_openai
from pointsman.service.server.schemas import NAME, StrictRequest
from pointsman.service.server.state import Reader, Shared, in_thread, problem_responses
from pointsman.tools.errors import InputError, StoreError
from pointsman.values.wire import notes_of, public_metadata

if TYPE_CHECKING:
    from pointsman.service.server.state import State
    from pointsman.values.types import Document, Hit
    from pointsman.workspace.dataset import Dataset

log = logging.getLogger(__name__)


router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["protocols"])


_SEARCHES = problem_responses("not-found", "conflict", "too-large", "unsupported-media-type")


_READS = problem_responses("not-found")


WRITTEN_ELSEWHERE: Final = (
    "OpenAI's client searches and reads vector stores here, and writes nothing: index files with `pointsman index`, or "
    "send their text to POST /api/datasets/NAME/documents (POST and DELETE /api/datasets make and delete datasets)"
)
"""The answer to what OpenAI has, and this service not."""

OF_OPENAI: Final = re.compile(r"/v1/(?:vector_stores|files|uploads)(?:/.*)?", re.DOTALL)
"""The paths of OpenAI's vector stores and files."""


StoreName = Annotated[str, Path(max_length=64, pattern=NAME, description="The dataset's name.")]


_PRINTABLE: Final = r"^[\w\p{L}\p{N}\p{P}\p{S}\u0300-\u036f\ufe0f \xa0\u2000-\u200a\u202f\u205f\u3000]+$"


FileId = Annotated[str, Path(pattern=_PRINTABLE, description="The document's id.")]


Limit = Annotated[int, Query(ge=1, le=100)]


AfterId = Annotated[str | None, Query(description="The id after which the page starts.")]


BeforeId = Annotated[str | None, Query(description="The id before which the page ends.")]


Order = Annotated[Literal["asc", "desc"], Query(description="Files in the order of arrival; vector stores by name.")]


FileStatus = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None,
    Query(description="Documents are always `completed`."),
]


class RankingOptions(StrictRequest):
    """Ranking options."""

    ranker: Annotated[str | None, Field(description="`none`: do not rerank; any other: as configured.")] = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None


class StoreSearchRequest(StrictRequest):
    """A search in OpenAI's vector store API."""

    query: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=16)]
    filters: Annotated[
        dict[str, JsonValue] | None,
        Field(description='`{"type": "eq", "key": …, "value": …}`, or `{"type": "and", "filters": […]}`.'),
    ] = None
    max_num_results: Annotated[int, Field(ge=1, le=50)] = 10  # as in OpenAI's API
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: Annotated[
        bool | None, Field(description="Whether each query is also searched in other words, made by rules.")
    ] = None


class StorePage(schemas.Open):
    """A list in OpenAI's format."""

    object: str
    data: list[dict[str, Any]]
    has_more: bool


class StoreObject(schemas.Open):
    """An object in OpenAI's format."""

    id: str
    object: str


@router.get("/vector_stores", response_model=StorePage, responses=_READS, operation_id="list_vector_stores")
async def list_stores(
    state: Shared,
    access: Reader,
    limit: Limit = 20,
    after: AfterId = None,
    before: BeforeId = None,
    order: Order = "asc",
) -> Response:
    """List the datasets that the key allows, as vector stores."""

    def page() -> dict[str, Any]:
        names = access.visible(state.workspace.names())
        return _list_page(
            names,
            lambda names: _stores(state, state.datasets(access, names)),
            after,
            before,
            limit=limit,
            order=order,
        )

    return Json(await in_thread(page))


@router.get("/vector_stores/{name}", response_model=StoreObject, responses=_READS, operation_id="get_vector_store")
async def get_store(state: Shared, access: Reader, name: StoreName) -> Response:
    """Get a dataset as a vector store."""
    return Json(await in_thread(lambda: next(_stores(state, [state.dataset(access, name)]))))


@router.post(
    "/vector_stores/{name}/search",
    response_model=StorePage,
    responses=_SEARCHES,
    operation_id="search_vector_store",
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


@router.get(
    "/vector_stores/{name}/files", response_model=StorePage, responses=_READS, operation_id="list_vector_store_files"
)
async def list_files(
    state: Shared,
    access: Reader,
    name: StoreName,
    limit: Limit = 20,
    after: AfterId = None,
    before: BeforeId = None,
    order: Order = "asc",
    filter: FileStatus = None,  # noqa: A002  (OpenAI's name)
) -> Response:
    """List the documents of a dataset, as files."""

    def page() -> dict[str, Any]:
        dataset = state.dataset(access, name)
        ids = dataset.ids() if filter in {None, "completed"} else []

        def files(ids: Sequence[str]) -> list[dict[str, Any]]:
            return [_file(name, document) for document in dataset.get_many(ids) if document is not None]

        return _list_page(ids, files, after, before, limit=limit, order=order)

    return Json(await in_thread(page))


@router.get(
    "/vector_stores/{name}/files/{file_id:path}",
    response_model=StoreObject,
    responses=_READS,
    operation_id="get_vector_store_file",
)
async def get_file(state: Shared, access: Reader, name: StoreName, file_id: FileId) -> Response:
    """Get a document as a file; its text is under `/content`."""

    def read() -> dict[str, Any]:
        dataset = state.dataset(access, name)
        if document := dataset.get(file_id):
            return _file(name, document)
        if file_id.endswith("/content") and (document := dataset.get(file_id.removesuffix("/content"))):
            texts = [{"type": "text", "text": document.text}]
            return {"object": "vector_store.file_content.page", "data": texts, "has_more": False}
        raise HttpProblem("not-found", f"there is no document {file_id!r:.80} in dataset {name!r}", kind="document")

    return Json(await in_thread(read))


def _store(dataset: Dataset, created_at: int | None) -> dict[str, Any]:
    """Return a dataset in OpenAI's form; its time is 0 if it is unknown."""
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
        "created_at": created_at or 0,
        "usage_bytes": 0,
        "file_counts": {"in_progress": 0, "completed": number, "failed": 0, "cancelled": 0, "total": number},
        "metadata": {},
    }


def _stores(state: State, datasets: Iterable[Dataset]) -> Iterator[dict[str, Any]]:
    """Yield datasets in OpenAI's form."""
    times = {record.name: record.created_at for record in state.workspace.backend.datasets()}
    for dataset in datasets:
        yield _store(dataset, times.get(dataset.name))


def _file(store: str, document: Document) -> dict[str, Any]:
    """Return a document of this dataset as a file in OpenAI's form; its time is not recorded, and is 0."""
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


def _list_page(
    ids: Sequence[str],
    objects: Callable[[list[str]], Iterable[dict[str, Any]]],
    after: str | None,
    before: str | None,
    *,
    limit: int,
    order: str,
) -> dict[str, Any]:
    """Return a page of a list in OpenAI's form.

    Args:
        ids: all ids, in ascending order of the list.
        objects: returns what ids stand for.
        after: the id after which the page starts.
        before: the id before which it ends.
        limit: most objects on it.
        order: ``asc`` or ``desc``.

    Raises:
        Problem: ``invalid-input``: both ends are given, or there is no such id, which would start all over.
    """
    chosen_ids, has_more = _on_page(ids if order == "asc" else ids[::-1], after, before, limit)
    ends = {"first_id": chosen_ids[0] if chosen_ids else None, "last_id": chosen_ids[-1] if chosen_ids else None}
    return {"object": "list", "data": list(objects(chosen_ids)), **ends, "has_more": has_more}


def _refuse(parameter: str, reason: str) -> NoReturn:
    raise HttpProblem("invalid-input", f"{parameter}: {reason}", param=parameter)


def _on_page(ids: Sequence[str], after: str | None, before: str | None, limit: int) -> tuple[list[str], bool]:
    """Return the ids on a page, and whether more are on its far side."""
    if after is not None and before is not None:
        _refuse("before", "give either after or before")
    cursor = after if before is None else before
    if cursor is not None and cursor not in ids:
        _refuse("after" if before is None else "before", f"there is no {cursor!r:.80} in this list")
    if before is not None:
        end = ids.index(before)
        return list(ids[max(0, end - limit) : end]), end > limit
    start = 0 if after is None else ids.index(after) + 1
    return list(ids[start : start + limit]), len(ids) > start + limit
