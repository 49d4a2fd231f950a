"""What we use of the Model Context Protocol's Python SDK; tools and results are plain JSON in the protocol's form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from pointsman.tools.errors import DependencyVersionError, MissingDependencyError

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import Receive, Scope, Send

PACKAGE: Final = "mcp"
USABLE: Final = "from 2.3 up to 2.x"
_FOR: Final = "the Model Context Protocol"


def check_version(number: str) -> tuple[int, int]:
    """Parse the SDK's version.

    Raises:
        DependencyVersionError: the version is not supported.
    """
    version = [int(component) if component.isdigit() else 0 for component in (*number.split("."), "0")[:2]]
    numbers = version[0], version[1]
    if not (2, 3) <= numbers < (3, 0):
        raise DependencyVersionError(PACKAGE, number, USABLE, "mcp", _FOR)
    return numbers


try:
    VERSION: Final = check_version(version(PACKAGE))
    """Version of the installed SDK: its first two numbers."""
    from mcp import types
    from mcp.server.lowlevel import Server as SdkServer
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import MCPError
except PackageNotFoundError as error:
    raise MissingDependencyError(PACKAGE, "mcp", _FOR) from error
except DependencyVersionError:
    raise
except ImportError as error:
    raise MissingDependencyError(error.name or PACKAGE, "mcp", _FOR) from error

Wire = dict[str, Any]
"""A part of a message in the protocol's form."""


class UnknownToolError(Exception):
    """The called tool does not exist: an error of the protocol, not of a tool."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The functions with which our server answers.

    Attributes:
        tools: returns the definitions of the tools.
        call: returns a tool's result for its name, its arguments and the request's ASGI scope (empty unless the request
            came over HTTP). Raises `UnknownToolError`.
    """

    tools: Callable[[], Sequence[Wire]]
    call: Callable[[str, Wire, Mapping[str, Any]], Awaitable[Wire]]


def result(text: str, content: Wire | None = None, *, is_error: bool = False) -> Wire:
    """Return a tool's result."""
    structured_field = {} if content is None else {"structuredContent": content}
    return {"content": [{"type": "text", "text": text}], "isError": is_error, **structured_field}


def server_of(name: str, title: str, number: str, instructions: str, handlers: Handlers) -> Server[Any]:
    """Create a server for any transport of the SDK."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": handlers.tools()})

    async def call_tool(context: Any, request: Any) -> types.CallToolResult:
        scope = {} if context.request is None else context.request.scope
        try:
            answer = await handlers.call(request.name, dict(request.arguments or {}), scope)
        except UnknownToolError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return types.CallToolResult.model_validate(answer)

    def schema(tool: str) -> Mapping[str, Any] | None:
        return next(
            (description["inputSchema"] for description in handlers.tools() if description["name"] == tool), None
        )

    return SdkServer(
        name,
        version=number,
        title=title,
        instructions=instructions,
        get_tool_input_schema=schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the program that started this one until it closes the connection."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class HttpEndpoint:
    """A server over streamable HTTP as an ASGI application, without sessions.

    Args:
        server: the server.
        max_body_bytes: largest body of a request.
    """

    def __init__(self, server: Server[Any], max_body_bytes: int) -> None:
        self._manager = StreamableHTTPSessionManager(
            server,
            stateless=True,
            # The checks in front of it compare hosts and origins more strictly, and know the allowed names.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=max_body_bytes,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._manager.handle_request(scope, receive, send)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context within which requests are answered."""
        return self._manager.run()
