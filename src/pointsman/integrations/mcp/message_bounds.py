"""Bounds of what a foreign server may send, checked before it is parsed; see `pointsman.tools.network.json_bounds`.

The SDK's models hold Python's lock several times as long as the parser: for many seconds, if a message were eight
megabytes of empty lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio.to_thread

from pointsman.tools.network.json_bounds import MAX_VALUES, TOO_MANY_VALUES, has_too_many_values, punctuation

MAX_BYTES: Final = 8_000_000
"""Bytes of one message, such as a page of a list of tools."""

_MAX_EVENT_BYTES: Final = 1_000_000
_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_LONGEST_END: Final = 4  # bytes


async def bound_response(response: Any) -> None:
    """Bound the body of a response; a hook for the SDK's HTTP client, called before the body is read.

    A body of JSON is as large as a line of a program; an event of a stream has at most a megabyte, and commas and
    brackets within its texts count as values. Reading more raises the HTTP library's ``StreamError``, and so does a
    compressed body, whose size would not be known.
    """
    library: Any = sys.modules[type(response).__module__.partition(".")[0]]  # its name depends on the SDK's version
    is_event_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
    stream = response.stream
    chunks = _bounded_events(stream) if is_event_stream else _bounded_body(stream)

    class BoundedStream(library.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if is_compressed:
                raise library.StreamError("it is compressed, which was not accepted")
            try:
                async for chunk in chunks:
                    yield chunk
            except ValueError as error:
                raise library.StreamError(str(error)) from error

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = BoundedStream()


async def _bounded_body(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    body = bytearray()
    async for chunk in stream:
        body += chunk
        if len(body) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES // 10**6} MB")
    whole_body = bytes(body)
    if await anyio.to_thread.run_sync(has_too_many_values, whole_body):
        raise ValueError(TOO_MANY_VALUES)
    yield whole_body


async def _bounded_events(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = values = 0
    tail = b""
    async for chunk in stream:
        *_, current = _EVENT_END.split(tail + chunk)
        if len(current) < len(tail + chunk):  # an event has ended
            size = values = 0
        else:
            current = chunk
        size, values, tail = size + len(current), values + punctuation(current), chunk[1 - _LONGEST_END :]
        if size > _MAX_EVENT_BYTES:
            raise ValueError(f"an event is longer than {_MAX_EVENT_BYTES // 10**6} MB")
        if values > MAX_VALUES:
            raise ValueError(TOO_MANY_VALUES)
        yield chunk
