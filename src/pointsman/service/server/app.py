"""The application: its routes, their shared state, and the layers around them.

::

    Observed ─ SecurityHeaders ─ RequestHead ─ TrustedHosts ─ CrossSite ─ Guard ─ Bodies ─ Heads ─ routes
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Unpack

import anyio
import anyio.to_thread
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import BaseRoute, Match

from pointsman.service.server.access.api_keys import KeyStore, keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.signed_tokens import TokenTrust
from pointsman.service.server.configure import configure
from pointsman.service.server.protocol import problems
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.protocol.responses import Heads, Json
from pointsman.service.server.protocol.strict_routes import unknown_name
from pointsman.service.server.record_watch import RecordWatch
from pointsman.service.server.request_checks import CheckOptions, secure
from pointsman.service.server.routes import console_page as console
from pointsman.service.server.routes import datasets, dify, health_and_metrics, retrieval_endpoints, vector_stores
from pointsman.service.server.routes import search_endpoints as search
from pointsman.service.server.schemas import DocumentsRequest, ProblemDocument, Progress
from pointsman.service.server.service_metrics import Measuring, Metrics
from pointsman.service.server.state import State
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import PointsmanError, StoreError
from pointsman.tools.version import __version__

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Scope

    from pointsman.values.settings import Settings
    from pointsman.workspace.workspace_search import Workspace

log = logging.getLogger(__name__)

_DESCRIPTION = """Decides where and how to look for each question, looks there, and says why.

