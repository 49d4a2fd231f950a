"""`EmbeddingSelector`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import HashingEmbedder, default_embedder
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.choices.choice_vectors import centroids
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Plain:
    """The least an embedder can be, with a record of what it was asked for."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.vectors = vectors
        self.texts: list[str] = []

    def embed(self, text: str) -> Sequence[float]:
        self.texts.append(text)
        return self.vectors[text]


class Counting(HashingEmbedder):
    def __init__(self) -> None:
        super().__init__(64)
        self.queries: list[str] = []
        self.documents: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.queries += texts
        return super().embed_queries(texts)

    def embed_documents(self, texts: Sequence[str], **_: Any) -> NDArray[np.float32]:
        self.documents += texts
        return HashingEmbedder(64).embed_queries(texts)


ABC = [ToolMetadata("a", "first"), ToolMetadata("b", "second"), ToolMetadata("c", "third")]
VECTORS = {"q": [3, 4, 0], "first": [1, 0, 0], "second": [0, 2, 0], "third": [0, 0, 5], "zero": [0, 0, 0]}


def test_the_nearest_description_is_selected_with_its_cosine() -> None:
    result = EmbeddingSelector(Plain(VECTORS)).select(ABC, "q")
    assert (result.ind, result.reason) == (1, "Cosine similarity: 0.8000")
    assert result.selections[0].score == pytest.approx(0.8)
    assert 0 < (result.confidence or 0) <= 1


def test_a_mock_with_nothing_but_embed_will_do() -> None:
    embedder = Mock()
    embedder.embed.side_effect = [[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.1, 0.9, 0.0]]  # query first, then choices
    result = EmbeddingSelector(embedder=embedder).select(ABC[:2], "q")
    assert result.ind == 0
    assert "similarity" in result.reason.lower()


def test_top_k_gives_several_best_first() -> None:
    result = EmbeddingSelector(Plain(VECTORS), top_k=2).select(ABC, "q")
    assert result.inds == [1, 0]
    assert result.reasons == ["Cosine similarity: 0.8000", "Cosine similarity: 0.6000"]
    assert EmbeddingSelector(Plain(VECTORS), top_k=9).select(ABC, "q").inds == [1, 0, 2]


def test_zero_vectors_score_zero() -> None:
    choices = [ToolMetadata("n", "zero"), *ABC[:1]]
    assert EmbeddingSelector(Plain(VECTORS)).scores(choices, "q") == pytest.approx([0.0, 0.6])
    result = EmbeddingSelector(Plain(VECTORS)).select(ABC, "zero")
    assert (result.ind, result.reason) == (0, "Cosine similarity: 0.0000")


def test_choices_are_embedded_once_in_whatever_sets_and_orders_they_come() -> None:
    embedder = Counting()
    selector = EmbeddingSelector(embedder)
    for choices in (ABC, ABC[::-1], ABC[:2], [*ABC, ToolMetadata("other name", "first")], list(map(copy_of, ABC))):
        selector.select(choices, "q")
        selector.select(tuple(choices), "another")
    assert embedder.documents == ["first", "second", "third"]
    assert embedder.queries == ["q", "another"] * 5


def copy_of(choice: ToolMetadata) -> ToolMetadata:
    return ToolMetadata(choice.name, choice.description, choice.metadata)


def test_the_memory_is_bounded() -> None:
    embedder = Counting()
    selector = EmbeddingSelector(embedder, cache_size=4)
    for number in range(50):
        selector.select([f"{number} left", f"{number} right"], "q")
    assert len(selector._vectors._vectors_by_text) == 4
    assert selector.select(["0 left", "0 right"], "0 left").ind == 0  # forgotten, and embedded again
    assert embedder.documents.count("0 left") == 2


def test_a_choice_scores_the_best_of_description_and_examples() -> None:
    vectors: dict[str, Sequence[float]] = {**VECTORS, "e1": [3, 4, 0.0], "e2": [0, 1, 0]}
    choices = [ABC[1], ToolMetadata("c", "third", {"examples": ["e2", "e1"]})]
    selector = EmbeddingSelector(Plain(vectors))
    assert selector.scores(choices, "q") == pytest.approx([0.8, 1.0])
    assert selector.select(choices, "q").ind == 1


