"""A line to a server that is 50 ms long, and counts how often something goes there and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any, Self


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes everything on, late; a use is ``with Proxy(port) as proxy``.

    Attributes:
        round_trips: how often the client has sent something after the server had answered. A client that sends
            several requests ahead makes one or more of them, as the threads happen to run: see `PostgresProxy`.
        port: where it listens.
        have_met: whether so many connections as `hold` was told have asked before any was answered.
    """

    def __init__(self, port: int, seconds: float = 0.05) -> None:
        self._target, self.seconds = port, seconds
        self._parties, self._asking = 0, set[int]()
        self.have_met = threading.Event()
        self.round_trips = 0
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def reset(self) -> None:
        """Count from nothing."""
        with self._guard:
            self.round_trips = 0

    def hold(self, parties: int) -> None:
        """Pass nothing on until so many connections have asked something, or a minute is over."""
        with self._guard:
            self._parties, self._asking = parties, set()
            self.have_met.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            state: dict[str, Any] = {}
            for source, sink, asks in ((client, server, True), (server, client, False)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink, asks, state), daemon=True).start()

    def _count(self, data: bytes, asks: bool, state: dict[str, Any]) -> None:
        self.round_trips += asks and not state.get("asked")
        state["asked"] = asks

    def _pass(self, source: socket.socket, sink: socket.socket, asks: bool, state: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                with self._guard:
                    self._count(data, asks, state)
                    if asks and self._parties:
                        self._asking.add(id(state))
                        if len(self._asking) >= self._parties:
                            self.have_met.set()
                if asks and self._parties:
                    self.have_met.wait(60)
                elif asks:
                    time.sleep(self.seconds)  # the whole way there and back
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class PostgresProxy(Proxy):
    """A line to PostgreSQL: it counts the messages ReadyForQuery, each the end of what a client had sent ahead.

    So a pipeline of statements is one round trip even where the first answers come back while the last statements
    are still being sent. The frames are those of the manual's chapter 55.7, "Message Formats".
    """

    def _count(self, data: bytes, asks: bool, state: dict[str, Any]) -> None:
        if asks:
            return
        pending: bytes = state.get("pending", b"") + data
        if not state.get("begun"):
            pending = pending.lstrip(b"N")  # to each request for encryption that comes before: no
            state["begun"] = bool(pending)
        while len(pending) >= 5 and len(pending) > (length := int.from_bytes(pending[1:5], "big")):
            self.round_trips += pending[:1] == b"Z"
            pending = pending[1 + length :]
        state["pending"] = pending
