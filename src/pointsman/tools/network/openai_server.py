"""Which server with OpenAI's API is asked, and which key it gets."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pointsman.tools.errors import MissingDependencyError
from pointsman.tools.network.http_addresses import seconds_of

if TYPE_CHECKING:
    import httpx
    from openai import OpenAI

OPENAI: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
ADDRESS_VARIABLE: Final = "OPENAI_BASE_URL"
_LONGEST_PAUSE: Final = 60.0  # seconds, as in the client


class OpenAIServer(NamedTuple):
    """A server with OpenAI's API.

    Attributes:
        address: its URL.
        key: the key for it; empty if it gets none.
        withheld: why it gets none although there is one, with the remedy; empty otherwise.
    """

    address: str
    key: str
    withheld: str = ""

    @classmethod
    def of(cls, base_url: str | None, api_key: str | None) -> OpenAIServer:
        """Return the server that is meant, with its key.

        The key in ``OPENAI_API_KEY`` is meant for OpenAI, or for the server that ``OPENAI_BASE_URL`` names. Any other
        gets only a key that is given for it.

        Args:
            base_url: None means ``OPENAI_BASE_URL``, else OpenAI's own server.
            api_key: None means ``OPENAI_API_KEY``, if that is meant for the server.
        """
        own_address = os.environ.get(ADDRESS_VARIABLE) or OPENAI
        address, key = base_url or own_address, os.environ.get(KEY_VARIABLE) or ""
        if api_key or not key or _origin(address) in {_origin(own_address), _origin(OPENAI)}:
            return cls(address, api_key or key)
        remedy = (
            f"{KEY_VARIABLE} is for OpenAI and was not sent; name the variable with this server's key in the setting "
            f"embedder_api_key_env (llm_api_key_env for a language model), or its address in {ADDRESS_VARIABLE}"
        )
        return cls(address, "", remedy)

    def client(self, timeout: float, max_retries: int, needed_for: str) -> OpenAI:
        """Return a client for the server; nothing is sent yet.

        Args:
            timeout: seconds until one request counts as failed, from connecting to the end of the answer.
            max_retries: maximum number of retries of a request that may succeed later.
            needed_for: the feature to name if the package ``openai`` is not installed.

        Raises:
            InputError: the proxy that the environment names cannot be used.
            MissingDependencyError: the package ``openai`` is not installed.
        """
        try:
            import openai
        except ImportError as error:
            raise MissingDependencyError("openai", "openai", needed_for) from error
        import httpx

        from pointsman.tools.network.http_calls import BoundedTransport, proxy_of

        transport = BoundedTransport(proxy_of(self.address))
        # Version 3 of openai declares the client of httpx2, and takes that of httpx as well.
        http_client: Any = httpx.Client(
            transport=transport,
            timeout=timeout,
            follow_redirects=True,
            trust_env=False,
            event_hooks={"response": [_end_retries]},
        )
        client = openai.OpenAI(
            base_url=self.address,
            api_key=self.key or "none",
            timeout=timeout,
            max_retries=max_retries,
            http_client=http_client,
        )
        weakref.finalize(client, http_client.close)  # as it does with a client of its own
        return client

    def remedy_for(self, error: Exception) -> str:
        """Return what to add to the message of an error: why the server got no key, if that may be the cause."""
        refuses_key = getattr(error, "status_code", None) in {401, 403}
        return f"; {self.withheld}" if refuses_key and self.withheld else ""


def _origin(address: str) -> tuple[str, str | None, int | None]:
    try:
        url = urlsplit(address)
        return url.scheme.lower(), url.hostname, url.port or {"https": 443, "http": 80}.get(url.scheme.lower())
    except ValueError:  # no address at all, which the request says
        return address, None, None


def _end_retries(response: httpx.Response) -> None:
    """Have the client give up where the server asks for a longer pause; before version 2.52 it asks again at once."""
    if (seconds_of(response.headers.get("Retry-After")) or 0) > _LONGEST_PAUSE:
        response.headers["x-should-retry"] = "false"
