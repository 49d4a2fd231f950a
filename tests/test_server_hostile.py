"""The service under attack: over real sockets, byte by byte; each request is refused, and nothing else happens."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostile_kit import (
    OPTIONS,
    OTHER_DATASET,
    OWN_DATASET,
    SECRET,
    Attack,
    Attacks,
    Keys,
    assault,
    half_open,
    prepare,
    secrets,
)
from server_kit import Served, ask


@dataclass
class Target:
    """The service, and the keys to it."""

    service: Served
    folder: Path
    keys: Keys

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.service.port

    def ask(self, method: str, path: str, value: Any = None, *, key: str = "own_key") -> tuple[int, Any]:
        return self.service.request(method, path, value, {"X-API-Key": getattr(self.keys, key)})

    def documents(self) -> dict[str, Any]:
        """Everything there is."""
        documents_by_dataset = {}
        for name, key in ((OWN_DATASET, "own_key"), (OTHER_DATASET, "other_key")):
            status, page = self.ask("GET", f"/api/datasets/{name}/documents?limit=1000", key=key)
            assert (status, page["next"]) == (200, None)
            documents_by_dataset[name] = page["documents"]
        return documents_by_dataset

    def check(self) -> None:
        """It searches as ever."""
        assert self.service.process.poll() is None
        assert self.service.get("/health") == (200, {"status": "ok"})
        for key, name in (("own_key", OWN_DATASET), ("other_key", OTHER_DATASET)):
            status, answer = self.ask("POST", "/api/search", {"query": "railway switch"}, key=key)
            assert status == 200
            assert {hit["dataset"] for hit in answer["hits"]} == {name}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("attacked")
    keys = prepare(folder)
    with Served(folder, *OPTIONS) as service:
        yield Target(service.ready(), folder, keys)


def test_every_attack_is_refused_and_nothing_else_happens(target: Target) -> None:
    attacks = Attacks(target.keys).make_all()
    documents_before, names_before = target.documents(), sorted(path.name for path in target.folder.parent.iterdir())
    verdicts = list(assault(target.address, attacks, secrets(target.folder, target.keys)))
    faults = [
        f"{verdict.attack.kind}: {verdict.attack.name}: {', '.join(verdict.faults)}"
        for verdict in verdicts
        if verdict.faults
    ]
    assert faults == []
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    assert (
        outcomes["problem"] + outcomes["problem in the stream"] >= 600
    )  # the rest is no HTTP, and refused by the HTTP server
    assert set(outcomes) <= {"problem", "problem in the stream", "by the HTTP server", "closed"}
    assert all(
        verdict.attack.outcome == "protocol"
        for verdict in verdicts
        if verdict.outcome in {"by the HTTP server", "closed"}
    )
    target.check()
    assert target.documents() == documents_before
    assert sorted(path.name for path in target.folder.parent.iterdir()) == names_before
    assert sorted(path.name for path in (target.folder / "datasets").iterdir()) == sorted([OWN_DATASET, OTHER_DATASET])


def test_nothing_of_it_stands_in_the_log(target: Target) -> None:
    """What was asked, and with which key, is nobody's to read; and nothing broke."""
    assert target.ask("GET", "/api/me")[0] == 200
    log = "".join(target.service.log)
    assert "Traceback" not in log
    assert [line for line in target.service.lines() if line["level"] in {"error", "critical"}] == []
    assert all(line.startswith("{") for line in target.service.log), "a line forged"
    for name, key in vars(target.keys).items():
        assert key not in log, name
    assert SECRET not in log
    assert "X-Injected" not in log


def test_connections_that_do_not_go_on(target: Target) -> None:
    """Two hundred half a request, and a search is as quick to come as ever."""
    waiting = half_open(target.address, 200)
    try:
        target.check()
    finally:
        for connection in waiting:
            connection.close()
    target.check()


def test_the_judge_sees_faults(target: Target) -> None:
    """So that the tests above mean something: a good request is none that was refused, and a leak is seen."""
    attacks = Attacks(target.keys)
    good = attacks.search({"query": "railway"})
    request = attacks.search({"query": "railway"}, key="other_key")
    two = attacks.request("GET", "/api/nothing").replace(b"Connection: close\r\n", b"") * 2
    attempts = [
        Attack("x", "good", good, (404,)),
        Attack("x", "leak", request, (404,)),
        Attack("x", "two", two, (404,), "protocol"),
    ]
    verdicts = assault(target.address, attempts, secrets(target.folder, target.keys))
    faults = {verdict.attack.name: " ".join(verdict.faults) for verdict in verdicts}
    assert "status 200" in faults["good"]
    assert "shows the other tenant's texts" in faults["leak"]
    assert "more than one response" in faults["two"]


def test_a_smuggled_request_is_none(target: Target) -> None:
    """One connection, a request with another one in its body, and a third: two answers, and nothing is deleted."""
    inner_request = (
        f"DELETE /api/datasets/{OWN_DATASET} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {target.keys.own_key}\r\n\r\n"
    )
    body = json.dumps({"query": inner_request}).encode()
    head = (
        f"POST /api/search HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {target.keys.own_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    last = (
        f"GET /api/nothing HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {target.keys.own_key}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(target.address, timeout=20) as connection:
        connection.sendall(head.encode() + body + last.encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answer) == [b"200", b"404"]
    assert target.ask("GET", f"/api/datasets/{OWN_DATASET}")[0] == 200


def test_one_connection_survives_what_was_refused_on_it(target: Target) -> None:
    connection = target.service.connection()
    key = {"X-API-Key": target.keys.own_key}
    try:
        for _ in range(3):
            assert ask(connection, "GET", "/api/datasets/nothing", headers=key)[0] == 404
            assert ask(connection, "POST", "/api/search", {"query": 5}, key)[0] == 422
            assert ask(connection, "POST", "/api/search", {"query": "railway"}, key)[0] == 200
    finally:
        connection.close()


def test_whoever_sends_too_much_is_told_so(target: Target) -> None:
    """The answer arrives although the client goes on sending: the connection is not reset under it."""
    large = {"query": "a" * 6_000_000}
    for key, status in (("own_key", 413), ("revoked_key", 401)):
        answer_status, problem = target.ask("POST", "/api/search", large, key=key)
        assert (answer_status, problem["status"]) == (status, status)
