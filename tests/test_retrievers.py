from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pointsman import (
    BaseRetriever,
    Dataset,
    KeywordRetriever,
    RetrievalWorkflow,
    SimpleHybridRetriever,
    VectorRetriever,
)
from pointsman.retrieval.fusion import LISTS, METHODS, CosineSpread
from pointsman.retrieval.run.merged_results import merge
from pointsman.store.base_store import Store
from pointsman.store.store_values import Lists, Page, Scale, Statistics, StoreInfo, StoreQuery
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.filters import Filter, Range
from pointsman.values.types import Document, Hit, Query
from store_kit import DIMENSIONS, collection_of, corpus, unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.retrieval.run.candidates import Pool

SPREAD = CosineSpread(0.0, 0.1)


class GivenVectors:
    """An embedder that gives each text the vector of its name."""

    name, dimensions = "test", DIMENSIONS

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([unit(text) for text in texts])

    embed_documents = embed_queries


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    documents = corpus(150)
    with Dataset("rails", path=tmp_path_factory.mktemp("retrievers") / "rails", embedder=GivenVectors()) as dataset:
        dataset.add(documents, vectors=np.stack([unit(document.id) for document in documents]))
        yield dataset


@pytest.fixture(scope="module")
def retrievers(dataset: Dataset) -> dict[str, BaseRetriever]:
    collection = collection_of(dataset)
    assert collection.vectors is not None
    return {
        "keyword": KeywordRetriever(collection.keyword, collection.truth),
        "near": VectorRetriever(collection.vectors, collection.truth, GivenVectors()),
        **{method: dataset.retriever(method) for method in LISTS},
    }


def gather(dataset: Dataset, method: str) -> Pool[Any]:
    return dataset.candidates(Query("rail lamp"), method, 10)


@pytest.mark.parametrize("name", ["keyword", "near", *LISTS])
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


def test_ranks_and_raw_scores_are_kept(retrievers: dict[str, BaseRetriever], dataset: Dataset) -> None:
    words = {hit.id: (rank, hit.score) for rank, hit in enumerate(retrievers["bm25"].retrieve("rail lamp", 40), 1)}
    by_vector = {
        hit.id: (rank, hit.score) for rank, hit in enumerate(retrievers["vector"].retrieve("rail lamp", 40), 1)
    }
    collection, spread = collection_of(dataset), dataset.cosine_spread
    assert collection.vectors is not None
    assert spread is not None
    for hit in retrievers["hybrid"].retrieve("rail lamp", 40):
        by_source = {step.source: step for step in hit.provenance}
        assert list(by_source) == ["bm25", "vector", "fuse"]
        if hit.id in words:
            assert by_source["bm25"].rank == words[hit.id][0]
        if hit.id in by_vector:
            assert by_source["vector"].rank == by_vector[hit.id][0]
        key = dataset.store.keys([hit.id])[hit.id]
        bm25 = collection.keyword.score("rail lamp", [key])[0]
        cosine = collection.vectors.score(unit("rail lamp"), [key])[0]
        assert by_source["bm25"].score == pytest.approx(bm25)
        assert by_source["vector"].score == pytest.approx(cosine, abs=1e-5)
        assert hit.score == pytest.approx(bm25 + 3.3 / spread.sigma * (cosine - spread.mean), abs=1e-3)


