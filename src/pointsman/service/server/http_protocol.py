"""HTTP as uvicorn speaks it, with limits of time and number for connections, and strict about what is unreadable.

A connection that waits for something has a deadline: for the head of a request (`Limits.head_seconds`), for the next
request (`Limits.idle_seconds`), for its client to take more of an answer (`Limits.write_seconds`).
`pointsman.service.server.protocol.request_body.Bodies` has those for bodies.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pointsman.service.server.access.rate_limits import address_of
from pointsman.service.server.protocol.headers import API_HEADERS
from pointsman.service.server.protocol.problems import MEDIA_TYPE, HttpProblem
from pointsman.tools.system.file_descriptors import descriptor_limit

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from pointsman.service.server.protocol.request_limits import Limits

log = logging.getLogger("pointsman.access")

_CLOSE: Final = {"Connection": "close"}
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_SAY_AGAIN: Final = 60.0  # seconds between two lines of the log about connections that are refused


class OpenConnections:
    """The open connections of a process, of which there may be only so many: in all, and from one address.

    One more than that takes the place of the one that has waited longest without a request: of the same address if that
    has its share, else of any. If all are being answered, the new one is closed.

    Args:
        limits: ``max_connections``; by default half of the file descriptors that this process may open.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: dict[Protocol, str] = {}  # with their addresses, oldest first
        self._by_address: Counter[str] = Counter()
        self._time_of_warning = -_SAY_AGAIN

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    @property
    def limit(self) -> int:
        """Return how many there may be."""
        return self.limits.max_connections or max(2, descriptor_limit() // 2)

    def admit(self, connection: Protocol, address: str) -> bool:
        """Count a new connection; returns whether it may stay."""
        limit = self.limit
        if self._by_address[address] >= max(1, limit // 2):
            is_admitted = self._make_way(address)
        else:
            is_admitted = len(self._open) < limit or self._make_way(None)
        if is_admitted:
            self._open[connection] = address
            self._by_address[address] += 1
        return is_admitted

    def remove(self, connection: Protocol) -> None:
        """Stop counting a connection."""
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_way(self, address: str | None) -> bool:
        if monotonic() - self._time_of_warning >= _SAY_AGAIN:
            self._time_of_warning = monotonic()
            log.warning("%d connections are open, the most allowed; those that wait longest make way", len(self._open))
        for connection, its_address in self._open.items():
            if address in {None, its_address} and not connection.answering:
                self.remove(connection)
                connection.cut()
                return True
        return False


class Protocol(H11Protocol):
    """One connection.

    Args:
        connections: the others, and the limits of all.
        arguments: see uvicorn.
    """

    def __init__(self, *arguments: Any, connections: OpenConnections, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._connections = connections
        self._limits = connections.limits
        self._unreadable = False
        self._head: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._application, self.app = self.app, self._answer

    @property
    def answering(self) -> bool:
        """Whether a request has arrived, at least its head, that has not been answered completely."""
        return self.cycle is not None and not self.cycle.response_complete

    def cut(self) -> None:
        """Close the connection, whatever is still to be sent."""
        self.transport.abort()

    # ── asyncio's events ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if not self._connections.admit(self, address_of(self.client)):
            self.cut()
            return
        self._head = self.loop.call_later(self._limits.head_seconds, self.cut)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._connections.remove(self)
        for timer in (self._head, self._write):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`; bytes of a head do not extend its time.

        Letters of an address as they are (``curl`` sends ``?query=什么是环保设备`` so) are read as if percent-encoded.
        """
        if not data.isascii() and self.conn.their_state is h11.IDLE and b"\n" not in self.conn.trailing_data[0]:
            line, end, remainder = data.partition(b"\n")
            data = _NOT_ASCII.sub(lambda byte: b"%%%02X" % ord(byte[0]), line) + end + remainder
        super().data_received(data)
        if not self.answering and self._head is None:
            self._head = self.loop.call_later(self._limits.head_seconds, self.cut)

    def handle_events(self) -> None:
        """Pass on what has been read: heads, parts of bodies, ends."""
        super().handle_events()
        if self.answering and self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client does not take what is sent."""
        super().pause_writing()
        self._write = self._write or self.loop.call_later(self._limits.write_seconds, self.cut)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        if self._write is not None and not self.transport.is_closing():
            self._write.cancel()
            self._write = None

    def on_response_complete(self) -> None:
        """Go on to the next request; or close, which waits only so long for the client to take the answer."""
        super().on_response_complete()
        self._close_soon()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, as there was no further request."""
        super().timeout_keep_alive_handler()
        self._close_soon()

    def _close_soon(self) -> None:
        if self.transport.is_closing() and self._write is None:
            self._write = self.loop.call_later(self._limits.write_seconds, self.cut)

    # ── what is not HTTP ─────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; reading a body that cannot be read raises a problem there, which it answers."""
        cycle = self.cycle

        async def receive_readable() -> Message:
            if not self._unreadable or cycle.body:
                message = await receive()
                if not self._unreadable or message.get("body") or message["type"] == "http.disconnect":
                    return message
            raise HttpProblem("malformed", "the body is not valid HTTP: a chunk of it has another form", headers=_CLOSE)

        await self._application(scope, receive_readable, send)

    def send_400_response(self, msg: str) -> None:
        """Answer that the request is not HTTP, and close: the start of the next request cannot be determined."""
        if self.answering:
            self._unreadable = True
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
            return
        if self.cycle is not None and self.conn.our_state is not h11.IDLE:  # the rest of an answered request
            self.transport.close()
            self._close_soon()
            return
        request_id = uuid.uuid4().hex
        problem = HttpProblem("malformed", "this is not a valid HTTP request")
        body = problem.body(request_id)
        response_headers = {
            "Content-Type": MEDIA_TYPE,
            "Content-Length": str(len(body)),
            "X-Request-Id": request_id,
            "Connection": "close",
        }
        headers = [
            (name.lower().encode(), value.encode()) for name, value in {**API_HEADERS, **response_headers}.items()
        ]
        events: tuple[Any, ...] = (
            h11.Response(status_code=problem.status, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()
        self._close_soon()
        log.info("a request was not valid HTTP: %s", msg)
