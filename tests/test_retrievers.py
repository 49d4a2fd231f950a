from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pointsman import BaseRetriever, HybridRetriever, KeywordRetriever, VectorRetriever
from pointsman.errors import InputError, UnknownNameError
from pointsman.filters import Range
from pointsman.retrieval.calibration import CosineSpread
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.pool import gather, merge
from pointsman.types import Document, Hit, Query
from store_kit import DIMENSIONS, add, corpus, opened, unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.store.local.collection import Collection

SPREAD = CosineSpread(0.0, 0.1)


class Given:
    """An embedder that gives each text the vector of its name."""

    name, dimensions = "test", DIMENSIONS

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([unit(text) for text in texts])

    embed_documents = embed_queries


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    collection = opened(tmp_path_factory.mktemp("retrievers"))
    add(collection, corpus(150))
    yield collection
    collection.close()


@pytest.fixture(scope="module")
def retrievers(store: Collection) -> dict[str, BaseRetriever]:
    assert store.vectors is not None
    made: dict[str, BaseRetriever] = {
        "bm25": KeywordRetriever(store.keyword, store.truth),
        "vector": VectorRetriever(store.vectors, store.truth, Given()),
    }
    for fusion in ("hybrid", *METHODS):
        made[fusion] = HybridRetriever(
            store.keyword, store.vectors, store.truth, Given(), spread=SPREAD, fusion=fusion, depth=20
        )
    return made


@pytest.mark.parametrize("name", ["bm25", "vector", "hybrid", *METHODS])
def test_every_retriever(retrievers: dict[str, BaseRetriever], name: str) -> None:
    retriever = retrievers[name]
    hits = retriever.retrieve("rail lamp", 7)
    assert len(hits) == 7
    assert all(isinstance(hit, Hit) and hit.provenance for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert retriever.retrieve(Query("rail lamp"), 7) == hits == asyncio.run(retriever.aretrieve("rail lamp", 7))
    filtered = retriever.retrieve(Query("rail lamp", Range("number", gte=100)), 7)
    assert len(filtered) == 7
    assert all(hit.metadata["number"] >= 100 for hit in filtered)
    for top_k in (0, -1, True, "5", 2.0):
        with pytest.raises(InputError, match="from 1 up"):
            retriever.retrieve("rail", top_k)  # type: ignore[arg-type]


def test_ranks_and_raw_scores_are_kept(retrievers: dict[str, BaseRetriever], store: Collection) -> None:
    words = {hit.id: (rank, hit.score) for rank, hit in enumerate(retrievers["bm25"].retrieve("rail lamp", 40), 1)}
    near = {hit.id: (rank, hit.score) for rank, hit in enumerate(retrievers["vector"].retrieve("rail lamp", 40), 1)}
    everywhere = store.truth.keys(store.truth.ids())
    for hit in retrievers["hybrid"].retrieve("rail lamp", 40):
        by_source = {way.source: way for way in hit.provenance}
        assert list(by_source) == ["bm25", "vector", "fuse"]
        assert by_source["bm25"].rank == words.get(hit.id, (None,))[0]
        assert by_source["vector"].rank == near.get(hit.id, (None,))[0]
        key = everywhere[hit.id]
        assert store.vectors is not None
        bm25, cosine = store.keyword.score("rail lamp", [key])[0], store.vectors.score(unit("rail lamp"), [key])[0]
        assert by_source["bm25"].score == pytest.approx(bm25)
        assert by_source["vector"].score == pytest.approx(cosine, abs=1e-5)
        assert hit.score == pytest.approx(bm25 + 3.3 / 0.1 * cosine, abs=1e-3)


def test_pools(store: Collection) -> None:
    pool = gather("rail lamp", unit("rail lamp"), store.keyword, store.vectors, depth=10)
    assert [len(ranking) for ranking in pool.lists.values()] == [10, 10]
    assert pool.scores["bm25"].keys() == pool.scores["vector"].keys()
    assert len(pool) == len(pool.scores["bm25"]) == len({key for ranking in pool.lists.values() for key, _ in ranking})
    only_words = gather("rail lamp", None, store.keyword, None, depth=10)
    assert only_words.lists.keys() == only_words.scores.keys() == {"bm25"}
    only_near = gather("rail lamp", unit("rail lamp"), None, store.vectors, depth=10)
    assert only_near.lists.keys() == {"vector"}
    everyone = merge({"a": pool, "b": only_words, "c": only_near})
    assert everyone.scores["bm25"].keys() == everyone.scores["vector"].keys()
    assert len(everyone) == len(pool) + len(only_words) + len(only_near)
    assert all(math.isnan(everyone.scores["vector"][key]) for key in everyone.scores["vector"] if key[0] == "b")
    assert all(everyone.scores["bm25"][key] == 0 for key in everyone.scores["bm25"] if key[0] == "c")
    for ranking in everyone.lists.values():
        assert [score for _, score in ranking] == sorted((score for _, score in ranking), reverse=True)
    fused = everyone.fused("hybrid", SPREAD)
    assert fused.scale == "calibrated"
    assert {key for key, _ in fused.ranking} == everyone.scores["bm25"].keys()
    with pytest.raises(UnknownNameError):
        pool.fused("best", SPREAD)


@pytest.mark.parametrize("method", ["hybrid", *METHODS])
def test_what_lists_add_is_the_fused_score(store: Collection, method: str) -> None:
    pool = gather("rail lamp", unit("rail lamp"), store.keyword, store.vectors, depth=10)
    weights = {"bm25": 2.0, "vector": 0.5}
    fused = pool.fused(method, SPREAD, weights)
    ranks = {name: {key: rank for rank, (key, _) in enumerate(ranking, 1)} for name, ranking in pool.lists.items()}
    together = max if method == "round_robin" else sum
    for key, score in fused.ranking:
        added = [fused.part(name, key, ranks[name].get(key)) for name in pool.lists]
        assert together(part for part in added if part is not None) == pytest.approx(score)


def test_a_document_deleted_meanwhile_is_left_out(store: Collection) -> None:
    class Forgetful:
        def fetch(self, keys: Sequence[int]) -> list[Document | None]:
            return [None, *store.truth.fetch(keys)[1:]]

    assert len(KeywordRetriever(store.keyword, Forgetful()).retrieve("rail", 5)) == 4


def test_an_unknown_fusion(store: Collection) -> None:
    assert store.vectors is not None
    with pytest.raises(UnknownNameError, match="no fusion named 'best'"):
        HybridRetriever(store.keyword, store.vectors, store.truth, Given(), spread=SPREAD, fusion="best")


def test_spreads() -> None:
    chance = np.random.default_rng(0)
    queries, documents = chance.standard_normal((2, 50, 64)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    measured = CosineSpread.measured(queries, documents)
    assert measured.mean == pytest.approx(0, abs=0.02)
    assert measured.sigma == pytest.approx(1 / 8, abs=0.02)
    shared = CosineSpread.shared([CosineSpread(0.1, 0.2), CosineSpread(0.3, 0.4)])
    assert (shared.mean, shared.sigma) == pytest.approx((0.2, 0.3))
    assert CosineSpread.shared([]).sigma == 1.0