def test_examples_are_embedded_as_queries() -> None:
    embedder = Counting()
    EmbeddingSelector(embedder).select([ToolMetadata("a", "first", {"examples": ["eins"]}), "b"], "q")
    assert embedder.documents == ["first", "b"]
    assert embedder.queries == ["q", "eins"]


@pytest.mark.parametrize("examples", ["abc", [1], [None]])
def test_examples_that_are_no_list_of_strings_are_refused(examples: object) -> None:
    with pytest.raises(InputError, match=r"'bad'.*examples"):
        EmbeddingSelector(Counting()).select([ToolMetadata("bad", "x", {"examples": examples}), "b"], "q")


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_centroids_are_few_unit_vectors_and_always_the_same(rows: int, count: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    centres = centroids(points, count)
    assert centres.shape == (min(rows, count), 5)
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(centres, centroids(points, count))


def test_centroids_find_groups_that_are_there() -> None:
    rng = np.random.default_rng(0)
    groups = np.eye(3, 8, dtype=np.float32)
    points = np.repeat(groups, 20, axis=0) + rng.normal(scale=0.05, size=(60, 8)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    assert ((centroids(points, 3) @ groups.T).max(axis=0) > 0.98).all()


def test_below_the_threshold_it_abstains_or_says_so() -> None:
    abstaining = EmbeddingSelector(Plain(VECTORS), top_k=3, threshold=0.7)
    assert abstaining.allow_abstain
    assert abstaining.select(ABC, "q").inds == [1]
    assert EmbeddingSelector(Plain(VECTORS), threshold=0.9).select(ABC, "q").abstained
    result = EmbeddingSelector(Plain(VECTORS), threshold=0.9, allow_abstain=False).select(ABC, "q")
    assert result.ind == 1
    assert result.fallback is not None
    assert "0.8000" in result.fallback.why


@pytest.mark.parametrize(
    "arguments",
    [
        *({"top_k": value} for value in (0, -1, 1.5, True)),
        *({"threshold": value} for value in (float("nan"), "high")),
        {"cache_size": 0},
    ],
)
def test_what_cannot_be_is_refused_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        EmbeddingSelector(HashingEmbedder(), **arguments)


@pytest.mark.parametrize(
    "vectors",
    [
        {"q": [1, 0], "first": [1, float("nan")], "second": [0, 1]},
        {"q": [1, 0], "first": [1, 0, 0], "second": [0, 1]},
        {"q": [1, 0], "first": [1, 0, 0], "second": [0, 1, 0]},
        {"q": 1, "first": [1], "second": [0]},
        {"q": ["x"], "first": [1], "second": [0]},
    ],
)
def test_an_embedder_that_misbehaves_is_named(vectors: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="Plain"):
        EmbeddingSelector(Plain(vectors)).select(ABC[:2], "q")


@settings(deadline=None)
@given(st.permutations(range(6)), st.text(max_size=20))
def test_the_order_of_choices_does_not_change_their_scores(order: list[int], query: str) -> None:
    choices = [ToolMetadata(f"tool {n}", f"does {n} things, {'abcdef'[n]}") for n in range(6)]
    selector = EmbeddingSelector(HashingEmbedder())
    scores = selector.scores(choices, query)
    scores_in_order = selector.scores([choices[index] for index in order], query)
    np.testing.assert_allclose(scores_in_order, [scores[index] for index in order], atol=1e-5)


def test_twins_and_threads_agree() -> None:
    selector = EmbeddingSelector(HashingEmbedder())
    expected = EmbeddingSelector(HashingEmbedder()).select(ABC, "the third one")
    assert asyncio.run(selector.aselect(ABC, "the third one")) == expected
    results = []
    threads = [threading.Thread(target=lambda: results.append(selector.select(ABC, "the third one"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


@pytest.mark.parametrize("count", [2, 3, 7, 33])
def test_equal_choices_go_to_the_first_wherever_they_stand(count: int) -> None:
    embedder = default_embedder()
    choices = ["Weather forecast", *["Plays songs of an artist"] * count]
    assert EmbeddingSelector(embedder).select(choices, "some music").ind == 1
    assert DescriptionSelector(embedder).select(choices, "some music").ind == 1
