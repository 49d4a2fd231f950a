from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pointsman import BM25IndexManager, Dataset
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.collection import Collection
from pointsman.store.local.keyword import keyword_index
from pointsman.text.tokens import Analyzer
from pointsman.tools.errors import InputError, LockedError
from pointsman.values.types import Document, Hit
from store_kit import add, corpus, opened
from test_store_search import lucene_bm25

if TYPE_CHECKING:
    from pointsman.store.local.keyword.term_codes import TermCodes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    collection = opened(tmp_path)
    add(collection, corpus(100))
    yield collection
    collection.close()


@pytest.fixture
def analysis_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that have been analysed for an index."""
    texts: list[str] = []
    postings = keyword_index._postings

    def counting(key: int, document: Document, codes: TermCodes) -> object:
        texts.append(document.id)
        return postings(key, document, codes)

    monkeypatch.setattr(keyword_index, "_postings", counting)
    return texts


def truth_of(store: Collection) -> dict[int, Document]:
    keys = [key for key, _ in store.truth.metadata()]
    return {key: document for key, document in zip(keys, store.truth.fetch(keys), strict=True) if document}


def scores(manager: BM25IndexManager, query: str) -> dict[str, float]:
    return {hit.id: hit.score for hit in manager.search(query, 1000)}


def expected(store: Collection, query: str, k1: float, b: float) -> dict[str, float]:
    documents = truth_of(store)
    return {documents[key].id: score for key, score in lucene_bm25(documents, query, k1, b).items()}


def test_build_search_reopen(store: Collection, tmp_path: Path) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_k1=0.9, bm25_b=0.4)
    assert manager.build_from_vector_store() == store.truth.sequence()
    scores_before = scores(manager, "rail signal lamp")
    assert scores_before == pytest.approx(expected(store, "rail signal lamp", 0.9, 0.4))
    hits = manager.search("rail", 3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    manager.close()
    reopened_manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_k1=0.9, bm25_b=0.4)
    assert scores(reopened_manager, "rail signal lamp") == scores_before
    reopened_manager.close()
    other_manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_k1=2.0, bm25_b=1.0)  # nothing to build anew
    assert scores(other_manager, "rail signal lamp") == pytest.approx(expected(store, "rail signal lamp", 2.0, 1.0))
    other_manager.close()


def test_synchronising_costs_what_has_changed(store: Collection, tmp_path: Path, analysis_log: list[str]) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_k1=1.0)
    manager.build_from_vector_store()
    assert len(analysis_log) == 100
    analysis_log.clear()
    with store.writer():
        store.truth.delete(["d1", "d2"])
    add(store, [Document("d3", "changed whistle"), Document("new", "new whistle")])
    analysis_log.clear()
    assert manager.sync_incremental() == store.truth.sequence()
    assert sorted(analysis_log) == ["d3", "new"]
    analysis_log.clear()
    manager.sync_incremental()
    assert analysis_log == []
    assert scores(manager, "whistle rail") == pytest.approx(expected(store, "whistle rail", 1.0, 0.75))
    assert not {"d1", "d2"} & scores(manager, " ".join(["rail", "lamp", "yard"])).keys()
    manager.close()


@pytest.mark.parametrize("auto", [True, False])
def test_auto_sync(store: Collection, tmp_path: Path, auto: bool) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_auto_sync=auto)
    manager.build_from_vector_store()
    add(store, [Document("new", "zebra crossing")])
    assert [hit.id for hit in manager.search("zebra")] == (["new"] if auto else [])
    manager.sync_incremental()
    assert [hit.id for hit in manager.search("zebra")] == ["new"]
    manager.close()


def test_async_twins(store: Collection, tmp_path: Path) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth, bm25_auto_sync=False)

    async def use() -> None:
        assert await manager.build_from_vector_store() == store.truth.sequence()
        assert await manager.sync_incremental() == store.truth.sequence()
        assert await manager.abuild_from_vector_store() == store.truth.sequence()
        add(store, [Document("new", "zebra crossing")])
        assert await manager.async_incremental() == store.truth.sequence()
        assert [hit.id for hit in await manager.asearch("zebra")] == ["new"]

    asyncio.run(use())
    manager.close()


def test_another_store_is_recognised(store: Collection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    manager.build_from_vector_store()
    manager.close()
    foreign = Collection(tmp_path / "foreign")
    add(foreign, [Document("only", "rail")])
    other_manager = BM25IndexManager(tmp_path / "bm25", foreign.truth)
    assert list(scores(other_manager, "rail")) == ["only"]
    assert any("belongs to" in record.getMessage() for record in caplog.records)
    other_manager.close()
    foreign.close()


def test_a_damaged_index_is_built_anew(store: Collection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    manager.build_from_vector_store()
    scores_before = scores(manager, "rail")
    manager.close()
    (file,) = (tmp_path / "bm25" / "index").glob("*.idx")
    (copy := file.with_suffix(".aside")).write_bytes(file.read_bytes()[:-1])
    copy.replace(file)  # shortening a file that is still mapped into memory would end the process
    reopened_manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    assert scores(reopened_manager, "rail") == scores_before
    assert any(record.levelno == logging.WARNING for record in caplog.records)
    reopened_manager.close()


def test_the_text_analysis_is_part_of_the_index(
    store: Collection, tmp_path: Path, analysis_log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    manager.build_from_vector_store()
    manager.close()
    analysis_log.clear()
    monkeypatch.setattr(Analyzer, "fingerprint", property(lambda _: "other rules"))
    reopened_manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    reopened_manager.sync_incremental()
    assert len(analysis_log) == 100
    reopened_manager.close()


def test_two_processes(store: Collection, tmp_path: Path) -> None:
    manager = BM25IndexManager(tmp_path / "bm25", store.truth)
    manager.build_from_vector_store()
    code = f"""
