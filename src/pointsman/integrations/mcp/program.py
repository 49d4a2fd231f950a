"""A foreign server as a program: its standard output is read in bounded lines, which are parsed in a thread.

The SDK parses in the event loop, lines of any length, and refuses a line in which anything is nested deeply; a server
with many tools would stop all others meanwhile, and one deep schema would cost all its tools.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from mcp import types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from pointsman.integrations.mcp.message_bounds import MAX_BYTES
from pointsman.tools.network.json_bounds import TOO_MANY_VALUES, has_too_many_values

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ObjectReceiveStream, ObjectSendStream, Process

TOO_DEEP: Final = "…nested too deeply…"
"""Stands where a message of a foreign server was nested deeper than the SDK reads."""

NOT_UNICODE: Final = "…not Unicode…"
"""Stands where a message of a foreign server held half of a surrogate pair, or bytes that are not UTF-8."""

_DEPTH: Final = 150  # of brackets; pydantic reads 200
_EXIT: Final = 2.0  # seconds for a program to end by itself, and after a signal
_STRUCTURE: Final = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL
)  # a string may lack its end: no search is repeated
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..|[\udc80-\udcff]+)|\\.", re.DOTALL
)  # a pair; half of one, or bytes that could not be decoded; any other escape


@asynccontextmanager
async def running(
    command: Sequence[str], env: Mapping[str, str], cwd: str
) -> AsyncIterator[tuple[ObjectReceiveStream[Any], ObjectSendStream[Any]]]:
    """Start a program, and end it with its children at the end of the block; a transport of the SDK.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        command, stderr=None, env=get_default_environment() | dict(env), cwd=cwd, start_new_session=True
    )
    assert process.stdout is not None
    sender, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, sending = anyio.create_memory_object_stream[Any](0)
    try:
        async with sender, incoming, outgoing, sending, anyio.create_task_group() as group:
            group.start_soon(_receive, process.stdout, sender)
            group.start_soon(_send, sending, process, incoming)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _receive(stdout: ByteReceiveStream, sender: ObjectSendStream[Any]) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # one of both sides has ended
        async with sender:
            async for line in lines(stdout):
                await sender.send(await anyio.to_thread.run_sync(message_of, line))


async def lines(stdout: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Return the lines; of a line that is too long the beginning, which is no message."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in stdout:
        *ends, remainder = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*chunks, end])[: MAX_BYTES + 1]
            chunks, size = [], 0
        if size <= MAX_BYTES:
            chunks.append(remainder)
            size += len(remainder)


def message_of(line: bytes) -> SessionMessage | ValueError:
    """Parse a line; returns the error if it is no message.

    What the SDK cannot read although it is well formed is replaced by `NOT_UNICODE` and `TOO_DEEP`, so that one tool
    does not cost its server all the others. A response with too many values becomes an error.
    """
    if len(line) <= MAX_BYTES and has_too_many_values(line):
        return _refused(line)
    result = _message(line)
    for repair in (with_unicode_only, pruned):
        if isinstance(result, SessionMessage) or len(line) > MAX_BYTES:
            break
        line = repair(line)
        result = _message(line)
    return result


def _refused(line: bytes) -> SessionMessage | ValueError:
    """Return an error instead of a response with too many values, of which only the outermost object is parsed."""
    outline = pruned(line, 2)
    try:
        if has_too_many_values(outline):
            raise ValueError("too many values")
        number = json.loads(outline)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ValueError(TOO_MANY_VALUES)
    error = {"code": types.INTERNAL_ERROR, "message": f"the message of the server cannot be read: {TOO_MANY_VALUES}"}
    return _message(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


def _message(line: bytes) -> SessionMessage | ValueError:
    try:
        return SessionMessage(_parsed(line))
    except ValueError as error:
        return error


def _parsed(line: bytes) -> Any:
    adapter = getattr(types, "jsonrpc_message_adapter", None)  # version 2 of the SDK
    return types.JSONRPCMessage.model_validate_json(line) if adapter is None else adapter.validate_json(line)  # type: ignore[attr-defined]


def with_unicode_only(line: bytes) -> bytes:
    """Return JSON with `NOT_UNICODE` instead of what no Unicode text can hold; in linear time."""
    text = line.decode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda escape: NOT_UNICODE if escape[1] else escape[0], text).encode()


def pruned(line: bytes, limit: int = _DEPTH) -> bytes:
    """Return JSON with `TOO_DEEP` instead of lists and objects within more than ``limit`` others; in linear time."""
    remaining: list[bytes] = []
    depth = start = 0
    for token in _STRUCTURE.finditer(line):
        if token[0] in b"[{":
            depth += 1
            if depth == limit:
                remaining += [line[start : token.start()], f'"{TOO_DEEP}"'.encode()]
        elif token[0] in b"]}":
            depth -= 1
            if depth == limit - 1:
                start = token.end()
    return b"".join([*remaining, line[start:]]) if depth == 0 else line


async def _send(sending: ObjectReceiveStream[Any], process: Process, incoming: ObjectReceiveStream[Any]) -> None:
    assert process.stdin is not None
    try:
        async for message in sending:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(text.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await incoming.aclose()  # who waits for an answer learns that there will be none


async def _stop(process: Process) -> None:
    """End a program: its input is closed; if it goes on, it and its children get signals."""
    if process.stdin is not None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
    for ending in (None, signal.SIGTERM, signal.SIGKILL):
        if ending is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, ending)
        with anyio.move_on_after(_EXIT):
            await process.wait()
            break
    await process.aclose()
