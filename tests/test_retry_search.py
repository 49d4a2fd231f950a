"""Searches of datasets that others delete and recreate meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from patience_kit import holds_with_time
from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.engine import Engine
from pointsman.tools.errors import ReplacedError, RetrievalError
from server_kit import Served

if TYPE_CHECKING:
    from pointsman.retrieval.request import SearchRequest
    from postgres_kit import PostgresServer

SEARCHES: dict[str, Callable[[Workspace], Any]] = {
    "search": lambda workspace: workspace.search("rail", refuse=False),
    "search_many": lambda workspace: workspace.search_many(["rail"], refuse=False)[0],
    "asearch": lambda workspace: asyncio.run(workspace.asearch("rail", refuse=False)),
    "asearch_many": lambda workspace: asyncio.run(workspace.asearch_many(["rail"], refuse=False))[0],
}


def recreate(place: str, text: str) -> None:
    """Delete the dataset, and create it again with one document, as another process does."""
    with Workspace(place, embedder=HashingEmbedder()) as other:
        if "notes" in other.names():
            other.drop("notes")
        other.dataset("notes").add(Document("a", text))
    time.sleep(0.03)  # searches see every .02 s whether the name still stands for the same dataset


@pytest.mark.parametrize("how", SEARCHES)
def test_a_search_goes_on_in_a_dataset_that_is_recreated_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    recreate(str(tmp_path), "rail one")
    storms = iter(("rail two", "rail three"))
    real = Engine._search_batch

    async def after_storm(engine: Engine, *args: Any) -> Any:
        text = next(storms, None)
        if text is not None:
            recreate(str(tmp_path), text)
        return await real(engine, *args)

    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        assert [hit.text for hit in SEARCHES[how](workspace)] == ["rail one"]  # it is open now
        monkeypatch.setattr(Engine, "_search_batch", after_storm)
        assert [hit.text for hit in SEARCHES[how](workspace)] == ["rail three"]
        assert next(storms, None) is None


def test_a_search_ends_with_its_time_limit_if_the_dataset_is_always_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float | None] = []

    def search(engine: Engine, request: SearchRequest, sources: Sequence[Any]) -> Any:
        attempts.append(request.timeout)
        raise RetrievalError("nothing", {"notes": ReplacedError("recreated")})

    monkeypatch.setattr(Engine, "search", search)
    recreate(str(tmp_path), "rail")
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:

        def check(limit: float) -> None:
            attempts.clear()
            with pytest.raises(RetrievalError):
                workspace.search("rail", timeout=limit)
            assert len(attempts) > 1
            limits = [timeout for timeout in attempts if timeout is not None]
            assert limits == sorted(limits, reverse=True)  # each has what is left of the time
            assert (limits[0], len(limits)) == (limit, len(attempts))

        holds_with_time(check)


def test_a_search_that_fails_otherwise_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[SearchRequest] = []

    def search(engine: Engine, request: SearchRequest, sources: Sequence[Any]) -> Any:
        attempts.append(request)
        raise RetrievalError("nothing", {"notes": ReplacedError("recreated"), "other": OSError("a disk")})

    monkeypatch.setattr(Engine, "search", search)
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace, pytest.raises(RetrievalError):
        workspace.search("rail")
    assert len(attempts) == 1


def test_a_service_finds_a_dataset_that_another_process_has_just_recreated(postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=attempts"
    query = {"query": "rail", "datasets": ["notes"], "refuse": False}
    recreate(url, "rail 0")
    with Served(url) as served:
        served.ready()
        for number in range(10):
            recreate(url, f"rail {number}")
            status, answer = served.post("/api/retrieval/search", query)
            assert (status, [hit["text"] for hit in answer.get("results", ())]) == (200, [f"rail {number}"]), answer
        served.stop()
