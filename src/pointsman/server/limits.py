"""What a request may look like, how large it may be, and how many are allowed: checked before anything acts on it.

The checks are small ASGI applications around the service that take a few microseconds each; `secure` puts them in
order. A request that fails a check gets a problem document and goes no further.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection
from dataclasses import dataclass, fields
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, Self
from unicodedata import category
from urllib.parse import unquote_to_bytes

from pointsman._twins import in_thread
from pointsman.errors import InputError
from pointsman.server.access import authenticate
from pointsman.server.problems import Problem, response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.server.access import Access
    from pointsman.server.keys import KeyStore

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PROBES: Final = frozenset({"/health", "/ready"})
_CLOSE: Final = {"Connection": "close"}  # the rest of the request on the connection is not taken for another one
_OF_BODY: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
_LINGER_BYTES: Final = 16_000_000  # of a refused body; beyond that the connection is cut
_LINGER_SECONDS: Final = 2.0
_LINGER_PAUSE: Final = 0.5  # seconds without new data


_TIMES: Final = ("head_seconds", "idle_seconds", "body_seconds", "write_seconds", "stream_seconds")
_LEAST: Final = {
    **dict.fromkeys(_TIMES, 0.01),
    "queue": 0,
    "queue_seconds": 0,
    "requests_per_minute": 0,
    "search_seconds": 0.01,
}


_OPTIONAL: Final = frozenset({"max_ingest_bytes", "max_connections", "stream_seconds", "burst"})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, one key and the whole service.

    Attributes:
        max_body_bytes: of a JSON body.
        max_line_bytes: of a line of a streamed body.
        max_ingest_bytes: of a whole streamed body, which is never held in memory; None means no limit.
        max_header_bytes: of all headers together.
        max_url_bytes: of path and query string together.
        max_query_chars: of a search's query.
        max_request_chars: of all queries and messages of one request together.
        max_k: hits of a search.
        max_batch: queries of one ``search_many``.
        max_documents: documents to add, or ids to delete, in one JSON body.
        max_connections: open at the same time; by default half of the file descriptors that the process may open.
        head_seconds: for a connection to send the whole head of a request.
        idle_seconds: between an answer and the next request on the same connection.
        body_seconds: for a JSON body to arrive, and for each line of a streamed one.
        stream_seconds: for a whole streamed body; None means no limit.
        write_seconds: for a client to take more of an answer.
        concurrency: searches that run at the same time.
        queue: searches that wait for their turn.
        queue_seconds: the longest wait in the queue.
        search_seconds: for the searches of one request together.
        requests_per_minute: of one key, or of one address if there are no keys; 0 means no limit.
        burst: requests at once after a pause; by default a sixth of those per minute.
        max_clients: keys and addresses whose requests are counted; the least recently seen are forgotten.

    Raises:
        InputError: a limit is not a sensible number.
    """

    max_body_bytes: int = 1_000_000
    max_line_bytes: int = 1_000_000
    max_ingest_bytes: int | None = 100_000_000_000
    max_header_bytes: int = 16_384
    max_url_bytes: int = 40_000  # the longest query in Chinese, percent-encoded
    max_query_chars: int = 4_000
    max_request_chars: int = 40_000
    max_k: int = 200
    max_batch: int = 100
    max_documents: int = 1_000
    max_connections: int | None = None
    head_seconds: float = 10.0
    idle_seconds: float = 5.0
    body_seconds: float = 20.0
    stream_seconds: float | None = 86_400.0
    write_seconds: float = 20.0
    concurrency: int = 16
    queue: int = 64
    queue_seconds: float = 2.0
    search_seconds: float = 30.0
    requests_per_minute: int = 1_200
    burst: int | None = None
    max_clients: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            least = _LEAST.get(field.name, 1)
            types = (int, float) if field.name.endswith("_seconds") else (int,)
            if isinstance(value, bool) or not isinstance(value, types) or not least <= value < math.inf:
                what = "a number" if float in types else "a whole number"
                raise InputError(f"{field.name} is {what} from {least} up, not {value!r:.80}")


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MAX_DEPTH: Final = 64
"""Nesting depth of objects and lists in a JSON body."""

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json(body: bytes) -> object:
    """Parse a JSON body strictly: a text has one meaning, and every value can be stored and sent back.

    Raises:
        Problem: ``malformed``: not UTF-8 or not JSON (``NaN`` and ``Infinity`` are not); ``invalid-input``: a repeated
            name in an object, a number that is too large, lone surrogates, or more than `MAX_DEPTH` levels.
    """
    try:
        value: object = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Problem("malformed", f"the body is not UTF-8: byte {error.start} is invalid") from error
    except json.JSONDecodeError as error:
        message = f"the body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise Problem("malformed", message) from error
    except ValueError as error:  # Python does not parse integers of more than some thousand digits
        raise Problem("invalid-input", "a number in the JSON is too large") from error
    except RecursionError as error:  # beyond some hundred levels
        raise _too_deep() from error
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise _too_deep()
    if _SURROGATE.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise Problem(
                "invalid-input", "a text in the JSON has a lone surrogate, which is not a character"
            ) from error
    return value


