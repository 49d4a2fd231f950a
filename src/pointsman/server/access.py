"""What a request may do: from its headers to the datasets that exist for it.

A dataset outside a key's scope is no forbidden one: for that key it does not exist, and nothing in any answer may tell
it from one that really does not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pointsman.errors import StoreError
from pointsman.server.keys import ALL
from pointsman.server.problems import Problem, unknown_dataset

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from pointsman.server.keys import ApiKey, KeyStore

log = logging.getLogger(__name__)

_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""What a proxy adds. Behind one, everybody comes from this machine, and the address says nothing of who asks."""

_LONGEST: Final = 256  # bytes of a header that may hold a key; a key has 56


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do.

    Attributes:
        key_id: of the key; None where there are no keys and everybody on this machine may do everything.
        name: the key's.
        datasets: the names it is for, whether there are such datasets or not; None: all.
        read: whether it may search and read.
        write: whether it may add and delete.
    """

    key_id: str | None
    name: str
    datasets: frozenset[str] | None
    read: bool
    write: bool

    @classmethod
    def open(cls) -> Self:
        """Everything: there are no keys, and only this machine reaches the service."""
        return cls(None, "", None, read=True, write=True)

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        """What this key may do."""
        datasets = None if key.datasets == ALL else frozenset(key.datasets)
        return cls(key.id, key.name, datasets, read="read" in key.scopes, write="write" in key.scopes)

    def sees(self, name: str) -> bool:
        """Whether a dataset of this name, if there is one, exists for it."""
        return self.datasets is None or name in self.datasets

    def visible(self, names: Iterable[str]) -> list[str]:
        """Those of the names that exist for it, in their order."""
        return [name for name in names if self.sees(name)]

    def chosen(self, names: Sequence[str] | None, existing: Iterable[str]) -> list[str]:
        """The datasets to act on: those that were asked for, each once, or all that exist for it.

        Args:
            names: names; None for all.
            existing: the names of all datasets there are.

        Raises:
            Problem: ``not-found``: one that was asked for does not exist, or not for this key; both read the same.
        """
        visible = self.visible(existing)
        if names is None:
            return visible
        for name in names:
            if name not in visible:
                raise unknown_dataset(name, visible)
        return list(dict.fromkeys(names))

    def require_read(self) -> None:
        """Check that it may search and read.

        Raises:
            Problem: ``forbidden``: it is a key for writing only.
        """
        if not self.read:
            raise Problem("forbidden", "this key is for writing only; it needs the scope 'read'")

    def require_write(self, name: str) -> None:
        """Check that it may change the dataset of this name, or make it.

        It says the same of a dataset that there is and of one that there is not; where one has to be there, ask
        `chosen` first, so that one outside the key's scope is not found rather than forbidden.

        Raises:
            Problem: ``forbidden``: the key is for reading only, or the name is outside its datasets.
        """
        if not self.write:
            raise Problem("forbidden", "this key is for reading only; it needs the scope 'write'")
        if not self.sees(name):
            raise Problem("forbidden", f"this key is not for a dataset named {name!r:.80}")

    def require_all(self, *, write: bool = False) -> None:
        """Check that it is for all datasets, as what concerns the whole workspace needs.

        Args:
            write: whether it also has to be one for writing.

        Raises:
            Problem: ``forbidden``.
        """
        if self.datasets is not None:
            raise Problem("forbidden", "a key for all datasets is required")
        if write and not self.write:
            raise Problem("forbidden", "this key is for reading only; it needs the scope 'write'")


def authenticate(
    headers: Headers | Iterable[tuple[bytes, bytes]], keys: KeyStore, *, loopback: bool, keyless: bool = False
) -> Access:
    """Who asks, by ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``.

    As long as a workspace has had no key, everybody who reaches the service over the loopback interface may do
    everything; not so through a proxy, behind which the whole network may be. From the first key on, every request
    needs a valid one, also when all keys are gone again.

    Args:
        headers: of the request, names in lower case, as ASGI has them, or Starlette's.
        keys: of the workspace.
        loopback: whether the service is bound to loopback addresses alone.
        keyless: the operator has said that there, and without any key, everybody may do everything.

    Raises:
        Problem: ``unauthorized``, with the same words for a key that is missing, malformed, wrong, revoked or expired,
            given twice, or in both headers differently; ``unavailable`` where the file of keys cannot be read.
    """
    bearers: list[bytes] = []
    plain: list[bytes] = []
    forwarded = False
    for name, value in getattr(headers, "raw", headers):
        if name == b"authorization":
            scheme, _, text = value.partition(b" ")
            bearers.append(text.strip(b" ") if scheme.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            plain.append(value)
        elif name in _FORWARDED:
            forwarded = True
    credentials = {*bearers, *plain}
    try:
        if len(credentials) == 1 and len(bearers) <= 1 and len(plain) <= 1:
            (text,) = credentials
            key = keys.check(text.decode("latin-1")) if len(text) <= _LONGEST else None
            if key is not None:
                return Access.of(key)
        if loopback and not forwarded and ((keyless and not credentials) or keys.empty()):
            return Access.open()
    except StoreError as error:
        log.error("nobody is admitted: %s", error)  # noqa: TRY400  (it tells all; a request has no use for a traceback)
        raise Problem("unavailable", "keys cannot be checked; see the log") from error
    raise _unauthorized()


def access_of(scope: Mapping[str, Any]) -> Access:
    """What the request of this ASGI scope may do, as the guard in front of the application has found.

    Raises:
        Problem: ``unauthorized``: nothing has; a route that stands outside the guard gives nothing away.
    """
    access = scope.get("state", {}).get("access")
    if not isinstance(access, Access):
        raise _unauthorized()
    return access


def _unauthorized() -> Problem:
    return Problem(
        "unauthorized",
        "a valid key is required, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'",
        headers={"WWW-Authenticate": "Bearer"},
    )
