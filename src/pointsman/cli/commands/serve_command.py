"""`pointsman serve`: the HTTP service."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pointsman.cli.shared_options import (
    AllowHostOption,
    AllowOriginOption,
    EmbedderOption,
    HostOption,
    KeylessOption,
    PortOption,
    WorkspaceOption,
    announcer,
)
from pointsman.tools.errors import InputError, MissingDependencyError
from pointsman.tools.system.locations import is_service, redacted


def serve(
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 1,
    keyless: KeylessOption = False,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Such as max_k=100 or requests_per_minute=0; may be repeated."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file instead of ./pointsman.toml.")
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
    log_json: Annotated[
        bool | None,
        typer.Option(
            "--log-json/--log-text",
            help="Log a JSON object or a text per line.",
            show_default="text on a terminal, else JSON",
        ),
    ] = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
) -> None:
    """Serve the workspace over HTTP, with a console at /.

    By default it listens only to this machine; to listen to others it needs keys ('pointsman keys create'). Once a key
    has existed, every request needs one, unless --open is given. SIGTERM stops it when running requests have ended.
    Settings are read at the start.
    """
    if is_service(workspace):
        raise InputError(f"{redacted(workspace)} is already a service; give the location of its workspace")
    try:
        from pointsman.service.server.run import Options
        from pointsman.service.server.run import serve as run
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0].replace("starlette", "fastapi")  # which brings starlette
        raise MissingDependencyError(package, "server", "pointsman serve") from error

    if log_json is None:
        log_json = not sys.stderr.isatty()
    options = Options(
        workspace=workspace,
        host=host,
        port=port,
        workers=workers,
        keyless=keyless,
        hosts=allow_host or (),
        origins=allow_origin or (),
        settings=str(settings) if settings is not None else None,
        embedder=None if embedder == "default" else embedder,
        limits=_limits(limit or ()),
        log_level=log_level,
        log_json=log_json,
    )

    run(options, on_listening=announcer(workspace) if log_json else None)  # as text, the log says it


def _limits(options: list[str] | tuple[()]) -> dict[str, Any]:
    from pointsman.service.server.protocol.request_limits import Limits

    names = [field.name for field in fields(Limits)]
    values: dict[str, Any] = {}
    for text in options:
        name, _, value = text.partition("=")
        try:
            values[name] = float(value) if name.endswith("_seconds") else int(value)
        except ValueError:
            raise InputError(f"a limit is given as NAME=NUMBER, not {text!r}") from None
        if name not in names:
            raise InputError(f"there is no limit {name!r}; there are {', '.join(names)}")
    return values
