"""The backend of a workspace by its URL: ``postgresql://…``, ``opensearch+https://…``, or a folder.

A package adds a scheme with an entry point of the group ``pointsman.plugins``, named ``store.<scheme>``: a callable
that takes the URL.
"""

from __future__ import annotations

import os
from typing import Any

from pointsman.store.backend import Backend
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.system.locations import is_service, is_url, path_of, redacted
from pointsman.values.registry import COLLECTIONS, STORES


def open_backend(where: str | os.PathLike[str] | Backend, **options: Any) -> Backend:
    """Return the backend for a URL or a folder.

    Args:
        where: a path, or a URL such as ``file:rails`` or ``postgresql://user@host/database?schema=rails``; a backend
            is returned unchanged.
        options: for the backend of that scheme.

    Raises:
        UnknownNameError: the scheme of the URL is unknown.
        InputError: the URL is invalid, or of something other than a workspace.
        MissingDependencyError: a package for it is not installed.
        StoreUnavailableError: it cannot be reached.
    """
    if isinstance(where, Backend):
        return where
    if not is_url(where):
        return LocalBackend(where, **options)
    scheme = str(where).partition(":")[0].lower()
    if scheme == "file":
        if not (path := path_of(str(where))):
            raise InputError(
                f"{where!r:.200} names no folder of this machine; write file:rails or file:///home/me/rails"
            )
        return LocalBackend(path, **options)
    if is_service(where):
        raise InputError(f"{redacted(where)} is a Pointsman service; open it with pointsman.open or pointsman.Client")
    if scheme not in STORES:
        if scheme in COLLECTIONS:
            raise InputError(f"a {scheme} URL is a collection; search it beside a workspace: workspace.attach(…)")
        raise UnknownNameError("URL scheme", scheme, (*STORES.names(), "http", "https"))
    backend: Backend = STORES.create(scheme, str(where), **options)
    return backend
