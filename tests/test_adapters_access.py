"""Adapters search by a vector only for someone, where access is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("haystack")
pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")

from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from haystack_integrations.components.retrievers.pointsman import PointsmanEmbeddingRetriever, PointsmanHybridRetriever
from haystack_integrations.document_stores.pointsman import PointsmanDocumentStore
from pointsman import Dataset, Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations import langchain, llama_index
from pointsman.tools.errors import InputError


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document(f"rail-{n}", f"signal number {n} at the yard") for n in range(5)], access=["group:rail"])
        dataset.add([Document(f"pay-{n}", f"zanzibarko salary number {n}") for n in range(5)], access=["group:money"])
        dataset.add([Document("none", "salary that nobody may see")])
        workspace.switch_access(on=True)
        yield workspace


def test_adapters_search_by_a_vector_only_for_someone(workspace: Workspace) -> None:
    def searches(dataset: Dataset) -> Iterator[Callable[[], set[str]]]:
        store, index = langchain.PointsmanVectorStore(dataset), llama_index.PointsmanVectorStore(dataset)
        yield lambda: {str(document.id) for document in store.similarity_search_by_vector(vector, 50)}
        yield lambda: {str(document.id) for document in store.max_marginal_relevance_search_by_vector(vector, 50, 50)}
        yield lambda: {str(document.id) for document in store.max_marginal_relevance_search("salary", 50, 50)}
        for mode in ("default", "sparse", "hybrid", "mmr"):
            query = VectorStoreQuery(vector, 50, query_str="salary", mode=VectorStoreQueryMode(mode))
            yield partial(lambda query: set(index.query(query).ids or []), query)

    dataset = workspace.dataset("notes")
    vector = dataset.embedder.embed_queries(["zanzibarko salary number"])[0].tolist()
    payments = {f"pay-{n}" for n in range(5)}
    for search in searches(dataset):
        with pytest.raises(InputError, match="needs to know who asks"):
            search()
    for search in searches(dataset.in_view(["group:money"])):
        assert search() == payments


def test_haystack_searches_by_a_vector_only_where_access_is_off(workspace: Workspace) -> None:
    workspace.close()
    store = PointsmanDocumentStore(workspace.path, dataset="notes", embedder="hashing")
    for retriever, question in (
        (PointsmanEmbeddingRetriever(store), {"query_embedding": [1.0] * 512}),
        (PointsmanHybridRetriever(store), {"query": "salary", "query_embedding": [1.0] * 512}),
    ):
        with pytest.raises(InputError, match="needs to know who asks"):
            retriever.run(**question)
    store.close()


def test_a_haystack_store_is_opened_by_a_location_not_by_a_dataset(workspace: Workspace) -> None:
    with pytest.raises(TypeError, match="not a Dataset"):
        PointsmanDocumentStore(workspace.dataset("notes"))  # type: ignore[arg-type]
