"""Late interaction as a reranker, and several vectors of one document as datasets with the same ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pointsman
from pointsman import Dataset, Document, InputError, ModelError
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.refine.rerank import LateInteractionReranker
from pointsman.retrieval.refine.rerank.late_interaction import max_sim
from refiner_suites import RerankerConformance


class Tokens:
    """Embeds each word by itself; longer than 1, as models may give them."""

    name = "words"

    def __init__(self) -> None:
        self.count = 0

    def embed_queries(self, texts: Sequence[str]) -> list[Any]:
        self.count += len(texts)
        return [3 * HashingEmbedder().embed_queries(text.split()) for text in texts]

    embed_documents = embed_queries


class TestLateInteractionReranker(RerankerConformance):
    def make(self) -> LateInteractionReranker:
        return LateInteractionReranker(Tokens())


def test_score_is_the_sum_of_the_best_cosines() -> None:
    rows, others = HashingEmbedder().embed_queries(["red", "signal"]), HashingEmbedder().embed_queries(["signal", "x"])
    expected = sum(max(float(row @ other) for other in others) for row in rows)
    (score,) = LateInteractionReranker(Tokens()).score("red signal", ["signal x"])
    assert score == pytest.approx(expected, abs=1e-5)
    assert LateInteractionReranker(Tokens()).unit_scores("red signal", [""], [score]) == [pytest.approx(score / 2)]
    assert max_sim(np.empty((0, 2)), np.ones((1, 2))) == 0.0
    assert LateInteractionReranker(Tokens()).score("red", [""]) == [0.0]


def test_search_is_reranked_and_scores_are_cached() -> None:
    dataset = Dataset("rails", embedder=HashingEmbedder())
    texts = ["a red signal", "signal signal signal red red", "red paint and a signal box", "tea"]
    dataset.add([Document(str(number), text) for number, text in enumerate(texts)])
    tokens = Tokens()
    reranker = LateInteractionReranker(tokens)
    answer = dataset.search("red signal box", 3, rerank=reranker, refuse=False)
    assert answer.hits[0].id == "2"
    assert answer.hits[0].provenance[-1].source == "rerank"
    count = tokens.count
    assert asyncio.run(dataset.asearch("red signal box", 3, rerank=reranker, refuse=False)).hits == answer.hits
    assert tokens.count == count


@pytest.mark.parametrize(
    "matrices", [[], [np.ones(3)], [np.full((2, 64), np.nan)], [np.ones((2, 3))], ["text"], [[[1.0], [1.0, 2.0]]]]
)
def test_unusable_tokens_are_a_model_error(matrices: Any) -> None:
    class Unusable(Tokens):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            return matrices

    with pytest.raises(ModelError, match="words gave"):
        LateInteractionReranker(Unusable()).score("red", ["red"])


def test_embedder_without_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="an embedder of tokens has name"):
        LateInteractionReranker(object())  # type: ignore[arg-type]


def test_several_vectors_of_a_document_are_datasets_with_the_same_ids(tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        for name, texts in (("titles", ["red signal", "tea"]), ("bodies", ["stop at once", "a red signal at tea"])):
            workspace.dataset(name).add([Document(str(number), text) for number, text in enumerate(texts)])
        answer = workspace.search("red signal", 4, refuse=False, group_by="_id")
        assert [hit.id for hit in answer] == ["0", "1"]
        assert [hit.dataset for hit in answer] == ["titles", "bodies"]
