"""State shared by all requests, and functions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Request

from pointsman.service.server.access.request_access import Access, access_of
from pointsman.service.server.protocol.problems import HttpProblem

if TYPE_CHECKING:
    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.service.server.access.rate_limits import Gate
    from pointsman.service.server.protocol.request_limits import Limits
    from pointsman.service.server.service_metrics import Metrics
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace

P = ParamSpec("P")
T = TypeVar("T")

_WRITERS = 16
"""Requests that write, or wait to write, at the same time; more of them wait for a thread."""

WRITE_PATIENCE = 30.0
"""Seconds for which a write waits for another process that writes to the same dataset."""


@dataclass(slots=True)
class State:
    """The state shared by all requests of one process.

    Attributes:
        workspace: the workspace served.
        keys: the API keys.
        limits: limits of requests.
        gate: limits concurrent searches.
        metrics: the metrics.
        ready: whether requests are accepted; False during startup and shutdown.
        not_ready: the reason why not.
        store_away: whether the workspace's server does not answer.
        writers: threads for what writes.
        vectors_due: set when documents were added whose vectors are to be made.
    """

    workspace: Workspace
    keys: KeyStore
    limits: Limits
    gate: Gate
    metrics: Metrics
    ready: bool = False
    not_ready: str = "the service is starting"
    store_away: Callable[[], bool] = lambda: False
    writers: Executor = field(default_factory=lambda: ThreadPoolExecutor(_WRITERS, "pointsman-writer"))
    vectors_due: asyncio.Event = field(default_factory=asyncio.Event)

    def datasets(
        self, access: Access, names: list[str] | None = None, principals: list[str] | None = None
    ) -> list[Dataset]:
        """Return the requested datasets, or all that are visible to the key; see `Access.choose_datasets`."""
        return access.choose_datasets(self.workspace, names, principals)

    def dataset(self, access: Access, name: str) -> Dataset:
        """Return the dataset of this name.

        Raises:
            Problem: it does not exist or is not visible to the key.
        """
        return self.datasets(access, [name])[0]


# Coroutines although none of them awaits: the framework would call plain functions in a separate thread.


async def _state(request: Request) -> State:
    state: State = request.app.state.pointsman
    return state


async def _access(request: Request) -> Access:
    return access_of(request.scope)


async def _reader(access: Annotated[Access, Depends(_access)]) -> Access:
    access.require_read()
    return access


Shared = Annotated[State, Depends(_state)]
Caller = Annotated[Access, Depends(_access)]
"""Access of any client with a valid key."""


async def _writer(state: Shared, access: Caller) -> Access:
    reads_nothing = access.principals is None and await in_thread(lambda: state.workspace.access)
    return replace(access, read=False) if reads_nothing else access


Writer = Annotated[Access, Depends(_writer)]
"""Access of a client that may write; while access is on, a key without principals is answered as a write-only one."""
Reader = Annotated[Access, Depends(_reader)]
"""Access of a client that may read."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking read in a worker thread; it runs to its end even if the client has gone."""
    return await _run_in(None, partial(function, *args, **kwargs))


async def in_writer(state: State, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a write in a thread for writers, as it may wait for another process, and must not hold up searches."""
    return await _run_in(state.writers, partial(function, *args, **kwargs))


async def _run_in(executor: Executor | None, call: Callable[[], T]) -> T:
    context = copy_context()  # carries the request's id, for the log, and its span
    return await asyncio.get_running_loop().run_in_executor(executor, lambda: context.run(call))


def check_text(state: State, text: str, subject: str = "query") -> None:
    """Check the length of a query.

    Raises:
        Problem: it exceeds the limit.
    """
    if len(text) > state.limits.max_query_chars:
        detail = f"{subject} has {len(text)} characters, the limit is {state.limits.max_query_chars}"
        raise HttpProblem("invalid-input", detail)


def problem_responses(*slugs: str) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI responses for the problems of an endpoint, besides those of every endpoint."""
    from pointsman.service.server.protocol.problems import KINDS, MEDIA_TYPE
    from pointsman.service.server.schemas import ProblemDocument

    schema = {"schema": {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}}
    usual = ("malformed", "unauthorized", "forbidden", "misdirected", "too-many-requests", "internal", "unavailable")
    return {
        KINDS[slug].status: {"description": KINDS[slug].title, "content": {MEDIA_TYPE: schema}}
        for slug in (*usual, *slugs)
    }


READS = problem_responses("not-found", "invalid-input")
WITH_BODY = problem_responses("not-found", "conflict", "invalid-input", "too-large", "unsupported-media-type")
"""The problems of requests that only read, and of those with a body."""
