"""The HTTP API: every endpoint, by a real server (I7, I8, H5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import httpx
import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.testclient import TestClient

import pointsman
from patience_kit import holds_with_time
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation import evaluate
from pointsman.service.server import Limits, create_app
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.routes import datasets as dataset_routes
from pointsman.tools.errors import InputError
from pointsman.values.settings import Settings
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.past_runs import keep
from pointsman.workspace.workspace_search import Routing
from serving import serving

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from starlette.requests import Request

TEXTS = {
    "switch": ("A railway switch guides trains from one track to another.", {"lang": "en", "year": 2021}),
    "стрелка": ("Стрелочный перевод направляет поезд с одного пути на другой.", {"lang": "ru", "year": 2023}),
    "道岔": ("道岔使列车由一股道转入另一股道。", {"lang": "zh", "year": 2024}),
    "tea": ("Green tea is best brewed below boiling point.", {"lang": "en", "year": 2024}),
    "a/b?c#d": ("An id with marks that mean something in an address.", {"lang": "en", "year": 2020}),
}


def documents() -> list[Document]:
    return [Document(id_, text, metadata) for id_, (text, metadata) in TEXTS.items()]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> pointsman.Workspace:
    workspace = pointsman.open(tmp_path_factory.mktemp("api"), embedder=HashingEmbedder())
    workspace.dataset("notes", description="Notes on railways").add(documents())
    workspace.dataset("words", indexing_technique="keyword").add([Document("one", "The word railway alone.")])
    return workspace


@pytest.fixture(scope="module")
def client(workspace: pointsman.Workspace) -> Iterator[httpx.Client]:
    limits = Limits(requests_per_minute=0, max_documents=10, max_batch=4, max_k=50, max_query_chars=200)
    app = create_app(workspace, settings=Settings(), limits=limits)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def openapi_description(client: httpx.Client) -> dict[str, Any]:
    description: dict[str, Any] = client.get("/api/openapi.json").json()
    return description


def valid(client: httpx.Client, answer: httpx.Response) -> Any:
    """The body, after it was compared with what the OpenAPI description says of this answer."""
    description = openapi_description(client)
    path = answer.request.url.path
    if path not in description["paths"]:
        path = "/".join(["/api/datasets/{name}", *path.split("/")[4:]])
    operation = description["paths"][path][answer.request.method.lower()]
    kind = answer.headers["content-type"]
    schema = operation["responses"][str(answer.status_code)]["content"][kind]["schema"]
    wrong = [
        error.message
        for error in Draft202012Validator({**schema, "components": description["components"]}).iter_errors(
            answer.json()
        )
    ]
    assert not wrong
    return answer.json()


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"], body["type"]) == (status, status, f"/problems/{slug}")
    assert body["instance"] == f"urn:request:{answer.headers['x-request-id']}"
    return body


# ── searching ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_retrieval_api_answers_in_its_own_names(client: httpx.Client, workspace: pointsman.Workspace) -> None:
    """I7, to the letter."""
    request = {"query": "railway switch", "k": 3, "strategy": "auto", "use_rerank": True, "filters": {"lang": "en"}}
    answer = valid(client, client.post("/api/retrieval/search", json=request))
    assert {"results", "strategy_used", "reranking_applied", "performance"} <= set(answer)
    assert set(answer["performance"]) == {"latency_ms", "strategy_confidence"}
    assert answer["performance"]["latency_ms"] > 0
    assert 0 < answer["performance"]["strategy_confidence"] <= 1
    assert answer["reranking_applied"] is False  # the calibrated sum is the fusion already
    expected = workspace.search("railway switch", 3, filters={"lang": "en"}, rerank=True)
    assert [(hit["id"], hit["score"], hit["dataset"]) for hit in answer["results"]] == [
        (hit.id, hit.score, hit.dataset) for hit in expected.hits
    ]
    assert answer["strategy_used"] == expected.plan.strategy
    assert answer["results"][0]["text"] == expected.hits[0].text
    assert answer["trace"] is None
    refusal = client.post("/api/search", json={**request, "use_rerank": None} | {"rerank": True}).json()
    assert "use_rerank" in refusal["detail"], "the names of the retrieval API are not ours"


def test_search_without_reranking(client: httpx.Client) -> None:
    request = {"query": "railway", "rerank": False, "strategy": "rrf", "datasets": ["notes"]}
    answer = valid(client, client.post("/api/search", json=request))
    assert (answer["reranked"], answer["strategy"]) == (False, "rrf")
    assert answer["strategy_confidence"] == 1.0  # nobody has chosen


@pytest.mark.parametrize("detail", ["none", "stages", "lists"])
def test_a_trace_on_request(client: httpx.Client, detail: str) -> None:
    request = {"query": "railway", "trace": detail, "datasets": ["notes"]}
    trace = valid(client, client.post("/api/search", json=request))["trace"]
    if detail == "none":
        assert trace is None
    else:
        assert {"plan", "retrieve", "fuse"} <= {span["stage"] for span in trace["spans"]}
        assert (trace["records"] is not None) == (detail == "lists")


def test_a_refusal_names_the_nearest_and_can_be_passed_over(client: httpx.Client) -> None:
    request = {"query": "xylophone zeppelin quartz", "datasets": ["words"]}
    answer = valid(client, client.post("/api/search", json=request))
    assert answer["hits"] == []
    lenient_answer = valid(client, client.post("/api/search", json={**request, "query": "railway", "refuse": False}))
    assert [hit["id"] for hit in lenient_answer["hits"]] == ["one"]


@pytest.mark.parametrize(
    ("change", "status", "slug", "message"),
    [
        ({"query": 1}, 422, "invalid-input", "query"),
        ({"k": 0}, 422, "invalid-input", "k"),
        ({"k": "3"}, 422, "invalid-input", "k"),
        ({"k": True}, 422, "invalid-input", "k"),
        ({"k": 51}, 422, "invalid-input", "50"),
        ({"kk": 3}, 422, "invalid-input", "kk"),
        ({"query": "x" * 201}, 422, "invalid-input", "201"),
        ({"strategy": "clairvoyance"}, 422, "invalid-input", "clairvoyance"),
        ({"strategy": "hyde"}, 409, "conflict", "language model"),
        ({"filters": "year >="}, 422, "invalid-input", "year >="),
        ({"filters": {"year": {"like": 3}}}, 422, "invalid-input", "like"),
        ({"datasets": ["nowhere"]}, 404, "not-found", "nowhere"),
        ({"effort": "heroic"}, 422, "invalid-input", "effort"),
        ({"timeout": -1}, 422, "invalid-input", "timeout"),
        ({"strategy": "vector", "datasets": ["words"]}, 409, "conflict", "words"),
        ({"trace": "all"}, 422, "invalid-input", "trace"),
    ],
)
def test_what_cannot_be_searched_is_said(
    client: httpx.Client, change: dict[str, Any], status: int, slug: str, message: str
) -> None:
    answer = client.post("/api/search", json={"query": "railway", **change})
    assert message in problem(answer, status, slug)["detail"]


def test_many_questions_get_an_answer_each(client: httpx.Client) -> None:
    request = {"queries": ["railway", "tea", "道岔"], "k": 1, "datasets": ["notes"]}
    body = valid(client, client.post("/api/search_many", json=request))
    assert [answer["query"] for answer in body["answers"]] == request["queries"]
    assert body["answers"][1]["hits"][0]["id"] == "tea"
    too_many = client.post("/api/search_many", json={"queries": ["a"] * 5})
    assert "4" in problem(too_many, 422, "invalid-input")["detail"]


def events(client: httpx.Client, request: dict[str, Any]) -> list[tuple[str, Any]]:
    pairs = []
    with client.stream("POST", "/api/stream", json=request) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for event_text in "".join(answer.iter_text()).strip().split("\n\n"):
            name, data = event_text.split("\n")
            pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


def test_a_streamed_search_tells_plan_branches_stages_and_the_answer(client: httpx.Client) -> None:
    request = {"query": "railway switch", "trace": "stages", "datasets": ["notes", "words"]}
    stream_events = events(client, request)
    names = [name for name, _ in stream_events]
    assert names[-1] == "result"
    assert names.index("plan") < names.index("branch") < len(names) - 1
    branches = [data["detail"].partition(":")[0] for name, data in stream_events if name == "branch"]
    assert sorted(branches) == ["notes", "words"]
    answer = client.post("/api/search", json=request).json()
    last = stream_events[-1][1]
    assert last["hits"] == answer["hits"]
    stages = [data["stage"] for name, data in stream_events if name in {"stage", "branch"}]
    assert sorted(stages) == sorted(span["stage"] for span in last["trace"]["spans"])


def test_a_streamed_search_that_cannot_be_done_has_its_own_status(client: httpx.Client) -> None:
    problem(client.post("/api/stream", json={"query": "x", "datasets": ["nowhere"]}), 404, "not-found")


@pytest.mark.parametrize(
    ("query", "strategy", "needs_llm"),
    [("什么是环保设备?", "hyde", True), ("a wide field of reeds by the river", "hybrid", False)],
)
def test_recommending_a_strategy(client: httpx.Client, query: str, strategy: str, needs_llm: bool) -> None:
    """I8; a strategy that cannot be used here is not recommended, and the reason names it."""
    recommendation = valid(client, client.get("/api/retrieval/recommend_strategy", params={"query": query}))
    assert set(recommendation) == {"recommended_strategy", "confidence", "reason", "alternatives"}
    assert all(set(alternative) == {"strategy", "confidence"} for alternative in recommendation["alternatives"])
    if needs_llm:
        assert recommendation["recommended_strategy"] != strategy
        assert strategy in recommendation["reason"]
    else:
        assert recommendation["recommended_strategy"] == strategy


def test_the_seeds_recommendation_where_there_is_a_model(tmp_path: Path) -> None:
    """I8's own example."""
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    settings = Settings(hyde_llm_provider="http://127.0.0.1:9/v1", llm_model="any")  # it is not asked
    with serving(create_app(space, settings=settings)) as address:
        answer = httpx.get(f"{address}/api/retrieval/recommend_strategy", params={"query": "什么是环保设备?"})
    assert answer.json()["recommended_strategy"] == "hyde"
    assert answer.json()["confidence"] == 0.85


