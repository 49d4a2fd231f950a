"""What a request may do: from its headers to the datasets it may see.

For a key, a dataset outside its scope does not exist rather than being forbidden: no answer may distinguish it from a
dataset that really does not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman.service.server.access.api_keys import ALL
from pointsman.service.server.protocol.problems import HttpProblem, unknown_dataset
from pointsman.tools.audit_log import current_entry
from pointsman.tools.errors import MissingDependencyError, StoreError
from pointsman.values.views import EVERYONE, View
from pointsman.workspace.workspace_search import existing

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from pointsman.service.server.access.api_keys import ApiKey, KeyStore
    from pointsman.service.server.access.signed_tokens import Token, TokenTrust
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace

log = logging.getLogger(__name__)

_PROXY_HEADERS: Final = frozenset(
    {
        "ali-cdn-real-ip",
        "cdn-loop",
        "client-cert",
        "client-ip",
        "do-connecting-ip",
        "forwarded",
        "front-end-https",
        "incap-client-ip",
        "remote-addr",
        "remote-user",
        "true-client-ip",
        "via",
        "x-arr-ssl",
        "x-client-cert",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-coming-from",
        "x-gateway-host",
        "x-host",
        "x-https",
        "x-nf-client-connection-ip",
        "x-originating-ip",
        "x-rewrite-url",
        "x-scheme",
        "x-sucuri-clientip",
        "x-url-scheme",
    }
)
_FORWARDED_PREFIXES: Final = (
    "akamai-",
    "cf-",  # Cloudflare: CF-Connecting-IP, CF-Ray …
    "cloudfront-",
    "fastly-",
    "fly-",
    "ngrok-",
    "proxy-",
    "ssl-client-",
    "tailscale-",
    "wl-proxy-",
    "x-akamai-",
    "x-amz-cf-",
    "x-amzn-",
    "x-appengine-",
    "x-arr-",
    "x-auth-request-",
    "x-azure-",
    "x-envoy-",
    "x-forwarded",  # -For, -Host, -Proto, -Port, -Prefix, -Client-Cert, -User …
    "x-goog-",
    "x-original-",
    "x-proxy",
    "x-real-",
    "x-remote-",
    "x-ssl-",
    "x-vercel-",
)
"""Headers added by proxies. Behind a proxy every client has this machine's address, which identifies no one."""

