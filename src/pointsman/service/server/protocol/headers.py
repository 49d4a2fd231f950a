"""The head of a request, which must be small and be text, and the headers of every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unicodedata import category
from urllib.parse import unquote_to_bytes

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import CLOSE, RequestCheck, of_console, path_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.service.server.protocol.request_limits import Limits

_ALWAYS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
API_HEADERS: Final = {
    **_ALWAYS,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_CONSOLE_HEADERS: Final = {
    **_ALWAYS,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


def _raw(headers: dict[str, str]) -> dict[bytes, tuple[bytes, bytes]]:
    return {name.lower().encode(): (name.lower().encode(), value.encode()) for name, value in headers.items()}


class SecurityHeaders:
    """Adds headers to every answer that restrict a browser to displaying it.

    Headers set by a route are kept. The console may load its own scripts and styles, other answers may load nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._api, self._console = _raw(API_HEADERS), _raw(_CONSOLE_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to the answer."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before it is accepted: the server answers 403
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        policy = self._console if of_console(path_of(scope)) else self._api

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                header_names = {name.lower() for name, _ in headers}
                headers += [pair for name, pair in policy.items() if name not in header_names]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, sending)


class RequestHead(RequestCheck):
    """Refuses a request if its URL or headers are too large, or its URL is not text."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(app)
        self._limits = limits

    async def _check(self, scope: Scope) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        limits = self._limits
        if len(raw) + len(query) > limits.max_url_bytes:
            limit = limits.max_url_bytes
            raise HttpProblem("too-large", f"the address is longer than {limit:,} bytes", headers=CLOSE, limit=limit)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > limits.max_header_bytes:
            limit = limits.max_header_bytes
            raise HttpProblem("too-large", f"the headers are longer than {limit:,} bytes", headers=CLOSE, limit=limit)
        if not all(character.isprintable() or category(character) == "Zs" for character in scope["path"]):
            raise HttpProblem("malformed", "the path has unprintable characters")
        if not (_is_text(raw) and _is_text(query)):
            raise HttpProblem("malformed", "the address is not UTF-8, percent-encoded")


def _is_text(address: bytes) -> bool:
    if b"%" not in address and address.isascii():
        return True
    try:
        unquote_to_bytes(address).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
