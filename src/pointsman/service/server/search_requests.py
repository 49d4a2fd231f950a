"""From a request's body to a search by the workspace's engine, within the limits of the service and the key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.refine.budget import accounts
from pointsman.retrieval.request import OPTIONS, SearchRequest
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.state import check_text
from pointsman.tools.errors import InputError, RetrievalError
from pointsman.values.registry import STRATEGIES
from pointsman.values.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.schemas import SearchOptions
    from pointsman.service.server.service_metrics import Metrics
    from pointsman.service.server.state import State
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Search:
    """A search that is ready to run.

    Attributes:
        workspace: the workspace.
        request: what to search for, and how.
        datasets: the requested datasets visible to the key.
        chosen_again: looks them up again, when others have recreated them.
        seconds: time for all queries together.
        is_hurried: whether the request allows less time than the service.
        metrics: counts the calls of language models.
    """

    workspace: Workspace
    request: SearchRequest
    datasets: Sequence[Dataset]
    chosen_again: Callable[[], Sequence[Dataset]]
    seconds: float
    is_hurried: bool
    metrics: Metrics

    def run(self) -> RetrievalContext:
        """Search for the only query.

        Raises:
            Problem: the request left too little time to search anything.
        """
        engine = self.workspace.engine
        with self._in_time():
            return self._retrying(engine.search)

    def run_all(self) -> list[RetrievalContext]:
        """Search for all queries; those for which no time is left get an empty answer that says so.

        Raises:
            Problem: as `run`.
        """
        engine, end = self.workspace.engine, monotonic() + self.seconds

        def search(request: SearchRequest, datasets: Sequence[Dataset]) -> list[RetrievalContext]:
            return engine.search_many(request, datasets, max(end - monotonic(), 0.001))

        with self._in_time():
            return self._retrying(search)

    def _retrying(self, search: Callable[[SearchRequest, Sequence[Dataset]], T]) -> T:
        datasets: Sequence[Dataset] | None = self.datasets

        def attempt(request: SearchRequest) -> T:
            nonlocal datasets
            current, datasets = self.chosen_again() if datasets is None else datasets, None
            return search(request, current)

        return self.workspace.retrying(self.request, attempt)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            with accounts() as accounts_of_searches:
                yield
        except RetrievalError as error:
            if self.is_hurried and all(isinstance(cause, TimeoutError) for cause in error.causes.values()):
                detail = f"no answer within the {self.request.timeout:g} seconds asked for; allow more time"
                raise HttpProblem("invalid-input", detail) from error
            raise
        finally:
            self.metrics.record_models(accounts_of_searches)


def prepare(state: State, access: Access, texts: Sequence[str], options: SearchOptions) -> Search:
    """Return the search described by a request.

    Raises:
        Problem: it exceeds a limit, or names a dataset that is not visible to the key.
        InputError: an option is invalid.
    """
    limits, workspace = state.limits, state.workspace
    for text in texts:
        check_text(state, text)
    for message in options.history:
        check_text(state, message.text, "a message of the history")
    total = sum(map(len, texts)) + sum(len(message.text) for message in options.history)
    if total > limits.max_request_chars:
        limit = limits.max_request_chars
        raise HttpProblem("invalid-input", f"queries and messages have {total:,} characters, the limit is {limit:,}")
    values = {name: getattr(options, name) for name in OPTIONS}
    k, names, timeout, principals = (values.pop(name) for name in ("k", "datasets", "timeout", "principals"))
    if k > limits.max_k:
        raise HttpProblem("invalid-input", f"k is {k}, the limit is {limits.max_k}")
    history = tuple(Message(message.role, message.text) for message in options.history)
    usual = workspace.workflow.timeout
    longest = limits.search_seconds if usual is None else min(usual, limits.search_seconds)
    is_hurried = timeout is not None and timeout < longest
    if not is_hurried:
        timeout = None if longest == usual else longest
    queries = [Query(text, history=history) for text in texts]
    request = SearchRequest.of(queries, k, {**values, "timeout": timeout})
    choose = partial(state.datasets, access, names, principals)
    return Search(workspace, request, choose(), choose, limits.search_seconds, is_hurried, state.metrics)


def describe(state: State, access: Access) -> list[dict[str, Any]]:
    """Describe every strategy, and what it lacks in the datasets visible to the key."""
    engine, datasets = state.workspace.engine, state.datasets(access)

    def lack(name: str) -> str | None:
        return "there is no dataset yet" if not datasets and name != "auto" else engine.lack(name, datasets)

    names = dict.fromkeys([*_LISTS, *METHODS, *STRATEGIES.names()])
    whys = {name: lack(name) for name in names}
    return [
        {"name": name, "about": _description(name), "usable": reason is None, "why_not": reason}
        for name, reason in whys.items()
    ]


_LISTS = {
    "auto": "The strategy that measured best for queries like this.",
    "hybrid": "Keywords and vectors combined on one calibrated scale.",
    "bm25": "Keywords only (BM25).",
    "vector": "Vectors only (cosine similarity).",
}


def _description(name: str) -> str:
    """Return what a strategy does: the first line of its docstring."""
    if name in _LISTS:
        return _LISTS[name]
    try:
        made_by: object = METHODS[name] if name in METHODS else STRATEGIES.get(name)
    except InputError:  # it cannot be loaded; `Engine.lack` says why
        return ""
    return (made_by.__doc__ or "").strip().partition("\n")[0]
