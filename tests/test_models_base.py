"""Anything that can embed is an embedder: S10."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pointsman.embedders import CachedEmbedder, HashingEmbedder, as_embedder
from pointsman.selector import DescriptionSelector, EmbeddingSelector
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.protocols import Embedder


class OnlyEmbeds:
    """Has ``embed(text)`` and nothing else; one vector for each text."""

    def __init__(self, vectors: dict[str, Any] | None = None) -> None:
        self.vectors = vectors

    def embed(self, text: str) -> Any:
        return [float(len(text)), 1.0] if self.vectors is None else self.vectors.get(text, [1.0, 1.0])


class NamedEmbeds(OnlyEmbeds):
    name = "mine"


class Pair:
    """Embeds lists, without saying how long the vectors are."""

    def embed_queries(self, texts: list[str]) -> list[list[int]]:
        return [[1, 0] for _ in texts]

    def embed_documents(self, texts: list[str]) -> list[list[int]]:
        return [[0, 2] for _ in texts]


def test_an_embedder_stays_as_it_is() -> None:
    embedder = HashingEmbedder()
    assert as_embedder(embedder) is embedder
    once = as_embedder(OnlyEmbeds())
    assert as_embedder(once) is once
    assert isinstance(once, Embedder)


@given(arrays.arrays(np.float64, (3, 4), elements=st.floats(-1e30, 1e30, allow_subnormal=False)))
def test_vectors_are_brought_to_length_one_or_stay_zero(rows: Any) -> None:
    vectors = dict(zip("abc", rows.tolist(), strict=True))
    for embed in (as_embedder(OnlyEmbeds(vectors)).embed_queries, as_embedder(OnlyEmbeds(vectors)).embed_documents):
        made = embed(["a", "b", "c"])
        assert made.dtype == np.float32
        assert made.shape == (3, 4)
        lengths = np.linalg.norm(made, axis=1)
        assert np.allclose(lengths, rows.any(axis=1), atol=1e-5)


def test_what_is_not_said_is_found_out() -> None:
    embedder = as_embedder(OnlyEmbeds())
    assert (embedder.name, embedder.dimensions) == ("OnlyEmbeds", 2)
    assert as_embedder(NamedEmbeds()).name == "mine"
    assert embedder.embed_queries([]).shape == (0, 2)
    counts: list[int] = []
    embedder.embed_documents(["a", "bb"], on_progress=counts.append)  # type: ignore[call-arg]
    assert counts == [2]


def test_queries_and_documents_may_differ() -> None:
    embedder = as_embedder(Pair())
    assert embedder.embed_queries(["x"]).tolist() == [[1, 0]]
    assert embedder.embed_documents(["x"]).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("e5", "no embedder named 'e5'"),
        ("onnx:", "'onnx' needs a name after a colon"),
        (None, "not NoneType: None"),
        (3, "not int: 3"),
        (len, "not builtin_function_or_method"),
        (HashingEmbedder, "not ABCMeta"),
        (type("Deaf", (), {"embed": 3})(), "not Deaf"),
    ],
)
def test_anything_else_is_refused_by_its_type(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_embedder(source)
    for selector in (EmbeddingSelector, DescriptionSelector):
        with pytest.raises(InputError, match=message):
            selector(source)


class Asynchronous:
    """Embeds after waiting, always in one event loop, as a client that keeps connections needs it."""

    def __init__(self) -> None:
        self.loops: set[int] = set()

    async def embed(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        self.loops.add(id(asyncio.get_running_loop()))
        return [len(text), 1.0]


def test_an_asynchronous_embedder_is_taken_as_it_is_from_any_thread_and_loop() -> None:
    source = Asynchronous()
    embedder = as_embedder(source)
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(embedder.embed_queries, [["a"], ["bb"]]))

    async def inside_a_loop() -> Any:
        return embedder.embed_documents(["a", "bb"])

    assert np.array_equal(np.concatenate(rows), asyncio.run(inside_a_loop()))
    assert len(source.loops) == 1


class OfLangChain:
    model = "chain"

    def embed_query(self, text: str) -> list[float]:
        return [1.0, 0.0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[0.0, 2.0] for _ in texts]


class OfLlamaIndex:
    model_name = "index"

    def get_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0]

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        return [[0.0, 2.0] for _ in texts]


@pytest.mark.parametrize(("source", "name"), [(OfLangChain(), "chain"), (OfLlamaIndex(), "index")])
def test_models_of_other_frameworks_are_taken_as_they_are(source: Any, name: str) -> None:
    embedder = as_embedder(source)
    assert embedder.name == name
    assert embedder.embed_queries(["x"]).tolist() == [[1, 0]]
    assert embedder.embed_documents(["x", "y"]).tolist() == [[0, 1], [0, 1]]


def test_an_embedder_that_fails_is_named() -> None:
    class Failing:
        def embed(self, text: str) -> list[float]:
            raise TimeoutError("no answer")

    with pytest.raises(ModelError, match="Failing failed: TimeoutError: no answer"):
        as_embedder(Failing()).embed_queries(["a"])


@pytest.mark.parametrize("vector", [3.0, [], [[1.0]], ["x"], [float("nan")], None, {"a": 1}])
def test_what_is_no_vector_is_an_error_that_names_the_object(vector: Any) -> None:
    with pytest.raises(ModelError, match="OnlyEmbeds"):
        as_embedder(OnlyEmbeds({"a": vector})).embed_queries(["a"])


def test_lengths_must_agree() -> None:
    embedder = as_embedder(OnlyEmbeds({"a": [1, 2], "b": [1, 2, 3]}))
    embedder.embed_queries(["a"])
    with pytest.raises(ModelError, match="different lengths: 2 and 3"):
        embedder.embed_queries(["b"])


def test_what_has_no_name_of_its_own_is_not_remembered(tmp_path: Path) -> None:
    """Two objects of one class may embed differently, and a file of vectors knows them by name alone."""
    for name, is_cached in ((OnlyEmbeds, False), (NamedEmbeds, True)):
        first, second = name({"a": [1, 0]}), name({"a": [0, 1]})
        CachedEmbedder(as_embedder(first), tmp_path).embed_queries(["a"])
        vectors = CachedEmbedder(as_embedder(second), tmp_path).embed_queries(["a"])
        assert vectors.tolist() == ([[1, 0]] if is_cached else [[0, 1]])
