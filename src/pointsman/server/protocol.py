"""HTTP as uvicorn speaks it, except that unreadable requests get a problem document too."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pointsman.server.limits import API_HEADERS
from pointsman.server.problems import MEDIA_TYPE, Problem

log = logging.getLogger("pointsman.access")


class Protocol(H11Protocol):
    """Refuses invalid HTTP strictly, with h11."""

    def send_400_response(self, msg: str) -> None:
        """Answer that the request is not HTTP, and close: the start of the next request cannot be determined."""
        request_id = uuid.uuid4().hex
        problem = Problem("malformed", "this is not a valid HTTP request")
        body = problem.body(request_id)
        own = {
            "Content-Type": MEDIA_TYPE,
            "Content-Length": str(len(body)),
            "X-Request-Id": request_id,
            "Connection": "close",
        }
        headers = [(name.lower().encode(), value.encode()) for name, value in {**API_HEADERS, **own}.items()]
        events: tuple[Any, ...] = (
            h11.Response(status_code=problem.status, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()
        log.info("a request was not valid HTTP: %s", msg)