Send a key as `Authorization: Bearer KEY` or `X-API-Key: KEY` if the workspace has keys. Errors are problem documents
(RFC 9457); every response has `X-Request-Id`.
"""


def create_app(
    workspace: Workspace,
    *,
    settings: Settings | None = None,
    limits: Limits | None = None,
    keys: KeyStore | None = None,
    worker: bool = False,
    **checks: Unpack[CheckOptions],
) -> ASGIApp:
    """Create the HTTP service over a workspace, as an ASGI application; it closes the workspace on shutdown.

    Args:
        workspace: the workspace to serve.
        settings: search settings; the workspace's own by default.
        limits: limits of requests.
        keys: API keys; by default those stored in the workspace.
        worker: whether the application is one of several processes.
        checks: see `CheckOptions`.

    Raises:
        InputError: a host, an origin or a setting is invalid.
    """
    configure(workspace, settings or workspace.settings)
    limits = limits or Limits()
    keys = keys or keys_of(workspace.backend)
    state = State(workspace, keys, limits, Gate(limits), Metrics(workspace.route_counts, worker=worker))
    state.metrics.queue_length.set_function(lambda: state.gate.waiting)
    app = describe(FastAPI(lifespan=_lifespan(state), **OPTIONS))
    app.state.pointsman = state
    secure_app = secure(Heads(app), keys=keys, limits=limits, tokens=TokenTrust(workspace.backend), **checks)
    return Measuring(secure_app, state.metrics, logging.getLogger("pointsman.access"))


OPTIONS: Final[dict[str, Any]] = {
    "title": "Pointsman",
    "version": __version__,
    "description": _DESCRIPTION,
    "openapi_url": "/api/openapi.json",
    "docs_url": None,  # those pages load scripts from other sites
    "redoc_url": None,
    "redirect_slashes": False,
    "generate_unique_id_function": attrgetter("name"),  # an operation has the name of its function by default
    "default_response_class": Json,
}


_ROUTERS: Final = (
    search.router,
    retrieval_endpoints.router,
    datasets.router,
    health_and_metrics.router,
    dify.router,
    vector_stores.router,
)


def describe(app: FastAPI) -> FastAPI:
    """Add the routes and the OpenAPI description that fits them, and return the application."""
    for router in _ROUTERS:
        app.include_router(router)
    app.include_router(console.router)
    for error_class in (Exception, PointsmanError, HttpProblem, RequestValidationError, ValidationError):
        app.add_exception_handler(error_class, _problem)
    for http_error_class in (HTTPException, StarletteHTTPException):
        app.add_exception_handler(http_error_class, _http_problem)
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            schemas = document["components"]["schemas"]
            for model in (DocumentsRequest, Progress, ProblemDocument):
                shape = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas.update(shape.pop("$defs", {}))
                schemas[model.__name__] = shape
            for operation in (operation for path in document["paths"].values() for operation in path.values()):
                if "HTTPValidationError" in str(operation["responses"].get("422")):
                    del operation["responses"]["422"]  # FastAPI's addition: these answer 400, as OpenAI does
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            document["components"]["securitySchemes"] = {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            }
            document["security"] = [{}, {"bearer": []}, {"key": []}]
        return app.openapi_schema or document

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _lifespan(state: State) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threads = ThreadPoolExecutor(state.limits.concurrency + 16, "pointsman-request")  # for searches and short reads
        asyncio.get_running_loop().set_default_executor(threads)
        watch = RecordWatch(state.workspace)
        state.store_away = lambda: watch.store_away
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            group.start_soon(_warm, state)
            group.start_soon(_embed, state)
            yield
            state.ready, state.not_ready = False, "the service is stopping"
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(state.workspace.close)

    return lifespan


async def _warm(state: State) -> None:
    """Open the datasets and load the embedder, so that the first request does not wait for them; then set ready."""
    try:
        await anyio.to_thread.run_sync(_open, state.workspace, abandon_on_cancel=True)
    except Exception:
        log.exception("a dataset cannot be opened; the others are served")
    state.ready = True
    await anyio.to_thread.run_sync(_read_words, state.workspace, abandon_on_cancel=True)


_EMBED_AGAIN: Final = 60.0
"""Seconds between checks for missing vectors; the service is also notified of new ones."""


async def _embed(state: State) -> None:
    """Make missing vectors, including those left by an earlier service or another process."""

    def embed_some(name: str) -> bool:
        """Embed a batch of a dataset; returns whether there was one."""
        dataset = state.workspace.dataset(name, create=False)
        return dataset.vectors_due > 0 and dataset.embed(64) > 0

    async def embed_all() -> None:
        for name in await anyio.to_thread.run_sync(state.workspace.names):
            try:
                while await anyio.to_thread.run_sync(embed_some, name):
                    pass
            except Exception:
                log.exception(
                    "vectors of %s could not be computed; only words are searched until the next attempt", name
                )

    while True:
        state.vectors_due.clear()
        try:
            await embed_all()
        except StoreError as error:
            log.warning("could not check for missing vectors: %s", error)
        with anyio.move_on_after(_EMBED_AGAIN):
            await state.vectors_due.wait()


def _read_words(workspace: Workspace) -> None:
    """Read the vocabularies for spelling correction, which takes seconds for a large dataset."""
    from pointsman.retrieval.plan.vocabulary import Vocabulary

    try:
        if not workspace.access:  # else each view has its own
            Vocabulary([dataset for dataset in workspace if dataset.indexing_technique != "vector"]).speller()
    except Exception:
        log.exception("the words of the datasets cannot be read; the first query with a slip will try again")


def _open(workspace: Workspace) -> None:
    for dataset in workspace:
        if dataset.store.info.embedder is not None:
            dataset.query_vectors("ready")
    if workspace.names():
        with without_record():
            workspace.search("ready", 1, refuse=False, principals=[] if workspace.access else None)


async def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        body = getattr(request.scope.get("route"), "body_field", None)
        fields = list(getattr(body and body.field_info.annotation, "model_fields", ()))
        detail = "; ".join(_complaint(fault, fields) for fault in error.errors()[:5])
        error = HttpProblem("invalid-input", detail)
    return _problem_response(request, problems.of_error(error))


def _problem_response(request: Request, problem: HttpProblem) -> Response:
    language = request.headers.get("accept-language", "")
    request_id = getattr(request.state, "request_id", None)
    return problems.response(problem, request_id, request.url.path, accept_language=language)


def _complaint(fault: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return what is wrong with one part of a request whose body may have these fields."""
    location = [str(step) for step in fault["loc"][1:]]
    if fault["type"] == "extra_forbidden" and len(location) == 1 and fields:
        return unknown_name("field", location[0], fields)
    return f"{'.'.join(location) or 'the body'}: {fault['msg']}"


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    cause = error.__cause__
    if isinstance(cause, (HttpProblem, PointsmanError)):
        return await _problem(request, cause)
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the framework names the methods of one route, but a path has several
        routes = (route for router in _ROUTERS for route in router.routes)
        methods = {method for route in routes for method in _methods(route, request.scope)}
        if "GET" in methods:
            methods.add("HEAD")
        headers["Allow"] = ", ".join(sorted(methods))
    is_of_openai = error.status_code in {404, 405} and vector_stores.OF_OPENAI.fullmatch(request.url.path)
    detail = vector_stores.SERVED_ELSEWHERE if is_of_openai else str(error.detail)
    return _problem_response(request, problems.of_status(error.status_code, detail, headers))


def _methods(route: BaseRoute, scope: Scope) -> Collection[str]:
    """Return the methods that a route accepts, if it matches the path."""
    return (getattr(route, "methods", None) or ()) if route.matches(scope)[0] is not Match.NONE else ()
