"""The offline reranker: both raw scores where hits have them, the hits' own texts where they don't."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.fusion import KAPPA, CosineSpread, calibrated_sum
from pointsman.retrieval.refine.rerank import CalibratedReranker
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Document, Hit, Provenance, Query, Ranked

SPREAD = CosineSpread(0.7, 0.02)
Scores = Sequence[tuple[float | None, float | None]]


def ranking(scores: Scores, scale: str = "rrf") -> Ranked:
    """Hits with raw scores of words and vectors, in the order given."""
    hits = []
    for index, (bm25, cosine) in enumerate(scores):
        steps = [Provenance("bm25", None, bm25)] if bm25 is not None else []
        steps += [Provenance("vector", index + 1, cosine)] if cosine is not None else []
        hits.append(Hit(Document(f"d{index}", f"text {index}"), 1 / (60 + index), "set", tuple(steps)))
    return Ranked(tuple(hits), scale)


def ids(ranking: Ranked) -> list[str]:
    return [hit.id for hit in ranking.hits]


def test_both_raw_scores_are_added_on_one_scale() -> None:
    original = ranking([(0.0, 0.72), (9.0, 0.74), (4.0, 0.80)])
    reranker = CalibratedReranker(spread=SPREAD)
    outcome = reranker.refine(Query("q"), original, 3)
    assert ids(outcome) == ["d2", "d1", "d0"]
    assert [hit.score for hit in outcome.hits] == pytest.approx([4 + 165 * 0.1, 9 + 165 * 0.04, 165 * 0.02])
    assert outcome.scale == "calibrated"
    assert outcome.hits[0].provenance[-1] == Provenance("rerank", 1, outcome.hits[0].score)
    assert outcome.degraded == ()
    assert "calibrated sum" in outcome.detail
    assert asyncio.run(reranker.arefine(Query("q"), original, 3)) == outcome
    assert reranker.refine_many([Query("q")] * 2, [original] * 2, 3) == [outcome, outcome]
    by_sigma = CalibratedReranker(sigma=0.02, mean=0.7)
    by_function = CalibratedReranker(spread=lambda: SPREAD)
    assert by_sigma.refine(Query("q"), original, 3) == outcome == by_function.refine(Query("q"), original, 3)


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.one_of(st.none(), st.just(math.nan), st.floats(-1, 1))), min_size=1, max_size=20
    ).filter(lambda scores: any(cosine is not None for _, cosine in scores))
)
def test_it_is_the_calibrated_sum_of_everything_that_came_in(scores: Scores) -> None:
    outcome = CalibratedReranker(spread=SPREAD, max_candidates=1).refine(Query("q"), ranking(scores), 3)
    cosines = [math.nan if cosine is None else cosine - SPREAD.mean for _, cosine in scores]
    expected = calibrated_sum(range(len(scores)), [bm25 or 0.0 for bm25, _ in scores], cosines, sigma=SPREAD.sigma)
    assert [(hit.id, hit.score) for hit in outcome.hits] == [(f"d{index}", score) for index, score in expected]


def test_a_kappa_of_your_own_is_a_scale_of_its_own() -> None:
    outcome = CalibratedReranker(spread=SPREAD, kappa=1.0).refine(Query("q"), ranking([(1.0, 0.7), (0.5, 0.8)]), 2)
    assert outcome.scale == "rerank:calibrated|kappa=1"
    assert [hit.score for hit in outcome.hits] == pytest.approx([0.5 + 0.1 / 0.02, 1.0])


@pytest.mark.parametrize(
    ("scores", "scale", "detail"),
    [
        ([(3.0, 0.7), (9.0, 0.8)], "calibrated", "nothing to add"),
        ([(3.0, None), (9.0, None)], "bm25", "'bm25' but not of 'vector'"),
        ([(None, 0.7), (None, 0.8)], "cosine", "'vector' but not of 'bm25'"),
        ([(None, None), (None, None)], "theirs", "no embedder"),
        ([(None, 0.7), (9.0, None)], "theirs", "no embedder"),
        ([(3.0, 0.7), (None, 0.8)], "theirs", "no embedder"),
        ([], "rrf", "nothing to rerank"),
    ],
)
def test_where_nothing_can_be_added_the_order_stands_and_it_is_said(scores: Scores, scale: str, detail: str) -> None:
    original = ranking(scores, scale)
    reranker = CalibratedReranker(spread=SPREAD)
    for outcome in (reranker.refine(Query("q"), original, 2), asyncio.run(reranker.arefine(Query("q"), original, 2))):
        assert (outcome.hits, outcome.scale, outcome.degraded) == (original.hits, scale, ())
        assert detail in outcome.detail


def test_scores_of_several_queries_are_not_compared() -> None:
    provenance = (Provenance("bm25", 1, 3.0), Provenance("bm25", 2, 1.0), Provenance("vector", 1, 0.8))
    original = Ranked((Hit(Document("a", "x"), 1.0, None, provenance),), "rrf")
    outcome = CalibratedReranker(spread=SPREAD).refine(Query("q"), original, 1)
    assert outcome.hits == original.hits
    assert outcome.degraded == ()


def _fail() -> CosineSpread:
    raise OSError("disk gone")


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({}, "give sigma or spread"),
        ({"spread": _fail}, "OSError: disk gone"),
        ({"spread": lambda: None}, "not NoneType"),
        ({"spread": CosineSpread(0.0, 0.0)}, "sigma"),
    ],
)
def test_without_a_spread_it_degrades(settings: dict[str, Any], cause: str) -> None:
    original = ranking([(3.0, 0.7), (9.0, 0.8)])
    reranker = CalibratedReranker(**settings)
    for outcome in (reranker.refine(Query("q"), original, 2), asyncio.run(reranker.arefine(Query("q"), original, 2))):
        assert (outcome.hits, outcome.scale) == (original.hits, "rrf")
        assert outcome.degraded[0].startswith("rerank by calibrated failed, the previous order is kept: ")
        assert cause in outcome.degraded[0]


def test_a_score_that_is_no_number_degrades() -> None:
    outcome = CalibratedReranker(spread=SPREAD).refine(Query("q"), ranking([(math.inf, 0.7), (9.0, 0.8)]), 2)
    assert ids(outcome) == ["d0", "d1"]
    assert "inf" in outcome.degraded[0]


def test_it_asks_for_more_only_where_it_can_order_more() -> None:
    reranker = CalibratedReranker(spread=SPREAD)
    assert [reranker.depth(5, scale) for scale in ("rrf", "theirs", "calibrated", "bm25", "cosine")] == [
        50,
        50,
        5,
        5,
        5,
    ]
    assert reranker.depth(80, "rrf") == 80
    assert reranker.in_place
    assert not CalibratedReranker(CountingEmbedder(), sigma=0.1).in_place


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class CountingEmbedder(HashingEmbedder):
    """Keeps what it is asked to embed."""

    def __init__(self) -> None:
        super().__init__(256)
        self.texts: list[str] = []

    def embed_documents(self, texts: Sequence[str], **options: Any) -> Any:
        self.texts += texts
        return super().embed_documents(texts, **options)


FOREIGN = ["heavy rain all day", "black cats at night", "the signal lamps of railways", "railway lamps", "moon cheese"]


def foreign() -> Ranked:
    return Ranked(tuple(Hit(Document(f"d{n}", text), 1.0) for n, text in enumerate(FOREIGN)), "theirs")


def test_foreign_hits_are_scored_by_their_texts() -> None:
    embedder = CountingEmbedder()
    reranker = CalibratedReranker(embedder, sigma=0.1, max_texts=4)
    outcome = reranker.refine(Query("railway lamp"), foreign(), 3)
    assert ids(outcome)[0] == "d3"
    assert ids(outcome)[-1] == "d4", "beyond what it embeds"
    assert outcome.scale == f"rerank:calibrated|{embedder.name}"
    assert embedder.texts == FOREIGN[:4]
    reranker.refine(Query("black cat"), foreign(), 3)
    assert embedder.texts == FOREIGN[:4], "vectors are kept"
    assert asyncio.run(reranker.arefine(Query("railway lamp"), foreign(), 3)).hits == outcome.hits


@pytest.mark.parametrize(
    ("query", "texts", "best"),
    [
        ("signals of railways", FOREIGN, 2),
        ("сигналы поездов", ["дождь весь день", "сигнал поезда", "луна и сыр"], 1),
        ("铁路信号", ["今天下雨", "月亮和奶酪", "铁路的信号灯"], 2),
    ],
)
def test_words_are_enough_without_an_embedder(query: str, texts: list[str], best: int) -> None:
    documents = [Document(str(index), text) for index, text in enumerate(texts)]
    first, *remaining = CalibratedReranker().rerank(query, documents, None)
    assert first.id == str(best)
    assert first.metadata["score"] > remaining[0].metadata["score"]


def test_the_sum_of_texts_is_words_and_cosine() -> None:
    embedder = HashingEmbedder()
    words = np.array(CalibratedReranker().score("railway lamps", FOREIGN))
    sums = np.array(CalibratedReranker(embedder, sigma=0.1, mean=0.2).score("railway lamps", FOREIGN))
    cosines = embedder.embed_documents(FOREIGN) @ embedder.embed_queries(["railway lamps"])[0]
    assert sums == pytest.approx(words + KAPPA / 0.1 * (cosines - 0.2), abs=1e-4)


def test_an_embedder_that_fails_degrades() -> None:
    class FailingEmbedder(HashingEmbedder):
        def embed_documents(self, texts: Sequence[str], **options: Any) -> Any:
            raise ModelError("no memory")

    outcome = CalibratedReranker(FailingEmbedder(), sigma=0.1).refine(Query("q"), foreign(), 3)
    assert outcome.hits == foreign().hits
    assert "no memory" in outcome.degraded[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 0.0}, "sigma is a finite number above 0"),
        ({"sigma": 1.0, "kappa": -1}, "kappa"),
        ({"sigma": 1.0, "mean": math.nan}, "mean"),
        ({"sigma": 1.0, "spread": SPREAD}, "not both"),
        ({"embedder": HashingEmbedder()}, "HashingEmbedder does not tell the spread of its cosines"),
        ({"max_texts": 0}, "max_texts"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CalibratedReranker(**settings)


def test_an_embedder_may_know_its_spread() -> None:
    class Knows(HashingEmbedder):
        cosine_spread = 0.05

    outcome = CalibratedReranker(Knows()).refine(Query("q"), ranking([(1.0, 0.7), (0.0, 0.8)]), 2)
    assert [hit.score for hit in outcome.hits] == pytest.approx([0.8 * 66, 1 + 0.7 * 66])
