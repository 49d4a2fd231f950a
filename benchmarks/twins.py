"""Twins at every operation: what is hidden changes no answer of the HTTP API and of MCP, to any kind of key.

    python benchmarks/twins.py [--answers 3000] [--seed 1] [--at postgresql]

Two copies of one workspace (`pointsman.evaluation.leaktest`), with and without documents that the asker may not see,
whose dates, versions, sources and sizes are drawn, are asked the same: every operation of ``docs/openapi.json`` and
every tool of MCP, by a key that asks as somebody, by one that has more principals and names some of them, by one that
only writes, and by one without principals that may do everything. Ids, sources, words and vectors are those of visible
and of hidden documents. Status, headers and body have to be equal, times aside. What is written comes last. Prints how
many answers of each kind differ, and exits with 1 if one does, or if an operation was not asked.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from fastapi.testclient import TestClient

import pointsman
from pointsman.evaluation.leak_cases import TwinCase, random_case, random_question
from pointsman.evaluation.leak_doors import timeless
from pointsman.evaluation.leaktest import ShippedEmbedder, TwinPair
from pointsman.integrations.mcp.tool_calls import TOOLS, Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.store.local.folder_backend import temporary_backend
from pointsman.tools.vectors import encode_vector
from pointsman.values.views import ACCESS
from views import place_at

_ROOT: Final = Path(__file__).parent.parent
_OTHER: Final = "group:nobody"
"""A principal that no document names."""
_OF_TIME: Final = {"date", "content-length", "x-request-id", "server-timing"}
_OF_PROCESS: Final = {"/metrics", "/ready"}  # how busy it is: asked, but not compared
_LIMITS: Final = Limits(requests_per_minute=0, search_seconds=600.0)  # no answer depends on how busy the machine is


@dataclass(frozen=True)
class Asked:
    """A request: an operation of the API, as method and path of its description, or a tool of MCP."""

    operation: tuple[str, str]
    path: str = ""
    parameters: Mapping[str, Any] | None = None
    body: Any = None


def reading(chance: random.Random, case: TwinCase) -> Iterator[Asked]:
    """Yield a request for every operation that reads, about visible and hidden documents."""
    documents = [(write.dataset, document) for write in case.writes for document in write.documents]
    name, document = chance.choice(documents)
    question: dict[str, Any] = {}
    while "dataset" not in question or "query" not in question:  # one that is asked over HTTP
        question = dict(random_question(chance, case.techniques, [document])[1])
    query, options = (
        question["query"],
        {k: v for k, v in question.items() if k not in {"dataset", "id", "source", "word"}},
    )
    filters = chance.choice(["year >= 2010", 'lang = "en"', f"source = {document.metadata.get('source', 'x.md')}"])
    source = document.metadata.get("source", "file0.md")
    root, store = f"/api/datasets/{name}", f"/v1/vector_stores/{name}"

    def get(path: str, **parameters: Any) -> Asked:
        described = re.sub(re.escape(name), "{name}", path).replace(document.id, "{file_id}")
        return Asked(("get", described), path, parameters)

    def post(path: str, body: Any) -> Asked:
        return Asked(("post", path.replace(name, "{name}")), path, None, body)

    for path in ("/health", "/ready", "/metrics", "/api/strategies", "/api/me", "/api/evaluations", "/api/policy"):
        yield get(path)
    yield get("/api/datasets")
    yield get(root)
    for parameters in ({}, {"filters": filters}, {"limit": 2}, {"roots": True}):
        yield get(f"{root}/documents", **parameters)
    yield get(f"{root}/metadata_keys")
    yield get(f"{root}/count")
    yield get(f"{root}/count", filters=filters)
    yield get(f"{root}/document", id=document.id)
    yield get(f"{root}/text", source=source)
    yield get(f"{root}/ids", source=source)
    yield get(f"{root}/ids", filters=filters, limit=3)
    yield get("/api/retrieval/recommend_strategy", query=query)
    yield post("/api/search", {**options, "trace": "lists"})
    yield post("/api/stream", options)
    yield post("/api/search_many", {**{k: v for k, v in options.items() if k != "query"}, "queries": [query, "signal"]})
    yield post("/api/explain", {**options, "document_id": document.id})
    yield post("/api/route", {"query": query})
    yield post("/api/replay", {"receipt": "unknown"})
    yield post("/api/verify", {"answer": document.text[:200], "hits": [{"dataset": name, "id": document.id}]})
    yield post("/api/retrieval/search", {"query": query, "k": 5})
    yield post(f"{root}/nearest", {"vector": encode_vector(ShippedEmbedder().embed_queries([query])[0]), "k": 3})
    yield post(f"{root}/vectors", {"ids": [document.id]})
    yield post(f"{root}/verify", None)
    yield post(
        "/retrieval", {"knowledge_id": name, "query": query, "retrieval_setting": {"top_k": 3, "score_threshold": 0}}
    )
    yield post(f"{store}/search", {"query": query, "max_num_results": 3})


def tools(chance: random.Random, case: TwinCase) -> Iterator[Asked]:
    """Yield a call of every tool of MCP."""
    name, document = chance.choice([(write.dataset, item) for write in case.writes for item in write.documents])
    query, id_ = " ".join(document.text.split()[:4]) or "train", f"{name}/{document.id}"
    arguments: dict[str, dict[str, Any]] = {
        "search": {"query": query},
        "fetch": {"id": id_},
        "read": {"id": id_, "before": 2, "after": 2},
        "outline": {"dataset": name, "source": document.metadata.get("source", "file0.md")},
        "grep": {"pattern": query.split()[0], "ignore_case": True},
        "verify": {"answer": document.text[:200], "ids": [id_]},
        "route": {"query": query},
        "list_datasets": {},
        "explain": {"query": query, "id": id_},
    }
    for tool, values in arguments.items():
        yield Asked(("tool", tool), body=values)
    yield Asked(("tool", "outline"), body={"dataset": name})


def writing(chance: random.Random, case: TwinCase) -> Iterator[Asked]:
    """Yield a request for every operation that writes: right and wrong guesses of ids and texts."""
    name, document = chance.choice([(write.dataset, item) for write in case.writes for item in write.documents])
    path, unknown = f"/api/datasets/{name}/documents", f"new {chance.random()}"
    texts = [(document.id, document.text), (document.id, "a wrong guess"), (unknown, document.text), (unknown, "")]
    described = "/api/datasets/{name}/documents"
    for id_, text in texts:
        body = {"documents": [{"id": id_, "text": text, "metadata": {ACCESS: {"allow": ["group:law"]}}}]}
        yield Asked(("post", described), path, None, body)
        yield Asked(("post", described), path, {"embed": "later"}, body)
    yield Asked(("patch", described), path, None, {"metadata": {document.id: {"year": 1}, unknown: {"year": 2}}})
    yield Asked(("patch", described), path, None, {"metadata": {document.id: {"year": [[]]}}})
    yield Asked(("delete", described), path, None, {"ids": [document.id, unknown]})
    yield Asked(("delete", described), path, None, {"filters": "year >= 2010"})
    yield Asked(("post", "/api/datasets"), "/api/datasets", None, {"name": name, "description": "changed"})
    yield Asked(("post", "/api/datasets"), "/api/datasets", None, {"name": "new", "indexing_technique": "keyword"})
    yield Asked(("put", "/api/policy"), "/api/policy", None, {})
    yield Asked(("delete", "/api/policy"), "/api/policy")
    yield Asked(("delete", "/api/datasets/{name}"), f"/api/datasets/{name}")


class Copy:
    """One copy, with a key of every kind."""

    def __init__(self, workspace: pointsman.Workspace, asker: tuple[str, ...], stack: ExitStack) -> None:
        self._client = stack.enter_context(
            TestClient(create_app(workspace, limits=_LIMITS), base_url="http://localhost")
        )
        create, self._asker = keys_of(workspace.backend).create, list(asker)
        keys = {
            "asks as somebody": create("reader", principals=self._asker, scopes=["read"]),
            "narrowed": create("wider", principals=[*asker, _OTHER], scopes=["read"]),
            "only writes": create("writer", scopes=["write"]),
            "without principals": create("operator"),
        }
        self._keys = {kind: key.text for kind, key in keys.items()}
        self._ids = [key.key.id for key in keys.values()]
        library = Library(workspace, None, ("auto",), 600.0)
        access = replace(Access.open(), principals=frozenset(asker))
        self._tools = Calls(library, Gate(_LIMITS), lambda _: access)
        workspace.search("?", 1, refuse=False, principals=self._asker)  # measures the view before any strategy is timed

    def ask(self, kind: str, asked: Asked) -> Any:
        """Return status, headers and body of an answer, without what times change."""
        method, described = asked.operation
        if method == "tool":
            return timeless(anyio.run(partial(self._tools.call, described, asked.body, {})))
        body = asked.body
        if kind == "narrowed" and isinstance(body, dict) and described in _NARROWED:
            body = {**body, "principals": self._asker}
        headers = {"Authorization": f"Bearer {self._keys[kind]}"}
        answer = self._client.request(method.upper(), asked.path, params=asked.parameters, json=body, headers=headers)
        shown = {name: value for name, value in answer.headers.items() if name not in _OF_TIME}
        text = answer.text
        for key in self._ids:
            text = text.replace(key, "")
        if "event-stream" not in shown.get("content-type", ""):
            return answer.status_code, shown, timeless(_parsed(text))
        events = [timeless(_parsed(line)) for line in text.splitlines()]
        return answer.status_code, shown, sorted(events, key=repr)  # branches report as they end


_NARROWED: Final = {
    *("/api/search", "/api/stream", "/api/search_many", "/api/explain", "/api/retrieval/search"),
}


def _parsed(line: str) -> Any:
    try:
        return json.loads(line.removeprefix("data: "))
    except ValueError:
        return re.sub(r"\d+(\.\d+)? ms|\"milliseconds\": ?[\d.]+", "", line)


def main() -> int:
    """Ask until there are so many answers; return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", metavar="PLACE")
    arguments = parser.parse_args()
    with place_at(arguments.at) as place, pointsman.open(place) as workspace:
        scratch = workspace.backend.scratch if arguments.at else temporary_backend
        return _compare(arguments.answers, random.Random(arguments.seed), scratch)


