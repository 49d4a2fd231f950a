"""The doors that the leak test asks, and what of an answer is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

from pointsman.evaluation.leak_cases import _STRATEGIES
from pointsman.tools.errors import MissingDependencyError, PointsmanError
from pointsman.tools.json_forms import plain_form

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace


Wall = Literal["access", "filter"]
_TIMES: Final = re.compile(r"(took|in|after) [\d.]+ ?(ms|s|seconds|milliseconds)\b")


_TIMED_FIELDS: Final = frozenset({"milliseconds", "started", "latency_ms", "instance", "request_id", "created_at"})


_PATIENCE: Final = 600.0
"""Seconds for a request: so many that no answer depends on how busy the machine is."""


def timeless(value: Any) -> Any:
    """Return an answer without what depends on the time it took, or on where its workspace is."""
    if isinstance(value, Mapping):
        return {name: timeless(item) for name, item in value.items() if name not in _TIMED_FIELDS}
    if isinstance(value, list | tuple):
        return [timeless(item) for item in value]
    return _TIMES.sub("", value) if isinstance(value, str) else value


class LeakDoors:
    """Every door of one copy, asked as one asker."""

    def __init__(self, workspace: Workspace, asker: Sequence[str], wall: Wall) -> None:
        self._workspace, self._asker, self._wall = workspace, list(asker), wall
        self._http: Any = None
        self._portal = ExitStack()
        self._tools: Any = None
        self._doors: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "search": self._search,
            "explain": self._explain,
            "search_many": self._search_many,
            "route": self._route,
            "documents": self._documents,
            "http": self._over_http,
            "mcp": self._over_mcp,
        }

    def close(self) -> None:
        """Close the service."""
        if self._http is not None:
            self._http.close()
        self._portal.close()

    def ask(self, door: str, question: Mapping[str, Any]) -> Any:
        """Return the answer of a door, or its error.

        Raises:
            MissingDependencyError: it cannot be asked here.
        """
        try:
            return self._doors[door](dict(question))
        except MissingDependencyError:
            raise
        except PointsmanError as error:
            return {"error": type(error).__name__, "message": str(error)}

    def _options(self, question: dict[str, Any]) -> dict[str, Any]:
        """Add who asks: as principals, or as a filter."""
        if self._wall == "access":
            return {**question, "principals": self._asker}
        filters = question.get("filters")
        return {**question, "filters": 'tenant = "a"' if filters is None else f'tenant = "a" and ({filters})'}

    def _search(self, question: dict[str, Any]) -> Any:
        query, k = question.pop("query"), question.pop("k")
        context = self._workspace.search(query, k, **self._options(question))
        return context.to_dict(trace="lists")

    def _explain(self, question: dict[str, Any]) -> Any:
        query, k, id_ = (question.pop(name) for name in ("query", "k", "document_id"))
        return plain_form(self._workspace.search(query, k, **self._options(question)).explain(id_))

    def _search_many(self, question: dict[str, Any]) -> Any:
        queries, k = question.pop("queries"), question.pop("k")
        return [answer.to_dict() for answer in self._workspace.search_many(queries, k, **self._options(question))]

    def _datasets(self) -> list[Any]:
        datasets = self._workspace.datasets()
        return self._workspace.in_view(datasets, self._asker) if self._wall == "access" else datasets

    def _route(self, question: dict[str, Any]) -> Any:
        return self._workspace.route(question["query"], self._datasets()).to_dict()

    def _documents(self, question: dict[str, Any]) -> Any:
        (dataset,) = (candidate for candidate in self._datasets() if candidate.name == question["dataset"])
        filters = None if self._wall == "access" else 'tenant = "a"'
        document = dataset.get(question["id"])
        page, following = dataset.page(0, 3, filters=filters)
        try:
            text: Any = dataset.text(question["source"]).to_dict()
        except PointsmanError as error:
            text = str(error)
        return {
            "document": None if document is None else [document.id, document.text, dict(document.metadata)],
            "count": dataset.count(filters),
            "ids": dataset.ids(filters=filters),
            "page": [document.id for document in page],
            "next": following,
            "text": text,
            "keys": sorted(dataset.store.metadata_keys() or ()),
            "vectors": dataset.vectors_due,
        }

    # ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────

    def _client(self) -> Any:
        if self._http is None:
            try:
                from anyio.from_thread import start_blocking_portal
                from starlette.testclient import TestClient

                from pointsman.service.server import create_app
            except (ImportError, RuntimeError) as error:
                raise MissingDependencyError("fastapi", "server", "asking over HTTP") from error
            from pointsman.service.server.access.api_keys import keys_of
            from pointsman.service.server.protocol.request_limits import Limits

            keys = keys_of(self._workspace.backend)
            principals = self._asker if self._wall == "access" else None
            key = keys.create("leaktest", scopes=("read",), principals=principals).text
            self._http = TestClient(
                create_app(self._workspace, limits=Limits(search_seconds=_PATIENCE)),
                base_url="http://localhost",
                headers={"X-API-Key": key},
            )
            self._http.portal = self._portal.enter_context(start_blocking_portal())  # one event loop for all requests
        return self._http

    def _over_http(self, question: dict[str, Any]) -> Any:
        client, name = self._client(), question.pop("dataset")
        id_, filters = question.pop("id"), question.pop("filters", None)
        parameters = {} if filters is None else {"filters": filters}
        body = {**question, **parameters}
        if self._wall == "filter":
            body = self._options(body)
            parameters = {"filters": body["filters"]}
        return {
            "search": client.post("/api/search", json={**body, "trace": "lists"}).json(),
            "explain": client.post("/api/explain", json={**body, "document_id": id_}).json(),
            "datasets": client.get("/api/datasets").json(),
            "count": client.get(f"/api/datasets/{name}/count", params=parameters).json(),
            "document": client.get(f"/api/datasets/{name}/document", params={"id": id_}).json(),
            "ids": client.get(f"/api/datasets/{name}/ids", params=parameters).json(),
            "route": client.post("/api/route", json={"query": question["query"]}).json(),
        }

    def _over_mcp(self, question: dict[str, Any]) -> Any:
        import anyio

        calls = self._calls()
        name, id_, source, word = (question.pop(argument) for argument in ("dataset", "id", "source", "word"))
        question = question if self._wall == "access" else self._options(question)
        requests = {
            "search": question,
            "explain": {**question, "id": id_},
            "fetch": {"id": id_},
            "read": {"id": id_, "before": 2, "after": 2},
            "outline": {"dataset": name},
            "grep": {"pattern": word, "ignore_case": True},
            "list_datasets": {},
            "route": {"query": question["query"]},
        }

        async def answers() -> dict[str, Any]:
            by_tool = {tool: await calls.call(tool, arguments, {}) for tool, arguments in requests.items()}
            return {**by_tool, "section": await calls.call("outline", {"dataset": name, "source": source}, {})}

        return anyio.run(answers)

    def _calls(self) -> Any:
        if self._tools is None:
            from dataclasses import replace

            try:
                from pointsman.integrations.mcp.tool_calls import Calls
                from pointsman.integrations.mcp.visible_datasets import Library
            except ImportError as error:
                raise MissingDependencyError("mcp", "mcp", "asking over MCP") from error
            from pointsman.service.server.access.rate_limits import Gate
            from pointsman.service.server.access.request_access import Access
            from pointsman.service.server.protocol.request_limits import Limits

            principals = frozenset(self._asker) if self._wall == "access" else None
            access = replace(Access.open(), principals=principals)
            strategies = tuple(dict.fromkeys(_STRATEGIES))
            library = Library(self._workspace, None, strategies, _PATIENCE)
            self._tools = Calls(library, Gate(Limits()), lambda _: access)
        return self._tools
