"""Near duplicates, limits, maximal marginal relevance: laws, and the refiner that applies them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.refine.diversity import Diversifier, jaccard, mmr, near_duplicates, over_the_limit, shingles
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Excerpt, Hit, Query, Ranked, Refusal

APPLES = "A red apple falls not far from the old tree in our garden, says my grandmother every autumn."
YABLOKI = "Красное яблоко падает недалеко от старой яблони в нашем саду, говорит бабушка каждую осень."
PINGGUO = "红苹果落在离我们花园里那棵老树不远的地方，每年秋天祖母都这么说，大家都很喜欢听。"
SAME_TEXTS = [
    (APPLES, APPLES.upper().replace(",", " --")),
    (YABLOKI, YABLOKI.replace("яблоко", "Яблоки").replace(",", ";")),
    (PINGGUO, PINGGUO.replace("，", " ")),
    (PINGGUO, PINGGUO.replace("红苹果", "紅蘋果").replace("离", "離")),  # traditional characters
]
DIFFERENT = [
    (APPLES, "A red car stands not far from the new house in our street, says my uncle."),
    (YABLOKI, "Красная машина стоит недалеко от нового дома на нашей улице, говорит дядя."),
    (PINGGUO, "红色汽车停在离我们街上那座新房子不远的地方，叔叔说。"),
    (APPLES, PINGGUO),
]


def hit(name: str, text: str = "", score: float = 0.0, dataset: str | None = None, **metadata: Any) -> Hit:
    return Hit(Document(name, text or name, metadata), score, dataset)


def ranking(*hits: Hit, **fields: Any) -> Ranked:
    return Ranked(hits, "calibrated", **fields)


def diversify(diversifier: Diversifier, ranking: Ranked, top_k: int = 5) -> Ranked:
    return diversifier.refine(Query("q"), ranking, top_k)


def ids(ranking: Ranked) -> list[str]:
    return [hit.id for hit in ranking.hits]


words = st.sampled_from(["red", "green", "apple", "pear", "дом", "сад", "苹果", "花园"])
texts = st.lists(words, max_size=12).map(" ".join)
found_hits = st.lists(
    st.tuples(texts, st.sampled_from(["x", "y", None]), st.sampled_from(["one", "two"])), max_size=10
).map(
    lambda rows: tuple(
        hit(str(number), text, 10.0 - number, dataset, source=source)
        for number, (text, source, dataset) in enumerate(rows)
    )
)


# -- near duplicates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), SAME_TEXTS)
def test_the_same_in_other_clothes_is_a_duplicate(first: str, second: str) -> None:
    assert near_duplicates([first, second], 0.9) == {1: (0, 1.0)}


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_alike_is_not_the_same(first: str, second: str) -> None:
    assert near_duplicates([first, second], 0.5) == {}


@given(st.lists(texts, max_size=10), st.floats(0.05, 1))
def test_what_is_kept_has_no_duplicates(given_texts: list[str], threshold: float) -> None:
    duplicates = near_duplicates(given_texts, threshold)
    remaining = [duplicate for duplicate in range(len(given_texts)) if duplicate not in duplicates]
    sets = [shingles(text) for text in given_texts]
    for number, index in enumerate(remaining):
        assert all(jaccard(sets[index], sets[original]) < threshold for original in remaining[:number])
    for duplicate, (earlier, resemblance) in duplicates.items():
        assert earlier in remaining
        assert earlier < duplicate
        assert resemblance == jaccard(sets[duplicate], sets[earlier]) >= threshold
        preceding = [index for index in remaining if index < duplicate]
        assert (earlier, resemblance) == max(
            ((index, jaccard(sets[duplicate], sets[index])) for index in preceding), key=lambda x: x[1]
        )


def test_shingles_and_jaccard() -> None:
    assert shingles("") == frozenset() == shingles("…!")
    assert shingles("one two") == {("one", "two")}
    assert len(shingles("one two three four")) == 2
    assert jaccard(frozenset(), frozenset()) == 0.0
    assert jaccard(frozenset("ab"), frozenset("ab")) == 1.0


def test_the_better_one_stays_and_the_other_says_why_it_went() -> None:
    original = ranking(hit("a", APPLES), hit("b", PINGGUO), hit("c", APPLES + " Really."), hit("d", APPLES))
    answer = diversify(Diversifier(near_duplicates=0.8), original)
    assert ids(answer) == ["a", "b"]
    assert dict(answer.dropped) == {
        (None, "c"): "near duplicate of a (0.94)",
        (None, "d"): "near duplicate of a (1.00)",
    }
    assert answer.detail == "2 near duplicates dropped"


def test_an_excerpt_is_what_is_compared() -> None:
    documents = [Document("a", APPLES), Document("b", APPLES)]
    excerpts = [
        Hit(document, 1.0, excerpt=Excerpt(text)) for document, text in zip(documents, (APPLES, PINGGUO), strict=True)
    ]
    assert ids(diversify(Diversifier(near_duplicates=0.9), ranking(*excerpts))) == ["a", "b"]


# -- limits ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["x", "y", None])), st.integers(1, 3))
def test_limits_hold(keys: list[str | None], limit: int) -> None:
    excess = over_the_limit([() if key is None else (key,) for key in keys], limit)
    remaining = [key for index, key in enumerate(keys) if index not in excess]
    assert all(remaining.count(key) == min(keys.count(key), limit) for key in ("x", "y"))
    assert remaining.count(None) == keys.count(None)


# -- maximal marginal relevance ----------------------------------------------------------------------------------------


def by_the_book(relevance: list[float], similarity: list[list[float]], weight: float) -> list[int]:
    """Carbonell and Goldstein's formula, word for word."""
    order: list[int] = []
    remaining = list(range(len(relevance)))
    while remaining:
        worth = [
            weight * relevance[index]
            - (1 - weight) * max((similarity[index][earlier] for earlier in order), default=0.0)
            for index in remaining
        ]
        best = remaining[worth.index(max(worth))]
        order.append(best)
        remaining.remove(best)
    return order


