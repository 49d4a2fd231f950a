"""Transports of a server: standard input and output, or streamable HTTP behind the checks of our service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from pointsman.integrations.mcp import mcp_sdk as sdk

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.service.server.run import Options

PATH: Final = "/mcp"
"""Path of the server over HTTP."""


@dataclass(frozen=True, slots=True)
class McpService:
    """A server and its background tasks.

    Attributes:
        server: answers requests.
        running: a context entered before the first request and left after the last one.
    """

    server: Server[Any]
    running: Callable[[], AbstractAsyncContextManager[None]]


def over_stdio(service: McpService) -> None:
    """Serve the program that started this one until it closes the connection; logs go to standard error."""
    from pointsman.service.server.run import freeze_loaded_objects

    async def serve() -> None:
        async with service.running():
            await sdk.serve_stdio(service.server)

    freeze_loaded_objects()
    anyio.run(serve)


def http_app(service: McpService, max_body_bytes: int) -> Starlette:
    """Return the server at `PATH`, with a probe and without any check."""
    endpoint = sdk.HttpEndpoint(service.server, max_body_bytes)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        async with service.running(), endpoint.running():
            yield

    routes = [Route(PATH, endpoint, methods=["POST"]), Route("/health", _health)]
    return Starlette(routes=routes, lifespan=running)


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


def listen(app: ASGIApp, options: Options, keys: KeyStore, on_listening: Callable[[str], None] | None) -> None:
    """Serve an application until stopped by SIGTERM or SIGINT; running calls are completed first.

    Args:
        app: the application.
        options: where to listen, and for whom.
        keys: the API keys.
        on_listening: called with the address once it is bound.

    Raises:
        InputError: the address cannot be bound, or others could reach a service without keys.
    """
    from pointsman.service.server.run import announced, configure, freeze_loaded_objects, run_server

    with announced(options, keys, on_listening, PATH) as listening:
        freeze_loaded_objects()
        run_server(configure(app), listening)
