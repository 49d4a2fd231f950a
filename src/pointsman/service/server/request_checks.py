"""What is checked before anything acts on a request, and in which order.

The checks are small ASGI applications around the service that take a few microseconds each; `secure` puts them in
order. A request that fails a check gets a problem document and goes no further.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from starlette.middleware.cors import CORSMiddleware

from pointsman.service.server.access.hosts_and_sites import CrossSite, TrustedHosts, as_browsers_send
from pointsman.service.server.access.rate_limits import Guard
from pointsman.service.server.protocol.headers import RequestHead, SecurityHeaders
from pointsman.service.server.protocol.request_body import Bodies

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.service.server.access.signed_tokens import TokenTrust
    from pointsman.service.server.protocol.request_limits import Limits

_EXPOSED_HEADERS: Final = ("Mcp-Protocol-Version", "Mcp-Session-Id", "Retry-After", "X-Request-Id")


def secure(
    app: ASGIApp,
    *,
    keys: KeyStore,
    limits: Limits,
    loopback: bool,
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
