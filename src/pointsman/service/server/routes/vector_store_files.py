"""Uploaded files in OpenAI's form, and attaching them to vector stores: their passages become documents.

A file is converted and cut within the limits of `pointsman.ingest.FileLimits`, in a separate process, before the answer
is sent. So an answer says at once whether that worked, and nothing is ever in progress.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.responses import Response

from pointsman.service.server.access.request_access import check_again
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.routes.vector_store_shapes import (
    MAX_AT_ONCE,
    Attributes,
    ChunkingStrategy,
    FileStatus,
    StoreObject,
    StorePage,
)
from pointsman.service.server.routes.vector_stores import (
    AfterId,
    BeforeId,
    Limit,
    Order,
    StoreName,
    attach,
    attach_to,
    existing_documents,
    existing_upload,
    file_object,
    list_page,
    passages_of,
    refuse,
    sizes_of,
    writable,
)
from pointsman.service.server.schemas import StrictRequest
from pointsman.service.server.state import (
    WRITE_PATIENCE,
    Reader,
    Shared,
    Writer,
    in_thread,
    in_writer,
    problem_responses,
)
from pointsman.service.server.uploads import Upload, UploadBatch, Uploads
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.state import State
    from pointsman.workspace.dataset import Dataset

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["protocols"])

_READS = problem_responses("not-found")
_WRITES = problem_responses("not-found", "conflict", "too-large", "unsupported-media-type")
_MOST_LISTED: Final = 10_000  # files on one page in OpenAI's API
_FIELDS: Final = frozenset({"file", "purpose"})
_MOST_FIELDS: Final = 10  # of a form; unknown ones are named
_BATCHES: Final = "/vector_stores/{name}/file_batches"

UploadId = Annotated[str, Path(max_length=64, description="The file's id.")]
BatchId = Annotated[str, Path(max_length=64, description="The batch's id.")]


class AttachRequest(StrictRequest):
    """An uploaded file to attach."""

    file_id: Annotated[str, Field(max_length=64)]
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class BatchRequest(StrictRequest):
    """Uploaded files to attach: `file_ids` with the same attributes, or `files` each with its own."""

    file_ids: Annotated[list[str] | None, Field(min_length=1, max_length=MAX_AT_ONCE)] = None
    files: Annotated[list[AttachRequest] | None, Field(min_length=1, max_length=MAX_AT_ONCE)] = None
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


@router.post(
    "/files",
    response_model=StoreObject,
    responses=_WRITES,
    operation_id="upload_file",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "purpose": {"type": "string", "maxLength": 64},
                        },
                        "required": ["file"],
                    }
                }
            },
        }
    },
)
async def upload_file(state: Shared, access: Writer, request: Request) -> Response:
    """Keep a file in the workspace, to attach it to vector stores; only the key that sent it sees it."""
    access.require_write()
    async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
        if unknown_names := form.keys() - _FIELDS:
            refuse(min(unknown_names)[:80], "an uploaded file has only a purpose here")
        file, purpose = form.get("file"), form.get("purpose", "assistants")
        if not isinstance(file, UploadFile):
            refuse("file", "the form has no file")
        if not isinstance(purpose, str) or len(purpose) > 64 or not purpose.isprintable():
            refuse("purpose", "a purpose is up to 64 printable characters")
        save = partial(_uploads(state, access).save, file.filename or "", purpose)
        async with state.storing:
            upload = await in_writer(state, save, await file.read())
    return Json(_upload_object(upload))


@router.get("/files", response_model=StorePage, responses=_READS, operation_id="list_uploaded_files")
async def list_uploads(
    state: Shared,
    access: Writer,
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = _MOST_LISTED,
    after: AfterId = None,
    order: Order = "desc",
    purpose: Annotated[str | None, Query(max_length=64, description="Only files sent with this purpose.")] = None,
) -> Response:
    """List the uploaded files of the key."""
    access.require_write()

    def page() -> dict[str, Any]:
        uploads = {upload.id: upload for upload in _uploads(state, access).all() if purpose in {None, upload.purpose}}
        return list_page(
            list(uploads),
            lambda ids: (_upload_object(uploads[id_]) for id_ in ids),
            after,
            None,
            limit=limit,
            order=order,
        )

    return Json(await in_thread(page))


@router.get("/files/{file_id}", response_model=StoreObject, responses=_READS, operation_id="get_uploaded_file")
async def get_upload(state: Shared, access: Writer, file_id: UploadId) -> Response:
    """Describe an uploaded file."""
    access.require_write()
    return Json(_upload_object(await in_thread(existing_upload, _uploads(state, access), file_id)))


@router.get(
    "/files/{file_id}/content",
    responses={**_READS, 200: {"content": {"application/octet-stream": {}}, "description": "The file as it was sent."}},
    response_class=Response,
    operation_id="get_uploaded_content",
)
async def get_content(state: Shared, access: Writer, file_id: UploadId) -> Response:
    """Return an uploaded file as it was sent, never to be shown by a browser."""
    access.require_write()
    uploads = _uploads(state, access)
    content = await in_thread(lambda: uploads.content(existing_upload(uploads, file_id)))
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.delete("/files/{file_id}", response_model=StoreObject, responses=_READS, operation_id="delete_uploaded_file")
async def delete_upload(state: Shared, access: Writer, file_id: UploadId) -> Response:
    """Delete an uploaded file, and its passages in all datasets that the key may write."""
    access.require_write()
    uploads = _uploads(state, access)

    def delete() -> int:
        upload = existing_upload(uploads, file_id)
        count = 0
        for name in access.visible(state.workspace.names()) if access.write else ():
            dataset = state.workspace.dataset(name, create=False)
            if Capability.WRITE in dataset.store.info.capabilities and (ids := passages_of(dataset, file_id)):
                with dataset.writing(WRITE_PATIENCE):
                    count += dataset.delete(ids)
        uploads.delete(upload)
        return count

    state.metrics.deleted(await in_writer(state, delete))
    return Json({"id": file_id, "object": "file", "deleted": True})


@router.post("/uploads", include_in_schema=False)
async def refuse_parts(state: Shared, access: Writer) -> Response:  # noqa: ARG001  (a valid key is required)
    """Say how files are uploaded here."""
    raise HttpProblem(
        "not-found",
        f"files are not uploaded in parts here: send a whole file of up to {state.limits.max_file_bytes:,} bytes to "
        "POST /v1/files",
        kind="files",
    )


@router.post(
    "/vector_stores/{name}/files", response_model=StoreObject, responses=_WRITES, operation_id="attach_uploaded_file"
)
async def attach_file(state: Shared, access: Writer, name: StoreName, body: AttachRequest) -> Response:
    """Add the passages of an uploaded file to a dataset, in place of those that it has there.

    Words are found at once; vectors follow. Passages have the metadata of `attributes`.
    """
    uploads = _uploads(state, access)

    def add() -> dict[str, Any]:
        dataset = writable(state, access, name)
        upload = existing_upload(uploads, body.file_id)
        reasons = attach(state, dataset, uploads, upload, sizes_of(body.chunking_strategy), body.attributes or {})
        documents = existing_documents(dataset, upload.id)
        return file_object(name, documents, upload, "; ".join(reasons)[:1000] or None)

    return Json(await in_writer(state, add))


@router.post(_BATCHES, response_model=StoreObject, responses=_WRITES, operation_id="attach_uploaded_files")
async def attach_batch(
    state: Shared, access: Writer, name: StoreName, body: BatchRequest, request: Request
) -> Response:
    """Attach several uploaded files; one that cannot be read does not stop the others."""
    if (body.file_ids is None) == (body.files is None):
        refuse("files", "give either file_ids or files")
    if body.files is not None and (body.attributes is not None or body.chunking_strategy is not None):
        refuse("files", "each file has its own attributes and chunking_strategy")
    files = body.files or [
        AttachRequest(file_id=file_id, attributes=body.attributes, chunking_strategy=body.chunking_strategy)
        for file_id in body.file_ids or ()
    ]
    uploads, sizes = _uploads(state, access), [sizes_of(file.chunking_strategy) for file in files]

    def check() -> list[Upload]:
        writable(state, access, name)
        return [existing_upload(uploads, file.file_id) for file in files]

    errors, gaps = dict[str, str](), dict[str, str]()
    for file, upload, size in zip(files, await in_writer(state, check), sizes, strict=True):
        await check_again(request.scope)  # the key may have been revoked: each file may take half a minute
        try:
            if reasons := await in_writer(state, attach_to, state, access, name, upload, size, file.attributes or {}):
                gaps[upload.id] = "; ".join(reasons)[:1000]
        except InputError as error:
            errors[upload.id] = str(error)[:1000]
    batch = await in_writer(state, uploads.save_batch, name, [file.file_id for file in files], errors, gaps)
    return Json(_batch_object(batch))


@router.get(_BATCHES + "/{batch_id}", response_model=StoreObject, responses=_READS, operation_id="get_file_batch")
async def get_batch(state: Shared, access: Reader, name: StoreName, batch_id: BatchId) -> Response:
    """Say what became of files that were attached together."""
    return Json(_batch_object(await in_thread(_batch, state, access, name, batch_id)))


@router.post(
    _BATCHES + "/{batch_id}/cancel", response_model=StoreObject, responses=_READS, operation_id="cancel_file_batch"
)
async def cancel_batch(state: Shared, access: Reader, name: StoreName, batch_id: BatchId) -> Response:
    """Return the batch as it is: it was finished before its id was known."""
    return Json(_batch_object(await in_thread(_batch, state, access, name, batch_id)))


@router.get(_BATCHES + "/{batch_id}/files", response_model=StorePage, responses=_READS, operation_id="list_file_batch")
async def list_batch(
    state: Shared,
    access: Reader,
    name: StoreName,
    batch_id: BatchId,
    limit: Limit = 20,
    after: AfterId = None,
    before: BeforeId = None,
    order: Order = "asc",
    filter: FileStatus = None,  # noqa: A002  (OpenAI's name)
) -> Response:
    """List the files of a batch."""

    def page() -> dict[str, Any]:
        batch = _batch(state, access, name, batch_id)
        dataset, uploads = state.dataset(access, name), _uploads(state, access)
        entries = {file_id: _entry(dataset, uploads, batch, file_id) for file_id in batch.file_ids}
        chosen_ids = [file_id for file_id, entry in entries.items() if filter in {None, entry["status"]}]
        return list_page(
            chosen_ids, lambda ids: (entries[file_id] for file_id in ids), after, before, limit=limit, order=order
        )

    return Json(await in_thread(page))


def _uploads(state: State, access: Access) -> Uploads:
    return Uploads(state.workspace.backend, access.key_id)


def _upload_object(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.id,
        "object": "file",
        "bytes": upload.size,
        "created_at": upload.created_at,
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": None,
    }


def _batch(state: State, access: Access, name: str, batch_id: str) -> UploadBatch:
    dataset = state.dataset(access, name)
    batch = _uploads(state, access).batch(dataset.name, batch_id)
    if batch is None:
        raise HttpProblem("not-found", f"there is no batch {batch_id!r:.80} in dataset {name!r}", kind="files")
    return batch


def _batch_object(batch: UploadBatch) -> dict[str, Any]:
    total, failure_count = len(batch.file_ids), len(batch.errors)
    counts = {
        "in_progress": 0,
        "completed": total - failure_count,
        "failed": failure_count,
        "cancelled": 0,
        "total": total,
    }
    return {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": batch.created_at,
        "vector_store_id": batch.dataset,
        "status": "completed",
        "file_counts": counts,
    }


def _entry(dataset: Dataset, uploads: Uploads, batch: UploadBatch, file_id: str) -> dict[str, Any]:
    """Describe a file of a batch: what there is of it now, or why it was not attached."""
    error = batch.errors.get(file_id)
    if error is None and (documents := existing_documents(dataset, file_id)):
        return file_object(dataset.name, documents, uploads.get(file_id), batch.gaps.get(file_id))
    return {
        "id": file_id,
        "object": "vector_store.file",
        "vector_store_id": dataset.name,
        "status": "failed" if error else "cancelled",  # deleted since then
        "created_at": batch.created_at,
        "usage_bytes": 0,
        "last_error": {"code": "invalid_file", "message": error} if error else None,
        "attributes": {},
    }
