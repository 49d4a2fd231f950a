"""Calls a Pointsman service: connections, retries, and the errors that its answers stand for.

Responses are checked before they are used, and no error or log repeats the key.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlunsplit

import anyio
import anyio.lowlevel

from pointsman._http import address, is_here, one_line, seconds_of
from pointsman._version import __version__
from pointsman.errors import (
    CorruptStoreError,
    FilterError,
    FormatVersionError,
    InputError,
    LockedError,
    MissingDependencyError,
    ModelError,
    PointsmanError,
    RetrievalError,
    ServiceError,
    StorageFullError,
    StoreError,
    UnknownNameError,
    UnmetNeedError,
)
from pointsman.retrieval.dispatch import Call, Mode, Threads, run

if TYPE_CHECKING:
    import httpx

    Transport = httpx.BaseTransport | httpx.AsyncBaseTransport
    _Pool = tuple[AsyncGenerator[httpx.AsyncClient, None], httpx.AsyncClient]

_log = logging.getLogger(__name__)

_LARGEST: Final = 64 * 2**20
"""Largest response, in bytes; that of one search has some ten kilobytes."""

_IDLE_SECONDS: Final = 4.0
"""How long an idle connection is kept; services close theirs after five seconds."""

_MOST_TOLD: Final = 4000
"""Characters kept of a service's error message; it may name every dataset."""

JSON, LINES = "application/json", "application/x-ndjson"

_BY_NAME: Final[Mapping[str, type[PointsmanError]]] = {
    "InputError": InputError,
    "FilterError": FilterError,
    "UnmetNeedError": UnmetNeedError,
    "ModelError": ModelError,
    "MissingDependencyError": ModelError,  # only the service can install what it lacks
    "LockedError": LockedError,
    "StoreError": StoreError,
    "StorageFullError": StorageFullError,
    "CorruptStoreError": CorruptStoreError,
    "FormatVersionError": FormatVersionError,
}
"""Errors of the library that a problem may name and that need only a message."""

_LIMITS: Final = ("max_batch", "max_documents", "max_body_bytes", "max_request_chars")

_BY_SLUG: Final = {
    "invalid-input": InputError,
    "too-large": InputError,
    "locked": LockedError,
    "storage-full": StorageFullError,
}
"""The error for a problem that names no error of the library, by kind."""


