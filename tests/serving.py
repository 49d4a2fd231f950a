"""The service inside of this process, on a port of this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import uvicorn

from pointsman.service.server.run import configure

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pointsman.service.server.protocol.request_limits import Limits


@contextmanager
def serving(app: ASGIApp, limits: Limits | None = None) -> Iterator[str]:
    """The application, by the real server, once it is ready; gives its address."""
    bound = socket.socket(proto=socket.IPPROTO_TCP)  # named, so that asyncio sets TCP_NODELAY
    bound.bind(("127.0.0.1", 0))
    server = uvicorn.Server(configure(app, limits=limits, grace=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    try:
        until = time.monotonic() + 60
        while not _ready(address):
            assert time.monotonic() < until, "it does not get ready"
            time.sleep(0.02)
        yield address
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready", timeout=60).status_code == 200
    except httpx.ConnectError:  # it does not listen yet
        return False
