"""OpenAI's vector stores on the same datasets: each dataset is a vector store, and each document a file.

The passages of an uploaded file are one file together; see `pointsman.service.server.routes.vector_store_files`.
Parameters that mean nothing here are errors, as are unknown ones; none is ignored.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from pointsman.ingest import FileLimits
from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP
from pointsman.service.server.access.request_access import check_again
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.routes.dify import degraded_in, relevance, search_dataset
from pointsman.service.server.routes.openai_filters import filter_of_openai
from pointsman.service.server.routes.vector_store_shapes import (
    ChunkingStrategy,
    FileChange,
    FileStatus,
    NewStoreRequest,
    StoreChange,
    StoreObject,
    StorePage,
    StoreSearchRequest,
)
from pointsman.service.server.schemas import NAME
from pointsman.service.server.state import (
    WRITE_PATIENCE,
    Reader,
    Shared,
    Writer,
    in_thread,
    in_writer,
    problem_responses,
)
from pointsman.service.server.uploads import Upload, Uploads, file_of, is_upload
from pointsman.tools.errors import InputError, StoreError
from pointsman.values.filters import StartsWith
from pointsman.values.metadata import RESERVED
from pointsman.values.wire import notes_of, public_metadata

if TYPE_CHECKING:
    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.state import State
    from pointsman.values.types import Document, Hit
    from pointsman.workspace.dataset import Dataset

log = logging.getLogger(__name__)


router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["protocols"])


_SEARCHES = problem_responses("not-found", "conflict", "too-large", "unsupported-media-type")


_READS = problem_responses("not-found")


_METADATA: Final = "openai_metadata"
"""The note of a dataset with the metadata of its vector store."""


StoreName = Annotated[str, Path(max_length=64, pattern=NAME, description="The dataset's name.")]


_PRINTABLE: Final = r"^[\w\p{L}\p{N}\p{P}\p{S}\u0300-\u036f\ufe0f \xa0\u2000-\u200a\u202f\u205f\u3000]+$"


FileId = Annotated[str, Path(pattern=_PRINTABLE, description="The document's id.")]


Limit = Annotated[int, Query(ge=1, le=100)]


AfterId = Annotated[str | None, Query(description="The id after which the page starts.")]


BeforeId = Annotated[str | None, Query(description="The id before which the page ends.")]


Order = Annotated[Literal["asc", "desc"], Query(description="Files in the order of arrival; vector stores by name.")]


def refuse(parameter: str, reason: str) -> NoReturn:
    """Refuse the value of a parameter."""
    raise HttpProblem("invalid-input", f"{parameter}: {reason}", param=parameter)


_NEVER_EXPIRE: Final = "vector stores do not expire here; leave it out"


@router.post(
    "/vector_stores",
    response_model=StoreObject,
    responses=problem_responses("conflict", "too-large", "unsupported-media-type"),
    operation_id="create_vector_store",
)
async def create_store(state: Shared, access: Writer, body: NewStoreRequest, request: Request) -> Response:
    """Create a dataset as a vector store; its name is its id, and must be new."""
    if body.expires_after is not None:
        refuse("expires_after", _NEVER_EXPIRE)
    sizes = sizes_of(body.chunking_strategy)
    name = body.name or f"vs_{secrets.token_hex(12)}"
    access.require_write(name)
    if body.file_ids:
        access.require_read()
    uploads = Uploads(state.workspace.backend, access.key_id)

    def create() -> list[Upload]:
        files = [existing_upload(uploads, file_id) for file_id in body.file_ids or ()]
        if name in state.workspace.names():
            if access.read:
                raise HttpProblem("conflict", f"there is a vector store {name!r:.80} already; update or delete it")
            raise HttpProblem("conflict", f"{name!r:.80} cannot be created")
        dataset = state.workspace.dataset(name, description=body.description)
        dataset.make()
        if body.metadata:
            dataset.store.annotate(**{_METADATA: json.dumps(body.metadata)})
        return files

    for file in await in_writer(state, create):
        await check_again(request.scope)  # the key may have been revoked: each file may take half a minute
        await in_writer(state, attach_to, state, access, name, file, sizes, {})
    return Json(await in_thread(lambda: next(_stores(state, [state.workspace.dataset(name, create=False)]))))


def sizes_of(strategy: ChunkingStrategy | None) -> tuple[int, int]:
    """Return the size and the overlap of passages that a client asks for, in estimated tokens."""
    if strategy is None or strategy.type == "auto":
        if strategy is not None and strategy.static is not None:
            refuse("chunking_strategy", "sizes belong to the type static")
        return MAX_TOKENS, OVERLAP
    if strategy.static is None:
        refuse("chunking_strategy", "the type static needs max_chunk_size_tokens and chunk_overlap_tokens")
    return strategy.static.max_chunk_size_tokens, strategy.static.chunk_overlap_tokens


def existing_upload(uploads: Uploads, file_id: str) -> Upload:
    """Return an uploaded file.

    Raises:
        Problem: ``not-found``.
    """
    upload = uploads.get(file_id)
    if upload is None:
        raise HttpProblem("not-found", f"there is no uploaded file {file_id!r:.80}", kind="files")
    return upload


def attach(
    state: State,
    dataset: Dataset,
    uploads: Uploads,
    upload: Upload,
    sizes: tuple[int, int],
    attributes: Mapping[str, Any],
) -> list[str]:
    """Add the passages of an uploaded file in place of those that it has; return what of it could not be read, and why.

    Words are found at once, and vectors follow.

    Raises:
        InputError: nothing of the file can be read, or an attribute cannot be stored.
        LockedError: another process is writing to the dataset.
    """
    _check_attributes(attributes)
    documents, reasons = uploads.passages(upload, *sizes, FileLimits(characters=state.limits.max_file_chars))
    if not documents:
        raise InputError(f"{upload.filename}: not read: {'; '.join(reasons) or 'it has no text'}"[:1000])
    with dataset.writing(WRITE_PATIENCE):
        previous_ids = set(passages_of(dataset, upload.id))
        result = dataset.add(
            [replace(document, metadata={**document.metadata, **attributes}) for document in documents], embed="later"
        )
        dataset.delete(sorted(previous_ids - {document.id for document in documents}))
    state.metrics.record_write(result)
    state.vectors_due.set()
    return reasons


def attach_to(
    state: State, access: Access, name: str, upload: Upload, sizes: tuple[int, int], attributes: Mapping[str, Any]
) -> list[str]:
    """Attach a file to the dataset with this name; see `attach`."""
    uploads = Uploads(state.workspace.backend, access.key_id)
    return attach(state, writable(state, access, name), uploads, upload, sizes, attributes)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    if reserved_names := attributes.keys() & RESERVED.keys():
        raise InputError(f"attributes: {min(reserved_names)!r} is what Pointsman says of the file; use another name")


def passages_of(dataset: Dataset, file_id: str) -> list[str]:
    """Return the ids of a file's passages: of an uploaded file all, of any other document its own."""
    if is_upload(file_id):
        return dataset.ids(filters=StartsWith("source", f"{file_id}/"))
    return [file_id]


