"""Foreign servers: read from the usual configuration, each with a connection that recovers by itself."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import checkpoint

from pointsman.integrations.mcp import mcp_sdk as sdk
from pointsman.integrations.mcp.answer_values import cut, sound
from pointsman.integrations.mcp.checking import SchemaChecker
from pointsman.tools.errors import InputError, PointsmanError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

MAX_SERVERS: Final = 100
MAX_TOOLS: Final = 10_000
"""Tools of one server."""

_NAME_CHARS: Final = 64
_TOOL_CHARS: Final = 200  # of a tool's name
_SCHEMA_CHARS: Final = 50_000
_CHECKING: Final = 120.0  # seconds for all schemas of one server that were not checked before
_REFRESH: Final = 60.0  # seconds after which tools are listed again, which also shows whether the server is alive
_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 60.0)  # seconds before the next attempt, by number of failures


class AwayError(PointsmanError):
    """A server does not answer."""


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A tool of a foreign server.

    Attributes:
        server: name of its server.
        name: name on that server.
        description: the server's description of the tool; untrusted.
        schema: JSON schema of the arguments.
    """

    server: str
    name: str
    description: str
    schema: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        """Return its name among the tools of all servers."""
        return f"{self.server}/{self.name}"


@dataclass(slots=True)
class Upstream:
    """One server: its tools, and whether it is available.

    Attributes:
        name: name in the configuration.
        place: where it is.
        timeout: seconds for one request.
        tools: by name; if the server is unavailable, those that it listed last.
        left_out: why other tools that it lists cannot be offered, by name.
        why_away: why it is unavailable; None while it answers.
        tried: set after the first answer or failure.
    """

    name: str
    place: sdk.Program | sdk.ServerAddress
    timeout: float
    tools: dict[str, ForeignTool] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    why_away: str | None = "it is being started"
    tried: anyio.Event = field(default_factory=anyio.Event)
    _connection: sdk.Connection | None = None
    _lost: anyio.Event = field(default_factory=anyio.Event)
    _checked: dict[str, str | None] = field(default_factory=dict)  # schema as text -> why it cannot be used

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        failures = 0
        while True:
            self._lost = anyio.Event()
            try:
                await self._converse()
            except Exception as error:  # noqa: BLE001  (any fault of a foreign server makes it unavailable)
                failures = 1 if self.why_away is None else failures + 1
                self._away(error)
            self._connection = None
            self.tried.set()
            await anyio.sleep(_PAUSES[min(failures, len(_PAUSES)) - 1])

    async def _converse(self) -> None:
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.timeout
            async with sdk.connected(self.place) as connection:
                while True:
                    listing = await connection.tools(MAX_TOOLS)
                    scope.deadline = float("inf")
                    self.tools = await self._usable(listing)
                    self._connection, self.why_away = connection, None
                    self.tried.set()
                    with anyio.move_on_after(_REFRESH):
                        await self._lost.wait()
                        raise AwayError("the connection was lost")
                    scope.deadline = anyio.current_time() + self.timeout
        raise TimeoutError(f"no answer within {self.timeout:g} seconds")

    async def _usable(self, listing: sdk.ToolListing) -> dict[str, ForeignTool]:
        """Return the tools that can be offered, by name; for each of the others, the reason is logged once.

        Each schema is checked once, as long as the server lists it unchanged.
        """
        verdicts, self._checked = self._checked, {}
        tools: dict[str, ForeignTool] = {}
        reasons = dict(listing.refused)
        deadline = anyio.current_time() + _CHECKING
        async with SchemaChecker() as checker:
            for definition in listing.tools:
                await checkpoint()  # ten thousand known ones take a while
                tool, text = _tool(self.name, definition)
                if tool is None:
                    reasons[definition["name"]] = "its name or its schema is too long"
                    continue
                reason = verdicts.get(text)
                if text in verdicts or anyio.current_time() < deadline:
                    reason = self._checked[text] = reason if text in verdicts else await _complaint(checker, tool)
                else:
                    reason = f"the schemas of its server take longer than {_CHECKING:g} seconds to check"
                if reason is None:
                    tools[tool.name] = tool
                else:
                    reasons[tool.name] = reason
        self._say(reasons)
        return tools

    def _say(self, reasons: Mapping[str, str]) -> None:
        for name, reason in reasons.items():
            if self.left_out.get(name) != reason:
                log.warning("tool %s/%.80s is left out until its server mends it: %.200s", self.name, name, reason)
        self.left_out = dict(reasons)

    async def call(self, tool: str, arguments: sdk.Wire) -> sdk.Wire:
        """Call a tool and return its result.

        Raises:
            AwayError: the server is unavailable, or does not answer in time.
        """
        if self._connection is None:
            raise AwayError(f"server {self.name!r} does not answer: {self.why_away}")
        try:
            with anyio.fail_after(self.timeout):
                return await self._connection.call(tool, arguments)
        except TimeoutError:
            raise AwayError(f"{self.name}/{tool} gave no answer within {self.timeout:g} seconds") from None
        except Exception as error:
            if isinstance(error, ValueError | RecursionError):  # the answer of this call; the connection is sound
                log.warning("the answer of %s/%.80s cannot be read: %s", self.name, tool, type(error).__name__)
                return sdk.result(f"the answer of {self.name}/{tool} does not follow the protocol", is_error=True)
            if not sdk.is_answer(error):
                self._away(error)
                self._lost.set()
                raise AwayError(f"server {self.name!r} does not answer: {self.why_away}") from error
            return sdk.result(cut(str(error), 1_000), is_error=True)

    def _away(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):  # raised by several tasks of the SDK at once
            error = error.exceptions[0]
        log.warning("server %s does not answer: %s: %s", self.name, type(error).__name__, error)
        self.why_away = _reason(error)


