"""Connections to a service: one pool for all threads, one per event loop; no error or log repeats the key."""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
import weakref
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlunsplit

import anyio
import anyio.lowlevel

from pointsman.tools.errors import InputError, ServiceError
from pointsman.tools.network.http_addresses import address, is_here, one_line
from pointsman.tools.network.time_limits import TimeLimit
from pointsman.tools.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    import httpx

    Transport = httpx.BaseTransport | httpx.AsyncBaseTransport
    _Pool = tuple[AsyncGenerator[httpx.AsyncClient, None], httpx.AsyncClient]

_LARGEST: Final = 64 * 2**20
"""Largest response, in bytes; that of one search has some ten kilobytes."""

_IDLE_SECONDS: Final = 4.0
"""How long an idle connection is kept; services close theirs after five seconds."""

MOST_TOLD: Final = 4000
"""Characters kept of a service's error message; it may name every dataset."""

JSON, LINES = "application/json", "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request.

    Attributes:
        method: the HTTP method.
        path: relative to the service's address, including the query string.
        body: the content, if any.
        kind: the media type of the body.
        repeatable: whether the request is idempotent.
    """

    method: str
    path: str
    body: bytes | None = None
    kind: str = JSON
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response."""

    status: int
    headers: Mapping[str, str] = field(repr=False)  # not shown in a traceback: a service might repeat the key
    content: bytes = field(repr=False)
    reason: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no complete response arrived.

    Attributes:
        title: the cause in two words.
        detail: the cause in one sentence.
        is_unsent: whether the service certainly did not receive the request.
        is_broken: whether the connection broke, so that it is unknown whether the request was executed.
        error: the exception type to raise.
    """

    title: str
    detail: str
    is_unsent: bool = False
    is_broken: bool = False
    error: type[ServiceError] = ServiceError


class TooLargeError(ServiceError):
    """A response exceeds the size limit."""


class _UnusableReplyError(Exception):
    """A response that is abandoned before its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class _Body:
    """The content of a response, read block by block.

    Args:
        response: the httpx response.
        deadline: when the complete content, or the first line, must have arrived.
        quiet: in line mode, seconds allowed for each further line.
    """

    def __init__(self, response: httpx.Response, deadline: float, quiet: float | None = None) -> None:
        self._response, self._quiet = response, quiet
        # A transport that was given may not know of the deadline.
        self._deadline = response.extensions.get("deadline") or TimeLimit(deadline - time.monotonic())
        self._content = bytearray()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _UnusableReplyError(Failure("unusable", "the answer is compressed, but no compression was requested"))

    def take(self, block: bytes) -> list[bytes]:
        """Append a block; in line mode, return the lines that it completes."""
        self._content += block
        lines: list[bytes] = []
        if self._quiet is not None and b"\n" in block:
            *lines, remainder = bytes(self._content).split(b"\n")
            self._content = bytearray(remainder)
            self._deadline.extend(self._quiet)
        if len(self._content) > _LARGEST:
            message = f"the answer is larger than {_LARGEST // 2**20} MB; ask for less at once"
            raise _UnusableReplyError(Failure("too large", message, error=TooLargeError))
        if time.monotonic() > self._deadline.end:
            raise _UnusableReplyError(_LATE)
        return [line for line in lines if line.strip()]

    def reply(self) -> Reply:
        """Return the complete response."""
        response = self._response
        return Reply(response.status_code, response.headers, bytes(self._content), response.reason_phrase)


_LATE: Final = Failure("late", "no answer came in time")