@router.post(
    "/vector_stores/{name}",
    response_model=StoreObject,
    responses=_SEARCHES,
    operation_id="update_vector_store",
)
async def update_store(state: Shared, access: Writer, name: StoreName, body: StoreChange) -> Response:
    """Set the metadata of a vector store."""
    if body.expires_after is not None:
        refuse("expires_after", _NEVER_EXPIRE)
    if body.name not in {None, name}:
        refuse("name", f"the name of a vector store is its id, {name!r}, and stays; copy the dataset instead")

    def update() -> dict[str, Any]:
        dataset = writable(state, access, name)
        if body.metadata is not None:
            with dataset.writing(WRITE_PATIENCE):
                dataset.store.annotate(**{_METADATA: json.dumps(body.metadata)})
        return next(_stores(state, [state.dataset(access, name)]))

    return Json(await in_writer(state, update))


@router.delete(
    "/vector_stores/{name}", response_model=StoreObject, responses=_READS, operation_id="delete_vector_store"
)
async def delete_store(state: Shared, access: Writer, name: StoreName) -> Response:
    """Delete a dataset with all its documents."""

    def drop() -> int:
        dataset = writable(state, access, name)
        count = len(dataset)
        with dataset.writing(WRITE_PATIENCE):
            state.workspace.drop(name)
        Uploads(state.workspace.backend, access.key_id).forget_batches(name)
        return count

    state.metrics.deleted(await in_writer(state, drop))
    return Json({"id": name, "object": "vector_store.deleted", "deleted": True})


