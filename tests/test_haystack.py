"""X1: Haystack's own suites over the document store, its pipelines with our components, and its retrievers in ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("haystack")

from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing import document_store_async as awaited
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
)
from haystack.utils.filters import document_matches_filter
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from clauses_kit import BEFORE, CLAUSES, QUESTION, REASON
from haystack_integrations.document_stores.pointsman import document_store
from pointsman import Query, SimpleHybridRetriever, parse_filter
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.framework_sources import GivenVectors
from pointsman.integrations.haystack import (
    HaystackRetriever,
    PointsmanDocumentEmbedder,
    PointsmanDocumentStore,
    PointsmanEmbeddingRetriever,
    PointsmanHybridRetriever,
    PointsmanJoiner,
    PointsmanRanker,
    PointsmanRetriever,
    PointsmanTextEmbedder,
    filter_of,
)
from pointsman.service.server import KeyStore
from pointsman.service.server.app import create_app
from pointsman.tools.errors import InputError, PointsmanError, UnmetNeedError
from pointsman.values.settings import Settings
from serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
TEXTS = ["a red signal stops trains", "a green signal lets trains pass", "bread is baked in an oven"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the only one that Haystack runs under


@pytest.fixture
def store() -> Iterator[PointsmanDocumentStore]:
    store = PointsmanDocumentStore(embedder="hashing")
    store.write_documents([Document(id=str(n), content=text, meta={"n": n}) for n, text in enumerate(TEXTS)])
    yield store
    store.close()


# ── Haystack's own suites ────────────────────────────────────────────────────────────────────────────────────────────


class Suite:
    @pytest.fixture
    def document_store(self) -> Iterator[PointsmanDocumentStore]:
        store = PointsmanDocumentStore()
        yield store
        store.close()

    @staticmethod
    def assert_documents_are_equal(actual: list[Document], expected: list[Document]) -> None:
        """As Haystack's, but that vectors are stored as float32."""

        def plain(document: Document) -> dict[str, Any]:
            return {**document.to_dict(flatten=False), "embedding": document.embedding is not None}

        assert [plain(document) for document in actual] == [plain(document) for document in expected]
        for document, expected_document in zip(actual, expected, strict=True):
            if document.embedding is not None:
                assert document.embedding == pytest.approx(expected_document.embedding, rel=1e-5)


class TestDocumentStore(
    Suite,
    DocumentStoreBaseExtendedTests,
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
):
    def test_write_documents(self, document_store: PointsmanDocumentStore) -> None:  # type: ignore[override]
        """Without a policy known ids are refused."""
        document = Document(id="a", content="first")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])


class TestAsyncDocumentStore(
    Suite,
    awaited.CountDocumentsAsyncTest,
    awaited.CountDocumentsByFilterAsyncTest,
    awaited.CountUniqueMetadataByFilterAsyncTest,
    awaited.DeleteAllAsyncTest,
    awaited.DeleteByFilterAsyncTest,
    awaited.DeleteDocumentsAsyncTest,
    awaited.FilterDocumentsAsyncTest,
    awaited.GetMetadataFieldMinMaxAsyncTest,
    awaited.GetMetadataFieldsInfoAsyncTest,
    awaited.GetMetadataFieldUniqueValuesAsyncTest,
    awaited.UpdateByFilterAsyncTest,
    awaited.WriteDocumentsAsyncTest,
):
    async def test_write_documents_async(self, document_store: PointsmanDocumentStore) -> None:
        document = Document(id="a", content="first")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


def test_no_part_of_the_asynchronous_suites_is_left_out() -> None:
    suites = {name for name in vars(awaited) if name.endswith("AsyncTest")}
    assert suites == {
        suite.__name__ for suite in TestAsyncDocumentStore.__mro__ if suite.__module__ == awaited.__name__
    }


