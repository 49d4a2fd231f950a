"""Which server with OpenAI's API is asked, and which key it gets."""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from urllib.parse import urlsplit

OPENAI: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
ADDRESS_VARIABLE: Final = "OPENAI_BASE_URL"


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
