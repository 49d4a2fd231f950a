"""JSON over HTTP with a database server: addresses, errors and retries."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

import httpx

from pointsman.tools.errors import InputError, StoreError, StoreUnavailableError
from pointsman.tools.network.http_addresses import check_encrypted, is_here, one_line, options_of, seconds_of
from pointsman.tools.network.http_calls import BoundedTransport, proxy_of
from pointsman.tools.network.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PATIENCE: Final = 5.0  # seconds for which temporary failures are retried
_SECONDS: Final = 30.0  # per response
_BUSY: Final = frozenset({429, 502, 503, 504})


class HostAddress:
    """The parsed URL of a server: ``chroma+https://:key@host:8000/path?option=value``.

    Args:
        url: a scheme that ends with ``+https`` uses TLS; others are for this machine, or need ``insecure=true``.
        port: used if the URL has none.
        options: options allowed besides ``insecure``.

    Raises:
        InputError: it is invalid, or would connect to another machine without encryption.
    """

    def __init__(self, url: str, port: int, options: Collection[str] = ()) -> None:
        try:
            url_parts = urlsplit(url)
            port = url_parts.port or port
        except ValueError:
            url_parts = urlsplit("")
        if not url_parts.hostname:
            raise InputError("the URL of a server cannot be read; it has a scheme, a host and a port")  # may be secret
        self.options = options_of(url_parts.query, {"insecure", *options})
        secure = check_encrypted(url_parts, None if is_here(url_parts) else url_parts.hostname, self.options)
        host = f"[{url_parts.hostname}]" if ":" in url_parts.hostname else url_parts.hostname
        self.base = f"{'https' if secure else 'http'}://{host}:{port}"
        self.label = f"{url_parts.scheme}://{host}:{port}"
        self.key = unquote(url_parts.password or "")
        self.path = [unquote(step) for step in url_parts.path.split("/") if step]


class Server:
    """Requests to one server; threads may share it.

    Args:
        address: the server's address.
        headers: sent with every request, such as a key.
    """

    def __init__(self, address: HostAddress, headers: Mapping[str, str]) -> None:
        self.label, self._key = address.label, address.key
        self._client = httpx.Client(
            base_url=address.base,
            headers={"Content-Type": "application/json", **headers},
            timeout=_SECONDS,
            transport=BoundedTransport(proxy_of(address.base)),
            trust_env=False,
        )

    def __repr__(self) -> str:
        return f"Server({self.label!r})"

    def ask(self, method: str, path: str, body: object = None, *, accepted: Collection[int] = ()) -> Any:
        """Return the answer to a request; None if its status is one of ``accepted``.

        Raises:
            StoreUnavailableError: the server does not answer, or is busy for too long.
            StoreError: any other error of the server.
        """
        retries = Retries(time.monotonic() + PATIENCE, first=0.1, longest=1.0)
        while True:
            asked = None
            try:
                content = None if body is None else json.dumps(body, allow_nan=False)  # ASCII: surrogates pass through
                answer = self._client.request(method, path, content=content)
                if answer.status_code not in _BUSY:
                    return self._value(answer, accepted)
                message, asked = f"status {answer.status_code}", seconds_of(answer.headers.get("Retry-After"))
            except (httpx.TransportError, httpx.InvalidURL) as error:
                message = str(error) or type(error).__name__
            pause = retries.pause(asked)
            if pause is None:
                raise StoreUnavailableError(
                    f"{self.label} does not answer ({self._clean(message)}); check that it is running and that you "
                    "have access"
                )
            time.sleep(pause)

    def _value(self, answer: httpx.Response, statuses: Collection[int]) -> Any:
        if answer.status_code in statuses:
            return None
        if answer.status_code in {401, 403}:
            raise StoreError(f"{self.label} rejects this API key ({answer.status_code}); check the key")
        if not answer.is_success:
            raise StoreError(f"{self.label}: status {answer.status_code}: {self._clean(answer.text)}")
        try:
            return answer.json()
        except ValueError as error:
            raise StoreError(f"{self.label} returned invalid JSON: {self._clean(answer.text)}") from error

    def _clean(self, text: str) -> str:
        line = one_line(text, 300)
        return line.replace(self._key, "***").replace(quote(self._key, safe=""), "***") if self._key else line

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