def test_pools(dataset: Dataset) -> None:
    pool = gather(dataset, "hybrid")
    assert [len(ranking) for ranking in pool.lists.values()] == [10, 10]
    assert pool.scores["bm25"].keys() == pool.scores["vector"].keys()
    assert len(pool) == len(pool.scores["bm25"]) == len({key for ranking in pool.lists.values() for key, _ in ranking})
    only_words, only_near = gather(dataset, "bm25"), gather(dataset, "vector")
    assert only_words.lists.keys() == only_words.scores.keys() - {"matched"} == {"bm25"}
    assert only_near.lists.keys() == {"vector"}
    union = merge({0: pool, 1: only_words, 2: only_near})
    assert union.scores["bm25"].keys() == union.scores["vector"].keys() == union.scores["matched"].keys()
    assert len(union) == len(pool) + len(only_words) + len(only_near)
    assert all(math.isnan(union.scores["vector"][key]) for key in union.scores["vector"] if key[0] == 1)
    assert all(union.scores["bm25"][key] == 0 for key in union.scores["bm25"] if key[0] == 2)
    for ranking in union.lists.values():
        assert [score for _, score in ranking] == sorted((score for _, score in ranking), reverse=True)
    fusion = union.fused("hybrid", SPREAD)
    assert fusion.scale == "calibrated"
    assert {key for key, _ in fusion.ranking} == union.scores["bm25"].keys()
    with pytest.raises(UnknownNameError):
        pool.fused("best", SPREAD)


class Words(Store):
    """A store whose keys are strings, and whose scores are its own business."""

    def __init__(self, *ids: str) -> None:
        self.ids_ = ids

    @property
    def info(self) -> StoreInfo:
        return StoreInfo("words", "w", None, None, {"bm25": Scale.FOREIGN}, frozenset())

    def search(self, store_queries: Sequence[StoreQuery]) -> list[Lists]:
        return [Lists({"bm25": [(id_, 100.0 - rank) for rank, id_ in enumerate(self.ids_)]}) for _ in store_queries]

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        return [Document(id_, f"text {id_}") if id_ in self.ids_ else None for id_ in ids]

    def page(self, after: str | None = None, limit: int = 100, filters: Filter | None = None) -> Page:
        return Page([], None)

    def statistics(self) -> Statistics:
        return Statistics(1)

    def close(self) -> None:
        pass


def test_keys_of_a_store_may_be_of_any_kind() -> None:
    """Stores whose keys are strings are found beside others, and beside retrievers, like all others."""
    first = Dataset("one", indexing_technique="keyword", store=Words("a", "b"))
    two = Dataset("two", indexing_technique="keyword", store=Words("b", "c"))
    answer = RetrievalWorkflow().search("q", [first, two], 10, refuse=False)
    assert {(hit.dataset, hit.id) for hit in answer} == {("one", "a"), ("one", "b"), ("two", "b"), ("two", "c")}
    assert {step.source for hit in answer for step in hit.provenance} == {"one bm25", "two bm25", "fuse"}

    class OtherRetriever(BaseRetriever):
        def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
            return [Hit(Document("b", "text b"), 3.0, "one"), Hit(Document("z", "text z"), 2.0)]

    answer = RetrievalWorkflow().search("q", [first, OtherRetriever()], 10, refuse=False)
    assert next((hit.dataset, hit.id) for hit in answer) == ("one", "b")  # one document, found by both
    assert {hit.id for hit in answer} == {"a", "b", "z"}


@pytest.mark.parametrize("method", ["hybrid", *METHODS])
def test_what_lists_add_is_the_fused_score(dataset: Dataset, method: str) -> None:
    pool = gather(dataset, "hybrid")
    weights = {"bm25": 2.0, "vector": 0.5}
    fusion = pool.fused(method, SPREAD, weights)
    ranks = {name: {key: rank for rank, (key, _) in enumerate(ranking, 1)} for name, ranking in pool.lists.items()}
    combine = max if method == "round_robin" else sum
    for key, score in fusion.ranking:
        shares = [fusion.share(name, [key], [ranks[name].get(key)])[0] for name in pool.lists]
        assert combine(share for share in shares if share is not None) == pytest.approx(score)


def test_a_document_deleted_meanwhile_is_left_out(dataset: Dataset) -> None:
    collection = collection_of(dataset)

    class Forgetful:
        def fetch(self, keys: Sequence[int]) -> list[Document | None]:
            return [None, *collection.truth.fetch(keys)[1:]]

    assert len(KeywordRetriever(collection.keyword, Forgetful()).retrieve("rail", 5)) == 4


