"""Learned sparse vectors that documents bring: part of them in every store, with an index derived from them."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import Client, Dataset, Document, InputError, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.app import create_app
from pointsman.values.settings import Settings
from pointsman.workspace.dataset import SPARSE_FILE
from serving import serving

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

CHANCE = random.Random(7)
QUERY = {token: float(token % 5 + 1) for token in range(0, 30, 3)}


def vector() -> dict[int, float]:
    return {token: CHANCE.randint(1, 40) / 8 for token in CHANCE.sample(range(40), 8)}


def document(number: int, weights: Mapping[int, float] | None) -> Document:
    form = None if weights is None else {"indices": list(weights), "values": list(weights.values())}
    return Document(str(number), f"text {number}", {"even": number % 2 == 0, **({"_sparse": form} if form else {})})


VECTORS = {number: vector() for number in range(200)}
DOCUMENTS = [document(number, weights) for number, weights in VECTORS.items()]


def expected(vectors: Mapping[int, Mapping[int, float]], k: int = 10) -> list[float]:
    """The best inner products; exact, as all weights are few bits."""
    products = [sum(QUERY.get(token, 0) * weight for token, weight in vector.items()) for vector in vectors.values()]
    return sorted(filter(None, products), reverse=True)[:k]


def scores(dataset: Any, k: int = 10, **options: Any) -> list[float]:
    return [hit.score for hit in dataset.search_sparse(QUERY, k, **options)]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("texts").add(DOCUMENTS)
        yield workspace


def test_scores_are_inner_products(workspace: Workspace) -> None:
    dataset = workspace.dataset("texts")
    assert scores(dataset) == expected(VECTORS)
    even_vectors = {number: vector for number, vector in VECTORS.items() if number % 2 == 0}
    assert scores(dataset, 90, filters="even = true") == expected(even_vectors, 90)
    assert [hit.score for hit in asyncio.run(dataset.asearch_sparse(QUERY, 3))] == expected(VECTORS, 3)
    assert dataset.search_sparse({999: 1.0}) == []
    assert not any("_sparse" in key for key in dataset.metadata_keys())


def test_vectors_live_and_die_with_their_documents(workspace: Workspace) -> None:
    dataset = workspace.dataset("texts")
    assert len(scores(dataset)) == 10
    vectors = dict(VECTORS)
    for number in range(0, 100, 2):
        del vectors[number]
    dataset.delete([str(number) for number in range(0, 100, 2)])
    assert scores(dataset) == expected(vectors)
    vectors[101], vectors[300] = vector(), vector()
    dataset.add([document(101, vectors[101]), document(300, vectors[300]), document(102, None)])
    del vectors[102]
    assert scores(dataset) == expected(vectors)
    dataset.set_metadata({"103": {"_sparse": None}})
    del vectors[103]
    assert scores(dataset) == expected(vectors)
    reopened = Dataset("copy", embedder=HashingEmbedder())
    reopened.add(dataset.store.documents())
    assert scores(reopened) == expected(vectors)


@pytest.mark.parametrize("damage", ["gone", "damaged", "of a later state", "unwritable"])
def test_file_of_the_index_is_derived(workspace: Workspace, tmp_path: Path, damage: str) -> None:
    dataset = workspace.dataset("texts")
    path = tmp_path / "work" / "datasets" / "texts" / SPARSE_FILE
    assert scores(dataset) == expected(VECTORS)
    assert path.is_file()
    workspace.close()
    if damage == "gone":
        path.unlink()
    elif damage == "damaged":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    elif damage == "unwritable":
        path.unlink()
        path.mkdir()
    else:
        shutil.copytree(tmp_path / "work", tmp_path / "backup")
        with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as later:
            later.dataset("texts").delete(["1", "2"])
            assert len(scores(later.dataset("texts"))) == 10
        shutil.copy(path, tmp_path / "backup" / "datasets" / "texts" / SPARSE_FILE)
    with pointsman.open(
        tmp_path / ("backup" if damage == "of a later state" else "work"), embedder=HashingEmbedder()
    ) as again:
        assert scores(again.dataset("texts")) == expected(VECTORS)


def test_index_continues_from_its_file(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scores(workspace.dataset("texts")) == expected(VECTORS)
    workspace.close()
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as again:
        dataset = again.dataset("texts")
        monkeypatch.setattr("pointsman.retrieval.strategies.sparse_vectors.SparseIndex._encode", None)  # would raise
        assert scores(dataset) == expected(VECTORS)


def test_dataset_made_again_has_its_own(workspace: Workspace) -> None:
    dataset = workspace.dataset("texts")
    assert scores(dataset) == expected(VECTORS)
    workspace.drop("texts")
    fresh = workspace.dataset("texts")
    fresh.add([document(1, VECTORS[1])])
    assert scores(fresh) == expected({1: VECTORS[1]})


def test_hidden_documents_are_not_found(workspace: Workspace, tmp_path: Path) -> None:
    dataset = workspace.dataset("texts")
    dataset.set_metadata({str(number): {"_access": {"allow": ["user:anna"]}} for number in range(150)})
    workspace.switch_access(on=True)
    with pytest.raises(InputError):
        dataset.search_sparse(QUERY)
    visible_vectors = {number: vector for number, vector in VECTORS.items() if number < 150}
    assert scores(dataset.in_view(["user:anna"])) == expected(visible_vectors)
    assert scores(dataset.in_view(["user:eve"])) == []


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ([1, 2], "it has indices and values"),
        ({"indices": [1]}, "it has indices and values"),
        ({"indices": [1], "values": []}, "lists of one length"),
        ({"indices": [-1], "values": [1.0]}, "indices are whole numbers"),
        ({"indices": [1.5], "values": [1.0]}, "indices are whole numbers"),
        ({"indices": [1], "values": [-1.0]}, "values are finite numbers"),
        ({"indices": [1], "values": [1e300]}, "values are finite numbers"),
        ({"indices": [1], "values": [True]}, "values are finite numbers"),
        ({"indices": [1, 1], "values": [1.0, 2.0]}, "an index is given twice"),
    ],
)
def test_invalid_vectors_are_refused(workspace: Workspace, form: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        workspace.dataset("texts").add([Document("bad", "", {"_sparse": form})])
    assert workspace.dataset("texts").get("bad") is None


@pytest.mark.parametrize("query", [{-1: 1.0}, {1: float("nan")}, {1: -1.0}, [1.0]])
def test_invalid_queries_are_refused(workspace: Workspace, query: Any) -> None:
    with pytest.raises(InputError):
        workspace.dataset("texts").search_sparse(query)


def test_strategy_takes_what_documents_bring(workspace: Workspace) -> None:
    from pointsman.retrieval.strategies import SparseStrategy

    class Model:
        name = "model"

        def encode_queries(self, texts: Any) -> Any:
            return [QUERY for _ in texts]

        def encode_documents(self, texts: Any) -> Any:
            assert texts == ["text 500"]
            return [QUERY for _ in texts]

    dataset = workspace.dataset("texts")
    dataset.add([document(500, None)])
    hits = SparseStrategy(dataset, model=Model()).searchables([dataset])[1].retrieve("anything", 1)
    assert hits[0].id == "500"


def test_service_searches_sparse_vectors(workspace: Workspace) -> None:
    with serving(create_app(workspace, settings=Settings())) as url, Client(url) as client:
        dataset = client.dataset("sent")
        dataset.add(DOCUMENTS)
        assert scores(dataset) == expected(VECTORS)
        even_vectors = {number: vector for number, vector in VECTORS.items() if number % 2 == 0}
        assert scores(dataset, filters="even = true") == expected(even_vectors)
        for query in ({-1: 1.0}, {1: -1.0}):
            with pytest.raises(InputError):
                dataset.search_sparse(query)


def test_postgresql_keeps_and_searches_them(postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=t{uuid.uuid4().hex[:12]}"
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("texts")
        dataset.add(DOCUMENTS)
        assert scores(dataset) == expected(VECTORS)
        dataset.delete([str(number) for number in range(100)])
        vectors = {number: vector for number, vector in VECTORS.items() if number >= 100}
        assert scores(dataset) == expected(vectors)
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        assert scores(workspace.dataset("texts")) == expected(vectors)


def test_langchain_searches_sparse_vectors(workspace: Workspace) -> None:
    pytest.importorskip("langchain_core")
    from pointsman.integrations.langchain import PointsmanVectorStore

    store = PointsmanVectorStore(workspace.dataset("texts"))
    pairs = store.similarity_search_with_score_by_sparse_vector(QUERY, 10)
    assert [score for _, score in pairs] == expected(VECTORS)


def test_llama_index_searches_sparse_vectors(workspace: Workspace) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import MetadataMode, TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    from pointsman.integrations.llama_index import PointsmanVectorStore

    store = PointsmanVectorStore()
    store.add([TextNode(id_=item.id, text=item.text, metadata=dict(item.metadata)) for item in DOCUMENTS])
    query = VectorStoreQuery(similarity_top_k=10, mode=VectorStoreQueryMode.SPARSE)
    answer = store.query(query, sparse_vector=QUERY)
    assert answer.similarities == expected(VECTORS)
    assert answer.nodes
    assert "_sparse" not in answer.nodes[0].get_content(MetadataMode.LLM)
    with pytest.raises(InputError, match="goes with the mode 'sparse'"):
        store.query(VectorStoreQuery(similarity_top_k=10), sparse_vector=QUERY)


WRITER = """
import sys
from test_sparse_vectors import DOCUMENTS, QUERY, HashingEmbedder, pointsman
with pointsman.open(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    dataset = workspace.dataset("texts")
    print("begun", flush=True)
    while True:
        for start in range(0, 200, 10):
            dataset.add(DOCUMENTS[start : start + 10], embed=False)
            dataset.search_sparse(QUERY)
        dataset.delete([document.id for document in DOCUMENTS[::2]])
"""


def test_killed_writer_leaves_documents_with_their_vectors(tmp_path: Path) -> None:
    for seed in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "work")],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "begun\n"
            time.sleep(0.1 + 0.3 * random.Random(seed).random())
            writer.kill()
        with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            dataset = workspace.dataset("texts")
            assert scores(dataset, 200) == expected({int(id_): VECTORS[int(id_)] for id_ in dataset.ids()}, 200)
            assert dataset.ids()


def test_haystack_searches_sparse_vectors(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from haystack import Document as TheirDocument
    from haystack.dataclasses import SparseEmbedding

    from pointsman.integrations.haystack import PointsmanDocumentStore, PointsmanSparseEmbeddingRetriever

    store = PointsmanDocumentStore(str(tmp_path / "haystack"))
    documents = [
        TheirDocument(
            str(number), content="text", sparse_embedding=SparseEmbedding(list(vector), list(vector.values()))
        )
        for number, vector in VECTORS.items()
    ]
    store.write_documents(documents)
    assert sorted(store.filter_documents(), key=lambda document: int(document.id)) == documents
    retriever = PointsmanSparseEmbeddingRetriever(store, top_k=10)
    query = SparseEmbedding(list(QUERY), list(QUERY.values()))
    for answer in (
        retriever.run(query),
        asyncio.run(retriever.run_async(query)),
        PointsmanSparseEmbeddingRetriever.from_dict(retriever.to_dict()).run(query),
    ):
        assert [document.score for document in answer["documents"]] == expected(VECTORS)
        assert answer["documents"][0].sparse_embedding is not None
        assert "_sparse" not in answer["documents"][0].meta
    store.close()