def test_routing_tells_three_decisions(client: httpx.Client) -> None:
    """H5."""
    route = valid(client, client.post("/api/route", json={"query": "дата создания"}))
    assert route["heuristic"] == {"route": "bm25", "reasons": ["short_or_entity_numeric"]}
    assert route["heuristic_reason"] == Routing.by_form("дата создания").heuristic_reason
    assert route["plan"]["strategy"]
    assert set(route["decision"]["datasets"]) <= {"notes", "words"}


def test_explaining_a_hit_and_a_miss(client: httpx.Client) -> None:
    request = {"query": "railway switch", "k": 1, "datasets": ["notes"]}
    hit = valid(client, client.post("/api/explain", json={**request, "document_id": "switch"}))
    assert (hit["rank"], hit["dataset"]) == (1, "notes")
    assert hit["answer"]["hits"][0]["id"] == "switch"
    miss = valid(client, client.post("/api/explain", json={**request, "document_id": "tea"}))
    assert miss["rank"] is None
    assert miss["summary"]
    unknown = client.post("/api/explain", json={**request, "document_id": "tea", "dataset": "nowhere"})
    problem(unknown, 404, "not-found")


def test_strategies_say_what_they_lack(client: httpx.Client) -> None:
    strategies = {strategy["name"]: strategy for strategy in valid(client, client.get("/api/strategies"))["strategies"]}
    assert strategies["auto"]["usable"]
    assert "language model" in strategies["hyde"]["why_not"]
    assert strategies["sparse"]["usable"]  # by the weights of BM25
    assert all(strategies[name]["about"] for name in ("auto", "hybrid", "rrf", "decomposition", "sparse"))


