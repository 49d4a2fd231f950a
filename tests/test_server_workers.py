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
from pointsman.models.scripted import HashingEmbedder
from server_kill_kit import ServerKilling
from server_kit import Served, ask


def worker(connection: http.client.HTTPConnection) -> str:
    """Which process answers over this connection."""
    _, text = ask(connection, "GET", "/metrics")
    found = re.search(r'pointsman_build\{.*worker="(\d+)"', text)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("workers") / "ws", "--workers", "2") as made:
        yield made.ready()


@pytest.fixture
def both(served: Served) -> Iterator[tuple[http.client.HTTPConnection, http.client.HTTPConnection]]:
    """A connection to each of the two processes; the kernel deals them out."""
    found: dict[str, http.client.HTTPConnection] = {}
    spare = []
    for _ in range(500):
        connection = served.connection()
        if found.setdefault(worker(connection), connection) is not connection:
            spare.append(connection)  # open, so that its process is the busier one
        if len(found) == 2:
            break
    one, other = found.values()
    yield one, other
    for connection in (one, other, *spare):
        connection.close()


Both = tuple[http.client.HTTPConnection, http.client.HTTPConnection]


def add(connection: http.client.HTTPConnection, dataset: str, *ids: str) -> dict[str, Any]:
    documents = [{"id": id_, "text": f"rail signal {id_}"} for id_ in ids]
    status, answer = ask(connection, "POST", f"/api/datasets/{dataset}/documents", {"documents": documents})
    assert status == 200, answer
    return dict(answer)


def found(connection: http.client.HTTPConnection, dataset: str, k: int = 100) -> set[str]:
    body = {"query": "rail signal", "k": k, "datasets": [dataset], "refuse": False, "strategy": "hybrid"}
    status, answer = ask(connection, "POST", "/api/search", body)
    assert status == 200, answer
    return {hit["id"] for hit in answer["hits"]}


class TestTwoWorkers:
    def test_each_reads_what_the_other_wrote(self, both: Both) -> None:
        one, other = both
        assert ask(one, "POST", "/api/datasets", {"name": "shared"})[0] == 201
        for number in range(3):
            assert add(one, "shared", f"a{number}")["added"] == 1
            assert add(other, "shared", f"b{number}")["added"] == 1
            expected = {f"{name}{n}" for name in "ab" for n in range(number + 1)}
            assert found(one, "shared") == found(other, "shared") == expected
        assert ask(other, "DELETE", "/api/datasets/shared/documents", {"ids": ["a0", "b0"]})[1] == {"deleted": 2}
        assert "a0" not in found(one, "shared")
        assert ask(one, "POST", "/api/datasets/shared/verify")[1]["problems"] == []

    def test_both_write_at_once(self, both: Both) -> None:
        ask(both[0], "POST", "/api/datasets", {"name": "busy"})
        errors: list[BaseException] = []

        def write(connection: http.client.HTTPConnection, name: str) -> None:
            try:
                for number in range(15):
                    add(connection, "busy", f"{name}{number}")
            except BaseException as error:  # noqa: BLE001  # told below
                errors.append(error)

        threads = [threading.Thread(target=write, args=pair) for pair in zip(both, "ab", strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for connection in both:
            assert len(found(connection, "busy")) == 30
            verification = ask(connection, "POST", "/api/datasets/busy/verify")[1]
            assert (verification["documents"], verification["problems"]) == (30, [])

    def test_a_dataset_that_the_other_dropped_and_made_anew(self, both: Both) -> None:
        one, other = both
        ask(one, "POST", "/api/datasets", {"name": "gone", "description": "first"})
        add(one, "gone", "old")
        assert found(other, "gone") == {"old"}
        assert ask(one, "DELETE", "/api/datasets/gone")[0] == 200
        assert ask(other, "GET", "/api/datasets/gone")[0] == 404
        assert ask(other, "POST", "/api/datasets/gone/documents", {"documents": [{"id": "x", "text": "x"}]})[0] == 404
        assert ask(one, "POST", "/api/datasets", {"name": "gone", "description": "second"})[0] == 201
        add(one, "gone", "new")
        assert found(other, "gone") == {"new"}
        assert ask(other, "GET", "/api/datasets/gone")[1]["description"] == "second"
        add(other, "gone", "newer")
        assert found(one, "gone") == {"new", "newer"}

    def test_a_policy_reaches_both(self, both: Both) -> None:
        from pointsman.retrieval.policy import measured

        one, other = both
        policy = {**json.loads(measured().to_json()), "name": "by-hand"}
        assert ask(one, "PUT", "/api/policy", policy)[0] == 200
        assert ask(other, "GET", "/api/policy")[1]["policy"]["name"] == "by-hand"


def test_the_command_line_writes_beside_a_running_service(tmp_path: Path) -> None:
    with Served(tmp_path / "ws") as served:
        served.ready()
        served.post("/api/datasets", {"name": "notes"})
        assert served.add("notes", [{"id": "a", "text": "rail signal"}])[0] == 200
        with Workspace(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", create=False)
            with notes.writing(wait=10):
                notes.add([{"id": "b", "text": "rail signal"}])
        assert served.add("notes", [{"id": "c", "text": "rail signal"}])[0] == 200
        with closing(served.connection()) as connection:
            assert found(connection, "notes") == {"a", "b", "c"}


def test_killed_while_documents_stream_in(tmp_path: Path) -> None:
    killing = ServerKilling(tmp_path / "ws", 11)
    for _ in range(3):
        killing.once()
    assert killing.acknowledged > 0
    assert killing.found >= killing.acknowledged
