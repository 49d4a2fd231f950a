"""The differences between versions 1 and 2 of the Model Context Protocol's Python SDK, and nothing else.

Tools and results are passed as plain JSON in the protocol's form: both SDKs read and write it, although their classes
name the attributes differently.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint_if_cancelled
from pydantic import ValidationError

from pointsman.integrations.mcp.message_bounds import bound_response
from pointsman.tools.errors import DependencyVersionError, MissingDependencyError
from pointsman.tools.network.json_bounds import TOO_MANY_VALUES
from pointsman.tools.system.processes import NEUTRAL_FOLDER, search_path

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import Receive, Scope, Send

PACKAGE: Final = "mcp"
USABLE: Final = "from 1.24 up to 1.x, or from 2.3 up to 2.x"
_FOR: Final = "the Model Context Protocol"


def check_version(number: str) -> tuple[int, int]:
    """Parse the SDK's version.

    Raises:
        DependencyVersionError: the version is not supported.
    """
    version = [int(component) if component.isdigit() else 0 for component in (*number.split("."), "0")[:2]]
    numbers = version[0], version[1]
    if not ((1, 24) <= numbers < (2, 0) or (2, 3) <= numbers < (3, 0)):
        raise DependencyVersionError(PACKAGE, number, USABLE, "mcp", _FOR)
    return numbers


try:
    VERSION: Final = check_version(version(PACKAGE))
    """Version of the installed SDK: its first two numbers."""
    from mcp import types
    from mcp.server.lowlevel import Server as _Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
except PackageNotFoundError as error:
    raise MissingDependencyError(PACKAGE, "mcp", _FOR) from error
except DependencyVersionError:
    raise
except ImportError as error:
    raise MissingDependencyError(error.name or PACKAGE, "mcp", _FOR) from error

MODERN: Final = VERSION >= (2, 0)
"""Whether the SDK is version 2, which also supports the protocol without sessions."""

_CONNECTION_CLOSED: Final = -32000
_LATEST_WITH_SESSIONS: Final = "2025-11-25"  # version of the protocol
_USED: Final = ("name", "title", "description", "inputSchema")  # of the definition of a foreign tool
_NAME_CHARS: Final = 80  # of a refused tool

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


def result(text: str, structured: Wire | None = None, *, is_error: bool = False) -> Wire:
    """Return a tool's result."""
    structured_field = {} if structured is None else {"structuredContent": structured}
    return {"content": [{"type": "text", "text": text}], "isError": is_error, **structured_field}


def server_of(name: str, title: str, number: str, instructions: str, handlers: Handlers) -> Server[Any]:
    """Create a server for any transport of the SDK."""
    make = _modern if MODERN else _first
    return cast("Server[Any]", make(name, title, number, instructions, handlers))


