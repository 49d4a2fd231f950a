"""Which host names the service answers to, and the pages of which sites may use it."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.refusals import CLOSE, PROBES, SAFE_METHODS, RequestCheck, path_of
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^\s:/\[\]@?#]{1,253})(?::[0-9]{1,5})?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class TrustedHosts(RequestCheck):
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
        super().__init__(app)
        names = {_host_name(host) for host in hosts}
        self._allows_all = "*" in names
        self._exact = _LOOPBACK | {name for name in names if not name.startswith("*")}
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    async def _check(self, scope: Scope) -> None:
        if path_of(scope) not in PROBES and not self._serves(scope):  # probes use the address, and learn nothing
            raise HttpProblem("misdirected", "this service does not answer to that host name", headers=CLOSE)

    def _serves(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        match = HOST.fullmatch(hosts[0].decode("latin-1").lower())
        if match is None:
            return False
        name = match[1].removesuffix(".")
        return self._allows_all or name in self._exact or name.endswith(self._suffixes)


def _host_name(host: str) -> str:
    name = host.strip().lower().removesuffix(".")
    if ":" in name and not name.startswith("["):
        try:
            return f"[{IPv6Address(name).compressed}]"
        except ValueError:
            name = ""  # the name contains a port
    plain = name.removeprefix("*.")
    if name != "*" and ("*" in plain or not (match := HOST.fullmatch(plain)) or match[1] != plain):
        raise InputError(
            f"a host is a name or an address without scheme and port, '*.example.com' or '*', not {host!r}"
        )
    return name


_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]{2,45}\]|[^\s:/\[\]@?#]{1,253})(?::([0-9]{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}


class CrossSite(RequestCheck):
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
        super().__init__(app)
        self._origins = frozenset(map(_origin, origins))

    async def _check(self, scope: Scope) -> None:
        if not self._is_own_site(scope):
            raise HttpProblem("forbidden", "pages of other sites may not do this", headers=CLOSE)

    def _is_own_site(self, scope: Scope) -> bool:
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
        if origins and self._allows(origins[0].decode("latin-1").lower(), host.decode("latin-1").lower()):
            return True
        if scope["method"] not in SAFE_METHODS:
            return site in {b"same-origin", b"none"}  # pages cannot set this header; a proxy may have changed the host
        # Another site cannot read an answer; it has no reason to load anything but a page that the user navigates to.
        return site != b"cross-site" or mode == b"navigate" or path_of(scope) in PROBES

    def _allows(self, origin: str, host: str) -> bool:
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False  # also "null", sent by a page that hides its origin
        scheme, name, port = match[1], match[2], match[3] or _PORTS[match[1]]
        host_match = HOST.fullmatch(host)
        if host_match is not None and host_match[1] == name and (host[len(name) + 1 :] or _PORTS[scheme]) == port:
            return True
        return (scheme, name, port) in self._origins


def as_browsers_send(origin: str) -> str:
    """Return an origin in the form of the ``Origin`` header.

    >>> as_browsers_send("HTTPS://Intranet.example:443/")
    'https://intranet.example'

    Raises:
        InputError: it is no origin.
    """
    scheme, name, port = _origin(origin)
    return f"{scheme}://{name}" + ("" if port == _PORTS[scheme] else f":{port}")


def _origin(text: str) -> tuple[str, str, str]:
    match = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    if match is None:
        raise InputError(f"an origin looks like 'https://intranet.example', not {text!r:.80}")
    return match[1], match[2], match[3] or _PORTS[match[1]]
