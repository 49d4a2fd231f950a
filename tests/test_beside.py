"""Long scans beside the search for words: the same lists, in another thread, with the same errors, and after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pointsman.store.base import NEAR, WORDS
from pointsman.store.local import _beside
from pointsman.store.local import collection as local_collection
from pointsman.store.local.collection import Collection, search_both
from store_kit import add, corpus, opened, unit


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collection]:
    """A dataset whose vectors count as many, on a machine of two processors."""
    monkeypatch.setattr(_beside, "_PROCESSORS", 2)
    monkeypatch.setattr(_beside, "_scanners", _beside._Scanners())
    monkeypatch.setattr(local_collection, "_BESIDE_ROWS", 10)
    collection = opened(tmp_path)
    add(collection, corpus(300))
    assert collection.vectors is not None
    collection.vectors._state = collection.vectors._rebase(collection.vectors._current())
    yield collection
    collection.close()


class Query:
    """A query of the vectors that notes in which threads it scans."""

    def __init__(self, store: Collection, error: Exception | None = None) -> None:
        assert store.vectors is not None
        self._query, self._error = store.vectors.query(unit("d3")), error
        self.state, self.score = self._query.state, self._query.score
        self.threads: list[str] = []

    def search(self, *options: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        if self._error is not None:
            raise self._error
        return self._query.search(*options)


def test_many_vectors_are_scanned_in_another_thread(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    words, vectors = store.keyword.query("rail signal"), Query(store)
    answers = [search_both(words, vectors, 20, None) for _ in range(3)]  # type: ignore[arg-type]
    assert all(name.startswith("pointsman-scan") for name in vectors.threads), vectors.threads
    monkeypatch.setattr(local_collection, "_BESIDE_ROWS", 10**6)
    alone = search_both(words, vectors, 20, None)  # type: ignore[arg-type]
    assert vectors.threads[-1] == threading.current_thread().name
    assert {*alone.rankings} == {WORDS, NEAR}
    assert [(answer.rankings, answer.scores) for answer in answers] == [(alone.rankings, alone.scores)] * 3


def test_while_all_processors_scan_the_caller_does(store: Collection) -> None:
    go_on = threading.Event()
    scan = _beside.begin(lambda: go_on.wait(30))
    assert isinstance(scan, Future)
    vectors = Query(store)
    search_both(store.keyword.query("rail"), vectors, 20, None)  # type: ignore[arg-type]
    assert vectors.threads == [threading.current_thread().name]
    go_on.set()
    assert scan.result(30)
    assert _beside.begin(list) is not None


def test_its_errors_are_those_of_the_search(store: Collection) -> None:
    for _ in range(3):
        with pytest.raises(MemoryError, match="no room"):
            search_both(store.keyword.query("rail"), Query(store, MemoryError("no room")), 20, None)  # type: ignore[arg-type]
    assert _beside.begin(list) is not None


def test_one_processor_scans_alone(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_beside, "_PROCESSORS", 1)
    assert _beside.begin(list) is None


def test_when_the_program_ends_the_caller_scans(store: Collection) -> None:
    _beside._scanners.threads.shutdown()
    assert [_beside.begin(list) for _ in range(3)] == [None] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_after_a_fork_there_are_threads_again(store: Collection) -> None:
    scan = _beside.begin(lambda: 7)
    assert scan is not None
    assert scan.result(30) == 7
    child = os.fork()
    if not child:
        try:
            answered = _beside.begin(lambda: 7)
            os._exit(0 if answered is not None and answered.result(10) == 7 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