# ── the document store ───────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_of_a_document_comes_back() -> None:
    store = PointsmanDocumentStore()
    documents = [
        Document(id="text", content="text", meta={"tags": ["a"], "nested": {"x": None}}, score=0.5),
        Document(id="blob", blob=ByteStream(b"\x00\xff", {"name": "x"}, "image/png")),
        Document(id="sparse", content="", sparse_embedding=SparseEmbedding([1, 7], [0.5, 0.25])),
        Document(id="vector", content="text", embedding=[3.0, 4.0]),
    ]
    store.write_documents(documents)
    Suite.assert_documents_are_equal(store.filter_documents(), documents)
    with pytest.raises(DocumentStoreError, match="all zeros"):
        store.write_documents([Document(id="zero", content="text", embedding=[0.0, 0.0])])
    with pytest.raises(DocumentStoreError, match="dimensions"):
        store.write_documents([Document(id="long", content="text", embedding=[1.0, 0.0, 0.0])])
    store.close()


def test_a_store_in_a_folder_is_a_dataset_of_a_workspace(tmp_path: Path) -> None:
    store = PointsmanDocumentStore(str(tmp_path), "signals", embedder="hashing")
    store.write_documents([Document(id="a", content=TEXTS[0])])
    store.close()
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        assert workspace.search("red signal", 1, datasets="signals", refuse=False).hits[0].id == "a"
    reopened_store = PointsmanDocumentStore.from_dict(store.to_dict())
    assert reopened_store.count_documents() == 1
    reopened_store.close()


VALUES = st.one_of(st.integers(-2, 2), st.sampled_from(["a", "b"]), st.none())
DATES = ["2024-05-01T00:00:00+03:00", "2024-04-30T21:00:00+00:00", "2024-05-01T00:00:00+00:00"]
COMPARISONS = st.one_of(
    st.builds(
        lambda key, operator, value: {"field": f"meta.{key}", "operator": operator, "value": value},
        st.sampled_from(["x", "y"]),
        st.sampled_from(["==", "!="]),
        VALUES,
    ),
    st.builds(
        lambda key, operator, value: {"field": f"meta.{key}", "operator": operator, "value": value},
        st.sampled_from(["x", "y"]),
        st.sampled_from(["in", "not in"]),
        st.lists(VALUES, max_size=3),
    ),
    st.builds(lambda value: {"field": "id", "operator": "in", "value": value}, st.lists(st.sampled_from(["a", "b"]))),
    st.builds(lambda value: {"field": "meta.deep.x", "operator": "==", "value": value}, VALUES),
    st.builds(
        lambda operator, value: {"field": "meta.at", "operator": operator, "value": value},
        st.sampled_from([">", ">=", "<", "<=", "==", "!="]),
        st.sampled_from(DATES),
    ),
    st.builds(
        lambda operator, value: {"field": "meta.number", "operator": operator, "value": value},
        st.sampled_from([">", ">=", "<", "<="]),
        st.integers(-2, 2) | st.none(),
    ),
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda operands: st.builds(
        lambda operator, conditions: {"operator": operator, "conditions": conditions},
        st.sampled_from(["AND", "OR", "NOT"]),
        st.lists(operands, min_size=1, max_size=3),
    ),
    max_leaves=5,
)


META = {
    "x": VALUES,
    "y": VALUES,
    "number": st.integers(-2, 2),
    "at": st.sampled_from(DATES),
    "deep": st.dictionaries(st.just("x"), VALUES),
}


@given(FILTERS, st.fixed_dictionaries({}, optional=META))
def test_filters_mean_what_haystack_says(filters: dict[str, Any], meta: dict[str, Any]) -> None:
    """Against Haystack's own evaluator."""
    document = Document(id="a", content="x", meta=meta)
    assert filter_of(filters).matches({**meta, "_id": "a"}) is document_matches_filter(filters, document)


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "blob", "operator": "==", "value": "a"},
        {"field": "meta.x", "operator": "like", "value": "a"},
        {"field": "meta.x", "operator": "==", "value": {"a": 1}},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": 5},
        {"operator": "AND", "conditions": None},
        {"field": "meta.x", "operator": [], "value": 1},
        [],
    ],
)
def test_filters_that_cannot_be_expressed_raise(filters: Any) -> None:
    with pytest.raises(FilterError):
        filter_of(filters)