def test_strategies_of_an_empty_workspace(tmp_path: Path) -> None:
    with serving(create_app(pointsman.open(tmp_path, embedder=HashingEmbedder()))) as address:
        strategies = httpx.get(f"{address}/api/strategies").json()["strategies"]
        assert [strategy["name"] for strategy in strategies if strategy["usable"]] == ["auto"]
        answer = httpx.post(f"{address}/api/search", json={"query": "railway"})
        assert (answer.status_code, answer.json()["hits"]) == (200, [])
        parameters = {"query": "compare tea and coffee"}
        answer = httpx.get(f"{address}/api/retrieval/recommend_strategy", params=parameters)
        assert answer.json()["recommended_strategy"] == "decomposition"


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def asked_with(tmp_path: Path, settings: Settings, request: dict[str, Any]) -> dict[str, Any]:
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    with serving(create_app(space, settings=settings)) as address:
        answer: dict[str, Any] = httpx.post(f"{address}/api/search", json=request).json()
    return answer


def test_settings_say_what_a_request_leaves_open(tmp_path: Path) -> None:
    """I6."""
    settings = Settings(default_retrieval_strategy="bm25", enable_reranker_by_default=False)
    answer = asked_with(tmp_path, settings, {"query": "railway switch"})
    assert (answer["strategy"], answer["reranked"]) == ("bm25", False)


def test_the_look_of_the_query_decides_where_that_is_set(tmp_path: Path) -> None:
    """I5 over I7: a comparison is taken apart, with the rule's own confidence."""
    answer = asked_with(tmp_path, Settings(policy="heuristic"), {"query": "compare tea and railway switch"})
    assert answer["strategy"] == "decomposition"
    assert answer["strategy_confidence"] == 0.9


# ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dataset_from_its_making_to_its_end(client: httpx.Client) -> None:
    creation = client.post("/api/datasets", json={"name": "заметки", "description": "one"})
    assert creation.status_code == 201
    assert valid(client, creation)["documents"] == 0
    second_creation = client.post("/api/datasets", json={"name": "заметки", "description": "two"})
    assert (second_creation.status_code, valid(client, second_creation)["description"]) == (200, "two")
    documents = [{"id": id_, "text": text, "metadata": metadata} for id_, (text, metadata) in TEXTS.items()]
    addition = client.post("/api/datasets/заметки/documents", json={"documents": documents})
    assert valid(client, addition) == {"added": 5, "updated": 0, "unchanged": 0, "truncations": 0}
    second_addition = client.post("/api/datasets/заметки/documents", json={"documents": documents})
    assert valid(client, second_addition) == {"added": 0, "updated": 0, "unchanged": 5, "truncations": 0}
    description = valid(client, client.get("/api/datasets/заметки"))
    assert description["documents"] == 5
    assert description["sequence"] == description["keyword_index_sequence"]
    document = valid(client, client.get("/api/datasets/заметки/document", params={"id": "a/b?c#d"}))
    assert document["metadata"] == {"lang": "en", "year": 2020}
    problem(client.get("/api/datasets/заметки/document", params={"id": "nothing"}), 404, "not-found")
    deletion = client.request("DELETE", "/api/datasets/заметки/documents", json={"ids": ["tea", "nothing"]})
    assert valid(client, deletion) == {"deleted": 1}
    assert valid(client, client.post("/api/datasets/заметки/verify"))["problems"] == []
    assert valid(client, client.delete("/api/datasets/заметки")) == {"dataset": "заметки", "deleted": 4}
    problem(client.get("/api/datasets/заметки"), 404, "not-found")
    names = [dataset["name"] for dataset in valid(client, client.get("/api/datasets"))["datasets"]]
    assert "заметки" not in names


