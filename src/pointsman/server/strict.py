"""Routes that parse JSON strictly, with `pointsman.server.limits.parse_json`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request
from fastapi.routing import APIRoute

from pointsman.server.limits import parse_json

if TYPE_CHECKING:
    from starlette.responses import Response

_LARGE: Final = 100_000  # bytes; from this size on, parsing would noticeably delay other requests


async def read_json(body: bytes) -> Any:
    """Parse a JSON body; a large one outside the event loop.

    Raises:
        Problem: as `parse_json`.
    """
    return await asyncio.to_thread(parse_json, body) if len(body) > _LARGE else parse_json(body)


class _StrictRequest(Request):
    async def json(self) -> Any:
        return await read_json(await self.body())


class StrictRoute(APIRoute):
    """For ``APIRouter(route_class=StrictRoute)``; setting it later has no effect."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler, which is given a strict request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle
