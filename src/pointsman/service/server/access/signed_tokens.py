"""Signed tokens (JWT, RFC 7519): who asks, as an identity provider says.

A workspace trusts one issuer. Its public keys are stored in the workspace, or fetched from where it publishes them
(`pointsman.service.server.access.issuer_keys`). Only signatures by private keys are accepted: with a shared secret, or
an algorithm that a token chooses for a key of another kind, whoever knows the public key could sign.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pointsman.service.server.access.issuer_keys import IssuerKeys, check_source
from pointsman.service.server.access.public_keys import MOST_KEYS, pyjwt, read_keys, verifier_of
from pointsman.tools.errors import CorruptStoreError, InputError, MissingDependencyError, StoreError
from pointsman.values.views import check_principals

if TYPE_CHECKING:
    from pointsman.service.server.access.issuer_keys import Need
    from pointsman.store.backend import Backend

__all__ = ["ALGORITHMS", "KIND", "Issuer", "Token", "TokenTrust", "read_keys"]

log = logging.getLogger(__name__)

KIND: Final = "tokens"
"""Kind of the record that says whom a workspace trusts."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are accepted, each only with a key of its own kind."""

_LONGEST: Final = 16_384  # bytes of a token
_LEEWAY: Final = 30  # seconds by which clocks may differ
_FRESH: Final = 0.5  # seconds for which the record is trusted


@dataclass(frozen=True, slots=True)
class Token:
    """What a valid token says.

    Attributes:
        id: the same for every token of its subject, for logs.
        subject: the user.
        principals: whom it asks as.
    """

    id: str
    subject: str
    principals: frozenset[str]


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are trusted, and for whom.

    Attributes:
        issuer: the claim ``iss`` of its tokens.
        audience: what their claim ``aud`` must name.
        keys: its public keys, as a JSON Web Key Set (RFC 7517).
        groups: the claim with the names of a user's groups.
        keys_url: where its public keys are fetched from, in place of ``keys``; empty: nowhere.
    """

    issuer: str
    audience: str
    keys: Sequence[Mapping[str, Any]]
    groups: str = "groups"
    keys_url: str = ""

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "groups"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                raise InputError(f"{name} is a text that is not empty, not {value!r:.80}")
        if self.keys_url:
            if self.keys:
                raise InputError("an issuer's keys are given, or fetched from keys_url, and not both")
            check_source(self.keys_url, "keys_url")
            return
        if not 0 < len(self.keys) <= MOST_KEYS:
            raise InputError(f"an issuer has 1 to {MOST_KEYS} public keys, not {len(self.keys)}")
        for key in self.keys:
            verifier_of(key)

    def to_json(self) -> str:
        """Return the record to store."""
        return json.dumps({**asdict(self), "keys": list(self.keys)})

    @classmethod
    def from_json(cls, text: str) -> Issuer:
        """Read a stored record.

        Raises:
            CorruptStoreError: it is none.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError, InputError) as error:
            raise CorruptStoreError(
                f"the record of the trusted issuer is damaged ({error!s:.200}); store it again with 'pointsman tokens'"
            ) from error