def _deeper(value: object, most: int) -> bool:
    """Whether a value is nested more than ``most`` levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _too_deep() -> Problem:
    return Problem("invalid-input", f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem("invalid-input", f"the name {twice!r:.80} occurs twice in one object of the JSON")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Problem("invalid-input", "a number in the JSON is too large")
    return value


def _no_constant(name: str) -> None:
    raise Problem("malformed", f"the body is not JSON: {name} is not a number there")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_no_constant)


async def json_lines(chunks: AsyncIterable[bytes], *, max_line_bytes: int) -> AsyncIterator[tuple[int, object]]:
    """Yield the values of a body with one JSON text per line, with line numbers from 1; empty lines are skipped.

    Args:
        chunks: the body as it arrives, such as ``request.stream()``; at most one line of it is held in memory.
        max_line_bytes: of one line.

    Raises:
        Problem: ``too-large``, or as `parse_json`; with the member ``line``.
    """
    number, pending = 0, bytearray()
    async for chunk in _with_end(chunks):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            pending += chunk[start:end]
            start, number = end + 1, number + 1
            _check_line(pending, number, max_line_bytes)
            line = bytes(pending).strip()
            pending.clear()
            if line:
                try:
                    value = parse_json(line)
                except Problem as problem:
                    raise Problem(problem.slug, f"line {number}: {problem.detail}", line=number) from problem
                yield number, value
        pending += chunk[start:]
        _check_line(pending, number + 1, max_line_bytes)


async def _with_end(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
    yield b"\n"  # the last line may lack its line end


def _check_line(line: bytearray, number: int, most: int) -> None:
    if len(line) > most:
        raise Problem("too-large", f"line {number} is longer than {most:,} bytes", line=number, limit=most)


# ── request checks ───────────────────────────────────────────────────────────────────────────────────────────────────


def secure(
    app: ASGIApp,
    *,
    keys: KeyStore,
    limits: Limits,
    loopback: bool,
    keyless: bool = False,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
) -> ASGIApp:
    """Put the application behind all checks of this module; the cheapest that refuse the most come first.

    Args:
        app: handles accepted requests; it reads a request's `Access` with `access_of`.
        keys: keys of the workspace.
        limits: for every request.
        loopback: whether the service is bound to loopback addresses only.
        keyless: see `pointsman.server.access.authenticate`.
        hosts: host names of the service besides the loopback ones; see `TrustedHosts`.
        origins: other origins whose pages may make changes through a browser; see `CrossSite`.

    Raises:
        InputError: a host or an origin is invalid.
    """
    app = Bodies(app, limits)
    app = Guard(app, keys, limits, loopback=loopback, keyless=keyless)
    app = CrossSite(app, origins)
    app = TrustedHosts(app, hosts)
    app = RequestHead(app, limits)
    return SecurityHeaders(app)


async def _refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the problem; the outermost layer has put the request's id into the scope.

    If the request has a body, the connection is then closed, so that the rest of it is not taken for another request.
    """
    headers = {name: value for name, value in scope["headers"] if name in _OF_BODY}
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        problem.headers.setdefault("Connection", "close")
        reading = receive if isinstance(receive, _Reading) else _Reading(receive)
        # Parsing chunks is expensive: not for unknown clients. A client with an Expect header is not sending yet.
        if (b"content-length" in headers or reading is receive) and b"expect" not in headers:
            send = _lingering(reading, send)
    await response(problem, scope.get("state", {}).get("request_id"), scope["path"])(scope, receive, send)