def test_documents_come_page_by_page(client: httpx.Client) -> None:
    documents, cursor = [], "0"
    while cursor is not None:
        page = valid(client, client.get("/api/datasets/notes/documents", params={"after": cursor, "limit": 2}))
        documents += page["documents"]
        cursor = page["next"]
    assert [document["id"] for document in documents] == list(TEXTS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": [{"id": "", "text": "x"}]}, "id"),
        ({"documents": [{"id": "a"}]}, "text"),
        ({"documents": [{"id": "a", "text": "x", "vector": [1]}]}, "vector"),
        ({"documents": [{"id": "a", "text": "x"}] * 11}, "10"),
        ({}, "documents"),
    ],
)
def test_documents_that_cannot_be_used_are_told_of(client: httpx.Client, body: dict[str, Any], message: str) -> None:
    answer = client.post("/api/datasets/notes/documents", json=body)
    assert message in problem(answer, 422, "invalid-input")["detail"]


@pytest.mark.parametrize("name", [".", "..", "../notes", "a/b", "a" * 65, "x\u0000y", "CON:"])
def test_a_name_that_is_none_makes_no_dataset(client: httpx.Client, name: str) -> None:
    problem(client.post("/api/datasets", json={"name": name}), 422, "invalid-input")


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_stream_of_documents_is_acknowledged_batch_by_batch(client: httpx.Client) -> None:
    client.post("/api/datasets", json={"name": "stream"})
    body = "".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(150))
    headers = {"content-type": "application/x-ndjson"}
    reports = lines(client.post("/api/datasets/stream/documents", content=body, headers=headers))
    assert [report["done"] for report in reports] == [64, 128, 150]
    assert [report.get("finished") for report in reports] == [None, None, True]
    assert reports[-1]["added"] == 150
    second_reports = lines(client.post("/api/datasets/stream/documents", content=body, headers=headers))
    assert (second_reports[-1]["added"], second_reports[-1]["unchanged"]) == (0, 150)


def test_long_lines_of_a_stream_make_smaller_batches(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_routes, "_BATCH_CHARACTERS", 100)
    client.post("/api/datasets", json={"name": "long"})
    body = "".join(json.dumps({"id": str(n), "text": "x" * (40 if n < 5 else 100)}) + "\n" for n in range(7))
    headers = {"content-type": "application/x-ndjson"}
    reports = lines(client.post("/api/datasets/long/documents", content=body, headers=headers))
    assert [report["done"] for report in reports] == [3, 6, 7, 7]


def test_a_stream_that_breaks_off_says_where_and_keeps_what_was_acknowledged(client: httpx.Client) -> None:
    client.post("/api/datasets", json={"name": "broken"})
    good = "".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(70))
    reports = lines(
        client.post(
            "/api/datasets/broken/documents",
            content=good + '{"id": "x"}\n',
            headers={"content-type": "application/x-ndjson"},
        )
    )
    assert reports[-1]["problem"]["line"] == 71
    assert reports[-1]["problem"]["status"] == 422
    assert "finished" not in reports[-1]
    stored_count = client.get("/api/datasets/broken").json()["documents"]
    assert stored_count == reports[-1]["done"] == 70


def test_a_stream_is_answered_while_it_is_still_sent(client: httpx.Client) -> None:
    """Progress out while documents come in: the first lines are there before the last documents are sent."""
    import http.client

    client.post("/api/datasets", json={"name": "live"})
    connection = http.client.HTTPConnection("127.0.0.1", client.base_url.port or 0, timeout=30)
    connection.putrequest("POST", "/api/datasets/live/documents")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()

    def send(text: str) -> None:
        data = text.encode()
        connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    send("".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(64)))
    answer = connection.getresponse()
    assert json.loads(answer.readline())["done"] == 64
    send(json.dumps({"id": "last", "text": "the last"}) + "\n")
    connection.send(b"0\r\n\r\n")
    assert json.loads(answer.readline()) == {
        "done": 65,
        "added": 65,
        "updated": 0,
        "unchanged": 0,
        "truncations": 0,
        "finished": True,
    }
    connection.close()


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
@pytest.mark.parametrize("complete", [0, 70])
def test_a_client_that_hangs_up_is_no_error_of_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, complete: int
) -> None:
    body = "".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(complete)) + '{"id": "x", "te'
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": body.encode(), "more_body": True}, *[{"type": "http.disconnect"}] * 9]
    )
    sent = []

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/datasets/notes/documents", "query_string": b""}
    scope |= {"scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 5), "server": ("localhost", 80)}
    headers = {"host": "localhost", "content-type": kind, "transfer-encoding": "chunked", "x-request-id": "hangs-up"}
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as space, caplog.at_level("INFO", "pointsman"):
        space.dataset("notes").make()
        app: Any = create_app(space)
        asyncio.run(
            app(
                {**scope, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]},
                receive,
                send,
            )
        )
    request_records = [
        record for record in caplog.records if getattr(record, "fields", {}).get("request_id") == "hangs-up"
    ]
    assert [(record.levelname, record.fields["status"]) for record in request_records] == [("INFO", 499)]  # type: ignore[attr-defined]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    acknowledgements = [json.loads(m["body"]) for m in sent if m.get("body") and m["body"].startswith(b'{"done"')]
    assert [acknowledgement["done"] for acknowledgement in acknowledgements] == (
        [64] if complete and kind == "application/x-ndjson" else []
    )


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_service_tells_of_itself(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    identity = valid(client, client.get("/api/me"))
    assert (identity["key"], identity["datasets"], identity["scopes"]) == (None, ["*"], ["read", "write"])
    assert "pointsman_searches_total" in client.get("/metrics").text


def test_evaluations_that_were_kept(client: httpx.Client, workspace: pointsman.Workspace, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "tea"}\n{"_id": "b", "text": "coffee"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "tea"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    report = evaluate(tmp_path, "bm25")
    keep(workspace.backend, report.to_json())
    (workspace.path / "evaluations" / "00000000T000000.json").write_text("no JSON")
    runs = valid(client, client.get("/api/evaluations"))["runs"]
    assert len(runs) == 1
    assert runs[0]["strategies"]["bm25"]["ndcg@10"] == 1.0
    assert runs[0]["time"]


def test_a_policy_is_kept_used_and_dropped(client: httpx.Client) -> None:
    assert valid(client, client.get("/api/policy")) == {"policy": None}
    policy_answer = client.put("/api/policy", json={"name": "ours", "strategy": "vector"})
    assert valid(client, policy_answer)["policy"]["strategy"] == "vector"
    request = {"query": "railway", "datasets": ["notes"]}
    assert client.post("/api/search", json=request).json()["strategy"] == "vector"
    problem(client.put("/api/policy", json={"vector_weight": -1}), 422, "invalid-input")
    assert valid(client, client.delete("/api/policy")) == {"policy": None}
    assert client.post("/api/search", json=request).json()["strategy"] == "hybrid"


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/api/datasets/", 404, "not-found"),
        ("PATCH", "/api/datasets", 405, "method-not-allowed"),
        ("POST", "/health", 405, "method-not-allowed"),
    ],
)
def test_what_is_not_there_is_a_problem_too(
    client: httpx.Client, method: str, path: str, status: int, slug: str
) -> None:
    problem(client.request(method, path), status, slug)