# ── components ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_retriever_searches_by_words_and_vectors(store: PointsmanDocumentStore) -> None:
    retriever = PointsmanRetriever(store, top_k=1)
    (document,) = retriever.run("baked bread")["documents"]
    assert (document.id, document.content, document.meta) == ("2", TEXTS[2], {"n": 2})
    assert isinstance(document.score, float)
    assert (await retriever.run_async("baked bread"))["documents"] == [document]
    condition = {"field": "meta.n", "operator": "==", "value": 1}
    assert [document.id for document in retriever.run("signal", filters=condition, top_k=3)["documents"]] == ["1"]
    merging = PointsmanRetriever(
        store, filters={"field": "meta.n", "operator": "<", "value": 2}, filter_policy="merge", strategy="bm25"
    )
    assert [document.id for document in merging.run("signal", filters=condition)["documents"]] == ["1"]
    strict = PointsmanRetriever(store, strategy="bm25", refuse=True)
    assert strict.run("nothing of the kind")["documents"] == []
    with pytest.raises(InputError, match="strategy"):
        PointsmanRetriever(store, strategy="nonsense").run("signal")


def test_the_retriever_looks_by_words_where_vectors_come_from_elsewhere() -> None:
    store = PointsmanDocumentStore()
    answer = PointsmanDocumentEmbedder("hashing").run([Document(id=text, content=text) for text in TEXTS])
    store.write_documents(answer["documents"])
    assert [document.id for document in PointsmanRetriever(store).run("baked bread")["documents"]] == [TEXTS[2]]
    vector = PointsmanTextEmbedder("hashing").run("baked bread")["embedding"]
    documents = PointsmanEmbeddingRetriever(store, top_k=2, return_embedding=True).run(vector)["documents"]
    assert documents[0].id == TEXTS[2]
    assert documents[0].embedding == pytest.approx(answer["documents"][2].embedding, abs=1e-6)
    assert [document.score for document in documents] == sorted(
        (document.score or 0.0 for document in documents), reverse=True
    )
    store.close()


def test_documents_with_and_without_embeddings_are_one_commit(tmp_path: Path) -> None:
    """All of them or none, however they alternate."""
    store = PointsmanDocumentStore(tmp_path)
    documents = [
        Document(id=str(n), content=f"signal {n}", embedding=None if n % 2 else [1.0, float(n)]) for n in range(1_000)
    ]
    bad = Document(id="bad", content="x", embedding=[1.0, 2.0, 3.0])
    with pytest.raises(DocumentStoreError, match="one length"):
        store.write_documents([*documents, bad])
    assert store.count_documents() == 0
    assert store.write_documents(documents) == 1_000
    assert store.dataset.store.statistics().sequence == 1
    assert [document.id for document in store.filter_documents()] == [str(n) for n in range(1_000)]
    assert [document.id for document in store.filter_documents() if document.embedding is not None] == [
        str(n) for n in range(0, 1000, 2)
    ]
    store.close()


def test_a_store_with_an_embedder_embeds_only_what_has_no_embedding() -> None:
    store = PointsmanDocumentStore(embedder="hashing")
    vector = HashingEmbedder().embed(TEXTS[1]).tolist()
    store.write_documents(
        [Document(id="given", content=TEXTS[0], embedding=vector), Document(id="own", content=TEXTS[0])]
    )
    vectors = store.dataset.get_vectors(["given", "own"])
    assert vectors[0] is not None
    assert vectors[1] is not None
    assert vectors[0].tolist() == pytest.approx(vector)
    assert vectors[1].tolist() == pytest.approx(HashingEmbedder().embed(TEXTS[0]).tolist())
    store.close()


