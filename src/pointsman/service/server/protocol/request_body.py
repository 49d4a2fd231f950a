"""The body of a request: its size, its time, its media type and its framing."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import CLOSE, RequestReader, lingering, path_of, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.service.server.protocol.request_limits import Limits

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
FORM: Final = "multipart/form-data"

NO_FILES: Final = (
    "files are not uploaded here: index them with `pointsman index`, or send their text as JSON to "
    "POST /api/datasets/NAME/documents"
)
"""The answer to an upload."""

_INGEST: Final = re.compile(r"/api/datasets/[^/]+/documents")
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_TYPE: Final = (b"content-type", b"content-encoding")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_CHARSET: Final = re.compile(r';[ \t]*charset="?utf-?8"?', re.IGNORECASE)


class Bodies:
    """Refuses bodies that are too large, not JSON, or of unclear length.

    A JSON body is read completely before the application is called, so a body that is too large or never ends goes no
    further. A streamed body (`NDJSON`, for adding documents) is counted while it is read; reading past the limit raises
    the problem.

    Args:
        app: handles accepted requests.
        limits: sizes and times.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reading = RequestReader(receive)
        try:
            kind = self._announcement(scope)
            if kind == NDJSON:
                receive, send = self._count_bytes(reading), lingering(reading, send)
            else:
                body = b"" if kind is None else await self._read_body(reading)
                if body is None:
                    return  # the client has gone
                receive = _replay(body, receive)
        except HttpProblem as problem:
            await refuse(problem, scope, reading, send)
            return
        await self._app(scope, receive, send)

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
            is_ingest = scope["method"] == "POST" and _INGEST.fullmatch(path_of(scope)) is not None
            kind = _type(types, encodings, is_ingest=is_ingest)
        limit = self._limits.max_ingest_bytes if kind == NDJSON else self._limits.max_body_bytes
        if limit is not None and length is not None and length > limit:
            raise _too_large(limit)
        return kind

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the body; None if the client has gone."""
        chunks, size = list[bytes](), 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > self._limits.max_body_bytes:
                        raise _too_large(self._limits.max_body_bytes)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError as error:
            raise self._too_slow() from error

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


def _type(types: list[bytes], encodings: list[bytes], *, is_ingest: bool) -> str:
    """Return the media type of a body if it is accepted here: JSON, or lines of JSON where documents are added.

    Raises:
        Problem: ``unsupported-media-type``.
    """
    if any(encoding.strip().lower() != b"identity" for encoding in encodings):
        raise HttpProblem("unsupported-media-type", "send the body without Content-Encoding", headers=CLOSE)
    media_type = types[0].decode("latin-1") if len(types) == 1 else ""
    kind, mark, parameters = media_type.partition(";")
    kind = kind.strip().lower()
    allowed_types = (JSON, NDJSON) if is_ingest else (JSON,)
    if kind in allowed_types and (not mark or _CHARSET.fullmatch(f";{parameters.strip()}")):
        return kind
    if kind == FORM:
        raise HttpProblem("unsupported-media-type", NO_FILES, headers=CLOSE)
    reason = f"a body here is {' or '.join(allowed_types)}, in UTF-8"
    raise HttpProblem("unsupported-media-type", reason, headers=CLOSE)


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem("too-large", f"the body is larger than {limit:,} bytes", headers=CLOSE, limit=limit)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what passes a body on."""
    is_exhausted = False

    async def replay() -> Message:
        nonlocal is_exhausted
        if is_exhausted:
            return await receive()  # this can only be the message that the client has gone
        is_exhausted = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