def _modern(name: str, title: str, number: str, instructions: str, handlers: Handlers) -> Any:
    from mcp.shared.exceptions import MCPError

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

    return _Server(
        name,
        version=number,
        title=title,
        instructions=instructions,
        get_tool_input_schema=schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class _FirstServer(cast("type[Any]", _Server)):  # type: ignore[misc]
    """Version 1's server, which ends if a call is cancelled while its answer is being sent.

    Its responder enters a cancel scope and drops what the scope's ``__exit__`` returns, so the cancellation leaves the
    call's task, and anyio cancels all the others with it.
    """

    async def _handle_message(self, message: Any, *arguments: Any) -> None:
        try:
            await super()._handle_message(message, *arguments)
        except anyio.get_cancelled_exc_class():
            if not getattr(message, "cancelled", False):
                raise  # the connection is closed


def _first(name: str, _: str, number: str, instructions: str, handlers: Handlers) -> Any:
    from mcp.shared import exceptions

    models: Any = types  # with the names of version 1
    server: Any = _FirstServer(name, version=number, instructions=instructions)

    async def list_tools(_: Any) -> Any:
        return models.ServerResult(models.ListToolsResult.model_validate({"tools": handlers.tools()}))

    async def call_tool(request: Any) -> Any:
        http = server.request_context.request
        parameters = request.params
        try:
            answer = await handlers.call(
                parameters.name, dict(parameters.arguments or {}), {} if http is None else http.scope
            )
        except UnknownToolError as error:
            data = models.ErrorData(code=models.INVALID_PARAMS, message=str(error))
            raise cast("Any", exceptions).McpError(data) from error
        # A cancelled call goes on when its thread ends; the SDK has answered it, and a second answer ends the server.
        await checkpoint_if_cancelled()
        return models.ServerResult(models.CallToolResult.model_validate(answer))

    server.request_handlers[models.ListToolsRequest] = list_tools
    server.request_handlers[models.CallToolRequest] = call_tool
    return server


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
        parameters = signature(StreamableHTTPSessionManager).parameters
        options: dict[str, Any] = {"max_request_body_size": max_body_bytes}
        self._manager = StreamableHTTPSessionManager(
            server,
            stateless=True,
            # The checks in front of it compare hosts and origins more strictly, and know the allowed names.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            **{name: value for name, value in options.items() if name in parameters},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._manager.handle_request(scope, receive, send)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context within which requests are answered."""
        return self._manager.run()


# ── client ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def load_client() -> None:
    """Import what the client needs before requests are answered: in the event loop that would hold up all of them."""
    import mcp.client.session
    import mcp.client.streamable_http  # noqa: F401

    import pointsman.integrations.mcp.program  # noqa: F401

    if MODERN:
        import mcp_types.methods  # noqa: F401

    _ToolLists().usable([{"name": "first", "inputSchema": {"type": "object"}}])  # compiles the SDK's models


@dataclass(frozen=True, slots=True)
class Program:
    """A server to start, reached over its standard input and output.

    The command is looked up in the absolute folders of ``PATH``. Without ``cwd`` it starts in the root folder, as the
    current one may hold files that it would run.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server reached over streamable HTTP."""

    url: str
    headers: Mapping[str, str] | None = None


class UnreadableListError(Exception):
    """A server's list of tools is not JSON that the SDK reads; the message names no file and no address."""


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server.

    Attributes:
        tools: definitions in the protocol's form, with name, title, description and ``inputSchema`` only.
        refused: names of the tools that the SDK would refuse together with all the others, and why.
    """

    tools: list[Wire]
    refused: dict[str, str]


class Connection:
    """A connection to a foreign server.

    Args:
        client: the SDK's client.
        lists: passes the messages on to it.
    """

    def __init__(self, client: Any, lists: _ToolLists) -> None:
        self._client, self._lists = client, lists

    async def tools(self, most: int) -> ToolListing:
        """Return its tools, at most ``most``.

        Raises:
            UnreadableListError: a page of the list cannot be read at all.
        """
        wires: list[Wire] = []
        cursor: str | None = None
        self._lists.begin(getattr(self._client, "protocol_version", _LATEST_WITH_SESSIONS))
        try:
            while len(wires) < most:
                page = await self._client.list_tools(**_after(cursor))
                wires += await anyio.to_thread.run_sync(lambda tools: [_plain(tool) for tool in tools], page.tools)
                following = getattr(page, "next_cursor" if MODERN else "nextCursor")
                if not following or following == cursor or not page.tools:
                    break
                cursor = following
        except Exception as error:
            if is_answer(error) and str(error).endswith(TOO_MANY_VALUES):
                raise UnreadableListError(f"its list of tools cannot be read: {TOO_MANY_VALUES} on one page") from error
            raise
        finally:
            refused = self._lists.end()
        return ToolListing(wires[:most], refused)

    async def call(self, name: str, arguments: Wire) -> Wire:
        """Call a tool and return its result."""
        return _plain(await self._client.call_tool(name, arguments))


class _ToolLists:
    """Passes a server's messages on, and leaves out of its lists of tools what the SDK cannot take.

    The SDK refuses a whole list for one tool. It also evaluates each ``outputSchema`` in the event loop, which a
    hostile one would stop for minutes: nothing here needs them, nor pictures and annotations, so only what is used is
    passed on.
    """

    def __init__(self) -> None:
        self._listing = False
        self._version = _LATEST_WITH_SESSIONS
        self._refused: dict[str, str] = {}

    def begin(self, version: str) -> None:
        """Expect lists, in this version of the protocol."""
        self._listing, self._version, self._refused = True, version, {}

    def end(self) -> dict[str, str]:
        """Expect no more lists; returns the names of refused tools, with the reasons."""
        self._listing = False
        return self._refused

    @asynccontextmanager
    async def through(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Any, Any]]:
        """Wrap a transport of the SDK."""
        async with transport as (incoming, outgoing, *_):
            sender, receiver = anyio.create_memory_object_stream[Any](0)

            async def forward() -> None:
                async with sender:
                    async for message in incoming:
                        await self._clean(message)
                        try:
                            await sender.send(message)
                        except anyio.BrokenResourceError:  # the client has closed it
                            return

            async with sender, receiver, anyio.create_task_group() as group:
                group.start_soon(forward)
                yield receiver, outgoing
                group.cancel_scope.cancel()

    async def _clean(self, message: Any) -> None:
        if not self._listing:
            return
        if isinstance(message, Exception):
            raise UnreadableListError(
                "its list of tools cannot be read: it is not JSON, nested too deeply, or longer than 8 MB on one page"
            ) from message
        body = message.message
        result = getattr(body if MODERN else body.root, "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = await anyio.to_thread.run_sync(self.usable, result["tools"])

    def usable(self, tools: Sequence[Any]) -> list[Wire]:
        """Return the definitions that the SDK takes, and note the others."""
        usable: list[Wire] = []
        for tool in tools:
            fields = tool if isinstance(tool, dict) else {}
            wire = {name: fields[name] for name in _USED if fields.get(name) is not None}
            reason = self._complaint(wire)
            if reason is None:
                usable.append(wire)
            else:
                self._refused[str(fields.get("name"))[:_NAME_CHARS]] = reason
        return usable

    def _complaint(self, wire: Wire) -> str | None:
        """Return why the SDK would refuse a list with this tool; None if it would not."""
        from pointsman.integrations.mcp.program import NOT_UNICODE, TOO_DEEP

        single_list: Wire = {"tools": [wire], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        try:
            text = json.dumps(wire, ensure_ascii=False)
            if TOO_DEEP in text:
                return "its schema is nested too deeply"
            if NOT_UNICODE in text:
                return "its definition is not Unicode"
            _plain(types.ListToolsResult.model_validate(single_list))
            if MODERN:
                from mcp_types.methods import validate_server_result

                validate_server_result("tools/list", self._version, single_list)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            return f"{'.'.join(map(str, first['loc'][2:])) or 'the tool'}: {first['msg']}"
        except (ValueError, RecursionError) as error:
            return f"it cannot be written as JSON: {error}"
        return None


def is_answer(error: Exception) -> bool:
    """Whether an error is an answer of a server rather than a lost connection."""
    from mcp.shared import exceptions

    kind: type[Exception] = getattr(exceptions, "MCPError" if MODERN else "McpError")
    return isinstance(error, kind) and error.error.code != _CONNECTION_CLOSED  # type: ignore[attr-defined]  # see above


def _after(cursor: str | None) -> Wire:
    if cursor is None:
        return {}
    return {"cursor": cursor} if MODERN else {"params": types.PaginatedRequestParams(cursor=cursor)}


def _plain(value: Any) -> Wire:
    plain: Wire = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


@asynccontextmanager
async def connected(place: Program | ServerAddress) -> AsyncIterator[Connection]:
    """Connect to a server.

    A program gets the few environment variables that every program needs and the configured ones; its standard error
    goes to ours.
    """
    if isinstance(place, Program):
        async with _client(_started(place)) as connection:
            yield connection
    else:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        headers = {**(place.headers or {}), "accept-encoding": "identity"}  # nothing expands after it was measured
        async with create_mcp_http_client(headers=headers) as http:
            http.event_hooks = {"response": [bound_response]}
            async with _client(streamable_http_client(place.url, http_client=http)) as connection:
                yield connection


def _started(place: Program) -> AbstractAsyncContextManager[Any]:
    """Return the transport to a program."""
    env = {"PATH": search_path()} | dict(place.env or {})
    cwd = place.cwd or NEUTRAL_FOLDER
    if sys.platform == "win32":  # which looks commands up in ways of its own
        from mcp import StdioServerParameters, stdio_client

        return stdio_client(StdioServerParameters(command=place.command, args=list(place.args), env=env, cwd=cwd))
    from pointsman.integrations.mcp import program

    return program.running([place.command, *place.args], env, cwd)


@asynccontextmanager
async def _client(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Connection]:
    """Create the SDK's client over a transport; version 2 detects the server's protocol version."""
    lists = _ToolLists()
    if MODERN:
        from mcp import Client

        async with Client(lists.through(transport)) as client:
            yield Connection(client, lists)
    else:
        from mcp import ClientSession

        async with lists.through(transport) as (incoming, outgoing), ClientSession(incoming, outgoing) as client:
            await client.initialize()
            yield Connection(client, lists)
