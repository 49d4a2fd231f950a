"""A search reads each dataset once, and what it still has to measure does not exceed its time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patience_kit import holds_with_time
from pointsman import Dataset, Document, Workspace
from pointsman.embedders.base_embedder import BaseEmbedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.judge import background
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.run.reading import Reading, reading_each, reading_of
from pointsman.store.local.collection import Collection

QUESTION = "which lamp tells that the line is not clear?"
TEXTS = [
    "A railway switch guides trains from one track to another.",
    "A signal lamp shows red when the line is not clear.",
    "The guard blows a whistle before the train departs.",
    "Tickets are sold at the counter and on the train.",
]
BACKGROUND_NOTE = "background of rails: "


class Sleeping(BaseEmbedder):
    """Embeds single queries at once, and many together only when it is woken: as a slow server would."""

    name = next(calibration.embedder for calibration in shipped() if calibration.embedder) or ""

    def __init__(self) -> None:
        self.hashing, self.woken, self.threads = HashingEmbedder(), threading.Event(), set[int]()

    @property
    def dimensions(self) -> int:
        return self.hashing.dimensions

    def embed_documents(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        return self.hashing.embed_documents(texts)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        if len(texts) > 1:
            self.threads.add(threading.get_ident())
            assert self.woken.wait(60)
        return self.hashing.embed_queries(texts)


@pytest.fixture
def embedder() -> Iterator[Sleeping]:
    sleeping = Sleeping()
    yield sleeping
    sleeping.woken.set()


@pytest.fixture
def rails(tmp_path: Path, embedder: Sleeping, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))
    with Workspace(tmp_path / "work", embedder=embedder) as workspace:
        dataset = workspace.dataset("rails")
        documents = [Document(str(number), text) for number, text in enumerate(TEXTS)]
        dataset.add(documents, vectors=embedder.embed_documents(TEXTS))
        yield dataset


class TestImportedVectors:
    """Nobody has measured the cosines of unrelated questions yet."""

    def test_a_search_answers_in_time_and_says_what_is_missing(self, rails: Dataset, embedder: Sleeping) -> None:
        def check(limit: float) -> None:
            answer = rails.search(QUESTION, 2, timeout=limit, effort="fast", refuse=False)
            assert answer.hits[0].id == "1"
            assert {hit.relevance for hit in answer} == {None}
            assert [note for note in answer.degraded if note.startswith(BACKGROUND_NOTE)], answer.degraded
            assert not embedder.woken.is_set(), "it still sleeps, and the answer is here"

        holds_with_time(check)

    def test_beside_an_event_loop_it_is_measured_in_a_thread(self, rails: Dataset, embedder: Sleeping) -> None:
        async def search(limit: float) -> tuple[Any, int]:
            beats = 0

            async def beat() -> None:
                nonlocal beats
                while True:
                    await asyncio.sleep(0)
                    beats += 1

            heart = asyncio.create_task(beat())
            answer = await rails.asearch(QUESTION, 2, timeout=limit, effort="fast", refuse=False)
            heart.cancel()
            return answer, beats

        def check(limit: float) -> None:
            answer, beats = asyncio.run(search(limit))
            assert [note for note in answer.degraded if note.startswith(BACKGROUND_NOTE)], answer.degraded
            assert not embedder.woken.is_set()
            assert beats > 0
            assert embedder.threads

        holds_with_time(check)
        assert threading.get_ident() not in embedder.threads, "the loop's own thread embeds nothing"

    def test_what_was_late_is_known_to_the_next_search(self, rails: Dataset, embedder: Sleeping) -> None:
        assert rails.search(QUESTION, 2, timeout=0.3, effort="fast", refuse=False).degraded
        embedder.woken.set()
        answer = rails.search(QUESTION, 2, refuse=False)  # waits for the measurement that has begun
        assert not answer.degraded
        assert answer.hits[0].relevance is not None

    def test_it_is_measured_once(self, rails: Dataset, embedder: Sleeping, monkeypatch: pytest.MonkeyPatch) -> None:
        embedder.woken.set()
        measure, calls = background.measured, list[str]()

        def count_measurement(*arguments: Any) -> Any:
            calls.append(threading.current_thread().name)
            return measure(*arguments)

        monkeypatch.setattr(background, "measured", count_measurement)
        first, second = (rails.search(QUESTION, 2, refuse=False) for _ in range(2))
        assert len(calls) == 1
        assert first.hits == second.hits
        assert [span.detail for span in first.trace.spans if span.stage == "measure"] == ["background of rails"]
        assert not [span for span in second.trace.spans if span.stage == "measure"]


def test_a_search_checks_a_dataset_once_for_changes_by_others(
    rails: Dataset, embedder: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder.woken.set()
    rails.search(QUESTION, 2)
    collection, checks = rails.store.collection, list[int]()  # type: ignore[attr-defined]
    refresh = type(collection).refresh

    def count_refresh(collection: Any, *arguments: Any) -> None:
        checks.append(1)
        refresh(collection, *arguments)

    monkeypatch.setattr(type(collection), "refresh", count_refresh)
    rails.search(QUESTION, 2)
    assert len(checks) == 1
    asyncio.run(rails.asearch(QUESTION, 2))
    assert len(checks) == 2


def test_a_write_in_the_same_process_is_seen_while_reading(rails: Dataset) -> None:
    with reading_each([rails]) as readings:
        readings["rails"].open()
        rails.add(
            [Document("9", "a new line about turntables")],
            vectors=np.ones((1, rails.embedder.dimensions), np.float32),
        )
        assert rails.store.frequencies(["turntables"]) == [1]


def test_a_reading_belongs_to_its_search(rails: Dataset) -> None:
    assert isinstance(rails.store.collection, Collection)  # type: ignore[attr-defined]
    with reading_each([rails]) as readings:
        assert reading_of(rails) is readings["rails"]
        readings_seen: list[Reading] = []
        with reading_each([]):
            readings_seen.append(reading_of(rails))
        assert readings_seen == [readings["rails"]]
    assert reading_of(rails) is not readings["rails"]