async def test_retrievers_return_embeddings_and_low_scores_as_asked(store: PointsmanDocumentStore) -> None:
    vector = PointsmanTextEmbedder("hashing").run(TEXTS[0])["embedding"]
    runs: list[tuple[Any, dict[str, Any]]] = [
        (PointsmanEmbeddingRetriever, {"query_embedding": vector}),
        (PointsmanRetriever, {"query": TEXTS[0]}),
        (PointsmanHybridRetriever, {"query": TEXTS[0], "query_embedding": vector}),
    ]
    for kind, question in runs:
        documents = kind(store).run(**question)["documents"]
        assert len(documents) == 3
        assert all(document.embedding is None for document in documents)
        assert all(document.embedding for document in kind(store, return_embedding=True).run(**question)["documents"])
        threshold = documents[1].score
        assert kind(store, score_threshold=threshold).run(**question)["documents"] == documents[:2]
        assert (await kind(store).run_async(**question, score_threshold=threshold))["documents"] == documents[:2]
        assert kind(store, score_threshold=threshold).run(**question, score_threshold=-1e9)["documents"] == documents
        copy = kind.from_dict(kind(store, score_threshold=0.5, return_embedding=True).to_dict())
        assert (copy.score_threshold, copy.return_embedding) == (0.5, True)


def test_the_hybrid_retriever_ranks_as_a_search_by_both(store: PointsmanDocumentStore) -> None:
    question = "which signal stops a train?"
    vector = PointsmanTextEmbedder("hashing").run(question)["embedding"]
    documents = PointsmanHybridRetriever(store).run(question, vector)["documents"]
    expected = store.dataset.retriever("hybrid").retrieve(question, 10)
    assert [document.id for document in documents] == [hit.id for hit in expected]
    assert [document.score for document in documents] == pytest.approx([hit.score for hit in expected])
    foreign = PointsmanDocumentStore()
    foreign.write_documents(
        PointsmanDocumentEmbedder("hashing").run([Document(id=t, content=t) for t in TEXTS])["documents"]
    )
    by_rank = PointsmanHybridRetriever(foreign, top_k=1).run(
        TEXTS[2], PointsmanTextEmbedder("hashing").run(TEXTS[2])["embedding"]
    )
    (best,) = by_rank["documents"]
    assert best.id == TEXTS[2]
    assert best.score == pytest.approx(2 / 61)
    foreign.close()


def test_filters_on_the_content(store: PointsmanDocumentStore) -> None:
    for operator, value, expected in (
        ("==", TEXTS[0], ["0"]),
        ("!=", TEXTS[0], ["1", "2"]),
        ("in", TEXTS[:2], ["0", "1"]),
        ("not in", TEXTS[:2], ["2"]),
        ("==", "signal", []),
    ):
        filters = {"field": "content", "operator": operator, "value": value}
        assert [document.id for document in store.filter_documents(filters)] == expected
        documents = PointsmanRetriever(store).run("a signal and bread", filters=filters)["documents"]
        assert {document.id for document in documents} == set(expected)
    with pytest.raises(FilterError, match="no order"):
        store.filter_documents({"field": "content", "operator": "<", "value": "2024-01-01"})


