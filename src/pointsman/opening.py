"""`pointsman.open`: one function for every place where a workspace may be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from pointsman._places import is_service
from pointsman.client import Client
from pointsman.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pointsman.engine import Stages
    from pointsman.protocols import LLM, Embedder
    from pointsman.settings import Settings
    from pointsman.store.backend import Backend

KEY_VARIABLE = "POINTSMAN_API_KEY"
"""The environment variable with the key that a service is sent."""


def open_workspace(
    path: str | Path | Backend,
    *,
    embedder: Embedder | None = None,
    workflow: Stages | None = None,
    llm: LLM | Mapping[str, LLM] | None = None,
    settings: Settings | None = None,
) -> Workspace:
    """`pointsman.open`: the workspace in this folder, made on the first write, or at this URL.

    Args:
        path: a folder, ``postgresql://…``, ``opensearch+https://…``, or the ``https://…`` of a Pointsman service. For a
            service the answer is a `pointsman.Client`, which has the methods of `Workspace` for datasets and searches;
            the key comes from the environment variable ``POINTSMAN_API_KEY``, and models and settings are the
            service's own. A `pointsman.store.backend.Backend` brings a client or a pool of your own.
        embedder: see `Workspace`, as the others.
        workflow: stages of your own.
        llm: for the strategies that need a language model.
        settings: what holds where a search says nothing.

    Raises:
        InputError: there is something else at that path, nothing is known of the scheme of the URL, or a service would
            be sent its key in the clear.
        StoreUnavailableError: a server cannot be reached.
    """
    if isinstance(path, str) and is_service(path):
        client: Any = Client(str(path), os.environ.get(KEY_VARIABLE))
        return cast("Workspace", client)  # the same methods, as far as a service offers them
    return Workspace(path, embedder=embedder, workflow=workflow, llm=llm, settings=settings)


open = open_workspace  # noqa: A001  (`pointsman.open` reads well)