def writable(state: State, access: Access, name: str) -> Dataset:
    """Return a dataset for a client that reads and writes; answers show what is stored."""
    access.require_read()
    access.choose([name], state.workspace.names())
    access.require_write(name)
    return state.workspace.dataset(name, create=False)


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
        return list_page(
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
            "file_id": file_of(hit.id),
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
        dataset, uploads = state.dataset(access, name), Uploads(state.workspace.backend, access.key_id)
        ids_of: dict[str, list[str]] = {}
        for document_id in dataset.ids() if filter in {None, "completed"} else ():
            ids_of.setdefault(file_of(document_id), []).append(document_id)

        def files(file_ids: Sequence[str]) -> list[dict[str, Any]]:
            ids = [document_id for file_id in file_ids for document_id in ids_of[file_id]]
            documents_of: dict[str, list[Document]] = {}
            for document in dataset.get_many(ids):
                if document is not None:
                    documents_of.setdefault(file_of(document.id), []).append(document)
            return [file_object(name, documents, uploads.get(file_id)) for file_id, documents in documents_of.items()]

        return list_page(list(ids_of), files, after, before, limit=limit, order=order)

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
        dataset, uploads = state.dataset(access, name), Uploads(state.workspace.backend, access.key_id)
        if documents := existing_documents(dataset, file_id):
            return file_object(name, documents, uploads.get(file_id))
        if file_id.endswith("/content") and (
            documents := existing_documents(dataset, file_id.removesuffix("/content"))
        ):
            texts = [{"type": "text", "text": document.text} for document in documents]
            return {"object": "vector_store.file_content.page", "data": texts, "has_more": False}
        raise _no_document(name, file_id)

    return Json(await in_thread(read))


@router.post(
    "/vector_stores/{name}/files/{file_id:path}",
    response_model=StoreObject,
    responses=_SEARCHES,
    operation_id="update_vector_store_file",
)
async def update_file(state: Shared, access: Writer, name: StoreName, file_id: FileId, body: FileChange) -> Response:
    """Set the attributes of a document, in place of those that it has; what its source says of it stays."""

    def update() -> dict[str, Any]:
        dataset = writable(state, access, name)
        with dataset.writing(WRITE_PATIENCE):
            documents = _existing(state.dataset(access, name), file_id)
            if is_upload(file_id):
                _check_attributes(body.attributes or {})
            changes = {
                document.id: {
                    **dict.fromkeys(_attributes(document).keys() - RESERVED.keys()),
                    **(body.attributes or {}),
                }
                for document in documents
            }
            dataset.set_metadata(changes)
            upload = Uploads(state.workspace.backend, access.key_id).get(file_id)
            return file_object(name, _existing(state.dataset(access, name), file_id), upload)

    return Json(await in_writer(state, update))


@router.delete(
    "/vector_stores/{name}/files/{file_id:path}",
    response_model=StoreObject,
    responses=_READS,
    operation_id="delete_vector_store_file",
)
async def delete_file(state: Shared, access: Writer, name: StoreName, file_id: FileId) -> Response:
    """Delete a document."""

    def delete() -> int:
        dataset = writable(state, access, name)
        with dataset.writing(WRITE_PATIENCE):
            documents = _existing(state.dataset(access, name), file_id)
            return dataset.delete([document.id for document in documents])

    state.metrics.deleted(await in_writer(state, delete))
    return Json({"id": file_id, "object": "vector_store.file.deleted", "deleted": True})


def existing_documents(dataset: Dataset, file_id: str) -> list[Document]:
    """Return what there is of a file: the passages of an uploaded one, or the document of this id; nothing if none."""
    return [document for document in dataset.get_many(passages_of(dataset, file_id)) if document is not None]


def _existing(dataset: Dataset, file_id: str) -> list[Document]:
    documents = existing_documents(dataset, file_id)
    if not documents:
        raise _no_document(dataset.name, file_id)
    return documents


def _no_document(store: str, file_id: str) -> HttpProblem:
    return HttpProblem("not-found", f"there is no document {file_id!r:.80} in dataset {store!r}", kind="document")


def _store(dataset: Dataset, created_at: int | None) -> dict[str, Any]:
    """Return a dataset in OpenAI's form; its time is 0 if it is unknown."""
    try:
        number, state = len(dataset), "completed"
        metadata = json.loads(dataset.store.statistics().notes.get(_METADATA) or "{}")
    except (StoreError, InputError) as error:  # the others are listed all the same
        log.error("dataset %s cannot be opened: %s", dataset.name, error)  # noqa: TRY400  (the message says it all)
        number, state, metadata = 0, "in_progress", {}
    return {
        "id": dataset.name,
        "object": "vector_store",
        "name": dataset.name,
        "description": dataset.description,
        "status": state,
        "created_at": created_at or 0,
        "usage_bytes": 0,
        "file_counts": {"in_progress": 0, "completed": number, "failed": 0, "cancelled": 0, "total": number},
        "metadata": metadata,
    }


def _stores(state: State, datasets: Iterable[Dataset]) -> Iterator[dict[str, Any]]:
    """Yield datasets in OpenAI's form."""
    times = {record.name: record.created_at for record in state.workspace.backend.datasets()}
    for dataset in datasets:
        yield _store(dataset, times.get(dataset.name))


def file_object(
    store: str, documents: Sequence[Document], upload: Upload | None, problem: str | None = None
) -> dict[str, Any]:
    """Return the file that these documents are, in OpenAI's form.

    Args:
        store: the name of the dataset.
        documents: its passages, at least one.
        upload: the uploaded file that they are from; None for other documents, and if it has been deleted: their time
            is not recorded, and is 0.
        problem: what of it is left out.
    """
    return {
        "id": file_of(documents[0].id),
        "object": "vector_store.file",
        "vector_store_id": store,
        "status": "completed",
        "created_at": 0 if upload is None else upload.created_at,
        "usage_bytes": sum(len(document.text.encode("utf-8", "surrogatepass")) for document in documents),
        "last_error": None if problem is None else {"code": "invalid_file", "message": problem},
        "attributes": _attributes(documents[0]),
    }


def _filename(document: Document) -> str:
    source = document.metadata.get("source")
    if not isinstance(source, str) or not source:
        return document.title or document.id
    return source.partition("/")[2] if is_upload(source.partition("/")[0]) else source


def _attributes(document: Document) -> dict[str, Any]:
    """Return metadata in OpenAI's form: texts, numbers and booleans."""
    return {
        name: value
        for name, value in public_metadata(document.metadata).items()
        if isinstance(value, (str, int, float))
    }


def list_page(
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


def _on_page(ids: Sequence[str], after: str | None, before: str | None, limit: int) -> tuple[list[str], bool]:
    """Return the ids on a page, and whether more are on its far side."""
    if after is not None and before is not None:
        refuse("before", "give either after or before")
    cursor = after if before is None else before
    if cursor is not None and cursor not in ids:
        refuse("after" if before is None else "before", f"there is no {cursor!r:.80} in this list")
    if before is not None:
        end = ids.index(before)
        return list(ids[max(0, end - limit) : end]), end > limit
    start = 0 if after is None else ids.index(after) + 1
    return list(ids[start : start + limit]), len(ids) > start + limit