def test_an_unknown_fusion(dataset: Dataset) -> None:
    with pytest.raises(UnknownNameError, match="no strategy named 'best'"):
        dataset.retriever("best")


def test_spreads() -> None:
    chance = np.random.default_rng(0)
    queries, documents = chance.standard_normal((2, 50, 64)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    spread = CosineSpread.measured(queries, documents)
    assert spread.mean == pytest.approx(0, abs=0.02)
    assert spread.sigma == pytest.approx(1 / 8, abs=0.02)
    common_spread = CosineSpread.shared([CosineSpread(0.1, 0.2), None, CosineSpread(0.3, 0.4)])
    assert common_spread is not None  # and a source without vectors has no say in it
    assert (common_spread.mean, common_spread.sigma) == pytest.approx((0.2, 0.3))
    assert CosineSpread.shared([None]) is None


def test_a_store_that_has_no_search_is_refused_at_once(dataset: Dataset) -> None:
    complete: Any = dataset
    store: Any = dataset.store
    for index, documents in ((complete, complete), (complete, store), (store, complete)):
        with pytest.raises(InputError, match=r"is a dataset, not a store; give its \.store"):
            VectorRetriever(vector_store=index, doc_store=documents, embedder=dataset.embedder)
        with pytest.raises(InputError, match=r"is a dataset, not a store; give its \.store"):
            KeywordRetriever(index, documents)
    with pytest.raises(InputError, match=r"'words' cannot be used here: it has no search\(…\)"):
        KeywordRetriever("words", store)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"it has no fetch\(…\)"):
        KeywordRetriever(store, {})  # type: ignore[arg-type]


class QueryOnly(BaseRetriever):
    """As the founding document of the hybrid retriever has it."""

    def retrieve(self, query: str | Query) -> list[Hit]:  # type: ignore[override]
        assert isinstance(query, str | Query)
        return [Hit(Document(f"d{number}", f"text {number}"), 1 / number) for number in range(1, 21)]


class AsyncQueryOnly(BaseRetriever):
    async def aretrieve(self, query: str | Query) -> list[Hit]:  # type: ignore[override]
        return QueryOnly().retrieve(query)


class KeywordTopK(BaseRetriever):
    def retrieve(self, query: str | Query, *, top_k: int = 10) -> list[Hit]:  # type: ignore[override]
        return QueryOnly().retrieve(query)[:top_k]


@pytest.mark.parametrize("kind", [QueryOnly, AsyncQueryOnly, KeywordTopK])
def test_a_retriever_that_takes_top_k_otherwise_is_cut_to_it(kind: type[BaseRetriever]) -> None:
    expected_ids = ["d1", "d2", "d3"]
    for retriever in (kind(), SimpleHybridRetriever(kind()), SimpleHybridRetriever(kind(), kind())):
        assert [hit.id for hit in retriever.retrieve("x", 3)] == expected_ids
        assert [hit.id for hit in asyncio.run(retriever.aretrieve("x", 3))] == expected_ids
        assert [hit.id for hit in retriever.retrieve("x", top_k=3)] == expected_ids
    answer = SimpleHybridRetriever(kind()).retrieve("x", 3)
    assert answer.degraded == ()
    assert len(QueryOnly().retrieve("x")) == 20


def test_a_retriever_that_cannot_take_a_query_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot be called with a query; write retrieve\(self, query, top_k=10\)"):

        class NoQuery(BaseRetriever):
            def retrieve(self):  # type: ignore[no-untyped-def,override]
                return []

    with pytest.raises(TypeError, match="cannot be called with a query"):

        class TooMany(BaseRetriever):
            async def aretrieve(self, query, top_k, other):  # type: ignore[no-untyped-def,override]
                return []