def test_a_path_names_all_its_methods(client: httpx.Client) -> None:
    answer = client.request("PATCH", "/api/datasets/notes")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/datasets/notes/count?filter=lang%20=%20ru", "no query parameter 'filter' here; did you mean 'filters'?"),
        ("/api/datasets/notes/count?foo=1", "no query parameter 'foo' here; known: filters"),
        ("/api/me?foo=1", "no query parameter 'foo' here; known: none"),
    ],
)
def test_an_unknown_query_parameter_is_told_of(client: httpx.Client, path: str, message: str) -> None:
    assert message in problem(client.get(path), 422, "invalid-input")["detail"]
    assert client.get("/health?foo=1").status_code == 200


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/api/retrieval/search", "rerank", "no field 'rerank' here; did you mean 'use_rerank'?"),
        ("/api/search_many", "filter", "no field 'filter' here; did you mean 'filters'?"),
        ("/api/search", "top_k", "no field 'top_k' here; known: k, strategy"),
    ],
)
def test_an_unknown_field_is_told_of(client: httpx.Client, path: str, field: str, message: str) -> None:
    answer = client.post(path, json={"query": "tea", field: True})
    assert message in problem(answer, 422, "invalid-input")["detail"]


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/metrics", "/api/me", "/api/datasets", "/api/datasets/notes/count", "/nowhere"]
)
def test_head_is_answered_as_get_without_the_body(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))
    assert client.head("/api/search").status_code == 405
    assert 'method="HEAD",route="/health",status="200"' in client.get("/metrics").text or path != "/health"


def test_one_damaged_dataset_does_not_hide_the_others(tmp_path: Path) -> None:
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    for name in ("good", "bad"):
        space.dataset(name).add(documents())
    space.close()
    (tmp_path / "datasets" / "bad" / "documents.sqlite").write_bytes(b"no database at all" * 100)
    for path in (tmp_path / "datasets" / "bad").glob("documents.sqlite-*"):
        path.unlink()
    app = create_app(pointsman.open(tmp_path, embedder=HashingEmbedder()))
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        datasets = {dataset["name"]: dataset for dataset in client.get("/api/datasets").json()["datasets"]}
        assert datasets["good"]["problem"] is None
        assert datasets["bad"]["problem"]
        answer = client.post("/api/search", json={"query": "railway switch", "datasets": ["good"]})
        assert answer.json()["hits"][0]["id"] == "switch"


# ── what does not leave the server ───────────────────────────────────────────────────────────────────────────────────


