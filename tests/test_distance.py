"""Dot products and Euclidean distances: the order of the distance itself, whatever holds and searches the vectors."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pointsman
from pointsman import Client, Dataset, Document, InputError
from pointsman.embedders import as_embedder
from pointsman.embedders.distance import COSINE, Distance, DistanceEmbedder, DistanceName
from pointsman.service.server.app import create_app
from serving import serving

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postgres_kit import PostgresServer

CHANCE = np.random.default_rng(7)
LONGEST = 12.0
ROWS = CHANCE.normal(size=(300, 8)) * CHANCE.uniform(0.2, 3, (300, 1))
ROWS_32 = ROWS.astype(np.float32)
QUERIES = CHANCE.normal(size=(20, 8)) * CHANCE.uniform(0.2, 3, (20, 1))
DOCUMENTS = [Document(str(number), f"text {number}") for number in range(len(ROWS))]
NAMES: tuple[DistanceName, ...] = ("dot", "euclidean")


class Model:
    """Gives the row of the number in a text, with its length."""

    name = "rows"

    def embed(self, text: str) -> list[float]:
        source, _, number = text.partition(" ")
        rows: list[float] = (QUERIES if source == "query" else ROWS)[int(number or 0)].tolist()
        return rows


def values(name: DistanceName, query: NDArray[Any]) -> NDArray[Any]:
    if name == "dot":
        return np.asarray(ROWS @ query)
    return np.asarray(np.linalg.norm(ROWS - query, axis=1))


def nearest(name: DistanceName, query: NDArray[Any], k: int = 10) -> list[str]:
    order = values(name, query) * (-1 if name == "dot" else 1)
    return [str(number) for number in np.argsort(order)[:k]]


@pytest.mark.parametrize("name", NAMES)
def test_order_and_values_are_those_of_the_distance(name: DistanceName) -> None:
    dataset = Dataset("rows", embedder=DistanceEmbedder(Model(), name, LONGEST))
    dataset.add(DOCUMENTS, vectors=ROWS_32)
    for query in QUERIES:
        hits = dataset.search_vector(query, 10)
        assert [hit.id for hit in hits] == nearest(name, query)
        expected = values(name, query)[[int(hit.id) for hit in hits]]
        assert [dataset.distance.value(hit.score, query) for hit in hits] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_embedder_needs_nothing(name: DistanceName) -> None:
    dataset = Dataset("rows", embedder=DistanceEmbedder(Model(), name, LONGEST))
    dataset.add(DOCUMENTS)
    for number, query in enumerate(QUERIES):
        answer = dataset.search(f"query {number}", 10, strategy="vector", refuse=False, spelling=False)
        assert [hit.id for hit in answer] == nearest(name, query)


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_read_as_they_were_given(name: DistanceName, tmp_path: Path) -> None:
    embedder = DistanceEmbedder(Model(), name, LONGEST)
    with pointsman.open(tmp_path / "work", embedder=embedder) as workspace:
        dataset = workspace.dataset("rows")
        dataset.add(DOCUMENTS[:2], vectors=[ROWS[0], None])  # the other is embedded
        dataset.add(DOCUMENTS[2:], vectors=ROWS_32[2:])
        vectors = dataset.get_vectors([document.id for document in DOCUMENTS])
        assert np.array(vectors) == pytest.approx(ROWS, abs=1e-5)
        dataset.add(DOCUMENTS, vectors=vectors)
        assert [hit.id for hit in dataset.search_vector(QUERIES[0], 10)] == nearest(name, QUERIES[0])
    with (
        pointsman.open(tmp_path / "work", embedder=as_embedder(Model())) as workspace,
        pytest.raises(InputError, match="up to 12 of"),
    ):
        workspace.dataset("rows").add(DOCUMENTS[:1], vectors=ROWS_32[:1])


def test_zero_vector_is_a_point_like_any_other() -> None:
    dataset = Dataset("rows", embedder=DistanceEmbedder(Model(), "euclidean", LONGEST))
    dataset.add([Document("origin", "")], vectors=[[0.0] * 8])
    (hit,) = dataset.search_vector([0.0] * 8)
    assert dataset.distance.value(hit.score, [0.0] * 8) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mixed", [False, True])
def test_vector_that_is_too_long_is_refused_and_nothing_is_written(name: DistanceName, mixed: bool) -> None:
    dataset = Dataset("rows", embedder=DistanceEmbedder(Model(), name, 1.0))
    rows: list[Any] = [[0.6, 0.8 + 1e-7], [3.0, 4.0], *([None] if mixed else [])]
    with pytest.raises(InputError, match=r"position 1 .* length 5, .* up to 1; .* longest=8 or more"):
        dataset.add(DOCUMENTS[: len(rows)], vectors=rows, embed=False)
    with pytest.raises(InputError, match=r"length nan"):
        dataset.add(DOCUMENTS[:1], vectors=[[float("nan"), 0.0]])
    assert len(dataset) == 0
    dataset.add(DOCUMENTS[:1], vectors=[[0.6, 0.8 + 1e-7]])
    with pytest.raises(InputError, match="up to 1;"):
        dataset.add([Document("long", "text 0")])


@pytest.mark.parametrize("arguments", [("l2", 1.0), ("dot", 0.0), ("dot", float("inf")), ("dot", True), ("dot", "1")])
def test_invalid_distance_is_refused(arguments: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match=r"distance is one of|longest is the greatest length"):
        Distance(*arguments)


def test_cosine_is_the_default_and_changes_nothing() -> None:
    rows = np.array([[3, 4]], np.float32)
    assert Dataset("rows").distance == COSINE == Distance()
    assert COSINE.of_documents(rows) is rows
    assert COSINE.originals(rows) is rows
    assert COSINE.name_for("model") == "model"
    assert COSINE.value(0.5, [1.0]) == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_documents_stand_in_for_questions_as_questions(name: DistanceName) -> None:
    distance = Distance(name, LONGEST)
    stored_rows = distance.of_documents(ROWS)
    queries = distance.of_queries(distance.originals(stored_rows))
    assert (np.argmax(queries @ stored_rows.T, axis=1) == [int(nearest(name, row, 1)[0]) for row in ROWS]).all()
    assert np.linalg.norm(queries, axis=1) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_service_keeps_lengths(name: DistanceName, tmp_path: Path) -> None:
    with (
        pointsman.open(tmp_path / "work", embedder=DistanceEmbedder(Model(), name, LONGEST)) as workspace,
        serving(create_app(workspace)) as url,
        Client(url) as client,
    ):
        dataset = client.dataset("rows")
        dataset.add(DOCUMENTS, vectors=ROWS_32)
        for query in QUERIES[:5]:
            assert [hit.id for hit in dataset.search_vector(query, 10)] == nearest(name, query)
        assert np.array(dataset.get_vectors(["3"])[0]) == pytest.approx(ROWS[3], abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_postgresql_has_the_same_order(name: DistanceName, postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=t{uuid.uuid4().hex[:12]}"
    with pointsman.open(url, embedder=DistanceEmbedder(Model(), name, LONGEST)) as workspace:
        dataset = workspace.dataset("rows")
        dataset.add(DOCUMENTS, vectors=ROWS_32)
        for query in QUERIES[:5]:
            assert [hit.id for hit in dataset.search_vector(query, 10)] == nearest(name, query)


def in_langchain(name: DistanceName) -> Callable[[list[float]], list[str]]:
    pytest.importorskip("langchain_core")
    from pointsman.integrations.langchain import PointsmanVectorStore

    store = PointsmanVectorStore.from_texts(
        [document.text for document in DOCUMENTS],
        Model(),  # type: ignore[arg-type]  # anything that embeds
        ids=[document.id for document in DOCUMENTS],
        distance=name,
        longest=LONGEST,
    )
    return lambda query: [str(document.id) for document in store.similarity_search_by_vector(query, 10)]


def in_llama_index(name: DistanceName) -> Callable[[list[float]], list[str]]:
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from pointsman.integrations.llama_index import PointsmanVectorStore

    store = PointsmanVectorStore(distance=name, longest=LONGEST)
    store.add([TextNode(id_=str(number), text="text", embedding=row.tolist()) for number, row in enumerate(ROWS)])
    return lambda query: store.query(VectorStoreQuery(query, 10)).ids or []


def in_haystack(name: DistanceName) -> Callable[[list[float]], list[str]]:
    pytest.importorskip("haystack")
    from haystack import Document as TheirDocument

    from pointsman.integrations.haystack import PointsmanDocumentStore, PointsmanEmbeddingRetriever

    store = PointsmanDocumentStore.from_dict(PointsmanDocumentStore(distance=name, longest=LONGEST).to_dict())
    assert store.get_distance() == name
    store.write_documents(
        [TheirDocument(str(number), content="text", embedding=row.tolist()) for number, row in enumerate(ROWS)]
    )
    store.update_by_filter({"field": "id", "operator": "==", "value": "3"}, {"seen": True})
    (document,) = store.filter_documents({"field": "meta.seen", "operator": "==", "value": True})
    assert document.embedding == pytest.approx(ROWS[3], abs=1e-5)
    retriever = PointsmanEmbeddingRetriever(store)
    return lambda query: [document.id for document in retriever.run(query)["documents"]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("adapter", [in_langchain, in_llama_index, in_haystack])
def test_adapters_take_a_distance(adapter: Callable[..., Any], name: DistanceName) -> None:
    search = adapter(name)
    for query in QUERIES:
        assert search(query.tolist()) == nearest(name, query)


def test_mmr_compares_directions() -> None:
    pytest.importorskip("langchain_core")
    from pointsman.integrations.langchain import PointsmanVectorStore

    store = PointsmanVectorStore(distance="dot", longest=LONGEST, embedding=Model())  # type: ignore[arg-type]
    store.add_texts([document.text for document in DOCUMENTS], ids=[document.id for document in DOCUMENTS])
    query = QUERIES[0].tolist()
    documents = store.max_marginal_relevance_search_by_vector(query, 5, fetch_k=40, lambda_mult=0.0)
    assert documents[0].id == nearest("dot", QUERIES[0])[0]
    assert len({document.id for document in documents}) == 5