@st.composite
def candidates(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    count = draw(st.integers(0, 7))
    relevance = draw(st.lists(st.floats(0, 1, width=16), min_size=count, max_size=count))
    values = draw(st.lists(st.floats(-1, 1, width=16), min_size=count * count, max_size=count * count))
    grid = np.array(values).reshape(count, count)
    return relevance, np.maximum(grid, grid.T).tolist()


@given(candidates(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_mmr_is_by_the_book(given_candidates: tuple[list[float], list[list[float]]], weight: float) -> None:
    relevance, similarity = given_candidates
    grid = np.array(similarity).reshape(len(relevance), len(relevance))
    order = mmr(relevance, grid, weight)
    assert order == by_the_book(relevance, similarity, weight)
    assert mmr(relevance, grid, weight, count=3) == order[:3]


@pytest.mark.parametrize(
    ("relevance", "similarity", "weight"),
    [([1, 2], [[1]], 0.5), ([[1]], [[1]], 0.5), ([1], [[1]], 1.5), ([1], [[1]], math.nan), ([1], [[1]], True)],
)
def test_mmr_of_what_does_not_fit(relevance: Any, similarity: Any, weight: Any) -> None:
    with pytest.raises(InputError):
        mmr(relevance, similarity, weight)


def test_mmr_brings_what_is_different_forward() -> None:
    original = ranking(
        hit("a", APPLES, 3.0),
        hit("b", APPLES + " Really.", 2.9),
        hit("c", "Trains leave at noon.", 2.0),
        hit("d", "Nothing.", 0.0),
    )
    answer = diversify(Diversifier(mmr_lambda=0.5), original)
    assert ids(answer)[:2] == ["a", "c"]
    assert sorted(ids(answer)) == ["a", "b", "c", "d"]
    assert answer.dropped == {}


# -- the refiner -------------------------------------------------------------------------------------------------------


@given(found_hits, st.floats(0.1, 1))
def test_dropping_keeps_the_order(hits: tuple[Hit, ...], threshold: float) -> None:
    diversifier = Diversifier(threshold)
    answer = diversify(diversifier, ranking(*hits))
    remaining = iter(hits)
    assert all(
        any(hit is original for original in remaining) for hit in answer.hits
    )  # a subsequence, of the very same hits
    assert len(answer.hits) + len(answer.dropped) == len(hits)
    assert diversify(diversifier, answer).hits == answer.hits  # once is enough


@given(found_hits, st.floats(0, 1))
def test_mmr_is_a_permutation_and_leaves_the_first_where_it_is(hits: tuple[Hit, ...], weight: float) -> None:
    answer = diversify(Diversifier(mmr_lambda=weight), ranking(*hits))
    assert sorted(ids(answer)) == sorted(hit.id for hit in hits)
    if weight > 0:
        assert answer.hits[:1] == hits[:1]


@pytest.mark.parametrize(
    "scores",
    [
        [3, 2, 1],
        [1, 2, 3],
        [3, 1, 2],
        [1, 1, 1],
        [math.nan, 2, 1],
        [1e308, 0, -1e308],
        [math.inf, 1, 0],
        [5e-324, 0, 0],
    ],
)
def test_lambda_of_one_is_the_order_that_came_in(scores: list[float]) -> None:
    hits = [hit(str(number), "the same text", score) for number, score in enumerate(scores)]
    assert ids(diversify(Diversifier(mmr_lambda=1), ranking(*hits))) == ["0", "1", "2"]


def test_what_came_in_is_left_as_it_was() -> None:
    original = ranking(hit("a", APPLES), hit("b", APPLES), dropped={(None, "z"): "gone"}, degraded=("slow",))
    answer = diversify(Diversifier(near_duplicates=0.9), original)
    assert (ids(original), dict(original.dropped)) == (["a", "b"], {(None, "z"): "gone"})
    assert answer.dropped.keys() == {(None, "z"), (None, "b")}
    assert (answer.scale, answer.degraded) == ("calibrated", ("slow",))


def test_nothing_asked_for_nothing_done() -> None:
    original = ranking(hit("a", APPLES), hit("b", APPLES))
    assert diversify(Diversifier(), original).hits == original.hits
    refused = ranking(refused=Refusal("because"))
    assert diversify(Diversifier(0.9, 0.5), refused).refused == Refusal("because")


def test_it_looks_further_than_asked_for() -> None:
    assert Diversifier().depth(5, "rrf") == 5
    assert Diversifier(mmr_lambda=0.5).depth(5, "rrf") == 15
    assert not Diversifier(near_duplicates=0.9).in_place


def test_awaited_it_is_the_same() -> None:
    original = ranking(hit("a", APPLES, 2.0), hit("b", APPLES, 1.0), hit("c", PINGGUO, 0.5))
    diversifier = Diversifier(0.95, 0.5)
    assert asyncio.run(diversifier.arefine(Query("q"), original, 2)) == diversify(diversifier, original)
    assert diversifier.stage == "diversify"


@pytest.mark.parametrize(
    "options",
    [
        {"near_duplicates": 0},
        {"near_duplicates": 1.1},
        {"near_duplicates": math.nan},
        {"mmr_lambda": -0.1},
        {"mmr_lambda": "0.5"},
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Diversifier(**options)
