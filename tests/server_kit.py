"""The real service in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

_STARTING = 60.0  # seconds; machines are busy


class Served:
    """``pointsman serve`` over a workspace, on a port of its own; ended by its process id when the block ends.

    Args:
        workspace: the folder, or the URL of a server.
        options: further ones of the command.
        embedder: ``hashing`` unless given, which takes no time.
        environ: further variables of the environment.
    """

    def __init__(
        self, workspace: Path | str, *options: str, embedder: str = "hashing", environ: Mapping[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "pointsman", "serve", "--workspace", str(workspace), "--port", "0"]
        command += ["--embedder", embedder, "--limit", "requests_per_minute=0", *options]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}, start_new_session=True
        )
        self.log: list[str] = []
        self._known = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if not self.port and "pointsman serves" in line:
                    self.port = urlsplit(json.loads(line)["address"]).port or 0
                    self._known.set()
        self._known.set()

    def ready(self) -> Self:
        """Wait until it takes requests."""
        assert self._known.wait(_STARTING), "it does not say where it listens"
        assert self.port, "".join(self.log)
        until = time.monotonic() + _STARTING
        while True:
            try:
                if self.get("/ready")[0] == 200:
                    return self
            except OSError:
                assert self.process.poll() is None, "".join(self.log)
            assert time.monotonic() < until, "".join(self.log)
            time.sleep(0.02)

    def connection(self, timeout: float = 60.0) -> http.client.HTTPConnection:
        """A connection to it; with several workers, whichever takes it answers all requests over it."""
        assert self._known.wait(_STARTING)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(
        self, method: str, path: str, value: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request over a connection of its own: the status, and the body's value."""
        connection = self.connection()
        try:
            return ask(connection, method, path, value, headers)
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, Any]:
        """One GET."""
        return self.request("GET", path)

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        """One POST of a JSON value."""
        return self.request("POST", path, value)

    def add(self, dataset: str, documents: Iterable[Mapping[str, Any]]) -> tuple[int, Any]:
        """Add documents."""
        return self.post(f"/api/datasets/{dataset}/documents", {"documents": list(documents)})

    def lines(self) -> list[dict[str, Any]]:
        """The log's records so far."""
        return [json.loads(line) for line in self.log if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end: the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end."""
        code = self.process.wait(60)
        self._reader.join(60)
        return code

    def kill(self) -> None:
        """``kill -9``, of worker processes too: they are in the session that was begun for it."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(60)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    value: Any = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """One request over a connection that stays open: the status, and the body's value."""
    body = None if value is None else json.dumps(value, ensure_ascii=False).encode()
    connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    content = response.read()
    if "json" in (response.getheader("content-type") or ""):
        return response.status, json.loads(content)
    return response.status, content.decode()


class Ingest:
    """Documents sent as lines over one request that stays open, and the totals that come back meanwhile."""

    def __init__(self, served: Served, dataset: str) -> None:
        self._connection = served.connection()
        self._connection.connect()
        self._connection.auto_open = 0  # what is sent after the end must not begin something new
        self._connection.putrequest("POST", f"/api/datasets/{dataset}/documents")
        self._connection.putheader("Content-Type", "application/x-ndjson")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self.answers: list[dict[str, Any]] = []
        self.status = 0

    def send(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Send some lines.

        Raises:
            OSError: the service has gone.
        """
        chunk = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents).encode()
        self._connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def finish(self) -> None:
        """Say that this was all."""
        self._connection.send(b"0\r\n\r\n")

    def read(self) -> None:
        """Read totals until the answer ends, well or not; for a thread of its own."""
        try:
            response = self._connection.getresponse()
            self.status = response.status
            while line := response.readline():
                if line.endswith(b"\n"):  # else it is torn
                    self.answers.append(json.loads(line))
        except (OSError, http.client.HTTPException):
            return  # what has come is what counts
        finally:
            self._connection.close()

    @property
    def done(self) -> int:
        """How many documents have been acknowledged, in the order sent."""
        return max((answer["done"] for answer in self.answers), default=0)