async def test_a_store_at_a_service_gives_the_services_answer(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        for name in ("rails", "others"):
            workspace.dataset(name).add(
                [{"id": f"{name}{n}", "text": t, "metadata": {"n": n}} for n, t in enumerate(TEXTS)]
            )
        with serving(create_app(workspace, settings=Settings())) as url:
            store = PointsmanDocumentStore(url, "rails")
            retriever = PointsmanRetriever(store, top_k=2)
            documents = retriever.run("red signal")["documents"]
            expected = workspace.search("red signal", 2, datasets="rails", refuse=False).hits
            assert [document.id for document in documents] == [hit.id for hit in expected]
            assert [document.score for document in documents] == pytest.approx([hit.score for hit in expected])
            assert (await retriever.run_async("red signal"))["documents"] == documents
            condition = {"field": "meta.n", "operator": "==", "value": 2}
            assert [document.id for document in retriever.run("red signal", filters=condition)["documents"]] == [
                "rails2"
            ]
            pipeline = Pipeline()
            pipeline.add_component("service", retriever)
            component: Any = Pipeline.loads(pipeline.dumps()).get_component("service")
            assert component.run("red signal")["documents"] == documents
            assert store.count_documents() == len(TEXTS)
            store.write_documents([Document(id="bread", content="The baker bakes bread at dawn.")])
            assert retriever.run("baker at dawn", top_k=1)["documents"][0].id == "bread"
            assert workspace.dataset("rails").get_vectors(["bread"])[0] is not None  # the service has embedded it
            vector = HashingEmbedder().embed("baker at dawn").tolist()
            for nearest in (
                PointsmanEmbeddingRetriever(store).run(vector),
                PointsmanHybridRetriever(store).run("baker at dawn", vector),
            ):
                assert nearest["documents"][0].id == "bread"
            assert store.delete_by_filter({"field": "id", "operator": "==", "value": "bread"}) == 1
            store.close()
            component.document_store.close()


def test_wrong_stores_and_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="PointsmanDocumentStore"):
        PointsmanRetriever(InMemoryDocumentStore())  # type: ignore[arg-type]
    for make in (
        lambda: PointsmanRetriever(PointsmanDocumentStore(), top_k=0),
        lambda: PointsmanEmbeddingRetriever(PointsmanDocumentStore(), top_k=0),
        lambda: PointsmanRanker(top_k=0),
        lambda: PointsmanJoiner("nonsense"),
        lambda: PointsmanJoiner(top_k=0),
        lambda: PointsmanJoiner().run([[Document(content="x")]], top_k=-1),
    ):
        with pytest.raises(ValueError, match=r"1 or more|from 1 up|nonsense"):
            make()


async def test_the_ranker_orders_and_leaves_its_input_alone() -> None:
    documents = [Document(content=text, meta={"n": n}) for n, text in enumerate(TEXTS)]
    documents.append(Document(blob=ByteStream(b"picture")))
    ranker = PointsmanRanker(embedder="hashing")
    best = ranker.run("baked bread", documents)["documents"]
    assert best[0].content == TEXTS[2]
    assert best[-1] is documents[-1]
    assert len(best) == 4
    assert all(document.score is None for document in documents)
    assert len(ranker.run("baked bread", documents, top_k=1)["documents"]) == 1
    assert (await ranker.run_async("baked bread", documents))["documents"] == best
    assert ranker.run("baked bread", [])["documents"] == []


async def test_embedders_give_the_embedders_vectors() -> None:
    embedder = HashingEmbedder()
    answer = PointsmanTextEmbedder("hashing").run("baked bread")
    assert answer == {"embedding": embedder.embed("baked bread").tolist()}
    assert await PointsmanTextEmbedder("hashing").run_async("baked bread") == answer
    documents = [Document(content="text", meta={"title": "Signals"}), Document(content="text")]
    embedding_answer = await PointsmanDocumentEmbedder("hashing").run_async(documents)
    assert [document.embedding for document in embedding_answer["documents"]] == embedder.embed_documents(
        ["Signals\ntext", "text"]
    ).tolist()
    assert documents[0].embedding is None
    assert PointsmanDocumentEmbedder("hashing").run([])["documents"] == []
    with pytest.raises(TypeError, match="PointsmanDocumentEmbedder"):
        PointsmanTextEmbedder("hashing").run(documents)  # type: ignore[arg-type]


def test_the_joiner_fuses() -> None:
    def ranking(*names: str) -> list[Document]:
        return [Document(id=name, content=name, score=1.0 / rank) for rank, name in enumerate(names, 1)]

    answer = PointsmanJoiner().run([ranking("a", "b"), ranking("b", "c")])["documents"]
    assert [document.id for document in answer] == ["b", "a", "c"]
    assert answer[0].score == pytest.approx(1 / 61 + 1 / 62)
    weighted_answer = PointsmanJoiner("weighted_rrf", [1.0, 0.0], top_k=1).run([ranking("a", "b"), ranking("b", "c")])
    assert [document.id for document in weighted_answer["documents"]] == ["a"]


