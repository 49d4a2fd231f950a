"""Any number of services over one store: what one writes the others answer with (B6)."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import CorruptStoreError, Policy
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access import api_keys as server_keys
from pointsman.service.server.access.api_keys import KIND, ApiKey, RecordKeys, keys_of
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.tools.errors import StoreUnavailableError, UnknownNameError
from server_kit import Served
from store_kit import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pointsman.store.backend import Record
    from postgres_kit import PostgresServer

PROPAGATION_SECONDS = 1.0  # seconds after which no service answers as before


def holds_within(seconds: float, check: Callable[[], bool]) -> bool:
    """Whether something becomes true in time; asked every 20 ms, and once when the time has passed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return check()


# ── keys in a record ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path / "work")


def test_a_key_works_and_is_revoked_in_every_process_within_a_second(backend: LocalBackend) -> None:
    first_keys, second_keys = RecordKeys(backend), RecordKeys(backend)
    assert first_keys.empty()
    assert second_keys.empty()
    new = first_keys.create("ci", datasets=["notes"], scopes=["read"])
    assert first_keys.check(new.text) == new.key
    assert holds_within(PROPAGATION_SECONDS, lambda: second_keys.check(new.text) == new.key)
    assert not second_keys.empty()
    revocation = second_keys.revoke(new.key.id)
    assert second_keys.check(new.text) is None
    assert holds_within(PROPAGATION_SECONDS, lambda: first_keys.check(new.text) is None)
    assert first_keys.list() == [revocation]
    assert not first_keys.usable()
    with pytest.raises(UnknownNameError):
        first_keys.revoke("00000000")


def test_no_key_is_lost_when_many_are_made_at_once(backend: LocalBackend) -> None:
    keys: list[ApiKey] = []
    threads = [
        threading.Thread(target=lambda name=f"k{n}": keys.append(RecordKeys(backend).create(name).key))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.id for key in RecordKeys(backend).list()} == {key.id for key in keys}
    assert len(keys) == 8


@pytest.mark.parametrize("value", ["", "{}", '{"format": 1, "keys": [{}]}', '{"format": 9, "keys": []}'])
def test_a_damaged_record_lets_nobody_in(backend: LocalBackend, value: str) -> None:
    keys = RecordKeys(backend)
    text = keys.create("ci").text
    backend.put_record(KIND, "", value)
    for store in (keys, RecordKeys(backend)):
        assert holds_within(PROPAGATION_SECONDS, partial(refuses, store, text))
        with pytest.raises(pointsman.StoreError):
            store.create("another")


def test_a_record_that_is_gone_lets_nobody_in(backend: LocalBackend) -> None:
    keys = RecordKeys(backend)
    text = keys.create("ci").text
    assert keys.check(text) is not None
    backend.put_record(KIND, "", None)
    assert holds_within(PROPAGATION_SECONDS, partial(refuses, keys, text))
    with pytest.raises(CorruptStoreError, match="gone"):
        keys.empty()


def test_while_the_server_is_away_nobody_is_let_in_and_it_is_not_asked_at_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class UnreachableBackend(LocalBackend):
        calls = 0
        is_away = False

        def record(self, kind: str, name: str = "") -> Record | None:
            self.calls += 1
            if self.is_away:
                raise StoreUnavailableError("postgresql://db does not answer; check that it runs")
            return super().record(kind, name)

    backend = UnreachableBackend("nowhere")
    keys = RecordKeys(backend, clock=lambda: datetime.now(UTC))
    time_now = 100.0
    monkeypatch.setattr(server_keys, "monotonic", lambda: time_now)
    assert keys.empty()
    backend.is_away, backend.calls = True, 0
    time_now += PROPAGATION_SECONDS
    for _ in range(50):
        with pytest.raises(StoreUnavailableError, match="postgresql://db"):
            keys.check("ptm_00000000_x")
    assert backend.calls == 1
    backend.is_away = False
    time_now += PROPAGATION_SECONDS
    assert not refuses(keys, "ptm_00000000_x")


def refuses(keys: RecordKeys, text: str) -> bool:
    try:
        keys.check(text)
    except pointsman.StoreError:
        return True
    return False


# ── two processes ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url}?schema=services"


@pytest.fixture(scope="module")
def services(url: str) -> Iterator[tuple[Served, Served]]:
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails", description="about rails").add(corpus(60))
    with Served(url) as first, Served(url) as second:
        yield first.ready(), second.ready()


