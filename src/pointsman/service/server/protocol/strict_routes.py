"""Routes that parse JSON with `strict_json.read_json` and refuse unknown query parameters."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.routing import APIRoute

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.strict_json import read_json

if TYPE_CHECKING:
    from starlette.responses import Response

    from pointsman.tools.audit_log import AuditLog


class _StrictRequest(Request):
    async def json(self) -> Any:
        return await read_json(await self.body())


def _check_names(names: Iterable[str], known_names: list[str]) -> None:
    """Check the names of query parameters; a misspelt filter would otherwise select everything.

    Raises:
        Problem: ``invalid-input``: one is unknown.
    """
    for name in names:
        if name not in known_names:
            raise HttpProblem("invalid-input", unknown_name("query parameter", name, known_names))


def unknown_name(kind: str, name: str, known_names: Sequence[str]) -> str:
    """Return the complaint about an unknown name, with the nearest known one."""
    nearest = difflib.get_close_matches(name[:100], known_names, 1, 0.6)
    choices = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known_names) or 'none'}"
    return f"there is no {kind} {name!r:.80} here; {choices}"


class StrictRoute(APIRoute):
    """For ``APIRouter(route_class=StrictRoute)``; setting it later has no effect.

    Where the audit log is on, a request is recorded here, whatever its route.
    """

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler, which is given a strict request."""
        handler = super().get_route_handler()
        is_own_path = self.path_format.startswith(("/api/", "/v1/", "/v2/"))  # Dify and probes may send more
        parameter_names = [parameter.alias for parameter in self.dependant.query_params]
        operation = self.operation_id or self.name

        async def handle(request: Request) -> Response:
            if is_own_path:
                _check_names(request.query_params, parameter_names)
            strict_request = _StrictRequest(request.scope, request.receive)
            audit: AuditLog = request.app.state.pointsman.workspace.audit_log
            access = request.scope.get("state", {}).get("access")
            if not audit.path or access is None:  # a probe has no access, and shows nothing
                return await handler(strict_request)
            asker = {"door": "http", "request": request.scope["state"].get("request_id"), **access.asker}
            async with audit.arequest(operation, **asker):  # before the response is sent
                return await handler(strict_request)

        return handle