def test_a_pipeline_goes_to_yaml_and_back(tmp_path: Path) -> None:
    store = PointsmanDocumentStore(str(tmp_path), embedder="hashing")
    store.write_documents([Document(id=str(n), content=text, meta={"n": n}) for n, text in enumerate(TEXTS)])
    store.close()
    pipeline = Pipeline()
    pipeline.add_component("embedder", PointsmanTextEmbedder("hashing"))
    pipeline.add_component("near", PointsmanEmbeddingRetriever(store, top_k=3))
    pipeline.add_component("words", PointsmanRetriever(store, top_k=3, strategy="bm25"))
    pipeline.add_component("joiner", PointsmanJoiner("weighted_rrf", [1.0, 2.0]))
    pipeline.add_component("ranker", PointsmanRanker(top_k=1, embedder="hashing"))
    pipeline.connect("embedder", "near")  # one output and one input fit, as in Haystack's tutorials
    pipeline.connect("near.documents", "joiner.documents")
    pipeline.connect("words.documents", "joiner.documents")
    pipeline.connect("joiner.documents", "ranker.documents")
    copy = Pipeline.loads(pipeline.dumps())
    assert copy.to_dict()["components"] == pipeline.to_dict()["components"]
    for each_pipeline in (pipeline, copy):
        data = {"embedder": {"text": "baked bread"}, "words": {"query": "bread"}, "ranker": {"query": "baked bread"}}
        (best,) = each_pipeline.run(data)["ranker"]["documents"]
        assert best.id == "2"
        for name in ("near", "words"):
            retriever: Any = each_pipeline.get_component(name)
            retriever.document_store.close()


# ── theirs in ours ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_retriever_of_haystack_is_one_of_ours(store: PointsmanDocumentStore) -> None:
    memory = InMemoryDocumentStore()
    memory.write_documents([Document(id="theirs", content="a blue signal", meta={"n": 9}), Document(content="bread")])
    retriever = HaystackRetriever(InMemoryBM25Retriever(memory))
    hits = retriever.retrieve("signal", 1)
    assert [(hit.id, hit.text, hit.metadata) for hit in hits] == [("theirs", "a blue signal", {"n": 9})]
    assert hits[0].score == hits[0].provenance[0].score
    assert await retriever.aretrieve("signal", 1) == hits
    hybrid = SimpleHybridRetriever(store.dataset.retriever("bm25"), retriever)
    assert {hit.id for hit in hybrid.retrieve("red signal")} >= {"0", "theirs"}
    assert [hit.id for hit in retriever.retrieve(Query("signal", parse_filter("n = 9")), 1)] == ["theirs"]
    assert retriever.retrieve(Query("signal", parse_filter("n = 1")), 1) == []
    with pytest.raises(InputError, match="cannot be called as a retriever"):
        HaystackRetriever(object())


async def test_what_a_retriever_of_haystack_raises_becomes_ours() -> None:
    class FailingComponent:
        def run(self, query: str, top_k: int) -> dict[str, list[Document]]:
            raise KeyError("gone")

    class BrokenTwice(FailingComponent):
        async def run_async(self, query: str, top_k: int) -> dict[str, list[Document]]:
            await asyncio.sleep(0)
            raise KeyError("gone")

    for component in (FailingComponent(), BrokenTwice()):
        with pytest.raises(PointsmanError, match="failed: KeyError"):
            HaystackRetriever(component).retrieve("signal")
        with pytest.raises(PointsmanError, match="failed: KeyError"):
            await HaystackRetriever(component).aretrieve("signal")


def test_skipped_documents_leave_those_that_are_there(store: PointsmanDocumentStore) -> None:
    documents = [Document(id="0", content="other"), Document(id="new", content="new")]
    assert store.write_documents(documents, DuplicatePolicy.SKIP) == 1
    assert {document.id: document.content for document in store.filter_documents()} == {
        **{str(n): text for n, text in enumerate(TEXTS)},
        "new": "new",
    }