def ids(service: Served, query: str, dataset: str) -> list[str]:
    status, answer = service.post("/api/search", {"query": query, "datasets": [dataset], "k": 5, "refuse": False})
    return [hit["id"] for hit in answer["hits"]] if status == 200 else []


def test_b6_what_one_service_writes_the_other_answers_with(services: tuple[Served, Served]) -> None:
    first, second = services
    assert ids(first, "rail lamp", "rails") == ids(second, "rail lamp", "rails") != []
    status, _ = first.add("rails", [{"id": "fresh", "text": "a hovercraft full of eels"}])
    assert status == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: "fresh" in ids(second, "hovercraft eels", "rails"))
    assert second.request("DELETE", "/api/datasets/rails/documents", {"ids": ["fresh"]})[0] == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: "fresh" not in ids(first, "hovercraft eels", "rails"))


def test_b6_a_dataset_made_described_dropped_and_remade_is_seen_by_all(services: tuple[Served, Served]) -> None:
    first, second = services

    def datasets_of(service: Served) -> dict[str, Any]:
        return {row["name"]: row for row in service.get("/api/datasets")[1]["datasets"]}

    assert first.post("/api/datasets", {"name": "yards", "description": "first"})[0] == 201
    assert first.add("yards", [{"id": "y1", "text": "a lever in the yard"}])[0] == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: "yards" in datasets_of(second))
    assert ids(second, "lever", "yards") == ["y1"]
    assert first.post("/api/datasets", {"name": "yards", "description": "second"})[0] == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: datasets_of(second)["yards"]["description"] == "second")
    assert first.request("DELETE", "/api/datasets/yards")[0] == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: "yards" not in datasets_of(second))
    assert second.post("/api/search", {"query": "lever", "datasets": ["yards"]})[0] == 404
    assert second.post("/api/datasets", {"name": "yards"})[0] == 201
    assert second.add("yards", [{"id": "y2", "text": "another lever in the yard"}])[0] == 200
    assert holds_within(PROPAGATION_SECONDS, lambda: ids(first, "lever", "yards") == ["y2"])
    assert second.request("DELETE", "/api/datasets/yards")[0] == 200


def test_b6_a_policy_that_one_keeps_the_other_decides_by(services: tuple[Served, Served]) -> None:
    first, second = services
    query = {"query": "rail lamp", "datasets": ["rails"]}
    policy = json.loads(Policy(name="tuned", strategy="bm25").to_json())
    assert first.request("PUT", "/api/policy", policy)[0] == 200
    assert second.get("/api/policy")[1]["policy"]["name"] == "tuned"
    assert holds_within(60.0, lambda: second.post("/api/search", query)[1]["strategy"] == "bm25")
    assert second.request("DELETE", "/api/policy")[0] == 200
    assert holds_within(60.0, lambda: first.post("/api/search", query)[1]["strategy"] != "bm25")


def test_b6_a_revoked_key_is_refused_everywhere_within_a_second(services: tuple[Served, Served], url: str) -> None:
    with pointsman.open(url) as workspace:
        keys = keys_of(workspace.backend)
        new = keys.create("ci")
        header = {"Authorization": f"Bearer {new.text}"}

        def statuses(headers: dict[str, str]) -> set[int]:
            return {service.request("GET", "/api/me", headers=headers)[0] for service in services}

        assert holds_within(PROPAGATION_SECONDS, lambda: statuses({}) == {401})
        assert statuses(header) == {200}
        keys.revoke(new.key.id)
        assert holds_within(PROPAGATION_SECONDS, lambda: statuses(header) == {401})
        workspace.backend.put_record(KIND, "", None)
        assert holds_within(PROPAGATION_SECONDS, lambda: statuses({}) == {503})  # keys that are gone let nobody in


def test_while_the_store_is_away_services_are_not_ready_and_answer_503(postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=services_away"
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add(corpus(30))
    with Served(url) as service:
        service.ready()
        postgres.kill()
        try:
            assert service.post("/api/search", {"query": "rail"})[0] == 503
            assert holds_within(60.0, lambda: service.get("/ready")[0] == 503)
            assert service.get("/health")[0] == 200
            assert not [line for line in service.log if "Traceback" in line]
        finally:
            postgres.start()
        assert holds_within(60.0, lambda: service.get("/ready")[0] == 200)
        assert holds_within(60.0, lambda: service.post("/api/search", {"query": "rail"})[0] == 200)
        service.stop()
