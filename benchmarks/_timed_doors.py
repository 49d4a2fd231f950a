"""The doors of a workspace where access is on, and whether the times of their answers tell what is hidden."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

from pointsman.integrations.mcp.tool_calls import Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.values.views import ACCESS

if TYPE_CHECKING:
    import pointsman

Ask = Callable[[int, bool], str]
"""Asks for what is hidden, or for what is nowhere, in a pair of this number; returns what was answered."""

Body = Callable[[int, bool], dict[str, Any]]
"""Returns what is sent."""

PAIRS: Final = 300
WARM: Final = 5  # pairs that open and warm everything


def made_up_word(pair: int, hidden: bool) -> str:
    """Return a made-up word, in hidden documents or nowhere."""
    chance = random.Random(f"{pair} {hidden}")
    return "".join(chance.choice("bdgklmnoprstuvz" if place % 2 else "aeiou") for place in range(9))


class Doors:
    """The doors of a workspace where access is on, each as a function of whether what it asks for is hidden.

    Args:
        workspace: with a dataset ``notes``.
    """

    def __init__(self, workspace: pointsman.Workspace) -> None:
        self._workspace = workspace
        self._stack = ExitStack()

    def close(self) -> None:
        """Close what the doors opened."""
        self._stack.close()

    def _client(self, **options: Any) -> TestClient:
        """Return a client with a key of its own."""
        key = keys_of(self._workspace.backend).create("asker", **options).text
        app = create_app(self._workspace, limits=Limits(requests_per_minute=0))
        client = self._stack.enter_context(TestClient(app, base_url="http://localhost"))
        client.headers["Authorization"] = f"Bearer {key}"
        return client

    def reading(self) -> dict[str, Ask]:
        """Return the doors that are told a name, an id, a source, a filter or a word."""
        client = self._client(principals=["group:rail"], scopes=["read"])
        create = keys_of(self._workspace.backend).create
        of_one_dataset = create("of one", principals=["group:rail"], datasets=["notes"], scopes=["read"]).text
        access = replace(Access.open(), principals=frozenset({"group:rail"}))
        calls = tools_for(self._workspace, access)
        portal = self._stack.enter_context(start_blocking_portal())
        sources, ids, names = ("not.md", "pay.md"), ("p-", "p1"), ("nowhere", "payroll")
        root, store, vector = "/api/datasets/notes", "/v1/vector_stores/notes", [1.0] * 64
        eq = {"type": "eq", "key": "source"}

        def tool(name: str, arguments: Body) -> Ask:
            return lambda pair, hidden: type(portal.call(calls.call, name, arguments(pair, hidden), {})).__name__

        def get(path: str, names: tuple[str, str], key: str | None = None) -> Ask:
            headers = None if key is None else {"Authorization": f"Bearer {key}"}
            return lambda _, hidden: _status(client.get(path + names[hidden], headers=headers))

        def post(path: str, body: Body) -> Ask:
            return lambda pair, hidden: _status(client.post(path, json=body(pair, hidden)))

        def told(key: str, names: tuple[str, str], **others: Any) -> Body:
            return lambda _, hidden: {key: names[hidden], **others}

        def asked(key: str = "query", **others: Any) -> Body:
            return lambda pair, hidden: {key: made_up_word(pair, hidden), **others}

        filters = f"source = {sources[0]}", f"source = {sources[1]}"
        return {
            "GET ids?source=": get(f"{root}/ids?source=", sources),
            "GET ids?filters=": get(f"{root}/ids?filters=", filters),
            "GET text?source=": get(f"{root}/text?source=", sources),
            "GET document?id=": get(f"{root}/document?id=", ids),
            "GET count?filters=": get(f"{root}/count?filters=", filters),
            "GET documents?filters=": get(f"{root}/documents?filters=", filters),
            "GET recommend_strategy?query=": lambda pair, hidden: _status(
                client.get("/api/retrieval/recommend_strategy", params={"query": made_up_word(pair, hidden)})
            ),
            "GET a dataset that the key does not cover": get("/api/datasets/", names, of_one_dataset),
            "POST vectors": post(f"{root}/vectors", lambda _, hidden: {"ids": [ids[hidden]]}),
            "POST nearest, filtered": post(f"{root}/nearest", told("filters", filters, vector=vector, k=3)),
            "POST verify": post(
                "/api/verify",
                lambda _, hidden: {"answer": 'It is "salary".', "hits": [{"dataset": "notes", "id": ids[hidden]}]},
            ),
            "POST search, filtered": post("/api/search", told("filters", filters, query="signal")),
            "POST search, a word": post("/api/search", asked()),
            "POST search_many, a word": post(
                "/api/search_many", lambda pair, hidden: {"queries": [made_up_word(pair, hidden)]}
            ),
            "POST stream, a word": post("/api/stream", asked()),
            "POST retrieval/search, a word": post("/api/retrieval/search", asked()),
            "POST explain": post("/api/explain", told("document_id", ids, query="signal")),
            "POST route, a word": post("/api/route", asked()),
            "POST vector_stores/search, filtered": post(
                f"{store}/search", lambda _, hidden: {"query": "a", "filters": {**eq, "value": sources[hidden]}}
            ),
            "POST retrieval of Dify, a word": post(
                "/retrieval", asked(knowledge_id="notes", retrieval_setting={"top_k": 3, "score_threshold": 0})
            ),
            "MCP search, a word": tool("search", asked()),
            "MCP fetch": tool("fetch", told("id", ids)),
            "MCP read": tool("read", told("id", ids, before=2, after=2)),
            "MCP outline": tool("outline", told("source", sources, dataset="notes")),
            "MCP grep, a word": tool("grep", asked("pattern")),
            "MCP verify": tool("verify", lambda _, hidden: {"answer": 'It is "salary".', "ids": [ids[hidden]]}),
            "MCP explain": tool("explain", told("id", ids, query="signal")),
            "MCP route, a word": tool("route", asked()),
        }

    def writing(self) -> dict[str, Ask]:
        """Return the doors of a key that only writes; each pair has ids of its own."""
        client, path = self._client(), "/api/datasets/notes/documents"

        def add(name: Callable[[int, bool], str], text: Callable[[int, bool], str], embed: str = "now") -> Ask:
            def write(pair: int, hidden: bool) -> str:
                metadata = {ACCESS: {"allow": ["group:money"], "deny": []}}
                document = {"id": name(pair, hidden), "text": text(pair, hidden), "metadata": metadata}
                return _status(client.post(path, params={"embed": embed}, json={"documents": [document]}))

            return write

        return {
            "POST documents, a right guess of a text": add(
                lambda pair, hidden: f"{'right' if hidden else 'wrong'}{pair}",
                lambda pair, hidden: f"{'salary' if hidden else 'wages!'} {pair}",
            ),
            "POST documents, an id that is there": add(
                lambda pair, hidden: f"{'overwritten' if hidden else 'nothing-here'}{pair}",
                lambda pair, hidden: f"{'first' if hidden else 'other'} text of {pair}",
            ),
            "POST documents, embed=later, a right guess of a text": add(
                lambda pair, hidden: f"{'later' if hidden else 'not-yet'}{pair}",
                lambda pair, _: f"salary {pair}",
                "later",
            ),
            "PATCH documents, an id that is there": lambda pair, hidden: _status(
                client.patch(path, json={"metadata": {f"{'changed' if hidden else 'unknown'}{pair}": {"year": pair}}})
            ),
            "DELETE documents, filtered": lambda pair, hidden: _status(
                client.request("DELETE", path, json={"filters": f"year = {pair if hidden else -pair - 1}"})
            ),
            "DELETE documents, an id that is there": lambda pair, hidden: _status(
                client.request("DELETE", path, json={"ids": [f"{'deleted' if hidden else 'unknown'}{pair}"]})
            ),
        }


def tools_for(workspace: pointsman.Workspace, access: Access) -> Calls:
    """Return the tools of MCP, for somebody with this access."""
    return Calls(Library(workspace, None, ("auto",), 30.0), Gate(Limits()), lambda _: access)


def _status(response: Any) -> str:
    """Return the status of an answer; whether the rest is the same is asked by twins, see ``views.py``."""
    return str(response.status_code)


def told_apart(door: str, ask: Ask, at_once: int = 1) -> Iterator[tuple[str, bool]]:
    """Ask pairs of requests, in either order, and tell them apart by their times, and by what they answer.

    Args:
        door: its name.
        ask: asks it.
        at_once: pairs; where requests wait for most of their time, several.
    """

    def times_of(pair: int) -> dict[bool, tuple[float, str]]:
        times = {}
        for hidden in (False, True) if pair % 2 else (True, False):
            start = perf_counter()
            answer = ask(pair, hidden)
            times[hidden] = perf_counter() - start, answer
        return times

    with ThreadPoolExecutor(at_once) as threads:
        pairs = list(threads.map(times_of, range(PAIRS + WARM)))[WARM:]
    absent, hidden = (np.array([times[kind][0] for times in pairs]) for kind in (False, True))
    wins = (absent[:, None] > hidden).mean() + (absent[:, None] == hidden).mean() / 2
    answers = [{times[kind][1] for times in pairs} for kind in (False, True)]
    medians = " / ".join(f"{np.median(seconds) * 1000:.1f}" for seconds in (hidden, absent))
    tried = f"{door}: AUC {wins:.2f}, {medians} ms, answers {sorted(answers[0] | answers[1])}"
    yield tried, bool(0.4 <= wins <= 0.6) and answers[0] == answers[1]
