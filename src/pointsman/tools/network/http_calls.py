"""What every outgoing HTTP call goes through: one deadline over connect, head and body, and one rule for proxies.

The time limit of httpx starts anew with each read, so that a server that sends a byte a second is never late. The
transports here bound a whole exchange by the read limit of its request: resolving the name, connecting, TLS, sending,
the head and the body. They are handed to whatever speaks HTTP by httpx, such as the ``openai`` client.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.request
from collections.abc import Iterable, Mapping, MutableMapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

import anyio
import httpcore
import httpx

from pointsman.tools.errors import InputError
from pointsman.tools.network.http_addresses import is_here, is_loopback, one_line
from pointsman.tools.network.time_limits import TimeLimit
from pointsman.tools.sync_and_async import limited

if TYPE_CHECKING:
    import ssl

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_CLOSED_MEANWHILE: Final = "the client was closed while it connected"
_PIECE: Final = 65_536  # bytes sent at once: each write has its own limit, so a long one is several


# ── transports ───────────────────────────────────────────────────────────────────────────────────────────────────────


class BoundedTransport(httpx.HTTPTransport):
    """Connections of a synchronous client, each of whose exchanges ends within its time limit.

    A response has its `TimeLimit` in ``extensions["deadline"]``, by which a stream without an end may be prolonged.

    Args:
        proxy: see `proxy_of`.
        options: of `httpx.HTTPTransport`: ``verify``, the certificates that are trusted, by default those of `certifi`,
            or of ``SSL_CERT_FILE``, and ``limits``, how many connections are open.
    """

    def __init__(self, proxy: httpx.Proxy | None, **options: Any) -> None:
        super().__init__(proxy=proxy, **options)
        self._network = _Network(self._pool._network_backend)  # noqa: SLF001  (no argument passes it)
        self._pool._network_backend = self._network  # noqa: SLF001

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and receive the head of its response."""
        deadline = _bound(request.extensions)
        response = super().handle_request(request)
        response.extensions["deadline"] = deadline
        return response

    def close(self) -> None:
        """Close the connections, those too that another thread is still making."""
        self._network.is_closed = True
        super().close()


class AsyncBoundedTransport(httpx.AsyncHTTPTransport):
    """Async version of `BoundedTransport`."""

    def __init__(self, proxy: httpx.Proxy | None, **options: Any) -> None:
        super().__init__(proxy=proxy, **options)
        self._network = _AsyncNetwork(self._pool._network_backend)  # noqa: SLF001  (see above)
        self._pool._network_backend = self._network  # noqa: SLF001

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and receive the head of its response."""
        deadline = _bound(request.extensions)
        response = await super().handle_async_request(request)
        response.extensions["deadline"] = deadline
        return response

    async def aclose(self) -> None:
        """Close the connections, those too that another task is still making."""
        self._network.is_closed = True
        await super().aclose()


def _bound(extensions: MutableMapping[str, Any]) -> TimeLimit | None:
    """Make the limits of a request, which hold for one operation each, limits of the whole exchange."""
    limits: Mapping[str, float | None] = extensions.get("timeout") or {}
    seconds = limits.get("read")
    if seconds is None:
        return None
    deadline = TimeLimit(seconds)
    earlier = {name: limit for name, limit in limits.items() if limit is not None and limit < seconds}
    extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), deadline) | {
        name: TimeLimit(limit) for name, limit in earlier.items() if name in {"connect", "pool"}
    }
    return deadline


def _left(limit: float | None, late: type[Exception]) -> float | None:
    return limit.left(late) if isinstance(limit, TimeLimit) else limit


class _Stream(httpcore.NetworkStream):
    """A connection, each of whose operations has the time that is left for the exchange."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            self._stream.write(buffer[start : start + _PIECE], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, limit))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend, self.is_closed = backend, False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        hosts = _addresses(host, port, _left(timeout, httpcore.ConnectTimeout))
        for attempt_count, address in enumerate(hosts, 1):
            seconds_left = _left(timeout, httpcore.ConnectTimeout)
            share = seconds_left if seconds_left is None else seconds_left / (len(hosts) - attempt_count + 1)
            try:
                stream = self._backend.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if attempt_count == len(hosts):
                    raise
                continue
            if self.is_closed:  # the pool closes what it knows; this one would stay open
                stream.close()
                raise httpcore.ConnectError(_CLOSED_MEANWHILE)
            return _Stream(stream)
        raise httpcore.ConnectError(f"{host} has no address")

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


def _addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """Return the addresses of a host; Python has no time limit for that."""
    if not is_loopback(host) and not _is_number(host) and seconds is not None:
        resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            results = limited(resolve, seconds, f"resolve-{host:.40}", lambda _: httpcore.ConnectTimeout("no address"))
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return list(dict.fromkeys(str(address[0]) for *_, address in results))
    return [host]


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _AsyncStream(httpcore.AsyncNetworkStream):
    """Async version of `_Stream`."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  (as httpcore has it)
        return await self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, limit))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _AsyncNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self._backend, self.is_closed = backend, False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        stream = await self._backend.connect_tcp(host, port, limit, local_address, socket_options)
        if self.is_closed:
            await stream.aclose()
            raise httpcore.ConnectError(_CLOSED_MEANWHILE)
        return _AsyncStream(stream)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


# ── proxies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def proxy_of(url: SplitResult | str, environ: Mapping[str, str] | None = None) -> httpx.Proxy | None:
    """Return the proxy by which an address is reached, by the usual variables; None for none.

    This machine is reached directly, whatever they say. ``https_proxy`` or ``http_proxy`` comes before ``all_proxy``,
    small letters before capitals, and ``no_proxy`` lists hosts that are reached directly, with those below them.

    Raises:
        InputError: the proxy cannot be used; the message names it and its variable, without a password.
    """
    url = urlsplit(url) if isinstance(url, str) else url
    if is_here(url):
        return None
    variables = os.environ if environ is None else environ
    host = f"{url.hostname}:{url.port}" if url.port else url.hostname or ""
    direct_hosts = (variables.get("no_proxy") or variables.get("NO_PROXY") or "").replace("[", "").replace("]", "")
    if direct_hosts and urllib.request.proxy_bypass_environment(host, {"no": direct_hosts}):  # type: ignore[attr-defined]
        return None
    names = [f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in variables:
        names.remove(f"{url.scheme}_proxy".upper())  # under CGI, a header of a request may have set it
    name = next((name for name in names if variables.get(name)), None)
    if name is None:
        return None
    address = variables[name] if "://" in variables[name] else f"http://{variables[name]}"
    try:
        return _proxy(address)
    except (ValueError, httpx.InvalidURL) as error:
        origin = one_line(address.rpartition("://")[0] + "://" + address.rpartition("://")[2].rpartition("@")[2])
        raise InputError(
            f"the proxy {origin} in the variable {name} cannot be used: {one_line(str(error), 200)}; correct or unset "
            f"{name}, or list {url.hostname} in NO_PROXY"
        ) from None


def _proxy(address: str) -> httpx.Proxy:
    scheme = urlsplit(address).scheme
    if scheme not in _SCHEMES:
        raise ValueError(f"a proxy begins with {'://, '.join(_SCHEMES)}://")
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("it needs the package 'socksio'; install it with: pip install 'httpx[socks]'")
    proxy = httpx.Proxy(address)
    if not proxy.url.host:
        raise ValueError("it names no host")
    return proxy