def test_an_id_that_is_given_twice_is_a_known_one(store: PointsmanDocumentStore) -> None:
    """As in Haystack's own store."""
    documents = [Document(id="twice", content="first"), Document(id="twice", content="second")]
    stores = (store, InMemoryDocumentStore())
    for each_store in stores:
        assert each_store.write_documents(documents, DuplicatePolicy.SKIP) == 1
        assert [document.content for document in each_store.filter_documents(BY_ID)] == ["first"]
        assert each_store.write_documents(documents, DuplicatePolicy.OVERWRITE) == 2
        assert [document.content for document in each_store.filter_documents(BY_ID)] == ["second"]
        each_store.delete_documents(["twice"])
        for policy in (DuplicatePolicy.FAIL, DuplicatePolicy.NONE):
            with pytest.raises(DuplicateDocumentError):
                each_store.write_documents([*documents], policy)
            each_store.delete_documents(["twice"])


BY_ID = {"field": "id", "operator": "==", "value": "twice"}


def test_policies_are_those_of_haystack(store: PointsmanDocumentStore) -> None:
    documents: Any = [Document(id="0", content="other")]
    for policy in ("fail", "none"):
        with pytest.raises(DuplicateDocumentError):
            store.write_documents(documents, policy)  # type: ignore[arg-type]
    for invalid_policy in ("nonsense", None):
        with pytest.raises(ValueError, match="DuplicatePolicy"):
            store.write_documents(documents, invalid_policy)  # type: ignore[arg-type]
    assert [document.content for document in store.filter_documents() if document.id == "0"] == [TEXTS[0]]


def test_metadata_under_the_key_of_the_store_is_metadata(store: PointsmanDocumentStore) -> None:
    metas: list[Any] = [
        {"_haystack": 1},
        {"_haystack": {"content": "other"}},
        {"_haystack": {"blob": 5}},
        {"_haystack": {"score": "x"}},
    ]
    for n, meta in enumerate(metas):
        document = Document(id=f"own-{n}", content="text", meta=meta)
        store.write_documents([document])
        store.dataset.add([{"id": f"foreign-{n}", "text": "text", "metadata": meta}])
        ids = [f"own-{n}", f"foreign-{n}"]
        for stored_document in store.filter_documents({"field": "id", "operator": "in", "value": ids}):
            assert (stored_document.content, stored_document.meta, stored_document.score, stored_document.blob) == (
                "text",
                meta,
                None,
                None,
            )


def test_embeddings_that_are_none_are_refused(store: PointsmanDocumentStore) -> None:
    wrong: list[Any] = [["a"] * 64, [float("nan")] * 64, [float("inf")] * 64, [None] * 64, "text"]
    for embedding in wrong:
        with pytest.raises(DocumentStoreError, match="finite numbers"):
            store.write_documents([Document(id="x", content="x", embedding=embedding)])
    lengths = [Document(id=str(n), content="x", embedding=[1.0] * n) for n in (64, 3)]
    with pytest.raises(DocumentStoreError, match="all of one length"):
        store.write_documents(lengths)
    with pytest.raises(DocumentStoreError, match="id is a str"):
        store.delete_documents([1])  # type: ignore[list-item]


