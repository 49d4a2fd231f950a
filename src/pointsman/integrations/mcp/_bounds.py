"""Bounds of what a foreign server may send, checked before it is parsed.

A parser holds Python's lock until it has read a whole message, and so do the SDK's models, several times over. Eight
megabytes of empty lists would hold it for many seconds, in which nobody is answered: it is the number of values that
takes time, not their length.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio.to_thread

MAX_BYTES: Final = 8_000_000
"""Bytes of one message, such as a page of a list of tools."""

MAX_VALUES: Final = 100_000
"""Values of one message: elements of lists and members of objects."""

TOO_MANY_VALUES: Final = f"it has more than {MAX_VALUES:,} values"
"""Why a message is refused."""

_MAX_EVENT_BYTES: Final = 1_000_000
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # may lack its end: no search is repeated
_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_LONGEST_END: Final = 4  # bytes


def has_too_many_values(text: bytes) -> bool:
    """Whether JSON has more than `MAX_VALUES` values; in linear time, without parsing it.

    >>> has_too_many_values(b"[" + b"0, " * 200_000), has_too_many_values(b'"' + b"0, " * 200_000 + b'"')
    (True, False)
    """
    return _punctuation(text) > MAX_VALUES and _punctuation(_STRING.sub(b"", text)) > MAX_VALUES


def _punctuation(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


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
        size, values, tail = size + len(current), values + _punctuation(current), chunk[1 - _LONGEST_END :]
        if size > _MAX_EVENT_BYTES:
            raise ValueError(f"an event is longer than {_MAX_EVENT_BYTES // 10**6} MB")
        if values > MAX_VALUES:
            raise ValueError(TOO_MANY_VALUES)
        yield chunk
