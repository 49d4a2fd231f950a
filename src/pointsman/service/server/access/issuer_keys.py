"""The public keys of an identity provider, fetched from where it publishes them (OpenID Connect Discovery 1.0).

Nothing is accepted by keys that are not known to be the issuer's now: each set is used for a limited time, whatever
fails, and there is no other set to fall back to. A token whose key is unknown may be of a new one, so the set is
fetched again, but only so often, because everybody can make up such tokens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Literal

from pointsman.service.server.access.public_keys import usable_keys
from pointsman.tools.errors import InputError, MissingDependencyError, StoreUnavailableError
from pointsman.tools.network.http_addresses import address, is_here, one_line
from pointsman.tools.network.json_client import JSONClient, UnknownShapeError, UnusableAnswerError

log = logging.getLogger(__name__)

LIMIT: Final = 600.0
"""Seconds for which fetched keys are used."""

RENEW: Final = 300.0
"""Age in seconds from which keys are fetched again while they can still be used."""

PAUSE: Final = 30.0
"""Seconds between two attempts because of an unknown key, or to renew keys that can still be used."""

FAILED_PAUSE: Final = 5.0
"""Seconds between two attempts while there are no keys that can be used."""

_SECONDS: Final = 10.0  # for both attempts, whole
_LARGEST: Final = 2**20  # bytes of an answer
_DISCOVERY: Final = "/.well-known/openid-configuration"

Need = Literal["now", "soon", ""]
"""Whether keys have to be fetched: before a token can be checked, some time, or not."""


def check_source(url: str, subject: str) -> str:
    """Return an address to fetch keys from.

    Raises:
        InputError: it is not https, which other machines need: whoever can change the answer could sign tokens.
    """
    try:
        url_parts = address(url)
    except InputError as error:
        raise InputError(f"{subject}: {error}") from None
    if url_parts.scheme != "https" and not is_here(url_parts):
        raise InputError(f"{subject} is an https:// address, or http:// of this machine, not {one_line(url):.200}")
    return url_parts.geturl()


def discover(issuer: str) -> str:
    """Return where an issuer says that it publishes its keys: ``jwks_uri`` of its configuration.

    Raises:
        InputError: the issuer is no https address, or its configuration is another one's or names no such address.
        StoreUnavailableError: it cannot be fetched.
    """
    url = check_source(issuer.rstrip("/") + _DISCOVERY, "the issuer's configuration")
    configuration = _fetch(url)
    if configuration.get("issuer") != issuer:
        raise InputError(
            f"{url} is the configuration of {configuration.get('issuer')!r:.200}, and not of {issuer!r:.200}; name the "
            "issuer exactly as it names itself"
        )
    keys_url = configuration.get("jwks_uri")
    if not isinstance(keys_url, str):
        raise InputError(f"{url} names no jwks_uri; give the address of the keys with --keys")
    return check_source(keys_url, "jwks_uri")


def fetch_keys(url: str) -> list[Mapping[str, Any]]:
    """Fetch the public keys at an address: a JSON Web Key Set (RFC 7517); keys that cannot be used are left out.

    Raises:
        InputError: it is none, or none of its keys can be used.
        StoreUnavailableError: it cannot be fetched.
    """
    return usable_keys(_fetch(url), url)


def _fetch(url: str) -> Mapping[str, Any]:
    """Fetch a JSON object.

    Raises:
        InputError: the answer is JSON of another form.
        StoreUnavailableError: there is no usable answer.
    """
    client = JSONClient(address(url), None, insecure=False, retries=1, largest=_LARGEST)
    try:
        value = client.get(url, monotonic() + _SECONDS)
    except (UnusableAnswerError, UnknownShapeError) as error:
        raise StoreUnavailableError(f"{url}: {error}") from None
    finally:
        client.close()
    if not isinstance(value, dict):
        raise InputError(f"the answer of {url} is not a JSON object")
    return value


class IssuerKeys:
    """The keys at an address, as they were fetched last.

    Args:
        url: the address.
        clock: returns seconds since any fixed time.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.url, self._clock = url, clock
        self._lock = threading.Lock()
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._time_of_keys = self._time_of_attempt = float("-inf")
        self._problem = "they have not been fetched yet"
        self._is_fetching = False

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """Return the keys.

        Raises:
            StoreUnavailableError: there are none that can be used now.
        """
        if self._clock() - self._time_of_keys > LIMIT:
            raise StoreUnavailableError(f"the keys of the issuer of tokens cannot be fetched: {self._problem}")
        return self._keys

    def need(self, key_id: object) -> Need:
        """Return whether keys are to be fetched for a token by the key with this id, or are being fetched for others.

        Args:
            key_id: the id; None if the token names none.
        """
        with self._lock:
            time_now = self._clock()
            age, pause = time_now - self._time_of_keys, time_now - self._time_of_attempt
            if age > LIMIT:
                return "now" if self._is_fetching or pause >= FAILED_PAUSE else ""
            if key_id is not None and all(key.get("kid", key_id) != key_id for key in self._keys):
                return "now" if self._is_fetching or pause >= PAUSE else ""
            if age > RENEW and pause >= PAUSE:
                self._time_of_attempt = time_now
                return "soon"
            return ""

    def fetch(self) -> None:
        """Fetch the keys; if that fails, those that can still be used stay, and the log says why."""
        with self._lock:
            start = self._time_of_attempt = self._clock()
            self._is_fetching = True
        keys: Sequence[Mapping[str, Any]] | None = None
        try:
            keys = fetch_keys(self.url)
        except (InputError, StoreUnavailableError, MissingDependencyError) as error:
            log.error("the keys of the issuer of tokens cannot be fetched: %s", error)  # noqa: TRY400  (all is said)
            self._problem = str(error)
        finally:
            with self._lock:
                self._is_fetching = False
                if keys is not None:
                    self._keys, self._time_of_keys = keys, start