def test_a_store_is_opened_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents of a second, temporary dataset would be lost."""
    second, first_write = threading.Event(), threading.Event()
    names: list[str] = []

    def vectors(embedder: None, name: str, *distance: Any) -> GivenVectors:
        names.append(name)
        if len(names) == 1:
            second.wait(1)  # the other thread would get here meanwhile
        else:
            second.set()
            first_write.wait(5)
        return GivenVectors(name)

    monkeypatch.setattr(document_store, "given_or_named", vectors)
    store = PointsmanDocumentStore()

    def write(id_: str) -> None:
        store.write_documents([Document(id=id_, content="text")])
        first_write.set()

    threads = [threading.Thread(target=write, args=(id_,)) for id_ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(document.id for document in store.filter_documents()) == ["a", "b"]
    store.close()


def test_locations(tmp_path: Path) -> None:
    pipeline = Pipeline()
    pipeline.add_component("words", PointsmanRetriever(PointsmanDocumentStore(tmp_path)))
    retriever: Any = Pipeline.loads(pipeline.dumps()).get_component("words")
    assert retriever.document_store.location == str(tmp_path)
    with pytest.raises(UnmetNeedError, match="is a service"):
        PointsmanDocumentStore("http://127.0.0.1:8080", embedder="hashing")


# ── what an answer says of its documents ─────────────────────────────────────────────────────────────────────────────


async def test_meta_says_what_supersedes_a_document_and_a_day_has_its_own() -> None:
    store = PointsmanDocumentStore(embedder="hashing")
    store.dataset.add(CLAUSES)
    vector = store.dataset.embedder.embed_queries([QUESTION])[0].tolist()
    retriever = PointsmanRetriever(store, top_k=3)
    answers = [
        retriever.run(QUESTION),
        await retriever.run_async(QUESTION),
        PointsmanRetriever(store, top_k=3, return_embedding=True).run(QUESTION),
        PointsmanEmbeddingRetriever(store, top_k=3).run(vector),
        PointsmanHybridRetriever(store, top_k=3).run(QUESTION, vector),
    ]
    for answer in answers:
        notes = {document.id: document.meta.get("not_in_force") for document in answer["documents"]}
        assert notes == {"clause": REASON, "amendment": None, "payment": None}
    on_that_day = PointsmanRetriever(store, options={"as_of": BEFORE})
    for documents in (retriever.run(QUESTION, options={"as_of": BEFORE}), on_that_day.run(QUESTION)):
        assert {document.id for document in documents["documents"]} == {"clause", "payment"}
    rebuilt = PointsmanRetriever.from_dict(on_that_day.to_dict())
    assert rebuilt.options == {"as_of": BEFORE}
    rebuilt.document_store.close()
    store.close()


def test_first_document_says_what_did_not_work(store: PointsmanDocumentStore) -> None:
    first, second = PointsmanRetriever(store, top_k=2, options={"coverage": 0.9}).run("red signal")["documents"]
    assert "coverage" in first.meta["degraded"][0]
    assert "degraded" not in second.meta


async def test_options_of_a_run_say_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
        workspace.dataset("rails").set_access({"0": ["user:anna"], "1": ["everyone"], "2": ["group:bakers"]})
        workspace.switch_access(on=True)
        keys = KeyStore(tmp_path / "keys.json")
        key = keys.create("all", scopes=["read"], principals=["user:anna", "group:bakers"]).text
        store = PointsmanDocumentStore(tmp_path, "rails", embedder="hashing")
        anna = {"principals": ["user:anna"]}
        with serving(create_app(workspace, settings=Settings())) as url:
            monkeypatch.setenv("POINTSMAN_API_KEY", key)
            service = PointsmanRetriever(PointsmanDocumentStore(url, "rails"))
            assert {document.id for document in service.run("signal bread")["documents"]} == {"0", "1", "2"}
            for retriever in (PointsmanRetriever(store), service):
                for answer in (
                    retriever.run("signal bread", options=anna),
                    await retriever.run_async("signal bread", options=anna),
                ):
                    assert {document.id for document in answer["documents"]} == {"0", "1"}
            service.document_store.close()
        with pytest.raises(InputError, match="needs to know who asks"):
            PointsmanRetriever(store).run("signal bread")
        store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"as_off": "2026-03-01"}, "did you mean 'as_of'"),
        ({"as_of": "yesterday"}, "as_of is a day such as"),
        ({"refuse": True}, "'refuse' is an argument of the component"),
    ],
)
def test_options_are_checked(store: PointsmanDocumentStore, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PointsmanRetriever(store, options=options)
    with pytest.raises(ValueError, match=message):
        PointsmanRetriever(store).run("red signal", options=options)