class TokenTrust:
    """Whose tokens a workspace trusts now; a change is seen within half a second.

    Args:
        backend: the backend of the workspace.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._version = ""
        self._issuer: Issuer | None = None
        self._issuer_keys: IssuerKeys | None = None

    def issuer(self) -> Issuer | None:
        """Return the trusted issuer; None if there is none.

        Raises:
            StoreError: the record cannot be read; nobody is admitted.
        """
        with self._lock:
            if monotonic() - self._read_at > _FRESH:
                record = self._backend.record(KIND)
                if record is None:
                    self._issuer, self._version, self._issuer_keys = None, "", None
                elif record.version != self._version:
                    self._issuer, self._version = Issuer.from_json(record.value), record.version
                    url = self._issuer.keys_url
                    if self._issuer_keys is None or self._issuer_keys.url != url:
                        self._issuer_keys = IssuerKeys(url) if url else None
                self._read_at = monotonic()
            return self._issuer

    def trust(self, issuer: Issuer | None) -> None:
        """Trust this issuer from now on; None: nobody."""
        self._backend.put_record(KIND, "", None if issuer is None else issuer.to_json())
        self._read_at = float("-inf")

    def check(self, text: bytes) -> Token | None:
        """Return what a token says; None unless the trusted issuer signed it for this audience, and it is valid now.

        Raises:
            StoreError: the record of the issuer cannot be read, or its keys cannot be fetched.
        """
        if not _is_possible(text):
            return None
        issuer, keys = self.issuer(), self._issuer_keys
        if issuer is None:
            return None
        return _token_in(text.decode("latin-1"), issuer, (lambda: issuer.keys) if keys is None else keys.keys)

    def fetching(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[IssuerKeys, Need] | None:
        """Return what has to be fetched before the token in these headers can be checked; None: nothing.

        Args:
            headers: of a request, with lower-case names, as in ASGI.
        """
        texts = [value[7:].strip(b" ") for name, value in headers if name == b"authorization"]
        if len(texts) != 1 or not _is_possible(texts[0]):
            return None
        try:
            if self.issuer() is None or (keys := self._issuer_keys) is None:
                return None
            key_id = pyjwt().get_unverified_header(texts[0].decode("latin-1")).get("kid")
        except (StoreError, MissingDependencyError):  # whoever checks the token meets it again
            return None
        except (pyjwt().PyJWTError, ValueError):  # no token
            return None
        need = keys.need(key_id)
        return (keys, need) if need else None


def _is_possible(text: bytes) -> bool:
    return len(text) <= _LONGEST and text.count(b".") == 2


def _token_in(text: str, issuer: Issuer, all_keys: Callable[[], Sequence[Mapping[str, Any]]]) -> Token | None:
    jwt = pyjwt()
    try:
        header = jwt.get_unverified_header(text)
        keys = [key for key in all_keys() if "kid" not in header or key.get("kid", header["kid"]) == header["kid"]]
        for key in keys:
            verifier = verifier_of(key)
            # The key names its algorithm; one that the token names for a key of another kind is never tried.
            algorithms = [name for name in ALGORITHMS if name == header.get("alg") and _fits(name, key)]
            if not algorithms:
                continue
            try:
                claims = jwt.decode(
                    text,
                    verifier.key,
                    algorithms=algorithms,
                    audience=issuer.audience,
                    issuer=issuer.issuer,
                    leeway=_LEEWAY,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            except jwt.InvalidSignatureError:
                continue
            return _token_of(claims, issuer)
    except (jwt.PyJWTError, InputError, ValueError, TypeError) as error:
        log.info("a token was refused: %s", error)
    return None


def _fits(algorithm: str, key: Mapping[str, Any]) -> bool:
    """Whether an algorithm belongs to the kind of a key, and is the one that the key names, if it does."""
    kind = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[algorithm[:2]]
    return key.get("kty") == kind and key.get("alg", algorithm) == algorithm


def _token_of(claims: Mapping[str, Any], issuer: Issuer) -> Token:
    """Return what verified claims say.

    Raises:
        InputError: a time is no number (RFC 7519, section 2, NumericDate), or the user or a group is no principal.
    """
    for name in ("exp", "nbf", "iat"):
        time = claims.get(name, 0)
        if isinstance(time, bool) or not isinstance(time, int | float):
            raise InputError(f"the claim {name!r} is {time!r:.40}, not a number of seconds")
    subject, groups = claims["sub"], claims.get(issuer.groups, ())
    groups = groups if isinstance(groups, list | tuple) else [groups]
    if not all(isinstance(group, str) for group in groups):
        raise InputError(f"the claim {issuer.groups!r:.40} holds something else than names of groups")
    principals = check_principals([f"user:{subject}", *(f"group:{group}" for group in groups)])
    digest = hashlib.sha256(f"{issuer.issuer}\n{subject}".encode("utf-8", "surrogatepass")).hexdigest()
    return Token(f"token-{digest[:8]}", str(subject), principals)
