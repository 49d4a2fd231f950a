"""Datasets and their documents."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import anyio
from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pointsman.retrieval.stages.written_filters import status_of_dates
from pointsman.service.server import schemas
from pointsman.service.server.access.request_access import check_again
from pointsman.service.server.protocol import problems
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.request_body import JSON, NDJSON
from pointsman.service.server.protocol.responses import Json, LineResponse, plain
from pointsman.service.server.protocol.strict_json import json_lines, read_json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.schemas import (
    NAME,
    DatasetRequest,
    DeleteRequest,
    DocumentRequest,
    DocumentsRequest,
    MetadataRequest,
    NearestRequest,
    VectorsRequest,
)
from pointsman.service.server.state import (
    READS,
    WITH_BODY,
    WRITE_PATIENCE,
    Reader,
    Shared,
    Writer,
    in_thread,
    in_writer,
)
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StoreError,
    UnknownNameError,
    UnmetNeedError,
)
from pointsman.tools.json_forms import plain_form
from pointsman.tools.vectors import encode_vector, vector_of
from pointsman.values.filters import parse_optional
from pointsman.values.types import AddResult, Document
from pointsman.values.wire import public_metadata
from pointsman.workspace.stored_folders import in_named_folder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.state import State
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.dataset.document_vectors import Embed
    from pointsman.workspace.dataset.documents import Existing

log = logging.getLogger(__name__)

router = APIRouter(prefix="/api/datasets", route_class=StrictRoute, tags=["datasets"])

Name = Annotated[str, Path(max_length=64, pattern=NAME, description="The dataset's name.")]

Filters = Annotated[str | None, Query(description="Only documents that match, such as `year >= 2020 and lang = ru`.")]

When = Literal["now", "later", "never"]
"""When documents without a vector get one."""


_NUMBERS = ("documents", "vectors_due", "truncations", "kept_days", "sequence", "keyword_index_sequence", "bytes")
_UNKNOWN: Final = dict.fromkeys(schemas.Dataset.model_fields)
"""The state of a dataset of which nothing is told."""

_CHARACTERS = 1_000_000
"""Largest part of a text in one answer."""

_EMBED: Final[dict[str, Embed]] = {"now": True, "later": "later", "never": False}

_STEP: Final = 1.0
_STEP_OF_ID: Final = 0.002
"""Seconds, in all and for each id, to whose multiple a write-only key waits for changes by id: some write nothing."""
_STEP_OF_ADDING: Final = 0.25
"""The same for a batch that it adds; to replace a document takes some milliseconds more than to add one."""

_BATCH = 64
_BATCH_CHARACTERS = 1_000_000
"""Lines and characters of a stream that are embedded and committed together; acknowledged lines are durable."""


@router.get("", response_model=schemas.Datasets, responses=READS)
async def list_datasets(state: Shared, access: Reader) -> Response:
    """List the datasets that the key allows, with their state."""

    def descriptions() -> list[dict[str, Any]]:
        return [
            description
            for name in access.visible(state.workspace.names())
            if (description := _without_memory(access, _status_of(state, access, name)))
        ]

    return Json({"datasets": await in_thread(descriptions)})


@router.post(
    "",
    response_model=schemas.Dataset,
    responses={**WITH_BODY, 201: {"model": schemas.Dataset, "description": "The dataset was created."}},
)
async def make_dataset(state: Shared, access: Writer, body: DatasetRequest) -> Response:
    """Create a dataset; an existing one gets the new description."""
    access.require_write(body.name)

    def make() -> tuple[bool, dict[str, Any] | None]:
        new = body.name not in state.workspace.names()
        try:
            dataset = state.workspace.dataset(
                body.name,
                description=body.description,
                indexing_technique=body.indexing_technique,
                versions=body.versions,
            )
        except UnmetNeedError:
            if access.read:
                raise
            technique = body.indexing_technique
            detail = f"dataset {body.name!r} was not made for {technique!r} search; delete it to index it for that"
            raise UnmetNeedError(detail) from None
        dataset.make()
        return new, _without_memory(access, _status_of(state, None, body.name))

    new, status = await in_writer(state, make)
    if status is not None and not access.read:  # only readers may learn what is stored
        technique = body.indexing_technique or "hybrid"
        request_fields = {"description": body.description or "", "indexing_technique": technique}
        status = {**_UNKNOWN, "name": body.name, **request_fields}
    return Json(status, 201 if new else 200)


@router.get("/{name}", response_model=schemas.Dataset, responses=READS)
async def get_dataset(state: Shared, access: Reader, name: Name) -> Response:
    """Describe a dataset and its state."""
    await in_thread(state.dataset, access, name)
    return Json(_without_memory(access, await in_thread(_status_of, state, access, name)))


@router.delete("/{name}", response_model=schemas.Dropped, responses=READS)
async def drop_dataset(state: Shared, access: Writer, name: Name) -> Response:
    """Delete a dataset with all its documents; for a damaged one `deleted` is 0."""
    await in_thread(_check_writable, state, access, name)

    def drop() -> int:
        try:
            dataset = state.workspace.dataset(name, create=False)
            count = len(dataset)
            with dataset.writing(WRITE_PATIENCE):
                state.workspace.drop(name)
        except (CorruptStoreError, FormatVersionError):
            state.workspace.drop(name)
            return 0
        return count

    count = await in_writer(state, drop)
    state.metrics.deleted(count)
    return Json({"dataset": name, "deleted": count if access.read else None})


@router.get("/{name}/documents", response_model=schemas.DocumentPage, responses=READS)
async def list_documents(
    state: Shared,
    access: Reader,
    name: Name,
    after: Annotated[int, Query(ge=0, lt=2**63, description="The cursor: `next` of the previous page.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    filters: Filters = None,
    roots: Annotated[
        bool, Query(description="Whether to name the folders that files were indexed from, to keys that may write.")
    ] = False,
) -> Response:
    """List the documents in the order in which they were first added, page by page."""
    dataset = await in_thread(state.dataset, access, name)
    documents, following = await in_thread(dataset.page, after, limit, filters=filters)
    items = [_document(document, with_root=roots and access.may_write) for document in documents]
    return Json({"documents": items, "next": None if following is None else str(following)})


@router.post("/{name}/nearest", response_model=schemas.Nearest, responses=WITH_BODY)
async def nearest_documents(state: Shared, access: Reader, name: Name, body: NearestRequest) -> Response:
    """Find the documents whose vectors are nearest to one; nothing is embedded or refused."""
    dataset = await in_thread(state.dataset, access, name)
    options = {name: getattr(body, name) for name in ("filters", "group_by", "group_size")}
    async with state.gate:
        hits = await in_thread(dataset.search_vector, vector_of(body.vector), body.k, **options)
    results = [{**hit.to_dict(rank), "metadata": public_metadata(hit.metadata)} for rank, hit in enumerate(hits, 1)]
    return Json({"hits": results})


@router.post("/{name}/vectors", response_model=schemas.Vectors, responses=WITH_BODY)
async def get_vectors(state: Shared, access: Reader, name: Name, body: VectorsRequest) -> Response:
    """Get the stored vectors of documents."""
    dataset = await in_thread(state.dataset, access, name)
    vectors = await in_thread(dataset.get_vectors, body.ids)
    texts = [None if vector is None else encode_vector(vector) for vector in vectors]
    return Json({"embedder": dataset.store.info.embedder, "vectors": texts})


@router.get("/{name}/metadata_keys", response_model=schemas.MetadataKeys, responses=READS)
async def list_metadata_keys(state: Shared, access: Reader, name: Name) -> Response:
    """List the keys of the metadata, for filters; nested ones as paths such as `author.name`."""
    dataset = await in_thread(state.dataset, access, name)
    return Json({"keys": await in_thread(dataset.metadata_keys)})


@router.get("/{name}/count", response_model=schemas.Count, responses=READS)
async def count_documents(state: Shared, access: Reader, name: Name, filters: Filters = None) -> Response:
    """Count the documents, or those that match."""
    dataset = await in_thread(state.dataset, access, name)
    return Json({"documents": await in_thread(dataset.count, filters)})


@router.get("/{name}/document", response_model=schemas.DocumentAnswer, responses=READS)
async def get_document(
    state: Shared,
    access: Reader,
    name: Name,
    id: Annotated[str, Query(min_length=1)],  # noqa: A002  (the field's word)
) -> Response:
    """Get a document by its id."""
    dataset = await in_thread(state.dataset, access, name)
    document = await in_thread(dataset.get, id)
    if document is None:
        raise HttpProblem("not-found", f"there is no document {id!r:.80} in dataset {name!r}", kind="document")
    return Json(_document(document))


@router.get("/{name}/text", response_model=schemas.SourceText, responses=READS)
async def get_text(
    state: Shared,
    access: Reader,
    name: Name,
    source: Annotated[str, Query(min_length=1, description="As in a citation.")],
    hash: Annotated[  # noqa: A002  (the citation's word)
        str | None, Query(description="As in the citation; default: the version that most passages are from.")
    ] = None,
    start: Annotated[int, Query(ge=0, lt=2**53, description="Offset of the first character.")] = 0,
    end: Annotated[
        int | None,
        Query(ge=0, lt=2**53, description="Offset after the last one; at most 1,000,000 characters are returned."),
    ] = None,
) -> Response:
    """Get the text that offsets of citations refer to, assembled from the stored passages."""
    dataset = await in_thread(state.dataset, access, name)
    last = start + _CHARACTERS if end is None else min(end, start + _CHARACTERS)
    try:
        text = await in_thread(partial(dataset.text, source, hash=hash, start=start, end=last))
    except UnknownNameError as error:
        problem = problems.unknown_name("not-found", error)
        problem.members["error"] = UnknownNameError.__name__
        raise problem from None
    return Json(text.to_dict())


@router.get("/{name}/ids", response_model=schemas.IdPage, responses=READS)
async def list_ids(
    state: Shared,
    access: Reader,
    name: Name,
    source: Annotated[str | None, Query(description="Only documents whose metadata has this `source`.")] = None,
    after: Annotated[int, Query(ge=0, lt=2**63, description="The cursor: `next` of the previous page.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    filters: Filters = None,
) -> Response:
    """List the ids of the documents, page by page."""
    dataset = await in_thread(state.dataset, access, name)
    ids = await in_thread(dataset.ids, source=source, filters=filters)
    end = after + limit
    return Json({"ids": ids[after:end], "next": str(end) if end < len(ids) else None})


@router.post(
    "/{name}/documents",
    response_model=schemas.Added,
    responses={
        **WITH_BODY,
        200: {
            "model": schemas.Added,
            "description": "Document counts. A stream of lines is answered by a stream of lines: totals after each "
            "durable batch, with `finished` in the last one, or `problem` if it ended early.",
            "content": {NDJSON: {"schema": {"$ref": f"#/components/schemas/{schemas.Progress.__name__}"}}},
        },
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            # lines of documents are told in words: generators of clients leave out, or warn of, a body in lines
            "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{DocumentsRequest.__name__}"}}},
        }
    },
)
async def add_documents(
    state: Shared,
    access: Writer,
    name: Name,
    request: Request,
    embed: Annotated[
        When,
        Query(
            description="For documents sent without a vector. `later`: keyword search finds them as soon as they are "
            "acknowledged, and their vectors follow; `vectors_due` of the dataset, and every answer over it, say how "
            "many are missing. `never`: only keyword search finds them"
        ),
    ] = "now",
) -> Response:
    """Add documents, or update those whose id exists; unchanged ones cost nothing, unless the key is write-only.

    A body of type `application/x-ndjson` has one document per line, as many as the service's limits of time and size
    for streams allow; each is as one of `documents` in the other type. The answer has one line per batch, as its
    schema of that type says. The key is checked at every batch.

    Acknowledged documents are durable and searchable, whatever happens to the service afterwards. Sending them again
    does not duplicate them.
    """
    dataset = await in_thread(_writable, state, access, name)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == NDJSON:
        return LineResponse(
            await _first_line_checked(_ingest(state, access, dataset, request, embed)), media_type=NDJSON
        )
    if kind != JSON:
        raise HttpProblem("unsupported-media-type", f"a body here is {JSON} or {NDJSON}, in UTF-8")
    body = DocumentsRequest.model_validate(await read_json(await request.body()))
    _check_number(state, len(body.documents), f"; or send {NDJSON}")
    return Json(_counts_shown(await _add(state, access, dataset, body.documents, embed), access))


async def _first_line_checked(lines: AsyncGenerator[bytes | HttpProblem]) -> AsyncIterator[bytes]:
    """Return the lines once the first one is available.

    Raises:
        Problem: nothing could be written; the problem is sent with its own status.
    """
    first = await anext(lines)
    if isinstance(first, HttpProblem):
        raise first

    async def remaining_lines() -> AsyncIterator[bytes]:
        yield first
        async for line in lines:
            assert isinstance(line, bytes)
            yield line

    return remaining_lines()


async def _ingest(
    state: State, access: Access, dataset: Dataset, request: Request, embed: When
) -> AsyncGenerator[bytes | HttpProblem]:
    """Yield totals after each batch of a stream of documents; each line is sent before more is read.

    If a problem occurs before anything is written, it is the only item.
    """
    total, count, batch = AddResult(), 0, list[DocumentRequest]()

    def line(**more: Any) -> bytes:
        return plain({"done": count, **_counts_shown(total, access), **more}) + b"\n"

    async def write() -> None:
        nonlocal total, count, batch
        await check_again(request.scope)
        total += await _add(state, access, dataset, batch, embed)
        count += len(batch)
        batch = []

    try:
        try:
            async for number, value in json_lines(request.stream(), max_line_bytes=state.limits.max_line_bytes):
                batch.append(_read(value, number))
                if len(batch) >= _BATCH or sum(len(document.text) for document in batch) >= _BATCH_CHARACTERS:
                    await write()
                    yield line()
        except HttpProblem:
            if batch:  # the lines before the bad one are valid
                await write()
            raise
        if batch:
            await write()
        yield line(finished=True)
    except ClientDisconnect:
        raise  # nobody is left to be told
    except Exception as error:  # noqa: BLE001  (the status has been sent: it becomes the last line, or is logged)
        problem = problems.of_error(error)
        yield line(problem=problem.document(request.state.request_id)) if count else problem


def _read(value: object, number: int) -> DocumentRequest:
    try:
        return DocumentRequest.model_validate(value)
    except ValidationError as error:
        raise HttpProblem(
            "invalid-input", f"line {number}: {problems.validation_message(error)}", line=number
        ) from None


@router.patch("/{name}/documents", response_model=schemas.Added, responses=WITH_BODY)
async def set_metadata(state: Shared, access: Writer, name: Name, body: MetadataRequest) -> Response:
    """Change the metadata of documents; if an id is unknown, nothing changes; a write-only key does not learn it."""
    dataset = await in_thread(_writable, state, access, name)
    _check_number(state, len(body.metadata))

    def change() -> AddResult:
        with dataset.writing(WRITE_PATIENCE):
            changes = body.metadata if access.read else _of_stored(dataset, body.metadata)
            return dataset.set_metadata(changes, replace=body.replace)

    async with _even_time(access, _STEP + len(body.metadata) * _STEP_OF_ID):
        result = await in_writer(state, change)
    state.metrics.record_write(result)
    return Json(_counts_shown(result, access))


@router.delete("/{name}/documents", response_model=schemas.Deleted, responses=WITH_BODY)
async def delete_documents(state: Shared, access: Writer, name: Name, body: DeleteRequest) -> Response:
    """Delete documents by id, by filter, by folder, or by several of these; unknown ids are ignored."""
    dataset = await in_thread(_writable, state, access, name)

    condition, under = parse_optional(body.filters), body.under
    if body.filters is not None or under is not None:
        access.require_read()  # the number of matches reveals what is stored
    if under is not None and not under.startswith("/"):  # it is nothing on this machine
        in_folder = in_named_folder(under)
        condition, under = in_folder if condition is None else condition & in_folder, None

    def deleted() -> int:
        with dataset.writing(WRITE_PATIENCE):
            return dataset.delete(body.ids, filters=condition, under=under)

    async with _even_time(access, _STEP + len(body.ids or ()) * _STEP_OF_ID):
        count = await in_writer(state, deleted)
    state.metrics.deleted(count)
    return Json({"deleted": count if access.read else None})  # null: the number tells what was stored


@router.post("/{name}/verify", response_model=schemas.Verification, responses=READS)
async def verify_dataset(state: Shared, access: Reader, name: Name) -> Response:
    """Compare documents and indexes, one by one."""
    dataset = await in_thread(state.dataset, access, name)
    async with state.gate:
        result = await in_thread(dataset.verify)
    return Json(plain_form(result))


def _check_number(state: State, documents: int, remedy: str = "") -> None:
    if documents > state.limits.max_documents:
        limit = state.limits.max_documents
        raise HttpProblem("invalid-input", f"{documents} documents at once, the limit is {limit}{remedy}")


def _writable(state: State, access: Access, name: str) -> Dataset:
    """Return a dataset for writing; one that is not visible to the key is reported as not found, not as forbidden."""
    _check_writable(state, access, name)
    return state.workspace.dataset(name, create=False)


def _check_writable(state: State, access: Access, name: str) -> None:
    access.choose([name], state.workspace.names())
    access.require_write(name)


async def _add(
    state: State, access: Access, dataset: Dataset, documents: list[DocumentRequest], embed: When
) -> AddResult:
    """Add a batch durably, and let other processes write after it; time tells a write-only key nothing either."""

    def add() -> AddResult:
        new = [Document(document.id, document.text, document.metadata) for document in documents]
        vectors = [vector_of(document.vector) for document in documents]
        own_vectors = None if all(vector is None for vector in vectors) else vectors
        with dataset.writing(WRITE_PATIENCE):
            existing: Existing = "update" if access.read else "rewrite"
            return dataset.add(new, vectors=own_vectors, embed=_EMBED[embed], existing=existing)

    async with _even_time(access, _STEP_OF_ADDING):
        result = await in_writer(state, add)
    state.metrics.record_write(result)
    if embed == "later":
        state.vectors_due.set()
    return result


@asynccontextmanager
async def _even_time(access: Access, step: float) -> AsyncGenerator[None]:
    """For a write-only key, end the block after a whole number of steps, so that time does not tell what is stored.

    Args:
        access: of the key.
        step: seconds; what is stored makes a difference of well under a step.
    """
    start = monotonic()
    try:
        yield
    finally:
        if not access.read:
            await anyio.sleep(step - (monotonic() - start) % step)


def _of_stored(dataset: Dataset, changes: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the changes of documents that there are; only who reads may learn that an id is unknown."""
    with without_record():
        documents = dataset.get_many(list(changes))
    return {document.id: changes[document.id] for document in documents if document is not None}


