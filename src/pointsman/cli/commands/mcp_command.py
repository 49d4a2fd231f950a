"""`pointsman mcp`: the workspace as tools for agents, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pointsman.cli.shared_options import DatasetsOption, EmbedderOption, WorkspaceOption, announcer, workspace_at
from pointsman.tools.errors import InputError


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; other machines need keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any free port.")] = 8081,
    keyless: Annotated[bool, typer.Option("--open", help="Allow requests from this machine without a key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name to accept besides localhost; may be repeated."),
    ] = None,
    dataset: DatasetsOption = None,
    tools: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Serve the tools of the servers in this file (mcpServers) instead."),
    ] = None,
    fitted: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --tools: a saved fit of a DescriptionSelector."),
    ] = None,
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

    With --tools it offers find_tools and call_tool for the tools of other servers, and no documents; the workspace then
    only stores the keys, and is not needed over standard input and output.
    """
    if fitted is not None and tools is None:
        raise InputError("--fitted needs --tools")
    if tools is not None:
        if dataset:
            raise InputError("--tools serves tools of other servers and no datasets; run another server for --dataset")
        _front(tools, fitted, embedder, workspace, host, port, allow_host or (), http=http, keyless=keyless)
        return
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
                datasets=dataset,
                on_listening=announcer(workspace),
            )
        else:
            serve_stdio(open_workspace, datasets=dataset, principals=principal)


def _front(
    tools: str,
    fitted_path: str | None,
    embedder: str,
    workspace: str,
    host: str,
    port: int,
    hosts: Sequence[str],
    *,
    http: bool,
    keyless: bool,
) -> None:
    """Serve in front of other servers."""
    from pointsman.embedders import CachedEmbedder, default_embedder
    from pointsman.embedders.named_embedders import embedder_for
    from pointsman.integrations.mcp.toolbox import serve_tools_http, serve_tools_stdio
    from pointsman.selector import DescriptionSelector
    from pointsman.selector.fitted_selector import Fitted
    from pointsman.values.settings import Settings

    fitted_selector = None if fitted_path is None else Fitted.read(fitted_path)
    model = embedder_for(Settings.load(), embedder) or default_embedder()
    selector = DescriptionSelector(CachedEmbedder(model), fitted=fitted_selector)
    if not http:
        serve_tools_stdio(tools, selector)
        return
    with workspace_at(workspace, embedder, service="serve MCP") as open_workspace:
        serve_tools_http(
            tools,
            selector,
            open_workspace,
            host=host,
            port=port,
            keyless=keyless,
            hosts=hosts,
            on_listening=announcer(workspace),
        )