# ── requests and responses ───────────────────────────────────────────────────────────────────────────────────────────


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
        unsent: whether the service certainly did not receive the request.
        broken: whether the connection broke, so that it is unknown whether the request was executed.
        error: the exception type to raise.
    """

    title: str
    detail: str
    unsent: bool = False
    broken: bool = False
    error: type[ServiceError] = ServiceError


class TooLargeError(ServiceError):
    """A response exceeds the size limit."""


class _UnusableError(Exception):
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
        self._response, self._deadline, self._quiet = response, deadline, quiet
        self._content = bytearray()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _UnusableError(Failure("unusable", "the answer is compressed, but no compression was requested"))

    def take(self, block: bytes) -> list[bytes]:
        """Append a block; in line mode, return the lines that it completes."""
        self._content += block
        lines: list[bytes] = []
        if self._quiet is not None and b"\n" in block:
            *lines, rest = bytes(self._content).split(b"\n")
            self._content = bytearray(rest)
            self._deadline = time.monotonic() + self._quiet
        if len(self._content) > _LARGEST:
            message = f"the answer is larger than {_LARGEST // 2**20} MB; ask for less at once"
            raise _UnusableError(Failure("too large", message, error=TooLargeError))
        if time.monotonic() > self._deadline:
            raise _UnusableError(_LATE)
        return [line for line in lines if line.strip()]

    def reply(self) -> Reply:
        """Return the complete response."""
        response = self._response
        return Reply(response.status_code, response.headers, bytes(self._content), response.reason_phrase)


_LATE: Final = Failure("late", "no answer came in time")


class Link:
    """Connections to a service: one pool for all threads, one per event loop.

    Args:
        url: see `pointsman.client.Client`.
        key: see there.
        insecure: see there.
        transport: see there.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        insecure: bool,
        transport: Transport | None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingDependencyError("httpx", "http", "Client") from error
        parts = address(url)
        if parts.query:
            raise InputError("url must be the service's address without a query string")
        if key is not None and not (isinstance(key, str) and key and key.isascii() and key.isprintable()):
            raise InputError("key must be one line of ASCII characters; check it for line breaks and quotes")
        if key is not None and parts.scheme == "http" and not is_here(parts) and not insecure:
            raise InputError(
                f"the key would be sent to {parts.hostname} without encryption; use https, "
                "or set insecure=True if no one can read the traffic"
            )
        self.url = urlunsplit(parts._replace(path=parts.path.rstrip("/")))
        self._httpx, self._key, self._transport = httpx, key, transport
        # Also matches a truncated key; its beginning is the key's number, which is not secret.
        self._secret = re.compile(f"{re.escape(key[:12])}[!-~]*") if key else None
        # This machine is reached directly, even if the environment names a proxy.
        self._trust_env, self._encrypted = not is_here(parts), parts.scheme == "https"
        self._opened: httpx.Client | None = None
        self._awaited: anyio.lowlevel.RunVar[_Pool | None] = anyio.lowlevel.RunVar(f"pointsman {next(_numbers)}")
        self._settings: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._others: list[object] = []
        _links.add(self)

    @property
    def has_key(self) -> bool:
        """Whether a key is set."""
        return self._key is not None

    def told(self, text: str | bytes, most: int = 100) -> str:
        """Return the beginning of an external text for an error message; a key that the service repeated is removed."""
        text = text[:_MOST_TOLD].decode("utf-8", "replace") if isinstance(text, bytes) else text
        return one_line(self._secret.sub("[key]", text) if self._secret else text, most)

    def exchange(self, request: Request, deadline: float) -> Reply | Failure:
        """Send a request and read the response."""
        *_, ending = self._exchanged(request, deadline)
        assert not isinstance(ending, bytes)
        return ending

    def lines(self, request: Request, quiet: float) -> Generator[bytes | Reply | Failure, None, None]:
        """Send a request and yield the response line by line; the last item says how it ended."""
        return self._exchanged(request, time.monotonic() + quiet, quiet)

    def _exchanged(
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
        """Close the connections of all threads."""
        with self._lock:
            client, self._opened = self._opened, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._awaited.get(None)
        if client is not None:
            await client[0].aclose()

    def start_anew(self) -> None:
        """In a forked child: neither use nor close the parent's connections."""
        self._lock = threading.Lock()
        self._others.append(self._opened)
        self._opened = None

    def _blocking(self) -> httpx.Client:
        transport = self._transport
        if transport is not None and not isinstance(transport, self._httpx.BaseTransport):
            raise InputError("this client's transport is asynchronous only; use asearch, or a synchronous transport")
        with self._lock:
            if self._opened is None:
                self._opened = self._httpx.Client(transport=transport, **self._common())
            return self._opened

    async def _awaitable(self) -> httpx.AsyncClient:
        client = self._awaited.get(None)
        if client is None:
            pool = self._until_the_loop_ends()
            client = pool, await anext(pool)  # does not suspend, so no other task runs in between
            self._awaited.set(client)
        return client[1]

    async def _until_the_loop_ends(self) -> AsyncGenerator[httpx.AsyncClient, None]:
        """Yield an event loop's pool. A loop that ends closes its open generators, and this one closes the pool."""
        transport = self._transport
        if transport is not None and not isinstance(transport, self._httpx.AsyncBaseTransport):
            raise InputError("this client's transport is synchronous only; use search, or an asynchronous transport")
        with self._lock:
            common = self._common()
        async with self._httpx.AsyncClient(transport=transport, **common) as client:
            try:
                yield client
            finally:
                self._awaited.set(None)

    def _common(self) -> dict[str, Any]:
        if self._settings is None:
            self._settings = {
                "verify": self._tls(),  # made once: reading certificates can take longer than a search
                "follow_redirects": False,
                "trust_env": self._trust_env,
                "headers": {
                    "Accept": "application/json, application/problem+json",
                    "Accept-Encoding": "identity",
                    "User-Agent": f"pointsman/{__version__}",
                },
                "limits": self._httpx.Limits(max_keepalive_connections=20, keepalive_expiry=_IDLE_SECONDS),
            }
        return self._settings

    def _tls(self) -> ssl.SSLContext:
        if self._encrypted or self._trust_env:  # a proxy may also be reached over TLS
            return self._httpx.create_ssl_context(trust_env=self._trust_env)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no certificates; unused

    def _arguments(self, request: Request, deadline: float) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": self.url + request.path,
            "content": request.body,
            "headers": {} if request.body is None else {"Content-Type": request.kind},
            "auth": self._signed if self._key else None,
            "timeout": max(0.001, deadline - time.monotonic()),
        }

    def _signed(self, request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    @property
    def _foreign(self) -> tuple[type[Exception], ...]:
        """Exceptions that httpx raises; RuntimeError if another thread has closed the pool in the meantime."""
        return (self._httpx.HTTPError, self._httpx.InvalidURL, RuntimeError, _UnusableError)

    def _failure(self, error: Exception) -> Failure:
        httpx, cause = self._httpx, self.told(f"{type(error).__name__}: {error}", 200)
        if isinstance(error, _UnusableError):
            return error.failure
        kinds: tuple[tuple[type[Exception], Failure], ...] = (
            (httpx.PoolTimeout, Failure("no connection", "timed out while waiting for a free connection")),
            (httpx.ConnectTimeout, _unconnected(cause)),
            (httpx.TimeoutException, _LATE),
            (httpx.ConnectError, _unconnected(cause)),
            (httpx.TransportError, Failure("broken", f"the connection broke ({cause})", broken=True)),
            (RuntimeError, Failure("broken", f"the client was closed meanwhile ({cause})", broken=True)),
            (Exception, Failure("unusable", f"the request could not be made ({cause})")),
        )
        return next(failure for kind, failure in kinds if isinstance(error, kind))


def _unconnected(cause: str) -> Failure:
    return Failure("no connection", f"no connection could be made ({cause}); is the service running?", unsent=True)


_numbers = count()
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _start_anew() -> None:
    """A forked child must not use its parent's connections; a thread that no longer exists may hold a lock."""
    for link in _links:
        link.start_anew()


if hasattr(os, "register_at_fork"):  # absent on platforms without fork
    os.register_at_fork(after_in_child=_start_anew)


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Service:
    """Calls a service, retries requests and raises its problems as errors.

    Args:
        url: see `pointsman.client.Client`.
        key: see there.
        timeout: see there.
        retries: see there.
        insecure: see there.
        transport: see there.

    Raises:
        InputError: an argument is invalid, or the key would be sent unencrypted.
        MissingDependencyError: the package ``httpx`` is not installed.
    """

    def __init__(
        self, url: str, key: str | None, timeout: float, retries: int, *, insecure: bool, transport: Transport | None
    ) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries is an int from 0 up, not {retries!r:.80}")
        self.timeout, self._retries = time_limit(timeout), retries
        self.link = Link(url, key, insecure=insecure, transport=transport)
        self.url = self.link.url
        self._known: dict[str, int] | None = None

    async def limits(self, mode: Mode) -> Mapping[str, int]:
        """Return the service's limits; they are fetched once."""
        if self._known is None:
            answer = await self.ask(mode, Request("GET", "/api/me"), self.timeout)
            with self.reading("list of limits"):
                limits = {name: answer["limits"][name] for name in _LIMITS}
                if not all(isinstance(limit, int) and limit > 0 for limit in limits.values()):
                    raise TypeError(f"a limit is not a number: {limits!r:.200}")
            self._known = limits
        return self._known

    def call(self, request: Request, seconds: float | None = None) -> Any:
        """Send a request synchronously and return the response's JSON."""
        return run(self.ask(Threads(), request, self.timeout if seconds is None else seconds))

    async def ask(self, mode: Mode, request: Request, seconds: float) -> Any:
        """Return the response's JSON; the request is retried while that helps, is safe and time remains.

        Raises:
            PointsmanError: the error that the service reports, or a `ServiceError`.
        """
        link, deadline = self.link, time.monotonic() + seconds
        for attempt in count():
            reply = await mode.one(
                Call(partial(link.exchange, request, deadline), partial(link.aexchange, request, deadline))
            )
            pause = self.pause(reply, request, attempt, deadline)
            if pause is None:
                return self._read(reply)
            await mode.one(Call(partial(time.sleep, pause), partial(anyio.sleep, pause)))
        raise AssertionError("the last attempt returns or raises")

    def pause(self, reply: Reply | Failure, request: Request, attempt: int, deadline: float) -> float | None:
        """Return the seconds to wait before a retry; None if there is an answer or a retry is pointless."""
        if isinstance(reply, Failure):
            wait, reason = 0.0, reply.title
            if not reply.unsent and not (reply.broken and request.repeatable):
                return None
        else:
            after = seconds_of(reply.headers.get("retry-after"))
            if reply.status not in {429, 503} or after is None:
                return None
            wait, reason = after, f"status {reply.status}"
        pause = max(wait, 0.25 * 2.0**attempt * random.uniform(0.5, 1))  # noqa: S311  (jitter is not security)
        if attempt >= self._retries or pause >= deadline - time.monotonic():
            return None
        _log.info("%s: %s; again in %.1f s", self.url, reason, pause)
        return pause

    def _read(self, reply: Reply | Failure) -> Any:
        """Return the JSON of a response.

        Raises:
            PointsmanError: the response is not JSON, or reports a problem.
        """
        if isinstance(reply, Failure) or reply.status not in {200, 201}:
            raise self.error(reply)
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError):
            pass
        raise self._error(reply, f"the answer is not JSON: {self.link.told(reply.content)}")

    def error(self, reply: Reply | Failure) -> PointsmanError:
        """Return the error for a response, or for a missing one."""
        if isinstance(reply, Failure):
            return reply.error(f"{self.url}: {reply.detail}", title=reply.title)
        document = problem_document(reply)
        if document is None:
            redirects = "it redirects, and redirects are not followed; use the final address"
            other = f"this is not a Pointsman service's answer: {self.link.told(reply.content)}; is the address right?"
            return self._error(reply, redirects if 300 <= reply.status < 400 else other)
        detail = self.link.told(str(document.get("detail") or document.get("title")), _MOST_TOLD)
        error = None
        if reply.status == 401:
            stale = "it rejects this key, which is mistyped, revoked, expired, or for another workspace"
            detail = (
                stale
                if self.link.has_key
                else "it requires a key; give one to the client, or set POINTSMAN_API_KEY for commands"
            )
        elif reply.status == 403:
            detail = f"the key does not allow this: {detail}"
        else:
            error = _of_library(document, detail)
        if error is None:
            return self._error(reply, detail)
        about = reply.headers.get("x-request-id")
        error.add_note(f"said by {self.url}" + (f", request {self.link.told(about)}" if about else ""))
        return error

    def _error(self, reply: Reply, message: str) -> ServiceError:
        request_id, document = reply.headers.get("x-request-id"), problem_document(reply) or {}
        request_id = request_id and self.link.told(request_id)
        after = seconds_of(reply.headers.get("retry-after"))
        about = f"status {reply.status}" + (f", request {request_id}" if request_id else "")
        wait = f"; it asks for a retry after {after:.0f} s" if after else ""
        return ServiceError(
            f"{self.url}: {message}{wait} ({about})",
            status=reply.status,
            title=self.link.told(str(document.get("title") or reply.reason)),
            request_id=request_id,
            retry_after=after,
        )

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Report missing fields and wrong types in the block as errors of the service."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            cause = self.link.told(f"{type(error).__name__}: {error}", 400)
            raise ServiceError(f"{self.url}: the service sent an invalid {what}: {cause}") from None