def _reason(error: BaseException) -> str:
    """Return the reason for an agent: of most errors only the type, since the rest may name files and addresses."""
    if isinstance(error, AwayError | TimeoutError):
        return "it does not answer"
    if isinstance(error, sdk.UnreadableListError):
        return str(error)
    return f"it cannot be reached ({type(error).__name__})"


def _tool(server: str, definition: sdk.Wire) -> tuple[ForeignTool | None, str]:
    """Return a tool whose schema is still to be checked, and its schema as text; None if one of them is too long."""
    name, schema = definition["name"], definition.get("inputSchema") or {"type": "object"}
    try:
        text = json.dumps(schema)
    except (RecursionError, ValueError):
        return None, ""
    if not 0 < len(name) <= _TOOL_CHARS or len(text) > _SCHEMA_CHARS:
        return None, ""
    description = sound(definition.get("description") or definition.get("title") or "")
    return ForeignTool(server, sound(name), description, schema), text


async def _complaint(checker: SchemaChecker, tool: ForeignTool) -> str | None:
    """Return why a tool's schema cannot be used; None if it can."""
    try:
        await checker.check_schema(tool.schema)
    except InputError as error:
        return str(error)
    return None


def read_servers(path: str | Path, timeout: float) -> list[Upstream]:
    """Read the servers from a file like agents' configurations: ``{"mcpServers": {NAME: {…}}}``.

    Each has ``command`` with ``args``, ``env`` and ``cwd``, or ``url`` with ``headers``. Servers with
    ``"disabled": true`` and unknown members are ignored.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict) or not servers or len(servers) > MAX_SERVERS:
        raise InputError(f"{path}: an object with mcpServers is wanted, of 1 to {MAX_SERVERS} servers by name")
    targets = {name: _place(f"{path}: server {name!r:.80}", name, entry) for name, entry in servers.items()}
    upstreams = [Upstream(name, target, timeout) for name, target in targets.items() if target is not None]
    if not upstreams:
        raise InputError(f"{path}: all servers are disabled")
    return upstreams


def _place(location: str, name: str, entry: Any) -> sdk.Program | sdk.ServerAddress | None:
    if not name or len(name) > _NAME_CHARS or "/" in name or not name.isprintable():
        raise InputError(f"{location}: a name is 1 to {_NAME_CHARS} characters without '/'")
    if not isinstance(entry, dict) or ("command" in entry) == ("url" in entry):
        raise InputError(f"{location}: an object with either command or url is wanted")
    text = partial(_text, location, entry)
    if entry.get("disabled") is True:
        return None
    if "url" in entry:
        url = text("url")
        if not url.startswith(("https://", "http://")):
            raise InputError(f"{location}: url begins with https:// or http://")
        if entry.get("type", "http") == "sse" or entry.get("transport") == "sse":
            raise InputError(f"{location}: the transport 'sse' is not spoken; streamable HTTP is")
        return sdk.ServerAddress(url, _texts(location, entry, "headers"))
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(argument, str) for argument in args):
        raise InputError(f"{location}: args is a list of texts")
    cwd = text("cwd") if entry.get("cwd") is not None else None
    return sdk.Program(text("command"), tuple(args), _texts(location, entry, "env") or None, cwd)


def _text(location: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value or "\0" in value:
        raise InputError(f"{location}: {key} is a text")
    return value


def _texts(location: str, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InputError(f"{location}: {key} is an object of texts")
    return value
