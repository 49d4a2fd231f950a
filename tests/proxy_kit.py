"""A line to a server that is 50 ms long, and counts how often something goes there and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes everything on, late; a use is ``with Proxy(port) as proxy``.

    Attributes:
        round_trips: how often the client has sent something after the server had answered.
        port: where it listens.
    """

    def __init__(self, port: int, seconds: float = 0.05) -> None:
        self._target, self.seconds = port, seconds
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

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            state = {"asked": False}
            for source, sink, asks in ((client, server, True), (server, client, False)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink, asks, state), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, asks: bool, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                with self._guard:
                    if asks and not state["asked"]:
                        self.round_trips += 1
                    state["asked"] = asks
                if asks:
                    time.sleep(self.seconds)  # the whole way there and back
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
