"""X1: LangChain's own suites over the adapter, what they leave out, and LangChain's parts in Pointsman."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core._api import LangChainBetaWarning
from langchain_core.documents import Document as TheirDocument
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.integration_tests.indexer import AsyncDocumentIndexTestSuite, DocumentIndexerTestSuite

import pointsman
from clauses_kit import BEFORE, CLAUSES, QUESTION, REASON
from pointsman import Dataset, Document, LLMSelector, SimpleHybridRetriever
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.framework_sources import with_notes
from pointsman.integrations.langchain import (
    LangChainEmbedder,
    LangChainLLM,
    LangChainRetriever,
    PointsmanDocumentIndex,
    PointsmanEmbeddings,
    PointsmanReranker,
    PointsmanRetriever,
    PointsmanVectorStore,
)
from pointsman.llm.base_llm import ask
from pointsman.service.server import create_app
from pointsman.tools.errors import FilterError, InputError, ModelError, PointsmanError
from pointsman.values.settings import Settings
from serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
TEXTS = ["a red signal stops trains", "a green signal lets trains pass", "bread is baked in an oven"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the only one that LangChain runs under


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    with Dataset("rails", path=tmp_path / "rails", embedder=HashingEmbedder(512)) as dataset:
        dataset.add([{"id": str(n), "text": text, "metadata": {"n": n}} for n, text in enumerate(TEXTS)])
        yield dataset


# ── LangChain's own suites ───────────────────────────────────────────────────────────────────────────────────────────


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[PointsmanVectorStore]:
        store = PointsmanVectorStore(embedding=self.get_embeddings())
        yield store
        store.dataset.close()


class TestHybridVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[PointsmanVectorStore]:
        store = PointsmanVectorStore(embedding=self.get_embeddings(), strategy="hybrid")
        yield store
        store.dataset.close()


class TestRetriever(RetrieversIntegrationTests):
    _dataset: Dataset

    @pytest.fixture(autouse=True)
    def source(self, dataset: Dataset) -> None:
        type(self)._dataset = dataset

    @property
    def retriever_constructor(self) -> type[PointsmanRetriever]:
        return PointsmanRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"source": self._dataset}

    @property
    def retriever_query_example(self) -> str:
        return "signal trains oven"


class TestEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[PointsmanEmbeddings]:
        return PointsmanEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"embedder": HashingEmbedder()}


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
class TestDocumentIndex(DocumentIndexerTestSuite):
    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[PointsmanDocumentIndex]:
        with Dataset("index", path=tmp_path / "index", embedder=HashingEmbedder()) as dataset:
            yield PointsmanDocumentIndex(source=dataset)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
class TestAsyncDocumentIndex(AsyncDocumentIndexTestSuite):
    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[PointsmanDocumentIndex]:
        with Dataset("index", path=tmp_path / "index", embedder=HashingEmbedder()) as dataset:
            yield PointsmanDocumentIndex(source=dataset)


def test_langchain_calls_its_document_index_beta() -> None:
    """So the two suites above ignore that warning, and no other."""
    assert issubclass(LangChainBetaWarning, DeprecationWarning)


# ── ours in theirs ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retriever_over_anything_that_searches(dataset: Dataset, tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("bread").add([{"id": "b", "text": TEXTS[2], "metadata": {"year": 2020}}])
        sources = [workspace, workspace.dataset("bread"), workspace.dataset("bread").retriever("bm25")]
        for source in sources:
            (document,) = PointsmanRetriever(source=source).invoke("baked bread", k=1)
            assert (document.id, document.page_content) == ("b", TEXTS[2])
            assert document.metadata["year"] == 2020
            assert isinstance(document.metadata["score"], float)
            assert document.metadata["dataset"] in {"bread", None}
    with pytest.raises(ValueError, match="a source is"):  # pydantic makes one of ours its own
        PointsmanRetriever(source=7)
    with pytest.raises(ValueError, match="from 1 up"):
        PointsmanRetriever(source=dataset, k=0)
    options: Any = {"min_relevance": 0.5}
    with pytest.raises(ValueError, match="min_relevance\n  Extra inputs are not permitted"):
        PointsmanRetriever(source=dataset, **options)
    options = {"top_k": 3}
    with pytest.raises(ValueError, match="top_k\n  Extra inputs are not permitted"):
        PointsmanReranker(**options)


def their_documents() -> list[TheirDocument]:
    return [TheirDocument(id=str(n), page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]


def test_from_documents_takes_a_dataset_and_no_embedding(tmp_path: Path) -> None:
    with Dataset("rails", path=tmp_path / "rails", embedder=HashingEmbedder(512)) as dataset:
        store = PointsmanVectorStore.from_documents(their_documents(), dataset=dataset)
        assert store.dataset is dataset
        assert dataset.ids() == ["0", "1", "2"]
        PointsmanVectorStore.from_documents(their_documents(), dataset=dataset, ids=["a", "b", "c"])
        assert dataset.ids() == ["0", "1", "2", "a", "b", "c"]


async def test_from_documents_also_runs_async() -> None:
    store = await PointsmanVectorStore.afrom_documents(their_documents(), PointsmanEmbeddings(HashingEmbedder(512)))
    assert [document.id for document in await store.asimilarity_search("bread oven", k=1)] == ["2"]


def test_a_store_opens_the_workspace_in_a_folder_and_at_a_url(tmp_path: Path) -> None:
    embedding = PointsmanEmbeddings(HashingEmbedder(512))
    store = PointsmanVectorStore.from_documents(their_documents(), embedding, path=tmp_path / "home", dataset="rails")
    store.close()
    second_store = PointsmanVectorStore("rails", path=tmp_path / "home", embedding=embedding)
    assert [document.id for document in second_store.similarity_search("bread oven", k=1)] == ["2"]
    second_store.close()
    with (
        pointsman.open(tmp_path / "home", embedder=HashingEmbedder(512)) as workspace,
        serving(create_app(workspace, settings=Settings())) as url,
    ):
        service = PointsmanVectorStore("rails", url=url)
        assert [document.id for document in service.similarity_search("bread oven", k=1)] == ["2"]
        assert service.add_documents([TheirDocument(id="3", page_content="a lamp")]) == ["3"]
        with pytest.raises(InputError, match="embeds by itself"):
            PointsmanVectorStore("rails", url=url, embedding=embedding)
        service.close()
    with pytest.raises(InputError, match="either path, a folder, or url"):
        PointsmanVectorStore("rails", path=tmp_path, url="postgresql://db/rails")
    with pytest.raises(InputError, match="give the path or url"):
        PointsmanVectorStore("rails")
    with pytest.raises(InputError, match="is given by name"), Dataset("other") as other_dataset:
        PointsmanVectorStore(other_dataset, path=tmp_path)


@pytest.mark.parametrize("strategy", ["vector", "hybrid", "auto"])
async def test_a_threshold_applies_to_scores_from_0_to_1_of_every_strategy(strategy: str) -> None:
    store = PointsmanVectorStore(strategy=strategy)  # the default embedder, whose hits have a relevance
    store.add_documents(their_documents())
    pairs = store.similarity_search_with_relevance_scores("what stops trains?", k=3)
    assert pairs[0][0].id == "0"
    assert all(0 <= score <= 1 for _, score in pairs)
    assert await store.asimilarity_search_with_relevance_scores("what stops trains?", k=3) == pairs
    threshold = pairs[0][1]
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"k": 3, "score_threshold": threshold}
    )
    assert [document.id for document in retriever.invoke("what stops trains?")] == ["0"]


def test_without_a_relevance_a_threshold_is_refused_with_the_remedy(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PointsmanVectorStore(dataset, strategy="hybrid")
    hits_without_relevance = [replace(hit, relevance=None) for hit in dataset.search("signal", refuse=False).hits]
    monkeypatch.setattr(store, "_search", lambda *_: with_notes(hits_without_relevance))
    with pytest.raises(InputError, match="calibrate the dataset"):
        store.similarity_search_with_relevance_scores("signal", k=2)


async def test_pages_of_a_vector_store_are_the_parts_of_one_list(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    complete = [document.id for document in store.similarity_search("signal", k=3)]
    for offset in range(4):
        page = [document.id for document in store.similarity_search("signal", k=2, offset=offset)]
        assert page == complete[offset : offset + 2]
        assert [document.id for document in await store.asimilarity_search("signal", k=2, offset=offset)] == page
    with pytest.raises(InputError, match="offset is a whole number"):
        store.similarity_search("signal", offset=-1)


def test_a_search_by_vector_has_scores(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    vector = dataset.embedder.embed_queries(["signal trains"])[0].tolist()
    pairs = store.similarity_search_with_score_by_vector(vector, 2)
    expected = [(hit.id, float(hit.score)) for hit in dataset.search_vector(vector, 2)]
    assert [(document.id, score) for document, score in pairs] == expected
    assert [document.id for document in store.similarity_search_by_vector(vector, 2)] == [id_ for id_, _ in expected]


async def test_a_search_by_vector_takes_an_offset_and_a_score_threshold(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    vector = dataset.embedder.embed_queries(["signal trains"])[0].tolist()
    complete = store.similarity_search_with_score_by_vector(vector, 3)
    scores = [score for _, score in complete]
    assert len(set(scores)) == 3
    for offset in range(4):
        page = store.similarity_search_with_score_by_vector(vector, 2, offset=offset)
        assert page == complete[offset : offset + 2]
        documents = await store.asimilarity_search_by_vector(vector, 2, offset=offset)
        assert documents == [document for document, _ in page]
    assert store.similarity_search_with_score_by_vector(vector, 3, score_threshold=scores[1]) == complete[:2]
    assert store.similarity_search_with_score_by_vector(vector, 2, offset=1, score_threshold=scores[1]) == complete[1:2]
    for options in ({"offset": -1}, {"score_threshold": "0.5"}, {"score_threshold": float("nan")}, {"limit": 1}):
        with pytest.raises(InputError, match=next(iter(options))):
            store.similarity_search_by_vector(vector, **options)


@pytest.mark.parametrize("strategy", ["vector", "bm25", "hybrid"])
async def test_a_score_threshold_is_in_the_scores_of_the_strategy(dataset: Dataset, strategy: str) -> None:
    store = PointsmanVectorStore(dataset, strategy=strategy)
    complete = store.similarity_search_with_score("signal trains", 3)
    threshold = complete[0][1]
    assert complete[-1][1] < threshold
    best = store.similarity_search_with_score("signal trains", 3, score_threshold=threshold)
    assert best == [pair for pair in complete if pair[1] >= threshold]
    assert await store.asimilarity_search_with_score("signal trains", 3, score_threshold=threshold) == best
    retriever = store.as_retriever(search_kwargs={"k": 3, "score_threshold": threshold})
    assert retriever.invoke("signal trains") == [document for document, _ in best]
    assert store.similarity_search("signal trains", 3, score_threshold=threshold + 1) == []


def test_mmr_by_vector_has_scores_and_a_threshold(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    vector = dataset.embedder.embed_queries([TEXTS[0]])[0].tolist()
    cosines = {document.id: score for document, score in store.similarity_search_with_score_by_vector(vector, 3)}
    pairs = store.max_marginal_relevance_search_with_score_by_vector(vector, 3, lambda_mult=0.0)
    assert [document.id for document, _ in pairs] == ["0", "2", "1"]
    assert {document.id: score for document, score in pairs} == cosines
    assert store.max_marginal_relevance_search_by_vector(vector, 3, lambda_mult=0.0) == [
        document for document, _ in pairs
    ]
    second_best = sorted(cosines.values())[1]
    options: Any = {"lambda_mult": 0.0, "score_threshold": second_best}
    above = store.max_marginal_relevance_search_with_score_by_vector(vector, 3, **options)
    assert [document.id for document, _ in above] == ["0", "1"]
    by_text = store.max_marginal_relevance_search(TEXTS[0], 3, **options)
    assert [document.id for document in by_text] == ["0", "1"]


def test_documents_have_the_relevance_of_their_hits(tmp_path: Path) -> None:
    with Dataset("rails", path=tmp_path / "rails", indexing_technique="keyword") as dataset:
        dataset.add([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        (hit,) = dataset.search("baked bread", 1)
        (document,) = PointsmanRetriever(source=dataset, k=1).invoke("baked bread")
        assert document.metadata["relevance"] == hit.relevance
        assert hit.relevance is not None


async def test_options_of_a_retriever_go_to_the_search(dataset: Dataset) -> None:
    retriever = PointsmanRetriever(source=dataset, options={"strategy": "bm25", "filters": {"n": 1}, "refuse": False})
    assert [document.id for document in retriever.invoke("signal")] == ["1"]
    assert [document.id for document in await retriever.ainvoke("signal", filters="n = 0")] == ["0"]
    plain = PointsmanRetriever(source=dataset.retriever("bm25"))
    assert [document.id for document in await plain.ainvoke("signal", filters="n = 0")] == ["0"]
    with pytest.raises(InputError, match="does not accept strategy"):
        plain.invoke("signal", strategy="bm25")
    with pytest.raises(InputError, match="does not accept strategy"):
        await plain.ainvoke("signal", strategy="bm25")


async def test_filters_scores_thresholds_and_mmr_of_the_vector_store(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    filters: list[Any] = [{"n": {"$gte": 1}}, "n >= 1", pointsman.parse_filter("n >= 1")]
    for condition in filters:
        assert {document.id for document in store.similarity_search("signal", filter=condition)} == {"1", "2"}
        assert {document.id for document in await store.asimilarity_search("signal", filter=condition)} == {"1", "2"}
    pairs = store.similarity_search_with_score(TEXTS[0], k=3)
    assert pairs[0][1] == pytest.approx(1, abs=1e-5)
    assert [score for _, score in pairs] == sorted((score for _, score in pairs), reverse=True)
    assert await store.asimilarity_search_with_score(TEXTS[0], k=3) == pairs
    pairs_above = store.similarity_search_with_relevance_scores(TEXTS[0], k=3, score_threshold=0.9)
    assert [document.id for document, _ in pairs_above] == ["0"]
    by_vector = store.similarity_search_by_vector(HashingEmbedder(512).embed(TEXTS[1]).tolist(), k=1)
    assert [document.id for document in by_vector] == ["1"]
    assert [document.id for document in store.max_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=0.0)] == [
        "0",
        "2",
    ]
    assert [document.id for document in store.max_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=1.0)] == [
        "0",
        "1",
    ]
    assert store.max_marginal_relevance_search(TEXTS[0], k=2, filter="n > 9") == []


def test_mmr_is_that_of_langchains_own_store() -> None:
    embeddings = DeterministicFakeEmbedding(size=8)
    texts = [f"text {n}" for n in range(30)]
    langchain_store = InMemoryVectorStore.from_texts(texts, embeddings)
    own_store = PointsmanVectorStore.from_texts(texts, embeddings)
    for weight in (0.0, 0.3, 0.5, 0.8, 1.0):
        texts_by_store = [
            [document.page_content for document in store.max_marginal_relevance_search("query", 6, 20, weight)]
            for store in (langchain_store, own_store)
        ]
        assert texts_by_store[0] == texts_by_store[1]


def test_a_vector_store_deletes_by_filter_and_everything(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    store.delete(filter="n < 1")
    assert dataset.ids() == ["1", "2"]
    store.delete()
    assert len(dataset) == 0


def test_a_vector_store_lets_others_write(dataset: Dataset, tmp_path: Path) -> None:
    """A plain add keeps the writer's lock; the adapter does not, so that a second process can write."""
    dataset.release()
    store = PointsmanVectorStore(dataset)
    store.add_texts(["one more"])
    code = (
        "import sys; from pointsman import Dataset; from pointsman.embedders.scripted_embedders import HashingEmbedder;"
        "Dataset('rails', path=sys.argv[1], embedder=HashingEmbedder(512)).add([{'id': 'other', 'text': 'text'}])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "rails")], check=True)
    assert [document.id for document in store.get_by_ids(["other"])] == ["other"]


def test_what_a_vector_store_cannot_do_raises(dataset: Dataset) -> None:
    with pytest.raises(InputError, match="give either a dataset"):
        PointsmanVectorStore(dataset, embedding=PointsmanEmbeddings(HashingEmbedder()))
    store = PointsmanVectorStore(dataset)
    with pytest.raises(InputError, match="1 ids for 2"):
        store.add_documents([TheirDocument(page_content="a"), TheirDocument(page_content="b")], ids=["1"])
    with pytest.raises(InputError, match="not namespace"):
        store.add_documents([], namespace="x")
    with pytest.raises(FilterError):
        store.similarity_search("signal", filter={"n": {"$like": 1}})


async def test_options_without_effect_raise(dataset: Dataset) -> None:
    """LangChain passes on whatever it is given; a filter under a wrong name once deleted everything."""
    store, vector = PointsmanVectorStore(dataset), HashingEmbedder(512).embed("signal").tolist()
    documents = PointsmanDocumentIndex(source=dataset)
    calls: list[Callable[[], Any]] = [
        lambda: store.delete(filters="n < 1"),
        lambda: store.similarity_search("signal", filters="n < 1"),
        lambda: store.similarity_search_with_score("signal", filters="n < 1"),
        lambda: store.similarity_search_by_vector(vector, filters="n < 1"),
        lambda: store.max_marginal_relevance_search("signal", filters="n < 1"),
        lambda: store.as_retriever(search_kwargs={"filters": "n < 1"}).invoke("signal"),
        lambda: store.as_retriever(search_type="mmr", search_kwargs={"filters": "n < 1"}).invoke("signal"),
        lambda: store.max_marginal_relevance_search("signal", fetch_k="x"),  # type: ignore[arg-type]
        lambda: documents.delete(["0"], filter="n > 1"),
        lambda: documents.get(["0"], filter="n > 1"),
        lambda: documents.upsert([], namespace="x"),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
    with pytest.raises(InputError, match="takes filter, not filters"):
        await store.asimilarity_search("signal", filters="n < 1")
    with pytest.raises(InputError, match="not filters"):
        await store.adelete(filters="n < 1")
    assert dataset.ids() == ["0", "1", "2"]


def test_a_vector_store_of_a_service_embeds_nothing_here(tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "served", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        with serving(create_app(workspace, settings=Settings())) as url, pointsman.Client(url) as client:
            remote: Any = client.dataset("rails")
            store = PointsmanVectorStore(remote)
            assert store.embeddings is None
            assert [document.id for document in store.as_retriever(search_kwargs={"k": 1}).invoke(TEXTS[1])] == ["1"]
            vector = HashingEmbedder().embed_queries([TEXTS[0]])[0].tolist()
            local = PointsmanVectorStore(workspace.dataset("rails"))
            for weight in (0.0, 1.0):
                expected = [
                    document.id for document in local.max_marginal_relevance_search(TEXTS[0], 2, lambda_mult=weight)
                ]
                by_text = store.max_marginal_relevance_search(TEXTS[0], 2, lambda_mult=weight)
                by_vector = store.max_marginal_relevance_search_by_vector(vector, 2, lambda_mult=weight)
                assert [document.id for document in by_text] == [document.id for document in by_vector] == expected


async def test_no_text_is_lost(dataset: Dataset) -> None:
    store = PointsmanVectorStore(dataset)
    assert len(store.add_texts(text for text in ("a lamp", "a bell"))) == 2
    assert len(await store.aadd_texts(text for text in ("a lamp", "a bell"))) == 2
    assert store.add_texts(["a lamp"], [{"n": 9}], ids=["lamp"]) == ["lamp"]
    assert [document.metadata for document in store.get_by_ids(["lamp"])] == [{"n": 9}]
    count = len(dataset)
    options: dict[str, Any]
    for options in ({"ids": ["x"]}, {"ids": ["x", "y", "z"]}, {"metadatas": [{}]}):
        with pytest.raises(InputError, match=r"for 2 (texts|documents)"):
            store.add_texts(["a lamp", "a bell"], **options)
        with pytest.raises(InputError, match=r"for 2 (texts|documents)"):
            await store.aadd_texts(["a lamp", "a bell"], **options)
    assert len(dataset) == count


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
@pytest.mark.parametrize("target_type", [PointsmanDocumentIndex, PointsmanVectorStore])
async def test_an_index_follows_its_sources(dataset: Dataset, target_type: type[Any]) -> None:
    """LangChain's `index` adds what is new, skips what is known, and deletes what is gone."""
    records = InMemoryRecordManager("rails")
    records.create_schema()
    documents = [TheirDocument(page_content=text, metadata={"source": "rails"}) for text in TEXTS]
    target = PointsmanVectorStore(dataset) if target_type is PointsmanVectorStore else target_type(source=dataset)
    options: dict[str, Any] = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(documents, records, target, **options)["num_added"] == 3
    assert index(documents[1:], records, target, **options) == {
        "num_added": 0,
        "num_updated": 0,
        "num_skipped": 2,
        "num_deleted": 1,
    }
    assert (await aindex(documents[2:], records, target, **options))["num_deleted"] == 1
    assert len(dataset) == 3 + 1


async def test_a_reranker_orders_documents_without_ids_and_leaves_them_alone() -> None:
    documents = [TheirDocument(page_content=text, metadata={"n": n}) for n, text in enumerate([*TEXTS, TEXTS[0]])]
    reranker = PointsmanReranker(reranker=pointsman.CalibratedReranker(HashingEmbedder(), sigma=0.1), top_n=2)
    best = reranker.compress_documents(documents, "baked bread")
    assert best[0].metadata["n"] == 2
    assert len(best) == 2
    assert best[0].metadata["relevance_score"] >= best[1].metadata["relevance_score"]
    assert all("relevance_score" not in document.metadata for document in documents)
    assert await reranker.acompress_documents(documents, "baked bread") == best


# ── theirs in ours ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_retriever_of_langchain_is_one_of_ours(dataset: Dataset) -> None:
    memory = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    memory.add_texts(["a blue signal"], [{"n": 9}], ids=["theirs"])
    retriever = LangChainRetriever(memory.as_retriever(), name="memory")
    (hit,) = retriever.retrieve("signal")
    assert (hit.id, hit.text, hit.metadata) == ("theirs", "a blue signal", {"n": 9})
    assert [(step.source, step.rank, step.score) for step in hit.provenance] == [("memory", 1, None)]
    assert await retriever.aretrieve("signal") == [hit]
    hybrid = SimpleHybridRetriever(dataset.retriever("bm25"), retriever)
    assert {hit.id for hit in hybrid.retrieve("red signal")} >= {"0", "theirs"}
    outside = retriever.retrieve(pointsman.Query("signal", pointsman.parse_filter("n = 1")))
    assert outside == []
    assert outside.degraded == ("memory takes no filters: 0 of its 1 best results match, more may",)  # type: ignore[attr-defined]
    assert retriever.retrieve(pointsman.Query("signal", pointsman.parse_filter("n = 9")), 1) == [hit]


async def test_what_a_retriever_of_langchain_raises_becomes_ours() -> None:
    def fail(_: str) -> list[TheirDocument]:
        raise KeyError("index is gone")

    retriever = LangChainRetriever(RunnableLambda(fail))
    with pytest.raises(PointsmanError, match="RunnableLambda failed: KeyError"):
        retriever.retrieve("signal")
    with pytest.raises(PointsmanError, match="RunnableLambda failed: KeyError"):
        await retriever.aretrieve("signal")


def test_documents_without_an_id_get_the_same_one_each_time() -> None:
    retriever = LangChainRetriever(RunnableLambda(lambda _: [TheirDocument(page_content=text) for text in TEXTS]))
    first, second = retriever.retrieve("x", 2), retriever.retrieve("y", 2)
    assert [hit.id for hit in first] == [hit.id for hit in second]
    assert len({hit.id for hit in first}) == 2


def test_embeddings_of_langchain_serve_a_dataset(tmp_path: Path) -> None:
    embedder = LangChainEmbedder(DeterministicFakeEmbedding(size=16), name="fake-16")
    with Dataset("theirs", path=tmp_path / "theirs", embedder=embedder) as dataset:
        dataset.add([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        assert dataset.store.info.embedder == "fake-16"
        assert [hit.id for hit in dataset.search(TEXTS[1], 1, strategy="vector", refuse=False)] == ["1"]
    nameless = LangChainEmbedder(DeterministicFakeEmbedding(size=16))
    assert (nameless.name, nameless.identified, embedder.identified) == ("DeterministicFakeEmbedding", False, True)


def test_what_embeddings_of_langchain_raise_becomes_ours() -> None:
    class FailingEmbeddings(Embeddings):
        def embed_query(self, text: str) -> list[float]:
            raise RuntimeError("no network")

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise RuntimeError("no network")

    for method in ("embed_queries", "embed_documents"):
        with pytest.raises(ModelError, match="FailingEmbeddings failed: RuntimeError: no network"):
            getattr(LangChainEmbedder(FailingEmbeddings()), method)(["text"])


async def test_models_of_langchain_answer_our_prompts() -> None:
    chat, plain = FakeListChatModel(responses=['[{"choice": 2}]']), FakeListLLM(responses=['[{"choice": 2}]'])
    for model in (chat, plain):
        llm = LangChainLLM(model)
        assert ask(llm, "which?").text == '[{"choice": 2}]'
        assert (await llm.acomplete("which?")).text == '[{"choice": 2}]'
        assert LLMSelector(llm).select(["bread", "signals"], "trains").ind == 1
    with pytest.raises(ModelError, match="FakeListLLM failed"):
        LangChainLLM(FakeListLLM(responses=[])).complete("which?")


def test_a_document_keeps_its_metadata_through_both_directions(dataset: Dataset) -> None:
    metadata = {"title": "Signals", "tags": ["a", "b"], "nested": {"x": [1, None]}, "ratio": 0.5, "flag": True}
    store = PointsmanVectorStore(dataset)
    (id_,) = store.add_documents([TheirDocument(page_content="text", metadata=metadata)])
    assert dataset.get(id_) == Document(id_, "text", metadata)
    assert store.get_by_ids([id_])[0].metadata == metadata


# ── what an answer says of its documents ─────────────────────────────────────────────────────────────────────────────


async def test_metadata_says_what_supersedes_a_document_and_a_day_has_its_own() -> None:
    with Dataset("contracts", embedder=HashingEmbedder()) as dataset:
        dataset.add(CLAUSES)
        retriever = PointsmanRetriever(source=dataset, k=3, options={"refuse": False})
        store = PointsmanVectorStore(dataset)
        vector = dataset.embedder.embed_queries([QUESTION])[0].tolist()
        answers = [
            retriever.invoke(QUESTION),
            await retriever.ainvoke(QUESTION),
            store.similarity_search(QUESTION, 3),
            await store.asimilarity_search(QUESTION, 3),
            [document for document, _ in store.similarity_search_with_score(QUESTION, 3)],
            [document for document, _ in store.similarity_search_with_relevance_scores(QUESTION, 3)],
            store.similarity_search_by_vector(vector, 3),
            store.max_marginal_relevance_search(QUESTION, 3),
            store.max_marginal_relevance_search_by_vector(vector, 3),
        ]
        for answer in answers:
            notes = {document.id: document.metadata.get("not_in_force") for document in answer}
            assert notes == {"clause": REASON, "amendment": None, "payment": None}
        for documents in (retriever.invoke(QUESTION, as_of=BEFORE), store.similarity_search(QUESTION, 3, as_of=BEFORE)):
            assert {document.id for document in documents} == {"clause", "payment"}
            assert not any("not_in_force" in document.metadata for document in documents)


def test_first_document_says_what_did_not_work_and_the_log_what_an_empty_answer_cannot(
    dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = PointsmanRetriever(source=dataset, k=2, options={"coverage": 0.9, "refuse": False})
    first, second = retriever.invoke("red signal")
    assert "coverage" in first.metadata["degraded"][0]
    assert "degraded" not in second.metadata
    assert "degraded" in PointsmanVectorStore(dataset).similarity_search("red signal", 2, coverage=0.9)[0].metadata
    assert not caplog.messages
    assert retriever.invoke("red signal", filters="n > 5") == []
    assert "no documents, and not all of the search worked: " in caplog.messages[0]


def test_principals_say_who_asks(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
        workspace.dataset("rails").set_access({"0": ["user:anna"], "1": ["everyone"], "2": ["group:bakers"]})
        workspace.switch_access(on=True)
        for source in (workspace, workspace.dataset("rails")):
            retriever = PointsmanRetriever(source=source, options={"refuse": False})
            documents = retriever.invoke("signal bread", principals=["user:anna"])
            assert {document.id for document in documents} == {"0", "1"}
            with pytest.raises(InputError, match="needs to know who asks"):
                retriever.invoke("signal bread")