def test_no_answer_names_a_folder_of_the_server(tmp_path: Path) -> None:
    """Neither hits, documents nor notes on what failed."""
    folder = tmp_path / "the server's own"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "switch.md").write_text("# Switches\n\nA railway switch guides trains.\n")
    space = pointsman.open(folder / "work", embedder=HashingEmbedder())
    index_paths(space.dataset("files"), [folder / "docs"])
    space.dataset("own").add([Document("own", "A switch of mine.", {"root": "/srv/x", "year": 2020})])
    space.dataset("broken").add([Document("b", "A broken switch.")])
    space.close()
    (folder / "work" / "datasets" / "broken" / "documents.sqlite").write_bytes(b"noise" * 1000)
    with serving(create_app(pointsman.open(folder / "work", embedder=HashingEmbedder()))) as address:
        request = {"query": "railway switch", "refuse": False, "trace": "lists"}
        answer = httpx.post(f"{address}/api/search", json=request)
        assert {hit["id"] for hit in answer.json()["hits"]} >= {"own"}
        assert [hit["metadata"]["source"] for hit in answer.json()["hits"] if hit["dataset"] == "files"]
        assert "broken" in str(answer.json()["degraded"])
        pages = [httpx.get(f"{address}/api/datasets/{name}/documents") for name in ("files", "own", "broken")]
        pages += [
            httpx.get(f"{address}/api/datasets"),
            httpx.post(f"{address}/api/explain", json={**request, "document_id": "b"}),
        ]
        for response in (answer, *pages):
            assert str(tmp_path) not in response.text
        document = httpx.get(f"{address}/api/datasets/own/document", params={"id": "own"}).json()
        assert document["metadata"] == {"root": "/srv/x", "year": 2020}, "what somebody has stored stays"


def datasets_of(client: httpx.Client) -> list[dict[str, Any]]:
    """The datasets of a service without what its process has in memory, which differs from one moment to the next."""
    datasets: list[dict[str, Any]] = client.get("/api/datasets").json()["datasets"]
    return [{name: value for name, value in dataset.items() if name != "memory"} for dataset in datasets]


def test_an_empty_dataset_is_made_by_name_and_nothing_else_makes_one(client: httpx.Client) -> None:
    """What only reads, or fails, makes nothing."""
    datasets_at_start = datasets_of(client)
    for method, path, body in (
        ("POST", "/api/search", {"query": "x", "datasets": ["typo"]}),
        ("POST", "/api/route", {"query": "x", "datasets": ["typo"]}),
        ("GET", "/api/datasets/typo", None),
        ("GET", "/api/datasets/typo/documents", None),
        ("POST", "/api/datasets/typo/documents", {"documents": [{"id": "a", "text": "a"}]}),
        ("DELETE", "/api/datasets/typo", None),
    ):
        problem(client.request(method, path, json=body), 404, "not-found")
    problem(client.post("/api/datasets", json={"name": "𝒳" * 64}), 422, "invalid-input")
    assert datasets_of(client) == datasets_at_start
    assert client.post("/api/datasets", json={"name": "made"}).status_code == 201
    assert valid(client, client.get("/api/datasets/made"))["documents"] == 0
    assert valid(client, client.delete("/api/datasets/made")) == {"dataset": "made", "deleted": 0}


def test_a_key_for_writing_does_not_learn_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word of the server's own paths."""
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    keys = KeyStore(tmp_path / "keys.json")
    headers = {"X-API-Key": keys.create("writer", scopes=["write"]).text}
    monkeypatch.setattr(dataset_routes, "_STEP", 0.01)
    monkeypatch.setattr(dataset_routes, "_STEP_OF_ADDING", 0.01)
    path = "/api/datasets/notes/documents"
    with serving(create_app(space, keys=keys)) as address, httpx.Client(base_url=address, headers=headers) as client:
        answers = []
        for text in (TEXTS["tea"][0], "Another text."):
            document = {"id": "tea", "text": text, "metadata": TEXTS["tea"][1]}
            answers.append(client.post(path, json={"documents": [document]}).json())
            lines = client.post(path, content=json.dumps(document), headers={"Content-Type": "application/x-ndjson"})
            answers += [{**line, "done": None} for line in map(json.loads, lines.text.splitlines())]
        assert answers[:2] == answers[2:]
        description = client.post("/api/datasets", json={"name": "notes"}).json()
        assert (description["documents"], description["sequence"], description["embedder"]) == (None, None, None)
        assert client.request("DELETE", path, json={"filters": "year > 2000"}).status_code == 403
        assert client.get("/metrics").status_code == 403
        for id_ in ("tea", "unknown"):
            answer = client.patch(path, json={"metadata": {id_: {"year": 2026}}})
            assert (answer.status_code, answer.json()) == (
                200,
                {"added": None, "updated": None, "unchanged": None, "truncations": None},
            )
        assert space.dataset("notes").get_many(["tea", "unknown"])[1] is None
        assert space.dataset("notes").get("tea").metadata["year"] == 2026  # type: ignore[union-attr]
        for id_ in ("tea", "unknown"):
            assert client.request("DELETE", path, json={"ids": [id_]}).json() == {"deleted": None}
        assert client.delete("/api/datasets/notes").json() == {"dataset": "notes", "deleted": None}


