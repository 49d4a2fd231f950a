"""`pointsman.open`: one function for every location of a workspace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from pointsman.tools.system.locations import is_service
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pointsman.retrieval.decisions.user_stages import Stages
    from pointsman.store.backend import Backend
    from pointsman.values.protocols import LLM, Embedder
    from pointsman.values.settings import Settings

KEY_VARIABLE = "POINTSMAN_API_KEY"
"""The environment variable with the key for a service."""


def open_workspace(
    path: str | Path | Backend,
    *,
    embedder: Embedder | str | None = None,
    image_embedder: Embedder | str | None = None,
    workflow: Stages | None = None,
    llm: LLM | Mapping[str, LLM] | None = None,
    settings: Settings | None = None,
) -> Workspace:
    """`pointsman.open`: open the workspace in a folder, created on the first write, or at a URL.

    Args:
        path: a folder, ``postgresql://…``, ``opensearch+https://…``, or the ``https://…`` of a Pointsman service. A
            service is opened as a `pointsman.Client`, which has the methods of `Workspace` for datasets and searches;
            the key comes from the environment variable ``POINTSMAN_API_KEY``, and the service's models and settings
            apply. Use a `pointsman.store.backend.Backend` to pass your own client.
        embedder: see `Workspace`, as for the other arguments.
        image_embedder: of datasets of pictures.
        workflow: your own stages.
        llm: the language model for strategies that need one.
        settings: defaults for options that a search does not give, the embedder and the language models.

    Raises:
        InputError: the path is not a workspace, the URL's scheme is unknown, or a key would be sent unencrypted.
        StoreUnavailableError: a server cannot be reached.
    """
    if isinstance(path, str) and is_service(path):
        from pointsman.service.client import Client  # only for a service: it takes a tenth of a search's start

        client: Any = Client(str(path), os.environ.get(KEY_VARIABLE))
        return cast("Workspace", client)  # the same methods, as far as a service supports them
    return Workspace(
        path, embedder=embedder, image_embedder=image_embedder, workflow=workflow, llm=llm, settings=settings
    )


open = open_workspace  # noqa: A001  (`pointsman.open` reads well)
