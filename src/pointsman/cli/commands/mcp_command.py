"""`pointsman mcp`: the workspace as tools for agents, over the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from pointsman.cli.shared_options import (
    AllowHostOption,
    AllowOriginOption,
    DatasetsOption,
    EmbedderOption,
    HostOption,
    KeylessOption,
    PortOption,
    WorkspaceOption,
    announcer,
    workspace_at,
)
from pointsman.tools.errors import InputError


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8081,
    keyless: KeylessOption = False,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    dataset: DatasetsOption = None,
    tools: Annotated[str | None, typer.Option(hidden=True)] = None,
    fitted: Annotated[str | None, typer.Option(hidden=True)] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whom the agent asks as where access is on, without --http."),
    ] = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
) -> None:
    """Let agents search the workspace over the Model Context Protocol.

    An agent starts it and uses standard input and output; with --http it listens at /mcp. It only reads. To listen to
    other machines it needs keys ('pointsman keys create').
    """
    if tools is not None or fitted is not None:
        raise InputError(
            "--tools is gone: give the agent the other servers themselves, or choose among their "
            "tools in Python with pointsman.DescriptionSelector (docs/selectors.md)"
        )
    if principal is not None and http:
        raise InputError("over HTTP the key or token says who asks; --principal is for standard input and output")
    from pointsman.integrations.mcp import serve_http, serve_stdio

    with workspace_at(workspace, embedder, service="serve MCP") as open_workspace:
        if http:
            serve_http(
                open_workspace,
                host=host,
                port=port,
                keyless=keyless,
                hosts=allow_host or (),
                origins=allow_origin or (),
                datasets=dataset,
                on_listening=announcer(workspace),
            )
        else:
            serve_stdio(open_workspace, datasets=dataset, principals=principal)
