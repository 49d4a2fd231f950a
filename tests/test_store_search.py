"""Filters inside the indexes, ties, both scores: keyword and vector search against brute force."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.store.local.keyword import word_query
from pointsman.store.local.keyword.keyword_index import KeywordIndex
from pointsman.store.local.vectors import vector_base, vector_index, vector_query
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.filters import Equals, Exists, Filter, In, Range
from pointsman.values.types import Document
from store_kit import WORDS, add, corpus, nested_conditions, opened, sound, unit, units

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection

COUNT = 400

leaves = st.one_of(
    st.builds(Equals, st.just("year"), st.integers(1988, 2031)),
    st.builds(Equals, st.just("rare"), st.booleans()),
    st.builds(In, st.just("tags"), st.lists(st.sampled_from("abcde"), max_size=3).map(tuple)),
    st.builds(Range, st.just("number"), gte=st.integers(0, COUNT)),
    st.builds(Exists, st.sampled_from(["tags", "year", "missing"])),
)
filters = nested_conditions(leaves)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Base and tail, updated and deleted documents, several segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_index, "_REBASE_ROWS", 100)
        collection = opened(tmp_path_factory.mktemp("search"))
        add(collection, corpus(COUNT))
        add(collection, corpus(30, seed=9))
        collection.delete([f"d{number}" for number in range(50, 70)])
        add(collection, corpus(10, seed=3, prefix="late"))
        assert collection.vectors is not None
        state = collection.vectors._state
        assert state is not None
        assert len(state.base.keys) == COUNT
        assert state.dead == 50
        assert len(state.tail_keys) == 40
        yield collection
        collection.close()


PATHS: dict[str, dict[str, float]] = {
    "exact, whatever costs least": {},
    "exact, ids in the query": {"_KEY_COST": 0, "_NARROWED_COST": 10**9},
    "exact, narrowed": {"_KEY_COST": 10**9, "_NARROWED_COST": -(10**9)},
    "exact, hits masked": {"_KEY_COST": 10**9, "_NARROWED_COST": 10**9},
    "quantised, hits masked": {
        "_KEY_COST": 10**9,
        "_NARROWED_COST": 10**9,
        "_EXACT_ROWS": 10,
        "_ROUNDED_ROWS": 10,
        "_FEW_ROWS": 0,
        "_FEW_SHARE": 10**9,
        "_CANDIDATE_SHARE": 1,
    },
    "quantised, few allowed scanned": {"_EXACT_ROWS": 10, "_FEW_ROWS": 150, "_CANDIDATE_SHARE": 1},
}


MODULES = (word_query, vector_base, vector_index, vector_query)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in PATHS[request.param].items():
        (module,) = (module for module in MODULES if hasattr(module, name))
        monkeypatch.setattr(module, name, value)
    return str(request.param)


def matching(store: Collection, condition: Filter) -> set[int]:
    return {key for key, metadata in store.truth.metadata() if condition.matches(metadata)}


def agrees(hits: list[tuple[int, float]], full: list[tuple[int, float]], k: int) -> None:
    """The first ``k`` of the full ranking, where any of those that tie with the last may be it."""
    assert [score for _, score in hits] == pytest.approx([score for _, score in full[:k]], abs=1e-5)
    if len(full) > k:
        last = full[k - 1][1]
        full = [item for item in full if item[1] >= last - 1e-5]
        assert {key for key, score in full if score > last + 1e-5} <= {key for key, _ in hits}
    assert {key for key, _ in hits} <= {key for key, _ in full}
    assert len(dict(hits)) == len(hits)
    assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))


@pytest.mark.usefixtures("path")
class TestFilters:
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(condition=filters, words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), k=st.integers(1, 60))
    def test_keyword(self, store: Collection, condition: Filter, words: list[str], k: int) -> None:
        query, keys = " ".join(words), matching(store, condition)
        full = store.keyword.search(query, 10 * COUNT)
        agrees(store.keyword.search(query, k, condition), [hit for hit in full if hit[0] in keys], k)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(condition=filters, seed=st.integers(0, 50), k=st.integers(1, 60))
    def test_vectors(self, store: Collection, condition: Filter, seed: int, k: int) -> None:
        assert store.vectors is not None
        vector, allowed = unit(seed), matching(store, condition)
        rows = dict(zip(store.truth.ids(), units(list(store.truth.documents())), strict=True))
        keys = store.truth.keys(list(rows))
        full = sorted(
            ((keys[id_], float(row @ vector)) for id_, row in rows.items()), key=lambda hit: (-hit[1], hit[0])
        )
        hits = store.vectors.search(vector, k, condition)
        agrees(hits, [hit for hit in full if hit[0] in allowed], k)


class TestScores:
    def test_both_scores_for_every_candidate(self, store: Collection) -> None:
        assert store.vectors is not None
        query, vector = "rail lamp guard", unit("q")
        keys = [key for key, _ in store.truth.metadata()]
        words = dict(store.keyword.search(query, 10 * COUNT))
        assert store.keyword.score(query, keys) == pytest.approx([words.get(key, 0.0) for key in keys], rel=1e-5)
        cosines = dict(store.vectors.search(vector, 10 * COUNT))
        assert store.vectors.score(vector, keys) == pytest.approx([cosines[key] for key in keys], abs=1e-5)
        assert store.keyword.score(query, [10**6]) == [0.0]
        assert math.isnan(store.vectors.score(vector, [10**6])[0])
        assert store.keyword.score(query, []) == store.vectors.score(vector, []) == []

    def test_ties_go_by_key(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        add(store, [Document(str(number), "rail") for number in range(20)], np.tile(unit("same"), (20, 1)))
        add(store, [Document("3", "rail", {"changed": True})], unit("same")[None])  # now stored last
        assert store.vectors is not None
        assert [key for key, _ in store.keyword.search("rail", 20)] == list(range(1, 21))
        assert [key for key, _ in store.vectors.search(unit("same"), 5)] == [1, 2, 3, 4, 5]
        store.close()

    def test_samples_are_live_and_even(self, store: Collection) -> None:
        assert store.vectors is not None
        sample = store.vectors.vectors(50)
        assert sample.shape == (50, 16)
        assert np.array_equal(sample, store.vectors.vectors(50))
        live = {row.tobytes() for row in units(list(store.truth.documents()))}
        assert {row.tobytes() for row in store.vectors.vectors(10**6)} == live
        sound(store)


def lucene_bm25(documents: dict[int, Document], query: str, k1: float, b: float) -> dict[int, float]:
    """The formula, straight from the texts."""
    tokens = {key: DEFAULT_ANALYZER.tokens(document.searchable) for key, document in documents.items()}
    average = sum(map(len, tokens.values())) / len(tokens)
    scores: dict[int, float] = {}
    for term, weight in Counter(DEFAULT_ANALYZER.query_tokens(query)).items():
        n = sum(term in words for words in tokens.values())
        idf = math.log(1 + (len(tokens) - n + 0.5) / (n + 0.5))
        for key, words in tokens.items():
            if tf := words.count(term):
                norm = k1 * (1 - b + b * len(words) / average)
                scores[key] = scores.get(key, 0.0) + weight * idf * tf / (tf + norm)
    return scores


class TestFormula:
    @pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (0.0, 0.0), (2.0, 1.0), (100.0, 0.0)])
    def test_k1_and_b_are_honoured_exactly(self, store: Collection, tmp_path: Path, k1: float, b: float) -> None:
        index = KeywordIndex(tmp_path / "index", store.truth, k1=k1, b=b)
        index.catch_up()
        keys = [key for key, _ in store.truth.metadata()]
        documents = {key: document for key, document in zip(keys, store.truth.fetch(keys), strict=True) if document}
        chance = random.Random(f"{k1} {b}")
        for _ in range(10):
            query = " ".join(chance.choices(WORDS, k=chance.randrange(1, 6)))
            expected = lucene_bm25(documents, query, k1, b)
            assert dict(index.search(query, 10 * COUNT)) == pytest.approx(expected, rel=1e-9)
            best = sorted(expected.items(), key=lambda hit: (-round(hit[1], 9), hit[0]))[:10]
            assert [score for _, score in index.search(query, 10)] == pytest.approx([score for _, score in best])
            assert index.score(query, keys) == pytest.approx([expected.get(key, 0.0) for key in keys], rel=1e-9)
        index.close()

    def test_default_constants_give_the_formula(self, store: Collection) -> None:
        keys = [key for key, _ in store.truth.metadata()]
        documents = {key: document for key, document in zip(keys, store.truth.fetch(keys), strict=True) if document}
        expected = lucene_bm25(documents, "rail lamp guard", 1.2, 0.75)
        assert dict(store.keyword.search("rail lamp guard", 10 * COUNT)) == pytest.approx(expected, rel=1e-6)


def test_an_index_that_is_not_there_has_no_keys(store: Collection, tmp_path: Path) -> None:
    index = KeywordIndex(tmp_path / "no index", store.truth)
    assert list(index.keys()) == []
    index.close()
