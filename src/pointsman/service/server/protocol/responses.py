"""How answers are sent: one fast way to write JSON, and one for streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Json(JSONResponse):
    """A plain value as JSON; numbers that JSON cannot express become null."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return plain(content)


class LineResponse(StreamingResponse):
    """A stream that is sent while the request's body is still being read.

    Starlette's own class detects a disconnected client by reading the request, and would swallow parts of the body.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI's)
        """Send the stream."""
        try:
            await self.stream_response(send)
        except OSError as error:
            raise ClientDisconnect from error


class Heads:
    """Answers ``HEAD`` as ``GET``, without the body.

    Args:
        app: answers the requests; its routes for ``GET`` need not name ``HEAD``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        get = {**scope, "method": "GET"}
        try:
            await self._app(get, receive, send_head)
        finally:
            scope["route"] = get.get("route")  # for the log


def plain(value: Any) -> bytes:
    """Encode a plain value as one line of JSON in UTF-8."""
    return to_json(value, inf_nan_mode="null")


def event(name: str, value: Any) -> bytes:
    """Encode a server-sent event; JSON on one line needs no escaping."""
    return b"event: " + name.encode() + b"\ndata: " + plain(value) + b"\n\n"