class _Reading:
    """Reads a request and tracks whether it has arrived completely."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        """Return the next part."""
        try:
            message = await self._receive()
        except Problem:  # it cannot be read
            self.ended = True
            raise
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def pass_over(self) -> None:
        """Read and discard what is still arriving, within bounds."""
        most = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self.ended and most > 0:
                    async with asyncio.timeout(_LINGER_PAUSE):
                        most -= len((await self()).get("body", b""))
        except (TimeoutError, Problem):
            return


def _lingering(reading: _Reading, send: Send) -> Send:
    """Wrap ``send`` so that the rest of the request is discarded before the answer ends.

    A connection that is closed while data is still arriving is reset, and a client that is still sending then never
    sees the answer.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False) and not reading.ended:
            await send({**message, "more_body": True})
            await reading.pass_over()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return sending


def _path(scope: Scope) -> str:
    """Return the path as routes see it: without the prefix under which the service is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _of_console(path: str) -> bool:
    return path in {"/", "/console"} or path.startswith("/console/")


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
        policy = self._console if _of_console(_path(scope)) else self._api

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                there = {name.lower() for name, _ in headers}
                headers += [pair for name, pair in policy.items() if name not in there]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, sending)


class RequestHead:
    """Refuses a request if its URL or headers are too large, or its URL is not text."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        problem = self._wrong(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await _refuse(problem, scope, receive, send)

    def _wrong(self, scope: Scope) -> Problem | None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        limits = self._limits
        if len(raw) + len(query) > limits.max_url_bytes:
            most = limits.max_url_bytes
            return Problem("too-large", f"the address is longer than {most:,} bytes", headers=_CLOSE, limit=most)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > limits.max_header_bytes:
            most = limits.max_header_bytes
            return Problem("too-large", f"the headers are longer than {most:,} bytes", headers=_CLOSE, limit=most)
        if not all(character.isprintable() or category(character) == "Zs" for character in scope["path"]):
            return Problem("malformed", "the path has unprintable characters")
        if not (_is_text(raw) and _is_text(query)):
            return Problem("malformed", "the address is not UTF-8, percent-encoded")
        return None