def test_a_right_guess_of_a_stored_text_is_written_and_embedded_like_a_wrong_one(tmp_path: Path) -> None:
    """So that its time does not tell a write-only key; one that reads is told that nothing changed."""

    class CountingEmbedder(HashingEmbedder):
        texts = 0

        def embed_documents(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
            CountingEmbedder.texts += len(texts)
            return super().embed_documents(texts, **options)

    space = pointsman.open(tmp_path, embedder=CountingEmbedder())
    notes = space.dataset("notes")
    notes.add([Document("right", "salary 1"), Document("wrong", "salary 1")])
    keys = KeyStore(tmp_path / "keys.json")
    work: dict[tuple[str, str], tuple[int, int]] = {}
    with serving(create_app(space, keys=keys)) as address, httpx.Client(base_url=address) as client:
        for scope in ("write", "read write"):
            client.headers["X-API-Key"] = keys.create(scope, scopes=scope.split()).text
            for id_, text in (("right", "salary 1"), ("wrong", f"{scope} 1")):
                before = notes.store.statistics().sequence, CountingEmbedder.texts
                document = {"id": id_, "text": text}
                assert client.post("/api/datasets/notes/documents", json={"documents": [document]}).status_code == 200
                after = notes.store.statistics().sequence, CountingEmbedder.texts
                work[scope, id_] = after[0] - before[0], after[1] - before[1]
    assert work["write", "right"] == work["write", "wrong"] == (1, 1)
    assert work["read write", "right"] == (0, 0)


@pytest.mark.parametrize("step", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("is_failing", [False, True])
def test_a_write_takes_a_write_only_key_a_whole_number_of_steps(
    monkeypatch: pytest.MonkeyPatch, step: float, is_failing: bool
) -> None:
    now = 5.0
    ends = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(dataset_routes, "monotonic", lambda: now)
    monkeypatch.setattr(anyio, "sleep", sleep)

    async def change(access: Access, seconds: float) -> None:
        nonlocal now
        async with dataset_routes._even_time(access, step):
            now += seconds
            if is_failing:
                raise InputError("nothing is written")

    for read, seconds in ((False, 0.001), (False, 0.2), (True, 0.3), (False, step + 0.1)):
        start = now
        with contextlib.suppress(InputError):
            asyncio.run(change(replace(Access.open(), read=read), seconds))
        ends.append(now - start)
    assert ends == pytest.approx([step, step, 0.3, 2 * step])


def test_documents_are_counted_listed_and_deleted_by_filter(tmp_path: Path) -> None:
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    with serving(create_app(space)) as address, httpx.Client(base_url=f"{address}/api/datasets/notes") as client:
        assert client.get("/count").json() == {"documents": 5}
        assert client.get("/count", params={"filters": "lang = en and year >= 2021"}).json() == {"documents": 2}
        page = client.get("/documents", params={"filters": "lang = en", "limit": 2}).json()
        assert [document["id"] for document in page["documents"]] == ["switch", "tea"]
        next_page = client.get("/documents", params={"filters": "lang = en", "after": page["next"]}).json()
        assert ([document["id"] for document in next_page["documents"]], next_page["next"]) == (["a/b?c#d"], None)
        problem(client.get("/count", params={"filters": "year >"}), 422, "invalid-input")
        problem(client.request("DELETE", "/documents", json={}), 422, "invalid-input")
        body = {"ids": ["tea", "道岔"], "filters": {"lang": "en"}}
        assert client.request("DELETE", "/documents", json=body).json() == {"deleted": 1}
        assert client.request("DELETE", "/documents", json={"filters": "lang = en"}).json() == {"deleted": 2}


def test_a_request_has_a_budget(client: httpx.Client) -> None:
    """Characters of all queries and messages together."""
    request = {"query": "railway", "history": [{"role": "user", "text": "道" * 200}] * 100}
    assert client.post("/api/search", json=request).status_code == 200
    with serving(create_app(pointsman.open("nowhere"), limits=Limits(max_request_chars=1000))) as address:
        for path, body in (("search_many", {"queries": ["道" * 500] * 3}), ("search", request)):
            refusal = problem(httpx.post(f"{address}/api/{path}", json=body), 422, "invalid-input")
            assert "the limit is 1,000" in refusal["detail"]
        assert httpx.post(f"{address}/api/search_many", json={"queries": ["道" * 500] * 2}).status_code == 200


class SlowEmbedder(HashingEmbedder):
    """Takes so long for a question."""

    text_count, seconds = 0, 0.0

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.text_count += len(texts)
        time.sleep(self.seconds * len(texts))
        return super().embed_queries(texts)


def test_a_request_has_a_budget_of_time(tmp_path: Path) -> None:
    """A hundred questions hold a worker no longer than it says; those that were not reached say so."""

    def check(limit: float) -> None:
        embedder = SlowEmbedder()
        embedder.seconds = limit / 25
        space = pointsman.open(tmp_path / f"within {limit}", embedder=embedder)
        space.dataset("rails").add(documents())
        app = create_app(space, limits=Limits(search_seconds=limit))
        request = {"queries": [f"railway switch {number}" for number in range(100)], "refuse": False}
        with serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
            answers = client.post("/api/search_many", json=request).json()["answers"]
        assert embedder.text_count < 100
        late = [any("ask it again" in cause for cause in answer["degraded"]) for answer in answers]
        assert late == sorted(late), "the first ones are answered first"
        assert not late[0]
        assert answers[0]["hits"][0]["id"] == "switch"
        assert late[-1]
        assert [answer["query"] for answer in answers] == request["queries"]
        assert all(not answer["hits"] for answer, is_late in zip(answers, late, strict=True) if is_late)

    holds_with_time(check, 0.5, 5, 20)


@pytest.mark.parametrize("file", ["documents.sqlite", "manifest.json"])
def test_a_damaged_dataset_can_be_dropped(tmp_path: Path, file: str) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as space:
        space.dataset("bad").add(documents())
    (tmp_path / "datasets" / "bad" / file).write_bytes(b"noise" * 500)
    with serving(create_app(pointsman.open(tmp_path, embedder=HashingEmbedder()))) as address:
        assert httpx.delete(f"{address}/api/datasets/bad").json() == {"dataset": "bad", "deleted": 0}
        assert not (tmp_path / "datasets" / "bad").exists()


def test_only_files_are_read_as_evaluations(tmp_path: Path) -> None:
    """Reading a named pipe would not end."""
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    (tmp_path / "evaluations").mkdir()
    os.mkfifo(tmp_path / "evaluations" / "20990101.json")
    (tmp_path / "evaluations" / "20990102.json").mkdir()
    with serving(create_app(space)) as address:
        assert httpx.get(f"{address}/api/evaluations", timeout=10).json() == {"runs": []}


def test_a_dataset_that_is_dropped_meanwhile_does_not_keep_others_from_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("good").add(documents())
    monkeypatch.setattr(space, "names", lambda: ["gone", "good"])
    with serving(create_app(space)) as address, httpx.Client(base_url=address) as client:
        for path in ("search", "route"):
            assert client.post(f"/api/{path}", json={"query": "railway"}).status_code == 200
        response = client.post("/api/search", json={"query": "railway", "datasets": ["gone"]})
        assert problem(response, 404, "not-found")["detail"] == "there is no dataset named 'gone'"


@pytest.mark.parametrize("file", ["documents.sqlite", "manifest.json"])
def test_a_damaged_dataset_does_not_keep_others_from_answering(tmp_path: Path, file: str) -> None:
    """What is told of it names no folder of the server."""
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as space:
        space.dataset("bad").add(documents())
        space.dataset("good").add(documents())
    (tmp_path / "datasets" / "bad" / file).write_bytes(b"noise" * 500)
    with serving(create_app(pointsman.open(tmp_path, embedder=HashingEmbedder()))) as address:
        answer = httpx.post(f"{address}/api/search", json={"query": "railway", "refuse": False})
        assert {hit["dataset"] for hit in answer.json()["hits"]} == {"good"}
        (note,) = answer.json()["degraded"]
        assert note.startswith(f"bad: CorruptStoreError: …/{file}")
        refused = httpx.post(f"{address}/api/search", json={"query": "railway", "datasets": ["bad"]})
        problem(refused, 503, "unavailable")
        listing = httpx.get(f"{address}/api/datasets")
        assert [dataset["name"] for dataset in listing.json()["datasets"]] == ["bad", "good"]
        for response in (answer, refused, listing):
            assert str(tmp_path) not in response.text


def test_a_name_is_as_long_as_a_file_may_be_called(client: httpx.Client) -> None:
    """64 letters may have 256 bytes."""
    for name in ("\U0001d538" * 64, "道" * 64 + "b"):
        problem(client.post("/api/datasets", json={"name": name}), 422, "invalid-input")
    assert client.post("/api/datasets", json={"name": "道" * 64}).status_code == 201
    assert client.delete(f"/api/datasets/{'道' * 64}").status_code == 200


def test_who_may_only_write_does_not_learn_what_is_stored(tmp_path: Path) -> None:
    space = pointsman.open(tmp_path, embedder=HashingEmbedder())
    space.dataset("notes").add(documents())
    key = KeyStore(tmp_path / "keys.json").create("sender", scopes="write").text
    rows = [("tea", TEXTS["tea"]), ("tea", ("Black tea.", {})), ("new", ("Red tea.", {}))]
    with serving(create_app(space)) as address, httpx.Client(headers={"X-API-Key": key}) as sender:
        answers = [
            sender.post(f"{address}/api/datasets/notes/documents", json={"documents": [document]}).json()
            for document in ({"id": id_, "text": text, "metadata": metadata} for id_, (text, metadata) in rows)
        ]
    assert answers == [{"added": None, "updated": None, "unchanged": None, "truncations": None}] * 3


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (pointsman.InputError("k is 0"), 422, "invalid-input"),
        (pointsman.UnmetNeedError("there is no model"), 409, "conflict"),
        (pointsman.LockedError("busy"), 503, "locked"),
        (pointsman.StoreError("away"), 503, "unavailable"),
        (pointsman.CorruptStoreError("damaged"), 500, "internal"),
        (pointsman.ModelError("no answer"), 503, "unavailable"),
        (pointsman.RetrievalError("nothing", {"bm25": ValueError("x")}), 503, "unavailable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_application_of_ones_own_answers_our_errors(
    framework: type[Starlette], error: Exception, status: int, slug: str
) -> None:
    app = framework()

    async def ask(_: Request) -> NoReturn:
        raise error

    async def fail(_: Request) -> NoReturn:
        raise ZeroDivisionError

    app.router.add_route("/ask", ask)
    app.router.add_route("/v1/ask", ask)
    app.router.add_route("/fail", fail)
    pointsman.add_exception_handlers(app)
    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("/ask", "/v1/ask"):  # a path of ours in an application of others means nothing
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            document = answer.json()
            assert (document["type"], document["status"]) == (f"/problems/{slug}", status)
            assert document["error"] == type(error).__name__
        assert client.get("/fail").headers["content-type"].startswith("text/plain")  # not ours: left to the framework