_LONGEST: Final = 256  # bytes of a header that may hold a key; a key has 56 bytes


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do.

    Attributes:
        key_id: id of the key; None if there are no keys and everyone on this machine may do everything.
        name: name of the key.
        datasets: names the key covers, whether or not such datasets exist; None means all.
        read: whether the request may search and read.
        write: whether the request may add and delete.
        principals: whom the request asks as, from its key or token; None if they do not say.
    """

    key_id: str | None
    name: str
    datasets: frozenset[str] | None
    read: bool
    write: bool
    principals: frozenset[str] | None = None

    @classmethod
    def open(cls) -> Self:
        """Return access to everything: there are no keys, and only this machine reaches the service."""
        return cls(None, "", None, read=True, write=True)

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        """Return what this key allows."""
        datasets = None if key.datasets == ALL else frozenset(key.datasets)
        principals = None if key.principals is None else frozenset(key.principals)
        return cls(key.id, key.name, datasets, "read" in key.scopes, "write" in key.scopes, principals)

    @classmethod
    def of_token(cls, token: Token) -> Self:
        """Return what a signed token allows: to read as its principals."""
        return cls(token.id, token.subject, None, read=True, write=False, principals=token.principals)

    @property
    def asker(self) -> dict[str, Any]:
        """Return who asks, as the audit log has it."""
        return {"who": self.name, "key": self.key_id, "principals": self.principals}

    def view(self, principals: Sequence[str] | None, *, on: bool) -> View | None:
        """Return the view of a request; None if access is off.

        Args:
            principals: those that the request's body names: some of those that its key or token has.
            on: whether access is on in the workspace.

        Raises:
            Problem: ``forbidden``: access is on, and the key or token does not say whom it asks as; or the body names
                others; or access is off, and the key is only good where it is on.
        """
        if not on and self.principals is None and principals is None:
            return None
        if not on:
            raise HttpProblem(
                "forbidden", "access is off in this workspace, so principals would change nothing; nothing is shown"
            )
        if self.principals is None:
            raise HttpProblem(
                "forbidden",
                "access is on in this workspace, and only a key with principals ('pointsman keys create NAME "
                "--principal user:anna') or a signed token says who asks; principals in the body only narrow it",
            )
        if principals is None:
            return View.of(self.principals)
        if other_principals := sorted({*principals} - self.principals - {EVERYONE}):
            raise HttpProblem("forbidden", f"the key or token does not ask as {other_principals[0]!r:.80}")
        if (entry := current_entry()) is not None:
            entry.principals = principals
        return View.of(principals, self.principals)

    def choose_datasets(
        self, workspace: Workspace, names: Sequence[str] | None = None, principals: Sequence[str] | None = None
    ) -> list[Dataset]:
        """Return the requested datasets, or all visible ones, as far as they exist for whoever asks.

        Raises:
            Problem: a dataset does not exist or is not visible, or access is on and the key does not say who asks.
        """
        selection = self.choose(names, workspace.names())
        view = self.view(principals, on=workspace.access)
        datasets = (
            existing(workspace.source, selection) if names is None else [workspace.source(name) for name in selection]
        )
        return datasets if view is None else workspace.in_view(datasets, view)

    def sees(self, name: str) -> bool:
        """Whether a dataset of this name, if it exists, is visible to the request."""
        return self.datasets is None or name in self.datasets

    def visible(self, names: Iterable[str]) -> list[str]:
        """Return the visible ones of the names, in their order."""
        return [name for name in names if self.sees(name)]

    def choose(self, names: Sequence[str] | None, existing: Iterable[str]) -> list[str]:
        """Return the datasets to act on: the requested ones without duplicates, or all visible ones.

        Args:
            names: requested names; None for all.
            existing: names of all existing datasets.

        Raises:
            Problem: ``not-found``: a requested dataset does not exist or is not visible; both messages are the same.
        """
        visible = self.visible(existing)
        if names is None:
            return visible
        for name in names:
            if name not in visible:
                raise unknown_dataset(name, visible)
        return list(dict.fromkeys(names))

    def require_read(self) -> None:
        """Check that the request may search and read.

        Raises:
            Problem: ``forbidden``: the key is for writing only.
        """
        if not self.read:
            raise HttpProblem(
                "forbidden",
                "this key is for writing only; it needs the scope 'read', and principals while access is on",
            )

    @property
    def may_write(self) -> bool:
        """Whether the request may change the documents of the datasets it sees."""
        return self.write and self.principals is None

    def require_write(self, name: str | None = None) -> None:
        """Check that the request may change or create the dataset of this name; without one, some dataset.

        The result does not depend on whether the dataset exists. If it has to exist, call `choose` first, so that a
        dataset outside the key's scope is reported as not found rather than forbidden.

        Raises:
            Problem: ``forbidden``: the key is for reading only, or does not cover the name.
        """
        if not self.may_write:
            raise HttpProblem("forbidden", "this key is for reading only; it needs the scope 'write'")
        if name is not None and not self.sees(name):
            raise HttpProblem("forbidden", f"this key is not for a dataset named {name!r:.80}")

    def require_all(self, *, write: bool = False) -> None:
        """Check that the request covers all datasets, as operations on the whole workspace require.

        Args:
            write: whether write access is required too.

        Raises:
            Problem: ``forbidden``: the key does not cover all datasets, or is not for writing.
        """
        if self.datasets is not None or self.principals is not None:
            raise HttpProblem("forbidden", "a key for all datasets, without principals, is required")
        if write and not self.write:
            raise HttpProblem("forbidden", "this key is for reading only; it needs the scope 'write'")


def is_forwarding(name: bytes) -> bool:
    """Whether a request with a header of this lower-case name has come through a proxy, gateway or content network.

    >>> is_forwarding(b"cf-connecting-ip"), is_forwarding(b"user-agent")
    (True, False)
    """
    text = name.decode("latin-1").replace("_", "-")
    return text in _PROXY_HEADERS or text.startswith(_FORWARDED_PREFIXES)


def authenticate(
    headers: Headers | Iterable[tuple[bytes, bytes]],
    keys: KeyStore,
    *,
    loopback: bool,
    keyless: bool = False,
    tokens: TokenTrust | None = None,
) -> Access:
    """Authenticate a request by ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``, or a signed token as the first.

    As long as a workspace has never had a key and trusts no tokens, everyone who reaches the service over the loopback
    interface may do everything, except through a proxy, which may serve the whole network. From the first key on, every
    request needs a valid key, even after all keys are gone.

    Args:
        headers: of the request, with lower-case names, as in ASGI, or Starlette's.
        keys: keys of the workspace.
        loopback: whether the service is bound to loopback addresses only.
        keyless: the operator has allowed everyone on loopback to do everything without a key.
        tokens: whose signed tokens are trusted.

    Raises:
        Problem: ``unauthorized``, with the same text for a key that is missing, malformed, wrong, revoked, expired,
            given twice or different in the two headers; ``unavailable`` if the key file cannot be read.
    """
    bearers: list[bytes] = []
    plain: list[bytes] = []
    is_forwarded = False
    for name, value in getattr(headers, "raw", headers):
        if name == b"authorization":
            scheme, _, text = value.partition(b" ")
            bearers.append(text.strip(b" ") if scheme.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            plain.append(value)
        elif not is_forwarded:
            is_forwarded = is_forwarding(name)
    credentials = {*bearers, *plain}
    try:
        if len(credentials) == 1 and len(bearers) <= 1 and len(plain) <= 1:
            (text,) = credentials
            key = keys.check(text.decode("latin-1")) if len(text) <= _LONGEST else None
            if key is not None:
                return Access.of(key)
            if tokens is not None and bearers and (token := tokens.check(text)) is not None:
                return Access.of_token(token)
        is_unguarded = keys.empty() and (tokens is None or tokens.issuer() is None)
        if loopback and not is_forwarded and ((keyless and not credentials) or is_unguarded):
            return Access.open()
    except (StoreError, MissingDependencyError) as error:
        log.error("all requests are refused: %s", error)  # noqa: TRY400  (a request has no use for a traceback)
        raise HttpProblem("unavailable", "keys cannot be checked; see the log") from error
    raise _no_key()


def access_of(scope: Mapping[str, Any]) -> Access:
    """Return the access of the request of this ASGI scope, as determined by the guard in front of the application.

    Raises:
        Problem: ``unauthorized``: the guard has not run; a route outside the guard reveals nothing.
    """
    access = scope.get("state", {}).get("access")
    if not isinstance(access, Access):
        raise _no_key()
    return access


async def check_again(scope: Mapping[str, Any]) -> None:
    """Check that the request of this ASGI scope would still be admitted: its key may have been revoked meanwhile.

    Raises:
        Problem: as `authenticate`.
    """
    access_of(scope)
    await scope["state"]["authenticated"]()


def _no_key() -> HttpProblem:
    return HttpProblem(
        "unauthorized",
        "a valid key is required, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'",
        headers={"WWW-Authenticate": "Bearer"},
    )