def _compare(count: int, chance: random.Random, scratch: Callable[[], AbstractContextManager[Any]]) -> int:
    answers, differing, statuses, operations = Counter[str](), Counter[str](), Counter[str](), set[tuple[str, str]]()
    while answers.total() < count:
        case = random_case(chance, 0)
        requests = [(kind, asked) for kind in ("asks as somebody", "narrowed") for asked in reading(chance, case)]
        requests += [("MCP", asked) for _ in range(4) for asked in tools(chance, case)]
        requests += [(kind, asked) for kind in ("only writes", "without principals") for asked in reading(chance, case)]
        requests += [(kind, asked) for kind in ("only writes", "without principals") for asked in writing(chance, case)]
        with ExitStack() as stack:
            twins = stack.enter_context(TwinPair(case, "access", ShippedEmbedder(), scratch))
            copies = [Copy(workspace, case.asker, stack) for workspace in (twins.full_copy, twins.visible_copy)]
            for kind, asked in requests:
                first, second = (copy.ask(kind, asked) for copy in copies)
                operations.add(asked.operation)
                if asked.path in _OF_PROCESS:
                    continue
                answers[kind] += 1
                if isinstance(first, tuple):
                    statuses[f"{kind}: {first[0]}"] += 1
                if first != second:
                    differing[kind] += 1
                    place = next(
                        n for n, pair in enumerate(zip(repr(first), repr(second), strict=False)) if len({*pair}) > 1
                    )
                    shown = [repr(answer)[max(0, place - 100) : place + 100] for answer in (first, second)]
                    print(f"DIFFER {kind} {asked}: {' / '.join(shown)}", flush=True)
    described = json.loads((_ROOT / "docs" / "openapi.json").read_text("utf-8"))["paths"]
    expected = {(method, path) for path, methods in described.items() for method in methods}
    expected |= {("tool", name) for name in TOOLS}
    print("statuses:", ", ".join(f"{kind} {number}" for kind, number in sorted(statuses.items())))
    print("not asked:", sorted(expected - operations) or "nothing", f"of {len(expected)} operations and tools")
    for kind, number in answers.items():
        print(f"{kind}: {number} answers, {differing[kind]} differ")
    print(f"{answers.total()} answers, {differing.total()} differ")
    return int(bool(differing or expected - operations))


if __name__ == "__main__":
    sys.exit(main())