import json
from pathlib import Path
from pointsman import BM25IndexManager, Dataset
from pointsman.tools.errors import LockedError
from pointsman.store.local.collection import Collection
store = Collection(Path({str(tmp_path / "dataset")!r}))
manager = BM25IndexManager({str(tmp_path / "bm25")!r}, store.truth)
found = [hit.id for hit in manager.search("rail", 1000)]
try:
    manager.build_from_vector_store()
    error = ""
except LockedError as locked:
    error = str(locked)
print(json.dumps([found, error]))
"""
    store.close()
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, stdout=subprocess.PIPE).stdout
    ids, error = json.loads(answer)
    assert ids == [hit.id for hit in manager.search("rail", 1000)]
    assert "being written to by another process" in error
    with pytest.raises(LockedError, match="this same process"):
        BM25IndexManager(tmp_path / "bm25", store.truth).build_from_vector_store()
    manager.close()


@pytest.mark.parametrize("constants", [{"bm25_k1": -1}, {"bm25_k1": float("nan")}, {"bm25_b": 1.1}, {"bm25_b": -0.1}])
def test_constants_that_cannot_be_used(store: Collection, tmp_path: Path, constants: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(constants))):
        BM25IndexManager(tmp_path / "bm25", store.truth, **constants)  # type: ignore[arg-type]


def test_a_search_may_be_awaited_as_the_seed_does(tmp_path: Path) -> None:
    """I1: ``await manager.search(…)``, over a dataset."""

    async def search_async(manager: BM25IndexManager) -> list[Hit]:
        return await manager.search("red", 3)

    with Dataset("signals", path=tmp_path / "signals", embedder=HashingEmbedder()) as dataset:
        dataset.add([{"id": "a", "text": "a red signal"}, {"id": "b", "text": "a lamp"}])
        manager = BM25IndexManager(tmp_path / "index", dataset)
        manager.build_from_vector_store()
        assert [hit.id for hit in asyncio.run(search_async(manager))] == ["a"]
        assert asyncio.run(search_async(manager)) == manager.search("red", 3)
        manager.close()


def test_a_store_that_cannot_be_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="object cannot list its documents"):
        BM25IndexManager(tmp_path / "bm25", object())
    assert not (tmp_path / "bm25").exists()
