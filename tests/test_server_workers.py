"""Several processes behind one port, and a service that is killed while documents stream in."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from server_kill_kit import ServerKilling
from server_kit import Served, ask


def worker(connection: http.client.HTTPConnection) -> str:
    """Which process answers over this connection."""
    _, text = ask(connection, "GET", "/metrics")
    match = re.search(r'pointsman_build\{.*worker="(\d+)"', text)
    assert match
    return match[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("workers") / "ws", "--workers", "2") as service:
        yield service.ready()


@pytest.fixture
def two_connections(service: Served) -> Iterator[tuple[http.client.HTTPConnection, http.client.HTTPConnection]]:
    """A connection to each of the two processes; the kernel deals them out."""
    connections: dict[str, http.client.HTTPConnection] = {}
    spare = []
    for _ in range(500):
        connection = service.connection()
        if connections.setdefault(worker(connection), connection) is not connection:
            spare.append(connection)  # open, so that its process is the busier one
        if len(connections) == 2:
            break
    first, second = connections.values()
    yield first, second
    for connection in (first, second, *spare):
        connection.close()


TwoConnections = tuple[http.client.HTTPConnection, http.client.HTTPConnection]


def add(connection: http.client.HTTPConnection, dataset: str, *ids: str) -> dict[str, Any]:
    documents = [{"id": id_, "text": f"rail signal {id_}"} for id_ in ids]
    status, answer = ask(connection, "POST", f"/api/datasets/{dataset}/documents", {"documents": documents})
    assert status == 200, answer
    return dict(answer)


def ids_found(connection: http.client.HTTPConnection, dataset: str, k: int = 100) -> set[str]:
    body = {"query": "rail signal", "k": k, "datasets": [dataset], "refuse": False, "strategy": "hybrid"}
    status, answer = ask(connection, "POST", "/api/search", body)
    assert status == 200, answer
    return {hit["id"] for hit in answer["hits"]}


class TestTwoWorkers:
    def test_each_reads_what_the_other_wrote(self, two_connections: TwoConnections) -> None:
        first, second = two_connections
        assert ask(first, "POST", "/api/datasets", {"name": "shared"})[0] == 201
        for number in range(3):
            assert add(first, "shared", f"a{number}")["added"] == 1
            assert add(second, "shared", f"b{number}")["added"] == 1
            expected = {f"{name}{n}" for name in "ab" for n in range(number + 1)}
            assert ids_found(first, "shared") == ids_found(second, "shared") == expected
        assert ask(second, "DELETE", "/api/datasets/shared/documents", {"ids": ["a0", "b0"]})[1] == {"deleted": 2}
        assert "a0" not in ids_found(first, "shared")
        assert ask(first, "POST", "/api/datasets/shared/verify")[1]["problems"] == []

    def test_both_write_at_once(self, two_connections: TwoConnections) -> None:
        ask(two_connections[0], "POST", "/api/datasets", {"name": "busy"})
        errors: list[BaseException] = []

        def write(connection: http.client.HTTPConnection, name: str) -> None:
            try:
                for number in range(15):
                    add(connection, "busy", f"{name}{number}")
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=pair) for pair in zip(two_connections, "ab", strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for connection in two_connections:
            assert len(ids_found(connection, "busy")) == 30
            verification = ask(connection, "POST", "/api/datasets/busy/verify")[1]
            assert (verification["documents"], verification["problems"]) == (30, [])

    def test_a_dataset_that_the_other_dropped_and_made_anew(self, two_connections: TwoConnections) -> None:
        first, second = two_connections
        ask(first, "POST", "/api/datasets", {"name": "gone", "description": "first"})
        add(first, "gone", "old")
        assert ids_found(second, "gone") == {"old"}
        assert ask(first, "DELETE", "/api/datasets/gone")[0] == 200
        assert ask(second, "GET", "/api/datasets/gone")[0] == 404
        assert ask(second, "POST", "/api/datasets/gone/documents", {"documents": [{"id": "x", "text": "x"}]})[0] == 404
        assert ask(first, "POST", "/api/datasets", {"name": "gone", "description": "second"})[0] == 201
        add(first, "gone", "new")
        assert ids_found(second, "gone") == {"new"}
        assert ask(second, "GET", "/api/datasets/gone")[1]["description"] == "second"
        add(second, "gone", "newer")
        assert ids_found(first, "gone") == {"new", "newer"}

    def test_a_policy_reaches_both(self, two_connections: TwoConnections) -> None:
        from pointsman.retrieval.plan.policy import measured

        first, second = two_connections
        policy = {**json.loads(measured().to_json()), "name": "by-hand"}
        assert ask(first, "PUT", "/api/policy", policy)[0] == 200
        assert ask(second, "GET", "/api/policy")[1]["policy"]["name"] == "by-hand"


def test_the_command_line_writes_beside_a_running_service(tmp_path: Path) -> None:
    with Served(tmp_path / "ws") as service:
        service.ready()
        service.post("/api/datasets", {"name": "notes"})
        assert service.add("notes", [{"id": "a", "text": "rail signal"}])[0] == 200
        with Workspace(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", create=False)
            with notes.writing(wait=10):
                notes.add([{"id": "b", "text": "rail signal"}])
        assert service.add("notes", [{"id": "c", "text": "rail signal"}])[0] == 200
        with closing(service.connection()) as connection:
            assert ids_found(connection, "notes") == {"a", "b", "c"}


def test_killed_while_documents_stream_in(tmp_path: Path) -> None:
    killing = ServerKilling(tmp_path / "ws", 11)
    for _ in range(3):
        killing.once()
    assert killing.acknowledged > 0
    assert killing.found >= killing.acknowledged
