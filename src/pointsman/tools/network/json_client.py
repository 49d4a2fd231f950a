"""Asks a server for JSON, such as a model behind it: sizes and times are limited, the key goes to one address only."""

from __future__ import annotations

import json
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pointsman.tools.errors import InputError
from pointsman.tools.network.http_addresses import is_here, one_line, seconds_of
from pointsman.tools.network.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    import httpx

_log = logging.getLogger(__name__)

_LARGEST: Final = 16 * 2**20  # bytes of an answer

_LONGEST_PAUSE: Final = 30.0

_ANOTHER_SHAPE: Final = frozenset({400, 404, 405, 415, 422})
"""The statuses with which servers reject an unknown path or field."""


class UnusableAnswerError(Exception):
    """There is no answer, or an unusable one."""


class UnknownShapeError(Exception):
    """The server probably does not know the path or a field."""


class _LaterError(Exception):
    """The request may succeed later; ``pause`` is the number of seconds that the server asks to wait."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class JSONClient:
    """A client for one server.

    Requests that may succeed later (no connection, 408, 429, 5xx) are retried with growing, jittered pauses, or after
    the time in ``Retry-After``, as far as the deadline and half a minute allow. The key is sent in the header
    ``Authorization``, to the given address and nowhere else: redirects are not followed, and an ``http://`` address of
    another machine is rejected unless ``insecure`` says that the connection is safe.

    Args:
        url: the address; see `pointsman.tools.network.http_addresses.address`.
        api_key: None for servers that need none.
        insecure: send the key to another machine without encryption.
        retries: how often a request that may succeed later is retried.
        largest: the maximum size of an answer in bytes.

    Raises:
        InputError: an argument is invalid, or the key would be sent unencrypted.
    """

    def __init__(
        self, url: SplitResult, api_key: str | None, *, insecure: bool, retries: int, largest: int = _LARGEST
    ) -> None:
        if not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries is an int from 0 up, not {retries!r}")
        if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable()):
            raise InputError("api_key is one line of ASCII characters; look for a line break or a quote in it")
        if api_key and url.scheme == "http" and not is_here(url) and not insecure:
            raise InputError(
                f"the key would be sent to {url.hostname} without encryption; use https, "
                "or set insecure=True if no one can read the traffic"
            )
        import httpx

        from pointsman.tools.network.http_calls import BoundedTransport, proxy_of

        self._httpx, self._key, self._retries = httpx, api_key or "", retries
        self._largest = largest
        self._transport = partial(BoundedTransport, proxy_of(url))
        self._open_client: httpx.Client | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            client, self._open_client = self._open_client, None
        if client is not None:
            client.close()

    def post(self, url: str, fields: Mapping[str, Any], deadline: float) -> Any:
        """Return the server's answer as JSON.

        Args:
            url: where to post, at the server.
            fields: the request.
            deadline: when to give up, by `time.monotonic`.

        Raises:
            UnknownShapeError: the server does not know the path or a field.
            UnusableAnswerError: the server failed, or its answer is not JSON.
        """
        return self._call("POST", url, json.dumps(fields, ensure_ascii=False).encode(), deadline)

    def get(self, url: str, deadline: float) -> Any:
        """Return what is at an address of the server as JSON; see `post`."""
        return self._call("GET", url, None, deadline)

    def _call(self, method: str, url: str, body: bytes | None, deadline: float) -> Any:
        """Send a request until there is an answer, or none is to be expected."""
        retries = Retries(deadline, first=0.25, longest=_LONGEST_PAUSE, most=self._retries)
        while True:
            try:
                return self._exchange(method, url, body, deadline)
            except _LaterError as error:
                attempt, pause = retries.attempt, retries.pause(error.pause)
                if pause is None:
                    advice = f", and asks to wait {error.pause:.0f} s" if error.pause else ""
                    raise UnusableAnswerError(f"{error}{advice} (attempt {attempt})") from None
                _log.info("%s: %s; again in %.1f s", url, self.without_key(str(error)), pause)
                time.sleep(pause)

    def without_key(self, message: str) -> str:
        """Return the message without the key, which a server may repeat in it."""
        return message.replace(self._key, "[key]") if self._key else message

    def _exchange(self, method: str, url: str, body: bytes | None, deadline: float) -> Any:
        """Send one request."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise UnusableAnswerError("no time was left for the request")
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            with self._client().stream(method, url, content=body, headers=headers, timeout=remaining) as response:
                content = self._content(response)
                status, retry_after = response.status_code, response.headers.get("Retry-After")
        except self._httpx.TimeoutException as error:
            raise UnusableAnswerError(f"no answer in time ({type(error).__name__})") from None
        except self._httpx.TransportError as error:
            raise _LaterError(f"{type(error).__name__}: {error}") from None
        except (self._httpx.HTTPError, self._httpx.InvalidURL, RuntimeError) as error:
            raise UnusableAnswerError(f"{type(error).__name__}: {error}") from None
        if status == 200:
            try:
                return json.loads(content)
            except (ValueError, RecursionError):
                raise UnusableAnswerError(f"the answer is not JSON: {one_line(content)}") from None
        if 300 <= status < 400:
            raise UnusableAnswerError(
                f"it redirects (status {status}), and redirects are not followed; use the final address"
            )
        message = f"status {status}: {one_line(content)}"
        if status in {408, 429} or status >= 500:
            raise _LaterError(message, seconds_of(retry_after))
        raise (UnknownShapeError if status in _ANOTHER_SHAPE else UnusableAnswerError)(message)

    def _content(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise UnusableAnswerError("it is compressed, but no compression was requested")
        content = bytearray()
        for block in response.iter_raw():
            content += block
            if len(content) > self._largest:
                raise UnusableAnswerError(f"it is larger than {self._largest // 2**20} MB")
        return bytes(content)

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._open_client is None:
                self._open_client = self._httpx.Client(
                    transport=self._transport(), follow_redirects=False, trust_env=False
                )
            return self._open_client
