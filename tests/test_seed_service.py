"""The examples of the service's founding document: BM25 index, strategies, service, configuration, HTTP interface.

Only imports differ: everything comes from ``pointsman``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import pointsman
from pointsman import (
    BaseReranker,
    BM25IndexManager,
    ContextualCompressionStrategy,
    Dataset,
    DecompositionStrategy,
    Document,
    EnhancedRetrievalService,
    HyDEStrategy,
    MultiQueryStrategy,
    Query2DocStrategy,
    ScriptedLLM,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app

CONFIG: dict[str, Any] = {
    "enable_reranker_by_default": True,
    "bm25_k1": 1.2,
    "bm25_b": 0.75,
    "bm25_auto_sync": True,
    "default_retrieval_strategy": "auto",
    "enable_strategy_auto_selection": True,
    "hyde_llm_provider": "dashscope",
    "hyde_model": "qwen-plus",
    "hyde_temperature": 0.0,
    "query2doc_num_expansions": 3,
    "query2doc_llm_provider": "dashscope",
    "decomposition_llm_provider": "dashscope",
    "decomposition_max_subqueries": 5,
    "multi_query_variants": ["original", "synonym", "paraphrase", "correction"],
    "compression_llm_provider": "dashscope",
    "compression_max_length": 1000,
    "compression_rerank": True,
}
DOCUMENTS = [
    Document("filter", "环保设备包括除尘器和污水处理设备。", {"category": "环保", "year": 2023}),
    Document("fan", "风机是环保设备的一种，用于通风。", {"category": "环保", "year": 2022}),
    Document("tea", "绿茶在八十度的水中冲泡。", {"category": "茶", "year": 2023}),
]


@pytest.fixture(autouse=True)
def without_settings_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def vector_store() -> Iterator[Dataset]:
    with Dataset("equipment", embedder=HashingEmbedder()) as dataset:
        dataset.add(DOCUMENTS)
        yield dataset


def test_the_index_manager_builds_synchronises_and_searches(vector_store: Dataset, tmp_path: Path) -> None:
    async def lines_of_the_document() -> None:
        manager = BM25IndexManager(str(tmp_path / "bm25_index"), vector_store)
        await manager.build_from_vector_store()
        assert [document.id for document in await manager.search("风机", 5)] == ["fan"]
        vector_store.add(Document("pump", "水泵抽取污水。"))
        await manager.sync_incremental()
        assert [document.id for document in await manager.search("水泵", 1)] == ["pump"]

    asyncio.run(lines_of_the_document())
    manager = BM25IndexManager(str(tmp_path / "other_index"), vector_store)
    assert asyncio.run(manager.build_from_vector_store()) > 0
    assert [document.id for document in asyncio.run(manager.search("水泵", 1))] == ["pump"]


ANSWERS = "环保设备包括除尘器。\n污水处理设备有哪些？\n风机用于通风吗？"


@pytest.mark.parametrize(
    "strategy",
    [
        HyDEStrategy,
        Query2DocStrategy,
        DecompositionStrategy,
        MultiQueryStrategy,
        ContextualCompressionStrategy,
    ],
)
def test_every_strategy_is_searched_with_a_query_and_a_number(vector_store: Dataset, strategy: type) -> None:
    instance = strategy(vector_store, llm=ScriptedLLM([ANSWERS] * 10))
    results = asyncio.run(instance.search("什么是环保设备？", k=2))
    assert 1 <= len(results) <= 2
    assert {document.id for document in results} <= {"filter", "fan", "tea"}


class Available(BaseReranker):
    calls = 0

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, documents: list[Document], top_n: int = 4) -> list[Document]:  # type: ignore[override]
        type(self).calls += 1
        documents_with_score = [
            Document(document.id, document.text, {**document.metadata, "score": 1 / rank})
            for rank, document in enumerate(reversed(documents), 1)
        ]
        return documents_with_score[:top_n]


def test_the_service_reranks_by_default_and_not_where_it_is_told_not_to(vector_store: Dataset) -> None:
    Available.calls = 0
    service = EnhancedRetrievalService(CONFIG, vector_store, HashingEmbedder(), Available())

    async def search_twice() -> None:
        assert await service.search("环保设备", k=5, strategy="hybrid")
        assert Available.calls == 1
        assert await service.search("环保设备", k=5, strategy="hybrid", use_rerank=False)
        assert Available.calls == 1

    asyncio.run(search_twice())


def test_every_setting_of_the_document_is_taken_with_its_name_and_value() -> None:
    settings = pointsman.Settings.load(None, {}, **CONFIG)
    for name, value in CONFIG.items():
        setting = getattr(settings, name)
        assert (list(setting) if isinstance(setting, tuple) else setting) == value, name
    assert settings == pointsman.Settings.load(None, {}), "they are the defaults"
    assert settings.bm25_index_path == "./data/bm25_index"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("equipment").add(DOCUMENTS)
        with TestClient(create_app(workspace), base_url="http://127.0.0.1") as client:
            yield client


def test_the_search_endpoint_has_the_names_of_the_document(client: TestClient) -> None:
    request = {
        "query": "什么是环保设备?",
        "k": 10,
        "strategy": "auto",
        "use_rerank": True,
        "filters": {"category": "环保", "year": 2023},
    }
    response = client.post("/api/retrieval/search", json=request)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert {"results", "strategy_used", "reranking_applied", "performance"} <= answer.keys()
    assert {"latency_ms", "strategy_confidence"} <= answer["performance"].keys()
    assert all(result["metadata"]["year"] == 2023 for result in answer["results"])


def test_the_recommendation_endpoint_has_the_names_of_the_document(client: TestClient) -> None:
    response = client.get("/api/retrieval/recommend_strategy", params={"query": "什么是环保设备"})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert {"recommended_strategy", "confidence", "reason", "alternatives"} <= answer.keys()
    assert all({"strategy", "confidence"} <= alternative.keys() for alternative in answer["alternatives"])
    assert answer["recommended_strategy"] != "hyde", "without a language model it cannot be used"
