"""The same workspace in a folder, in PostgreSQL and in OpenSearch: the same hits, relevance and refusals (B1, M1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from pointsman import Document, Workspace
from pointsman.store.backend_urls import open_backend
from pointsman.store.store_values import Capability
from pointsman.tools.errors import StoreError
from pointsman.workspace.copies.copying import copy
from test_judging import OFFICE, QUESTIONS_WITH_ANSWER, QUESTIONS_WITHOUT_ANSWER, RAILS

if TYPE_CHECKING:
    from opensearch_kit import Cluster
    from pointsman import Hit, RetrievalContext
    from postgres_kit import PostgresServer

QUESTIONS = (
    [text for text, _ in QUESTIONS_WITH_ANSWER]
    + QUESTIONS_WITHOUT_ANSWER
    + ["vacation", "E1234", "switch", "zzzz", "train borscht"]
)
TRIPS = {"postgresql": {"search": 1}, "opensearch": {"search": 1, "score": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("answers") / "work"
    with Workspace(path) as workspace:
        for name, texts in (("rails", RAILS), ("office", OFFICE)):
            workspace.dataset(name).add([Document(id_, text) for id_, text in texts.items()])
        workspace.dataset("words", indexing_technique="keyword").add(
            [Document(id_, text) for id_, text in {**RAILS, **OFFICE}.items()]
        )
    return path


@pytest.fixture(scope="module", params=["postgresql", "opensearch"])
def pair(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Workspace, Workspace]]:
    """The workspace in the folder, and its copy in a server."""
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = f"{postgres.url}?schema=a{uuid4().hex[:8]}"
    else:
        cluster: Cluster = request.getfixturevalue("opensearch")
        url = f"{cluster.url}/a{uuid4().hex[:8]}?shards=2"
    with closing(open_backend(folder)) as source, closing(open_backend(url)) as target:
        copy(source, target)
    with Workspace(folder) as local_workspace, Workspace(url) as server_workspace:
        yield local_workspace, server_workspace


def hits(answer: RetrievalContext) -> tuple[Hit, ...]:
    """What was found, refused or not."""
    return answer.hits if answer.refused is None else answer.refused.near_misses


@pytest.mark.parametrize("datasets", [["rails"], ["office"], ["words"], ["rails", "office"]])
@pytest.mark.parametrize("text", QUESTIONS)
def test_m1_a_server_judges_as_a_folder_does(pair: tuple[Workspace, Workspace], text: str, datasets: list[str]) -> None:
    first, second = (workspace.search(text, 5, datasets=datasets) for workspace in pair)
    assert (second.refused is None) == (first.refused is None)
    assert second.degraded == first.degraded
    for local_hit, server_hit in zip(hits(first), hits(second), strict=True):
        assert server_hit.id == local_hit.id
        assert local_hit.relevance is not None
        assert server_hit.relevance == pytest.approx(local_hit.relevance, abs=0.02)
    assert second.confidence == pytest.approx(first.confidence, abs=0.02)


def test_b1_judging_takes_no_further_round_trip(
    pair: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    server_workspace = pair[1]
    store = server_workspace.dataset("rails").store
    calls: Counter[str] = Counter()
    for name in ("search", "score", "fetch", "get", "keys", "frequencies", "vectors"):
        monkeypatch.setattr(store, name, count_calls(calls, name, getattr(store, name)))
    text = "which lamp tells that the line is not clear?"
    answer = server_workspace.search(text, 3, datasets=["rails"], spelling=False)
    assert [hit.relevance is not None for hit in answer] == [True] * 3
    assert calls == TRIPS[store.info.kind]
    calls.clear()
    server_workspace.search_many([text, "guard"] * 5, 3, datasets=["rails"], spelling=False)
    assert calls == TRIPS[store.info.kind], "of many questions together as well"


def count_calls(calls: Counter[str], name: str, call: Any) -> Any:
    def count(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return call(*args, **options)

    return count


def test_b1_scores_that_cannot_be_had_are_told(
    pair: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round trip fails: the answer is that of each list's own scores, and says so."""
    server_workspace = pair[1]
    store = server_workspace.dataset("rails").store

    def fail(*_: Any) -> Any:
        raise StoreError("the cluster went away")

    monkeypatch.setattr(store, "score", fail)
    answer = server_workspace.search(
        "which lamp tells that the line is not clear?", 3, datasets=["rails"], spelling=False
    )
    assert answer.hits[0].id == "signal"
    notes = [note for note in answer.degraded if "the cluster went away" in note]
    assert len(notes) == ("score" in TRIPS[store.info.kind])
    assert store.info.can(Capability.SCORES_OTHERS)


def test_m1_awaited_searches_judge_alike(pair: tuple[Workspace, Workspace]) -> None:
    import asyncio

    first, second = pair
    text = "how do I reset my password?"
    expected = first.search(text, 3, datasets=["office"])
    answer = asyncio.run(second.asearch(text, 3, datasets=["office"]))
    assert [hit.relevance for hit in answer] == pytest.approx([hit.relevance for hit in expected], abs=0.02)
