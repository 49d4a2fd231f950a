"""Late interaction: vectors of tokens, and the reranker that compares them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

import pointsman
from pointsman import Dataset, Document, Hit, InputError, Query, RetrievalWorkflow, Workspace
from pointsman.embedders import HashingEmbedder, default_embedder
from pointsman.retrieval.refine.rerank import LateInteractionReranker, load_reranker
from pointsman.values.protocols import TokenEmbedder, TokenVectors
from pointsman.values.settings import Settings
from pointsman.values.types import Ranked
from refiner_suites import RerankerConformance

TEXTS = ("The red signal", "Сигнал красный, стой", "信号灯变红了", "")


class WordEmbedder(HashingEmbedder):
    """A fake: the vector of a token is that of the word; *rare* is three times as rare as others."""

    texts = 0

    def embed_tokens(self, texts: Sequence[str], *, as_query: bool = False) -> list[TokenVectors]:
        self.texts += 0 if as_query else len(texts)
        words = [text.lower().split() for text in texts]
        return [
            TokenVectors(
                self.embed_queries(row), np.array([3.0 if word == "rare" else 1.0 for word in row], np.float32)
            )
            for row in words
        ]


class TestLateInteractionReranker(RerankerConformance):
    def make(self) -> LateInteractionReranker:
        return LateInteractionReranker()


def test_tokens_are_those_of_the_pass_that_makes_the_vector() -> None:
    embedder = default_embedder()
    assert isinstance(embedder, TokenEmbedder)
    for as_query in (True, False):
        for text, tokens in zip(TEXTS, embedder.embed_tokens(TEXTS, as_query=as_query), strict=True):
            assert tokens.rows.shape == (len(tokens.surprise), 384)
            assert np.allclose(np.linalg.norm(tokens.rows, axis=1), 1, atol=1e-6)
            assert (len(tokens.rows) > 0) == bool(text)
            assert (tokens.surprise > 0).all()
    for text, tokens in zip(TEXTS, embedder.embed_tokens(TEXTS), strict=True):
        assert np.allclose(tokens.rows, embedder.embed_tokens([text])[0].rows, atol=1e-5)


def test_of_a_long_text_the_tokens_of_the_head_are_embedded() -> None:
    (tokens,) = default_embedder().embed_tokens(["rail " * 2000])
    assert 400 < len(tokens.rows) < 512


def test_rare_words_are_surprising() -> None:
    (tokens,) = default_embedder().embed_tokens(["the marshmallow"])
    assert tokens.surprise[0] < tokens.surprise[1:].sum()


def test_score_is_the_weighted_mean_of_the_best_cosines() -> None:
    reranker = LateInteractionReranker(WordEmbedder())
    assert reranker.score("red rare", ["the rare tea", "a red door", "red and rare", ""]) == [
        pytest.approx(score, abs=1e-5)
        for score in (
            (_best("red", "the rare tea") + 3) / 4,
            (1 + 3 * _best("rare", "a red door")) / 4,
            1,
            0,
        )
    ]
    assert reranker.score("", ["a red door"]) == [0.0]


def _best(word: str, text: str) -> float:
    rows = HashingEmbedder().embed_queries([word, *text.split()])
    return float((rows[1:] @ rows[0]).max())


def test_order_is_that_of_score_and_rank() -> None:
    reranker = LateInteractionReranker(WordEmbedder())
    texts = ("a door", "a red door", "a red door too")
    hits = tuple(Hit(Document(str(rank), text), 1 / rank) for rank, text in enumerate(texts, 1))
    ranking = reranker.refine(Query("red"), Ranked(hits, "rrf"), 3)
    assert [hit.id for hit in ranking.hits] == ["2", "3", "1"]  # of equal ones the first stays first
    assert [hit.score for hit in ranking.hits[:2]] == [pytest.approx(40 - math.log(rank), abs=1e-4) for rank in (2, 3)]
    assert ranking.scale == f"rerank:late|{WordEmbedder().name}"


def test_only_the_first_ten_are_embedded_and_their_scores_are_cached() -> None:
    embedder = WordEmbedder()
    reranker = LateInteractionReranker(embedder)
    hits = tuple(Hit(Document(str(number), f"text {number}"), 1 / (1 + number)) for number in range(30))
    for _ in range(2):
        ranking = reranker.refine(Query("text 9"), Ranked(hits, "rrf"), 30)
        assert [hit.id for hit in ranking.hits[10:]] == [str(number) for number in range(10, 30)]
    assert embedder.texts == 10


def test_an_embedder_without_tokens_is_an_error_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"gives no vectors of tokens.*use the default embedder"):
        LateInteractionReranker(HashingEmbedder())


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    dataset = Dataset("crossings", embedder=default_embedder())
    dataset.add(
        [
            {"id": "bell", "text": "A bell is rung when the barrier is lowered."},
            {"id": "barrier", "text": "The barrier is painted anew each spring, red and white."},
            {"id": "шлагбаум", "text": "Шлагбаум красят весной."},
            {"id": "铃", "text": "栏杆放下时会响铃。"},
        ]
    )
    return dataset


@pytest.mark.parametrize("question", ["when is the barrier painted", "когда красят шлагбаум", "什么时候响铃"])
@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "rrf"])
def test_search_reranks_by_name(dataset: Dataset, question: str, strategy: str) -> None:
    answer = dataset.search(question, 4, strategy=strategy, rerank="late", refuse=False)  # type: ignore[arg-type]
    decision = next(decision for decision in answer.plan.decisions if decision.what == "rerank")
    assert (decision.value, decision.by) == ("late|multilingual-e5-small-q4-2", "request")
    assert all(hit.provenance[-1].source == "rerank" for hit in answer.hits)
    assert answer.degraded == ()


def test_names_of_reranking_are_those_of_its_values(dataset: Dataset) -> None:
    question = "when is the barrier painted"
    for name, value in (("always", True), ("never", False)):
        by_name, by_value = (dataset.search(question, rerank=rerank, refuse=False) for rerank in (name, value))  # type: ignore[arg-type]
        assert by_name.plan.decisions == by_value.plan.decisions
    with pytest.raises(InputError, match=r"'lately'.*late"):
        dataset.search(question, rerank="lately")  # type: ignore[arg-type]


def test_settings_and_workflow_name_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert isinstance(load_reranker("late"), LateInteractionReranker)
    settings = Settings(reranker="late")
    for number, options in enumerate(({"settings": settings}, {"workflow": RetrievalWorkflow(reranker="late")})):
        with pointsman.open(tmp_path_factory.mktemp(str(number)), **options) as workspace:  # type: ignore[arg-type]
            assert isinstance(workspace, Workspace)
            workspace.dataset("notes").add([Document("1", "The barrier is painted each spring.")])
            answer = workspace.search("when is the barrier painted", strategy="hybrid")
            assert answer.reranked


def test_hostile_texts_cost_no_more_than_long_ones(dataset: Dataset) -> None:
    for text in ("\x00" * 20_000, "\ud800" * 20_000, "а" * 20_000, "▁" * 20_000, "- " * 10_000):
        answer = dataset.search("barrier", rerank=LateInteractionReranker(), refuse=False)
        assert LateInteractionReranker().score(text, [text, "barrier"])[0] <= 1.001
        assert answer.degraded == ()
