"""Who sends a request, how often they may, and how many searches run at the same time."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Self

from pointsman.service.server.access.request_access import authenticate
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import PROBES, SAFE_METHODS, RequestCheck, of_console, path_of
from pointsman.tools.sync_and_async import in_thread

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.access.signed_tokens import TokenTrust
    from pointsman.service.server.protocol.request_limits import Limits


class RateLimit:
    """A token bucket for each client: a request takes a token, and tokens are refilled at a constant rate.

    Args:
        limits: requests per minute, size of a burst, and number of clients to remember.
        clock: returns seconds since any fixed time.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = limits.requests_per_minute / 60
        self._burst = float(limits.burst or max(1, limits.requests_per_minute // 6))
        self._max_clients = limits.max_clients
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
            raise HttpProblem(
                "too-many-requests",
                "too many requests in a minute; try again later, or serve with --limit requests_per_minute=NUMBER",
                headers={"Retry-After": str(math.ceil(wait))},
            )

    def _wait(self, client: str) -> float:
        """Return the seconds until the next request is allowed; 0 if it is allowed now."""
        if not self._rate:
            return 0.0
        time = self._clock()
        tokens, refill_time = self._buckets.pop(client, (self._burst, time))
        tokens = min(self._burst, tokens + (time - refill_time) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._buckets[client] = (tokens if wait else tokens - 1, time)  # at the end: the least recently seen come first
        if len(self._buckets) > self._max_clients:
            self._buckets.popitem(last=False)
        return wait


class Guard(RequestCheck):
    """Admits requests with a valid key, within the rate limit, and stores the `Access` in ``scope["state"]``.

    Everything is closed except probes and the console's files, so a forgotten route is closed too.

    Args:
        app: handles accepted requests.
        keys: keys of the workspace.
        limits: the rate limit.
        loopback: whether the service is bound to loopback addresses only.
        keyless: see `pointsman.service.server.access.request_access.authenticate`.
        tokens: whose signed tokens are trusted.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyStore,
        limits: Limits,
        *,
        loopback: bool,
        keyless: bool = False,
        tokens: TokenTrust | None = None,
    ) -> None:
        super().__init__(app)
        self._keys, self._loopback, self._keyless, self._tokens = keys, loopback, keyless, tokens
        self._rate = RateLimit(limits)
        self._fetching = asyncio.Lock()
        self._renewing: set[asyncio.Task[None]] = set()

    async def _check(self, scope: Scope) -> None:
        path = path_of(scope)
        if not (path in PROBES or of_console(path)) or scope["method"] not in SAFE_METHODS:
            await self._enter(scope)

    async def _enter(self, scope: Scope) -> None:
        async def check_key() -> Access:
            if not self._keys.fresh:
                await in_thread(self._keys.refresh)
            if self._tokens is not None:
                await self._fetch_keys(self._tokens, scope["headers"])
            return authenticate(
                scope["headers"], self._keys, loopback=self._loopback, keyless=self._keyless, tokens=self._tokens
            )

        address = address_of(scope.get("client"))
        try:
            access = await check_key()
        except HttpProblem:
            self._rate.take(address)  # guessing keys uses up the guesser's requests, not those of a key
            raise
        self._rate.take(access.key_id or address)
        scope.setdefault("state", {}).update(access=access, key_id=access.key_id, authenticated=check_key)

    async def _fetch_keys(self, tokens: TokenTrust, headers: list[tuple[bytes, bytes]]) -> None:
        """Fetch the keys of the trusted issuer if this request's token needs that, once for all that wait for it."""
        fetching = tokens.fetching(headers)
        if fetching is None:
            return
        keys, need = fetching

        async def fetch(*, is_needed: Callable[[], bool]) -> None:
            async with self._fetching:
                if is_needed():
                    await in_thread(keys.fetch)

        if need == "soon":
            task = asyncio.create_task(fetch(is_needed=lambda: True))
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)
        else:  # perhaps they are fetched for another request meanwhile
            await fetch(is_needed=lambda: tokens.fetching(headers) is not None)


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

    Attributes:
        running: the number of running requests.
        waiting: the number of waiting requests.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places = asyncio.Semaphore(limits.concurrency)
        self.running = self.waiting = 0

    async def __aenter__(self) -> Self:
        """Enter at once, or wait for a turn.

        Raises:
            Problem: ``too-many-requests``: the queue is full, or the wait took too long.
        """
        if self._places.locked() and self.waiting >= self._limits.queue:
            raise _busy()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise _busy() from error
        finally:
            self.waiting -= 1
        self.running += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hand the place to the next request."""
        self.running -= 1
        self._places.release()


def _busy() -> HttpProblem:
    return HttpProblem(
        "too-many-requests",
        "too many searches at once; try again, or serve with --limit concurrency=NUMBER",
        headers={"Retry-After": "1"},
    )