def _is_text(address: bytes) -> bool:
    if b"%" not in address and address.isascii():
        return True
    try:
        unquote_to_bytes(address).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^\s:/\[\]@?#]{1,253})(?::[0-9]{1,5})?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class TrustedHosts:
    """Refuses requests for unknown host names.

    A page of another site can make its own name resolve to 127.0.0.1, so that a browser takes the service for a part of
    that site (DNS rebinding); but the request contains the name.

    Args:
        app: handles accepted requests.
        hosts: names without port besides the loopback ones; ``*.example.com`` for all names below one, ``*`` for any.

    Raises:
        InputError: a host is not a name.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        names = {_host_name(host) for host in hosts}
        self._any = "*" in names
        self._exact = _LOOPBACK | {name for name in names if not name.startswith("*")}
        self._under = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; probes pass, as they use the address and learn nothing."""
        if scope["type"] != "http" or _path(scope) in _PROBES or self._serves(scope):
            await self._app(scope, receive, send)
            return
        problem = Problem("misdirected", "this service does not answer to that host name", headers=_CLOSE)
        await _refuse(problem, scope, receive, send)

    def _serves(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        match = _HOST.fullmatch(hosts[0].decode("latin-1").lower())
        if match is None:
            return False
        name = match[1].removesuffix(".")
        return self._any or name in self._exact or name.endswith(self._under)


def _host_name(host: str) -> str:
    name = host.strip().lower().removesuffix(".")
    if ":" in name and not name.startswith("["):
        try:
            return f"[{IPv6Address(name).compressed}]"
        except ValueError:
            name = ""  # the name contains a port
    plain = name.removeprefix("*.")
    if name != "*" and ("*" in plain or not (match := _HOST.fullmatch(plain)) or match[1] != plain):
        raise InputError(
            f"a host is a name or an address without scheme and port, '*.example.com' or '*', not {host!r}"
        )
    return name


_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]{2,45}\]|[^\s:/\[\]@?#]{1,253})(?::([0-9]{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}


class CrossSite:
    """Refuses requests that a browser sends for a page of another site.

    Browsers say where a request comes from (``Sec-Fetch-Site``, ``Origin``); other programs send neither header, and
    pass. Without keys, this keeps pages on the web from changing data on this machine.

    Args:
        app: handles accepted requests.
        origins: allowed origins besides the service's own, such as ``https://intranet.example``.

    Raises:
        InputError: an origin is invalid.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(map(_origin, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or self._own(scope):
            await self._app(scope, receive, send)
            return
        problem = Problem("forbidden", "pages of other sites may not do this", headers=_CLOSE)
        await _refuse(problem, scope, receive, send)

    def _own(self, scope: Scope) -> bool:
        origins: list[bytes] = []
        site = mode = host = b""
        for name, value in scope["headers"]:
            if name == b"origin":
                origins.append(value)
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
            elif name == b"host":
                host = value
        if not origins and not site:
            return True
        if len(origins) > 1:
            return False
        if origins and self._allowed(origins[0].decode("latin-1").lower(), host.decode("latin-1").lower()):
            return True
        if scope["method"] not in _SAFE_METHODS:
            return site in {b"same-origin", b"none"}  # pages cannot set this header; a proxy may have changed the host
        # Another site cannot read an answer; it has no reason to load anything but a page that the user navigates to.
        return site != b"cross-site" or mode == b"navigate" or _path(scope) in _PROBES

    def _allowed(self, origin: str, host: str) -> bool:
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False  # also "null", sent by a page that hides its origin
        scheme, name, port = match[1], match[2], match[3] or _PORTS[match[1]]
        here = _HOST.fullmatch(host)
        if here is not None and here[1] == name and (host[len(name) + 1 :] or _PORTS[scheme]) == port:
            return True
        return (scheme, name, port) in self._origins


def _origin(text: str) -> tuple[str, str, str]:
    match = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    if match is None:
        raise InputError(f"an origin looks like 'https://intranet.example', not {text!r:.80}")
    return match[1], match[2], match[3] or _PORTS[match[1]]


# ── identity and rate ────────────────────────────────────────────────────────────────────────────────────────────────


class RateLimit:
    """A token bucket for each client: a request takes a token, and tokens are refilled at a constant rate.

    Args:
        limits: requests per minute, size of a burst, and number of clients to remember.
        clock: returns seconds since any fixed time.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = limits.requests_per_minute / 60
        self._burst = float(limits.burst or max(1, limits.requests_per_minute // 6))
        self._most = limits.max_clients
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def __len__(self) -> int:
        """Return the number of clients remembered."""
        return len(self._buckets)

    def take(self, client: str) -> None:
        """Count a request of this client.

        Raises:
            Problem: ``too-many-requests``: the client has no tokens left; such a request is not counted.
        """
        wait = self._wait(client)
        if wait:
            raise Problem(
                "too-many-requests",
                "too many requests in a minute; try again later",
                headers={"Retry-After": str(math.ceil(wait))},
            )

    def _wait(self, client: str) -> float:
        """Return the seconds until the next request is allowed; 0 if it is allowed now."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._buckets[client] = (tokens if wait else tokens - 1, now)  # at the end: the least recently seen come first
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait


class Guard:
    """Admits requests with a valid key, within the rate limit, and stores the `Access` in ``scope["state"]``.

    Everything is closed except probes and the console's files, so a forgotten route is closed too.

    Args:
        app: handles accepted requests.
        keys: keys of the workspace.
        limits: the rate limit.
        loopback: whether the service is bound to loopback addresses only.
        keyless: see `pointsman.server.access.authenticate`.
    """

    def __init__(self, app: ASGIApp, keys: KeyStore, limits: Limits, *, loopback: bool, keyless: bool = False) -> None:
        self._app, self._keys, self._loopback, self._keyless = app, keys, loopback, keyless
        self._rate = RateLimit(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            path = _path(scope)
            if not (path in _PROBES or _of_console(path)) or scope["method"] not in _SAFE_METHODS:
                try:
                    await self._enter(scope)
                except Problem as problem:
                    await _refuse(problem, scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _enter(self, scope: Scope) -> None:
        async def authenticated() -> Access:
            if not self._keys.fresh:
                await in_thread(self._keys.refresh)
            return authenticate(scope["headers"], self._keys, loopback=self._loopback, keyless=self._keyless)

        address = address_of(scope.get("client"))
        try:
            access = await authenticated()
        except Problem:
            self._rate.take(address)  # guessing keys uses up the guesser's requests, not those of a key
            raise
        self._rate.take(access.key_id or address)
        scope.setdefault("state", {}).update(access=access, key_id=access.key_id, authenticated=authenticated)


def address_of(client: tuple[str, int] | None) -> str:
    """Return a client's address without the port; a whole IPv6 network counts as one client."""
    host = client[0] if client else ""
    if ":" in host:
        try:
            return f"address {IPv6Address(host.partition('%')[0]).exploded[:19]}"
        except ValueError:
            return f"address {host:.64}"
    return f"address {host:.64}"


class Gate:
    """Limits how many requests run and wait at the same time, and rejects the rest.

    Use ``async with gate:`` around a search. Requests are served in order of arrival, in one event loop.

    Args:
        limits: ``concurrency``, ``queue`` and ``queue_seconds``.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def running(self) -> int:
        """Return the number of running requests."""
        return self._running

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    async def __aenter__(self) -> Self:
        """Enter at once, or wait for a turn.

        Raises:
            Problem: ``too-many-requests``: the queue is full, or the wait took too long.
        """
        if self._running < self._limits.concurrency:  # so none waits: a leaving request hands its place on
            self._running += 1
            return self
        if len(self._waiting) >= self._limits.queue:
            raise _busy()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await turn
        except BaseException as error:
            if not turn.cancelled():
                self._leave()  # its turn came at the moment it gave up
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise _busy() from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hand the place to the next request."""
        self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise it has just given up
                turn.set_result(None)  # the place is handed on; the number of running requests is unchanged
                return
        self._running -= 1


def _busy() -> Problem:
    return Problem("too-many-requests", "too many searches at once; try again", headers={"Retry-After": "1"})


# ── bodies allowed ───────────────────────────────────────────────────────────────────────────────────────────────────

_INGEST: Final = re.compile(r"/api/datasets/[^/]+/documents")
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_TYPE: Final = (b"content-type", b"content-encoding")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_CHARSET: Final = re.compile(r';[ \t]*charset="?utf-?8"?', re.IGNORECASE)


class Bodies:
    """Refuses bodies that are too large, not JSON, or of unclear length.

    A JSON body is read completely before the application is called, so a body that is too large or never ends goes no
    further. A streamed one (`NDJSON`, for adding documents) is counted while it is read; reading past the limit raises
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
        reading = _Reading(receive)
        try:
            kind = self._announced(scope)
            if kind == NDJSON:
                receive, send = self._counted(reading), _lingering(reading, send)
            else:
                whole = b"" if kind is None else await self._whole(reading)  # an unannounced body is not read
                if whole is None:
                    return  # the client has gone
                receive = _replayed(whole, receive)
        except Problem as problem:
            await _refuse(problem, scope, reading, send)
            return
        await self._app(scope, receive, send)

    def _announced(self, scope: Scope) -> str | None:
        """Return the media type of the body announced by the headers; None if there is no body."""
        lengths, codings, types, encodings = _values(scope, b"content-length", b"transfer-encoding", *_OF_TYPE)
        if not lengths and not codings:
            return None
        length = _length(lengths, codings)
        if length == 0:
            return None
        kind = JSON  # a body without a meaning is read too, or it would be taken for the next request
        if scope["method"] in _BODY_METHODS:
            streams = scope["method"] == "POST" and _INGEST.fullmatch(_path(scope)) is not None
            kind = _type(types, encodings, streams=streams)
        most = self._limits.max_ingest_bytes if kind == NDJSON else self._limits.max_body_bytes
        if most is not None and length is not None and length > most:
            raise _too_large(most)
        return kind

    async def _whole(self, receive: Receive) -> bytes | None:
        """Return the body; None if the client has gone."""
        most, parts, size = self._limits.max_body_bytes, [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise _too_large(most)
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            raise self._too_slow() from error

    def _counted(self, receive: Receive) -> Receive:
        most, size = self._limits.max_ingest_bytes, 0
        longest, began = self._limits.stream_seconds, time.monotonic()
        patience = self._limits.body_seconds  # left for the line that is arriving

        async def counting() -> Message:
            nonlocal size, patience
            asked = time.monotonic()
            if longest is not None and asked - began > longest:
                raise Problem(
                    "too-large",
                    f"the stream has taken longer than {longest:g} seconds; send the rest in another request",
                    headers=_CLOSE,
                    limit=longest,
                )
            try:
                async with asyncio.timeout(max(0.0, patience)):
                    message = await receive()
            except TimeoutError as error:
                raise self._too_slow() from error
            patience -= time.monotonic() - asked
            body = message.get("body", b"")
            if b"\n" in body:
                patience = self._limits.body_seconds
            size += len(body)
            if most is not None and size > most:
                raise _too_large(most)
            return message

        return counting

    def _too_slow(self) -> Problem:
        message = f"the body, or a line of it, did not arrive within {self._limits.body_seconds:g} seconds"
        return Problem("malformed", message, headers=_CLOSE)


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
            raise Problem("malformed", "a request has Content-Length or Transfer-Encoding, not both", headers=_CLOSE)
        if len(codings) > 1 or codings[0].strip().lower() != b"chunked":
            raise Problem("malformed", "the only Transfer-Encoding is 'chunked'", headers=_CLOSE)
        return None
    if not lengths:
        return None
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise Problem("malformed", "Content-Length is one number", headers=_CLOSE)
    return int(lengths[0])


def _type(types: list[bytes], encodings: list[bytes], *, streams: bool) -> str:
    """Return the media type of a body if it is accepted here.

    Raises:
        Problem: ``unsupported-media-type``.
    """
    if any(encoding.strip().lower() != b"identity" for encoding in encodings):
        raise Problem("unsupported-media-type", "send the body without Content-Encoding", headers=_CLOSE)
    media_type = types[0].decode("latin-1") if len(types) == 1 else ""
    kind, mark, more = media_type.partition(";")
    kind = kind.strip().lower()
    if (kind == JSON or (streams and kind == NDJSON)) and (not mark or _CHARSET.fullmatch(f";{more.strip()}")):
        return kind
    accepted = f"{JSON} or {NDJSON}" if streams else JSON
    raise Problem("unsupported-media-type", f"a body here is {accepted}, in UTF-8", headers=_CLOSE)


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"the body is larger than {most:,} bytes", headers=_CLOSE, limit=most)


def _replayed(body: bytes, receive: Receive) -> Receive:
    exhausted = False

    async def replay() -> Message:
        nonlocal exhausted
        if exhausted:
            return await receive()  # this can only be the message that the client has gone
        exhausted = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