# ── problems ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def problem_document(reply: Reply) -> dict[str, Any] | None:
    """Return the problem document of a response; None if it has none."""
    if "json" not in reply.headers.get("content-type", ""):
        return None
    try:
        document = json.loads(reply.content)
    except (ValueError, RecursionError):
        return None
    kind = document.get("type") if isinstance(document, dict) else None
    return document if isinstance(kind, str) and "/problems/" in kind else None


def _of_library(document: Mapping[str, Any], detail: str) -> PointsmanError | None:
    """Return the library's error for a problem; None for a problem that only a service can have."""
    slug, name = document["type"].rpartition("/")[2], str(document.get("error"))
    kind, names_known, failed = str(document.get("kind")), document.get("known"), document.get("failed")
    if name == "UnknownNameError" or (slug == "not-found" and kind == "document"):
        names = tuple(one_line(str(name)) for name in names_known) if isinstance(names_known, list) else None
        return UnknownNameError(kind, str(document.get("name")), names)
    if isinstance(failed, dict) and failed:
        causes = {one_line(str(name)): ServiceError(f"{one_line(str(why))} there") for name, why in failed.items()}
        return RetrievalError(detail, causes)
    error_type = _BY_NAME.get(name) or _BY_SLUG.get(slug)
    return None if error_type is None else error_type(detail)


def reply_of(problem: Any) -> Reply:
    """Convert a problem on a line of a stream to the response that would have reported it.

    Raises:
        KeyError, TypeError, AttributeError: it is not a problem document.
    """
    status = number_of(problem["status"])
    headers = {"content-type": "application/problem+json"}
    if status in {429, 503}:
        headers["retry-after"] = "1"
    instance = problem.get("instance")
    if isinstance(instance, str):
        headers["x-request-id"] = instance.rpartition(":")[2]
    return Reply(status, headers, json.dumps(problem).encode())


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json(value: Any) -> bytes:
    """Encode a value as JSON.

    Raises:
        InputError: the value cannot be encoded.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"this cannot be sent as JSON: {one_line(str(error))}") from None


def sendable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def time_limit(value: Any) -> float:
    """Check a number of seconds.

    Raises:
        InputError: it is not a positive number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"timeout is a number of seconds above 0, not {value!r:.80}")
    return value


def number_of(value: Any) -> int:
    """Check a count from an external source.

    Raises:
        TypeError: it is not a count.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"expected a whole number of at least 0, not {value!r:.80}")
    return value
