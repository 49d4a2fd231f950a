"""Long scans beside the search for words: the same lists, in another thread, with the same errors, and after a fork."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pointsman.store.local import index_search
from pointsman.store.local.index_search import search_both
from pointsman.store.local.keyword import keyword_files
from pointsman.store.store_values import NEAR, WORDS
from pointsman.tools.system import at_once as _beside
from store_kit import add, corpus, opened, unit

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collection]:
    """A dataset whose vectors count as many, on a machine of two processors."""
    monkeypatch.setattr(_beside, "_PROCESSORS", 2)
    monkeypatch.setattr(_beside, "_threads", _beside._Threads())
    monkeypatch.setattr(index_search, "_BESIDE_ROWS", 10)
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


class BrokenError(Exception):
    """One that can be referred to weakly."""


def test_many_vectors_are_scanned_in_another_thread(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    words, vectors = store.keyword.query("rail signal"), Query(store)
    answers = [search_both(words, vectors, 20, None) for _ in range(3)]  # type: ignore[arg-type]
    assert all(name.startswith("pointsman-beside") for name in vectors.threads), vectors.threads
    monkeypatch.setattr(index_search, "_BESIDE_ROWS", 10**6)
    alone = search_both(words, vectors, 20, None)  # type: ignore[arg-type]
    assert vectors.threads[-1] == threading.current_thread().name
    assert {*alone.rankings} == {WORDS, NEAR}
    assert [(answer.rankings, answer.scores) for answer in answers] == [(alone.rankings, alone.scores)] * 3


def test_while_all_processors_scan_the_caller_does(store: Collection) -> None:
    go_on = threading.Event()
    scan = _beside._threads.begin(lambda: go_on.wait(30))
    assert isinstance(scan, Future)
    vectors = Query(store)
    search_both(store.keyword.query("rail"), vectors, 20, None)  # type: ignore[arg-type]
    assert vectors.threads == [threading.current_thread().name]
    go_on.set()
    assert scan.result(30)
    assert _beside._threads.begin(list) is not None


def test_its_errors_are_those_of_the_search(store: Collection) -> None:
    for _ in range(3):
        with pytest.raises(MemoryError, match="no room"):
            search_both(store.keyword.query("rail"), Query(store, MemoryError("no room")), 20, None)  # type: ignore[arg-type]
    assert _beside._threads.begin(list) is not None


@pytest.mark.parametrize("in_thread", [True, False])
def test_an_error_comes_when_both_have_ended_and_is_held_by_nothing(store: Collection, in_thread: bool) -> None:
    """What holds its frames holds their files."""
    ended = threading.Event()

    def fail() -> None:
        raise BrokenError

    def end() -> None:
        time.sleep(0.1)
        ended.set()

    calls = (fail, end) if in_thread else (end, fail)
    gc.collect()
    gc.disable()
    try:
        try:
            _beside.at_once(*calls)
        except BrokenError as error:
            assert ended.is_set()
            held = weakref.ref(error)
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system cannot signal a thread")
def test_a_ctrl_c_comes_when_both_have_ended(store: Collection) -> None:
    """Else a dataset would be closed while a thread writes its index."""
    main, waits, ended = threading.main_thread(), threading.Event(), threading.Event()
    assert threading.current_thread() is main
    assert main.ident is not None

    def interrupt() -> None:
        waits.wait(30)
        time.sleep(0.1)
        signal.pthread_kill(main.ident or 0, signal.SIGUSR1)
        time.sleep(0.1)
        ended.set()

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGUSR1, ctrl_c)
    try:
        with pytest.raises(KeyboardInterrupt):
            _beside.at_once(interrupt, waits.set)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert ended.is_set()


def test_one_processor_scans_alone(store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_beside, "_PROCESSORS", 1)
    assert _beside._threads.begin(list) is None


def test_when_the_program_ends_the_caller_scans(store: Collection) -> None:
    _beside._threads.threads.shutdown()
    assert [_beside._threads.begin(list) for _ in range(3)] == [None] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_after_a_fork_there_are_threads_again(store: Collection) -> None:
    scan = _beside._threads.begin(lambda: 7)
    assert scan is not None
    assert scan.result(30) == 7
    child = os.fork()
    if not child:
        try:
            answered = _beside._threads.begin(lambda: 7)
            os._exit(0 if answered is not None and answered.result(10) == 7 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("least_bytes", [0, 1 << 30], ids=["at once", "in turn"])
def test_every_damaged_file_of_words_is_found(
    store: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    monkeypatch.setattr(keyword_files, "_BESIDE_BYTES", least_bytes)
    folder = tmp_path / "dataset" / "keyword"
    assert keyword_files.damaged_files(folder) == []
    files = [path for path in folder.iterdir() if path.suffix in {".idx", ".store", ".term", ".fast", ".fieldnorm"}]
    assert len(files) > 3
    for path in files:
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert keyword_files.damaged_files(folder) == [path]
        path.write_bytes(content)
    for path in files:
        path.write_bytes(path.read_bytes()[:-1])
    assert set(keyword_files.damaged_files(folder)) == set(files)
