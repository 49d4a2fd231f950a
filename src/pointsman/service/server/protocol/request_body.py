"""The body of a request: its size, its time, its media type and its framing."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import ExitStack, contextmanager
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Final

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import CLOSE, RequestReader, lingering, path_of, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.service.server.protocol.request_limits import Limits

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
FORM: Final = "multipart/form-data"

NO_FILES: Final = (
    "files are uploaded to POST /v1/files alone; everything else takes JSON. Many files are best indexed with "
    "`pointsman index`"
)
"""The answer to an upload elsewhere."""

UPLOADS: Final = "/v1/files"
"""Where files are uploaded."""

_INGEST: Final = re.compile(r"/api/datasets/[^/]+/documents")
_MEGABYTE: Final = 1_000_000  # also what is held in memory of an uploaded file; a longer one is on disk
_CHUNK: Final = 65_536  # bytes of an uploaded file that are passed on at a time
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_TYPE: Final = (b"content-type", b"content-encoding")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_CHARSET: Final = re.compile(r';[ \t]*charset="?utf-?8"?', re.IGNORECASE)


class Bodies:
    """Refuses bodies that are too large, not JSON, or of unclear length.

    A JSON body, or a form with a file, is read completely before the application is called, so a body that is too large
    or never ends goes no further. A form is kept on disk meanwhile, and only so many are read at once. A streamed body
    (`NDJSON`, for adding documents) is counted while it is read; reading past the limit raises the problem.

    Args:
        app: handles accepted requests.
        limits: sizes and times.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reading = RequestReader(receive)
        with ExitStack() as stack:
            try:
                kind = self._announcement(scope)
                if kind == NDJSON:
                    receive, send = self._count_bytes(reading), lingering(reading, send)
                else:
                    body = stack.enter_context(self._room_for(kind))
                    if kind is not None and not await self._read_body(reading, kind, body):  # else it is not read
                        return  # the client has gone
                    receive = _replay(body, receive, _CHUNK if kind == FORM else -1)
            except HttpProblem as problem:
                await refuse(problem, scope, reading, send)
                return
            await self._app(scope, receive, send)

    @contextmanager
    def _room_for(self, kind: str | None) -> Iterator[IO[bytes]]:
        """Yield where a body of this type is kept until its request is answered.

        Raises:
            Problem: ``too-many-requests``: too many files are being uploaded.
        """
        if kind != FORM:
            yield BytesIO()
            return
        if self._uploads >= self._limits.max_uploads:
            raise HttpProblem(
                "too-many-requests",
                f"{self._uploads} files are being uploaded; try again, or serve with --limit max_uploads=NUMBER",
                headers={**CLOSE, "Retry-After": "1"},
            )
        self._uploads += 1
        try:
            with SpooledTemporaryFile(_MEGABYTE) as file:
                yield file
        finally:
            self._uploads -= 1

    def _announcement(self, scope: Scope) -> str | None:
        """Return the media type of the body announced by the headers; None if there is no body."""
        lengths, codings, types, encodings = _values(scope, b"content-length", b"transfer-encoding", *_OF_TYPE)
        if not lengths and not codings:
            return None
        length = _length(lengths, codings)
        if length == 0:
            return None
        kind = JSON  # a body without a meaning is read too, or it would be taken for the next request
        if scope["method"] in _BODY_METHODS:
            kind = _type(types, encodings, _other_type(scope))
        limit = self._limits.max_ingest_bytes if kind == NDJSON else self._largest(kind)
        if limit is not None and length is not None and length > limit:
            raise _too_large(limit)
        return kind

    def _largest(self, kind: str) -> int:
        """Return how many bytes a body of this type may have that is read completely."""
        return self._limits.max_file_bytes if kind == FORM else self._limits.max_body_bytes

    async def _read_body(self, receive: Receive, kind: str, body: IO[bytes]) -> bool:
        """Read the body, and turn back to its start; return False if the client has gone."""
        limit, seconds, size = self._largest(kind), self._limits.body_seconds, 0
        start = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds) as time_limit:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        raise _too_large(limit)
                    body.write(chunk)
                    if not message.get("more_body", False):
                        body.seek(0)
                        return True
                    if kind == FORM:
                        time_limit.reschedule(start + seconds * (1 + size // _MEGABYTE))
        except TimeoutError as error:
            raise self._too_slow() from error
        except OSError as error:
            reason = f"the file cannot be kept in the service's temporary folder: {error.strerror or error}"
            raise HttpProblem("unavailable", reason, headers=CLOSE) from error

    def _count_bytes(self, receive: Receive) -> Receive:
        limit, size = self._limits.max_ingest_bytes, 0
        longest, start = self._limits.stream_seconds, time.monotonic()
        patience = self._limits.body_seconds  # left for the line that is arriving

        async def counting() -> Message:
            nonlocal size, patience
            wait_start = time.monotonic()
            if longest is not None and wait_start - start > longest:
                raise HttpProblem(
                    "too-large",
                    f"the stream has taken longer than {longest:g} seconds; send the rest in another request",
                    headers=CLOSE,
                    limit=longest,
                )
            try:
                async with asyncio.timeout(max(0.0, patience)):
                    message = await receive()
            except TimeoutError as error:
                raise self._too_slow() from error
            patience -= time.monotonic() - wait_start
            body = message.get("body", b"")
            if b"\n" in body:
                patience = self._limits.body_seconds
            size += len(body)
            if limit is not None and size > limit:
                raise _too_large(limit)
            return message

        return counting

    def _too_slow(self) -> HttpProblem:
        message = f"the body, or a line of it, did not arrive within {self._limits.body_seconds:g} seconds"
        return HttpProblem("malformed", message, headers=CLOSE)


def _values(scope: Scope, *names: bytes) -> tuple[list[bytes], ...]:
    """Return all values of each of these headers."""
    values: dict[bytes, list[bytes]] = {name: [] for name in names}
    for name, value in scope["headers"]:
        if name in values:
            values[name].append(value)
    return tuple(values.values())


def _length(lengths: list[bytes], codings: list[bytes]) -> int | None:
    """Return the body length, None if chunked; ambiguous framing is refused (request smuggling)."""
    if codings:
        if lengths:
            raise HttpProblem("malformed", "a request has Content-Length or Transfer-Encoding, not both", headers=CLOSE)
        if len(codings) > 1 or codings[0].strip().lower() != b"chunked":
            raise HttpProblem("malformed", "the only Transfer-Encoding is 'chunked'", headers=CLOSE)
        return None
    if not lengths:
        return None
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise HttpProblem("malformed", "Content-Length is one number", headers=CLOSE)
    return int(lengths[0])


def _other_type(scope: Scope) -> str | None:
    """Return the media type that a request may have instead of, or beside, JSON."""
    path = path_of(scope)
    if scope["method"] != "POST":
        return None
    if path == UPLOADS:
        return FORM
    return NDJSON if _INGEST.fullmatch(path) is not None else None


def _type(types: list[bytes], encodings: list[bytes], content_type: str | None) -> str:
    """Return the media type of a body if it is accepted here: JSON, or the other one that the path takes.

    Raises:
        Problem: ``unsupported-media-type``.
    """
    if any(encoding.strip().lower() != b"identity" for encoding in encodings):
        raise HttpProblem("unsupported-media-type", "send the body without Content-Encoding", headers=CLOSE)
    media_type = types[0].decode("latin-1") if len(types) == 1 else ""
    kind, mark, parameters = media_type.partition(";")
    kind = kind.strip().lower()
    if content_type == FORM:
        if kind == FORM:
            return FORM  # its parameter is the boundary, which the form's parser checks
        raise HttpProblem("unsupported-media-type", f"a body here is {FORM} with a file", headers=CLOSE)
    if kind in {JSON, content_type} and (not mark or _CHARSET.fullmatch(f";{parameters.strip()}")):
        return kind
    if kind == FORM:
        raise HttpProblem("unsupported-media-type", NO_FILES, headers=CLOSE)
    allowed_types = f"{JSON} or {NDJSON}" if content_type else JSON
    raise HttpProblem("unsupported-media-type", f"a body here is {allowed_types}, in UTF-8", headers=CLOSE)


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem("too-large", f"the body is larger than {limit:,} bytes", headers=CLOSE, limit=limit)


def _replay(body: IO[bytes], receive: Receive, size: int) -> Receive:
    """Return what passes a body on, so many bytes at a time; -1: at once."""
    is_exhausted = False

    async def replay() -> Message:
        nonlocal is_exhausted
        if is_exhausted:
            return await receive()  # this can only be the message that the client has gone
        chunk = body.read(size)
        is_exhausted = len(chunk) < size or size < 0
        return {"type": "http.request", "body": chunk, "more_body": not is_exhausted}

    return replay
