"""The service itself: health, metrics, access of a key, evaluations and policy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict
from starlette.responses import Response

from pointsman.retrieval.plan.policy import Policy
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.responses import Json, plain
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.schemas import Open
from pointsman.service.server.state import Caller, Reader, Shared, in_thread, in_writer, problem_responses
from pointsman.tools.version import __version__

router = APIRouter(route_class=StrictRoute, tags=["service"])

_READS = problem_responses("invalid-input")
_WRITES = problem_responses("invalid-input", "too-large", "unsupported-media-type")


class Key(Open):
    """A key, without its text."""

    id: str
    name: str


class Me(Open):
    """Permissions of the key, and limits of the service."""

    key: Key | None
    datasets: list[str]
    scopes: list[str]
    version: str
    limits: dict[str, Any]


class Runs(Open):
    """Stored evaluations, newest first."""

    runs: list[dict[str, Any]]


class PolicyRequest(Open):
    """A policy, as fitted by `pointsman tune`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ours", "vector_weight": 1.5}]})


class PolicyAnswer(Open):
    """The policy fitted to this workspace; null: the measured one applies."""

    policy: dict[str, Any] | None


class Status(Open):
    """The status of the service."""

    status: str


@router.get("/health", response_model=Status)
async def health() -> Response:
    """Check that the process is alive."""
    return Json({"status": "ok"})


@router.get("/ready", response_model=Status, responses=problem_responses())
async def ready(state: Shared) -> Response:
    """Check that the service takes requests: not while it starts or stops, or while its store is unreachable."""
    if not state.ready or state.store_away():
        reason = "the store does not answer" if state.ready else state.not_ready
        raise HttpProblem("unavailable", reason, headers={"Retry-After": "1"})
    return Json({"status": "ready"})


@router.get(
    "/metrics",
    response_model=None,
    responses={
        **_READS,
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "All metrics."},
    },
)
async def metrics(state: Shared, access: Reader) -> Response:
    """Get metrics in the Prometheus text format, without names of datasets or texts."""
    access.require_all()
    body, kind = state.metrics.render()
    return Response(body, media_type=kind)


@router.get("/api/me", response_model=Me, responses=_READS, operation_id="me")
async def caller(state: Shared, access: Caller) -> Response:
    """Get the permissions of the key, and the limits of the service."""
    return Json(
        {
            "key": None if access.key_id is None else {"id": access.key_id, "name": access.name},
            "datasets": ["*"] if access.datasets is None else sorted(access.datasets),
            "scopes": [*(["read"] if access.read else []), *(["write"] if access.write else [])],
            "version": __version__,
            "limits": asdict(state.limits),
        }
    )


@router.get("/api/evaluations", response_model=Runs, responses=_READS)
async def evaluations(state: Shared, access: Reader) -> Response:
    """List the evaluations stored by `pointsman eval`, newest first."""
    from pointsman.workspace.past_runs import latest

    access.require_all()
    return Json({"runs": await in_thread(latest, state.workspace.backend)})


@router.get("/api/policy", response_model=PolicyAnswer, responses=_READS)
async def get_policy(state: Shared, access: Reader) -> Response:
    """Get the policy fitted to this workspace."""
    access.require_all()
    return Json(_policy(await in_thread(state.workspace.stored_policy)))


@router.put("/api/policy", response_model=PolicyAnswer, responses=_WRITES)
async def keep_policy(state: Shared, access: Caller, body: PolicyRequest) -> Response:
    """Use this policy from now on."""
    access.require_all(write=True)
    policy = Policy.from_json(plain(body.model_dump()).decode())
    await in_writer(state, state.workspace.keep, policy)
    return Json(_policy(policy))


@router.delete("/api/policy", response_model=PolicyAnswer, responses=_READS)
async def drop_policy(state: Shared, access: Caller) -> Response:
    """Use the measured policy from now on."""
    access.require_all(write=True)
    await in_writer(state, state.workspace.keep, None)
    return Json({"policy": None})


def _policy(policy: Policy | None) -> dict[str, object]:
    return {"policy": None if policy is None else asdict(policy)}
