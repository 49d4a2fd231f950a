"""What is checked before anything acts on a request, and in which order.

The checks are small ASGI applications around the service that take a few microseconds each; `secure` puts them in
order. A request that fails a check gets a problem document and goes no further.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, TypedDict

from starlette.middleware.cors import CORSMiddleware

from pointsman.service.server.access.hosts_and_sites import CrossSite, TrustedHosts, as_browsers_send
from pointsman.service.server.access.rate_limits import Guard
from pointsman.service.server.protocol.headers import RequestHead, SecurityHeaders
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import SAFE_METHODS, path_of, refuse
from pointsman.service.server.protocol.request_body import Bodies

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.service.server.access.signed_tokens import TokenTrust
    from pointsman.service.server.protocol.request_limits import Limits

_EXPOSED_HEADERS: Final = ("Mcp-Protocol-Version", "Mcp-Session-Id", "Retry-After", "X-Request-Id")
_READS: Final = re.compile(
    r"/api/(?:search|search_many|stream|route|explain|verify|retrieval/search|datasets/[^/]+/(?:nearest|vectors))"
    r"|/retrieval|/v1/vector_stores/[^/]+/search"
)
"""What is asked by POST and only reads a store."""
_MARGIN: Final = 3.0  # seconds in which a search that is out of time says so itself


class ReadingTime:
    """Bounds the time until the answer to a request that only reads begins, however long a store may take.

    What waits for the store in a thread goes on until the store answers, or the connection to it ends.

    Args:
        app: handles requests.
        limits: ``search_seconds``, and ``queue_seconds`` before them.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._seconds = app, limits.search_seconds + limits.queue_seconds + _MARGIN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer that there is none if its time is up."""
        if scope["type"] != "http" or not (scope["method"] in SAFE_METHODS or _READS.fullmatch(path_of(scope))):
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            time_limit.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as time_limit:
                await self._app(scope, receive, sending)
        except TimeoutError:
            if not time_limit.expired():
                raise
            reason = f"no answer within {self._seconds:g} seconds: the store does not answer, or much is asked of it"
            problem = HttpProblem("unavailable", f"{reason}; try again", headers={"Retry-After": "1"})
            await refuse(problem, scope, receive, send)


class CheckOptions(TypedDict, total=False):
    """Whom the checks let in, as `secure` takes it.

    Attributes:
        loopback: whether only this machine reaches the service; then everyone may do everything as long as there has
            never been a key. True by default.
        keyless: everyone on this machine may do everything without a key, whatever keys exist or existed.
        hosts: host names of the service besides the loopback ones (against DNS rebinding).
        origins: other origins whose pages may send requests and read the answers.
    """

    loopback: bool
    keyless: bool
    hosts: Collection[str]
    origins: Collection[str]


def secure(
    app: ASGIApp,
    *,
    keys: KeyStore,
    limits: Limits,
    loopback: bool = True,
    keyless: bool = False,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    tokens: TokenTrust | None = None,
) -> ASGIApp:
    """Put the application behind all checks of this module; the cheapest that refuse the most come first.

    Args:
        app: handles accepted requests; it reads a request's `Access` with `access_of`.
        keys: keys of the workspace.
        limits: for every request.
        loopback: whether the service is bound to loopback addresses only.
        keyless: see `pointsman.service.server.access.request_access.authenticate`.
        hosts: host names of the service besides the loopback ones; see `TrustedHosts`.
        origins: other origins whose pages may send requests and read the answers; see `CrossSite`.
        tokens: whose signed tokens are trusted.

    Raises:
        InputError: a host or an origin is invalid.
    """
    app = Bodies(app, limits)
    app = Guard(app, keys, limits, loopback=loopback, keyless=keyless, tokens=tokens)
    app = ReadingTime(app, limits)
    if origins:  # of those that `CrossSite` lets pass, so that pages get the answer; a preflight carries no key
        app = CORSMiddleware(
            app,
            allow_origins=list(map(as_browsers_send, origins)),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    app = CrossSite(app, origins)
    app = TrustedHosts(app, hosts)
    app = RequestHead(app, limits)
    return SecurityHeaders(app)