def _counts_shown(result: AddResult, access: Access) -> dict[str, int | None]:
    """Describe the result of an add; a write-only key does not learn which texts were stored already."""
    counts: dict[str, int | None] = plain_form(result)
    return counts if access.read else dict.fromkeys(counts, None)


def _document(document: Document, *, with_root: bool = False) -> dict[str, Any]:
    metadata = document.metadata if with_root else public_metadata(document.metadata)
    return {"id": document.id, "text": document.text, "metadata": metadata}


def _status_in_view(state: State, dataset: Dataset) -> dict[str, Any]:
    return {
        **_UNKNOWN,
        "name": dataset.name,
        "description": dataset.description,
        "indexing_technique": dataset.indexing_technique,
        "documents": len(dataset),
        "embedder": dataset.store.info.embedder,
        **status_of_dates(dataset.store, dataset.name, state.workspace.settings.date_columns),
        "vectors_due": dataset.vectors_due,
    }


def _without_memory(access: Access, status: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a status without the memory, which tells of all datasets, unless a key is for all of them."""
    return status if status is None or access.datasets is None else {**status, "memory": None}


def _status_of(state: State, access: Access | None, name: str) -> dict[str, Any] | None:
    """Describe a dataset and its health, for whom access does not matter or as far as it exists in someone's view.

    Returns None if another process has just deleted it.
    """
    try:
        if access is not None and state.workspace.access:
            return _status_in_view(state, state.dataset(access, name))
        return {**state.workspace.status(name), "problem": None}
    except UnknownNameError:
        return None
    except (StoreError, InputError) as error:  # also a collection that is no longer in its database
        log.error("dataset %s cannot be opened: %s", name, error)  # noqa: TRY400  (the message says it all)
        status = {"name": name, "description": "", "indexing_technique": "hybrid", "problem": type(error).__name__}
        return {**_UNKNOWN, **dict.fromkeys(_NUMBERS, 0), **status}
