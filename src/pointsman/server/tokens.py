"""Signed tokens (JWT, RFC 7519): who asks, as an identity provider says.

A workspace trusts one issuer. Its public keys are stored in the workspace, so nothing is fetched while requests are
answered. Only signatures by private keys are accepted: with a shared secret, or an algorithm that a token chooses for a
key of another kind, whoever knows the public key could sign.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import CorruptStoreError, InputError, MissingDependencyError
from pointsman.views import check_principals

if TYPE_CHECKING:
    from pointsman.store.backend import Backend

log = logging.getLogger(__name__)

KIND: Final = "tokens"
"""Kind of the record that says whom a workspace trusts."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are accepted, each only with a key of its own kind."""

_LONGEST: Final = 16_384  # bytes of a token
_LEEWAY: Final = 30  # seconds by which clocks may differ
_FRESH: Final = 0.5  # seconds for which the record is trusted
_MOST_KEYS: Final = 100


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
    """

    issuer: str
    audience: str
    keys: Sequence[Mapping[str, Any]]
    groups: str = "groups"

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "groups"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                raise InputError(f"{name} is a text that is not empty, not {value!r:.80}")
        if not 0 < len(self.keys) <= _MOST_KEYS:
            raise InputError(f"an issuer has 1 to {_MOST_KEYS} public keys, not {len(self.keys)}")
        for key in self.keys:
            _verifier(key)

    def to_json(self) -> str:
        """Return the record to store."""
        return json.dumps(
            {"issuer": self.issuer, "audience": self.audience, "keys": list(self.keys), "groups": self.groups}
        )

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


def read_keys(text: str) -> list[Mapping[str, Any]]:
    """Read public keys: a JSON Web Key Set, one key of it, or one in PEM.

    Raises:
        InputError: it is none of these, or holds something else than public keys.
        MissingDependencyError: PyJWT is not installed.
    """
    jwt = _jwt()
    if text.lstrip().startswith("-----BEGIN"):
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(text.encode())
        except ValueError as error:
            raise InputError(f"this PEM holds no public key ({error}); export the issuer's public key") from error
        for name in ("RS256", "ES256", "EdDSA"):
            try:
                return [json.loads(jwt.get_algorithm_by_name(name).to_jwk(key))]
            except (TypeError, ValueError, AttributeError, jwt.InvalidKeyError):  # of another kind
                continue
        raise InputError("a public key is of RSA, an elliptic curve or Ed25519")
    try:
        value = json.loads(text)
        keys = value["keys"] if isinstance(value, dict) and "keys" in value else [value]
        if not all(isinstance(key, dict) for key in keys):
            raise TypeError("a key is an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"public keys are a JSON Web Key Set or PEM, and this is neither: {error!s:.200}") from error
    signing_keys = [key for key in keys if key.get("use", "sig") == "sig"]
    for key in signing_keys:
        _verifier(key)
    return signing_keys


def _verifier(key: Mapping[str, Any]) -> Any:
    """Return a public key as PyJWT takes it.

    Raises:
        InputError: it is a secret, a private key, or no key.
    """
    jwt = _jwt()
    if not isinstance(key, Mapping) or key.get("kty") not in {"RSA", "EC", "OKP"}:
        raise InputError("a key is a public one of RSA, an elliptic curve (EC) or Ed25519 (OKP); secrets are refused")
    if "d" in key:
        raise InputError("this is a private key, which only the issuer may have; give the public one")
    try:
        return jwt.PyJWK(dict(key))
    except jwt.PyJWTError as error:
        raise InputError(f"a public key cannot be used: {error!s:.200}") from error


def _jwt() -> Any:
    try:
        import jwt
    except ImportError as error:
        raise MissingDependencyError("pyjwt[crypto]", "tokens", "signed tokens") from error
    return jwt


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

    def issuer(self) -> Issuer | None:
        """Return the trusted issuer; None if there is none.

        Raises:
            StoreError: the record cannot be read; nobody is admitted.
        """
        with self._lock:
            if monotonic() - self._read_at > _FRESH:
                record = self._backend.record(KIND)
                if record is None:
                    self._issuer, self._version = None, ""
                elif record.version != self._version:
                    self._issuer, self._version = Issuer.from_json(record.value), record.version
                self._read_at = monotonic()
            return self._issuer

    def trust(self, issuer: Issuer | None) -> None:
        """Trust this issuer from now on; None: nobody."""
        self._backend.put_record(KIND, "", None if issuer is None else issuer.to_json())
        self._read_at = float("-inf")

    def check(self, text: bytes) -> Token | None:
        """Return what a token says; None unless the trusted issuer signed it for this audience, and it is valid now.

        Raises:
            StoreError: the record of the issuer cannot be read.
        """
        if len(text) > _LONGEST or text.count(b".") != 2:
            return None
        issuer = self.issuer()
        return None if issuer is None else _token_in(text.decode("latin-1"), issuer)


def _token_in(text: str, issuer: Issuer) -> Token | None:
    jwt = _jwt()
    try:
        header = jwt.get_unverified_header(text)
        keys = [key for key in issuer.keys if "kid" not in header or key.get("kid", header["kid"]) == header["kid"]]
        for key in keys:
            verifier = _verifier(key)
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
        InputError: the user or a group is no principal.
    """
    subject, groups = claims["sub"], claims.get(issuer.groups, ())
    groups = groups if isinstance(groups, list | tuple) else [groups]
    if not all(isinstance(group, str) for group in groups):
        raise InputError(f"the claim {issuer.groups!r:.40} holds something else than names of groups")
    principals = check_principals([f"user:{subject}", *(f"group:{group}" for group in groups)])
    digest = hashlib.sha256(f"{issuer.issuer}\n{subject}".encode("utf-8", "surrogatepass")).hexdigest()
    return Token(f"token-{digest[:8]}", str(subject), principals)
