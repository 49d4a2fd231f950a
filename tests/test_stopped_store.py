"""A store that takes connections and answers nothing: every request that reads ends by its own limit, and says why."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi.testclient import TestClient

import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp import tool_calls
from pointsman.integrations.mcp.tool_calls import Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.service.server import app, create_app, request_checks
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.store.postgres import bounded_connections
from pointsman.store.postgres.postgres_connections import Connections
from pointsman.tools.errors import StoreUnavailableError
from postgres_kit import give_up_soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postgres_kit import PostgresServer

LIMITS = Limits(search_seconds=0.5, queue_seconds=0)
PATIENT_LIMITS = Limits(search_seconds=60)
READS: list[tuple[str, str, Any]] = [
    ("POST", "/api/search", {"query": "signal lamp"}),
    ("POST", "/api/search_many", {"queries": ["signal lamp"]}),
    ("POST", "/api/explain", {"query": "signal lamp", "document_id": "a"}),
    ("POST", "/api/route", {"query": "signal lamp"}),
    ("POST", "/api/retrieval/search", {"query": "signal lamp"}),
    ("POST", "/api/datasets/notes/nearest", {"vector": [1.0] * 64, "k": 1}),
    ("POST", "/v1/vector_stores/notes/search", {"query": "signal lamp"}),
    ("POST", "/retrieval", {"knowledge_id": "notes", "query": "signal", "retrieval_setting": {"top_k": 1}}),
    ("GET", "/api/datasets", None),
    ("GET", "/api/datasets/notes/count", None),
    ("GET", "/api/datasets/notes/ids", None),
    ("GET", "/api/datasets/notes/text?source=a.md", None),
    ("GET", "/api/datasets/notes/document?id=a", None),
]


@pytest.fixture
def short_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (request_checks, tool_calls):
        monkeypatch.setattr(module, "_MARGIN", 0.5)


@pytest.fixture
def workspace(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[pointsman.Workspace]:
    give_up_soon(monkeypatch)
    with pointsman.open(f"{postgres.url}?schema=w{uuid.uuid4().hex}", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([{"id": "a", "text": "the signal lamp", "metadata": {"source": "a.md"}}])
        yield workspace


@pytest.mark.usefixtures("short_margins")
def test_every_request_that_reads_ends_by_its_limit(
    workspace: pointsman.Workspace, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connections, "ANSWER_SECONDS", 5.0)  # what is left waiting in a thread ends, too

    def ask(read: tuple[str, str, Any]) -> tuple[str, int, float, bytes]:
        method, path, body = read
        start = time.monotonic()
        answer = client.request(method, path, json=body)
        return path, answer.status_code, time.monotonic() - start, answer.content

    deadline = time.monotonic() + 60
    with (
        TestClient(create_app(workspace, limits=LIMITS), base_url="http://localhost") as client,
        ThreadPoolExecutor(len(READS)) as threads,
    ):
        while ask(READS[0])[1] != 200:  # on a busy machine the first one may take longer than its limit
            assert time.monotonic() < deadline
        with postgres.pause():
            answers = list(threads.map(ask, READS))
    for path, status, seconds, content in answers:
        assert status in {200, 503}, (path, status, content)  # what needs nothing of the store is answered
        assert seconds < 30, (path, seconds)
    assert any(b"no answer within 1 seconds" in content for *_, content in answers), answers


WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/api/datasets/notes/documents", {"documents": [{"id": "b", "text": "a second lamp"}]}),
    ("PATCH", "/api/datasets/notes/documents", {"metadata": {"a": {"size": 7}}}),
    ("DELETE", "/api/datasets/notes/documents", {"ids": ["a"]}),
    ("POST", "/api/datasets", {"name": "more"}),
]


def test_every_request_that_writes_ends_and_may_be_sent_again(
    workspace: pointsman.Workspace, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = create_app(workspace, limits=PATIENT_LIMITS)  # without what it does in the background

    async def ask(writes: list[tuple[str, str, Any]]) -> list[httpx.Response]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as client:
            requests = (client.request(method, path, json=body) for method, path, body in writes)
            return await asyncio.gather(*requests)

    assert asyncio.run(ask(READS[:1]))[0].status_code == 200
    with postgres.pause(), monkeypatch.context() as patch:
        patch.setattr(bounded_connections, "ANSWER_SECONDS", 0.5)
        answers = asyncio.run(ask(WRITES))
    for answer in answers:
        assert answer.status_code == 503, (answer.url, answer.content)
        reasons = (b"does not answer", b"keys cannot be checked")  # whichever was asked for first
        assert any(reason in answer.content for reason in reasons), answer.content
    deadline = time.monotonic() + 60
    while asyncio.run(ask(WRITES[:1]))[0].status_code != 200:  # what was under way may have been done or not
        assert time.monotonic() < deadline  # that keys could not be read is remembered for a moment
        time.sleep(0.1)
    assert "b" in workspace.dataset("notes").ids()


def test_a_statement_of_a_stopped_server_ends_and_its_connection_is_not_used_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(postgres.url, patience=0.0)

    @contextmanager
    def pause_briefly() -> Iterator[None]:
        with postgres.pause(), monkeypatch.context() as patch:
            patch.setattr(bounded_connections, "ANSWER_SECONDS", 0.3)
            yield

    def select(connection: Any) -> int:
        with connection.transaction():
            return int(connection.execute("select pg_backend_pid()").fetchone()[0])

    async def aselect(connection: Any) -> None:
        await connection.execute("select 1")

    async def aselect_twice() -> None:
        await connections.arun(aselect)
        with pause_briefly():
            await connections.arun(aselect)

    def close_meanwhile(connection: Any) -> Any:
        connections.close()
        return connection

    def sleep(connection: Any) -> None:
        with bounded_connections.without_limit(connection), monkeypatch.context() as patch:
            patch.setattr(bounded_connections, "ANSWER_SECONDS", 0.0)
            connection.execute("select pg_sleep(0.3)")

    try:
        first_process = connections.run(select)
        assert connections.run(select) == first_process
        with pause_briefly(), pytest.raises(StoreUnavailableError, match="said nothing for 0 s"):
            connections.run(select)
        assert connections.run(select) != first_process
        with pytest.raises(StoreUnavailableError, match="said nothing for 0 s"):
            asyncio.run(aselect_twice())
        assert connections.run(close_meanwhile).closed, "closed while it was lent, it is not kept"
        connections.run(sleep)
    finally:
        connections.close()


def test_a_service_whose_store_stops_while_it_starts_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: pointsman.Workspace) -> bool:
        raise StoreUnavailableError("the store has stopped")

    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        state = SimpleNamespace(workspace=workspace, ready=False)
        monkeypatch.setattr(type(workspace), "access", property(fail))
        asyncio.run(app._warm(state))  # type: ignore[arg-type]
        assert state.ready


@pytest.mark.usefixtures("short_margins")
def test_a_call_of_mcp_ends_by_its_limit_and_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    tool = tool_calls.TOOLS["list_datasets"]

    def wait(*_: Any) -> Any:
        assert may_end.wait(60)
        raise AssertionError("nobody hears of it")

    monkeypatch.setattr(tool_calls, "TOOLS", {"list_datasets": replace(tool, run=wait)})
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        gate = Gate(Limits(concurrency=1, queue=0))
        calls = Calls(Library(workspace, None, ("auto",), 0.1), gate, lambda _: Access.open())

        async def call() -> tuple[str, int]:
            result = await calls.call("list_datasets", {}, {})
            running = gate.running
            may_end.set()
            return str(result), running

        text, running = asyncio.run(call())
        assert "the store does not answer" in text
        assert running == 1


def test_a_call_of_mcp_that_ends_as_its_time_is_up_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for(call: asyncio.Future[Any], _: float) -> None:
        await asyncio.wait([call])
        call.exception()  # that it was read is noted
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    errors = [StoreUnavailableError("the store is stopped"), TimeoutError()]

    def fail(*_: Any) -> Any:
        raise errors.pop(0)

    list_datasets = tool_calls.TOOLS["list_datasets"]
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        calls = Calls(Library(workspace, None, ("auto",), 0.1), Gate(Limits()), lambda _: Access.open())
        assert asyncio.run(calls.call("list_datasets", {}, {}))["isError"] is False
        monkeypatch.setattr(tool_calls, "TOOLS", {"list_datasets": replace(list_datasets, run=fail)})
        assert "the store does not answer" in str(asyncio.run(calls.call("list_datasets", {}, {})))
        assert "internal server error" in str(asyncio.run(calls.call("list_datasets", {}, {})))


@pytest.mark.usefixtures("short_margins")
def test_what_writes_is_not_cut_off_and_what_has_begun_to_answer_may_go_on() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60 if scope["path"] == "/api/search" else 1.0)
        if scope["method"] != "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"whole"})

    async def ask(method: str, path: str) -> tuple[int, bytes]:
        application = request_checks.ReadingTime(slow, Limits(search_seconds=0.1, queue_seconds=0))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost") as client:
            answer = await client.request(method, path)
            return answer.status_code, answer.content

    assert asyncio.run(ask("GET", "/api/datasets")) == (200, b"whole")
    assert asyncio.run(ask("POST", "/api/datasets/notes/documents")) == (200, b"whole")
    status, content = asyncio.run(ask("POST", "/api/search"))
    assert status == 503
    assert b"no answer within 0.6 seconds" in content
