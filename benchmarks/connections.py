"""Hold the door: ``python benchmarks/connections.py [--connections 1000] [--seconds 30]``.

A client searches a real service; then it goes on while others hold connections open without a key: silent ones, heads
that drip, heads and bodies of which only half is sent, bodies that drip, answers that nobody reads. Printed: the
client's p95 in both phases, and after how many seconds the last of the others was closed. Exit status 1: the second p95
is more than twice the first, a search failed, or a connection was open after 30 seconds.
"""

from __future__ import annotations

import argparse
import http.client
import selectors
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.system.file_descriptors import raise_descriptor_limit
from server_kit import Served, ask

HEAD = b"POST /api/retrieval/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "head that drips": (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"x"),
    "half a head": (b"GET /health HTTP/1.1\r\nHost: local", b""),
    "half a body": (HEAD + b'Content-Length: 1000\r\n\r\n{"query":', b""),
    "body that drips": (HEAD + b"Content-Length: 1000\r\n\r\n{", b" "),
    "chunks that drip": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "after an answer": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
}
QUERY = {"query": "railway switch number 17", "k": 5}
WITHIN = 30.0


def searches(connection: http.client.HTTPConnection, seconds: float, alive: threading.Event) -> tuple[list[float], int]:
    """Search one at a time; returns seconds of each, and how many failed."""
    took, failed, until = [], 0, time.monotonic() + seconds
    while time.monotonic() < until and alive.is_set():
        began = time.perf_counter()
        status, _ = ask(connection, "POST", "/api/retrieval/search", QUERY)
        took.append(time.perf_counter() - began)
        failed += status != 200
        time.sleep(0.005)
    return took, failed


def p95(values: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return sorted(values)[int(0.95 * len(values))] * 1000


class Attack:
    """Connections of every kind in turn, dripping a byte each second."""

    def __init__(self, port: int, count: int) -> None:
        self._kinds = list(KINDS)
        self.closed: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self._selector = selectors.DefaultSelector()
        for number in range(count):
            kind = self._kinds[number % len(self._kinds)]
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            connection.sendall(KINDS[kind][0])
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, (kind, time.monotonic()))

    def run(self, most: float) -> int:
        """Wait until the service has closed all, or for so many seconds; returns how many are open."""
        until = drip = time.monotonic()
        until += most
        while self._selector.get_map() and time.monotonic() < until:
            for key, _ in self._selector.select(0.2):
                self._read(key)
            if time.monotonic() >= drip:
                drip = time.monotonic() + 1.0
                for key in list(self._selector.get_map().values()):
                    self._drip(key)
        left = list(self._selector.get_map().values())
        for key in left:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]  # sockets
        return len(left)

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            received = key.fileobj.recv(65536)  # type: ignore[union-attr]
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._end(key)

    def _drip(self, key: selectors.SelectorKey) -> None:
        try:
            key.fileobj.send(KINDS[key.data[0]][1])  # type: ignore[union-attr]
        except BlockingIOError:
            return
        except OSError:
            self._end(key)

    def _end(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
        self.closed[key.data[0]].append(time.monotonic() - key.data[1])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--connections", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=30.0, help="of searching while nobody else is there")
    options = arguments.parse_args()
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as folder:
        with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
            documents = [Document(str(number), f"railway switch number {number}") for number in range(1000)]
            workspace.dataset("notes").add(documents)
        with Served(Path(folder)) as served:
            served.ready()
            connection, alive = served.connection(), threading.Event()
            alive.set()
            searches(connection, 2.0, alive)
            quiet, failed = searches(connection, options.seconds, alive)
            attack = Attack(served.port, options.connections)
            ends: list[tuple[list[float], int]] = []
            thread = threading.Thread(target=lambda: ends.append(searches(connection, 10 * WITHIN, alive)))
            thread.start()
            left = attack.run(1.5 * WITHIN)
            alive.clear()
            thread.join()
            busy, more_failed = ends[0]
            failed += more_failed
    for kind, seconds in attack.closed.items():
        print(f"{kind}: {len(seconds)} closed, the last after {max(seconds, default=0):.1f} s")
    last = max((max(seconds, default=0.0) for seconds in attack.closed.values()), default=0.0)
    ratio = p95(busy) / p95(quiet)
    print(f"searches: {len(quiet)} quiet, p95 {p95(quiet):.1f} ms; {len(busy)} besides, p95 {p95(busy):.1f} ms")
    print(f"ratio {ratio:.2f}; {failed} failed; {left} connections still open; the last closed after {last:.1f} s")
    sys.exit(failed > 0 or left > 0 or last > WITHIN or ratio > 2)


if __name__ == "__main__":
    main()
