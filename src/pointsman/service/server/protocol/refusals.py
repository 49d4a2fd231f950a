"""How a request that fails a check is answered, and its connection ended."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from pointsman.service.server.protocol.problems import HttpProblem, response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
PROBES: Final = frozenset({"/health", "/ready"})
CLOSE: Final = {"Connection": "close"}  # the rest of the request on the connection is not taken for another one
_BEARER: Final = re.compile(rb"bearer +\S", re.IGNORECASE)
_OF_BODY: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
_LINGER_BYTES: Final = 16_000_000  # of a refused body; beyond that the connection is cut
_LINGER_SECONDS: Final = 2.0
_LINGER_PAUSE: Final = 0.5  # seconds without new data


async def refuse(problem: HttpProblem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the problem; the outermost layer has put the request's id into the scope.

    If the request has a body, the connection is then closed, so that the rest of it is not taken for another request.
    """
    headers = {name: value for name, value in scope["headers"] if name in _OF_BODY}
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        problem.headers.setdefault("Connection", "close")
        reading = receive if isinstance(receive, RequestReader) else RequestReader(receive)
        # Parsing chunks is expensive: not for unknown clients. A client with an Expect header is not sending yet.
        if (b"content-length" in headers or reading is receive) and b"expect" not in headers:
            send = lingering(reading, send)
    request_id = scope.get("state", {}).get("request_id")
    bearer = any(name == b"authorization" and _BEARER.match(value) for name, value in scope["headers"])
    language = next((text.decode("latin-1") for name, text in scope["headers"] if name == b"accept-language"), "")
    refusal = response(problem, request_id, scope["path"], bearer=bearer, accept_language=language)
    await refusal(scope, receive, send)


class RequestCheck(ABC):
    """What looks at a request before it is passed on.

    Args:
        app: handles accepted requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            try:
                await self._check(scope)
            except HttpProblem as problem:
                await refuse(problem, scope, receive, send)
                return
        await self._app(scope, receive, send)

    @abstractmethod
    async def _check(self, scope: Scope) -> None:
        """Raise an `HttpProblem` to refuse the request."""


class RequestReader:
    """Reads a request and tracks whether it has arrived completely."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_ended = False

    async def __call__(self) -> Message:
        """Return the next part."""
        try:
            message = await self._receive()
        except HttpProblem:  # it cannot be read
            self.is_ended = True
            raise
        self.is_ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def pass_over(self) -> None:
        """Read and discard what is still arriving, within bounds."""
        remaining = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self.is_ended and remaining > 0:
                    async with asyncio.timeout(_LINGER_PAUSE):
                        remaining -= len((await self()).get("body", b""))
        except (TimeoutError, HttpProblem):
            return


def lingering(reading: RequestReader, send: Send) -> Send:
    """Wrap ``send`` so that the rest of the request is discarded before the answer ends.

    A connection that is closed while data is still arriving is reset, and a client that is still sending then never
    sees the answer.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False) and not reading.is_ended:
            await send({**message, "more_body": True})
            await reading.pass_over()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return sending


def path_of(scope: Scope) -> str:
    """Return the path as routes see it: without the prefix under which the service is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def of_console(path: str) -> bool:
    """Whether a path is a page or one of the files of the console and the description of the API."""
    return path in {"/", "/console", "/docs"} or path.startswith("/console/")