class Link:
    """Connections to a service: one pool for all threads, one per event loop.

    Args:
        url: see `pointsman.service.client.Client`.
        key: see there.
        insecure: see there.
        transport: see there.
    """

    def __init__(self, url: str, key: str | None, *, insecure: bool, transport: Transport | None) -> None:
        url_parts = address(url)
        if url_parts.query:
            raise InputError("url must be the service's address without a query string")
        if key is not None and not (isinstance(key, str) and key and key.isascii() and key.isprintable()):
            raise InputError("key must be one line of ASCII characters; check it for line breaks and quotes")
        if key is not None and url_parts.scheme == "http" and not is_here(url_parts) and not insecure:
            raise InputError(
                f"the key would be sent to {url_parts.hostname} without encryption; use https, "
                "or set insecure=True if no one can read the traffic"
            )
        import httpx

        from pointsman.tools.network.http_calls import proxy_of

        self.url = urlunsplit(url_parts._replace(path=url_parts.path.rstrip("/")))
        self._httpx, self._key, self._transport = httpx, key, transport
        # Also matches a truncated key; its beginning is the key's number, which is not secret.
        self._secret = re.compile(f"{re.escape(key[:12])}[!-~]*") if key else None
        self._proxy = None if transport is not None else proxy_of(url_parts)
        self._is_encrypted = url_parts.scheme == "https"
        self._is_closed = False
        self._sync_client: httpx.Client | None = None
        self._async_client: anyio.lowlevel.RunVar[_Pool | None] = anyio.lowlevel.RunVar(f"pointsman {next(_numbers)}")
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._former_clients: list[object] = []
        _links.add(self)

    @property
    def has_key(self) -> bool:
        """Whether a key is set."""
        return self._key is not None

    def mask(self, text: str | bytes, max_chars: int = 100) -> str:
        """Return the beginning of an external text for an error message; a key that the service repeated is removed."""
        text = text[:MOST_TOLD].decode("utf-8", "replace") if isinstance(text, bytes) else text
        return one_line(self._secret.sub("[key]", text) if self._secret else text, max_chars)

    def exchange(self, request: Request, deadline: float) -> Reply | Failure:
        """Send a request and read the response."""
        *_, ending = self._exchange(request, deadline)
        assert not isinstance(ending, bytes)
        return ending

    def lines(self, request: Request, quiet: float) -> Generator[bytes | Reply | Failure, None, None]:
        """Send a request and yield the response line by line; the last item says how it ended."""
        return self._exchange(request, time.monotonic() + quiet, quiet)

    def _exchange(
        self, request: Request, deadline: float, quiet: float | None = None
    ) -> Generator[bytes | Reply | Failure, None, None]:
        failure: Failure | None = None
        try:
            with self._blocking().stream(**self._arguments(request, deadline)) as response:
                body = _Body(response, deadline, quiet if response.status_code == 200 else None)
                for block in response.iter_bytes():
                    yield from body.take(block)
                reply = body.reply()
        except self._foreign as error:
            failure = self._failure(error)
        yield failure or reply

    async def aexchange(self, request: Request, deadline: float) -> Reply | Failure:
        """Async version of `exchange`."""
        client = await self._awaitable()
        try:
            async with client.stream(**self._arguments(request, deadline)) as response:
                body = _Body(response, deadline)
                async for block in response.aiter_bytes():
                    body.take(block)
                return body.reply()
        except self._foreign as error:
            return self._failure(error)

    def close(self) -> None:
        """Close the connections of all threads; every further call is an `InputError`."""
        with self._lock:
            self._is_closed = True
            client, self._sync_client = self._sync_client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._async_client.get(None)
        if client is not None:
            await client[0].aclose()

    def start_anew(self) -> None:
        """In a forked child: neither use nor close the parent's connections."""
        self._lock = threading.Lock()
        self._former_clients.append(self._sync_client)
        self._sync_client = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError(f"the client of {self.url} is closed; make another with Client or pointsman.open")

    def _blocking(self) -> httpx.Client:
        self._check_open()
        transport = self._transport
        if transport is not None and not isinstance(transport, self._httpx.BaseTransport):
            raise InputError("this client's transport is asynchronous only; use asearch, or a synchronous transport")
        with self._lock:
            if self._sync_client is None:
                from pointsman.tools.network.http_calls import BoundedTransport

                transport = transport or BoundedTransport(self._proxy, **self._bounds())
                self._sync_client = self._httpx.Client(transport=transport, **self._common())
            return self._sync_client

    async def _awaitable(self) -> httpx.AsyncClient:
        self._check_open()
        client = self._async_client.get(None)
        if client is None:
            pool = self._until_the_loop_ends()
            client = pool, await anext(pool)  # does not suspend, so no other task runs in between
            self._async_client.set(client)
        return client[1]

    async def _until_the_loop_ends(self) -> AsyncGenerator[httpx.AsyncClient, None]:
        """Yield an event loop's pool. A loop that ends closes its open generators, and this one closes the pool."""
        transport = self._transport
        if transport is not None and not isinstance(transport, self._httpx.AsyncBaseTransport):
            raise InputError("this client's transport is synchronous only; use search, or an asynchronous transport")
        if transport is None:
            from pointsman.tools.network.http_calls import AsyncBoundedTransport

            with self._lock:
                transport = AsyncBoundedTransport(self._proxy, **self._bounds())
        async with self._httpx.AsyncClient(transport=transport, **self._common()) as client:
            try:
                yield client
            finally:
                self._async_client.set(None)

    def _bounds(self) -> dict[str, Any]:
        if self._tls is None:  # made once: reading certificates can take longer than a search
            uses_tls = self._is_encrypted or self._proxy is not None  # a proxy may also be reached over TLS
            self._tls = self._httpx.create_ssl_context() if uses_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return {
            "verify": self._tls,
            "limits": self._httpx.Limits(max_keepalive_connections=20, keepalive_expiry=_IDLE_SECONDS),
        }

    @staticmethod
    def _common() -> dict[str, Any]:
        headers = {
            "Accept": "application/json, application/problem+json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pointsman/{__version__}",
        }
        return {"follow_redirects": False, "trust_env": False, "headers": headers}

    def _arguments(self, request: Request, deadline: float) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": self.url + request.path,
            "content": request.body,
            "headers": {} if request.body is None else {"Content-Type": request.kind},
            "auth": self._sign if self._key else None,
            "timeout": max(0.001, deadline - time.monotonic()),
        }

    def _sign(self, request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    @property
    def _foreign(self) -> tuple[type[Exception], ...]:
        """Exceptions that httpx raises; RuntimeError if another thread has closed the pool in the meantime."""
        return (self._httpx.HTTPError, self._httpx.InvalidURL, RuntimeError, _UnusableReplyError)

    def _failure(self, error: Exception) -> Failure:
        httpx, cause = self._httpx, self.mask(f"{type(error).__name__}: {error}", 200)
        if isinstance(error, _UnusableReplyError):
            return error.failure
        kinds: tuple[tuple[type[Exception], Failure], ...] = (
            (httpx.PoolTimeout, Failure("no connection", "timed out while waiting for a free connection")),
            (httpx.ConnectTimeout, _no_connection(cause)),
            (httpx.TimeoutException, _LATE),
            (httpx.ConnectError, _no_connection(cause)),
            (httpx.TransportError, Failure("broken", f"the connection broke ({cause})", is_broken=True)),
            (RuntimeError, Failure("broken", f"the client was closed meanwhile ({cause})", is_broken=True)),
            (Exception, Failure("unusable", f"the request could not be made ({cause})")),
        )
        return next(failure for kind, failure in kinds if isinstance(error, kind))


def _no_connection(cause: str) -> Failure:
    return Failure("no connection", f"no connection could be made ({cause}); is the service running?", is_unsent=True)


_numbers = count()
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _start_anew() -> None:
    """A forked child must not use its parent's connections; a thread that no longer exists may hold a lock."""
    for link in _links:
        link.start_anew()


if hasattr(os, "register_at_fork"):  # absent on platforms without fork
    os.register_at_fork(after_in_child=_start_anew)
