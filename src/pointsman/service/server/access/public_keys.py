"""Public keys that tokens are checked by: JSON Web Keys (RFC 7517) or PEM, and no secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from pointsman.tools.errors import InputError, MissingDependencyError

log = logging.getLogger(__name__)

MOST_KEYS: Final = 100
"""Keys that an issuer may have."""

_LEAST_RSA_BITS: Final = 2048


def read_keys(text: str) -> list[Mapping[str, Any]]:
    """Read public keys: a JSON Web Key Set, one key of it, or one in PEM.

    Raises:
        InputError: it is none of these, or holds something else than public keys.
        MissingDependencyError: PyJWT is not installed.
    """
    jwt = pyjwt()
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
        verifier_of(key)
    return signing_keys


def verifier_of(key: Any) -> Any:
    """Return a public key as PyJWT takes it.

    Raises:
        InputError: it is a secret, a private key, or no key.
    """
    jwt = pyjwt()
    if not isinstance(key, Mapping) or key.get("kty") not in {"RSA", "EC", "OKP"}:
        raise InputError("a key is a public one of RSA, an elliptic curve (EC) or Ed25519 (OKP); secrets are refused")
    if "d" in key:
        raise InputError("this is a private key, which only the issuer may have; give the public one")
    try:
        verifier = jwt.PyJWK(dict(key))
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"a public key cannot be used: {error!s:.200}") from error
    if key["kty"] == "RSA" and verifier.key.key_size < _LEAST_RSA_BITS:
        raise InputError(f"an RSA key has at least {_LEAST_RSA_BITS} bits, and this one {verifier.key.key_size}")
    return verifier


def usable_keys(value: Mapping[str, Any], url: str) -> list[Mapping[str, Any]]:
    """Return the keys of a JSON Web Key Set that can check tokens; the log says why others cannot.

    Args:
        value: the set.
        url: where it is from.

    Raises:
        InputError: it is none, or has none that can.
    """
    keys = value.get("keys")
    if not isinstance(keys, list) or not 0 < len(keys) <= MOST_KEYS:
        raise InputError(f"{url} has no JSON Web Key Set with 1 to {MOST_KEYS} keys")
    usable: list[Mapping[str, Any]] = []
    for key in keys:
        try:
            if not isinstance(key, dict) or key.get("use", "sig") == "sig":
                verifier_of(key)
                usable.append(key)
        except InputError as error:
            log.warning("a key of %s is left out: %s", url, error)
    if not usable:
        raise InputError(f"{url} has no public key of RSA, an elliptic curve or Ed25519 for signatures")
    return usable


def pyjwt() -> Any:
    """Return PyJWT.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import jwt
    except ImportError as error:
        raise MissingDependencyError("pyjwt[crypto]", "tokens", "signed tokens") from error
    return jwt
