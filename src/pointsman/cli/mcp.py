"""`pointsman mcp`: the workspace as tools for agents, by the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from pointsman.cli.common import DatasetsOption, EmbedderOption, WorkspaceOption, announcer, workspace_at


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Over HTTP, instead of standard input and output.")] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine only with keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any that is free.")] = 8081,
    keyless: Annotated[
        bool, typer.Option("--open", help="Let everybody on this machine in without a key, whatever keys there are.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name it is served under, beside localhost; may be repeated."),
    ] = None,
    dataset: DatasetsOption = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
) -> None:
    """Let agents search the workspace, by the Model Context Protocol.

    Started by an agent, it speaks over standard input and output; with --http it listens, at /mcp. It only reads. Over
    HTTP it needs keys ('pointsman keys create') to listen beyond this machine.
    """
    from pointsman.integrations.mcp import serve_http, serve_stdio

    with workspace_at(workspace, embedder, service="speak MCP") as opened:
        if http:
            serve_http(
                opened,
                host=host,
                port=port,
                keyless=keyless,
                hosts=allow_host or (),
                datasets=dataset,
                on_listening=announcer(workspace),
            )
        else:
            serve_stdio(opened, datasets=dataset)
